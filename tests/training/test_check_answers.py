"""Answers to check questions: counted with noise, charged as head counts are, and stored no longer than that."""

import numpy as np
import pytest
from django.core.exceptions import ValidationError

from accounting.book import balances, charges_of
from accounting.caps import caps_of
from accounting.models import Release
from accounting.shares import share_free, shares
from accounting.verification import study_faults
from common.noise import SimulationNoise
from consent import services
from consent.models import CheckAnswers, DataHolder, Renewal, Study
from consent.questions import KEYS
from consent.selectors import consent_form_in_force
from consent.services.erasures import erasure_ask
from tests.accounting.counting import study_of_many, study_with_overspent
from tests.factories import FORM, form_publish, holder_create, study_create, user_create
from tests.training.runs import TABLE_RUN, run_start, study_with_consents, study_with_table
from training.engine.drawings import SHARE, drawing_plan
from training.services.check_answers import (
    AnswerCounts,
    answer_counts,
    answers_sigma,
    check_answers_count,
    understanding_of,
)
from training.services.erasures import records_erase

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

ALL = (1 << len(KEYS)) - 1


@pytest.fixture
def study() -> Study:
    return study_with_consents("checks", holders=60, levels="HAL", delta=1e-4)


def answer(holder: DataHolder, answered: int = ALL, right: int = ALL) -> None:
    form = consent_form_in_force(holder.study)
    for place in range(len(KEYS)):
        if answered >> place & 1:
            services.check_answer_keep(holder=holder, form=form, place=place, right=bool(right >> place & 1))


def count(study: Study, seed: int | None = None) -> Release:
    noise = None if seed is None else SimulationNoise(seed)
    return check_answers_count(study=study, acting_user=user_create("olga"), noise=noise)


def stored(holder: DataHolder) -> list[tuple[int, int, bool]]:
    return list(CheckAnswers.objects.filter(holder=holder).values_list("answered", "right", "counted"))


def test_the_first_answer_alone_is_kept_in_one_row(study: Study) -> None:
    holder = study.holders.earliest("pk")
    answer(holder, 0b0001, 0b0000)
    answer(holder, 0b0011, 0b0011)
    assert stored(holder) == [(0b0011, 0b0010, False)]


def test_holders_are_charged_by_the_questions_they_answered(study: Study) -> None:
    first, second, third = study.holders.order_by("pk")[:3]
    answer(first)
    answer(second, 0b0001, 0b0000)
    release = count(study)
    sigma = drawing_plan(study).sigma
    charged = charges_of(release)
    assert charged.holders.tolist() == [first.pk, second.pk], "whoever opened nothing pays nothing"
    assert charged.spent == pytest.approx([1 / sigma**2, 1 / (len(KEYS) * sigma**2)])
    assert release.charge == 1 / sigma**2 <= SHARE * float(caps_of(1.0, 1e-4))
    assert release.content["sigma"] == pytest.approx(2 * sigma)
    assert balances(study).of(np.array([third.pk])) == 0
    assert share_free(study) == pytest.approx(0.99)
    assert [share.purpose for share in shares(study).values()] == ["answers to check questions"]
    assert list(study_faults(study)) == []


def test_one_person_changes_what_is_released_by_at_most_what_they_are_charged(study: Study) -> None:
    """The same noise twice: the squared distance of the two releases, over the variance of the noise, is the charge."""
    holder = study.holders.earliest("pk")
    without = count(study, 5).content
    for mask in (0b1111, 0b0110, 0b1000):
        services.consent_withdraw(holder=holder, acting_user=None, keep=True)
        form = consent_form_in_force(study)
        services.consent_give(holder=holder, level="HIGH", form=form, acting_user=None)
        answer(holder, mask, 0b0101)
        release = count(study, 5)
        distance = sum(
            (mine[cell] - other[cell]) ** 2
            for mine, other in zip(release.content["questions"], without["questions"], strict=True)
            for cell in ("right", "wrong")
        )
        assert distance == mask.bit_count()
        assert charges_of(release).spent.tolist() == [pytest.approx(distance / release.content["sigma"] ** 2)]


def test_counted_answers_are_cleared_and_not_counted_again(study: Study) -> None:
    holder = study.holders.earliest("pk")
    answer(holder)
    count(study)
    assert stored(holder) == [(0, 0, True)]
    answer(holder)
    assert stored(holder) == [(0, 0, True)], "the first answer was counted"
    assert len(charges_of(count(study)).holders) == 0


def test_answers_of_people_who_take_no_part_are_not_counted_and_cleared(study: Study) -> None:
    silent = holder_create(study, "silent")
    answer(silent)
    release = count(study)
    assert len(charges_of(release).holders) == 0
    assert stored(silent) == [(0, 0, True)]


@pytest.mark.parametrize("leaves", ["refuses", "withdraws", "is erased"])
def test_answers_are_deleted_with_the_holder(study: Study, leaves: str) -> None:
    holder = holder_create(study, "leaver") if leaves != "withdraws" else study.holders.earliest("pk")
    answer(holder)
    if leaves == "refuses":
        services.consent_refuse(holder=holder, acting_user=None)
    elif leaves == "withdraws":
        services.consent_withdraw(holder=holder, acting_user=None, keep=True)
    else:
        erasure_ask(holder=holder, acting_user=None)
        records_erase(study.pk)
    assert stored(holder) == []


def test_a_new_version_deletes_what_was_answered_to_the_one_before(study: Study) -> None:
    holder = study.holders.earliest("pk")
    answer(holder)
    form_publish(study, {"en": FORM["en"] + "\nMore.", "de": FORM["de"] + "\nMehr."}, renewal=Renewal.NOT_ASKED)
    assert stored(holder) == []
    answer(holder, 0b0001)
    assert count(study).content["form_version"] == 2


def test_an_account_beyond_a_stricter_level_is_not_counted() -> None:
    study, holder = study_with_overspent()
    before = balances(study).of(np.array([holder.pk]))
    answer(holder)
    release = count(study)
    assert len(charges_of(release).holders) == 0
    assert balances(study).of(np.array([holder.pk])) == before
    assert list(study_faults(study)) == []


def test_without_a_free_share_nothing_is_counted_or_cleared() -> None:
    study = study_with_table()
    run_start(study, **TABLE_RUN)
    holder = study.holders.earliest("pk")
    answer(holder)
    with pytest.raises(ValidationError, match="Only 0 of every holder"):
        count(study)
    assert stored(holder) == [(ALL, ALL, False)]
    assert answer_counts(study) is None


def test_without_a_form_nothing_can_be_counted() -> None:
    with pytest.raises(ValidationError, match="no published consent form"):
        count(study_create("early"))


# --- What a count says ----------------------------------------------------------------------------------------------


def counted_answers(study: Study) -> AnswerCounts:
    found = answer_counts(study)
    assert found is not None
    return found


def test_the_question_that_was_answered_worst_comes_first() -> None:
    study = study_of_many(120)
    assert answers_sigma(study) < 20, "so that people stand out"
    for place, holder in enumerate(study.holders.order_by("pk")):
        answer(holder, ALL, 0b1010 | (0b0001 if place % 2 else 0))
    count(study, 3)
    found = counted_answers(study)
    assert [each.key for each in found.questions[:2]] == ["access", "protection"]
    assert found.questions[0].right < 25 < 75 < found.questions[-1].right


def test_few_answers_are_hidden_by_the_noise(study: Study) -> None:
    answer(study.holders.earliest("pk"))
    count(study, 1)
    assert {each.right for each in counted_answers(study).questions} == {None}


@pytest.mark.statistical
@pytest.mark.parametrize("share", [0.0, 0.3, 0.61, 1.0])
def test_the_interval_holds_the_true_share_as_often_as_it_says(share: float) -> None:
    rng, number, sigma, trials = np.random.default_rng(8), 1000, 76.0, 4000
    right = np.rint(number * share + rng.normal(0, sigma, trials)).astype(int)
    wrong = np.rint(number * (1 - share) + rng.normal(0, sigma, trials)).astype(int)
    found = [
        understanding_of({"question": "odds", "right": int(r), "wrong": int(w)}, sigma)
        for r, w in zip(right, wrong, strict=True)
    ]
    covered = np.mean([each.low <= 100 * share <= each.high for each in found if each.right is not None])
    # Bounds are rounded outwards, to whole numbers.
    assert 0.94 < covered < 0.985
    assert all(each.low <= each.right <= each.high for each in found if each.right is not None)
