"""Students on small data."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from learning.calibration import CalibratedModel
from learning.learners import learner_create
from learning.mechanisms.neighbours.votes import radii
from learning.students import (
    STUDENTS,
    choose,
    counted,
    labelled,
    neighbourhoods,
    predicted,
    refine,
    student_create,
    student_learn,
)
from learning.students.releases import fit_to_releases
from learning.students.shares import Shares
from tests.learning.lazily import torch

FAST = {"consistency": {"steps": 60, "filters": 16}, "boosting": {"iterations": 5, "leaf": 5}}
FAST |= {"random_forest": {"trees": 5}}


@pytest.fixture(params=("consistency", "shares", "boosting"))
def student(request):
    """Return a student of this kind, which need not learn well: a network takes a few steps."""
    parameters = FAST | {"consistency": {"steps": 6, "filters": 6}}
    return student_create(request.param, parameters.get(request.param))


def _noisy(labels, classes, *, voters=60, sigma=12.0, seed=1):
    """Return unanimous counts of voters, with noise."""
    rng = np.random.default_rng(seed)
    return voters * np.eye(classes)[labels] + rng.normal(0, sigma, (len(labels), classes))


def _right(model, rows):
    return (model.predict(rows.x) == rows.y).mean()


@pytest.mark.parametrize("name", STUDENTS)
def test_every_student_learns_from_noisy_counts(name, digits):
    points, truth = digits.private.x[:500], digits.private.y[:500]
    releases = counted(np.arange(500), _noisy(truth, 10), 12.0)
    student = student_create(name, FAST.get(name) if name != "boosting" else {"iterations": 20, "leaf": 10})
    assert _right(student_learn(student, points, releases, seed=1), digits.test) > 0.8


@pytest.mark.exhaustive
def test_twenty_noisy_labels_teach_more_with_all_points_than_alone(digits):
    """The same network learns from only the twenty images, and then from all public images."""
    points, truth, rng = digits.private.x, digits.private.y, np.random.default_rng(0)
    rows = np.sort([rng.choice(np.flatnonzero(truth == digit), 2, replace=False) for digit in range(10)], axis=None)
    counts, seen = _noisy(truth[rows], 10, sigma=15.0, seed=2), []
    student = student_create("consistency", {"steps": 200, "filters": 8})
    alone = student_learn(student, points[rows], counted(np.arange(20), counts, 15.0), seed=1)
    progress = lambda *step: seen.append(step)  # noqa: E731
    everything = student_learn(student, points, counted(rows, counts, 15.0), seed=1, progress=progress)
    assert _right(everything, digits.test) > _right(alone, digits.test) + 0.02
    assert seen == [(100, 200), (200, 200)]


def test_the_prediction_of_a_network_corrects_labels(digits):
    """One label in eight is wrong, and as certain as the others. Learned unchanged, half as many would be corrected."""
    points, truth, rng = digits.private.x[:300], digits.private.y[:300], np.random.default_rng(2)
    labels = np.where(rng.random(300) < 0.125, (truth + rng.integers(1, 10, 300)) % 10, truth)
    releases = labelled(np.arange(300), labels, classes=10)
    student = student_create("consistency", {"steps": 120, "filters": 16, "batch": 64})
    model = student_learn(student, points, releases, seed=1)
    assert (model.predict(points) == truth).mean() > (labels == truth).mean() + 0.08


def test_neighbourhoods_across_classes_are_deconvolved():
    """The rare class never leads in wide neighbourhoods on a line, but knowing their members reveals it."""
    rng, everyone = np.random.default_rng(4), np.arange(500)
    public = rng.integers(-127, 128, (500, 3))
    rare = public[:, 0] > 80
    reach = neighbourhoods(everyone, public, radii(public, public, 0.5))
    shares = reach @ np.eye(2)[rare.astype(int)]
    counts = 1000 * shares + rng.normal(0, 30, shares.shape)
    releases = [counted(everyone, counts, 30.0, reach=reach), counted(everyone, counts, 30.0)]
    knowing, unknowing = (
        student_learn(student_create("shares"), public / 127, each, seed=1).predict(public / 127) for each in releases
    )
    assert (knowing == rare).mean() > 0.95 and (unknowing == rare).mean() < 0.9
    values = refine(public, releases[0].among(np.arange(0, 500, 2)), seed=1)
    assert (values.labels == rare).mean() > 0.9


def test_shares_predict_the_probability_of_a_rare_class():
    """Noisy counts of a class that never leads, whose share follows a logistic curve."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2000, 3))
    likely = 1 / (1 + np.exp(3 - x[:, 0]))
    counts = 200 * np.column_stack([1 - likely, likely]) + rng.normal(0, 40, (2000, 2))
    model = student_learn(student_create("shares"), x, counted(np.arange(2000), counts, 40.0), seed=1)
    assert np.abs(model.predict_proba(x)[:, 1] - likely).mean() < 0.015
    assert model.predict_proba(x)[:, 1].mean() == pytest.approx(likely.mean(), abs=0.01)


def test_labels_below_the_noise_are_not_learned(digits):
    """Half of the counts are only noise. Leaving them out decides what is learned, regardless of their labels."""
    points, counts = digits.private.x[:400], _noisy(digits.private.y[:400], 10, voters=100, sigma=5.0)
    least = counts[200:].min(axis=1, keepdims=True)
    counts[200:] = least + np.random.default_rng(1).normal(0, 1, (200, 10))  # leads below 5
    releases = counted(np.arange(400), counts, 5.0)
    assert (releases.weights[200:] == 0).all() and (releases.weights[:200] > 0).all()
    for name in ("boosting", "logistic_regression"):
        both, without = (
            student_learn(student_create(name, FAST.get(name)), points, each, seed=1).predict_proba(digits.test.x)
            for each in (releases, releases.among(np.arange(200)))
        )
        assert (both == without).all()


@pytest.mark.parametrize("labels", [np.full(40, 3), np.arange(40) % 10], ids=["one class", "all classes"])
def test_the_seed_decides_everything_and_a_stored_model_predicts_as_before(student, labels, digits):
    points, releases = digits.private.x[:60], labelled(np.arange(40), labels, classes=10)
    models = [student.learn(points, releases, seed=seed) for seed in (5, 5, 6)]
    first, again, other = (model.predict_proba(digits.test.x) for model in models)
    assert (first == again).all()
    assert student.name != "consistency" or not (first == other).all()
    restored = type(student).model_from_bytes(models[0].to_bytes())
    assert (restored.classes, restored.shape) == (10, (8, 8))
    assert (restored.predict_proba(digits.test.x) == first).all()
    with pytest.raises(ValueError, match="cannot be read; train it again"):
        type(student).model_from_bytes(b"junk" * 10)


def test_a_stored_tree_that_leads_out_of_itself_is_refused(digits):
    student = student_create("boosting", FAST["boosting"])
    model = student.learn(digits.private.x[:60], labelled(np.arange(60), digits.private.y[:60], classes=10), seed=1)
    for field, value in (("left", 10**6), ("right", 0), ("feature_idx", 64)):
        nodes = model.estimator._predictors[0][0].nodes
        before, split = nodes.copy(), int(np.flatnonzero(nodes["is_leaf"] == 0)[0])
        nodes[field][split] = value
        with pytest.raises(ValueError, match="cannot be read"):
            type(student).model_from_bytes(model.to_bytes())
        nodes[:] = before
    type(student).model_from_bytes(model.to_bytes())


@pytest.mark.parametrize("shape", [(24, 24, 3), (5, 9), (4, 4, 2)])
def test_images_of_many_shapes_are_learned_from(shape):
    rng = np.random.default_rng(1)
    x = rng.random((60, *shape), np.float32) * 0.1
    x[30:] += 0.5
    releases = labelled(np.arange(0, 60, 2), np.repeat([0, 1], 15), classes=2)
    student = student_create("consistency", {"steps": 25, "mirror": True, "filters": 8})
    model = student_learn(student, x, releases, seed=1)
    assert (model.predict(x) == np.repeat([0, 1], 30)).mean() > 0.9


def test_unfit_input_is_refused(student, digits):
    points, releases = digits.private.x[:20], labelled([30], [1], classes=10)
    none = releases.among(np.zeros(1, np.bool_))
    for unfit, problem in ((releases, "The releases refer to points 0 to 30"), (none, "nothing was released")):
        with pytest.raises(ValueError, match=problem):
            student.learn(points, unfit, seed=1)
    with pytest.raises(ValueError, match="not records"):
        student_create("consistency").learn(np.zeros((4, 5)), labelled([0], [1], classes=2), seed=1)


def test_the_student_with_the_best_score_is_chosen(digits):
    """The score uses only counts."""
    releases = counted(np.arange(400), _noisy(digits.private.y[:400], 10), 12.0)
    candidates = {
        name: lambda x, message, trees=trees: student_learn(learner_create("random_forest", trees), x, message, seed=1)
        for name, trees in (("stump", {"trees": 1, "depth": 1}), ("forest", {"trees": 20}))
    }
    chosen, scores = choose(candidates, digits.private.x[:400], releases, seed=1)
    assert chosen == "forest" and scores["forest"] > scores["stump"] + 0.2
    teacher = learner_create("logistic_regression").fit(digits.private.x, digits.private.y, classes=10, seed=1)
    shares = predicted(np.arange(300), teacher.predict_proba(digits.public.x))  # a model's probabilities also teach
    assert _right(student_learn(student_create("shares"), digits.public.x, shares, seed=1), digits.test) > 0.9


SIDE = 32


@pytest.mark.parametrize("limit", [0.03, 0.1])
def test_parts_of_images_are_bent_by_different_shifts_within_the_limit(limit):
    """In these images, a pixel's value is its column as a share of the width."""
    from learning.students.consistency_training import Moves

    ramps = ((torch.arange(SIDE) + 0.5) / SIDE).expand(200, 1, SIDE, SIDE).contiguous()
    none = Moves(rotation=0.0, shift=0.0, stretch=0.0, bend=0.0, mirror=False, erase=0.0)
    assert torch.equal(none(ramps, torch.Generator().manual_seed(1)), ramps)
    bent = replace(none, bend=limit)(ramps, torch.Generator().manual_seed(1))
    inner = slice(SIDE // 4, -SIDE // 4)  # no values come from outside
    shifts = (bent - ramps)[:, 0, inner, inner]
    furthest = shifts.abs().amax((1, 2))
    # between drawn points, a cubic may overshoot a little
    assert furthest.max() < 1.5 * limit and furthest.max() > 0.7 * limit
    assert (shifts.amax((1, 2)) - shifts.amin((1, 2))).median() > 0.3 * limit
    assert shifts.diff(dim=2).abs().max() < limit, "neighbouring pixels must stay together"
    weak = replace(none, bend=limit, erase=0.5).weaker(0.5)
    assert (weak.bend, weak.erase) == (limit / 2, 0.0)


APART, SPREAD = 30, 40


def _overlapping(seed, count, share):
    """Return two overlapping classes, the second with this share."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < share).astype(np.int64)
    x = rng.normal(0, SPREAD, (count, 2))
    x[:, 0] += APART * (2 * labels - 1)
    return np.clip(np.rint(x), -127, 127).astype(np.int8), labels


@pytest.mark.parametrize(("share", "sigma"), [(0.15, 40.0), (0.5, 5.0)], ids=["shifted", "alike"])
def test_a_student_of_votes_has_the_shares_of_the_people(share, sigma):
    """Bayes' rule with the people's shares is optimal, so no correction is needed."""
    (records, classes_of), (public, _) = _overlapping(1, 6000, share), _overlapping(2, 400, 0.5)
    others, truth = _overlapping(3, 4000, share)
    reach = radii(public, public, 0.05)
    distances = ((public[:, None].astype(np.int64) - records[None].astype(np.int64)) ** 2).sum(axis=2)
    votes = (distances <= reach[:, None]) @ np.eye(2)[classes_of]
    everyone = np.arange(400)
    noisy = votes + np.random.default_rng(4).normal(0, sigma, votes.shape)
    releases = counted(everyone, noisy, sigma, reach=neighbourhoods(everyone, public, reach))
    points = (public / SPREAD).astype(np.float32)
    learned, held_out = releases.split(0.2, 0)
    trial = Shares().learn(points, learned, seed=0).predict_proba(points)
    model = CalibratedModel(Shares().learn(points, releases, seed=0), fit_to_releases(trial, held_out))
    shares = model.predict_proba((others / SPREAD).astype(np.float32))
    score = 2 * APART * others[:, 0].astype(np.float64) / SPREAD**2
    best, of_public, found = (
        -np.log(np.where(truth == 1, second, 1 - second)).mean()
        for second in (expit(score + np.log(share / (1 - share))), expit(score), shares[:, 1])
    )
    assert found < best + 0.01
    assert shares[:, 1].mean() == pytest.approx(share, abs=0.03)
    if share != 0.5:
        assert of_public > best + 0.1, "with the public points' shares, it would be far off"
