"""Invitations: a link that alone lets a data holder decide, look up, change and withdraw.

A code is shown once, to the operator who made it; the database keeps its SHA-256 (a code has 160 random bits, so that
a plain hash is as good as a slow one). To whoever tries codes, wrong, revoked and replaced ones are the same.
"""

import base64
import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.contrib.auth import authenticate, get_user_model
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from consent.models import DataHolder, Invitation, Study, WrongCode
from consent.services import holder_link, holders_register, study_lock

CODE_BYTES = 20
#: So many wrong codes from one place within ``WINDOW`` are answered with a pause.
TRIES = 10
WINDOW = timedelta(minutes=10)


class TooManyTriesError(Exception):
    """Too many codes from one place were wrong; right ones wait, too, so that waiting tells nothing."""


@dataclass(frozen=True)
class Issued:
    """A new invitation with its code, which exists nowhere else."""

    invitation: Invitation
    code: str

    @property
    def pseudonym(self) -> str:
        return self.invitation.holder.pseudonym if self.invitation.holder else ""

    @property
    def link(self) -> str:
        return settings.SITE_URL.rstrip("/") + reverse("open_link", args=[self.code])

    @property
    def spelled(self) -> str:
        """The code in groups of four, to be typed from paper."""
        return " ".join(self.code[start : start + 4] for start in range(0, len(self.code), 4))


def _code() -> str:
    """160 bits from the operating system, in lower-case letters and digits that are hard to confuse (RFC 4648)."""
    return base64.b32encode(secrets.token_bytes(CODE_BYTES)).decode().lower()


def code_hash(code: str) -> str:
    """What is kept of a code, however it was typed.

    >>> code_hash("ABCD efgh") == code_hash("abcd-efgh")
    True
    """
    return hashlib.sha256("".join(code.replace("-", "").split()).lower().encode()).hexdigest()


@transaction.atomic
def invitations_create(
    *,
    study: Study,
    acting_user: AbstractBaseUser | None,
    pseudonyms: Iterable[str] = (),
    open_places: int = 0,
    replace: bool = False,
) -> list[Issued]:
    """Invite the holders with these pseudonyms, and ``open_places`` new ones.

    Who can decide already (by an account, or by a valid invitation unless ``replace``) is left out; replacing revokes
    the earlier code. Raises ValidationError for a pseudonym longer than 200 characters.
    """
    wanted = list(dict.fromkeys(name for raw in pseudonyms if (name := raw.strip())))
    if any(len(name) > 200 for name in wanted):
        raise ValidationError(_("A pseudonym has at most 200 characters; put each on a line of its own."))
    study_lock(study.pk)
    holders_register(study=study, pseudonyms=wanted)
    valid = Invitation.objects.filter(study=study, revoked_at=None, holder__isnull=False)
    invited = set() if replace else set(valid.values_list("holder_id", flat=True))
    without_account = DataHolder.objects.filter(study=study, user=None).exclude(pk__in=invited)
    by_pseudonym = {holder.pseudonym: holder for holder in without_account.iterator(chunk_size=10_000)}
    holders: list[DataHolder | None] = [by_pseudonym[name] for name in wanted if name in by_pseudonym]
    now = timezone.now()
    if replace:
        for start in range(0, len(holders), 500):
            valid.filter(holder__in=holders[start : start + 500]).update(
                revoked_at=now, revoked_by=acting_user.pk if acting_user else None
            )
    issued = []
    for holder in [*holders, *[None] * open_places]:
        code = _code()
        invitation = Invitation(
            study=study,
            holder=holder,
            code_hash=code_hash(code),
            created_by_id=acting_user.pk if acting_user else None,
            created_at=now,
        )
        issued.append(Issued(invitation, code))
    Invitation.objects.bulk_create((new.invitation for new in issued), batch_size=1000)
    return issued


@transaction.atomic
def invitation_revoke(*, invitation: Invitation, acting_user: AbstractBaseUser) -> None:
    """From now on the code opens nothing, and who came by it is asked for another at the next page."""
    Invitation.objects.filter(pk=invitation.pk, revoked_at=None).update(
        revoked_at=timezone.now(), revoked_by=acting_user.pk
    )


def _source(address: str) -> str:
    return salted_hmac("consent.invitations", address, algorithm="sha256").hexdigest()


def tries_left(address: str) -> bool:
    """May somebody at this network address try another code?"""
    wrong = WrongCode.objects.filter(source=_source(address), at__gt=timezone.now() - WINDOW)
    return wrong.count() < TRIES


def wrong_code_note(*, address: str) -> None:
    """Count a wrong try from this network address; what is too old to count is forgotten."""
    now = timezone.now()
    WrongCode.objects.filter(at__lte=now - WINDOW).delete()
    WrongCode.objects.create(source=_source(address), at=now)


@transaction.atomic
def invitation_open(*, code: str, address: str) -> Invitation | None:
    """The invitation that a code opens, bound to its holder; None for any other code, whatever is wrong with it.

    Raises TooManyTriesError after ten wrong codes within ten minutes from one network address.
    """
    if not tries_left(address):
        raise TooManyTriesError
    valid = Invitation.objects.select_related("holder", "study").filter(revoked_at=None, holder__user=None)
    invitation = valid.filter(code_hash=code_hash(code)).first()
    if invitation is None:
        wrong_code_note(address=address)
        return None
    if invitation.holder is None:
        study_lock(invitation.study_id)
        invitation = valid.get(pk=invitation.pk)  # somebody may have opened it in the same moment
        if invitation.holder is None:
            pseudonym = f"new-{secrets.token_hex(6)}"
            invitation.holder = DataHolder.objects.create(study=invitation.study, pseudonym=pseudonym)
    invitation.last_used_at = timezone.now()
    invitation.save(update_fields=["holder", "last_used_at"])
    return invitation


@transaction.atomic
def account_take(*, holder: DataHolder, email: str, password: str) -> User:
    """Give the holder an account, new or their own from elsewhere on the site; it takes the link's place.

    Raises ValidationError for a weak password, for the wrong password of an existing account, and where the account
    already takes part in the study.
    """
    email = email.strip().lower()
    users = get_user_model()
    if users.objects.filter(username__iexact=email).exists():
        user = authenticate(username=email, password=password)
        if user is None:
            raise ValidationError(
                _("This e-mail address cannot be used with this password. If you have an account, use its password.")
            )
    else:
        user = users(username=email, email=email)
        validate_password(password, user)
        user.set_password(password)
        user.save()
    if DataHolder.objects.filter(study=holder.study_id, user=user).exists():
        raise ValidationError(_("This account already decides for other records in this study. Use another address."))
    holder_link(holder=holder, user=user)
    return user
