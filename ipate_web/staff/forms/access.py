"""Forms to request one holder's choice, and to check a receipt."""

import re

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from consent.codes import code_faults
from consent.receipts import GROUPS


class LevelAccessForm(forms.Form):
    """Form for access to one holder's choice: pseudonym and reason."""

    pseudonym = forms.CharField(label=_("Pseudonym"), max_length=200)
    reason = forms.CharField(
        label=_("Reason"),
        max_length=500,
        help_text=_("Why you have to see it, such as: they called and asked. It is kept with your name for good."),
    )


class ReceiptForm(forms.Form):
    """Form for a receipt's number, or the code that was read out; it says which group of a code is wrong."""

    number = forms.CharField(
        label=_("Code or number of the receipt"),
        max_length=100,
        help_text=_("Three groups of five letters and digits, as somebody reads them out, or the 64 digits."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )

    def clean_number(self) -> str:
        number = "".join(self.cleaned_data["number"].split()).lower()
        if re.fullmatch("[0-9a-f]{64}", number):
            return number
        if faults := code_faults(self.cleaned_data["number"], GROUPS):
            raise ValidationError(faults)
        return number
