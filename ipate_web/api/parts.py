"""What a run can be made of, with its parameters: endpoints, and the same in the OpenAPI schema."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ipate_web.api.base import ApiView, operation
from learning.learners import LEARNERS, parameter_fields
from learning.learners.learner import Parametrised
from learning.mechanisms.choices import Choice, Choices
from learning.mechanisms.pate import AGGREGATORS
from learning.representations import REPRESENTATIONS
from learning.students import STUDENTS
from training.methods import IMPLEMENTED, METHODS, MethodOutcome, RunMethod
from training.models import Run

JSON_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string", dict: "object"}


def choices_in_schema(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the document of each method's choices to the OpenAPI schema, and ``Choices``, which is one of them.

    A document may leave out what has a default, so that it may be one of two methods: their variant tells.
    """
    schemas, kinds = result["components"]["schemas"], {method.choices: method for method in IMPLEMENTED}
    for kind, method in kinds.items():
        schemas[_component(kind)] = _document(kind, f"{method.name}: {', '.join(filter(None, method.variants))}")
    schemas["Choices"] = {
        "description": "Choices of the run's method (see GET /api/v1/methods). Omitted choices take their defaults.",
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
    help = serializers.CharField(help_text="Kind of data or task that it suits; may be empty.")
    parameters = LearnerParameterSerializer(many=True)


class AggregatorParameterSerializer(serializers.Serializer):
    """A number above 0."""

    name = serializers.CharField()
    symbol = serializers.CharField(help_text="Symbol that the papers use.")
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
    images = serializers.BooleanField(help_text="Whether it works only on images.")
    texts = serializers.BooleanField(help_text="Whether it works only on texts.")
    encoded = serializers.BooleanField(
        help_text="Whether it works only on vectors from an encoder, which then has to be chosen as well."
    )
    statement = serializers.CharField(
        help_text="Statement that you make by setting “stated” in “choices”; empty if none is needed."
    )
    parameters = LearnerParameterSerializer(many=True)


class ChoiceSerializer(serializers.Serializer):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    type = serializers.ChoiceField(["integer", "number", "boolean", "string", "object"])
    default = serializers.JSONField(
        help_text="Default value. If null, either a public rule decides (see the plan) or you must give a value."
    )
    minimum = serializers.FloatField(allow_null=True)
    maximum = serializers.FloatField(allow_null=True)
    choices = serializers.ListField(child=serializers.CharField(allow_blank=True), allow_null=True)
    help = serializers.CharField(help_text="Explanation of the choice; may be empty.")


class VariantSerializer(serializers.Serializer):
    """A variant of a method. A proposal that names no variant gets the first one listed."""

    name = serializers.CharField(allow_blank=True)
    label = serializers.CharField()  # type: ignore[assignment]
    choices = ChoiceSerializer(many=True, help_text="Allowed contents of “choices” for a run of this variant.")
    needs_public_points = serializers.BooleanField(help_text="Whether a run has to name a public dataset.")


class MethodSerializer(serializers.Serializer):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    outcome = serializers.ChoiceField(
        list(MethodOutcome),
        help_text="Result of its runs: a model, or a table of counts, which needs no public points and no student.",
    )
    choices = ChoiceSerializer(many=True, help_text="Choices of the first variant.")
    variants = VariantSerializer(many=True)


def _choices(method: RunMethod) -> list[dict[str, Any]]:
    """Choices of a method, as `ChoiceSerializer` writes them."""
    return [{**vars(each), "type": JSON_TYPES[each.type], "choices": each.named} for each in method.choices.described()]


def _described(kinds: Mapping[str, type[Parametrised]]) -> list[dict[str, Any]]:
    """Learners or students as `LearnerSerializer` describes them."""
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
    """List of what can be a teacher."""

    @operation("Learners", "runs", LearnerSerializer(many=True), operation_id="learners_list")
    def get(self, request: Request) -> Response:
        """List the learners and their parameters, for the choice `learner` of teachers who vote."""
        return Response(LearnerSerializer(_described(LEARNERS), many=True).data)


class StudentList(ApiView):
    """List of what can be a student."""

    @operation("Students", "runs", LearnerSerializer(many=True), operation_id="students_list")
    def get(self, request: Request) -> Response:
        """List the students and their parameters, for `student_learner` and `student_parameters` of a run.

        Those that learn from noisy counts come first; every learner can be a student as well.
        """
        return Response(LearnerSerializer(_described(STUDENTS), many=True).data)


class RepresentationList(ApiView):
    """List of the spaces in which votes and gradient steps work."""

    @operation("Representations", "runs", RepresentationSerializer(many=True), operation_id="representations_list")
    def get(self, request: Request) -> Response:
        """List the representations and their parameters, for `choices` of a run in which every holder is asked.

        All are fitted on public points. If `embedded` is set, rounds after the first use the student's inner layer
        instead.
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
    """List of the ways in which a run can learn."""

    @operation("Methods", "runs", MethodSerializer(many=True), operation_id="methods_list")
    def get(self, request: Request) -> Response:
        """List the methods for `method` of a run, with their variants and the `choices` of each."""
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
    """List of the ways in which teachers' votes become a label."""

    @operation("Aggregators", "runs", AggregatorSerializer(many=True), operation_id="aggregators_list")
    def get(self, request: Request) -> Response:
        """List the aggregators and their parameters, for `choices` of a run. All parameters are required."""
        aggregators = [
            {
                "name": name,
                "label": aggregator.label,
                "description": aggregator.help,
                "parameters": aggregator.fields(),
            }
            for name, aggregator in AGGREGATORS.items()
        ]
        return Response(AggregatorSerializer(aggregators, many=True).data)
