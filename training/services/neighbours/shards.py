"""Shards of holders: partial sums of what they contribute to a batch, and what each is charged. All of it is secret."""

from contextlib import suppress
from uuid import uuid4
from zipfile import BadZipFile

import numpy as np
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounting.privacy import IndividualAccounts
from common.artifacts import arrays_delete, arrays_list, arrays_load, arrays_save
from training.errors import RunError
from training.leases import lease
from training.methods.neighbours.votes import shard_contributions
from training.models import Round, Run, Shard
from training.services.ballot import run_folder
from training.services.neighbours.rounds import Question, question_load, round_under_way

#: How many workers may die over one shard before its run fails: more than accidents explain.
DEATHS = 20


def batch_rows(run: Run, asked: Round) -> slice:
    """The queries of the round that the batch under way asks."""
    return slice(asked.position, min(asked.position + run.batch_size, asked.queries))


def shard_ask(shard: Shard) -> None:
    """Ask the holders of a shard about the batch under way, and keep the sum of what they contribute."""
    if shard.state == Shard.State.DONE:
        return
    with lease(Shard, shard.pk) as token:
        if token is None:
            return
        # Looked up under the claim: who ends a run waits for claims to end.
        found = Shard.objects.select_related("run__private_dataset").filter(pk=shard.pk).first()
        if found is None or found.run.status != Run.Status.ASKING or found.state == Shard.State.DONE:
            return
        shard, mine = found, Shard.objects.filter(pk=shard.pk, claimed_by=token)
        if shard.state == Shard.State.RUNNING:  # but nobody's: who asked it died
            shard.deaths += 1
            mine.update(deaths=shard.deaths)
            if shard.deaths >= DEATHS:
                raise RunError(
                    gettext_noop(
                        "Workers died again and again while they asked the same holders; most likely their memory did "
                        "not suffice. Propose the run anew with smaller batches, or give the workers more memory."
                    )
                )
        mine.update(state=Shard.State.RUNNING)
        try:
            name = f"shard-{shard.run.batches.count()}-{shard.number}-{uuid4().hex[:12]}.npz"
            artifact = f"{run_folder(shard.run)}/{name}"
            arrays_save(artifact, **_answer(shard))
        except BaseException:
            mine.update(state=Shard.State.PENDING)
            raise
        if not mine.update(state=Shard.State.DONE, artifact=artifact):
            arrays_delete(artifact)  # it was asked anew, by somebody else, or the batch is over
            return
        Run.objects.filter(pk=shard.run_id).update(heartbeat=timezone.now())


def _answer(shard: Shard) -> dict[str, np.ndarray]:
    run, number = shard.run, shard.run.shards.count() or 1  # none where the batch is over, and nobody waits for this
    asked = round_under_way(run)
    attempt = arrays_load(run.assignment)
    of_shard = attempt["holder"] % number == shard.number
    sums, charges = contributions(
        run,
        question_load(asked),
        batch_rows(run, asked),
        *(attempt[name][of_shard] for name in ("holder", "limit", "spent")),
        cache=f"{run_folder(run)}/coordinates-{asked.index}-{number}-{shard.number}.npz",
    )
    return {"sums": sums, "holder": attempt["holder"][of_shard], "charge": charges}


def sums_delete(run: Run, until: int) -> None:
    """Delete the sums of the first ``until`` batches, those of workers that died over them too: none stays."""
    folder = f"{run_folder(run)}/shard-"
    sums = (name for name in arrays_list(run_folder(run)) if name.startswith(folder))
    arrays_delete(*(name for name in sums if int(name.removeprefix(folder).split("-")[0]) < until))


def contributions(
    run: Run,
    question: Question,
    part: slice,
    holders: np.ndarray,
    limits: np.ndarray,
    spent: np.ndarray,
    *,
    cache: str = "",
) -> tuple[np.ndarray, np.ndarray]:
    """What holders contribute to some queries of a round, as far as their accounts allow.

    Args:
        run: The run.
        question: What its round asks.
        part: The queries of the batch.
        holders: (H,) ids in rising order.
        limits: (H,) up to which μ² each account may go.
        spent: (H,) μ² that each has spent before.
        cache: A file for the coordinates of their records; none if empty.

    Returns:
        Unnoised sums (Q, C), and what each is charged, (H,) μ².
    """
    coordinates, classes, owners = _records(run, question, holders, cache)
    accounts = IndividualAccounts(np.maximum(limits, 0.0), spent)
    sums, norms = shard_contributions(
        question.queries[part],
        question.radii[part],
        coordinates,
        classes,
        np.searchsorted(holders, owners),
        n_classes=question.n_classes,
        accounts=accounts,
        sigma=question.sigma,
        predicted=None if question.predicted is None else question.predicted[part],
        kernel=question.kernel,
    )
    # The difference of the accounts, not the sum of the norms: what is charged and what is left are the same numbers.
    del norms
    return sums, accounts.spent - spent


def _records(
    run: Run, question: Question, holders: np.ndarray, cache: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates, classes and owners of the records of ``holders``; computed once in a round for each shard.

    Only of those who take part: a file that knows others, or lacks somebody, is made anew.
    """
    if cache:
        kept = _kept(cache)
        if kept is not None and np.isin(holders, kept["asked"]).all():
            mine = np.isin(kept["owner"], holders)
            return kept["coordinates"][mine], kept["class"][mine], kept["owner"][mine]
    private = arrays_load(run.private_dataset.artifact)
    mine = np.isin(private["holder"], holders)
    coordinates = question.fitted.transform(private["x"][mine])
    classes, owners = private["y"][mine], private["holder"][mine]
    if cache:
        with suppress(OSError):  # another worker, whose claim this one has taken over, writes it too
            arrays_save(cache, coordinates=coordinates, owner=owners, asked=holders, **{"class": classes})
    return coordinates, classes, owners


def _kept(cache: str) -> dict[str, np.ndarray] | None:
    """What the file holds; None where there is none, or its writer died over it."""
    try:
        return arrays_load(cache)
    except (OSError, EOFError, ValueError, BadZipFile):
        return None
