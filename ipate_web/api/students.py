"""Endpoints of the versions of a run's student: compare, train another, publish another."""

from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import exceptions, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from ipate_web.api.base import ApiView, MinuteField, StrictSerializer, permission_check, request_user
from ipate_web.api.problems import CONFLICT
from ipate_web.api.run_documents import visible_run
from ipate_web.tokens.models import Scope
from training.errors import STATE
from training.models import Run, StudentModel, StudentTraining
from training.selectors import run_versions
from training.services.students import student_publish, student_withdraw
from training.services.trainings import student_ask

_LONGEST_REASON = StudentModel._meta.get_field("withdrawal_reason").max_length


class EvaluationSerializer(serializers.Serializer):
    """Evaluation of a model on the test dataset; all rounded."""

    accuracy = serializers.FloatField()
    interval = serializers.ListField(child=serializers.FloatField(), help_text="95 % confidence interval.")
    log_loss = serializers.FloatField(help_text="Natural logarithm; probabilities below 0.001 count as that.")
    confidence = serializers.FloatField(help_text="Mean probability of the likeliest class.")


class StudentVersionSerializer(serializers.ModelSerializer):
    """One version of a run's student; GET /api/v1/models/{run}?version=… has its card."""

    published = serializers.BooleanField(help_text="Whether it is the one that the run's model is.")
    parameters = serializers.DictField(source="card.learner.parameters")
    score = serializers.FloatField(
        allow_null=True,
        help_text="What to choose by, larger is better: agreement with a fifth of the releases, having learned from "
        "the others. Null until it is computed.",
    )
    evaluation = EvaluationSerializer(source="card.evaluation", allow_null=True, help_text="Not to choose by.")
    reference = EvaluationSerializer(
        allow_null=True, help_text="The same student, having learned from true labels of the public points."
    )
    asked_by = serializers.CharField(
        source="asked_by.username", allow_null=True, help_text="Its user's name; null if gone."
    )
    created_at = MinuteField(help_text="To the minute.")
    withdrawn_at = MinuteField(allow_null=True, help_text="Null unless it was withdrawn: then it is not given.")
    withdrawal_reason = serializers.CharField(help_text="Empty unless it was withdrawn.")

    class Meta:
        model = StudentModel
        fields = [
            *("version", "published", "learner", "parameters", "seed", "score", "evaluation", "reference"),
            *("seconds", "digest", "asked_by", "created_at", "withdrawn_at", "withdrawal_reason"),
        ]


class StudentTrainingSerializer(serializers.ModelSerializer):
    """Another version that is being trained, or that could not be."""

    message = serializers.CharField(help_text="Why nothing came of it; empty while it is under way.")
    asked_by = serializers.CharField(
        source="asked_by.username", allow_null=True, help_text="Its user's name; null if gone."
    )

    class Meta:
        model = StudentTraining
        fields = ["learner", "parameters", "progress", "message", "asked_by", "asked_at"]


class StudentsSerializer(serializers.Serializer):
    versions = StudentVersionSerializer(many=True)
    training = StudentTrainingSerializer(allow_null=True)


class StudentRequestSerializer(StrictSerializer):
    student_learner = serializers.CharField(help_text="One that GET /api/v1/students lists.")
    student_parameters = serializers.DictField(required=False, help_text="What is missing has its default.")


class WithdrawalSerializer(StrictSerializer):
    reason = serializers.CharField(
        max_length=_LONGEST_REASON, help_text="Everybody who took the model or asks for it reads this."
    )


def students_document(run: Run) -> dict[str, Any]:
    """The versions of a run's student, and the training of another, as the API tells them."""
    found = run_versions(run)
    for version in found.all:
        version.published = version.pk == run.student_id  # type: ignore[attr-defined]
    return StudentsSerializer({"versions": found.all, "training": found.training}).data


def _version_or_404(run: Run, version: int) -> StudentModel:
    found = run.students.filter(version=version).first()
    if found is None:
        raise exceptions.NotFound("The run has no such version. GET /api/v1/runs/{id}/students lists them.")
    return found


class RunStudents(ApiView):
    """The versions of a run's student."""

    @extend_schema(summary="Versions of a run's student", tags=["labels and models"], responses=StudentsSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """All versions by number, what they learned with, and how they compare; and the training under way, if any."""
        return Response(students_document(visible_run(request.user, pk)))

    @extend_schema(
        summary="Train another version",
        tags=["labels and models"],
        request=StudentRequestSerializer,
        responses={202: StudentsSerializer, **CONFLICT},
        examples=[
            OpenApiExample(
                "Another learner",
                request_only=True,
                value={"student_learner": "boosting", "student_parameters": {"iterations": 200}},
            )
        ],
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Train the student of a finished run anew, from what was released. It costs nobody anything."""
        run = visible_run(request.user, pk)
        permission_check(request.user, "training.propose_run", run.study)
        asked = StudentRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        student_ask(
            run=run,
            student_learner=asked.validated_data["student_learner"],
            student_parameters=asked.validated_data.get("student_parameters", {}),
            acting_user=request_user(request),
        )
        return Response(students_document(run), status=status.HTTP_202_ACCEPTED)


class RunStudentPublish(ApiView):
    scope = Scope.DECIDE

    @extend_schema(
        summary="Publish a version (operators)",
        tags=["labels and models"],
        request=None,
        responses=StudentsSerializer,
    )
    def post(self, request: Request, pk: UUID, version: int) -> Response:
        """Make a version the run's model, on record. The others stay, and can be had by their number."""
        run = visible_run(request.user, pk)
        permission_check(request.user, "training.approve_run", run.study)
        _version_or_404(run, version)
        return Response(students_document(student_publish(run=run, version=version, acting_user=request_user(request))))


class RunStudentWithdraw(ApiView):
    scope = Scope.DECIDE

    @extend_schema(
        summary="Withdraw a version (operators)",
        tags=["labels and models"],
        request=WithdrawalSerializer,
        responses={200: StudentsSerializer, **CONFLICT},
        examples=[
            OpenApiExample("A defect", request_only=True, value={"reason": "It misreads records without an age."})
        ],
    )
    def post(self, request: Request, pk: UUID, version: int) -> Response:
        """Withdraw a version for good, on record: it is given to nobody any more, and those who took it are told."""
        run = visible_run(request.user, pk)
        permission_check(request.user, "training.withdraw_model", run.study)
        chosen = _version_or_404(run, version)
        asked = WithdrawalSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        if chosen.is_withdrawn:
            raise ValidationError("This version was withdrawn already, and stays so.", code=STATE)
        reason = asked.validated_data["reason"]
        student_withdraw(run=run, version=version, reason=reason, acting_user=request_user(request))
        return Response(students_document(run))
