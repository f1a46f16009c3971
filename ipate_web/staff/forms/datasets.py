"""Form in which it is stated where public points come from."""

from django import forms
from django.utils.translation import gettext_lazy as _


class ProvenanceForm(forms.Form):
    """Form for where the points of a dataset come from; empty to take the statement back."""

    provenance = forms.CharField(
        label=_("Where the points come from"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=_(
            "Source, licence, and whether people who may take part can be among them. The model card of later runs "
            "says it. Whether points overlap with holders' records is not looked for."
        ),
    )
