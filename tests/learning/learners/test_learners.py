"""Tests of the learners."""

import numpy as np
import pytest

from learning.learners import LEARNERS, learner_create, learner_parameters, parameter_fields

pytestmark = pytest.mark.slow

#: Parameters with which a learner is fast enough for tests; the defaults for learners that are not listed.
FAST = {
    "random_forest": {"trees": 20},
    "nearest_neighbour": {"copies": 2},
    "cnn": {"epochs": 3, "copies": 1},
}


@pytest.fixture(params=LEARNERS)
def learner(request):
    return learner_create(request.param, FAST.get(request.param))


def test_it_learns(learner, digits):
    model = learner.fit(digits.private.x, digits.private.y, classes=10, seed=1)
    assert (model.predict(digits.test.x) == digits.test.y).mean() > 0.9


def test_predictions_have_the_promised_form(learner, digits):
    model = learner.fit(digits.private.x[:100], digits.private.y[:100], classes=10, seed=1)
    probabilities, predictions = model.predict_proba(digits.test.x), model.predict(digits.test.x)
    assert probabilities.shape == (197, 10) and probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    assert predictions.dtype == np.int64 and (predictions == probabilities.argmax(axis=1)).all()
    assert model.predict(digits.test.x[:0]).shape == (0,)
    assert (model.predict(digits.test.x[:1]) == predictions[:1]).all()


def test_classes_that_the_part_lacks_keep_their_place(learner, digits):
    some = np.isin(digits.private.y, (2, 7))
    model = learner.fit(digits.private.x[some], digits.private.y[some], classes=10, seed=1)
    assert (model.predict_proba(digits.test.x).sum(axis=0) > 0).tolist() == [k in (2, 7) for k in range(10)]
    known = np.isin(digits.test.y, (2, 7))
    assert (model.predict(digits.test.x) == digits.test.y)[known].mean() > 0.9


def test_a_part_of_one_class_says_that_class(learner, digits):
    sevens = digits.private.y == 7
    model = learner.fit(digits.private.x[sevens], digits.private.y[sevens], classes=10, seed=1)
    assert (model.predict_proba(digits.test.x) == np.eye(10)[7]).all()


def test_one_record_is_enough(learner, digits):
    model = learner.fit(digits.private.x[:1], digits.private.y[:1], classes=10, seed=1)
    assert model.predict(digits.private.x[:1]).shape == (1,)


def test_the_seed_decides_everything(learner, digits):
    x, y = digits.private.x[:60], digits.private.y[:60]
    np.random.default_rng()  # the global generators play no part
    first, again = (learner.fit(x, y, classes=10, seed=5).predict_proba(digits.test.x) for _ in range(2))
    assert (first == again).all()


def test_fitting_leaves_the_data_as_it_was(learner, digits):
    x, y = digits.private.x[:30].copy(), digits.private.y[:30].copy()
    learner.fit(x, y, classes=10, seed=1)
    assert (x == digits.private.x[:30]).all() and (y == digits.private.y[:30]).all()


def test_wrong_training_data_is_refused(learner, digits):
    x, y = digits.private.x[:5], np.array([0, 1, 2, 3, 4])
    infinite = x.copy()
    infinite[0, 0, 0] = np.nan
    for records, labels, options, problem in [
        (x[:0], y[:0], {}, "nothing to learn from"),
        (x, y[:4], {}, "one class number per record"),
        (x, y.astype(float), {}, "whole class numbers"),
        (x, y + 6, {}, "class numbers lie between 0 and 9"),
        (x, y - 1, {}, "class numbers lie between 0 and 9"),
        (infinite, y, {}, "not finite"),
        (x[:, 0, 0], y, {}, "give records of shape"),
        (x, y, {"seed": -1}, "seed must lie between"),
        (x, y, {"classes": 0}, "classes must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=problem):
            learner.fit(records, labels, **{"classes": 10, "seed": 1, **options})


def test_predicting_other_records_is_refused(learner, digits):
    model = learner.fit(digits.private.x[:20], digits.private.y[:20], classes=10, seed=1)
    with pytest.raises(ValueError, match=r"shape \(28, 28\); this model was trained on \(8, 8\)"):
        model.predict(np.zeros((1, 28, 28)))


def test_learners_of_several_steps_report_progress(digits):
    seen = []
    learner_create("cnn", {"epochs": 3}).fit(
        digits.private.x[:20], digits.private.y[:20], classes=10, seed=1, progress=lambda *step: seen.append(step)
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_only_images_can_be_augmented_or_convolved():
    x, y = np.zeros((4, 5)), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="takes images"):
        learner_create("cnn").fit(x, y, classes=2, seed=1)
    with pytest.raises(ValueError, match="Only images can be rotated"):
        learner_create("nearest_neighbour", {"copies": 1}).fit(x, y, classes=2, seed=1)
    with pytest.raises(ValueError, match="at least 4×4"):
        learner_create("cnn").fit(np.zeros((4, 3, 9)), y, classes=2, seed=1)


def test_the_network_takes_images_in_colour():
    x = np.zeros((40, 6, 6, 3), np.float32)
    x[20:, :, :, 1] = 1
    model = learner_create("cnn", {"epochs": 5, "batch": 8}).fit(x, np.repeat([0, 1], 20), classes=2, seed=1)
    assert (model.predict(x) == np.repeat([0, 1], 20)).all()


@pytest.mark.parametrize("records", [2, 3, 31, 32, 33, 63, 65])
def test_no_batch_is_too_small_for_batch_norm(records, digits):
    learner = learner_create("cnn", {"epochs": 1})
    model = learner.fit(digits.private.x[:records], digits.private.y[:records], classes=10, seed=1)
    assert np.isfinite(model.predict_proba(digits.test.x)).all()


def test_a_hundred_teachers_of_thirteen_digits_vote_well(digits):
    """The size of the demonstration: teachers that err nearly every second time, a plurality that rarely does."""
    learner = learner_create("nearest_neighbour", {"copies": 20})
    votes = np.zeros((len(digits.public), 10))
    accuracies = []
    for teacher in range(100):
        part = slice(13 * teacher, 13 * (teacher + 1))
        model = learner.fit(digits.private.x[part], digits.private.y[part], classes=10, seed=teacher)
        predictions = model.predict(digits.public.x)
        votes[np.arange(len(votes)), predictions] += 1
        accuracies.append((predictions == digits.public.y).mean())
    assert 0.52 < np.mean(accuracies) < 0.62
    assert (votes.argmax(axis=1) == digits.public.y).mean() > 0.91


@pytest.mark.parametrize(
    ("name", "parameters", "problem"),
    [
        ("oracle", {}, "no learner “oracle”; choose one of: random_forest"),
        ("random_forest", {"tree": 1}, "no parameter tree; it has: trees"),
        ("random_forest", {"trees": 0}, "trees is 0; it must be at least 1"),
        ("random_forest", {"trees": 1.5}, "trees is 1.5; it must be a whole number"),
        ("random_forest", {"trees": True}, "trees is True; it must be a whole number"),
        ("random_forest", {"balanced": 1}, "balanced is 1; it must be true or false"),
        ("logistic_regression", {"inverse_penalty": "1"}, "inverse_penalty is '1'; it must be a number"),
        ("logistic_regression", {"inverse_penalty": float("nan")}, "inverse_penalty is nan"),
        ("cnn", {"learning_rate": 2}, "learning_rate is 2; it must be at least 1e-07 and at most 1"),
        ("nearest_neighbour", {"shift": -0.1}, "shift is -0.1; it must be at least 0 and at most 0.5"),
    ],
)
def test_unknown_learners_and_parameters_are_refused(name, parameters, problem):
    with pytest.raises(ValueError, match=problem):
        learner_create(name, parameters)


def test_forms_can_be_built_from_the_fields(learner):
    fields = parameter_fields(type(learner))
    defaults = learner_create(learner.name, {field.name: field.default for field in fields})
    assert defaults == learner_create(learner.name) and learner.label
    assert all(field.help and field.type in (int, float, bool) for field in fields)
    assert learner_create(learner.name, learner_parameters(learner)) == learner
