"""Learners: parameters fixed at construction, and a method ``fit`` that returns a model.

Learners do not deal with privacy, so a learner can be a teacher or a student.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from common.progress import Progress, silent
from common.sentences import Sentence, gettext_noop
from learning.formats.rows import as_numbers
from learning.libraries import one_thread, pytorch_check

if TYPE_CHECKING:
    import torch

    from learning.exports.graph import Graph


Records = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

_SEEDS = 2**32


def parameter(
    default: int | float | bool, help: str, *, minimum: float | None = None, maximum: float | None = None
) -> Any:
    """Return a field of a learner. Its type is that of ``default``, and its range includes both ends."""
    return field(default=default, metadata={"help": help, "minimum": minimum, "maximum": maximum})


class Model(ABC):
    """Result of a learner.

    Attributes:
        chosen: Values chosen with held-out releases, by name, for the model card; they are not stored with the model.
    """

    def __init__(self, classes: int, shape: tuple[int, ...]) -> None:
        self.classes, self.shape = classes, shape
        self.chosen: dict[str, float] = {}

    def predict_proba(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Return probabilities ``(n, classes)``; a class missing from the training data has probability 0."""
        x = np.asarray(as_numbers(np.asarray(x)), np.float32)
        if x.shape[1:] != self.shape:
            raise ValueError(f"x contains records of shape {x.shape[1:]}; this model was trained on {self.shape}.")
        if not len(x):
            return np.zeros((0, self.classes))
        with one_thread():
            return self._probabilities(x)

    def predict(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
        """Return the most likely class of each record, ``(n,)``; in a tie, the class with the lowest number."""
        return self.predict_proba(x).argmax(axis=1)

    def inner_modules(self) -> tuple[Any, ...]:
        """Return the PyTorch modules up to the last inner layer, in order; empty if there is no inner layer."""
        return ()

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the model in its learner's format, for `Learner.model_from_bytes`."""

    @abstractmethod
    def to_graph(self, graph: Graph, records: str) -> str:
        """Add nodes that compute probabilities ``(rows, classes)``, as doubles, from float records ``(rows, *shape)``.

        Returns:
            Name of the probabilities.

        Raises:
            ValueError: A layer or the estimator cannot be expressed as nodes.
        """

    @abstractmethod
    def _probabilities(self, x: Records) -> npt.NDArray[np.float64]: ...


@dataclass(frozen=True)
class Parametrised(ABC):
    """Common base class of learners and students. Subclasses are frozen dataclasses with fields made by ``parameter``.

    Attributes:
        name: Key in the registry, the database and the API.
        label: Name on pages, in English, marked for translation.
        help: Purpose in one sentence, marked for translation; may be empty.
        model_format: Format of a stored model, and suffix of its file.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    help: ClassVar[str] = ""
    model_format: ClassVar[str]

    def __post_init__(self) -> None:
        for spec in fields(self):
            parameter_check(spec.name, getattr(self, spec.name), type(spec.default), **spec.metadata)

    def shape_check(self, shape: tuple[int, ...]) -> None:  # noqa: B027  # most learn from records of any shape
        """Raise ValueError if records of this shape cannot be learned from."""

    @classmethod
    @abstractmethod
    def model_from_bytes(cls, data: bytes) -> Model:
        """Return a model of this kind from the result of `Model.to_bytes`.

        Raises:
            ValueError: The bytes are not such a model.
        """


@dataclass(frozen=True)
class Learner(Parametrised):
    """Method of learning from labels."""

    def fit(
        self,
        x: npt.NDArray[np.floating],
        y: npt.NDArray[np.integer],
        *,
        classes: int,
        seed: int,
        progress: Progress | None = None,
    ) -> Model:
        """Learn from records ``x`` ``(n, …)`` with class numbers ``y`` ``(n,)`` in ``0 … classes - 1``.

        ``y`` need not contain every class. ``progress`` is called if learning takes several steps. The same arguments
        give the same model. Raises ValueError if there is nothing to learn from or if the arrays do not match.
        """
        if classes < 1:
            raise ValueError(f"classes must be at least 1, not {classes}.")
        seed_check(seed)
        x, y = _checked(x, y, classes)
        self.shape_check(x.shape[1:])
        with one_thread():
            return self._fit(x, y, classes=classes, seed=seed, progress=progress or silent)

    def quick(self) -> Learner:
        """Return a faster replacement, used to train dozens of models on a few hundred records while a person waits."""
        return self

    @abstractmethod
    def _fit(self, x: Records, y: Labels, *, classes: int, seed: int, progress: Progress) -> Model: ...


def seed_check(seed: int) -> None:
    """Raise ValueError if a seed is out of range."""
    if not 0 <= seed < _SEEDS:
        raise ValueError(f"seed must lie between 0 and {_SEEDS - 1}, not {seed}.")


def _checked(x: npt.NDArray[np.floating], y: npt.NDArray[np.integer], classes: int) -> tuple[Records, Labels]:
    x, y = records_check(x), np.asarray(y)
    if y.shape != (len(x),):
        raise ValueError(f"y has shape {y.shape}; give one class number per record: ({len(x)},).")
    if not np.issubdtype(y.dtype, np.integer):
        raise ValueError(f"y has the type {y.dtype}; give whole class numbers.")
    if y.min() < 0 or y.max() >= classes:
        raise ValueError(f"y contains {y.min()} to {y.max()}; class numbers lie between 0 and {classes - 1}.")
    return x, y.astype(np.int64)


def records_check(x: npt.NDArray[np.floating]) -> Records:
    """Return records in the form used by learners. Raises ValueError if there are none or if a value is not finite."""
    x = np.asarray(as_numbers(np.asarray(x)), np.float32)
    if x.ndim < 2:
        raise ValueError(f"x has {x.ndim} axes; give records of shape (n, features) or (n, height, width).")
    if len(x) == 0:
        raise ValueError("There are no records to learn from: give at least one.")
    if not np.isfinite(x).all():
        raise ValueError("x contains a value that is not finite; remove or replace it first.")
    return x


def parameter_check(
    name: str, value: object, kind: type, *, help: str, minimum: float | None, maximum: float | None
) -> None:
    fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if not fits or (isinstance(value, bool) and kind is not bool):
        words = {int: "a whole number", float: "a number", bool: "true or false"}
        raise ValueError(f"{name} is {value!r}; it must be {words[kind]}.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = -math.inf if minimum is None else minimum, math.inf if maximum is None else maximum
    if not (math.isfinite(value) and low <= value <= high):
        limits = [f"at least {minimum:g}"] if minimum is not None else []
        limits += [f"at most {maximum:g}"] if maximum is not None else []
        raise ValueError(f"{name} is {value:g}; it must be {' and '.join(limits) or 'finite'} ({help}).")


_BATCH = 4096


@dataclass(frozen=True)
class Augmenting:
    """Parameters of learners that can also train on rotated and shifted copies of images."""

    copies: int = parameter(
        0, gettext_noop("rotated and shifted copies of each training image"), minimum=0, maximum=1000
    )
    rotation: float = parameter(7.5, gettext_noop("maximum rotation in degrees"), minimum=0, maximum=180)
    shift: float = parameter(0.07, gettext_noop("maximum shift as a share of the image"), minimum=0, maximum=0.5)

    def shape_check(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError if records with this shape are to be rotated and shifted but are not images."""
        if self.copies and len(shape) not in (2, 3):
            message = gettext_noop(
                "Only images can be rotated and shifted, not records of shape %(shape)s. Turn this option off."
            )
            raise ValueError(Sentence(message, shape=str(shape)))

    def augmented(self, x: Records, y: Labels, seed: int) -> tuple[Records, Labels]:
        """Return the training data, followed by any requested copies."""
        if not self.copies:
            return x, y
        images = augment(x, copies=self.copies, rotation=self.rotation, shift=self.shift, seed=seed)
        return images, np.tile(y, 1 + self.copies)


def augment(
    images: npt.NDArray[np.floating], *, copies: int, rotation: float, shift: float, seed: int
) -> npt.NDArray[np.float32]:
    """Return the images, followed by ``copies`` copies of each, rotated and shifted at random.

    ``images`` is ``(n, height, width)`` or ``(n, height, width, channels)``; the result has ``n * (1 + copies)``
    images. Angles are uniform up to ``rotation`` degrees in either direction, and shifts are uniform up to ``shift`` of
    the image's height and width. Pixels are interpolated linearly, and pixels from outside the image are 0.

    >>> images = np.eye(4)[np.newaxis]
    >>> augmented = augment(images, copies=2, rotation=7.5, shift=0.07, seed=1)
    >>> augmented.shape, bool((augmented[0] == images[0]).all())
    ((3, 4, 4), True)
    """
    pytorch_check()
    import torch

    height, width = images.shape[1:3]
    total = len(images) * copies
    rng = np.random.default_rng(seed)
    angles = torch.from_numpy(np.deg2rad(rng.uniform(-rotation, rotation, total)).astype(np.float32))
    offsets = torch.from_numpy((rng.uniform(-shift, shift, (total, 2)) * (height, width)).astype(np.float32))
    originals = torch.from_numpy(images.astype(np.float32).reshape(*images.shape[:3], -1)).permute(0, 3, 1, 2)
    turned = [originals]
    for start in range(0, total, _BATCH):
        batch = slice(start, start + _BATCH)
        sources = torch.arange(total)[batch] % len(images)
        turned.append(_move(originals[sources], angles[batch], offsets[batch]))
    return torch.cat(turned).permute(0, 2, 3, 1).reshape(-1, *images.shape[1:]).numpy()


def _move(images: torch.Tensor, angles: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Rotate every image of `(n, channels, height, width)` about its centre, then shift it.

    Each pixel of the result is read from its position before the move, in coordinates from -1 to 1.
    """
    import torch
    from torch.nn import functional

    height, width = images.shape[2:]
    cos, sin, (down, right) = torch.cos(angles), torch.sin(angles), offsets.T
    across = [cos, sin * height / width, -(sin * down + cos * right) * 2 / width]
    up = [-sin * width / height, cos, -(cos * down - sin * right) * 2 / height]
    maps = torch.stack([torch.stack(across, 1), torch.stack(up, 1)], 1)
    return functional.grid_sample(
        images, functional.affine_grid(maps, list(images.shape), align_corners=False), align_corners=False
    )
