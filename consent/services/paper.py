"""Decisions made on paper: who signed what, when, and the scan that proves it. A list is recorded whole or not at all.

A decision on paper is held to what stood on the paper: the version that was signed, and no larger ε than any policy has
given the level since the day of the signature (rule 5).
"""

import csv
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import islice
from typing import IO

from django.contrib.auth.models import AbstractBaseUser
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import transaction
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _

from consent.circumstances import Answering, answering, renew_by
from consent.models import Answerer, Circumstance, ConsentEvent, ConsentForm, DataHolder, EpsilonPolicy, Level, Study
from consent.pseudonyms import holders_found
from consent.selectors import policies_in_force
from consent.services import study_lock
from consent.services.erasures import withdrawals_follow
from consent.services.mail import mails_send

#: What a list says of somebody who does not take part.
NOT_TAKING_PART = "NONE"
ANSWERS = (*Level.values, NOT_TAKING_PART)
COLUMNS = ("pseudonym", "level", "form_version", "signed_on", "evidence")
#: Column that a list may have besides: in which role somebody signed, where it is not who is on record for that day.
SIGNED_BY = "answered_by"
#: What a scan may be, by the first bytes of the file.
SCANS = {b"%PDF-": ".pdf", b"\x89PNG\r\n\x1a\n": ".png", b"\xff\xd8\xff": ".jpg"}
LARGEST_SCAN = 20 * 2**20
_CHUNK = 2000


@dataclass(frozen=True, slots=True)
class PaperConsent:
    """Row of a list: ``level`` as in :class:`consent.models.Level`, or NONE; ``evidence`` names the scan.

    ``answered_by`` is the role in which somebody signed, or empty for whoever is on record.
    """

    row: int
    pseudonym: str
    level: str
    form_version: int
    signed_on: date
    evidence: str
    answered_by: str = ""


@dataclass(frozen=True)
class Problem:
    """Error in a row of a list, with what to do. ``row`` counts as a spreadsheet does; 0 is the whole list."""

    row: int
    text: str

    def __str__(self) -> str:
        return _("Row %(row)d: %(text)s") % {"row": self.row, "text": self.text} if self.row else self.text


class PaperError(Exception):
    """Refusal of a whole list; ``problems`` are its errors, row by row."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


# --- Reading --------------------------------------------------------------------------------------------------------


def paper_list_read(file: IO[str]) -> list[PaperConsent]:
    """Read a list of decisions from a CSV file.

    Args:
        file: an open CSV file with the columns ``COLUMNS``, in any order.

    Raises:
        PaperError: missing columns, or rows whose version or date cannot be read.
    """
    reader, day = csv.DictReader(file), cache(date.fromisoformat)
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        message = _("Columns are missing: %(missing)s. The first line must name %(columns)s, separated by commas.")
        raise PaperError([Problem(0, message % {"missing": ", ".join(missing), "columns": ", ".join(COLUMNS)})])
    rows, problems = [], []
    for fields in reader:
        row = reader.line_num
        cells = {name: (fields[name] or "").strip() for name in COLUMNS}
        try:
            version, signed_on = int(cells["form_version"]), day(cells["signed_on"])
        except ValueError:
            message = _("form_version must be a whole number and signed_on a date such as 2026-03-31.")
            problems.append(Problem(row, message))
            continue
        # Few texts stand in many rows; a long list holds each of them once.
        level, evidence = sys.intern(cells["level"].upper()), sys.intern(cells["evidence"])
        signed_by = sys.intern((fields.get(SIGNED_BY) or "").strip().lower())
        rows.append(PaperConsent(row, cells["pseudonym"], level, version, signed_on, evidence, signed_by))
    if problems:
        raise PaperError(problems)
    return rows


def scan_problem(name: str, content: bytes) -> str:
    """Error of a scan, as a sentence; empty for a valid one."""
    if len(content) > LARGEST_SCAN:
        return _("%(name)s is larger than 20 MB. Scan it at a lower resolution.") % {"name": name}
    if not any(content.startswith(start) for start in SCANS):
        return _("%(name)s is no PDF, PNG or JPEG file. Scan it as one of these.") % {"name": name}
    return ""


def scan_store(study: Study, content: bytes) -> str:
    """Store a scan in private storage under its SHA-256, once.

    Returns:
        The SHA-256 in hexadecimal.
    """
    digest = hashlib.sha256(content).hexdigest()
    suffix = next(suffix for start, suffix in SCANS.items() if content.startswith(start))
    name = f"evidence/{study.pk}/{digest}{suffix}"
    if not storages["private"].exists(name):
        storages["private"].save(name, ContentFile(content))
    return digest


def scan_load(study: Study, digest: str) -> tuple[str, bytes] | None:
    """File name and content of the scan with this SHA-256; None where the file is gone."""
    for suffix in SCANS.values():
        name = f"evidence/{study.pk}/{digest}{suffix}"
        if storages["private"].exists(name):
            with storages["private"].open(name) as file:
                return f"{digest}{suffix}", file.read()
    return None


def scan_delete(study: Study, digest: str) -> None:
    """Delete the scan with this SHA-256, if it is there."""
    for suffix in SCANS.values():
        storages["private"].delete(f"evidence/{study.pk}/{digest}{suffix}")


# --- Recording ------------------------------------------------------------------------------------------------------


@transaction.atomic
def paper_consents_record(
    *,
    study: Study,
    consents: Sequence[PaperConsent],
    scans: Mapping[str, bytes],
    acting_user: AbstractBaseUser,
    dry_run: bool = False,
    watch: Callable[[Sequence[PaperConsent]], Iterable[PaperConsent]] = iter,
) -> int:
    """Record the decisions of a list, all or none.

    Args:
        study: the study of the holders.
        consents: the rows.
        scans: content by the file name that the rows give.
        acting_user: the operator who records them.
        dry_run: only look for errors.
        watch: the rows pass through it when they are checked and again when they are recorded; a progress bar, for
            example.

    Returns:
        The number of decisions.

    Raises:
        PaperError: every error of every row.
    """
    study = study_lock(study.pk)
    now = timezone.now()
    paper = _Paper(study, now)
    problems = [Problem(0, message) for name, content in scans.items() if (message := scan_problem(name, content))]
    problems += _repeated(consents)
    for chunk in _chunks(watch(consents)):
        problems += paper.problems(chunk, scans)
    if problems:
        raise PaperError(sorted(problems, key=lambda problem: problem.row))
    if not dry_run:
        digests = {name: scan_store(study, content) for name, content in scans.items()}
        for chunk in _chunks(watch(consents)):
            events = ConsentEvent.append(paper.events(chunk, digests, acting_user))
            withdrawn = [event.holder_id for event in events if event.kind == ConsentEvent.Kind.WITHDRAWN]
            withdrawals_follow(study, withdrawn, erase=False, acting_user=acting_user)
            accounts = DataHolder.objects.filter(pk__in=[event.holder_id for event in events], user__isnull=False)
            mails_send("receipt", accounts.values_list("user_id", flat=True), study=study)
    return len(consents)


def _chunks(consents: Iterable[PaperConsent]) -> Iterator[Sequence[PaperConsent]]:
    """Chunks of rows small enough to query all their holders at once."""
    rows = iter(consents)
    while chunk := list(islice(rows, _CHUNK)):
        yield chunk


def _repeated(consents: Iterable[PaperConsent]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for consent in consents:
        if (row := first.setdefault(consent.pseudonym, consent.row)) != consent.row:
            message = _("“%(pseudonym)s” stands in row %(row)d, too. Keep the one that was signed last.")
            yield Problem(consent.row, message % {"pseudonym": consent.pseudonym, "row": row})


class _Paper:
    """Snapshot of a study's forms and policies that checks rows and makes events of them."""

    def __init__(self, study: Study, now: datetime) -> None:
        self.study, self.now = study, now
        self.forms = {form.version: form for form in ConsentForm.objects.filter(study=study)}
        self.policies = list(policies_in_force(study, now).select_related("approval"))
        # Many rows were signed on one day.
        self._policies_since = cache(self._policies_from)
        self._policy = cache(self._smallest_since)

    def _answering(self, holders: Iterable[int]) -> dict[int, Circumstance]:
        """Last circumstance on record by holder, for those who have any."""
        return {each.holder_id: each for each in Circumstance.objects.filter(holder__in=list(holders))}

    def _standing(self, consents: Sequence[PaperConsent]) -> tuple[dict[str, int], dict[int, ConsentEvent]]:
        """Pseudonym → holder id, and holder id → their last event, of the holders of some rows."""
        pseudonyms = [consent.pseudonym for consent in consents]
        holders = holders_found(self.study, pseudonyms)
        events = ConsentEvent.objects.filter(holder__in=holders.values()).order_by()
        last = events.values("holder").annotate(last=Max("sequence")).values_list("last", flat=True)
        standing = ConsentEvent.objects.filter(study=self.study, sequence__in=list(last))
        return holders, {event.holder_id: event for event in standing}

    def _policies_from(self, day: date) -> list[EpsilonPolicy]:
        """The policy in force when ``day`` began (UTC) and all since; empty if none was in force on that day."""
        begin = datetime.combine(day, time(), UTC)
        dates = [policy.approval.effective_from for policy in self.policies]
        if not dates or dates[0] >= begin + timedelta(days=1):
            return []
        before = sum(effective <= begin for effective in dates)
        return self.policies[max(before - 1, 0) :]

    def _smallest_since(self, day: date, level: str) -> EpsilonPolicy:
        """The policy that a decision for ``level``, signed on ``day``, is held to."""
        return min(self._policies_since(day), key=lambda policy: policy.epsilon(level))

    def problems(self, consents: Sequence[PaperConsent], scans: Mapping[str, bytes]) -> Iterator[Problem]:
        holders, standing = self._standing(consents)
        circumstances = self._answering(holders.values())
        for consent in consents:
            yield from _answerer_problems(
                consent, _answered(consent, circumstances.get(holders.get(consent.pseudonym, 0)))
            )
            if consent.pseudonym not in holders:
                message = _("nobody in this study is called “%(name)s”. Check it, or import their records first.")
                yield Problem(consent.row, message % {"name": consent.pseudonym})
            elif (event := standing.get(holders[consent.pseudonym])) and consent.signed_on <= _decided_on(event):
                message = _("“%(name)s” has decided on %(day)s; what is newer stands. Leave this row out.")
                yield Problem(consent.row, message % {"name": consent.pseudonym, "day": _decided_on(event).isoformat()})
            if consent.level not in ANSWERS:
                message = _("the level is “%(level)s”. Write one of %(levels)s.")
                yield Problem(consent.row, message % {"level": consent.level, "levels": ", ".join(ANSWERS)})
            elif self.study.is_closed and consent.level != NOT_TAKING_PART:
                yield Problem(consent.row, _("the study is closed: nobody can take part any more. Leave this row out."))
            form = self.forms.get(consent.form_version)
            if form is None or form.published_at.date() > consent.signed_on:
                message = _("version %(version)d of the form was not published on %(day)s. Check which one was signed.")
                day = consent.signed_on.isoformat()
                yield Problem(consent.row, message % {"version": consent.form_version, "day": day})
            if consent.signed_on > self.now.date():
                yield Problem(consent.row, _("the day of the signature has not come yet. Check the date."))
            elif not self._policies_since(consent.signed_on):
                yield Problem(consent.row, _("no ε policy was in force on that day. Check the date."))
            if consent.evidence not in scans:
                message = _("the scan “%(name)s” is missing. Hand it in with the list.")
                yield Problem(consent.row, message % {"name": consent.evidence})

    def events(
        self, consents: Sequence[PaperConsent], digests: Mapping[str, str], acting_user: AbstractBaseUser
    ) -> list[ConsentEvent]:
        holders, standing = self._standing(consents)
        circumstances = self._answering(holders.values())
        events = []
        for consent in consents:
            holder = holders[consent.pseudonym]
            event = self._event(consent, holder, standing, digests[consent.evidence], acting_user)
            event.answered_by = _answered(consent, circumstances.get(holder)).role
            events.append(event)
        return events

    def _event(
        self,
        consent: PaperConsent,
        holder_id: int,
        standing: Mapping[int, ConsentEvent],
        digest: str,
        acting_user: AbstractBaseUser,
    ) -> ConsentEvent:
        takes_part, current = consent.level != NOT_TAKING_PART, standing.get(holder_id)
        kinds = ConsentEvent.Kind
        if current and current.grants:
            kind = kinds.CHANGED if takes_part else kinds.WITHDRAWN
        else:
            kind = kinds.GIVEN if takes_part else kinds.REFUSED
        form = self.forms[consent.form_version]
        return ConsentEvent(
            study_id=self.study.pk,
            holder_id=holder_id,
            kind=kind,
            level=consent.level if takes_part else "",
            form_id=form.pk,
            renew_by=renew_by(form, consent.signed_on),
            policy_id=self._policy(consent.signed_on, consent.level).pk if takes_part else None,
            channel=ConsentEvent.Channel.PAPER,
            evidence=digest,
            signed_on=consent.signed_on,
            recorded_by_id=acting_user.pk,
            recorded_at=self.now,
        )


def _answered(consent: PaperConsent, circumstance: Circumstance | None) -> Answering:
    """Answerer for the person on the day of the signature, by what is on record now."""
    if circumstance is None:
        return Answering()
    return answering(circumstance.kind, circumstance.until, consent.signed_on)


def _answerer_problems(consent: PaperConsent, answered: Answering) -> Iterator[Problem]:
    if consent.answered_by and consent.answered_by != answered.role:
        message = _("on that day “%(role)s” answered for “%(name)s” by the record. Check it, or record first who does.")
        role = Answerer(answered.role).label
        yield Problem(consent.row, message % {"role": role, "name": consent.pseudonym})
    if not answered.consents and consent.level != NOT_TAKING_PART:
        message = _("it is on record that “%(name)s” has died or cannot decide. Only NONE can be recorded.")
        yield Problem(consent.row, message % {"name": consent.pseudonym})


def _decided_on(event: ConsentEvent) -> date:
    return event.signed_on or event.recorded_at.date()
