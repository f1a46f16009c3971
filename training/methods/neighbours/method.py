"""Every holder votes, as the services see it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.models import Release
from common.sentences import Sentence
from learning.mechanisms.neighbours.choices import NeighbourChoices
from learning.mechanisms.neighbours.question import VotesQuestion, counts_digest
from learning.outcomes import Classes, Labels, Numbers
from training.engine.attempts import attempt_load
from training.engine.budgets import PlannedPromise
from training.engine.coordinates import records_of
from training.engine.faults import charged_faults
from training.engine.questions import position_in_round
from training.methods.base import Tile, Wrong
from training.methods.choices import holder_choices_check
from training.methods.engine import EngineMethod
from training.methods.lessons import Lesson
from training.methods.neighbours.leads import round_leads
from training.methods.neighbours.lessons import votes_lesson
from training.methods.neighbours.planning import AskingPlan, asking_plan
from training.methods.neighbours.questions import Votes
from training.methods.neighbours.rounds import question_load
from training.models import Batch, Run


class Neighbours(EngineMethod):
    """See :class:`training.methods.base.RunMethod`."""

    name = Run.Method.NEIGHBOURS.value
    variants: tuple[str, ...] = ("",)
    learns: tuple[str, ...] = (Classes.kind, Numbers.kind, Labels.kind)
    charged = gettext_noop(
        "Charges are public: the most that anybody of a level can have been charged. What somebody was charged is "
        "less where they voted less often, and stays a secret."
    )
    choices = NeighbourChoices
    parts = "neighbours"
    batch_label = gettext_noop("Queries in a batch")
    releases_labels = True
    questions = Votes()
    # Each batch goes to the workers and back: few of them, yet enough for consents to count soon and a bar to move.
    batch_size = 1000

    def check(self, run: Run, wrong: Wrong) -> None:
        run.variant = ""
        chosen = holder_choices_check(run, wrong, self.choices)
        if run.private_dataset_id and not run.private_dataset.outcome.categories:
            wrong("method", _("Votes cannot be for so many labels. Choose private gradient steps."))
        first = chosen.first_queries if chosen is not None else None
        if run.public_dataset_id and first and first >= run.public_points.rows:
            wrong("choices.first_queries", _("The first round has to leave public points for the next: ask for fewer."))

    def facts(self, run: Run) -> list[tuple[str, list[Sentence]]]:
        points_sentence = Sentence(gettext_noop("all public points"))
        if run.wanted_labels:
            points_sentence = Sentence(gettext_noop("%(labels)d public points"), labels=run.wanted_labels)
        ends = Sentence(gettext_noop("it ends when all of them were asked, whatever accounts are left with"))
        return [(gettext_noop("Asks about"), [points_sentence, ends])]

    def tiles(self, run: Run) -> list[Tile]:
        points_sentence = Sentence(gettext_noop("of %(points)s"), points=self.size(run))
        return [
            (gettext_noop("Public points put to the vote"), run.position, points_sentence),
            (gettext_noop("Labels released"), run.labels, Sentence(gettext_noop("each with noisy counts"))),
        ]

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> AskingPlan:
        return asking_plan(run, share, promises)

    def round_sizes(self, run: Run) -> list[int]:
        return [each["queries"] for each in run.plan.get("rounds", [])]

    def size(self, run: Run) -> int:
        return run.public_points.rows

    def mechanism(self, run: Run) -> dict[str, Any]:
        rounds = [
            question_load(each).describe() | {"representation": each.representation, "queries": each.position}
            for each in run.rounds.all()
        ]
        return {"name": "neighbours", "rounds": rounds}

    def leads(self, run: Run) -> list[list[float]]:
        return round_leads(run)

    def lesson(self, run: Run) -> Lesson:
        return votes_lesson(run)

    def kept_faults(self, batch: Batch, release: Release, question: VotesQuestion) -> Iterator[str]:
        who = f"run {batch.run_id}, batch {batch.index}"
        results, part = {query.row: query for query in batch.results.all()}, _part(batch)
        rows = question.rows[part]
        if sorted(results) != sorted(rows.tolist()):
            yield f"{who}: asked other points than its round says."
            return
        labels = np.array([results[row].label for row in rows.tolist()])
        counts = np.array([results[row].counts for row in rows.tolist()])
        if release.content["digest"] != counts_digest(rows, labels, counts):
            yield f"release {release.sequence}: the counts of {who} are not those that were released."
        if not np.array_equal(labels, question.labels(part, counts)):
            yield f"{who}: its labels do not follow from the counts that were released."

    def charges_faults(self, batch: Batch, release: Release, question: VotesQuestion) -> Iterator[str]:
        people = attempt_load(batch.attempt)
        records = records_of(batch.run, question.fitted, people.holders)
        _sums, due = question.contributions(_part(batch), people, records)
        yield from charged_faults(batch, release, people.holders, due)


def _part(batch: Batch) -> slice:
    """Queries of a batch that was released."""
    start = position_in_round(batch)
    return slice(start, start + batch.size)
