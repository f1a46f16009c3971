"""Serializers whose fields follow from the dataclass of a part of a plan: from its types, and what it says of them."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo
from rest_framework import serializers

from common.declarations import MAY_BE_MISSING
from common.sentences import Sentence

_Serializer = TypeVar("_Serializer", bound=type[serializers.Serializer])
_PLAIN: dict[Any, type[serializers.Field]] = {
    bool: serializers.BooleanField,
    float: serializers.FloatField,
    int: serializers.IntegerField,
    str: serializers.CharField,
    Sentence: serializers.CharField,
}
_SERIALIZERS: dict[Any, type[serializers.Serializer]] = {}


def declared_by(kind: type) -> Callable[[_Serializer], _Serializer]:
    """Give a serializer the fields that a dataclass declares, before its own."""

    def declared(serializer: _Serializer) -> _Serializer:
        own = serializer.get_fields

        def get_fields(self: serializers.Serializer) -> dict[str, serializers.Field]:
            return {name: _field(about, is_blank) for name, about, is_blank in _declared(kind)} | own(self)

        serializer.get_fields = get_fields  # type: ignore[method-assign]
        _SERIALIZERS[kind] = serializer
        return serializer

    return declared


@cache
def _declared(kind: type) -> list[tuple[str, FieldInfo, bool]]:
    """Return name and description of each field that is told, and whether it may be an empty text."""
    hints = get_type_hints(kind, include_extras=True)
    abouts = [(each, FieldInfo.from_annotation(hints[each.name])) for each in fields(kind)]
    return [
        (each.name, about, each.default is not MISSING and each.default == "")
        for each, about in abouts
        if not about.exclude
    ]


def _field(about: FieldInfo, is_blank: bool) -> serializers.Field:
    """Return the serializer's field."""
    options: dict[str, Any] = {} if about.description is None else {"help_text": about.description}
    options |= {"required": False} if MAY_BE_MISSING in about.metadata else {}
    options |= {"allow_blank": True} if is_blank else {}
    of: Any = about.annotation
    if NoneType in get_args(of):
        of, options["allow_null"] = get_args(of)[0], True
    if isinstance(about.json_schema_extra, dict):
        return serializers.ChoiceField(about.json_schema_extra["enum"], **options)  # type: ignore[arg-type]
    if get_origin(of) is tuple:
        each = get_args(of)[0]
        if each in _SERIALIZERS:
            return _SERIALIZERS[each](many=True, **options)
        return serializers.ListField(child=_PLAIN[each](), **options)
    return (_PLAIN.get(of) or _SERIALIZERS[of])(**options)
