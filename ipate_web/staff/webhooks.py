"""Page about programs that are notified of a study's events."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from common.requests import SignedInRequest
from common.templatetags.components import component_render
from common.templatetags.moments import moment
from consent.models import Study, WebhookDelivery, WebhookEndpoint
from consent.services.webhooks import EVENTS, MadeEndpoint, endpoint_create, endpoint_remove, endpoint_test
from ipate_web.lists import Column, Filter, Listing, Reader, day_filters, time_column
from ipate_web.staff.pages import faults_in, render_page, study_form, study_page


class WebhookForm(forms.Form):
    """Form for a new webhook; the service checks whether its URL is allowed."""

    url = forms.CharField(
        label=gettext_lazy("Web address"),
        max_length=500,
        help_text=gettext_lazy(
            "Must start with https://. Messages are sent there by POST; redirects are not followed."
        ),
        widget=forms.URLInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    events = forms.MultipleChoiceField(
        label=gettext_lazy("Events to send"),
        choices=lambda: [(event, f"{label} ({event})") for event, label in EVENTS.items()],
        initial=lambda: list(EVENTS),
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": gettext_lazy("Choose at least one event.")},
    )


_BADGES = {WebhookDelivery.State.SENT: "good", WebhookDelivery.State.FAILED: "bad"}


def _state(delivery: WebhookDelivery, _reader: Reader) -> SafeString:
    kind = _BADGES.get(WebhookDelivery.State(delivery.state), "live")
    return component_render("badge", text=delivery.get_state_display(), kind=kind)


def _due(delivery: WebhookDelivery, _reader: Reader) -> object:
    return moment(delivery.due_at if delivery.state == WebhookDelivery.State.WAITING else None)


DELIVERIES = Listing(
    columns=(
        time_column("when", gettext_lazy("When"), "created_at"),
        Column("event", gettext_lazy("Event"), lambda delivery, _reader: delivery.event, is_head=True),
        Column(
            "to", gettext_lazy("To"), lambda delivery, _reader: delivery.endpoint.url, kind="breakable", is_minor=True
        ),
        Column("state", gettext_lazy("State"), _state),
        Column(
            "attempts", gettext_lazy("Attempts"), lambda delivery, _reader: delivery.tries, kind="number", is_minor=True
        ),
        Column(
            "response",
            gettext_lazy("Last response"),
            lambda delivery, _reader: delivery.fault or delivery.status or "–",
            kind="breakable",
            is_minor=True,
        ),
        Column("next", gettext_lazy("Next attempt"), _due, is_minor=True),
    ),
    filters=(
        Filter("event", "event", gettext_lazy("Event"), options=lambda _rows, _reader: [*EVENTS.items()]),
        Filter("state", "state", gettext_lazy("State"), choices=WebhookDelivery.State.choices),
        *day_filters("created_at"),
    ),
    ties=("-pk",),
    default="-when",
    size=20,
)


@study_form("consent.manage_webhooks")
def webhooks(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """List webhooks and their deliveries, with a form for a new webhook, whose secret is shown once."""
    form = WebhookForm(request.POST or None)
    if form.is_valid() and (made := _made(request, study, form)):
        return render_page(request, study, "staff/webhooks/made.html", {"made": made})
    deliveries = WebhookDelivery.objects.filter(endpoint__study=study).select_related("endpoint")
    found = DELIVERIES.page(request, deliveries, Reader(study, request.can))
    if file := found.file(f"{study.slug}-deliveries"):
        return file
    context: dict[str, Any] = {
        "form": form,
        "endpoints": [
            (endpoint, [EVENTS[event] for event in endpoint.events if event in EVENTS])
            for endpoint in WebhookEndpoint.objects.filter(study=study)
        ],
        "list": found,
    }
    return render_page(request, study, "staff/webhooks/webhooks.html", context)


def _made(request: SignedInRequest, study: Study, form: WebhookForm) -> MadeEndpoint | None:
    with faults_in(form):
        return endpoint_create(study=study, acting_user=request.user, **form.cleaned_data)
    return None


@require_POST
@study_page("consent.manage_webhooks")
def webhook_test(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Send a test event."""
    endpoint_test(endpoint=get_object_or_404(WebhookEndpoint, study=study, pk=pk))
    messages.success(request, _("A test message is on its way. Reload the list of deliveries soon to see the result."))
    return redirect("staff:webhooks", study.slug)


@study_form("consent.manage_webhooks")
def webhook_removal(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Ask for confirmation, then remove a webhook."""
    endpoint = get_object_or_404(WebhookEndpoint, study=study, pk=pk)
    if request.method == "POST":
        endpoint_remove(endpoint=endpoint, acting_user=request.user)
        messages.success(request, _("Webhook removed."))
        return redirect("staff:webhooks", study.slug)
    return render_page(request, study, "staff/webhooks/remove.html", {"endpoint": endpoint})
