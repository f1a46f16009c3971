"""Warnings for an installation's administrators, on the home page, by email, in ``/readyz`` and in metrics.

Every five minutes Beat sends :func:`watch` to a worker. It records that both are running, checks the site's
certificate, sends a sign of life for each healthy part, and emails administrators about the others. If Beat, all
workers, the machine or its network fail, no email can be sent, but a monitor elsewhere notices that the signs of life
have stopped.
"""

import logging
import shutil
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from celery import shared_task
from cryptography import x509
from django.conf import settings
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Min
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from common.models import BackupRecord, Pulse
from common.outbound import RefusedAddressError, post
from consent.models import Study
from consent.permissions import administrators
from consent.services.mail import MailKind, kinds_register, mails_send
from training.watch import OVERDUE, all_watches, budgets_watch

logger = logging.getLogger(__name__)

#: Seconds between two checks; after three missed checks, Beat is considered down.
INTERVAL = 300.0
SILENCE = timedelta(minutes=15)
#: Free space below which a disk is nearly full, and remaining lifetime below which a certificate should be renewed.
LEAST_FREE = 0.1
LEAST_VALID = timedelta(days=14)
#: The same alarm is emailed again after a day; a new alarm is emailed at the next check.
MAILED_AGAIN = timedelta(days=1)
_LOOKED_AGAIN = timedelta(hours=1)


def beat_age() -> timedelta:
    """Return the time since Beat and a worker last ran together or, if they never did, since the first study began."""
    last = Pulse.objects.filter(name="beat").values_list("at", flat=True).first()
    last = last or Study.objects.aggregate(first=Min("created_at"))["first"]
    return timezone.now() - last if last else timedelta()


def disk_free() -> float:
    """Return the smallest free share of the disks with local state and journal, as seen by this process.

    The share is in whole per cent, because an exact share would reveal the size of recently written data.
    """
    folders = [path for path in (Path(settings.VAR_DIR), Path(settings.JOURNAL_DIR)) if path.exists()]
    return min((round(usage.free / usage.total, 2) for usage in map(shutil.disk_usage, folders)), default=1.0)


def certificate_lifetime() -> timedelta:
    """Return the time until the site's certificate expires, or the largest possible time if no certificate was seen."""
    until = Pulse.objects.filter(name="certificate").values_list("until", flat=True).first()
    return until - timezone.now() if until else timedelta.max


def _backup() -> str:
    """Return "overdue" if a backup is overdue, otherwise "ok". A new installation has time for its first backup."""
    installed = MigrationRecorder.Migration.objects.aggregate(at=Min("applied"))["at"]
    is_new = backup_last() is None and installed is not None and timezone.now() - installed <= OVERDUE
    return "ok" if is_new or backup_age() <= OVERDUE else "overdue"


def _studies() -> str:
    watches = all_watches()
    for state, is_so in (
        ("fault found", any(each.fault for each in watches)),
        ("study locked", any(each.locked for each in watches)),
        ("overdue", any(each.overdue for each in watches)),
    ):
        if is_so:
            return state
    return "ok"


@dataclass(frozen=True)
class WatchedPart:
    """Monitored part of the installation.

    Attributes:
        state: function that returns ``ok``, or the problem in a word or two.
        alarm: message to administrators if the state is something else.
    """

    state: Callable[[], str]
    alarm: str | Promise


PARTS: dict[str, WatchedPart] = {
    "verification": WatchedPart(
        _studies, _("A study is locked, has a fault, or has not been verified for 26 hours. See the home page.")
    ),
    "backup": WatchedPart(_backup, _("No backup has succeeded for 26 hours.")),
    "beat": WatchedPart(
        lambda: "silent" if beat_age() > SILENCE else "ok",
        _("Periodic tasks have not run for 15 minutes, so beat or all workers have stopped."),
    ),
    "disk": WatchedPart(
        lambda: "almost full" if disk_free() < LEAST_FREE else "ok", _("Less than a tenth of a disk is free.")
    ),
    "certificate": WatchedPart(
        lambda: "ends soon" if certificate_lifetime() < LEAST_VALID else "ok",
        _("The site's certificate expires within 14 days."),
    ),
}


def alarms() -> dict[str, str | Promise]:
    """Return the parts with problems, with the messages about them."""
    return {name: part.alarm for name, part in PARTS.items() if part.state() != "ok"}


@shared_task(name="ipate_web.tasks.watch")
def watch(*_: object, **__: object) -> None:
    """Record that Beat and a worker are running, check the monitored parts, and report on them."""
    now = timezone.now()
    Pulse.objects.update_or_create(name="beat", defaults={"at": now})
    _certificate_record(now)
    budgets_watch()
    wrong = alarms()
    for name in PARTS.keys() - wrong.keys():
        _sign_of_life(name)
    if wrong:
        logger.error("Problems found: %s.", ", ".join(sorted(wrong)))
        _mail(sorted(wrong), now)
    else:
        # If the problem comes back, it is reported as new.
        Pulse.objects.filter(name="alarm mail").update(note="")


def _certificate_record(now: datetime) -> None:
    """Record the expiry of the certificate for the site's URL, at most once an hour, regardless of its issuer."""
    parts = urlsplit(settings.SITE_URL)
    if parts.scheme != "https" or not parts.hostname:
        return
    if Pulse.objects.filter(name="certificate", at__gt=now - _LOOKED_AGAIN).exists():
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((parts.hostname, parts.port or 443), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname) as secure,
        ):
            certificate = secure.getpeercert(binary_form=True)
    except OSError as error:
        logger.warning("The site's certificate could not be fetched: %s.", error.__class__.__name__)
        return
    if certificate:
        until = x509.load_der_x509_certificate(certificate).not_valid_after_utc
        Pulse.objects.update_or_create(name="certificate", defaults={"at": now, "until": until})


def _sign_of_life(name: str) -> None:
    if not settings.SIGN_OF_LIFE_URL:
        return
    try:
        status = post(settings.SIGN_OF_LIFE_URL.replace("{name}", name), b"", {}).status
        if status >= 400:
            logger.warning("The monitor responded to a ping with status %d.", status)
    except (OSError, HTTPException, RefusedAddressError) as error:
        logger.warning("A ping to the monitor failed: %s.", error.__class__.__name__)


def _mail(wrong: list[str], now: datetime) -> None:
    """Notify administrators once a day, and immediately of new problems. Only one worker does this."""
    note = ",".join(wrong)
    last, _made = Pulse.objects.get_or_create(name="alarm mail", defaults={"at": now - MAILED_AGAIN, "note": ""})
    if set(wrong) <= set(last.note.split(",")) and last.at > now - MAILED_AGAIN:
        return
    if Pulse.objects.filter(name="alarm mail", at=last.at, note=last.note).update(at=now, note=note):
        mails_send("alarm", administrators().values_list("pk", flat=True))


def register() -> None:
    """Register this kind of email. Called once, at start-up."""
    kinds_register(MailKind("alarm", _("the installation needs attention"), lambda mail: _open_alarms() or None))


def _open_alarms() -> dict[str, list[str | Promise]]:
    problems = list(alarms().values())
    return {"alarms": problems} if problems else {}


def backup_last() -> datetime | None:
    """Return the time of the last successful backup, or None if this database has no record of one."""
    return BackupRecord.objects.order_by("-made_at").values_list("made_at", flat=True).first()


def backup_age() -> timedelta:
    """Return the time since the last backup, or the largest possible duration if there was none."""
    last = backup_last()
    return timezone.now() - last if last else timedelta.max
