"""Forms to record decisions made on paper."""

import io
from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from consent.models import Level, Study
from consent.services.paper import NOT_TAKING_PART, PaperConsent, PaperError, paper_list_read


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
    form_version = forms.TypedChoiceField(label=_("Version of the form that they signed"), coerce=int)
    signed_on = forms.DateField(label=_("Signed on"), widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"))
    scan = forms.FileField(label=_("Scan"), help_text=_("PDF, PNG or JPEG, up to 20 MB. It is kept privately."))

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        versions = study.consent_forms.values_list("version", flat=True)
        self.fields["form_version"].choices = [(version, version) for version in versions]  # type: ignore[attr-defined]

    def decision(self) -> tuple[Sequence[PaperConsent], dict[str, bytes]]:
        """List of the one decision, and its scan by name; the form is valid."""
        data = self.cleaned_data
        scan: UploadedFile = data["scan"]
        consent = PaperConsent(
            0, data["pseudonym"], data["level"], data["form_version"], data["signed_on"], scan.name or ""
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
            return paper_list_read(io.StringIO(self.cleaned_data["list"].read().decode("utf-8-sig"), newline=""))
        except UnicodeDecodeError as error:
            raise ValidationError(_("The list is not UTF-8. Save it as “CSV UTF-8”.")) from error
        except PaperError as error:
            raise ValidationError([str(problem) for problem in error.problems]) from error

    def decision(self) -> tuple[Sequence[PaperConsent], dict[str, bytes]]:
        """Decisions, and scans by name; the form is valid."""
        return self.cleaned_data["list"], {scan.name: scan.read() for scan in self.cleaned_data["scans"]}
