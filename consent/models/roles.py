"""Roles in a study: who has which, who changes them, whose word a change takes, which never meet in one person.

This is the only place that says so; :mod:`consent.services.memberships` and the database hold to it.

A role is given or taken away by two people. Whoever has the role's permission of ``GIVERS`` proposes it, and one of
those who watch the study (``WATCHING``) confirms it: not the proposer, not an account that is the proposer's by
:mod:`consent.permissions`, and nobody confirms a role for themself. So no operator becomes data steward, or is rid of
an auditor, without someone who watches them. What takes one person:

- giving up a role of one's own;
- whatever the installation's administration does: at the command line, or as a superuser who has no role in the study
  or finds nobody there who could confirm. They appoint the first who watch. A superuser, too, gives no role to
  themself;
- a rehearsal study, which promises nothing to anybody.

The last of ``LASTING`` stays until someone else has the role: without an operator nobody proposes anything, without a
chair nobody appoints the committee. Of each group of ``SEPARATE`` a person holds one role at most in a study. Operator
and data steward may be one person, where a study is small: someone who watches it has confirmed that on record.
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.chains import StudyChained
from consent.models.recorded import actor
from consent.models.studies import Study

#: The permission to confirm it, which those who watch a study have.
CONFIRM = "consent.confirm_roles"


class Role(models.TextChoices):
    """Role of a user in one study; see :mod:`consent.permissions`."""

    OPERATOR = "operator", _("operator")
    STEWARD = "steward", _("data steward")
    COMMITTEE = "committee", _("ethics committee")
    CHAIR = "chair", _("chair of the ethics committee")
    AUDITOR = "auditor", _("auditor")
    RESEARCHER = "researcher", _("researcher")


#: The permission that it takes to propose that a role is given or taken away.
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

#: Roles that never meet in one person, in groups, with the name of the database's constraint.
SEPARATE: dict[str, tuple[Role, ...]] = {
    # Nobody who decides about runs decides on ε or watches the decisions.
    "a_user_operates_a_study_or_oversees_it": (Role.OPERATOR, *WATCHING),
    # Whoever sees exact numbers of people decides on no ε; whoever handles records does not watch how.
    "a_user_handles_records_or_oversees_a_study": (Role.STEWARD, *WATCHING),
    # Whoever sees exact numbers proposes no runs. The one exception is the operator of a small study.
    "a_user_sees_sizes_or_researches": (Role.RESEARCHER, Role.STEWARD, Role.AUDITOR),
}


class Membership(models.Model):
    """A user's role in a study. Every change of it is recorded as a :class:`RoleChange`."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="memberships")
    # An account is deleted only after its roles have been taken away, on record.
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
                        "This person already has a role in the study that cannot be combined with this one. People "
                        "who decide cannot also oversee, and people who see exact numbers cannot propose runs unless "
                        "they operate the study. Remove the other role first, or choose another person."
                    ),
                )
                for name, roles in SEPARATE.items()
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.get_role_display()}"


class RoleChange(StudyChained):
    """A role in a study was given to someone or taken away, or someone has proposed that.

    A proposal waits while it is the last row about this person and role.
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
    changed_by = actor(null=True, help_text="Empty: whoever administers the installation, at the command line.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)
    # Of what a second person, changed_by, has confirmed.
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
