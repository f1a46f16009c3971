"""What Django's admin may do here: look, and repair where a module says so. Everything else goes through the pages."""

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest


class FilteredAsListed(admin.ModelAdmin):
    """Filters by what ``list_filter`` names and by nothing else that an address may ask for.

    What is found by a hidden value tells that value.
    """

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        listed = {str(name).partition("__")[0] for name in self.list_filter}
        return lookup.partition("__")[0] in listed and super().lookup_allowed(lookup, value, request)


class ReadOnlyAdmin(admin.ModelAdmin):
    """Nothing is added or deleted here, and nothing changed but the fields in ``repairable``."""

    repairable: tuple[str, ...] = ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(self.repairable) and super().has_change_permission(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        return [field.name for field in self.opts.fields if field.name not in self.repairable]


class SecretsAdmin(ReadOnlyAdmin):
    """Hides the fields in ``secrets`` from those who may not see private costs."""

    secrets: tuple[str, ...] = ()

    def _hidden(self, request: HttpRequest) -> tuple[str, ...]:
        return () if request.user.has_perm("accounting.view_private_costs") else self.secrets

    def get_exclude(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return self._hidden(request)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        # What is read-only is shown even where it is excluded.
        return [name for name in super().get_readonly_fields(request, obj) if name not in self._hidden(request)]
