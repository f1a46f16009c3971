"""Restored backups: a study stays locked until the missing releases have been charged."""

from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.utils import timezone

from accounting.accounts import account_balances, balances, charged_slack
from accounting.caps import caps_of, slack_of
from accounting.models import Release
from accounting.restores import missing_rows
from accounting.shares import share_free, share_grant, share_open, share_settle, shares
from accounting.verification import balances_rebuilt, study_faults
from common.noise import SimulationNoise
from consent.models import ConsentEvent, Disposal, Level, Study
from consent.selectors import consent_current, consent_snapshot
from consent.services import consent_withdraw, holder_link
from tests.accounting.charging import share_charge
from tests.factories import user_create
from tests.pages import as_, text
from tests.restored import backup_of, restore, settle
from tests.training.asking import ASKING_RUN, COUNTS_RUN, SAMPLED_RUN, SYNTHESIS_RUN, run_ask, vote_batch
from tests.training.runs import TABLE_RUN, run_finish, run_start, run_teach, study_with_table
from training.methods.pate_teachers import vote_open
from training.models import Encoder, Run, RunResult, StudentModel
from training.services.advance import shard_ask, step_of
from training.services.drawings import SHARE, head_counts_draw, head_counts_enter
from training.services.encoders import encoder_withdraw
from training.services.erasures import dataset_remove, study_close
from training.services.publication import result_withdraw
from training.services.restores import restore_settle
from training.services.students import student_withdraw
from training.verification import release_faults

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.both
def test_a_restored_study_is_locked_until_the_gap_is_charged() -> None:
    olga = user_create("olga")
    study = study_with_table()
    head_counts_draw(study=study, acting_user=olga, noise=SimulationNoise(2))
    out = StringIO()
    call_command("settle_restore", study.slug, "--user", "olga", stdout=out)
    assert "is not locked" in out.getvalue()
    backup, before = backup_of(study), shares(study)
    run = run_finish(run_start(study, share=0.25, **TABLE_RUN))
    assert run.labels > 0
    charged = balances(study)
    restore(study, backup)
    lost = missing_rows(study)
    assert lost["accounting.release"] >= 1 and lost["accounting.sharerecord"] >= 2
    with pytest.raises(ValidationError, match="locked"):
        head_counts_draw(study=study, acting_user=olga)
    assert any("restored to an earlier state" in fault for fault in study_faults(study))
    for slug, name, message in ((study.slug, "nobody", "no active account"), ("nowhere", "olga", "There is no study")):
        with pytest.raises(CommandError, match=message):
            call_command("settle_restore", slug, "--user", name, stdout=StringIO())
    assert missing_rows(study) == lost, "asking does not settle anything"

    settle(study)

    stands = account_balances(study, charged.holders)
    assert (stands >= charged.spent * (1 - 1e-12)).all(), "no one has spent less than before"
    snapshot = consent_snapshot(study)
    gap = next(share for subject, share in shares(study).items() if subject not in before)
    reached = SHARE + gap.committed
    stands = account_balances(study, snapshot.holders)
    np.testing.assert_allclose(stands, reached * caps_of(snapshot.epsilons, study.delta))
    entry = Release.objects.get(study=study, kind=Release.Kind.GAP)
    assert entry.recorded_by == olga
    assert entry.charge == pytest.approx(reached * float(caps_of(3.0, study.delta))), "of the policy, not of holders"
    assert share_free(study) < 0.99
    head_counts_draw(study=study, acting_user=olga)


@pytest.mark.exhaustive
def test_the_slack_of_a_run_missing_from_a_backup_stays_used() -> None:
    study = study_with_table()
    backup = backup_of(study)
    run = run_finish(run_start(study, share=0.25, **SAMPLED_RUN))
    assert run.status == Run.Status.FINISHED, run.message
    slack = charged_slack(study)
    assert slack == slack_of(study.delta)
    restore(study, backup)
    assert charged_slack(study) == 0
    settle(study)
    assert charged_slack(study) == slack


@pytest.mark.exhaustive
def test_a_locked_study_causes_no_faults_in_other_studies_of_its_people(settings: Any) -> None:
    settings.PERSON_CEILING = 1.0
    one, two = study_with_table("one"), study_with_table("two")
    for study in (one, two):
        holder_link(holder=study.holders.earliest("pk"), user=user_create("hanna"))
    run_ask(run_start(two, share=0.5, **ASKING_RUN))
    run = run_ask(run_start(one, share=0.5, **ASKING_RUN), 1)
    backup = backup_of(one)
    run_ask(run)
    restore(one, backup)
    assert missing_rows(one) and list(study_faults(two)) == []
    settle(one)
    assert list(study_faults(two)) == []


def counts_enter(study: Study) -> None:
    head_counts_enter(study=study, acting_user=user_create("olga"), counts=dict.fromkeys(Level.values, 10))


@pytest.mark.both
def test_rows_after_a_restore_do_not_hide_lost_ones() -> None:
    study = study_with_table()
    backup = backup_of(study)
    holder = study.holders.first()
    consent_withdraw(holder=holder, acting_user=None)
    counts_enter(study)
    restore(study, backup)
    lost = missing_rows(study)
    assert lost == {"consent.consentevent": 1, "consent.disposal": 1, "accounting.release": 1}
    for other in study.holders.exclude(pk=holder.pk)[:3]:
        consent_withdraw(holder=other, acting_user=None)
        counts_enter(study)
    assert missing_rows(study) == lost
    assert "2 decisions" in settle(study)
    counts_enter(study)
    assert missing_rows(study) == {}
    assert holder.pk not in consent_snapshot(study).holders, "people who withdrew after the backup stay out"
    assert len(consent_snapshot(study)) == study.holders.count() - 4


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 40.0}}, id="teachers"),
        pytest.param(ASKING_RUN, id="everybody", marks=pytest.mark.exhaustive),
        pytest.param(SYNTHESIS_RUN, id="rows", marks=pytest.mark.exhaustive),
    ],
)
def test_a_loss_in_the_middle_of_a_run_is_charged_and_ends_it(fields: dict[str, Any]) -> None:
    """Everything was released under a share granted in the backup, and the journal contains no other."""
    study = study_with_table()
    run = run_start(study, share=0.25, **fields)
    backup_before = backup_of(study)
    if run.method != Run.Method.PATE:
        run_ask(run, 1)
    else:
        vote_open(run_teach(run))
        vote_batch(run)
    assert run.batches.count() == 1
    backup_within = backup_of(study)
    assert run_finish(run).status == Run.Status.FINISHED
    charged = balances(study)
    for backup, reached in ((backup_within, 25), (backup_before, 26)):  # with the head counts drawn after the first
        restore(study, backup)
        assert (balances_rebuilt(study).of(charged.holders) < charged.spent).any()
        assert f"up to {reached} %" in settle(study)
        assert (account_balances(study, charged.holders) >= charged.spent * (1 - 1e-12)).all()
        run.refresh_from_db()
        assert run.status == Run.Status.FAILED and "restored from a backup" in run.message
        assert run_finish(run).status == Run.Status.FAILED
        assert list(release_faults(run)) == []
        assert share_free(study) == pytest.approx(1 - reached / 100)
        head_counts_draw(study=study, acting_user=user_create("olga"), noise=SimulationNoise(2))


def test_rests_of_earlier_shares_count_as_spent_after_a_restore() -> None:
    study, (idle, held) = study_with_table(), (uuid4() for _ in range(2))
    for subject, share in ((idle, 0.5), (held, 0.125)):
        share_grant(study=study, subject=subject, purpose="run", share=share, acting_user=None)
    share_open(study=study, subject=idle)
    share_settle(study=study, subject=idle, used=0.5)  # by those who are asked most; others have spent less
    backup = backup_of(study)
    share_charge(study, 0.25)
    charged = balances(study)
    restore(study, backup)
    share_settle(study=study, subject=held)  # runs that end in the meantime do not change what the journal says
    settle(study)
    assert (account_balances(study, charged.holders) >= charged.spent * (1 - 1e-12)).all()


@pytest.mark.parametrize("fields", [TABLE_RUN, COUNTS_RUN], ids=["model", "table"])
@pytest.mark.exhaustive
def test_what_was_withdrawn_after_the_backup_is_withdrawn_again(fields: dict[str, Any]) -> None:
    study, olga = study_with_table(), user_create("olga")
    encoder = Encoder.objects.create(
        study=study, name="small", digest="ab", file_digest="cd", takes={}, width=1, artifact="encoders/small.npz"
    )
    run = run_finish(run_start(study, share=0.25, **fields))
    given: StudentModel | RunResult = run.students.get() if run.students.exists() else run.result
    backup = backup_of(study)
    encoder_withdraw(encoder=encoder, reason="It was not public.", acting_user=olga)
    if isinstance(given, StudentModel):
        student_withdraw(run=run, version=1, reason="It harms.", acting_user=olga)
    else:
        result_withdraw(run=run, reason="It harms.", acting_user=olga)
    restore(study, backup)
    encoder.refresh_from_db()
    given.refresh_from_db()
    assert encoder.withdrawn_at is None and not given.is_withdrawn
    restore_settle(study=study, acting_user=olga)
    assert not missing_rows(study)
    encoder.refresh_from_db()
    given.refresh_from_db()
    assert encoder.withdrawn_at is not None
    assert given.is_withdrawn and given.withdrawal_reason == "It harms."
    reasons = Disposal.objects.filter(study=study).values_list("reason", flat=True)
    assert {"It was not public.", "It harms."} <= set(reasons)
    assert list(release_faults(Run.objects.get(pk=run.pk))) == []
    listed = text(as_(olga).get(f"/studies/{study.slug}/recruitment/erasures/"))
    assert "Model or table withdrawn A small run" in listed


@pytest.mark.parametrize("end", ["removed", "closed"])
def test_a_run_in_training_does_not_prevent_repeating_an_end(end: str) -> None:
    study, olga, day = study_with_table(), user_create("olga"), timezone.localdate() + timedelta(days=90)
    run = run_start(study, share=0.25, **COUNTS_RUN)
    while run.status != Run.Status.LEARNING:
        step = step_of(run)
        assert step is not None
        step(run)
        for shard in run.shards.all():
            shard_ask(shard.pk)
        run.refresh_from_db()
    backup = backup_of(study)
    assert run_finish(run).status == Run.Status.FINISHED
    assert run.private_dataset is not None
    if end == "removed":
        dataset_remove(dataset=run.private_dataset, reason="Wrong file.", acting_user=olga)
    else:
        study_close(study=study, reason="Done.", acting_user=olga, erase_after=day)
    restore(study, backup)
    Study.objects.filter(pk=study.pk).update(closed_at=None, retention_until=None)
    settle(study)
    run.refresh_from_db()
    study.refresh_from_db()
    assert run.status == Run.Status.CANCELLED
    assert (study.is_closed, study.retention_until) == ((True, day) if end == "closed" else (False, None))
    assert (run.private_dataset.removed_at is None) == (end == "closed")
    assert list(release_faults(run)) == []


def test_losing_only_consents_charges_nothing_and_runs_continue() -> None:
    study = study_with_table()
    run = run_start(study, share=0.25, **TABLE_RUN)
    backup = backup_of(study)
    holder = study.holders.first()
    consent_withdraw(holder=holder, acting_user=None)
    restore(study, backup)
    assert missing_rows(study) == {"consent.consentevent": 1, "consent.disposal": 1}
    run = run_finish(run)
    assert run.status == Run.Status.APPROVED and "settle_restore" in run.message, "a vote waits until it is settled"
    assert "nothing was charged" in settle(study)
    assert not consent_current(holder).grants  # type: ignore[union-attr]
    assert not len(balances(study).holders)
    assert run_finish(run).status == Run.Status.FINISHED
    assert balances(study).of(np.array([holder.pk])).tolist() == [0]


def test_acts_from_before_a_column_was_added_are_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_with_table()
    backup = backup_of(study)
    as_act = ConsentEvent.as_act
    monkeypatch.setattr(
        ConsentEvent, "as_act", lambda event: {name: value for name, value in as_act(event).items() if name != "talked"}
    )
    holder = study.holders.first()
    consent_withdraw(holder=holder, acting_user=None)
    monkeypatch.undo()
    restore(study, backup)
    settle(study)
    assert not consent_current(holder).grants  # type: ignore[union-attr]
