"""The lesson of noisy counts of teachers: each is about its public point alone."""

import numpy as np

from learning.mechanisms.choices import HolderChoices
from learning.students import counted, labelled
from training.alliances.documents import noise_factor
from training.engine.budgets import sites_of
from training.methods.lessons import Lesson
from training.methods.pate.planning import plan_from_json
from training.methods.space import space_first
from training.models import Run


def counts_lesson(run: Run) -> Lesson:
    """Return all counts of a run with their noise; those of images are smoothed over the public points."""
    answered = run.queries.filter(counts__isnull=False).order_by("row")
    rows, counts = (list(answered.values_list(name, flat=True)) for name in ("row", "counts"))
    if not rows:
        return Lesson(labelled([], [], classes=len(run.classes)))
    plan = plan_from_json(run.plan)
    releases = counted(rows, np.array(counts), plan.aggregator.deviation * noise_factor(run))
    if run.public_points.schema["kind"] != "image":
        return Lesson(releases)
    space = space_first(run.public_points, HolderChoices())
    return Lesson(releases, space.public, voters=float(plan.votes * sites_of(run)))
