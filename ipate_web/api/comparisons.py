"""Comparison of runs: what the page of the same name shows."""

from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ipate_web.api.base import ApiView, operation
from ipate_web.api.run_documents import RunSerializer, visible_run
from training.comparison import MOST, runs_compare


class ComparisonQuerySerializer(serializers.Serializer):
    """Choice of the runs."""

    runs = serializers.RegexField(
        rf"^[0-9a-fA-F-]{{36}}(,[0-9a-fA-F-]{{36}}){{1,{MOST - 1}}}$",
        help_text=f"Ids of two to {MOST} runs, separated by commas.",
        error_messages={"invalid": f"Give the ids of two to {MOST} runs, separated by commas."},
    )

    def validate_runs(self, text: str) -> list[UUID]:
        try:
            ids = list(dict.fromkeys(map(UUID, text.split(","))))
        except ValueError:
            raise serializers.ValidationError(
                "Not all of these are ids of runs. GET /api/v1/runs lists yours."
            ) from None
        if len(ids) < 2:
            raise serializers.ValidationError("These are all the same run: give another one, too.")
        return ids


class ComparedGroupSerializer(serializers.Serializer):
    name = serializers.CharField()
    used = serializers.FloatField(source="spent_share", help_text="Part of every member's cap that the run has used.")


class ComparedSerializer(serializers.Serializer):
    """Outcome of one run."""

    run = RunSerializer()
    interval = serializers.ListField(
        child=serializers.FloatField(), allow_null=True, help_text="95 % confidence interval of the accuracy."
    )
    measures = serializers.DictField(
        source="run.student.measures",
        allow_null=True,
        help_text="Of its published model on the test data, as GET /api/v1/models tells them.",
    )
    label_accuracy = serializers.FloatField(allow_null=True, help_text="Share of its labels that are right, rounded.")
    share = serializers.FloatField(allow_null=True, help_text="Part of every cap that it may use; null before.")
    used = serializers.FloatField(allow_null=True, help_text="Of the group that used most.")
    groups = ComparedGroupSerializer(many=True)
    minutes = serializers.IntegerField(allow_null=True, help_text="From its approval to its end.")


class ParameterRowSerializer(serializers.Serializer):
    """A parameter that is not the same in all of the runs."""

    name = serializers.CharField(help_text="Dotted where it is of something that was chosen: choices.aggregator.sigma.")
    values = serializers.ListField(
        child=serializers.JSONField(allow_null=True), help_text="One for each run, in their order; null for none."
    )


class ComparisonSerializer(serializers.Serializer):
    runs = ComparedSerializer(many=True)
    parameters = ParameterRowSerializer(many=True)


class RunComparison(ApiView):
    query_class = ComparisonQuerySerializer

    @operation("Compare runs", "runs", ComparisonSerializer, parameters=[ComparisonQuerySerializer])
    def get(self, request: Request) -> Response:
        """Outcomes of some runs, and those of their parameters that differ; 404 where you may not see one."""
        runs: list[Any] = [visible_run(request.user, pk) for pk in self.query["runs"]]
        return Response(ComparisonSerializer(runs_compare(runs)).data)
