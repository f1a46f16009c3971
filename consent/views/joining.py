"""Pages to open and leave an invitation, and to replace it by an account or an email address."""

from allauth.account.models import EmailAddress
from allauth.account.utils import perform_login
from allauth.mfa.utils import is_mfa_enabled
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from common.requests import client_address
from common.throttle import TooManyTriesError
from consent.forms import AccountForm, HolderAddressForm, InvitationCodeForm, LaterForm
from consent.models import DataHolder, HolderAddress, Invitation, Study
from consent.promises.status import holder_status
from consent.selectors import consent_current
from consent.services import invitations, mail
from consent.services.mail import address_by_link, is_reached, reminder_ask
from consent.views.decision import closed_page
from consent.views.visits import (
    answer_forget,
    answer_is_postponed,
    answer_kept,
    erasure_kept,
    holder_page,
    own_page,
    visit_begin,
    visit_forget,
    visit_of,
)


def _closed(request: HttpRequest, invitation: Invitation) -> HttpResponse:
    """Redirect an invitation link of a closed study to the person's decision or, if there is none, to a notice."""
    if invitation.holder is None or consent_current(invitation.holder) is None:
        request.session["closed_study"] = invitation.study_id
        return redirect("closed")
    visit_begin(request, invitation)
    return redirect(_page_kept(request, invitation.holder) or "consent:choice", invitation.study.slug)


def _page_kept(request: HttpRequest, holder: DataHolder) -> str:
    """Return the page for confirming an answer that was sent too late, or for reading on; empty if there is none."""
    if answer_kept(request, holder):
        return "consent:study" if answer_is_postponed(holder) else "consent:check"
    return "consent:erase" if erasure_kept(request, holder) else ""


@never_cache
@require_safe
def closed(request: HttpRequest) -> HttpResponse:
    """Tell people who were invited, but have not decided, that the study is closed."""
    study = Study.objects.filter(pk=request.session.get("closed_study", 0), closed_at__isnull=False).first()
    return redirect("join") if study is None else closed_page(request, study, None)


def _invalid_code_message() -> str:
    """Return the message for a code that does not work, which is the same for every reason."""
    return _(
        "This invitation doesn't work. It may have been mistyped or replaced by a newer one, or you may already have "
        "an account. Check it, sign in, or ask the people who invited you for a new one."
    )


@sensitive_variables("code")
def _opened(request: HttpRequest, code: str) -> HttpResponse | None:
    """Redirect to the page for a code; None if the code does not work."""
    invitation = invitations.invitation_open(code=code, address=client_address(request))
    if invitation is not None and invitation.study.is_closed:
        return _closed(request, invitation)
    if invitation is None or invitation.holder is None:
        return None
    # Start a new session, because earlier sign-ins in this browser have nothing to do with this person.
    visit_begin(request, invitation)
    return redirect(_page_kept(request, invitation.holder) or _page_first(invitation.holder), invitation.study.slug)


def _page_first(holder: DataHolder) -> str:
    """Return the page that a link opens: the form, or the choice of a person who need not decide again."""
    status = holder_status(holder)
    return "consent:study" if status.current is None or status.needs_decision else "consent:choice"


@never_cache
@require_safe
@sensitive_variables("code")
def open_link(request: HttpRequest, code: str) -> HttpResponse:
    """Open an invitation's link. It always redirects, so that the code disappears from the address bar.

    This also keeps the code out of the log, which contains the URLs of error pages.
    """
    try:
        opened = _opened(request, code)
    except TooManyTriesError:
        return redirect("join")  # this page shows how long to wait
    if opened is None:
        messages.error(request, _invalid_code_message())
        return redirect("join")
    return opened


@never_cache
@sensitive_post_parameters("code")
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest) -> HttpResponse:
    """Ask for the code of an invitation, typed from paper. A wrong code stays in the field so that it can be corrected.

    A mistyped code counts as a failed attempt, too.
    """
    form = InvitationCodeForm(request.POST or None)
    if request.method != "POST":
        invitations.try_check(address=client_address(request))
    elif not form.is_valid():
        invitations.try_begin(address=client_address(request))
    elif opened := _opened(request, form.cleaned_data["code"]):
        return opened
    else:
        form.add_error("code", _invalid_code_message())
    context = {"form": form, "visit": visit_of(request)}
    return render(request, "consent/join.html", context, status=422 if form.errors else 200)


@require_POST
@own_page
def stay(request: HttpRequest, holders: QuerySet[DataHolder]) -> HttpResponse:
    """Extend the visit and redirect back. Scripts get the time at which the visit ends."""
    visit = visit_of(request)  # extended by every page of the visit
    if visit is None or request.accepts("text/html"):
        following = request.POST.get("next", "")
        safe = url_has_allowed_host_and_scheme(following, allowed_hosts=None)
        return redirect(following if safe else "consent:my_studies")
    until = date_format(timezone.localtime(visit.ends), "TIME_FORMAT")
    return JsonResponse({"ends": visit.ends.isoformat(), "text": until})


@require_POST
def leave(request: HttpRequest) -> HttpResponse:
    """Remove the invitation from this browser, so that the next person on a shared computer finds nothing."""
    logout(request)
    messages.success(request, _("Your session on this device has ended. Open the link in your invitation to continue."))
    return redirect("join")


@sensitive_post_parameters("password", "password_again")
@require_http_methods(["GET", "HEAD", "POST"])
@own_page
def account(request: HttpRequest, holders: QuerySet[DataHolder]) -> HttpResponse:
    """Create an account, which replaces the invitation link once the email address is confirmed."""
    if request.user.is_authenticated:
        return redirect("consent:my_studies")
    holder = get_object_or_404(holders)
    form = AccountForm(request.POST or None)
    if form.is_valid():
        attempt = invitations.try_begin(address=client_address(request))
        try:
            user = invitations.account_take(holder=holder, request=request, **form.cleaned_data)
        except ValidationError as error:
            form.add_error(None, error)
        else:
            attempt.forget()
            return _signed_in(request, holder, user)
    context = {"form": form, "study": holder.study, "pending": holder.user}
    return render(request, "consent/account.html", context, status=422 if form.errors else 200)


def _signed_in(request: HttpRequest, holder: DataHolder, user: User) -> HttpResponse:
    """Sign in to the account. If it has a second factor, link it to the holder only after that factor was given."""
    visit_forget(request)
    request.session.set_expiry(None)
    choice = reverse("consent:choice", args=[holder.study.slug])
    if is_mfa_enabled(user):
        return perform_login(request, user, redirect_url=choice, signal_kwargs={"joins": holder.pk})
    address = EmailAddress.objects.filter(user=user, email=user.email).first()
    if address is not None and not address.verified:
        address.send_confirmation(request)
        messages.success(
            request,
            _(
                "Your account is set up. We have sent an email to %(email)s: open the link in it. Until then, the "
                "link in your invitation still works, and you can use it to correct the address."
            )
            % {"email": address.email},
        )
    else:
        messages.success(request, invitations.ACCOUNT_SET_UP)
    return perform_login(request, user, redirect_url=choice)


# --- Addresses of holders without an account --------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@holder_page
def contact_way(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Store or delete an address or a request for letters. Redirect people with an account to its preferences."""
    form = HolderAddressForm(request.POST if request.POST.get("way") == HolderAddress.Way.MAIL else None)
    if request.method == "POST" and (not form.is_bound or form.is_valid()):
        try:
            messages.success(request, _tell(holder, request.POST.get("way", ""), form))
        except ValidationError as error:
            messages.warning(request, " ".join(error.messages))
        return redirect("consent:contact_way", holder.study.slug)
    context = {
        "study": holder.study,
        "form": form,
        "left": HolderAddress.objects.filter(holder=holder).first(),
        "has_account": holder.user_id is not None,
    }
    return render(request, "consent/contact_way.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@holder_page
def later(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Request a single reminder to decide, or discard the ticked answer. Neither is a decision."""
    if holder.study.is_closed:
        return redirect("consent:choice", holder.study.slug)
    if "forget" in request.POST:
        answer_forget(request, holder)
        messages.success(request, _("The boxes you ticked have been cleared."))
        return redirect("consent:study", holder.study.slug)
    form = LaterForm(request.POST or None, reached=is_reached(holder))
    if form.is_valid():
        try:
            if "email" in form.fields:
                mail.address_leave(holder=holder, email=form.cleaned_data["email"])
            due_at = reminder_ask(holder=holder, days=form.cleaned_data["days"])
        except ValidationError as error:
            form.add_error(None, error)
        else:
            values = {"day": date_format(localtime(due_at), "DATE_FORMAT")}
            messages.success(request, _("We'll email you once on %(day)s. You have not decided anything yet.") % values)
            if "email" in form.fields:
                messages.info(request, _("We have sent you an email. Open the link in it to confirm your address."))
            return redirect("consent:choice", holder.study.slug)
    context = {"study": holder.study, "form": form, "ticked": answer_kept(request, holder) is not None}
    return render(request, "consent/later.html", context, status=422 if form.errors else 200)


def _tell(holder: DataHolder, way: str, form: HolderAddressForm) -> str:
    """Store the holder's choice of contact, and return a confirmation message."""
    if way == HolderAddress.Way.MAIL:
        mail.address_leave(holder=holder, email=form.cleaned_data["email"])
        return _("We have sent you an email. Open the link in it to confirm your address.")
    if way in (HolderAddress.Way.LETTER, HolderAddress.Way.NOTHING):
        mail.way_wish(holder=holder, way=way)
        return (
            _("From now on, we'll send you letters.")
            if way == HolderAddress.Way.LETTER
            else _("From now on, we won't send you news.")
        )
    mail.addresses_forget(holders=[holder.pk])
    return _("Your address has been deleted.")


@never_cache
@csrf_exempt  # the link itself is secret, and email programs send the form without having opened the page
@require_http_methods(["GET", "HEAD", "POST"])
def address(request: HttpRequest, token: str) -> HttpResponse:
    """Let the person who receives emails at an address confirm or delete it. The page does not name the study."""
    owner = address_by_link(token)
    done = ""
    if request.method == "POST" and owner is not None:
        if request.POST.get("confirm"):
            mail.address_confirm(address=owner)
            done = "confirmed"
        else:
            mail.addresses_forget(holders=[owner.holder_id])
            owner = None
    context = {"left": owner, "done": done}
    return render(request, "consent/address.html", context, status=200 if owner or request.method == "POST" else 404)
