"""A receipt: a copy of what was decided, on which words, that the person keeps.

As a page, as a PDF, and as JSON with the parts and field names of ISO/IEC TS 27560:2023 (consent record information
structure): a header, what the processing is, who the parties are, and the events. The names and which of them are
mandatory are those that W3C's Data Privacy Vocabulary Community Group lists ("Consent Records and Receipts as per
ISO/IEC TS 27560:2023 using DPV", w3id.org/dpv/guides/consent-27560, final report of 2024-08-01), written with
underscores; values that a vocabulary can name are terms of that vocabulary (prefix ``dpv``). What the standard has no
name for (protection level, ε) stands under ``extension``. The mandatory ``party_address`` is null where the study does
not state it.

What leads from a receipt to the record is its number, a keyed hash. The event's own hash would tell what others chose:
it goes into that of the next event, so that whoever knows the hashes of two events has those of the one in between, and
of the few levels that it may have granted, only one fits.
"""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.formats import date_format
from django.utils.text import capfirst
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from consent.circumstances import last_day
from consent.models import Answerer, ConsentEvent
from consent.odds import right_guesses_in_100
from consent.pdf import tagged_pdf
from consent.standing import standing
from consent.study_texts import study_text

TEMPLATE = Path(__file__).with_name("receipt.typ")
#: Crockford's base 32: no letter that is taken for another when it is read out.
_READ_OUT = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SCHEMA = "ISO/IEC TS 27560:2023"
#: What a holder can decide, as a consent status of the Data Privacy Vocabulary.
STATES = {
    ConsentEvent.Kind.GIVEN: "dpv:ConsentGiven",
    ConsentEvent.Kind.CHANGED: "dpv:RenewedConsentGiven",
    ConsentEvent.Kind.WITHDRAWN: "dpv:ConsentWithdrawn",
    ConsentEvent.Kind.REFUSED: "dpv:ConsentRefused",
}


def receipt_number(event_hash: str, key: str | None = None) -> str:
    """64 hexadecimal digits that stand for the event with this hash: its HMAC-SHA256 with the site's secret ``key``.

    Without the key they say nothing of the event, nor of those beside it. Whoever has the key can find the event, whose
    hash covers everything that was recorded, by :func:`receipt_event`.
    """
    return salted_hmac("consent.receipts", event_hash, secret=key, algorithm="sha256").hexdigest()


def receipt_code(number: str) -> str:
    """Twelve letters and digits that stand for a receipt number, to be read out: its first 60 bits.

    >>> receipt_code("0123456789abcdef" + "0" * 48)
    '04HM-ASW9-NF6Y'
    """
    bits = int(number[:15], 16)
    letters = "".join(_READ_OUT[(bits >> shift) & 31] for shift in range(55, -1, -5))
    return "-".join(letters[start : start + 4] for start in range(0, 12, 4))


def _code_typed(text: str) -> str:
    """A code as it was heard or typed, without dashes; letters that base 32 lacks stand for those they look like."""
    return text.upper().replace("-", "").translate(str.maketrans("OIL", "011"))


def receipt_event(number: str) -> ConsentEvent | None:
    """The decision, of whatever study, that has this receipt number.

    Numbers given out under an earlier secret key are found while ``SECRET_KEY_FALLBACKS`` names it. A number may also
    be the event's hash: receipts had that once. Or it is the code that was read out.
    """
    keys, code = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS), _code_typed(number)
    for pk, event_hash in ConsentEvent.objects.order_by().values_list("pk", "hash").iterator(chunk_size=2000):
        numbers = [receipt_number(event_hash, key) for key in keys]
        if number in (event_hash, *numbers) or code in map(_code_typed, map(receipt_code, numbers)):
            return ConsentEvent.objects.select_related("study", "holder", "form", "policy").get(pk=pk)
    return None


def _odds(right: int) -> str:
    if right < 100:
        told = _(
            "Someone who guesses whether you took part (whether your records were used) would be right at most "
            "%(right)d times in 100 instead of 50."
        )
        return told % {"right": right}
    return _("Someone who guesses whether you took part (whether your records were used) could be right nearly always.")


def _decided_at(event: ConsentEvent) -> str:
    moment = timezone.localtime(event.recorded_at)
    return f"{date_format(moment, 'DATETIME_FORMAT')} ({moment.tzname()})"


def receipt_sentence(event: ConsentEvent) -> str:
    """The decision in one sentence, in the reader's language."""
    told = {
        "controller": event.study.controller,
        "study": study_text(event.study, "title"),
        "level": event.get_level_display(),
        "when": _decided_at(event),
    }
    if event.grants:
        return (
            _(
                "On %(when)s you allowed %(controller)s to learn from your records for the study “%(study)s”, "
                "with this protection: %(level)s."
            )
            % told
        )
    if event.kind == ConsentEvent.Kind.WITHDRAWN:
        return _("On %(when)s you withdrew your consent to the study “%(study)s” of %(controller)s.") % told
    return _("On %(when)s you decided not to take part in the study “%(study)s” of %(controller)s.") % told


def receipt_facts(event: ConsentEvent) -> list[tuple[str, str]]:
    """Terms and values of a decision's receipt, in the reader's language."""
    study = event.study
    facts = [
        (_("Study"), str(study_text(study, "title"))),
        (_("Decision"), capfirst(f"{event.get_kind_display()}: {event.get_level_display()}".rstrip(": "))),
        (_("When"), _decided_at(event)),
        (_("Known to the study as"), event.holder.known_as),
    ]
    if event.answered_by != Answerer.PERSON:
        facts.append((_("Decided by"), capfirst(event.get_answered_by_display())))
    if event.grants and (ends := last_day(event)) is not None:
        facts.append((_("Counts up to"), date_format(ends, "DATE_FORMAT")))
    if event.policy is not None:
        right = right_guesses_in_100(event.policy.epsilon(event.level), study.delta)
        facts += [
            (_("What it means"), _odds(right)),
            (
                _("What it does not cover"),
                _(
                    "When and how much data is sent over a network; what the records of others, such as relatives, "
                    "tell about you; other studies. If you are in this study under several pseudonyms, each counts by "
                    "itself."
                ),
            ),
        ]
    if event.form is not None:
        text = _("version %(version)d, SHA-256 %(digest)s") % {
            "version": event.form.version,
            "digest": event.form.digest,
        }
        facts.append((_("Information read"), text))
    facts += [
        (_("Who asks"), study.controller),
        (_("What for"), str(study_text(study, "purpose"))),
        (_("Which data"), str(study_text(study, "data_categories"))),
        (_("Who else sees raw records"), str(study_text(study, "recipients")) or _("nobody")),
        (_("How long"), str(study_text(study, "retention"))),
        (_("Lawful basis"), study.get_lawful_basis_display()),
        (_("Jurisdiction"), study.jurisdiction),
        (_("Address"), study.controller_address),
        (_("Data protection officer"), study.data_protection_officer),
        (_("Source of the data"), str(study_text(study, "data_source"))),
        (_("Complaints"), study.supervisory_authority),
        (_("Withdrawing"), _("At any time, on the page “My choice”, without a reason and without any disadvantage.")),
        (_("Questions"), study.contact),
        (_("To read out on the telephone"), receipt_code(receipt_number(event.hash))),
        (_("Receipt number"), receipt_number(event.hash)),
    ]
    return [(term, value) for term, value in facts if value]


def receipt_copy_facts(event: ConsentEvent) -> list[tuple[str, str]]:
    """Terms and values of a copy that is kept: the receipt's, and what stands on the day of the copy."""
    term = _("What stands on %(date)s") % {"date": date_format(timezone.localdate(), "DATE_FORMAT")}
    return [*receipt_facts(event), (term, str(standing(event.holder)))]


def _event(event: ConsentEvent) -> dict[str, Any]:
    extension: dict[str, Any] = {"receipt_number": receipt_number(event.hash), "answered_by": event.answered_by}
    ends = last_day(event)
    validity = f"until {ends.isoformat()} or withdrawn" if ends else "until withdrawn"
    if event.policy is not None:
        epsilon = event.policy.epsilon(event.level)
        extension |= {
            "protection_level": event.level,
            "epsilon": epsilon,
            "delta": event.study.delta,
            "right_guesses_in_100": right_guesses_in_100(epsilon, event.study.delta),
            "epsilon_policy_version": event.policy.version,
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
    """Consent record as of the last of a holder's events, following ISO/IEC TS 27560.

    Args:
        events: the holder's consent events, oldest first, at least one.
    """
    last = events[-1]
    study = last.study
    notice = next((event.form for event in reversed(events) if event.form is not None), None)
    return {
        "schema_version": SCHEMA,
        "receipt_id": receipt_number(last.hash),
        "extension": {"issued_at": timezone.now().isoformat(), "counts_when_issued": standing(last.holder).counts},
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
                    "party_contact": study.contact,
                    "party_role": "dpv:DataController",
                    "party_type": "dpv:Organisation",
                }
            ],
            "events": [_event(event) for event in events],
        },
    }


def receipt_pdf(event: ConsentEvent) -> bytes:
    """Receipt of a decision as a tagged PDF, see `consent.pdf.tagged_pdf`."""
    moment = timezone.localtime(event.recorded_at)
    told = {
        "title": f"{_('Receipt')}: {study_text(event.study, 'title')}",
        "author": event.study.controller,
        "date": {"year": moment.year, "month": moment.month, "day": moment.day},
        "lang": (get_language() or settings.LANGUAGE_CODE).split("-")[0],
        "heading": _("Receipt of your decision"),
        "sentence": receipt_sentence(event),
        "facts": receipt_copy_facts(event),
        "address_term": _("Where you can look it up and decide otherwise"),
        "address": f"{settings.SITE_URL.rstrip('/')}/my/{event.study.slug}/choice/",
    }
    return tagged_pdf(TEMPLATE, told)
