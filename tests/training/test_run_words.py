import pytest

from training.templatetags.run_words import percent, trimmed


@pytest.mark.parametrize(
    ("share", "said"), [(0.8579, "85.8 %"), (0.9999, "100.0 %"), (0.25, "25.0 %"), (0.0, "0.0 %"), (None, "–")]
)
def test_shares_are_rounded_not_cut_off(share: float | None, said: str) -> None:
    assert percent(share) == said


@pytest.mark.parametrize(("number", "said"), [(0.5, "0.5"), (200.0, "200"), (1.06182, "1.062")])
def test_numbers_lose_the_zeros_that_say_nothing(number: float, said: str) -> None:
    assert trimmed(number) == said
