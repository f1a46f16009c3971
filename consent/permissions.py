"""Which role may do what, in one table, and the backend that answers ``user.has_perm(permission, study)``.

Permissions are always asked for one study (or anything that has a ``study``): a role in one study means nothing in
another. Only creating a study is asked without one.
"""

from typing import Any

from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.db.models import Model

from consent.models import Membership, Role, Study

_STAFF = {
    "consent.view_dashboard",  # the staff pages of a study
    "consent.view_recruitment",  # how many were asked and decided; rounded without the next
    "consent.view_group_sizes",  # exact numbers of holders per level
    "training.view_run",  # runs and what they released
    "accounting.view_ledger",  # entries of the ledger
    "accounting.view_private_costs",  # data-dependent costs and what derives from private data
}
_USE_STUDENT = "training.use_student"  # released labels, student models, predictions
_VIEW_ACCESSES = "consent.view_levelaccess"  # who looked at whose choice

ROLE_PERMISSIONS: dict[str, frozenset[str]] = {
    Role.OPERATOR: frozenset(
        _STAFF
        | {
            "consent.change_study",
            "consent.manage_members",
            "consent.invite_holders",
            "consent.record_paper_consents",
            "consent.view_holder_level",  # one person's choice; every look is on record
            "consent.publish_consentform",
            "training.import_dataset",
            "training.propose_run",
            "training.approve_run",
            "training.cancel_run",
            _USE_STUDENT,
        }
    ),
    Role.COMMITTEE: frozenset(
        _STAFF
        | {
            "consent.publish_consentform",
            "consent.propose_epsilonpolicy",
            "consent.approve_epsilonpolicy",
            _VIEW_ACCESSES,
        }
    ),
    Role.AUDITOR: frozenset(_STAFF | {_VIEW_ACCESSES}),
    Role.RESEARCHER: frozenset({"consent.view_recruitment", "training.view_run", "training.propose_run", _USE_STUDENT}),
}


class StudyRoleBackend(BaseBackend):
    """Grants what the user's roles in the study of ``obj`` allow."""

    def authenticate(self, request: Any, **credentials: Any) -> None:
        return None

    def get_all_permissions(self, user_obj: AbstractBaseUser | AnonymousUser, obj: Model | None = None) -> set[str]:
        if obj is None or not user_obj.is_active:
            return set()
        study = obj if isinstance(obj, Study) else obj.study  # type: ignore[attr-defined]
        roles = Membership.objects.filter(study=study, user_id=user_obj.pk).order_by().values_list("role", flat=True)
        return set().union(*(ROLE_PERMISSIONS[role] for role in roles))

    def has_perm(self, user_obj: AbstractBaseUser | AnonymousUser, perm: str, obj: Model | None = None) -> bool:
        return perm in self.get_all_permissions(user_obj, obj)


def study_permissions(user: Any, study: Study) -> frozenset[str]:
    """All that ``user`` may do in ``study``."""
    if user.is_superuser:
        return frozenset().union(*ROLE_PERMISSIONS.values())
    return frozenset(user.get_all_permissions(study))


def studies_with_permission(user: Any, perm: str):
    """The studies in which ``user`` holds ``perm``."""
    if user.is_superuser:
        return Study.objects.all()
    roles = [role for role, permissions in ROLE_PERMISSIONS.items() if perm in permissions]
    return Study.objects.filter(memberships__user_id=user.pk, memberships__role__in=roles).distinct()
