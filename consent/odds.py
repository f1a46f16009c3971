"""What an ε means for a person, in odds."""

import math


def right_guesses_in_100(epsilon: float) -> int:
    """How often, in 100 guesses, someone can at most be right about whether a person's records were used.

    The worst case of a guess that starts at 50:50, ignoring δ: 100 · e^ε / (1 + e^ε) (Nanayakkara et al. 2023, "What
    Are the Chances? Explaining the Epsilon Parameter in Differential Privacy"), rounded up, so that "at most" is true.
    Without the person's records it is 50. Raises ValueError unless ε is finite and at least 0.

    >>> [right_guesses_in_100(epsilon) for epsilon in (0, 0.5, 1, 2, 3, 5)]
    [50, 63, 74, 89, 96, 100]
    """
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon is {epsilon}; give a finite number of at least 0.")
    return math.ceil(100 / (1 + math.exp(-epsilon)))
