"""Representations: the coordinates that define neighbours, fitted only on public points.

Every point is converted to a few integers of one byte each, by exact arithmetic. The coordinates of a record therefore
do not depend on other records, blocks, threads or machines. Does not import Django.
"""

from learning.representations.catalogue import (
    REPRESENTATIONS,
    Embedding,
    Encoded,
    Evened,
    Interactions,
    LearnedNetwork,
    Patches,
    Standardised,
    StudentLayer,
    Thresholds,
    Wavelets,
    Whitened,
    Words,
    default_representation,
    representation_create,
)
from learning.representations.coordinates import MOST_COMPONENTS, numeric_columns
from learning.representations.network import layers_of_model
from learning.representations.representation import FittedRepresentation, Representation
from learning.representations.storage import LinearModel, representation_load, representation_save
