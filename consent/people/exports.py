"""A study's consent records as files for auditors: decisions, and the forms and policies to which people responded.

The files contain no level, pseudonym or time of day: only data stewards can look up a person's choice, and such
look-ups are logged. Auditors see how many people decided on which day. The files also omit the hashes of the chain of
decisions, because each possible level could be tested against a hash. Instead, each row has the number on its holder's
receipt, a keyed hash of the row's hash, which covers the whole record and the row before. Rows of forms, policies and
remarks reveal nothing about holders and include their hashes.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from typing import Any

from django.utils import timezone

from common.keys import Purpose, digest, keys_of
from common.row_hashes import hashed_columns
from common.spreadsheets import csv_pieces, json_pieces
from consent.documents.receipts import receipt_number
from consent.models import (
    Circumstance,
    ConfigurationChange,
    ConsentEvent,
    ConsentForm,
    ConsentFormProposal,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Remark,
    Study,
)
from consent.people.circumstances import day_of
from consent.selectors import policies_in_force

#: Columns of a decision, in order; docs/consent.md describes them.
COLUMNS = (
    "sequence",
    "day",
    "holder",
    "kind",
    "form_version",
    "policy_version",
    "channel",
    "signed_on",
    "evidence",
    "number",
    "answered_by",
    "renew_by",
    "authority",
    "text_read",
)
#: Columns that older files do not have.
_ADDED = frozenset({"answered_by", "renew_by", "authority", "text_read"})
#: Chains that reveal nothing about holders, by their names in the file.
_PUBLIC_CHAINS = {
    "forms": ConsentForm,
    "form_proposals": ConsentFormProposal,
    "policies": EpsilonPolicy,
    "policy_approvals": EpsilonPolicyApproval,
    "remarks": Remark,
    "changes": ConfigurationChange,
}


def export_name(study: Study, kind: str) -> str:
    """Return the file name: study, date, extension."""
    return f"{study.slug}-consents-{timezone.localdate():%Y-%m-%d}.{kind}"


def holder_mark(holder_id: int | str, key: str | None = None) -> str:
    """Return 16 hexadecimal digits that identify a holder in every export, but reveal who it is only with the key."""
    return digest("consent.exports", str(holder_id), key)[:16]


def decisions(study: Study, key: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the chain of decisions, oldest first, with the columns ``COLUMNS``; ``key`` defaults to today's key."""
    versions = dict(ConsentForm.objects.filter(study=study).values_list("pk", "version"))
    policies = list(policies_in_force(study).select_related("approval"))
    dates = [policy.approval.effective_from for policy in policies]
    for event in ConsentEvent.chain(study.pk).iterator(chunk_size=2000):
        yield {
            **_entry(event, key),
            "form_version": versions.get(event.form_id),
            # Use the policy in force at the time, because the policy of an earlier promise that someone kept would
            # reveal their level.
            "policy_version": policies[bisect_right(dates, event.recorded_at) - 1].version if event.policy_id else None,
            "channel": event.channel,
            "signed_on": event.signed_on and event.signed_on.isoformat(),
            "evidence": event.evidence,
            "number": receipt_number(event.hash, key),
            "answered_by": event.answered_by,
            "renew_by": event.renew_by and day_of(event.renew_by).isoformat(),
            "authority": event.authority,
            "text_read": event.text_read,
        }


def circumstances(study: Study, key: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the chain of circumstances, oldest first: representatives, deaths and incapacities, without reasons."""
    for row in Circumstance.chain(study.pk).iterator(chunk_size=2000):
        until = row.until and row.until.isoformat()
        yield {**_entry(row, key), "until": until, "number": receipt_number(row.hash, key)}


def _entry(row: ConsentEvent | Circumstance, key: str | None) -> dict[str, Any]:
    """Return the first fields, which are the same for rows of both chains."""
    return {
        "sequence": row.sequence,
        "day": row.recorded_at.astimezone(UTC).date().isoformat(),
        "holder": holder_mark(row.holder_id, key),
        "kind": row.kind,
    }


def export_csv(study: Study) -> Iterator[str]:
    """Yield the decisions as a table, piece by piece."""
    return csv_pieces(COLUMNS, decisions(study))


def export_json(study: Study) -> Iterator[str]:
    """Yield the decisions and the chains of forms and policies as one JSON document, piece by piece."""
    head = {"study": study.slug, "delta": study.delta, "exported_at": timezone.now().isoformat()}
    lists = {name: _rows(model, study) for name, model in _PUBLIC_CHAINS.items()}
    return json_pieces(head, lists | {"circumstances": circumstances(study), "decisions": decisions(study)})


def _rows(model: Any, study: Study) -> Iterator[dict[str, Any]]:
    """Yield the rows of a chain with all columns that their hash covers, and with the hash."""
    for row in model.chain(study.pk).iterator(chunk_size=1000):
        yield {name: getattr(row, name) for name in (*hashed_columns(model), "hash")}


def export_faults(
    study: Study, rows: Sequence[dict[str, Any]], circumstance_rows: Sequence[dict[str, Any]] = ()
) -> list[str]:
    """Return the differences between an export and the records as sentences (empty if they agree).

    Rows added after the export are not differences, and the file may use an earlier signing key that the site still
    has.

    Args:
        rows: rows as yielded by :func:`decisions`, from JSON or as strings from CSV.
        circumstance_rows: rows as yielded by :func:`circumstances`.
    """
    by_key = (
        [
            *_faults("decision", rows, decisions(study, key)),
            *_faults("circumstance", circumstance_rows, circumstances(study, key)),
        ]
        for key in keys_of(Purpose.SIGNING)
    )
    return min(by_key, key=len)


def _faults(name: str, rows: Sequence[dict[str, Any]], recorded: Iterator[dict[str, Any]]) -> Iterator[str]:
    for given in rows:
        row = next(recorded, None)
        if row is None:
            yield f"{name} {given.get('sequence')}: is not in the records, which end before it."
            return
        compared = [column for column in row if column in given or column not in _ADDED]
        wrong = [column for column in compared if _text(given.get(column)) != _text(row[column])]
        if wrong:
            yield f"{name} {row['sequence']}: {', '.join(wrong)} in the file differs from the record."


def _text(value: Any) -> str:
    return "" if value is None else str(value)


FORMATS: dict[str, Callable[[Study], Iterator[str]]] = {"csv": export_csv, "json": export_json}
"""Functions that write the file piece by piece, by file extension."""
