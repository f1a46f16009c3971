"""A study whose tables are restored from a backup within the test's own database."""

from io import StringIO
from typing import Any

from django.core.management import call_command
from django.db import connection
from django.db.models import QuerySet

from accounting.models import AccountBook, HeadCount, Release, ShareRecord
from accounting.restores import missing_rows
from accounting.verification import study_faults
from common.append_only import triggers_install, triggers_remove
from consent.models import ChainHead, ConfigurationChange, ConsentEvent, Disposal, SealedChange, Study
from training.methods.pate_teachers import ballot_load
from training.models import (
    Alliance,
    AllianceSite,
    Batch,
    Dataset,
    Encoder,
    Encoding,
    JointAnswer,
    JointQuestion,
    JointRun,
    ProposalChange,
    Query,
    Round,
    Run,
    RunResult,
    Shard,
    StudentModel,
    StudentTraining,
    TeacherChunk,
)

#: Tables whose rows a backup lacks, starting with those that refer to others, and tables whose rows change.
GROWING = (
    *(JointAnswer, JointQuestion, RunResult, StudentTraining, StudentModel, Query, Batch, Shard, TeacherChunk, Round),
    *(HeadCount, Release, ShareRecord, ConsentEvent, Disposal, ConfigurationChange, SealedChange),
    *(ProposalChange, JointRun, Run, Encoding, Encoder, Dataset),
)
CHANGING = (
    *(ChainHead, AccountBook, Alliance, AllianceSite, Dataset, Encoder, Encoding, StudentModel, StudentTraining),
    *(Run, RunResult, JointRun, JointQuestion, Round),
)
#: Path from a row to its study, if the row has no such field.
PATHS = {
    JointAnswer: "question__joint__run__study",
    JointQuestion: "joint__run__study",
    AllianceSite: "alliance__study",
    Encoding: "encoder__study",
    **dict.fromkeys((RunResult, StudentTraining, StudentModel, Query, Batch), "run__study"),
    **dict.fromkeys((Shard, TeacherChunk, Round, JointRun), "run__study"),
}


def rows_of(model: Any, study: Study) -> QuerySet:
    rows = model.objects.filter(**{PATHS.get(model, "study"): study})
    return rows.filter(chain__in=[each._meta.label_lower for each in GROWING]) if model is ChainHead else rows


def backup_of(study: Study) -> dict[Any, list]:
    """Return a copy of the study's tables, like a backup."""
    return {model: list(rows_of(model, study)) for model in (*GROWING, *CHANGING)}


def restore(study: Study, backup: dict[Any, list]) -> None:
    """Restore the study's tables to their earlier content."""
    triggers_remove(connection)
    with connection.cursor() as cursor:
        Run.objects.filter(study=study).update(student=None)
        for model in GROWING:
            keep = {row.pk for row in backup[model]}
            for pk in set(rows_of(model, study).values_list("pk", flat=True)) - keep:
                key = model._meta.pk.get_db_prep_value(pk, connection)
                cursor.execute(f"DELETE FROM {model._meta.db_table} WHERE {model._meta.pk.column} = %s", [key])
    for model in CHANGING:
        for row in backup[model]:
            row.save(force_update=True)
    if not backup[AccountBook]:
        AccountBook.objects.filter(study=study).delete()
    triggers_install(connection)
    ballot_load.cache_clear()


def settle(study: Study, *options: str) -> str:
    out = StringIO()
    call_command("settle_restore", study.slug, "--user", "olga", *options, stdout=out)
    assert missing_rows(study) == {}
    assert list(study_faults(study)) == []
    return out.getvalue()
