"""Worst cases: one person with records chosen to be detectable, and transcripts of the real code with and without them.

The attacker knows everyone else. Scores are log-likelihood ratios if the release has a density, and counts of labels
otherwise; no other score of the same transcript would reveal more about the person.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from scipy.stats import norm
from tqdm import tqdm

from accounting.caps import caps_of, slack_of
from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise, SystemNoise
from learning.formats import TabularSchema
from learning.formats.columns import NumericColumn
from learning.mechanisms.counts.table_plan import CLASSES, CountedColumn, CountsPlan
from learning.mechanisms.counts.tables import PERSON, CountsQuestion
from learning.mechanisms.neighbours.released_counts import read_counts, release_counts
from learning.mechanisms.neighbours.votes import neighbour_votes
from learning.mechanisms.pate import Aggregator, ConfidentGNMax, GNMax, LNMax, PrivacyGroup, make_plan
from learning.mechanisms.protocol import People, PlannedLevel, Records
from learning.mechanisms.sampled_steps import training
from learning.mechanisms.sampled_steps.run_plan import plan_sampled
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import CLIP_STEPS, OwnedRecords, owned_records, release_sums, step_contributions
from learning.mechanisms.steps.steps_plan import Steps, plan_steps
from learning.mechanisms.synthesis.rounds import ROUNDS, Marginals, plan_synthesis
from learning.sites import protocol
from tests.learning.sites.alliances import Joint

Floats = NDArray[np.float64]
DELTA = 1e-5
_AT_A_TIME = 20_000
_ROUNDING = 1 + 1e-9
_ENOUGH = 1e6  # the cap of all others
WHOLE = slice(0, 1)
_TABLE = TabularSchema((NumericColumn("length", 0, 1), NumericColumn("width", 0, 1)), ("a", "b"))


@dataclass(frozen=True)
class Canary(ABC):
    """A mechanism with a participant who wants to be detected.

    Attributes:
        name: name of the mechanism.
        epsilon: ε of the promise to the person, at `DELTA`.
        dearer: divisor of the number of transcripts if each of them needs separate calls.
    """

    epsilon: float = 3.0
    name: str = ""
    dearer: int = 1

    @property
    def cap(self) -> float:
        """μ² of the promise, as computed by studies."""
        return float(caps_of(self.epsilon, DELTA))

    @property
    def promise(self) -> float:
        """μ promised to the person for everything released."""
        return math.sqrt(self.cap)

    def scores(self, transcripts: int) -> tuple[Floats, Floats]:
        """Return the `(transcripts,)` scores of runs without and with the person."""
        without, taking_part = (
            np.concatenate(
                [
                    self.transcripts(min(_AT_A_TIME, transcripts - start), takes_part)
                    for start in range(0, transcripts, _AT_A_TIME)
                ]
            )
            for takes_part in (False, True)
        )
        return without, taking_part

    @abstractmethod
    def transcripts(self, count: int, takes_part: bool) -> Floats:
        """Return the `(count,)` scores of independent transcripts."""


@dataclass(frozen=True)
class Votes(Canary):
    """Votes of all holders. The person has a record at every query; the cap pays for only half of the queries."""

    name: str = "neighbours, one round"
    queries: ClassVar[int] = 16
    records: int = 1

    def transcripts(self, count: int, takes_part: bool) -> Floats:
        sigma = math.sqrt(self.queries / 2 / self.cap) * _ROUNDING
        everyone, _ = self._sums(sigma, self.cap)
        others, _ = self._sums(sigma, 0.0)
        counts = release_counts(np.tile(everyone if takes_part else others, (count, 1)), sigma, SystemNoise())
        return _log_ratio(counts.reshape(count, -1, 2), everyone - others, others, sigma)

    def _sums(self, sigma: float, cap: float) -> tuple[Floats, Floats]:
        return _votes(np.zeros(self.queries, int), sigma, [_ENOUGH, cap], np.zeros(2), records=self.records)


@dataclass(frozen=True)
class TwoStudies(Votes):
    """Votes of the same person in two studies. Charges add up in the same way as the possible losses."""

    name: str = "neighbours, two studies"

    @property
    def promise(self) -> float:
        return math.sqrt(2 * self.cap)

    def transcripts(self, count: int, takes_part: bool) -> Floats:
        return super().transcripts(count, takes_part) + super().transcripts(count, takes_part)


@dataclass(frozen=True)
class ResidualVotes(Canary):
    """Votes in two rounds. The second charges only holders who disagree with the label from the first."""

    name: str = "neighbours, two rounds"
    queries: ClassVar[int] = 16

    def transcripts(self, count: int, takes_part: bool) -> Floats:
        # a quarter of the cap is for the first round; the rest pays for half of the disagreements in the second
        sigmas = math.sqrt(4 / self.cap) * _ROUNDING, math.sqrt(self.queries / 2 / (0.75 * self.cap)) * _ROUNDING
        everyone, spent = _votes(np.zeros(1, int), sigmas[0], [_ENOUGH, self.cap], np.zeros(2))
        others, spent_by_others = _votes(np.zeros(1, int), sigmas[0], [_ENOUGH, 0.0], np.zeros(2))
        first = release_counts(np.tile(everyone if takes_part else others, (count, 1)), sigmas[0], SystemNoise())
        score = _log_ratio(first[:, None], everyone - others, others, sigmas[0])
        guessed = read_counts(first, sigmas[0]).labels
        for label in (0, 1):
            chosen = guessed == label
            said, predicted = np.arange(self.queries) % 2, np.full(self.queries, label)
            everyone, _ = _votes(said, sigmas[1], [_ENOUGH, self.cap], spent, predicted)
            others, _ = _votes(said, sigmas[1], [_ENOUGH, 0.0], spent_by_others, predicted)
            sums = np.tile(everyone if takes_part else others, (int(chosen.sum()), 1))
            counts = release_counts(sums, sigmas[1], SystemNoise()).reshape(-1, self.queries, 2)
            score[chosen] += _log_ratio(counts, everyone - others, others, sigmas[1])
        return score


@dataclass(frozen=True)
class FullSteps(Canary):
    """Private gradient steps with a person whose gradient always has the maximum norm and the same direction.

    This is possible with two classes and one record. The path of the steps depends on the noise. Twice as many steps
    are taken as the cap pays for.
    """

    name: str = "sgd, individual"
    dearer: int = 10
    steps: int = 4
    records: int = 1

    def transcripts(self, count: int, takes_part: bool) -> Floats:
        sigma = math.sqrt(self.steps / 2 / self.cap) * _ROUNDING
        plan = plan_steps(
            [PlannedLevel("ALL", self.cap, 1.0)],
            dimensions=1,
            n_classes=2,
            share=1.0,
            steps=Steps(steps=self.steps, sigma=sigma),
        )
        record = _equal_records(self.records)
        start, spread = Descent.begin(plan, record.x, 2), plan.sigma * CLIP_STEPS
        direction = self._sums(record, start, plan.sigma, IndividualAccounts([self.cap]))
        nothing, scores = np.zeros_like(direction), np.zeros(count)
        for place in tqdm(range(count), desc=self.name, leave=False, mininterval=2):
            state, accounts = start, IndividualAccounts([self.cap])
            for step in range(self.steps):
                sums = self._sums(record, state, plan.sigma, accounts) if takes_part else nothing
                released = release_sums(sums, plan.sigma, SystemNoise())
                # an attacker who knows the cap knows how many steps it pays for; with a defect, all contributions are
                # used
                vector = direction if step < self.steps / 2 or sums.any() else nothing
                scores[place] += _log_ratio(released[None], vector, nothing, spread)[0]
                state = state.after(released)
        return scores

    def _sums(
        self, record: OwnedRecords, state: Descent, sigma: float, accounts: IndividualAccounts
    ) -> NDArray[np.int64]:
        sums, _ = step_contributions(record, state.weights, clip_norm=state.clip_norm, accounts=accounts, sigma=sigma)
        return sums


@dataclass(frozen=True)
class SampledSteps(Canary):
    """Gradient steps on samples, charged in full before the first step."""

    name: str = "sgd, sample"
    dearer: int = 10
    steps: int = 2
    rate: float = 0.5

    @property
    def slack(self) -> float:
        """δ′, which has to be deducted from the bound on μ."""
        return slack_of(DELTA)

    def transcripts(self, count: int, takes_part: bool) -> Floats:
        from learning.mechanisms.sampled_steps.contributions import Gradients  # both import PyTorch
        from learning.mechanisms.sampled_steps.networks import network_create

        network = network_create("linear", (1,), 2, 1)
        plan = plan_sampled(
            "sample",
            np.array([self.cap]),
            np.array([1.0]),
            share=1.0,
            slack=self.slack,
            steps=self.steps,
            rate=self.rate,
            clip_norm=0.01,
            weights=4,
        )
        gradients, start, record = Gradients(network, (1,)), training.SampledSteps.start(network), _equal_records(1)
        mechanism = plan.mechanism
        norms, spread = np.full(1, mechanism.norms[0]), mechanism.noise_multiplier * mechanism.clip_norm
        direction = mechanism.unit * gradients.sums(start.weights, record, [0], norms, unit=mechanism.unit, step=0)
        nobody = owned_records(record.x[:0], record.y[:0], [], [0])
        scores = np.zeros(count)
        for place in tqdm(range(count), desc=self.name, leave=False, mininterval=2):
            state = start
            for _ in range(self.steps):
                after = training.run_chunk(
                    state,
                    record if takes_part else nobody,
                    [0],
                    gradients=gradients,
                    mechanism=mechanism,
                    steps=1,
                    step_size=1.0,
                    momentum=0.0,
                    noise=SystemNoise(),
                    sampling=training.SystemSampling(),
                )
                released = (state.weights - after.weights) * mechanism.expected
                drawn = _log_ratio(released[None], direction, 0 * direction, spread)[0]
                scores[place] += np.log1p(self.rate * np.expm1(drawn))
                state = after
        return scores


@dataclass(frozen=True)
class TeacherLabels(Canary):
    """Votes of teachers. The person moves one teacher to another class; all other votes are balanced."""

    name: str = "pate, GNMax"
    labels: ClassVar[int] = 32

    def transcripts(self, count: int, takes_part: bool) -> Floats:
        plan = make_plan(
            [PrivacyGroup("ALL", self.epsilon, 101)],
            variant="weighting",
            teachers=101,
            aggregator=self.aggregator(),
            delta=DELTA,
            weight_scheme="gdp",
        )
        weights = plan.teacher_weights()
        queries = int(self.cap / plan.aggregator.charge(plan.groups[0].sensitivity).label)
        said = np.tile((np.arange(101) % 2)[:, None], (1, queries))
        said[0] = 1 if takes_part else 0
        votes = plan.aggregator.count(said, 2, weights)
        labels = plan.aggregator.release(np.tile(votes, (count, 1)), SystemNoise()).labels.reshape(count, queries)
        return (labels == 1).sum(axis=1) - (labels == 0).sum(axis=1).astype(np.float64)

    def aggregator(self) -> Aggregator:
        """Return an aggregator with enough noise that the cap pays for `labels` labels."""
        return GNMax(sigma=math.sqrt(2 * self.labels / self.cap) * _ROUNDING)


@dataclass(frozen=True)
class TeacherChecks(TeacherLabels):
    """Votes of teachers, with the check of Confident-GNMax before every label."""

    name: str = "pate, Confident-GNMax"

    def aggregator(self) -> Aggregator:
        sigma = math.sqrt(3 * self.labels / self.cap) * _ROUNDING
        return ConfidentGNMax(sigma=sigma, sigma_threshold=sigma, threshold=40.0)


@dataclass(frozen=True)
class LaplaceLabels(TeacherLabels):
    """Votes of teachers with Laplace noise. The cost is based on pure differential privacy."""

    name: str = "pate, LNMax"

    def aggregator(self) -> Aggregator:
        # the ε of randomised response with this μ, see `accounting.privacy.pure_dp_mu`
        pure = float(logit(norm.cdf(math.sqrt(self.cap / self.labels) / 2)))
        return LNMax(gamma=pure / 2 / _ROUNDING)


@dataclass(frozen=True)
class Counts(Canary):
    """Two tables of counts. The person's record is in one cell, and the cap pays for only one of the tables."""

    name: str = "counts"
    records: int = 1

    def transcripts(self, count: int, takes_part: bool) -> Floats:
        plan = CountsPlan(_ROUNDING / math.sqrt(self.cap), self.cap, 1.0, 1.0, 2)
        question = CountsQuestion(plan, ((CountedColumn(CLASSES, ("a", "b")),),), (self.cap,))
        scores, spent = np.zeros(count), np.zeros(1)
        for _ in range(2):
            answer, charge = _counted(question, self.cap, spent, self.records)
            everyone = np.tile(answer if takes_part else 0 * answer, (count, 1))
            released = question.release(WHOLE, None, [{"sums": everyone}], SystemNoise()).arrays["sums"]
            scores += _log_ratio(released, answer, 0 * answer, question.sigma * PERSON)
            spent = spent + charge
        return scores


@dataclass(frozen=True)
class Sites(Canary):
    """Masked sums of three sites. A person at one site faces the hub and another site that discloses its noise."""

    name: str = "sites, together"

    def transcripts(self, count: int, takes_part: bool) -> Floats:
        moved = math.floor(self.promise * SPREAD / _ROUNDING)
        seen = seen_by_colluders(np.full(count, moved * takes_part))
        return _log_ratio(seen[:, None], np.array([moved]), np.zeros(1), SPREAD)


SPREAD = 1e6
"""Standard deviation of the noise by which people at sites are charged."""


def seen_by_colluders(sums: NDArray[np.int64]) -> Floats:
    """Return a site's sums with only the noise that the hub and one of the other two sites cannot subtract."""
    joint = Joint(3)
    question, known = joint.question(1, spread=SPREAD), secrets.randbits(63)
    total = joint.total(
        question,
        [sums, np.zeros_like(sums), np.zeros_like(sums)],
        lambda place: SimulationNoise(known) if place == 1 else SystemNoise(),
    )
    lattice = protocol.lattice_of(joint.roster, question)
    own = lattice.decode(lattice.noise(SimulationNoise(known), sums.shape))
    return np.asarray(total - own, np.float64)


@dataclass(frozen=True)
class Rows(Canary):
    """Synthetic rows. One person's single record is counted in all tables of each of the three rounds.

    The counted groups depend on the noise. Anything derived from the releases, including the rows, reveals no more than
    they do.
    """

    name: str = "synthesis"
    dearer: int = 10

    def transcripts(self, count: int, takes_part: bool) -> Floats:
        plan = plan_synthesis([PlannedLevel("ALL", self.cap, 1.0)], columns=2, share=1.0, rows=100, bins=4)
        begin, scores = Marginals(_TABLE, plan, (self.cap,)), np.zeros(count)
        for place in tqdm(range(count), desc=self.name, leave=False, mininterval=2):
            marginals, spent = begin, np.zeros(1)
            for index in range(ROUNDS):
                question = marginals.question(index)
                answer, charge = _counted(question, self.cap, spent)
                sums = answer if takes_part else 0 * answer
                released = question.release(WHOLE, None, [{"sums": sums}], SystemNoise()).arrays["sums"]
                scores[place] += _log_ratio(released[None], answer, 0 * answer, question.sigma * PERSON)[0]
                marginals, spent = marginals.after(released), spent + charge
        return scores


CANARIES: tuple[Canary, ...] = (
    Votes(),
    Votes(name="neighbours, 25 records at a query", records=25),
    TwoStudies(),
    ResidualVotes(),
    FullSteps(),
    FullSteps(name="sgd, individual, 25 records", records=25),
    SampledSteps(),
    SampledSteps(name="sgd, sample, 100 steps", dearer=500, steps=100, rate=0.1),
    TeacherLabels(),
    TeacherChecks(),
    LaplaceLabels(),
    Counts(),
    Counts(name="counts, 25 records", records=25),
    Sites(),
    Rows(),
)


def _counted(question: CountsQuestion, cap: float, spent: Floats, records: int = 1) -> tuple[NDArray[np.int64], Floats]:
    """Return a person's contribution to all tables, as far as their account allows, and their charge."""
    people = People(np.zeros(1, np.int64), np.full(1, cap), np.full(1, cap), spent)
    return question.contributions(
        people, Records(np.full((records, 2), 0.9), np.zeros(records, np.int64), np.zeros(records, np.int64))
    )


def _votes(
    said: NDArray[np.int64],
    sigma: float,
    caps: Sequence[float],
    spent: Floats,
    predicted: NDArray[np.int64] | None = None,
    *,
    records: int = 1,
) -> tuple[Floats, Floats]:
    """Return the sums of two people's votes, one for class 1 and one for ``said``, and what they have spent afterwards.

    Each of them has a record at every query; the second person has ``records`` such records.
    """
    points = np.arange(len(said))[:, None]
    accounts = IndividualAccounts(caps, spent)
    sums, _ = neighbour_votes(
        points,
        points,
        np.vstack([points, np.repeat(points, records, axis=0)]),
        np.concatenate([np.ones_like(said), np.repeat(said, records)]),
        np.repeat([0, 1], [len(said), records * len(said)]),
        radius_share=1 / len(said),
        n_classes=2,
        accounts=accounts,
        sigma=sigma,
        predicted=predicted,
    )
    return sums, accounts.spent


def _log_ratio(released: Floats, moved: Floats, others: Floats, sigma: float) -> Floats:
    """Return `(n,)` logarithms of the density ratio of N(others + moved, σ²) to N(others, σ²)."""
    axes = tuple(range(1, released.ndim))
    return ((released - others) * moved - moved**2 / 2).sum(axis=axes) / sigma**2


def _equal_records(count: int) -> OwnedRecords:
    return owned_records(np.full((count, 1), 127, np.int8), [1] * count, [0] * count, [0])
