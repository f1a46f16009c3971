"""Endpoints for a study's data: imports by a data steward, decisions on paper, and head counts."""

from http import HTTPStatus
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import exceptions, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from consent.models import Level, Study
from consent.services.paper import PaperError, paper_consents_record, paper_list_read
from ipate_web.api.base import (
    IDEMPOTENCY_KEY,
    ApiView,
    StrictSerializer,
    body_of,
    created,
    operation,
    request_user,
    visible_study,
)
from ipate_web.api.datasets import UploadSerializer
from ipate_web.api.problems import CONFLICT, MOST_FAULTS, UNPROCESSABLE
from ipate_web.api.requests import LimitedMultiPartParser
from ipate_web.api.studies import HeadCountSerializer
from ipate_web.tokens.models import Scope
from learning.formats import schema_from_json
from training.errors import STATE, translated
from training.models import Dataset, DatasetImport
from training.services.drawings import head_counts_draw, head_counts_enter
from training.services.imports import (
    Upload,
    import_begin,
    import_confirm,
    import_declare,
    import_drop,
    import_progress,
    import_report,
    last_schema,
)

_IMPORT = "training.import_dataset"


class ImportFaultSerializer(serializers.Serializer):
    """An error in a file."""

    row = serializers.IntegerField(
        allow_null=True, help_text="Line number, as in a text editor; null if the error concerns the whole file."
    )
    column = serializers.CharField(
        help_text="Name of the column; empty if the error does not concern a particular column."
    )
    message = serializers.CharField()


class LeftOutSerializer(serializers.Serializer):
    """Items in a file that were left out for one reason."""

    reason = serializers.CharField()
    count = serializers.IntegerField()
    places = serializers.ListField(
        child=serializers.IntegerField(), help_text="Row numbers of the first 20 items in the file."
    )


class BalancePartSerializer(serializers.Serializer):
    """Counts of items of one kind; `seen` is the sum of the other counts."""

    part = serializers.CharField(help_text="Kind of item: rows, images, a table of an extract, or a resource type.")
    seen = serializers.IntegerField()
    used = serializers.IntegerField()
    refused = serializers.IntegerField()
    left_out = LeftOutSerializer(many=True)


class ChangedCellsSerializer(serializers.Serializer):
    """Cells of a column whose stored values differ from the file."""

    column = serializers.CharField()
    clipped = serializers.IntegerField(
        help_text="Number of values outside the declared range, each stored as its nearest bound."
    )
    unknown = serializers.IntegerField(help_text="Number of values that the schema does not list.")
    missing = serializers.IntegerField()


class BeyondSerializer(serializers.Serializer):
    """A person with more rows than allowed."""

    pseudonym = serializers.CharField()
    rows = serializers.IntegerField()


class ImportSerializer(serializers.ModelSerializer):
    """An import with the results of its check."""

    progress = serializers.SerializerMethodField(help_text="Completed share of the current step, from 0 to 1.")
    faults = serializers.IntegerField(allow_null=True, help_text="Number of errors found; null before the check.")
    problems = serializers.SerializerMethodField(help_text="The first 1,000 errors.")
    combined = serializers.SerializerMethodField(
        help_text="Number of rows before each person's rows were combined into one; 0 if they were not."
    )
    balance = serializers.SerializerMethodField(
        help_text="Numbers of items that are used, left out and refused; empty before the check."
    )
    changed = serializers.SerializerMethodField(help_text="Columns in which some stored values differ from the file.")
    beyond = serializers.SerializerMethodField(help_text="People with more rows than the limit per person.")
    look_alikes = serializers.SerializerMethodField(
        help_text="Groups of similar pseudonyms. Each group contains a new pseudonym that will be registered when "
        "the file is stored."
    )
    message = serializers.SerializerMethodField(
        help_text="Reason why nothing was imported; empty if there was no problem."
    )

    class Meta:
        model = DatasetImport
        fields = [
            *("id", "name", "kind", "state", "progress", "rows", "combined"),
            *("faults", "problems", "balance", "changed", "beyond", "look_alikes", "message", "dataset"),
        ]
        extra_kwargs = {"rows": {"help_text": "Number of rows without errors; null before the check."}}

    def get_progress(self, row: DatasetImport) -> float:
        return round(import_progress(row), 2)

    @extend_schema_field(BalancePartSerializer(many=True))
    def get_balance(self, row: DatasetImport) -> list[dict[str, Any]]:
        return [
            {name: part[name] for name in ("seen", "used", "refused")}
            | {
                "part": translated(part["part"]),
                "left_out": [each | {"reason": translated(each["reason"])} for each in part["left_out"]],
            }
            for part in import_report(row).get("balance", [])
        ]

    @extend_schema_field(ChangedCellsSerializer(many=True))
    def get_changed(self, row: DatasetImport) -> list[dict[str, Any]]:
        report = import_report(row)
        counts = {name: report.get(name, {}) for name in ("clipped", "unknown", "missing")}
        columns = dict.fromkeys(column for each in counts.values() for column in each)
        return [{"column": column} | {name: each.get(column, 0) for name, each in counts.items()} for column in columns]

    @extend_schema_field(BeyondSerializer(many=True))
    def get_beyond(self, row: DatasetImport) -> list[dict[str, Any]]:
        return [{"pseudonym": name, "rows": rows} for name, rows in import_report(row).get("beyond", [])]

    @extend_schema_field(ImportFaultSerializer(many=True))
    def get_problems(self, row: DatasetImport) -> list[dict[str, Any]]:
        return [
            {
                "row": fault["row"],
                "column": fault["column"],
                "message": f"{translated(fault['problem'])} {translated(fault['remedy'])}".strip(),
            }
            for fault in import_report(row).get("faults", [])[:MOST_FAULTS]
        ]

    @extend_schema_field(serializers.ListField(child=serializers.ListField(child=serializers.CharField())))
    def get_look_alikes(self, row: DatasetImport) -> list[list[str]]:
        return import_report(row).get("look_alikes", [])

    def get_combined(self, row: DatasetImport) -> int:
        return import_report(row).get("records", 0)

    def get_message(self, row: DatasetImport) -> str:
        return translated(row.message)


class ImportRequestSerializer(UploadSerializer):
    """A file of records with its description, and the statement about its schema."""

    known = serializers.BooleanField(
        default=False,
        help_text="Statement, for private rows, that ranges, values and classes are known from elsewhere "
        "and not taken from these rows.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        attrs = super().validate(attrs)
        if not attrs.pop("known") and attrs["kind"] == Dataset.Kind.PRIVATE:
            message = "The schema is public. Set this to true to state that nothing in it is taken from these rows."
            raise serializers.ValidationError({"known": message})
        return attrs


def _found(request: Request, slug: str, pk: str) -> DatasetImport:
    """Return an import of a study into which the user may import data.

    Raises:
        NotFound: the user may not see the study, or it has no such import.
        PermissionDenied: the user's role in the study does not include imports.
    """
    row = DatasetImport.objects.filter(study=visible_study(request.user, slug, _IMPORT), pk=pk).first()
    if row is None:
        raise exceptions.NotFound("The study does not have this import. Unfinished imports are kept for a day.")
    return row


class ImportView(ApiView):
    """Endpoint for imports. Errors in a file may name people, so even reading them requires the scope."""

    scope = Scope.RECORDS
    reading_scope = Scope.RECORDS


class StudyImports(ImportView):
    parser_classes = (LimitedMultiPartParser,)

    @operation(
        "Begin an import (data stewards)",
        "studies",
        ImportSerializer,
        CONFLICT,
        UNPROCESSABLE,
        status=202,
        request={"multipart/form-data": ImportRequestSerializer},
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, slug: str) -> Response:
        """Upload a file of at most 16 MiB. A worker checks the whole file against the schema.

        Nothing is stored as a dataset until you call `POST …/imports/{id}/store`. Poll the import until its `state` is
        `checked`. An unfinished import is discarded after a day, together with its file.
        """
        study = visible_study(request.user, slug, _IMPORT)
        sent, user = body_of(request, ImportRequestSerializer), request_user(request)
        document = sent.pop("schema", None) or last_schema(study)
        schema_from_json(document)
        begun = import_begin(study=study, acting_user=user, upload=Upload(schema=document, **sent))
        import_declare(dataset_import=begun, schema=document, acting_user=user)
        begun.refresh_from_db()
        return created(ImportSerializer(begun).data, "study-import", slug, begun.pk, status=HTTPStatus.ACCEPTED)


class StudyImport(ImportView):
    @operation("An import (data stewards)", "studies", ImportSerializer)
    def get(self, request: Request, slug: str, pk: str) -> Response:
        """Return the import's progress and the results of its check."""
        return Response(ImportSerializer(_found(request, slug, pk)).data)

    @operation("Discard an import (data stewards)", "studies", {204: None})
    def delete(self, request: Request, slug: str, pk: str) -> Response:
        """Discard an import with all uploaded files. If its dataset has already been stored, the dataset is kept."""
        import_drop(dataset_import=_found(request, slug, pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


class StudyImportStore(ImportView):
    @operation(
        "Store a checked import (data stewards)", "studies", ImportSerializer, CONFLICT, status=202, request=None
    )
    def post(self, request: Request, slug: str, pk: str) -> Response:
        """Have a worker store the checked file, either completely or not at all.

        After this, `dataset` contains the id of the stored dataset.
        """
        row = _found(request, slug, pk)
        import_confirm(dataset_import=row, acting_user=request_user(request))
        row.refresh_from_db()
        return created(ImportSerializer(row).data, "study-import", slug, pk, status=HTTPStatus.ACCEPTED)


class PaperRequestSerializer(StrictSerializer):
    """A list of decisions made on paper, and the scans that it refers to."""

    list = serializers.FileField(help_text="CSV file in the format described on the page *Recruitment*.")
    scans = serializers.ListField(
        child=serializers.FileField(), max_length=100, help_text="Scans of the forms as PDF, PNG or JPEG."
    )
    dry_run = serializers.BooleanField(
        default=False, help_text="Whether to check for errors without recording anything."
    )


class PaperAnswerSerializer(serializers.Serializer):
    decisions = serializers.IntegerField(
        help_text="Number of decisions recorded or, in a dry run, the number that could be recorded."
    )
    recorded = serializers.BooleanField()


class StudyConsents(ApiView):
    parser_classes = (LimitedMultiPartParser,)
    scope = Scope.RECORDS

    @operation(
        "Record decisions made on paper forms (data stewards)",
        "studies",
        PaperAnswerSerializer,
        CONFLICT,
        request={"multipart/form-data": PaperRequestSerializer},
    )
    def post(self, request: Request, slug: str) -> Response:
        """Record a list of decisions made on paper.

        If the list has errors, nothing is recorded and the response lists every error by row. The request may be at
        most 16 MiB, including the scans.
        """
        study = visible_study(request.user, slug, "consent.record_paper_consents")
        sent = body_of(request, PaperRequestSerializer)
        try:
            number = paper_consents_record(
                study=study,
                consents=paper_list_read(sent["list"].read()),
                scans={scan.name: scan.read() for scan in sent["scans"]},
                acting_user=request_user(request),
                dry_run=sent["dry_run"],
            )
        except PaperError as error:
            raise serializers.ValidationError({"list": [str(problem) for problem in error.problems]}) from error
        return Response({"decisions": number, "recorded": not sent["dry_run"]})


class HeadCountsRequestSerializer(StrictSerializer):
    """Public head counts by level; if omitted, head counts are drawn with noise."""

    counts = serializers.DictField(
        child=serializers.IntegerField(min_value=0),
        required=False,
        help_text=f"Public numbers of holders for {', '.join(Level.values)}; if omitted, they are drawn with noise.",
    )
    follows = serializers.IntegerField(
        default=0,
        min_value=0,
        help_text="The `release` of the study's newest head counts, to confirm that you want to draw "
        "them again; 0 for the first draw.",
    )


class StudyHeadCounts(ApiView):
    scope = Scope.DECIDE

    @operation(
        "Take or enter head counts (operators)",
        "studies",
        HeadCountSerializer(many=True),
        CONFLICT,
        UNPROCESSABLE,
        request=HeadCountsRequestSerializer,
        parameters=[IDEMPOTENCY_KEY],
        examples=[OpenApiExample("Taken with noise", request_only=True, value={})],
    )
    def post(self, request: Request, slug: str) -> Response:
        """Count the holders of each promise with noise, or enter public numbers.

        Counting charges everyone who is counted. Plans use these numbers from then on. The response is 409 for a
        rehearsal, because rehearsals count their holders themselves. It is also 409 if `follows` does not name the
        newest head counts, because each count charges everyone again.
        """
        study = visible_study(request.user, slug, "training.approve_run")
        sent, user = body_of(request, HeadCountsRequestSerializer), request_user(request)
        _rehearsal_refuse(study)
        drawn = (
            head_counts_enter(study=study, acting_user=user, counts=sent["counts"])
            if "counts" in sent
            else head_counts_draw(study=study, acting_user=user, follows=sent["follows"])
        )
        return Response(HeadCountSerializer(drawn, many=True).data)


def _rehearsal_refuse(study: Study) -> None:
    if study.rehearsal:
        raise ValidationError(_("A rehearsal has no head counts, because it makes no promises."), code=STATE)
