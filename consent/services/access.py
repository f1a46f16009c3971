"""Staff access to one holder's choice: a reason is required, and each access is recorded."""

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils import timezone

from consent.models import ConsentEvent, LevelAccess, Study, study_lock
from consent.pseudonyms import holder_named
from consent.selectors import consent_current


@transaction.atomic
def holder_level_access(
    *, study: Study, pseudonym: str, acting_user: AbstractBaseUser, reason: str
) -> ConsentEvent | None:
    """Record a staff member's access to a holder's choice, then return the choice.

    Args:
        study: the study of the holder.
        pseudonym: the holder's pseudonym.
        acting_user: the staff member.
        reason: why the choice has to be seen; kept with the record.

    Returns:
        The holder's last consent event, or None before their first.

    Raises:
        ValidationError: no holder of the study has this pseudonym, or the reason is empty.
    """
    study_lock(study.pk)
    holder = holder_named(study, pseudonym)
    look = LevelAccess(
        study=study, holder=holder, reason=reason.strip(), seen_by_id=acting_user.pk, seen_at=timezone.now()
    )
    LevelAccess.append([look])
    return consent_current(holder)
