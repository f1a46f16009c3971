"""Proposals of runs as they are sent: their fields and examples."""

import tomllib
from pathlib import Path
from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request

from consent.models import Study
from consent.permissions import studies_with_permission
from ipate_web.api.base import IdField, StrictSerializer, body_of, permission_check
from ipate_web.api.run_documents import ChoicesField
from training.methods import IMPLEMENTED
from training.models import Dataset, Run
from training.services.runs import suggestion_for

EXAMPLES = [
    OpenApiExample(title, request_only=True, value=value)
    for title, value in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
]


_CHOSEN = {choice.name for method in IMPLEMENTED for choice in method.choices.described()}
"""Names of the choices of all methods."""


class RunProposalSerializer(StrictSerializer, serializers.ModelSerializer):
    study = serializers.SlugRelatedField(slug_field="slug", queryset=Study.objects.none())
    private_dataset = IdField(queryset=Dataset.objects.none())
    public_dataset = IdField(
        queryset=Dataset.objects.none(),
        required=False,
        allow_null=True,
        help_text="Id of the dataset of public points. Only variants over samples can omit it; then no "
        "student is trained.",
    )
    test_dataset = IdField(queryset=Dataset.objects.none(), required=False, allow_null=True)
    labelled_dataset = IdField(
        queryset=Dataset.objects.none(),
        required=False,
        allow_null=True,
        help_text="Id of a public dataset with labels that the student learns from, in addition to what is released.",
    )
    choices = ChoicesField(required=False)
    student_parameters = serializers.DictField(required=False)
    rehearsed = serializers.DictField(
        required=False,
        help_text="Settings for rehearsal studies: levels with their share and ε, the accounting method, "
        "and the conversion of costs.",
    )

    class Meta:
        model = Run
        fields = [
            *("study", "title", "purpose", "private_dataset", "public_dataset", "test_dataset"),
            "labelled_dataset",
            *("method", "variant", "choices", "student_learner", "student_parameters", "batch_size"),
            *("wanted_labels", "seed", "rehearsed"),
        ]
        validators: list[Any] = []
        extra_kwargs = {
            "method": {
                "required": False,
                "help_text": "Method of the run; defaults to the one suggested for the study's data.",
            },
            "student_learner": {
                "required": False,
                "help_text": "Name of the student; defaults to the one suggested for the study's data.",
            },
        }

    def get_fields(self) -> dict[str, serializers.Field]:
        """Fields, with only those related objects as choices that the user may see."""
        fields = super().get_fields()
        if "request" in self.context:
            studies = studies_with_permission(self.context["request"].user, "training.view_run")
            datasets = Dataset.objects.filter(study__in=studies)
            for name, field in fields.items():
                if isinstance(field, serializers.RelatedField):
                    field.queryset = studies if name == "study" else datasets  # type: ignore[arg-type]
        return fields

    def to_internal_value(self, data: Any) -> Any:
        """Refuse a choice of a method that is next to ``choices`` instead of in it."""
        misplaced = _CHOSEN & data.keys() if isinstance(data, dict) else set()
        if misplaced:
            message = "Send it within “choices”; GET /api/v1/methods lists what these of each method hold."
            raise serializers.ValidationError(dict.fromkeys(sorted(misplaced), message))
        return super().to_internal_value(data)

    def validate(self, proposal: dict[str, Any]) -> dict[str, Any]:
        """Take the method and the student that are suggested for the study where none is named."""
        if {"method", "student_learner"} <= proposal.keys():
            return proposal
        suggested = suggestion_for(proposal["study"])
        return {"method": suggested.method, "student_learner": suggested.student} | proposal


def proposal_of(request: Request, serializer: type[RunProposalSerializer] = RunProposalSerializer) -> dict[str, Any]:
    """The fields of the proposed run, of a study in which the user may propose one."""
    proposal = body_of(request, serializer, request=request)
    permission_check(request.user, "training.propose_run", proposal["study"])
    return proposal
