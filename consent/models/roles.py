"""Roles in a study: members, proposed and confirmed changes, and roles that one person must not combine.

These rules are defined only here; :mod:`consent.services.memberships` and the database enforce them.

It takes two people to assign or remove a role. A person with the permission listed for the role in ``GIVERS`` proposes
it, and a person with a supervising role (``WATCHING``) confirms it. The second person must not be the proposer, must
not use an account that :mod:`consent.permissions` attributes to the proposer, and cannot confirm their own role. So an
operator cannot become data steward, or remove an auditor, without a supervisor's agreement. One person is enough for:

- giving up one's own role;
- acts of the installation's administration: at the command line, or by a superuser if they have no role in the study or
  it has no member who could confirm. Such administrators appoint the first supervisors. Not even superusers can give
  themselves a role;
- a rehearsal study, which makes no promises to people.

The last holder of a role in ``LASTING`` keeps it until someone else has the role, because only operators can propose
anything and only a chair can appoint the committee. A person has at most one role from each group of ``SEPARATE`` in a
study. In a small study, one person may be operator and data steward if a supervisor's confirmation is logged.
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.chains import StudyChained
from consent.models.recorded import actor
from consent.models.studies import Study

#: The permission to confirm a role change, which supervising roles have.
CONFIRM = "consent.confirm_roles"


class Role(models.TextChoices):
    """Role of a user in one study; see :mod:`consent.permissions`."""

    OPERATOR = "operator", _("operator")
    STEWARD = "steward", _("data steward")
    COMMITTEE = "committee", _("ethics committee")
    CHAIR = "chair", _("chair of the ethics committee")
    AUDITOR = "auditor", _("auditor")
    RESEARCHER = "researcher", _("researcher")


#: The permission needed to propose assigning or removing a role.
GIVERS: dict[str, str] = {
    Role.OPERATOR: "consent.manage_members",
    Role.STEWARD: "consent.manage_members",
    Role.AUDITOR: "consent.manage_members",
    Role.RESEARCHER: "consent.manage_members",
    Role.COMMITTEE: "consent.appoint_committee",
    Role.CHAIR: "consent.appoint_committee",
}
WATCHING = (Role.COMMITTEE, Role.CHAIR, Role.AUDITOR)
LASTING = (Role.OPERATOR, Role.CHAIR)

#: Groups of roles that one person must not combine, by the name of the database constraint.
SEPARATE: dict[str, tuple[Role, ...]] = {
    # People who decide about runs neither decide on ε nor supervise decisions.
    "a_user_operates_a_study_or_oversees_it": (Role.OPERATOR, *WATCHING),
    # People who see exact numbers of participants do not decide on ε, and people who handle records do not supervise.
    "a_user_handles_records_or_oversees_a_study": (Role.STEWARD, *WATCHING),
    # People who see exact numbers do not propose runs, except the operator of a small study.
    "a_user_sees_sizes_or_researches": (Role.RESEARCHER, Role.STEWARD, Role.AUDITOR),
}


class Membership(models.Model):
    """A user's role in a study. Every change is recorded as a :class:`RoleChange`."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="memberships")
    # An account can be deleted only after its roles have been removed, which is logged.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        ordering = ["study", "role", "user"]
        constraints = [
            models.UniqueConstraint(fields=["study", "user", "role"], name="membership_is_given_once"),
            *(
                models.UniqueConstraint(
                    fields=["study", "user"],
                    condition=Q(role__in=roles),
                    name=name,
                    violation_error_message=_(
                        "This person already has a role in the study that cannot be combined with this one. "
                        "Committee members and auditors cannot be operators or data stewards, and researchers cannot "
                        "be data stewards or auditors. Remove the other role first, or choose another person."
                    ),
                )
                for name, roles in SEPARATE.items()
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.get_role_display()}"


class RoleChange(StudyChained):
    """Log entry about a role in a study: a role was given or taken away, or either was proposed.

    A proposal is pending as long as it is the last row about this person and role.
    """

    class Kind(models.TextChoices):
        GIVEN = "given", _("given")
        TAKEN = "taken", _("removed")
        HELD = "held", _("existed before this log began")
        TO_GIVE = "to_give", _("proposed: give role")
        TO_TAKE = "to_take", _("proposed: remove role")
        DROPPED = "dropped", _("proposal withdrawn")

    PROPOSALS = (Kind.TO_GIVE, Kind.TO_TAKE)
    added_columns = {"proposed_by_id": None}

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="role_changes")
    user = actor()
    role = models.CharField(max_length=20, choices=Role)
    kind = models.CharField(max_length=10, choices=Kind)
    changed_by = actor(null=True, help_text="Empty for an administrator at the command line.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)
    # The proposer, if a second person (changed_by) confirmed the change.
    proposed_by = actor(null=True)

    class Meta(StudyChained.Meta):
        verbose_name = _("role change")
        verbose_name_plural = _("role changes")
        constraints = [
            *StudyChained.Meta.constraints,
            models.CheckConstraint(condition=Q(role__in=Role.values), name="role_change_role_is_known"),
            models.CheckConstraint(
                condition=Q(kind__in=["given", "taken", "held", "to_give", "to_take", "dropped"]),
                name="role_change_kind_is_known",
            ),
            models.CheckConstraint(
                condition=Q(proposed_by=None) | ~Q(changed_by=F("proposed_by")),
                name="role_change_is_confirmed_by_a_second_person",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.kind}: user {self.user_id}"
