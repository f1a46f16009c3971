"""The optimiser's public state: steps and averages by hand, checkpoints, a model that learns."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import softmax
from scipy.stats import norm

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.mechanisms.protocol import PlannedLevel
from learning.mechanisms.steps.descent import Descent, StepsQuestion, curvatures, shrunk_weights, weights_spread
from learning.mechanisms.steps.linear import CLIP_STEPS, INTERCEPT, owned_records, release_sums, step_contributions
from learning.mechanisms.steps.rehearsals import errors_rehearsed
from learning.mechanisms.steps.steps_plan import Steps, StepsPlan, few_people_notes, plan_steps, strength_of
from learning.outcomes import CROSS_ENTROPY, Numbers
from learning.outcomes.labels import curvature_bounds
from learning.representations import Interactions, LinearModel, Standardised

PUBLIC = np.array([[30, 40], [-40, 30], [50, 0], [0, -50]])


def begin(steps: int = 4, **chosen) -> Descent:
    plan = plan_steps(
        [PlannedLevel("ALL", 4.0, 50.0)], dimensions=2, n_classes=2, share=1.0, steps=Steps(steps=steps, **chosen)
    )
    return Descent.begin(plan, PUBLIC, 2)


def some_records(count: int, classes: int, seed: int = 0):
    """Return coordinates and classes drawn from a linear model."""
    rng = np.random.default_rng(seed)
    points = np.clip(np.rint(rng.normal(0, 40, (count, 4))), -127, 127).astype(np.int8)
    truth = rng.normal(0, 0.03, (4, classes))
    odds = np.exp(points @ truth + np.arange(classes) * 0.5)
    return points, (rng.random((count, 1)) > np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)).sum(axis=1)


def test_a_step_is_newtons_with_the_curvature_of_the_public_points() -> None:
    state = begin(clip_norm=0.5, step_size=0.5)
    assert state.length == 50.0 and state.clip_norm == 25.0
    gradient = np.array([[3.0, -1.0], [1.0, 1.0], [2.0, 0.0]])
    after = state.after(np.rint(gradient * 50 * CLIP_STEPS / 0.5))  # people are 50
    features = np.hstack([PUBLIC, np.full((4, 1), INTERCEPT)]) / 50
    curved = features.T @ features / 4 * 0.5  # for two equally likely classes: 2 p (1 - p)
    ridge = state.plan.largest_ridge
    assert ridge == pytest.approx(20 * state.plan.sigma * 0.5 / 50)
    curved += np.diag([ridge, ridge, ridge * min(1, ridge / curved[2, 2])])
    centred = gradient - gradient.mean(axis=1, keepdims=True)
    assert after.parameters == pytest.approx(-0.5 * np.linalg.solve(curved, centred), abs=1e-6)
    assert after.weights == pytest.approx(after.parameters / 50)


@pytest.mark.parametrize(
    ("true", "people", "noises", "older"),
    [(3.0, 1000.0, 10.0, False), (0.0, 1000.0, 20.0, False), (0.0, 1000.0, 320.0, True), (0.0, 100.0, 20.0, True)],
)
def test_the_first_steps_say_how_large_the_ridge_is(true: float, people: float, noises: float, older: bool) -> None:
    """Sums that people with these weights release if the loss is quadratic, in ten dimensions of the same length.

    Few people cannot distinguish small weights from none, so their descent is not restarted.
    """
    rng, public = np.random.default_rng(0), 50 * np.vstack([np.eye(10), -np.eye(10)]).astype(np.int64)
    plan = plan_steps([PlannedLevel("ALL", 4.0, people)], dimensions=10, n_classes=2, share=1.0)
    plan = replace(plan, per_direction=not older)
    state, best = Descent.begin(plan, public, 2), np.zeros((11, 2))
    best[:10, 0] = true * rng.choice([-1, 1], 10)
    best[:10, 1] = -best[:10, 0]
    features = np.hstack([public, np.full((20, 1), INTERCEPT)]) / state.length
    for step in range(16):
        assert state.ridge == pytest.approx(20 * plan.noise) or step > 14
        matrix = curvatures(features, state.parameters)[0]
        gradient = matrix @ (state.parameters - best) + rng.normal(0, plan.noise, (11, 2))
        released = np.rint(gradient * CLIP_STEPS * plan.people / plan.clip_norm)
        state = Descent.begin(plan, public, 2).at(state.to_arrays()).after(released)
    assert state.ridge == pytest.approx(noises * plan.noise, rel=0.01)
    assert state.penalty.shape == ((0, 0) if true or older else (10, 10))


def test_releases_correct_the_curvature_of_drawn_points() -> None:
    """People vary thirty times more than the drawn points in one direction, so that uncorrected steps grow."""
    points = np.vstack([50 * np.eye(6), -50 * np.eye(6)]).astype(np.int64)
    levels, distances = [PlannedLevel("ALL", 4.0, 20_000.0)], {}
    best = np.outer([2.0, -1.0, 1.0, 0.5, -0.5, 1.0, 0.0], [1, -1])
    for drawn in (True, False):
        plan = plan_steps(levels, dimensions=6, n_classes=2, share=1.0, drawn=drawn)
        assert plan == StepsPlan.from_json(plan.to_json()) and plan.to_json().get("corrects", False) is drawn
        begun, rng = Descent.begin(plan, points, 2), np.random.default_rng(0)
        state, scales = begun, np.diag([30.0**0.5, *[1.0] * 6])
        for _ in range(plan.steps):
            matrix = scales @ curvatures(state.features, state.parameters)[0] @ scales
            noise = rng.normal(0, plan.noise, best.shape)
            sums = np.rint((matrix @ (state.parameters - best) + noise) * CLIP_STEPS * plan.people / plan.clip_norm)
            state = state.after(sums)
            assert begun.at(state.to_arrays()).same(state)
        assert bool(len(state.raised)) is drawn
        distances[drawn] = np.abs(state.learned * state.length - best).max()
    assert distances[True] < 0.01 < 0.5 < distances[False]


def test_under_older_plans_the_descent_restarts_at_a_regression_of_the_releases() -> None:
    public = 50 * np.vstack([np.eye(10), -np.eye(10)]).astype(np.int64)
    plan = plan_steps([PlannedLevel("ALL", 4.0, 1000.0)], dimensions=10, n_classes=2, share=1.0)
    document = plan.to_json()
    assert document.pop("per_direction") is True
    plan = StepsPlan.from_json(document)
    assert plan.to_json() == document  # and so an older question keeps its digest
    state, gradient = Descent.begin(plan, public, 2), np.zeros((11, 2))
    gradient[:10] = 0.003 * np.array([1, -1])
    features, seen = np.hstack([public, np.full((20, 1), INTERCEPT)]) / 50, np.zeros((11, 2))
    for _ in range(15):
        before, matrix = state, curvatures(features, state.parameters)[0]
        seen += (matrix @ state.parameters - gradient) / 15
        state = state.after(np.rint(gradient * CLIP_STEPS * plan.people / plan.clip_norm))
    assert before.ridge == plan.largest_ridge < state.ridge < 320 * plan.noise
    ridge = state.ridge / np.sqrt(15)
    curved = matrix + ridge * np.diag([*[1.0] * 10, min(1.0, ridge / matrix[-1, -1])])
    assert state.parameters == pytest.approx(np.linalg.solve(curved, seen), rel=1e-3, abs=1e-6)


def test_the_spread_of_weights_is_estimated_correctly() -> None:
    rng = np.random.default_rng(1)
    matrices = np.stack([(root := rng.normal(size=(400, 400)) / 20) @ root.T for _ in range(2)])
    for spread in (0.1, 1.0):
        weights = rng.normal(0, spread, (400, 2))
        observed = np.einsum("cij,jc->ic", matrices, weights) + rng.normal(0, 0.05, (400, 2))
        assert weights_spread(observed, matrices, 0.05**2) == pytest.approx(spread, rel=0.12)


def test_labelled_points_prefer_interactions_only_for_a_product_of_numbers() -> None:
    points = np.random.default_rng(5).random((900, 4))
    middle, choices = points[:, :2] - 0.5, Steps().placed(points, 9000.0).alternatives(points)
    levels, gains = [PlannedLevel("ALL", 0.25, 20_000.0)], np.zeros(2)
    for place, truth in enumerate((middle.prod(axis=1) > 0, middle.sum(axis=1) > 0)):
        for spread, sign in ((0.0, 1), (0.5, -1)):
            fitted = choices[spread].space(points).fit(points)
            plan = plan_steps(levels, dimensions=fitted.dimensions, n_classes=2, share=1.0)
            gains[place] += sign * errors_rehearsed(plan, fitted.transform(points), truth, 2).mean()
    assert gains[0] > 0.2 and gains[1] < 0.02


def expected_by_integration(seen: float, value: float, variance: float, spreads, shares) -> tuple[float, float]:
    """Posterior mean and mean square of one weight, by quadrature over its prior and likelihood."""

    def density(weight: float) -> float:
        prior = sum(share * norm.pdf(weight, 0, spread) for share, spread in zip(shares, spreads, strict=True))
        return prior * norm.pdf(seen, value * weight, np.sqrt(variance))

    peaks = [0.0, seen / value]
    moments = [quad(lambda w, k=k: w**k * density(w), -60, 60, points=peaks, limit=400)[0] for k in range(3)]
    return moments[1] / moments[0], moments[2] / moments[0]


def test_weights_are_shrunk_to_their_posterior_means_under_the_most_likely_mixture() -> None:
    """The oracle maximises the likelihood by another method, and integrates numerically."""
    from scipy.optimize import minimize_scalar

    rng, spreads = np.random.default_rng(3), np.array([0.1, 2.0])
    values, variances = rng.uniform(0.5, 2.0, 60), rng.uniform(0.02, 0.2, 60)
    weights = rng.normal(0, np.where(np.arange(60) < 12, 2.0, 0.1))
    seen = values * weights + rng.normal(0, np.sqrt(variances))
    means, squares = shrunk_weights(np.stack([seen, -seen], axis=1), values, variances, spreads)
    assert means[:, 1] == pytest.approx(-means[:, 0]) and squares[:, 1] == pytest.approx(squares[:, 0])

    likely = np.stack([norm.pdf(seen, 0, np.sqrt((values * spread) ** 2 + variances)) for spread in spreads])
    share = minimize_scalar(lambda p: -np.log(np.array([1 - p, p]) @ likely).sum(), bounds=(0, 1), method="bounded").x
    for place in (0, 5, 20, 40):
        mean, square = expected_by_integration(
            seen[place], values[place], variances[place], spreads, (1 - share, share)
        )
        assert means[place, 0] == pytest.approx(mean, abs=2e-3)
        assert squares[place, 0] == pytest.approx(square, abs=2e-3)


def test_a_restart_keeps_large_weights_among_many_small_ones_and_repeats_from_its_checkpoint() -> None:
    """The sums come from a quadratic loss with two large weights of thirty."""
    public = 50 * np.vstack([np.eye(30), -np.eye(30)]).astype(np.int64)
    plan = plan_steps([PlannedLevel("ALL", 4.0, 3000.0)], dimensions=30, n_classes=2, share=1.0)
    best = np.zeros((31, 2))
    best[:2] = 1.5 * np.array([1, -1])
    best[-1] = 0.4 * np.array([1, -1])
    ends = {}
    for name, each in (("older", replace(plan, per_direction=False)), ("each", plan)):
        state, noise = Descent.begin(each, public, 2), np.random.default_rng(1)
        features = np.hstack([public, np.full((60, 1), INTERCEPT)]) / state.length
        while not state.finished:
            gradient = curvatures(features, state.parameters)[0] @ (state.parameters - best)
            gradient += noise.normal(0, plan.noise, gradient.shape)
            sums = np.rint(gradient * CLIP_STEPS * plan.people / plan.clip_norm)
            again = Descent.begin(each, public, 2).at(state.to_arrays())
            state, again = state._after(sums), again._after(sums)
            assert state.same(again) and np.array_equal(state.penalty, again.penalty)
        ends[name] = state
    assert len(ends["each"].penalty) and not len(ends["older"].penalty)
    assert not ends["each"].same(replace(ends["each"], penalty=ends["each"].penalty * 1.01))
    assert not ends["each"].same(replace(ends["each"], penalty=np.zeros((0, 0))))
    errors = {name: np.abs(end.learned * end.length - best)[:2].max() for name, end in ends.items()}
    assert errors["each"] < errors["older"]
    penalties = np.diag(ends["each"].penalty)
    assert penalties[:2].max() < penalties[2:].min()


def public_with_a_mean(count: int = 300, dimensions: int = 6) -> np.ndarray:
    rng = np.random.default_rng(4)
    points = rng.normal(0, [60, 40, 25, 15, 8, 5][:dimensions], (count, dimensions)) + 20
    return np.rint(points.clip(-127, 127)).astype(np.int8)


def numbers_plan(dimensions: int = 6, **chosen) -> StepsPlan:
    levels = [PlannedLevel("ALL", 0.02, 3000.0)]
    loss = Numbers(0, 1).loss
    return plan_steps(levels, dimensions=dimensions, n_classes=2, share=1.0, steps=Steps(**chosen), loss=loss)


def test_for_numbers_parameters_are_those_expected_given_all_releases() -> None:
    """Two steps by hand: the weighted mean of what the releases say, and the posterior with the constant left free."""
    plan, public, rng = numbers_plan(), public_with_a_mean(), np.random.default_rng(2)
    state = Descent.begin(plan, public, 2, Numbers(0, 1).loss)
    features = np.hstack([public, np.full((300, 1), INTERCEPT)]) / state.length
    curved, seen = features.T @ features / 300, []
    for _ in range(2):
        gradient = rng.normal(0, 0.05, (7, 2))
        before, state = state, state.after(np.rint(gradient * CLIP_STEPS * plan.people / plan.clip_norm))
        seen.append(curved @ before.parameters - gradient)
    # the covariance of the weights, with the constant integrated out, is a block of the inverse
    values, vectors = np.linalg.eigh(np.linalg.inv(np.linalg.inv(curved)[:-1, :-1]))
    mean, variance = (seen[0] + 4 * seen[1]) / 5, plan.noise**2 * (1 + 16) / 25
    best = np.linalg.solve(curved, mean)
    for output in range(2):
        coordinates = (values * (vectors.T @ best[:-1, output]))[:, None]
        spreads = np.geomspace(1e-3, 8.0, 40)
        means, _ = shrunk_weights(coordinates, values, np.full(6, variance), spreads)
        weights = vectors @ means[:, 0]
        assert state.parameters[:-1, output] == pytest.approx(weights, abs=1e-6)
        recent = (seen[0][-1, output] + 2**8 * seen[1][-1, output]) / (1 + 2**8)  # mean score times the constant
        constant = (recent / features[0, -1] - (features[:, :-1] @ weights).mean()) / features[0, -1]
        assert state.parameters[-1, output] == pytest.approx(constant, abs=1e-6)
    assert np.array_equal(state.learned, state.parameters / state.length)


def test_for_numbers_noise_costs_less_than_under_older_plans_and_rests_on_the_checkpoint() -> None:
    """The sums come from a quadratic loss with two weights of thirty that matter."""
    public = np.rint(np.random.default_rng(1).normal(0, 30, (600, 30)).clip(-127, 127)).astype(np.int8)
    plan, loss, best = numbers_plan(dimensions=30), Numbers(0, 1).loss, np.zeros((31, 2))
    document = plan.to_json()
    assert document.pop("expected") is True
    older = StepsPlan.from_json(document)
    assert older.to_json() == document and not older.expected
    best[:2, 0], best[-1] = 0.5, [0.1, 0.05]
    errors = {}
    for name, each in (("older", older), ("now", plan)):
        state, noise = Descent.begin(each, public, 2, loss), np.random.default_rng(1)
        while not state.finished:
            features = np.hstack([public, np.full((600, 1), INTERCEPT)]) / state.length
            gradient = curvatures(features, state.parameters, loss)[0] @ (state.parameters - best)
            gradient += noise.normal(0, plan.noise, gradient.shape)
            sums = np.rint(gradient * CLIP_STEPS * plan.people / plan.clip_norm)
            again = Descent.begin(each, public, 2, loss).at(state.to_arrays())._after(sums)
            state = state._after(sums)
            assert state.same(again)
        errors[name] = float(((features @ (state.learned * state.length - best)) ** 2).mean())
    assert errors["now"] < 0.6 * errors["older"]


@pytest.mark.parametrize("target", [None, Numbers(0, 1)])
def test_noise_of_totals_across_sites_counts_in_states_and_not_in_charges(target: Numbers | None) -> None:
    """Plans for one study and for sites whose sums have the same noise: their states are equal, their charges not."""
    levels, how = [PlannedLevel("ALL", 4.0, 1000.0)], {"dimensions": 6, "n_classes": 2, "share": 1.0}
    loss, public, rng = CROSS_ENTROPY if target is None else target.loss, public_with_a_mean(), np.random.default_rng(3)
    single = plan_steps(levels, **how, loss=loss)
    joint = plan_steps(levels, **how, loss=loss, noise_factor=1.5)
    noisy = plan_steps(levels, **how, loss=loss, steps=Steps(sigma=1.5 * single.sigma))
    assert "noise_factor" not in single.to_json()  # and so an older question keeps its digest
    assert StepsPlan.from_json(joint.to_json()) == joint
    assert joint.noise == pytest.approx(1.5 * single.noise) and joint.strength == pytest.approx(noisy.strength)
    states = [Descent.begin(plan, public, 2, loss) for plan in (joint, noisy)]
    while not states[0].finished:
        sums = np.rint(rng.normal(0, joint.total_sigma * CLIP_STEPS, (7, 2)))
        states = [state.after(sums) for state in states]
    assert states[0].learned == pytest.approx(states[1].learned)
    bounds = [
        StepsQuestion(plan, Standardised().fit(public.astype(np.float64)), state, 0, np.array([4.0])).bounds(
            slice(0, 10)
        )
        for plan, state in ((single, states[0]), (joint, states[0]))
    ]
    assert bounds[0] == bounds[1]


def test_a_ridge_or_step_size_that_was_chosen_keeps_newtons_steps_for_numbers() -> None:
    assert numbers_plan().expected
    assert not numbers_plan(ridge=3.0).expected and not numbers_plan(step_size=0.5).expected
    assert not plan_steps([PlannedLevel("ALL", 1.0, 3000.0)], dimensions=6, n_classes=2, share=1.0).expected


def test_the_later_half_of_the_steps_is_averaged_and_a_ridge_that_was_chosen_stays() -> None:
    rng, state, places = np.random.default_rng(0), begin(10, ridge=3.0), []
    for sums in rng.integers(-(10**7), 10**7, (10, 3, 2)):
        assert state.ridge == state.plan.ridge == pytest.approx(3 * state.plan.noise)
        state = state.after(sums)
        places.append(state.weights)
    assert state.finished and state.learned == pytest.approx(np.mean(places[5:], axis=0))


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_without_noise_steps_lead_to_the_exact_solution(classes: int) -> None:
    points, labels = some_records(4000, classes)
    plan = plan_steps([PlannedLevel("ALL", 4.0, 4000.0)], dimensions=4, n_classes=classes, share=1.0)
    plan = replace(plan, clip_norm=20.0, ridge=0.0, per_direction=False)  # nothing is shrunk
    state, everyone = Descent.begin(plan, points[:500], classes), np.arange(4000)
    records = owned_records(points, labels, everyone, everyone)
    for _ in range(plan.steps):
        free = IndividualAccounts(np.full(4000, 1e9))
        sums, _ = step_contributions(records, state.weights, clip_norm=state.clip_norm, accounts=free, sigma=1.0)
        state = state.after(sums)
    from sklearn.linear_model import LogisticRegression

    exact = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(points, labels).predict_proba(points)
    ours = softmax(points @ state.weights[:-1] + INTERCEPT * state.weights[-1], axis=1)
    assert np.abs(ours - exact).max() < 0.01


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_no_eigenvalue_of_the_hessian_is_above_the_bound(classes: int) -> None:
    rng = np.random.default_rng(classes)
    features, weights = rng.normal(size=(60, 3)), rng.normal(size=(3, classes)) * 2
    probabilities = softmax(features @ weights, axis=1)
    pairs = zip(features, probabilities, strict=True)
    exact = np.mean([np.kron(np.outer(f, f), np.diag(p) - np.outer(p, p)) for f, p in pairs], axis=0)
    bound = np.zeros((3, classes, 3, classes))
    for place in range(classes):
        bound[:, place, :, place] = curvatures(features, weights)[place if classes > 2 else 0]
    bound = bound.reshape(exact.shape)
    assert np.linalg.eigvalsh(bound - exact).min() > -1e-12
    for p, most in zip(probabilities, curvature_bounds(probabilities), strict=True):
        matrix = np.diag(p) - np.outer(p, p)
        assert np.linalg.eigvalsh(np.diag(most) - matrix).min() > -1e-12
        assert most.max() <= 0.5, "at most Böhning's bound"
        if classes == 2:
            assert matrix @ [1, -1] == pytest.approx(most * [1, -1]), "exact for two classes"
    assert np.linalg.eigvalsh(0.5 * bound - exact).min() < 0, "half of it would not be a bound"


def test_steps_stay_finite_under_extreme_noise() -> None:
    """With few people, and a model that is certain about every public point, steps stay finite."""
    rng, plan = np.random.default_rng(0), begin(20, sigma=300.0).plan
    state = Descent.begin(replace(plan, people=5.0), PUBLIC, 2)
    for _ in range(20):
        state = state.after(np.rint(rng.normal(0, 300.0 * CLIP_STEPS, (3, 2))))
    assert np.isfinite(state.learned).all() and np.abs(state.parameters).max() < 1e6


def test_a_checkpoint_resumes_bit_for_bit_and_is_compared_up_to_the_solvers_last_digits() -> None:
    rng = np.random.default_rng(0)
    sums = rng.integers(-(10**9), 10**9, (4, 3, 2))
    whole = halted = begin()
    for step, one in enumerate(sums):
        whole = whole.after(one)
        halted = begin().at(halted.to_arrays()).after(one) if step == 2 else halted.after(one)
    assert (whole.learned == halted.learned).all() and halted.step == 4
    near = replace(whole, parameters=whole.parameters * (1 + 1e-9))
    assert whole.same(near) and near.same(whole)
    for other in ({"parameters": whole.parameters * 1.001}, {"step": 2}, {"total": whole.total + 1.0}):
        assert not whole.same(replace(whole, **other))


def test_a_planned_round_learns_what_can_be_learned() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 2500)
    points = (np.eye(3)[truth] * 2.5 + rng.normal(0, 1, (2500, 3))).astype(np.float32)
    fitted = Standardised().fit(points[:500])
    x = fitted.transform(points)
    records = owned_records(x[500:], truth[500:], np.arange(2000), np.arange(2000))
    caps = np.where(np.arange(2000) % 2 == 0, 1.0, 0.25)
    levels = [PlannedLevel("LOW", 1.0, 1000.0), PlannedLevel("HIGH", 0.25, 1000.0)]
    plan = plan_steps(levels, dimensions=3, n_classes=3, share=1.0)
    state, noise, accounts = Descent.begin(plan, x[:500], 3), SimulationNoise(1), IndividualAccounts(caps)
    how = {"clip_norm": state.clip_norm, "sigma": plan.sigma, "level_weights": plan.level_weights(caps)}
    while not state.finished:
        sums, _ = step_contributions(records, state.weights, accounts=accounts, **how)
        state = state.after(release_sums(sums, plan.sigma, noise))
    assert (accounts.spent <= caps).all()
    model = state.model(fitted)
    right = (model.predict(points[:500]) == truth[:500]).mean()
    best = (points[:500].argmax(axis=1) == truth[:500]).mean()  # Bayes' rule: the nearest of three centres
    assert right > best - 0.02 and best > 0.9
    again = LinearModel.from_bytes(model.to_bytes())
    assert (again.predict_proba(points[:20]) == model.predict_proba(points[:20])).all()
    with pytest.raises(ValueError, match="cannot be read"):
        LinearModel.from_bytes(b"nothing")


RECORDS = np.zeros((2, 9))

LEVELS = [PlannedLevel("HIGH", 0.01, 3000.0), PlannedLevel("LOW", 0.09, 1000.0)]


def test_a_plan_by_hand() -> None:
    plan = plan_steps(LEVELS, dimensions=24, n_classes=4, share=0.5)
    assert plan.sigma == pytest.approx(math.sqrt(60 / (0.5 * 0.09)))
    assert plan.level_weights([0.01, 0.09, 0.25]) == pytest.approx([1 / 3, 1, 1])
    assert plan.people == pytest.approx(3000 / 3 + 1000)
    mu = math.sqrt(0.5 * 0.09)
    assert plan.signal == pytest.approx(2000 * mu / 10)
    assert plan.strength == pytest.approx(2000 * mu) == strength_of(LEVELS, share=0.5, steps=Steps())
    assert plan.ridge == pytest.approx(10 * plan.sigma * plan.clip_norm / 2000)
    assert plan.until == {"HIGH": 0.5, "LOW": 0.5}
    assert not plan.warnings


def test_steps_of_full_contributions_fit_into_every_account() -> None:
    for share in (0.1, 1 / 3, 1.0):
        for cap in (1e-4, 0.0718, 2.0):
            plan = plan_steps([PlannedLevel("ALL", cap, 100.0)], dimensions=5, n_classes=2, share=share)
            assert plan.steps / plan.sigma**2 <= share * cap


def test_the_planner_takes_choices_by_hand() -> None:
    chosen = Steps(steps=7, clip_norm=2.0, sigma=30.0, step_size=3.0, ridge=0.5)
    plan = plan_steps(LEVELS, dimensions=24, n_classes=4, share=1.0, steps=chosen)
    assert (plan.steps, plan.clip_norm, plan.sigma, plan.step_size) == (7, 2.0, 30.0, 3.0)
    assert plan.ridge == pytest.approx(0.5 * 30 * 2 / 2000)
    assert plan.until["LOW"] == pytest.approx(7 / 900 / 0.09)


def test_too_few_people_and_too_little_noise_cause_warnings() -> None:
    few = plan_steps([PlannedLevel("ALL", 0.01, 100.0)], dimensions=99, n_classes=10, share=1.0)
    assert "too few people" in few_people_notes(few)[0] and not few.warnings
    # an account of 0.09 pays for 9 steps of norm 1 at σ = 10
    loud = plan_steps(LEVELS, dimensions=24, n_classes=4, share=1.0, steps=Steps(sigma=10.0))
    assert "9 of 60 steps" in loud.warnings[0]
    assert loud.until == {"HIGH": 1.0, "LOW": 1.0}
    nobody = plan_steps([PlannedLevel("ALL", 1.0, -3.0)], dimensions=5, n_classes=2, share=1.0)
    assert nobody.people == 1.0 and few_people_notes(nobody)


def test_plans_and_parameters_survive_json() -> None:
    plan = plan_steps(LEVELS, dimensions=200, n_classes=10, share=0.5, steps=Steps(sigma=7.0))
    again = StepsPlan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan and again.warnings[0].template == plan.warnings[0].template
    chosen = Steps(steps=5, representation="wavelets", representation_parameters={"components": 50})
    assert Steps.from_json(json.loads(json.dumps(chosen.to_json()))) == chosen
    assert chosen.space(np.zeros((2, 28, 28))).components == 50


@pytest.mark.parametrize(
    ("people", "classes", "noises"), [(11_000, 4, 7.0), (11_000, 9, 10.5), (9000, 4, 10.0), (9000, 9, 10.5)]
)
def test_the_ridge_grows_with_the_classes_and_where_people_are_weak(people, classes, noises) -> None:
    plan = plan_steps([PlannedLevel("ALL", 0.25, people)], dimensions=5, n_classes=classes, share=1.0)
    assert plan.ridge == pytest.approx(noises * plan.sigma * plan.clip_norm / people)


def test_weaker_people_have_fewer_thresholds_and_magnify_less() -> None:
    strong, weak = (Steps().placed(RECORDS, strength).space(RECORDS) for strength in (9000.0, 240.0))
    assert strong.name == weak.name == "evened", "columns of one or two values have no interactions"
    numbers = np.arange(6.0).reshape(3, 2)
    assert Steps().placed(numbers, 9000.0).space(numbers) == Interactions(32, 750, 0.1, 1024, spread=0.5)
    assert Steps().placed(numbers, 9000.0, interactions=False).space(numbers) == strong
    assert Steps().placed(numbers, 240.0).space(numbers) == weak
    with_flags = np.hstack([numbers, np.eye(3)])
    assert Steps().placed(with_flags, 9000.0).space(with_flags).spread == pytest.approx(0.5 * (2 / 5) ** 2)
    assert Steps().placed(with_flags, 9000.0, drawn=True).space(with_flags).name == "evened", "few are numbers"
    loss = Numbers(0, 1).loss
    shrunk = [Steps().placed(with_flags, each, loss=loss).space(with_flags) for each in (9000.0, 240.0, 150.0)]
    found = [(each.name, each.together) for each in shrunk]
    assert found == [("interactions", 1040), ("interactions", 48), ("evened", 30)]
    chosen = Steps(ridge=0.0).placed(with_flags, 240.0, loss=loss).space(with_flags)
    assert (chosen.name, chosen.together) == ("evened", 20), "Newton's steps do not shrink directions"
    assert (weak.together, weak.floor) == (20, 10.0)
    assert (strong.together, strong.floor) == (750, 0.1)
    assert Steps().placed(RECORDS, 800.0).space(RECORDS).floor == 1.0
    assert Steps().placed(RECORDS, 9000.0, drawn=True).space(RECORDS).floor == 0.3
    texts = np.zeros((2, 40), np.uint8)
    found = [Steps().placed(texts, strength).space(texts) for strength in (60.0, 240.0, 9000.0)]
    assert [(each.name, each.components) for each in found] == [("words", 16), ("words", 20), ("words", 256)]
    vectors = np.random.default_rng(3).normal(size=(300, 40))
    encoded = [Steps(encoder="e").placed(vectors, strength).space(vectors) for strength in (60.0, 1800.0, 9000.0)]
    assert [space.components for space in encoded] == [96, 150, 256]
    named = Steps(representation="standardised")
    assert named.placed(RECORDS, 240.0) == named


def test_impossible_plans_and_wrong_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="noise multiplier"):
        plan_steps([PlannedLevel("ALL", 1e-6, 100.0)], dimensions=5, n_classes=2, share=1.0)
    with pytest.raises(ValueError, match="share"):
        plan_steps(LEVELS, dimensions=5, n_classes=2, share=0.0)
    wrongs = ({"steps": 0}, {"sigma": 1e9}, {"ridge": -1.0}, {"momentum": 0.5}, {"model": "tree"}, {"no": 1})
    for wrong in wrongs:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Steps.from_json(wrong)
