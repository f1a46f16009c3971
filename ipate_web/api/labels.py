"""Labels that runs have released, page by page or as a file."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import generics, serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from ipate_web.api.base import ApiView, operation, request_user
from ipate_web.api.requests import LabelPages
from ipate_web.api.run_documents import visible_run
from training.models import Query
from training.services.downloads import LABEL_FORMATS, download_record


class LabelSerializer(serializers.Serializer):
    row = serializers.IntegerField(help_text="Row of the point in the public dataset, counted from 0.")
    label = serializers.CharField(help_text="Name of its class or category.")  # type: ignore[assignment]
    reinforced = serializers.BooleanField(
        help_text="Whether this is the student's own label, which the teachers did not contradict (Interactive-GNMax)."
    )
    counts = serializers.ListField(
        child=serializers.IntegerField(),
        allow_null=True,
        help_text="Noisy counts in the order of the classes, possibly below 0; null if they were not released.",
    )


class LabelFileRenderer(BaseRenderer):
    """The labels as a file, given as its bytes."""

    charset: str | None = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return data


class LabelsCsv(LabelFileRenderer):
    media_type = LABEL_FORMATS["csv"].media_type
    format = "csv"
    charset = "utf-8"


class LabelsParquet(LabelFileRenderer):
    media_type = LABEL_FORMATS["parquet"].media_type
    format = "parquet"


class LabelsNpz(LabelFileRenderer):
    media_type = LABEL_FORMATS["npz"].media_type
    format = "npz"


class RunLabels(ApiView, generics.ListAPIView):
    """Labels that a run has released."""

    serializer_class = LabelSerializer
    pagination_class = LabelPages
    renderer_classes = [JSONRenderer, LabelsCsv, LabelsParquet, LabelsNpz]

    def get_queryset(self) -> QuerySet[Query]:
        return self.run.queries.filter(label__isnull=False).order_by("row")

    def get_serializer(self, queries: Any, **kwargs: Any) -> LabelSerializer:
        classes = self.run.learns.categories
        labels = [
            {"row": query.row, "label": classes[query.label], "reinforced": query.reinforced, "counts": query.counts}
            for query in queries
        ]
        return LabelSerializer(labels, **kwargs)

    @operation(
        "Released labels",
        "labels and models",
        {
            (200, "application/json"): LabelSerializer(many=True),
            (200, "text/csv"): OpenApiTypes.STR,
            (200, LabelsParquet.media_type): OpenApiTypes.BINARY,
            (200, LabelsNpz.media_type): OpenApiTypes.BINARY,
        },
        parameters=[
            OpenApiParameter(
                "format",
                enum=["json", *LABEL_FORMATS],
                description="Format of the labels: csv and parquet give all of them at once; npz gives NumPy arrays "
                "that include the public points.",
            )
        ],
        examples=[
            OpenApiExample("As a table", value="row,label\n0,7\n3,1\n", media_type="text/csv"),
            OpenApiExample(
                "With noisy counts",
                value="row,label,count_no,count_yes\n0,yes,-31,214\n3,no,190,27\n",
                media_type="text/csv",
            ),
        ],
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """Return the labelled public points: as JSON, 1,000 per page (at most 10,000), or all of them as a file.

        An npz file contains `x` (all public points as encoded records, unless they were removed), `row`, `label` (class
        numbers), `reinforced` (true if the student's own label was kept), `counts` if they were released, and the names
        of the `classes`. The points' own labels are not included. Tables have a column `reinforced` (1 or 0) if any
        label is.

        If every holder votes, each label comes with the noisy number of votes for each class. Runs that learn by
        gradient steps have no labels. The release register gets one entry, however many pages of the labels you fetch.
        """
        self.run = visible_run(request.user, pk, "training.use_student")
        if request.method == "GET":  # HEAD takes nothing away
            download_record(run=self.run, what="labels", acting_user=request_user(request))
        chosen = LABEL_FORMATS.get(request.accepted_renderer.format)
        return self.list(request) if chosen is None else Response(chosen.content(self.run))
