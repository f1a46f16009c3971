import math

import mpmath
import pytest

from consent.odds import right_guesses_in_100


@pytest.mark.parametrize("epsilon", [0, 1e-9, 0.1, 0.5, 1, 2, 3, 5, 10, 800])
def test_is_the_posterior_of_an_even_guess_rounded_up(epsilon: float) -> None:
    with mpmath.workdps(50):
        exact = 100 * mpmath.e**epsilon / (1 + mpmath.e**epsilon)
        assert right_guesses_in_100(epsilon) == int(mpmath.ceil(exact))


@pytest.mark.parametrize("epsilon", [-1, math.inf, math.nan])
def test_refuses_what_is_no_epsilon(epsilon: float) -> None:
    with pytest.raises(ValueError, match="finite number"):
        right_guesses_in_100(epsilon)
