"""Rules for every learning method, tested with the recipe of each of `training.methods.IMPLEMENTED`."""

from copy import deepcopy
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from celery import current_app
from django.db import IntegrityError, transaction
from django.utils.module_loading import import_string

from accounting.accounts import balances
from accounting.caps import caps_of
from accounting.models import Release
from accounting.shares import share_free, shares
from accounting.verification import Check
from common.artifacts import arrays_load, arrays_save
from consent.selectors import consent_snapshot
from tests.snapshots import built_once
from tests.training.asking import assert_whole
from tests.training.people import everybody, withdraw
from tests.training.recipes import FORGERIES, RECIPES, charged, finish, released
from tests.training.runs import CHUNKS, rehearsal_with_table, run_draft
from training.engine import commits, questions
from training.methods import method_of, pate_teachers
from training.models import Query, Run
from training.selectors import run_progress
from training.services.advance import run_advance
from training.verification import release_faults, replay_faults

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _few_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pate_teachers, "CHUNKS", CHUNKS)


of_people = pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.has_people])


#: Methods whose engine is also used by a method that is always tested.
AT_NIGHT = ("steps", "steps without public points", "synthesis", "teachers that release counts")


def each_engine(*, rehearsed: bool = False) -> pytest.MarkDecorator:
    """Return the methods for people, or all that can be rehearsed; the always-tested suite has one for each engine."""
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=[pytest.mark.exhaustive] if name in AT_NIGHT else [])
            for name, recipe in RECIPES.items()
            if recipe.has_people or rehearsed
        ],
    )


@built_once
def finished(name: str) -> Run:
    """Return a run that ended as it should, with every message delivered twice."""
    recipe = RECIPES[name]
    return finish(recipe.started(recipe.study()), times=2)


@of_people
def test_duplicate_messages_release_and_charge_once(name: str) -> None:
    """Every batch has one release, recomputed charges are the same, and nobody is charged too much."""
    run = finished(name)
    assert run.status == Run.Status.FINISHED, run.message
    assert_whole(run)
    releases = Release.objects.filter(run=run.pk, batch__isnull=False).order_by("batch")
    method, batches = method_of(run), list(run.batches.order_by("index"))
    assert [(each.batch, each.kind) for each in releases] == [(each.index, method.kind_of(each)) for each in batches]
    assert run.position == sum(batch.size for batch in batches) and run.batches.count() <= 6
    snapshot, spent = consent_snapshot(run.study), charged(run)
    caps = dict(zip(snapshot.holders.tolist(), caps_of(snapshot.epsilons, run.study.delta).tolist(), strict=True))
    assert spent.keys() == caps.keys() and all(0 <= spent[who] <= 0.5 * caps[who] for who in caps)
    accounts = balances(run.study)
    assert dict(zip(accounts.holders.tolist(), accounts.spent.tolist(), strict=True)) == pytest.approx(spent)
    used = max(each / budget["cap"] for each, budget in zip(run.spent, run.plan["budgets"], strict=True))
    assert shares(run.study)[run.pk].used == pytest.approx(used) and share_free(run.study) == pytest.approx(1 - used)


@each_engine()
def test_a_batch_whose_commit_fails_leaves_neither_release_nor_charge(name, monkeypatch) -> None:
    """The last statement of a batch fails, after release and charges have been written."""
    recipe = RECIPES[name]
    study = recipe.study()
    run = recipe.answered(recipe.started(study))
    record = commits.release_record

    def fails(**fields: Any) -> None:
        record(**fields)
        raise IntegrityError("connection lost")

    with monkeypatch.context() as patch:
        patch.setattr(commits, "release_record", fails)
        run_advance(run.pk)
    run.refresh_from_db()
    assert (run.status, run.position, any(run.spent)) == (Run.Status.ASKING, 0, False)
    assert "retried" in run.message
    assert not run.batches.exists() and not Query.objects.filter(run=run).exists()
    assert not Release.objects.filter(run=run.pk).exists() and not balances(study).spent.any()
    run = finish(run)
    assert run.status == Run.Status.FINISHED, run.message
    assert_whole(run)


@each_engine(rehearsed=True)
def test_a_rehearsal_repeats_itself_by_its_seed_and_charges_nobody(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second run, messages are delivered twice and, if the method has shards, holders are in several shards."""
    recipe = RECIPES[name]
    study, reports = rehearsal_with_table(holders=recipe.rehearsed), []
    another = [] if recipe.has_people else [(8, 1)]  # noise for people is drawn in one place for all methods
    for seed, times in ((7, 1), (7, 2), *another):
        if times == 2 and recipe.shard:
            monkeypatch.setattr(import_string(recipe.shard), "shard", 1 + recipe.rehearsed // 4)
        run = finish(recipe.started(study, share=1.0, seed=seed), times=times)
        assert run.status == Run.Status.FINISHED, run.message
        assert list(release_faults(run)) == []
        assert all(level["spent"] > 0 for level in run.outcome["epsilons"])
        reports.append((released(run), run.outcome))
    assert reports[0] == reports[1]
    assert not another or reports[0][0][:3] != reports[2][0][:3]
    assert not Release.objects.filter(study=study).exists() and not balances(study).holders.size


def test_each_batch_of_each_rehearsal_has_noise_of_its_own() -> None:
    """A different seed gives different noise. In a run with real people, the noise cannot be repeated."""
    runs = [
        Mock(rehearsal=True, seed=seed, **{"batches.count.return_value": batch}) for seed, batch in np.ndindex(4, 4)
    ]
    assert len(set(map(questions.seed_of, runs))) == 16
    assert questions.seed_of(Mock(rehearsal=False, seed=7)) is None


@each_engine()
def test_withdrawing_before_a_release_equals_never_taking_part(name, exact, monkeypatch) -> None:
    """Without noise and with the same random draws, a run without the person has the same releases and charges."""
    monkeypatch.setattr(pate_teachers, "token_bytes", lambda size: b"k" * size)
    recipe = RECIPES[name]
    study = recipe.study()
    gone, reports = everybody(study)[5], []
    for moment in ("after the end", "before the release", "before the run"):
        if moment == "before the run":
            run = recipe.started(study, share=0.3)
        else:
            run = recipe.answered(recipe.started(study, share=0.3))
        if moment == "before the release":
            withdraw(gone)
        run = finish(run)
        assert run.status == Run.Status.FINISHED, run.message
        assert_whole(run)
        reports.append((released(run)[:2], charged(run)))
    with_them, left, without = reports
    assert gone.pk in with_them[1] and gone.pk not in left[1]
    assert left[0] == without[0] and left[1] == pytest.approx(without[1], rel=1e-9)
    assert with_them[0] != left[0] or name.startswith("teachers"), "otherwise this test shows nothing about releases"


@each_engine()
def test_forgeries_of_a_batch_are_found(name: str) -> None:
    run = finished(name)
    plan, kept = deepcopy(run.plan), {each: arrays_load(each) for each in files_of(run)}
    for forge, fault in [*FORGERIES, *RECIPES[name].forgeries]:
        with transaction.atomic():
            forge(run)
            found = Check("it", lambda: release_faults(Run.objects.get(pk=run.pk))).faults()
            transaction.set_rollback(True)
        for file, arrays in kept.items():
            arrays_save(file, **arrays)
        run.refresh_from_db()
        assert run.plan == plan
        assert any(fault in line for line in found), (fault, found)
    assert_whole(run)


def files_of(run: Run) -> list[str]:
    """Return the files of releases and of people who were asked."""
    return [each for names in run.batches.values_list("released", "attempt") for each in names if each]


@each_engine()
def test_charges_that_records_do_not_explain_are_found_by_the_replay(name: str) -> None:
    run = finished(name)
    batch = run.batches.earliest("index")
    charges = Release.objects.get(run=run.pk, batch=batch.index).charges
    arrays = arrays_load(charges)
    for wrong, fault in (
        ({"spent": arrays["spent"] * np.where(np.arange(len(arrays["spent"])) == 3, 0.9, 1.0)}, "differ from its cost"),
        ({"holder": arrays["holder"] + 1}, "not charged to the people who were asked"),
    ):
        arrays_save(charges, **arrays | wrong)
        assert any(fault in line for line in replay_faults(batch)), fault
    arrays_save(charges, **arrays)
    if batch.attempt:  # for teachers, the assignment says it
        arrays = arrays_load(batch.attempt)
        for wrong, fault in (
            ({"cap": arrays["cap"][::-1]}, "differ from its cost"),
            ({"holder": arrays["holder"] + 1}, "not charged to the people who were asked"),
        ):
            arrays_save(batch.attempt, **arrays | wrong)
            found = list(replay_faults(batch))
            assert any(fault in line for line in found) or (name, *wrong) == ("neighbours", "cap"), fault


@pytest.mark.parametrize("name", RECIPES)
def test_a_plan_follows_from_choices_and_public_numbers_alone(name: str) -> None:
    recipe = RECIPES[name]
    study = recipe.study() if recipe.has_people else rehearsal_with_table(holders=recipe.rehearsed)
    run = run_draft(study, **recipe.fields)
    before = method_of(run).plan(run, 0.5).to_json()
    for path, value in recipe.planned.items():
        found: Any = before
        for part in path.split("."):
            found = found[int(part) if part.isdigit() else part]
        assert found == value, path
    if recipe.has_people:
        assert [promise["holders"] for promise in before["promises"]] == [4, 4, 4]
        for who in everybody(study)[::2]:
            withdraw(who)
    assert method_of(run).plan(run, 0.5).to_json() == before
    other = run_draft(study, **recipe.fields | {"choices": recipe.fields["choices"] | recipe.otherwise})
    assert method_of(other).plan(other, 0.5).to_json() != before


@each_engine()
def test_a_runs_messages_reveal_nothing_about_its_people(name, monkeypatch, django_capture_on_commit_callbacks) -> None:
    """Messages, progress and tasks are the same when all but one have withdrawn."""
    sent: list[tuple[str, int]] = []
    app = current_app._get_current_object()
    monkeypatch.setattr(app, "send_task", lambda task, ids: sent.append((task, len(ids))))
    recipe, reports = RECIPES[name], []
    study = recipe.study()
    for few in (False, True):
        for who in everybody(study)[1:] if few else []:
            withdraw(who)
        sent.clear()
        seen: list[Any] = []

        def look(run: Run, seen: list[Any] = seen) -> None:
            stages = [(stage.name, stage.share) for stage in run_progress(run).stages]
            seen.append((run.status, run.message, run.position, run.stop_reason, stages))

        with django_capture_on_commit_callbacks(execute=True):
            run = recipe.started(study, share=0.3)
        with django_capture_on_commit_callbacks(execute=True):
            run = finish(run, look)
        assert run.status == Run.Status.FINISHED, run.message
        # Which model won, and so whether a student is assessed, follows from the releases.
        tasks = {each for each in sent if each[0] != "training.tasks.student_learn"}
        reports.append((seen, sorted(tasks), run.spent))
    assert reports[0] == reports[1]
