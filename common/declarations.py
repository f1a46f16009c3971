"""Declarations: frozen dataclasses with the fields of a JSON document, described by JSON Schema.

pydantic reads and writes them. In Python they are plain dataclasses, validated in ``__post_init__``.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Self, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetPydanticSchema, Strict, TypeAdapter, WithJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from common.sentences import Sentence


def _described(schema: dict[str, Any], kind: type) -> None:
    """Describe a class by the first line of its docstring, and mark its discriminator fields as required."""
    schema["description"] = (kind.__doc__ or "").partition("\n")[0]
    tags = [name for name, declared in schema["properties"].items() if "const" in declared]
    for name, declared in schema["properties"].items():
        if name in tags:
            del declared["default"]
        elif declared.get("type") == "object" and declared.get("default") == []:
            declared["default"] = {}
    if tags:
        schema["required"] = [*tags, *schema.get("required", ())]


DECLARED = ConfigDict(extra="forbid", json_schema_extra=_described)
"""Value of ``__pydantic_config__`` in every declaration."""

OMITTED = Field(exclude_if=lambda value: not value)
"""Marker for a field that documents omit if it is empty."""

NOT_IN_API = Field(exclude=True)
"""Marker for a field of a plan that the API omits."""

MAY_BE_MISSING = "may be missing"
"""Marker for a field that some documents lack."""


def _number(value: object) -> object:
    """Return a number unchanged, so that an integer does not become a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("float_type", "This is not a number.")
    return value


Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Texts = tuple[Text, ...]
Number = Annotated[
    float,
    GetPydanticSchema(lambda _source, _handler: core_schema.no_info_plain_validator_function(_number)),
    WithJsonSchema({"type": "number"}),
]


class Pairs:
    """Marker for pairs that documents represent as an object with values of this type."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def pairs(entries: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
            return tuple(entries.items())

        return core_schema.no_info_after_validator_function(
            pairs,
            core_schema.dict_schema(handler.generate_schema(Text), handler.generate_schema(self.values)),
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )


def to_document(declaration: Any) -> dict[str, Any]:
    """Return a declaration as a JSON document."""
    document: dict[str, Any] = _adapter(type(declaration)).dump_python(  # type: ignore[arg-type]
        declaration, mode="json", by_alias=True
    )
    return document


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def stored(value: Any) -> Any:
    """Return a dataclass, or a list of dataclasses, as JSON."""
    if isinstance(value, Sentence):
        return value.to_json()
    if is_dataclass(value):
        return {each.name: stored(getattr(value, each.name)) for each in fields(value)}
    return [stored(each) for each in value] if isinstance(value, list | tuple) else value


class Stored:
    """Base class of dataclasses that are stored as JSON and read back."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON that `from_json` can read."""
        document: dict[str, Any] = stored(self)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return an object from the output of `to_json`."""
        hints = _hints(cls)  # type: ignore[arg-type]
        return cls(**{name: _read(hints[name], value) for name, value in document.items()})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: Any) -> Any:
    if kind is Sentence or (isinstance(kind, type) and issubclass(kind, Stored)):
        return kind.from_json(value)
    return tuple(_read(get_args(kind)[0], each) for each in value) if get_origin(kind) is tuple else value
