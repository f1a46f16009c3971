"""Endpoint that imports a dataset into a rehearsal study."""

from typing import Any

from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from ipate_web.api.base import (
    ApiView,
    StrictSerializer,
    body_of,
    operation,
    request_user,
    visible_study,
)
from ipate_web.api.parsing import LimitedMultiPartParser
from ipate_web.api.problems import CONFLICT
from ipate_web.api.studies import DatasetSerializer
from ipate_web.tokens.models import Scope
from training.models import Dataset
from training.services.imports import Upload, rehearsal_data_import


class UploadSerializer(StrictSerializer):
    """A file of records, and what it is."""

    file = serializers.FileField(help_text="A table, a zip file of images, or arrays; see the documents of the site.")
    label_file = serializers.FileField(
        required=False, help_text="The labels of an idx file, or a table of the images of a zip file."
    )
    name = serializers.CharField(max_length=100, help_text="What the dataset is called in the study.")
    kind = serializers.ChoiceField(Dataset.Kind.choices)
    schema = serializers.JSONField(
        required=False, help_text="What a row holds; see dataset.schema.json. If missing, that of the last dataset."
    )
    holder_prefix = serializers.RegexField(
        r"^[^\W_]",
        required=False,
        max_length=100,
        help_text="Private rows without a column of pseudonyms: P makes every row one of its own person, P-1, P-2, …",
    )
    with_labels = serializers.BooleanField(default=False, help_text="Public rows: keep labels, for evaluation alone.")
    provenance = serializers.CharField(required=False, max_length=2000, help_text="Where the rows come from.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("holder_prefix") and attrs["kind"] != Dataset.Kind.PRIVATE:
            raise serializers.ValidationError({"holder_prefix": "Only private rows belong to anybody. Leave it out."})
        return attrs


class StudyDatasets(ApiView):
    parser_classes = (LimitedMultiPartParser,)
    scope = Scope.REHEARSE

    @operation(
        "Import a dataset of a rehearsal (data stewards)",
        "studies",
        DatasetSerializer,
        CONFLICT,
        status=201,
        request={"multipart/form-data": UploadSerializer},
    )
    def post(self, request: Request, slug: str) -> Response:
        """Import a file of at most 16 MiB into a rehearsal study, in whole or not at all.

        Everything that is wrong is told with row and column. In any other study 409: records of people are imported on
        its pages.
        """
        study = visible_study(request.user, slug, "training.import_dataset")
        sent = body_of(request, UploadSerializer)
        stored = rehearsal_data_import(study=study, acting_user=request_user(request), upload=Upload(**sent))
        return Response(DatasetSerializer(stored).data, status=status.HTTP_201_CREATED)
