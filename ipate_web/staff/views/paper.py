"""Pages to record decisions on paper, one by one or as a list."""

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from common.requests import SignedInRequest
from consent.models import Study
from consent.paper_documents import FormsOnPaper, paper_forms_pdf
from consent.services.paper import PaperError, paper_consents_record
from ipate_web.staff.forms.paper import PaperConsentForm, PaperFormForm, PaperListForm
from ipate_web.staff.views.pages import faults_in, pdf_answer, render_page, study_form
from ipate_web.staff.views.persons import person_page


@study_form("consent.record_paper_consents")
def paper_consent(request: SignedInRequest, study: Study) -> HttpResponse:
    """Record one decision with its scan."""
    form = PaperConsentForm(request.POST or None, request.FILES or None, study=study)
    if request.method == "POST" and set(form.errors) <= {"scan"}:
        with faults_in(form):
            page = person_page(
                request,
                study,
                form,
                action=_("Yes, record it"),
                effects=[_("The decision counts from now on. It is kept with your name and the scan.")],
                back=reverse("staff:paper_consent", args=[study.slug]),
                files=["scan"],
            )
            if page is not None:
                return page
            if _recorded(request, study, form, dry_run=False):
                return redirect("staff:paper_consent", study.slug)
    del form.fields["scan"]  # the page that shows the person asks for it
    return render_page(request, study, "staff/people/paper_consent.html", {"form": form})


@study_form("consent.record_paper_consents")
def paper_list(request: SignedInRequest, study: Study) -> HttpResponse:
    """Check or record a list of decisions with their scans, all or none."""
    form = PaperListForm(request.POST or None, request.FILES or None)
    tries, stays = "record" not in request.POST, "HX-Request" in request.headers
    if form.is_valid() and _recorded(request, study, form, dry_run=tries) and not (tries and stays):
        return redirect("staff:paper_list", study.slug)
    context = {"form": form}
    if tries and stays:  # a part of the page, so that the form keeps its files
        return render(request, "staff/people/paper_tried.html", context)
    return render_page(request, study, "staff/people/paper_list.html", context)


@study_form("consent.record_paper_consents")
def paper_blank(request: SignedInRequest, study: Study) -> HttpResponse:
    """Ask which form on paper is needed, and make it as PDF, to be printed and signed."""
    try:
        forms = FormsOnPaper(study)
    except LookupError:
        messages.info(request, _("There is nothing to sign: the study asks nobody at the moment."))
        return redirect("staff:paper_consent", study.slug)
    form = PaperFormForm(request.POST or None, study=study, consent_form=forms.form, language=get_language() or "")
    if form.is_valid():
        pdf = paper_forms_pdf(forms, [form.written], form.cleaned_data["answer_by"])
        return pdf_answer(pdf, f"form-{study.slug}.pdf", is_saved="save" in request.POST)
    context = {"form": form}
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
        stays = "HX-Request" in request.headers
        rest = (
            _("Nothing is recorded yet.")
            if stays
            else _("Nothing is recorded yet: choose the files again and record them.")
        )
        messages.success(request, f"{message} {rest}")
    else:
        message = ngettext("%(n)d decision is recorded.", "%(n)d decisions are recorded.", number)
        messages.success(request, message % {"n": number})
    return True
