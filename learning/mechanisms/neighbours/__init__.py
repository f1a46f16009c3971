"""Votes by every holder: the mechanism, its releases, its forecast and its rounds. Imports no Django."""

from learning.mechanisms.neighbours.votes import neighbour_votes
