"""Every holder votes: the mechanism, its release, its forecast and its rounds. Nothing here imports Django."""

from typing import Any

__all__ = ["neighbour_votes"]


def __getattr__(name: str) -> Any:
    """Read ``votes`` when it is asked for: it loads PyTorch, which forms and pages that only plan do without."""
    if name == "neighbour_votes":
        from learning.mechanisms.neighbours.votes import neighbour_votes

        return neighbour_votes
    raise AttributeError(name)
