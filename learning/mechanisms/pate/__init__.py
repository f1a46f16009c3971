"""Mechanisms of Individualized PATE: planning a run, assigning holders to teachers, counting votes, releasing labels.

`accounting.privacy` calculates the cost of a release. Does not import Django.
"""

from common.noise import SimulationNoise, SystemNoise
from learning.mechanisms.pate.aggregators import (
    AGGREGATORS,
    REJECTED,
    Aggregator,
    AggregatorParameter,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    NoisyCounts,
    QueryCosts,
    aggregator_from_parameters,
)
from learning.mechanisms.pate.partition import (
    assign,
    assign_keyed,
    draw_participation,
    participation_costs,
    teacher_seed,
)
from learning.mechanisms.pate.plan import LEFT_OUT, VARIANTS, GroupPlan, Plan, PrivacyGroup, make_plan
from learning.mechanisms.pate.simulation import hold_vote, simulate_vote
from learning.mechanisms.pate.votes import (
    NO_VOTE,
    count_votes,
    group_votes,
    participation_frequencies,
    teacher_weights,
    upsampling_factors,
)
