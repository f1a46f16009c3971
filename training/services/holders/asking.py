"""Asking every holder: batches whose release and charges are committed together, or not at all.

A batch is asked in shards of holders, on any number of workers. All shards of a batch carry one attempt: who takes part
and what is left of each account, as one file. Whoever leaves or lowers their level before the commit is taken out, and
their shard is asked anew. Noise that was drawn for a batch that is asked anew nobody has seen, and nobody will.

Everything that was planned is asked. No account, and no answer, decides when a run ends (condition 1 of the guarantee).
"""

import logging
from dataclasses import replace

import numpy as np
from django.db import transaction
from django.utils import timezone

from accounting.caps import epsilon_of
from accounting.services import release_record
from accounting.shares import share_open, share_settle
from common.bulk import rows_insert
from consent.selectors import promises_possible
from consent.services import study_lock
from training.models import Batch, Round, Run
from training.services.holders import attempts, noise, shards
from training.services.holders.base import People, Questions, Released
from training.services.holders.rounds import round_under_way
from training.services.planning import budgets_from_json
from training.services.spending import (
    WAITS,
    charged_tell,
    runs_send_on,
    share_used,
    spending_may_begin,
    waits_for_restore,
)

logger = logging.getLogger(__name__)


class Asking:
    """The steps of a run in which every holder is asked ``questions``."""

    def __init__(self, questions: Questions) -> None:
        self.questions = questions

    def open(self, run: Run) -> bool:
        """Begin to ask, once no other run of the study spends."""
        with transaction.atomic():
            study_lock(run.study_id)
            run = _locked(run)
            if run.status != Run.Status.APPROVED:
                return False
            if not spending_may_begin(run):
                run.message = WAITS
                run.save(update_fields=["message"])
                return False
            if waits_for_restore(run):
                return False
            if not run.rehearsal:
                share_open(study=run.study, subject=run.pk)
            run.status = self.questions.status
            run.started_at = run.voting_at = timezone.now()
            run.spent = [0.0] * len(run.plan["budgets"])
            run.message = ""
            run.save(update_fields=["status", "started_at", "voting_at", "spent", "message"])
        return True

    def step(self, run: Run) -> bool:
        """Take the asking one step further; True where the next step can follow at once."""
        current = run.rounds.last()
        if current is None or current.position >= current.size:
            if run.rounds.count() < len(run.plan["rounds"]):
                return self._round_begin(run)
            return self._close(run)
        if not run.shards.exists():
            return self._batch_begin(run)
        if not shards.shards_done(run):
            shards.shards_send(run)
            return False
        return self._batch_commit(run)

    def may_go_on(self, run: Run) -> bool:
        """Whether a run that waited can go on now."""
        if run.status == Run.Status.APPROVED:
            return spending_may_begin(run)
        return run.status == self.questions.status and shards.shards_done(run)

    def _round_begin(self, run: Run) -> bool:
        opened = self.questions.round_open(run)
        with transaction.atomic():
            run = _locked(run)
            if run.status != self.questions.status or run.rounds.count() != opened.index:
                return False
            opened.save()
        logger.info("To be asked in round %d: %d.", opened.index + 1, opened.size)
        return True

    def _close(self, run: Run) -> bool:
        with transaction.atomic():
            study_lock(run.study_id)
            run = _locked(run)
            if run.status != self.questions.status:
                return False
            reason = self.questions.stop_reason(run)
            Run.objects.filter(pk=run.pk).update(status=Run.Status.STUDENT, stop_reason=reason)
            if run.rehearsal:
                Run.objects.filter(pk=run.pk).update(outcome=_rehearsed_outcome(run, self.questions.spent(run)))
            else:
                share_settle(study=run.study, subject=run.pk, used=share_used(run))
            runs_send_on(run)
        logger.info("All %d were asked.", run.position)
        return True

    def _people(self, run: Run) -> People:
        return self.questions.taking_part(run, attempts.participants(run))

    # --- A batch ----------------------------------------------------------------------------------------------------

    def _batch_begin(self, run: Run) -> bool:
        """Note who is asked with what room, and cut them into shards."""
        with transaction.atomic():
            study_lock(run.study_id)
            run = _locked(run)
            if run.status != self.questions.status or run.shards.exists():
                return False
            if waits_for_restore(run):
                return False
            attempts.attempt_write(run, self._people(run))
            shards.shards_cut(run, self.questions.shard)
        return False

    def _batch_commit(self, run: Run) -> bool:
        """Release a batch that every shard has answered, with what it cost everybody."""
        self.questions.round_load(round_under_way(run))  # before the lock: it takes time
        with transaction.atomic():
            study_lock(run.study_id)
            run = _locked(run)
            if run.status != self.questions.status or not shards.shards_done(run):
                return False
            if waits_for_restore(run):
                return False
            asked = round_under_way(run)
            try:
                changed = attempts.attempt_renew(run, self._people)
                if changed is not None:
                    shards.shards_renew(run, set((changed % run.shards.count()).tolist()))
                    return True
                answers = shards.answers_load(run)
            except FileNotFoundError:
                # A backup was restored: it names files that were deleted since.
                attempts.attempt_write(run, self._people(run))
                shards.shards_renew(run, set(run.shards.values_list("number", flat=True)))
                return True
            holders = np.concatenate([answer["holder"] for answer in answers])
            charges = np.concatenate([answer["charge"] for answer in answers])
            order = np.argsort(holders)
            released = self.questions.release(asked, answers, noise.noise_of(run))
            self._release(asked, released, holders[order], charges[order])
            run.shards.all().delete()
            until = run.batches.count()
            transaction.on_commit(lambda: shards.answers_delete(run, until))
        return True

    def _release(self, asked: Round, released: Released, holders: np.ndarray, charges: np.ndarray) -> None:
        """Write release, charges and positions; the caller's transaction makes them one."""
        run = asked.run
        batch = Batch.objects.create(
            run=run,
            index=run.batches.count(),
            start=run.position,
            size=released.size,
            labels=released.labels,
            round=asked,
            asked=run.assignment,
            released=released.artifact,
        )
        for query in released.queries:
            query.batch = batch
        if released.queries:
            rows_insert(released.queries)
        costs = _costs(run, released.bounds) if released.charged else released.bounds
        attempt = attempts.attempt_load(run.assignment)
        if run.rehearsal:
            attempts.attempt_write(run, replace(attempt, spent=attempt.spent + charges))
        else:
            release_record(
                study=run.study,
                kind=self.questions.release_kind,
                run=run.pk,
                batch=batch.index,
                content=released.content | {"charges": costs},
                holders=holders if released.charged else None,
                charges=charges if released.charged else None,
                limits=attempt.limits,
                charge=max(released.bounds),
                acting_user_id=run.approved_by_id,
            )
            charged_tell(run, costs)
        Round.objects.filter(pk=asked.pk).update(position=asked.position + released.size)
        Run.objects.filter(pk=run.pk).update(
            position=run.position + released.size,
            labels=run.labels + released.labels,
            spent=(np.array(run.spent) + costs).tolist(),
            heartbeat=timezone.now(),
            message="",
        )


def _locked(run: Run) -> Run:
    return Run.objects.select_for_update(of=("self",)).select_related("study", "public_dataset").get(pk=run.pk)


def _rehearsed_outcome(run: Run, spent: list[float | None]) -> dict:
    epsilons = [
        {
            "level": promise["level"],
            "epsilon": promise["epsilon"],
            "spent": None if charged is None else epsilon_of(charged, run.study.delta),
        }
        for promise, charged in zip(run.plan["promises"], spent, strict=True)
    ]
    return {"epsilons": epsilons, "method": "gdp", "conversion": "exact"}


def _costs(run: Run, bounds: list[float]) -> list[float]:
    """The most that anybody of each promise was charged for a batch, in μ²: public; never more than the run may use.

    A policy since the plan may have made a promise smaller than all that it knows; the whole share then counts as used.
    """
    smallest = min(promise["epsilon"] for promise in run.plan["promises"])
    is_known = run.rehearsal or all(promise.epsilon >= smallest for promise in promises_possible(run.study))
    budgets = budgets_from_json(run.plan)
    left = [max(0.0, budget.allowed - spent) for budget, spent in zip(budgets, run.spent, strict=True)]
    return [min(bound, room) if is_known else room for bound, room in zip(bounds, left, strict=True)]
