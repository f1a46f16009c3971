"""Re-encrypt and re-sign, with the current keys, all data encrypted or signed with earlier keys.

Call this after a key has changed, with the earlier key among its fallbacks, while the site and workers are stopped.
This does not change digests made with an earlier signing key: receipt numbers, exports, documents, sealed changes, and
codes of invitations. Keep that key for as long as these have to be checked.
"""

from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.utils import decrypt, encrypt
from cryptography.fernet import InvalidToken
from django.core.files.storage import storages
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from common.journal import acts_rotate
from common.keys import Purpose, cipher
from common.progress import progress_bar
from common.sealed_storage import SealError
from consent.models import ChainHead, InstallationHead, WebhookEndpoint
from consent.services.changes import changes_recorded
from ipate_web.backups.files import names_in
from ipate_web.backups.installation import is_running


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        if is_running():
            raise CommandError("A worker is still running. Stop the site, the workers and beat, then try again.")
        try:
            with transaction.atomic():
                factors = _factors_encrypt()
                endpoints = _webhooks_encrypt()
                heads, forged = _heads_sign()
            files, acts = _files_encrypt(), acts_rotate()
        except (InvalidToken, SealError) as error:
            raise CommandError(
                f"Some data were encrypted with an unknown key. {error} Add the key to the fallbacks and repeat the "
                "command, which continues where it stopped."
            ) from error
        for what, number in {
            "Second factors re-encrypted": factors,
            "Webhooks re-encrypted": endpoints,
            "Files re-encrypted": files,
            "Journal entries re-encrypted": acts,
            "Chains re-signed": heads,
            "Chains skipped because of a wrong signature (see verify_ledger)": forged,
        }.items():
            self.stdout.write(f"{what}: {number}")


def _factors_encrypt() -> int:
    """Encrypt the secrets of authenticator apps and the seeds of recovery codes."""
    done = 0
    for each in Authenticator.objects.select_for_update():
        secrets = [name for name in ("secret", "seed") if name in each.data]
        for name in secrets:
            each.data[name] = encrypt(decrypt(each.data[name]))
        if secrets:
            each.save(update_fields=["data"])
            done += 1
    return done


def _webhooks_encrypt() -> int:
    keys, endpoints = cipher(Purpose.FACTORS, "webhook"), WebhookEndpoint.objects.select_for_update()
    for each in endpoints:
        with changes_recorded([each], acting_user=None):
            WebhookEndpoint.objects.filter(pk=each.pk).update(secret=keys.rotate(each.secret.encode()).decode())
    return len(endpoints)


def _heads_sign() -> tuple[int, int]:
    """Sign the heads of all chains; return the numbers of signed heads and of invalid signatures."""
    signed = forged = 0
    for model in (ChainHead, InstallationHead):
        for head in model.objects.select_for_update():
            if head.is_genuine:
                head.sign()
                head.save(update_fields=["signature"])
                signed += 1
            else:
                forged += 1
    return signed, forged


def _files_encrypt() -> int:
    names = [(alias, name) for alias in ("private", "keys") for name in names_in(storages[alias])]
    for alias, name in progress_bar(names, desc="encrypting", unit=" files"):
        storages[alias].rewrap(name)  # type: ignore[attr-defined]
    return len(names)
