"""Letters from an institution, as PDF: each in one language, with the study's letterhead.

The code in a letter is stored nowhere else; the person who creates the PDF also sends it.
"""

import base64
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import segno
from django.conf import settings
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.formats import date_format
from django.utils.translation import get_language

from common.templatetags.components import component_render
from consent.documents.codes import code_of
from consent.documents.typeset import TreePart, html_tree, tagged_pdf
from consent.models import Invitation, Letter, Letterhead, Study
from consent.people.circumstances import Answering
from consent.promises.comparisons import level_changes
from consent.promises.uses import results_of
from consent.services.invitations import GROUPS, IssuedInvitation
from consent.services.letters import letterhead_of
from consent.wording.facts import contact_text, study_text
from consent.wording.third_person import gettext as _
from consent.wording.third_person import in_third_person

#: So many results a letter tells: it has one page.
_MOST_RESULTS = 3
TEMPLATE = Path(__file__).with_name("letters.typ")


@dataclass(frozen=True)
class LetterWritten:
    """Letter to make: a link, why it is sent, and to whom.

    Attributes:
        issued: the invitation with its code.
        kind: one of :class:`consent.models.Letter.Kind`; empty for a first invitation.
        language: of the letter.
        address: lines of the recipient; empty if none is known.
    """

    issued: IssuedInvitation
    language: str
    kind: str = ""
    address: str = ""


def default_texts(study: Study) -> dict[str, str]:
    """Words of the site for each text of a letter, in the language of this moment."""
    return {
        "salutation": _("Dear Sir or Madam,"),
        "text": _(
            "%(controller)s is asking for permission to learn from your records for the study “%(study)s”. You "
            "decide whether it may, and how strongly your records are protected."
        )
        % {"controller": study.controller, "study": study_text(study, "title")},
        "refusal": _("You may say no. You don't have to give a reason, and nothing depends on it."),
        "closing": _("Yours faithfully"),
    }


def _reasons(kind: str) -> list[str]:
    """Reason why a letter is sent, other than as a first invitation."""
    reasons: dict[str, list[str]] = {
        Letter.Kind.NEW_FORM: [
            _("There is new information about this study. Please read it and decide again."),
            _(
                "If you took part, your records may not be used until you have decided again. The page tells you if "
                "that is so. If you did not take part, you don't need to do anything."
            ),
        ],
        Letter.Kind.RENEWAL: [
            _("In this study a consent is valid only for a limited time. Please review your decision."),
            _(
                "If you take part and do not decide again, your records are not used after that time. If you did not "
                "take part, you don't need to do anything."
            ),
        ],
        Letter.Kind.ANSWERER: [
            _("From now on, you decide about these records. Until now, another person did."),
            _(
                "Their decision does not bind you. Until you decide, the records are not used for anything new, "
                "unless the study has told you otherwise."
            ),
        ],
    }
    return (
        [*reasons[kind], _("This letter contains a new link. If you already had one, it no longer works.")]
        if kind in reasons
        else []
    )


def _news(study: Study) -> list[str]:
    """Reason for a letter about news, the results, newest first, and what the page behind its link adds."""
    return [
        _("This letter is about what the study has learned. Everyone who has decided and has not withdrawn gets it."),
        *(" ".join(result.sentences) for result in results_of(study)[:_MOST_RESULTS]),
        _(
            "If you took part, the page shows what it cost your protection. Only you can see that. You can also "
            "change your decision or leave there."
        ),
        _("This letter contains a new link. If you already had one, it no longer works."),
    ]


def represented_sentence(pseudonym: str, answers: Answering) -> list[str]:
    """Sentence about the person for whom the reader answers, if not for themselves."""
    if not answers.represents:
        return []
    return [_("You answer for %(name)s, as %(role)s.") % {"name": pseudonym, "role": answers.role.label}]


def _represented(issued: IssuedInvitation) -> list[str]:
    sentence = represented_sentence(issued.pseudonym, issued.answering)
    return (
        [" ".join([*sentence, _("Where this letter says “you” or “your records”, it means this person.")])]
        if sentence
        else []
    )


def deadline(answer_by: date | None) -> list[str]:
    """Date by which an answer is requested."""
    if answer_by is None:
        return []
    return [_("Please answer by %(day)s. You can also answer later.") % {"day": date_format(answer_by, "DATE_FORMAT")}]


def _deadline(kind: str, answer_by: date | None) -> list[str]:
    """Date by which an answer is requested and, in a first letter, what happens to the records until then."""
    sentence = deadline(answer_by)
    return (
        [" ".join([*sentence, _("Until you answer, your records are not used.")])]
        if sentence and not kind
        else sentence
    )


def voice(person: str | None) -> AbstractContextManager[None]:
    """Use the third person about ``person`` inside the block, as :func:`in_third_person`; None addresses the reader."""
    return nullcontext() if person is None else in_third_person(person)


def letter_words(study: Study, head: Letterhead) -> dict[str, str]:
    """Words of the study for each text of a letter, or those of the site, in the language of this moment."""
    return default_texts(study) | head.texts.get(get_language() or settings.LANGUAGE_CODE, {})


def reference(pseudonym: str) -> str:
    """The pseudonym of a letter's recipient, as the study has it; empty for an open place."""
    return _("Known to the study as: %(name)s") % {"name": pseudonym} if pseudonym else ""


def code_context(issued: IssuedInvitation) -> dict[str, Any]:
    """Link and code for answering on the site, and both as a QR code."""
    return {
        "open": _("Read what the study asks and answer. Scan the QR code with a phone, or open"),
        "link": issued.link,
        "type": _("Or go to %(address)s and type this code:")
        % {"address": settings.SITE_URL.rstrip("/") + reverse("join")},
        "code": issued.spelled.split(),
        "qr": segno.make(issued.link, error="m").svg_inline(border=4, dark="#000", light="#fff"),
        "qr_alt": _("QR code of the link"),
    }


def document_context(study: Study, name: str) -> dict[str, Any]:
    """Title, author and day of a document of a study."""
    today = timezone.localdate()
    return {
        "title": ": ".join([name, study_text(study, "title").text]),
        "author": study.controller,
        "date": {"year": today.year, "month": today.month, "day": today.day},
    }


def _changes(study: Study, kind: str) -> list[TreePart]:
    """Meaning of the levels for people who agreed earlier, and now, in a letter about new information."""
    changes = level_changes(study) if kind == Letter.Kind.NEW_FORM else []
    return html_tree(component_render("level_changes_of_letter", level_changes=changes)) if changes else []


def address_lines(study: Study) -> list[str]:
    """Lines of the controller's address, without the controller's name if it comes first."""
    lines = [line.strip() for line in study.controller_address.splitlines() if line.strip()]
    return lines[1:] if lines[:1] == [study.controller] else lines


def sender(study: Study, head: Letterhead) -> dict[str, Any]:
    """Header of every document of a study: the sender, with logo and contact."""
    return {
        "name": study.controller,
        "address": address_lines(study),
        "contact": contact_text(study),
        "logo": list(base64.b64decode(head.logo)),
        "logo_alt": _("Logo of %(controller)s") % {"controller": study.controller},
    }


def letter_context(
    study: Study, letter: LetterWritten, head: Letterhead, answer_by: date | None = None
) -> dict[str, Any]:
    """All that a letter says, in its language."""
    with translation.override(letter.language):
        words = letter_words(study, head)
        request = [*words["text"].splitlines(), words["refusal"], *_deadline(letter.kind, answer_by)]
        news = _news(study) if letter.kind == Letter.Kind.NEWS else [*_reasons(letter.kind), *request]
        code = code_context(letter.issued)
        if letter.kind == Letter.Kind.NEWS:
            code["open"] = _("Read more, change your decision or leave. Scan the QR code with a phone, or open")
        return {
            "lang": letter.language,
            "sender": sender(study, head),
            "recipient": letter.address.splitlines(),
            "date": date_format(timezone.localdate(), "DATE_FORMAT"),
            "reference": reference(letter.issued.pseudonym),
            "subject": str(study_text(study, "title")),
            "salutation": words["salutation"],
            "paragraphs": [*_represented(letter.issued), *news],
            "changes": _changes(study, letter.kind),
            **code,
            "keep": _(
                "Keep this letter. You can use it at any time to look up your decision, change it or withdraw. "
                "Anyone who has it can decide for you."
            ),
            "questions": _("Questions: %(contact)s") % {"contact": contact_text(study)},
            "closing": words["closing"],
            "signature": study.contact_name or study.controller,
        }


def letters_pdf(
    study: Study,
    letters: Sequence[LetterWritten],
    answer_by: date | None = None,
    *,
    forms: Sequence[dict[str, Any]] = (),
) -> bytes:
    """Letters as a tagged PDF, each beginning on a page of its own.

    Args:
        study: the study.
        letters: the letters.
        answer_by: the day by which an answer is requested, if any.
        forms: a paper form to print after each letter, from :meth:`consent.documents.paper.FormsOnPaper.context`.
    """
    return _pdf(study, letters, letterhead_of(study), answer_by, forms)


def _pdf(
    study: Study,
    letters: Sequence[LetterWritten],
    head: Letterhead,
    answer_by: date | None,
    forms: Sequence[dict[str, Any]] = (),
) -> bytes:
    context = document_context(study, _("Letters")) | {
        "letters": [letter_context(study, letter, head, answer_by) for letter in letters],
        "forms": list(forms),
    }
    return tagged_pdf(TEMPLATE, context)


def sample_invitation(study: Study) -> IssuedInvitation:
    """Invitation whose code opens nothing, for samples."""
    return IssuedInvitation(Invitation(study=study), code_of(0, GROUPS).lower())


def example_address(language: str) -> str:
    """Address of an invented person."""
    with translation.override(language):
        return "\n".join([_("Erika Example"), _("1 Example Street"), _("12345 Exampletown")])


def sample_pdf(study: Study, head: Letterhead, language: str) -> bytes:
    """A letter with words that may not be saved yet, to an invented person; its code opens nothing."""
    letter = LetterWritten(sample_invitation(study), language, "", example_address(language))
    return _pdf(study, [letter], head, timezone.localdate() + timedelta(days=28))
