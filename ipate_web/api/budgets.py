"""Budgets of privacy groups over all runs of a study."""

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from accounting.exports import budgets_csv
from consent.models import Level
from ipate_web.api.base import ApiView, operation, visible_study
from ipate_web.api.tables import TableCsv
from training.selectors import study_budgets


class BudgetUseSerializer(serializers.Serializer):
    """Part of a group's budget that was used."""

    run = serializers.UUIDField(allow_null=True, help_text="null: head counts, check answers, or a restored backup.")
    title = serializers.CharField(help_text="Of the run, or what else was released.")
    share = serializers.FloatField(help_text="Part of the cap.")
    epsilon = serializers.FloatField(help_text="Of this charge by itself.")
    at = serializers.DateTimeField(help_text="When the group was last charged for it.")


class GroupBudgetSerializer(serializers.Serializer):
    """Budget of everybody with one promise: the most that an account can have been charged which kept its level."""

    level = serializers.ChoiceField(Level.choices)
    policy = serializers.IntegerField(help_text="Version of the newest ε policy that makes this promise.")
    epsilon = serializers.FloatField(help_text="What is promised.")
    epsilon_used = serializers.FloatField(help_text="Each ε is that of its part by itself; shares add up, ε do not.")
    epsilon_reserved = serializers.FloatField()
    epsilon_left = serializers.FloatField(help_text="Of one more release that would use all that is left.")
    share_used = serializers.FloatField(
        help_text="Part of the cap, in μ². Above 1 where the promise was larger before and used then."
    )
    share_reserved = serializers.FloatField(help_text="What runs under way were granted and have not used.")
    share_left = serializers.FloatField()
    runs = BudgetUseSerializer(many=True, source="uses")


class StudyBudgetSerializer(serializers.Serializer):
    delta = serializers.FloatField(help_text="The δ at which every ε is stated.")
    groups = GroupBudgetSerializer(many=True, help_text="Smallest ε first; none in a rehearsal.")


class StudyBudget(ApiView):
    """What each privacy group of a study has used."""

    renderer_classes = [JSONRenderer, TableCsv]

    @operation(
        "What each privacy group has used",
        "studies",
        {(200, "application/json"): StudyBudgetSerializer, (200, "text/csv"): OpenApiTypes.STR},
        parameters=[OpenApiParameter("format", enum=["json", "csv"])],
        examples=[
            OpenApiExample(
                "As CSV: a row for each group and run, and for what is used, reserved and left in all",
                value="level,policy,epsilon,part,run,title,share,share_epsilon,at\r\nHIGH,1,1.0,left,,,0.75,0.85,\r\n",
                media_type="text/csv",
            )
        ],
    )
    def get(self, request: Request, slug: str) -> Response:
        """Used, reserved and left of every promise, over all runs: public bounds, never what one person has used."""
        study = visible_study(request.user, slug)
        groups = study_budgets(study)
        if request.accepted_renderer.format == "csv":
            return Response("".join(budgets_csv(groups)).encode())
        return Response(StudyBudgetSerializer({"delta": study.delta, "groups": groups}).data)
