"""Teachers vote: Individualized PATE, as the services see it."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from accounting.book import charges_of
from accounting.models import Release
from common.sentences import Sentence
from learning.learners import learner_create
from learning.mechanisms.pate.choices import Teachers
from learning.outcomes import Classes
from training.engine.budgets import PlannedPromise, budgets_from_json
from training.engine.spending import spending_may_begin
from training.methods.base import Outcome, Stage, Step, Tile, Wrong, stage_asking
from training.methods.choices import choices_check
from training.methods.learners import shape_check
from training.methods.lessons import Lesson, queries_lesson
from training.methods.pate import teaching, voting
from training.methods.pate.ballot import ballot_load
from training.methods.pate.planning import RunPlan, run_plan
from training.methods.pate.preparation import run_prepare
from training.models import Batch, Run

#: Relative difference between a charge and the same charge computed anew.
_TOLERANCE = 1e-12


def _prepare(run: Run) -> bool:
    """Share the people out over the teachers; once that is done, train these, and open the vote."""
    return voting.vote_open(run) if run.assignment else run_prepare(run)


class Pate:
    """See :class:`training.methods.base.RunMethod`."""

    name = Run.Method.PATE.value
    variants: tuple[str, ...] = (
        Run.Variant.STANDARD.value,
        Run.Variant.UPSAMPLING.value,
        Run.Variant.WEIGHTING.value,
        Run.Variant.VANISHING.value,
    )
    outcome = Outcome.MODEL
    learns: tuple[str, ...] = (Classes.kind,)
    charged = gettext_noop(
        "Charges are public and the same for everybody in a group. They follow from what was released, never from "
        "anybody's records."
    )
    rehearsed_variants: tuple[str, ...] = (Run.Variant.VANISHING.value,)
    choices = Teachers
    parts = "pate"
    needs_public_points = True
    release_kind = Release.Kind.LABELS.value
    charges_ahead = False
    batch_label = gettext_noop("Queries in a batch")
    curves_told = ""
    releases_labels = True
    asking = None
    batch_size = 50
    steps: Mapping[str, Step] = {
        Run.Status.APPROVED: run_prepare,
        Run.Status.PREPARING: _prepare,
        Run.Status.ASKING: voting.vote_batch,
    }

    def check(self, run: Run, wrong: Wrong) -> None:
        if run.variant not in self.variants:
            wrong("variant", _("Choose a variant."))
        if not run.rehearsal and run.variant in self.rehearsed_variants:
            wrong("variant", _("The vanishing variant is for rehearsals."))
        chosen = choices_check(run, wrong, self.choices)
        if chosen is None:
            return
        shape_check(run, "choices.learner", learner_create(chosen.learner, chosen.learner_parameters), wrong)
        if chosen.vote().asks_student and run.rehearsal:
            wrong(
                "choices.aggregator",
                _("This aggregator asks a student during the vote; a rehearsal holds it at once."),
            )
        if not run.rehearsal and chosen.weight_scheme == "calibrated":
            wrong(
                "choices.weight_scheme",
                _("Weights calibrated for Rényi costs are for rehearsals. Choose those in proportion to μ."),
            )

    def facts(self, run: Run) -> list[tuple[str, list[Sentence]]]:
        ends = Sentence(gettext_noop("when its share or the points are used up"))
        if run.wanted_labels:
            told = gettext_noop("at %(labels)s labels, or when its share or the points are used up")
            ends = Sentence(told, labels=run.wanted_labels)
        facts = [(gettext_noop("Ends"), [ends])]
        if run.rehearsed:
            counted = Sentence(
                "%(method)s, %(conversion)s", **{of: run.rehearsed[of] for of in ("method", "conversion")}
            )
            facts.append((gettext_noop("Costs are counted"), [counted]))
        return facts

    def counted(self, run: Run) -> Sentence:
        told = gettext_noop("Counted as in the papers: %(method)s, conversion %(conversion)s.")
        return Sentence(told, method=run.outcome["method"], conversion=run.outcome["conversion"])

    def tiles(self, run: Run) -> list[Tile]:
        points_sentence = Sentence(gettext_noop("of %(points)s"), points=self.size(run))
        return [
            (gettext_noop("Public points put to the vote"), run.position, points_sentence),
            (gettext_noop("Labels released"), run.labels, None),
            (gettext_noop("Queries rejected"), run.rejected, None),
        ]

    def plan(self, run: Run, share: float = 1.0) -> RunPlan:
        return run_plan(run, share)

    def expected_right(self, run: Run, share: float, promises: list[PlannedPromise]) -> float | None:
        return None

    def may_go_on(self, run: Run) -> bool:
        # The last teacher may have been trained while another worker held the run: nobody else would go on then.
        is_taught = run.status == Run.Status.PREPARING and run.assignment and teaching.chunks_done(run)
        return bool(is_taught) and spending_may_begin(run)

    def round_sizes(self, run: Run) -> list[int]:
        return []

    def size(self, run: Run) -> int:
        return run.public_points.rows

    def mechanism(self, run: Run) -> dict[str, Any]:
        return run.plan["aggregator"]

    def stages(self, run: Run) -> list[Stage]:
        # Teachers that learn anew without somebody stay counted: that somebody left is known from consents and
        # accounts. In upsampling the number of teachers follows from the sizes of the groups, so that the share goes
        # through the same steps whatever it is: tenths, or one for each teacher asked for where these are fewer.
        done = sum(stop - start for start, stop in run.chunks.exclude(artifact="").values_list("start", "stop"))
        asked_for = Teachers.from_json(run.choices).teachers
        teachers, steps = run.plan["teachers"] if run.plan else asked_for, min(10, asked_for)
        return [
            Stage("people", gettext_lazy("preparing the people"), run.prepared),
            Stage("teachers", gettext_lazy("training teachers"), steps * done // teachers / steps),
            stage_asking(run, run.position / max(run.public_points.rows, 1)),
        ]

    def curves(self, run: Run) -> dict[str, list[float]]:
        return {}

    def leads(self, run: Run) -> list[list[float]]:
        return []

    def lesson(self, run: Run) -> Lesson:
        return queries_lesson(run)

    def content_faults(self, run: Run, batch: Batch, release: Release) -> Iterator[str]:
        content, who = release.content, f"run {run.pk}, batch {batch.index}"
        rows = list(batch.results.order_by("row").values_list("label", flat=True))
        answered = np.array([label is not None for label in rows], dtype=bool)
        labels = np.array([-1 if label is None else label for label in rows], dtype=np.int64)
        if content["digest"] != voting.labels_digest(batch.start, labels, answered):
            yield f"release {release.sequence}: the labels of {who} are not those that were released."
        for place, budget in enumerate(budgets_from_json(run.plan)):
            due = budget.costs(batch.start, answered).sum()
            if content["charges"][place] not in (0.0, due):
                yield f"release {release.sequence}: group {place} was not charged what {who} cost."
        charged = set(charges_of(release).spent.tolist())
        if charged - set(content["charges"]):
            yield f"release {release.sequence}: somebody was charged something else than their group."

    def replay_faults(self, batch: Batch, release: Release) -> Iterator[str]:
        ballot, charges = ballot_load(batch.run_id), charges_of(release)
        due = np.array(release.content["charges"])[ballot.group_of]
        if not np.array_equal(charges.holders, ballot.members):
            yield f"release {release.sequence}: batch {batch.index} was not charged to the members of the teachers."
        elif not np.allclose(charges.spent, due, rtol=_TOLERANCE, atol=0):
            yield f"release {release.sequence}: batch {batch.index} cost its members something else."
