"""The accounts, for looking only: what they hold is never repaired by hand."""

from django.contrib import admin

from accounting.models import HolderSpending, LedgerEntry, PrivacyGroup, RunAccount, SpendingHistory
from ipate_web.admin import ReadOnlyAdmin, SecretsAdmin


@admin.register(RunAccount)
class RunAccountAdmin(ReadOnlyAdmin):
    list_display = ("run", "study", "simulation", "method", "delta", "opened_at")
    list_filter = ("study", "simulation")


@admin.register(PrivacyGroup)
class PrivacyGroupAdmin(SecretsAdmin):
    list_display = ("name", "account", "level", "epsilon", "holders", "retired_at")
    list_filter = ("account__study", "level")
    list_select_related = ("account",)
    secrets = ("past_rdp", "spent_rdp")


@admin.register(SpendingHistory)
class SpendingHistoryAdmin(ReadOnlyAdmin):
    list_display = ("pk", "study", "parent", "group")
    list_filter = ("study",)
    list_select_related = ("study", "parent", "group")


@admin.register(HolderSpending)
class HolderSpendingAdmin(ReadOnlyAdmin):
    list_display = ("holder", "history")
    list_select_related = ("holder", "history")
    search_fields = ("holder__pseudonym",)


@admin.register(LedgerEntry)
class LedgerEntryAdmin(SecretsAdmin):
    list_display = ("sequence", "study", "run", "batch", "group", "queries", "labels", "recorded_at")
    list_filter = ("study", "group__level")
    list_select_related = ("study", "group")
    search_fields = ("run",)
    secrets = ("rdp",)
