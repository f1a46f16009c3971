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
from accounting.tasks import accounts_sweep
from accounting.verification import study_faults
from common.artifacts import arrays_delete_folder
from consent.models import Study
from ipate_web import settings as site_settings
from tests.accounting.charging import share_charge
from tests.training.runs import study_with_consents

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def files(study: Study) -> set[str]:
    return {f"accounts/{study.pk}/{name}" for name in storages["private"].listdir(f"accounts/{study.pk}")[1]}


def named(study: Study) -> set[str]:
    charges = Release.objects.filter(study=study).exclude(charges="").values_list("charges", flat=True)
    return {AccountBook.objects.get(study=study).artifact, *charges}


def grow_old(study: Study) -> None:
    """Let all files of a study be two days old."""
    moment = time.time() - 2 * 86_400
    for name in files(study):
        os.utime(Path(settings.PRIVATE_DIR) / name, (moment, moment))


def test_old_files_that_nothing_names_are_deleted_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_with_consents("sweep")
    arrays_delete_folder(f"accounts/{study.pk}")  # of a test that was rolled back, whose study had the same number
    share_charge(study, 0.25)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        share_charge(study, 0.25)
        raise ZeroDivisionError
    assert len(files(study) - named(study)) == 2
    accounts_sweep()
    assert len(files(study) - named(study)) == 2, "not yet old enough"
    grow_old(study)
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "missing_rows", lambda study: {"accounting.release": 1})
        assert sweep.files_sweep(study) == 0, "the study is locked after a restore"
    fresh, _digest = balances_store(study, "charges", Balances(np.array([1]), np.array([0.5])))
    accounts_sweep()
    assert files(study) == named(study) | {fresh}, "a charge that was just written may be committed soon"
    assert list(study_faults(study)) == []
    assert accounts_sweep.name in [entry["task"] for entry in site_settings.CELERY_BEAT_SCHEDULE.values()]
