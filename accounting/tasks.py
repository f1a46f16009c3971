"""Periodic task that deletes unreferenced account files (condition 7 in docs/gaussian-accounts.md).

Such a file is left behind if a process dies between writing it and its commit.
"""

from datetime import timedelta

from django.core.files.storage import storages
from django.db import transaction
from django.utils import timezone

from accounting.models import AccountBook, Release
from accounting.restores import missing_rows
from common.artifacts import arrays_delete
from common.jobs import task_of
from consent.models import Study
from consent.services import study_lock

#: Minimum age of files to delete, which gives people time to notice that they have restored the wrong backup.
AGE = timedelta(days=1)


@transaction.atomic
def files_sweep(study: Study, age: timedelta = AGE) -> int:
    """Delete unreferenced files of a study's accounts that are older than ``age``; return their number.

    Files are written only under the study's lock, which this function holds, so no file is waiting for its commit.
    While a study is locked after a restore, nothing is deleted, because the files may contain charges that its database
    lacks.
    """
    study = study_lock(study.pk)
    if missing_rows(study):
        return 0
    folder, storage = f"accounts/{study.pk}", storages["private"]
    try:
        _, files = storage.listdir(folder)
    except FileNotFoundError:
        return 0
    named = set(Release.objects.filter(study=study).exclude(charges="").values_list("charges", flat=True))
    named |= set(AccountBook.objects.filter(study=study).values_list("artifact", flat=True))
    orphans = [
        name
        for name in (f"{folder}/{file}" for file in files)
        if name not in named and storage.get_modified_time(name) <= timezone.now() - age
    ]
    arrays_delete(*orphans)
    return len(orphans)


def _sweep() -> int:
    """Run :func:`files_sweep` for every study."""
    return sum(files_sweep(study) for study in Study.objects.all())


accounts_sweep = task_of("accounting.tasks.accounts_sweep", _sweep)
