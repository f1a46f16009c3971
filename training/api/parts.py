"""What runs can be made of: learners and aggregators with their parameters."""

import dataclasses
import inspect

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from training.api.base import ApiView
from training.learners import LEARNERS, learner_fields
from training.pate import AGGREGATORS

AGGREGATOR_PARAMETERS = {
    "sigma": "σ: standard deviation of the Gaussian noise on the count of each class, in votes.",
    "gamma": "γ: the Laplace noise on the count of each class has the scale 1/γ, in votes.",
    "sigma_threshold": "σ_T: standard deviation of the noise of the check, in votes.",
    "threshold": "T: how many votes the largest count must reach, under noise, for a query to be answered, in votes.",
    "confidence": "How sure the student must be for its own label to be taken, between 0 and 1.",
}


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
    parameters = LearnerParameterSerializer(many=True)


class AggregatorParameterSerializer(serializers.Serializer):
    name = serializers.CharField()
    help = serializers.CharField()


class AggregatorSerializer(serializers.Serializer):
    name = serializers.CharField()
    description = serializers.CharField()
    parameters = AggregatorParameterSerializer(many=True)


_TYPES = {int: "integer", float: "number", bool: "boolean"}


class LearnerList(ApiView):
    """What can be a teacher or a student."""

    @extend_schema(
        summary="Learners", tags=["runs"], operation_id="learners_list", responses=LearnerSerializer(many=True)
    )
    def get(self, request: Request) -> Response:
        """The learners and their parameters, for `learner` and `student_learner` of a run."""
        learners = [
            {
                "name": name,
                "label": learner.label,
                "parameters": [{**vars(field), "type": _TYPES[field.type]} for field in learner_fields(name)],
            }
            for name, learner in LEARNERS.items()
        ]
        return Response(LearnerSerializer(learners, many=True).data)


class AggregatorList(ApiView):
    """How teachers' votes become a label."""

    @extend_schema(
        summary="Aggregators",
        tags=["runs"],
        operation_id="aggregators_list",
        responses=AggregatorSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """The aggregators and their parameters, all of them needed, for `aggregator` of a run."""
        aggregators = [
            {
                "name": name,
                "description": (inspect.getdoc(aggregator) or "").partition("\n")[0],
                "parameters": [
                    {"name": field.name, "help": AGGREGATOR_PARAMETERS[field.name]}
                    for field in dataclasses.fields(aggregator)
                ],
            }
            for name, aggregator in AGGREGATORS.items()
        ]
        return Response(AggregatorSerializer(aggregators, many=True).data)
