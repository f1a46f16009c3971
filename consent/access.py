"""One person's choice is shown to that person alone. Staff who must look say why, and every look is on record."""

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from consent.models import ConsentEvent, DataHolder, LevelAccess, Study
from consent.selectors import consent_current
from consent.services import study_lock


@transaction.atomic
def holder_level_look(
    *, study: Study, pseudonym: str, acting_user: AbstractBaseUser, reason: str
) -> ConsentEvent | None:
    """What the holder last decided, None if nothing; the look is recorded first. Raises ValidationError if unknown."""
    study_lock(study.pk)
    holder = DataHolder.objects.filter(study=study, pseudonym=pseudonym).first()
    if holder is None:
        raise ValidationError({"pseudonym": _("Nobody in this study is called so. Check the spelling.")})
    look = LevelAccess(
        study=study, holder=holder, reason=reason.strip(), seen_by_id=acting_user.pk, seen_at=timezone.now()
    )
    LevelAccess.append([look])
    return consent_current(holder)
