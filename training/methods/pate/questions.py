"""The vote of teachers, as the engine asks it."""

from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from accounting.accounts import accounts_stand
from accounting.models import Release
from accounting.privacy import Conversion, Method
from common.artifacts import arrays_load
from common.sentences import Sentence, gettext_noop
from consent.selectors import consent_snapshot, consent_state
from learning.mechanisms.pate import Group
from learning.mechanisms.pate.ballots import Ballot, TeachersQuestion, VoteBudget, VoteState
from learning.mechanisms.pate.partition import public_participation
from learning.mechanisms.pate.simulation import RehearsedVote, SimulatedVote
from learning.mechanisms.pate.teachers import STOP, Teachers
from learning.mechanisms.protocol import People
from learning.representations import FittedRepresentation
from training.engine.questions import Questions, round_under_way, state_before
from training.methods.pate.ballot import ballot_load
from training.methods.pate.interim import interim_probabilities
from training.methods.pate.planning import plan_from_json
from training.methods.pate.teaching import holders_gone
from training.models import Round, Run

_SPACE = Sentence(gettext_noop("The public points as they are, each put to all teachers."))
_NOBODY = People(np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0))


class Ballots(Questions):
    """See :class:`training.engine.questions.Questions`."""

    #: Teachers have said all they say before the vote begins.
    shard = None
    release_kind = Release.Kind.LABELS.value

    def kind_of(self, opened_round: Round) -> str:
        counts = vote_question(opened_round.run).plan.aggregator.releases_counts
        return Release.Kind.TALLIES.value if counts else self.release_kind

    def round_open(self, run: Run) -> Round:
        question = vote_question(run)
        return Round(run=run, index=0, representation=_SPACE.to_json(), sigma=question.sigma, size=question.size)

    def question(self, opened_round: Round) -> TeachersQuestion:
        return vote_question(opened_round.run)

    def warm(self, run: Run) -> None:
        question = vote_question(run)
        if isinstance(question, RehearsedVote):
            _simulated(run.pk)
        elif question.student is not None:
            question.student(state_of(question, run).labels)
        if run.assignment:  # the hub of sites has no teachers
            ballot_load(run.pk)

    def is_over(self, opened_round: Round) -> bool:
        return self._stop(opened_round.run) is not None

    def stop_reason(self, run: Run) -> str:
        return str(self._stop(run))

    def people(self, run: Run) -> People:
        """All members of teachers, to the end; with a cap of 0 where they must not stay in theirs."""
        if run.rehearsal:
            return _NOBODY
        ballot, budgets = ballot_load(run.pk), _budgets(run)
        members, group, question = ballot.members, ballot.group_of, vote_question(run)
        caps = np.array([budget.cap for budget in budgets])[group]
        caps[np.isin(members, _gone(run.pk, consent_state(run.study)))] = 0.0
        # That this lies within the limit of everybody's cap was tested when the vote opened. A holder who has lowered
        # their cap since owes what was begun.
        spent = accounts_stand(run.study, members)
        allowed = np.array([budget.allowed for budget in budgets])
        # That of a class is what the run has charged each of its members.
        charged = question.spent(state_of(question, run))[question.class_of(ballot)]
        return People(members, caps, spent - charged + allowed[group], spent)

    def records(
        self, run: Run, fitted: FittedRepresentation | None, people: People, cache: str = ""
    ) -> Ballot | SimulatedVote:
        return _simulated(run.pk) if run.rehearsal else ballot_load(run.pk)

    def rehearsed(self, run: Run) -> dict[str, Any]:
        known, epsilons = run.rehearsed, arrays_load(run.batches.get().released)["epsilons"]
        levels = [
            {"level": promise["level"], "epsilon": promise["epsilon"], "spent": float(spent)}
            for promise, spent in zip(run.plan["promises"], epsilons, strict=True)
        ]
        return {"epsilons": levels, "method": known["method"], "conversion": known["conversion"]}

    def _stop(self, run: Run) -> str | None:
        question = vote_question(run)
        return question.stop(state_of(question, run))


def vote_question(run: Run) -> TeachersQuestion:
    """Question of a run of teachers, from its plan, its choices and its public points."""
    plan = plan_from_json(run.plan)
    question = TeachersQuestion(
        plan,
        _budgets(run),
        size=run.public_points.rows,
        n_classes=len(run.classes),
        points=_points(run),
        wanted_labels=run.wanted_labels,
        goes_on=Teachers.from_json(run.choices).on_exhausted != STOP,
        student=partial(interim_probabilities, run) if plan.aggregator.asks_student else None,
        participation=_participation(run.pk, run.plan["participation"]) if "participation" in run.plan else None,
    )
    if not run.rehearsal:
        return question
    known, promises = run.rehearsed, run.plan["promises"]
    return RehearsedVote(
        **vars(replace(question, goes_on=False)),
        groups=tuple(Group(promise["name"], promise["epsilon"], promise["holders"]) for promise in promises),
        delta=run.study.delta,
        seed=run.seed or 0,
        method=cast(Method, known["method"]),
        conversion=cast(Conversion, known["conversion"]),
        block=run.batch_size,
    )


@lru_cache(maxsize=2)
def _participation(run_id: UUID, seed: str) -> NDArray[np.bool_]:
    """(teachers, points) which teachers take part in which query, from the public seed of the plan."""
    run = Run.objects.select_related("public_dataset").get(pk=run_id)
    return public_participation(plan_from_json(run.plan), run.public_points.rows, seed)


@lru_cache(maxsize=1)
def _simulated(run_id: UUID) -> SimulatedVote:
    """Hold the vote of a rehearsal, which its seed decides; kept, so that it is done before the study is locked."""
    question = vote_question(Run.objects.select_related("study", "public_dataset").get(pk=run_id))
    assert isinstance(question, RehearsedVote), "only a rehearsal's vote is simulated"
    return question.simulated(ballot_load(run_id))


def _points(run: Run) -> str:
    """Digest of the public points when the run was planned: they may have been encoded or removed since."""
    if run.alliance is not None:
        return run.alliance.terms["public"]["digest"]
    return run.plan.get("points", run.public_points.digest)  # plans of earlier versions do not tell it


def state_of(question: TeachersQuestion, run: Run) -> VoteState:
    """State of a vote after everything that it has released."""
    return state_before(question, round_under_way(run), run.batches.count())


def _budgets(run: Run) -> tuple[VoteBudget, ...]:
    return tuple(VoteBudget(**budget) for budget in run.plan["budgets"])


@lru_cache(maxsize=2)
def _gone(run_id: UUID, _state: Hashable) -> np.ndarray:
    """Members who must not stay in their teacher; looked up anew whenever the state of consents changes."""
    run, ballot = Run.objects.select_related("study").get(pk=run_id), ballot_load(run_id)
    pairs = {"holder": ballot.holder, "group": ballot.group}
    return holders_gone(run, pairs, consent_snapshot(run.study, among=ballot.members))
