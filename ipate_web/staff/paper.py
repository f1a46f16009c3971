"""Pages for decisions on paper: the blank form, one decision, and a list of decisions."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import get_language, gettext_lazy, ngettext
from django.utils.translation import gettext as _

from common.identities import spelling
from common.requests import SignedInRequest
from consent.documents.letters import FormsOnPaper, FormWritten, paper_forms_pdf
from consent.languages import own_name
from consent.models import Authority, ConsentForm, Level, Study
from consent.people.circumstances import answering_for
from consent.people.pseudonyms import holder_by_pseudonym, unknown_message
from consent.services.paper import (
    KEEP,
    NOT_TAKING_PART,
    PaperConsent,
    PaperError,
    paper_consents_record,
    paper_list_read,
)
from ipate_web.lists import DayField
from ipate_web.staff.pages import faults_in, pdf_answer, render_page, study_form
from ipate_web.staff.people import person_page


class PaperFormForm(forms.Form):
    """Form to create a paper form: its text, the person it is for, and a deadline for the answer."""

    text = forms.ChoiceField(
        label=gettext_lazy("Language and kind of text"),
        help_text=gettext_lazy(
            "The whole form is in this language if the site supports it. Choose the text that the person will read."
        ),
    )
    pseudonym = forms.CharField(
        label=gettext_lazy("Pseudonym"),
        max_length=200,
        required=False,
        help_text=gettext_lazy(
            "Leave empty to let people write it on the form. If you enter it, the form names the person. If a "
            "guardian or proxy answers for this person, the form says so and has room to declare the right to decide."
        ),
    )
    answer_by = DayField(
        label=gettext_lazy("Please answer by"),
        required=False,
        help_text=gettext_lazy(
            "Appears on the form. People can still answer after this day. Leave empty if you do not want to give a "
            "date."
        ),
    )

    def __init__(self, data: Any = None, *, study: Study, consent_form: ConsentForm, language: str) -> None:
        texts = consent_form.texts
        super().__init__(data, initial={"text": language if language in texts else next(iter(texts))})
        self.study = study
        self.fields["text"].choices = [(code, own_name(code)) for code in texts]  # type: ignore[attr-defined]

    def clean_pseudonym(self) -> str:
        name: str = self.cleaned_data["pseudonym"]
        self.holder = holder_by_pseudonym(self.study, name) if name else None
        if name and self.holder is None:
            raise ValidationError(unknown_message(name))
        if self.holder and not answering_for(self.holder).consents:
            raise ValidationError(
                gettext_lazy(
                    "There is no form for this person, who is recorded as having died or being unable to decide."
                )
            )
        return spelling(name)

    @property
    def written(self) -> FormWritten:
        """Return the paper form that the valid form requests."""
        if self.holder is None:
            return FormWritten(self.cleaned_data["text"])
        return FormWritten(self.cleaned_data["text"], self.cleaned_data["pseudonym"], answering_for(self.holder))


class PaperConsentForm(forms.Form):
    """Form for one decision and its scan."""

    pseudonym = forms.CharField(label=gettext_lazy("Pseudonym"), max_length=200)
    level = forms.ChoiceField(
        label=gettext_lazy("Decision on the form"),
        choices=[
            *((level.value, capfirst(level.label)) for level in Level),
            (NOT_TAKING_PART, gettext_lazy("The person does not take part")),
        ],
        widget=forms.RadioSelect,
    )
    weaker = forms.BooleanField(
        label=gettext_lazy("The person ticked the box to accept weaker protection than promised"),
        required=False,
        help_text=gettext_lazy("If you don't tick this, people keep any stronger protection they were promised."),
    )
    authority = forms.ChoiceField(
        label=gettext_lazy("Right to decide for this person"),
        choices=[("", gettext_lazy("the person signed themselves")), *Authority.choices],
        required=False,
        help_text=gettext_lazy(
            "For a parent, guardian or proxy who agrees: the right ticked on the form. The box for the statement "
            "must also be ticked."
        ),
    )
    form_version = forms.TypedChoiceField(label=gettext_lazy("Version of the signed form"), coerce=int)
    text = forms.ChoiceField(
        label=gettext_lazy("Text of the signed form"),
        required=False,
        help_text=gettext_lazy("It is printed at the bottom of the form."),
    )
    signed_on = DayField(label=gettext_lazy("Signed on"))
    scan = forms.FileField(
        label=gettext_lazy("Scan"), help_text=gettext_lazy("PDF, PNG or JPEG, up to 20 MB. It is stored privately.")
    )

    keep = forms.BooleanField(
        label=gettext_lazy("The person asked in writing to keep their records"),
        required=False,
        help_text=gettext_lazy(
            "Only for a person who withdraws. Otherwise their stored records will be erased within a day."
        ),
    )

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        published = list(study.consent_forms.all())
        self.fields["form_version"].choices = [(form.version, form.version) for form in published]  # type: ignore[attr-defined]
        codes = dict.fromkeys(code for form in published for code in form.texts)
        self.fields["text"].choices = [("", gettext_lazy("not known")), *((code, own_name(code)) for code in codes)]  # type: ignore[attr-defined]

    def decision(self) -> tuple[Sequence[PaperConsent], dict[str, bytes]]:
        """Return a list that contains the decision, and its scan by name; the form must be valid."""
        data = self.cleaned_data
        scan: UploadedFile = data["scan"]
        consent = PaperConsent(
            0,
            data["pseudonym"],
            data["level"],
            data["form_version"],
            data["signed_on"],
            scan.name or "",
            records=KEEP if data["keep"] and data["level"] == NOT_TAKING_PART else "",
            weaker=data["weaker"],
            authority=data["authority"],
            text=data["text"],
        )
        return [consent], {consent.evidence: scan.read()}


class _ManyFilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class _ManyFilesField(forms.FileField):
    widget = _ManyFilesInput

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile]:
        files = data if isinstance(data, (list, tuple)) else [data]
        return [super(_ManyFilesField, self).clean(file, initial) for file in files]


class PaperListForm(forms.Form):
    """Form for a list of decisions and their scans."""

    list = forms.FileField(
        label=gettext_lazy("List"),
        help_text=gettext_lazy(
            "A CSV file (UTF-8) with the columns pseudonym, level, form_version, signed_on, evidence."
        ),
    )
    scans = _ManyFilesField(
        label=gettext_lazy("Scans"),
        help_text=gettext_lazy(
            "The files named in the column “evidence”, at most 100. Several rows can name the same file."
        ),
    )

    def clean_list(self) -> Sequence[PaperConsent]:
        try:
            return paper_list_read(self.cleaned_data["list"].read())
        except PaperError as error:
            raise ValidationError([str(problem) for problem in error.problems]) from error

    def decision(self) -> tuple[Sequence[PaperConsent], dict[str, bytes]]:
        """Return the decisions, and the scans by name; the form must be valid."""
        return self.cleaned_data["list"], {scan.name: scan.read() for scan in self.cleaned_data["scans"]}


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
                effects=[_("The decision applies from now on. It is stored with your name and the scan.")],
                back=reverse("staff:paper_consent", args=[study.slug]),
                files=["scan"],
            )
            if page is not None:
                return page
            if _recorded(request, study, form, dry_run=False):
                return redirect("staff:paper_consent", study.slug)
    del form.fields["scan"]  # the page that shows the person has this field
    return render_page(request, study, "staff/people/paper_consent.html", {"form": form})


@study_form("consent.record_paper_consents")
def paper_list(request: SignedInRequest, study: Study) -> HttpResponse:
    """Check or record a list of decisions with their scans, either all or none."""
    form = PaperListForm(request.POST or None, request.FILES or None)
    tries, stays = "record" not in request.POST, "HX-Request" in request.headers
    if form.is_valid() and _recorded(request, study, form, dry_run=tries) and not (tries and stays):
        return redirect("staff:paper_list", study.slug)
    context = {"form": form}
    if tries and stays:  # return only part of the page, so that the form keeps its files
        return render(request, "staff/people/paper_tried.html", context)
    return render_page(request, study, "staff/people/paper_list.html", context)


@study_form("consent.record_paper_consents")
def paper_blank(request: SignedInRequest, study: Study) -> HttpResponse:
    """Ask which paper form is needed, and create it as a PDF to be printed and signed."""
    try:
        forms = FormsOnPaper(study)
    except LookupError:
        messages.info(
            request, _("There is nothing to sign, because the study is not asking anyone for consent at the moment.")
        )
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
            _("Nothing has been recorded yet.")
            if stays
            else _("Nothing has been recorded yet. Choose the files again and record them.")
        )
        messages.success(request, f"{message} {rest}")
    else:
        message = ngettext("%(n)d decision was recorded.", "%(n)d decisions were recorded.", number)
        messages.success(request, message % {"n": number})
    return True
