"""Attempts: who is asked in a batch with how much room, recorded once for all its shards, checked at the commit."""

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
    """Record who is asked."""
    old = run.assignment
    run.assignment = f"{run_folder(run)}/asked-{uuid4().hex}.npz"
    arrays_save(run.assignment, holder=people.holders, cap=people.caps, limit=people.limits, spent=people.spent)
    Run.objects.filter(pk=run.pk).update(assignment=run.assignment, heartbeat=timezone.now())
    if old and old not in attempt_files(run):
        transaction.on_commit(lambda: arrays_delete(old))


def attempt_files(run: Run) -> set[str]:
    """Return the files that list who was asked in batches of a run and in its site's answers."""
    answered = JointQuestion.objects.filter(joint__run=run.pk).exclude(attempt="")
    return {*run.batches.values_list("attempt", flat=True), *answered.values_list("attempt", flat=True)}


def attempt_load(name: str) -> People:
    """Return the people who were asked, from the attempt file ``name``. Raises FileNotFoundError."""
    arrays = arrays_load(name)
    return People(arrays["holder"], arrays["cap"], arrays["limit"], arrays["spent"])


def participants(run: Run) -> People:
    """Return the people who own records and take part now."""
    until = run.plan["rounds"][run.rounds.count() - 1]["until"]
    if run.rehearsal:
        holders, epsilons = rehearsal_holders(run)
        spent = np.zeros(len(holders))
        if run.assignment:  # of the previous batch; nobody joins or leaves a rehearsal
            spent = arrays_load(run.assignment, "spent")["spent"]
        caps = caps_of(epsilons, run.study.delta)
        return People(holders, caps, run.share * until * caps * (1 - RESERVE), spent)
    owners = owners_of(run.private_dataset)
    snapshot = consent_snapshot(run.study).of(owners)
    # Budget that a holder has not used from earlier shares and earlier rounds is available now (condition 2).
    fraction = share_open(study=run.study, subject=run.pk) - run.share * (1 - until)
    caps = caps_of(snapshot.epsilons, run.study.delta)
    limits = np.minimum(fraction * caps, rooms(run.study, snapshot.holders, subject=run.pk)) * (1 - RESERVE)
    return People(snapshot.holders, caps, limits, accounts_stand(run.study, snapshot.holders))


def attempt_renew(run: Run, people_now: Callable[[Run], People]) -> np.ndarray | None:
    """Take out people who are missing from ``people_now`` or have less room, and record others' charges since then.

    Called under the study's lock, before anyone sees what was drawn: nobody has seen what is discarded, and the reason
    for discarding it depends only on consents and charges.

    Returns:
        Ids of the people for whom something changed, and with whom the batch has to be asked again; None if nothing
        changed.
    """
    if run.rehearsal:
        return None
    attempt, now = attempt_load(run.assignment), people_now(run)
    # Something else may have been charged in the meantime: a drawing of head counts.
    spent = accounts_stand(run.study, attempt.holders)
    present = np.isin(attempt.holders, now.holders)
    lowered = np.zeros(len(present), dtype=bool)
    places = np.searchsorted(now.holders, attempt.holders[present])
    lowered[present] = now.limits[places] < attempt.limits[present]
    gone = ~present | lowered
    changed = gone | (spent != attempt.spent)
    if not changed.any():
        return None
    # One holder's case never depends on another's: nobody joins here, and no limit is raised, because someone else left
    # or was charged. People who only lowered their level are asked again from the next batch on.
    attempt_write(run, replace(attempt, spent=spent).of(~gone))
    return attempt.holders[changed]


# --- Files of a run ---------------------------------------------------------------------------------------------------


_BATCH = "batch-"


def run_folder(run: Run) -> str:
    """Return the folder in private storage that holds only this run's secrets."""
    return f"runs/{run.pk}"


def rounds_folder(run: Run) -> str:
    """Return the folder of a run's questions and releases, public once a row names it."""
    return f"rounds/{run.pk}"


def released_name(run: Run, index: int) -> str:
    """Return a new file name for a batch's release."""
    return f"{rounds_folder(run)}/{_BATCH}{index}-{uuid4().hex[:12]}.npz"


def released_tidy(run: Run) -> None:
    """Delete what was drawn and never released: files of failed commits, which nobody has seen."""
    named, start = set(run.batches.values_list("released", flat=True)), f"{rounds_folder(run)}/{_BATCH}"
    drawn = (name for name in arrays_list(rounds_folder(run)) if name.startswith(start))
    arrays_delete(*(name for name in drawn if name not in named))
