"""Representations: the coordinates that define neighbours, fitted only on public points.

Every point becomes a few whole numbers of one byte each, by arithmetic that is exact: the numbers of one record do not
depend on any other, nor on blocks, threads or machines. Nothing here imports Django.
"""

from learning.representations.catalogue import (
    REPRESENTATIONS,
    Embedding,
    Encoded,
    Evened,
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
from learning.representations.coordinates import MOST_COMPONENTS
from learning.representations.network import layers_of, layers_of_model
from learning.representations.representation import FittedRepresentation, Representation
from learning.representations.storage import LinearModel, representation_load, representation_save

__all__ = [
    "MOST_COMPONENTS",
    "REPRESENTATIONS",
    "Embedding",
    "Encoded",
    "Evened",
    "FittedRepresentation",
    "LearnedNetwork",
    "LinearModel",
    "Patches",
    "Representation",
    "Standardised",
    "StudentLayer",
    "Thresholds",
    "Wavelets",
    "Whitened",
    "Words",
    "default_representation",
    "layers_of",
    "layers_of_model",
    "representation_create",
    "representation_load",
    "representation_save",
]
