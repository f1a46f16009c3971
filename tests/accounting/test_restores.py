"""Restored backups: a study stays locked until what was forgotten is charged."""

from io import StringIO

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection

from accounting.book import balances
from accounting.caps import caps_of, slack_of
from accounting.head_counts import drawing_plan, head_counts_draw
from accounting.models import AccountBook, HeadCount, Release, ShareRecord
from accounting.restores import missing_rows
from accounting.shares import share_free, shares
from accounting.slacks import slacks_charged
from accounting.verification import study_faults
from common.append_only import triggers_install, triggers_remove
from common.noise import SimulationNoise
from consent.models import ChainHead, Study
from consent.selectors import consent_snapshot
from tests.factories import user_create
from tests.training.asking import SAMPLED_RUN
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.models import Run

pytestmark = pytest.mark.django_db(transaction=True)


def backup_of(study: Study) -> dict:
    """What a backup holds of the accounting tables."""
    tables = {model: list(model.objects.filter(study=study)) for model in (Release, ShareRecord, AccountBook)}
    return tables | {ChainHead: list(ChainHead.objects.filter(study=study, chain__startswith="accounting."))}


def restore(study: Study, backup: dict) -> None:
    """Put the accounting tables back to what they were."""
    triggers_remove(connection)
    with connection.cursor() as cursor:
        for release in Release.objects.filter(study=study).exclude(pk__in=[row.pk for row in backup[Release]]):
            HeadCount.objects.filter(release=release).delete()
        for model, kept in backup.items():
            keep = [row.pk for row in kept]
            for pk in model.objects.filter(study=study).values_list("pk", flat=True):
                if model is not ChainHead and pk not in keep:
                    cursor.execute(f"DELETE FROM {model._meta.db_table} WHERE {model._meta.pk.column} = %s", [pk])
        for model in (ChainHead, AccountBook):
            for row in backup[model]:
                row.save(force_update=True)
    triggers_install(connection)


def test_a_restored_study_is_locked_until_the_gap_is_charged() -> None:
    olga = user_create("olga")
    study = study_with_table()
    head_counts_draw(study=study, acting_user=olga, noise=SimulationNoise(2))
    backup, before = backup_of(study), shares(study)
    run = run_finish(run_start(study, share=0.25, **TABLE_RUN))
    assert run.labels > 0
    charged = balances(study)
    restore(study, backup)
    lost = missing_rows(study)
    assert lost["accounting.release"] >= 1 and lost["accounting.sharerecord"] >= 2
    with pytest.raises(ValidationError, match="locked"):
        head_counts_draw(study=study, acting_user=olga)
    with pytest.raises(CommandError, match="withdrawals"):
        call_command("settle_restore", study.slug, stdout=StringIO())
    assert missing_rows(study) == lost, "nothing is settled by asking"

    call_command("settle_restore", study.slug, "--withdrawals-entered", stdout=StringIO())

    assert missing_rows(study) == {}
    assert list(study_faults(study)) == []
    after = balances(study)
    assert (after.of(charged.holders) >= charged.spent * (1 - 1e-12)).all(), "nobody has spent less than before"
    snapshot = consent_snapshot(study)
    gap = next(share for subject, share in shares(study).items() if subject not in before)
    expected = 1 / drawing_plan(study).sigma ** 2 + gap.committed * caps_of(snapshot.epsilons, study.delta)
    np.testing.assert_allclose(after.of(snapshot.holders), expected)
    assert share_free(study) < 0.99
    head_counts_draw(study=study, acting_user=olga)


def test_the_slack_of_a_run_that_a_backup_forgot_stays_used() -> None:
    study = study_with_table()
    backup = backup_of(study)
    run = run_finish(run_start(study, share=0.25, **SAMPLED_RUN))
    assert run.status == Run.Status.FINISHED, run.message
    slack = slacks_charged(study)
    assert slack == slack_of(study.delta)
    restore(study, backup)
    assert slacks_charged(study) == 0
    call_command("settle_restore", study.slug, "--withdrawals-entered", stdout=StringIO())
    assert slacks_charged(study) == slack


def test_a_study_that_was_not_restored_is_not_locked() -> None:
    study = study_with_table()
    out = StringIO()
    call_command("settle_restore", study.slug, stdout=out)
    assert "is not locked" in out.getvalue()
    with pytest.raises(CommandError, match="There is no study"):
        call_command("settle_restore", "nowhere", stdout=StringIO())


def test_a_vote_waits_while_its_study_is_locked() -> None:
    study = study_with_table()
    run = run_start(study, share=0.25, **TABLE_RUN)
    backup = backup_of(study)
    head_counts_draw(study=study, acting_user=user_create("olga"))
    restore(study, backup)
    run = run_finish(run)
    assert run.status == Run.Status.TRAINING
    assert "settle_restore" in run.message
    call_command("settle_restore", study.slug, "--withdrawals-entered", stdout=StringIO())
    assert run_finish(run).status == Run.Status.FINISHED
