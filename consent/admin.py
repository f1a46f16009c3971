"""For repair work only: what is append-only can be looked at, nothing else."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from consent.models import (
    ConsentEvent,
    ConsentForm,
    DataHolder,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Membership,
    Study,
)
from consent.services import FIXED_BY_CONSENT
from ipate_web.admin import FilteredAsListed, ReadOnlyAdmin
from ipate_web.append_only import chains_begin


@admin.register(Study)
class StudyAdmin(admin.ModelAdmin):
    list_display = ("title", "slug", "controller", "delta", "created_at")
    search_fields = ("title", "slug")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        decided = obj is not None and obj.consent_events.exists()
        return ("slug", *FIXED_BY_CONSENT) if decided else ()

    def save_model(self, request: HttpRequest, obj: Study, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change:
            chains_begin(obj.pk)


@admin.register(Membership)
class MembershipAdmin(admin.ModelAdmin):
    list_display = ("user", "role", "study")
    list_filter = ("study", "role")
    autocomplete_fields = ("user",)


@admin.register(DataHolder)
class DataHolderAdmin(FilteredAsListed):
    """Nobody is deleted here: the question whether to would tell what they chose."""

    list_display = ("pseudonym", "study", "user")
    list_filter = ("study",)
    search_fields = ("pseudonym",)
    autocomplete_fields = ("user",)
    show_full_result_count = False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("study",) if obj else ()

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(ConsentForm)
class ConsentFormAdmin(ReadOnlyAdmin):
    list_display = ("study", "version", "published_at", "digest")
    list_filter = ("study",)


@admin.register(EpsilonPolicy)
class EpsilonPolicyAdmin(ReadOnlyAdmin):
    list_display = ("study", "version", "high", "average", "low", "proposed_by", "proposed_at")
    list_filter = ("study",)


@admin.register(EpsilonPolicyApproval)
class EpsilonPolicyApprovalAdmin(ReadOnlyAdmin):
    list_display = ("policy", "approved_by", "approved_at", "effective_from")


@admin.register(ConsentEvent)
class ConsentEventAdmin(FilteredAsListed, ReadOnlyAdmin):
    """Without the holder: who chose what is looked up where every look is on record.

    Nor with what leads to them: who recorded it, often they themselves, and hashes, against which holders can be tried.
    """

    list_display = ("study", "sequence", "kind", "level", "recorded_at", "channel")
    list_filter = ("study", "kind")
    fields = ("study", "sequence", "kind", "level", "form", "policy", "channel", "signed_on", "recorded_at")
    show_full_result_count = False
