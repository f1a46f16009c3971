"""Paper letters: letters that are due, their letterhead, and their pages as PDF."""

import io
import unicodedata
from collections.abc import Sequence
from datetime import date
from typing import Any
from urllib.parse import quote

import segno
from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import format_lazy
from django.utils.translation import get_language, gettext_lazy, override
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from common.requests import SignedInRequest
from common.spreadsheets import CsvWriter
from consent.documents import letters as documents
from consent.documents.letters import FormsOnPaper, FormWritten, LetterWritten, default_texts, sample_form_pdf
from consent.documents.receipts import receipts_pdf, sample_receipt_pdf
from consent.languages import VARIANTS, translated_name
from consent.models import Invitation, Letter, Letterhead, Study
from consent.services.invitations import IssuedInvitation, invitations_with
from consent.services.letters import (
    AT_ONCE,
    MOST_BYTES,
    ContactWay,
    letterhead_of,
    letterhead_save,
    letters_due,
    letters_print,
    logo_read,
    people_by_way,
)
from ipate_web.lists import DayField, choices_kept
from ipate_web.staff.pages import faults_show, paginate, pdf_answer, render_page, study_form, study_page

#: With more letters than this, the page prints badly and the PDF takes too long.
MOST = 500
#: Number of letters that a page shows as they will be printed. This is enough for a check; the PDF contains all.
SHOWN = 3
#: Choice of the main text of paper forms. The other choices are the keys of variants.
_MAIN = "main"
#: Previews of unsaved changes: the name, and the function that renders a study, letterhead and language.
SAMPLES = {
    "letter": (gettext_lazy("Preview of a letter"), documents.sample_pdf),
    "form": (gettext_lazy("Preview of the paper form"), sample_form_pdf),
    "receipt": (gettext_lazy("Preview of a receipt"), sample_receipt_pdf),
}


class LettersForm(forms.Form):
    """Form to create letters as PDF: the codes shown on the previous page, the language, and a deadline for answers."""

    letters = forms.JSONField(widget=forms.HiddenInput)
    language = forms.ChoiceField(
        label=gettext_lazy("Language of the letters"),
        help_text=gettext_lazy(
            "Used for people whose own language is not in the list. If you need letters in two languages, create two "
            "files."
        ),
    )
    answer_by = DayField(
        label=gettext_lazy("Please answer by"),
        required=False,
        help_text=gettext_lazy(
            "Appears in the letters. People can still answer after this day. Leave empty if you do not want to give "
            "a date."
        ),
    )
    paper = forms.ChoiceField(
        label=gettext_lazy("Print a paper form after each letter"),
        required=False,
        help_text=gettext_lazy("For people who prefer to sign a form and send it back. It contains the letter's code."),
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
            ("", gettext_lazy("none")),
            *([(_MAIN, gettext_lazy("with the main text"))] if self._papers else []),
            *(
                (kind, format_lazy(gettext_lazy("with the text {}"), name))
                for kind, name in VARIANTS.items()
                if kind in kinds
            ),
        ]

    def clean_letters(self) -> list[dict[str, str]]:
        letters = self.cleaned_data["letters"]
        names = {"code", "language", "address", "kind"}
        if not isinstance(letters, list) or not 0 < len(letters) <= MOST:
            raise ValidationError(gettext_lazy("There are no letters to create."))
        for each in letters:
            if not isinstance(each, dict) or set(each) != names or not all(isinstance(v, str) for v in each.values()):
                raise ValidationError(gettext_lazy("There are no letters to create."))
        return letters

    @property
    def written(self) -> list[LetterWritten]:
        """Return the letters in the valid form whose codes still work, in the order of the form."""
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
        """Return a paper form for each letter, if the valid form requests them, in the letter's language."""
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


class LetterheadForm(forms.Form):
    """Form for the words of a study's letters in each language of the site, and for its logo."""

    picture = forms.FileField(
        label=gettext_lazy("Logo"),
        required=False,
        help_text=gettext_lazy("A PNG image. It is saved again to remove hidden data."),
        widget=forms.FileInput(attrs={"accept": "image/png"}),
    )
    no_logo = forms.BooleanField(label=gettext_lazy("Without a logo"), required=False)

    def __init__(self, data: Any = None, files: Any = None, *, study: Study, head: Letterhead) -> None:
        super().__init__(data, files)
        self.head = head
        labels = {
            "salutation": gettext_lazy("Salutation"),
            "text": gettext_lazy("What the letter is about"),
            "refusal": gettext_lazy("Statement that people may say no"),
            "closing": gettext_lazy("Closing"),
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
                    help_text=format_lazy(gettext_lazy("If empty: {}"), words[name]),
                )
        self.order_fields([name for name in self.fields if name not in ("picture", "no_logo")])
        if not head.logo:
            del self.fields["no_logo"]

    def clean_picture(self) -> str:
        picture = self.cleaned_data["picture"]
        return logo_read(picture.read(MOST_BYTES + 1)) if picture else ""

    @property
    def texts(self) -> dict[str, dict[str, str]]:
        """Return the words of the valid form by language."""
        return {
            code: {name: self.cleaned_data[f"{name}_{code}"] for name in Letterhead.TEXTS}
            for code, _name in settings.LANGUAGES
        }

    @property
    def logo(self) -> str:
        """Return the logo that the valid form selects: a new logo, the current logo, or none."""
        if self.cleaned_data["picture"]:
            return str(self.cleaned_data["picture"])
        return "" if self.cleaned_data.get("no_logo") else self.head.logo


def _papers(study: Study) -> FormsOnPaper | None:
    """Return the paper forms of a study, if it is asking people at the moment."""
    try:
        return FormsOnPaper(study)
    except LookupError:
        return None


@study_form("consent.invite_holders")
def letters(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show the letters that are due and each person's contact. Print letters; their codes are shown once."""
    if request.method == "POST":
        kind = request.POST.get("kind", "")
        if kind not in Letter.Kind.values:
            raise Http404
        if kind == Letter.Kind.RECEIPT and not request.user.has_perm("consent.view_holder_level", study):
            raise PermissionDenied
        printed = None
        with faults_show(request):
            printed = letters_print(study=study, kind=kind, acting_user=request.user, again="again" in request.POST)
        if printed is None:
            return redirect("staff:letters", study.slug)
        receipts = [letter.event for letter in printed if letter.event]
        if receipts:
            language = request.POST.get("language", "")
            language = language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE
            return pdf_answer(receipts_pdf(study, receipts, language), f"receipts-{study.slug}.pdf", is_saved=True)
        issued = [one.issued for one in printed if one.issued]
        context = {
            "kind": Letter.Kind(kind),
            "made": len(printed),
            "letters": [(letter, letter.issued and qr_code(letter.issued.link)) for letter in printed[:SHOWN]],
            "list": csv_link(issued),
            "form": LettersForm(study=study, issued=issued, kind=kind),
        }
        return render_page(request, study, "staff/people/letters_printed.html", context)
    rows = [(kind, len(letters_due(study, kind)), len(letters_due(study, kind, again=True))) for kind in Letter.Kind]
    name = _name_searched(request)
    page = paginate(request, people_by_way(study, name))
    context = {
        "kinds": rows,
        "at_once": AT_ONCE,
        "languages": settings.LANGUAGES,
        "language": get_language(),
        "name": name,
        "page": page,
        "people": [(holder, ContactWay(holder.way).label) for holder in page],
        "returned": Invitation.objects.filter(study=study, revoked_at=None, returned_at__isnull=False).count(),
    }
    return render_page(request, study, "staff/people/letters.html", context)


def _name_searched(request: SignedInRequest) -> str:
    """Return the pseudonym, or part of one, that the user searched for; may be empty."""
    name = choices_kept(request).get("name", "").replace("\0", "")  # PostgreSQL does not accept null characters
    return unicodedata.normalize("NFC", name).strip()


def csv_link(issued: Sequence[IssuedInvitation]) -> str:
    """Return a data URL of a CSV file with pseudonyms, codes and links, which the site does not store."""
    file = io.StringIO()
    writer = CsvWriter(file)
    writer.writerow(["pseudonym", "code", "link"])
    writer.writerows((new.pseudonym, new.code, new.link) for new in issued)
    return f"data:text/csv;charset=utf-8,{quote(file.getvalue())}"


def qr_code(link: str) -> SafeString:
    """Return a link's QR code as SVG, in the colour of the surrounding text."""
    svg = segno.make(link, error="m").svg_inline(scale=4, border=4, dark="#000", light="#fff", omitsize=True)
    return mark_safe(svg.replace("<svg ", '<svg aria-hidden="true" ', 1))  # noqa: S308 – drawn here


@sensitive_post_parameters("letters")
@require_POST
@study_page("consent.invite_holders")
def letters_pdf(request: SignedInRequest, study: Study) -> HttpResponse:
    """Return the letters for codes that a page has just shown, as PDF. Only the request contains the codes."""
    form = LettersForm(request.POST, study=study)
    written = form.written if form.is_valid() else []
    if not written:
        if form.is_valid():
            form.add_error(None, _("These codes no longer work, because newer ones have replaced them."))
        return render_page(request, study, "staff/people/letters_again.html", {"form": form}, status=422)
    answer_by = form.cleaned_data["answer_by"]
    pdf = documents.letters_pdf(study, written, answer_by, forms=form.forms(written, answer_by))
    return pdf_answer(pdf, f"letters-{study.slug}.pdf", is_saved=True)


def _sample(
    request: SignedInRequest, study: Study, head: Letterhead, kind: str = "letter", language: str = ""
) -> HttpResponse:
    """Return a sample of a letter, form or receipt, with an unsaved letterhead."""
    if kind not in SAMPLES or language not in dict(settings.LANGUAGES):
        raise Http404
    try:
        pdf = SAMPLES[kind][1](study, head, language)
    except LookupError:
        messages.info(
            request,
            _("Paper forms and receipts become available once the study has a consent form and an ε policy in force."),
        )
        return redirect("staff:letterhead", study.slug)
    return pdf_answer(pdf, f"sample-{study.slug}.pdf", is_saved=False)


@study_form("consent.change_study")
def letterhead(request: SignedInRequest, study: Study) -> HttpResponse:
    """Change the words and the logo of the letters, with a preview of unsaved changes."""
    head = letterhead_of(study)
    form = LetterheadForm(request.POST or None, request.FILES or None, study=study, head=head)
    if form.is_valid():
        if "preview" in request.POST:
            shown = Letterhead(study=study, texts=form.texts, logo=form.logo)
            return _sample(request, study, shown, *request.POST["preview"].split("-", 1))
        letterhead_save(study=study, texts=form.texts, logo=form.logo, acting_user=request.user)
        messages.success(request, _("Changes saved."))
        return redirect("staff:letterhead", study.slug)
    context = {
        "form": form,
        "head": head,
        "languages": settings.LANGUAGES,
        "samples": [(kind, name) for kind, (name, _pdf) in SAMPLES.items()],
    }
    return render_page(request, study, "staff/people/letterhead.html", context)
