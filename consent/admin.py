"""Admin pages of the consent app, for repairs; append-only tables are read-only."""

from typing import Any, cast

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from common.admin import FilteredAsListed, ReadOnlyAdmin
from common.identities import spelling
from common.requests import SignedInRequest
from consent import services
from consent.models import (
    AccountChange,
    ConfigurationChange,
    ConsentEvent,
    ConsentForm,
    DataHolder,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Membership,
    Recorded,
    RoleChange,
    Study,
)
from consent.people.pseudonyms import spelling_fault
from consent.services.changes import changes_recorded
from consent.wording.facts import FACTS


class RecordedAdmin(admin.ModelAdmin):
    """Admin of rows whose changes are logged with the user who made them."""

    def save_model(self, request: HttpRequest, obj: Recorded, form: Any, change: bool) -> None:
        with changes_recorded([obj], acting_user=cast(SignedInRequest, request).user):
            super().save_model(request, obj, form, change)


@admin.register(Study)
class StudyAdmin(admin.ModelAdmin):
    list_display = ("title", "slug", "controller", "delta", "created_at")
    search_fields = ("title", "slug")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None or not services.are_facts_fixed(obj):
            return ()
        return ("slug", *FACTS, "translations", *(["delta", "harm"] if services.is_study_fixed(obj) else []))

    def save_model(self, request: HttpRequest, obj: Study, form: Any, change: bool) -> None:
        with changes_recorded([obj], acting_user=cast(SignedInRequest, request).user):
            if change:
                super().save_model(request, obj, form, change)
            else:
                services.study_begin(obj)


@admin.register(Membership)
class MembershipAdmin(ReadOnlyAdmin):
    """Read-only admin of roles. They are changed on a study's *People* page, which superusers can also open."""

    list_display = ("user", "role", "study")
    list_filter = ("study", "role")


@admin.register(RoleChange)
class RoleChangeAdmin(ReadOnlyAdmin):
    list_display = ("study", "sequence", "user_id", "role", "kind", "changed_by_id", "proposed_by_id", "changed_at")
    list_filter = ("study", "role", "kind")


@admin.register(ConfigurationChange)
class ConfigurationChangeAdmin(FilteredAsListed, ReadOnlyAdmin):
    list_display = ("study", "sequence", "model", "row", "changed_by_id", "changed_at")
    list_filter = ("study", "model")


@admin.register(AccountChange)
class AccountChangeAdmin(ReadOnlyAdmin):
    list_display = ("sequence", "user_id", "kind", "changed_by_id", "changed_at")
    list_filter = ("kind",)


class DataHolderForm(forms.ModelForm):
    """Form for a data holder, which normalises the pseudonym as everywhere else."""

    def clean_pseudonym(self) -> str:
        name: str = self.cleaned_data["pseudonym"]
        if "pseudonym" in self.changed_data and (fault := spelling_fault(name)):
            raise ValidationError(fault)
        return spelling(name) if "pseudonym" in self.changed_data else name


@admin.register(DataHolder)
class DataHolderAdmin(RecordedAdmin, FilteredAsListed):
    """Admin of data holders.

    Deletion is disabled, because the check for related rows would reveal a holder's choice.
    """

    form = DataHolderForm
    list_display = ("pseudonym", "study", "user")
    list_filter = ("study",)
    search_fields = ("pseudonym",)
    autocomplete_fields = ("user",)
    show_full_result_count = False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return (*(("study",) if obj else ()), *(("pseudonym",) if obj and obj.erased_at else ()))

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
    """Admin of consent events without the holder, because every look-up of a person's choice has to be logged.

    It also omits the fields that would identify the holder: the user who recorded the event (often the holder), and
    hashes, against which guesses could be tested.
    """

    list_display = ("study", "sequence", "kind", "level", "recorded_at", "channel")
    list_filter = ("study", "kind")
    fields = ("study", "sequence", "kind", "level", "form", "policy", "channel", "signed_on", "recorded_at")
    show_full_result_count = False
