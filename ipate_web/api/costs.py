"""Costs of a run over time, and the budgets of a study's privacy groups across all runs."""

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
    epsilon = serializers.FloatField(help_text="Smallest ε promised in the group.")
    cap = serializers.FloatField(help_text="Cap that corresponds to this ε, in μ².")
    allowed = serializers.FloatField(help_text="Part of the cap that the run may use, in μ².")
    spent = serializers.FloatField(
        help_text="This run's charge to every member so far, in μ². If every holder is asked, this is an upper "
        "bound for each member's charge."
    )
    retired = serializers.BooleanField()


class CostHistorySerializer(serializers.Serializer):
    """Number of queries or steps, number of labels, and each group's used share of its cap, after each batch."""

    queries = serializers.ListField(child=serializers.IntegerField(), source="positions")
    labels = serializers.ListField(child=serializers.IntegerField())
    shares = serializers.DictField(child=serializers.ListField(child=serializers.FloatField()))


class CostsSerializer(serializers.Serializer):
    groups = GroupSpendingSerializer(many=True)
    history = CostHistorySerializer()


class RunCosts(ApiView):
    @operation("Costs of a run", "runs", CostsSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Return the charge to each group: the same for all members or, if it differs, the largest to any member.

        Rehearsals charge no one. If every holder is asked, a group consists of the holders who were given the same
        promise.
        """
        run = visible_run(request.user, pk)
        return Response(CostsSerializer({"groups": run_groups(run), "history": run_cost_history(run)}).data)


class BudgetUseSerializer(serializers.Serializer):
    """Part of a group's budget that one run or release has used."""

    run = serializers.UUIDField(
        allow_null=True,
        help_text="Id of the run; null for head counts, answers to check questions and restored backups.",
    )
    title = serializers.CharField(help_text="Title of the run, or the name of any other kind of release.")
    share = serializers.FloatField(help_text="Share of the cap that was used.")
    epsilon = serializers.FloatField(help_text="ε of this charge on its own.")
    at = serializers.DateTimeField(help_text="Time of the last charge to the group for this run or release.")


class GroupBudgetSerializer(serializers.Serializer):
    """Budget of people with the same promise; used amounts are the largest of accounts whose level never changed."""

    level = serializers.ChoiceField(Level.choices)
    policy = serializers.IntegerField(help_text="Version of the newest ε policy that makes this promise.")
    epsilon = serializers.FloatField(help_text="Promised ε.")
    epsilon_used = serializers.FloatField(
        help_text="ε of the used part on its own. You can add up shares, but not values of ε."
    )
    epsilon_reserved = serializers.FloatField()
    epsilon_left = serializers.FloatField(help_text="ε of one further release that uses up the rest of the budget.")
    share_used = serializers.FloatField(
        help_text="Share of the cap, in μ², that was used. It exceeds 1 if more than the current cap was used under "
        "an earlier, larger promise."
    )
    share_reserved = serializers.FloatField(
        help_text="Share of the cap that is reserved for runs in progress and has not been used yet."
    )
    share_left = serializers.FloatField()
    runs = BudgetUseSerializer(many=True, source="uses")


class StudyBudgetSerializer(serializers.Serializer):
    delta = serializers.FloatField(help_text="δ at which every ε is stated.")
    groups = GroupBudgetSerializer(
        many=True, help_text="Groups by ε, smallest first; empty in a rehearsal and before the first ε policy."
    )


class StudyBudget(ApiView):
    """Budget used by each privacy group of a study."""

    renderer_classes = [JSONRenderer, TableCsv]

    @operation(
        "Budget used by each privacy group",
        "studies",
        {(200, "application/json"): StudyBudgetSerializer, (200, "text/csv"): OpenApiTypes.STR},
        parameters=[OpenApiParameter("format", enum=["json", "csv"])],
        examples=[
            OpenApiExample(
                "As CSV, with one row for each group and run and rows for the totals used, reserved and left",
                value="level,policy,epsilon,part,run,title,share,share_epsilon,at\r\nHIGH,1,1.0,left,,,0.75,0.85,\r\n",
                media_type="text/csv",
            )
        ],
    )
    def get(self, request: Request, slug: str) -> Response:
        """Return the used, reserved and remaining part of each promise, over all runs.

        These are public bounds; they do not show what any one person has used.
        """
        study = visible_study(request.user, slug)
        groups = study_budgets(study)
        if request.accepted_renderer.format == "csv":
            return Response("".join(budgets_csv(groups)).encode())
        return Response(StudyBudgetSerializer({"delta": study.delta, "groups": groups}).data)
