"""Teachers vote: Individualized PATE, as the services see it."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from django.utils.translation import gettext as _

from accounting.book import charges_of
from accounting.models import Release
from learning.learners import LEARNERS
from learning.mechanisms.choices import AskingField
from learning.mechanisms.pate import aggregator_from_parameters
from training.engine.budgets import RunPlan, budgets_from_json, run_plan
from training.engine.spending import spending_may_begin
from training.methods.base import Step, Wrong
from training.methods.learners import learner_check
from training.methods.lessons import Lesson, queries_lesson
from training.methods.pate import teaching, voting
from training.methods.pate.ballot import ballot_load
from training.methods.pate.preparation import run_prepare
from training.models import Batch, Run

#: Relative difference between a charge and the same charge computed anew.
_TOLERANCE = 1e-12


class Pate:
    """See :class:`training.methods.base.RunMethod`."""

    name = Run.Method.PATE.value
    variants: tuple[str, ...] = (
        Run.Variant.STANDARD.value,
        Run.Variant.UPSAMPLING.value,
        Run.Variant.WEIGHTING.value,
        Run.Variant.VANISHING.value,
    )
    parts = "pate"
    needs_public_points = True
    release_kind = Release.Kind.LABELS.value
    charges_ahead = False
    releases_labels = True
    asking = None
    batch_size = 50
    steps: Mapping[str, Step] = {
        Run.Status.APPROVED: run_prepare,
        Run.Status.PREPARING: run_prepare,
        Run.Status.TRAINING: voting.vote_open,
        Run.Status.VOTING: voting.vote_batch,
    }

    def asking_fields(self) -> tuple[AskingField, ...]:
        return ()

    def check(self, run: Run, wrong: Wrong) -> None:
        if not run.teachers:
            wrong("teachers", _("Say how many teachers vote: 1 or more."))
        if run.variant not in self.variants:
            wrong("variant", _("Choose a variant."))
        learner_check(run, "learner", "learner_parameters", LEARNERS, wrong)
        try:
            if aggregator_from_parameters(run.aggregator).asks_student and run.rehearsal:
                wrong("aggregator", _("This aggregator asks a student during the vote; a rehearsal holds it at once."))
        except (ValueError, TypeError, AttributeError) as error:
            wrong("aggregator", error)
        if run.asking:
            wrong("asking", _("How holders are asked counts only where every holder is asked. Leave it out."))
        if not run.rehearsal and run.weight_scheme == Run.WeightScheme.CALIBRATED:
            wrong(
                "weight_scheme",
                _("Weights calibrated for Rényi costs are for rehearsals. Choose those in proportion to μ."),
            )
        if not run.rehearsal and run.variant == Run.Variant.VANISHING:
            wrong("variant", _("The vanishing variant is for rehearsals."))

    def plan(self, run: Run, share: float = 1.0) -> RunPlan:
        return run_plan(run, share)

    def may_go_on(self, run: Run) -> bool:
        # The last teacher may have been trained while another worker held the run: nobody else would go on then.
        return run.status == Run.Status.TRAINING and teaching.chunks_done(run) and spending_may_begin(run)

    def round_sizes(self, run: Run) -> list[int]:
        return []

    def size(self, run: Run) -> int:
        return run.public_points.rows

    def mechanism(self, run: Run) -> dict[str, Any]:
        return run.plan["aggregator"]

    def stages(self, run: Run) -> list[tuple[str, float]]:
        # Teachers that learn anew without somebody stay counted: that somebody left is known from consents and
        # accounts. In upsampling the number of teachers follows from the sizes of the groups, so that the share goes
        # through the same steps whatever it is: tenths, or one for each teacher asked for where these are fewer.
        done = sum(stop - start for start, stop in run.chunks.exclude(artifact="").values_list("start", "stop"))
        teachers = run.plan["teachers"] if run.plan else run.teachers or 1
        steps = min(10, run.teachers or 1)
        return [
            (Run.Status.PREPARING, run.prepared),
            (Run.Status.TRAINING, steps * done // teachers / steps),
            (Run.Status.VOTING, run.position / max(run.public_points.rows, 1)),
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
