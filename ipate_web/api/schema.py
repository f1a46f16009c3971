"""OpenAPI document with examples, rendered once per process, language and format because this takes seconds."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.encoding import force_bytes
from django.utils.translation import get_language
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

_rendered: dict[tuple[str | None, str], HttpResponse] = {}


class Schema(SpectacularAPIView):
    """The description of the API, the same for every user, with an ETag. It does not describe itself."""

    schema = None

    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        renderer = request.accepted_renderer
        language = request.GET.get("lang")
        if language not in dict(settings.LANGUAGES):
            language = get_language()
        key = (language, renderer.media_type)
        if key not in _rendered:
            response = super().get(request, *args, **kwargs)
            content = force_bytes(renderer.render(response.data, renderer.media_type, {"response": response}))
            rendered = HttpResponse(content, content_type=f"{renderer.media_type}; charset=utf-8")
            rendered["Content-Disposition"] = response["Content-Disposition"]
            rendered["ETag"] = f'"{hashlib.sha256(rendered.content).hexdigest()[:32]}"'
            _rendered[key] = rendered
        known = _rendered[key]
        response = HttpResponse(known.content, headers=dict(known.items()))
        patch_vary_headers(response, ("Accept", "Accept-Language", "Cookie"))
        return get_conditional_response(request, etag=known["ETag"], response=response) or response


_RUN = "7d0f9c1e-2f4b-4c59-9d52-3c1f7a1f2b10"
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_VALUES: dict[str, Any] = {
    **{"slug": "digits", "study": "digits", "username": "ben", "created_by": "ada", "name": "HIGH", "label": "seven"},
    **{"title": "Every holder votes", "purpose": "Label as many digits as the budgets allow."},
    **{"controller": "City Hospital", "contact": "privacy@hospital.example", "delta": 1e-5, "epsilon": 1.0},
    **{"detail": "Correct the errors listed in “errors” and send the request again.", "message": "Give a number."},
    **{"digest": _DIGEST, "sha256": _DIGEST, "model": _RUN, "id": 1, "run": _RUN, "share": 0.25, "accuracy": 0.91},
    **{"majority": 0.12, "value": 0.9, "low": 0.86, "high": 0.93, "noiseless": 0.95, "private_dataset": 1},
    **{"public_dataset": 2, "test_dataset": 3, "student_learner": "shares", "url": "https://hooks.example.org/ipate"},
    **{"events": ["run.finished"], "reason": "It was trained on a file with errors.", "sigma": 20.0, "version": "1"},
    **{"learner": "nearest_neighbour", "column": "class", "classes": ["six", "seven"], "rows": 1000},
    **{"contact_telephone": "+49 30 1234567", "next": None, "previous": None, "count": 1},
}
"""Example values by name of the field, used where the field's schema allows them."""
_FORMATS: dict[str, Any] = {
    "uuid": _RUN,
    "date-time": "2026-03-02T09:30:00Z",
    "date": "2026-03-02",
    "uri": "https://hooks.example.org/ipate",
    "email": "ben@hospital.example",
    "binary": "(content of the file)",
}
_DEPTH = 6


def choices_in_words(result: Any, **_: Any) -> Any:
    """Remove lists of choices from descriptions if they only repeat the values."""
    children = result.values() if isinstance(result, dict) else result if isinstance(result, list) else ()
    for child in children:
        choices_in_words(child)
    if isinstance(result, dict) and isinstance(result.get("description"), str):
        lines = result["description"].split("\n")
        choices = [line for line in lines if line.startswith("* `")]
        if choices and all(re.fullmatch(r"\* `(.*)` - \1", line) for line in choices):
            result["description"] = "\n".join(line for line in lines if line not in choices).strip()
            if not result["description"]:
                del result["description"]
    return result


def examples_in_schema(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add an example to each JSON body of a request or response that has none."""
    for body in bodies(result):
        if not {"example", "examples"} & body.keys():
            body["example"] = example_of(body["schema"], result["components"]["schemas"])
    return result


def bodies(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the bodies of all requests and successful responses: each with its ``schema``."""
    for operations in document["paths"].values():
        for operation in operations.values():
            contents = [operation.get("requestBody", {}).get("content", {})]
            contents += [each.get("content", {}) for code, each in operation["responses"].items() if code < "4"]
            for content in contents:
                for kind, body in content.items():
                    if kind.endswith("json") or kind.startswith("multipart/"):
                        yield body


def example_of(schema: dict[str, Any], schemas: dict[str, Any], name: str = "", depth: int = 0) -> Any:
    """Return a value that a schema allows.

    Args:
        schema: A schema of the document.
        schemas: Its components.
        name: Name of the field that has the value.
        depth: Number of enclosing schemas; optional values that are nested deeply are omitted.
    """
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas, name, depth)
    if "example" in schema:
        return schema["example"]
    if name in _VALUES and _allows(schema, _VALUES[name]):
        return _VALUES[name]
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return example_of(schema[several][0], schemas, name, depth)
    if "enum" in schema:
        return next(each for each in schema["enum"] if each != "" or len(schema["enum"]) == 1)
    kind = schema.get("type")
    if kind == "object":
        return {
            field: example_of(each, schemas, field, depth + 1)
            for field, each in schema.get("properties", {}).items()
            if field in schema.get("required", ()) or (depth < _DEPTH and not each.get("nullable"))
        }
    if kind == "array":
        return [example_of(schema["items"], schemas, name, depth + 1)] * max(1, schema.get("minItems", 0))
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), "text"[: schema.get("maxLength")])
    if kind == "boolean":
        return bool(schema.get("default", False))
    if kind in ("integer", "number"):
        number = max(schema.get("minimum", 0), min(schema.get("default") or 1, schema.get("maximum", 1)))
        return int(number) if kind == "integer" else float(number)
    return {}


def _allows(schema: dict[str, Any], value: Any) -> bool:
    """Return whether a schema's type allows a value; the test of all examples checks the rest."""
    if "oneOf" in schema:
        return any(_allows(each, value) for each in schema["oneOf"])
    if value is None:
        return bool(schema.get("nullable"))
    if isinstance(value, list):
        return schema.get("type") == "array" and _allows(schema["items"], value[0])
    kinds = {str: ("string",), float: ("number",), int: ("integer", "number")}[type(value)]
    return schema.get("type") in kinds and not {"format", "enum"} & schema.keys()
