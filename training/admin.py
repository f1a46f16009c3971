"""Runs and data, for looking, and for what only a hand can repair: names, and claims that a lost worker left."""

from django.contrib import admin

from ipate_web.admin import FilteredAsListed, ReadOnlyAdmin, SecretsAdmin
from training.models import Dataset, Query, Run, StudentModel, TeacherChunk, VoteBatch


@admin.register(Dataset)
class DatasetAdmin(FilteredAsListed, SecretsAdmin):
    list_display = ("name", "study", "kind", "rows", "holders", "imported_at")
    list_filter = ("study", "kind")
    search_fields = ("name",)
    repairable = ("name",)
    secrets = ("seen_classes",)


@admin.register(Run)
class RunAdmin(FilteredAsListed, SecretsAdmin):
    list_display = ("title", "study", "status", "simulation", "labels", "created_at", "heartbeat")
    list_filter = ("study", "status", "simulation")
    search_fields = ("title", "id")
    repairable = ("title", "purpose", "claimed_by", "message")
    # The plan's budgets and weights, and its notes, follow from what earlier votes have left.
    secrets = ("plan", "teacher_accuracy")


@admin.register(TeacherChunk)
class TeacherChunkAdmin(ReadOnlyAdmin):
    list_display = ("run", "start", "stop", "state", "claimed_by", "heartbeat")
    list_filter = ("state",)
    list_select_related = ("run",)
    repairable = ("claimed_by",)


@admin.register(VoteBatch)
class VoteBatchAdmin(FilteredAsListed, SecretsAdmin):
    list_display = ("run", "index", "start", "queries", "labels", "recorded_at")
    list_select_related = ("run",)
    secrets = ("silent_teachers", "simulated_rdp")


@admin.register(Query)
class QueryAdmin(ReadOnlyAdmin):
    list_display = ("run", "row", "label")
    list_select_related = ("run",)
    list_filter = ("run",)


@admin.register(StudentModel)
class StudentModelAdmin(ReadOnlyAdmin):
    list_display = ("run", "accuracy", "label_accuracy", "created_at")
    list_select_related = ("run",)
