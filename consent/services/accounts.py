"""Accounts of staff, which administrators create, and of administrators themselves. Every change is recorded.

An administrator can create an account, with a password link sent to the address that they enter, and can close and
reopen accounts. They cannot change an existing account, sign in as someone else, or assign roles on the ethics
committee.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from allauth.account.models import EmailAddress
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.dispatch import Signal
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from common.journal import note
from common.models import row_add
from consent.models import AccountChange, Administrator, Membership, Role, Study
from consent.models.roles import WATCHING
from consent.services.changes import account_forget
from consent.services.mail import mails_send

_KIND = AccountChange.Kind
#: Acts that are possible only on staff accounts.
_OF_STAFF = (_KIND.CREATED, _KIND.INVITED, _KIND.APPOINTED, _KIND.DISMISSED)
#: Permission of an account → the kinds of change that grant and remove it, and whether accounts have it by default.
_STANDING = {
    "is_active": (_KIND.REOPENED, _KIND.CLOSED, True),
    "is_staff": (_KIND.ADMIN, _KIND.NO_ADMIN, False),
    "is_superuser": (_KIND.SUPERUSER, _KIND.NO_SUPERUSER, False),
    "administrator": (_KIND.APPOINTED, _KIND.DISMISSED, False),
}
_USUAL = {name: usual for name, (_given, _taken, usual) in _STANDING.items()}
#: Sent when an account has been closed, with ``user``, so that sign-ins through other systems end as well.
account_closed = Signal()


def staff() -> QuerySet[User]:
    """Return accounts that have a role, are superusers, were created by administrators, or were administrators."""
    on_record = AccountChange.objects.filter(user_id=OuterRef("pk"), kind__in=_OF_STAFF)
    roles = Q(memberships__isnull=False) | Q(is_superuser=True) | Q(is_staff=True)
    return (
        User.objects.filter(roles | Exists(on_record)).select_related("administrator").distinct().order_by("username")
    )


def account_of_staff(username: str) -> User | None:
    """Return the open account with this name, if it can be given a role.

    Holders sign in with an email address. The existence of such an account must stay secret, even from people who try
    to give it a role, so a name with an @ is found only if the account already has a role or was created by an
    administrator.
    """
    accounts = staff() if "@" in username else User.objects.all()
    return accounts.filter(username=username, is_active=True).first()


def username_check(username: str) -> None:
    """Refuse staff user names that could be a holder's.

    Otherwise, the message that a name is taken would reveal that the holder has an account.

    Raises:
        ValidationError: the name contains an @.
    """
    if "@" in username:
        raise ValidationError(
            _("Staff user names cannot contain @, because data holders sign in with an address. Choose another.")
        )


def staff_waiting() -> QuerySet[User]:
    """Return accounts that an administrator has created and that have not been used to sign in yet."""
    made = AccountChange.objects.filter(user_id=OuterRef("pk"), kind=AccountChange.Kind.CREATED)
    return User.objects.filter(Exists(made), last_login=None, is_active=True)


@transaction.atomic
def account_change_record(*, user: User, acting_user: AbstractBaseUser, made: bool) -> None:
    """Record that a superuser has created or changed another person's account in the admin."""
    if user.pk != acting_user.pk:
        _record(user, _KIND.CREATED if made else _KIND.CHANGED, acting_user)


def account_changes() -> QuerySet[AccountChange]:
    """Return acts on staff accounts and on accounts that have been deleted, newest first."""
    there = User.objects.filter(pk=OuterRef("user_id"))
    return AccountChange.objects.filter(Q(user_id__in=staff().values("pk")) | ~Exists(there)).order_by("-sequence")


@transaction.atomic
def _record(user: AbstractBaseUser, kind: str, acting_user: AbstractBaseUser | None) -> None:
    change = AccountChange(
        user_id=user.pk, kind=kind, changed_by_id=acting_user.pk if acting_user else None, changed_at=timezone.now()
    )
    AccountChange.append([change])


def _account_permissions(of: Q) -> dict[int, dict[str, bool]]:
    """Return the permissions of the accounts that match ``of``, by id."""
    administers = Exists(Administrator.objects.filter(user=OuterRef("pk")))
    rows = User.objects.filter(of).annotate(administers=administers)
    names = ("is_active", "is_staff", "is_superuser", "administers")
    return {pk: dict(zip(_STANDING, values, strict=True)) for pk, *values in rows.values_list("pk", *names)}


@contextmanager
def permission_changes_record(user: User, *, acting_user: AbstractBaseUser | None) -> Iterator[None]:
    """Record the changes that the block makes to an account's permissions.

    The recorded permissions are whether the account is active, may use the admin, is a superuser, and administers the
    installation.

    Args:
        user: the account; unsaved if the block adds it.
        acting_user: the user who changes it; None at the command line.
    """
    with transaction.atomic():
        User.objects.select_for_update().filter(pk=user.pk).first()
        before = _account_permissions(Q(pk=user.pk)).get(user.pk, _USUAL)
        yield
        after = _account_permissions(Q(pk=user.pk))[user.pk]
        for name, (given, taken, _usual) in _STANDING.items():
            if before[name] != after[name]:
                _record(user, given if after[name] else taken, acting_user)


@transaction.atomic
def new_account_record(user: User) -> None:
    """Record the initial permissions of a new account, such as one created at the command line."""
    for name in ("is_active", "is_staff", "is_superuser"):
        given, taken, usual = _STANDING[name]
        if getattr(user, name) != usual:
            _record(user, taken if usual else given, None)


@transaction.atomic
def account_deletion_record(user: User) -> None:
    """Record that an account named in the log is about to be deleted, and clear references to the account."""
    account_forget(user)
    if AccountChange.objects.filter(user_id=user.pk).exists():
        _record(user, AccountChange.Kind.DELETED, None)


@transaction.atomic
def accounts_review(*, acting_user: User) -> int:
    """Record that staff accounts were reviewed after restoring a backup that lacks some of their changes.

    Returns:
        The number of changes that the backup lacks; if it is 0, nothing is recorded.
    """
    missing = AccountChange.rows_missing(None)
    if missing:
        _record(acting_user, AccountChange.Kind.REVIEWED, acting_user)
        head = AccountChange.head()
        noted = {AccountChange._meta.label_lower: (head.sequence, head.hash)}
        note(None, heads=noted, replace=True)
    return missing


def account_faults() -> Iterator[str]:
    """Describe accounts whose permissions differ from those recorded, and records that contradict each other."""
    recorded: dict[int, dict[str, bool]] = {}
    kinds = {given: (name, True) for name, (given, _taken, _usual) in _STANDING.items()}
    kinds |= {taken: (name, False) for name, (_given, taken, _usual) in _STANDING.items()}
    for user, kind in AccountChange.chain().values_list("user_id", "kind"):
        if kind == AccountChange.Kind.DELETED:
            recorded.pop(user, None)
            continue
        known = recorded.setdefault(user, dict(_USUAL))
        if kind in kinds:
            name, value = kinds[kind]
            if known[name] == value:
                yield f"account {user}: {kind} was recorded although nothing had changed."
            known[name] = value
    unusual = Q(is_active=False) | Q(is_staff=True) | Q(is_superuser=True) | Q(administrator__isnull=False)
    held = _account_permissions(unusual | Q(pk__in=list(recorded)))
    for user in sorted(recorded.keys() - held.keys()):
        yield f"account {user}: is missing, but no record shows that it was deleted."
    for user, now in sorted(held.items()):
        for name in _STANDING:
            if now[name] != recorded.get(user, _USUAL)[name]:
                yield f"account {user}: {name} differs from the record."


def _administrator_check(acting_user: AbstractBaseUser | None) -> None:
    if acting_user is not None and not acting_user.has_perm("consent.manage_accounts"):  # type: ignore[attr-defined]
        raise PermissionDenied(f"User {acting_user.pk} does not administer the installation.")


@transaction.atomic
def account_create(
    *, username: str, first_name: str, last_name: str, email: str, acting_user: AbstractBaseUser | None
) -> User:
    """Create an account without a password or role, and email a link for setting the password to ``email``.

    Args:
        acting_user: the administrator; None from the command line.

    Raises:
        PermissionDenied: ``acting_user`` does not administer the installation.
        ValidationError: the name is taken, or has characters that staff names cannot have.
    """
    _administrator_check(acting_user)
    username_check(username)
    user = User(username=username, first_name=first_name, last_name=last_name, email=email.lower())
    user.set_unusable_password()
    user.full_clean()
    row_add(user)
    EmailAddress.objects.create(user=user, email=user.email, primary=True)
    _record(user, AccountChange.Kind.CREATED, acting_user)
    mails_send("account_made", [user.pk], about=get_language())
    return user


@transaction.atomic
def account_invite(*, user: User, acting_user: AbstractBaseUser | None) -> None:
    """Resend the password link to an account that has never been used to sign in.

    Raises:
        PermissionDenied: ``acting_user`` is not an administrator, or someone has signed in to the account.
    """
    _administrator_check(acting_user)
    if not staff_waiting().filter(pk=user.pk).exists():
        raise PermissionDenied(f"The account {user.pk} is in use, or was not created by an administrator.")
    _record(user, AccountChange.Kind.INVITED, acting_user)
    mails_send("account_made", [user.pk], about=get_language())


@transaction.atomic
def account_close(*, user: User, acting_user: User | None) -> None:
    """Close a staff account, ending its sessions and tokens at once. Roles and records stay. Idempotent.

    Args:
        acting_user: the administrator; None from the command line.

    Raises:
        PermissionDenied: ``acting_user`` is not an administrator, or ``user`` is a superuser or not a staff account.
        ValidationError: the account is ``acting_user``'s own, or that of the last administrator.
    """
    _of_staff_check(user, acting_user)
    # Lock all administrators' rows, so that if two close each other's accounts at once, the second finds its own
    # closed.
    administrators = list(Administrator.objects.select_for_update().values_list("user_id", flat=True))
    user = User.objects.select_for_update().get(pk=user.pk)
    if not user.is_active:
        return
    if acting_user is not None and acting_user.pk == user.pk:
        raise ValidationError(_("You cannot close your own account. Ask another administrator."))
    others = User.objects.filter(Q(pk__in=administrators) | Q(is_superuser=True), is_active=True).exclude(pk=user.pk)
    if (user.pk in administrators or user.is_superuser) and not others.exists():
        raise ValidationError(_("This is the last administrator. Make another person an administrator first."))
    with permission_changes_record(user, acting_user=acting_user):
        user.is_active = False
        user.save(update_fields=["is_active"])
    _sessions_end(user)
    account_closed.send(sender=User, user=user)


@transaction.atomic
def account_reopen(*, user: User, acting_user: User | None) -> None:
    """Reopen a closed account, with the roles that it still has; its sessions and tokens are not restored.

    Raises:
        PermissionDenied: for the same reasons as in :func:`account_close`.
    """
    _of_staff_check(user, acting_user)
    user = User.objects.select_for_update().get(pk=user.pk)
    if user.is_active:
        return
    with permission_changes_record(user, acting_user=acting_user):
        user.is_active = True
        user.save(update_fields=["is_active"])


def _of_staff_check(user: User, acting_user: User | None) -> None:
    """Refuse users who are not administrators, and accounts that may not be closed here. Raises PermissionDenied."""
    _administrator_check(acting_user)
    if not staff().filter(pk=user.pk).exists():
        raise PermissionDenied(f"The account {user.pk} is not a staff account.")
    if acting_user is None or acting_user.is_superuser:
        return
    if user.is_superuser:
        raise PermissionDenied("Only superusers may close or reopen a superuser's account.")
    operated = Membership.objects.filter(user=acting_user, role=Role.OPERATOR).values("study")
    oversees = Membership.objects.filter(user=user, study__in=operated, role__in=WATCHING)
    if oversees.exists():
        raise PermissionDenied("Operators of a study may not close the accounts of people who oversee it.")


def _sessions_end(user: User) -> None:
    """Delete the sessions of an account, which requires decoding each session."""
    for session in Session.objects.filter(expire_date__gte=timezone.now()).iterator(chunk_size=1000):
        if session.get_decoded().get(SESSION_KEY) == str(user.pk):
            session.delete()


def studies_with_sole_operator(user: User) -> QuerySet[Study]:
    """Return studies in which no other open account has the operator role."""
    operators = Membership.objects.filter(study=OuterRef("pk"), role=Role.OPERATOR, user__is_active=True)
    return Study.objects.filter(Exists(operators.filter(user=user)), ~Exists(operators.exclude(user=user)))


@transaction.atomic
def administrator_set(*, user: User, appointed: bool, acting_user: User | None) -> None:
    """Make an account an administrator of the installation, or end that role. Idempotent.

    Args:
        acting_user: a superuser; None from the command line.

    Raises:
        PermissionDenied: ``acting_user`` is not a superuser.
    """
    if acting_user is not None and not acting_user.is_superuser:
        raise PermissionDenied("Only superusers may appoint administrators.")
    with permission_changes_record(user, acting_user=acting_user):
        if appointed:
            Administrator.objects.get_or_create(user=user)
        else:
            Administrator.objects.filter(user=user).delete()
