"""Admin pages of the consent app, for repairs; append-only tables are read-only."""

from collections.abc import Iterable
from typing import Any, cast

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _

from common.admin import FilteredAsListed, ReadOnlyAdmin
from common.append_only import chains_begin
from common.requests import SignedInRequest
from consent import services
from consent.models import (
    ConsentEvent,
    ConsentForm,
    DataHolder,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Membership,
    Role,
    RoleChange,
    Study,
)
from consent.services import FIXED_BY_CONSENT


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


class MembershipForm(forms.ModelForm):
    """Looks whether the role can be given while nobody else gives one: its page is one transaction."""

    def clean(self) -> Any:
        if "study" in self.cleaned_data:
            services.study_lock(self.cleaned_data["study"].pk)
        return super().clean()


@admin.register(Membership)
class MembershipAdmin(admin.ModelAdmin):
    """Superusers alone give and take roles here, on record as everywhere; no role becomes another."""

    form = MembershipForm
    list_display = ("user", "role", "study")
    list_filter = ("study", "role")
    autocomplete_fields = ("user",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_superuser

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        acting_user = cast(SignedInRequest, request).user
        obj.pk = services.membership_add(study=obj.study, user=obj.user, role=obj.role, acting_user=acting_user).pk

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        services.membership_remove(membership=obj, acting_user=cast(SignedInRequest, request).user)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Membership]) -> None:
        for membership in queryset:
            self.delete_model(request, membership)

    def get_deleted_objects(self, objs: Iterable[Membership], request: HttpRequest) -> tuple[Any, Any, set, list]:
        """Objects that would be deleted; a study's last operators are protected."""
        deleted, counts, needed, protected = super().get_deleted_objects(objs, request)  # type: ignore[arg-type]
        going = {membership.pk for membership in objs}
        for study in {membership.study for membership in objs if membership.role == Role.OPERATOR}:
            if not study.memberships.filter(role=Role.OPERATOR).exclude(pk__in=going).exists():
                protected.append(_("the last operator of %(study)s") % {"study": study})
        return deleted, counts, needed, protected


@admin.register(RoleChange)
class RoleChangeAdmin(ReadOnlyAdmin):
    list_display = ("study", "sequence", "user_id", "role", "kind", "changed_at")
    list_filter = ("study", "role", "kind")


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
