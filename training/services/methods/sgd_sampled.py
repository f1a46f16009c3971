"""Private gradient steps over samples of the holders, and what they are compared with, as the services see them."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.caps import SLACKS
from accounting.models import Release
from common.sentences import Sentence
from learning.formats import schema_from_json
from learning.mechanisms.sampled_steps.choices import BASELINES, VARIANTS, Samples
from training.models import Batch, Round, Run
from training.services.choices import holder_choices_check
from training.services.holders.asking import Asking
from training.services.holders.attempts import attempt_load
from training.services.holders.faults import charged_faults, charges_agree
from training.services.holders.rounds import position_in_round
from training.services.lessons import Lesson
from training.services.methods.base import Step, Wrong
from training.services.methods.gradient_steps import GradientSteps
from training.services.sgd.sampled_gradients import SampledGradients, charged_caps, charged_content, groups_of
from training.services.sgd.sampled_lessons import network_lesson, published_follows
from training.services.sgd.sampled_planning import ONLY_REHEARSED, SLACKS_USED, SamplingPlan, sampling_plan, slacks_left
from training.services.sgd.sampled_rounds import (
    CHARGE,
    SampledTask,
    mechanism,
    state_digest,
    state_load,
    task_digest,
    task_load,
)

_SMALLEST_IMAGE = 16  # pixels; learning.mechanisms.sampled_steps.networks.SMALLEST_SIDE


class SgdSampled(GradientSteps):
    """See :class:`training.services.methods.base.RunMethod`."""

    variants: tuple[str, ...] = (*VARIANTS, *BASELINES)
    charged = gettext_noop(
        "Charges are public. Everybody of a level who takes part was charged the same for the whole run, before its "
        "first step; whoever had less than that left takes no part."
    )
    rehearsed_variants: tuple[str, ...] = BASELINES
    choices = Samples
    parts = "sgd/sampled"
    needs_public_points = False
    release_kind = SampledGradients.release_kind
    charges_ahead = True
    asking = Asking(SampledGradients())
    # The records are read once for each chunk; withdrawals act from the next one on.
    batch_size = 50
    steps: Mapping[str, Step] = {
        Run.Status.APPROVED: asking.open,
        SampledGradients.status: asking.step,
    }

    def check_choices(self, run: Run, wrong: Wrong) -> None:
        if not run.rehearsal and run.variant in self.rehearsed_variants:
            wrong("variant", _(ONLY_REHEARSED))
        if run.study_id and not slacks_left(run):
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
        if run.public_dataset_id:
            return
        if chosen.representation:
            wrong(
                "choices.representation",
                _("A representation is fitted on public points. Name a public dataset, or leave it out."),
            )
        if chosen.publish == "student":
            wrong(
                "choices.publish", _("A student learns on public points. Name a public dataset, or publish the model.")
            )

    def counted(self, run: Run) -> Sentence:
        return Sentence(
            gettext_noop(
                "What everybody of a level would have been charged for the whole run, in Gaussian differential privacy."
            )
        )

    def plan(self, run: Run, share: float = 1.0) -> SamplingPlan:
        return sampling_plan(run, share)

    def mechanism(self, run: Run) -> dict[str, Any]:
        asked = run.rounds.select_related("run").get()
        task = task_load(asked)
        return mechanism(task) | {
            "representation": asked.representation,
            "slack": task.plan.slack,
            "levels": [promise["name"] for promise in run.plan["promises"]],
        }

    def curves(self, run: Run) -> dict[str, list[float]]:
        return {}

    def lesson(self, run: Run) -> Lesson:
        return network_lesson(run)

    def content_faults(self, run: Run, batch: Batch, release: Release) -> Iterator[str]:
        who, content = f"run {run.pk}, batch {batch.index}", release.content
        asked = batch.round
        if asked is None or asked.run_id != run.pk:
            yield f"{who}: is in no round of its run."
            return
        task = task_load(asked)
        if content["question"] != task_digest(task):
            yield f"release {release.sequence}: {who} trained something else than what was released."
        if content["mechanism"] != mechanism(task):
            yield f"release {release.sequence}: {who} was not trained as its plan says."
        if batch.index == CHARGE:
            yield from self._charge_faults(run, batch, release, task)
        else:
            yield from self._chunk_faults(run, batch, release, asked, task)

    def _charge_faults(self, run: Run, batch: Batch, release: Release, task: SampledTask) -> Iterator[str]:
        """Was everybody charged for the whole run before its first step?"""
        if batch.size or any(release.content.get(name) != said for name, said in charged_content(task).items()):
            yield f"release {release.sequence}: is not the charge for all of run {run.pk}."
        if not charges_agree(run, batch, release, task.charges.tolist()):
            yield f"release {release.sequence}: its public charge is not what run {run.pk} can have cost."

    def _chunk_faults(self, run: Run, batch: Batch, release: Release, asked: Round, task: SampledTask) -> Iterator[str]:
        who, content = f"run {run.pk}, batch {batch.index}", release.content
        if release.charges or release.charge or any(content["charges"]):
            yield f"release {release.sequence}: charges somebody once more for steps that were paid for before."
        try:
            state = state_load(batch)
        except (OSError, KeyError, ValueError):
            yield f"{who}: what it released cannot be read."
            return
        before = position_in_round(batch)
        if not state.step - before == batch.size == content["steps"]:
            yield f"{who}: says {batch.size} steps, its file {state.step - before}, its release {content['steps']}."
        if content["digest"] != state_digest(state):
            yield f"release {release.sequence}: the weights of {who} are not those that were released."
        if (asked.size, asked.sigma) != (task.plan.steps, task.plan.mechanism.noise_multiplier):
            yield f"{who}: what its round says of itself is not what it trained."
        if asked.position < before + batch.size:
            yield f"{who}: is in a round that has not taken so many steps."
        if run.position == batch.start + batch.size and not published_follows(run, task, state):
            yield f"run {run.pk}: the network that it published is not where its steps led to."

    def replay_faults(self, batch: Batch, release: Release) -> Iterator[str]:
        run, people = batch.run, attempt_load(batch.asked)
        if batch.index == CHARGE:
            assert batch.round is not None, "a batch by this method is in a round"
            due = task_load(batch.round).charges[groups_of(run, people.caps)]
            yield from charged_faults(batch, release, people.holders, due)
            return
        charged, _caps = charged_caps(run)
        if not np.isin(people.holders, charged).all():
            yield f"release {release.sequence}: batch {batch.index} asked somebody who was not charged for the run."
