"""Components of runs with their parameters, as endpoints and as part of the OpenAPI schema."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from django.utils.text import capfirst
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ipate_web.api.base import ApiView, operation
from learning.learners import LEARNERS, parameter_fields
from learning.learners.learner import Parametrised
from learning.mechanisms.choices import Choice
from learning.mechanisms.pate import AGGREGATORS
from learning.representations import REPRESENTATIONS
from learning.students import STUDENTS
from training.methods import IMPLEMENTED, METHODS, MethodOutcome, RunMethod
from training.models import Run

JSON_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string", dict: "object"}


_TYPED = {"RunProposal": "Proposal", "PlanRequest": "PlanRequest", "RunDetail": "Run", "JointProposal": "JointProposal"}
"""Components with ``method`` and ``choices``, each with the suffix in the names of its versions for single methods."""


def choices_in_schema(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Give each method separate components for proposals and runs; ``method`` identifies the component.

    A proposal may omit ``method``, which the site then suggests, and choices that have a default. Programs generated
    from the schema always name the method.
    """
    schemas = result["components"]["schemas"]
    for name, methods in methods_by_name().items():
        schemas[f"{_titled(name)}Choices"] = _document(methods)
    for base, ending in _TYPED.items():
        general, refs = schemas[base], {}
        for name, methods in methods_by_name().items():
            own = f"{_titled(name)}{ending}"
            refs[name] = f"#/components/schemas/{own}"
            schemas[own] = {**general, "properties": {**general["properties"], **_own_properties(name, methods)}}
            required = {*general.get("required", ()), "method"}
            schemas[own]["required"] = [each for each in general["properties"] if each in required]
        schemas[base] = {
            "oneOf": [{"$ref": ref} for ref in refs.values()],
            "discriminator": {"propertyName": "method", "mapping": refs},
        }
    return result


def methods_by_name() -> dict[str, list[RunMethod]]:
    """Return, by name, the classes that implement each method; some variants have their own class."""
    return {name: [each for each in IMPLEMENTED if each.name == name] for name in METHODS}


def _titled(name: str) -> str:
    return name.capitalize()


def _own_properties(name: str, methods: list[RunMethod]) -> dict[str, Any]:
    variants = [variant for method in methods for variant in method.variants]
    variant = {"type": "string", "enum": variants, "description": f"Variant; defaults to {variants[0]}."}
    if variants == [""]:
        variant["description"] = "This method has no variants."
    return {
        "method": {"type": "string", "enum": [name], "description": "Method of the run."},
        "variant": variant,
        "choices": {"$ref": f"#/components/schemas/{_titled(name)}Choices"},
    }


def _document(methods: list[RunMethod]) -> dict[str, Any]:
    """Return the schema of a method's choices. Each choice states its variants if it does not apply to all."""
    described = [(method, choice) for method in methods for choice in method.choices.described()]
    properties: dict[str, Any] = {}
    for name in dict.fromkeys(choice.name for _method, choice in described):
        same = [(method, choice) for method, choice in described if choice.name == name]
        properties[name] = _joined([_property(choice) for _method, choice in same])
        if len(same) < len(methods):
            variants = [variant for method, _choice in same for variant in method.variants]
            noun = "variant" if len(variants) == 1 else "variants"
            properties[name]["description"] += f" Only for the {', '.join(f'`{each}`' for each in variants)} {noun}."
    needed = [
        choice.name
        for choice in methods[0].choices.described()
        if choice.default is None and not choice.optional and len(methods) == 1
    ]
    document = {
        "type": "object",
        "description": "Settings of the method (see GET /api/v1/methods). Settings you leave out take their default "
        "values.",
        "properties": properties,
        "additionalProperties": False,
    }
    return document | ({"required": needed} if needed else {})


def _joined(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the schemas of choices with the same name: keep what they have in common, and the widest limits."""
    first, *others = schemas
    joined = {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}
    for key, widest in (("minimum", min), ("maximum", max)):
        if all(key in each for each in schemas):
            joined[key] = widest(each[key] for each in schemas)
    if any(each.get("nullable") for each in schemas):
        joined["nullable"] = True
    if all("enum" in each for each in schemas):
        joined["enum"] = list(dict.fromkeys(value for each in schemas for value in each["enum"]))
    joined["description"] = first["description"]
    return joined


def _property(choice: Choice) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": JSON_TYPES[choice.type],
        "description": " ".join(
            filter(None, (f"{capfirst(choice.label) if choice.label.isascii() else choice.label}.", choice.help))
        ),
        "minimum": choice.minimum,
        "maximum": choice.maximum,
        "default": choice.default,
    }
    if choice.type is str and choice.named is not None:
        schema["enum"] = choice.named
    return {name: value for name, value in schema.items() if value is not None} | (
        {"nullable": True} if choice.optional else {}
    )


class LearnerParameterSerializer(serializers.Serializer):
    name = serializers.CharField()
    type = serializers.ChoiceField(["integer", "number", "boolean"])
    default = serializers.JSONField()
    minimum = serializers.FloatField(allow_null=True)
    maximum = serializers.FloatField(allow_null=True)
    help = serializers.CharField()


class LearnerSerializer(serializers.Serializer):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # a field, not the serializer's own label
    help = serializers.CharField(help_text="Data or tasks for which the learner is suitable; may be empty.")
    parameters = LearnerParameterSerializer(many=True)


class AggregatorParameterSerializer(serializers.Serializer):
    """A parameter of an aggregator, a number above 0."""

    name = serializers.CharField()
    symbol = serializers.CharField(help_text="Symbol used in the papers.")
    label = serializers.CharField()  # type: ignore[assignment]
    help = serializers.CharField()


class AggregatorSerializer(serializers.Serializer):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    description = serializers.CharField()
    parameters = AggregatorParameterSerializer(many=True)


class RepresentationSerializer(serializers.Serializer):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    images = serializers.BooleanField(help_text="Whether the representation works only on images.")
    texts = serializers.BooleanField(help_text="Whether the representation works only on texts.")
    encoded = serializers.BooleanField(
        help_text="Whether the representation works only on vectors from an encoder, which you must then choose as "
        "well."
    )
    statement = serializers.CharField(
        help_text="Statement that you confirm by setting “stated” in “choices”; empty if none is required."
    )
    parameters = LearnerParameterSerializer(many=True)


class ChoiceSerializer(serializers.Serializer):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    type = serializers.ChoiceField(["integer", "number", "boolean", "string", "object"])
    default = serializers.JSONField(
        help_text="Default value. If null, either a public rule sets the value (see the plan) or you must give one."
    )
    minimum = serializers.FloatField(allow_null=True)
    maximum = serializers.FloatField(allow_null=True)
    choices = serializers.ListField(child=serializers.CharField(allow_blank=True), allow_null=True)
    help = serializers.CharField(help_text="Explanation of the choice; may be empty.")


class VariantSerializer(serializers.Serializer):
    """A variant of a method. A proposal that does not name a variant gets the first one listed."""

    name = serializers.CharField(allow_blank=True)
    label = serializers.CharField()  # type: ignore[assignment]
    choices = ChoiceSerializer(many=True, help_text="Settings that “choices” may contain for runs of this variant.")
    needs_public_points = serializers.BooleanField(help_text="Whether runs must name a public dataset.")


class MethodSerializer(serializers.Serializer):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    outcome = serializers.ChoiceField(
        list(MethodOutcome),
        help_text="Result of the method's runs: a model or a table of counts. Tables of counts need no public points "
        "and no student.",
    )
    choices = ChoiceSerializer(many=True, help_text="Settings of the first variant.")
    variants = VariantSerializer(many=True)


def _choices(method: RunMethod) -> list[dict[str, Any]]:
    """Return the choices of a method in the form of `ChoiceSerializer`."""
    return [{**vars(each), "type": JSON_TYPES[each.type], "choices": each.named} for each in method.choices.described()]


def _described(kinds: Mapping[str, type[Parametrised]]) -> list[dict[str, Any]]:
    """Return descriptions of learners or students in the form of `LearnerSerializer`."""
    return [
        {
            "name": name,
            "label": kind.label,
            "help": kind.help,
            "parameters": [{**vars(field), "type": JSON_TYPES[field.type]} for field in parameter_fields(kind)],
        }
        for name, kind in kinds.items()
    ]


class LearnerList(ApiView):
    """List of the learners that can be teachers."""

    @operation("Learners", "runs", LearnerSerializer(many=True), operation_id="learners_list")
    def get(self, request: Request) -> Response:
        """List the learners and their parameters, for the choice `learner` of runs in which teachers vote."""
        return Response(LearnerSerializer(_described(LEARNERS), many=True).data)


class StudentList(ApiView):
    """List of the learners that can be students."""

    @operation("Students", "runs", LearnerSerializer(many=True), operation_id="students_list")
    def get(self, request: Request) -> Response:
        """List the students and their parameters, for `student_learner` and `student_parameters` of a run.

        Students that learn from noisy counts come first. Every learner can also be used as a student.
        """
        return Response(LearnerSerializer(_described(STUDENTS), many=True).data)


class RepresentationList(ApiView):
    """List of the spaces in which votes are cast and gradient steps are taken."""

    @operation("Representations", "runs", RepresentationSerializer(many=True), operation_id="representations_list")
    def get(self, request: Request) -> Response:
        """List the representations and their parameters, for the `choices` of a run in which every holder is asked.

        All of them are fitted on public points. If `embedded` is set, rounds after the first use the student's
        inner layer instead.
        """
        representations = [
            {
                "name": name,
                "label": representation.label,
                "images": representation.images,
                "texts": representation.texts,
                "encoded": representation.encoded,
                "statement": representation.statement,
                "parameters": [
                    {
                        "name": spec.name,
                        "type": JSON_TYPES[type(spec.default)],
                        "default": spec.default,
                        **spec.metadata,
                    }
                    for spec in fields(representation)
                    if spec.metadata
                ],
            }
            for name, representation in REPRESENTATIONS.items()
            if name != "student"
        ]
        return Response(RepresentationSerializer(representations, many=True).data)


class MethodList(ApiView):
    """List of the methods that a run can use."""

    @operation("Methods", "runs", MethodSerializer(many=True), operation_id="methods_list")
    def get(self, request: Request) -> Response:
        """List the methods that a run can use, with their variants and the `choices` of each."""
        methods = [
            {
                "name": name,
                "label": Run.Method(name).label,
                "outcome": method.outcome,
                "choices": _choices(method),
                "variants": [
                    {
                        "name": variant,
                        "label": Run.Variant(variant).label if variant else "",
                        "choices": _choices(each),
                        "needs_public_points": each.needs_public_points,
                    }
                    for each in IMPLEMENTED
                    if each.name == name
                    for variant in each.variants
                ],
            }
            for name, method in METHODS.items()
        ]
        return Response(MethodSerializer(methods, many=True).data)


class AggregatorList(ApiView):
    """List of the ways to turn teachers' votes into a label."""

    @operation("Aggregators", "runs", AggregatorSerializer(many=True), operation_id="aggregators_list")
    def get(self, request: Request) -> Response:
        """List the aggregators and their parameters, for the `choices` of a run. All parameters are required."""
        aggregators = [
            {"name": name, "label": aggregator.label, "description": aggregator.help, "parameters": aggregator.fields()}
            for name, aggregator in AGGREGATORS.items()
        ]
        return Response(AggregatorSerializer(aggregators, many=True).data)
