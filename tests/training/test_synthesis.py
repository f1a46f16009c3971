"""Synthetic rows: a run that draws them, from its proposal to their use as public points and their withdrawal."""

import csv
import io
from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError

from accounting.book import charges_of
from accounting.caps import caps_of
from accounting.models import Release
from common.artifacts import arrays_load, arrays_save
from consent.selectors import consent_snapshot
from tests.factories import user_create
from tests.training.asking import ASKING_RUN, SYNTHESIS_RUN, attempt, commit, run_ask
from tests.training.people import everybody, withdraw
from tests.training.runs import rehearsal_with_table, run_begun, run_draft, run_like, study_with_data, study_with_table
from training.methods import table_of
from training.models import Dataset, Run, RunResult
from training.services.results import result_withdraw
from training.uses import usage
from training.verification import batches_kept, release_faults, replay_faults

pytestmark = [pytest.mark.django_db]


def finished(**fields: Any) -> Run:
    """A run that has drawn rows about the holders of a small study and published them."""
    study = study_with_table(retain_votes=True)
    return run_ask(run_like(study, SYNTHESIS_RUN, **fields))


@pytest.mark.slow
def test_a_run_ends_with_rows_that_are_a_public_dataset() -> None:
    run = finished()
    assert (run.status, run.stop_reason, run.student) == (Run.Status.FINISHED, Run.StopReason.COUNTED, None)
    kinds = list(Release.objects.filter(run=run.pk).order_by("sequence").values_list("kind", flat=True))
    assert kinds == [*[Release.Kind.TABLE] * 3, Release.Kind.RESULT]
    drawn = table_of(run)
    lines = list(csv.reader(io.StringIO(drawn.to_csv())))
    assert lines[0] == ["length", "width", "class"] and len(lines) == 201
    assert {line[2] for line in lines[1:]} <= {"a", "b", "c"}
    dataset = run.result.dataset
    assert dataset is not None and (dataset.kind, dataset.rows) == (Dataset.Kind.PUBLIC, 200)
    stored = arrays_load(dataset.artifact)
    # Classes that were drawn are no truth that somebody could be judged by.
    assert set(stored) == {"x"} and ((stored["x"] >= 0) & (stored["x"] <= 1)).all()
    assert list(release_faults(run)) == []
    assert [list(replay_faults(batch)) for batch in batches_kept(run.study)] == [[]] * 3


@pytest.mark.slow
def test_everybody_pays_their_share_over_the_three_rounds() -> None:
    run = finished(share=0.25)
    spent: dict[int, float] = {}
    for release in Release.objects.filter(run=run.pk, kind=Release.Kind.TABLE):
        charged = charges_of(release)
        for holder, each in zip(charged.holders.tolist(), charged.spent.tolist(), strict=True):
            spent[holder] = spent.get(holder, 0.0) + each
    holders = np.array(sorted(spent))
    caps = caps_of(consent_snapshot(run.study).of(holders).epsilons, run.study.delta)
    total = np.array([spent[holder] for holder in holders.tolist()])
    assert len(holders) == len(everybody(run.study))
    np.testing.assert_allclose(total, 0.25 * caps, rtol=1e-4)
    assert (total <= 0.25 * caps).all()


@pytest.mark.slow
def test_rows_follow_from_what_was_released() -> None:
    run = finished()
    result = run.result
    assert table_of(run).to_csv() == table_of(run).to_csv()
    for field, forged in (("content", {**result.content, "pairs": 1.0}), ("digest", "0" * 64)):
        RunResult.objects.filter(pk=run.pk).update(**{field: forged})
        assert any("table" in fault for fault in release_faults(run)), field
        result.save()
    name = run.batches.get(index=1).released
    sums = arrays_load(name)["sums"]
    arrays_save(name, sums=sums + 2**20)
    assert any("not those that were released" in fault for fault in release_faults(run))


@pytest.mark.slow
def test_a_withdrawal_between_two_rounds_counts_from_the_second_on() -> None:
    study = study_with_table(retain_votes=True)
    run = commit(attempt(run_begun(run_like(study, SYNTHESIS_RUN))))
    holder = everybody(study)[0]
    withdraw(holder)
    run = run_ask(run)
    charged = [
        holder.pk in charges_of(release).holders.tolist()
        for release in Release.objects.filter(run=run.pk, kind=Release.Kind.TABLE).order_by("sequence")
    ]
    assert charged == [True, False, False] and run.status == Run.Status.FINISHED


@pytest.mark.slow
def test_a_seed_repeats_a_rehearsal_and_its_rows() -> None:
    study = rehearsal_with_table()
    one, other, third = (run_ask(run_like(study, SYNTHESIS_RUN, seed=seed)) for seed in (1, 1, 2))
    assert one.result.digest == other.result.digest != third.result.digest
    # Each has a dataset of its own, whose names differ.
    assert len({run.result.dataset.name for run in (one, other, third)}) == 3


@pytest.mark.slow
def test_shards_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    study = rehearsal_with_table()
    alone = run_ask(run_like(study, SYNTHESIS_RUN, seed=3))
    monkeypatch.setattr("training.methods.synthesis.method.MarginalCells.shard", 7)
    assert run_ask(run_like(study, SYNTHESIS_RUN, seed=3)).result.digest == alone.result.digest


@pytest.mark.slow
def test_rows_are_public_points_of_a_further_run_until_they_are_withdrawn() -> None:
    run = finished(share=0.3)
    points = run.result.dataset
    request = run_ask(run_like(run.study, ASKING_RUN, public_dataset=points, share=0.3, wanted_labels=8), batches=2)
    assert request.position == 8 and list(release_faults(request)) == []
    result_withdraw(run=run, reason="The bins were wrong.", acting_user=user_create("olga"))
    (entry,) = Release.objects.filter(run=run.pk, kind=Release.Kind.WITHDRAWAL)
    assert entry.content["digest"] == run.result.digest
    with pytest.raises(ValidationError) as refused:
        run_draft(run.study, **ASKING_RUN | {"public_dataset": points, "student_learner": "logistic_regression"})
    assert "public_dataset" in refused.value.message_dict


@pytest.mark.parametrize(
    ("choices", "wrong"), [({"rows": 5}, "choices.rows"), ({"bins": 1}, "choices.bins"), ({"column": "a"}, "choices")]
)
def test_choices_that_cannot_be_carried_out_are_refused(choices: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValidationError) as refused:
        run_draft(study_with_table(), **SYNTHESIS_RUN | {"choices": choices})
    assert any(name.startswith(wrong) for name in refused.value.message_dict)


def test_synthetic_rows_of_images_are_refused() -> None:
    with pytest.raises(ValidationError, match="tables alone"):
        run_draft(study_with_data(), **SYNTHESIS_RUN)


@pytest.mark.slow
def test_a_holder_reads_that_rows_were_published() -> None:
    run = finished()
    (use,) = usage(everybody(run.study)[0]).uses
    assert "made-up people" in use.state
