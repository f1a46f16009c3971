"""Private gradient steps, as the services see them."""

from collections.abc import Iterator
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.models import Release
from common.artifacts import arrays_load
from learning.formats import TabularSchema, schema_from_json
from learning.mechanisms.counts.question import CountsQuestion
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.question import StepsQuestion, states_after, sums_digest
from learning.mechanisms.synthesis.planner import synthesis_plan_from_json
from learning.outcomes import Classes
from training.engine.attempts import attempt_load
from training.engine.budgets import PlannedPromise
from training.engine.coordinates import records_of
from training.engine.faults import charged_faults
from training.engine.questions import position_in_round, state_before
from training.methods.base import Wrong
from training.methods.choices import holder_choices_check
from training.methods.counted import counts_charges_faults, counts_kept_faults, rounds_of_counts
from training.methods.gradient_steps import GradientSteps, student_refused, student_without_points_refused
from training.methods.lessons import Lesson
from training.methods.steps.lessons import descent_lesson, published_follows
from training.methods.steps.planning import DescentPlan, descent_plan
from training.methods.steps.progress import gradient_curves
from training.methods.steps.questions import Gradients
from training.methods.steps.rounds import question_load
from training.methods.steps.space import points_follow
from training.methods.synthesis.rounds import rows_check
from training.models import Batch, Run


class Sgd(GradientSteps):
    """See :class:`training.methods.base.RunMethod`."""

    variants: tuple[str, ...] = (Run.Variant.INDIVIDUAL.value,)
    charged = gettext_noop(
        "Charges are public: the most that anybody of a level can have been charged. What somebody was charged is "
        "less where their gradients were small, and stays a secret."
    )
    curves_help = gettext_noop(
        "Length of every released gradient and of the noise in it, in clipping norms: where the two are alike a step "
        "says little"
    )
    choices = Steps
    parts = "sgd"
    #: Where there are none, rows take their place that are drawn from counts of the same run.
    needs_public_points = False
    questions = Gradients()
    # Consents count from the next chunk on, and a bar moves; each chunk goes to a worker and back.
    batch_size = 10

    def check_choices(self, run: Run, wrong: Wrong) -> None:
        run.variant = Run.Variant.INDIVIDUAL
        chosen = holder_choices_check(run, wrong, self.choices)
        if chosen is None or not run.private_dataset_id:
            return
        if not run.public_dataset_id:
            self._check_without_points(run, chosen, wrong)
            return
        if run.private_dataset.outcome.categories:
            return
        student_refused(chosen, wrong)
        if chosen.rounds > 1:
            wrong(
                "choices.rounds",
                _("The second round needs a student, and none learns so many labels. Choose one."),
            )

    @staticmethod
    def _check_without_points(run: Run, chosen: Steps, wrong: Wrong) -> None:
        student_without_points_refused(chosen, wrong)
        if chosen.rounds > 1:
            wrong("choices.rounds", _("The second round needs a student, and none learns without public points."))
        schema = schema_from_json(run.private_dataset.schema)
        if run.private_dataset.outcome.kind == Classes.kind and isinstance(schema, TabularSchema):
            rows_check(run, wrong, "public_dataset")
        else:
            text = _("Only of tables that declare classes counts can take the place of public points. Choose some.")
            wrong("public_dataset", text)

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> DescentPlan:
        return descent_plan(run, share, promises)

    def mechanism(self, run: Run) -> dict[str, Any]:
        rounds = [
            question_load(each).describe() | {"representation": each.representation, "steps": each.position}
            for each in run.rounds.exclude(artifact="").select_related("run")
        ]
        counts = synthesis_plan_from_json(run.plan["rounds"]).describe() if rounds_of_counts(run) else None
        return {"name": "sgd", "rounds": rounds, "counts": counts}

    def curves(self, run: Run) -> dict[str, list[float]]:
        return gradient_curves(run)

    def lesson(self, run: Run) -> Lesson:
        return descent_lesson(run)

    def kept_faults(self, batch: Batch, release: Release, question: StepsQuestion | CountsQuestion) -> Iterator[str]:
        if isinstance(question, CountsQuestion):
            yield from counts_kept_faults(batch, release, question)
            return
        run, content, opened_round = batch.run, release.content, batch.round
        assert opened_round is not None, "it has a question"
        who = f"run {run.pk}, batch {batch.index}"
        try:
            arrays, state = arrays_load(batch.released), state_before(question, opened_round, batch.index)
            sums, after_batch = arrays["sums"], question.state(arrays)
        except (OSError, KeyError, ValueError):
            yield f"{who}: what it released, or what came before it, cannot be read."
            return
        if not len(sums) == batch.size == content["steps"]:
            yield f"{who}: says {batch.size} steps, its file {len(sums)}, its release {content['steps']}."
            return
        if content["digest"] != sums_digest(sums):
            yield f"release {release.sequence}: the sums of {who} are not those that were released."
        *_states, after = states_after(state, sums)
        if not after.same(after_batch):
            yield f"{who}: its state does not follow from what was released."
        if not position_in_round(batch) and not points_follow(opened_round, question):
            yield f"{who}: the points in place of public ones are not those that the counts of its run lead to."
        if run.position == batch.start + batch.size and not published_follows(run, after):
            yield f"run {run.pk}: the model that it published is not where its steps led to."

    def charges_faults(self, batch: Batch, release: Release, question: StepsQuestion | CountsQuestion) -> Iterator[str]:
        if isinstance(question, CountsQuestion):
            yield from counts_charges_faults(batch, release, question)
            return
        opened_round, people = batch.round, attempt_load(batch.attempt)
        assert opened_round is not None, "it has a question"
        contributions = question.contributions(people, records_of(batch.run, question.fitted, people.holders))
        state, sums = state_before(question, opened_round, batch.index), arrays_load(batch.released)["sums"]
        for state_next in states_after(state, sums):
            contributions.at(state)
            state = state_next
        yield from charged_faults(batch, release, people.holders, contributions.charges)
