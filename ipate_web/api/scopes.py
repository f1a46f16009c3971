"""Limits of tokens: what a program was let do, and what is asked of its user, beside what that user may do."""

from typing import Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from ipate_web.accounts.second_factor import NEEDED, lacks_second_factor
from ipate_web.tokens.models import ApiToken


class WithinScope(BasePermission):
    """Refusal of what a token was not made for; whoever signs in by a browser has no scopes.

    Reading takes the one that an endpoint names as ``reading_scope``, “read” with few exceptions. What else it does
    takes the one that it names as ``scope``.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        token = request.auth
        if not isinstance(token, ApiToken) or request.method == "OPTIONS":
            return True
        scope = view.reading_scope if request.method in SAFE_METHODS else view.scope
        self.message = f"This token has no scope “{scope}”. Make one that has, on the page “API tokens”."
        return scope in token.scopes


class SecondFactor(BasePermission):
    """Refusal of tokens of staff who lack the second factor that the site asks for; they may be older than the rule."""

    message = NEEDED

    def has_permission(self, request: Request, view: Any) -> bool:
        return not lacks_second_factor(request.user)
