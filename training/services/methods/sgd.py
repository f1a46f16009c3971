"""Private gradient steps, as the services see them."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.utils.translation import gettext_noop

from accounting.models import Release
from learning.mechanisms.steps.choices import Steps
from training.models import Batch, Run
from training.services.choices import holder_choices_check
from training.services.holders.asking import Asking
from training.services.holders.attempts import attempt_load
from training.services.holders.faults import charged_faults, charges_agree
from training.services.holders.rounds import position_in_round
from training.services.lessons import Lesson
from training.services.methods.base import Step, Wrong
from training.services.methods.gradient_steps import GradientSteps
from training.services.sgd.gradients import Contributions, Gradients, mechanism, states_after
from training.services.sgd.lessons import descent_lesson, published_follows
from training.services.sgd.planning import DescentPlan, descent_plan
from training.services.sgd.progress import gradient_curves
from training.services.sgd.rounds import chunk_load, state_before, state_same, sums_digest, task_digest, task_load


class Sgd(GradientSteps):
    """See :class:`training.services.methods.base.RunMethod`."""

    variants: tuple[str, ...] = (Run.Variant.INDIVIDUAL.value,)
    charged = gettext_noop(
        "Charges are public: the most that anybody of a level can have been charged. What somebody was charged is "
        "less where their gradients were small, and stays a secret."
    )
    curves_told = gettext_noop(
        "Length of every released gradient and of the noise in it, in clipping norms: where the two are alike a step "
        "says little"
    )
    rehearsed_variants: tuple[str, ...] = ()
    choices = Steps
    parts = "sgd"
    needs_public_points = True
    release_kind = Gradients.release_kind
    charges_ahead = False
    asking = Asking(Gradients())
    # Consents count from the next chunk on, and a bar moves; each chunk goes to a worker and back.
    batch_size = 10
    steps: Mapping[str, Step] = {
        Run.Status.APPROVED: asking.open,
        Gradients.status: asking.step,
    }

    def check_choices(self, run: Run, wrong: Wrong) -> None:
        run.variant = Run.Variant.INDIVIDUAL
        holder_choices_check(run, wrong, self.choices)

    def plan(self, run: Run, share: float = 1.0) -> DescentPlan:
        return descent_plan(run, share)

    def mechanism(self, run: Run) -> dict[str, Any]:
        rounds = [
            mechanism(task_load(each), each) | {"representation": each.representation, "steps": each.position}
            for each in run.rounds.select_related("run")
        ]
        return {"name": "sgd", "rounds": rounds}

    def curves(self, run: Run) -> dict[str, list[float]]:
        return gradient_curves(run)

    def lesson(self, run: Run) -> Lesson:
        return descent_lesson(run)

    def content_faults(self, run: Run, batch: Batch, release: Release) -> Iterator[str]:
        who, content = f"run {run.pk}, batch {batch.index}", release.content
        asked = batch.round
        if asked is None or asked.run_id != run.pk:
            yield f"{who}: is in no round of its run."
            return
        task, before = task_load(asked), position_in_round(batch)
        try:
            chunk, state = chunk_load(task, batch), state_before(task, asked, batch.index)
        except (OSError, KeyError, ValueError):
            yield f"{who}: what it released, or what came before it, cannot be read."
            return
        if not len(chunk.sums) == batch.size == content["steps"]:
            yield f"{who}: says {batch.size} steps, its file {len(chunk.sums)}, its release {content['steps']}."
            return
        if content["digest"] != sums_digest(chunk.sums):
            yield f"release {release.sequence}: the sums of {who} are not those that were released."
        *_states, after = states_after(state, chunk.sums)
        if not state_same(after, chunk.state):
            yield f"{who}: its state does not follow from what was released."
        if content["question"] != task_digest(task):
            yield f"release {release.sequence}: {who} asked something else than what was released."
        if content["mechanism"] != mechanism(task, asked):
            yield f"release {release.sequence}: {who} was not asked as its plan says."
        sentence = task.fitted.representation.sentence().to_json()
        if (asked.size, asked.sigma, asked.representation) != (task.plan.steps, task.plan.sigma, sentence):
            yield f"{who}: what its round says of itself is not what it asked."
        if asked.position < before + batch.size:
            yield f"{who}: is in a round that has not asked so much."
        if not charges_agree(run, batch, release, task.bounds(run, batch.size)):
            yield f"release {release.sequence}: its public charge is not what {who} can have cost."
        if run.position == batch.start + batch.size and not published_follows(run, after):
            yield f"run {run.pk}: the model that it published is not where its steps led to."

    def replay_faults(self, batch: Batch, release: Release) -> Iterator[str]:
        asked, people = batch.round, attempt_load(batch.asked)
        assert asked is not None, "a batch by this method is in a round"
        task = task_load(asked)
        contributions = Contributions(batch.run, task, people)
        state, sums = state_before(task, asked, batch.index), chunk_load(task, batch).sums
        for state_next in states_after(state, sums):
            contributions.at(state)
            state = state_next
        yield from charged_faults(batch, release, people.holders, contributions.charges)
