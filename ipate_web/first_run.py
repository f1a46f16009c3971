"""Steps of a new study until its first run has finished, as listed on its page and on the operators' home page."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from accounting.group_budgets import head_counts
from consent import selectors
from consent.models import ConsentEvent, EpsilonPolicy, Invitation, Membership, Role, Study
from consent.permissions import SEES_PEOPLE, studies_with_permission, study_permissions
from consent.wording.facts import facts_missing
from training.models import Dataset, Run


@dataclass(frozen=True)
class Step:
    """Task to complete before a study has its first student."""

    text: str | Promise
    done: bool
    who: str | Promise
    url: str
    action: str | Promise
    is_mine: bool


def next_steps(study: Study, can: frozenset[str], *, makes_accounts: bool = False) -> list[Step]:
    """Return, in order, the steps that lead to a first finished run, for a user with the permissions ``can``.

    Users who can also create accounts appoint people on a separate page. Only users who may see people learn whether
    anyone was invited or has decided; other users see only the head counts.
    """
    counted = bool(head_counts(study))
    has_invited = Invitation.objects.filter(study=study).exists() or ConsentEvent.objects.filter(study=study).exists()
    proposed = EpsilonPolicy.objects.filter(study=study)
    kinds = set(study.datasets.values_list("kind", flat=True))
    operator, steward = gettext_lazy("an operator"), gettext_lazy("a data steward")
    committee = gettext_lazy("the ethics committee")

    def step(
        text: str | Promise, done: bool, who: str | Promise, page: str, action: str | Promise, permission: str
    ) -> Step:
        return Step(text, done, who, reverse(f"staff:{page}", args=[study.slug]), action, permission in can)

    invitations = step(
        gettext_lazy("Invite data holders, or record what they signed"),
        has_invited if SEES_PEOPLE in can else counted,
        steward,
        "invitations",
        gettext_lazy("Invite"),
        "consent.invite_holders",
    )
    counts = step(
        gettext_lazy("Once holders have decided, take head counts or enter public ones"),
        counted,
        operator,
        "head_counts",
        gettext_lazy("Head counts"),
        "training.approve_run",
    )
    has_form = selectors.consent_form_in_force(study) is not None
    roles = Membership.objects.filter(study=study, user__is_active=True).values_list("user_id", "role")
    watching = {user for user, role in roles if role in (Role.COMMITTEE, Role.CHAIR)}
    people = step(
        gettext_lazy("Appoint an operator, a data steward, and two members of the ethics committee"),
        len(watching) > 1 and {Role.OPERATOR, Role.STEWARD, Role.CHAIR} <= {role for _user, role in roles},
        operator,
        "people_new" if makes_accounts else "members",
        gettext_lazy("Appoint people"),
        "consent.manage_members",
    )
    of_people = [
        people,
        step(
            gettext_lazy("Add the information that you must give people (GDPR, Articles 13 and 14)"),
            not facts_missing(study),
            operator,
            "study_edit",
            gettext_lazy("Add information"),
            "consent.change_study",
        ),
        step(
            gettext_lazy("Propose the consent form"),
            has_form or study.consent_form_proposals.exists(),
            operator,
            "consent_form_new",
            gettext_lazy("Write the form"),
            "consent.publish_consentform",
        ),
        step(
            gettext_lazy("Have a second person publish the form"),
            has_form,
            committee,
            "consent_forms",
            gettext_lazy("Review proposal"),
            "consent.approve_consentform",
        ),
        step(
            gettext_lazy("Write an example of harm"),
            bool(study.harm),
            committee,
            "committee",
            gettext_lazy("Write the form"),
            "consent.propose_epsilonpolicy",
        ),
        step(
            gettext_lazy("Propose ε values for the three levels"),
            proposed.exists(),
            committee,
            "policy_new",
            gettext_lazy("Propose"),
            "consent.propose_epsilonpolicy",
        ),
        step(
            gettext_lazy("Have a second person approve the levels"),
            proposed.filter(approval__isnull=False).exists(),
            committee,
            "policies",
            gettext_lazy("Review proposal"),
            "consent.approve_epsilonpolicy",
        ),
    ]
    return [
        *([] if study.rehearsal else of_people),
        step(
            gettext_lazy("Import private and public data"),
            {Dataset.Kind.PRIVATE, Dataset.Kind.PUBLIC} <= kinds,
            steward,
            "import_new",
            gettext_lazy("Import a dataset"),
            "training.import_dataset",
        ),
        *([] if study.rehearsal else [invitations, counts]),
        step(
            gettext_lazy("Propose and approve a run"),
            study.runs.exclude(status__in=[Run.Status.DRAFT, Run.Status.CANCELLED, Run.Status.WITHDRAWN]).exists(),
            operator,
            "run_new",
            gettext_lazy("Propose a run"),
            "training.propose_run",
        ),
        step(
            gettext_lazy("Follow the run and see what it learned"),
            study.runs.filter(status=Run.Status.FINISHED).exists(),
            operator,
            "runs",
            gettext_lazy("Go to runs"),
            "training.view_run",
        ),
    ]


@dataclass(frozen=True)
class FirstRun:
    """Progress of a study towards its first run: the steps that are done, and the next one."""

    study: Study
    steps: list[Step]

    @property
    def done(self) -> int:
        return sum(step.done for step in self.steps)


def first_run(user: Any) -> FirstRun | None:
    """Return the newest open study without a finished run in which ``user`` may approve runs, or None."""
    finished = Run.objects.filter(study=OuterRef("pk"), status=Run.Status.FINISHED)
    young = studies_with_permission(user, "training.approve_run").filter(~Exists(finished), closed_at=None)
    study = young.order_by("-pk").first()
    return study and FirstRun(
        study,
        next_steps(study, study_permissions(user, study), makes_accounts=user.has_perm("consent.manage_accounts")),
    )
