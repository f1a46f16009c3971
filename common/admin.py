"""Base classes for Django's admin: read-only except for the fields that a subclass declares as repairable."""

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest


class FilteredAsListed(admin.ModelAdmin):
    """Admin that filters only by ``list_filter``, regardless of the URL.

    Otherwise, filtering by a hidden field would reveal its values.
    """

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        listed = {str(name).partition("__")[0] for name in self.list_filter}
        return lookup.partition("__")[0] in listed and super().lookup_allowed(lookup, value, request)


class ReadOnlyAdmin(admin.ModelAdmin):
    """Admin that cannot add or delete rows and can change only the fields in ``repairable``."""

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
    """Read-only admin that hides the fields in ``secrets`` from everyone except superusers."""

    secrets: tuple[str, ...] = ()

    def _hidden(self, request: HttpRequest) -> tuple[str, ...]:
        return () if request.user.is_superuser else self.secrets

    def get_exclude(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return self._hidden(request)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        # Django shows read-only fields even if they are excluded.
        return [name for name in super().get_readonly_fields(request, obj) if name not in self._hidden(request)]
