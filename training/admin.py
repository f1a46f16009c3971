"""Runs and data, for looking, and for what only a hand can repair: names, and claims that a lost worker left."""

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


@admin.register(TeacherChunk)
class TeacherChunkAdmin(ReadOnlyAdmin):
    list_display = ("run", "start", "stop", "state", "claimed_by", "heartbeat")
    list_filter = ("state",)
    list_select_related = ("run",)
    repairable = ("claimed_by",)


@admin.register(Shard)
class ShardAdmin(ReadOnlyAdmin):
    list_display = ("run", "number", "state", "claimed_by", "heartbeat")
    list_filter = ("state",)
    list_select_related = ("run",)
    repairable = ("claimed_by",)


@admin.register(Round)
class RoundAdmin(ReadOnlyAdmin):
    list_display = ("run", "index", "size", "position", "opened_at")
    list_select_related = ("run",)


@admin.register(Batch)
class BatchAdmin(FilteredAsListed, ReadOnlyAdmin):
    list_display = ("run", "index", "start", "size", "labels", "recorded_at")
    list_select_related = ("run",)


@admin.register(Query)
class QueryAdmin(ReadOnlyAdmin):
    list_display = ("run", "row", "label")
    list_select_related = ("run",)
    list_filter = ("run",)


@admin.register(StudentModel)
class StudentModelAdmin(ReadOnlyAdmin):
    list_display = ("run", "version", "learner", "accuracy", "label_accuracy", "created_at")
    list_select_related = ("run",)


@admin.register(RunResult)
class RunResultAdmin(ReadOnlyAdmin):
    list_display = ("run", "created_at", "withdrawn_at")
    list_select_related = ("run",)


@admin.register(DatasetImport)
class DatasetImportAdmin(ReadOnlyAdmin):
    list_display = ("name", "study", "kind", "state", "progress", "claimed_by", "heartbeat")
    list_filter = ("study", "state")
    repairable = ("claimed_by",)


@admin.register(StudentTraining)
class StudentTrainingAdmin(ReadOnlyAdmin):
    list_display = ("run", "learner", "state", "claimed_by", "heartbeat")
    list_filter = ("state",)
    list_select_related = ("run",)
    repairable = ("claimed_by",)
