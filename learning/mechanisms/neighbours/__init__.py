"""Votes by every holder: the mechanism, its release, its forecast and its rounds. Nothing here imports Django."""

from learning.mechanisms.neighbours.votes import neighbour_votes

__all__ = ["neighbour_votes"]
