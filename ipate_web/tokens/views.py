"""Page of the API tokens of the user."""

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from consent.permissions import studies_with_permission
from ipate_web.tokens.models import ApiToken, Scope

#: No token lives for ever: what was forgotten stops working by itself.
LIFETIMES = [("30", gettext_lazy("30 days")), ("90", gettext_lazy("90 days")), ("365", gettext_lazy("one year"))]


class TokenForm(forms.Form):
    """Form for the name and lifetime of a new token of ``user``."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=60,
        help_text=gettext_lazy(
            "The program that will use it, to help you later to know which token to revoke: “analysis notebook”."
        ),
    )
    lifetime = forms.ChoiceField(label=gettext_lazy("Valid for"), choices=LIFETIMES, initial="90")
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Permissions"),
        choices=Scope.choices,
        initial=[Scope.READ, Scope.PROPOSE, Scope.PREDICT],
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("A token can never do more than you can do yourself."),
    )

    def __init__(self, *args: Any, user: AbstractBaseUser | AnonymousUser, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user

    def clean_name(self) -> str:
        name = self.cleaned_data["name"]
        if ApiToken.objects.filter(user_id=self.user.pk, name=name).exists():
            raise ValidationError(
                gettext_lazy(
                    "You already have a token with this name. Choose another name, or revoke that token first."
                )
            )
        return name

    def save(self) -> str:
        """Create the token.

        Returns:
            The token itself, which cannot be retrieved later.
        """
        lifetime = timedelta(days=int(self.cleaned_data["lifetime"]))
        _token, secret = ApiToken.objects.create(
            self.user, expiry=lifetime, name=self.cleaned_data["name"], scopes=self.cleaned_data["scopes"]
        )
        return secret


def _api_user_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorator of views for users who may see runs in some study, or create one; 404 for everybody else."""

    @never_cache
    @login_required
    @wraps(view)
    def wrapped(request: HttpRequest, **arguments: Any) -> HttpResponse:
        sees_runs = studies_with_permission(request.user, "training.view_run").exists()
        if not sees_runs and not request.user.has_perm("consent.add_study"):
            raise Http404
        return view(request, **arguments)

    return wrapped


@require_http_methods(["GET", "HEAD", "POST"])
@_api_user_page
@sensitive_variables("secret")
def tokens(request: HttpRequest) -> HttpResponse:
    """List and create the user's tokens; a new one is shown once."""
    form, secret = TokenForm(request.POST or None, user=request.user), None
    if form.is_valid():
        secret, form = form.save(), TokenForm(user=request.user)
    context = {
        "form": form,
        "secret": secret,
        "tokens": ApiToken.objects.filter(user_id=request.user.pk),
        "now": timezone.now(),
    }
    return render(request, "tokens/tokens.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@_api_user_page
def revoke(request: HttpRequest, key: str) -> HttpResponse:
    """Confirm and revoke one of the user's tokens."""
    token = get_object_or_404(ApiToken, user_id=request.user.pk, token_key=key)
    if request.method != "POST":
        return render(request, "tokens/revoke.html", {"token": token})
    token.delete()
    messages.success(request, _("The token “%(name)s” was revoked and no longer works.") % {"name": token.name})
    return redirect("api-tokens")
