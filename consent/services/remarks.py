"""Remarks on proposals: comments and rejections."""

from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from consent import selectors
from consent.models import ConsentFormProposal, EpsilonPolicy, Remark, study_lock


@transaction.atomic
def proposal_remark(
    *, proposal: EpsilonPolicy | ConsentFormProposal, acting_user: AbstractBaseUser, kind: str, text: str
) -> Remark:
    """Comment on a proposal or reject it, on record.

    Args:
        proposal: an ε policy or a consent form that waits for a second person.
        acting_user: who remarks.
        kind: one of :class:`consent.models.Remark.Kind`.
        text: the comment, or the reason.

    Raises:
        ValidationError: no text, or the proposal was decided already.
    """
    if kind == Remark.Kind.APPROVAL or not text.strip():
        raise ValidationError(_("Write a comment, or the reason for rejecting it."))
    study_lock(proposal.study_id)
    if not selectors.is_waiting(proposal):
        raise ValidationError(_("This proposal is decided already. Propose anew if something has to change."))
    about = {"policy": proposal} if isinstance(proposal, EpsilonPolicy) else {"form": proposal}
    remark = Remark(
        study_id=proposal.study_id,
        kind=kind,
        text=text.strip(),
        made_by_id=acting_user.pk,
        made_at=timezone.now(),
        **about,
    )
    return Remark.append([remark])[0]


def not_rejected_check(**about: Any) -> None:
    """Refuse to approve what was rejected. Raises ValidationError."""
    if Remark.objects.filter(kind=Remark.Kind.REJECTION, **about).exists():
        raise ValidationError(_("This proposal was rejected. Propose anew, with what the reason asks for."))
