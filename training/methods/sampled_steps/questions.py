"""Steps over samples of the holders, as the engine asks them: the charge for the whole run, then chunks of steps."""

from dataclasses import replace

import numpy as np
from django.utils.translation import gettext_noop

from accounting.book import charges_of
from accounting.models import Release
from learning.mechanisms.base import People
from learning.mechanisms.sampled_steps.question import CHARGE, SampledQuestion
from training.engine.questions import Questions, round_under_way
from training.methods.sampled_steps.opening import round_open
from training.methods.sampled_steps.rounds import question_load
from training.models import Round, Run


class SampledGradients(Questions):
    """See :class:`training.engine.questions.Questions`."""

    #: One task takes a chunk: a step reads the records of some hundred holders, however many there are.
    shard = 2**62
    release_kind = Release.Kind.STEPS.value
    died = gettext_noop(
        "Workers died again and again over the same steps; most likely their memory did not suffice. Propose the run "
        "anew with a smaller network, or give the workers more memory."
    )

    def round_open(self, run: Run) -> Round:
        return round_open(run)

    def question(self, opened_round: Round) -> SampledQuestion:
        return question_load(opened_round)

    def people(self, run: Run) -> People:
        people = super().people(run)
        if run.rehearsal:
            return people
        if not run.batches.exists():
            question = question_load(round_under_way(run))
            group = question.groups(people.caps)
            due = question.charges[group]
            return people.of((group >= 0) & (people.spent + due <= people.limits))
        holders, caps = charged_caps(run)
        if not len(holders):
            return people.of(np.zeros(len(people.holders), dtype=bool))
        place = np.searchsorted(holders, people.holders).clip(max=len(holders) - 1)
        stays = (holders[place] == people.holders) & (people.caps >= caps[place])
        # A level that was raised counts in the next run: in this one everybody stays in the group they were charged in.
        return replace(people.of(stays), caps=caps[place[stays]])

    def stop_reason(self, run: Run) -> str:
        return Run.StopReason.STEPS

    def spent(self, run: Run) -> list[float | None]:
        charges = run.plan["rounds"][0]["plan"]["charges"]
        return [None if charge is None else spent for charge, spent in zip(charges, run.spent, strict=True)]


def charged_caps(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """(H,) ids in rising order of those who were charged for the run, and the cap of the promise by which they were.

    From the charge file, which is never deleted: in a group all were charged the same.
    """
    charges = charges_of(Release.objects.get(run=run.pk, batch=CHARGE))
    question = question_load(run.rounds.select_related("run").get())
    return charges.holders, question.caps[np.abs(charges.spent[:, None] - question.charges).argmin(axis=1)]
