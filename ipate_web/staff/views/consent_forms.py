"""Pages of the consent form: versions, differences, draft, publication."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import override
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounting.head_counts import people_counted
from common.requests import SignedInRequest
from consent import selectors, services
from consent.differences import Line, line_differences
from consent.languages import translated_name
from consent.models import ConsentForm, ConsentFormDraft, ConsentFormProposal, Renewal, Study
from consent.rendering import markdown_html
from consent.views.decision import page_preview
from ipate_web.staff.forms.studies import ConsentFormForm, PublicationForm
from ipate_web.staff.views.pages import render_page, study_page
from ipate_web.staff.views.remarks import remark_form, remark_made


def _rendered(texts: dict[str, str]) -> list[tuple[str, str, SafeString]]:
    """(code, name, HTML) of each language that has a text."""
    return [(code, translated_name(code), markdown_html(text)) for code, text in texts.items()]


def _differences(older: dict[str, str], newer: dict[str, str]) -> list[tuple[str, str, list[Line], bool]]:
    """(code, name, lines, whether they read alike) of each language that has a text, without unchanged ones."""
    differences = []
    for code in {**newer, **older}:
        if newer.get(code) != older.get(code):
            lines = line_differences(older.get(code, ""), newer.get(code, ""))
            differences.append((code, translated_name(code), lines, all(line.change == "same" for line in lines)))
    return differences


@require_safe
@study_page("consent.view_dashboard")
def consent_forms(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the versions of the consent form."""
    form = selectors.consent_form_in_force(study)
    context = {
        "versions": ConsentForm.objects.filter(study=study).select_related("published_by", "proposed_by"),
        "consent_form": form,
        "texts": _rendered(form.texts) if form else [],
        "draft": ConsentFormDraft.objects.filter(study=study).select_related("saved_by").first(),
        "waiting": selectors.forms_waiting(study),
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
    context = {
        "form": form,
        "latest": latest,
        "draft": draft,
        "texts": _rendered(form.texts),
        "saved": _rendered(draft.texts) if draft else [],
    }
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
    """Show the draft's differences and the consequence for earlier consents; publish the draft, or propose it."""
    draft = ConsentFormDraft.objects.filter(study=study).first()
    if draft is None:
        return redirect("staff:consent_form_new", study.slug)
    latest = selectors.consent_form_in_force(study)
    form = PublicationForm(request.POST or None, draft=draft, latest=latest)
    if form.is_valid():
        try:
            messages.success(request, _published(study, request.user, draft, form))
        except ValidationError as error:
            form.add_error(None, ValidationError(error.messages))
        else:
            return redirect("staff:consent_forms", study.slug)
    context: dict[str, Any] = {
        "form": form,
        "latest": latest,
        "affected": people_counted(study),
        "texts": _rendered(draft.texts),
        "differences": _differences(latest.texts, draft.texts) if latest else [],
    }
    return render_page(request, study, "staff/consent/publish.html", context, status=422 if form.errors else 200)


def _published(study: Study, user: AbstractBaseUser, draft: ConsentFormDraft, decided: PublicationForm) -> str:
    """Publish or propose the draft, and say so. Raises ValidationError."""
    if decided.decision == Renewal.NOT_ASKED:
        form = services.consent_form_publish(study=study, acting_user=user, texts=draft.texts, valid=decided.valid)
        return _("Version %(version)d is published; holders read it now.") % {"version": form.version}
    services.consent_form_propose(
        study=study, acting_user=user, texts=draft.texts, renewal=decided.decision, valid=decided.valid
    )
    return _("The form is proposed. Holders read it once a second person of the ethics committee approves it.")


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.publish_consentform")
def consent_form_proposal(request: SignedInRequest, study: Study, sequence: int) -> HttpResponse:
    """Show what a form that asks people again changes and whom it affects; approve, reject or comment on it."""
    proposal = get_object_or_404(ConsentFormProposal, study=study, sequence=sequence)
    remark = remark_form(request)
    if request.method == "POST" and not request.user.has_perm("consent.approve_consentform", study):
        raise PermissionDenied
    if remark_made(request, proposal, remark):
        return redirect("staff:consent_form_proposal", study.slug, sequence)
    if request.method == "POST" and not remark.is_bound:
        try:
            form = services.consent_form_approve(proposal=proposal, acting_user=request.user)
        except ValidationError as error:
            messages.error(request, " ".join(error.messages))
        else:
            told = _("Version %(version)d is published; holders read it now.") % {"version": form.version}
            messages.success(request, told)
        return redirect("staff:consent_forms", study.slug)
    before = ConsentForm.objects.get(study=study, version=proposal.follows)
    context = {
        "proposal": proposal,
        "before": before,
        "affected": people_counted(study),
        "is_own": proposal.proposed_by_id == request.user.pk,
        "is_waiting": selectors.is_waiting(proposal),
        "published": ConsentForm.objects.filter(proposal=proposal).first(),
        "texts": _rendered(proposal.texts),
        "differences": _differences(before.texts, proposal.texts),
        "remark": remark,
        "remarks": proposal.remarks.select_related("made_by"),
    }
    return render_page(request, study, "staff/consent/proposal.html", context, status=422 if remark.errors else 200)


@require_safe
@study_page("consent.publish_consentform")
def consent_form_as_read(request: SignedInRequest, study: Study, language: str) -> HttpResponse:
    """Show the draft, or the proposal that ``?proposal=`` names, on the page that holders will read."""
    sequence, valid = request.GET.get("proposal", ""), services.FOR_GOOD
    if sequence.isdigit():
        proposal = get_object_or_404(ConsentFormProposal, study=study, sequence=int(sequence))
        texts, valid = proposal.texts, services.Valid.of(proposal)
    else:
        draft = ConsentFormDraft.objects.filter(study=study).first()
        if draft is None:
            return redirect("staff:consent_form_new", study.slug)
        texts = draft.texts
    if language not in texts:
        raise Http404
    policy = selectors.policy_in_force(study)
    if policy is None:
        messages.warning(request, _("The page shows the odds of each level. Approve an ε policy first."))
        return redirect("staff:policies", study.slug)
    latest = selectors.consent_form_in_force(study)
    version = latest.version + 1 if latest else 1
    form = ConsentForm(version=version, texts=texts, valid_months=valid.months, valid_until=valid.until)
    with override(language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE):
        return render(request, "consent/study.html", page_preview(study, form, policy, language))
