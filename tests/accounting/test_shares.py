"""Shares of every cap are granted and opened, and never add up to more than 1."""

from collections import Counter
from uuid import UUID, uuid4

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from accounting.models import ShareRecord
from accounting.shares import Share, share_free, share_grant, share_limit, share_open, share_settle, shares
from accounting.verification import study_faults
from consent.models import Study
from tests.factories import study_create, user_create

pytestmark = [pytest.mark.django_db, pytest.mark.both]


@pytest.fixture
def study() -> Study:
    return study_create("shares")


def granted(study: Study, share: float) -> UUID:
    subject = uuid4()
    share_grant(study=study, subject=subject, purpose="run", share=share, acting_user=user_create("olga"))
    return subject


def test_granted_shares_are_held_until_settlement(study: Study) -> None:
    subject, other = granted(study, 0.4), study_create("other")
    assert share_free(study) == pytest.approx(0.6)
    assert shares(study) == {subject: Share(subject, "run", 0.4)}
    assert ShareRecord.objects.get().recorded_by == user_create("olga")
    share_open(study=study, subject=subject)
    share_settle(study=study, subject=subject, used=0.1)
    assert share_free(study) == pytest.approx(0.9)
    assert shares(study)[subject] == Share(subject, "run", 0.4, limit=0.4, used=0.1)
    assert list(ShareRecord.chain(study.pk).values_list("kind", flat=True)) == ["granted", "opened", "settled"]
    assert share_free(other) == 1.0, "studies have their own shares"
    with pytest.raises(IntegrityError), transaction.atomic():
        share_grant(study=study, subject=subject, purpose="run", share=0.1, acting_user=None)


def test_a_share_is_positive_and_at_most_the_free_part(study: Study) -> None:
    for share in (0.0, -0.5, 1.5, float("nan"), float("inf")):
        with pytest.raises(ValidationError, match="above 0"):
            granted(study, share)
    granted(study, 0.75)
    with pytest.raises(ValidationError, match=r"Only a share of 0\.25 is"):
        granted(study, 0.26)
    granted(study, 0.25)
    assert share_free(study) == 0.0
    with pytest.raises(ValidationError, match="Only a share of 0 is"):
        granted(study, 0.01)


def test_ten_tenths_add_up_to_one_despite_floating_point(study: Study) -> None:
    for share in (0.1, 0.2, 0.4, 0.3):
        granted(study, share)
    assert share_free(study) == 0.0
    assert sum(share.committed for share in shares(study).values()) <= 1.0


def test_a_limit_is_the_shares_opened_before_plus_the_runs_own(study: Study) -> None:
    first, second, third = (granted(study, share) for share in (0.2, 0.3, 0.5))
    assert share_limit(study, second) == pytest.approx(0.3), "pending shares do not count"
    assert share_open(study=study, subject=first) == 0.2
    assert share_open(study=study, subject=third) == pytest.approx(0.7)
    share_settle(study=study, subject=first, used=0.05)
    assert share_limit(study, second) == share_open(study=study, subject=second) == pytest.approx(0.85)
    assert share_open(study=study, subject=third) == pytest.approx(0.7), "opened once"
    assert list(study_faults(study)) == []


def test_settling_uses_at_most_what_was_opened_and_only_once(study: Study) -> None:
    opened, waiting = granted(study, 0.5), granted(study, 0.5)
    share_open(study=study, subject=opened)
    share_settle(study=study, subject=opened, used=0.9)
    assert shares(study)[opened].used == 0.5
    for _ in range(2):
        share_settle(study=study, subject=waiting, used=0.4)
    share_settle(study=study, subject=uuid4(), used=0.4)
    assert shares(study)[waiting].used == 0.0
    assert (share_free(study), ShareRecord.objects.count()) == (0.5, 5)


steps = st.one_of(
    st.tuples(st.just("grant"), st.floats(0.01, 1.0)),
    st.tuples(st.sampled_from(["open", "settle"]), st.integers(0, 5), st.floats(0.0, 1.0)),
)


def test_shares_never_exceed_one_nor_limits_what_was_opened_in_any_order(study: Study) -> None:
    reached: Counter[str] = Counter()

    @settings(max_examples=15, phases=(Phase.generate,))
    @given(st.lists(steps, max_size=14))
    def check(history: list[tuple]) -> None:
        with transaction.atomic():
            held: list[UUID] = []
            opened: dict[UUID, float] = {}
            settled: dict[UUID, float] = {}
            given: dict[UUID, float] = {}
            for name, *rest in history:
                if name == "grant":
                    free = 1 - sum(settled.get(each, given[each]) for each in held)
                    try:
                        held.append(granted(study, rest[0]))
                    except ValidationError:
                        assert rest[0] > free
                        reached["refused"] += 1
                        continue
                    assert rest[0] <= free + 1e-8
                    given[held[-1]] = rest[0]
                elif held:
                    subject = held[rest[0] % len(held)]
                    if subject in settled:
                        continue
                    if name == "open" and subject not in opened:
                        before = sum(settled.get(each, given[each]) for each in opened)
                        opened[subject] = share_open(study=study, subject=subject)
                        assert opened[subject] == pytest.approx(min(1.0, before + given[subject]))
                    elif name == "settle":
                        share_settle(study=study, subject=subject, used=rest[1])
                        settled[subject] = min(rest[1], given[subject]) if subject in opened else 0.0
                assert sum(share.committed for share in shares(study).values()) <= 1 + 1e-9
            reached["granted"] += len(held)
            transaction.set_rollback(True)

    check()
    assert reached["refused"] and reached["granted"] > 15, reached
