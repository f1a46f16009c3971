"""Checks of table rows and images that accept the same values as the site and give the same error messages.

The site checks all rows that it receives; a model on this machine uses `model_inputs`. A test passes the same rows to
both. Every value is first converted to JSON, so that NaN and NA become None.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Callable

import numpy as np
import numpy.typing as npt

from ipate_client.problems import RowsError

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeAlias

Rows: TypeAlias = "pd.DataFrame | npt.NDArray[Any] | Iterable[Any]"
"""A data frame, an array or lists with one row each, or objects with a value per column; for images, arrays."""
Inputs: TypeAlias = "dict[str, npt.NDArray[Any]]"

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_POINT_ZERO = re.compile(r"([+-]?[0-9]+)\.0+")
_SHOWN, _LONGEST = 12, 60
_MOST_PIECES = 64
NUMBERS = ("numeric", "date")
"""Types of columns that a model reads as numbers. A date is given as the time until or since the schema's reference."""


def features_of(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the input columns of a model: the features of a table, or the text column; empty for images."""
    return [column for column in schema.get("columns", []) if column["role"] in ("feature", "text")]


def sendable(rows: Rows, names: Iterable[str] | None = None) -> list[Any]:
    """Return rows in a form that JSON can represent.

    Args:
        rows: Rows of a table, or images.
        names: Names of the columns, for arrays that contain rows of a table.

    Raises:
        RowsError: there are no rows, or an array has the wrong number of columns.
        TypeError: a value has a type that JSON cannot represent.
    """
    if sent := _sendable(rows, names):
        return sent
    raise RowsError("There are no rows.", "Add at least one row.")


def _sendable(rows: Rows, names: Iterable[str] | None) -> list[Any]:
    if hasattr(rows, "iloc"):
        table: Any = rows
        columns = [[_plain(value) for value in table.iloc[:, place].tolist()] for place in range(len(table.columns))]
        if len(set(table.columns)) < len(table.columns):
            raise RowsError("Two columns have the same name.", "Rename one.")
        return [dict(zip(map(str, table.columns), row)) for row in zip(*columns)] if columns else [{}] * len(table)
    if not isinstance(rows, (np.ndarray, list, tuple)) and hasattr(rows, "__array__"):
        rows = np.asarray(rows)
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and names is not None:
        known = list(names)
        if rows.shape[1] != len(known):
            raise RowsError(
                f"X has {rows.shape[1]} features, but the model is expecting {len(known)} features as input.",
                f"Give a column for each of: {', '.join(known)}.",
            )
        return [dict(zip(known, map(_plain, row))) for row in rows.tolist()]
    if isinstance(rows, (Mapping, str)) or getattr(rows, "ndim", 1) == 0:
        raise RowsError("The rows are not a list.", "Give a list of rows, even if there is only one.")
    return [_plain(row) for row in rows]


def _plain(value: Any) -> Any:
    """Return a value in a form that JSON can represent."""
    if value is None or isinstance(value, (str, bool, int)):
        return str(value) if isinstance(value, np.str_) else value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None if value != value else str(float(value))
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _plain(float(value))
    raise TypeError(f"A value has the type {type(value).__name__}: give it as a number or a string.")


def model_inputs(schema: Mapping[str, Any], codes: Mapping[str, Any], rows: Rows) -> Inputs:
    """Return a model file's inputs: images, or an array per feature of a table. For texts, use `text_contents`.

    Args:
        schema: Schema of a row.
        codes: Codes by column type, with their meaning, from the model file.
        rows: Rows of a table, or images.

    Raises:
        RowsError: the site would refuse a row; the first such row is reported, with the site's message.
    """
    if schema["kind"] == "image":
        return {"image": _images(schema, rows)}
    return {column["name"]: _Column(column, codes).inputs(cells) for column, cells in _columns(schema, rows)}


def text_contents(schema: Mapping[str, Any], rows: Rows) -> list[bytes]:
    """Return the texts as UTF-8 bytes, truncated in the same way as at the site. Raises RowsError."""
    ((column, cells),) = _columns(schema, rows)
    for place, value in enumerate(cells, 1):
        if not isinstance(value, str):
            remedy = "Provide text, or an empty string if there is none."
            raise RowsError(f"{_shown(repr(value))} is not text.", remedy, row=place, column=column["name"])
    return [_text_bytes(value, column["length"]) for value in cells]


def outside(schema: Mapping[str, Any], inputs: Inputs, count: int) -> list[list[str]]:
    """Return, for each row, the columns with values outside the range that the schema declares."""
    names: list[list[str]] = [[] for _row in range(count)]
    for column in features_of(schema):
        if column["role"] == "feature":
            for place in np.flatnonzero(_Column(column, {}).outside(inputs[column["name"]])):
                names[place].append(column["name"])
    return names


def _columns(schema: Mapping[str, Any], rows: Rows) -> list[tuple[dict[str, Any], list[Any]]]:
    """Return each feature with its values. Raises RowsError if a row does not have exactly the model's features."""
    features = features_of(schema)
    names = [column["name"] for column in features]
    records = sendable(rows, names)
    for place, record in enumerate(records, 1):
        if not isinstance(record, dict):
            raise RowsError("A record is not an object.", "Give one object with a value per column.", row=place)
        if record.keys() == set(names):
            continue
        if missing := sorted(set(names) - record.keys()):
            raise RowsError("The column is missing.", "Give a value for it.", row=place, column=missing[0])
        unknown = ", ".join(sorted(record.keys() - set(names)))
        raise RowsError(f"Unknown columns: {unknown}.", f"Use: {', '.join(sorted(names))}.", row=place)
    return [(column, [record[column["name"]] for record in records]) for column in features]


def _images(schema: Mapping[str, Any], rows: Rows) -> npt.NDArray[np.float32]:
    sides = (schema["height"], schema["width"], schema["channels"])
    shape = sides[:2] if sides[2] == 1 else sides
    images = list(rows) if isinstance(rows, np.ndarray) and len(rows) else sendable(rows)
    remedy = f"Give images of {' × '.join(map(str, shape))} numbers between 0 and 1."
    read = np.empty((len(images), *shape), np.float32)
    for place, image in enumerate(images, 1):
        try:
            pixels = np.asarray(image, np.float32)
        except (TypeError, ValueError, OverflowError):
            raise RowsError("The image is not a grid of numbers.", remedy, row=place) from None
        if pixels.shape != shape:
            size = " × ".join(map(str, pixels.shape)) or "one number"
            raise RowsError(f"The image measures {size}.", remedy, row=place)
        if not ((pixels >= 0) & (pixels <= 1)).all():
            raise RowsError("A pixel is not between 0 and 1.", remedy, row=place)
        read[place - 1] = pixels
    return read


class _Column:
    """Table column, as declared in the schema."""

    def __init__(self, column: Mapping[str, Any], codes: Mapping[str, Any]) -> None:
        self.name, self.type, self.declared = column["name"], column["type"], column
        self.missing: list[str] = column.get("missing", [])
        self.codes = codes.get(self.type)

    def inputs(self, cells: list[Any]) -> npt.NDArray[Any]:
        """Return values (n,) as input for the model's file: numbers (NaN if unknown), or else strings."""
        if self.type in NUMBERS:
            return self._numbers(cells)
        if self.type == "categorical":
            declared = self._declared_keys
            self._check(cells, lambda cell: not _is_inexact(cell) and (self._has_other or _key(cell) in declared))
            return np.array([_key(cell) for cell in cells], object)
        if self.codes is not None:
            self._check(cells, self._is_code)
        return np.array([str(cell) for cell in cells], object)

    def outside(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of numbers outside the range, or of undeclared categories, which become “other”."""
        if self.type in NUMBERS:
            return np.asarray((values < self.declared["minimum"]) | (values > self.declared["maximum"]))
        if not self._has_other:
            return np.zeros(len(values), np.bool_)
        return np.array([value not in self._declared_keys for value in values], np.bool_)

    @property
    def _has_other(self) -> bool:
        return bool(self.declared.get("other"))

    @property
    def _declared_keys(self) -> set[str]:
        return {_key(value) for value in (*self.declared.get("values", []), *self.missing)}

    def _check(self, cells: list[Any], is_allowed: Callable[[Any], bool]) -> None:
        for place, cell in enumerate(cells, 1):
            if not is_allowed(cell):
                raise RowsError(*self._fault(cell), row=place, column=self.name)

    def _numbers(self, cells: list[Any]) -> npt.NDArray[np.float64]:
        markers = {_key(marker) for marker in self.missing}
        is_known = [not markers or _key(cell) not in markers for cell in cells]
        read = np.array([_number(cell) if known else math.nan for cell, known in zip(cells, is_known)])
        for place in np.flatnonzero(~np.isfinite(read) & np.array(is_known)).tolist():
            raise RowsError(*self._number_fault(cells[place]), row=place + 1, column=self.name)
        return read

    def _is_code(self, cell: Any) -> bool:
        text = str(cell)
        if text in self.missing:
            return True
        if _is_inexact(cell):
            return False
        several = bool(self.declared.get("several"))
        named = [part.strip(" \t") for part in text.split(";")] if several else [text]
        named = ([code for code in named if code] or [""]) if several else named
        return all(code in self.missing or self._is_grouped(code) for code in named)

    def _is_grouped(self, code: str) -> bool:
        assert self.codes is not None
        if not re.fullmatch(self.codes["code"], code):
            return False
        return self.codes["others"] or any(re.fullmatch(group, code) for group in self.codes["groups"])

    def _fault(self, cell: Any) -> tuple[str, str]:
        value = _shown(cell)
        if _is_inexact(cell):
            problem = f"{value} has more than 15 digits, so the file may have lost some of them."
            return problem, "Save the column as text."
        if self.codes is not None:
            problem = f"“{value}” is not a valid {self.codes['name']} code."
            return problem, f"Write a code such as {self.codes['examples']}."
        values = self.declared["values"]
        declared = ", ".join(values[:_SHOWN]) + (", …" if len(values) > _SHOWN else "")
        problem = f"“{value}” is not among the declared values ({declared})."
        return problem, "Correct the value, or declare it in the schema."

    def _number_fault(self, cell: Any) -> tuple[str, str]:
        remedy = self._number_remedy
        if not isinstance(cell, (int, float, str)) or isinstance(cell, bool):
            return f"{cell!r} is not a number.", remedy
        if isinstance(cell, int):
            return "A whole number is too large.", remedy
        if isinstance(cell, float) or _NOT_FINITE.fullmatch(cell) or math.isinf(_number(cell)):
            return f"“{_shown(cell)}” is not finite.", remedy
        if _THOUSANDS.fullmatch(cell):
            remedy = "Write the number without thousands separators and with a decimal point."
        elif _DECIMAL_COMMA.fullmatch(cell):
            remedy = "Declare “decimal”: “,” in the schema."
        return f"“{_shown(cell)}” is not a number.", remedy

    @property
    def _number_remedy(self) -> str:
        if self.type == "date":
            return "Write the time as a number, calculated as the schema declares, instead of the date."
        if not self.missing:
            return "Write a finite number, or declare under “missing” in the schema how unknown values are written."
        markers = " / ".join(marker or "“”" for marker in self.missing)
        return f"Write a finite number, or {markers} if it is unknown."


def _number(cell: Any) -> float:
    """Return the number in a cell, or NaN if there is none."""
    if isinstance(cell, str):
        return float(cell) if _NUMBER.fullmatch(cell.strip()) else math.nan
    if isinstance(cell, bool) or not isinstance(cell, (int, float)):
        return math.nan
    try:
        return float(cell)
    except OverflowError:
        return math.inf


def _key(cell: Any) -> str:
    """Return a value in the normal form used for comparisons: 1.0 becomes 1, and TRUE becomes true."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell == int(cell) else str(cell)
    text = unicodedata.normalize("NFC", str(cell)).strip()
    whole = _POINT_ZERO.fullmatch(text)
    text = whole[1] if whole else text
    return text.lower() if text.lower() in ("true", "false") else text


def _is_inexact(cell: Any) -> bool:
    """Return whether a number has so many digits that it may have been rounded."""
    if isinstance(cell, (str, bool)) or not isinstance(cell, (int, float)):
        return False
    return abs(cell) >= (1e15 if isinstance(cell, float) else 2**53)


def _shown(cell: Any) -> str:
    text = str(cell)
    cut = text[:_LONGEST] + ("…" if len(text) > _LONGEST else "")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in cut)


def _text_bytes(text: str, length: int) -> bytes:
    """Return the beginning of a text as UTF-8, truncated in the same way as at the site."""
    content = text.replace("\0", " ").encode(errors="replace")
    return content[:length].decode(errors="ignore").encode()


def token_inputs(tokenizer: str, length: int, contents: list[bytes]) -> Inputs:
    """Return the tokens of texts, split into pieces, as inputs of a model that contains a text encoder.

    Args:
        tokenizer: Document of the tokenizer, from the file.
        length: Maximum number of tokens in a piece.
        contents: The texts as UTF-8.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ImportError("This model reads tokens: pip install tokenizers.") from None
    reader = Tokenizer.from_str(tokenizer)
    reader.no_padding()
    reader.enable_truncation(length)
    ids, masks = [], []
    for content in contents:
        first = reader.encode(content.decode())
        pieces = [first.ids, *(each.ids for each in first.overflowing)][:_MOST_PIECES]
        ids.append(padded([np.array(piece, np.int64) for piece in pieces]))
        masks.append(padded([np.ones(len(piece), np.int64) for piece in pieces]))
    return {"input_ids": padded(ids), "attention_mask": padded(masks)}


def padded(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Stack arrays that have the same number of axes, padding them with 0 to the same shape."""
    shape = tuple(np.max([part.shape for part in parts], axis=0))
    filled = np.zeros((len(parts), *shape), parts[0].dtype)
    for place, part in enumerate(parts):
        filled[place][tuple(slice(length) for length in part.shape)] = part
    return filled
