"""Attempts: who is asked in a batch, and with what room, noted once for all its shards and checked at the commit."""

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import numpy as np
from django.db import transaction
from django.utils import timezone

from accounting.accounts import accounts_stand
from accounting.caps import caps_of
from accounting.ceilings import rooms
from accounting.shares import share_open
from common.artifacts import arrays_delete, arrays_list, arrays_load, arrays_save
from consent.selectors import consent_snapshot
from learning.mechanisms.protocol import People
from training.engine.budgets import RESERVE, rehearsal_holders
from training.engine.records import owners_of
from training.models import JointQuestion, Run


def attempt_write(run: Run, people: People) -> None:
    """Note who is asked."""
    old = run.assignment
    run.assignment = f"{run_folder(run)}/asked-{uuid4().hex}.npz"
    arrays_save(run.assignment, holder=people.holders, cap=people.caps, limit=people.limits, spent=people.spent)
    Run.objects.filter(pk=run.pk).update(assignment=run.assignment, heartbeat=timezone.now())
    if old and old not in attempt_files(run):
        transaction.on_commit(lambda: arrays_delete(old))


def attempt_files(run: Run) -> set[str]:
    """Files that say who was asked in batches of a run, and in what its site has answered."""
    answered = JointQuestion.objects.filter(joint__run=run.pk).exclude(attempt="")
    return {*run.batches.values_list("attempt", flat=True), *answered.values_list("attempt", flat=True)}


def attempt_load(name: str) -> People:
    """People who were asked, by the file that says so. Raises FileNotFoundError."""
    arrays = arrays_load(name)
    return People(arrays["holder"], arrays["cap"], arrays["limit"], arrays["spent"])


def participants(run: Run) -> People:
    """Those who own records and take part now."""
    until = run.plan["rounds"][run.rounds.count() - 1]["until"]
    if run.rehearsal:
        holders, epsilons = rehearsal_holders(run)
        spent = np.zeros(len(holders))
        if run.assignment:  # of the batch before; nobody joins or leaves a rehearsal
            spent = arrays_load(run.assignment, "spent")["spent"]
        caps = caps_of(epsilons, run.study.delta)
        return People(holders, caps, run.share * until * caps * (1 - RESERVE), spent)
    owners = owners_of(run.private_dataset)
    snapshot = consent_snapshot(run.study).of(owners)
    # What a holder has not used of earlier shares, and of earlier rounds, is theirs to use now (condition 2).
    fraction = share_open(study=run.study, subject=run.pk) - run.share * (1 - until)
    caps = caps_of(snapshot.epsilons, run.study.delta)
    limits = np.minimum(fraction * caps, rooms(run.study, snapshot.holders, subject=run.pk)) * (1 - RESERVE)
    return People(snapshot.holders, caps, limits, accounts_stand(run.study, snapshot.holders))


def attempt_renew(run: Run, people_now: Callable[[Run], People]) -> np.ndarray | None:
    """Take out who was asked and is not among ``people_now`` or has less room, and note what others were charged since.

    Called under the study's lock, before anybody sees what was drawn: what is thrown away nobody has seen, and why
    depends on consents and charges alone.

    Returns:
        Ids of those for whom something changed, and with whom the batch has to be asked anew; None if it stands.
    """
    if run.rehearsal:
        return None
    attempt, now = attempt_load(run.assignment), people_now(run)
    # Something else may have been charged meanwhile: a drawing of head counts.
    spent = accounts_stand(run.study, attempt.holders)
    present = np.isin(attempt.holders, now.holders)
    lowered = np.zeros(len(present), dtype=bool)
    places = np.searchsorted(now.holders, attempt.holders[present])
    lowered[present] = now.limits[places] < attempt.limits[present]
    gone = ~present | lowered
    changed = gone | (spent != attempt.spent)
    if not changed.any():
        return None
    # What becomes of a holder depends on nobody else: nobody joins here, and no limit is raised, because somebody left
    # or was charged. Who has only lowered their level is asked again from the next batch on.
    attempt_write(run, replace(attempt, spent=spent).of(~gone))
    return attempt.holders[changed]


# --- Files of a run ---------------------------------------------------------------------------------------------------


_BATCH = "batch-"


def run_folder(run: Run) -> str:
    """Folder of a run's secrets in private storage, and of nothing else."""
    return f"runs/{run.pk}"


def rounds_folder(run: Run) -> str:
    """Folder of what a run asks and releases, public once a row names it."""
    return f"rounds/{run.pk}"


def released_name(run: Run, index: int) -> str:
    """A new name for what a batch releases."""
    return f"{rounds_folder(run)}/{_BATCH}{index}-{uuid4().hex[:12]}.npz"


def released_tidy(run: Run) -> None:
    """Delete what was drawn and never released: files of commits that failed. Nobody has seen them."""
    named, start = set(run.batches.values_list("released", flat=True)), f"{rounds_folder(run)}/{_BATCH}"
    drawn = (name for name in arrays_list(rounds_folder(run)) if name.startswith(start))
    arrays_delete(*(name for name in drawn if name not in named))
