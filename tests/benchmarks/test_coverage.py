"""Every interval that is shown has its stated coverage in 1,000 draws; see `benchmarks.coverage`."""

import pytest

from benchmarks.coverage import INTERVALS, Interval


@pytest.mark.statistical
@pytest.mark.parametrize(
    "interval",
    [pytest.param(each, id=each.name, marks=[pytest.mark.exhaustive] if each.is_slow else []) for each in INTERVALS],
)
def test_intervals_have_their_stated_coverage(interval: Interval) -> None:
    assert interval.is_true(interval.coverage()), f"{interval.name}: {interval.coverage():.3f}"
