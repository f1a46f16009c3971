"""Noisy numbers that everybody is charged a little for: head counts, and answers to check questions."""

import logging

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from scipy.stats import kstest, norm

from accounting.accounts import balances, charges_of
from accounting.caps import caps_of
from accounting.group_budgets import head_counts
from accounting.models import HeadCount, Release
from accounting.shares import share_free, shares
from accounting.verification import study_faults
from common.noise import SimulationNoise
from consent import services
from consent.models import CheckAnswers, DataHolder, Renewal, Study
from consent.promises.questions import KEYS
from consent.selectors import consent_form_in_force
from consent.services import holders_register
from consent.services.erasures import erasure_ask
from tests.factories import FORM, form_publish, holder_create, policy_approve, study_create, user_create
from tests.training.runs import TABLE_RUN, consents_give, run_start, study_with_consents, study_with_table
from training.services.drawings import (
    SHARE,
    answer_counts,
    answers_sigma,
    check_answers_count,
    drawing_plan,
    head_counts_draw,
    head_counts_enter,
    understanding_of,
)
from training.services.erasures import records_erase

pytestmark = pytest.mark.django_db

PUBLIC = {"HIGH": 100, "AVERAGE": 200, "LOW": 300}


@pytest.fixture
def study() -> Study:
    return study_with_consents("heads", holders=60, levels="HAALLL", delta=1e-4)


def draw(study: Study, seed: int | None = None) -> list[HeadCount]:
    noise = None if seed is None else SimulationNoise(seed)
    return head_counts_draw(study=study, acting_user=user_create("olga"), noise=noise)


def test_head_counts_cost_all_holders_the_same_and_one_percent_of_the_smallest_cap(study: Study) -> None:
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


def test_the_noise_is_that_of_the_guarantee() -> None:
    for place, (epsilon, sigma) in enumerate(((0.1, 308), (0.25, 133), (1.0, 38))):
        study = study_create(f"noise-{place}", delta=1e-5)
        policy_approve(study, epsilon, 5.0, 6.0)
        assert drawing_plan(study).sigma == sigma


@pytest.mark.statistical
def test_counts_are_the_true_ones_and_gaussian_noise() -> None:
    study = study_of_many(240)
    sigma = drawing_plan(study).sigma
    drawn = np.array([[count.count for count in draw(study, seed)] for seed in range(30)])
    assert sigma < 80 / 6, "so that no count is truncated at 0"
    deviations = (drawn - 80).ravel() / sigma
    assert kstest(deviations, norm.cdf).pvalue > 0.001


def test_a_second_drawing_takes_another_share_and_spares_those_without_consent(study, caplog) -> None:
    """Plans use the newest head counts, and nothing is logged."""
    draw(study, 1)
    leaver = study.holders.earliest("pk")
    services.consent_withdraw(holder=leaver, acting_user=None)
    holders_register(study=study, pseudonyms=["silent"])
    with caplog.at_level(logging.DEBUG):
        second = draw(study, 2)
    assert not [record for record in caplog.records if record.name.startswith(("accounting", "training"))]
    charged = charges_of(Release.objects.latest("sequence")).holders
    assert leaver.pk not in charged and len(charged) == 59
    assert [share.used for share in shares(study).values()] == [SHARE, SHARE]
    assert share_free(study) == pytest.approx(0.98)
    assert [count.pk for count in head_counts(study)] == [count.pk for count in second]
    assert HeadCount.objects.count() == 6
    assert balances(study).of(charged) == pytest.approx(2 / second[0].sigma ** 2)
    assert list(study_faults(study)) == []


def test_public_numbers_charge_nobody_and_take_no_share_and_others_are_refused(study: Study) -> None:
    entered = head_counts_enter(study=study, acting_user=user_create("olga"), counts=PUBLIC)
    assert {count.level: (count.count, count.sigma) for count in entered} == {
        level: (number, None) for level, number in PUBLIC.items()
    }
    assert len(balances(study).holders) == 0 and share_free(study) == 1.0
    release = Release.objects.get()
    assert (release.charge, release.charges, release.content["source"]) == (0.0, "", "entered")
    for counts in ({}, {"HIGH": 1, "LOW": 2}, PUBLIC | {"HIGH": -1}, PUBLIC | {"HIGH": 1.5}, PUBLIC | {"TOP": 1}):
        with pytest.raises(ValidationError, match="whole number of holders"):
            head_counts_enter(study=study, acting_user=user_create("olga"), counts=counts)


def test_every_promise_that_may_stand_is_counted_whether_anybody_has_it_or_not(study: Study) -> None:
    policy_approve(study, 0.5, 2.0, 4.0)
    # Largest ε of people who consented earlier: 0.5 at once, 2 as before, 3 until they consent again.
    promises = [(promise.level, promise.epsilon, promise.in_force) for promise in drawing_plan(study).promises]
    assert promises == [("HIGH", 0.5, True), ("AVERAGE", 2.0, True), ("LOW", 3.0, False), ("LOW", 4.0, True)]
    draw(study)
    assert len(charges_of(Release.objects.get()).holders) == 60


ALL = (1 << len(KEYS)) - 1


@pytest.fixture
def study_answers() -> Study:
    return study_with_consents("checks", holders=60, levels="HAL", delta=1e-4)


def answer(holder: DataHolder, answered: int = ALL, right: int = ALL) -> None:
    form = consent_form_in_force(holder.study)
    for place in range(len(KEYS)):
        if answered >> place & 1:
            services.check_answer_keep(holder=holder, form=form, place=place, right=bool(right >> place & 1))


def count(study_answers: Study, seed: int | None = None) -> Release:
    noise = None if seed is None else SimulationNoise(seed)
    return check_answers_count(study=study_answers, acting_user=user_create("olga"), noise=noise)


def stored(holder: DataHolder) -> list[tuple[int, int, bool]]:
    return list(CheckAnswers.objects.filter(holder=holder).values_list("answered", "right", "counted"))


def test_holders_are_charged_by_the_questions_they_answered(study_answers: Study) -> None:
    first, second, third = study_answers.holders.order_by("pk")[:3]
    answer(first)
    answer(second, 0b0001, 0b0000)
    release = count(study_answers)
    sigma = drawing_plan(study_answers).sigma
    charged = charges_of(release)
    assert charged.holders.tolist() == [first.pk, second.pk], "people who opened nothing are charged nothing"
    assert charged.spent == pytest.approx([1 / sigma**2, 1 / (len(KEYS) * sigma**2)])
    assert release.charge == 1 / sigma**2 <= SHARE * float(caps_of(1.0, 1e-4))
    assert release.content["sigma"] == pytest.approx(2 * sigma)
    assert balances(study_answers).of(np.array([third.pk])) == 0
    assert share_free(study_answers) == pytest.approx(0.99)
    assert [share.purpose for share in shares(study_answers).values()] == ["answers to check questions"]
    assert list(study_faults(study_answers)) == []


def test_one_person_changes_what_is_released_by_at_most_what_they_are_charged(study_answers: Study) -> None:
    """With the same noise, the squared distance of the two releases, divided by the variance, is the charge."""
    holder = study_answers.holders.earliest("pk")
    without = count(study_answers, 5).content
    for mask in (0b1111, 0b0110, 0b1000):
        services.consent_withdraw(holder=holder, acting_user=None, keep=True)
        form = consent_form_in_force(study_answers)
        services.consent_give(holder=holder, level="HIGH", form=form, acting_user=None)
        answer(holder, mask, 0b0101)
        release = count(study_answers, 5)
        distance = sum(
            (mine[cell] - other[cell]) ** 2
            for mine, other in zip(release.content["questions"], without["questions"], strict=True)
            for cell in ("right", "wrong")
        )
        assert distance == mask.bit_count()
        assert charges_of(release).spent.tolist() == [pytest.approx(distance / release.content["sigma"] ** 2)]


def test_the_first_answer_is_kept_until_it_is_counted_and_cleared_of_who_takes_no_part(study_answers: Study) -> None:
    holder, silent = study_answers.holders.earliest("pk"), holder_create(study_answers, "silent")
    answer(holder, 0b0001, 0b0000)
    answer(holder, 0b0011, 0b0011)
    answer(silent)
    assert stored(holder) == [(0b0011, 0b0010, False)]
    assert charges_of(count(study_answers)).holders.tolist() == [holder.pk]
    assert stored(holder) == stored(silent) == [(0, 0, True)]
    answer(holder)
    assert stored(holder) == [(0, 0, True)], "the first answer was counted"
    assert len(charges_of(count(study_answers)).holders) == 0


@pytest.mark.parametrize("end", ["refuses", "withdraws", "is erased", "reads a new version"])
def test_answers_are_deleted_with_the_holder_or_with_the_version(study_answers: Study, end: str) -> None:
    known = study_answers.holders.earliest("pk")
    holder = known if end in ("withdraws", "reads a new version") else holder_create(study_answers, "leaver")
    answer(holder)
    if end == "refuses":
        services.consent_refuse(holder=holder, acting_user=None)
    elif end == "withdraws":
        services.consent_withdraw(holder=holder, acting_user=None, keep=True)
    elif end == "is erased":
        erasure_ask(holder=holder, acting_user=None)
        records_erase(study_answers.pk)
    else:
        texts = {"en": FORM["en"] + "\nMore.", "de": FORM["de"] + "\nMehr."}
        form_publish(study_answers, texts, renewal=Renewal.NOT_ASKED)
    assert stored(holder) == []
    if end == "reads a new version":
        answer(holder, 0b0001)
        assert count(study_answers).content["form_version"] == 2


def test_without_a_free_share_nothing_is_counted_or_cleared() -> None:
    study_answers = study_with_table()
    run_start(study_answers, **TABLE_RUN)
    holder = study_answers.holders.earliest("pk")
    answer(holder)
    with pytest.raises(ValidationError, match="Only a share of 0 is"):
        count(study_answers)
    assert stored(holder) == [(ALL, ALL, False)]
    assert answer_counts(study_answers) is None


def test_the_question_that_was_answered_worst_comes_first() -> None:
    study_answers = study_of_many(120)
    assert answers_sigma(study_answers) < 20, "so that the signal exceeds the noise"
    for place, holder in enumerate(study_answers.holders.order_by("pk")):
        answer(holder, ALL, 0b1010 | (0b0001 if place % 2 else 0))
    count(study_answers, 3)
    found = answer_counts(study_answers)
    assert found is not None and [each.key for each in found.questions[:2]] == ["access", "protection"]
    assert found.questions[0].right < 25 < 75 < found.questions[-1].right


@pytest.mark.statistical
@pytest.mark.parametrize("share", [0.0, 0.3, 0.61, 1.0])
def test_the_interval_holds_the_true_share_as_often_as_it_says(share: float) -> None:
    rng, number, sigma, trials = np.random.default_rng(8), 1000, 76.0, 4000
    right = np.rint(number * share + rng.normal(0, sigma, trials)).astype(int)
    wrong = np.rint(number * (1 - share) + rng.normal(0, sigma, trials)).astype(int)
    answered = [{"question": "odds", "right": int(r), "wrong": int(w)} for r, w in zip(right, wrong, strict=True)]
    found = [understanding_of(each, sigma) for each in answered]
    covered = np.mean([each.low <= 100 * share <= each.high for each in found if each.right is not None])
    # Bounds are rounded outwards, to whole numbers.
    assert 0.94 < covered < 0.985
    assert all(each.low <= each.right <= each.high for each in found if each.right is not None)


def study_of_many(holders: int) -> Study:
    """Return a study with promises so weak that the count of its holders exceeds the noise."""
    study = study_create("many", delta=0.01)
    form_publish(study)
    policy_approve(study, 5.0, 6.0, 7.0)
    services.holders_register(study=study, pseudonyms=[f"p-{place:03}" for place in range(holders)])
    consents_give(study, "HAL")
    return study
