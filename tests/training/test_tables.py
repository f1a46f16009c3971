"""Runs that produce a table instead of a student: counts, rows, and the mechanism of docs/add-a-mechanism.md."""

import csv
import io
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import TextChoices

from accounting.accounts import charges_of
from accounting.caps import caps_of
from accounting.models import Release
from common.artifacts import arrays_load
from consent.models import Mail
from consent.selectors import consent_snapshot
from learning.mechanisms.counts.tables import CountTable
from tests.factories import user_create
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, COUNTS_RUN, SYNTHESIS_RUN, assert_whole, attempt, commit, run_ask
from tests.training.people import everybody
from tests.training.recipes import DENIABLE_CHOICES, DENIABLE_RUN, charged
from tests.training.runs import rehearsal_with_table, run_begun, run_draft, run_like, study_with_table
from training import methods
from training.methods import method_of, table_of
from training.models import Dataset, Run
from training.services.downloads import download_record
from training.services.drawings import head_counts_draw
from training.services.publication import result_withdraw
from training.uses import usage
from training.verification import batches_with_votes, release_faults, replay_faults

pytestmark = pytest.mark.django_db


@built_once
def counted(**fields: Any) -> Run:
    """Return a run that has counted the holders of a small study and published its table."""
    return run_ask(run_like(study_with_table(retain_votes=True), COUNTS_RUN, **fields))


@built_once
def drawn(**fields: Any) -> Run:
    """Return a run that has published synthetic rows about the holders of a small study."""
    return run_ask(run_like(study_with_table(retain_votes=True), SYNTHESIS_RUN, **fields))


@built_once
def deniable(**choices: Any) -> Run:
    study = rehearsal_with_table(holders=400)
    return run_ask(run_like(study, DENIABLE_RUN | {"choices": DENIABLE_CHOICES | choices}, seed=1))


def counts_of(run: Run) -> CountTable:
    return CountTable.from_json(run.result.content)


def rows_of(run: Run) -> list[list[str]]:
    return list(csv.reader(io.StringIO(table_of(run).to_csv())))


def caps(run: Run) -> dict[int, float]:
    snapshot = consent_snapshot(run.study)
    return dict(zip(snapshot.holders.tolist(), caps_of(snapshot.epsilons, run.study.delta).tolist(), strict=True))


def test_a_run_of_counts_ends_with_a_table_and_everybody_pays_their_share() -> None:
    run = counted(share=0.25)
    assert (run.status, run.stop_reason, run.student) == (Run.Status.FINISHED, Run.StopReason.COUNTED, None)
    table = counts_of(run)
    assert table.columns == ("class",) and table.values == (("a", "b", "c"),)
    kinds = list(Release.objects.filter(run=run.pk).order_by("sequence").values_list("kind", flat=True))
    assert kinds == [Release.Kind.TABLE, Release.Kind.RESULT]
    # Every holder has one record, so their vector is as long as their weight allows: √(cap / largest cap).
    assert charged(run) == pytest.approx({who: 0.25 * cap for who, cap in caps(run).items()}, rel=1e-4)
    sigma = run.plan["rounds"][0]["table"]["sigma"]
    assert Release.objects.get(run=run.pk, batch=0).charge == pytest.approx(sigma**-2, rel=1e-15)
    (use,) = usage(everybody(run.study)[0]).uses
    assert "table" in use.state
    alike = run_ask(run_like(run.study, COUNTS_RUN, share=0.25, choices={"weighing": "alike"}))
    smallest = min(budget["cap"] for budget in alike.plan["budgets"])
    assert charged(alike) == pytest.approx(dict.fromkeys(charged(alike), 0.25 * smallest), rel=1e-4)
    assert counts_of(alike).scale == 1.0


def test_nobody_is_charged_for_head_counts_while_people_are_counted() -> None:
    """The run's limit was set when it began, so everybody who is charged in the meantime would be left out."""
    study = study_with_table()
    run = attempt(run_begun(run_like(study, COUNTS_RUN, share=0.25)))
    with pytest.raises(ValidationError, match="A run is counting people and would leave out"):
        head_counts_draw(study=study, acting_user=user_create("olga"))
    run = commit(run)
    head_counts_draw(study=study, acting_user=user_create("olga"))
    assert len(charges_of(Release.objects.get(run=run.pk, batch=0)).holders) == len(everybody(study))


def test_a_withdrawn_table_stays_on_record_and_downloaders_are_warned() -> None:
    run, olga, rosa = counted(), user_create("olga"), user_create("rosa")
    download_record(run=run, what="table", digest=run.result.digest, acting_user=rosa)
    with pytest.raises(ValidationError):
        result_withdraw(run=run, reason=" ", acting_user=olga)
    for _ in range(2):
        result_withdraw(run=run, reason="The bins were wrong.", acting_user=olga)
    (entry,) = Release.objects.filter(run=run.pk, kind=Release.Kind.WITHDRAWAL)
    assert entry.content == {"digest": run.result.digest, "reason": "The bins were wrong."}
    assert list(Mail.objects.filter(kind="result_withdrawn").values_list("user_id", flat=True)) == [rosa.pk]
    assert list(release_faults(run)) == []
    with pytest.raises(ValidationError):
        result_withdraw(run=run_draft(run.study, **COUNTS_RUN), reason="None.", acting_user=olga)


def test_synthetic_rows_are_a_public_dataset_and_everybody_pays_over_three_rounds() -> None:
    run = drawn(share=0.25)
    assert (run.status, run.stop_reason, run.student) == (Run.Status.FINISHED, Run.StopReason.COUNTED, None)
    kinds = list(Release.objects.filter(run=run.pk).order_by("sequence").values_list("kind", flat=True))
    assert kinds == [*[Release.Kind.TABLE] * 3, Release.Kind.RESULT]
    lines = rows_of(run)
    assert lines[0] == ["length", "width", "class"] and len(lines) == 201 and lines == rows_of(run)
    assert {line[2] for line in lines[1:]} <= {"a", "b", "c"}
    dataset = run.result.dataset
    assert dataset is not None and (dataset.kind, dataset.rows) == (Dataset.Kind.PUBLIC, 200)
    stored = arrays_load(dataset.artifact)
    # Drawn classes are not true labels, so nothing can be evaluated with them.
    assert set(stored) == {"x"} and ((stored["x"] >= 0) & (stored["x"] <= 1)).all()
    spent = charged(run)
    assert spent == pytest.approx({who: 0.25 * cap for who, cap in caps(run).items()}, rel=1e-4)
    assert all(spent[who] <= 0.25 * cap for who, cap in caps(run).items())
    assert_whole(run)
    (use,) = usage(everybody(run.study)[0]).uses
    assert "made-up people" in use.state


def test_rows_are_public_points_of_a_further_run_until_they_are_withdrawn() -> None:
    run = drawn(share=0.3)
    points = run.result.dataset
    request = run_ask(run_like(run.study, ASKING_RUN, public_dataset=points, share=0.3, wanted_labels=8), batches=2)
    assert request.position == 8 and list(release_faults(request)) == []
    result_withdraw(run=run, reason="The bins were wrong.", acting_user=user_create("olga"))
    (entry,) = Release.objects.filter(run=run.pk, kind=Release.Kind.WITHDRAWAL)
    assert entry.content["digest"] == run.result.digest
    with pytest.raises(ValidationError) as refused:
        run_draft(run.study, **ASKING_RUN | {"public_dataset": points, "student_learner": "logistic_regression"})
    assert "public_dataset" in refused.value.message_dict


def test_the_paper_s_shapes_are_seen_in_what_passes() -> None:
    said = deniable().result.content["deniability"]
    passing = {(each["omegas"], each["gamma"]): each["shares"] for each in said["passing"]}
    assert said["least"] == [10, 50, 100, 500] and said["passed"] <= said["tried"]
    for gamma in (2.0, 4.0, 10.0):
        # Nothing is copied from the seed, so all 200 records are plausible seeds: k = 200 passes, and k = 500 does not.
        assert passing["3", gamma][:3] == [1.0] * 3 and passing["3", gamma][3] == 0.0
    assert all(np.diff(each).max() <= 0 for each in passing.values())
    assert sum(passing["1", 4.0]) <= sum(passing["2", 4.0]) <= sum(passing["3", 4.0])
    assert {each["column"] for each in said["network"]} == {"length", "width", "class"}
    parents = {each["column"]: each["parents"] for each in said["network"]}
    assert "length" in parents["class"] or "class" in parents["length"], "the class follows from the length"


def test_a_run_without_a_passing_row_ends_with_advice() -> None:
    # Half of 400 records are seeds, and none of the 100 cells of two columns contains 190 of them.
    run = deniable(plausible=190, fewest=0, most=0, values=100, epsilon0=4.0)
    assert run.status == Run.Status.FAILED and "smaller k" in run.message


def test_impossible_rows_have_no_plan() -> None:
    study = rehearsal_with_table(holders=400)
    for choices, words in (
        ({"plausible": 201}, "no row could be released"),
        ({"most": 4}, "there are only 3"),
        ({"plausible": 5, "epsilon0": 1.0}, "larger k"),
    ):
        run = run_draft(study, **DENIABLE_RUN | {"choices": DENIABLE_CHOICES | choices})
        with pytest.raises(ValueError, match=words):
            method_of(run).plan(run)


PAGE = Path(settings.BASE_DIR) / "docs" / "add-a-mechanism.md"
OWNED, MOST = 3, 2
"""Number of records of each holder of the study, and how many of them count."""


def modules() -> dict[str, str]:
    """Return the page's code by module name."""
    blocks = re.findall(r"```python\n# (\S+)\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {path.replace("/", "."): code for path, code in blocks}


@pytest.fixture
def records_method(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Register the page's method with the services, like the lines that the page adds to other files."""
    for name, code in modules().items():
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(code, str(PAGE), "exec"), module.__dict__)
    method = sys.modules["training.methods.records"].RecordsMethod()
    known = {each.name: (each.value, each.label) for each in Run.Method} | {"RECORDS": ("records", "are counted")}
    monkeypatch.setattr(Run, "Method", TextChoices("Method", known))  # type: ignore[call-overload]  # as of an Enum
    monkeypatch.setattr(Run._meta.get_field("method"), "choices", Run.Method.choices)
    monkeypatch.setitem(methods.METHODS, method.name, method)
    monkeypatch.setattr(methods, "IMPLEMENTED", (*methods.IMPLEMENTED, method))
    return method


def counted_added(**choices: Any) -> Run:
    """Return a run that has counted the records of a small study."""
    study = study_with_table(records=OWNED, retain_votes=True)
    return run_ask(run_like(study, COUNTS_RUN | {"method": "records", "choices": {"most": MOST} | choices}))


def test_the_page_has_the_two_modules_it_speaks_of() -> None:
    assert list(modules()) == ["learning.mechanisms.records", "training.methods.records"]


def test_its_release_is_whole_and_nobody_is_charged_more_than_they_allow(records_method: Any) -> None:
    run = counted_added()
    assert (run.status, run.stop_reason) == (Run.Status.FINISHED, Run.StopReason.COUNTED), run.message
    assert list(release_faults(run)) == []
    assert [list(replay_faults(batch)) for batch in batches_with_votes(run.study)] == [[]]
    charged = charges_of(Release.objects.get(run=run.pk, kind=Release.Kind.TABLE))
    caps = caps_of(consent_snapshot(run.study).of(charged.holders).epsilons, run.study.delta)
    assert len(charged.holders) == 30
    assert (charged.spent <= 0.5 * caps).all()
    # Everybody owns more records than the limit, so each adds as much as their weight allows.
    np.testing.assert_allclose(charged.spent, 0.5 * caps, rtol=1e-4)


def test_its_table_without_noise_is_the_number_of_records_that_count(exact: None, records_method: Any) -> None:
    table = CountTable.from_json(counted_added(weighing="alike").result.content)
    (cell,) = table
    assert (table.columns, cell.values) == (("records",), ("all",))
    assert cell.count == pytest.approx(30 * MOST, rel=1e-3)
    assert records_method.mechanism(Run.objects.get())["name"] == "records"
