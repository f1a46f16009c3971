"""Endpoint of a study's encoders."""

from typing import Any

from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from ipate_web.api.base import ApiView, StrictSerializer, body_of, operation, request_user, visible_study
from ipate_web.api.parsing import LimitedMultiPartParser
from ipate_web.api.problems import CONFLICT
from ipate_web.tokens.models import Scope
from training.models import Encoder, Encoding
from training.selectors import encoders_seen
from training.services.encoders import encoder_register


class EncodingSerializer(serializers.ModelSerializer):
    """How far an encoder is with a dataset."""

    dataset = serializers.CharField(source="dataset.name")

    class Meta:
        model = Encoding
        fields = ["dataset", "state", "progress"]


class EncoderSerializer(serializers.ModelSerializer):
    """An encoder; a run names it by its digest, as the choice ``encoder``."""

    takes = serializers.DictField(help_text="Images: size, mean, spread, layout; texts: length.")
    encodings = EncodingSerializer(
        source="encodings_seen", many=True, help_text="Those of private datasets only for data stewards."
    )

    class Meta:
        model = Encoder
        fields = [
            *("name", "digest", "file_digest", "takes", "width", "licence", "source"),
            *("stated_at", "withdrawn_at", "encodings"),
        ]


class EncoderRequestSerializer(StrictSerializer):
    """The file of an encoder, what it takes, and the statement about it."""

    file = serializers.FileField(help_text="ONNX, with its weights inside.")
    name = serializers.CharField(max_length=100)
    takes = serializers.JSONField(
        help_text='{"kind": "image", "size", "mean", "spread", "layout"} or {"kind": "text", "length"}.'
    )
    tokenizer = serializers.FileField(required=False, help_text="Of texts: tokenizer.json.")
    licence = serializers.CharField(max_length=200)
    source = serializers.CharField(  # type: ignore[assignment]
        max_length=2000, help_text="Where it comes from, and on which data it was made."
    )
    stated = serializers.BooleanField(help_text="It was made without the private data of the study.")

    def validate_tokenizer(self, file: Any) -> str:
        try:
            return file.read().decode()
        except ValueError:
            raise serializers.ValidationError("This is no JSON file: give tokenizer.json.") from None


class StudyEncoders(ApiView):
    parser_classes = (LimitedMultiPartParser,)
    scope = Scope.DECIDE

    @operation("Encoders of a study", "studies", EncoderSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """The encoders, and how far they are with the datasets."""
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
        """Register an encoder of at most 16 MiB; it then encodes the study's datasets. Larger ones: on the page."""
        study = visible_study(request.user, slug, "training.import_dataset")
        sent = body_of(request, EncoderRequestSerializer)
        content = sent.pop("file").read()
        stored = encoder_register(study=study, acting_user=request_user(request), content=content, **sent)
        seen = encoders_seen(study, request_user(request)).get(pk=stored.pk)
        return Response(EncoderSerializer(seen).data, status=status.HTTP_201_CREATED)
