"""Forms of the ethics committee's page."""

from typing import Any

from django import forms
from django.conf import settings
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from consent.languages import translated_name
from consent.models import ConflictOfInterest, Study
from consent.models.studies import HARM_LENGTH


class HarmForm(forms.Form):
    """Form for the study's example of harm, one field for each language."""

    def __init__(self, data: Any = None, *, study: Study) -> None:
        super().__init__(data)
        codes = dict.fromkeys([*study.languages, *(code for code, _name in settings.LANGUAGES)])
        self.codes = list(codes)
        for code in self.codes:
            harm = study.translations.get(code, {}).get("harm", "")
            self.fields[f"harm_{code}"] = forms.CharField(
                label=f"{capfirst(Study._meta.get_field('harm').verbose_name)} ({translated_name(code)})",
                required=code in study.languages,
                max_length=HARM_LENGTH,
                initial=study.harm if code == settings.LANGUAGE_CODE else harm,
                help_text=Study._meta.get_field("harm").help_text if code == self.codes[0] else "",
                widget=forms.Textarea(attrs={"rows": 3, "lang": code}),
            )

    @property
    def texts(self) -> dict[str, str]:
        """Example by language code; the form is valid."""
        return {code: self.cleaned_data[f"harm_{code}"] for code in self.codes}


class QuorumForm(forms.Form):
    """Form for the number of approvals that a proposal needs."""

    quorum = forms.IntegerField(
        label=capfirst(Study._meta.get_field("quorum").verbose_name),
        min_value=1,
        max_value=9,
        help_text=Study._meta.get_field("quorum").help_text,
    )


class ConflictForm(forms.Form):
    """Form to declare a conflict of interest."""

    reason = forms.CharField(
        label=capfirst(ConflictOfInterest._meta.get_field("reason").verbose_name),
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_(
            "It stays on record with your name and cannot be taken back. You approve nothing here from then on."
        ),
    )
