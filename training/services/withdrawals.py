"""What a run has given, a version of its student or its table, is withdrawn for good, on record."""

from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.utils import timezone

from accounting.models import Release
from accounting.services import release_record
from consent.models import Disposal, Study
from consent.services.erasures import disposal_record
from training.models import RunResult, StudentModel


def withdrawal_record(
    target: StudentModel | RunResult,
    *,
    study: Study,
    reason: str,
    unexplained: str,
    content: dict[str, Any],
    acting_user: AbstractBaseUser | None,
) -> None:
    """Mark as withdrawn what a run has given, for good; of a run that asked people, enter it into the register.

    Args:
        target: what is withdrawn.
        study: that of the run, locked.
        reason: why, for whoever took it or asks for it.
        unexplained: what is said where there is no reason.
        content: what the register says beside digest and reason.
        acting_user: who withdraws it; None where the hub of its run has.

    Raises:
        ValidationError: there is no reason.
    """
    if not reason.strip():
        raise ValidationError({"reason": unexplained})
    target.withdrawn_at, target.withdrawal_reason = timezone.now(), reason.strip()
    target.save(update_fields=["withdrawn_at", "withdrawal_reason"])
    # A restored backup may forget it, and withdraws it again by this row.
    disposal_record(
        study=study,
        kind=Disposal.Kind.RESULT,
        acting_user=acting_user,
        subject=target.digest,
        reason=target.withdrawal_reason,
    )
    if not target.run.rehearsal:
        release_record(
            study=study,
            kind=Release.Kind.WITHDRAWAL,
            run=target.run_id,
            content={**content, "digest": target.digest, "reason": target.withdrawal_reason},
            acting_user_id=acting_user.pk if acting_user else None,
        )
