"""Form to issue invitations."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from consent.services.invitations import Invited, invited_read

#: More letters than this make a page that browsers print badly; the command has no such limit.
MOST = 500


class InvitationsForm(forms.Form):
    """Form to issue invitations: pseudonyms, one a line, and open places."""

    pseudonyms = forms.CharField(
        label=_("Pseudonyms"),
        required=False,
        help_text=_(
            "One a line, as in the data. Unknown ones become data holders. Where somebody else answers for some of "
            "them, begin with the line pseudonym,answers,until and write rows such as P-17,guardian,2031-05-04 (a "
            "parent or guardian until the day on which the person comes of age), P-18,proxy or P-19,person."
        ),
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}),
    )
    open_places = forms.IntegerField(
        label=_("Open places"),
        required=False,
        initial=0,
        min_value=0,
        max_value=MOST,
        help_text=_("Invitations for people not known yet: whoever opens one becomes a new data holder."),
    )
    replace = forms.BooleanField(
        label=_("Replace earlier invitations"),
        required=False,
        help_text=_("Where a letter got lost: the old link opens nothing any more."),
    )

    def clean(self) -> dict[str, Any]:
        pseudonyms: list[Invited] = []
        try:
            pseudonyms = invited_read(self.cleaned_data.get("pseudonyms", "").splitlines())
        except ValidationError as error:
            self.add_error("pseudonyms", error)
        places = self.cleaned_data.get("open_places") or 0
        if not self.errors and not 0 < len(pseudonyms) + places <= MOST:
            raise ValidationError(
                _("Give a pseudonym or an open place, and at most %(most)d together. The command “invite” makes more.")
                % {"most": MOST}
            )
        return {**self.cleaned_data, "pseudonyms": pseudonyms, "open_places": places}


class LinkForm(forms.Form):
    """Form for a new link in place of a lost one: pseudonym and reason."""

    pseudonym = forms.CharField(label=_("Pseudonym"), max_length=200)
    reason = forms.CharField(
        label=_("Reason"),
        max_length=500,
        help_text=_(
            "Why a new link is needed, and how you made sure that it is this person who asks. It is kept with your "
            "name for good."
        ),
    )
