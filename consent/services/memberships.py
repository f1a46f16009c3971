"""Roles in a study. Assigning or removing a role takes two people (see :mod:`consent.models.roles`) and is recorded."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from consent import selectors
from consent.models import Membership, Role, RoleChange, Study, study_lock
from consent.models.roles import LASTING
from consent.permissions import confirms_roles, needs_no_confirmation, roles_given_by, second_person_check
from consent.services.accounts import account_create, account_of_staff
from consent.services.mail import mails_send


@transaction.atomic
def membership_add(
    *, study: Study, user: AbstractBaseUser, role: str, acting_user: AbstractBaseUser | None
) -> Membership | None:
    """Give ``user`` a role in ``study``, or propose it if a second person has to confirm it, and record this.

    Args:
        user: The user who gets the role; giving it again has no effect.
        role: One of :class:`Role`.
        acting_user: The user who gives it; None for an administrator at the command line.

    Returns:
        The membership; None if a second person has to confirm it.

    Raises:
        PermissionDenied: ``acting_user`` may not propose changes of this role.
        ValidationError: There is no such role, or ``user`` has a role that excludes it.
    """
    _proposer_check(study, role, acting_user)
    study = study_lock(study.pk)
    membership = Membership.objects.filter(study=study, user_id=user.pk, role=role).first()
    if membership is not None:
        return membership
    membership = Membership(study=study, user_id=user.pk, role=role)
    if needs_no_confirmation(acting_user, study, whose=user.pk, giving=True):
        membership_give(membership, acting_user)
        return membership
    membership.full_clean()
    _propose(membership, RoleChange.Kind.TO_GIVE, acting_user)
    return None


@transaction.atomic
def membership_remove(*, membership: Membership, acting_user: AbstractBaseUser | None) -> bool:
    """Remove a role, or propose its removal if a second person has to confirm it, and record this.

    Args:
        membership: The role; removing it again has no effect.
        acting_user: The user who removes it; None for an administrator at the command line.

    Returns:
        Whether the role was removed; otherwise a second person has to confirm it.

    Raises:
        PermissionDenied: ``acting_user`` may not propose changes of this role.
        ValidationError: The study would be left without an operator or a chair.
    """
    _proposer_check(membership.study, membership.role, acting_user)
    study = study_lock(membership.study_id)
    if not Membership.objects.filter(pk=membership.pk).exists():
        return True
    _others_check(membership)
    if needs_no_confirmation(acting_user, study, whose=membership.user_id, giving=False):
        _take(membership, acting_user)
        return True
    _propose(membership, RoleChange.Kind.TO_TAKE, acting_user)
    return False


@dataclass(frozen=True)
class Appointment:
    """A role for a person, whose account is created if it does not exist."""

    username: str
    role: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""


@transaction.atomic
def people_appoint(
    *, study: Study, appointments: Sequence[Appointment], acting_user: User, leaves: bool = False
) -> list[Appointment]:
    """Create accounts and give roles in a study, either all or none.

    Args:
        study: The study.
        appointments: The people and roles; a person may get several roles.
        acting_user: An administrator of the installation who may give these roles.
        leaves: Whether ``acting_user`` gives up their own roles in the study as soon as it has another operator.

    Returns:
        The appointments that a second person has to confirm.

    Raises:
        PermissionDenied: ``acting_user`` may not create accounts or propose one of the roles.
        ValidationError: An account cannot be created or get its role, or the study would have no operator.
    """
    waiting = []
    # Once a study has a supervisor, assigning further roles takes two people, except for an administrator without a
    # role in it.
    for each in sorted(appointments, key=lambda each: each.role != Role.OPERATOR):
        if leaves and each.role != Role.OPERATOR:
            _leave(study, acting_user)
        user = account_of_staff(each.username) or account_create(
            username=each.username,
            first_name=each.first_name,
            last_name=each.last_name,
            email=each.email,
            acting_user=acting_user,
        )
        if membership_add(study=study, user=user, role=each.role, acting_user=acting_user) is None:
            waiting.append(each)
    if leaves:
        _leave(study, acting_user)
    return waiting


def _leave(study: Study, user: User) -> None:
    for membership in Membership.objects.filter(study=study, user_id=user.pk).select_related("study"):
        membership_remove(membership=membership, acting_user=user)


@transaction.atomic
def role_change_confirm(*, proposal: RoleChange, acting_user: AbstractBaseUser) -> None:
    """Confirm a proposed role change as a second person, which puts it into effect.

    Raises:
        PermissionDenied: ``acting_user`` has no supervising role in the study.
        ValidationError: They proposed it or would get the role themselves; it is no longer pending; its proposer is no
            longer allowed to propose it; or the role cannot be combined with one that the person now has.
    """
    study = study_lock(proposal.study_id)
    if not confirms_roles(acting_user, study):
        raise PermissionDenied(f"User {acting_user.pk} may not confirm roles in the study {study.slug}.")
    _waiting_check(study, proposal)
    giving = proposal.kind == RoleChange.Kind.TO_GIVE
    if giving and proposal.user_id == acting_user.pk:
        raise ValidationError(
            _("You cannot confirm your own role. Another person who oversees the study must confirm it.")
        )
    second_person_check(
        study,
        proposal.changed_by_id,
        acting_user,
        own=_("You proposed this yourself. Another person who oversees the study must confirm it."),
    )
    if proposal.role not in roles_given_by(proposal.changed_by, study):
        raise ValidationError(_("The proposer can no longer give this role. Propose the change again."))
    if giving:
        membership_give(Membership(study=study, user_id=proposal.user_id, role=proposal.role), acting_user, proposal)
        return
    membership = Membership.objects.get(study=study, user_id=proposal.user_id, role=proposal.role)
    _others_check(membership)
    _take(membership, acting_user, proposal)


@transaction.atomic
def role_change_drop(*, proposal: RoleChange, acting_user: AbstractBaseUser) -> None:
    """Withdraw or refuse a proposed role change, and record this.

    Raises:
        PermissionDenied: ``acting_user`` may neither propose nor confirm it.
        ValidationError: It is no longer pending.
    """
    study = study_lock(proposal.study_id)
    if proposal.role not in roles_given_by(acting_user, study) and not confirms_roles(acting_user, study):
        raise PermissionDenied(f"User {acting_user.pk} may not decide who is {proposal.role} of {study.slug}.")
    _waiting_check(study, proposal)
    membership = Membership(study=study, user_id=proposal.user_id, role=proposal.role)
    _record(membership, RoleChange.Kind.DROPPED, acting_user)


def membership_give(
    membership: Membership, acting_user: AbstractBaseUser | None, proposal: RoleChange | None = None
) -> None:
    """Save and record a new membership; the study is locked or new, and the caller has checked who may give it."""
    membership.full_clean()
    membership.save()
    _record(membership, RoleChange.Kind.GIVEN, acting_user, proposal)


def _take(membership: Membership, acting_user: AbstractBaseUser | None, proposal: RoleChange | None = None) -> None:
    membership.delete()
    _record(membership, RoleChange.Kind.TAKEN, acting_user, proposal)


def _propose(membership: Membership, kind: RoleChange.Kind, acting_user: AbstractBaseUser | None) -> None:
    """Record a proposal, unless the same proposal is already pending."""
    waiting = selectors.role_changes_waiting(membership.study)
    if not any((each.user_id, each.role) == (membership.user_id, membership.role) for each in waiting):
        _record(membership, kind, acting_user)


def _proposer_check(study: Study, role: str, acting_user: AbstractBaseUser | None) -> None:
    """Raise PermissionDenied unless ``acting_user`` may propose changes of the role."""
    if acting_user is not None and role not in roles_given_by(acting_user, study):
        raise PermissionDenied(f"User {acting_user.pk} may not change who is {role} of the study {study.slug}.")


def _waiting_check(study: Study, proposal: RoleChange) -> None:
    """Refuse a proposal that is already decided. Raises ValidationError."""
    if proposal not in selectors.role_changes_waiting(study):
        raise ValidationError(_("This proposal is no longer pending. See the log for the outcome."))


def _others_check(membership: Membership) -> None:
    """Refuse to remove the last operator or chair who can sign in. Raises ValidationError."""
    others = Membership.objects.filter(study_id=membership.study_id, role=membership.role, user__is_active=True)
    if membership.role in LASTING and not others.exclude(pk=membership.pk).exists():
        raise ValidationError(
            _("The study needs at least one person with the role “%(role)s”. Give this role to another person first.")
            % {"role": membership.get_role_display()}
        )


def _record(
    membership: Membership, kind: str, acting_user: AbstractBaseUser | None, proposal: RoleChange | None = None
) -> None:
    """Append an act to the study's record, and notify everyone in the study."""
    change = RoleChange(
        study_id=membership.study_id,
        user_id=membership.user_id,
        role=membership.role,
        kind=kind,
        changed_by_id=acting_user.pk if acting_user else None,
        changed_at=timezone.now(),
        proposed_by_id=proposal.changed_by_id if proposal else None,
    )
    RoleChange.append([change])
    members = set(Membership.objects.filter(study_id=membership.study_id).values_list("user_id", flat=True))
    if kind in (RoleChange.Kind.GIVEN, RoleChange.Kind.TAKEN):
        members.add(membership.user_id)
    members.discard(change.changed_by_id)
    mails_send("role_changed", sorted(members), study=membership.study, about=change.pk)
