"""Read queries of the consent app that join or aggregate."""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
from django.conf import settings
from django.db import connection
from django.db.models import Case, Exists, Max, OuterRef, Q, QuerySet, Value, When
from django.db.models.expressions import Combinable
from django.utils import timezone

from common.journal import journal_read
from consent.models import (
    Circumstance,
    ConsentEvent,
    ConsentForm,
    ConsentFormDraft,
    ConsentFormProposal,
    DataHolder,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Level,
    Membership,
    Remark,
    RoleChange,
    Study,
)
from consent.people.circumstances import (
    Answering,
    Lapse,
    Lapses,
    answering,
    authority_has_ended,
    day_of,
    required_form_version,
    valid_forms,
)

#: The position of each level in a snapshot's ``levels``.
LEVELS = tuple(Level.values)
#: The kinds of event after which a holder takes part.
GRANTING = (ConsentEvent.Kind.GIVEN, ConsentEvent.Kind.CHANGED)


def consent_form_in_force(study: Study) -> ConsentForm | None:
    """Return the newest published version of the consent form, or None."""
    return ConsentForm.objects.filter(study=study).first()


def consent_form_languages(study: Study) -> list[str]:
    """Return the language codes of the next version: the site's first, then the study's, then those of other texts."""
    form, draft = consent_form_in_force(study), ConsentFormDraft.objects.filter(study=study).first()
    written = [*(form.texts if form else ()), *(draft.texts if draft else ())]
    return list(dict.fromkeys([settings.LANGUAGE_CODE, *study.languages, *written]))


def policies_approved(study: Study) -> QuerySet[Any]:
    """Return approved policies by date; ``is_replaced`` if a newer policy takes effect on the same date or earlier.

    A replaced policy never takes effect, because the committee's latest decision applies.
    """
    return _approved(study).annotate(is_replaced=_is_replaced())


def policies_in_force(study: Study, at: datetime | None = None) -> QuerySet[EpsilonPolicy]:
    """Return the approved policies in effect at ``at`` (default: now) or earlier, the current one last."""
    return _approved(study).filter(~_is_replaced(), approval__effective_from__lte=at or timezone.now())


def _approved(study: Study) -> QuerySet[EpsilonPolicy]:
    approved = EpsilonPolicy.objects.filter(study=study, approval__isnull=False)
    return approved.order_by("approval__effective_from", "version")


def _is_replaced() -> Exists:
    newer = EpsilonPolicyApproval.objects.filter(
        policy__study=OuterRef("study"),
        policy__version__gt=OuterRef("version"),
        effective_from__lte=OuterRef("approval__effective_from"),
    )
    return Exists(newer)


def policy_in_force(study: Study, at: datetime | None = None) -> EpsilonPolicy | None:
    """Return the policy in force at ``at`` (default: now), or None."""
    return policies_in_force(study, at).last()


def is_asking(study: Study) -> bool:
    """Return whether people can decide: the study is open, and a form and a policy are in force. Public."""
    # The newest approved policy that has taken effect is in force, because nothing replaces it.
    effective = EpsilonPolicyApproval.objects.filter(policy__study=study, effective_from__lte=timezone.now())
    forms = ConsentForm.objects.filter(study=study)
    return not study.is_closed and effective.filter(Exists(forms)).exists()


def consent_current(holder: DataHolder) -> ConsentEvent | None:
    """Return the holder's last consent event, which is the one in force, or None if there is none."""
    return ConsentEvent.objects.filter(holder=holder).order_by("-sequence").first()


def lapse_of(event: ConsentEvent) -> Lapse | None:
    """Return the reason why a consent is not valid now, or None if it is."""
    lapses = Lapses(event.study, timezone.now(), [event.holder_id])
    return lapses.of(event.holder_id, event.form_id, event.answered_by, event.recorded_at, event.renew_by)


class EpsilonRule:
    """ε of a consent after all later policies (rule 5 of the design).

    This is the level's smallest ε under the policy of the consent and all policies effective since. A later, smaller ε
    applies at once, but a larger ε only after a new consent.
    """

    def __init__(self, study: Study, at: datetime) -> None:
        approved = list(policies_approved(study).filter(approval__effective_from__lte=at).select_related("approval"))
        self.policies: list[EpsilonPolicy] = [policy for policy in approved if not policy.is_replaced]
        # If another computer's clock is off, someone may have decided under a policy just before it was replaced.
        self._by_id: dict[int, EpsilonPolicy] = {policy.pk: policy for policy in approved}
        self.dates = [policy.approval.effective_from for policy in self.policies]
        self._smallest = cache(self._smallest_since)

    def _smallest_since(self, policy_id: int, level: str, position: int) -> EpsilonPolicy:
        return min([self._by_id[policy_id], *self.policies[position:]], key=lambda policy: policy.epsilon(level))

    def policy(self, policy_id: int, level: str, consented_at: datetime) -> EpsilonPolicy:
        """Return the policy whose ε applies to a consent: the consent's own, or a later one with a smaller ε."""
        return self._smallest(policy_id, level, bisect_right(self.dates, consented_at))

    def epsilon(self, policy_id: int, level: str, consented_at: datetime) -> float:
        return self.policy(policy_id, level, consented_at).epsilon(level)

    def epsilon_at(self, event: ConsentEvent, at: datetime) -> float:
        """Return the ε that a consent had at an earlier time ``at``, under the policies in effect by then."""
        assert event.policy_id is not None, "every consent is given under a policy"
        since = self.policies[bisect_right(self.dates, event.recorded_at) : bisect_right(self.dates, at)]
        return min(policy.epsilon(event.level) for policy in (self._by_id[event.policy_id], *since))

    def epsilon_after(self, policy_id: int, level: str, position: int) -> float:
        """Return the ε of a consent given after the first ``position`` policies had taken effect."""
        return self._smallest(policy_id, level, position).epsilon(level)

    def policies_before(self) -> Combinable:
        """Return a query expression for the number of policies in effect before a consent event was recorded."""
        effective = [Case(When(recorded_at__gte=date, then=1), default=0) for date in self.dates]
        return sum(effective, start=Value(0))


@dataclass(frozen=True)
class LastPromise:
    """Promise of a holder's last consent, even if withdrawn, because a withdrawal does not weaken it.

    Attributes:
        event: the consent.
        policy: the policy whose ε applies to it now.
        in_force: the policy that applies to a consent given now.
    """

    event: ConsentEvent
    policy: EpsilonPolicy
    in_force: EpsilonPolicy

    @property
    def level(self) -> str:
        return self.event.level

    @property
    def agreed(self) -> float:
        """ε as promised when the consent was given."""
        assert self.event.policy is not None, "every consent is given under a policy"
        return self.event.policy.epsilon(self.level)

    @property
    def epsilon(self) -> float:
        """ε of the promise now, which is never more than the agreed ε."""
        return self.policy.epsilon(self.level)

    @property
    def offered(self) -> float:
        """ε of the same level for a consent given now."""
        return self.in_force.epsilon(self.level)

    @property
    def can_be_kept(self) -> bool:
        """Whether a new consent at the same level would weaken the promise, so that keeping it is a separate answer."""
        return self.offered > self.epsilon


def promise_last(holder: DataHolder) -> LastPromise | None:
    """Return the promise of the last consent that a holder gave, or None if they never gave consent."""
    granting = ConsentEvent.objects.filter(holder=holder, kind__in=GRANTING).select_related("policy", "study")
    event = granting.order_by("-sequence").first() if holder.pk else None
    if event is None or event.policy_id is None:
        return None
    rule = EpsilonRule(event.study, timezone.now())
    return LastPromise(event, rule.policy(event.policy_id, event.level, event.recorded_at), rule.policies[-1])


def promise_before(event: ConsentEvent) -> LastPromise | None:
    """Return the promise from the holder's last consent before ``event`` was recorded."""
    earlier = ConsentEvent.objects.filter(
        holder=event.holder_id, kind__in=GRANTING, sequence__lt=event.sequence
    ).select_related("policy", "study")
    before = earlier.order_by("-sequence").first()
    if before is None or before.policy_id is None:
        return None
    rule = EpsilonRule(event.study, max(event.recorded_at, before.recorded_at))
    return LastPromise(before, rule.policy(before.policy_id, before.level, before.recorded_at), rule.policies[-1])


@dataclass(frozen=True)
class PromiseSpan:
    """Promise of a holder from ``since`` until the next span begins; ``epsilon`` is None if they do not take part."""

    since: datetime
    epsilon: float | None


def promise_spans(holder: DataHolder) -> list[PromiseSpan]:
    """Return every promise that a holder has had, with its period, oldest first. Secret, like every level.

    Lapsed consents are included, because they limit the charges that could have been made.
    """
    events = list(ConsentEvent.objects.filter(holder=holder).order_by("sequence").select_related("study"))
    if not events:
        return []
    rule, spans = EpsilonRule(events[0].study, timezone.now()), []
    for since in sorted({event.recorded_at for event in events} | set(rule.dates)):
        last = next((event for event in reversed(events) if event.recorded_at <= since), None)
        if last is not None:
            spans.append(PromiseSpan(since, rule.epsilon_at(last, since) if last.grants else None))
    return spans


@dataclass(frozen=True)
class Promise:
    """Promise that a holder can have: ``epsilon`` at ``level``; ``in_force`` if a consent given now would get it."""

    level: str
    epsilon: float
    in_force: bool


def promises_possible(study: Study, at: datetime | None = None) -> list[Promise]:
    """Return every promise that a consent under any policy so far can have, smallest ε first.

    These are public, because they depend only on the policies, not on who consented to which.
    """
    rule = EpsilonRule(study, at or timezone.now())
    possible = {
        (rule.epsilon_after(policy.pk, level, position + 1), LEVELS.index(level))
        for position, policy in enumerate(rule.policies)
        for level in LEVELS
    }
    now = {(rule.policies[-1].epsilon(level), LEVELS.index(level)) for level in LEVELS} if rule.policies else set()
    return [Promise(LEVELS[level], epsilon, (epsilon, level) in now) for epsilon, level in sorted(possible)]


def promises_earlier(study: Study) -> list[Promise]:
    """Return, for each level, the earlier promise with the largest ε if this exceeds every ε the level can have now.

    Holders with that promise may have spent that much before a smaller ε took effect. They spend nothing more while
    they have spent more than the smaller ε allows. These promises are public, like `promises_possible`.
    """
    policies, possible = list(policies_in_force(study)), promises_possible(study)
    earlier = []
    for level in LEVELS if policies else ():
        largest = max(policy.epsilon(level) for policy in policies)
        if largest > max(promise.epsilon for promise in possible if promise.level == level):
            earlier.append(Promise(level, largest, False))
    return earlier


def epsilons_largest(study: Study) -> dict[int, float]:
    """Return the largest ε that each holder of a study was ever promised, by holder. Secret, like every level."""
    largest: dict[int, float] = {}
    events = ConsentEvent.objects.filter(study=study, kind__in=GRANTING).select_related("policy")
    for event in events.iterator(chunk_size=10_000):
        assert event.policy is not None, "every consent is given under a policy"
        epsilon = event.policy.epsilon(event.level)
        largest[event.holder_id] = max(epsilon, largest.get(event.holder_id, 0.0))
    return largest


def epsilon_promised_largest(study: Study) -> float:
    """Return the largest ε of any approved policy of the study, including future ones (0 if there is none). Public.

    This includes policies that are missing from a restored database but still in the journal.
    """
    approved = EpsilonPolicy.objects.filter(study=study, approval__isnull=False)
    noted = journal_read(study.pk)["facts"].get("epsilon", 0.0)
    return max([noted, *(policy.epsilon(level) for policy in approved for level in LEVELS)])


def epsilons_since(study: Study, since: datetime) -> dict[str, float]:
    """Return the smallest ε by level among the policies effective after ``since``; infinity if there is none."""
    later = list(policies_in_force(study).filter(approval__effective_from__gt=since))
    return {level: min((policy.epsilon(level) for policy in later), default=math.inf) for level in LEVELS}


@dataclass(frozen=True)
class Snapshot:
    """Participants of a study at a given time, with their levels and ε.

    Attributes:
        study_id: the study.
        at: the time.
        sequence: sequence number of the last consent event considered.
        holders: (H,) int64, holder ids in ascending order.
        levels: (H,) int8, positions in ``LEVELS``.
        epsilons: (H,) float64, ε budgets.
    """

    study_id: int
    at: datetime
    sequence: int
    holders: np.ndarray
    levels: np.ndarray
    epsilons: np.ndarray

    def __len__(self) -> int:
        return len(self.holders)

    def have(self, promise: "Promise") -> np.ndarray:
        """Return a mask (H,) that is True for holders with ``promise``."""
        return (self.levels == LEVELS.index(promise.level)) & (self.epsilons == promise.epsilon)

    def of(self, holders: Iterable[int] | np.ndarray) -> "Snapshot":
        """Return the snapshot restricted to ``holders``."""
        keep = np.isin(self.holders, np.asarray(list(holders), dtype=np.int64))
        return Snapshot(
            self.study_id, self.at, self.sequence, self.holders[keep], self.levels[keep], self.epsilons[keep]
        )


def _last_events(study: Study, at: datetime) -> QuerySet[ConsentEvent]:
    """Return each holder's last event up to ``at``, with exactly one index lookup per event."""
    events = ConsentEvent.objects.filter(study=study, recorded_at__lte=at).order_by()
    later = ConsentEvent.objects.filter(
        holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"), recorded_at__lte=at
    )
    return events.filter(~Exists(later))


def last_events(study: Study, at: datetime) -> QuerySet[ConsentEvent]:
    """Return each holder's last event up to ``at``, for all holders at once. PostgreSQL scans one index.

    Do not filter the result, because a filter would apply to events before the last one is chosen.
    """
    if not connection.features.can_distinct_on_fields:
        return _last_events(study, at)
    events = ConsentEvent.objects.filter(study=study, recorded_at__lte=at)
    return events.order_by("holder_id", "-sequence").distinct("holder_id")


#: Columns of a decision that determine whether it is valid, in the order of the arguments of :meth:`Lapses.of` after
#: the holder.
_LAPSE_COLUMNS = ("form_id", "answered_by", "recorded_at", "renew_by")
#: Largest number of holders that a query lists by id; for more, all holders are read.
FEW_HOLDERS = 500


def consent_snapshot(study: Study, at: datetime | None = None, *, among: np.ndarray | None = None) -> Snapshot:
    """Return a study's participants with their levels and ε. This is training's only source for who takes part.

    Each process keeps the latest snapshot of large studies, because a run needs it for every batch. It is reused only
    while `consent_state` and the chains that determine it are unchanged.

    Args:
        at: the time; now by default.
        among: (A,) holder ids to which the snapshot is restricted; fast for up to ``FEW_HOLDERS``.

    Returns:
        The snapshot, which takes 17 bytes per holder, regardless of their history.
    """
    few = among is not None and len(among) <= FEW_HOLDERS
    if at is not None or few:
        snapshot = _snapshot(study, at or timezone.now(), among if few else None)
    else:
        snapshot = _latest_snapshot(study)
    return snapshot if among is None else snapshot.of(among)


def _latest_snapshot(study: Study) -> Snapshot:
    now, state = timezone.now(), None
    if study.pk in _kept_snapshots:
        state = consent_state(study, now), *(chain.head(study.pk).hash for chain in _DECIDING)
        kept_state, kept = _kept_snapshots[study.pk]
        if kept_state == state:
            return replace(kept, at=now)
    snapshot = _snapshot(study, now)
    if snapshot.sequence >= WORTH_KEEPING:
        if len(_kept_snapshots) >= _MOST_KEPT:
            _kept_snapshots.clear()
        _kept_snapshots[study.pk] = state, snapshot
    return snapshot


#: Smallest number of decisions for which a study's snapshot is cached; reading fewer decisions is as fast as reading
#: the state.
WORTH_KEEPING = 2_000
#: The chains whose rows determine a snapshot.
_DECIDING = (ConsentEvent, Circumstance, ConsentForm, EpsilonPolicy, EpsilonPolicyApproval)
#: Each study's latest snapshot, with the state that determines it; None until a second snapshot is requested.
_kept_snapshots: dict[int, tuple[Hashable, Snapshot]] = {}
_MOST_KEPT = 8


def _snapshot(study: Study, at: datetime, among: np.ndarray | None = None) -> Snapshot:
    """Return the snapshot at ``at``, read from the database, with read-only arrays."""
    rule = EpsilonRule(study, at)
    events = ConsentEvent.objects.filter(study=study, recorded_at__lte=at)
    sequence = events.aggregate(last=Max("sequence"))["last"] or 0
    if among is not None:
        lapses = Lapses(study, at, among.tolist())
        last = _last_events(study, at).filter(holder_id__in=among.tolist())
    else:
        lapses = Lapses(study, at)
        last = last_events(study, at)
    decisions = last.annotate(policies_before=rule.policies_before()).values_list(
        "holder_id", "kind", "level", "policy_id", "policies_before", *_LAPSE_COLUMNS
    )
    rows = np.fromiter(
        (
            (holder, LEVELS.index(level), rule.epsilon_after(policy, level, position))
            for holder, kind, level, policy, position, *rest in decisions.iterator(chunk_size=10_000)
            if kind in GRANTING and lapses.of(holder, *rest) is None
        ),
        dtype=[("holder", np.int64), ("level", np.int8), ("epsilon", np.float64)],
    )
    rows = rows[np.argsort(rows["holder"])]
    columns = [np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()]
    for column in columns:
        column.flags.writeable = False
    return Snapshot(study.pk, at, sequence, *columns)


def consent_state(study: Study, at: datetime | None = None) -> Hashable:
    """Return the state that determines a snapshot at ``at`` (default: now); while it is unchanged, so is the snapshot.

    Events and circumstances are never changed or removed, so the rows are the same at two times if their numbers are
    equal. Changes that take effect on a date are counted as well.
    """
    at = at or timezone.now()
    policies = policies_in_force(study, at).values_list("pk", flat=True)
    events = ConsentEvent.objects.filter(study=study, recorded_at__lte=at).count()
    return events, tuple(policies), _lapse_state(study, at)


def _lapse_state(study: Study, at: datetime) -> tuple[int, ...]:
    """Return the state that determines which earlier consents have lapsed."""
    circumstances = Circumstance.objects.filter(study=study, recorded_at__lte=at)
    return (
        required_form_version(study, at),
        ConsentEvent.objects.filter(study=study, renew_by__lte=at).count(),
        circumstances.count(),
        circumstances.filter(authority_has_ended(at)).count(),
    )


def policies_waiting(*studies: Study) -> list[EpsilonPolicy]:
    """Return the proposed policies of the given studies that a second person can still approve, newest first."""
    if not studies:
        return []
    approved = EpsilonPolicy.objects.filter(
        study=OuterRef("study"), approval__isnull=False, version__gte=OuterRef("version")
    )
    rejections = Remark.objects.filter(policy=OuterRef("pk"), kind=Remark.Kind.REJECTION)
    waiting = EpsilonPolicy.objects.filter(~Exists(approved), ~Exists(rejections), study__in=studies)
    return list(waiting.select_related("study"))


def forms_waiting(*studies: Study) -> list[ConsentFormProposal]:
    """Return the proposed forms of the given studies that a second person can still publish, newest first."""
    if not studies:
        return []
    newer = ConsentForm.objects.filter(study=OuterRef("study"), version__gt=OuterRef("follows"))
    rejections = Remark.objects.filter(form=OuterRef("pk"), kind=Remark.Kind.REJECTION)
    waiting = ConsentFormProposal.objects.filter(~Exists(newer), ~Exists(rejections), study__in=studies)
    return list(waiting.select_related("study").order_by("-sequence"))


def role_changes_waiting(*studies: Study) -> list[RoleChange]:
    """Return the proposed role changes in the given studies that are neither confirmed nor withdrawn, newest first.

    The join leaves out proposals about deleted accounts, which cannot be confirmed.
    """
    later = RoleChange.objects.filter(
        study=OuterRef("study"), user_id=OuterRef("user_id"), role=OuterRef("role"), sequence__gt=OuterRef("sequence")
    )
    waiting = RoleChange.objects.filter(~Exists(later), study__in=studies, kind__in=RoleChange.PROPOSALS)
    return list(waiting.select_related("study", "user", "changed_by").order_by("-sequence"))


def is_waiting(proposal: EpsilonPolicy | ConsentFormProposal) -> bool:
    """Return whether a second person can still approve the proposal."""
    waiting = policies_waiting if isinstance(proposal, EpsilonPolicy) else forms_waiting
    return proposal in waiting(proposal.study)


def answer_deadline(proposal: EpsilonPolicy | ConsentFormProposal) -> date | None:
    """Return the last day on which to answer the proposal or, for a correction, to object to it."""
    if isinstance(proposal, ConsentFormProposal) and proposal.objection_until is not None:
        return day_of(proposal.objection_until) - timedelta(days=1)
    return proposal.answer_by


def approvals_of(proposal: EpsilonPolicy | ConsentFormProposal) -> QuerySet[Remark]:
    """Return the approvals of a proposal so far, oldest first, with the conditions as text."""
    return proposal.remarks.filter(kind=Remark.Kind.APPROVAL).order_by("sequence")


def approved_by(user_id: int, **proposals: Any) -> set[int]:
    """Return ids of the given proposals (``policy__in`` or ``form__in``) that someone has approved, in one query."""
    (lookup,) = proposals
    if not proposals[lookup]:
        return set()
    approvals = Remark.objects.filter(kind=Remark.Kind.APPROVAL, made_by_id=user_id, **proposals)
    return set(approvals.order_by().values_list(lookup.replace("__in", "_id"), flat=True))


@dataclass(frozen=True)
class Consequence:
    """Effect of a policy on the participants of one level, as numbers of holders.

    Attributes:
        at_once: holders who would get the policy's smaller ε at once.
        protected: holders who would keep their smaller ε until they consent again.
        unchanged: holders whose ε stays the same.
    """

    at_once: int
    protected: int
    unchanged: int


def policy_consequences(study: Study, policy: EpsilonPolicy) -> dict[str, Consequence]:
    """Return the effect, by level, of putting ``policy`` in force now (rule 5)."""
    snapshot = consent_snapshot(study)
    result = {}
    for position, level in enumerate(LEVELS):
        epsilons, proposed = snapshot.epsilons[snapshot.levels == position], policy.epsilon(level)
        counts = (epsilons > proposed, epsilons < proposed, epsilons == proposed)
        result[level] = Consequence(*(int(np.count_nonzero(each)) for each in counts))
    return result


def lapses_at(study: Study, at: datetime) -> dict[int, Lapse]:
    """Return holders whose last decision was to take part but is not valid at ``at``, with the reason."""
    lapses = Lapses(study, at)
    granting = _last_events(study, at).filter(kind__in=GRANTING)
    # Only these holders can be affected.
    candidates = granting.filter(
        ~Q(form__in=valid_forms(study, at)) | Q(renew_by__lte=at) | Q(holder__in=lapses.holders)
        if len(lapses.holders) <= FEW_HOLDERS
        else Q()
    )
    rows = candidates.values_list("holder_id", *_LAPSE_COLUMNS).iterator(chunk_size=10_000)
    return {holder: lapse for holder, *rest in rows if (lapse := lapses.of(holder, *rest)) is not None}


def holders_lapsed_since(study: Study, since: datetime) -> np.ndarray:
    """Return the holders whose consent was valid at ``since`` but no longer is, for reasons other than withdrawal.

    Returns:
        (S,) int64, holder ids.
    """
    now = timezone.now()
    if _lapse_state(study, now) == _lapse_state(study, since):
        return np.empty(0, dtype=np.int64)
    return np.array(sorted(set(lapses_at(study, now)) - set(lapses_at(study, since))), dtype=np.int64)


def answerer_faults(study: Study) -> Iterator[str]:
    """Describe decisions by people who were not recorded at the time as answering for the holder.

    For a decision on paper, the day of the signature applies. In a restored database, the person recorded as answering
    could decide even if the record was out of date; :class:`Lapses` determines whether such a decision is valid.
    """
    history: dict[int, list[Circumstance]] = defaultdict(list)
    # Ordered by time, because circumstances lost in a restore are recorded again after newer ones.
    rows = Circumstance.objects.filter(study=study).order_by("recorded_at", "sequence")
    for circumstance in rows.iterator(chunk_size=2000):
        history[circumstance.holder_id].append(circumstance)
    for event in ConsentEvent.chain(study.pk).iterator(chunk_size=2000):
        known = [each for each in history.get(event.holder_id, []) if each.recorded_at <= event.recorded_at]
        remembered = [each for each in known if each.replayed_at is None or each.replayed_at <= event.recorded_at]
        day = event.signed_on or day_of(event.recorded_at)
        answers, by_memory = _answering_last(known, day), _answering_last(remembered, day)
        if any(each.role == event.answered_by and (each.consents or not event.grants) for each in (answers, by_memory)):
            continue
        if event.answered_by != answers.role:
            yield f"decision {event.sequence}: {event.answered_by} decided, but the record names {answers.role}."
        else:
            yield f"decision {event.sequence}: consents for a person who was recorded as {answers.kind}."


def _answering_last(known: list[Circumstance], day: date) -> Answering:
    return answering(known[-1].kind, known[-1].until, day) if known else Answering()


def is_weakened_without_agreement(event: ConsentEvent, before: ConsentEvent, rule: EpsilonRule) -> bool:
    """Return whether a consent weakened the previous promise without separate agreement to precisely the new promise.

    Args:
        before: the holder's previous consent.
        rule: the study's current rule for ε.
    """
    promised = rule.epsilon_at(before, max(event.recorded_at, before.recorded_at))
    return rule.epsilon_at(event, event.recorded_at) > promised and event.epsilon_before != promised


def promise_faults(study: Study) -> Iterator[str]:
    """Describe consents that weakened the previous promise without a separate agreement to the new promise."""
    rule, last = EpsilonRule(study, timezone.now()), dict[int, ConsentEvent]()
    for event in ConsentEvent.chain(study.pk).filter(kind__in=GRANTING).iterator(chunk_size=2000):
        before = last.get(event.holder_id)
        last[event.holder_id] = event
        if before is not None and is_weakened_without_agreement(event, before, rule):
            yield f"decision {event.sequence}: weakens the promise without a recorded agreement to that."


def role_faults(study: Study) -> Iterator[str]:
    """Describe roles that people have without a record of who assigned them, and recorded roles that they lack."""
    recorded: set[tuple[int, str]] = set()
    for user, role, kind in RoleChange.chain(study.pk).values_list("user_id", "role", "kind"):
        if kind in (RoleChange.Kind.GIVEN, RoleChange.Kind.HELD):
            recorded.add((user, role))
        elif kind == RoleChange.Kind.TAKEN:
            recorded.discard((user, role))
    roles = set(Membership.objects.filter(study=study).order_by().values_list("user_id", "role"))
    for user, role in sorted(roles - recorded):
        yield f"user {user} is {role}, but no record shows who gave the role."
    for user, role in sorted(recorded - roles):
        yield f"user {user} was recorded as {role}, but lacks the role, and no record shows who removed it."
