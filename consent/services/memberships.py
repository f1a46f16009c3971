"""Roles in a study: given and taken away, on record."""

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from consent.locks import study_lock
from consent.models import Membership, Role, RoleChange, Study
from consent.permissions import roles_given_by


@transaction.atomic
def membership_add(
    *, study: Study, user: AbstractBaseUser, role: str, acting_user: AbstractBaseUser | None
) -> Membership:
    """Give ``user`` a role in ``study``, on record; giving it again changes nothing.

    Args:
        study: The study.
        user: Who gets the role.
        role: One of :class:`Role`.
        acting_user: Who gives it; None for whoever administers the installation, at the command line.

    Returns:
        The membership.

    Raises:
        PermissionDenied: ``acting_user`` may not give this role.
        ValidationError: There is no such role, or ``user`` has one that excludes it.
    """
    _role_change_check(study, role, acting_user)
    study_lock(study.pk)
    membership = Membership.objects.filter(study=study, user_id=user.pk, role=role).first()
    if membership is None:
        membership = Membership(study=study, user_id=user.pk, role=role)
        membership_give(membership, acting_user)
    return membership


@transaction.atomic
def membership_remove(*, membership: Membership, acting_user: AbstractBaseUser | None) -> None:
    """Take a role away, on record; a role that is gone already stays gone.

    Args:
        membership: The role.
        acting_user: Who takes it; None for whoever administers the installation, at the command line.

    Raises:
        PermissionDenied: ``acting_user`` may not take this role away.
        ValidationError: The study would be left without an operator.
    """
    _role_change_check(membership.study, membership.role, acting_user)
    study_lock(membership.study_id)
    if not Membership.objects.filter(pk=membership.pk).exists():
        return
    others = Membership.objects.filter(study_id=membership.study_id, role=Role.OPERATOR).exclude(pk=membership.pk)
    if membership.role == Role.OPERATOR and not others.exists():
        raise ValidationError(_("A study needs an operator. Give the role to somebody else first."))
    _role_change_record(membership, RoleChange.Kind.TAKEN, acting_user)
    membership.delete()


def _role_change_check(study: Study, role: str, acting_user: AbstractBaseUser | None) -> None:
    """Raise PermissionDenied unless ``acting_user`` may give the role and take it away."""
    if acting_user is not None and role not in roles_given_by(acting_user, study):
        raise PermissionDenied(f"User {acting_user.pk} may not change who is {role} of the study {study.slug}.")


def membership_give(membership: Membership, acting_user: AbstractBaseUser | None) -> None:
    """Save a new membership and record it; the study is locked or new, and it was checked who may give the role."""
    membership.full_clean()
    membership.save()
    _role_change_record(membership, RoleChange.Kind.GIVEN, acting_user)


def _role_change_record(membership: Membership, kind: str, acting_user: AbstractBaseUser | None) -> None:
    change = RoleChange(
        study_id=membership.study_id,
        user_id=membership.user_id,
        role=membership.role,
        kind=kind,
        changed_by_id=acting_user.pk if acting_user else None,
        changed_at=timezone.now(),
    )
    RoleChange.append([change])
