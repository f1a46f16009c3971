"""Accounts in Django's admin, which only superusers can change.

Anyone who could change an account could make it a superuser's, or set an ethics committee member's password. The same
is true of email addresses, which receive password links, and of accounts at an identity provider.
"""

from typing import Any, cast

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin
from common.requests import SignedInRequest
from consent.models import Mail
from consent.services.accounts import account_change_record, permission_changes_record


class ForSuperusers(admin.ModelAdmin):
    """Admin of tables that other staff can view but only superusers can change."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_superuser


class SuperusersOnly(ForSuperusers):
    """Admin of tables that only superusers can view."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_superuser

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser


admin.site.unregister((User, Group, EmailAddress, Authenticator, SocialAccount, SocialApp, SocialToken))


class Accounts(ForSuperusers):
    """Admin pages through which a superuser can take over someone's account.

    Each use is recorded; see :mod:`consent.permissions`.
    """

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._touched(request, obj, made=isinstance(obj, User))
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._touched(request, obj, made=False)
        return super().log_change(request, obj, message)

    def _touched(self, request: HttpRequest, obj: Any, *, made: bool) -> None:
        user = obj if isinstance(obj, User) else obj.user
        account_change_record(user=user, acting_user=cast(SignedInRequest, request).user, made=made)


@admin.register(User)
class AccountAdmin(Accounts, UserAdmin):
    """Admin of accounts, for superusers. Changes to an account's permissions are recorded."""

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        with permission_changes_record(obj, acting_user=cast(SignedInRequest, request).user):
            super().save_model(request, obj, form, change)


@admin.register(Group)
class AccountGroupAdmin(ForSuperusers, GroupAdmin):
    """Admin of groups of accounts, which only superusers can change."""


@admin.register(EmailAddress)
class AddressAdmin(Accounts, SuperusersOnly):
    """Admin of the email addresses of accounts."""

    list_display = ("email", "user", "primary", "verified")
    search_fields = ("email", "user__username")
    autocomplete_fields = ("user",)


class WithoutSecrets(ReadOnlyAdmin, SuperusersOnly):
    """Admin of rows that superusers can delete but not change, without the fields in ``exclude``."""

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [name for name in super().get_readonly_fields(request, obj) if name not in (self.exclude or ())]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_superuser


@admin.register(Authenticator)
class AuthenticatorAdmin(WithoutSecrets):
    """Admin of second factors, without their secrets. Superusers can delete a second factor that someone has lost."""

    list_display = ("user", "type", "created_at", "last_used_at")
    search_fields = ("user__username",)
    exclude = ("data",)


@admin.register(SocialAccount)
class SocialAccountAdmin(WithoutSecrets):
    """Admin of accounts at an identity provider that are linked to accounts here."""

    list_display = ("user", "provider", "date_joined")
    exclude = ("extra_data",)


@admin.register(Mail)
class MailAdmin(ReadOnlyAdmin, SuperusersOnly):
    """Admin of the record of emails, which does not contain their text."""

    list_display = ("created_at", "user", "kind", "study", "state", "tries", "fault")
    list_filter = ("state", "kind", "study")
    show_full_result_count = False
