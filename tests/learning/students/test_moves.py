"""Random moves of images stay within their limits."""

import pytest
import torch

from learning.students.moves import Moves

SIDE = 32
NOTHING = {"rotation": 0.0, "shift": 0.0, "stretch": 0.0, "bend": 0.0, "mirror": False, "erase": 0.0}


def ramps() -> torch.Tensor:
    """Images whose value is the column of a pixel, as a share of the width."""
    columns = (torch.arange(SIDE) + 0.5) / SIDE
    return columns.expand(200, 1, SIDE, SIDE).contiguous()


def moved(**limits: float) -> torch.Tensor:
    return Moves(**(NOTHING | limits))(ramps(), torch.Generator().manual_seed(1))  # type: ignore[arg-type]


def test_without_limits_images_stay_as_they_are() -> None:
    assert torch.equal(moved(), ramps())


@pytest.mark.parametrize("limit", [0.03, 0.1])
def test_parts_are_bent_by_different_shifts_within_the_limit(limit: float) -> None:
    inner = slice(SIDE // 4, -SIDE // 4)  # nothing comes from outside
    shifts = (moved(bend=limit) - ramps())[:, 0, inner, inner]
    furthest = shifts.abs().amax((1, 2))
    # between drawn places a cubic may overshoot a little
    assert furthest.max() < 1.5 * limit and furthest.max() > 0.7 * limit
    assert (shifts.amax((1, 2)) - shifts.amin((1, 2))).median() > 0.3 * limit
    steps = shifts.diff(dim=2).abs().max()
    assert steps < limit, "neighbouring pixels must stay together"


def test_weaker_moves_bend_less_and_erase_nothing() -> None:
    strong = Moves(**(NOTHING | {"bend": 0.1, "erase": 0.5}))  # type: ignore[arg-type]
    weak = strong.weaker(0.5)
    assert (weak.bend, weak.erase) == (0.05, 0.0)
