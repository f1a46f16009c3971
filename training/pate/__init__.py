"""The mechanisms of Individualized PATE: plan a run, share out the holders, count votes, release noisy labels.

What a release costs is the business of `accounting.privacy`. Nothing here imports Django.
"""

from training.pate.aggregators import (
    AGGREGATORS,
    REJECTED,
    Aggregator,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    QueryCosts,
    Release,
    aggregator_from_parameters,
)
from training.pate.individualise import (
    WEIGHT_SCHEMES,
    participation_frequencies,
    teacher_weights,
    upsampling_factors,
)
from training.pate.noise import Noise, SimulationNoise, SystemNoise
from training.pate.partition import assign
from training.pate.plan import LEFT_OUT, SMALL_GROUPS, VARIANTS, Group, GroupPlan, Plan, PlanError, make_plan
from training.pate.simulation import SimulatedVote, simulate_vote
from training.pate.vanishing import draw_participation, participation_costs, teacher_spending
from training.pate.vote import Vote, hold_vote, vote_costs
from training.pate.votes import NO_VOTE, count_votes, group_votes

__all__ = [
    "AGGREGATORS",
    "LEFT_OUT",
    "NO_VOTE",
    "REJECTED",
    "SMALL_GROUPS",
    "VARIANTS",
    "WEIGHT_SCHEMES",
    "Aggregator",
    "ConfidentGNMax",
    "GNMax",
    "Group",
    "GroupPlan",
    "InteractiveGNMax",
    "LNMax",
    "Noise",
    "Plan",
    "PlanError",
    "QueryCosts",
    "Release",
    "SimulatedVote",
    "SimulationNoise",
    "SystemNoise",
    "Vote",
    "aggregator_from_parameters",
    "assign",
    "count_votes",
    "draw_participation",
    "group_votes",
    "hold_vote",
    "make_plan",
    "participation_costs",
    "participation_frequencies",
    "simulate_vote",
    "teacher_spending",
    "teacher_weights",
    "upsampling_factors",
    "vote_costs",
]
