"""Endpoints of datasets of rehearsal studies, and of a study's encoders."""

from typing import Any

from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ipate_web.api.base import ApiView, StrictSerializer, body_of, created, operation, request_user, visible_study
from ipate_web.api.problems import CONFLICT
from ipate_web.api.requests import LARGEST, LimitedMultiPartParser
from ipate_web.api.studies import DatasetSerializer
from ipate_web.tokens.models import Scope
from learning.formats import schema_from_json
from learning.formats.schema import example_rows
from training.models import Dataset, Encoder, Encoding
from training.selectors import encoders_seen
from training.services.encoders import encoder_register
from training.services.imports import Upload, rehearsal_data_import


class UploadSerializer(StrictSerializer):
    """A file of records with its description."""

    file = serializers.FileField(help_text="Table, zip file of images, or arrays; see the site's documentation.")
    label_file = serializers.FileField(
        required=False,
        help_text="File with the labels of an idx file, or with the table that describes the images in a zip file.",
    )
    name = serializers.CharField(max_length=100, help_text="Name of the dataset in the study.")
    kind = serializers.ChoiceField(Dataset.Kind.choices)
    schema = serializers.JSONField(
        required=False,
        help_text="Schema of a row (see dataset.schema.json); defaults to the schema of the study's latest dataset.",
    )
    holder_prefix = serializers.RegexField(
        r"^[^\W_]",
        required=False,
        max_length=100,
        help_text="Prefix for private rows without a pseudonym column. With P, every row belongs to a "
        "different person: P-1, P-2, …",
    )
    with_labels = serializers.BooleanField(
        default=False, help_text="Whether to keep the labels of public rows; they are used only for evaluation."
    )
    provenance = serializers.CharField(required=False, max_length=2000, help_text="Origin of the rows.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("holder_prefix") and attrs["kind"] != Dataset.Kind.PRIVATE:
            raise serializers.ValidationError({"holder_prefix": "Only private rows belong to people. Leave this out."})
        return attrs


class StudyDatasets(ApiView):
    parser_classes = (LimitedMultiPartParser,)
    scope = Scope.REHEARSE

    @operation(
        "Import a dataset into a rehearsal study (data stewards)",
        "studies",
        DatasetSerializer,
        CONFLICT,
        status=201,
        request={"multipart/form-data": UploadSerializer},
    )
    def post(self, request: Request, slug: str) -> Response:
        """Import a file of at most 16 MiB into a rehearsal study.

        If the file has errors, nothing is imported and the response lists every error with its row and column. For
        other studies, the response is 409: import people's records on the study's pages, or with `POST …/imports`.
        """
        study = visible_study(request.user, slug, "training.import_dataset")
        sent = body_of(request, UploadSerializer)
        stored = rehearsal_data_import(study=study, acting_user=request_user(request), upload=Upload(**sent))
        return created(DatasetSerializer(stored).data, "study-datasets", slug)


class ExampleQuerySerializer(serializers.Serializer):
    """Number of rows, and the dataset they are drawn from."""

    dataset = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=LARGEST,
        help_text="Id of a dataset of the study; defaults to the newest private dataset or, if there is none, the "
        "newest dataset.",
    )
    rows = serializers.IntegerField(default=10, min_value=1, max_value=100, help_text="Number of rows.")
    seed = serializers.IntegerField(
        default=0, min_value=0, max_value=LARGEST, help_text="Seed. The same seed gives the same rows."
    )


class ExampleRowsSerializer(serializers.Serializer):
    """Invented rows, and the schema that they were generated from."""

    note = serializers.CharField(help_text="A note saying that the rows are invented.")
    dataset = serializers.IntegerField(help_text="Id of the dataset that the schema belongs to.")
    seed = serializers.IntegerField()
    schema = serializers.DictField(help_text="Schema of a row: columns or image size, and classes.")
    rows = serializers.ListField(
        child=serializers.JSONField(),
        help_text="Rows in the format that predictions expect: objects by column, or nested lists of pixels.",
    )
    answers = serializers.ListField(
        child=serializers.CharField(), help_text="Invented class or target of each row, in the format of predictions."
    )


_INVENTED = (
    "These rows are invented. They depend only on the schema and the seed, so they reveal nothing about people, not "
    "even which values are frequent. Use them to write and test programs."
)


class StudyExampleRows(ApiView):
    query_class = ExampleQuerySerializer

    @operation("Invented rows of a study", "studies", ExampleRowsSerializer, parameters=[ExampleQuerySerializer])
    def get(self, request: Request, slug: str) -> Response:
        """Return invented rows so that you can write code before you see any data.

        They are drawn only from the public schema, so they reveal nothing about people, cost no privacy and are not
        recorded. The same seed gives the same rows.
        """
        study = visible_study(request.user, slug)
        datasets = Dataset.objects.filter(study=study, removed_at=None).order_by("kind", "pk")
        if "dataset" in self.query:
            datasets = datasets.filter(pk=self.query["dataset"])
        found = datasets.filter(kind=Dataset.Kind.PRIVATE).last() or datasets.last()
        if found is None:
            raise exceptions.NotFound(
                "The study does not have this dataset. GET /api/v1/studies/{slug} lists its datasets."
            )
        rows, answers = example_rows(schema_from_json(found.schema), self.query["rows"], self.query["seed"])
        return Response(
            {
                "note": _INVENTED,
                "dataset": found.pk,
                "seed": self.query["seed"],
                "schema": found.schema,
                "rows": rows,
                "answers": answers,
            }
        )


class EncodingSerializer(serializers.ModelSerializer):
    """Progress of an encoder on a dataset."""

    dataset = serializers.CharField(source="dataset.name")

    class Meta:
        model = Encoding
        fields = ["dataset", "state", "progress"]
        extra_kwargs = {"progress": {"help_text": "Encoded share of the dataset, from 0 to 1, in steps of 0.1."}}


class EncoderSerializer(serializers.ModelSerializer):
    """An encoder. Runs refer to it by its digest, in the choice ``encoder``."""

    takes = serializers.DictField(
        help_text="Format of the input: size, mean, spread and layout of images, or length of texts."
    )
    encodings = EncodingSerializer(
        source="encodings_seen",
        many=True,
        help_text="Progress on each dataset. Private datasets are shown only to data stewards.",
    )

    class Meta:
        model = Encoder
        fields = [
            *("name", "digest", "file_digest", "takes", "width", "licence", "source"),
            *("stated_at", "withdrawn_at", "encodings"),
        ]
        extra_kwargs = {
            "digest": {"help_text": "Digest of everything that determines the encoder's vectors."},
            "source": {"help_text": "Origin of the encoder, and the data that it was trained on."},
            "withdrawn_at": {
                "help_text": "Time the encoder was withdrawn; null if it was not. New runs cannot choose a withdrawn "
                "encoder."
            },
        }


class EncoderRequestSerializer(StrictSerializer):
    """The file of an encoder, the format of its input, and the statement about its training data."""

    file = serializers.FileField(help_text="ONNX file that contains the weights.")
    name = serializers.CharField(max_length=100)
    takes = serializers.JSONField(
        help_text='Format of the input: {"kind": "image", "size", "mean", "spread", "layout"} or {"kind": '
        '"text", "length"}.'
    )
    tokenizer = serializers.FileField(required=False, help_text="The file tokenizer.json, for encoders of texts.")
    licence = serializers.CharField(max_length=200)
    source = serializers.CharField(  # type: ignore[assignment]
        max_length=2000, help_text="Origin of the encoder, and the data that it was trained on."
    )
    stated = serializers.BooleanField(help_text="Statement that the encoder was made without the study's private data.")

    def validate_tokenizer(self, file: Any) -> str:
        try:
            return file.read().decode()
        except ValueError:
            raise serializers.ValidationError("This is not a JSON file. Upload tokenizer.json.") from None


class StudyEncoders(ApiView):
    parser_classes = (LimitedMultiPartParser,)
    scope = Scope.DECIDE

    @operation("Encoders of a study", "studies", EncoderSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """List the encoders with their progress on each dataset."""
        study = visible_study(request.user, slug)
        encoders = encoders_seen(study, request_user(request))
        return Response(EncoderSerializer(encoders, many=True).data)

    @operation(
        "Register an encoder (data stewards)",
        "studies",
        EncoderSerializer,
        CONFLICT,
        status=201,
        request={"multipart/form-data": EncoderRequestSerializer},
    )
    def post(self, request: Request, slug: str) -> Response:
        """Register an encoder, which then encodes the study's datasets.

        Upload encoders larger than 16 MiB on the study's page.
        """
        study = visible_study(request.user, slug, "training.import_dataset")
        sent = body_of(request, EncoderRequestSerializer)
        content = sent.pop("file").read()
        stored = encoder_register(study=study, acting_user=request_user(request), content=content, **sent)
        seen = encoders_seen(study, request_user(request)).get(pk=stored.pk)
        return created(EncoderSerializer(seen).data, "study-encoders", slug)
