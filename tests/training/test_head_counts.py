"""Head counts: noisy numbers that everybody pays a little for, or numbers that were public before."""

import logging

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from scipy.stats import kstest, norm

from accounting.book import balances, charges_of
from accounting.caps import caps_of
from accounting.head_counts import head_counts
from accounting.models import HeadCount, Release
from accounting.shares import share_free, shares
from accounting.verification import study_faults
from common.noise import SimulationNoise
from consent import services
from consent.models import Study
from consent.services import holders_register
from tests.accounting.counting import study_of_many, study_with_overspent
from tests.factories import policy_approve, study_create, user_create
from tests.training.runs import TABLE_RUN, run_start, study_with_consents, study_with_table
from training.engine.drawings import SHARE, drawing_plan
from training.services.head_counts import head_counts_draw, head_counts_enter

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

PUBLIC = {"HIGH": 100, "AVERAGE": 200, "LOW": 300}


@pytest.fixture
def study() -> Study:
    return study_with_consents("heads", holders=60, levels="HAALLL", delta=1e-4)


def draw(study: Study, seed: int | None = None) -> list[HeadCount]:
    noise = None if seed is None else SimulationNoise(seed)
    return head_counts_draw(study=study, acting_user=user_create("olga"), noise=noise)


def test_head_counts_cost_all_holders_the_same_and_one_percent_of_the_smallest_cap(
    study: Study,
) -> None:
    counts = draw(study)
    sigma = counts[0].sigma
    assert [(count.level, count.epsilon) for count in counts] == [("HIGH", 1.0), ("AVERAGE", 2.0), ("LOW", 3.0)]
    accounts = balances(study)
    assert len(accounts.holders) == 60
    assert set(accounts.spent.tolist()) == {1 / sigma**2}
    smallest = float(caps_of(1.0, 1e-4))
    assert 0.0098 * smallest < 1 / sigma**2 <= SHARE * smallest
    release = Release.objects.get()
    assert (release.kind, release.charge, release.recorded_by) == ("head_counts", 1 / sigma**2, user_create("olga"))
    assert release.content["counts"] == [
        {"level": count.level, "epsilon": count.epsilon, "count": count.count} for count in counts
    ]
    assert share_free(study) == pytest.approx(0.99)
    assert list(study_faults(study)) == []


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.1, 308), (0.25, 133), (1.0, 38)])
def test_the_noise_is_that_of_the_guarantee(epsilon: float, sigma: int) -> None:
    study = study_create("noise", delta=1e-5)
    policy_approve(study, epsilon, 5.0, 6.0)
    assert drawing_plan(study).sigma == sigma


@pytest.mark.statistical
def test_counts_are_the_true_ones_and_gaussian_noise() -> None:
    study = study_of_many(240)
    sigma = drawing_plan(study).sigma
    drawn = np.array([[count.count for count in draw(study, seed)] for seed in range(60)])
    assert sigma < 80 / 6, "so that no count is cut off at 0"
    deviations = (drawn - 80).ravel() / sigma
    assert kstest(deviations, norm.cdf).pvalue > 0.001


def test_holders_without_consent_are_neither_counted_nor_charged(study: Study) -> None:
    leaver = study.holders.earliest("pk")
    services.consent_withdraw(holder=leaver, acting_user=None)
    holders_register(study=study, pseudonyms=["silent"])
    draw(study)
    charged = charges_of(Release.objects.get()).holders
    assert leaver.pk not in charged
    assert len(charged) == 59


def test_a_second_drawing_takes_another_share_and_plans_use_the_newest(study: Study) -> None:
    draw(study, 1)
    second = draw(study, 2)
    assert [share.used for share in shares(study).values()] == [SHARE, SHARE]
    assert share_free(study) == pytest.approx(0.98)
    assert [count.pk for count in head_counts(study)] == [count.pk for count in second]
    assert HeadCount.objects.count() == 6
    assert balances(study).spent == pytest.approx(2 / second[0].sigma ** 2)
    assert list(study_faults(study)) == []


def test_nothing_is_drawn_without_a_free_share() -> None:
    study = study_with_table()
    run_start(study, **TABLE_RUN)
    with pytest.raises(ValidationError, match="Only 0 of every holder"):
        draw(study)
    assert not Release.objects.exclude(content__source="entered").exists()
    assert len(balances(study).holders) == 0


def test_holders_above_a_stricter_level_are_not_counted() -> None:
    study, holder = study_with_overspent()
    before = balances(study).of(np.array([holder.pk]))
    draw(study)
    assert holder.pk not in charges_of(Release.objects.latest("sequence")).holders
    assert balances(study).of(np.array([holder.pk])) == before
    assert list(study_faults(study)) == []


def test_public_numbers_charge_nobody_and_take_no_share(study: Study) -> None:
    entered = head_counts_enter(study=study, acting_user=user_create("olga"), counts=PUBLIC)
    assert [(count.level, count.count, count.sigma) for count in entered] == [
        ("HIGH", 100, None),
        ("AVERAGE", 200, None),
        ("LOW", 300, None),
    ]
    assert len(balances(study).holders) == 0
    assert share_free(study) == 1.0
    release = Release.objects.get()
    assert (release.charge, release.charges, release.content["source"]) == (0.0, "", "entered")


@pytest.mark.parametrize(
    "counts", [{}, {"HIGH": 1, "LOW": 2}, PUBLIC | {"HIGH": -1}, PUBLIC | {"HIGH": 1.5}, PUBLIC | {"TOP": 1}]
)
def test_numbers_that_are_none_are_refused(study: Study, counts: dict) -> None:
    with pytest.raises(ValidationError, match="whole number of holders"):
        head_counts_enter(study=study, acting_user=user_create("olga"), counts=counts)


def test_every_promise_that_may_stand_is_counted_whether_anybody_has_it_or_not(study: Study) -> None:
    policy_approve(study, 0.5, 2.0, 4.0)
    # Who consented before: 0.5 at once, 2 as before, 3 until they consent anew.
    promises = [(promise.level, promise.epsilon, promise.in_force) for promise in drawing_plan(study).promises]
    assert promises == [("HIGH", 0.5, True), ("AVERAGE", 2.0, True), ("LOW", 3.0, False), ("LOW", 4.0, True)]
    draw(study)
    assert len(charges_of(Release.objects.get()).holders) == 60


def test_equal_promises_of_two_levels_keep_their_order(study: Study) -> None:
    policy_approve(study, 2.0, 3.0, 4.0)
    orders = {tuple((count.level, count.epsilon) for count in draw(study)) for _ in range(3)}
    assert len(orders) == 1
    assert len(next(iter(orders))) == 6


def test_without_a_policy_nobody_is_counted() -> None:
    with pytest.raises(ValidationError, match="no approved ε policy"):
        draw(study_create("nothing"))


def test_draws_are_never_logged(study: Study, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        draw(study)
    assert not [record for record in caplog.records if record.name.startswith(("accounting", "training"))]
