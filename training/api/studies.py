"""Studies: what is public about them, and what a run of theirs can use."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from consent.disclosure import rounded_size
from consent.models import Level, Study
from consent.permissions import studies_with_permission
from consent.selectors import holders_per_level, policy_in_force
from training.api.base import ApiView, visible_study
from training.formats import schema_from_json
from training.models import Dataset


class StudySerializer(serializers.ModelSerializer):
    class Meta:
        model = Study
        fields = ["slug", "title", "purpose", "controller", "contact", "delta"]


class PolicySerializer(serializers.Serializer):
    """The ε policy in force."""

    version = serializers.IntegerField()
    effective_from = serializers.DateTimeField(source="approval.effective_from")


class LevelSerializer(serializers.Serializer):
    """A level of protection: its ε, and how many people chose it."""

    level = serializers.ChoiceField(Level.choices)
    epsilon = serializers.FloatField(allow_null=True, help_text="null: no ε policy is in force.")
    holders = serializers.IntegerField(
        allow_null=True, help_text="To the nearest ten, null where few, unless holders_are_exact."
    )


class DatasetSerializer(serializers.ModelSerializer):
    """A dataset: what its records look like. Of a private one, sizes are rounded outside staff."""

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
        exact = self.context["exact"] or dataset.kind != Dataset.Kind.PRIVATE
        return size if exact else rounded_size(size)


class StudyDetailSerializer(StudySerializer):
    policy = PolicySerializer(allow_null=True)
    levels = LevelSerializer(many=True)
    holders_are_exact = serializers.BooleanField(help_text="True for staff, who see exact numbers of holders.")
    datasets = DatasetSerializer(many=True)

    class Meta(StudySerializer.Meta):
        fields = [*StudySerializer.Meta.fields, "policy", "levels", "holders_are_exact", "datasets"]


@extend_schema_view(get=extend_schema(summary="Your studies", tags=["studies"]))
class StudyList(ApiView, generics.ListAPIView):
    """The studies whose runs you may see."""

    serializer_class = StudySerializer

    def get_queryset(self) -> Any:
        return studies_with_permission(self.request.user, "training.view_run").order_by("slug")


class StudyDetail(ApiView):
    """What is public about a study."""

    @extend_schema(summary="A study", tags=["studies"], responses=StudyDetailSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Purpose and controller, the levels with their ε and sizes, and the datasets that a run can use."""
        study = visible_study(request.user, slug)
        exact = request.user.has_perm("consent.view_group_sizes", study)
        policy, holders = policy_in_force(study), holders_per_level(study)
        document = {
            **StudySerializer(study).data,
            "policy": policy,
            "levels": [
                {
                    "level": level,
                    "epsilon": policy.epsilon(level) if policy else None,
                    "holders": holders[level] if exact else rounded_size(holders[level]),
                }
                for level in Level.values
            ],
            "holders_are_exact": exact,
            "datasets": study.datasets.all(),
        }
        return Response(StudyDetailSerializer(document, context={"exact": exact}).data)
