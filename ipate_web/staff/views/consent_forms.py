"""Pages of the consent form: versions, differences, draft, publication."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from common.requests import SignedInRequest
from consent import selectors, services
from consent.differences import Line, line_differences
from consent.languages import translated_name
from consent.models import ConsentForm, ConsentFormDraft, Study
from consent.rendering import markdown_html
from ipate_web.staff.forms.studies import ConsentFormForm, PublicationForm
from ipate_web.staff.views.pages import render_page, study_page


def _rendered(texts: dict[str, str]) -> list[tuple[str, str, SafeString]]:
    """(code, name, HTML) of each language that has a text."""
    return [(code, translated_name(code), markdown_html(text)) for code, text in texts.items()]


def _differences(older: dict[str, str], newer: dict[str, str]) -> list[tuple[str, str, list[Line]]]:
    """(code, name, lines) of each language that has a text in one of the versions, without unchanged ones."""
    codes = [code for code in {**newer, **older} if newer.get(code) != older.get(code)]
    return [(code, translated_name(code), line_differences(older.get(code, ""), newer.get(code, ""))) for code in codes]


@require_safe
@study_page("consent.view_dashboard")
def consent_forms(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the versions of the consent form."""
    form = selectors.consent_form_in_force(study)
    context = {
        "versions": ConsentForm.objects.filter(study=study).select_related("published_by"),
        "consent_form": form,
        "texts": _rendered(form.texts) if form else [],
        "draft": ConsentFormDraft.objects.filter(study=study).select_related("saved_by").first(),
    }
    return render_page(request, study, "staff/consent/forms.html", context)


@require_safe
@study_page("consent.view_dashboard")
def consent_form(request: SignedInRequest, study: Study, version: int) -> HttpResponse:
    """Show one published version and its differences from the one before."""
    form = get_object_or_404(ConsentForm, study=study, version=version)
    before = ConsentForm.objects.filter(study=study, version=version - 1).first()
    context = {
        "consent_form": form,
        "before": before,
        "in_force": form == selectors.consent_form_in_force(study),
        "texts": _rendered(form.texts),
        "differences": _differences(before.texts, form.texts) if before else [],
    }
    return render_page(request, study, "staff/consent/form.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.publish_consentform")
def consent_form_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Edit the draft, with a preview; save it, or go on to publish it."""
    draft = ConsentFormDraft.objects.filter(study=study).first()
    latest = selectors.consent_form_in_force(study)
    written = draft.texts if draft else latest.texts if latest else {}
    form = ConsentFormForm(request.POST or None, study=study, draft=draft, acting_user=request.user, initial=written)
    if form.is_valid():
        services.consent_form_draft_save(study=study, acting_user=request.user, texts=form.texts)
        if "publish" in request.POST:
            return redirect("staff:consent_form_publish", study.slug)
        messages.success(request, _("The draft is saved. Holders do not see it."))
        return redirect("staff:consent_form_new", study.slug)
    context = {"form": form, "latest": latest, "draft": draft, "texts": _rendered(form.texts)}
    return render_page(request, study, "staff/consent/new.html", context, status=422 if form.errors else 200)


@require_POST
@study_page("consent.publish_consentform")
def consent_form_preview(request: SignedInRequest, study: Study) -> HttpResponse:
    """Preview of the draft, which htmx replaces while somebody types."""
    texts = _rendered(ConsentFormForm(request.POST, study=study, draft=None, acting_user=request.user).texts)
    return render(request, "staff/consent/texts.html", {"texts": texts})


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.publish_consentform")
def consent_form_publish(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show the draft's differences and the consequence for earlier consents, and publish it."""
    draft = ConsentFormDraft.objects.filter(study=study).first()
    if draft is None:
        return redirect("staff:consent_form_new", study.slug)
    latest = selectors.consent_form_in_force(study)
    form = PublicationForm(request.POST or None, draft=draft, latest=latest)
    if form.is_valid():
        try:
            published = services.consent_form_publish(
                study=study, acting_user=request.user, texts=draft.texts, **form.decision
            )
        except ValidationError as error:
            form.add_error(None, ValidationError(error.messages))
        else:
            messages.success(
                request, _("Version %(version)d is published; holders read it now.") % {"version": published.version}
            )
            return redirect("staff:consent_forms", study.slug)
    context: dict[str, Any] = {
        "form": form,
        "latest": latest,
        "texts": _rendered(draft.texts),
        "differences": _differences(latest.texts, draft.texts) if latest else [],
    }
    return render_page(request, study, "staff/consent/publish.html", context, status=422 if form.errors else 200)
