"""Page on which users create, list and revoke their API tokens."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from consent.permissions import studies_with_permission
from ipate_web.tokens.forms import TokenForm
from ipate_web.tokens.models import ApiToken


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
    messages.success(request, _("The token “%(name)s” is revoked. Nothing can use it any more.") % {"name": token.name})
    return redirect("api-tokens")
