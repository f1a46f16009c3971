"""Dataclasses that are stored as JSON, with their sentences.

Numbers stay as they are written, whatever type a field declares: digests are computed from them.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Self, get_args, get_origin, get_type_hints

from common.sentences import Sentence


def stored(value: Any) -> Any:
    """Return a dataclass, or a list of them, as JSON."""
    if isinstance(value, Sentence):
        return value.to_json()
    if is_dataclass(value):
        return {each.name: stored(getattr(value, each.name)) for each in fields(value)}
    return [stored(each) for each in value] if isinstance(value, list | tuple) else value


class Stored:
    """Base of dataclasses that are read back."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON for `from_json`."""
        document: dict[str, Any] = stored(self)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote."""
        hints = _hints(cls)  # type: ignore[arg-type]
        return cls(**{name: _read(hints[name], value) for name, value in document.items()})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: Any) -> Any:
    if kind is Sentence or (isinstance(kind, type) and issubclass(kind, Stored)):
        return kind.from_json(value)
    return tuple(_read(get_args(kind)[0], each) for each in value) if get_origin(kind) is tuple else value
