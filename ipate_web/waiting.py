"""Tasks that a person can act on now, across all studies in which they have a role.

Every source queries all studies together, so that the number of queries does not grow with the number of studies. A
source lists only tasks that a role's permissions allow, and nothing here depends on private records or on individual
holders' decisions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.db.models import Count, Exists, F, OuterRef, Q
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import get_language_info, gettext_lazy, ngettext
from django.utils.translation import gettext as _

from accounting.models import HeadCount
from common.jobs import Part, stale_before
from consent.models import (
    ConsentForm,
    ConsentFormDraft,
    ConsentFormProposal,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Membership,
    Renewal,
    RoleChange,
    Study,
)
from consent.models.roles import CONFIRM, GIVERS
from consent.permissions import ROLE_PERMISSIONS
from consent.selectors import answer_deadline, approved_by, forms_waiting, policies_waiting, role_changes_waiting
from consent.services.erasures import erasures_waiting
from consent.services.letters import letters_waiting
from consent.wording.facts import TRANSLATED_FACTS, texts_missing
from training.models import Dataset, Run, Shard, StudentModel, TeacherChunk

#: Time without a heartbeat from a run after which someone is asked to check whether a worker is running.
PATIENCE = timedelta(minutes=2)
#: All permissions that a role in a study can have.
_PERMISSIONS: frozenset[str] = frozenset().union(*ROLE_PERMISSIONS.values())


class Kind(StrEnum):
    """Kinds of tasks."""

    POLICY = "policy"
    FORM = "form"
    ROLE = "role"
    RUN = "run"
    FAILED = "failed"
    SILENT = "silent"
    ERASURES = "erasures"
    DRAFT = "draft"
    TRANSLATION = "translation"
    PROVENANCE = "provenance"
    LETTERS = "letters"
    VERSION = "version"
    PEOPLE = "people"
    SETUP = "setup"


@dataclass(frozen=True)
class Waiting:
    """Task with its kind, the URL of its page, and the time when it began to wait.

    ``is_own`` means that the person made the proposal, so someone else has to decide. ``answer_by`` is the last day on
    which to answer, if there is one.
    """

    study: Study
    kind: Kind
    text: str
    url: str
    since: datetime
    is_own: bool = False
    answer_by: date | None = None


@dataclass(frozen=True)
class _Desk:
    """A person, with the open studies in which they have each permission."""

    user_id: int
    studies: dict[int, Study]
    permitted: Mapping[str, list[Study]]

    def may(self, permission: str) -> list[Study]:
        return self.permitted.get(permission, [])

    def may_in(self, permission: str, study_id: int) -> bool:
        return self.studies[study_id] in self.may(permission)


def waiting_for(user: Any) -> list[Waiting]:
    """Return all tasks that are waiting for ``user``, and the user's own proposals, which are waiting for someone else.

    Tasks with a deadline come first, ordered by deadline; then the others, oldest first.
    """
    desk = _desk(user)
    return _sorted(each for source in SOURCES for each in source(desk)) if desk.studies else []


def waiting_in(study: Study, user: Any, can: frozenset[str]) -> tuple[list[Waiting], list[tuple[Waiting, Promise]]]:
    """Return the tasks in ``study`` for ``user``, and the tasks for others, each with the people who can act on it.

    The second list omits notices for people who handle records.

    Args:
        can: the user's permissions in the study.
    """
    if study.is_closed:
        return [], []
    desk, any_desk = _desk_in(study, user.pk, can), _desk_in(study, 0, _PERMISSIONS)
    mine: list[Waiting] = []
    others: list[tuple[Waiting, Promise]] = []
    for source in SOURCES:
        tasks = list(source(desk))
        mine += [each for each in tasks if not each.is_own]
        if source in _ACTORS:
            # People who may decide are shown every task of the kind, so the only ones left are their own proposals.
            decides, actor = _ACTORS[source]
            others += [(each, actor) for each in (tasks if decides in can else source(any_desk)) if each not in mine]
    return _sorted(mine), sorted(others, key=lambda each: each[0].since)


def _sorted(tasks: Iterable[Waiting]) -> list[Waiting]:
    return sorted(tasks, key=lambda each: (each.answer_by or date.max, each.since, each.url))


def _desk_in(study: Study, user_id: int, can: Iterable[str]) -> _Desk:
    return _Desk(user_id, {study.pk: study}, {permission: [study] for permission in can})


def _desk(user: Any) -> _Desk:
    """Return the person's open studies with the person's permissions there."""
    if user.is_superuser:
        studies = list(Study.objects.filter(closed_at=None))
        return _Desk(user.pk, {each.pk: each for each in studies}, dict.fromkeys(_PERMISSIONS, studies))
    permitted: dict[str, list[Study]] = defaultdict(list)
    desk = _Desk(user.pk, {}, permitted)
    if not user.is_active:
        return desk
    memberships = Membership.objects.filter(user_id=user.pk, study__closed_at=None).select_related("study")
    for membership in memberships.order_by("study"):
        study = desk.studies.setdefault(membership.study_id, membership.study)
        for permission in ROLE_PERMISSIONS[membership.role]:
            if study not in permitted[permission]:
                permitted[permission].append(study)
    return desk


# --- Other people's proposals -----------------------------------------------------------------------------------------


def _policies(desk: _Desk) -> Iterator[Waiting]:
    waiting = policies_waiting(*desk.may("consent.approve_epsilonpolicy"))
    approved = approved_by(desk.user_id, policy__in=waiting)
    for policy in waiting:
        url = reverse("staff:policy_approve", args=[policy.study.slug, policy.version])
        text = _("ε policy, version %(version)d") % {"version": policy.version}
        own = policy.proposed_by_id == desk.user_id or policy.pk in approved
        yield Waiting(
            policy.study, Kind.POLICY, text, url, policy.proposed_at, is_own=own, answer_by=answer_deadline(policy)
        )


def _forms(desk: _Desk) -> Iterator[Waiting]:
    waiting = forms_waiting(*desk.may("consent.approve_consentform"))
    approved = approved_by(desk.user_id, form__in=waiting)
    for proposal in waiting:
        url = reverse("staff:consent_form_proposal", args=[proposal.study.slug, proposal.sequence])
        words = _("New consent form after version %(version)d")
        if proposal.is_correction:
            words = _("Small correction to version %(version)d of the consent form: you can object")
        elif proposal.renewal != Renewal.NOT_ASKED:
            words = _("New consent form after version %(version)d that asks people again")
        elif proposal.follows == 0:
            words = _("First version of the consent form")
        text = words % {"version": proposal.follows}
        own = proposal.proposed_by_id == desk.user_id or proposal.pk in approved
        yield Waiting(
            proposal.study, Kind.FORM, text, url, proposal.proposed_at, is_own=own, answer_by=answer_deadline(proposal)
        )


def _roles(desk: _Desk) -> Iterator[Waiting]:
    """Yield role changes that the person may confirm, and their own proposals, which someone else must confirm."""
    proposing = {study for permission in GIVERS.values() for study in desk.may(permission)}
    for change in role_changes_waiting(*proposing.union(desk.may(CONFIRM))):
        own = change.changed_by_id == desk.user_id
        if own or desk.may_in(CONFIRM, change.study_id):
            words = _("Give role: %(user)s, %(role)s")
            if change.kind == RoleChange.Kind.TO_TAKE:
                words = _("Remove role: %(user)s, %(role)s")
            text = words % {"user": change.user, "role": change.get_role_display()}
            url = reverse("staff:role_change", args=[change.study.slug, change.sequence])
            yield Waiting(change.study, Kind.ROLE, text, url, change.changed_at, is_own=own)


def _drafts_of_runs(desk: _Desk) -> Iterator[Waiting]:
    """Yield drafts that the person may approve, and their own drafts, which someone else has to approve."""
    mine = Q(study__in=desk.may("training.propose_run"), created_by=desk.user_id)
    drafts = Run.objects.filter(mine | Q(study__in=desk.may("training.approve_run")), status=Run.Status.DRAFT)
    for run in drafts.values_list("pk", "study_id", "title", "created_by_id", "created_at", named=True):
        study, own = desk.studies[run.study_id], run.created_by_id == desk.user_id
        page = "run_approve" if desk.may_in("training.approve_run", study.pk) else "run"
        url = reverse(f"staff:{page}", args=[study.slug, run.pk])
        text = _("Run: %(title)s") % {"title": run.title}
        yield Waiting(study, Kind.RUN, text, url, run.created_at, is_own=own)


def _versions(desk: _Desk) -> Iterator[Waiting]:
    """Yield versions that a person has to publish: versions of runs without a published version, and newer versions.

    Newer versions are included only if they were requested by someone who may not publish them.
    """
    roles = [role for role, permissions in ROLE_PERMISSIONS.items() if "training.approve_run" in permissions]
    decides = Membership.objects.filter(study=OuterRef("run__study"), user=OuterRef("requested_by"), role__in=roles)
    waits = Q(version__gt=F("run__student__version"), requested_by__isnull=False) & ~Exists(decides)
    versions = StudentModel.objects.filter(run__study__in=desk.may("training.approve_run"), withdrawn_at=None)
    columns = ("version", "created_at", "run_id", "run__study_id", "run__title")
    for version in versions.filter(waits | Q(run__student=None)).values_list(*columns, named=True):
        study = desk.studies[version.run__study_id]
        text = _("Publish or withdraw version %(number)d of the student from “%(title)s”") % {
            "number": version.version,
            "title": version.run__title,
        }
        url = reverse("staff:run", args=[study.slug, version.run_id])
        yield Waiting(study, Kind.VERSION, text, url, version.created_at)


# --- Failures --------------------------------------------------------------------------------------------------------


def _failed_runs(desk: _Desk) -> Iterator[Waiting]:
    """Yield failed runs until their study has a new proposal: all for operators, their own for proposers."""
    later = Run.objects.filter(study=OuterRef("study"), created_at__gt=OuterRef("ended_at"))
    mine = Q(study__in=desk.may("training.propose_run"), created_by=desk.user_id)
    failed = Run.objects.filter(mine | Q(study__in=desk.may("training.approve_run")), status=Run.Status.FAILED)
    failed = failed.filter(~Exists(later), ended_at__isnull=False)
    for run in failed.values_list("pk", "study_id", "title", "ended_at", named=True):
        study = desk.studies[run.study_id]
        url = reverse("staff:run", args=[study.slug, run.pk])
        text = _("Failed run: %(title)s") % {"title": run.title}
        assert run.ended_at is not None, "the query leaves out others"
        yield Waiting(study, Kind.FAILED, text, url, run.ended_at)


def _silent_runs(desk: _Desk) -> Iterator[Waiting]:
    """Yield runs in progress that no worker is working on."""
    alive = {"state": Part.State.RUNNING, "heartbeat__gte": stale_before()}
    busy = Q(pk__in=TeacherChunk.objects.filter(**alive).values("run"))
    busy |= Q(pk__in=Shard.objects.filter(**alive).values("run"))
    before = timezone.now() - max(PATIENCE, timedelta(seconds=4 * settings.HEARTBEAT_TIMEOUT))
    runs = Run.objects.filter(study__in=desk.may("training.approve_run"), status__in=Run.ACTIVE, heartbeat__lt=before)
    for run in runs.exclude(busy).values_list("pk", "study_id", "title", "heartbeat", named=True):
        study = desk.studies[run.study_id]
        url = reverse("staff:run", args=[study.slug, run.pk])
        text = _("Run that no worker is processing: %(title)s") % {"title": run.title}
        assert run.heartbeat is not None, "the query leaves out others"
        yield Waiting(study, Kind.SILENT, text, url, run.heartbeat)


def _erasures(desk: _Desk) -> Iterator[Waiting]:
    for waiting in erasures_waiting(desk.may("consent.erase_records")):
        study = desk.studies[waiting.study_id]
        text = ngettext(
            "%(number)d person's records need to be erased", "%(number)d people's records need to be erased",
            waiting.number,
        ) % {"number": waiting.number}  # fmt: skip
        yield Waiting(study, Kind.ERASURES, text, reverse("staff:disposals", args=[study.slug]), waiting.since)


def _letters(desk: _Desk) -> Iterator[Waiting]:
    for waiting in letters_waiting(desk.may("consent.invite_holders")):
        study = desk.studies[waiting.study_id]
        text = ngettext(
            "%(number)d paper letter to print", "%(number)d paper letters to print", waiting.number
        ) % {"number": waiting.number}  # fmt: skip
        yield Waiting(study, Kind.LETTERS, text, reverse("staff:letters", args=[study.slug]), waiting.since)


# --- Started tasks ---------------------------------------------------------------------------------------------------


def _drafts_of_forms(desk: _Desk) -> Iterator[Waiting]:
    studies = desk.may("consent.publish_consentform")
    for study_id, saved_at in ConsentFormDraft.objects.filter(study__in=studies).values_list("study_id", "saved_at"):
        study = desk.studies[study_id]
        url = reverse("staff:consent_form_publish", args=[study.slug])
        yield Waiting(study, Kind.DRAFT, _("Draft consent form that is ready to be proposed"), url, saved_at)


def _translations(desk: _Desk) -> Iterator[Waiting]:
    for study in desk.may("consent.change_study"):
        for language, fields in texts_missing(study).items():
            text = _("The study's texts are incomplete in %(language)s") % {
                "language": get_language_info(language)["name_translated"]
            }
            # Facts of the form require a new version; before the first version, this page redirects to the settings.
            page = "consent_form_facts" if set(fields) <= set(TRANSLATED_FACTS) else "study_edit"
            url = reverse(f"staff:{page}", args=[study.slug])
            yield Waiting(study, Kind.TRANSLATION, text, url, study.created_at)


def _provenance(desk: _Desk) -> Iterator[Waiting]:
    datasets = Dataset.objects.filter(
        study__in=[study for study in desk.may("training.state_provenance") if not study.rehearsal],
        kind=Dataset.Kind.PUBLIC,
        provenance="",
        removed_at=None,
    )
    for dataset in datasets.order_by().values_list("pk", "study_id", "name", "imported_at", named=True):
        study = desk.studies[dataset.study_id]
        url = reverse("staff:dataset", args=[study.slug, dataset.pk])
        text = _("Add the source of these public points: %(name)s") % {"name": dataset.name}
        yield Waiting(study, Kind.PROVENANCE, text, url, dataset.imported_at)


# --- Missing parts ---------------------------------------------------------------------------------------------------

#: Pairs of permissions, to appoint people to a role and to approve in that role. A study needs two people in each of
#: these roles, because people cannot approve their own proposals.
_TWO = (
    ("consent.manage_members", "training.approve_run"),
    ("consent.appoint_committee", "consent.approve_epsilonpolicy"),
)


def _people(desk: _Desk) -> Iterator[Waiting]:
    """Yield studies in which fewer than two people can approve."""
    kinds = {
        "training.approve_run": _("A second operator is needed, because operators cannot approve their own runs"),
        "consent.approve_epsilonpolicy": _(
            "A second committee member is needed, because members cannot approve their own proposals"
        ),
    }
    for appoint, approve in _TWO:
        studies = [study for study in desk.may(appoint) if not (study.rehearsal and approve.startswith("consent."))]
        if not studies:
            continue
        roles = [role for role, permissions in ROLE_PERMISSIONS.items() if approve in permissions]
        holding = Membership.objects.filter(study__in=studies, role__in=roles, user__is_active=True).order_by()
        counted = dict(holding.values_list("study").annotate(Count("user", distinct=True)))
        for study in studies:
            if counted.get(study.pk, 0) < 2:
                url = reverse("staff:members", args=[study.slug])
                yield Waiting(study, Kind.PEOPLE, kinds[approve], url, study.created_at)


def _setup(desk: _Desk) -> Iterator[Waiting]:
    """Yield the next step of every study that has not had a run yet, for people who can take that step."""
    young = set(desk.studies).difference(
        Run.objects.filter(study__in=desk.studies).order_by().values_list("study_id", flat=True).distinct()
    )
    if not young:
        return
    inside = {"study": OuterRef("pk")}
    datasets = Dataset.objects.filter(**inside, removed_at=None)
    studies = Study.objects.filter(pk__in=young).annotate(
        has_form=Exists(ConsentForm.objects.filter(**inside)),
        has_form_begun=Exists(ConsentFormDraft.objects.filter(**inside))
        | Exists(ConsentFormProposal.objects.filter(**inside)),
        has_policy=Exists(EpsilonPolicy.objects.filter(**inside)),
        is_promised=Exists(EpsilonPolicyApproval.objects.filter(policy__study=OuterRef("pk"))),
        has_private=Exists(datasets.filter(kind=Dataset.Kind.PRIVATE)),
        has_public=Exists(datasets.filter(kind=Dataset.Kind.PUBLIC)),
        has_counts=Exists(HeadCount.objects.filter(**inside)),
    )
    for study in studies:
        has_data = study.has_private and study.has_public
        asks = not study.rehearsal
        steps = (
            (
                asks and not study.has_form and not study.has_form_begun,
                "consent.publish_consentform",
                "consent_form_new",
                _("Write the consent form"),
            ),
            (
                asks and not study.has_policy,
                "consent.propose_epsilonpolicy",
                "policy_new",
                _("Propose ε values for the three levels"),
            ),
            (asks and not study.harm, "consent.propose_epsilonpolicy", "committee", _("Write an example of harm")),
            (not has_data, "training.import_dataset", "import_new", _("Import private and public data")),
            (
                asks and study.has_form and study.is_promised and not study.has_counts,
                "training.approve_run",
                "head_counts",
                _("Once holders have decided, take head counts or enter public ones"),
            ),
            (has_data and (study.has_counts or not asks), "training.propose_run", "run_new", _("Propose a first run")),
        )
        for is_next, permission, page, text in steps:
            if is_next and desk.may_in(permission, study.pk):
                url = reverse(f"staff:{page}", args=[study.slug])
                yield Waiting(desk.studies[study.pk], Kind.SETUP, text, url, study.created_at)


SOURCES: tuple[Callable[[_Desk], Iterator[Waiting]], ...] = (
    _policies,
    _forms,
    _roles,
    _drafts_of_runs,
    _versions,
    _failed_runs,
    _silent_runs,
    _erasures,
    _letters,
    _drafts_of_forms,
    _translations,
    _provenance,
    _people,
    _setup,
)

#: Sources of tasks that are also shown to people who cannot act on them: the permission to act, and who has it.
_ACTORS: dict[Callable[[_Desk], Iterator[Waiting]], tuple[str, Promise]] = {
    _policies: ("consent.approve_epsilonpolicy", gettext_lazy("the ethics committee")),
    _forms: ("consent.approve_consentform", gettext_lazy("the ethics committee")),
    _roles: (CONFIRM, gettext_lazy("a person who oversees the study")),
    _drafts_of_runs: ("training.approve_run", gettext_lazy("an operator")),
    _versions: ("training.approve_run", gettext_lazy("an operator")),
    _failed_runs: ("training.approve_run", gettext_lazy("an operator")),
    _silent_runs: ("training.approve_run", gettext_lazy("an operator")),
}
