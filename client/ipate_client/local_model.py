"""Models on this machine: an ONNX file that takes the values of a row unchanged."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from ipate_client.documents import Predictions

_MOST_PIECES = 64

Rows: TypeAlias = pd.DataFrame | npt.NDArray[Any] | Iterable[Any]
"""A data frame or objects with a value per column; or images, as an array or nested lists."""


class LocalModel:
    """A model that predicts without the site; its inputs never leave this machine.

    Attributes:
        classes: Names of the classes; for another target, names of the values that it predicts for a row.
        schema: Schema of a row.
        card: Information for users of the model.
    """

    def __init__(self, content: bytes) -> None:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # otherwise it reports to its makers, from 1.32 on
        import onnxruntime  # slow to import, and only needed for models on this machine

        self.content = content
        self._session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        metadata = self._session.get_modelmeta().custom_metadata_map
        self.classes: list[str] = json.loads(metadata.get("classes") or metadata["columns"])
        self.schema: dict[str, Any] = json.loads(metadata["schema"])
        self.card: dict[str, Any] = json.loads(metadata["card"])
        self._tokenizer = metadata.get("tokenizer", "")
        self._names = {each.name for each in self._session.get_inputs()}

    @classmethod
    def load(cls, path: str | Path) -> LocalModel:
        """Return a model that `save` stored."""
        return cls(Path(path).read_bytes())

    def save(self, path: str | Path) -> None:
        """Store the file, which any ONNX runtime reads."""
        Path(path).write_bytes(self.content)

    def predict(self, rows: Rows) -> Predictions:
        """Return predictions of rows, the same as the site's.

        Raises:
            KeyError: a row lacks a column.
            ValueError: a number cannot be read, or an image has another shape.
        """
        inputs = self._inputs(rows)
        *labels, probabilities = self._session.run(None, inputs)
        number = len(probabilities)
        answers = labels[0] if labels else np.full(number, None, object)
        return Predictions(self.classes, answers, probabilities, self._outside(inputs, number))

    def _outside(self, inputs: dict[str, npt.NDArray[Any]], rows: int) -> list[list[str]]:
        """Return for each row the columns with values outside the range that the schema declares."""
        names: list[list[str]] = [[] for _row in range(rows)]
        for column in self.schema.get("columns", []):
            if column["role"] == "feature":
                for place in np.flatnonzero(_beyond(column, inputs[column["name"]])):
                    names[place].append(column["name"])
        return names

    def _text_inputs(self, rows: Rows, column: dict[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """Return texts as bytes, or as tokens in pieces if the model contains an encoder of texts."""
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame.from_records(list(rows))
        contents = [_content(str(value), column["length"]) for value in frame[column["name"]]]
        if "text" in self._names:
            return {"text": _padded([np.frombuffer(content, np.uint8) for content in contents])}
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ImportError("This model reads tokens: pip install tokenizers.") from None
        tokenizer = Tokenizer.from_str(self._tokenizer)
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.card["encoder"]["takes"]["length"])
        ids, masks = [], []
        for content in contents:
            first = tokenizer.encode(content.decode())
            pieces = [first.ids, *(each.ids for each in first.overflowing)][:_MOST_PIECES]
            ids.append(_padded([np.array(piece, np.int64) for piece in pieces]))
            masks.append(_padded([np.ones(len(piece), np.int64) for piece in pieces]))
        return {"input_ids": _padded(ids), "attention_mask": _padded(masks)}

    def _inputs(self, rows: Rows) -> dict[str, npt.NDArray[Any]]:
        if self.card.get("encoder") and "vectors" in self._names:
            raise ValueError(
                f"The file does not contain its encoder, {self.card['encoder']['name']} (SHA-256 "
                f"{self.card['encoder']['file_digest']}): encode the rows with it, and give the session “vectors”."
            )
        if self.schema["kind"] == "image":
            sides = (self.schema["height"], self.schema["width"], self.schema["channels"])
            shape = sides[:2] if sides[2] == 1 else sides
            images = np.asarray(rows if isinstance(rows, np.ndarray) else list(rows), np.float32)
            if images.shape[1:] != shape:
                raise ValueError(f"The images are of shape {images.shape[1:]}, those of the model of {shape}.")
            return {"image": images}
        text = next((column for column in self.schema["columns"] if column["role"] == "text"), None)
        if text is not None:
            return self._text_inputs(rows, text)
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame.from_records(list(rows))
        features = [column for column in self.schema["columns"] if column["role"] == "feature"]
        return {column["name"]: _values(column, frame[column["name"]]) for column in features}


def _content(text: str, length: int) -> bytes:
    """Return the first bytes of a text, as stored by the site."""
    content = text.replace("\0", " ").encode(errors="replace")
    return content[:length].decode(errors="ignore").encode()


def _padded(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return arrays with the same number of axes as one array, padded with 0."""
    shape = tuple(np.max([part.shape for part in parts], axis=0))
    padded = np.zeros((len(parts), *shape), parts[0].dtype)
    for place, part in enumerate(parts):
        padded[place][tuple(slice(length) for length in part.shape)] = part
    return padded


#: Types of columns that a model takes as numbers; for dates, the time that the schema derives from them.
_NUMBERS = ("numeric", "date")


def _beyond(column: dict[str, Any], values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which numbers are beyond the declared range, and which categories are undeclared if others are allowed."""
    if column["type"] in _NUMBERS:
        return np.asarray((values < column["minimum"]) | (values > column["maximum"]))
    declared = {_cell(value) for value in (*column.get("values", []), *column["missing"])}
    return np.array([bool(column.get("other")) and value not in declared for value in values], bool)


def _values(column: dict[str, Any], values: pd.Series[Any]) -> npt.NDArray[Any]:
    """Return the values of a column as its input takes them."""
    cells = values.tolist()
    if column["type"] in _NUMBERS:
        return np.array([np.nan if value in column["missing"] else float(value) for value in cells])
    spelled = _cell if column["type"] == "categorical" else str
    return np.array([spelled(value) for value in cells], object)


def _cell(value: object) -> str:
    """Return a category as the site spells it: without spaces around it, 1.0 as 1, and TRUE as true."""
    text = unicodedata.normalize("NFC", str(value)).strip()
    whole = re.fullmatch(r"([+-]?[0-9]+)\.0+", text)
    return whole[1] if whole else text.lower() if text.lower() in ("true", "false") else text
