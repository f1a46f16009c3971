"""The whole ledger of a study for auditors, as CSV or JSON, one piece after the other. Not for publication."""

import csv
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.utils import timezone

from accounting.models import LedgerEntry, PrivacyGroup
from consent.models import Study

NOTICE = (
    "Not for publication: these costs follow from the votes of private data. What may be published is published_rdp."
)

#: The columns of an entry, in order; those of its group have a prefix.
COLUMNS = (
    *("sequence", "recorded_at", "recorded_by", "run", "batch", "group", "level", "group_epsilon", "group_holders"),
    *("mechanism", "sensitivity", "method", "conversion", "delta", "queries", "labels"),
    *("orders", "rdp", "published_rdp", "previous_hash", "hash"),
)


def ledger_rows(study: Study) -> Iterator[dict[str, Any]]:
    """Every entry of a study's ledger, the first one first, with all that its cost can be recomputed from."""
    entries = LedgerEntry.chain(study.pk).select_related("group__account")
    for entry in entries.iterator(chunk_size=500):
        yield {
            "sequence": entry.sequence,
            "recorded_at": _moment(entry.recorded_at),
            "recorded_by": entry.recorded_by_id,
            "run": str(entry.run),
            "batch": entry.batch,
            "group": entry.group.name,
            "level": entry.group.level,
            "group_epsilon": entry.group.epsilon,
            "group_holders": entry.group.holders,
            "mechanism": entry.mechanism,
            "sensitivity": entry.sensitivity,
            "method": entry.method,
            "conversion": entry.group.account.conversion,
            "delta": entry.delta,
            "queries": entry.queries,
            "labels": entry.labels,
            "orders": entry.orders,
            "rdp": entry.rdp,
            "published_rdp": entry.published_rdp,
            "previous_hash": entry.previous_hash,
            "hash": entry.hash,
        }


def ledger_csv(study: Study) -> Iterator[str]:
    """The ledger as CSV with a header; curves and parameters are JSON within their cell; every row bears the notice."""
    line = _Line()
    writer = csv.writer(line)
    writer.writerow([*COLUMNS, "notice"])
    yield line.text
    for row in ledger_rows(study):
        cells = [json.dumps(row[name]) if isinstance(row[name], list | dict) else row[name] for name in COLUMNS]
        writer.writerow([*cells, NOTICE])
        yield line.text


def ledger_json(study: Study) -> Iterator[str]:
    """The ledger as one JSON object: notice, study, δ, the chain's signed end, groups with their totals, entries."""
    head = LedgerEntry.head(study.pk)
    document = {
        "notice": NOTICE,
        "study": study.slug,
        "delta": study.delta,
        "exported_at": _moment(timezone.now()),
        "head": {"sequence": head.sequence, "hash": head.hash, "genuine": head.is_genuine},
        "groups": [_group(group) for group in _groups(study)],
    }
    yield json.dumps(document, indent=1, ensure_ascii=False)[:-2] + ',\n "entries": ['
    separator = "\n"
    for row in ledger_rows(study):
        yield separator + "  " + json.dumps(row, ensure_ascii=False)
        separator = ",\n"
    yield "\n ]\n}\n"


#: Name of a format → (media type, what makes it).
FORMATS = {"csv": ("text/csv", ledger_csv), "json": ("application/json", ledger_json)}


def export_name(study: Study, kind: str) -> str:
    """A file name that says what must not happen to the file."""
    return f"ledger-{study.slug}-not-for-publication.{kind}"


class _Line:
    """What csv.writer writes to: holds the last line."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def _groups(study: Study) -> Iterator[PrivacyGroup]:
    groups = PrivacyGroup.objects.filter(account__study=study, account__simulation=False)
    yield from groups.select_related("account").order_by("account__opened_at", "index")


def _group(group: PrivacyGroup) -> dict[str, Any]:
    return {
        "run": str(group.account.run),
        "is_reservation": group.account.is_reservation,
        "settled_at": group.account.settled_at and _moment(group.account.settled_at),
        "group": group.name,
        "level": group.level,
        "epsilon": group.epsilon,
        "holders": group.holders,
        "past_rdp": group.past_rdp,
        "spent_rdp": group.spent_rdp,
        "published_rdp": group.published_rdp,
        "reserved_rdp": group.reserved_rdp,
        "allowance": group.allowance,
    }


def _moment(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")
