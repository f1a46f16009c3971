"""Decisions made on paper: signer, answer and day, with the scan as evidence. A list is recorded in full or not at all.

A decision on paper is bound to the version that was signed, and to the smallest ε that any policy has given the level
since the day of the signature (rule 5). People with an earlier, stronger promise keep it, with its level, unless they
separately agreed to a weaker promise on paper. No error mentions this, because that would reveal earlier choices to
someone trying out lists.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from itertools import islice

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import transaction
from django.db.models import Max
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from common.identities import spelling
from common.keyrings import KeyGoneError, content_open, content_seal, ring_destroy
from common.reading import UnreadableError, table_read_named
from consent.languages import language_of
from consent.models import (
    AUTHORITIES,
    Answerer,
    Circumstance,
    ConsentEvent,
    ConsentForm,
    DataHolder,
    EpsilonPolicy,
    Level,
    Study,
    study_lock,
)
from consent.people.circumstances import Answering, answering, day_begin, day_of, renew_by
from consent.people.pseudonyms import heading, holders_by_pseudonym, spelling_fault
from consent.selectors import GRANTING, EpsilonRule
from consent.services.decisions import check_answers_forget, declaration_statement
from consent.services.erasures import withdrawn_records_erase
from consent.services.mail import mails_to_holders

#: Entry in a list for someone who does not take part.
NOT_TAKING_PART = "NONE"
ANSWERS = (*Level.values, NOT_TAKING_PART)
COLUMNS = ("pseudonym", "level", "form_version", "signed_on", "evidence")
#: Optional column: the role in which someone signed, if it differs from the role recorded for that day.
SIGNED_BY = "answered_by"
#: Optional column: "keep" if a person who withdraws has stated in writing that their records may be kept.
RECORDS = "records"
KEEP = "keep"
#: Optional column: whether the box for the separate agreement to a weaker promise is ticked.
WEAKER = "weaker"
#: Optional column: the right by which someone signed for another person, as ticked next to the statement.
AUTHORITY = "authority"
#: Optional column: code of the form's text that was signed, such as de or de-x-easy.
TEXT = "text"
_MARKS = {"": False, "no": False, "yes": True}
#: File types allowed for scans, by the first bytes of the file.
SCANS = {b"%PDF-": ".pdf", b"\x89PNG\r\n\x1a\n": ".png", b"\xff\xd8\xff": ".jpg"}
LARGEST_SCAN = 20 * 2**20
_CHUNK = 2000


@dataclass(frozen=True, slots=True)
class PaperConsent:
    """Row of a list: ``level`` as in :class:`consent.models.Level`, or NONE; ``evidence`` is the scan's file name.

    ``answered_by`` is the role in which someone signed, or empty for the recorded answerer. ``records`` is KEEP if
    someone who withdraws has stated in writing that their records may be kept; otherwise they are erased. ``weaker``
    shows whether they agreed to a weaker promise than they had. ``authority`` is the right that a person who signed for
    someone else ticked next to the statement. ``text`` is the code of the signed text; empty if unknown.
    """

    row: int
    pseudonym: str
    level: str
    form_version: int
    signed_on: date
    evidence: str
    answered_by: str = ""
    records: str = ""
    weaker: bool = False
    authority: str = ""
    text: str = ""


@dataclass(frozen=True)
class Problem:
    """Error in a row of a list, with its correction. ``row`` is numbered as in a spreadsheet; 0 is the whole list."""

    row: int
    text: str

    def __str__(self) -> str:
        return _("Row %(row)d: %(text)s") % {"row": self.row, "text": self.text} if self.row else self.text


class PaperError(Exception):
    """Error that rejects a whole list. ``problems`` contains all errors in it, row by row."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


# --- Reading --------------------------------------------------------------------------------------------------------


def paper_list_read(content: bytes) -> list[PaperConsent]:
    """Read a list of decisions from a CSV file.

    Args:
        content: content of a CSV file with the columns ``COLUMNS``, in any order.

    Raises:
        PaperError: columns are missing, or a row's version or date cannot be read.
    """
    try:
        text = content.decode("utf-8-sig")
        separator, _names = heading(text.lstrip().partition("\n")[0], COLUMNS)
        return _decisions(table_read_named(text, delimiter=separator))
    except UnicodeDecodeError as error:
        raise PaperError([Problem(0, _("The list is not in UTF-8. Save it as “CSV UTF-8”."))]) from error
    except UnreadableError as error:
        raise PaperError([Problem(0, _("This is not a CSV file (%(error)s).") % {"error": error})]) from error


def _decisions(lines: Iterator[tuple[int, dict[str, str]]]) -> list[PaperConsent]:
    _line, names = next(lines, (0, {}))
    day = cache(date.fromisoformat)
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        message = _("Columns are missing: %(missing)s. The first line must name %(columns)s, separated by commas.")
        raise PaperError([Problem(0, message % {"missing": ", ".join(missing), "columns": ", ".join(COLUMNS)})])
    rows, problems = [], []
    for row, fields in lines:
        cells = {name: fields[name].strip() for name in COLUMNS}
        try:
            version, signed_on = int(cells["form_version"]), day(cells["signed_on"])
        except ValueError:
            message = _("“form_version” must be a whole number, and “signed_on” a date such as 2026-03-31.")
            problems.append(Problem(row, message))
            continue
        marked = _MARKS.get((fields.get(WEAKER) or "").strip().lower())
        if marked is None:
            problems.append(Problem(row, _("“weaker” must be yes, no or empty.")))
            continue
        # The same few strings occur in many rows; interning stores each of them once.
        level, evidence = sys.intern(cells["level"].upper()), sys.intern(cells["evidence"])
        signed_by = sys.intern((fields.get(SIGNED_BY) or "").strip().lower())
        records = sys.intern((fields.get(RECORDS) or "").strip().lower())
        authority = sys.intern((fields.get(AUTHORITY) or "").strip().lower())
        text = sys.intern((fields.get(TEXT) or "").strip().lower())
        values = (row, cells["pseudonym"], level, version, signed_on, evidence, signed_by)
        rows.append(PaperConsent(*values, records, weaker=marked, authority=authority, text=text))
    if problems:
        raise PaperError(problems)
    return rows


def scan_problem(name: str, content: bytes) -> str:
    """Return the error of a scan as a sentence (empty if it is valid)."""
    if len(content) > LARGEST_SCAN:
        return _("%(name)s is larger than 20 MB. Scan it at a lower resolution.") % {"name": name}
    if not any(content.startswith(start) for start in SCANS):
        return _("%(name)s is not a PDF, PNG or JPEG file. Scan the document in one of these formats.") % {"name": name}
    return ""


def scan_store(study: Study, content: bytes) -> str:
    """Store a scan in private storage under its SHA-256, unless it is already there.

    Returns:
        The SHA-256 in hexadecimal.
    """
    digest = hashlib.sha256(content).hexdigest()
    suffix = next(suffix for start, suffix in SCANS.items() if content.startswith(start))
    name = f"evidence/{study.pk}/{digest}{suffix}"
    if scan_load(study, digest) is None:
        storages["private"].delete(name)  # a file from a restored backup whose key has been deleted
        storages["private"].save(name, ContentFile(content_seal(_scan_ring(study, digest), content)))
    return digest


def scan_load(study: Study, digest: str) -> tuple[str, bytes] | None:
    """Return file name and content of the scan with this SHA-256; None if the file no longer exists."""
    for suffix in SCANS.values():
        name = f"evidence/{study.pk}/{digest}{suffix}"
        if storages["private"].exists(name):
            with storages["private"].open(name) as file, suppress(KeyGoneError):
                return f"{digest}{suffix}", content_open(_scan_ring(study, digest), file.read())
    return None


def scan_delete(study: Study, digest: str) -> None:
    """Delete the scan with this SHA-256, if it exists, and its key, without which backups of it cannot be read."""
    ring_destroy(_scan_ring(study, digest))
    for suffix in SCANS.values():
        storages["private"].delete(f"evidence/{study.pk}/{digest}{suffix}")


def _scan_ring(study: Study, digest: str) -> str:
    return f"scan-{study.pk}-{digest}"


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
    """Record the decisions in a list, either all or none.

    Args:
        scans: content by file name, as used in the rows.
        dry_run: whether to check for errors without recording anything.
        watch: wrapper for the iterations over the rows (one to check, one to record them), for example a progress bar.

    Returns:
        The number of decisions.

    Raises:
        PaperError: lists every error in every row.
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
            for keep in (False, True):
                withdrawn = [
                    event.holder_id
                    for consent, event in zip(chunk, events, strict=True)
                    if event.kind == ConsentEvent.Kind.WITHDRAWN and (consent.records == KEEP) is keep
                ]
                withdrawn_records_erase(study, withdrawn, keep=keep, acting_user=acting_user)
            check_answers_forget([event.holder_id for event in events if not event.grants])
            decided = DataHolder.objects.filter(pk__in=[event.holder_id for event in events])
            mails_to_holders("receipt", decided, study)
    return len(consents)


def _chunks(consents: Iterable[PaperConsent]) -> Iterator[Sequence[PaperConsent]]:
    """Yield chunks of rows that are small enough to query all their holders at once."""
    rows = iter(consents)
    while chunk := list(islice(rows, _CHUNK)):
        yield chunk


def _repeated(consents: Iterable[PaperConsent]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for consent in consents:
        if (row := first.setdefault(spelling(consent.pseudonym), consent.row)) != consent.row:
            message = _("“%(pseudonym)s” is also in row %(row)d. Keep the row with the latest signature.")
            yield Problem(consent.row, message % {"pseudonym": consent.pseudonym, "row": row})


class _Paper:
    """Snapshot of a study's forms and policies, for checking rows and turning them into events."""

    def __init__(self, study: Study, now: datetime) -> None:
        self.study, self.now = study, now
        self.forms = {form.version: form for form in ConsentForm.objects.filter(study=study)}
        self.rule = EpsilonRule(study, now)
        self.policies = self.rule.policies
        # Cached because many rows were signed on the same day.
        self._policies_since = cache(self._policies_from)
        self._policy = cache(self._smallest_since)
        self._statement = cache(_statement_in)

    def _answering(self, holders: Iterable[int]) -> dict[int, Circumstance]:
        """Return the last recorded circumstance by holder, for holders with a circumstance."""
        return {each.holder_id: each for each in Circumstance.objects.filter(holder__in=list(holders))}

    def _last_decisions(self, consents: Sequence[PaperConsent]) -> tuple[dict[str, int], dict[int, ConsentEvent]]:
        """Return pseudonym → holder id, and holder id → last event, for the holders in some rows."""
        pseudonyms = [consent.pseudonym for consent in consents]
        holders = holders_by_pseudonym(self.study, pseudonyms)
        events = ConsentEvent.objects.filter(holder__in=holders.values()).order_by()
        last = events.values("holder").annotate(last=Max("sequence")).values_list("last", flat=True)
        last_decisions = ConsentEvent.objects.filter(study=self.study, sequence__in=list(last))
        return holders, {event.holder_id: event for event in last_decisions}

    def _promises(self, holders: Mapping[str, int]) -> dict[int, ConsentEvent]:
        """Return the last consent of each given holder, even if it was withdrawn."""
        granting = ConsentEvent.objects.filter(holder__in=holders.values(), kind__in=GRANTING).order_by()
        last = granting.values("holder").annotate(last=Max("sequence")).values_list("last", flat=True)
        events = ConsentEvent.objects.filter(study=self.study, sequence__in=list(last))
        return {event.holder_id: event for event in events}

    def _policies_from(self, day: date) -> list[EpsilonPolicy]:
        """Return the policy in force when ``day`` began and all later policies; empty if none was in force then."""
        begin = day_begin(day)
        dates = [policy.approval.effective_from for policy in self.policies]
        if not dates or dates[0] >= day_begin(day + timedelta(days=1)):
            return []
        before = sum(effective <= begin for effective in dates)
        return self.policies[max(before - 1, 0) :]

    def _smallest_since(self, day: date, level: str) -> EpsilonPolicy:
        """Return the policy that applies to a decision for ``level`` signed on ``day``."""
        return min(self._policies_since(day), key=lambda policy: policy.epsilon(level))

    def problems(self, consents: Sequence[PaperConsent], scans: Mapping[str, bytes]) -> Iterator[Problem]:
        holders, last_decisions = self._last_decisions(consents)
        circumstances = self._answering(holders.values())
        for consent in consents:
            answered = _answered(consent, circumstances.get(holders.get(consent.pseudonym, 0)))
            yield from _answerer_problems(consent, answered)
            yield from _declaration_problems(consent, answered)
            if consent.pseudonym not in holders:
                message = _(
                    "no one in this study has the pseudonym “%(name)s”. Check the spelling, or import this person's "
                    "records first."
                )
                fault = spelling_fault(consent.pseudonym)
                yield Problem(consent.row, fault or message % {"name": consent.pseudonym})
            elif (event := last_decisions.get(holders[consent.pseudonym])) and consent.signed_on <= _decided_on(event):
                message = _("“%(name)s” made a newer decision on %(day)s. Remove this row.")
                yield Problem(consent.row, message % {"name": consent.pseudonym, "day": _decided_on(event).isoformat()})
            if consent.level not in ANSWERS:
                message = _("the level is “%(level)s”. Write one of %(levels)s.")
                yield Problem(consent.row, message % {"level": consent.level, "levels": ", ".join(ANSWERS)})
            elif consent.records not in ("", KEEP) or (consent.records and consent.level != NOT_TAKING_PART):
                message = _("“records” is “%(records)s”. Write “keep” for a person who withdraws, or leave it empty.")
                yield Problem(consent.row, message % {"records": consent.records})
            elif self.study.is_closed and consent.level != NOT_TAKING_PART:
                yield Problem(consent.row, _("the study is closed, so no one can join. Remove this row."))
            form = self.forms.get(consent.form_version)
            if consent.text and form is not None and consent.text not in form.texts:
                message = _(
                    "version %(version)d of the form has no text “%(text)s”. Write one of %(texts)s, or leave it empty."
                )
                values = {"version": form.version, "text": consent.text, "texts": ", ".join(sorted(form.texts))}
                yield Problem(consent.row, message % values)
            if form is None or day_of(form.published_at) > consent.signed_on:
                message = _(
                    "version %(version)d of the form was not published on %(day)s. Check which version was signed."
                )
                day = consent.signed_on.isoformat()
                yield Problem(consent.row, message % {"version": consent.form_version, "day": day})
            if consent.signed_on > day_of(self.now):
                yield Problem(consent.row, _("the date of the signature is in the future. Check the date."))
            elif not self._policies_since(consent.signed_on):
                yield Problem(consent.row, _("no ε policy was in force on that day. Check the date."))
            if consent.evidence not in scans:
                message = _("the scan “%(name)s” is missing. Upload it with the list.")
                yield Problem(consent.row, message % {"name": consent.evidence})

    def events(
        self, consents: Sequence[PaperConsent], digests: Mapping[str, str], acting_user: AbstractBaseUser
    ) -> list[ConsentEvent]:
        holders, last_decisions = self._last_decisions(consents)
        circumstances, promises = self._answering(holders.values()), self._promises(holders)
        events = []
        for consent in consents:
            holder = holders[consent.pseudonym]
            event = self._event(consent, holder, last_decisions, digests[consent.evidence], acting_user)
            event.answered_by = _answered(consent, circumstances.get(holder)).role
            if consent.authority and event.grants:
                event.authority, event.statement = consent.authority, self._statement(consent.text)
            if event.grants and holder in promises:
                self._hold(event, promises[holder], accepts_weaker=consent.weaker)
            events.append(event)
        return events

    def _hold(self, event: ConsentEvent, last: ConsentEvent, *, accepts_weaker: bool) -> None:
        """Keep the person's previous promise for a consent on paper, unless they explicitly accept a weaker one."""
        assert event.policy is not None and last.policy_id is not None, "every consent is given under a policy"
        kept = self.rule.policy(last.policy_id, last.level, last.recorded_at)
        epsilon = kept.epsilon(last.level)
        if event.policy.epsilon(event.level) <= epsilon:
            return
        if accepts_weaker:
            event.epsilon_before = epsilon
        else:
            event.level, event.policy = last.level, kept

    def _event(
        self,
        consent: PaperConsent,
        holder_id: int,
        last_decisions: Mapping[int, ConsentEvent],
        digest: str,
        acting_user: AbstractBaseUser,
    ) -> ConsentEvent:
        takes_part, current = consent.level != NOT_TAKING_PART, last_decisions.get(holder_id)
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
            text_read=consent.text,
            renew_by=renew_by(form, consent.signed_on),
            policy=self._policy(consent.signed_on, consent.level) if takes_part else None,
            channel=ConsentEvent.Channel.PAPER,
            evidence=digest,
            signed_on=consent.signed_on,
            recorded_by_id=acting_user.pk,
            recorded_at=self.now,
        )


def _answered(consent: PaperConsent, circumstance: Circumstance | None) -> Answering:
    """Return the person who answered on the day of the signature, according to the current record."""
    if circumstance is None:
        return Answering()
    return answering(circumstance.kind, circumstance.until, consent.signed_on)


def _answerer_problems(consent: PaperConsent, answered: Answering) -> Iterator[Problem]:
    if consent.answered_by and consent.answered_by != answered.role:
        message = _(
            "on that day, “%(role)s” answered for “%(name)s” according to our records. Check this, or first "
            "record who answers."
        )
        role = Answerer(answered.role).label
        yield Problem(consent.row, message % {"role": role, "name": consent.pseudonym})
    if not answered.consents and consent.level != NOT_TAKING_PART:
        message = _("“%(name)s” is recorded as having died or being unable to decide. Only NONE can be recorded.")
        yield Problem(consent.row, message % {"name": consent.pseudonym})


def _declaration_problems(consent: PaperConsent, answered: Answering) -> Iterator[Problem]:
    """Yield errors in a declaration of authority to consent for another person. They depend only on who answers."""
    rights = AUTHORITIES.get(answered.role, ())
    if consent.level == NOT_TAKING_PART and not consent.authority:
        return
    if rights and consent.authority not in rights:
        message = _(
            "“%(role)s” signed for “%(name)s”. In the column “authority”, write the right that they ticked next to "
            "the statement (one of %(rights)s). Without it, the form is not valid."
        )
        values = {"role": Answerer(answered.role).label, "name": consent.pseudonym, "rights": ", ".join(rights)}
        yield Problem(consent.row, message % values)
    elif consent.authority and not rights:
        message = _(
            "on that day, “%(name)s” answered for themselves according to our records. Leave “authority” empty."
        )
        yield Problem(consent.row, message % {"name": consent.pseudonym})


def _statement_in(code: str) -> str:
    """Return the declaration's statement as printed on the form with this text, by default in the first language."""
    language = language_of(code)
    with translation.override(language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE):
        return declaration_statement()


def _decided_on(event: ConsentEvent) -> date:
    return event.signed_on or day_of(event.recorded_at)
