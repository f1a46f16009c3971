"""Letters from an institution and paper forms, as PDF in one language and with the study's letterhead.

The code in a letter is stored nowhere else; the person who creates the PDF also sends it. A form has the same content
as the page, because both use the same templates. A form does not depend on earlier promises, so the person who creates
forms learns nothing about anyone's choice.
"""

import base64
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
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
from consent.forms import options
from consent.languages import language_of
from consent.models import AUTHORITIES, Invitation, Letter, Letterhead, Study
from consent.people.circumstances import Answering
from consent.promises.status import level_changes
from consent.promises.uses import results_of
from consent.selectors import consent_form_in_force, policy_in_force
from consent.services.decisions import declaration_statement
from consent.services.invitations import GROUPS, IssuedInvitation
from consent.services.letters import letterhead_of
from consent.wording.facts import contact_text, study_text
from consent.wording.rendering import consent_text
from consent.wording.third_person import gettext as _
from consent.wording.third_person import in_third_person

#: A letter has one page, so it lists at most this many results.
_MOST_RESULTS = 3
TEMPLATE = Path(__file__).with_name("letters.typ")


@dataclass(frozen=True)
class LetterWritten:
    """A letter to create, with its link, the reason for sending it, and the recipient.

    Attributes:
        issued: the invitation with its code.
        kind: one of :class:`consent.models.Letter.Kind`; empty for a first invitation.
        language: language of the letter.
        address: lines of the recipient's address; empty if it is unknown.
    """

    issued: IssuedInvitation
    language: str
    kind: str = ""
    address: str = ""


def default_texts(study: Study) -> dict[str, str]:
    """Return the site's default for each text of a letter, in the active language."""
    return {
        "salutation": _("Dear Sir or Madam,"),
        "text": _(
            "%(controller)s is asking for permission to learn from your records for the study “%(study)s”. You "
            "decide whether it may, and how strongly your records are protected."
        )
        % {"controller": study.controller, "study": study_text(study, "title")},
        "refusal": _(
            "You may say no. You don't have to give a reason, and your answer has no other consequences for you."
        ),
        "closing": _("Yours faithfully"),
    }


def _reasons(kind: str) -> list[str]:
    """Return sentences with the reason for sending a letter (none for a first invitation)."""
    reasons: dict[str, list[str]] = {
        Letter.Kind.NEW_FORM: [
            _("There is new information about this study. Please read it and decide again."),
            _(
                "If you take part, we may pause our use of your records until you decide again. The page tells you "
                "whether we have done so. If you do not take part, you don't need to do anything."
            ),
        ],
        Letter.Kind.RENEWAL: [
            _("In this study, consent is valid only for a limited time. Please review your decision."),
            _(
                "If you take part and do not decide again, we will stop using your records when your consent ends. "
                "If you do not take part, you don't need to do anything."
            ),
        ],
        Letter.Kind.ANSWERER: [
            _("From now on, you decide about these records. Until now, someone else decided about them."),
            _(
                "Their decision does not bind you. Until you decide, the records will not be used for anything new, "
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
    """Return sentences for a letter about news: the reason, the results (newest first), and a note on the link."""
    return [
        _(
            "This letter is about what the study has learned. It goes to everyone who has decided and has "
            "not withdrawn since."
        ),
        *(" ".join(result.sentences) for result in results_of(study)[:_MOST_RESULTS]),
        _(
            "If you took part, the page shows how much this affected your protection. Only you can see that. There "
            "you can also change your decision or withdraw."
        ),
        _("This letter contains a new link. If you already had one, it no longer works."),
    ]


def represented_sentence(pseudonym: str, answers: Answering) -> list[str]:
    """Return a sentence that names the person for whom the reader answers (none if readers answer for themselves)."""
    if not answers.represents:
        return []
    return [_("You are answering for %(name)s as %(role)s.") % {"name": pseudonym, "role": answers.role.label}]


def _represented(issued: IssuedInvitation) -> list[str]:
    sentence = represented_sentence(issued.pseudonym, issued.answering)
    return (
        [
            " ".join(
                [
                    *sentence,
                    _("Where this letter says “you” or “your records”, it means this person and their records."),
                ]
            )
        ]
        if sentence
        else []
    )


def deadline(answer_by: date | None) -> list[str]:
    """Return a sentence with the deadline for an answer."""
    if answer_by is None:
        return []
    return [
        _("Please answer by %(day)s. You can still answer after that day.")
        % {"day": date_format(answer_by, "DATE_FORMAT")}
    ]


def _deadline(kind: str, answer_by: date | None) -> list[str]:
    """Return sentences with the deadline for an answer and, in a first letter, on the use of records until then."""
    sentence = deadline(answer_by)
    return (
        [" ".join([*sentence, _("Until you answer, your records will not be used.")])]
        if sentence and not kind
        else sentence
    )


def voice(person: str | None) -> AbstractContextManager[None]:
    """Use the third person for ``person`` inside the block (see :func:`in_third_person`); None addresses the reader."""
    return nullcontext() if person is None else in_third_person(person)


def letter_words(study: Study, head: Letterhead) -> dict[str, str]:
    """Return each text of a letter in the active language, in the study's wording or else in the site's."""
    return default_texts(study) | head.texts.get(get_language() or settings.LANGUAGE_CODE, {})


def reference(pseudonym: str) -> str:
    """Return the pseudonym of a letter's recipient as the study spells it; empty for an open invitation."""
    return _("Known to the study as: %(name)s") % {"name": pseudonym} if pseudonym else ""


def code_context(issued: IssuedInvitation) -> dict[str, Any]:
    """Return the link and the code for answering on the site, with a QR code of the link."""
    return {
        "open": _("To read what the study asks and to answer, scan the QR code with a phone, or open"),
        "link": issued.link,
        "type": _("Or go to %(address)s and type this code:")
        % {"address": settings.SITE_URL.rstrip("/") + reverse("join")},
        "code": issued.spelled.split(),
        "qr": segno.make(issued.link, error="m").svg_inline(border=4, dark="#000", light="#fff"),
        "qr_alt": _("QR code of the link"),
    }


def document_context(study: Study, name: str) -> dict[str, Any]:
    """Return title, author and day of a study's document."""
    today = timezone.localdate()
    return {
        "title": ": ".join([name, study_text(study, "title").text]),
        "author": study.controller,
        "date": {"year": today.year, "month": today.month, "day": today.day},
    }


def _changes(study: Study, kind: str) -> list[TreePart]:
    """Return the meaning of the levels when people agreed and now, for a letter about new information."""
    changes = level_changes(study) if kind == Letter.Kind.NEW_FORM else []
    return html_tree(component_render("level_changes_of_letter", level_changes=changes)) if changes else []


def address_lines(study: Study) -> list[str]:
    """Return the lines of the controller's address, without the first line if it is the controller's name."""
    lines = [line.strip() for line in study.controller_address.splitlines() if line.strip()]
    return lines[1:] if lines[:1] == [study.controller] else lines


def sender(study: Study, head: Letterhead) -> dict[str, Any]:
    """Return the header of a study's documents: the sender, with logo and contact."""
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
    """Return the complete content of a letter, in its language."""
    with translation.override(letter.language):
        words = letter_words(study, head)
        request = [*words["text"].splitlines(), words["refusal"], *_deadline(letter.kind, answer_by)]
        news = _news(study) if letter.kind == Letter.Kind.NEWS else [*_reasons(letter.kind), *request]
        code = code_context(letter.issued)
        if letter.kind == Letter.Kind.NEWS:
            code["open"] = _("To read more, change your decision or withdraw, scan the QR code with a phone, or open")
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
    """Return letters as one tagged PDF, in which each letter begins on a new page.

    Args:
        answer_by: the deadline for an answer, if any.
        forms: a paper form to print after each letter, from :meth:`consent.documents.letters.FormsOnPaper.context`.
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
    """Return an invitation whose code does not work, for samples."""
    return IssuedInvitation(Invitation(study=study), code_of(0, GROUPS).lower())


def example_address(language: str) -> str:
    """Return the address of an invented person."""
    with translation.override(language):
        return "\n".join([_("Erika Example"), _("1 Example Street"), _("12345 Exampletown")])


def sample_pdf(study: Study, head: Letterhead, language: str) -> bytes:
    """Return a sample letter to an invented person, with an invalid code and possibly unsaved wording."""
    letter = LetterWritten(sample_invitation(study), language, "", example_address(language))
    return _pdf(study, [letter], head, timezone.localdate() + timedelta(days=28))


# --- The form on paper ------------------------------------------------------------------------------------------------


FORM_TEMPLATE = Path(__file__).with_name("paper_form.typ")


@dataclass(frozen=True)
class FormWritten:
    """Paper form to create, with its text and its recipient.

    Attributes:
        text: code of the text, as in the form's ``texts``; if the form lacks it, the text in the site's first language
            is used.
        pseudonym: pseudonym of the person; empty if they write it on the form.
        answering: role of the person who answers for them.
        issued: an invitation that lets the person answer on the site instead.
        address: lines of the recipient's address; empty if it is unknown.
    """

    text: str
    pseudonym: str = ""
    answering: Answering = field(default_factory=Answering)
    issued: IssuedInvitation | None = None
    address: str = ""


def words_language(code: str) -> str:
    """Return the language for the other parts of a form: the language of its text if the site supports it."""
    language = language_of(code)
    return language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


class FormsOnPaper:
    """Paper forms of one study, with the form and the policy in force now.

    Raises:
        LookupError: the study is not asking anyone at the moment.
    """

    def __init__(self, study: Study, head: Letterhead | None = None) -> None:
        form, policy = consent_form_in_force(study), policy_in_force(study)
        if form is None or policy is None or study.is_closed:
            raise LookupError(study.slug)
        self.study, self.form, self.policy = study, form, policy
        self.head = head or letterhead_of(study)
        self._read: dict[tuple[str, str | None], list[TreePart]] = {}

    def context(self, written: FormWritten, answer_by: date | None = None) -> dict[str, Any]:
        """Return the complete content of a form, in the language of its text."""
        text = consent_text(self.form, written.text)
        about = (written.pseudonym or None) if written.answering.represents else None
        with translation.override(words_language(text.code)), voice(about):
            context: dict[str, Any] = {"study": self.study, "text": text, "form": self.form, "policy": self.policy}
            if (text.code, about) not in self._read:
                self._read[text.code, about] = html_tree(component_render("paper_reading", **context))
            decision = context | {
                "options": options(self.policy, self.study.delta),
                "level_changes": level_changes(self.study),
            }
            declaration: dict[str, Any] = {
                "authorities": AUTHORITIES.get(written.answering.role, ()),
                "statement": declaration_statement(),
            }
            words = letter_words(self.study, self.head)
            question = _("%(controller)s is asking for permission to learn from your records. You decide.")
            return {
                "lang": words_language(text.code),
                "sender": sender(self.study, self.head),
                "recipient": written.address.splitlines(),
                "date": date_format(timezone.localdate(), "DATE_FORMAT"),
                "reference": reference(written.pseudonym),
                "subject": str(study_text(self.study, "title")),
                "salutation": words["salutation"],
                "paragraphs": [
                    *represented_sentence(written.pseudonym, written.answering),
                    question % {"controller": self.study.controller},
                    words["refusal"],
                    *deadline(answer_by),
                    _("Read this form. Then tick your decision on the last sheet, sign it, and send that sheet back."),
                ],
                "reading": self._read[text.code, about],
                "code_box": code_context(written.issued) if written.issued else None,
                "keep": _("Keep these pages and do not send the code back: anyone who has it can decide for you."),
                "questions": _("Questions: %(contact)s") % {"contact": contact_text(self.study)},
                "closing": words["closing"],
                "signature": self.study.contact_name or self.study.controller,
                "back": _("Send this sheet back to: %(address)s")
                % {"address": ", ".join([self.study.controller, *address_lines(self.study)])},
                "decision_heading": _("Your decision"),
                "decision": html_tree(component_render("paper_decision", **decision)),
                "declaration": html_tree(component_render("paper_declaration", **declaration)),
                "known_as": _("Known to the study as"),
                "pseudonym": written.pseudonym,
                "day": _("Date"),
                "signed": _("Your own name and signature") if about else _("Name and signature"),
                "page": _("Page"),
                "version": self._version(text.code),
            }

    def _version(self, code: str) -> str:
        message = _("Version %(version)d of the information (text: %(text)s), version %(policy)d of the ε policy")
        return f"{message} · SHA-256 %(digest)s…" % {
            "version": self.form.version,
            "text": code,
            "policy": self.policy.version,
            "digest": self.form.digest[:16],
        }


def paper_forms_pdf(forms: FormsOnPaper, written: Sequence[FormWritten], answer_by: date | None = None) -> bytes:
    """Return paper forms as one tagged PDF."""
    context = document_context(forms.study, _("Paper form"))
    return tagged_pdf(FORM_TEMPLATE, context | {"forms": [forms.context(each, answer_by) for each in written]})


def sample_form_pdf(study: Study, head: Letterhead, language: str) -> bytes:
    """Return a paper form for an invented person, with an invalid code and possibly an unsaved letterhead.

    Raises:
        LookupError: the study is not asking anyone at the moment.
    """
    written = FormWritten(language, issued=sample_invitation(study), address=example_address(language))
    return paper_forms_pdf(FormsOnPaper(study, head), [written], timezone.localdate() + timedelta(days=28))
