"""Representations available to a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from common.sentences import Sentence, gettext_noop
from learning.learners.learner import parameter
from learning.libraries import pytorch_check
from learning.representations.coordinates import (
    MOST_COMPONENTS,
    ClippedColumnEncoder,
    ColumnEncoder,
    Coordinates,
    InteractionEncoder,
    JoinedEncoder,
    PointEncoder,
    ThresholdEncoder,
    evening_matrix,
    numeric_columns,
    standardising_matrix,
    whitening_matrix,
)
from learning.representations.images import PatchEncoder, WaveletEncoder
from learning.representations.network import Layer, NetworkEncoder
from learning.representations.representation import Representation
from learning.representations.words import WordEncoder

_COMPONENTS = gettext_noop("maximum number of coordinates")
_EXPONENT = gettext_noop("how much to whiten: 1 gives all directions the same spread, 0 leaves them unchanged")
_FLOOR = gettext_noop("smallest variance to keep, as a share of the largest")
_COSINE = gettext_noop("compare directions instead of positions")
_SEED = gettext_noop("random seed")


def _exponent(default: float) -> float:
    return parameter(default, _EXPONENT, minimum=0.0, maximum=2.0)


def _floor(default: float) -> float:
    return parameter(default, _FLOOR, minimum=1e-9, maximum=1.0)


def _components(default: int) -> int:
    return parameter(default, _COMPONENTS, minimum=1, maximum=MOST_COMPONENTS)


@dataclass(frozen=True)
class Standardised(Representation):
    """Columns, centred and divided by the public points' standard deviations.

    >>> points = np.random.default_rng(0).random((50, 3))
    >>> Standardised().fit(points).transform(points).shape
    (50, 3)
    """

    name: ClassVar[str] = "standardised"
    label: ClassVar[str] = gettext_noop("Standardised columns")
    exponent: float = _exponent(1.0)
    floor: float = _floor(0.01)
    cosine: bool = parameter(False, _COSINE)

    def sentence(self) -> Sentence:
        return Sentence(gettext_noop("The columns, standardised with the public points."))

    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder:
        return ColumnEncoder.fit(public)

    def _coordinates(self, encoder: PointEncoder, features: NDArray[np.float64]) -> Coordinates:
        matrix = standardising_matrix(features, encoder.units, exponent=self.exponent, floor=self.floor)
        if matrix.shape[1] == 0:
            raise ValueError("All public points are equal: give different ones.")
        if matrix.shape[1] > MOST_COMPONENTS:
            raise ValueError(
                f"There are {matrix.shape[1]} columns, but at most {MOST_COMPONENTS} can be compared: choose whitened "
                "columns."
            )
        return _fitted(encoder, features, matrix, self.cosine)


@dataclass(frozen=True)
class Thresholds(Standardised):
    """Standardised columns, with flags that show which public thresholds a column of more than two values exceeds.

    A linear model on these features can follow curves, because the flags form a step function for each column.

    >>> points = np.random.default_rng(0).random((50, 3))
    >>> Thresholds(thresholds=4).fit(points).transform(points).shape
    (50, 15)
    """

    name: ClassVar[str] = "thresholds"
    label: ClassVar[str] = gettext_noop("Standardised columns with thresholds")
    thresholds: int = parameter(
        16, gettext_noop("maximum number of thresholds per column"), minimum=1, maximum=MOST_COMPONENTS
    )

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop(
                "The columns, standardised with the public points, and for each number, which of up to "
                "%(thresholds)d public thresholds it exceeds."
            ),
            thresholds=self.thresholds,
        )

    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder:
        columns = ColumnEncoder.fit(public)
        room = max(0, MOST_COMPONENTS - len(columns.units))
        return JoinedEncoder(columns, ThresholdEncoder.fit(public, self.thresholds, room))


@dataclass(frozen=True)
class Evened(Representation):
    """Clipped columns and the thresholds they exceed, whitened with the public points; small variances stay small.

    >>> points = np.random.default_rng(0).random((50, 3))
    >>> Evened(thresholds=4).fit(points).transform(points).shape
    (50, 15)
    """

    name: ClassVar[str] = "evened"
    label: ClassVar[str] = gettext_noop("Whitened columns with thresholds")
    thresholds: int = parameter(
        32, gettext_noop("maximum number of thresholds per column"), minimum=1, maximum=MOST_COMPONENTS
    )
    together: int = parameter(
        MOST_COMPONENTS,
        gettext_noop("maximum number of thresholds across all columns"),
        minimum=1,
        maximum=MOST_COMPONENTS,
    )
    floor: float = parameter(0.1, gettext_noop("number added to every variance"), minimum=1e-6, maximum=1e6)

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop(
                "The columns, clipped at quantiles of the public points, and for each number, which of up to "
                "%(thresholds)d public thresholds it exceeds. All of these are whitened with the public points."
            ),
            thresholds=self.thresholds,
        )

    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder:
        columns = ClippedColumnEncoder.fit(public)
        room = min(self.together, max(0, MOST_COMPONENTS - len(columns.units)))
        return JoinedEncoder(columns, ThresholdEncoder.fit(public, self.thresholds, room))

    def _coordinates(self, encoder: PointEncoder, features: NDArray[np.float64]) -> Coordinates:
        return _fitted(encoder, features, evening_matrix(features, encoder.units, floor=self.floor), cosine=False)


@dataclass(frozen=True)
class Interactions(Evened):
    """Columns and thresholds of `Evened`, with random cosines of several columns, whitened together.

    There are as many coordinates as `Evened` would have. As the cosines have a small spread, they replace only
    directions in which columns and thresholds hardly vary.

    >>> points = np.random.default_rng(0).random((50, 3))
    >>> Interactions(thresholds=4, features=20).fit(points).transform(points).shape
    (50, 15)
    """

    name: ClassVar[str] = "interactions"
    label: ClassVar[str] = gettext_noop("Whitened columns with thresholds and interactions")
    features: int = parameter(512, gettext_noop("number of random cosine functions"), minimum=1, maximum=4096)
    frequency: float = parameter(
        0.7,
        gettext_noop("standard deviation of the random weights that a cosine function gives to the columns' ranks"),
        minimum=0.01,
        maximum=100.0,
    )
    spread: float = parameter(
        0.2, gettext_noop("standard deviation of each cosine function's values"), minimum=0.001, maximum=100.0
    )
    seed: int = parameter(1, _SEED, minimum=0, maximum=2**31 - 1)

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop(
                "The columns, clipped at quantiles of the public points; for each number, which of at most "
                "%(thresholds)d public thresholds it exceeds; and %(features)d random functions of all numbers "
                "together, which capture interactions. All of these are whitened with the public points."
            ),
            thresholds=self.thresholds,
            features=self.features,
        )

    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder:
        alone = super()._encoder(public)
        assert isinstance(alone, JoinedEncoder)
        if len(numeric_columns(public)) < 2:
            return alone
        together = InteractionEncoder.fit(public, self.features, frequency=self.frequency, seed=self.seed)
        return JoinedEncoder(*alone.parts, together)

    def _coordinates(self, encoder: PointEncoder, features: NDArray[np.float64]) -> Coordinates:
        assert isinstance(encoder, JoinedEncoder)
        last = encoder.parts[-1]
        together = len(last.units) if isinstance(last, InteractionEncoder) else 0
        alone = features.shape[1] - together
        spreads = np.repeat([1.0, self.spread], [alone, together])
        matrix = evening_matrix(features, encoder.units, floor=self.floor, spreads=spreads, most=alone)
        return _fitted(encoder, features, matrix, cosine=False)


@dataclass(frozen=True)
class Whitened(Representation):
    """Whitened principal components of columns (or pixels), learned from the public points without labels.

    >>> points = np.random.default_rng(0).random((50, 3))
    >>> Whitened(components=2).fit(points).transform(points).shape
    (50, 2)
    """

    name: ClassVar[str] = "whitened"
    label: ClassVar[str] = gettext_noop("Whitened columns")
    components: int = _components(64)
    exponent: float = _exponent(1.0)
    floor: float = _floor(0.01)
    cosine: bool = parameter(False, _COSINE)

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop("Up to %(components)d whitened principal components of the public points."),
            components=self.components,
        )

    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder:
        return ColumnEncoder.fit(public)

    def _coordinates(self, encoder: PointEncoder, features: NDArray[np.float64]) -> Coordinates:
        matrix = whitening_matrix(
            features, encoder.units, components=self.components, exponent=self.exponent, floor=self.floor
        )
        return _fitted(encoder, features, matrix, self.cosine)


@dataclass(frozen=True)
class Wavelets(Whitened):
    """Oriented wavelets of images, whitened by the public points' covariance.

    >>> images = np.random.default_rng(0).random((320, 8, 8))
    >>> Wavelets().fit(images).transform(images).shape  # a component for every 20 public points
    (320, 16)
    """

    name: ClassVar[str] = "wavelets"
    label: ClassVar[str] = gettext_noop("Oriented wavelets")
    images: ClassVar[bool] = True
    components: int = _components(96)
    floor: float = _floor(0.003)
    cosine: bool = parameter(True, _COSINE)

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop(
                "The brightness of each part of the image, and the strength of its lines in eight directions and two "
                "widths. Reduced to at most %(components)d whitened principal components of the public points."
            ),
            components=self.components,
        )

    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder:
        return WaveletEncoder(public.shape[1:])


@dataclass(frozen=True)
class Patches(Whitened):
    """Similarities of an image's parts to public patches, whitened by the public points' covariance.

    >>> images = np.random.default_rng(0).random((320, 8, 8, 3))
    >>> Patches(filters=20).fit(images).transform(images).shape  # a component for every 20 public points
    (320, 16)
    """

    name: ClassVar[str] = "patches"
    label: ClassVar[str] = gettext_noop("Whitened patches")
    images: ClassVar[bool] = True
    components: int = _components(256)
    floor: float = _floor(0.01)
    cosine: bool = parameter(True, _COSINE)
    filters: int = parameter(200, gettext_noop("number of public patches"), minimum=1, maximum=1000)
    threshold: float = parameter(
        0.25,
        gettext_noop("number subtracted from each similarity; negative results are set to 0"),
        minimum=0.0,
        maximum=10.0,
    )
    seed: int = parameter(1, _SEED, minimum=0, maximum=2**31 - 1)

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop(
                "The similarity of each part of the image, including its colours, to at most %(filters)d small "
                "patches of public images and to the negatives of these patches. Reduced to at most %(components)d "
                "whitened principal components of the public points."
            ),
            filters=self.filters,
            components=self.components,
        )

    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder:
        return PatchEncoder.fit(public, filters=self.filters, threshold=self.threshold, seed=self.seed)


@dataclass(frozen=True)
class Embedding(Whitened):
    """Columns that already form an embedding, centred and optionally whitened.

    >>> points = np.random.default_rng(0).normal(size=(50, 3))
    >>> Embedding().fit(points).transform(points).shape
    (50, 3)
    """

    name: ClassVar[str] = "embedding"
    label: ClassVar[str] = gettext_noop("Embedding columns")
    statement: ClassVar[str] = gettext_noop("The embedding was made without the private data.")
    components: int = _components(256)
    exponent: float = _exponent(0.0)
    cosine: bool = parameter(True, _COSINE)

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop(
                "The columns of an embedding. The operator confirmed that it was made without the private data."
            )
        )


@dataclass(frozen=True)
class Encoded(Embedding):
    """Partly whitened vectors from an encoder that, according to its uploader, was made without the private data.

    >>> points = np.random.default_rng(0).normal(size=(50, 3))
    >>> Encoded().fit(points).transform(points).shape  # one component per 20 public points
    (50, 2)
    """

    name: ClassVar[str] = "encoder"
    label: ClassVar[str] = gettext_noop("Vectors of an encoder")
    statement: ClassVar[str] = ""
    encoded: ClassVar[bool] = True
    exponent: float = _exponent(0.5)

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop(
                "Vectors of an encoder, reduced to at most %(components)d principal components of the public points "
                "and partly whitened. The person who registered the encoder confirmed that it was made without the "
                "private data."
            ),
            components=self.components,
        )


@dataclass(frozen=True)
class LearnedNetwork(Whitened):
    """Whitened inner layer of a small network trained on the public points without labels.

    >>> images = np.random.default_rng(0).random((60, 8, 8))
    >>> LearnedNetwork(steps=2).fit(images).transform(images).shape  # a component for every 20 public points
    (60, 3)
    """

    name: ClassVar[str] = "learned"
    label: ClassVar[str] = gettext_noop("Embedding learned from unlabelled public points")
    costly: ClassVar[bool] = True
    exponent: float = _exponent(0.5)
    cosine: bool = parameter(True, _COSINE)
    steps: int = parameter(300, gettext_noop("number of batches of 256 pairs each"), minimum=1, maximum=100_000)
    neighbours: int = parameter(
        5, gettext_noop("number of nearest points that a point's partner is drawn from"), minimum=1, maximum=1000
    )
    seed: int = parameter(1, _SEED, minimum=0, maximum=2**31 - 1)

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop(
                "The inner layer of a small network that has learned from the unlabelled public points which of them "
                "are similar. Reduced to at most %(components)d whitened principal components of the public points."
            ),
            components=self.components,
        )

    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder:
        pytorch_check()
        from learning.representations.contrastive import contrastive_layers  # PyTorch is loaded only when needed

        near = default_representation(public.shape[1:]).fit(public).transform(public)
        layers = contrastive_layers(public, near, steps=self.steps, neighbours=self.neighbours, seed=self.seed)
        return NetworkEncoder.fit(layers, public)


@dataclass(frozen=True)
class Words(Whitened):
    """Words and word parts in texts, weighted by their rarity in the public texts and reduced to fewer dimensions.

    >>> texts = np.random.default_rng(0).integers(97, 100, (60, 20)).astype(np.uint8)
    >>> Words().fit(texts).transform(texts).shape
    (60, 59)
    """

    name: ClassVar[str] = "words"
    label: ClassVar[str] = gettext_noop("Words and parts of words")
    texts: ClassVar[bool] = True
    components: int = _components(256)
    exponent: float = _exponent(0.0)
    cosine: bool = parameter(True, _COSINE)
    seed: int = parameter(1, _SEED, minimum=0, maximum=2**31 - 1)

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop(
                "Words, pairs of words and parts of words, weighted by how rare they are in the public texts and "
                "reduced to at most %(components)d principal components."
            ),
            components=self.components,
        )

    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder:
        return WordEncoder.fit(public, components=self.components, seed=self.seed)


@dataclass(frozen=True)
class StudentLayer(Whitened):
    """Whitened inner layer of an earlier round's student, optionally with the oriented wavelets of images.

    The student learned only from releases, so its layers are public.

    Attributes:
        layers: See `layers_of`, up to the inner layer.
    """

    name: ClassVar[str] = "student"
    label: ClassVar[str] = gettext_noop("Student's inner layer")
    cosine: bool = parameter(True, _COSINE)
    wavelets: bool = parameter(False, gettext_noop("use the image's oriented wavelets as well"))
    layers: tuple[Layer, ...] = field(default=(), repr=False)

    def sentence(self) -> Sentence:
        return Sentence(
            gettext_noop(
                "The output of the previous student's inner layer for each point. Reduced to at most %(components)d "
                "whitened principal components of the public points."
            ),
            components=self.components,
        )

    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder:
        if not self.layers:
            raise ValueError("There is no student yet: choose another representation for the first round.")
        network = NetworkEncoder.fit(self.layers, public)
        return JoinedEncoder(network, WaveletEncoder(public.shape[1:])) if self.wavelets else network


def _fitted(
    encoder: PointEncoder, features: NDArray[np.float64], matrix: NDArray[np.float64], cosine: bool
) -> Coordinates:
    return Coordinates.fit(
        features, matrix, features.mean(axis=0), bound=encoder.bound, metric="cosine" if cosine else "euclidean"
    )


REPRESENTATIONS: dict[str, type[Representation]] = {
    representation.name: representation
    for representation in (
        Standardised,
        Thresholds,
        Evened,
        Interactions,
        Whitened,
        Wavelets,
        Patches,
        Embedding,
        Encoded,
        LearnedNetwork,
        Words,
        StudentLayer,
    )
}


def representation_create(name: str, parameters: Mapping[str, Any] | None = None) -> Representation:
    """Return the representation with these parameters and defaults for all other parameters.

    Raises:
        ValueError: The representation or a parameter is unknown, or a parameter is out of range.

    >>> representation_create("wavelets", {"components": 32}).components
    32
    """
    if name not in REPRESENTATIONS:
        raise ValueError(f"There is no representation {name!r}: choose one of {', '.join(REPRESENTATIONS)}.")
    known = REPRESENTATIONS[name]().parameters()
    if unknown := sorted(set(parameters or {}) - set(known)):
        raise ValueError(f"{name} has no parameter {', '.join(unknown)}; it has: {', '.join(known)}.")
    return REPRESENTATIONS[name](**(parameters or {}))


def default_representation(shape: tuple[int, ...]) -> Representation:
    """Return the default for points of this shape: wavelets for images, standardised columns for tables.

    >>> default_representation((28, 28)).name, default_representation((104,)).name
    ('wavelets', 'standardised')
    """
    return Wavelets() if len(shape) > 1 else Standardised()
