"""Labels, tables of counts and synthetic rows that runs have released."""

from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import exceptions, generics, serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from common.artifacts import model_fetch
from ipate_web.api.base import ApiView, MinuteField, body_of, operation, request_user
from ipate_web.api.models import Gone
from ipate_web.api.problems import CONFLICT, GONE
from ipate_web.api.requests import LabelPages
from ipate_web.api.run_documents import visible_run
from ipate_web.api.students import WithdrawalSerializer
from ipate_web.tokens.models import Scope
from learning.mechanisms.counts.tables import CountTable, summaries
from training.errors import STATE
from training.models import Query, Run, RunResult
from training.services.downloads import LABEL_FORMATS, download_record
from training.services.publication import result_withdraw


class LabelSerializer(serializers.Serializer):
    row = serializers.IntegerField(help_text="Row of the point in the public dataset, counted from 0.")
    label = serializers.CharField(help_text="Name of the point's class or category.")  # type: ignore[assignment]
    reinforced = serializers.BooleanField(
        help_text="Whether this is the student's own label, which the teachers did not contradict (Interactive-GNMax)."
    )
    counts = serializers.ListField(
        child=serializers.IntegerField(),
        allow_null=True,
        help_text="Noisy counts in the order of the classes, which may be negative; null if they were not released.",
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
                description="Format of the labels. With csv and parquet, the file contains all labels; with npz, it "
                "contains NumPy arrays that include the public points.",
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
        """Return the labelled public points: as JSON, 1,000 per page (or up to 10,000), or all as a file.

        An npz file contains `x` (all public points as encoded records, unless they were removed), `row`, `label` (class
        numbers), `reinforced` (true if the student's own label was kept), `counts` if they were released, and the names
        of the `classes`. The points' own labels are not included. Tables have a column `reinforced` (1 or 0) if any
        label was reinforced.

        If every holder votes, each label comes with the noisy number of votes for each class. Runs that learn by
        gradient steps have no labels. The release register logs a single entry, even if you fetch several pages of
        labels.
        """
        self.run = visible_run(request.user, pk, "training.use_student")
        if request.method == "GET":  # HEAD downloads nothing
            download_record(run=self.run, what="labels", acting_user=request_user(request))
        chosen = LABEL_FORMATS.get(request.accepted_renderer.format)
        return self.list(request) if chosen is None else Response(chosen.content(self.run))


class CellSerializer(serializers.Serializer):
    """A cell of a table."""

    values = serializers.ListField(child=serializers.CharField(), help_text="Values of the cell, one for each column.")
    people = serializers.FloatField(source="count", help_text="Noisy number of people; may be negative.")
    least = serializers.FloatField(
        help_text="Lower end of the interval that contains the true number with at least 95 % probability, however "
        "the levels are spread across the cells."
    )
    most = serializers.FloatField(help_text="Upper end of the interval that begins at `least`.")
    low = serializers.FloatField(
        help_text="Lower end of the interval that contains the true number with 95 % probability if the levels are "
        "spread across the cells at random."
    )
    high = serializers.FloatField(
        help_text="Upper end of the interval that begins at `low`. In runs across sites, the interval does not "
        "account for the noise of the sites' head counts."
    )
    weighted = serializers.FloatField(help_text="Noisy sum of the weights of the people in this cell.")


class LevelPartSerializer(serializers.Serializer):
    """Number and weight of a level's people in a table."""

    name = serializers.CharField()
    people = serializers.FloatField(help_text="Number of people at the level, according to the head counts.")
    weight = serializers.FloatField(help_text="Weight of each person at the level, above 0 and at most 1.")


class EstimateSerializer(serializers.Serializer):
    """A number with its interval."""

    value = serializers.FloatField()
    low = serializers.FloatField(
        help_text="Lower end of the interval that contains the true number with at least 95 % probability."
    )
    high = serializers.FloatField(help_text="Upper end of the interval that begins at `low`.")


class SummarySerializer(serializers.Serializer):
    """Mean and quartiles of a column of numbers, computed from the cells."""

    column = serializers.CharField()
    group = serializers.CharField(help_text="Value of the other column; empty for all people.", allow_blank=True)
    mean = EstimateSerializer(allow_null=True, help_text="Mean of the column; null if the noise is too large.")
    quantiles = EstimateSerializer(many=True, help_text="First quartile, median, third quartile.")


class TableSerializer(serializers.Serializer):
    """Table of a run."""

    run = serializers.UUIDField(source="result.run_id")
    columns = serializers.ListField(child=serializers.CharField())
    cells = CellSerializer(many=True, source="table")
    levels = LevelPartSerializer(
        many=True, source="table.levels", help_text="Levels of the people that the table describes."
    )
    summaries = SummarySerializer(many=True)
    error = serializers.FloatField(
        source="table.error",
        help_text="Half the width of the interval from `low` to `high`, for a cell of average size.",
    )
    sigma = serializers.FloatField(
        source="table.sigma", help_text="Standard deviation of the noise in each sum of weights."
    )
    scale = serializers.FloatField(
        source="table.scale",
        help_text="Number of people for each unit of weight; 1 if everyone counts equally.",
    )
    digest = serializers.CharField(source="result.digest", help_text="SHA-256 of the CSV.")
    created_at = MinuteField(source="result.created_at", help_text="Time the table was created, to the minute.")
    card = serializers.DictField(
        source="result.card",
        help_text="Description of the people behind the table and of the privacy promise made to them.",
    )


class WithdrawnTableSerializer(serializers.Serializer):
    """Table that was withdrawn."""

    run = serializers.UUIDField(source="run_id")
    digest = serializers.CharField()
    withdrawn_at = MinuteField(help_text="Time the table was withdrawn, to the minute.")
    withdrawal_reason = serializers.CharField()


class TableCsv(LabelFileRenderer):
    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"


class MarginalSerializer(serializers.Serializer):
    """A table of counts for one edge of the tree that rows are drawn from."""

    columns = serializers.ListField(child=serializers.CharField())
    cells = serializers.IntegerField()
    error = serializers.FloatField(
        help_text="Margin of error for a cell of average size: with 95 % probability, the number of people in the "
        "table is within this margin of the true number."
    )
    distance = serializers.FloatField(
        help_text="Total variation distance between the rows and the counts released for the table."
    )


class PassingSerializer(serializers.Serializer):
    """Rows that pass the plausible deniability test."""

    omegas = serializers.CharField(help_text="Number of columns (ω) that are redrawn, or a range of such numbers.")
    gamma = serializers.FloatField()
    shares = serializers.ListField(
        child=serializers.FloatField(), help_text="Share of the rows that pass, for each k in `least`."
    )


class ParentsSerializer(serializers.Serializer):
    """A column with its parents in the network that rows are drawn from."""

    column = serializers.CharField()
    parents = serializers.ListField(child=serializers.CharField())


class DeniabilitySerializer(serializers.Serializer):
    """Facts about rows generated with the variant *deniability*, in rehearsal studies."""

    tried = serializers.IntegerField(help_text="Number of rows that were generated.")
    passed = serializers.IntegerField(help_text="Number of these rows that passed the test.")
    least = serializers.ListField(child=serializers.IntegerField())
    passing = PassingSerializer(many=True)
    network = ParentsSerializer(many=True)


class RowsSerializer(serializers.Serializer):
    """Synthetic rows of a run."""

    run = serializers.UUIDField(source="result.run_id")
    columns = serializers.ListField(
        child=serializers.CharField(), help_text="Names of the columns; the class column comes last."
    )
    rows = serializers.IntegerField()
    dataset = serializers.IntegerField(
        source="result.dataset_id",
        help_text="Id of the public dataset that consists of these rows, without their classes.",
    )
    marginals = MarginalSerializer(many=True, required=False)
    pairs = serializers.FloatField(
        required=False,
        help_text="Mean total variation distance between the rows and the released counts, over all pairs of columns "
        "within each class.",
    )
    noise = serializers.FloatField(
        required=False, help_text="Part of the distance in `pairs` that is due to the noise in the released counts."
    )
    deniability = DeniabilitySerializer(required=False)
    digest = serializers.CharField(source="result.digest", help_text="SHA-256 of the CSV.")
    created_at = MinuteField(source="result.created_at", help_text="Time the rows were created, to the minute.")
    card = serializers.DictField(
        source="result.card",
        help_text="Description of the people behind the rows and of the privacy promise made to them.",
    )


def _result(run: Run) -> RunResult:
    result = RunResult.objects.filter(run=run).first()
    if result is None:
        raise exceptions.NotFound("This run has no table: it produces a model, or has not finished.")
    return result


def _taken(request: Request, run: Run, *, rows: bool) -> RunResult:
    """Return a run's publication, and log the download except for a HEAD request."""
    result = _result(run)
    if result.is_rows != rows:
        raise exceptions.NotFound(f"This run has {'no rows: ask for its table' if rows else 'rows: ask for these'}.")
    if result.withdrawn_at is not None:
        day = timezone.localdate(result.withdrawn_at).isoformat()
        raise Gone(f"This table was withdrawn on {day}: {result.withdrawal_reason}")
    if request.method == "GET":  # HEAD downloads nothing
        what = gettext_noop("table")
        download_record(run=run, what=what, digest=result.digest, acting_user=request_user(request))
    return result


class RunTable(ApiView):
    """Table that a run has published."""

    renderer_classes = [JSONRenderer, TableCsv]

    @operation(
        "A run's table of counts",
        "labels and models",
        {(200, "application/json"): TableSerializer, (200, "text/csv"): OpenApiTypes.STR},
        GONE,
        parameters=[OpenApiParameter("format", enum=["json", "csv"])],
        examples=[
            OpenApiExample(
                "As CSV",
                value="sick,people,low_95,high_95,weighted,least_95,most_95\nno,812.4,790.1,834.7,812.4,790.1,834.7\n",
                media_type="text/csv",
            )
        ],
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """Return the number of people in each cell with its interval. The release register logs who downloads it."""
        run = visible_run(request.user, pk, "training.use_student")
        result = _taken(request, run, rows=False)
        table = CountTable.from_json(result.content)
        if request.accepted_renderer.format == "csv":
            return Response(model_fetch(result.artifact))
        document: dict[str, Any] = {"result": result, "table": table, "columns": table.columns}
        document["summaries"] = summaries(table)
        return Response(TableSerializer(document).data)


class RunRows(ApiView):
    """Synthetic rows that a run has published."""

    renderer_classes = [JSONRenderer, TableCsv]

    @operation(
        "A run's synthetic rows",
        "labels and models",
        {(200, "application/json"): RowsSerializer, (200, "text/csv"): OpenApiTypes.STR},
        GONE,
        parameters=[OpenApiParameter("format", enum=["json", "csv"])],
        examples=[OpenApiExample("As CSV", value="age,sex,sick\n41.7,f,no\n", media_type="text/csv")],
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """Return facts about the rows, or the rows as CSV. The release register logs who downloads them."""
        run = visible_run(request.user, pk, "training.use_student")
        result = _taken(request, run, rows=True)
        if request.accepted_renderer.format == "csv":
            return Response(model_fetch(result.artifact))
        return Response(RowsSerializer({"result": result, **result.content}).data)


class RunTableWithdraw(ApiView):
    scope = Scope.DECIDE

    @operation(
        "Withdraw a run's table or synthetic rows (operators)",
        "labels and models",
        WithdrawnTableSerializer,
        CONFLICT,
        request=WithdrawalSerializer,
        examples=[OpenApiExample("A defect", request_only=True, value={"reason": "The bins were wrong."})],
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Withdraw the table permanently.

        This is logged. The table becomes unavailable, and people who downloaded it are notified.
        """
        run = visible_run(request.user, pk, "training.withdraw_model")
        body = body_of(request, WithdrawalSerializer)
        if _result(run).is_withdrawn:
            raise ValidationError("This table has already been withdrawn.", code=STATE)
        withdrawn = result_withdraw(run=run, acting_user=request_user(request), **body)
        return Response(WithdrawnTableSerializer(withdrawn).data)
