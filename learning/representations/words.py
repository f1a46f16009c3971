"""Words and word parts of texts, hashed, weighted by their rarity in public texts, and reduced in dimension.

A text's parts are its runs of 3 to 5 bytes, its words and its pairs of words. They are found by arithmetic on the bytes
(ASCII capitals are treated as lower-case letters). Each part is assigned to one of `BUCKETS` buckets (feature hashing,
Weinberger et al. 2009). Buckets are weighted by their inverse frequency in the public texts, and every text is scaled
to length 1. The weighted buckets are projected onto the first singular vectors of the public texts (latent semantic
analysis, Deerwester et al. 1990). All sums are of integers (`learning.exact_arithmetic`), so texts do not affect each
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from learning.exact_arithmetic import Floats
from learning.representations.coordinates import Arrays

if TYPE_CHECKING:
    from learning.exports.graph import Graph

BUCKETS = 8192
_RUNS = (3, 4, 5)  # lengths in bytes
_LETTERS = 12  # number of letters after which the rest of a word is ignored
_BASE = 257
_PRIME = 2**31 - 1
_FACTORS = (1_000_003, 998_244_353, 754_974_721, 167_772_161, 469_762_049)  # one for each kind of part
_WEIGHT = 2.0**12  # steps per unit of a weight; the squares of all buckets add up to less than 2⁵³
_ENTRY = 2.0**20  # scale of the integer matrix
_SCALE = 2.0**16  # steps per unit of a feature
_NUMBERS = 1 << 20  # bytes of texts processed at a time
_ROUNDS = 7  # rounds of the randomised singular value decomposition

Integers = NDArray[np.int64]


class WordEncoder:
    """Encoder of texts (UTF-8 bytes `(n, length)`, padded with 0) by their words and word parts.

    Encoders are created by `fit`.

    Args:
        weights: `(BUCKETS,)` integers.
        matrix: `(BUCKETS, components)` integers that include the weights.
        power: Scale of the matrix.

    >>> texts = np.array([list(b"so what"), list(b"so that"), list(b"go what")], np.uint8)
    >>> WordEncoder.fit(texts, components=2, seed=1).encode(texts).shape
    (3, 2)
    """

    kind: ClassVar[str] = "words"

    def __init__(self, shape: tuple[int, ...], weights: Floats, matrix: Floats, power: float) -> None:
        self.shape, self._weights, self._matrix, self._power = shape, weights, matrix, power
        self.units = np.full(matrix.shape[1], 1.0 / _SCALE)
        self.bound = 2.0 * _SCALE

    @classmethod
    def fit(cls, public: NDArray[Any], *, components: int, seed: int) -> WordEncoder:
        """Count the public texts that contain each part, and find the directions in which these texts differ most."""
        from sklearn.utils.extmath import randomized_svd

        if public.ndim != 2:
            raise ValueError("These points are not texts: choose another representation.")
        presence = _presence(public)
        frequency = np.asarray(presence.sum(axis=0)).ravel()
        weights = np.rint(_WEIGHT * np.log((1 + len(public)) / np.maximum(frequency, 1.0)) / np.log(1 + len(public)))
        weights[frequency == 0] = 0
        norms = np.sqrt(np.maximum(presence @ weights**2, 1.0))
        weighed = csr_array(presence.multiply(weights).multiply(1 / norms[:, None]))
        most = min(components, len(public) - 1, BUCKETS - 1)
        _left, lengths, directions = randomized_svd(weighed, most, n_iter=_ROUNDS, random_state=seed)
        rank = max(1, int((lengths > lengths[0] * 1e-6).sum()))
        plain = directions[:rank].T * weights[:, None]
        power = _ENTRY / (np.abs(plain).max() or 1.0)
        return cls(public.shape[1:], weights, np.rint(plain * power), power)

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> WordEncoder:
        matrix = state["matrix"].astype(np.float64)
        return cls(tuple(state["shape"].tolist()), state["weights"], matrix, float(state["power"]))

    def encode(self, points: NDArray[Any]) -> Floats:
        presence = _presence(points)
        norms = np.sqrt(np.maximum(presence @ self._weights**2, 1.0))
        features = (presence @ self._matrix) / (norms * self._power)[:, None] * _SCALE
        return np.clip(np.rint(features), -self.bound, self.bound)

    def to_graph(self, graph: Graph, points: str) -> str:
        presence = graph.as_double(_presence_in_graph(graph, points))
        squares = graph.node("MatMul", presence, graph.constant(self._weights[:, None] ** 2))
        norms = graph.node("Sqrt", graph.node("Max", squares, graph.constant(1.0)))
        matrix = graph.as_double(graph.constant(self._matrix.astype(np.float32)))
        scaled = graph.node("Mul", norms, graph.constant(self._power))
        features = graph.node("Div", graph.node("MatMul", presence, matrix), scaled)
        return graph.rounded(graph.node("Mul", features, graph.constant(_SCALE)), self.bound)

    def state(self) -> Arrays:
        return {
            "shape": np.array(self.shape),
            "weights": self._weights,
            "matrix": self._matrix.astype(np.float32),  # integers below 2²⁴
            "power": np.array(self._power),
        }


def _presence(points: NDArray[Any]) -> csr_array:
    """Return `(n, BUCKETS)`: 1 for each bucket that contains a part of the text, otherwise 0."""
    length = points.shape[1]
    step = max(1, _NUMBERS // length)
    parts = [_buckets(points[start : start + step]) for start in range(0, len(points), step)]
    rows, columns = [], []
    for number, part in enumerate(parts):
        row, place = np.nonzero(part < BUCKETS)
        rows.append(row + number * step)
        columns.append(part[row, place])
    row, column = (np.concatenate([np.zeros(0, np.int64), *each]) for each in (rows, columns))
    # np.unique hashes integers, which takes many times as long as sorting them.
    pairs = np.sort(row * BUCKETS + column)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    ones = np.ones(len(pairs))
    return csr_array((ones, (pairs // BUCKETS, pairs % BUCKETS)), shape=(len(points), BUCKETS))


def _buckets(points: NDArray[Any]) -> Integers:
    """Return the buckets `(n, parts)` of all parts of texts, with `BUCKETS` for missing parts."""
    text = np.asarray(points).astype(np.int64)
    text = text + 32 * ((text >= 65) & (text <= 90))
    padded = np.pad(text, ((0, 0), (0, _LETTERS)))
    length = text.shape[1]
    buckets = []
    for run, factor in zip(_RUNS, _FACTORS, strict=False):
        value = sum(padded[:, place : place + length] * _BASE**place for place in range(run))
        buckets.append(_bucket(value % _PRIME, factor, padded[:, run - 1 : run - 1 + length] > 0))
    inside = _of_word(padded)
    starts = inside[:, :length] & ~np.pad(inside, ((0, 0), (1, 0)))[:, :length]
    value, alive = np.ones_like(text), starts
    for place in range(_LETTERS):
        alive = alive & inside[:, place : place + length]
        value = np.where(alive, (value * _BASE + padded[:, place : place + length]) % _PRIME, value)
    buckets.append(_bucket(value, _FACTORS[3], starts))
    most = length // 2 + 2
    words = np.zeros((len(text), most), np.int64)
    rows, places = np.nonzero(starts)
    words[rows, np.cumsum(starts, axis=1)[rows, places] - 1] = value[rows, places] + 1
    pairs = (words[:, :-1] * _BASE + words[:, 1:]) % _PRIME
    buckets.append(_bucket(pairs, _FACTORS[4], words[:, 1:] > 0))
    return np.concatenate(buckets, axis=1)


def _of_word(text: Integers) -> NDArray[np.bool_]:
    """Return a mask of the bytes that are letters or digits; all non-ASCII bytes are treated as letters."""
    return ((text >= 97) & (text <= 122)) | ((text >= 48) & (text <= 57)) | (text >= 128)


def _bucket(values: Integers, factor: int, there: NDArray[np.bool_]) -> Integers:
    return np.where(there, values * factor % _PRIME % BUCKETS, BUCKETS)


class _Whole:
    """Integer arithmetic as nodes of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def number(self, value: int) -> str:
        return self.graph.constant(np.int64(value))

    def times(self, values: str, factor: int) -> str:
        return self.graph.node("Mul", values, self.number(factor))

    def modulo(self, values: str, divisor: int) -> str:
        return self.graph.node("Mod", values, self.number(divisor))

    def above(self, values: str, limit: int) -> str:
        return self.graph.node("Greater", values, self.number(limit))

    def between(self, values: str, least: int, most: int) -> str:
        low = self.above(values, least - 1)
        return self.graph.node("And", low, self.graph.node("Less", values, self.number(most + 1)))

    def columns(self, values: str, start: int, stop: int) -> str:
        limits = (self.graph.constant(np.array([each])) for each in (start, stop, 1))
        return self.graph.node("Slice", values, *limits)

    def padded(self, values: str, before: int, after: int) -> str:
        return self.graph.node("Pad", values, self.graph.constant(np.array([0, before, 0, after])), self.number(0))

    def bucket(self, values: str, factor: int, there: str) -> str:
        place = self.modulo(self.modulo(self.times(values, factor), _PRIME), BUCKETS)
        return self.graph.node("Where", there, place, self.number(BUCKETS))


def _presence_in_graph(graph: Graph, points: str) -> str:
    """Add the nodes of `_presence`, float `(rows, BUCKETS)`, for texts `(rows, length)` of any length."""
    from learning.exports.graph import FLOAT, INT64

    whole = _Whole(graph)
    text = graph.cast(points, INT64)
    capitals = graph.cast(whole.between(text, 65, 90), INT64)
    text = graph.node("Add", text, whole.times(capitals, 32))
    padded, end = whole.padded(text, 0, _LETTERS), np.iinfo(np.int64).max

    def shifted(values: str, place: int) -> str:
        return whole.columns(values, place, place - _LETTERS) if place < _LETTERS else whole.columns(values, place, end)

    columns = []
    for run, factor in zip(_RUNS, _FACTORS, strict=False):
        value = shifted(padded, 0)
        for place in range(1, run):
            value = graph.node("Add", value, whole.times(shifted(padded, place), _BASE**place))
        there = whole.above(shifted(padded, run - 1), 0)
        columns.append(whole.bucket(whole.modulo(value, _PRIME), factor, there))
    letters = graph.node("Or", whole.between(padded, 97, 122), whole.between(padded, 48, 57))
    inside = graph.cast(graph.node("Or", letters, whole.above(padded, 127)), INT64)
    before = whole.columns(whole.padded(inside, 1, 0), 0, -_LETTERS - 1)
    here = shifted(inside, 0)
    starts = graph.node("Mul", here, graph.node("Sub", whole.number(1), before))
    value, alive = graph.node("Add", whole.times(text, 0), whole.number(1)), starts
    for place in range(_LETTERS):
        alive = graph.node("Mul", alive, shifted(inside, place))
        longer = whole.modulo(graph.node("Add", whole.times(value, _BASE), shifted(padded, place)), _PRIME)
        value = graph.node("Where", whole.above(alive, 0), longer, value)
    is_start = whole.above(starts, 0)
    columns.append(whole.bucket(value, _FACTORS[3], is_start))
    # Words are placed by their number in the text, from 1. Bytes that start no word are placed at 0.
    order = graph.node("Where", is_start, graph.node("CumSum", starts, whole.number(1)), whole.number(0))
    named = graph.node("Where", is_start, graph.node("Add", value, whole.number(1)), whole.number(0))
    places = whole.times(whole.padded(text, 1, 1), 0)
    words = graph.node("ScatterElements", places, order, named, axis=1, reduction="max")
    first, second = whole.columns(words, 1, -1), whole.columns(words, 2, end)
    pairs = whole.modulo(graph.node("Add", whole.times(first, _BASE), second), _PRIME)
    columns.append(whole.bucket(pairs, _FACTORS[4], whole.above(second, 0)))
    buckets = graph.node("Concat", *columns, axis=1)
    rows = graph.node("Shape", buckets, start=0, end=1)
    shape = graph.node("Concat", rows, graph.constant(np.array([BUCKETS + 1])), axis=0)
    nothing = graph.node("Expand", graph.constant(np.float32(0)), shape)
    ones = graph.node("Expand", graph.constant(np.float32(1)), graph.node("Shape", buckets))
    there = graph.node("ScatterElements", nothing, buckets, graph.cast(ones, FLOAT), axis=1, reduction="max")
    return whole.columns(there, 0, BUCKETS)
