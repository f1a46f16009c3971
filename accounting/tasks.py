"""Periodic task of the accounts: files to which no row leads are swept (condition 7).

A process died between writing such a file and its commit.
"""

from datetime import timedelta

from django.core.files.storage import storages
from django.db import transaction
from django.utils import timezone

from accounting.models import AccountBook, Release
from accounting.restores import missing_rows
from common.artifacts import arrays_delete
from common.dispatch import task_of
from consent.models import Study
from consent.services import study_lock

#: How old a file must be before it is deleted: somebody may have restored the wrong backup and notice it.
AGE = timedelta(days=1)


@transaction.atomic
def files_sweep(study: Study, age: timedelta = AGE) -> int:
    """Delete files of a study's accounts that nothing names and that are older than ``age``; returns how many.

    Such files are written under the study's lock alone, so that none of them is still waiting for its commit. While a
    study is locked after a restore, they may be the charges that its database has forgotten, and stay.
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
    """:func:`files_sweep` for every study."""
    return sum(files_sweep(study) for study in Study.objects.all())


accounts_sweep = task_of("accounting.tasks.accounts_sweep", _sweep)
