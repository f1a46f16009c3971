"""Checkpoints: how far a training has come, kept so that it goes on after a crash where it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Checkpoint:
    """Place where one training keeps how far it is; the same training finds it there again.

    Attributes:
        load: What was saved last, None if nothing was. What cannot be read counts as nothing: training starts over.
        save: Keep this in place of what was kept before.
    """

    load: Callable[[], bytes | None]
    save: Callable[[bytes], None]


def _none() -> None:
    return None


def _forget(_state: bytes) -> None:
    pass


UNKEPT = Checkpoint(_none, _forget)
"""Of those whose training is not worth keeping half done."""
