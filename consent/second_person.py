"""The rule that nobody approves what they proposed."""

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

#: The code of the ValidationError, by which the API knows it.
SECOND_PERSON = "second_person"


def second_person_check(proposer_id: int | None, acting_user: AbstractBaseUser, *, own: str) -> None:
    """Check that ``acting_user`` is another person than the one who made a proposal.

    Args:
        proposer_id: The account that made it; None where it has been deleted.
        acting_user: Who is about to approve.
        own: What its own proposer is told.

    Raises:
        ValidationError: They are the same, or the proposer's account is gone, so that nobody can tell.
    """
    if proposer_id == acting_user.pk:
        raise ValidationError(own, code=SECOND_PERSON)
    if proposer_id is None or not get_user_model()._default_manager.filter(pk=proposer_id).exists():
        told = _(
            "The account that proposed this is gone, and nobody can tell that you are another person. Propose anew."
        )
        raise ValidationError(told, code=SECOND_PERSON)
