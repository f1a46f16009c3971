"""Tables of counts: a run that leads to no student, from its proposal to its withdrawal."""

import csv
import io
from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError

from accounting.book import balances, charges_of
from accounting.caps import caps_of
from accounting.models import Release
from common.artifacts import arrays_load, arrays_save, model_fetch, model_store
from consent.models import Mail
from consent.selectors import consent_snapshot
from learning.mechanisms.counts.question import PERSON
from learning.mechanisms.counts.table import CountTable
from tests.factories import user_create
from tests.training.asking import COUNTS_RUN, attempt, commit, run_ask
from tests.training.people import everybody, withdraw
from tests.training.runs import rehearsal_with_table, run_begun, run_draft, run_like, study_with_data, study_with_table
from training.engine import noise
from training.models import Run, RunResult
from training.services.downloads import download_record
from training.services.head_counts import head_counts_draw
from training.services.results import result_withdraw
from training.services.runs import run_propose
from training.uses import usage
from training.verification import batches_kept, release_faults, replay_faults

pytestmark = [pytest.mark.django_db]


def finished(**fields: Any) -> Run:
    """A run that has counted the holders of a small study and published its table."""
    study = study_with_table(retain_votes=True)
    return run_ask(run_like(study, COUNTS_RUN, **fields))


def table_of(run: Run) -> CountTable:
    return CountTable.from_json(run.result.content)


@pytest.mark.slow
def test_a_run_of_counts_ends_with_a_table_and_without_a_student() -> None:
    run = finished()
    assert (run.status, run.stop_reason, run.student) == (Run.Status.FINISHED, Run.StopReason.COUNTED, None)
    assert run.public_dataset is None and run.student_learner == ""
    table = table_of(run)
    assert table.columns == ("class",) and table.values == (("a", "b", "c"),)
    kinds = list(Release.objects.filter(run=run.pk).order_by("sequence").values_list("kind", flat=True))
    assert kinds == [Release.Kind.TABLE, Release.Kind.RESULT]
    assert list(release_faults(run)) == []
    assert [list(replay_faults(batch)) for batch in batches_kept(run.study)] == [[]]


def test_everybody_pays_their_share_and_no_account_exceeds_it() -> None:
    run = finished(share=0.25)
    holders = everybody(run.study)
    release = Release.objects.get(run=run.pk, kind=Release.Kind.TABLE)
    charged = charges_of(release)
    caps = caps_of(consent_snapshot(run.study).of(charged.holders).epsilons, run.study.delta)
    assert len(charged.holders) == len(holders)
    # Every holder has one record, and so a vector as long as their weight allows: √(cap / largest cap).
    np.testing.assert_allclose(charged.spent, 0.25 * caps, rtol=1e-4)
    assert (charged.spent <= 0.25 * caps).all()
    assert release.charge == pytest.approx(run.plan["rounds"][0]["table"]["sigma"] ** -2, rel=1e-15)


def test_alike_everybody_is_charged_what_the_smallest_promise_allows() -> None:
    run = finished(share=0.25, choices={"weighing": "alike"})
    charged = charges_of(Release.objects.get(run=run.pk, kind=Release.Kind.TABLE))
    smallest = min(budget["cap"] for budget in run.plan["budgets"])
    np.testing.assert_allclose(charged.spent, 0.25 * smallest, rtol=1e-4)
    assert table_of(run).scale == 1.0


@pytest.mark.slow
def test_accounts_stay_within_caps_over_many_tables() -> None:
    study = study_with_table()
    for _ in range(4):
        assert run_ask(run_like(study, COUNTS_RUN, share=0.25)).status == Run.Status.FINISHED
    snapshot = consent_snapshot(study)
    spent, caps = balances(study), caps_of(snapshot.epsilons, study.delta)
    assert np.array_equal(spent.holders, snapshot.holders)
    assert (spent.spent <= caps).all() and (spent.spent > 0.999 * caps).all()
    with pytest.raises(ValidationError):  # nothing is free any more
        run_like(study, COUNTS_RUN, share=0.25)


def test_a_withdrawal_before_the_release_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_with_table()
    run = attempt(run_begun(run_like(study, COUNTS_RUN)))
    gone = everybody(study)[0]
    withdraw(gone)
    run = run_ask(commit(run))
    charged = charges_of(Release.objects.get(run=run.pk, kind=Release.Kind.TABLE))
    assert gone.pk not in charged.holders.tolist()
    assert list(release_faults(run)) == []


def test_nobody_is_charged_for_head_counts_while_people_are_counted() -> None:
    """The run's limit was set when it began: who was charged since would be left out, and that is everybody."""
    study = study_with_table()
    run = attempt(run_begun(run_like(study, COUNTS_RUN, share=0.25)))
    with pytest.raises(ValidationError, match="A run counts people"):
        head_counts_draw(study=study, acting_user=user_create("olga"))
    run = commit(run)
    head_counts_draw(study=study, acting_user=user_create("olga"))
    assert len(charges_of(Release.objects.get(run=run.pk, batch=0)).holders) == len(everybody(study))


@pytest.mark.slow
def test_the_table_of_a_rehearsal_follows_from_its_seed_and_charges_nobody() -> None:
    study = rehearsal_with_table()
    one, other, third = (run_ask(run_like(study, COUNTS_RUN, seed=seed)) for seed in (1, 1, 2))
    assert table_of(one) == table_of(other) != table_of(third)
    assert not Release.objects.filter(study=study).exists()
    assert [level["spent"] is not None for level in one.outcome["epsilons"]] == [True] * 3
    assert list(release_faults(one)) == []


@pytest.mark.slow
def test_shards_add_up_to_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "seed_of", lambda run: run.batches.count())
    monkeypatch.setattr("training.engine.noise.noise_of", lambda run: noise.SimulationNoise(7))
    study = study_with_table(records=3)
    alone = run_ask(run_like(study, COUNTS_RUN, share=0.2))
    monkeypatch.setattr("training.methods.counts.method.Cells.shard", 7)
    shared = run_ask(run_like(study, COUNTS_RUN, share=0.2))
    assert table_of(alone).sums == table_of(shared).sums


def test_a_table_that_was_changed_is_found() -> None:
    run = finished()
    result, name = run.result, run.batches.get().released
    for field, forged in (
        ("content", {**result.content, "sigma": 1.0}),
        ("digest", "0" * 64),
        ("card", {**result.card, "purpose": "Another one"}),
        ("artifact", "tables/none.csv"),
    ):
        RunResult.objects.filter(pk=run.pk).update(**{field: forged})
        assert any("table" in fault for fault in release_faults(run)), field
        result.save()
    released = model_fetch(result.artifact)
    model_store(result.artifact, released.replace(b"a,", b"b,"))
    assert any("the file of its table is not" in fault for fault in release_faults(run))
    model_store(result.artifact, released)
    sums = arrays_load(name)["sums"]
    arrays_save(name, sums=sums + PERSON)
    assert any("not those that were released" in fault for fault in release_faults(run))
    arrays_save(name, sums=sums)
    RunResult.objects.filter(pk=run.pk).update(withdrawn_at=run.ended_at)
    assert any("withheld otherwise" in fault for fault in release_faults(run))


def test_a_withdrawn_table_stays_on_record_and_downloaders_are_warned() -> None:
    run, olga, rosa = finished(), user_create("olga"), user_create("rosa")
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


def test_two_columns_are_counted_against_each_other() -> None:
    run = finished(choices={"column": "length", "across": "class", "bins": 4})
    lines = list(csv.reader(io.StringIO(table_of(run).to_csv())))
    assert lines[0] == ["length", "class", "people", "low_95", "high_95", "weighted", "least_95", "most_95"]
    assert [line[:2] for line in lines[1:4]] == [["0 – 0.25", "a"], ["0 – 0.25", "b"], ["0 – 0.25", "c"]]
    assert len(lines) == 1 + 4 * 3


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"choices": {"column": "height"}}, "choices.column"),
        ({"choices": {"column": "class", "across": "class"}}, "choices.across"),
        ({"choices": {}}, "choices.column"),
        ({"choices": {"column": "class", "bins": 1}}, "choices.bins"),
        ({"wanted_labels": 5}, "wanted_labels"),
        ({"public": True}, "public_dataset"),
        ({"test": True}, "test_dataset"),
    ],
)
def test_a_proposal_that_cannot_be_carried_out_is_refused(fields: dict[str, Any], wrong: str) -> None:
    study = study_with_table()
    datasets = {dataset.kind: dataset for dataset in study.datasets.all()}
    proposal: dict[str, Any] = {**COUNTS_RUN, "title": "Counts", "private_dataset": datasets["private"], **fields}
    for kind in ("public", "test"):
        if proposal.pop(kind, False):
            proposal[f"{kind}_dataset"] = datasets[kind]
    proposal.pop("public_dataset") if not proposal.get("public_dataset") else None
    proposal.pop("test_dataset") if not proposal.get("test_dataset") else None
    with pytest.raises(ValidationError) as refused:
        run_propose(study=study, acting_user=user_create("rosa"), **proposal)
    assert wrong in refused.value.message_dict


@pytest.mark.slow
def test_images_are_counted_by_their_classes() -> None:
    run = run_ask(run_like(study_with_data(), COUNTS_RUN))
    assert run.status == Run.Status.FINISHED and len(table_of(run)) == 10


def test_a_holder_reads_that_a_table_was_published() -> None:
    run = finished()
    (use,) = usage(everybody(run.study)[0]).uses
    assert "table" in use.state
