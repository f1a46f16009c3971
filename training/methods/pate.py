"""Votes of teachers on public points (Individualized PATE): questions, method, and the student's training data."""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, cast
from uuid import UUID

import numpy as np
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from numpy.typing import NDArray

from accounting.accounts import account_balances, charges_of
from accounting.models import Release
from accounting.privacy import Conversion, Method
from common.artifacts import arrays_load
from common.sentences import Sentence, gettext_noop
from consent.selectors import consent_snapshot, consent_state
from learning.learners import learner_create
from learning.mechanisms.choices import HolderChoices
from learning.mechanisms.pate import LEFT_OUT, NO_VOTE, REJECTED, PrivacyGroup
from learning.mechanisms.pate.ballots import Ballot, TeachersQuestion, VoteBudget, VoteState
from learning.mechanisms.pate.partition import public_participation
from learning.mechanisms.pate.simulation import RehearsedVote, SimulatedVote
from learning.mechanisms.pate.teachers import STOP, Teachers
from learning.mechanisms.protocol import People, PlanError
from learning.representations import FittedRepresentation
from learning.students import counted, labelled
from training.alliances.documents import noise_factor
from training.engine.budgets import PlannedPromise, sites_of
from training.engine.commits import charged_faults, spending_may_begin
from training.engine.questions import Questions, round_under_way, state_before
from training.engine.records import points_of, space_first
from training.methods import pate_teachers
from training.methods.base import Amount, EngineMethod, RunStage, Tile, Wrong, stage_asking
from training.methods.pate_plan import TeachersPlan, plan_from_json, teachers_plan
from training.methods.pate_teachers import ballot_load, holders_who_left, run_prepare, vote_open
from training.methods.planning import choices_check
from training.methods.student_training import StudentData, shape_check, student_data_from_queries, student_fit
from training.models import Batch, Round, Run

ACCOUNTING = {
    "data_independent": gettext_noop("worst case over all possible votes"),
    "data_dependent": gettext_noop("bound for the actual votes"),
    "exact": gettext_noop("exact for the actual votes"),
    "improved": gettext_noop("improved"),
    "classic": gettext_noop("classic"),
}
"""Labels of the ways in which a rehearsal can calculate costs, and of the conversions from RDP to ε."""
_COUNTED = gettext_noop("%(method)s; conversion: %(conversion)s")
_SPACE = Sentence(gettext_noop("The public points, unchanged. All teachers vote on each of them."))
_NOBODY = People(np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0))


class Ballots(Questions):
    """Questions that teachers answer on behalf of their members."""

    #: No shards, because teachers have completed all their predictions before the vote begins.
    shard = None
    release_kind = Release.Kind.LABELS.value

    def kind_of(self, opened_round: Round) -> str:
        counts = vote_question(opened_round.run).plan.aggregator.releases_counts
        return Release.Kind.TALLIES.value if counts else self.release_kind

    def round_open(self, run: Run) -> Round:
        question = vote_question(run)
        return Round(run=run, index=0, representation=_SPACE.to_json(), sigma=question.sigma, size=question.size)

    def question(self, opened_round: Round) -> TeachersQuestion:
        return vote_question(opened_round.run)

    def precompute(self, run: Run) -> None:
        question = vote_question(run)
        if isinstance(question, RehearsedVote):
            _simulated(run.pk)
        elif question.student is not None:
            question.student(state_of(question, run).labels)
        if run.assignment:  # the hub of a joint run has no teachers
            ballot_load(run.pk)

    def is_over(self, opened_round: Round) -> bool:
        return self._stop(opened_round.run) is not None

    def stop_reason(self, run: Run) -> str:
        return str(self._stop(run))

    def people(self, run: Run) -> People:
        """Return all members of teachers, with a cap of 0 for those who must leave."""
        if run.rehearsal:
            return _NOBODY
        ballot, budgets = ballot_load(run.pk), _budgets(run)
        members, group, question = ballot.members, ballot.group_of, vote_question(run)
        caps = np.array([budget.cap for budget in budgets])[group]
        caps[np.isin(members, _members_to_remove(run.pk, consent_state(run.study)))] = 0.0
        # Charges were checked against all caps when the vote opened. Holders who lowered their cap after that are still
        # charged for the whole vote.
        spent = account_balances(run.study, members)
        allowed = np.array([budget.allowed for budget in budgets])
        # The charge of a charging class is the amount that the run has charged to each member of the class.
        charged = question.spent(state_of(question, run))[question.class_of(ballot)]
        return People(members, caps, spent - charged + allowed[group], spent)

    def records(
        self, run: Run, fitted: FittedRepresentation | None, people: People, cache: str = ""
    ) -> Ballot | SimulatedVote:
        return _simulated(run.pk) if run.rehearsal else ballot_load(run.pk)

    def rehearsed(self, run: Run) -> dict[str, Any]:
        known, epsilons = run.rehearsed, arrays_load(run.batches.get().released)["epsilons"]
        levels = [
            {"level": promise["level"], "epsilon": promise["epsilon"], "spent": float(spent)}
            for promise, spent in zip(run.plan["promises"], epsilons, strict=True)
        ]
        return {"epsilons": levels, "method": known["method"], "conversion": known["conversion"]}

    def _stop(self, run: Run) -> str | None:
        question = vote_question(run)
        return question.stop(state_of(question, run))


def vote_question(run: Run) -> TeachersQuestion:
    """Return the question of a run with teachers, from its plan, its choices and its public points."""
    plan = plan_from_json(run.plan)
    question = TeachersQuestion(
        plan,
        _budgets(run),
        size=run.public_points.rows,
        n_classes=len(run.classes),
        points=_points(run),
        wanted_labels=run.wanted_labels,
        continues_when_exhausted=Teachers.from_json(run.choices).on_exhausted != STOP,
        student=partial(interim_probabilities, run) if plan.aggregator.asks_student else None,
        participation=_participation(run.pk, run.plan["participation"]) if "participation" in run.plan else None,
    )
    if not run.rehearsal:
        return question
    known, promises = run.rehearsed, run.plan["promises"]
    return RehearsedVote(
        **vars(replace(question, continues_when_exhausted=False)),
        groups=tuple(PrivacyGroup(promise["name"], promise["epsilon"], promise["holders"]) for promise in promises),
        delta=run.study.delta,
        seed=run.seed or 0,
        method=cast(Method, known["method"]),
        conversion=cast(Conversion, known["conversion"]),
        block=run.batch_size,
    )


def _accounting(template: str, counted: Mapping[str, Any]) -> Sentence:
    return Sentence(
        template, **{of: Sentence(ACCOUNTING.get(counted[of], counted[of])) for of in ("method", "conversion")}
    )


@lru_cache(maxsize=2)
def _participation(run_id: UUID, seed: str) -> NDArray[np.bool_]:
    """Return a mask (teachers, points) of participation in queries, drawn with the plan's public seed."""
    run = Run.objects.select_related("public_dataset").get(pk=run_id)
    return public_participation(plan_from_json(run.plan), run.public_points.rows, seed)


@lru_cache(maxsize=1)
def _simulated(run_id: UUID) -> SimulatedVote:
    """Return the vote of a rehearsal, computed from its seed; cached to keep the time under the study's lock short."""
    question = vote_question(Run.objects.select_related("study", "public_dataset").get(pk=run_id))
    assert isinstance(question, RehearsedVote), "only votes of rehearsals are simulated"
    return question.simulated(ballot_load(run_id))


def _points(run: Run) -> str:
    """Return the digest of the public points when the run was planned. They may have been encoded or removed since."""
    if run.alliance is not None:
        return run.alliance.terms["public"]["digest"]
    return run.plan.get("points", run.public_points.digest)  # plans of earlier versions lack the digest


def state_of(question: TeachersQuestion, run: Run) -> VoteState:
    """Return the state of a vote after all its releases."""
    return state_before(question, round_under_way(run), run.batches.count())


def _budgets(run: Run) -> tuple[VoteBudget, ...]:
    return tuple(VoteBudget(**budget) for budget in run.plan["budgets"])


@lru_cache(maxsize=2)
def _members_to_remove(run_id: UUID, _state: Hashable) -> np.ndarray:
    """Return the members who must leave their teacher, cached for each state of consents."""
    run, ballot = Run.objects.select_related("study").get(pk=run_id), ballot_load(run_id)
    pairs = {"holder": ballot.holder, "group": ballot.group}
    return holders_who_left(run, pairs, consent_snapshot(run.study, among=ballot.members))


# --- The method -------------------------------------------------------------------------------------------------------


def _prepare(run: Run) -> bool:
    """Assign people to teachers, then train the teachers and open the vote."""
    return vote_open(run) if run.assignment else run_prepare(run)


class Pate(EngineMethod):
    """Method in which teachers answer on behalf of their members; see :class:`training.methods.base.ModelMethod`."""

    name = Run.Method.PATE.value
    variants: tuple[str, ...] = (
        Run.Variant.STANDARD.value,
        Run.Variant.UPSAMPLING.value,
        Run.Variant.WEIGHTING.value,
        Run.Variant.VANISHING.value,
    )
    charged = gettext_noop(
        "Charges are public and the same for everyone in a group (in the vanishing variant, for everyone who shares "
        "a teacher). They depend only on the releases, not on anyone's records."
    )
    choices = Teachers
    parts = "pate"
    charges_promises_of_approval = True
    batch_label = gettext_noop("Queries per batch")
    releases_labels = True
    questions = Ballots()
    batch_size = 50
    forecast_by_people = False

    def __init__(self) -> None:
        super().__init__()
        self.steps = {**self.steps, Run.Status.APPROVED: run_prepare, Run.Status.PREPARING: _prepare}

    def check(self, run: Run, wrong: Wrong) -> None:
        if run.variant not in self.variants:
            wrong("variant", _("Choose a variant."))
        if run.alliance_id and run.variant == Run.Variant.VANISHING:
            wrong(
                "variant",
                _("In a run across sites, all teachers take part in every vote. Choose another variant."),
            )
        chosen = choices_check(run, wrong, self.choices)
        if chosen is None:
            return
        vote = None if chosen.aggregator is None else chosen.vote()
        if chosen.leaves_open and (run.rehearsal or run.alliance_id):
            # Required in rehearsals, which compare variants, and in joint runs, because hub and sites may have
            # different test data.
            place = "choices.teachers" if chosen.teachers is None else "choices.aggregator"
            wrong(
                place, _("The plan cannot choose this for rehearsals or for runs across sites, so choose it yourself.")
            )
        if run.alliance_id and vote is not None and (not vote.adds_noise_once or vote.asks_student):
            message = _("Choose GNMax, because in a run across sites, labels have to follow from one noisy sum.")
            wrong("choices.aggregator", message)
        if run.alliance_id and chosen.on_exhausted != STOP:
            wrong(
                "choices.on_exhausted",
                _("In a run across sites, the vote ends when one group's share is used up. Choose “end the vote”."),
            )
        if run.variant == Run.Variant.VANISHING and chosen.small_groups == "copy":
            wrong(
                "choices.small_groups",
                _(
                    "Only the weighting variant can copy small groups into other teachers. Choose that "
                    "variant, or do not copy."
                ),
            )
        if run.variant == Run.Variant.VANISHING and vote is not None and vote.pays_once:
            message = _(
                "Residual votes are charged only once, so every teacher has to take part in every vote. "
                "Choose another variant or another aggregator."
            )
            wrong("choices.aggregator", message)
        shape_check(run, "choices.learner", learner_create(chosen.learner, chosen.learner_parameters), wrong)
        if run.rehearsal and vote is not None and not vote.has_paper_costs:
            wrong(
                "choices.aggregator",
                _("The papers don't say what residual votes cost. Choose another aggregator for a rehearsal."),
            )
        if not run.rehearsal and chosen.weight_scheme == "calibrated":
            wrong(
                "choices.weight_scheme",
                _("Weights calibrated for Rényi costs are only for rehearsals. Choose weights in proportion to μ."),
            )

    def facts(self, run: Run) -> list[tuple[str, list[Sentence]]]:
        ends = Sentence(gettext_noop("when its share or the points are used up"))
        if run.wanted_labels:
            text = gettext_noop("at %(labels)s labels, or when its share or the points are used up")
            ends = Sentence(text, labels=run.wanted_labels)
        facts = [(gettext_noop("Ends"), [ends])]
        if run.rehearsed:
            facts.append((gettext_noop("How costs are calculated"), [_accounting(_COUNTED, run.rehearsed)]))
        return facts

    def counted(self, run: Run) -> Sentence:
        text = gettext_noop("Costs are calculated as in the papers: %(method)s, with the %(conversion)s conversion.")
        return _accounting(text, run.outcome)

    def tiles(self, run: Run) -> list[Tile]:
        points_sentence = Sentence(gettext_noop("of %(points)s"), points=self.size(run))
        return [
            (gettext_noop("Public points put to the vote"), run.position, points_sentence),
            (gettext_noop("Labels released"), run.labels, None),
            *self._reinforced(run),
            (gettext_noop("Queries rejected"), run.rejected, None),
        ]

    @staticmethod
    def _reinforced(run: Run) -> list[Tile]:
        # If the choices do not set the kind of vote, the plan chose one that never reinforces labels.
        chosen = Teachers.from_json(run.choices)
        if chosen.aggregator is None or not chosen.vote().reinforces:
            return []
        return [(gettext_noop("Labels reinforced"), run.reinforced, Sentence(gettext_noop("free of charge")))]

    def amount(self, run: Run) -> Amount:
        most = min(self.size(run), run.wanted_labels or self.size(run))
        affordable = run.plan.get("answers")
        return Amount("labels", most, run.labels, None if affordable is None else min(affordable, most))

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> TeachersPlan:
        return teachers_plan(run, share, promises)

    def joined(
        self, run: Run, hub_plan: Mapping[str, Any], promises: list[PlannedPromise], share: float
    ) -> tuple[list[PlannedPromise], Sequence[Any]]:
        """Return a site's promises and budgets after comparing its own plan with the hub's. Raises PlanError."""
        own = teachers_plan(run, share, [PlannedPromise(**each) for each in hub_plan["promises"]])
        document = json.loads(json.dumps(own.to_json()))
        names = ("variant", "teachers", "aggregator", "groups", "left_out", "budgets")
        if any(document[name] != hub_plan[name] for name in names):
            raise PlanError(
                gettext_noop(
                    "This site's head counts lead to teachers and budgets that differ from the hub's plan. Approve "
                    "the plan with the share that the hub gave it, in a study with the same δ."
                )
            )
        groups = {(each.level, each.epsilon): each.group for each in own.promises}
        mine = [replace(each, group=groups.get((each.level, each.epsilon), LEFT_OUT)) for each in promises]
        return mine, own.budgets

    def can_continue(self, run: Run) -> bool:
        if run.status == Run.Status.APPROVED:
            return spending_may_begin(run)
        # If the last teacher was trained while another worker had claimed the run, nothing else would resume the run.
        return run.status == Run.Status.PREPARING and bool(run.assignment) and pate_teachers.are_chunks_done(run)

    def round_sizes(self, run: Run) -> list[int]:
        return []  # the run is shown as a single round

    def size(self, run: Run) -> int:
        return run.public_points.rows

    def mechanism(self, run: Run) -> dict[str, Any]:
        return run.plan["aggregator"]

    def exhausted(self, run: Run) -> set[int]:
        if run.position == 0:
            return set()
        question = vote_question(run)
        return set(np.flatnonzero(~question.voting(state_of(question, run))).tolist())

    def stages(self, run: Run) -> list[RunStage]:
        # Teachers that are trained again without a member are still shown as trained; otherwise progress would reveal
        # that someone left. With upsampling, the number of teachers depends on group sizes, so progress always moves in
        # the same steps: tenths, or one for each requested teacher if there are fewer than ten.
        done = sum(stop - start for start, stop in run.chunks.exclude(artifact="").values_list("start", "stop"))
        wish = Teachers.from_json(run.choices).teachers or 10
        teachers, steps = run.plan["teachers"] if run.plan else wish, min(10, wish)
        return [
            RunStage("people", gettext_lazy("preparing participants"), run.prepared),
            RunStage("teachers", gettext_lazy("training teachers"), steps * done // teachers / steps),
            stage_asking(run, run.position / max(run.public_points.rows, 1)),
        ]

    def student_data(self, run: Run) -> StudentData:
        return student_data_from_counts(run) if self.releases_counts(run) else student_data_from_queries(run)

    def releases_counts(self, run: Run) -> bool:
        return bool(run.plan) and plan_from_json(run.plan).aggregator.releases_counts

    def bounds(self, question: TeachersQuestion, batch: Batch) -> list[float]:
        """Return the largest charges, which depend on the queries answered before and in the batch."""
        return question.charges(*_paid_for(batch))

    def largest_class(self, question: TeachersQuestion, batch: Batch) -> float:
        return max(question.class_charges(*_paid_for(batch)))

    def content_faults(self, run: Run, batch: Batch, release: Release) -> Iterator[str]:
        yield from super().content_faults(run, batch, release)
        if batch.round is None:
            return
        question = self.questions.question(batch.round)
        entry, due = f"release {release.sequence}", self.bounds(question, batch)
        for place, (charge, cost) in enumerate(zip(release.content["charges"], due, strict=True)):
            if charge != cost:
                yield f"{entry}: group {place}'s charge differs from the cost of run {run.pk}, batch {batch.index}."
        if set(charges_of(release).spent.tolist()) - set(question.class_charges(*_paid_for(batch))):
            yield f"{entry}: a holder's charge differs from their group's or teacher's."

    def kept_faults(self, batch: Batch, release: Release, question: TeachersQuestion) -> Iterator[str]:
        who, entry, opened_round = (
            f"run {batch.run_id}, batch {batch.index}",
            f"release {release.sequence}",
            batch.round,
        )
        assert opened_round is not None, "the batch has a round"
        kept, counts = _released(batch), _counts(batch, question)
        labels = kept.labels[batch.start :]
        if release.content["digest"] != question.released_digest(
            batch.start, labels, kept.reinforced[batch.start :], counts
        ):
            yield f"{entry}: the labels or counts of {who} differ from the released ones."
        if counts is not None and not np.array_equal(labels, counts.argmax(axis=1)):
            yield f"{who}: its labels do not follow from the released counts."
        try:
            state = question.state(arrays_load(batch.released))
            before = state_before(question, opened_round, batch.index)
        except (OSError, KeyError, ValueError):
            yield f"{who}: its released file, or an earlier one, cannot be read."
            return
        are_labels_kept = np.array_equal(state.labels, kept.labels) and np.array_equal(
            state.reinforced, kept.reinforced
        )
        if not are_labels_kept or not np.array_equal(state.guesses[: batch.start], before.guesses):
            yield f"{who}: its file does not follow from the releases."

    def charges_faults(self, batch: Batch, release: Release, question: TeachersQuestion) -> Iterator[str]:
        ballot = ballot_load(batch.run_id)
        due = np.array(question.class_charges(*_paid_for(batch)))[question.class_of(ballot)]
        yield from charged_faults(batch, release, ballot.members, due)


def _paid_for(batch: Batch) -> tuple[VoteState, np.ndarray]:
    """Return the state before a batch, without the student's guesses, and the answered queries of the batch."""
    now = _released(batch)
    return now.until(batch.start), now.answered[batch.start :]


def _released(batch: Batch) -> VoteState:
    """Return the state of a vote after a batch, without guesses, from the stored queries."""
    queries = batch.run.queries.filter(row__lt=batch.start + batch.size).order_by("row")
    rows = list(queries.values_list("label", "reinforced"))
    labels = np.array([REJECTED if label is None else label for label, _own in rows], dtype=np.int64)
    return VoteState(labels, np.full(len(rows), NO_VOTE), np.array([own for _label, own in rows], dtype=np.bool_))


def _counts(batch: Batch, question: TeachersQuestion) -> np.ndarray | None:
    """Return the counts (Q, C) of a batch's queries from their rows; None if the run releases no counts.

    A row with a wrong number of counts is read as zeros, so that the digest differs.
    """
    if not question.plan.aggregator.releases_counts:
        return None
    kept = batch.results.order_by("row").values_list("counts", flat=True)
    none = [0] * question.n_classes
    return np.array([each if each and len(each) == len(none) else none for each in kept], np.int64)


# --- The current student ----------------------------------------------------------------------------------------------


#: Number of labels from which the first student learns; each subsequent student learns from twice as many.
LABELS = 10


def interim_probabilities(run: Run, labels: np.ndarray) -> np.ndarray:
    """Return the current student's probabilities for the public points, (points, C); all 0 if there are too few labels.

    ``labels`` (Q,) belong to the first Q public points; ``REJECTED`` means that a point has no label.
    """
    (rows,) = np.nonzero(labels != REJECTED)
    if len(rows) < LABELS:
        return np.zeros((run.public_points.rows, len(run.classes)))
    known = rows[: LABELS * 2 ** int(np.log2(len(rows) / LABELS))]
    return _probabilities(run.pk, tuple(known.tolist()), tuple(labels[known].tolist()))


@lru_cache(maxsize=2)
def _probabilities(run_id: UUID, rows: tuple[int, ...], labels: tuple[int, ...]) -> np.ndarray:
    """Return a student's probabilities for all public points after learning from these labels."""
    run = Run.objects.select_related("public_dataset").get(pk=run_id)
    model = student_fit(run, StudentData(labelled(np.array(rows), np.array(labels), classes=len(run.classes))))
    return model.predict_proba(points_of(run.public_points))


# --- The student's training data


def student_data_from_counts(run: Run) -> StudentData:
    """Return a student's training data: all counts of a run and their noise. Counts for images are smoothed."""
    answered = run.queries.filter(counts__isnull=False).order_by("row")
    rows, counts = (list(answered.values_list(name, flat=True)) for name in ("row", "counts"))
    if not rows:
        return StudentData(labelled([], [], classes=len(run.classes)))
    plan = plan_from_json(run.plan)
    releases = counted(rows, np.array(counts), plan.aggregator.deviation * noise_factor(run))
    if run.public_points.schema["kind"] != "image":
        return StudentData(releases)
    space = space_first(run.public_points, HolderChoices())
    return StudentData(releases, space.public, voters=float(plan.votes * sites_of(run)))
