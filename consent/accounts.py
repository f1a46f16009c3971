"""Accounts of staff, made by administrators of the installation, and who these are; every change is on record.

An administrator can make an account and have a link for its password sent to the address that they give, close an
account and open it again. They can neither change an account that is there, nor sign in as somebody else, nor give a
role of the ethics committee.
"""

from allauth.account.models import EmailAddress
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.dispatch import Signal
from django.utils import timezone
from django.utils.translation import gettext as _

from consent.mail import mails_send
from consent.models import AccountChange, Administrator, Membership, Role, Study

#: Whose accounts are out of the reach of an administrator who operates their study.
_OVERSIGHT = (Role.COMMITTEE, Role.CHAIR, Role.AUDITOR)
#: Sent when an account was closed, with ``user``: whatever it could sign in with elsewhere ends.
account_closed = Signal()


def staff() -> QuerySet[User]:
    """Accounts with a role, of superusers, and those that administrators have made, or that were administrators."""
    on_record = AccountChange.objects.filter(user_id=OuterRef("pk"))
    roles = Q(memberships__isnull=False) | Q(is_superuser=True) | Q(is_staff=True)
    return (
        User.objects.filter(roles | Exists(on_record)).select_related("administrator").distinct().order_by("username")
    )


def staff_waiting() -> QuerySet[User]:
    """Accounts that an administrator has made and nobody has signed in to."""
    made = AccountChange.objects.filter(user_id=OuterRef("pk"), kind=AccountChange.Kind.CREATED)
    return User.objects.filter(Exists(made), last_login=None, is_active=True)


def _record(user: User, kind: str, acting_user: AbstractBaseUser | None) -> None:
    AccountChange(user_id=user.pk, kind=kind, changed_by_id=acting_user.pk if acting_user else None).save()


def _administrator_check(acting_user: AbstractBaseUser | None) -> None:
    if acting_user is not None and not acting_user.has_perm("consent.manage_accounts"):  # type: ignore[attr-defined]
        raise PermissionDenied(f"User {acting_user.pk} does not administer the installation.")


@transaction.atomic
def account_create(
    *, username: str, first_name: str, last_name: str, email: str, acting_user: AbstractBaseUser | None
) -> User:
    """Make an account without a password and without any role; a mail with a link for the password goes to ``email``.

    Args:
        username: the name to sign in with.
        first_name: the person's first name.
        last_name: the person's last name.
        email: their address.
        acting_user: the administrator; None from the command line.

    Raises:
        PermissionDenied: ``acting_user`` is no administrator of the installation.
        ValidationError: the name is taken or has characters that names cannot have.
    """
    _administrator_check(acting_user)
    user = User(username=username, first_name=first_name, last_name=last_name, email=email.lower())
    user.set_unusable_password()
    user.full_clean()
    user.save()
    EmailAddress.objects.create(user=user, email=user.email, primary=True)
    _record(user, AccountChange.Kind.CREATED, acting_user)
    mails_send("account_made", [user.pk])
    return user


@transaction.atomic
def account_invite(*, user: User, acting_user: AbstractBaseUser | None) -> None:
    """Send the link for a password again to an account to which nobody has signed in.

    Raises:
        PermissionDenied: ``acting_user`` is no administrator, or somebody has signed in to the account.
    """
    _administrator_check(acting_user)
    if not staff_waiting().filter(pk=user.pk).exists():
        raise PermissionDenied(f"The account {user.pk} is in use, or was not made by an administrator.")
    _record(user, AccountChange.Kind.INVITED, acting_user)
    mails_send("account_made", [user.pk])


@transaction.atomic
def account_close(*, user: User, acting_user: User | None) -> None:
    """Close an account of staff: its sessions and tokens end at once. Roles and records stay; closing again is nothing.

    Args:
        user: the account.
        acting_user: the administrator; None from the command line.

    Raises:
        PermissionDenied: ``acting_user`` is no administrator, or ``user`` is a superuser or no account of staff.
        ValidationError: it is their own account, or that of the last administrator.
    """
    _of_staff_check(user, acting_user)
    # The row of each administrator: of two who close each other at once, the second finds the first closed.
    administrators = list(Administrator.objects.select_for_update().values_list("user_id", flat=True))
    user = User.objects.select_for_update().get(pk=user.pk)
    if not user.is_active:
        return
    if acting_user is not None and acting_user.pk == user.pk:
        raise ValidationError(_("You cannot close your own account. Ask another administrator."))
    others = User.objects.filter(Q(pk__in=administrators) | Q(is_superuser=True), is_active=True).exclude(pk=user.pk)
    if (user.pk in administrators or user.is_superuser) and not others.exists():
        raise ValidationError(_("This is the last administrator. Make somebody else one first."))
    user.is_active = False
    user.save(update_fields=["is_active"])
    _sessions_end(user)
    account_closed.send(sender=User, user=user)
    _record(user, AccountChange.Kind.CLOSED, acting_user)


@transaction.atomic
def account_reopen(*, user: User, acting_user: User | None) -> None:
    """Open a closed account again, with the roles that it still has; sessions and tokens stay gone.

    Raises:
        PermissionDenied: as for closing it.
    """
    _of_staff_check(user, acting_user)
    user = User.objects.select_for_update().get(pk=user.pk)
    if user.is_active:
        return
    user.is_active = True
    user.save(update_fields=["is_active"])
    _record(user, AccountChange.Kind.REOPENED, acting_user)


def _of_staff_check(user: User, acting_user: User | None) -> None:
    """Refuse whoever is no administrator, and accounts that are out of their reach. Raises PermissionDenied."""
    _administrator_check(acting_user)
    if not staff().filter(pk=user.pk).exists():
        raise PermissionDenied(f"The account {user.pk} is no account of staff.")
    if acting_user is None or acting_user.is_superuser:
        return
    if user.is_superuser:
        raise PermissionDenied("Only superusers close and open accounts of superusers.")
    operated = Membership.objects.filter(user=acting_user, role=Role.OPERATOR).values("study")
    oversees = Membership.objects.filter(user=user, study__in=operated, role__in=_OVERSIGHT)
    if oversees.exists():
        raise PermissionDenied("Who operates a study closes no account of those who oversee it.")


def _sessions_end(user: User) -> None:
    """Delete the sessions of an account; sessions do not name theirs but inside."""
    for session in Session.objects.filter(expire_date__gte=timezone.now()).iterator(chunk_size=1000):
        if session.get_decoded().get(SESSION_KEY) == str(user.pk):
            session.delete()


def operated_alone(user: User) -> QuerySet[Study]:
    """Studies of which the account is the only open one with the role of an operator."""
    operators = Membership.objects.filter(study=OuterRef("pk"), role=Role.OPERATOR, user__is_active=True)
    return Study.objects.filter(Exists(operators.filter(user=user)), ~Exists(operators.exclude(user=user)))


@transaction.atomic
def administrator_set(*, user: User, appointed: bool, acting_user: User | None) -> None:
    """Make an account an administrator of the installation, or take that away; doing so again changes nothing.

    Args:
        user: the account.
        appointed: whether it is to be one.
        acting_user: a superuser; None from the command line.

    Raises:
        PermissionDenied: ``acting_user`` is no superuser.
    """
    if acting_user is not None and not acting_user.is_superuser:
        raise PermissionDenied("Only superusers say who administers the installation.")
    if Administrator.objects.filter(user=user).exists() == appointed:
        return
    if appointed:
        Administrator.objects.create(user=user)
    else:
        Administrator.objects.filter(user=user).delete()
    _record(user, AccountChange.Kind.APPOINTED if appointed else AccountChange.Kind.DISMISSED, acting_user)
