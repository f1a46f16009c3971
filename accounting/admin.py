"""Read-only admin pages for the register and the shares, which are never corrected by hand."""

from django.contrib import admin

from accounting.models import HeadCount, Release, ShareRecord
from common.admin import FilteredAsListed, ReadOnlyAdmin, SecretsAdmin


@admin.register(Release)
class ReleaseAdmin(FilteredAsListed, SecretsAdmin):
    list_display = ("sequence", "study", "kind", "run", "batch", "charge", "recorded_at")
    list_filter = ("study", "kind")
    list_select_related = ("study",)
    search_fields = ("run",)
    # Individual charges are secret, as are values that would allow guesses to be tested.
    secrets = ("charges", "charges_digest", "hash", "previous_hash")


@admin.register(ShareRecord)
class ShareRecordAdmin(FilteredAsListed, ReadOnlyAdmin):
    list_display = ("sequence", "study", "subject", "kind", "share", "limit", "recorded_at")
    list_filter = ("study", "kind")
    list_select_related = ("study",)


@admin.register(HeadCount)
class HeadCountAdmin(ReadOnlyAdmin):
    list_display = ("study", "level", "epsilon", "count", "sigma")
    list_filter = ("study",)
