"""Choices of the methods in the OpenAPI schema, from the dataclasses that describe them."""

from typing import Any

from learning.mechanisms.choices import Choice, Choices
from training.methods import IMPLEMENTED

JSON_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string", dict: "object"}


def choices_in_schema(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the document of each method's choices to the OpenAPI schema, and ``Choices``, which is one of them.

    A document may leave out what has a default, so that it may be one of two methods: their variant tells.
    """
    schemas, kinds = result["components"]["schemas"], {method.choices: method for method in IMPLEMENTED}
    for kind, method in kinds.items():
        schemas[_component(kind)] = _document(kind, f"{method.name}: {', '.join(filter(None, method.variants))}")
    schemas["Choices"] = {
        "description": "Choices of the run's method, see GET /api/v1/methods; what is missing has its default.",
        "anyOf": [{"$ref": f"#/components/schemas/{_component(kind)}"} for kind in kinds],
    }
    return result


def _component(kind: type[Choices]) -> str:
    return f"ChoicesOf{kind.__name__.removesuffix('Choices')}"


def _document(kind: type[Choices], title: str) -> dict[str, Any]:
    described = kind.described()
    document = {
        "type": "object",
        "title": title.removesuffix(": "),
        "properties": {choice.name: _property(choice) for choice in described},
        "additionalProperties": False,
    }
    required = [choice.name for choice in described if choice.default is None and not choice.optional]
    return document | ({"required": required} if required else {})


def _property(choice: Choice) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": JSON_TYPES[choice.type],
        "description": " ".join(filter(None, (f"{choice.label}.", choice.help))),
        "minimum": choice.minimum,
        "maximum": choice.maximum,
        "default": choice.default,
    }
    if choice.type is str and choice.named is not None:
        schema["enum"] = choice.named
    return {name: value for name, value in schema.items() if value is not None} | (
        {"nullable": True} if choice.optional else {}
    )
