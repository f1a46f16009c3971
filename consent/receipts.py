"""A receipt: a copy of what was decided, on which words, that the person keeps.

As a page, as a PDF, and as JSON with the parts and field names of ISO/IEC TS 27560:2023 (consent record information
structure): a header, what the processing is, who the parties are, and the events. The names and which of them are
mandatory are those that W3C's Data Privacy Vocabulary Community Group lists ("Consent Records and Receipts as per
ISO/IEC TS 27560:2023 using DPV", w3id.org/dpv/guides/consent-27560, final report of 2024-08-01), written with
underscores; values that a vocabulary can name are terms of that vocabulary (prefix ``dpv``). What the standard has no
name for (protection level, ε) stands under ``extension``. A study keeps no postal address of its controller, so that
the mandatory ``party_address`` is null.
"""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.text import capfirst
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from fpdf import FPDF
from fpdf.enums import WrapMode

from consent.models import ConsentEvent
from consent.odds import right_guesses_in_100

FONT = Path(__file__).with_name("fonts") / "DejaVuSans.ttf"
SCHEMA = "ISO/IEC TS 27560:2023"
#: What a holder can decide, as a consent status of the Data Privacy Vocabulary.
STATES = {
    ConsentEvent.Kind.GIVEN: "dpv:ConsentGiven",
    ConsentEvent.Kind.CHANGED: "dpv:RenewedConsentGiven",
    ConsentEvent.Kind.WITHDRAWN: "dpv:ConsentWithdrawn",
    ConsentEvent.Kind.REFUSED: "dpv:ConsentRefused",
}


def _decided_at(event: ConsentEvent) -> str:
    moment = timezone.localtime(event.recorded_at)
    return f"{date_format(moment, 'DATETIME_FORMAT')} ({moment.tzname()})"


def receipt_facts(event: ConsentEvent) -> list[tuple[str, str]]:
    """What the receipt of a decision says, in the reader's language, term by term."""
    study = event.study
    facts = [
        (_("Study"), study.title),
        (_("Decision"), capfirst(f"{event.get_kind_display()}: {event.get_level_display()}".rstrip(": "))),
        (_("When"), _decided_at(event)),
        (_("Known to the study as"), event.holder.pseudonym),
    ]
    if event.policy is not None:
        right = right_guesses_in_100(event.policy.epsilon(event.level))
        odds = (
            _("Someone who guesses whether your records were used would be right at most %(right)d times in 100.")
            if right < 100
            else _("Someone who guesses whether your records were used could be right nearly always.")
        )
        facts.append((_("What it means"), odds % {"right": right}))
    if event.form is not None:
        text = _("version %(version)d, SHA-256 %(digest)s") % {
            "version": event.form.version,
            "digest": event.form.digest,
        }
        facts.append((_("Information read"), text))
    facts += [
        (_("Who asks"), study.controller),
        (_("What for"), study.purpose),
        (_("Which data"), study.data_categories),
        (_("Who else sees raw records"), study.recipients or _("nobody")),
        (_("How long"), study.retention),
        (_("Lawful basis"), study.get_lawful_basis_display()),
        (_("Jurisdiction"), study.jurisdiction),
        (_("Withdrawing"), _("At any time, on the page “My choice”, without a reason and without any disadvantage.")),
        (_("Questions"), study.contact),
        (_("Record number"), event.hash),
    ]
    return [(term, value) for term, value in facts if value]


def _event(event: ConsentEvent) -> dict[str, Any]:
    extension: dict[str, Any] = {"record_hash": event.hash}
    if event.policy is not None:
        epsilon = event.policy.epsilon(event.level)
        extension |= {
            "protection_level": event.level,
            "epsilon": epsilon,
            "delta": event.study.delta,
            "right_guesses_in_100": right_guesses_in_100(epsilon),
            "epsilon_policy_version": event.policy.version,
        }
    return {
        "event_time": event.recorded_at.isoformat(),
        "event_type": "dpv:ExplicitlyExpressedConsent",
        "event_state": STATES[ConsentEvent.Kind(event.kind)],
        "entity_id": str(event.holder.public_id),
        "validity_duration": "until withdrawn" if event.grants else "not applicable",
        "extension": extension,
    }


def receipt_json(events: list[ConsentEvent]) -> dict[str, Any]:
    """The consent record after the last of a holder's ``events`` (oldest first), following ISO/IEC TS 27560."""
    last = events[-1]
    study = last.study
    notice = next((event.form for event in reversed(events) if event.form is not None), None)
    return {
        "schema_version": SCHEMA,
        "receipt_id": last.hash,
        "extension": {"issued_at": timezone.now().isoformat()},
        "consent_record": {
            "schema_version": SCHEMA,
            "record_id": last.hash,
            "pii_principal_id": str(last.holder.public_id),
            "pii_processing": {
                "privacy_notice": {"version": notice.version, "sha256": notice.digest} if notice else None,
                "language": get_language(),
                "purposes": [
                    {
                        "purpose": study.purpose,
                        "lawful_basis": study.lawful_basis,
                        "pii_information": [{"pii_type": study.data_categories}],
                        "pii_controllers": ["controller"],
                        "collection_method": "held by the controller",
                        "processing_method": "differentially private learning (individualized PATE)",
                        "storage_locations": [study.controller],
                        "retention_period": study.retention,
                        "jurisdiction": study.jurisdiction,
                        "recipient_third_parties": [study.recipients] if study.recipients else [],
                        "withdrawal_method": f"{settings.SITE_URL}/my/{study.slug}/withdraw/",
                        "privacy_rights": ["access", "portability", "withdrawal of consent", "complaint"],
                    }
                ],
            },
            "party_identification": [
                {
                    "party_id": "controller",
                    "party_name": study.controller,
                    "party_address": None,
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
    """The receipt on paper: one A4 page in most cases, with its text selectable and its language named."""
    pdf = FPDF(format="A4")
    pdf.set_creation_date(event.recorded_at)
    pdf.set_title(f"{_('Receipt')}: {event.study.title}")
    pdf.set_lang(get_language() or settings.LANGUAGE_CODE)
    pdf.add_font("DejaVu", fname=FONT)
    pdf.set_margin(22)
    pdf.set_auto_page_break(True, margin=22)
    pdf.add_page()
    pdf.set_font("DejaVu", size=20)
    pdf.multi_cell(0, 10, _("Receipt of your decision"), new_x="LMARGIN", new_y="NEXT")
    pdf.ln(4)
    for term, value in receipt_facts(event):
        pdf.set_font("DejaVu", size=8.5)
        pdf.set_text_color(80)
        pdf.multi_cell(0, 5, term, new_x="LMARGIN", new_y="NEXT")
        pdf.set_font("DejaVu", size=11)
        pdf.set_text_color(0)
        # A hash has no spaces at which it could be broken.
        wrap = WrapMode.WORD if " " in value else WrapMode.CHAR
        pdf.multi_cell(0, 6, value, align="L", wrapmode=wrap, new_x="LMARGIN", new_y="NEXT")
        pdf.ln(2.5)
    return bytes(pdf.output())
