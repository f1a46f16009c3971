"""Costs of runs."""

from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from consent.models import Level
from ipate_web.api.base import ApiView, operation
from ipate_web.api.run_documents import visible_run
from training.selectors import run_cost_history, run_groups


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
        """Charges group by group: what all members were charged alike, or at most. Functions of what was released.

        Empty in a rehearsal. Where every holder is asked a group is the holders of one promise.
        """
        run = visible_run(request.user, pk)
        return Response(CostsSerializer({"groups": run_groups(run), "history": run_cost_history(run)}).data)
