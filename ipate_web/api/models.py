"""Endpoints of student models: cards, files, predictions, and the keys that check their signatures."""

import base64
import re
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, quote_etag
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema_field
from rest_framework import exceptions, generics, serializers, status
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import ScopedRateThrottle

from common.artifacts import model_fetch
from common.keys import public_keys
from common.sentences import in_words
from consent.permissions import studies_with_permission
from ipate_web.api.base import (
    ApiView,
    MinuteField,
    StrictSerializer,
    body_of,
    operation,
    permission_check,
    request_user,
)
from ipate_web.api.problems import CONFLICT, GONE
from ipate_web.api.requests import LARGEST
from ipate_web.tokens.models import Scope
from learning.published import published_format
from training.models import StudentModel
from training.services.downloads import (
    ModelFile,
    download_record,
    file_native,
    file_onnx,
    model_statement,
    predictions_record,
)
from training.services.publication import model_stage_set, model_threshold_set, registered_models
from training.services.students import student_predict

#: Number of rows in a request for predictions.
MAX_ROWS = 1000


def versions_usable_by(user: Any) -> QuerySet[StudentModel]:
    """Return all versions of the student models that ``user`` may use; those of rehearsals are marked."""
    studies = studies_with_permission(user, "training.use_student")
    models = StudentModel.objects.filter(run__study__in=studies)
    return models.select_related("run__study", "run__public_dataset", "run__private_dataset")


class VersionSerializer(serializers.Serializer):
    """Version of a model. By default, this is the published version."""

    version = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=LARGEST,
        help_text="Number of the version; defaults to the published one.",
    )


class Gone(exceptions.APIException):
    """Error for a model that was withdrawn, with the reason."""

    status_code = status.HTTP_410_GONE
    default_code = "withdrawn"


class VersionView(ApiView):
    """Endpoint about one version of a model."""

    query_class = VersionSerializer

    def model(self, request: Request, pk: UUID) -> StudentModel:
        """Return the requested version. Raises NotFound and Gone."""
        return usable_model(request, pk, self.query.get("version"))


def usable_model(request: Request, pk: UUID, version: int | None = None) -> StudentModel:
    """Return a version of the model of run ``pk``, by default the published one.

    Raises:
        NotFound: there is no such model, or the user may not use it.
        Gone: it was withdrawn.
    """
    which: dict[str, Any] = {"pk": F("run__student")} if version is None else {"version": version}
    model = versions_usable_by(request.user).filter(run=pk, **which).first()
    if model is None:
        raise exceptions.NotFound("There is no such model, or none that you may use. GET /api/v1/models lists yours.")
    if model.withdrawn_at is not None:
        day = timezone.localdate(model.withdrawn_at).isoformat()
        raise Gone(f"Version {model.version} of this model was withdrawn on {day}: {model.withdrawal_reason}")
    return model


class ModelSerializer(serializers.ModelSerializer):
    """A model, identified by the id of its run. If you do not name a version, the published version is returned."""

    id = serializers.UUIDField(source="run_id")
    study = serializers.CharField(source="run.study.slug")
    title = serializers.CharField(source="run.title")
    labels = serializers.IntegerField(
        source="run.labels", help_text="Number of released labels that the model learned from."
    )
    rehearsal = serializers.BooleanField(
        source="run.rehearsal", help_text="Whether the model comes from a rehearsal study, which makes no promises."
    )
    accuracy = serializers.FloatField(
        allow_null=True,
        help_text="Accuracy on the test dataset; null if unknown. Rounded to 0.001 with at least 2,000 "
        "points, to 0.005 with at least 400, and otherwise to 0.01.",
    )
    label_accuracy = serializers.FloatField(
        allow_null=True,
        help_text="Share of released labels that are correct, rounded like `accuracy`; null if unknown.",
    )
    measures = serializers.DictField(
        allow_null=True,
        help_text="Measures on the test dataset with 95 % intervals, compared with the most frequent class "
        "and the base rate (see docs/evaluation.md); null if the model was not evaluated. Curves "
        "are on the card.",
    )
    cautions = serializers.SerializerMethodField(
        help_text="Cautions for users of the model, such as that it nearly always gives the same answer; often empty."
    )
    withdrawn_at = MinuteField(
        allow_null=True,
        help_text="Time the model was withdrawn, to the minute; null if it was not. A withdrawn model can "
        "no longer be downloaded or used here.",
    )
    withdrawal_reason = serializers.CharField(
        help_text="Reason for the withdrawal; empty unless the model was withdrawn."
    )
    created_at = MinuteField(help_text="Time the version was created, to the minute.")

    class Meta:
        model = StudentModel
        fields = [
            *("id", "version", "study", "title", "stage", "learner", "labels", "rehearsal"),
            *("accuracy", "measures", "cautions", "label_accuracy", "digest", "created_at"),
            *("withdrawn_at", "withdrawal_reason"),
        ]
        extra_kwargs = {"learner": {"help_text": "Name of the learner that the model was trained with."}}

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_cautions(self, model: StudentModel) -> Any:
        return in_words(model.card.get("cautions", []))


class ModelFileSerializer(serializers.Serializer):
    """A model file."""

    format = serializers.CharField(
        help_text="Format of the file: onnx to run the model; skops or safetensors for its weights."
    )
    address = serializers.CharField()
    sha256 = serializers.CharField(
        allow_null=True, help_text="SHA-256 of the file; null if the file is created only when first requested."
    )


class ModelDetailSerializer(ModelSerializer):
    card = serializers.DictField(help_text="Facts that people should know before they use the model.")
    schema = serializers.DictField(source="run.schema", help_text="Schema of a row that is sent for prediction.")
    files = serializers.SerializerMethodField()

    class Meta(ModelSerializer.Meta):
        fields = [*ModelSerializer.Meta.fields, "card", "schema", "files"]

    @extend_schema_field(ModelFileSerializer(many=True))
    def get_files(self, model: StudentModel) -> Any:
        files = [
            ("onnx", "api:model-onnx", model.onnx_digest or None),
            (published_format(model.learner), "api:model-file", model.digest),
        ]
        version = f"?version={model.version}"
        return [
            {"format": format, "address": reverse(name, args=[model.run_id]) + version, "sha256": digest}
            for format, name, digest in files
        ]


class ModelFilterSerializer(serializers.Serializer):
    """Filter of models. By default, all models that you may use are listed."""

    study = serializers.SlugField(required=False, help_text="Slug of a study; list only its models.")
    stage = serializers.ChoiceField(
        StudentModel.Stage.choices,
        required=False,
        help_text="List only models in this stage that have not been withdrawn.",
    )


class ModelList(ApiView, generics.ListAPIView):
    serializer_class = ModelSerializer

    query_class = ModelFilterSerializer

    def get_queryset(self) -> QuerySet[StudentModel]:
        unused = ("run__plan", "run__public_dataset__schema", "run__private_dataset__schema")
        models = versions_usable_by(self.request.user).filter(pk=F("run__student")).defer(*unused)
        if study := self.query.get("study"):
            models = models.filter(run__study__slug=study)
        if stage := self.query.get("stage"):
            models = registered_models(models).filter(stage=stage)
        return models

    @operation("Student models", "labels and models", parameters=[ModelFilterSerializer])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the student models that you may use, newest first."""
        return super().get(request, *args, **kwargs)


class ModelDetail(VersionView):
    @operation("A model's card", "labels and models", ModelDetailSerializer, GONE, parameters=[VersionSerializer])
    def get(self, request: Request, pk: UUID) -> Response:
        """Return the model's purpose, training data, quality and privacy guarantee."""
        return Response(ModelDetailSerializer(self.model(request, pk)).data)


class ModelBytes(BaseRenderer):
    media_type = "application/octet-stream"
    format = "bin"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return data


_FILE_RESPONSES: dict[Any, Any] = {
    (200, ModelBytes.media_type): OpenApiTypes.BINARY,
    (206, ModelBytes.media_type): OpenApiResponse(
        OpenApiTypes.BINARY, "The rest of the file, as requested by “Range”."
    ),
    304: OpenApiResponse(description="The file has not changed."),
    **GONE,
}


_FILE_PARAMETERS: list[Any] = [
    VersionSerializer,
    OpenApiParameter(
        "If-None-Match",
        str,
        OpenApiParameter.HEADER,
        description="`ETag` of the file that you have. If the file has not changed, the response is 304 and nothing "
        "is recorded.",
    ),
    OpenApiParameter(
        "ETag",
        str,
        OpenApiParameter.HEADER,
        response=[200, 304],
        description="SHA-256 of the file in hexadecimal, in quotation marks.",
    ),
    OpenApiParameter(
        "Repr-Digest", str, OpenApiParameter.HEADER, response=[200], description="SHA-256 of the file (RFC 9530)."
    ),
]


class FileView(VersionView):
    """A file of a model, with its digest."""

    renderer_classes = [ModelBytes]

    def give(self, request: Request, model: StudentModel, file: ModelFile) -> HttpResponse:
        """Return the file and log the download, or respond that the client already has it."""
        etag = quote_etag(file.digest)
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        unchanged = get_conditional_response(request, etag=etag)
        if unchanged is not None:
            for name, value in headers.items():
                unchanged[name] = value
            return unchanged
        if request.method == "GET":  # HEAD downloads nothing
            download_record(run=model.run, what="model", digest=file.digest, acting_user=request_user(request))
        digest = base64.b64encode(bytes.fromhex(file.digest)).decode()
        filename = f"{model.run.study.slug}-{model.run_id}-v{model.version}.{file.format}"
        headers["Repr-Digest"] = f"sha-256=:{digest}:"
        headers["Content-Disposition"] = content_disposition_header(True, filename) or ""
        return part_of(request, etag, model_fetch(file.artifact), headers)


_REST = re.compile(r"bytes=(\d{1,15})-")


def part_of(request: Request, etag: str, content: bytes, headers: dict[str, str]) -> HttpResponse:
    """Return a file, or the rest of it from a given byte to resume an interrupted download (RFC 9110, 14.2)."""
    headers = {**headers, "Accept-Ranges": "bytes"}
    asked = _REST.fullmatch(request.headers.get("Range", ""))
    if asked is None or int(asked[1]) >= len(content) or request.headers.get("If-Range", etag) != etag:
        return HttpResponse(content, content_type=ModelBytes.media_type, headers=headers)
    start = int(asked[1])
    headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
    return HttpResponse(content[start:], ModelBytes.media_type, status.HTTP_206_PARTIAL_CONTENT, headers=headers)


class ModelNative(FileView):
    @operation("A model's file", "labels and models", _FILE_RESPONSES, parameters=_FILE_PARAMETERS)
    def get(self, request: Request, pk: UUID) -> HttpResponse:
        """Return the model: skops (scikit-learn) or safetensors (networks). `Repr-Digest` is its SHA-256 (RFC 9530)."""
        model = self.model(request, pk)
        return self.give(request, model, file_native(model))


class ModelOnnx(FileView):
    @operation("A model as ONNX", "labels and models", _FILE_RESPONSES, parameters=_FILE_PARAMETERS)
    def get(self, request: Request, pk: UUID) -> HttpResponse:
        """Return the model for use in any ONNX runtime, with its encoding and class names.

        It makes the same predictions as this site.
        """
        model = self.model(request, pk)
        return self.give(request, model, file_onnx(model))


class ModelStageSerializer(StrictSerializer):
    stage = serializers.ChoiceField(StudentModel.Stage.choices)


class ModelStage(ApiView):
    scope = Scope.DECIDE

    @operation(
        "Set a model's stage (operators)",
        "labels and models",
        ModelSerializer,
        CONFLICT,
        GONE,
        request=ModelStageSerializer,
        examples=[OpenApiExample("Put into production", request_only=True, value={"stage": "production"})],
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Set the stage of the published model.

        The change is logged. The response is 409 if this stage cannot follow the current one.
        """
        model = usable_model(request, pk)
        permission_check(request.user, "training.approve_run", model.run.study)
        model_stage_set(run=model.run, acting_user=request_user(request), **body_of(request, ModelStageSerializer))
        return Response(ModelSerializer(usable_model(request, pk)).data)


class ThresholdSerializer(StrictSerializer):
    class_name = serializers.CharField(
        allow_blank=True,
        help_text="Class that is predicted when its probability reaches the threshold; empty to predict the "
        "likeliest class.",
    )
    missed = serializers.FloatField(required=False, min_value=0, help_text="Cost of missing a record of this class.")
    false_alarm = serializers.FloatField(
        required=False, min_value=0, help_text="Cost of predicting this class for a record of another class."
    )
    sensitivity = serializers.FloatField(
        required=False,
        max_value=1,
        help_text="Share of the class's records that the model should find. It replaces the two costs.",
    )


class ModelThreshold(ApiView):
    scope = Scope.DECIDE

    @operation(
        "Choose a model's threshold (operators)",
        "labels and models",
        ModelDetailSerializer,
        CONFLICT,
        GONE,
        request=ThresholdSerializer,
        examples=[
            OpenApiExample(
                "Missing the class costs nine times as much",
                request_only=True,
                value={"class_name": "yes", "missed": 9, "false_alarm": 1},
            )
        ],
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Set the probability at which the model predicts a class.

        The change is logged, and the ONNX file is updated.
        """
        model = usable_model(request, pk)
        permission_check(request.user, "training.approve_run", model.run.study)
        model_threshold_set(run=model.run, acting_user=request_user(request), **body_of(request, ThresholdSerializer))
        return Response(ModelDetailSerializer(usable_model(request, pk)).data)


class StatementSerializer(serializers.Serializer):
    statement = serializers.CharField(
        help_text="JSON Web Signature (Ed25519) of the card and checksums; GET /api/v1/keys has the public key."
    )


class ModelStatement(VersionView):
    @operation(
        "A model's signed statement", "labels and models", StatementSerializer, GONE, parameters=[VersionSerializer]
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """Return a signed statement with the model's card and the SHA-256 of its files, to verify downloads."""
        return Response({"statement": model_statement(self.model(request, pk))})


class PredictionRequestSerializer(StrictSerializer):
    rows = serializers.ListField(
        child=serializers.JSONField(),
        min_length=1,
        max_length=MAX_ROWS,
        help_text="Rows to predict: for tables, objects with a value per feature column; for images, nested "
        "lists of pixels from 0 to 1.",
    )


class PredictionsSerializer(serializers.Serializer):
    classes = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Names of the classes, in the order of the probabilities; only for a model that predicts classes.",
    )
    predictions = serializers.ListField(
        child=serializers.JSONField(allow_null=True),
        help_text="One prediction per row: a class, a number, a median time (null if it is beyond the "
        "timeline), or the names of the labels that are more likely than not.",
    )
    probabilities = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField()),
        required=False,
        help_text="Probabilities as rows × classes.",
    )
    columns = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Names of the values in a row; only for targets other than classes.",
    )
    values = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField()),
        required=False,
        help_text="Predicted values as rows × columns.",
    )
    outside = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="For each row, the columns whose values lie outside the range declared in the schema. The model was "
        "not trained on such values and uses the nearest end of the range instead.",
    )


class ModelPredict(VersionView):
    scope = Scope.PREDICT
    throttle_classes = [*ApiView.throttle_classes, ScopedRateThrottle]
    throttle_scope = "predict"

    @operation(
        "Get predictions",
        "labels and models",
        PredictionsSerializer,
        GONE,
        parameters=[VersionSerializer],
        request=PredictionRequestSerializer,
        examples=[
            OpenApiExample(
                "Two rows of a table",
                value={"rows": [{"age": 41, "smoker": "no"}, {"age": 63, "smoker": "yes"}]},
                request_only=True,
            ),
            OpenApiExample("A black image of 8 × 8 pixels", value={"rows": [[[0.0] * 8] * 8]}, request_only=True),
            OpenApiExample(
                "Predictions for the two rows",
                value={
                    "classes": ["no", "yes"],
                    "predictions": ["no", "yes"],
                    "probabilities": [[0.9, 0.1], [0.2, 0.8]],
                    "outside": [[], []],
                },
                response_only=True,
                status_codes=["200"],
            ),
        ],
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Return predictions for up to 1,000 rows, at no privacy cost because the model learned only from releases."""
        model = self.model(request, pk)
        rows = body_of(request, PredictionRequestSerializer)["rows"]
        predictions = student_predict(model, rows)
        predictions_record(model=model, records=len(rows), acting_user=request_user(request))
        return Response(predictions)


class KeySerializer(serializers.Serializer):
    """A JSON Web Key (RFC 7517 and RFC 8037), also given as PEM."""

    kty = serializers.CharField()
    crv = serializers.CharField()
    x = serializers.CharField()
    alg = serializers.CharField()
    use = serializers.CharField()
    kid = serializers.CharField(help_text="Identifier that signatures use for the key.")
    pem = serializers.CharField()


class KeysSerializer(serializers.Serializer):
    keys = KeySerializer(many=True, help_text="Public keys; the one in use comes first.")


class KeyList(ApiView):
    """Public endpoint, because a model's recipients may have no account on this site."""

    authentication_classes = ()
    permission_classes = ()

    @operation("Signature keys", "labels and models", KeysSerializer)
    def get(self, request: Request) -> Response:
        """List the public keys that verify this site's signatures of models (JSON Web Signatures with Ed25519)."""
        return Response(KeysSerializer({"keys": public_keys()}).data)
