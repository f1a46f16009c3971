"""The rule that nobody approves what they proposed, be it by another account that is in their hands.

Whoever made an account typed the address to which its password goes, and a superuser can set its password and address.
So two accounts are one person's word where one of them was made or changed by the other, or has its role in the study
by the other alone. The records of accounts and roles tell; a role that a second person confirmed is nobody's gift.
"""

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.utils.translation import gettext as _

from consent.models import AccountChange, ConflictOfInterest, Membership, RoleChange, Study

#: The code of the ValidationError, by which the API knows it.
SECOND_PERSON = "second_person"


def second_person_check(study: Study, proposer_id: int | None, acting_user: AbstractBaseUser, *, own: str) -> None:
    """Check that ``acting_user`` is another person than the one who made a proposal.

    Args:
        study: The study in which it was made.
        proposer_id: The account that made it; None where it has been deleted.
        acting_user: Who is about to approve.
        own: What its own proposer is told.

    Raises:
        ValidationError: The approver has declared a conflict of interest, they are the same, one account is in the
            other's hands (which does not matter in a rehearsal study), or the proposer's account is gone, so that
            nobody can tell.
    """
    if ConflictOfInterest.objects.filter(study=study, user_id=acting_user.pk).exists():
        message = _("You have declared a conflict of interest in this study, and approve nothing there.")
        raise ValidationError(message, code=SECOND_PERSON)
    if proposer_id == acting_user.pk:
        raise ValidationError(own, code=SECOND_PERSON)
    if proposer_id is None or not get_user_model()._default_manager.filter(pk=proposer_id).exists():
        message = _(
            "The account that proposed this is gone, and nobody can tell that you are another person. Propose anew."
        )
        raise ValidationError(message, code=SECOND_PERSON)
    if not study.rehearsal and in_one_hand(study, proposer_id, acting_user.pk):
        message = _(
            "Your account and the one that proposed this count as one person here: one of them was made or changed by "
            "the other, or has its role by the other alone. Ask somebody else to decide."
        )
        raise ValidationError(message, code=SECOND_PERSON)


def in_one_hand(study: Study, first_id: int, second_id: int) -> bool:
    """Whether one of two accounts was made or changed by the other, or has a role in ``study`` by the other alone."""
    pair = Q(user_id=first_id, changed_by_id=second_id) | Q(user_id=second_id, changed_by_id=first_id)
    kinds = (AccountChange.Kind.CREATED, AccountChange.Kind.CHANGED)
    if AccountChange.objects.filter(pair, kind__in=kinds).exists():
        return True
    roles = set(
        Membership.objects.filter(study=study, user_id__in=(first_id, second_id)).values_list("user_id", "role")
    )
    gifts: dict[tuple[int, str], RoleChange] = {}
    changes = RoleChange.chain(study.pk).filter(user_id__in=(first_id, second_id), kind=RoleChange.Kind.GIVEN)
    for change in changes:
        gifts[change.user_id, change.role] = change
    return any(
        {change.user_id, change.changed_by_id} == {first_id, second_id} and change.proposed_by_id is None
        for role, change in gifts.items()
        if role in roles
    )
