"""Permissions by role, the backend of ``user.has_perm(permission, study)``, and the rule of the second person.

Permissions are always checked for one study (or an object that has a ``study``), because a role applies to one study
only. Only the permissions of the installation's administrators to create studies and accounts are checked without a
study.

People cannot approve their own proposals, not even through another account that they control. The creator of an account
enters the address that receives the password link, and a superuser can set the account's password and address. Two
accounts are therefore treated as one person if one of them was created or changed by the other, or got its role in the
study only through the other, according to the records of accounts and roles. A role that a second person confirmed does
not depend on the person who assigned it.

Deciders (operators, the ethics committee, researchers) see only releases and what staff have done, and nothing that
depends exactly on what a single person has done (condition 1 of the guarantee). Exact numbers of people, and lists that
name them, are for data stewards, who need them for their work, and for auditors, who make no decisions. Only the chains
listed in this module are public.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from django.utils.translation import gettext as _

from common.append_only import Chained
from common.templatetags.components import capfirst
from consent.models import AccountChange, Administrator, ConflictOfInterest, Membership, Role, RoleChange, Study
from consent.models.roles import CONFIRM, GIVERS

_STAFF = {
    "consent.view_dashboard",  # the staff pages of a study
    "training.view_run",  # runs, their releases and costs
    "accounting.view_ledger",  # the release register and the shares
}
#: Exact numbers of people. Decisions about runs do not need these and must not depend on them (condition 1 of the
#: guarantee), so deciders' roles do not include these permissions.
_SIZES = {"consent.view_group_sizes"}
_USE_STUDENT = "training.use_student"  # released labels, student models, predictions
_STATE_PROVENANCE = "training.state_provenance"  # source of public points
#: Lists that name holders. For the same reason, deciders' roles do not include these permissions.
_LISTS = {
    "consent.view_circumstance",  # who answers for whom, deaths and incapacities
    "consent.check_receipt",  # finds the person whose receipt number is read out
    "consent.view_levelaccess",  # who looked up whose choice, and for whom new links were made
}
_OVERSIGHT = {
    "consent.view_rolechange",  # who gave which role to whom
    CONFIRM,  # as a second person, for any role
    "consent.view_configurationchange",  # who changed which part of the study, its data and runs
}
_COMMITTEE = {
    *_STAFF,
    *_OVERSIGHT,
    "consent.publish_consentform",
    "consent.propose_epsilonpolicy",
    "consent.approve_epsilonpolicy",
    "consent.approve_consentform",  # a version that asks holders again, as a second person
}

ROLE_PERMISSIONS: dict[str, frozenset[str]] = {
    # Decides about runs.
    Role.OPERATOR: frozenset(
        _STAFF
        | {
            "consent.change_study",
            "consent.close_study",
            "consent.manage_webhooks",
            "consent.manage_members",  # proposes who has which role, except roles of the committee
            "consent.publish_consentform",
            "training.propose_run",
            "training.approve_run",
            "training.cancel_run",
            "training.manage_alliances",  # creates, joins and leaves alliances of sites
            "training.withdraw_model",
            _STATE_PROVENANCE,
            _USE_STUDENT,
        }
    ),
    # Handles records and consents.
    Role.STEWARD: frozenset(
        _STAFF
        | _SIZES
        | _LISTS
        | {
            "consent.invite_holders",
            "consent.record_paper_consents",
            "consent.record_circumstances",
            "consent.view_holder_level",  # one person's choice; every look-up is logged
            "consent.erase_records",
            "training.import_dataset",
            "training.remove_dataset",
            _STATE_PROVENANCE,
        }
    ),
    Role.COMMITTEE: frozenset(_COMMITTEE),
    Role.CHAIR: frozenset(_COMMITTEE | {"consent.appoint_committee"}),
    Role.AUDITOR: frozenset(
        _STAFF | _SIZES | _LISTS | _OVERSIGHT | {"consent.export_consents", "consent.view_sealedchange"}
    ),
    Role.RESEARCHER: frozenset({"training.view_run", "training.propose_run", _USE_STUDENT}),
}

#: Permissions of an administrator of the installation. These include no role in any study and no access to any study.
ADMINISTRATOR_PERMISSIONS = frozenset({"consent.add_study", "consent.manage_accounts"})
#: The code by which the API recognises this ValidationError.
SECOND_PERSON = "second_person"


class StudyRoleBackend(BaseBackend):
    """Authentication backend that grants the permissions of the user's roles in the study of ``obj``."""

    def authenticate(self, request: Any, **credentials: Any) -> None:
        return None

    def get_all_permissions(self, user_obj: AbstractBaseUser | AnonymousUser, obj: Model | None = None) -> set[str]:
        if not user_obj.is_active:
            return set()
        if obj is None:
            return set(ADMINISTRATOR_PERMISSIONS) if administers(user_obj) else set()
        study = obj if isinstance(obj, Study) else obj.study  # type: ignore[attr-defined]
        roles = Membership.objects.filter(study=study, user_id=user_obj.pk).order_by().values_list("role", flat=True)
        return set().union(*(ROLE_PERMISSIONS[role] for role in roles))

    def has_perm(self, user_obj: AbstractBaseUser | AnonymousUser, perm: str, obj: Model | None = None) -> bool:
        # Django's own pages check many permissions that no administrator has.
        if obj is None and perm not in ADMINISTRATOR_PERMISSIONS:
            return False
        return perm in self.get_all_permissions(user_obj, obj)


def study_permissions(user: Any, study: Study) -> frozenset[str]:
    """Return all permissions of ``user`` in ``study``."""
    if user.is_superuser:
        return frozenset().union(*ROLE_PERMISSIONS.values())
    return frozenset(user.get_all_permissions(study))


def administers(user: Any) -> bool:
    """Return whether ``user`` administers the installation."""
    return user.is_superuser or Administrator.objects.filter(user_id=user.pk).exists()


def administrators() -> QuerySet[Any]:
    """Return the open accounts that administer the installation."""
    accounts = get_user_model().objects
    return accounts.filter(Q(is_superuser=True) | Q(pk__in=Administrator.objects.values("user_id")), is_active=True)


def permissions_anywhere(user: Any) -> frozenset[str]:
    """Return all permissions that ``user`` has in at least one study."""
    if user.is_superuser:
        return frozenset().union(*ROLE_PERMISSIONS.values()) if Study.objects.exists() else frozenset()
    roles = Membership.objects.filter(user_id=user.pk).order_by().values_list("role", flat=True).distinct()
    return frozenset().union(*(ROLE_PERMISSIONS[role] for role in roles))


def studies_with_permission(user: Any, perm: str):
    """Return the studies in which ``user`` has ``perm``."""
    if user.is_superuser:
        return Study.objects.all()
    roles = _roles_with(perm)
    return Study.objects.filter(memberships__user_id=user.pk, memberships__role__in=roles).distinct()


def roles_given_by(user: Any, study: Study) -> list[str]:
    """Return the roles in ``study`` that ``user`` may propose to give or take away, in the order of :class:`Role`."""
    permissions = study_permissions(user, study) if user.is_active else frozenset()
    return [role for role in Role.values if GIVERS[role] in permissions]


def confirms_roles(user: Any, study: Study) -> bool:
    """Return whether ``user`` may confirm role changes in ``study``. For superusers with a role, the role decides."""
    roles = Membership.objects.filter(study=study, user_id=user.pk).order_by().values_list("role", flat=True)
    permissions = set().union(*(ROLE_PERMISSIONS[role] for role in roles))
    return user.is_active and (CONFIRM in permissions or (user.is_superuser and not permissions))


def needs_no_confirmation(user: Any, study: Study, *, whose: int, giving: bool) -> bool:
    """Return whether a role change that ``user`` proposes in ``study`` takes effect without confirmation.

    Args:
        user: the proposer; None at the command line.
        whose: id of the account that the role is given to or taken from.
        giving: True if the role is given, False if it is taken away.

    If everyone who could confirm the change got their account or role from a superuser who works in the study, this
    superuser may give roles without a second person, but not take any away. So the superuser can appoint an operator
    and leave. People whose accounts the superuser has edited, closed or demoted are still required to confirm.
    """
    if user is None or study.rehearsal:
        return True
    if whose == user.pk:
        return not giving
    if not user.is_superuser:
        return False
    if not Membership.objects.filter(study=study, user_id=user.pk).exists():
        return True
    # Changing, demoting or closing the second person's account does not remove the need for a second person.
    acts = AccountChange.objects.filter(changed_by_id=user.pk)
    closed, demoted = (acts.filter(kind=kind).values("user_id") for kind in ("closed", "no_superuser"))
    others = get_user_model().objects.exclude(pk=user.pk).filter(Q(is_active=True) | Q(pk__in=closed))
    overseers = others.filter(memberships__study=study, memberships__role__in=_roles_with(CONFIRM)).distinct()
    if not overseers.exists():
        return True
    superusers = others.filter(Q(is_superuser=True) | Q(pk__in=demoted)).exclude(memberships__study=study)
    return giving and all(_owes(study, other.pk, user.pk) for other in [*overseers, *superusers])


def _owes(study: Study, user_id: int, giver_id: int) -> bool:
    """Return whether the second account created the first, or gave it a role in ``study`` without confirmation."""
    made = AccountChange.objects.filter(user_id=user_id, changed_by_id=giver_id, kind=AccountChange.Kind.CREATED)
    return made.exists() or _gave_alone(study, user_id, giver_id)


def _roles_with(perm: str) -> list[str]:
    return [role for role, permissions in ROLE_PERMISSIONS.items() if perm in permissions]


def members_with_permission(study: Study, perm: str) -> QuerySet[Any]:
    """Return the users whose role in ``study`` includes ``perm``, by name, without closed accounts and superusers."""
    members = {"memberships__study": study, "memberships__role__in": _roles_with(perm)}
    users = get_user_model().objects.filter(**members, is_active=True)
    return users.distinct().order_by("username")


def second_person_check(study: Study, proposer_id: int | None, acting_user: AbstractBaseUser, *, own: str) -> None:
    """Check that ``acting_user`` is not the person who made a proposal.

    Args:
        study: The study of the proposal.
        proposer_id: The account that made the proposal; None if the account has been deleted.
        own: Message for an approver who is the proposer.

    Raises:
        ValidationError: The approver has declared a conflict of interest, proposer and approver are the same person,
            one account controls the other (allowed in a rehearsal study), or the proposer's account has been deleted,
            so that this cannot be checked.
    """
    if ConflictOfInterest.objects.filter(study=study, user_id=acting_user.pk).exists():
        message = _("You have declared a conflict of interest in this study, so you cannot approve anything in it.")
        raise ValidationError(message, code=SECOND_PERSON)
    if proposer_id == acting_user.pk:
        raise ValidationError(own, code=SECOND_PERSON)
    if proposer_id is None or not get_user_model()._default_manager.filter(pk=proposer_id).exists():
        message = _(
            "The account that proposed this was deleted, so we cannot check that you are a different person. Propose "
            "it again."
        )
        raise ValidationError(message, code=SECOND_PERSON)
    if not study.rehearsal and accounts_are_linked(study, proposer_id, acting_user.pk):
        message = _(
            "Your account and the account that made this proposal are treated as one person, because one of them "
            "created the other, changed it, or gave it a role. Ask another person to decide."
        )
        raise ValidationError(message, code=SECOND_PERSON)


def accounts_are_linked(study: Study, first_id: int, second_id: int) -> bool:
    """Return whether one account was created or changed by the other, or got a role in ``study`` through it."""
    pair = Q(user_id=first_id, changed_by_id=second_id) | Q(user_id=second_id, changed_by_id=first_id)
    kinds = (AccountChange.Kind.CREATED, AccountChange.Kind.CHANGED)
    if AccountChange.objects.filter(pair, kind__in=kinds).exists():
        return True
    return _gave_alone(study, first_id, second_id) or _gave_alone(study, second_id, first_id)


def _gave_alone(study: Study, user_id: int, giver_id: int) -> bool:
    """Return whether the second account gave the first a role in ``study`` without confirmation by another person."""
    changes = RoleChange.chain(study.pk).filter(user_id=user_id, kind=RoleChange.Kind.GIVEN)
    gifts = {change.role: change for change in changes}
    roles = Membership.objects.filter(study=study, user_id=user_id).values_list("role", flat=True)
    return any(
        gifts[role].changed_by_id == giver_id and gifts[role].proposed_by_id is None for role in roles if role in gifts
    )


#: The permission to see exact numbers of people.
SEES_PEOPLE = "consent.view_group_sizes"

#: Chains that grow only with releases and when staff change runs, policies, forms or roles. The lengths of all other
#: chains depend on single people: decisions, representatives, erasures, new links, look-ups.
PUBLIC_CHAINS = frozenset(
    {
        "accounting.release",
        "accounting.sharerecord",
        "consent.configurationchange",
        "consent.consentform",
        "consent.consentformproposal",
        "consent.epsilonpolicy",
        "consent.epsilonpolicyapproval",
        "consent.remark",
        "consent.rolechange",
        "training.proposalchange",
    }
)


def sees_people(user: Any, study: Model) -> bool:
    """Return whether ``user`` may see exact numbers of people in ``study``, and errors with their row numbers."""
    return user.has_perm(SEES_PEOPLE, study)


@dataclass(frozen=True)
class VisibleChain:
    """Facts about a chain that one reader may see.

    Attributes:
        name: name of its rows, with a capital first letter.
        rows: number of rows; None if the reader may not see it.
        is_whole: whether no fault was found.
        faults: descriptions of the faults; empty if the reader may only know whether there are faults.
    """

    name: str
    rows: int | None
    is_whole: bool
    faults: list[str]


def chain_report(
    model: type[Chained], study_id: int, find: Callable[[], Iterable[str]], *, sees_people: bool
) -> VisibleChain:
    """Return the facts about a study's chain, and about the faults from ``find()``, that a reader may see.

    Faults name rows by sequence number, which reveals the length of a chain. Deciders therefore learn only that there
    is a fault.
    """
    name, faults = str(model._meta.verbose_name), list(find())
    is_public = sees_people or model._meta.label_lower in PUBLIC_CHAINS
    return VisibleChain(
        capfirst(name),
        model.head(study_id).sequence if is_public else None,
        not faults,
        faults if sees_people else [],
    )
