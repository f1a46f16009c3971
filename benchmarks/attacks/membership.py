"""Membership inference against publications: LiRA with models of shadow studies on a random half of the people.

Carlini, Chien, Nasr, Song, Terzis, Tramèr, "Membership inference attacks from first principles" (2022), the online
attack with one variance for all. The attacker has the public points, the promises and everyone's records. From a
published model whose training they have not seen, they infer whether each person took part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, ttest_1samp, ttest_ind
from tqdm import tqdm

Floats = NDArray[np.float64]
Taking = NDArray[np.bool_]
Publish = Callable[[Taking, int], Floats]
"""Function of the participants and a seed. It trains a model and returns its probabilities `(people, classes)`."""
FALSE_POSITIVES = 1e-3
RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""False positive rates at which the ROC curve is stored."""


@dataclass(frozen=True)
class Attack:
    """Result for the people with one promise.

    area: area under the ROC curve.  uncertain: its standard error.  found: true positives at `FALSE_POSITIVES`.
    most_area, most_found: what a μ-GDP promise allows.  curve: true positives by rate of false positives, of `RATES`.
    """

    area: float
    uncertain: float
    found: float
    most_area: float
    most_found: float
    curve: dict[float, float]


def shadows(publish: Publish, truth: NDArray[np.integer], count: int, *, seed: int) -> tuple[Taking, Floats]:
    """Return participants `(count, people)` of shadow studies, and logits of the model's confidence in true classes."""
    random = np.random.default_rng(seed)
    people = len(truth)
    # by tossing a coin: if people were in exactly half of the studies, the others would reveal the last one
    taking = random.random((count, people)) < 0.5
    logits = np.empty((count, people))
    for study in tqdm(range(count), desc="shadow studies", leave=False):
        probabilities = publish(taking[study], seed + study)[np.arange(people), truth]
        sure = np.clip(probabilities, 1e-9, 1 - 1e-9)
        logits[study] = np.log(sure) - np.log1p(-sure)
    return taking, logits


def likelihood_ratios(taking: Taking, logits: Floats) -> Floats:
    """Return `(studies, people)` log-likelihood ratios of "took part", each computed without the attacked study.

    Means and variance exclude the attacked study, which would reveal the answer.
    """
    sides = [_of_the_others(side, logits) for side in (taking, ~taking)]
    # if every model is as certain about people as can be represented, nothing can be inferred about them
    variance = np.maximum(sum(squares for _, _, squares in sides) / (len(logits) - 3), 1e-9)
    within, without = (
        -((logits - mean) ** 2) / (2 * variance * (1 + 1 / number)) - np.log1p(1 / number) / 2
        for number, mean, _ in sides
    )
    return within - without


def _of_the_others(side: Taking, logits: Floats) -> tuple[Floats, Floats, Floats]:
    """Return statistics of each person's logits in the other studies on this side, each `(studies, people)`.

    These are the number, the mean and the sum of squared deviations.
    """
    number = np.maximum(side.sum(axis=0) - side, 1)
    total, squares = (np.where(side, logits**power, 0.0) for power in (1, 2))
    mean = (total.sum(axis=0) - total) / number
    return number, mean, squares.sum(axis=0) - squares - number * mean**2


def attack(taking: Taking, ratios: Floats, mu: float) -> Attack:
    """Attack all people whose promise is μ.

    The standard error is for the mean area over the studies.
    """
    from sklearn.metrics import roc_auc_score, roc_curve  # slow to import

    areas = [
        roc_auc_score(row, scores) for row, scores in zip(taking, ratios, strict=True) if row.any() and not row.all()
    ]
    false, true, _ = roc_curve(taking.ravel(), ratios.ravel())
    return Attack(
        float(roc_auc_score(taking.ravel(), ratios.ravel())),
        float(np.std(areas, ddof=1) / np.sqrt(len(areas))),
        float(np.interp(FALSE_POSITIVES, false, true)),
        float(norm.cdf(mu / np.sqrt(2))),
        float(norm.cdf(norm.ppf(FALSE_POSITIVES) + mu)),
        {rate: round(float(np.interp(rate, false, true)), 4) for rate in RATES},
    )


@dataclass(frozen=True)
class Between:
    """Comparison of how easily an attack finds people who allow more and other people in the same studies.

    areas: areas under the ROC curve of people who allow less, of people who allow more, and of both.  targets: for each
    of the first studies, t and p of Student's test between the ratios of participants, as printed by Individualized
    DP-SGD (Boenisch et al. 2023, Table 10).  gap, uncertain, t, p: the mean over all studies of how much larger the
    area is for people who allow more, its standard error, and Student's test that it is 0.
    """

    areas: tuple[float, float, float]
    targets: tuple[tuple[float, float], ...]
    gap: float
    uncertain: float
    t: float
    p: float


def between(taking: Taking, ratios: Floats, allow_more: NDArray[np.bool_], *, targets: int = 5) -> Between:
    """Compare people who allow more (mask `(people,)`) with all others, study by study.

    Studies are left out if all people of one kind took part, or none.
    """
    from sklearn.metrics import roc_auc_score  # slow to import

    groups = (~allow_more, allow_more, np.ones_like(allow_more))
    gaps, tests = [], []
    for took_part, scores in zip(taking, ratios, strict=True):
        few = min((took_part & of).sum() for of in groups), min((~took_part & of).sum() for of in groups)
        if min(few) == 0:
            continue
        less, more = (roc_auc_score(took_part[of], scores[of]) for of in groups[:2])
        gaps.append(more - less)
        if len(tests) < targets:
            found = ttest_ind(scores[took_part & allow_more], scores[took_part & ~allow_more])
            tests.append((float(found.statistic), float(found.pvalue)))
    overall = ttest_1samp(gaps, 0.0)
    areas = tuple(float(roc_auc_score(taking[:, of].ravel(), ratios[:, of].ravel())) for of in groups)
    return Between(
        (areas[0], areas[1], areas[2]),
        tuple(tests),
        float(np.mean(gaps)),
        float(np.std(gaps, ddof=1) / np.sqrt(len(gaps))),
        float(overall.statistic),
        float(overall.pvalue),
    )
