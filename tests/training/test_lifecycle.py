"""Runs from draft to end: refused proposals, repeated steps, and what remains."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import DatabaseError
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks as Commits

from accounting.models import Release, ShareRecord
from accounting.shares import share_free, shares
from common.artifacts import arrays_save
from common.noise import SimulationNoise
from common.sentences import Sentence
from common.templatetags.components import component_render
from consent import services as consent_services
from learning.formats import TabularSchema
from learning.mechanisms.protocol import PlanError
from tests.factories import study_open, user_create
from tests.training.asking import ASKING_RUN, COUNTS_RUN, SAMPLED_RUN, STEPS_RUN, SYNTHESIS_RUN, vote_batch
from tests.training.recipes import DENIABLE_RUN
from tests.training.runs import (
    TABLE,
    TABLE_RUN,
    rehearsal_with_table,
    run_approve,
    run_draft,
    run_finish,
    run_start,
    run_teach,
    study_with_table,
    table_rows,
)
from training.engine import questions
from training.methods import METHODS, pate_teachers
from training.methods.pate_teachers import vote_open
from training.models import Dataset, Run
from training.selectors import run_reason
from training.services import advance, runs, students
from training.services import runs as run_commands
from training.services.datasets import dataset_import
from training.services.drawings import head_counts_enter
from training.uses import usage
from training.verification import release_faults

pytestmark = pytest.mark.django_db


def files(run: Run) -> list[str]:
    folder = Path(settings.PRIVATE_DIR) / "runs" / str(run.pk)
    return sorted(path.name for path in folder.glob("*"))


def errors(study: Any, recipe: dict[str, Any] = TABLE_RUN, **fields: Any) -> dict[str, list[str]]:
    """Return the reasons why a proposal is refused, by field, after checking that nothing of it remains."""
    with pytest.raises(ValidationError) as refused:
        run_draft(study, **recipe | fields)
    assert not Run.objects.exists()
    assert not ShareRecord.objects.exists()
    return refused.value.message_dict


WHITENED, STANDARDISED = {"representation": "whitened"}, {"representation": "standardised"}


@pytest.mark.parametrize(
    ("recipe", "fields", "field", "message"),
    [
        (TABLE_RUN, {"learner": "oracle"}, "choices.learner", "choose one of random_forest"),
        (TABLE_RUN, {"student_learner": "oracle"}, "student_learner", "choose one of: consistency"),
        (TABLE_RUN, {"student_learner": "consistency"}, "student_learner", "needs images of at least 4×4 pixels"),
        (TABLE_RUN, {"student_parameters": {"copies": 2}}, "student_learner", "Only images can be rotated"),
        (TABLE_RUN, {"student_parameters": {"neighbours": 0}}, "student_parameters", "at least 1"),
        (TABLE_RUN, {"aggregator": {"name": "gnmax", "sigma": 0.0}}, "choices.aggregator", "sigma"),
        (TABLE_RUN, {"aggregator": {"name": "gnmax", "sigma": float("nan")}}, "choices.aggregator", ""),
        (TABLE_RUN, {"aggregator": {"name": "gnmax"}}, "choices.aggregator", "takes the parameters sigma"),
        (TABLE_RUN, {"aggregator": {"name": "majority"}}, "choices.aggregator", "choose one of"),
        (TABLE_RUN, {"weight_scheme": "calibrated"}, "choices.weight_scheme", "for rehearsals"),
        (TABLE_RUN, {"rehearsed": {"method": "exact"}}, "rehearsed", "Only runs of rehearsal studies can have these"),
        (TABLE_RUN, {"teachers": 0}, "choices.teachers", "from 1 to"),
        (TABLE_RUN, {"wanted_labels": 0}, "wanted_labels", "greater than or equal to 1"),
        (TABLE_RUN, {"seed": 1}, "seed", "Only a rehearsal can have a seed, because noise"),
        (TABLE_RUN, {"title": ""}, "title", "blank"),
        (ASKING_RUN, {"choices": {"sigmas": 3}}, "choices", "There is no choice sigmas"),
        (ASKING_RUN, {"choices": {"sigma": 1e5}}, "choices.sigma", "to 16384"),
        (ASKING_RUN, {"choices": {"sigma": float("nan")}}, "choices.sigma", ""),
        (ASKING_RUN, {"choices": {"rounds": 9}}, "choices.rounds", "from 1 to 2"),
        (
            ASKING_RUN,
            {"choices": {"rounds": 2, "first_queries": 12}},
            "choices.first_queries",
            "has to leave public points",
        ),
        (ASKING_RUN, {"choices": {"representation": "magic"}}, "choices.representation", "is 'magic'; choose one of"),
        (ASKING_RUN, {"choices": {"representation": ["standardised"]}}, "choices.representation", ""),
        (ASKING_RUN, {"choices": {"representation": "student"}}, "choices.representation", "choose one of"),
        (
            ASKING_RUN,
            {"choices": WHITENED | {"representation_parameters": {"parts": 3}}},
            "choices.representation_parameters",
            "parts",
        ),
        (ASKING_RUN, {"choices": WHITENED | {"representation_parameters": 3}}, "choices.representation_parameters", ""),
        (ASKING_RUN, {"choices": {"kernel": "gauss"}}, "choices.kernel", "gauss"),
        (STEPS_RUN, {"choices": {"sigma": -1.0}}, "choices.sigma", "sigma is -1.0"),
        (STEPS_RUN, {"choices": {"steps": 0}}, "choices.steps", "steps is 0"),
        (STEPS_RUN, {"choices": {"publish": "nothing"}}, "choices.publish", "choose one of"),
        (STEPS_RUN, {"choices": {"representation": "wavelets"}}, "choices.representation", "is only for images"),
        (STEPS_RUN, {"choices": {"representation": "embedding"}}, "choices.stated", "need a statement"),
        (STEPS_RUN, {"choices": 5}, "choices", "an object"),
        (STEPS_RUN, {"choices": {"teachers": 5}}, "choices", "There is no choice teachers"),
        (STEPS_RUN, {"wanted_labels": 5}, "wanted_labels", "no labels"),
        (STEPS_RUN, {"batch_size": 0}, "batch_size", ""),
        (SAMPLED_RUN, {"choices": {"rounds": 2}}, "choices", "There is no choice rounds"),
        (SAMPLED_RUN, {"choices": {"expected": 0}}, "choices.expected", "expected is 0"),
        (SAMPLED_RUN, {"choices": {"network": "transformer"}}, "choices.network", "choose one of"),
        (SAMPLED_RUN, {"choices": {"network": "cnn"}}, "choices.network", "needs images"),
        (
            SAMPLED_RUN,
            {"choices": {"network": "cnn"} | STANDARDISED},
            "choices.representation",
            "uses the original images",
        ),
        (SAMPLED_RUN, {"public_dataset": None, "choices": STANDARDISED}, "choices.representation", "fitted on"),
        (
            SAMPLED_RUN,
            {"public_dataset": None, "choices": {"publish": "student"}},
            "choices.publish",
            "or publish the model",
        ),
        (
            SAMPLED_RUN,
            {"public_dataset": None, "variant": "individual", "choices": {"rounds": 2}},
            "choices.rounds",
            "a student",
        ),
        (COUNTS_RUN, {"choices": {"column": "height"}}, "choices.column", ""),
        (COUNTS_RUN, {"choices": {"column": "class", "across": "class"}}, "choices.across", ""),
        (COUNTS_RUN, {"choices": {}}, "choices.column", ""),
        (COUNTS_RUN, {"choices": {"column": "class", "bins": 1}}, "choices.bins", ""),
        (COUNTS_RUN, {"wanted_labels": 5}, "wanted_labels", ""),
        (COUNTS_RUN, {"public_dataset": "public"}, "public_dataset", ""),
        (COUNTS_RUN, {"test_dataset": "test"}, "test_dataset", ""),
        (SYNTHESIS_RUN, {"choices": {"rows": 5}}, "choices.rows", ""),
        (SYNTHESIS_RUN, {"choices": {"bins": 1}}, "choices.bins", ""),
        (SYNTHESIS_RUN, {"choices": {"column": "a"}}, "choices", ""),
        (DENIABLE_RUN, {}, "variant", ""),
    ],
)
def test_a_run_that_could_not_be_carried_out_is_refused_by_field(recipe, fields, field, message) -> None:
    study = study_with_table()
    named = {each: study.datasets.get(kind=kind) for each, kind in fields.items() if each.endswith("_dataset") and kind}
    found = errors(study, recipe, **fields | named)
    assert field in found
    assert message in " ".join(found[field])


def test_datasets_must_be_of_the_study_of_the_right_kind_and_alike() -> None:
    study, other = study_with_table(), study_with_table("other")
    foreign = Dataset.objects.get(study=other, kind="private")
    public = Dataset.objects.get(study=study, kind="public")
    schema = TabularSchema(TABLE.columns, ("a", "b", "z"))
    unlike = dataset_import(study=study, name="unlike", kind="public", rows=table_rows(6), schema=schema)
    assert "belongs to another study" in errors(study, private_dataset=foreign)["private_dataset"][0]
    assert "choose a private one" in errors(study, private_dataset=public)["private_dataset"][0]
    assert "choose a test one" in errors(study, test_dataset=public)["test_dataset"][0]
    assert "columns or classes differ" in errors(study, public_dataset=unlike)["public_dataset"][0]


@pytest.mark.parametrize("rehearsal", [False, True])
def test_nobody_approves_what_they_proposed_nor_what_cannot_be_planned(rehearsal: bool) -> None:
    study, olga = rehearsal_with_table() if rehearsal else study_with_table(), user_create("olga")
    run, large = run_draft(study, **TABLE_RUN), run_draft(study, **TABLE_RUN | {"teachers": 31})
    with pytest.raises(PlanError, match="at most 30 teachers"):
        run_approve(run=large, acting_user=olga)
    for superuser in (False, True):
        User.objects.filter(username="otto").update(is_superuser=superuser)
        with pytest.raises(ValidationError, match="You proposed this run yourself"):
            run_approve(run=run, acting_user=User.objects.get(username="otto"))
    otto = User.objects.get(username="otto")
    consent_services.membership_remove(membership=otto.memberships.get(), acting_user=None)
    otto.delete()
    with pytest.raises(ValidationError, match="Propose it again"):
        run_approve(run=Run.objects.get(pk=run.pk), acting_user=olga)
    assert {each.status for each in study.runs.all()} == {Run.Status.DRAFT} and files(run) == files(large) == []
    assert not ShareRecord.objects.exists()


def test_a_share_must_be_positive_and_free_and_a_run_is_approved_once() -> None:
    study, olga = study_with_table(), user_create("olga")
    run_start(study, share=0.75, **TABLE_RUN)
    run = run_draft(study, **TABLE_RUN)
    for share in (0.0, -0.1, 1.1, float("nan"), 0.26):
        with pytest.raises(ValidationError) as refused:
            run_approve(run=run, acting_user=olga, share=share)
        assert "share" in refused.value.message_dict
    assert (Run.objects.get(pk=run.pk).status, ShareRecord.objects.count(), files(run)) == ("draft", 1, [])
    first = run_approve(run=run, acting_user=olga, share=0.25)
    again = run_approve(run=run, acting_user=user_create("conrad"), share=0.25)
    assert (again.approved_by, again.approved_at, again.share) == (olga, first.approved_at, 0.25)
    run_commands.run_cancel(run=run, acting_user=olga)
    with pytest.raises(ValidationError, match="Propose it again"):
        run_approve(run=run, acting_user=olga)


def to_training(study: Any, share: float = 1.0) -> Run:
    run = run_start(study, share=share, **TABLE_RUN)
    pate_teachers.run_prepare(run)
    advance.chunk_train(run.chunks.earliest("start").pk)
    return run


def to_voting(study: Any) -> Run:
    run = run_teach(run_start(study, **TABLE_RUN | {"batch_size": 1}))
    vote_open(run)
    vote_batch(run)
    return run


def to_student(study: Any) -> Run:
    run = to_voting(study)
    while Run.objects.get(pk=run.pk).status == Run.Status.ASKING:
        vote_batch(run)
    return run


@pytest.mark.parametrize("reach", [lambda study: run_draft(study, **TABLE_RUN), to_training, to_voting, to_student])
def test_a_run_can_be_cancelled_until_it_ends(reach, django_capture_on_commit_callbacks) -> None:
    run = reach(study_with_table())
    before, entries = Run.objects.get(pk=run.pk), Release.objects.count()
    with django_capture_on_commit_callbacks(execute=True):
        run_commands.run_cancel(run=run, acting_user=user_create("olga"))
    used = shares(run.study)[run.pk].used if before.approved_at else 0
    # Messages for the deleted run have no effect.
    advance.run_advance(run.pk)
    for chunk in run.chunks.all():
        advance.chunk_train(chunk.pk)
    for step in (pate_teachers.run_prepare, vote_batch if before.spent else vote_open):
        with suppress(FileNotFoundError):
            assert not step(before)
    run = Run.objects.get(pk=run.pk)
    assert (run.status, run.message) == (Run.Status.CANCELLED, "An operator has cancelled the run.")
    assert run.ended_at and run.forgotten_at and files(run) == []
    assert share_free(run.study) == pytest.approx(1 - used)
    assert (used > 0) == (run.labels > 0), "the unused share is free again"
    assert (run.labels, run.position, Release.objects.count()) == (before.labels, before.position, entries)


def test_a_run_that_has_ended_keeps_nothing_secret_and_stays_as_it_ended() -> None:
    run = run_finish(run_start(study_with_table(), **TABLE_RUN))
    assert run.status == Run.Status.FINISHED
    assert None not in (run.approved_at, run.started_at, run.snapshot_at, run.spending_began_at, run.ended_at)
    assert run.student.card["run"] == str(run.pk)
    assert files(run) == [] and run.forgotten_at
    run_commands.run_cancel(run=run, acting_user=user_create("olga"))
    runs.run_fail(run.pk, "Too late.")
    advance.run_advance(run.pk)
    again = Run.objects.get(pk=run.pk)
    assert (again.status, again.message, again.labels) == (Run.Status.FINISHED, "", run.labels)


def test_feedback_on_a_proposal_ignores_private_records() -> None:
    """A class without records and too many teachers are accepted, because errors would reveal consents and records."""
    study = study_open("unseen", delta=1e-4)
    rows = table_rows(30, [f"p{place % 3}" for place in range(30)])
    assert rows.y is not None
    for kind, part in (("private", rows[rows.y < 2]), ("public", table_rows(6))):
        dataset_import(study=study, name=kind, kind=kind, rows=part, schema=TABLE)
    counts = {"HIGH": 10, "AVERAGE": 10, "LOW": 10}
    head_counts_enter(study=study, acting_user=user_create("olga"), counts=counts)
    run = run_finish(run_start(study, **TABLE_RUN, test_dataset=None))
    assert (run.status, run.labels) == (Run.Status.FINISHED, 6)


def test_a_study_may_keep_the_votes_of_finished_runs_alone(django_capture_on_commit_callbacks: Commits) -> None:
    study = study_with_table(retain_votes=True)
    finished = run_finish(run_start(study, share=0.5, **TABLE_RUN | {"wanted_labels": 1}))
    assert len(files(finished)) == finished.chunks.count() + 1
    cancelled = to_training(study, share=0.25)
    with django_capture_on_commit_callbacks(execute=True):
        run_commands.run_cancel(run=cancelled, acting_user=user_create("olga"))
    advance.runs_sweep()
    assert files(cancelled) == []
    assert len(files(finished)) == finished.chunks.count() + 1
    consent_services.study_update(study=study, retain_votes=False)
    advance.runs_sweep()
    assert files(finished) == []


def test_files_of_a_late_worker_are_deleted_with_an_ended_run(django_capture_on_commit_callbacks: Commits) -> None:
    run = to_training(study_with_table())
    chunk = run.chunks.filter(state="pending").earliest("start")
    run.chunks.filter(pk=chunk.pk).update(claimed_by="a worker", heartbeat=timezone.now(), state="running")
    with django_capture_on_commit_callbacks(execute=True):
        run_commands.run_cancel(run=run, acting_user=user_create("olga"))
    arrays_save(f"runs/{run.pk}/late.npz", predictions=np.zeros(3))
    advance.runs_sweep()
    run.chunks.filter(pk=chunk.pk).update(claimed_by="")
    assert Run.objects.get(pk=run.pk).forgotten_at is None
    advance.runs_sweep()
    assert files(run) == []
    assert Run.objects.get(pk=run.pk).forgotten_at


#: Rejects nearly every query.
PICKY = {"name": "confident_gnmax", "sigma": 20.0, "sigma_threshold": 10.0, "threshold": 19.0}


@pytest.mark.parametrize(
    ("fields", "labels", "said"),
    [
        ({"aggregator": PICKY, "batch_size": 12}, 0, "no label was released"),
        ({"wanted_labels": 1}, 1, "1 label was released"),
    ],
)
def test_a_run_with_too_few_labels_finishes_without_a_model_and_forgets(fields, labels, said, monkeypatch) -> None:
    monkeypatch.setattr(questions, "noise_of", lambda run: SimulationNoise(1))
    run = run_finish(run_start(study_with_table(), **TABLE_RUN | fields))
    assert (run.status, run.labels, run.students.count()) == (Run.Status.FINISHED, labels, 0)
    assert f"This run has no model: {said}" in run_reason(run) and "larger σ makes labels cheaper" in run.message
    notes = " ".join(str(Sentence.from_json(note)) for note in run.plan["notes"])
    assert ("The run may end with only 1 label, but" in notes) == bool(labels)
    assert run.ended_at and files(run) == []
    assert list(release_faults(run)) == []
    assert "without a published model" in component_render("mail_run_ended", run=run, study=run.study)
    (use,) = usage(run.study.holders.earliest("pk")).uses
    assert use.state == "The run has finished without publishing a model."


@pytest.mark.parametrize(
    "trouble", [ZeroDivisionError("P-17 has label 3"), OSError("disk full"), DatabaseError("gone")]
)
def test_an_unexpected_error_ends_a_run_without_details_and_a_busy_storage_does_not(trouble, monkeypatch) -> None:
    run = run_start(study_with_table(), **TABLE_RUN)
    with monkeypatch.context() as patch:
        patch.setitem(METHODS["pate"].steps, Run.Status.APPROVED, Mock(side_effect=trouble))
        advance.run_advance(run.pk)
    run.refresh_from_db()
    assert run.claimed_by == ""
    if isinstance(trouble, ZeroDivisionError):
        assert run.status == Run.Status.FAILED
        assert str(run.message).startswith(
            "An unexpected error occurred. You can find the details in the worker's logs"
        )
    else:
        assert run.status == Run.Status.APPROVED and "retried" in run.message
        run = run_finish(run)
        assert (run.status, run.message) == (Run.Status.FINISHED, "")


def test_the_sweep_sends_a_quiet_run_once_and_takes_it_from_a_dead_worker() -> None:
    def silence(**fields: Any) -> None:
        """Make it look as if the run's worker died an hour ago."""
        Run.objects.filter(pk=run.pk).update(heartbeat=timezone.now() - timedelta(hours=1), **fields)

    run = to_training(study_with_table())
    assert advance.runs_sweep() == [], "its last sign of life was a moment ago"
    silence()
    chunks = run.chunks.filter(pk=run.chunks.filter(state="pending").earliest("start").pk)
    chunks.update(claimed_by="alive", heartbeat=timezone.now(), state="running")
    assert advance.runs_sweep() == [], "its teachers are being trained"
    chunks.update(heartbeat=timezone.now() - timedelta(hours=1))
    silence(claimed_by="dead:1:abc")
    assert advance.runs_sweep() == [str(run.pk)]
    assert advance.runs_sweep() == []
    assert run_finish(Run.objects.get(pk=run.pk)).status == Run.Status.FINISHED
    for status in (*Run.ENDED, Run.Status.DRAFT):
        silence(status=status)
        assert advance.runs_sweep() == []


def test_a_student_that_is_trained_twice_is_stored_once() -> None:
    run = to_student(study_with_table())
    stale = Run.objects.get(pk=run.pk)
    assert students.student_train(Run.objects.get(pk=run.pk))
    before = Run.objects.get(pk=run.pk).student
    assert not students.student_train(stale)
    after = Run.objects.get(pk=run.pk).student
    assert (after.artifact, after.digest) == (before.artifact, before.digest)
