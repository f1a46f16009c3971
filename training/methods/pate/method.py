"""Teachers vote: Individualized PATE, as the services see it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from accounting.book import charges_of
from accounting.models import Release
from common.artifacts import arrays_load
from common.sentences import Sentence
from learning.learners import learner_create
from learning.mechanisms.pate import LEFT_OUT, NO_VOTE, REJECTED
from learning.mechanisms.pate.ballots import TeachersQuestion, VoteState
from learning.mechanisms.pate.teachers import STOP, Teachers
from learning.mechanisms.protocol import PlanError
from training.engine.budgets import PlannedPromise
from training.engine.commits import charged_faults
from training.engine.questions import state_before
from training.engine.spending import spending_may_begin
from training.methods.base import EngineMethod, Stage, Tile, Wrong, stage_asking
from training.methods.lessons import Lesson, queries_lesson, shape_check
from training.methods.pate import teaching
from training.methods.pate.ballot import ballot_load
from training.methods.pate.lessons import counts_lesson
from training.methods.pate.opening import vote_open
from training.methods.pate.planning import RunPlan, plan_from_json, run_plan
from training.methods.pate.preparation import run_prepare
from training.methods.pate.questions import Ballots, state_of, vote_question
from training.methods.planning import choices_check
from training.models import Batch, Run


def _prepare(run: Run) -> bool:
    """Share the people out over the teachers; once that is done, train these, and open the vote."""
    return vote_open(run) if run.assignment else run_prepare(run)


class Pate(EngineMethod):
    """See :class:`training.methods.base.ModelMethod`. Teachers answer for their members."""

    name = Run.Method.PATE.value
    variants: tuple[str, ...] = (
        Run.Variant.STANDARD.value,
        Run.Variant.UPSAMPLING.value,
        Run.Variant.WEIGHTING.value,
        Run.Variant.VANISHING.value,
    )
    charged = gettext_noop(
        "Charges are public and the same for everybody in a group or, in the vanishing variant, in a teacher. They "
        "follow from what was released, never from anybody's records."
    )
    choices = Teachers
    parts = "pate"
    charges_promises_of_approval = True
    batch_label = gettext_noop("Queries in a batch")
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
            wrong("variant", _("Over sites all teachers take part in every vote. Choose another variant."))
        chosen = choices_check(run, wrong, self.choices)
        if chosen is None:
            return
        vote = None if chosen.aggregator is None else chosen.vote()
        if chosen.leaves_open and (run.rehearsal or run.alliance_id):
            # Rehearsals compare variants; plans of hub and sites must be the same whatever test data each has.
            place = "choices.teachers" if chosen.teachers is None else "choices.aggregator"
            wrong(place, _("The plan cannot choose this for rehearsals, nor over sites: choose it yourself."))
        if run.alliance_id and vote is not None and (not vote.adds_noise_once or vote.asks_student):
            message = _("Over sites teachers vote with GNMax: its labels follow from one noisy sum.")
            wrong("choices.aggregator", message)
        if run.alliance_id and chosen.on_exhausted != STOP:
            wrong("choices.on_exhausted", _("Over sites the vote ends when the share of one group is used up."))
        if run.variant == Run.Variant.VANISHING and chosen.small_groups == "copy":
            wrong("choices.small_groups", _("Small groups are copied into other teachers in weighting alone."))
        if run.variant == Run.Variant.VANISHING and vote is not None and vote.pays_once:
            message = _("Residual votes are paid for once, by teachers who take part in every vote.")
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
                _("Weights calibrated for Rényi costs are for rehearsals. Choose those in proportion to μ."),
            )

    def facts(self, run: Run) -> list[tuple[str, list[Sentence]]]:
        ends = Sentence(gettext_noop("when its share or the points are used up"))
        if run.wanted_labels:
            text = gettext_noop("at %(labels)s labels, or when its share or the points are used up")
            ends = Sentence(text, labels=run.wanted_labels)
        facts = [(gettext_noop("Ends"), [ends])]
        if run.rehearsed:
            counted = Sentence(
                "%(method)s, %(conversion)s", **{of: run.rehearsed[of] for of in ("method", "conversion")}
            )
            facts.append((gettext_noop("Costs are counted"), [counted]))
        return facts

    def counted(self, run: Run) -> Sentence:
        text = gettext_noop("Counted as in the papers: %(method)s, conversion %(conversion)s.")
        return Sentence(text, method=run.outcome["method"], conversion=run.outcome["conversion"])

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
        if not Teachers.from_json(run.choices).vote().reinforces:
            return []
        return [(gettext_noop("Labels reinforced"), run.reinforced, Sentence(gettext_noop("free of charge")))]

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> RunPlan:
        return run_plan(run, share, promises)

    def joined(
        self, run: Run, hub_plan: Mapping[str, Any], promises: list[PlannedPromise], share: float
    ) -> tuple[list[PlannedPromise], Sequence[Any]]:
        """See :meth:`EngineMethod.joined`. Groups, weights and budgets are those that follow from the hub's numbers."""
        own = run_plan(run, share, [PlannedPromise(**each) for each in hub_plan["promises"]])
        document = json.loads(json.dumps(own.to_json()))
        names = ("variant", "teachers", "aggregator", "groups", "left_out", "budgets")
        if any(document[name] != hub_plan[name] for name in names):
            raise PlanError(
                gettext_noop(
                    "Teachers and budgets of the hub's plan do not follow from its head counts here: approve it with "
                    "the share that the hub has given it, in a study with the same δ."
                )
            )
        groups = {(each.level, each.epsilon): each.group for each in own.promises}
        mine = [replace(each, group=groups.get((each.level, each.epsilon), LEFT_OUT)) for each in promises]
        return mine, own.budgets

    def may_go_on(self, run: Run) -> bool:
        if run.status == Run.Status.APPROVED:
            return spending_may_begin(run)
        # The last teacher may have been trained while another worker held the run: nobody else would go on then.
        return run.status == Run.Status.PREPARING and bool(run.assignment) and teaching.are_chunks_done(run)

    def round_sizes(self, run: Run) -> list[int]:
        return []  # its only round is the run, on pages too

    def size(self, run: Run) -> int:
        return run.public_points.rows

    def mechanism(self, run: Run) -> dict[str, Any]:
        return run.plan["aggregator"]

    def exhausted(self, run: Run) -> set[int]:
        if run.position == 0:
            return set()
        question = vote_question(run)
        return set(np.flatnonzero(~question.voting(state_of(question, run))).tolist())

    def stages(self, run: Run) -> list[Stage]:
        # Teachers that learn anew without somebody stay counted: that somebody left is known from consents. In
        # upsampling the number of teachers follows from the sizes of the groups, so that the share goes through the
        # same steps whatever it is: tenths, or one for each teacher asked for where these are fewer.
        done = sum(stop - start for start, stop in run.chunks.exclude(artifact="").values_list("start", "stop"))
        wish = Teachers.from_json(run.choices).teachers or 10
        teachers, steps = run.plan["teachers"] if run.plan else wish, min(10, wish)
        return [
            Stage("people", gettext_lazy("preparing the people"), run.prepared),
            Stage("teachers", gettext_lazy("training teachers"), steps * done // teachers / steps),
            stage_asking(run, run.position / max(run.public_points.rows, 1)),
        ]

    def lesson(self, run: Run) -> Lesson:
        return counts_lesson(run) if self.releases_counts(run) else queries_lesson(run)

    def releases_counts(self, run: Run) -> bool:
        return bool(run.plan) and plan_from_json(run.plan).aggregator.releases_counts

    def bounds(self, question: TeachersQuestion, batch: Batch) -> list[float]:
        """Charges, which follow from what was answered before and in the batch."""
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
                yield f"{entry}: group {place} was not charged what run {run.pk}, batch {batch.index} cost."
        if set(charges_of(release).spent.tolist()) - set(question.class_charges(*_paid_for(batch))):
            yield f"{entry}: somebody was charged something else than their group, or teacher."

    def kept_faults(self, batch: Batch, release: Release, question: TeachersQuestion) -> Iterator[str]:
        who, entry, opened_round = (
            f"run {batch.run_id}, batch {batch.index}",
            f"release {release.sequence}",
            batch.round,
        )
        assert opened_round is not None, "it has a question"
        kept, counts = _released(batch), _counts(batch, question)
        labels = kept.labels[batch.start :]
        if release.content["digest"] != question.released_digest(
            batch.start, labels, kept.reinforced[batch.start :], counts
        ):
            yield f"{entry}: the labels of {who}, or their counts, are not those that were released."
        if counts is not None and not np.array_equal(labels, counts.argmax(axis=1)):
            yield f"{who}: its labels do not follow from the counts that were released."
        try:
            state = question.state(arrays_load(batch.released))
            before = state_before(question, opened_round, batch.index)
        except (OSError, KeyError, ValueError):
            yield f"{who}: what it released, or what came before it, cannot be read."
            return
        are_labels_kept = np.array_equal(state.labels, kept.labels) and np.array_equal(
            state.reinforced, kept.reinforced
        )
        if not are_labels_kept or not np.array_equal(state.guesses[: batch.start], before.guesses):
            yield f"{who}: its file does not follow from what was released."

    def charges_faults(self, batch: Batch, release: Release, question: TeachersQuestion) -> Iterator[str]:
        ballot = ballot_load(batch.run_id)
        due = np.array(question.class_charges(*_paid_for(batch)))[question.class_of(ballot)]
        yield from charged_faults(batch, release, ballot.members, due)


def _paid_for(batch: Batch) -> tuple[VoteState, np.ndarray]:
    """Return the state before a batch, without guesses, and which of its queries were answered."""
    now = _released(batch)
    return now.until(batch.start), now.answered[batch.start :]


def _released(batch: Batch) -> VoteState:
    """Return what a run has released up to the end of a batch, by the rows that keep its queries; no guesses."""
    queries = batch.run.queries.filter(row__lt=batch.start + batch.size).order_by("row")
    rows = list(queries.values_list("label", "reinforced"))
    labels = np.array([REJECTED if label is None else label for label, _own in rows], dtype=np.int64)
    return VoteState(labels, np.full(len(rows), NO_VOTE), np.array([own for _label, own in rows], dtype=np.bool_))


def _counts(batch: Batch, question: TeachersQuestion) -> np.ndarray | None:
    """(Q, C) counts of a batch's queries, by the rows that keep them; None where none are released.

    A row without as many as there are classes has 0 of each: its digest is then another one.
    """
    if not question.plan.aggregator.releases_counts:
        return None
    kept = batch.results.order_by("row").values_list("counts", flat=True)
    none = [0] * question.n_classes
    return np.array([each if each and len(each) == len(none) else none for each in kept], np.int64)
