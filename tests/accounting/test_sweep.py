"""Files that a process left behind when it died before its commit."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from django.conf import settings
from django.core.files.storage import storages
from django.db import transaction

from accounting import sweep
from accounting.book import Balances, balances_store
from accounting.models import AccountBook, Release
from accounting.services import release_record
from accounting.tasks import accounts_sweep
from accounting.verification import study_faults
from common.artifacts import arrays_delete_folder
from consent.models import Study
from ipate_web import settings as site_settings
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def files(study: Study) -> set[str]:
    return {f"accounts/{study.pk}/{name}" for name in storages["private"].listdir(f"accounts/{study.pk}")[1]}


def named(study: Study) -> set[str]:
    charges = Release.objects.filter(study=study).exclude(charges="").values_list("charges", flat=True)
    return {AccountBook.objects.get(study=study).artifact, *charges}


@pytest.fixture
def study() -> Study:
    """A study that has spent, and in which somebody died in the middle of a charge."""
    study = study_with_table()
    arrays_delete_folder(f"accounts/{study.pk}")  # of a test that was rolled back, whose study had the same number
    run_finish(run_start(study, share=0.25, **TABLE_RUN))
    holders = np.array(sorted(study.holders.values_list("pk", flat=True)))
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        release_record(
            study=study, kind="labels", content={}, holders=holders, charges=np.full(len(holders), 1e-6), charge=1e-6
        )
        raise ZeroDivisionError
    assert len(files(study) - named(study)) == 2
    return study


def grow_old(study: Study) -> None:
    """Let all files of a study be two days old."""
    moment = time.time() - 2 * 86_400
    for name in files(study):
        os.utime(Path(settings.PRIVATE_DIR) / name, (moment, moment))


def test_old_files_that_nothing_names_are_deleted_and_no_others(study: Study) -> None:
    accounts_sweep()
    assert len(files(study) - named(study)) == 2, "not yet old enough"
    grow_old(study)
    other = study_with_table("other")
    accounts_sweep()
    assert files(study) == named(study)
    assert list(study_faults(study)) == []
    assert sweep.files_sweep(other) == 0
    scheduled = [entry["task"] for entry in site_settings.CELERY_BEAT_SCHEDULE.values()]
    assert accounts_sweep.name in scheduled


def test_a_study_that_is_locked_after_a_restore_keeps_its_files(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    grow_old(study)
    monkeypatch.setattr(sweep, "missing_rows", lambda study: {"accounting.release": 1})
    before = files(study)
    assert sweep.files_sweep(study) == 0
    assert files(study) == before


def test_a_charge_written_by_now_stays_until_it_is_old(study: Study) -> None:
    grow_old(study)
    name, _ = balances_store(study, "charges", Balances(np.array([1]), np.array([0.5])))
    assert sweep.files_sweep(study) == 2
    assert name in files(study)
