"""Verification of all studies every night; what it found is kept, mailed, and shown until it is found no more."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from django.contrib.auth import get_user_model
from django.db.models import F, Q
from django.utils import timezone

from accounting.restores import missing_rows
from accounting.verification import Check, installation_checks
from consent.models import Membership, Role, Study
from consent.services.mail import mails_send
from training.models import Verification
from training.verification import checks_of

logger = logging.getLogger(__name__)

#: Hour of the night, in the installation's time zone, from which studies are verified anew.
_HOUR = 2
#: A worker that died over a verification leaves it to the next after so long.
_LEASE = timedelta(hours=3)
#: So many faults are kept in words.
_KEPT = 100


def outcome_keep(
    study: Study | None,
    checks: Iterable[Check],
    report: Callable[[Check, list[str]], None] = lambda check, faults: None,
) -> int:
    """Run checks of a study, or of what belongs to none, and keep what they find.

    Args:
        study: the study; None: the installation.
        checks: what is verified of it.
        report: is told of each check and its faults.

    Returns:
        The number of faults.
    """
    verified_at = timezone.now()
    alarm, entries = False, []
    for check in checks:
        faults = check.faults()
        report(check, faults)
        alarm |= bool(faults) and check.for_deciders
        entries += [[check.name, fault] for fault in faults]
    Verification.objects.update_or_create(
        study=study,
        defaults={
            "verified_at": verified_at,
            "faults": len(entries),
            "found": entries[:_KEPT],
            "fault_for_deciders": alarm,
            "locked": study is not None and bool(missing_rows(study)),
        },
    )
    return len(entries)


def studies_verify() -> None:
    """Verify the studies that were not verified since the last night began, and mail what is wrong."""
    now = timezone.now()
    night = timezone.localtime(now).replace(hour=_HOUR, minute=0, second=0, microsecond=0)
    if night > now:
        night -= timedelta(days=1)
    for study in [None, *Study.objects.order_by("pk")]:
        if not _claim(study, night):
            continue  # done, or another worker is at it
        if outcome_keep(study, checks_of(study) if study else installation_checks()):
            logger.error("A verification found faults; auditors are told.")
        _mail(study)


def _claim(study: Study | None, night: datetime) -> bool:
    now = timezone.now()
    free = Verification.objects.filter(
        Q(verified_at=None) | Q(verified_at__lt=night),
        Q(claimed_at=None) | Q(claimed_at__lt=now - _LEASE) | Q(claimed_at__lte=F("verified_at")),
        pk=Verification.objects.get_or_create(study=study)[0].pk,
    )
    return bool(free.update(claimed_at=now))


def _mail(study: Study | None) -> None:
    """Tell auditors of every fault, and the committee that there is one. Every night anew: it must not be forgotten.

    Of what belongs to no study the auditors of all are told, and those who run the installation.
    """
    outcome = Verification.objects.get(study=study)
    roles = Membership.objects.order_by().values_list("user_id", flat=True).distinct()
    if study is None:
        if outcome.faults:
            root = get_user_model().objects.filter(is_superuser=True, is_active=True).values_list("pk", flat=True)
            mails_send("installation_fault", sorted({*roles.filter(role=Role.AUDITOR), *root}))
        return
    if outcome.faults or outcome.locked:
        mails_send("fault_found", roles.filter(study=study, role=Role.AUDITOR), study=study)
    if outcome.fault_for_deciders or outcome.locked:
        committee = roles.filter(study=study, role__in=[Role.COMMITTEE, Role.CHAIR])
        mails_send("fault_found_committee", committee, study=study)
