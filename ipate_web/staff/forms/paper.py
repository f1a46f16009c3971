"""Forms to record decisions made on paper."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from common.identities import spelling
from consent.circumstances import answering_for
from consent.languages import own_name
from consent.models import Authority, ConsentForm, Level, Study
from consent.paper_documents import FormWritten
from consent.pseudonyms import holder_by_pseudonym, unknown_message
from consent.services.paper import KEEP, NOT_TAKING_PART, PaperConsent, PaperError, paper_list_read
from ipate_web.staff.forms.fields import DayField


class PaperFormForm(forms.Form):
    """Form to make a form on paper: in which text, for whom, and a day to answer by."""

    text = forms.ChoiceField(
        label=_("Language and kind of text"),
        help_text=_("The whole form is in this language, where the site speaks it. Hand out the one that is read."),
    )
    pseudonym = forms.CharField(
        label=_("Pseudonym"),
        max_length=200,
        required=False,
        help_text=_(
            "Empty: people write it on the form. With it the form names the person; where a guardian or proxy answers "
            "for them, it speaks about the person and has room for the declaration of their right."
        ),
    )
    answer_by = DayField(
        label=_("Please answer by"),
        required=False,
        help_text=_("Stands on the form. After it people can still answer. Empty: the form names no day."),
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
            raise ValidationError(_("It is on record that this person has died or cannot decide: there is no form."))
        return spelling(name)

    @property
    def written(self) -> FormWritten:
        """The form on paper that the valid form asks for."""
        if self.holder is None:
            return FormWritten(self.cleaned_data["text"])
        return FormWritten(self.cleaned_data["text"], self.cleaned_data["pseudonym"], answering_for(self.holder))


class PaperConsentForm(forms.Form):
    """Form for one decision and its scan."""

    pseudonym = forms.CharField(label=_("Pseudonym"), max_length=200)
    level = forms.ChoiceField(
        label=_("What they chose"),
        choices=[
            *((level.value, capfirst(level.label)) for level in Level),
            (NOT_TAKING_PART, _("They do not take part")),
        ],
        widget=forms.RadioSelect,
    )
    weaker = forms.BooleanField(
        label=_("They marked the box that they accept weaker protection than they were promised"),
        required=False,
        help_text=_("Without this mark, whoever was promised more before keeps that promise."),
    )
    authority = forms.ChoiceField(
        label=_("By which right somebody else decided"),
        choices=[("", _("the person signed themselves")), *Authority.choices],
        required=False,
        help_text=_(
            "Of a parent, guardian or proxy who agrees: what they marked on the form. The box of the statement must be "
            "marked, too."
        ),
    )
    form_version = forms.TypedChoiceField(label=_("Version of the form that they signed"), coerce=int)
    text = forms.ChoiceField(
        label=_("Text of the form that they signed"), required=False, help_text=_("It stands at the foot of the form.")
    )
    signed_on = DayField(label=_("Signed on"))
    scan = forms.FileField(label=_("Scan"), help_text=_("PDF, PNG or JPEG, up to 20 MB. It is kept privately."))

    keep = forms.BooleanField(
        label=_("They wrote that their records stay stored"),
        required=False,
        help_text=_("Of somebody who withdraws. Otherwise their stored records are erased within a day."),
    )

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        published = list(study.consent_forms.all())
        self.fields["form_version"].choices = [(form.version, form.version) for form in published]  # type: ignore[attr-defined]
        codes = dict.fromkeys(code for form in published for code in form.texts)
        self.fields["text"].choices = [("", _("not known")), *((code, own_name(code)) for code in codes)]  # type: ignore[attr-defined]

    def decision(self) -> tuple[Sequence[PaperConsent], dict[str, bytes]]:
        """List of the one decision, and its scan by name; the form is valid."""
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
        label=_("List"),
        help_text=_("A CSV file (UTF-8) with the columns pseudonym, level, form_version, signed_on, evidence."),
    )
    scans = _ManyFilesField(
        label=_("Scans"), help_text=_("The files that the column evidence names; several rows may name one. Up to 100.")
    )

    def clean_list(self) -> Sequence[PaperConsent]:
        try:
            return paper_list_read(self.cleaned_data["list"].read())
        except PaperError as error:
            raise ValidationError([str(problem) for problem in error.problems]) from error

    def decision(self) -> tuple[Sequence[PaperConsent], dict[str, bytes]]:
        """Decisions, and scans by name; the form is valid."""
        return self.cleaned_data["list"], {scan.name: scan.read() for scan in self.cleaned_data["scans"]}
