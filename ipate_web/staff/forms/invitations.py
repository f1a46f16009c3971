"""Forms to issue invitations, and to make their letters."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.text import format_lazy
from django.utils.translation import get_language, override
from django.utils.translation import gettext_lazy as _

from consent.languages import VARIANTS, translated_name
from consent.letter_documents import LetterWritten, default_texts
from consent.models import Letterhead, Study
from consent.paper_documents import FormsOnPaper, FormWritten
from consent.people_lists import Invited, invitees_read
from consent.pseudonyms import look_alikes_in, look_alikes_said
from consent.services import study_asks_check
from consent.services.invitations import IssuedInvitation, invitations_with
from consent.services.letterheads import MOST_BYTES, logo_read
from ipate_web.staff.forms.fields import DayField

#: More letters than this make a page that browsers print badly, and a PDF that nobody waits for.
MOST = 500
#: So many are made in one transaction, in seconds; the command has no such limit.
AT_ONCE = 20_000
#: Choice of the main text for forms on paper, beside the keys of variants.
_MAIN = "main"


class InvitationsForm(forms.Form):
    """Form to issue invitations: pseudonyms, one a line, and open places."""

    pseudonyms = forms.CharField(
        label=_("Pseudonyms"),
        required=False,
        help_text=_(
            "One a line, as in the data. Unknown ones become data holders. Where somebody else answers for some of "
            "them, begin with a line of the columns that you need, such as pseudonym,answers,until,language,address, "
            "and write rows such as "
            "P-17,guardian,2031-05-04 (a parent or guardian until the day on which the person comes of age), "
            "P-18,proxy or P-19,person,,de,Erika Example; 1 Street; 12345 Town. Language and address are for the "
            "letter alone: the site does not keep them."
        ),
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}),
    )
    open_places = forms.IntegerField(
        label=_("Open places"),
        required=False,
        initial=0,
        min_value=0,
        max_value=AT_ONCE,
        help_text=_("Invitations for people not known yet: whoever opens one becomes a new data holder."),
    )
    replace = forms.BooleanField(
        label=_("Replace earlier invitations"),
        required=False,
        help_text=_("Where a letter got lost: the old link opens nothing any more."),
    )

    different = forms.BooleanField(label=_("Those that look alike are different people"), required=False)

    def __init__(self, data: Any = None, *, study: Study) -> None:
        super().__init__(data)
        self.study, self._asked = study, self.fields.pop("different")

    def clean(self) -> dict[str, Any]:
        pseudonyms: list[Invited] = []
        try:
            pseudonyms = invitees_read(self.cleaned_data.get("pseudonyms", ""))
        except ValidationError as error:
            self.add_error("pseudonyms", error)
        places = self.cleaned_data.get("open_places") or 0
        if not self.errors and not 0 < len(pseudonyms) + places <= AT_ONCE:
            raise ValidationError(
                _("Give a pseudonym or an open place, and at most %(most)d together. The command “invite” makes more.")
                % {"most": AT_ONCE}
            )
        if not self.errors:
            study_asks_check(self.study)
            self._look_alikes_check([each.pseudonym for each in pseudonyms])
        return {**self.cleaned_data, "pseudonyms": pseudonyms, "open_places": places}

    def _look_alikes_check(self, names: Sequence[str]) -> None:
        """Name new pseudonyms that look like others, and ask whether they are different people."""
        groups = look_alikes_in(self.study, names)
        if groups:
            self.fields["different"] = self._asked
        if groups and not self.data.get("different"):
            message = _("Some new pseudonyms look like others. Correct them, or tick that they are different people.")
            self.add_error("pseudonyms", [str(message), *look_alikes_said(groups)])


class LettersForm(forms.Form):
    """Form to make letters as PDF: the codes that the page before showed, the language, and a day to answer by."""

    letters = forms.JSONField(widget=forms.HiddenInput)
    language = forms.ChoiceField(
        label=_("Language of the letters"),
        help_text=_("Of those whose own language is not in the list. To have both languages, make two files."),
    )
    answer_by = DayField(
        label=_("Please answer by"),
        required=False,
        help_text=_("Stands in the letters. After it people can still answer. Empty: the letters name no day."),
    )
    paper = forms.ChoiceField(
        label=_("Form on paper behind each letter"),
        required=False,
        help_text=_(
            "To be signed and sent back by whoever does not answer on the site. It has the code of the letter."
        ),
    )

    def __init__(
        self,
        data: Any = None,
        *,
        study: Study,
        issued: Sequence[IssuedInvitation] = (),
        kind: str = "",
        auto_id: str = "id_%s",
    ) -> None:
        letters = [{"code": new.code, "language": new.language, "address": new.address, "kind": kind} for new in issued]
        super().__init__(data, initial={"letters": letters, "language": get_language()}, auto_id=auto_id)
        self.study = study
        self.fields["language"].choices = settings.LANGUAGES  # type: ignore[attr-defined]
        self._papers = _papers(study)
        kinds = {code.partition("-x-")[2] for code in self._papers.form.texts} if self._papers else set()
        self.fields["paper"].choices = [  # type: ignore[attr-defined]
            ("", _("none")),
            *([(_MAIN, _("with the main text"))] if self._papers else []),
            *((kind, format_lazy(_("with the text {}"), name)) for kind, name in VARIANTS.items() if kind in kinds),
        ]

    def clean_letters(self) -> list[dict[str, str]]:
        letters = self.cleaned_data["letters"]
        names = {"code", "language", "address", "kind"}
        if not isinstance(letters, list) or not 0 < len(letters) <= MOST:
            raise ValidationError(_("There is no letter to make."))
        for each in letters:
            if not isinstance(each, dict) or set(each) != names or not all(isinstance(v, str) for v in each.values()):
                raise ValidationError(_("There is no letter to make."))
        return letters

    @property
    def written(self) -> list[LetterWritten]:
        """Letters of the valid form, in its order, whose codes still open something."""
        letters, languages = self.cleaned_data["letters"], dict(settings.LANGUAGES)
        invitations = invitations_with(self.study, [each["code"] for each in letters])
        return [
            LetterWritten(
                invitations[each["code"]],
                each["language"] if each["language"] in languages else self.cleaned_data["language"],
                each["kind"],
                each["address"],
            )
            for each in letters
            if each["code"] in invitations
        ]

    def forms(self, written: Sequence[LetterWritten], answer_by: date | None) -> list[dict[str, Any]]:
        """Form on paper behind each letter, if the valid form asks for them, in the letter's language."""
        kind, made = self.cleaned_data["paper"], self._papers
        if not kind or made is None:
            return []
        languages = []
        for letter in written:
            variant = letter.language if kind == _MAIN else f"{letter.language}-x-{kind}"
            text = variant if variant in made.form.texts else letter.language
            new = letter.issued
            languages.append(FormWritten(text, new.pseudonym, new.answering, new, letter.address))
        return [made.context(each, answer_by) for each in languages]


def _papers(study: Study) -> FormsOnPaper | None:
    """Forms on paper of a study, if it asks anybody at the moment."""
    try:
        return FormsOnPaper(study)
    except LookupError:
        return None


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


class LetterheadForm(forms.Form):
    """Form for the words of a study's letters in each language of the site, and for its logo."""

    picture = forms.FileField(
        label=_("Logo"),
        required=False,
        help_text=_("A picture of the kind PNG. It is drawn anew, so that only what can be seen is kept."),
        widget=forms.FileInput(attrs={"accept": "image/png"}),
    )
    no_logo = forms.BooleanField(label=_("Without a logo"), required=False)

    def __init__(self, data: Any = None, files: Any = None, *, study: Study, head: Letterhead) -> None:
        super().__init__(data, files)
        self.head = head
        labels = {
            "salutation": _("Salutation"),
            "text": _("What the letter is about"),
            "refusal": _("That people may say no"),
            "closing": _("Closing"),
        }
        for code, _name in settings.LANGUAGES:
            with override(code):
                words = default_texts(study)
            for name in Letterhead.TEXTS:
                long = name in ("text", "refusal")
                attrs = {"lang": code, **({"rows": 4} if long else {})}
                self.fields[f"{name}_{code}"] = forms.CharField(
                    label=format_lazy("{} ({})", labels[name], translated_name(code)),
                    required=False,
                    max_length=2_000 if long else 200,
                    initial=head.texts.get(code, {}).get(name, ""),
                    widget=(forms.Textarea if long else forms.TextInput)(attrs=attrs),
                    help_text=format_lazy(_("Empty: {}"), words[name]),
                )
        self.order_fields([name for name in self.fields if name not in ("picture", "no_logo")])
        if not head.logo:
            del self.fields["no_logo"]

    def clean_picture(self) -> str:
        picture = self.cleaned_data["picture"]
        return logo_read(picture.read(MOST_BYTES + 1)) if picture else ""

    @property
    def texts(self) -> dict[str, dict[str, str]]:
        """Words of the valid form by language."""
        return {
            code: {name: self.cleaned_data[f"{name}_{code}"] for name in Letterhead.TEXTS}
            for code, _name in settings.LANGUAGES
        }

    @property
    def logo(self) -> str:
        """Logo of the valid form: a new one, the one that is kept, or none."""
        if self.cleaned_data["picture"]:
            return str(self.cleaned_data["picture"])
        return "" if self.cleaned_data.get("no_logo") else self.head.logo
