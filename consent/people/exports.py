"""Consent records of a study as files, for auditors: which decisions were made, and what people were asked.

No level, no pseudonym and no time of the day: one person's choice is looked up by data stewards alone, on record, and
auditors see how many decided on which day. Nor the hashes of the
chain of decisions, against which every level could be tried. In their place each row has the number that stands on its
holder's receipt, a keyed hash of the row's hash, which covers all that was recorded and the row before. Rows of forms,
policies and remarks tell nothing of holders and have their hashes.
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

#: Columns of a decision, in order; docs/consent.md says what each holds.
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
#: Columns that older files lack.
_ADDED = frozenset({"answered_by", "renew_by", "authority", "text_read"})
#: Chains that tell nothing of holders, by their names in the file.
_PUBLIC_CHAINS = {
    "forms": ConsentForm,
    "form_proposals": ConsentFormProposal,
    "policies": EpsilonPolicy,
    "policy_approvals": EpsilonPolicyApproval,
    "remarks": Remark,
    "changes": ConfigurationChange,
}


def export_name(study: Study, kind: str) -> str:
    """File name: study, date, ending."""
    return f"{study.slug}-consents-{timezone.localdate():%Y-%m-%d}.{kind}"


def holder_mark(holder_id: int | str, key: str | None = None) -> str:
    """16 hexadecimal digits that stand for a holder in every export, and lead nowhere without a key."""
    return digest("consent.exports", str(holder_id), key)[:16]


def decisions(study: Study, key: str | None = None) -> Iterator[dict[str, Any]]:
    """Rows of the chain of decisions, oldest first, with the columns ``COLUMNS``; by default under today's ``key``."""
    versions = dict(ConsentForm.objects.filter(study=study).values_list("pk", "version"))
    policies = list(policies_in_force(study).select_related("approval"))
    dates = [policy.approval.effective_from for policy in policies]
    for event in ConsentEvent.chain(study.pk).iterator(chunk_size=2000):
        yield {
            **_entry(event, key),
            "form_version": versions.get(event.form_id),
            # The one in force then: which earlier promise somebody kept would tell their level.
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
    """Rows of the chain of circumstances, oldest first: who answered for whom, deaths and incapacities; no reasons."""
    for row in Circumstance.chain(study.pk).iterator(chunk_size=2000):
        until = row.until and row.until.isoformat()
        yield {**_entry(row, key), "until": until, "number": receipt_number(row.hash, key)}


def _entry(row: ConsentEvent | Circumstance, key: str | None) -> dict[str, Any]:
    """Common first fields of the rows of both chains."""
    return {
        "sequence": row.sequence,
        "day": row.recorded_at.astimezone(UTC).date().isoformat(),
        "holder": holder_mark(row.holder_id, key),
        "kind": row.kind,
    }


def export_csv(study: Study) -> Iterator[str]:
    """Decisions as a table, piece by piece."""
    return csv_pieces(COLUMNS, decisions(study))


def export_json(study: Study) -> Iterator[str]:
    """Decisions, and the chains of what people were asked, as one JSON document, piece by piece."""
    head = {"study": study.slug, "delta": study.delta, "exported_at": timezone.now().isoformat()}
    lists = {name: _rows(model, study) for name, model in _PUBLIC_CHAINS.items()}
    return json_pieces(head, lists | {"circumstances": circumstances(study), "decisions": decisions(study)})


def _rows(model: Any, study: Study) -> Iterator[dict[str, Any]]:
    """Rows of a chain with every column that their hash covers, and the hash."""
    for row in model.chain(study.pk).iterator(chunk_size=1000):
        yield {name: getattr(row, name) for name in (*hashed_columns(model), "hash")}


def export_faults(
    study: Study, rows: Sequence[dict[str, Any]], circumstance_rows: Sequence[dict[str, Any]] = ()
) -> list[str]:
    """Differences between an export and the records, in words; none where they agree.

    Later rows are no fault, nor is a file from under an earlier key for signatures that is still known.

    Args:
        rows: as :func:`decisions` gives them, in JSON or as texts of CSV.
        circumstance_rows: as :func:`circumstances` gives them.
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
            yield f"{name} {given.get('sequence')}: the records end before it; rows are missing there."
            return
        compared = [column for column in row if column in given or column not in _ADDED]
        wrong = [column for column in compared if _text(given.get(column)) != _text(row[column])]
        if wrong:
            yield f"{name} {row['sequence']}: {', '.join(wrong)} in the file is not what is on record."


def _text(value: Any) -> str:
    return "" if value is None else str(value)


FORMATS: dict[str, Callable[[Study], Iterator[str]]] = {"csv": export_csv, "json": export_json}
"""What writes the file piece by piece, by its ending."""
