"""Check of the learners that a proposal names: of teachers, and of the student."""

from collections.abc import Callable, Mapping

from learning.formats import schema_from_json
from learning.learners.base import Parametrised
from learning.learners.registry import created, registered_class
from training.models import Run


def learner_check(
    run: Run,
    role: str,
    parameters: str,
    registered: Mapping[str, type[Parametrised]],
    wrong: Callable[[str, object], None],
) -> None:
    """Note what is wrong with a learner of a proposal, so that nothing is spent before it cannot learn.

    Args:
        run: The proposal.
        role: Its field that names the learner.
        parameters: Its field with the parameters.
        registered: All that may be named there.
        wrong: See `training.methods.base.Wrong`.
    """
    name = getattr(run, role)
    try:
        registered_class(registered, name)
    except ValueError as error:
        return wrong(role, error)
    try:
        learner = created(registered, name, getattr(run, parameters))
    except (ValueError, TypeError) as error:
        return wrong(parameters, error)
    shape_check(run, role, learner, wrong)


def shape_check(run: Run, role: str, learner: Parametrised, wrong: Callable[[str, object], None]) -> None:
    """Note that a learner cannot learn from records like the proposal's public points."""
    if run.public_dataset_id:
        try:
            learner.shape_check(schema_from_json(run.public_points.schema).shape)
        except ValueError as error:
            wrong(role, error)
