"""Steps that ask people in joint runs: the hub waits for every site's answer, each site for all endorsements.

Questions follow the life cycle in docs/sites.md. Every message is stored in a row before it is acted on, so that each
step can be repeated after a crash.
"""

import hashlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
from django.db import transaction
from django.utils import timezone

from accounting.models import Release
from accounting.services import ROUNDING, release_record
from common.artifacts import arrays_delete
from common.noise import SystemNoise
from common.sentences import Sentence, gettext_noop
from learning.mechanisms.protocol import Arrays, People, Question
from learning.sites.documents import AnswerDocument, QuestionDocument, Refused, Signed, sign
from learning.sites.lattice import IncludedNoise, Numbers
from learning.sites.protocol import SiteAnswer, answer, endorse, lattice_of, question_for, total, total_spread
from training.alliances.approvals import form_describes
from training.alliances.documents import (
    alliance_verify,
    answer_of,
    endorsements_of,
    roster,
    signature_of,
    state_after,
    state_of,
    sums_folder,
    total_bytes,
    total_read,
    vector_load,
    vector_save,
)
from training.alliances.exchange import answer_send, exchange, silent_sites, total_fetch
from training.alliances.wire import Hub, Unreachable, known_identity, longest_wait, site_of
from training.engine import asking, questions
from training.engine.asking import Asking, charges_of_answers, costs_of, released_of
from training.engine.budgets import budgets_from_json
from training.engine.commits import Charges, batch_commit, message_set, notify_charged, spending
from training.engine.questions import batch_part, draws_of, round_under_way, state_before
from training.errors import RunError
from training.models import JointQuestion, JointRun, Round, Run

logger = logging.getLogger(__name__)

_APPROVALS = gettext_noop("Waiting for the approval of %(sites)s.")
_SITES = gettext_noop("Waiting for %(sites)s.")
_HUB = gettext_noop("Waiting for the hub and the other sites.")
#: Message shown for a site's run after its hub has ended the run.
ENDED = gettext_noop("The hub has ended the run: %(why)s")
_LATE = gettext_noop("%(sites)s did not answer in time.")
_FEW = gettext_noop("Too few sites are left: %(why)s")
_REFUSED = gettext_noop("This site has refused and no longer takes part in the run: %(why)s")
_RENEWED = gettext_noop("The key of %(sites)s was replaced after this run was proposed. Propose the run again.")
#: Shortest and longest pause between a worker's requests to the hub, in seconds. Pauses are shortest at first and after
#: news, and then grow.
_PAUSE, _PAUSES = 0.1, 1.0


class JointAsking(Asking, ABC):
    """Steps of a joint run that are the same at the hub and at sites."""

    def can_continue(self, run: Run) -> bool:
        """Return whether a waiting run can continue now; messages from other installations wake it."""
        if run.status == Run.Status.APPROVED:
            return not run.joint.missing and super().can_continue(run)
        return run.status == Run.Status.ASKING and self._can_ask(run)

    @abstractmethod
    def _can_ask(self, run: Run) -> bool:
        """Return whether the current batch of a run can continue now."""

    def is_agreed(self, run: Run) -> bool:
        """Return whether all sites have approved; name any missing ones in the run's message. May raise RunError."""
        _in_force_check(run)
        if missing := run.joint.missing:
            message_set(run, Sentence(_APPROVALS, sites=", ".join(missing)))
        return not missing

    def step(self, run: Run) -> bool:
        _in_force_check(run)
        return super().step(run)

    def open(self, run: Run) -> bool:
        """Begin asking once every participant has approved and no other run of the study is spending."""
        return self.is_agreed(run) and super().open(run)

    def question_of(
        self, joint: JointRun, current: Round, number: int, participants: Sequence[str]
    ) -> QuestionDocument:
        """Return the next question, as determined by the plan and all releases so far. Raises Refused."""
        question = self.questions.question(current)
        return question_for(
            roster(joint),
            question,
            number=number,
            part=batch_part(question, current),
            state=state_of(joint),
            participants=participants,
        )

    def release(self, run: Run, entry: JointQuestion, summed: Numbers, vector: bytes, *, charged: bool) -> bool:
        """Release a total, which already includes its noise, as the current batch.

        Args:
            entry: The total's question, with the hub's signature of the total.
            vector: The total as stored bytes.
            charged: At a site: whether its people have already been charged for the total.
        """
        self.questions.precompute(run)
        artifact = f"{sums_folder(entry.joint)}/total-{entry.number}-{uuid4().hex[:12]}.npz"
        vector_save(artifact, vector)
        with spending(run, Run.Status.ASKING) as held:
            row = JointQuestion.objects.select_for_update().get(pk=entry.pk)
            if held is None or row.closed_at is not None:
                arrays_delete(artifact)
                return False
            current = round_under_way(held)
            question, document = self.questions.question(current), row.document
            part = batch_part(question, current)
            assert question.spread is not None, "it was sent to sites"
            before, included = state_before(question, current, held.batches.count()), IncludedNoise(question.spread)
            release = question.release(part, before, [{"sums": summed}], included)
            bounds = None if charged else question.bounds(slice(part.start, part.start + release.size))
            released = released_of(held, question, release, bounds)
            released.content["joint"] = {
                "number": document.number,
                "asked": document.digest(),
                "participants": list(document.participants),
                "spread": total_spread(roster(held.joint), document),
            }
            costs = [0.0] * len(held.plan["budgets"]) if bounds is None else costs_of(held, bounds)
            batch_commit(held, released, costs, None, kind=self.questions.kind_of(current), opened_round=current)
            row.total, row.total_content, row.total_signature = artifact, entry.total_content, entry.total_signature
            row.state, row.closed_at = state_after(row, state_of(held.joint)), timezone.now()
            row.save(update_fields=["total", "total_content", "total_signature", "state", "closed_at"])
        return True


class HubAsking(JointAsking):
    """Steps of a run at its hub, which does not ask anyone itself."""

    def is_agreed(self, run: Run) -> bool:
        if run.joint.dropped:
            raise RunError("; ".join(str(Sentence.from_json(why)) for why in run.joint.dropped.values()))
        return super().is_agreed(run)

    def _can_ask(self, run: Run) -> bool:
        open_one = run.joint.questions.filter(closed_at=None).first()
        return open_one is not None and _has_all_answers(open_one)

    def _batch(self, run: Run, current: Round) -> bool:
        joint = run.joint
        question = joint.questions.filter(closed_at=None).first()
        if question is None:
            return self._ask(run, current)
        if _has_all_answers(question):
            return self._total(run, question)
        pending_sites = question.pending_sites
        if gone := [site for site in pending_sites if site in joint.dropped]:
            question_end(run, Sentence.from_json(joint.dropped[gone[0]]), [])
            return True
        if silent := silent_sites(question):
            question_end(run, Sentence(_LATE, sites=", ".join(silent)), silent)
            return True
        message_set(run, Sentence(_SITES, sites=", ".join(pending_sites)))
        return False

    def _ask(self, run: Run, current: Round) -> bool:
        joint = run.joint
        number = joint.questions.count() + 1
        try:
            document = self.question_of(joint, current, number, joint.participants)
            known = roster(joint)
            least = known.alliance.colluding + 2 if known.run.mode == "together" else 1
            if len(document.participants) < least:
                raise Refused("; ".join(str(Sentence.from_json(why)) for why in joint.dropped.values()))
        except Refused as error:
            raise RunError(Sentence(_FEW, why=error.sentence)) from error
        alliance = run.alliance
        assert alliance is not None, "a joint run is one of an alliance"
        signed = sign(document, known_identity(alliance))
        with spending(run, Run.Status.ASKING) as held:
            if held is not None and not joint.questions.filter(number__gte=number).exists():
                joint.questions.create(
                    number=number, content=document.content().decode(), signature=signed.signature.hex()
                )
        return False

    def _total(self, run: Run, question: JointQuestion) -> bool:
        alliance = run.alliance
        assert alliance is not None, "a joint run is one of an alliance"
        try:
            summed = total(
                roster(question.joint), question.document, [answer_of(each) for each in question.answers.all()]
            )
        except Refused as error:
            question_end(run, Sentence(gettext_noop("The answers do not match: %(why)s"), why=error.sentence), [])
            raise RunError(error.sentence) from error
        vector = total_bytes(summed, question.document.grain)
        document = AnswerDocument(
            question.document.digest(), "", tuple(summed.shape), hashlib.sha256(vector).hexdigest()
        )
        question.total_content = document.content().decode()
        question.total_signature = sign(document, known_identity(alliance)).signature.hex()
        files = list(question.answers.values_list("artifact", flat=True))
        if self.release(run, question, summed, vector, charged=False):
            arrays_delete(*files)
        return True


def question_end(run: Run, why: Sentence, silent: Sequence[str]) -> None:
    """End a run's open question at the hub without a total, and exclude the ``silent`` sites from the run."""
    with transaction.atomic():
        joint = JointRun.objects.select_for_update().get(run=run.pk)
        question = joint.questions.filter(closed_at=None).first()
        if question is None:
            return
        files = list(question.answers.values_list("artifact", flat=True))
        question.ended, question.closed_at = why.to_json(), timezone.now()
        question.save(update_fields=["ended", "closed_at"])
        joint.dropped |= {site: why.to_json() for site in silent}
        joint.save(update_fields=["dropped"])
        transaction.on_commit(lambda: arrays_delete(*files))
    logger.info("Question %d to sites has ended: %s", question.number, why)


class SiteAsking(JointAsking):
    """Steps of a run at a site, which asks its own people the hub's questions."""

    def is_agreed(self, run: Run) -> bool:
        _news(run)
        run.joint.refresh_from_db()
        if run.joint.ended:
            raise RunError(Sentence(ENDED, why=run.joint.ended))
        return super().is_agreed(run)

    def _can_ask(self, run: Run) -> bool:
        alliance = run.alliance
        assert alliance is not None, "a joint run is one of an alliance"
        if Hub(alliance).seconds_left:  # the sweep resumes the run
            return False
        return asking.are_shards_done(run) or (longest_wait() > 0 and not alliance.problem)

    def _batch(self, run: Run, current: Round) -> bool:
        until, pause, hub = time.monotonic() + longest_wait(), _PAUSE, Hub(run.alliance)  # type: ignore[arg-type]
        while True:
            if not hub.seconds_left:
                done = self._act(run, current)
                if done is not None:
                    return done
                if _news(run):
                    pause = _PAUSE
                    continue
            left = hub.seconds_left
            if time.monotonic() + left >= until or not Run.objects.filter(pk=run.pk, status=run.status).exists():
                if not left:
                    message_set(run, _HUB)
                return False
            time.sleep(max(pause, left))
            pause = min(2 * pause, _PAUSES)

    def _act(self, run: Run, current: Round) -> bool | None:
        """Advance the open question as far as possible.

        Returns:
            True if the next step can follow; False if this site's people must be asked first; None if another message
            from the hub is needed.
        """
        joint = JointRun.objects.select_related("run__alliance__study").get(run=run.pk)
        question = joint.questions.filter(closed_at=None).select_related("joint__run__alliance").first()
        if question is None:
            if joint.ended:
                raise RunError(Sentence(ENDED, why=joint.ended))
            return None
        try:
            if not form_describes(run.alliance):  # type: ignore[arg-type]
                raise Refused(gettext_noop("The consent form in force no longer mentions this alliance."))
            return self._act_on(run, current, question)
        except Unreachable as error:
            if joint.ended:  # a hub that has deleted the run's data no longer has its total
                raise RunError(Sentence(ENDED, why=joint.ended)) from error
            message_set(run, error.sentence)
            return None
        except Refused as error:
            raise RunError(Sentence(_REFUSED, why=error.sentence)) from error

    def _act_on(self, run: Run, current: Round, question: JointQuestion) -> bool | None:
        if question.ended or (question.joint.ended and not question.total_content):
            JointQuestion.objects.filter(pk=question.pk).update(closed_at=timezone.now())
            return True
        document, own = question.document, run.alliance.own_name  # type: ignore[union-attr]
        if question.total_content:
            self._compare(run, current, question)
            vector = total_fetch(question)
            return self.release(run, question, total_read(question, vector), vector, charged=True)
        if own not in document.participants:
            return None
        if own not in question.endorsements:
            self._endorse(run, current, question)
            return None
        if question.answered_at is None:
            return self._answer(run, current, question) if question.is_endorsed else None
        if question.sent_at is None:
            answer_send(question, vector_load(question.answer))
        return None

    def _compare(self, run: Run, current: Round, question: JointQuestion) -> None:
        """Refuse a question that differs from the one that this site derives."""
        document = question.document
        if self.question_of(question.joint, current, document.number, document.participants) != document:
            raise Refused(
                gettext_noop("The hub has asked a question that does not follow from the plan and the releases so far.")
            )

    def _endorse(self, run: Run, current: Round, entry: JointQuestion) -> None:
        joint, document = entry.joint, entry.document
        known = roster(joint)
        own = self.question_of(joint, current, document.number, document.participants)
        question, people = self.questions.question(current), sum(each["holders"] for each in run.plan["promises"])
        room = lattice_of(known, own).most(len(own.participants))
        if 2 * people * own.spread / question.sigma > room:
            raise Refused(
                gettext_noop("With so many people and so little noise, the sums could overflow. Plan for more noise.")
            )
        site = site_of(joint)
        signed = endorse(site, known, Signed(entry.document, signature_of(entry.signature)), own, SiteLedger(run))
        with transaction.atomic():
            row = JointQuestion.objects.select_for_update().get(pk=entry.pk)
            row.endorsements |= {site.name: signed.signature.hex()}
            row.save(update_fields=["endorsements"])

    def _answer(self, run: Run, current: Round, entry: JointQuestion) -> bool | None:
        """Ask this site's people, and answer once all shards are done."""
        size = self.questions.shard_of(current)
        if size is not None and not run.shards.exists():
            if not self._while_spending(run, partial(self._batch_begin, size=size)):
                return False
            if run.shards.count() == 1:  # this worker can ask the only shard itself
                asking.shard_ask(run.shards.get(), self.questions)
        if size is not None and not asking.are_shards_done(run):
            asking.shards_send(run)
            return False
        self.questions.precompute(run)
        known, site, endorsements = roster(entry.joint), site_of(entry.joint), endorsements_of(entry)
        with spending(run, Run.Status.ASKING) as held:
            if held is None or (size is not None and not asking.are_shards_done(held)):
                return False
            question, part = self._part(held)
            bounds = question.bounds(part)
            assert bounds is not None, "the proposal was checked"
            if size is None:
                _room_check(held, bounds)
                people, groups = self.questions.people(held), bounds
                answers = [self._answer_at_once(held, question, part, people)]
            else:
                people, groups = questions.attempt_load(held.assignment), None
                kept = self._answers(held)
                if kept is None:
                    return True
                answers = kept
            ledger = SiteLedger(
                held,
                charges_of_answers(people, answers, groups),
                costs_of(held, bounds),
                bounds,
                {"mechanism": question.describe(), "question": question.digest()},
                "" if size is None else held.assignment,
            )
            sums = np.sum([each["sums"] for each in answers], axis=0)
            answer(site, known, entry.document, endorsements, sums, SystemNoise(), ledger)
            files = list(held.shards.exclude(artifact="").values_list("artifact", flat=True))
            held.shards.all().delete()
            transaction.on_commit(lambda: arrays_delete(*files))
        return True

    def _answer_at_once(self, run: Run, question: Question, part: slice, people: People) -> Arrays:
        """Return the answers of all people, based on their remaining budgets before the question."""
        before = state_before(question, round_under_way(run), run.batches.count())

        def records() -> Any:
            return self.questions.records(run, question.fitted, people)

        answer = question.answer(part, before, people, records, alone=False, draws=draws_of(run))
        return {**answer, "holder": people.holders}

    def _part(self, run: Run) -> tuple[Question, slice]:
        current = round_under_way(run)
        question = self.questions.question(current)
        return question, batch_part(question, current)


def _room_check(run: Run, bounds: Sequence[float]) -> None:
    """Refuse a question that would exceed a group's budget, counting charges for questions that ended without a total.

    If people are charged individually for their contributions, their accounts enforce this limit.
    """
    allowed = [budget.allowed * (1 + ROUNDING) for budget in budgets_from_json(run.plan)]
    if any(spent + bound > most for spent, bound, most in zip(run.spent, bounds, allowed, strict=True)):
        raise Refused(gettext_noop("Questions that ended without a total have used up the run's share at this site."))


def _in_force_check(run: Run) -> None:
    """Raise RunError to end a run if a site's key was replaced after the run was proposed."""
    alliance = run.alliance
    assert alliance is not None, "a joint run is one of an alliance"
    now, proposed = alliance.document, run.joint.document.alliance
    if proposed != now.digest():
        before = alliance_verify(alliance, proposed)
        renewed = [name for name, key in now.sites.items() if before.sites.get(name) != key]
        raise RunError(Sentence(_RENEWED, sites=", ".join(renewed)))


def _news(run: Run) -> bool:
    """Exchange messages with the hub, unless it is too early; return whether it has sent anything new."""
    alliance = run.alliance
    assert alliance is not None, "a joint run is one of an alliance"
    if Hub(alliance).seconds_left:
        return False
    try:
        return exchange(alliance)
    except Unreachable as error:
        message_set(run, error.sentence)
        return False
    except Refused as error:
        raise RunError(Sentence(_REFUSED, why=error.sentence)) from error


def _has_all_answers(question: JointQuestion) -> bool:
    return set(question.answers.values_list("site", flat=True)) == set(question.document.participants)


# --- The ledger of a site ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SiteLedger:
    """Ledger of a site's answers; see :class:`learning.sites.protocol.Ledger`.

    Attributes:
        run: The site's run; for commits, it must be locked by :func:`training.engine.commits.spending`.
        charges: Charges to the site's people for the whole part of the question; None if nothing will be committed.
        costs: The public charge recorded for each of the plan's promises, in μ².
        bounds: The largest possible charge to anyone, for each of the plan's promises, in μ²; public.
        content: The content of the register entry for the question.
        attempt: The file that lists who was asked, if this is not the same throughout the run.
    """

    run: Run
    charges: Charges | None = None
    costs: Sequence[float] = ()
    bounds: Sequence[float] = ()
    content: dict[str, Any] | None = None
    attempt: str = ""

    def last(self, roster: str) -> int:
        del roster  # each run has exactly one
        answered = JointQuestion.objects.filter(joint__run=self.run.pk, answered_at__isnull=False)
        return answered.order_by("number").values_list("number", flat=True).last() or 0

    def commit(self, question: QuestionDocument, answer: SiteAnswer) -> None:
        assert self.charges is not None, "made to commit"
        row = JointQuestion.objects.select_for_update().get(joint__run=self.run.pk, number=question.number)
        if question.number <= self.last(question.roster):
            raise Refused(gettext_noop("This question, or a later one in the run, has been answered in the meantime."))
        artifact = f"{sums_folder(row.joint)}/{question.number}-{uuid4().hex[:12]}.npz"
        vector_save(artifact, answer.vector)
        document = answer.answer.document
        release_record(
            study=self.run.study,
            kind=Release.Kind.SUMS,
            run=self.run.pk,
            content={
                **(self.content or {}),
                "number": question.number,
                "asked": question.digest(),
                "vector": document.vector,
                "participants": list(question.participants),
                "charges": list(self.costs),
            },
            holders=self.charges.holders,
            charges=self.charges.spent,
            limits=self.charges.limits,
            charge=max(self.bounds),
            acting_user_id=self.run.approved_by_id,
        )
        notify_charged(self.run, self.costs)
        row.answer, row.answer_content = artifact, document.content().decode()
        row.answer_signature, row.answered_at = answer.answer.signature.hex(), timezone.now()
        row.attempt = self.attempt
        row.save(update_fields=["answer", "answer_content", "answer_signature", "answered_at", "attempt"])
        spent = (np.array(self.run.spent) + self.costs).tolist()
        Run.objects.filter(pk=self.run.pk).update(spent=spent, heartbeat=timezone.now())
