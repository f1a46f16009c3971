"""What holders are told: the versions, and a new one."""

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.safestring import SafeString
from django.utils.translation import get_language_info
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from consent import selectors, services
from consent.models import ConsentForm, Study
from consent.rendering import markdown_html
from ipate_web.requests import SignedInRequest
from training.forms.studies import ConsentFormForm
from training.views.pages import render_page, study_page


def _rendered(texts: dict[str, str]) -> list[tuple[str, str, SafeString]]:
    """(code, name, HTML) of each language that has a text."""
    names = {code: get_language_info(code)["name_translated"] for code, _name in settings.LANGUAGES}
    return [(code, names.get(code, code), markdown_html(text)) for code, text in texts.items()]


@require_safe
@study_page("consent.view_dashboard")
def consent_forms(request: SignedInRequest, study: Study) -> HttpResponse:
    """The version in force, and all before it."""
    form = selectors.consent_form_in_force(study)
    context = {
        "versions": ConsentForm.objects.filter(study=study),
        "consent_form": form,
        "texts": _rendered(form.texts) if form else [],
    }
    return render_page(request, study, "training/consent_forms.html", context)


@require_safe
@study_page("consent.view_dashboard")
def consent_form(request: SignedInRequest, study: Study, version: int) -> HttpResponse:
    """One version, as it was published."""
    form = get_object_or_404(ConsentForm, study=study, version=version)
    context = {
        "consent_form": form,
        "in_force": form == selectors.consent_form_in_force(study),
        "texts": _rendered(form.texts),
    }
    return render_page(request, study, "training/consent_form.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.publish_consentform")
def consent_form_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Write, look at it as holders will see it, publish."""
    latest = selectors.consent_form_in_force(study)
    form = ConsentFormForm(request.POST or None, initial=latest.texts if latest else None)
    if form.is_valid() and "change" not in request.POST:
        if "confirmed" in request.POST:
            published = services.consent_form_publish(study=study, acting_user=request.user, texts=form.texts)
            messages.success(
                request, _("Version %(version)d is published; holders read it now.") % {"version": published.version}
            )
            return redirect("training:consent_forms", study.slug)
        context = {"form": form, "latest": latest, "texts": _rendered(form.texts)}
        return render_page(request, study, "training/consent_form_check.html", context)
    context = {"form": form, "latest": latest}
    return render_page(request, study, "training/consent_form_new.html", context, status=422 if form.errors else 200)
