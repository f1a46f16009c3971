"""Opening of rounds of gradient steps: the space in which a model learns, from public points and releases alone."""

from uuid import uuid4

import numpy as np

from common.artifacts import arrays_save
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.planner import StepsPlan, steps_plan_from_json
from learning.outcomes import target_arrays
from learning.representations import representation_save
from training.engine.files import rounds_folder
from training.methods.lessons import student_fit
from training.methods.space import Space, points_of, space_of_student
from training.methods.steps.lessons import descent_lesson
from training.methods.steps.space import counted_space, planned_space
from training.models import Round, Run


def round_open(run: Run) -> Round:
    """The next round of a run, in a new file; the caller's transaction writes the row. Nothing private is looked at."""
    index = run.rounds.count()
    plan = steps_plan_from_json(run.plan["rounds"][index]["plan"])
    space = _space(run, index, plan)
    outcome = run.learns
    begin = Descent.begin(plan, space.public, outcome.outputs, outcome.loss)
    artifact = f"{rounds_folder(run)}/{index}-{uuid4().hex[:12]}.npz"
    fitted = np.frombuffer(representation_save(space.fitted), dtype=np.uint8)
    arrays_save(
        artifact,
        representation=fitted,
        public=begin.points,
        classes=np.array(outcome.outputs),
        **target_arrays(outcome),
    )
    return Round(
        run=run,
        index=index,
        representation=space.fitted.representation.sentence().to_json(),
        artifact=artifact,
        sigma=plan.sigma,
        size=plan.steps,
    )


def _space(run: Run, index: int, plan: StepsPlan) -> Space:
    """That of the first round as chosen; then the inner layer of the student so far, beside the wavelets of images."""
    chosen = Steps.from_json(run.choices)
    if run.public_dataset is None:
        return counted_space(run, chosen, plan.strength)
    first = planned_space(run.public_dataset, chosen, plan.strength)
    if index == 0:
        return first
    student, points = student_fit(run, descent_lesson(run)), points_of(run.public_points, run.encoder)
    return space_of_student(student, first, points, beside_wavelets=first.fitted.representation.images)
