"""The form on paper, as PDF: what a study tells, to be kept, and the decision, to be signed and sent back.

It says what the page says, in the words of the same templates, in one language. What someone was promised earlier
decides nothing of it: who makes forms learns no choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone, translation
from django.utils.formats import date_format

from common.templatetags.components import component_render
from consent.documents.letters import (
    address_lines,
    code_context,
    deadline,
    document_context,
    example_address,
    letter_words,
    reference,
    represented_sentence,
    sample_invitation,
    sender,
    voice,
)
from consent.documents.typeset import TreePart, html_tree, tagged_pdf
from consent.forms import options
from consent.languages import language_of
from consent.models import AUTHORITIES, Letterhead, Study
from consent.people.circumstances import Answering
from consent.promises.comparisons import level_changes
from consent.selectors import consent_form_in_force, policy_in_force
from consent.services.decisions import declaration_statement
from consent.services.invitations import IssuedInvitation
from consent.services.letters import letterhead_of
from consent.wording.facts import contact_text, study_text
from consent.wording.rendering import consent_text
from consent.wording.third_person import gettext as _

TEMPLATE = Path(__file__).with_name("paper_form.typ")


@dataclass(frozen=True)
class FormWritten:
    """Form on paper to make: in which text, and for whom.

    Attributes:
        text: code of the text, as in the form's ``texts``; where there is none, that of the site's first language.
        pseudonym: of the person; empty where they write it on the form.
        answering: who answers for them.
        issued: an invitation, with which they can answer on the site instead.
        address: lines of the recipient; empty where no address is known.
    """

    text: str
    pseudonym: str = ""
    answering: Answering = field(default_factory=Answering)
    issued: IssuedInvitation | None = None
    address: str = ""


def words_language(code: str) -> str:
    """Language in which a form with this text says everything else: the text's, if the site speaks it."""
    language = language_of(code)
    return language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


class FormsOnPaper:
    """Forms on paper of one study, with what is in force now.

    Raises:
        LookupError: the study asks nobody at the moment.
    """

    def __init__(self, study: Study, head: Letterhead | None = None) -> None:
        form, policy = consent_form_in_force(study), policy_in_force(study)
        if form is None or policy is None or study.is_closed:
            raise LookupError(study.slug)
        self.study, self.form, self.policy = study, form, policy
        self.head = head or letterhead_of(study)
        self._read: dict[tuple[str, str | None], list[TreePart]] = {}

    def context(self, written: FormWritten, answer_by: date | None = None) -> dict[str, Any]:
        """All that a form says, in the language of its text."""
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
                "day": _("Day"),
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
    """Forms on paper as a tagged PDF."""
    context = document_context(forms.study, _("Form on paper"))
    return tagged_pdf(TEMPLATE, context | {"forms": [forms.context(each, answer_by) for each in written]})


def sample_form_pdf(study: Study, head: Letterhead, language: str) -> bytes:
    """A form on paper with a letterhead that may not be saved yet, to an invented person; its code opens nothing.

    Raises:
        LookupError: the study asks nobody at the moment.
    """
    written = FormWritten(language, issued=sample_invitation(study), address=example_address(language))
    return paper_forms_pdf(FormsOnPaper(study, head), [written], timezone.localdate() + timedelta(days=28))
