"""Private gradient steps: what is released, what it costs whom, and that a chunk comes whole, whatever happens."""

from typing import Any

import pytest

from accounting.verification import study_faults
from consent.models import Study
from tests.training.asking import STEPS_RUN
from tests.training.runs import run_finish, run_start, study_with_table
from training.models import Run
from training.verification import batches_kept, release_faults, replay_faults

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

HOLDERS = 12


def small_study(**fields: Any) -> Study:
    return study_with_table(**{"holders": HOLDERS, "retain_votes": True, **fields})


def learning_run(study: Study, *, share: float = 0.5, **fields: Any) -> Run:
    """A run that has been approved; ``asking`` adds to how the steps are made."""
    chosen = STEPS_RUN["asking"] | fields.pop("asking", {})
    return run_start(study, share=share, **STEPS_RUN | fields | {"asking": chosen})


def assert_whole(run: Run) -> None:
    run.refresh_from_db()
    assert [*study_faults(run.study), *release_faults(run)] == []
    for batch in batches_kept(run.study):
        assert list(replay_faults(batch)) == []


@pytest.mark.parametrize("retain", [True, False])
def test_every_planned_step_is_taken_and_what_it_cost_is_charged(retain: bool) -> None:
    study = small_study(retain_votes=retain)
    run = run_finish(learning_run(study))
    assert (run.status, run.stop_reason) == (Run.Status.FINISHED, Run.StopReason.STEPS), run.message
    assert (run.position, run.labels, run.queries.count()) == (6, 0, 0)
    assert list(run.batches.values_list("start", "size")) == [(0, 2), (2, 2), (4, 2)]
    assert_whole(run)
