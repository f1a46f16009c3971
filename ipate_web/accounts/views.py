"""Pages for a user's own account and API tokens; pages for administrators: staff accounts and site health."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, cast

from allauth.account import views as allauth_views
from allauth.account.models import EmailAddress, get_emailconfirmation_model
from allauth.socialaccount.providers.openid_connect import views as oidc_views
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Max
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from common.jobs import live_worker_count
from common.models import Pulse
from common.moments import moment_words
from common.requests import SignedInRequest, faults_in
from consent.models import DataHolder, Membership
from consent.permissions import studies_with_permission
from consent.services import accounts
from consent.services.mail import mail_wishes
from ipate_web.accounts.adapters import has_second_factor, is_staff_account
from ipate_web.accounts.forms import PersonForm, StaffAccountForm
from ipate_web.health import PARTS as NEEDED
from ipate_web.tokens.models import ApiToken, Scope
from ipate_web.watching import PARTS as WATCHED
from ipate_web.watching import backup_last, disk_free
from training.models import Verification

logger = logging.getLogger(__name__)


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def overview(request: HttpRequest) -> HttpResponse:
    """Show and change the user's own account: name, email preferences, and ways to sign in."""
    user = cast(SignedInRequest, request).user
    holds = DataHolder.objects.filter(user=user).exists()
    works = Membership.objects.filter(user=user).exists()
    form = PersonForm(request.POST or None, instance=mail_wishes(user), user=user, holds=holds, works=works)
    if form.is_valid():
        form.save()
        messages.success(request, _("Changes saved."))
        return redirect("account_overview")
    context = {
        "form": form,
        "addresses": EmailAddress.objects.filter(user=user).order_by("-primary", "email"),
        "has_second_factor": has_second_factor(user),
        "second_factor_required": settings.STAFF_SECOND_FACTOR and is_staff_account(user),
        "single_sign_on": bool(settings.OIDC_SERVER),
        "has_password": user.has_usable_password(),
    }
    return render(request, "account/overview.html", context, status=422 if form.errors else 200)


@never_cache
@login_required
def confirm_email(request: HttpRequest, key: str) -> HttpResponseBase:
    """Confirm an address for a user who is signed in to its account.

    The link in the email is not enough, because a holder may have mistyped the address, so that someone else got it.
    """
    confirmation = get_emailconfirmation_model().from_key(key)
    if confirmation is not None and confirmation.email_address.user_id != request.user.pk:
        return render(request, "account/email_confirm.html", {"another": True}, status=403)
    return allauth_views.confirm_email(request, key=key)


def _provider_page(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Decorator for views that query the identity provider. It shows a page if the provider does not respond.

    Such failures are not recorded as errors of the site.
    """

    @never_cache
    @wraps(view)
    def wrapped(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        from requests import RequestException  # slow to import

        try:
            return view(request, **kwargs)
        except RequestException as error:
            logger.warning("The identity provider cannot be reached: %s.", type(error).__name__)
            return render(request, "socialaccount/authentication_error.html", status=503)

    return wrapped


sign_on = _provider_page(oidc_views.login)
sign_on_done = _provider_page(oidc_views.callback)


# --- Accounts of staff ----------------------------------------------------------------------------------------------


def administrator_page(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Decorator for views for administrators of the installation; responds with 403 to everyone else."""

    @never_cache
    @login_required
    @wraps(view)
    def wrapped(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if not request.user.has_perm("consent.manage_accounts"):
            raise PermissionDenied
        return view(request, **kwargs)

    return wrapped


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_page
def staff_account_new(request: HttpRequest) -> HttpResponse:
    """Create an account for a staff member, who gets an email to choose a password."""
    form = StaffAccountForm(request.POST or None)
    if form.is_valid():
        with faults_in(form):
            user = accounts.account_create(acting_user=cast(SignedInRequest, request).user, **form.cleaned_data)
            messages.success(
                request, _("Account created. We have emailed a link to %(email)s.") % {"email": user.email}
            )
            return redirect("staff_accounts")
    return render(request, "accounts/staff_account_new.html", {"form": form}, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_page
def staff_account_invite(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for confirmation, then resend the password link to someone who has never signed in."""
    person = get_object_or_404(accounts.staff_waiting(), pk=pk)
    if request.method != "POST":
        return render(request, "accounts/staff_account_invite.html", {"person": person})
    accounts.account_invite(user=person, acting_user=cast(SignedInRequest, request).user)
    messages.success(request, _("We have emailed a link to %(email)s.") % {"email": person.email})
    return redirect("staff_accounts")


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_page
def staff_account_close(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for confirmation, then close a staff account or reopen a closed account."""
    person = get_object_or_404(accounts.staff(), pk=pk)
    act = {"close": accounts.account_close, "reopen": accounts.account_reopen}.get(request.POST.get("act", ""))
    if act is None:
        context = {"person": person, "studies_with_sole_operator": accounts.studies_with_sole_operator(person)}
        return render(request, "accounts/staff_account_close.html", context)
    try:
        act(user=person, acting_user=cast(SignedInRequest, request).user)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(request, _("Change recorded."))
    return redirect("staff_accounts")


@require_http_methods(["GET", "HEAD", "POST"])
@administrator_page
def administrator(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for confirmation, then change whether a staff member administers the installation. Only for superusers."""
    acting_user = cast(SignedInRequest, request).user
    if not acting_user.is_superuser:
        raise PermissionDenied
    person = get_object_or_404(accounts.staff(), pk=pk)
    act = request.POST.get("act")
    if act not in ("appoint", "remove"):
        appointed = hasattr(person, "administrator")
        return render(request, "accounts/administrator.html", {"person": person, "appointed": appointed})
    accounts.administrator_set(user=person, appointed=act == "appoint", acting_user=acting_user)
    messages.success(request, _("Change recorded."))
    return redirect("staff_accounts")


# --- API tokens -------------------------------------------------------------------------------------------------------


#: Tokens are never valid forever, so that forgotten tokens stop working automatically.
LIFETIMES = [("30", gettext_lazy("30 days")), ("90", gettext_lazy("90 days")), ("365", gettext_lazy("one year"))]


class TokenForm(forms.Form):
    """Form for the name and lifetime of a new token of ``user``."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=60,
        help_text=gettext_lazy(
            "Name the program that will use the token, such as “analysis notebook”, so that you know later which "
            "token to revoke."
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
    """Decorator for views for users who may see a study's runs or create a study; responds with 404 to all others."""

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
def api_tokens(request: HttpRequest) -> HttpResponse:
    """List and create the user's tokens; a new token is shown once."""
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
def api_token_revoke(request: HttpRequest, key: str) -> HttpResponse:
    """Ask for confirmation, then revoke one of the user's tokens."""
    token = get_object_or_404(ApiToken, user_id=request.user.pk, token_key=key)
    if request.method != "POST":
        return render(request, "tokens/revoke.html", {"token": token})
    token.delete()
    messages.success(request, _("The token “%(name)s” was revoked and no longer works.") % {"name": token.name})
    return redirect("api-tokens")


# --- Health of the site ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartShown:
    """Part of the site on the administrators' page: its last known state, and advice if it is not ok."""

    name: str | Promise
    is_well: bool
    detail: str
    advice: str | Promise


#: Names of all parts, and advice for parts that the site cannot do without.
_NAMES: dict[str, tuple[str | Promise, str | Promise]] = {
    "database": (gettext_lazy("Database"), ""),
    "broker": (
        gettext_lazy("Message broker"),
        gettext_lazy("Check that it is running and that IPATE_BROKER_URL is right. Runs and emails depend on it."),
    ),
    "storage": (
        gettext_lazy("File storage"),
        gettext_lazy("Check that the folders or buckets for private files and models can be written to."),
    ),
    "static": (
        gettext_lazy("Styles and scripts"),
        gettext_lazy("Run “ipate collectstatic”, and restart the site."),
    ),
    "worker": (
        gettext_lazy("Workers"),
        gettext_lazy("Start a worker. Until then runs, emails and erasures will wait."),
    ),
    "verification": (gettext_lazy("Verification"), ""),
    "backup": (gettext_lazy("Backup"), ""),
    "beat": (gettext_lazy("Periodic tasks"), ""),
    "disk": (gettext_lazy("Disks"), ""),
    "certificate": (gettext_lazy("Certificate"), ""),
}


def _details() -> dict[str, str]:
    """Return the state of each part of the installation in words."""
    workers = live_worker_count()
    pulses = {pulse.name: pulse for pulse in Pulse.objects.filter(name__in=("beat", "certificate"))}
    backup, verified = backup_last(), Verification.objects.aggregate(last=Max("verified_at"))["last"]
    ends = pulses["certificate"].until if "certificate" in pulses else None
    return {
        "worker": ngettext("%(number)d worker", "%(number)d workers", workers) % {"number": workers},
        "verification": moment_words(verified) if verified else _("never"),
        "backup": moment_words(backup) if backup else _("never"),
        "beat": moment_words(pulses["beat"].at) if "beat" in pulses else _("never"),
        "disk": _("%(percent)d %% free") % {"percent": round(100 * disk_free())},
        "certificate": _("valid until %(moment)s") % {"moment": moment_words(ends)} if ends else "",
    }


@require_safe
@administrator_page
def health(request: HttpRequest) -> HttpResponse:
    """Show administrators the state of every part of the site, and advice on problems."""
    details = _details()
    needed = {name: (check(), _NAMES[name][1]) for name, (check, _fault) in NEEDED.items()}
    watched = {name: (part.state() == "ok", part.alarm) for name, part in WATCHED.items()}
    parts = [
        PartShown(_NAMES[name][0], is_well, details.get(name, ""), advice)
        for name, (is_well, advice) in (needed | watched).items()
    ]
    context = {"parts": parts, "troubled": sum(not part.is_well for part in parts), "now": timezone.now()}
    return render(request, "site/health.html", context)
