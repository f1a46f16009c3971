"""What runs cost: of one run over time, and the budgets of privacy groups over all runs of a study."""

from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from accounting.exports import budgets_csv
from consent.models import Level
from ipate_web.api.base import ApiView, operation, visible_study
from ipate_web.api.run_documents import visible_run
from ipate_web.api.tables import TableCsv
from training.selectors import run_cost_history, run_groups, study_budgets


class GroupSpendingSerializer(serializers.Serializer):
    name = serializers.CharField()
    levels = serializers.ListField(child=serializers.ChoiceField(Level.choices))
    epsilon = serializers.FloatField(help_text="The smallest promise in the group.")
    cap = serializers.FloatField(help_text="Its μ².")
    allowed = serializers.FloatField(help_text="The run's share of the cap.")
    spent = serializers.FloatField(
        help_text="In μ²: what every member was charged by this run so far; where every holder is asked, at most that."
    )
    retired = serializers.BooleanField()


class CostHistorySerializer(serializers.Serializer):
    """After each batch: queries or steps so far, labels, and by group the share of its members' caps that was used."""

    queries = serializers.ListField(child=serializers.IntegerField(), source="positions")
    labels = serializers.ListField(child=serializers.IntegerField())
    shares = serializers.DictField(child=serializers.ListField(child=serializers.FloatField()))


class CostsSerializer(serializers.Serializer):
    groups = GroupSpendingSerializer(many=True)
    history = CostHistorySerializer()


class RunCosts(ApiView):
    @operation("What a run has cost", "runs", CostsSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Charges of each group: the same for all members, or the most of any member. They follow from releases.

        Empty in a rehearsal. Where every holder is asked a group is the holders of one promise.
        """
        run = visible_run(request.user, pk)
        return Response(CostsSerializer({"groups": run_groups(run), "history": run_cost_history(run)}).data)


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
