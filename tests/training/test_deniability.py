"""Rows by plausible deniability in a rehearsal study: from their plan to the public dataset that they are."""

import csv
import io
from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError

from accounting.models import Release
from accounting.privacy.papers.deniability import composed_epsilon, row_cost
from common.artifacts import arrays_load
from tests.training.asking import SYNTHESIS_RUN, run_ask
from tests.training.runs import rehearsal_with_table, run_draft, run_like, study_with_table
from training.methods import method_of, table_of
from training.models import Dataset, Run
from training.verification import release_faults

pytestmark = [pytest.mark.django_db]

CHOICES = {"released": 40, "plausible": 20, "epsilon0": 2.0, "fewest": 2, "most": 3, "values": 4}
DENIABLE_RUN = SYNTHESIS_RUN | {"variant": Run.Variant.DENIABILITY, "choices": CHOICES}


def finished(**choices: Any) -> Run:
    study = rehearsal_with_table(holders=400)
    return run_ask(run_like(study, DENIABLE_RUN | {"choices": CHOICES | choices}, seed=1))


def test_a_rehearsal_releases_rows_and_says_what_they_cost() -> None:
    run = finished()
    assert (run.status, run.message, run.student) == (Run.Status.FINISHED, "", None)
    assert not Release.objects.filter(study=run.study).exists()
    lines = list(csv.reader(io.StringIO(table_of(run).to_csv())))
    assert lines[0] == ["length", "width", "class"] and len(lines) == 41
    assert {line[2] for line in lines[1:]} <= {"a", "b", "c"}
    dataset = run.result.dataset
    assert dataset is not None and (dataset.kind, dataset.rows) == (Dataset.Kind.PUBLIC, 40)
    assert set(arrays_load(dataset.artifact)) == {"x"}
    assert list(release_faults(run)) == []
    # All rows together, by the two theorems; every level has the same.
    of_row = run.study.delta / 400
    due = composed_epsilon(row_cost(20, 4.0, 2.0, of_row)[0], of_row, 40, run.study.delta)
    assert [level["spent"] for level in run.outcome["epsilons"]] == pytest.approx([due] * 3)
    assert due > 3 * run.outcome["epsilons"][-1]["epsilon"]
    assert any("nobody could be promised that" in str(note) for note in run.plan["notes"])


def test_the_paper_s_shapes_are_seen_in_what_passes() -> None:
    said = finished().result.content["deniability"]
    shares = {(each["omegas"], each["gamma"]): each["shares"] for each in said["passing"]}
    assert said["least"] == [10, 50, 100, 500] and said["passed"] <= said["tried"]
    for gamma in (2.0, 4.0, 10.0):
        # Nothing is copied: every one of 200 seeds is plausible, and none of 500 are there.
        assert shares["3", gamma][:3] == [1.0] * 3 and shares["3", gamma][3] == 0.0
        assert all(np.diff(each).max() <= 0 for each in shares.values())
    assert sum(shares["1", 4.0]) <= sum(shares["2", 4.0]) <= sum(shares["3", 4.0])
    assert {each["column"] for each in said["network"]} == {"length", "width", "class"}
    parents = {each["column"]: each["parents"] for each in said["network"]}
    assert "length" in parents["class"] or "class" in parents["length"], "the class follows from the length"


@pytest.mark.slow
def test_a_seed_repeats_the_rows_with_shards_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    study = rehearsal_with_table(holders=400)
    one = run_ask(run_like(study, DENIABLE_RUN, seed=1))
    monkeypatch.setattr("training.methods.deniability.method.Seeds.shard", 90)
    other, third = (run_ask(run_like(study, DENIABLE_RUN, seed=seed)) for seed in (1, 2))
    assert one.result.digest == other.result.digest != third.result.digest


def test_a_run_without_a_passing_row_ends_with_advice() -> None:
    # Half of 400 records are seeds, and of 100 cells of two columns none holds 190 of them.
    run = finished(plausible=190, fewest=0, most=0, values=100, epsilon0=4.0)
    assert run.status == Run.Status.FAILED and "smaller k" in run.message


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"plausible": 201}, "no row could be released"),
        ({"most": 4}, "there are 3"),
        ({"plausible": 5, "epsilon0": 1.0}, "larger k"),
    ],
)
def test_impossible_runs_have_no_plan(choices: dict[str, Any], words: str) -> None:
    study = rehearsal_with_table(holders=400)
    run = run_draft(study, **DENIABLE_RUN | {"choices": CHOICES | choices})
    with pytest.raises(ValueError, match=words):
        method_of(run).plan(run)


def test_people_are_never_asked_for_seeds() -> None:
    with pytest.raises(ValidationError) as refused:
        run_draft(study_with_table(), **DENIABLE_RUN)
    assert refused.value.message_dict["variant"] == ["This variant is for rehearsal studies."]
