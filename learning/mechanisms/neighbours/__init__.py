"""Votes in which every holder takes part: the mechanism, its releases, forecasts and rounds. Does not import Django."""

from learning.mechanisms.neighbours.votes import neighbour_votes
