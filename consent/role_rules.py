"""Rules of the roles in a study: who changes them, whose word a change takes, and which never meet in one person.

This is the only place that says so; :mod:`consent.services.memberships` and the database hold to it.

A role is given or taken away by two people. Whoever has the role's permission of ``GIVERS`` proposes it, and one of
those who watch the study (``WATCHING``) confirms it: not the proposer, not an account that is the proposer's by
:mod:`consent.second_person`, and nobody confirms a role for themself. So no operator becomes data steward, or is rid of
an auditor, without somebody who watches them. What takes one person:

- giving up a role of one's own;
- whatever the installation's administration does: at the command line, or as a superuser who has no role in the study
  or finds nobody there who could confirm. They appoint the first who watch. A superuser, too, gives no role to
  themself;
- a rehearsal study, which promises nothing to anybody.

The last of ``LASTING`` stays until somebody else has the role: without an operator nobody proposes anything, without a
chair nobody appoints the committee. Of each group of ``SEPARATE`` a person holds one role at most in a study. Operator
and data steward may be one person, where a study is small: somebody who watches it has confirmed that on record.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _


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
#: The permission to confirm it, which those who watch a study have.
CONFIRM = "consent.confirm_roles"
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
