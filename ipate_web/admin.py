"""Accounts in Django's admin. Superusers alone change them.

Whoever could change an account could make it a superuser's, or set the password of a member of an ethics committee.
"""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest


class ForSuperusers(admin.ModelAdmin):
    """Admin of what others may look at, and superusers alone add, change and delete."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_superuser


admin.site.unregister((User, Group))


@admin.register(User)
class AccountAdmin(ForSuperusers, UserAdmin):
    """Django's own, for superusers."""


@admin.register(Group)
class AccountGroupAdmin(ForSuperusers, GroupAdmin):
    """Django's own, for superusers."""
