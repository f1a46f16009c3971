"""Endpoints of studies: public facts, and the datasets that a run can use."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounting.head_counts import head_counts
from accounting.models import HeadCount
from accounting.shares import share_free
from consent.models import Level, Study
from consent.permissions import studies_with_permission
from consent.selectors import policy_in_force
from ipate_web.api.base import ApiView, visible_study
from training.formats import schema_from_json
from training.models import Dataset


class StudySerializer(serializers.ModelSerializer):
    class Meta:
        model = Study
        fields = ["slug", "title", "purpose", "controller", "contact", "delta", "rehearsal"]


class PolicySerializer(serializers.Serializer):
    """The ε policy in force."""

    version = serializers.IntegerField()
    effective_from = serializers.DateTimeField(source="approval.effective_from")


class LevelSerializer(serializers.Serializer):
    """A level of protection and the ε that a consent given now is promised."""

    level = serializers.ChoiceField(Level.choices)
    epsilon = serializers.FloatField(allow_null=True, help_text="null: no ε policy is in force.")


class HeadCountSerializer(serializers.ModelSerializer):
    """Number of holders of a promise: a public one, or one drawn with noise of standard deviation ``sigma``."""

    class Meta:
        model = HeadCount
        fields = ["level", "epsilon", "count", "sigma"]


class DatasetSerializer(serializers.ModelSerializer):
    """A dataset: what its records look like. How many a private one has is not told."""

    classes = serializers.ListField(child=serializers.CharField())
    shape = serializers.SerializerMethodField()
    schema = serializers.JSONField(help_text="Columns or image size, and classes: what a record looks like.")
    rows = serializers.SerializerMethodField()
    holders = serializers.SerializerMethodField()

    class Meta:
        model = Dataset
        fields = ["id", "name", "kind", "classes", "shape", "schema", "rows", "holders"]

    def get_shape(self, dataset: Dataset) -> list[int]:
        return list(schema_from_json(dataset.schema).shape)

    def get_rows(self, dataset: Dataset) -> int | None:
        return self._size(dataset, dataset.rows)

    def get_holders(self, dataset: Dataset) -> int | None:
        return self._size(dataset, dataset.holders)

    def _size(self, dataset: Dataset, size: int) -> int | None:
        return None if dataset.kind == Dataset.Kind.PRIVATE else size


class StudyDetailSerializer(StudySerializer):
    policy = PolicySerializer(allow_null=True)
    levels = LevelSerializer(many=True)
    head_counts = HeadCountSerializer(many=True, help_text="What plans rest on; none before they are drawn or entered.")
    share_free = serializers.FloatField(help_text="The share of every cap that nothing has used and nothing holds.")
    datasets = DatasetSerializer(many=True)

    class Meta(StudySerializer.Meta):
        fields = [*StudySerializer.Meta.fields, "policy", "levels", "head_counts", "share_free", "datasets"]


@extend_schema_view(get=extend_schema(summary="Your studies", tags=["studies"]))
class StudyList(ApiView, generics.ListAPIView):
    """The studies whose runs you may see."""

    serializer_class = StudySerializer

    def get_queryset(self) -> Any:
        return studies_with_permission(self.request.user, "training.view_run").order_by("slug")


class StudyDetail(ApiView):
    """Public facts of a study."""

    @extend_schema(summary="A study", tags=["studies"], responses=StudyDetailSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Purpose and controller, the levels with their ε, head counts, and the datasets that a run can use."""
        study = visible_study(request.user, slug)
        policy = policy_in_force(study)
        document = {
            **StudySerializer(study).data,
            "policy": policy,
            "levels": [
                {
                    "level": level,
                    "epsilon": policy.epsilon(level) if policy else None,
                }
                for level in Level.values
            ],
            "head_counts": head_counts(study),
            "share_free": share_free(study),
            "datasets": study.datasets.filter(removed_at=None),
        }
        return Response(StudyDetailSerializer(document).data)
