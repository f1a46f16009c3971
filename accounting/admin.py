"""The accounts, for looking only: what they hold is never repaired by hand.

Without the histories of holders, which lead to their levels: one person's level is looked up where every look is on
record.
"""

from django.contrib import admin

from accounting.models import AccountRecord, LedgerEntry, PrivacyGroup, RunAccount
from ipate_web.admin import FilteredAsListed, ReadOnlyAdmin, SecretsAdmin


@admin.register(RunAccount)
class RunAccountAdmin(ReadOnlyAdmin):
    list_display = ("run", "study", "simulation", "method", "delta", "opened_at")
    list_filter = ("study", "simulation")


@admin.register(AccountRecord)
class AccountRecordAdmin(FilteredAsListed, SecretsAdmin):
    list_display = ("sequence", "study", "run", "kind", "recorded_at")
    list_filter = ("study", "kind")
    list_select_related = ("study",)
    search_fields = ("run",)
    # Hashes, against which holders and what they have left can be tried.
    secrets = ("seals", "hash", "previous_hash")


@admin.register(PrivacyGroup)
class PrivacyGroupAdmin(FilteredAsListed, SecretsAdmin):
    list_display = ("name", "account", "level", "epsilon", "holders")
    list_filter = ("account__study", "level")
    list_select_related = ("account",)
    # What may still be spent, and when nothing was left, follow from what was.
    secrets = ("past_rdp", "spent_rdp", "reserved_rdp", "allowance", "retired_at")


@admin.register(LedgerEntry)
class LedgerEntryAdmin(FilteredAsListed, SecretsAdmin):
    list_display = ("sequence", "study", "run", "batch", "group", "queries", "labels", "recorded_at")
    list_filter = ("study", "group__level")
    list_select_related = ("study", "group")
    search_fields = ("run",)
    secrets = ("rdp",)
