"""Pages on which holders without an account say how they are told of their decisions and of news."""

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.formats import date_format
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from consent.forms import AddressForm, LaterForm
from consent.models import DataHolder, HolderAddress
from consent.services import addresses
from consent.services.mail import address_by_link
from consent.services.reminders import is_reached, reminder_ask
from consent.views.page import holder_page
from consent.views.visits import answer_forget, answer_kept


@require_http_methods(["GET", "HEAD", "POST"])
@holder_page
def contact_way(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Leave an address, ask for letters, or delete either; who has an account is led to its wishes."""
    form = AddressForm(request.POST if request.POST.get("way") == HolderAddress.Way.MAIL else None)
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
    """Ask for one reminder to decide, or forget what was ticked; nothing counts as a decision."""
    if holder.study.is_closed:
        return redirect("consent:choice", holder.study.slug)
    if "forget" in request.POST:
        answer_forget(request, holder)
        messages.success(request, _("Your ticks have been deleted."))
        return redirect("consent:study", holder.study.slug)
    form = LaterForm(request.POST or None, reached=is_reached(holder))
    if form.is_valid():
        try:
            if "email" in form.fields:
                addresses.address_leave(holder=holder, email=form.cleaned_data["email"])
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


def _tell(holder: DataHolder, way: str, form: AddressForm) -> str:
    """Do what was asked for; returns what is said of it."""
    if way == HolderAddress.Way.MAIL:
        addresses.address_leave(holder=holder, email=form.cleaned_data["email"])
        return _("We have sent you an email. Open the link in it to confirm your address.")
    if way in (HolderAddress.Way.LETTER, HolderAddress.Way.NOTHING):
        addresses.way_wish(holder=holder, way=way)
        return (
            _("From now on, we'll send you letters.")
            if way == HolderAddress.Way.LETTER
            else _("From now on, we won't send you news.")
        )
    addresses.addresses_forget(holders=[holder.pk])
    return _("Your address has been deleted.")


@never_cache
@csrf_exempt  # the link is a secret of its own, and mail programs send the form without having opened the page
@require_http_methods(["GET", "HEAD", "POST"])
def address(request: HttpRequest, token: str) -> HttpResponse:
    """Let the reader of an address's mails confirm or delete it. The page names no study."""
    owner = address_by_link(token)
    done = ""
    if request.method == "POST" and owner is not None:
        if request.POST.get("confirm"):
            addresses.address_confirm(address=owner)
            done = "confirmed"
        else:
            addresses.addresses_forget(holders=[owner.holder_id])
            owner = None
    context = {"left": owner, "done": done}
    return render(request, "consent/address.html", context, status=200 if owner or request.method == "POST" else 404)
