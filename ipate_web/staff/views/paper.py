"""Pages to record decisions on paper, one by one or as a list."""

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from common.requests import SignedInRequest
from consent.forms import options
from consent.languages import own_name
from consent.models import Study
from consent.rendering import consent_text
from consent.selectors import consent_form_in_force, policy_in_force
from consent.services.paper import PaperError, paper_consents_record
from ipate_web.staff.forms.paper import PaperConsentForm, PaperListForm
from ipate_web.staff.views.pages import render_page, study_page


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.record_paper_consents")
def paper_consent(request: SignedInRequest, study: Study) -> HttpResponse:
    """Record one decision with its scan."""
    form = PaperConsentForm(request.POST or None, request.FILES or None, study=study)
    if form.is_valid() and _recorded(request, study, form, dry_run=False):
        return redirect("staff:paper_consent", study.slug)
    return render_page(
        request, study, "staff/people/paper_consent.html", {"form": form}, status=422 if form.errors else 200
    )


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.record_paper_consents")
def paper_list(request: SignedInRequest, study: Study) -> HttpResponse:
    """Check or record a list of decisions with their scans, all or none."""
    form = PaperListForm(request.POST or None, request.FILES or None)
    if form.is_valid() and _recorded(request, study, form, dry_run="record" not in request.POST):
        return redirect("staff:paper_list", study.slug)
    context = {"form": form}
    return render_page(request, study, "staff/people/paper_list.html", context, status=422 if form.errors else 200)


@require_safe
@study_page("consent.record_paper_consents")
def paper_blank(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show the form in force to be printed and signed, in a language of the reader's choice."""
    consent_form, policy = consent_form_in_force(study), policy_in_force(study)
    if consent_form is None or policy is None or study.is_closed:
        messages.info(request, _("There is nothing to sign: the study asks nobody at the moment."))
        return redirect("staff:paper_consent", study.slug)
    text = consent_text(consent_form, request.GET.get("text") or get_language() or "")
    is_of_the_site = text.language in dict(settings.LANGUAGES)
    context = {
        "consent_form": consent_form,
        "policy": policy,
        "text": text,
        "shown": text.language if is_of_the_site else settings.LANGUAGE_CODE,
        "options": options(policy, study.delta),
        "other_texts": [(code, own_name(code)) for code in consent_form.texts if code != text.language],
    }
    return render_page(request, study, "staff/people/paper_blank.html", context)


def _recorded(request: SignedInRequest, study: Study, form: PaperConsentForm | PaperListForm, *, dry_run: bool) -> bool:
    """Record the decisions of the form, or add the errors to it."""
    consents, scans = form.decision()
    try:
        number = paper_consents_record(
            study=study, consents=consents, scans=scans, acting_user=request.user, dry_run=dry_run
        )
    except PaperError as error:
        form.add_error(None, ValidationError([str(problem) for problem in error.problems]))
        return False
    if dry_run:
        message = ngettext("%(n)d decision can be recorded.", "%(n)d decisions can be recorded.", number) % {
            "n": number
        }
        messages.success(request, message + " " + _("Nothing is recorded yet: choose the files again and record them."))
    else:
        message = ngettext("%(n)d decision is recorded.", "%(n)d decisions are recorded.", number)
        messages.success(request, message % {"n": number})
    return True
