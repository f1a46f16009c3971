"""Admin of runs and data, read-only except for fixing names and releasing claims of lost workers."""

from django.contrib import admin

from common.admin import FilteredAsListed, ReadOnlyAdmin, SecretsAdmin
from consent.admin import RecordedAdmin
from training.models import (
    Batch,
    Dataset,
    DatasetImport,
    Query,
    Round,
    Run,
    RunResult,
    Shard,
    StudentModel,
    StudentTraining,
    TeacherChunk,
)


@admin.register(Dataset)
class DatasetAdmin(RecordedAdmin, FilteredAsListed, SecretsAdmin):
    list_display = ("name", "study", "kind", "imported_at")
    list_filter = ("study", "kind")
    search_fields = ("name",)
    repairable = ("name",)
    secrets = ("rows", "holders", "digest", "seen_classes")


@admin.register(Run)
class RunAdmin(RecordedAdmin, FilteredAsListed, ReadOnlyAdmin):
    list_display = ("title", "study", "method", "status", "rehearsal", "labels", "created_at", "heartbeat")
    list_filter = ("study", "method", "status", "rehearsal")
    search_fields = ("title", "id")
    repairable = ("title", "purpose", "claimed_by", "message")


class OfRunAdmin(ReadOnlyAdmin):
    """Admin of models whose rows belong to a run."""

    list_select_related = ("run",)


class PieceAdmin(OfRunAdmin):
    """Admin of parts of a run's work, which workers claim."""

    list_filter = ("state",)
    repairable = ("claimed_by",)


@admin.register(TeacherChunk)
class TeacherChunkAdmin(PieceAdmin):
    list_display = ("run", "start", "stop", "state", "claimed_by", "heartbeat")


@admin.register(Shard)
class ShardAdmin(PieceAdmin):
    list_display = ("run", "number", "state", "claimed_by", "heartbeat")


@admin.register(Round)
class RoundAdmin(OfRunAdmin):
    list_display = ("run", "index", "size", "position", "opened_at")


@admin.register(Batch)
class BatchAdmin(FilteredAsListed, OfRunAdmin):
    list_display = ("run", "index", "start", "size", "labels", "recorded_at")


@admin.register(Query)
class QueryAdmin(OfRunAdmin):
    list_display = ("run", "row", "label")
    list_filter = ("run",)


@admin.register(StudentModel)
class StudentModelAdmin(OfRunAdmin):
    list_display = ("run", "version", "learner", "accuracy", "label_accuracy", "created_at")


@admin.register(RunResult)
class RunResultAdmin(OfRunAdmin):
    list_display = ("run", "created_at", "withdrawn_at")


@admin.register(DatasetImport)
class DatasetImportAdmin(ReadOnlyAdmin):
    list_display = ("name", "study", "kind", "state", "progress", "claimed_by", "heartbeat")
    list_filter = ("study", "state")
    repairable = ("claimed_by",)


@admin.register(StudentTraining)
class StudentTrainingAdmin(PieceAdmin):
    list_display = ("run", "learner", "state", "claimed_by", "heartbeat")
