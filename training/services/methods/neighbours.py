"""Every holder votes, as the services see it."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from django.utils.translation import gettext as _

from accounting.book import charges_of
from accounting.models import Release
from accounting.services import ROUNDING
from common.artifacts import arrays_load
from training.methods.fields import AskingField
from training.methods.neighbours.parameters import asking_fields, asking_from_json
from training.models import Run, VoteBatch
from training.representations import REPRESENTATIONS
from training.services.methods.base import Step, Wrong
from training.services.neighbours import asking
from training.services.neighbours.planning import AskingPlan, asking_plan
from training.services.neighbours.rounds import question_digest, question_load
from training.services.neighbours.shards import contributions
from training.services.spending import spending_may_begin

_TEACHERS_FIELDS = ("learner", "learner_parameters", "aggregator", "teachers")


class Neighbours:
    """See :class:`training.services.methods.base.RunMethod`."""

    name = Run.Method.NEIGHBOURS.value
    release_kind = Release.Kind.COUNTS.value
    # Each batch goes to the workers and back: few of them, yet enough for consents to count soon and a bar to move.
    batch_size = 1000
    steps: Mapping[str, Step] = {
        Run.Status.APPROVED: asking.asking_open,
        Run.Status.ASKING: asking.asking_step,
    }

    def asking_fields(self) -> tuple[AskingField, ...]:
        return asking_fields()

    def check(self, run: Run, wrong: Wrong) -> None:
        for name in _TEACHERS_FIELDS:
            if getattr(run, name):
                wrong(name, _("There are no teachers where every holder votes. Leave this out."))
        run.variant = ""
        try:
            chosen = asking_from_json(run.asking)
        except (ValueError, TypeError) as error:
            wrong("asking", error)
            return
        run.asking = chosen.to_json()
        if run.public_dataset_id:
            is_table = run.public_dataset.schema["kind"] == "table"
            if is_table and chosen.representation and REPRESENTATIONS[chosen.representation].images:
                wrong("asking", _("This representation is for images. Choose another one."))
            if chosen.first_queries and chosen.first_queries >= run.public_dataset.rows:
                wrong("asking", _("The first round has to leave public points for the next: ask for fewer."))

    def plan(self, run: Run, share: float = 1.0) -> AskingPlan:
        return asking_plan(run, share)

    def prepare(self, run: Run, planned: Any) -> None:
        """Nothing: who takes part is looked up for every batch."""

    def may_go_on(self, run: Run) -> bool:
        if run.status == Run.Status.APPROVED:
            return spending_may_begin(run)
        return run.status == Run.Status.ASKING and asking.shards_done(run)

    def mechanism(self, run: Run) -> dict[str, Any]:
        rounds = [
            asking.mechanism(run, each) | {"representation": each.representation, "queries": each.position}
            for each in run.rounds.all()
        ]
        return {"name": "neighbours", "rounds": rounds}

    def stages(self, run: Run) -> list[tuple[str, float]]:
        planned = sum(each["queries"] for each in run.plan.get("rounds", []))
        return [(Run.Status.ASKING, run.position / planned if planned else 0.0)]

    def content_faults(self, run: Run, batch: VoteBatch, release: Release) -> Iterator[str]:
        who = f"run {run.pk}, batch {batch.index}"
        if batch.round is None or batch.round.run_id != run.pk:
            yield f"{who}: is in no round of its run."
            return
        results = {query.row: query for query in batch.results.all()}
        question, before = question_load(batch.round), _position_in_round(batch)
        rows = question.rows[before : before + batch.queries]
        if sorted(results) != sorted(rows.tolist()):
            yield f"{who}: asked other points than its round says."
            return
        labels = np.array([results[row].label for row in rows.tolist()])
        counts = np.array([results[row].counts for row in rows.tolist()])
        if release.content["digest"] != asking.counts_digest(rows, labels, counts):
            yield f"release {release.sequence}: the counts of {who} are not those that were released."
        if release.content["question"] != question_digest(question):
            yield f"release {release.sequence}: {who} asked something else than what was released."
        if release.content["mechanism"] != asking.mechanism(run, batch.round):
            yield f"release {release.sequence}: {who} was not asked as its plan says."
        sentence = question.fitted.representation.sentence().to_json()
        if (batch.round.queries, batch.round.representation) != (len(question.rows), sentence):
            yield f"{who}: what its round says of itself is not what it asked."
        if batch.round.position < before + batch.queries:
            yield f"{who}: is in a round that has not asked so much."
        bound = batch.queries * question.norm / question.sigma**2
        if release.charge != bound or not _charges_agree(run, batch, release, bound):
            yield f"release {release.sequence}: its public charge is not what {who} can have cost."

    def replay_faults(self, batch: VoteBatch, release: Release) -> Iterator[str]:
        assert batch.round is not None, "a batch by this method is in a round"
        attempt, charges = arrays_load(batch.asked), charges_of(release)
        start = _position_in_round(batch)
        _sums, due = contributions(
            batch.run,
            question_load(batch.round),
            slice(start, start + batch.queries),
            attempt["holder"],
            attempt["limit"],
            attempt["spent"],
        )
        if not np.array_equal(charges.holders, attempt["holder"]):
            yield f"release {release.sequence}: batch {batch.index} was not charged to those who were asked."
        elif not np.allclose(charges.spent, due, rtol=ROUNDING, atol=0):
            yield f"release {release.sequence}: batch {batch.index} cost those who were asked something else."


def _charges_agree(run: Run, batch: VoteBatch, release: Release, bound: float) -> bool:
    """Whether each promise was publicly charged ``bound``, or what was left of the run's share if that is less.

    After a policy that made promises smaller the whole share counts as used.
    """
    earlier = Release.objects.filter(run=run.pk, batch__lt=batch.index).values_list("content", flat=True)
    for place, (budget, charge) in enumerate(zip(run.plan["budgets"], release.content["charges"], strict=True)):
        room = budget["allowed"] - sum(content["charges"][place] for content in earlier)
        slack = ROUNDING * budget["allowed"]
        if not min(bound, room) - slack <= charge <= max(room, 0.0) + slack:
            return False
    return True


def _position_in_round(batch: VoteBatch) -> int:
    """How many queries of its round were asked before a batch."""
    earlier = batch.run.batches.filter(round=batch.round_id, index__lt=batch.index)
    return sum(earlier.values_list("queries", flat=True))
