"""Schema of a dataset's records, declared publicly once and then used for both files and predictions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from common.declarations import DECLARED, OMITTED, Flag, Number, Text, Texts, Whole
from common.identities import is_inexact
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from common.spreadsheets import is_formula
from learning.formats.columns import (
    CategoricalColumn,
    CodeColumn,
    Column,
    DateColumn,
    Dated,
    FeatureColumn,
    HolderColumn,
    IgnoredColumn,
    LabelColumn,
    NumericColumn,
    TargetColumn,
    TextColumn,
    shown,
)
from learning.formats.combining import OneRecord
from learning.formats.rows import DataError
from learning.formats.values import inexact_fault, key, mapped
from learning.outcomes import AnyTarget, Classes, Outcome, Target

ClassNames = Annotated[Texts, Field(description="Classes to learn, in the order of their numbers from 0.")]
_Plain = TypeVar("_Plain", HolderColumn, LabelColumn)


@dataclass(frozen=True)
class TabularSchema:
    """Records of a table (CSV or Parquet), or of arrays that contain the numbers of encoded records in order.

    Instead of classes, the schema may declare another ``target``; in that case, columns with the role ``target``
    contain its parts.

    Without ``header``, columns are identified by their order. Lines that start with ``comment`` are skipped.
    ``decimal`` is the decimal mark of numbers in files. With ``one_record``, all records of a holder in a file are
    combined into one.

    >>> from learning.formats.columns import CategoricalColumn, NumericColumn
    >>> schema = TabularSchema((NumericColumn("age", 0, 100), CategoricalColumn("sex", ("f", "m"))), ("no", "yes"))
    >>> schema.encode([{"age": 50, "sex": "m"}]).tolist(), schema.shape
    ([[0.5, 0.0, 1.0]], (3,))
    """

    __pydantic_config__ = DECLARED
    kind: Literal["table"] = field(default="table", kw_only=True, repr=False)
    target: Annotated[
        AnyTarget | None,
        OMITTED,
        Field(description="Target to learn instead of classes, which are then empty."),
    ] = field(default=None, kw_only=True)
    columns: Annotated[tuple[Column, ...], Field(description="Columns; in the order of the file if it has no header.")]
    classes: ClassNames
    delimiter: Text = ","
    header: Flag = True
    comment: Annotated[Text, Field(description="Lines that start with this are skipped.")] = ""
    decimal: Annotated[Text, Field(description="Decimal mark: a point or a comma.")] = "."
    one_record: Annotated[
        OneRecord | None, OMITTED, Field(description="How all of a holder's records in a file are combined into one.")
    ] = None

    def __post_init__(self) -> None:
        self._check_target()
        names = [column.name for column in self.columns]
        for name in names:
            if names.count(name) > 1:
                raise DataError(_("The column is declared twice."), _("Declare every column once."), column=name)
        for kind, word in ((HolderColumn, "holder"), (LabelColumn, "label")):
            if sum(isinstance(column, kind) for column in self.columns) > 1:
                problem = Sentence(_("Two columns have the role “%(role)s”."), role=word)
                raise DataError(problem, _("Give this role to only one column."))
        if not self.features:
            raise DataError(_("No column has the role “feature”."), _("Declare at least one column with this role."))
        for name, count in Counter(self.feature_names).items():
            if count > 1:
                problem = Sentence(_("Two numbers in the same record are both named “%(name)s”."), name=shown(name))
                raise DataError(problem, _("Rename one of the columns, or one of its values."))
        if self.text is not None and len(self.features) > 1:
            text = _("The schema has a text column and another column to learn from.")
            raise DataError(text, _("Ignore either the texts or the other columns."), column=self.text.name)
        if len(self.delimiter) != 1:
            problem = Sentence(
                _("The delimiter %(delimiter)s is not a single character."), delimiter=repr(self.delimiter)
            )
            raise DataError(problem, _("Declare a single character, such as a comma."))
        if self.decimal not in (".", ",") or self.decimal == self.delimiter:
            problem = Sentence(
                _("The decimal mark %(mark)s must be a point or a comma, and must differ from the delimiter."),
                mark=repr(self.decimal),
            )
            raise DataError(problem, _("Declare the decimal mark that the file uses."))
        for dated in self.dates:
            if (reference := dated.reference_column) is not None and reference not in self._may_be_dates:
                text = _("Dates are counted from “%(name)s”, which is not a date column.")
                remedy = _(
                    "Enter the name of a column that is ignored or contains dates, or a date such as 2026-01-01."
                )
                raise DataError(Sentence(text, name=reference), remedy, column=dated.name)
        if self.one_record is not None:
            if self.holder is None or self.text is not None:
                text = _(
                    "The schema combines each person's records into one, but it has no pseudonym column, or the "
                    "records are texts."
                )
                raise DataError(text, _("Declare a pseudonym column and no text columns, or leave out “one_record”."))
            self.one_record.check({column.name: column for column in self.columns})
        if self.label and self.target is None:
            for _written, meant in self.label.spellings:
                if meant not in self.classes:
                    problem = Sentence(_("The label map contains “%(name)s”, which is not a class."), name=meant)
                    remedy = Sentence(_("Use one of: %(names)s."), names=", ".join(self.classes))
                    raise DataError(problem, remedy, column=self.label.name)

    def _check_target(self) -> None:
        if self.target is None:
            _check_classes(self.classes)
            if self.targets:
                problem = _("The column has the role “target”, but the schema declares classes.")
                raise DataError(problem, _("Give the column the role “label”."), column=self.targets[0].name)
            return
        if self.classes or self.label:
            problem = _("The schema declares both classes and another target.")
            raise DataError(problem, _("Leave out the classes and the column with the role “label”."))
        parts = [column.part for column in self.targets]
        for column in self.targets:
            if column.part not in self.target.parts or parts.count(column.part) > 1:
                problem = Sentence(_("The target has no part “%(part)s”, or two columns contain it."), part=column.part)
                remedy = Sentence(_("Use each of these once: %(names)s."), names=", ".join(self.target.parts))
                raise DataError(problem, remedy, column=column.name)

    @property
    def targets(self) -> tuple[TargetColumn, ...]:
        return tuple(column for column in self.columns if isinstance(column, TargetColumn))

    @property
    def outcome(self) -> Outcome:
        return Classes(self.classes) if self.target is None else self.target

    @property
    def answers(self) -> tuple[LabelColumn | TargetColumn, ...]:
        """Columns with the outcome to learn; empty if the schema's files cannot contain it."""
        if self.target is None:
            return (self.label,) if self.label else ()
        return self.targets if len(self.targets) == len(self.target.parts) else ()

    @cached_property
    def features(self) -> tuple[FeatureColumn, ...]:
        return tuple(column for column in self.columns if column.role == "feature" or column.role == "text")

    @property
    def dates(self) -> tuple[Dated, ...]:
        return tuple(column for column in self.columns if isinstance(column, Dated) and column.reference)

    @property
    def _may_be_dates(self) -> set[str]:
        return {column.name for column in self.columns if isinstance(column, DateColumn | IgnoredColumn)}

    @property
    def text(self) -> TextColumn | None:
        """Text column to learn from; None if records are numeric."""
        return next((column for column in self.columns if isinstance(column, TextColumn)), None)

    @property
    def label(self) -> LabelColumn | None:
        return self._only(LabelColumn)

    @property
    def holder(self) -> HolderColumn | None:
        return self._only(HolderColumn)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the numbers of an encoded record."""
        return tuple(name for column in self.features for name in column.features)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.feature_names) if self.text is None else self.text.length,)

    @property
    def dtype(self) -> type[np.float32] | type[np.uint8]:
        """Type of encoded records; texts are bytes."""
        return np.float32 if self.text is None else np.uint8

    def encode(self, rows: Iterable[Mapping[str, object]]) -> npt.NDArray[Any]:
        """Encode records that are dictionaries by column name, such as JSON objects or lines of a file.

        Returns:
            Features in [0, 1], shape (n, features); for texts, their bytes (see `Rows`).

        Raises:
            DataError: A record is invalid; the error has its number, counted from 1, and the column.
        """
        rows = list(rows)
        names = {column.name for column in self.features}
        for place, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                raise DataError("A record is not an object.", "Give one object with a value per column.", row=place)
            if row.keys() != names:
                _check_names(set(row), names, row=place)
        return self.encode_columns({name: [row[name] for row in rows] for name in names}, len(rows))

    def encode_columns(self, values: Mapping[str, Sequence[object]], count: int) -> npt.NDArray[Any]:
        """Encode records given column by column, as they are read from files; this is faster than row by row."""
        if self.text is not None:
            return self.text.encode(values[self.text.name])
        encoded = np.empty((count, len(self.feature_names)), np.float32)
        start = 0
        for column in self.features:
            end = start + len(column.features)
            encoded[:, start:end] = column.encode(values[column.name])
            start = end
        return encoded

    def outside(self, rows: Sequence[Mapping[str, object]]) -> list[list[str]]:
        """Return, for each valid record, the columns whose values lie outside the schema's declaration.

        A number out of range is treated as the nearest end of the range, and an undeclared category as “other”. The
        model has not been trained on such values.
        """
        names: list[list[str]] = [[] for _row in rows]
        for column in self.features:
            for place in np.flatnonzero(column.outside([row[column.name] for row in rows])):
                names[place].append(column.name)
        return names

    @cached_property
    def _class_numbers(self) -> dict[str, int]:
        numbers = {name: number for number, name in enumerate(self.classes)}
        spellings = self.label.spellings if self.label else ()
        return {key(name): numbers[name] for name in self.classes} | {key(each): numbers[to] for each, to in spellings}

    def encode_answers(self, columns: Mapping[str, Sequence[object]]) -> npt.NDArray[np.int64]:
        """Return class numbers, or codes of the target (n,), from the columns of `answers`."""
        if self.target is None:
            assert self.label is not None, "it has an answer"
            return self.encode_labels(columns[self.label.name])
        numbers = {column.part: column.encode(columns[column.name]) for column in self.targets}
        return self.target.coded([numbers[part] for part in self.target.parts])

    def answer_faults(self, columns: Mapping[str, Sequence[object]]) -> Iterator[DataError]:
        """Yield an error for every value in the columns of `answers` that cannot be learned."""
        if self.target is None:
            assert self.label is not None, "it has an answer"
            yield from self.label_faults(columns[self.label.name])
            return
        for column in self.targets:
            wrong = ~self.target.allowed(column.part, column.encode(columns[column.name]))
            for place in np.flatnonzero(wrong).tolist():
                problem = Sentence(
                    _("“%(value)s” is not a value of “%(part)s”."),
                    value=shown(str(columns[column.name][place])),
                    part=column.part,
                )
                yield DataError(problem, self.target.remedy(column.part), row=place + 1, column=column.name)

    def encode_labels(self, values: Sequence[object]) -> npt.NDArray[np.int64]:
        """Return class numbers (n,) for class names or their declared spellings."""
        for fault in self.label_faults(values):
            raise fault
        return mapped(values, lambda value: self._class_numbers[key(value)], np.int64)

    def label_faults(self, values: Sequence[object]) -> Iterator[DataError]:
        """Yield an error for every value that is not a class; ``encode_labels`` raises the first one."""
        written = [name for name, _meant in self.label.spellings] if self.label else []
        remedy = Sentence(_("Use one of: %(names)s."), names=", ".join(dict.fromkeys((*self.classes, *written))))
        column = self.label.name if self.label else None
        wrong = mapped(values, lambda value: is_inexact(value) or key(value) not in self._class_numbers, bool)
        for place in np.flatnonzero(wrong).tolist():
            value = values[place]
            problem = Sentence(_("“%(value)s” is not a class."), value=shown(value))
            fault = inexact_fault(shown(value)) if is_inexact(value) else (problem, remedy)
            yield DataError(*fault, row=place + 1, column=column)

    def _only(self, kind: type[_Plain]) -> _Plain | None:
        return next((column for column in self.columns if isinstance(column, kind)), None)


@dataclass(frozen=True)
class ImageSchema:
    """Images of one size (idx, mat or npz), or image files, which are resized to it.

    ``fit`` determines how image files are resized: ``pad`` (the whole image with a black border), ``crop`` (its middle)
    or ``stretch``. ``window`` is the centre and width of the displayed values of DICOM and 16-bit files; if None, all
    possible values are displayed.

    >>> ImageSchema(1, 2, 1, ("dark", "light")).encode([[[0, 0.5]]]).shape
    (1, 1, 2)
    """

    __pydantic_config__ = DECLARED
    kind: Literal["image"] = field(default="image", kw_only=True, repr=False)
    height: Whole
    width: Whole
    channels: Annotated[Whole, Field(description="Number of channels: 1 for greyscale, 3 for colour.")]
    classes: ClassNames
    fit: Annotated[
        Text,
        Field(
            exclude_if=lambda fit: fit == "pad",
            description="How image files are resized: pad (the whole image on black), crop (its middle) or stretch.",
        ),
    ] = "pad"
    window: Annotated[
        tuple[Number, Number] | None,
        OMITTED,
        Field(description="Centre and width of the value window for DICOM files, after rescaling, and 16-bit images."),
    ] = None

    dtype: ClassVar = np.float32  # bytes from files stay bytes

    @property
    def target(self) -> None:
        """None, because only classes can be learned from images."""

    @property
    def outcome(self) -> Outcome:
        return Classes(self.classes)

    def __post_init__(self) -> None:
        _check_classes(self.classes)
        for name in ("height", "width", "channels"):
            size = getattr(self, name)
            if not isinstance(size, int) or size < 1:
                problem = Sentence(_("The %(name)s of the images is %(size)s."), name=name, size=repr(size))
                raise DataError(problem, _("Declare a whole number of at least 1."))
        if self.fit not in FITS:
            problem = Sentence(_("Images cannot be resized with “%(fit)s”."), fit=self.fit)
            raise DataError(problem, Sentence(_("Use one of: %(names)s."), names=", ".join(FITS)))
        if self.window is not None and not (np.isfinite(self.window).all() and self.window[1] > 0):
            problem = Sentence(_("The window is %(window)s."), window=list(self.window))
            raise DataError(problem, _("Declare the window's centre, and a width above 0."))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an image; greyscale images have no channel axis."""
        return (self.height, self.width) if self.channels == 1 else (self.height, self.width, self.channels)

    def outside(self, rows: Sequence[object]) -> list[list[str]]:
        """Return an empty list for each image, because pixels outside [0, 1] are refused."""
        return [[] for _row in rows]

    def encode(self, rows: Iterable[object]) -> npt.NDArray[np.float32]:
        """Encode images given as nested lists or arrays.

        Returns:
            Images, shape (n, *shape).

        Raises:
            DataError: An image is invalid; the error has its number, counted from 1.
        """
        images = list(rows)
        encoded = np.empty((len(images), *self.shape), np.float32)
        for place, image in enumerate(images, 1):
            try:
                pixels = np.asarray(image, np.float32)
            except (TypeError, ValueError, OverflowError):
                raise DataError("The image is not a grid of numbers.", self._remedy, row=place) from None
            if pixels.shape != self.shape:
                size = " × ".join(map(str, pixels.shape)) or "one number"
                raise DataError(f"The image measures {size}.", self._remedy, row=place)
            if not ((pixels >= 0) & (pixels <= 1)).all():
                raise DataError("A pixel is not between 0 and 1.", self._remedy, row=place)
            encoded[place - 1] = pixels
        return encoded

    @property
    def _remedy(self) -> str:
        return f"Give images of {' × '.join(map(str, self.shape))} numbers between 0 and 1."


#: Class names have at most this many characters, because they are shown in table headings.
LONGEST_CLASS = 200
FITS = ("pad", "crop", "stretch")
Schema = TabularSchema | ImageSchema


def _check_classes(classes: tuple[str, ...]) -> None:
    if len(classes) < 2 or len(set(map(key, classes))) < len(classes):
        problem = _("There are fewer than two classes, or one of them is listed twice.")
        raise DataError(problem, _("List at least two classes, each only once."))
    for name in classes:
        if not name.isprintable() or len(name) > LONGEST_CLASS:
            problem = Sentence(_("The class “%(name)s” does not fit on one line."), name=shown(name))
            remedy = Sentence(_("Use at most %(most)d printable characters."), most=LONGEST_CLASS)
            raise DataError(problem, remedy)
        if is_formula(name):
            problem = Sentence(_("The class “%(name)s” starts like a spreadsheet formula."), name=shown(name))
            raise DataError(problem, _("Use names that start with a letter or a digit."))


def _check_names(present: set[str], wanted: set[str], *, row: int) -> None:
    if missing := wanted - present:
        raise DataError("The column is missing.", "Give a value for it.", row=row, column=sorted(missing)[0])
    unknown = ", ".join(sorted(map(str, present - wanted)))
    raise DataError(f"Unknown columns: {unknown}.", f"Use: {', '.join(sorted(wanted))}.", row=row)


_WHOLE = (2, 1e15)
"""Smallest and largest width of an integer range in which numbers are drawn as integers."""


def example_rows(schema: Schema, count: int, seed: int) -> tuple[list[Any], list[str]]:
    """Return ``count`` invented rows in the form used for predictions, and their outcomes in the usual notation.

    >>> from learning.formats.columns import CategoricalColumn
    >>> schema = TabularSchema((NumericColumn("age", 0, 100), CategoricalColumn("sex", ("f", "m"))), ("no", "yes"))
    >>> example_rows(schema, 2, seed=1)
    ([{'age': 47, 'sex': 'm'}, {'age': 51, 'sex': 'm'}], ['no', 'no'])
    """
    rng = np.random.default_rng(seed)
    rows: list[Any]
    if isinstance(schema, TabularSchema):
        values = {column.name: _values(column, count, rng) for column in schema.features}
        rows = [{name: drawn[place] for name, drawn in values.items()} for place in range(count)]
    else:
        rows = np.round(rng.random((count, *schema.shape)), 2).tolist()
    outcome = schema.outcome
    if isinstance(outcome, Target):
        codes = outcome.drawn(np.zeros((count, outcome.outputs)), rng)
    else:
        codes = rng.integers(len(outcome.categories), size=count)
    return rows, [outcome.written(int(code)) for code in codes]


def _values(column: FeatureColumn, count: int, rng: np.random.Generator) -> list[Any]:
    if isinstance(column, NumericColumn):
        low, high = column.minimum, column.maximum
        if float(low).is_integer() and float(high).is_integer() and _WHOLE[0] <= high - low < _WHOLE[1]:
            drawn: list[Any] = rng.integers(int(low), int(high), endpoint=True, size=count).tolist()
            return drawn
        between = [low * (1 - part) + high * part for part in rng.random(count).tolist()]
        return [min(max(float(f"{each:.4g}"), low), high) for each in between]
    if isinstance(column, CategoricalColumn):
        known = list(column.values)
    elif isinstance(column, CodeColumn):
        words = re.findall(r"[^\s,]+", column.codes.examples)
        known = [word for word in words if column.codes.place(word) is not None]
    else:
        return [f"An invented text, number {place}." for place in rng.integers(1000, size=count)]
    return [known[place] for place in rng.integers(len(known), size=count)]
