"""Private gradient steps over samples of the holders, and what they are compared with, as the services see them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.caps import SLACKS
from accounting.models import Release
from common.artifacts import arrays_load
from common.sentences import Sentence
from learning.formats import schema_from_json
from learning.mechanisms.base import content_digest
from learning.mechanisms.sampled_steps.choices import BASELINES, VARIANTS, Samples
from learning.mechanisms.sampled_steps.question import CHARGE, SampledQuestion
from training.engine.attempts import attempt_load
from training.engine.budgets import PlannedPromise
from training.engine.faults import charged_faults
from training.engine.questions import position_in_round
from training.methods.base import Wrong
from training.methods.choices import holder_choices_check
from training.methods.gradient_steps import GradientSteps, student_refused, student_without_points_refused
from training.methods.lessons import Lesson
from training.methods.sampled_steps.lessons import network_lesson, published_follows
from training.methods.sampled_steps.planning import (
    ONLY_REHEARSED,
    SLACKS_USED,
    SamplingPlan,
    has_slack_left,
    sampling_plan,
)
from training.methods.sampled_steps.questions import SampledGradients, charged_caps
from training.methods.sampled_steps.rounds import question_load
from training.models import Batch, Run

_SMALLEST_IMAGE = 16  # pixels; learning.mechanisms.sampled_steps.networks.SMALLEST_SIDE


class SgdSampled(GradientSteps):
    """See :class:`training.methods.base.RunMethod`."""

    variants: tuple[str, ...] = (*VARIANTS, *BASELINES)
    charged = gettext_noop(
        "Charges are public. Everybody of a level who takes part was charged the same for the whole run, before its "
        "first step; whoever had less than that left takes no part."
    )
    rehearsed_variants: tuple[str, ...] = BASELINES
    choices = Samples
    parts = "sgd/sampled"
    needs_public_points = False
    charges_ahead = True
    questions = SampledGradients()
    # The records are read once for each chunk; withdrawals act from the next one on.
    batch_size = 50

    def check_choices(self, run: Run, wrong: Wrong) -> None:
        if not run.rehearsal and run.variant in self.rehearsed_variants:
            wrong("variant", _(ONLY_REHEARSED))
        if run.study_id and not has_slack_left(run):
            wrong("variant", _(SLACKS_USED) % {"most": SLACKS})
        chosen = holder_choices_check(run, wrong, self.choices)
        if chosen is None or not run.private_dataset_id:
            return
        shape = schema_from_json(run.private_dataset.schema).shape
        if chosen.network == "cnn" and (len(shape) < 2 or min(shape[:2]) < _SMALLEST_IMAGE):
            wrong(
                "choices.network",
                _("The convolutional network takes images from 16 × 16 pixels. Choose another model."),
            )
        if not run.private_dataset.outcome.categories:
            student_refused(chosen, wrong)
        if run.public_dataset_id:
            return
        if chosen.representation:
            wrong(
                "choices.representation",
                _("A representation is fitted on public points. Name a public dataset, or leave it out."),
            )
        student_without_points_refused(chosen, wrong)

    def counted(self, run: Run) -> Sentence:
        return Sentence(
            gettext_noop(
                "What everybody of a level would have been charged for the whole run, in Gaussian differential privacy."
            )
        )

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> SamplingPlan:
        return sampling_plan(run, share, promises)

    def mechanism(self, run: Run) -> dict[str, Any]:
        opened_round = run.rounds.select_related("run").get()
        question = question_load(opened_round)
        return question.describe() | {
            "representation": opened_round.representation,
            "slack": question.plan.slack,
            "levels": [promise["name"] for promise in run.plan["promises"]],
        }

    def lesson(self, run: Run) -> Lesson:
        return network_lesson(run)

    def kept_faults(self, batch: Batch, release: Release, question: SampledQuestion) -> Iterator[str]:
        run, content = batch.run, release.content
        who, before = f"run {run.pk}, batch {batch.index}", position_in_round(batch)
        if batch.index == CHARGE:
            if batch.size or any(content.get(name) != said for name, said in question.charged_content().items()):
                yield f"release {release.sequence}: is not the charge for all of run {run.pk}."
            return
        try:
            state = question.state(arrays_load(batch.released))
        except (OSError, KeyError, ValueError):
            yield f"{who}: what it released cannot be read."
            return
        if not state.step - before == batch.size == content["steps"]:
            yield f"{who}: says {batch.size} steps, its file {state.step - before}, its release {content['steps']}."
        if content["digest"] != content_digest(state.to_arrays()):
            yield f"release {release.sequence}: the weights of {who} are not those that were released."
        if run.position == batch.start + batch.size and not published_follows(run, question, state):
            yield f"run {run.pk}: the network that it published is not where its steps led to."

    def charges_faults(self, batch: Batch, release: Release, question: SampledQuestion) -> Iterator[str]:
        people = attempt_load(batch.attempt)
        if batch.index == CHARGE:
            due = question.charges[question.groups(people.caps)]
            yield from charged_faults(batch, release, people.holders, due)
            return
        charged, _caps = charged_caps(batch.run)
        if not np.isin(people.holders, charged).all():
            yield f"release {release.sequence}: batch {batch.index} asked somebody who was not charged for the run."
