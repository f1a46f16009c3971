"""Receipts: copies of a decision, and of the text that was answered, for the person to keep.

A receipt is a page, a PDF, or JSON with the parts and field names of ISO/IEC TS 27560:2023 (consent record information
structure): a header, the processing, the parties, and the events. Names (with underscores) and mandatory fields follow
the list of W3C's Data Privacy Vocabulary Community Group ("Consent Records and Receipts as per ISO/IEC TS 27560:2023
using DPV", w3id.org/dpv/guides/consent-27560, final report of 2024-08-01). Values are terms of the vocabulary (prefix
``dpv``) if it has them. Items without a name in the standard (protection level, ε) are under ``extension``. The
mandatory ``party_address`` is null if the study does not state it.

The record is found by the receipt's number, a keyed hash. The event's own hash would reveal other people's choices:
each hash is part of the next event's hash, so someone who knows the hashes of two events could try the few levels that
the event in between may have granted and see which level fits.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone, translation
from django.utils.formats import date_format
from django.utils.text import capfirst
from django.utils.translation import get_language

from common.keys import Purpose, digest, keys_of
from common.moments import moment_words
from common.templatetags.components import component_render
from consent.documents.codes import code_in_groups, code_normalise, code_of
from consent.documents.letters import document_context, example_address, letter_words, reference, sender, voice
from consent.documents.typeset import html_tree, tagged_pdf
from consent.forms import level_option
from consent.languages import language_of, own_name
from consent.models import Answerer, ConsentEvent, DataHolder, Disposal, Letterhead, Level, Study
from consent.people.circumstances import answering_for, last_day, renew_by
from consent.promises.odds import mu_of, right_guesses_at, right_guesses_in_100, right_record_guesses_at
from consent.promises.status import (
    ComparisonColumn,
    columns_of_answer,
    holder_status,
    odds_words,
    promise_of,
    record_odds_words,
)
from consent.selectors import consent_form_in_force, policy_in_force, promise_before
from consent.services.letters import letterhead_of
from consent.wording.facts import contact_text, study_of_form, study_text
from consent.wording.third_person import gettext as _

TEMPLATE = Path(__file__).with_name("receipt.typ")
#: Groups of the code for a receipt number.
GROUPS = 3
SCHEMA = "ISO/IEC TS 27560:2023"
#: Decisions that a holder can make, as a consent status of the Data Privacy Vocabulary.
STATES = {
    ConsentEvent.Kind.GIVEN: "dpv:ConsentGiven",
    ConsentEvent.Kind.CHANGED: "dpv:RenewedConsentGiven",
    ConsentEvent.Kind.WITHDRAWN: "dpv:ConsentWithdrawn",
    ConsentEvent.Kind.REFUSED: "dpv:ConsentRefused",
}


def receipt_number(event_hash: str, key: str | None = None) -> str:
    """Return the HMAC-SHA256 of an event's hash under the signing key, 64 hexadecimal digits that identify the event.

    Without the key it reveals nothing about this event or its neighbours. With the key, :func:`receipt_event` finds the
    event, whose hash covers everything that was recorded.
    """
    return digest("consent.receipts", event_hash, key)


def receipt_code(number: str) -> str:
    """Return a code in three groups for reading out a receipt number: its first 60 bits.

    >>> receipt_code("0123456789abcdef" + "0" * 48)
    '04HMA-ASW92-NF6YP'
    """
    return code_in_groups(code_of(int(number[:15], 16), GROUPS), "-")


def receipt_event(number: str, study: Study | None = None) -> ConsentEvent | None:
    """Return the decision that has this receipt number, in one study or in any.

    Numbers made with an earlier signing key are found as long as the site still has that key. ``number`` may also be
    the event's hash, which the oldest receipts show, or the code that was read out.
    """
    keys, code = keys_of(Purpose.SIGNING), code_normalise(number)
    events = ConsentEvent.objects.filter(study=study) if study else ConsentEvent.objects.all()
    for pk, event_hash in events.order_by().values_list("pk", "hash").iterator(chunk_size=2000):
        numbers = [receipt_number(event_hash, key) for key in keys]
        if number in (event_hash, *numbers) or code in map(code_normalise, map(receipt_code, numbers)):
            return ConsentEvent.objects.select_related("study", "holder", "form", "policy").get(pk=pk)
    return None


def _odds(right: int, right_records: int) -> str:
    """Return a level's meaning: right guesses in 100 about whether people took part and which records are theirs."""
    if right < 100:
        sentence = _(
            "A guess about whether you took part (whether your records were used) would be right at most %(right)d "
            "times in 100 instead of 50."
        ) % {"right": right}
    else:
        sentence = _(
            "A guess about whether you took part (whether your records were used) could nearly always be right."
        )
    if right_records < 100:
        records = _(
            "A person who knows that you take part might guess which of two sets of records is yours. These guesses "
            "would be right at most %(right)d times in 100 instead of 50."
        ) % {"right": right_records}
    else:
        records = _(
            "A person who knows that you take part might guess which of two sets of records is yours. These guesses "
            "could nearly always be right."
        )
    condition = _("Both figures assume that the two answers are equally likely beforehand.")
    return " ".join((sentence, records, condition))


def _decided_at(event: ConsentEvent) -> str:
    return moment_words(event.recorded_at)


def _study_of(event: ConsentEvent) -> Study:
    """Return the study with the facts of the version that was answered, or with today's facts if there is none."""
    return study_of_form(event.form, event.study) if event.form is not None else event.study


def receipt_sentence(event: ConsentEvent) -> str:
    """Return the decision as one sentence, in the reader's language."""
    study = _study_of(event)
    words = {
        "controller": study.controller,
        "study": study_text(study, "title"),
        "level": event.get_level_display(),
        "when": _decided_at(event),
    }
    if event.grants:
        return (
            _(
                "On %(when)s you allowed %(controller)s to learn from your records for the study “%(study)s”, "
                "with this protection: %(level)s."
            )
            % words
        )
    if event.kind == ConsentEvent.Kind.WITHDRAWN:
        return _("On %(when)s you withdrew your consent to the study “%(study)s” by %(controller)s.") % words
    return _("On %(when)s you decided not to take part in the study “%(study)s” by %(controller)s.") % words


def _records_fate(event: ConsentEvent) -> str:
    """Return a sentence on the treatment of the stored records after a withdrawal, as recorded with it."""
    kinds = (Disposal.Kind.ASKED, Disposal.Kind.KEPT)
    rows = Disposal.objects.filter(holder=event.holder_id, kind__in=kinds, recorded_at__gte=event.recorded_at)
    first = rows.order_by("sequence").first()
    if first is not None and first.kind == Disposal.Kind.KEPT:
        return _("These records stay stored, as you asked, but are not used. You can have them erased at any time.")
    return _("This website will erase these records within a day.")


def _before(event: ConsentEvent) -> list[tuple[str, str]]:
    """Return the promise before a consent, and how the consent changed it."""
    before = promise_before(event) if event.pk else None
    if before is None or event.policy is None:
        return []
    now = level_option(event.level, event.policy.epsilon(event.level), event.study.delta)
    was = promise_of(before)
    odds = {
        "level": before.event.get_level_display(),
        "before": odds_words(was),
        "now": odds_words(now),
        "records_before": record_odds_words(was),
        "records_now": record_odds_words(now),
    }
    sentence = _(
        "%(level)s: a guess about whether you took part is right %(before)s; a guess about which records are yours "
        "is right %(records_before)s"
    )
    facts = [(_("Before this decision"), sentence % odds)]
    if event.epsilon_before is not None:
        sentence = _(
            "accepted separately: a guess about whether you took part is right %(now)s (before: %(before)s); a guess "
            "about which records are yours is right %(records_now)s (before: %(records_before)s)"
        )
        facts.append((_("Weaker protection"), sentence % odds))
    elif before.can_be_kept and before.epsilon == now.epsilon:
        sentence = _(
            "unchanged: a guess about whether you took part is right %(now)s; a guess about which records are yours "
            "is right %(records_now)s"
        )
        facts.append((_("Promise"), sentence % odds))
    return facts


def _decision_facts(event: ConsentEvent) -> list[tuple[str, str]]:
    """Return the decision, the person it is about, the person who made it, and that person's declared authority."""
    facts = [
        (_("Study"), str(study_text(_study_of(event), "title"))),
        (_("Decision"), capfirst(f"{event.get_kind_display()}: {event.get_level_display()}".rstrip(": "))),
        (_("When"), _decided_at(event)),
        (_("Known to the study as"), event.holder.known_as),
    ]
    if event.answered_by != Answerer.PERSON:
        facts.append((_("Decided by"), capfirst(event.get_answered_by_display())))
    if event.authority:
        facts += [(_("Declared right"), capfirst(event.get_authority_display())), (_("Declared"), event.statement)]
    if event.talked:
        facts.append((_("Talked about it"), _("yes, with someone before deciding")))
    return facts


def _meaning(event: ConsentEvent) -> list[tuple[str, str]]:
    """Return the consequences of a decision for the person, as terms and values."""
    facts = []
    if event.grants and (ends := last_day(event)) is not None:
        facts.append((_("Valid until"), date_format(ends, "DATE_FORMAT")))
    if event.policy is not None:
        mu = mu_of(event.policy.epsilon(event.level), event.study.delta)
        facts += [
            (_("What it means"), _odds(right_guesses_at(mu), right_record_guesses_at(mu))),
            *_before(event),
            (
                _("What this does not cover"),
                _(
                    "Facts that are true of people like you, whether or not you take part; when and how much data is "
                    "sent over a network; what other people's records, such as those of relatives, reveal about you; "
                    "other studies. If this study knows you under several pseudonyms, the limit applies to each of "
                    "them separately."
                ),
            ),
        ]
    if event.kind == ConsentEvent.Kind.WITHDRAWN:
        facts.append((_("Your stored records"), _records_fate(event)))
    return facts


def _study_facts(event: ConsentEvent) -> list[tuple[str, str]]:
    """Return the information that the study gave at the time of the decision."""
    study, facts = _study_of(event), []
    if event.form is not None:
        facts.append((_("Information read"), _("version %(version)d") % {"version": event.form.version}))
        if event.text_read:
            facts.append((_("Text you read"), own_name(event.text_read)))
    return [
        *facts,
        (_("Who is asking"), study.controller),
        (_("Purpose"), str(study_text(study, "purpose"))),
        (_("Which data"), str(study_text(study, "data_categories"))),
        (_("Who else sees raw records"), str(study_text(study, "recipients")) or _("nobody")),
        (_("How long records are kept"), str(study_text(study, "retention"))),
        (_("Lawful basis"), study.get_lawful_basis_display()),
        (_("Jurisdiction"), study.jurisdiction),
        (_("Address"), study.controller_address),
        (_("Data protection officer"), study.data_protection_officer or _("none is required")),
        (_("Source of the data"), str(study_text(study, "data_source"))),
        (_("Complaints"), study.supervisory_authority),
    ]


def _contact_rows(event: ConsentEvent) -> list[tuple[str, str]]:
    """Return the contact for questions, and the code that identifies the decision on the phone."""
    return [
        (_("Questions"), contact_text(_study_of(event))),
        (_("To read out on the phone"), receipt_code(receipt_number(event.hash))),
    ]


def _stated(facts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(term, value) for term, value in facts if value]


def receipt_facts(event: ConsentEvent) -> list[tuple[str, str]]:
    """Return the terms and values of a decision's receipt, in the reader's language."""
    withdrawing = _("At any time on the page “My choice”, without giving a reason and without any disadvantage.")
    return _stated(
        [
            *_decision_facts(event),
            *_meaning(event),
            *_study_facts(event),
            (_("Withdrawing"), withdrawing),
            *_contact_rows(event),
        ]
    )


def receipt_digests(event: ConsentEvent) -> list[tuple[str, str]]:
    """Return the terms and values of a receipt that only programs compare and no one has to read out."""
    read = [(_("Information read (SHA-256)"), event.form.digest)] if event.form is not None else []
    return [*read, (_("Receipt number"), receipt_number(event.hash))]


def _json_before(event: ConsentEvent) -> dict[str, Any] | None:
    """Return the holder's promise before a consent, or None before the first."""
    before = promise_before(event) if event.pk else None
    if before is None:
        return None
    return {
        "protection_level": before.level,
        "epsilon": before.epsilon,
        "right_guesses_in_100": right_guesses_in_100(before.epsilon, event.study.delta),
        "right_record_guesses_in_100": right_record_guesses_at(mu_of(before.epsilon, event.study.delta)),
        "epsilon_policy_version": before.policy.version,
    }


def _event(event: ConsentEvent) -> dict[str, Any]:
    extension: dict[str, Any] = {"receipt_number": receipt_number(event.hash), "answered_by": event.answered_by}
    if event.text_read:
        extension["text_read"] = event.text_read
    if event.talked:
        extension["talked"] = True
    if event.authority:
        extension |= {"authority": event.authority, "statement": event.statement}
    ends = last_day(event)
    validity = f"until {ends.isoformat()} or withdrawn" if ends else "until withdrawn"
    if event.policy is not None:
        epsilon = event.policy.epsilon(event.level)
        extension |= {
            "protection_level": event.level,
            "epsilon": epsilon,
            "delta": event.study.delta,
            "right_guesses_in_100": right_guesses_in_100(epsilon, event.study.delta),
            "right_record_guesses_in_100": right_record_guesses_at(mu_of(epsilon, event.study.delta)),
            "epsilon_policy_version": event.policy.version,
            "before": _json_before(event),
            "weaker_accepted": event.epsilon_before is not None,
        }
    return {
        "event_time": event.recorded_at.isoformat(),
        "event_type": "dpv:ExplicitlyExpressedConsent",
        "event_state": STATES[ConsentEvent.Kind(event.kind)],
        "entity_id": str(event.holder.public_id),
        "validity_duration": validity if event.grants else "not applicable",
        "extension": extension,
    }


def receipt_json(events: list[ConsentEvent]) -> dict[str, Any]:
    """Return the consent record as of the last of a holder's events, following ISO/IEC TS 27560.

    Args:
        events: at least one consent event of the holder, oldest first.
    """
    last = events[-1]
    notice = next((event.form for event in reversed(events) if event.form is not None), None)
    study = study_of_form(notice, last.study) if notice is not None else last.study
    return {
        "schema_version": SCHEMA,
        "receipt_id": receipt_number(last.hash),
        "extension": {"issued_at": timezone.now().isoformat(), "counts_when_issued": holder_status(last.holder).counts},
        "consent_record": {
            "schema_version": SCHEMA,
            "record_id": receipt_number(last.hash),
            "pii_principal_id": str(last.holder.public_id),
            "pii_processing": {
                "privacy_notice": {"version": notice.version, "sha256": notice.digest} if notice else None,
                "language": get_language(),
                "purposes": [
                    {
                        "purpose": str(study_text(study, "purpose")),
                        "lawful_basis": study.lawful_basis,
                        "pii_information": [{"pii_type": str(study_text(study, "data_categories"))}],
                        "pii_controllers": ["controller"],
                        "collection_method": "held by the controller",
                        "processing_method": "differentially private learning under individual promises",
                        "storage_locations": [study.controller],
                        "retention_period": str(study_text(study, "retention")),
                        "jurisdiction": study.jurisdiction,
                        "recipient_third_parties": [str(study_text(study, "recipients"))] if study.recipients else [],
                        "withdrawal_method": f"{settings.SITE_URL}/my/{study.slug}/withdraw/",
                        "privacy_rights": ["access", "portability", "withdrawal of consent", "complaint"],
                    }
                ],
            },
            "party_identification": [
                {
                    "party_id": "controller",
                    "party_name": study.controller,
                    "party_address": study.controller_address or None,
                    "party_email": study.contact,
                    "party_phone": study.contact_telephone or None,
                    "party_contact": study.contact,
                    "party_role": "dpv:DataController",
                    "party_type": "dpv:Organisation",
                }
            ],
            "events": [_event(event) for event in events],
        },
    }


def receipt_context(event: ConsentEvent, head: Letterhead | None = None, address: str = "") -> dict[str, Any]:
    """Return a receipt as a letter, in the reader's language: the decision in words, then the values for checks."""
    study = event.study
    head = head or letterhead_of(study)
    words = letter_words(study, head)
    # The table already shows the earlier promise.
    facts = [(term, value) for term, value in _meaning(event) if term != _("Before this decision")]
    if event.holder.pk:
        term = _("Status on %(date)s") % {"date": date_format(timezone.localdate(), "DATE_FORMAT")}
        facts.append((term, str(holder_status(event.holder))))
    return {
        "lang": (get_language() or settings.LANGUAGE_CODE).split("-")[0],
        "sender": sender(study, head),
        "recipient": address.splitlines(),
        "date": date_format(timezone.localdate(), "DATE_FORMAT"),
        "reference": reference(event.holder.known_as),
        "subject": _("Receipt of your decision"),
        "salutation": words["salutation"],
        "sentence": receipt_sentence(event),
        "columns": html_tree(component_render("before_and_now", columns=columns))
        if (columns := _columns(event))
        else [],
        "facts": _stated(facts),
        "changing_term": _("If you change your mind"),
        "changing": _changing(study),
        "address": f"{settings.SITE_URL.rstrip('/')}/my/{study.slug}/choice/",
        "turning": _contact_rows(event)[1:],
        "questions": _("Questions: %(contact)s") % {"contact": contact_text(study)},
        "closing": words["closing"],
        "signature": study.contact_name or study.controller,
        "details_heading": _("What the study told you, and checksums"),
        "details": _stated([*_decision_facts(event), *_study_facts(event)]),
        "checking": _("How to check this receipt"),
        "digests": receipt_digests(event),
    }


def _columns(event: ConsentEvent) -> list[ComparisonColumn]:
    """Return the promise before a consent and the promise of that consent, or nothing for the first consent."""
    before = promise_before(event) if event.pk else None
    if before is None or event.policy is None:
        return []
    return columns_of_answer(before, level_option(event.level, event.policy.epsilon(event.level), event.study.delta))


def _changing(study: Study) -> str:
    if study.is_closed:
        return _(
            "You can withdraw at any time, without giving a reason and without any disadvantage: online with the "
            "code in your letter or with your account, or by letter to the study."
        )
    return _(
        "You can change your decision or withdraw at any time, without giving a reason and without any disadvantage: "
        "online with the code in your letter or with your account, or by letter to the study."
    )


def receipt_pdf(event: ConsentEvent) -> bytes:
    """Return a receipt as a tagged PDF in the reader's language, see `consent.documents.typeset.tagged_pdf`."""
    return _pdf(event.study, [receipt_context(event)])


def receipts_pdf(study: Study, events: Iterable[ConsentEvent], language: str) -> bytes:
    """Return receipts as letters in one PDF, each addressed to the person who answers now.

    Each letter is in the language in which the form was read, or else in ``language``.
    """
    documents = []
    for event in events:
        read = language_of(event.text_read)
        about = event.holder.known_as if answering_for(event.holder).represents else None
        with translation.override(read if read in dict(settings.LANGUAGES) else language), voice(about):
            documents.append(receipt_context(event))
    return _pdf(study, documents)


def _pdf(study: Study, receipts: Sequence[dict[str, Any]]) -> bytes:
    return tagged_pdf(TEMPLATE, document_context(study, _("Receipt")) | {"receipts": list(receipts)})


def sample_receipt_pdf(study: Study, head: Letterhead, language: str) -> bytes:
    """Return a sample receipt for an invented decision, possibly with an unsaved letterhead.

    Raises:
        LookupError: the study has no form or no policy in force.
    """
    form, policy = consent_form_in_force(study), policy_in_force(study)
    if form is None or policy is None:
        raise LookupError(study.slug)
    event = ConsentEvent(
        study=study,
        holder=DataHolder(study=study, pseudonym="P-0001"),
        kind=ConsentEvent.Kind.GIVEN,
        level=Level.AVERAGE,
        form=form,
        policy=policy,
        renew_by=renew_by(form, timezone.localdate()),
        recorded_at=timezone.now(),
        hash="0" * 64,
    )
    with translation.override(language):
        return _pdf(study, [receipt_context(event, head, example_address(language))])
