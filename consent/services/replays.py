"""Replay, from the journal, of people's acts that a restored database lacks.

Decisions, circumstances and requests for erasure are recorded again as they were, with their time and the user who
recorded them. People who have decided again since the restore keep their newest decision. Acts that refer to a person
or row missing from the database cannot be recorded; people who made such a decision have to be asked again, and their
previous consent is no longer valid. If the form was lost, a withdrawal or refusal is recorded without a form.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from itertools import zip_longest
from typing import Any

from django.utils import timezone

from common.append_only import Chained, acts_models
from common.jobs import send
from consent.models import Circumstance, ConsentEvent, ConsentForm, DataHolder, Disposal, EpsilonPolicy, Study
from consent.people.circumstances import circumstance_last
from consent.selectors import EpsilonRule, consent_current, is_weakened_without_agreement, promise_last
from consent.services.holders import circumstance_append, is_handover

#: Rows that a row refers to, with their times of creation, because a restored database reuses the numbers of lost rows.
_REFERENCES: dict[str, tuple[type[Any], str]] = {
    "holder_id": (DataHolder, "created_at"),
    "form_id": (ConsentForm, "published_at"),
    "policy_id": (EpsilonPolicy, "proposed_at"),
}


@dataclass(frozen=True)
class Lost:
    """Rows that are in the journal but missing from the database.

    Attributes:
        rows: unsaved rows by model, oldest first.
        unrecordable: rows that refer to a person, form or policy that is also missing from the database.
        is_complete: whether the journal still has all lost rows.
        consents: unrecordable consents of people who are in the database, oldest first.
    """

    rows: dict[type[Chained], list[Any]] = field(default_factory=dict)
    unrecordable: list[Any] = field(default_factory=list)
    is_complete: bool = True
    consents: list[ConsentEvent] = field(default_factory=list)


def acts_lost(study: Study) -> Lost:
    """Return people's acts that are missing from a restored database."""
    rows: dict[type[Chained], list[Any]] = defaultdict(list)
    unrecordable: list[Any] = []
    is_complete, consents = True, []
    for model in acts_models():
        acts, whole = model.acts_lost(study.pk)
        is_complete &= whole
        for row in map(model.from_act, acts):
            gone = _references_lost(row)
            if isinstance(row, ConsentEvent) and gone == ["form_id"] and not row.grants:
                # A decision not to take part is valid regardless of the form that was read.
                row.form, row.text_read, gone = None, "", []
            if not gone:
                rows[model].append(row)
                continue
            unrecordable.append(row)
            if isinstance(row, ConsentEvent) and "holder_id" not in gone:
                consents.append(row)
    return Lost(dict(rows), unrecordable, is_complete, consents)


#: Labels in lists for the rows of each chain that records people's acts.
ACTS = {ConsentEvent: "decision", Circumstance: "who answers", Disposal: "erasure"}


def unrecordable_listed(study: Study, lost: Lost) -> list[tuple[str, str, date]]:
    """Return pseudonym, kind (one of `ACTS`) and day of each act that cannot be recorded, oldest first.

    The pseudonym is empty if the backup is older than the person's registration.
    """
    holders: set[int] = {holder for row in lost.unrecordable if (holder := getattr(row, "holder_id", None))}
    known = dict(DataHolder.objects.filter(study=study, pk__in=holders).values_list("pk", "pseudonym"))
    listed = [
        (
            "" if "holder_id" in _references_lost(row) else known.get(getattr(row, "holder_id", 0), ""),
            ACTS.get(type(row), "other"),
            row.recorded_at.date(),
        )
        for row in lost.unrecordable
    ]
    return sorted(listed, key=lambda each: each[2])


def acts_apply(study: Study, lost: Lost) -> list[Disposal]:
    """Record lost acts again; the caller holds the study's lock.

    Returns:
        Lost removals of datasets, withdrawals of encoders and results, and closings, which the code that stores
        datasets has to carry out again.
    """
    _circumstances_apply(lost.rows.get(Circumstance, []))
    _decisions_apply(lost.rows.get(ConsentEvent, []))
    _consents_end(lost.consents)
    disposals = lost.rows.get(Disposal, [])
    requests = [row for row in disposals if row.kind in (Disposal.Kind.ASKED, Disposal.Kind.KEPT)]
    if requests:
        Disposal.append(requests)
        send("training.tasks.records_erase", study.pk)
    again = (Disposal.Kind.DATASET, Disposal.Kind.ENCODER, Disposal.Kind.RESULT, Disposal.Kind.CLOSED)
    return [row for row in disposals if row.kind in again]


def _circumstances_apply(records: Iterable[Circumstance]) -> None:
    """Append circumstances, followed by a copy of the circumstances recorded for their holders since the restore.

    The lost circumstances show who answered when a decision was made, even if a newer circumstance is in force. A
    circumstance that only records that a date was reached is not considered newer, because a lost circumstance may have
    set another date.
    """
    lost: dict[int, list[Circumstance]] = defaultdict(list)
    for record in records:
        record.replayed_at = timezone.now()
        lost[record.holder_id].append(record)
    for mine in lost.values():
        since = circumstance_last(mine[-1].holder)
        if since is None or since.recorded_at < mine[-1].recorded_at or is_handover(since):
            for record in mine:
                circumstance_append(record)
        else:
            # The person who answers now keeps the link that they received after the restore.
            Circumstance.append([*mine, Circumstance.from_act(since.as_act())])


def _decisions_apply(events: Iterable[ConsentEvent]) -> None:
    """Append decisions, followed by a copy of their holders' decisions since the restore.

    A decision is left out if it would give a weaker promise than the previous decision and the holder did not agree to
    exactly that, because a restored database (possibly restored again later) could not show holders what they were
    giving up.
    """
    mine: dict[int, list[ConsentEvent]] = defaultdict(list)
    for event in events:
        mine[event.holder_id].append(event)
    for lost in mine.values():
        current = consent_current(lost[0].holder)
        if current is not None and current.recorded_at > max(event.recorded_at for event in lost):
            lost.append(ConsentEvent.from_act(current.as_act()))
    for each_next in zip_longest(*mine.values()):
        ConsentEvent.append([event for event in each_next if event is not None and not _weakens(event)])


def _consents_end(unknown: Iterable[ConsentEvent]) -> None:
    """End the current consents of holders who later gave a consent that is lost and cannot be recorded.

    The lost consent may have been for stronger protection. The consent in the database is recorded as valid until the
    time of the lost one, and the person who answers is asked again, like everyone whose consent has ended.
    """
    for given in unknown:
        current, promise = consent_current(given.holder), promise_last(given.holder)
        if current is None or promise is None or not current.grants or current.recorded_at > given.recorded_at:
            continue
        until = ConsentEvent.from_act(current.as_act())
        until.kind, until.channel = ConsentEvent.Kind.CHANGED, ConsentEvent.Channel.STAFF
        until.evidence, until.signed_on, until.epsilon_before, until.recorded_by_id = "", None, None, None
        until.policy, until.recorded_at, until.renew_by = promise.policy, given.recorded_at, given.recorded_at
        ConsentEvent.append([until])


def _weakens(event: ConsentEvent) -> bool:
    """Return whether a decision to be appended would weaken a promise without an agreement to exactly that."""
    last = promise_last(event.holder) if event.grants else None
    return last is not None and is_weakened_without_agreement(
        event, last.event, EpsilonRule(event.study, timezone.now())
    )


def _references_lost(row: Any) -> list[str]:
    """Return the columns of a row that refer to a missing row, or to a row newer than this one."""
    gone = []
    for column, (model, moment) in _REFERENCES.items():
        key = getattr(row, column, None)
        if key is None:
            continue
        moments = model.objects.filter(pk=key, study=row.study_id).values_list(moment, flat=True).first()
        if moments is None or moments > row.recorded_at:
            gone.append(column)
    return gone
