"""Endpoints of runs: list, propose, change, approve, cancel, compare."""

import hashlib
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import generics, serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from accounting.shares import suggested_share
from ipate_web.api.base import IDEMPOTENCY_KEY, ApiView, StrictSerializer, body_of, created, operation, request_user
from ipate_web.api.plans import EXAMPLES, RunProposalSerializer, proposal_of
from ipate_web.api.problems import CONFLICT, UNPROCESSABLE
from ipate_web.api.run_documents import RunDetailSerializer, RunSerializer, run_document, visible_run
from ipate_web.run_list import RUNS
from ipate_web.tokens.models import Scope
from training.comparison import MOST, runs_compare
from training.errors import STATE
from training.models import Run
from training.selectors import runs_visible_to
from training.services.approvals import approval_undo, run_approve
from training.services.runs import run_cancel, run_edit, run_propose, run_withdraw

RunFilterSerializer = RUNS.parameters("RunFilterSerializer", "Order of the runs; newest first by default.")


class RunList(ApiView, generics.ListAPIView):
    """List of runs, with search, filters and sorting, and proposals of new runs."""

    query_class = RunFilterSerializer
    serializer_class = RunSerializer

    def get_queryset(self) -> QuerySet[Run]:
        runs = RUNS.select(runs_visible_to(self.request.user), **self.query)
        return runs.select_related("created_by", "student").defer("student__card", "student__reference")

    @operation("Runs", "runs", parameters=[RunFilterSerializer])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the runs that you may see and that match all parameters, newest first or in the order of `sort`."""
        return super().get(request, *args, **kwargs)

    @operation(
        "Propose a run",
        "runs",
        RunDetailSerializer,
        CONFLICT,
        UNPROCESSABLE,
        status=201,
        request=RunProposalSerializer,
        examples=EXAMPLES,
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Save a draft. The run starts once another operator of the study approves it."""
        run = run_propose(acting_user=request_user(request), **proposal_of(request))
        document = run_document(visible_run(request.user, run.pk), request.user)
        return created(document, "run", run.pk)


class RunDetail(ApiView):
    """A run, and changes to a draft."""

    @operation("A run", "runs", RunDetailSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Return the run's status, progress, parameters and public privacy facts."""
        return Response(run_document(visible_run(request.user, pk), request.user))

    @operation(
        "Change your draft",
        "runs",
        RunDetailSerializer,
        CONFLICT,
        request=RunProposalSerializer,
        examples=EXAMPLES,
    )
    def put(self, request: Request, pk: UUID) -> Response:
        """Replace your draft with another complete proposal for the same study.

        The change is logged. The response is 403 if the draft is someone else's, and 409 if the run is no longer a
        draft.
        """
        run = visible_run(request.user, pk, "training.propose_run")
        proposal = proposal_of(request)
        if proposal.pop("study") != run.study:
            raise serializers.ValidationError({"study": "The draft belongs to another study. Propose a run there."})
        run_edit(run=run, acting_user=request_user(request), **proposal)
        return Response(run_document(visible_run(request.user, pk), request.user))


class EventStream(BaseRenderer):
    """Server-sent events, given as text."""

    media_type = "text/event-stream"
    format = "events"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return str(data).encode()


_EVENT_FIELDS = ("id", "status", "progress", "place", "expected_start", "reason", "model")
_RETRY = 2
"""Seconds after which a program that follows a run asks for news again."""


class RunEvents(ApiView):
    """A run's progress as server-sent events.

    Each response ends at once, because an open stream would occupy one of the site's few processes. Programs that
    follow the standard reconnect automatically after ``retry``, with the id of the last event that they received.
    """

    renderer_classes = [EventStream]

    @operation(
        "Follow a run",
        "runs",
        {(200, EventStream.media_type): OpenApiTypes.ANY, 204: None},
        parameters=[
            OpenApiParameter(
                "Last-Event-ID", str, OpenApiParameter.HEADER, description="Id of the last event that you received."
            )
        ],
        examples=[
            OpenApiExample(
                "A run that is asking people",
                media_type=EventStream.media_type,
                value='retry: 2000\nid: 3f1c9a0b\nevent: progress\ndata: {"status": "asking", "progress": {}}\n\n',
            )
        ],
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """Return the run's progress as a server-sent event if it has changed since the last event you received.

        The event `progress` contains part of the run's document: `status`, `progress`, `place`, `expected_start`,
        `reason` and `model`. The last event is `ended`. The response ends at once, and event sources reconnect every
        two seconds. After the run has ended, the response is 204, so that event sources stop.
        """
        run = visible_run(request.user, pk)
        document = run_document(run, request.user)
        data = JSONRenderer().render({name: document[name] for name in _EVENT_FIELDS}).decode()
        own = hashlib.sha256(data.encode()).hexdigest()[:16]
        if request.headers.get("Last-Event-ID") == own:
            return Response(status=HTTPStatus.NO_CONTENT) if run.has_ended else Response(f"retry: {_RETRY}000\n\n")
        event = "ended" if run.has_ended else "progress"
        return Response(f"retry: {_RETRY}000\nid: {own}\nevent: {event}\ndata: {data}\n\n")


class RunWithdraw(ApiView):
    @operation("Withdraw your draft", "runs", RunDetailSerializer, CONFLICT, request=None)
    def post(self, request: Request, pk: UUID) -> Response:
        """Withdraw your draft permanently.

        This is logged. The response is 403 for someone else's draft, and 409 if the run is no longer a draft.
        """
        run = visible_run(request.user, pk, "training.propose_run")
        run_withdraw(run=run, acting_user=request_user(request))
        return Response(run_document(visible_run(request.user, pk), request.user))


class ApprovalSerializer(StrictSerializer):
    """Share of every holder's cap that the run may use.

    After the run, any part that was demonstrably not used becomes free again.
    """

    share = serializers.FloatField(
        required=False,
        help_text="Share of every cap, above 0 and at most the free share. Defaults to a quarter or the free share, "
        "whichever is smaller (1 in a rehearsal).",
    )
    revision = serializers.IntegerField(
        required=False,
        help_text="Revision of the proposal that you reviewed. If the proposal has changed since, the response is 409.",
    )


class RunApprove(ApiView):
    scope = Scope.DECIDE

    @operation(
        "Approve a draft (operators)",
        "runs",
        {202: RunDetailSerializer, 200: RunDetailSerializer},
        CONFLICT,
        request=ApprovalSerializer,
        examples=[OpenApiExample("A quarter of every cap", request_only=True, value={"share": 0.25})],
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Approve another person's draft with a share of every holder's cap.

        The response is 403 for your own draft. Your decision is recorded at once. The response is 202 while a worker
        calculates the plan: poll `Location` until `status` is no longer `planning`. If the run becomes a `draft` again,
        `reason` explains why. Approving a run again has no effect. The response is 409 if the run was cancelled or has
        failed.
        """
        run = visible_run(request.user, pk, "training.approve_run")
        approval = body_of(request, ApprovalSerializer)
        share = approval["share"] if "share" in approval else suggested_share(run.study)
        run = run_approve(run=run, acting_user=request_user(request), share=share, revision=approval.get("revision"))
        code = HTTPStatus.ACCEPTED if run.status == Run.Status.PLANNING else HTTPStatus.OK
        return created(run_document(run, request.user), "run", run.pk, status=code)

    @operation("Withdraw an approval (operators)", "runs", RunDetailSerializer, CONFLICT, request=None)
    def delete(self, request: Request, pk: UUID) -> Response:
        """Turn a run back into a draft while its plan is being calculated.

        The response is 409 once the plan is complete. This has no effect on a run that is already a draft.
        """
        run = visible_run(request.user, pk, "training.approve_run")
        approval_undo(run=run, acting_user=request_user(request))
        return Response(run_document(visible_run(request.user, pk), request.user))


class RunCancel(ApiView):
    scope = Scope.DECIDE

    @operation("Cancel a run (operators)", "runs", RunDetailSerializer, CONFLICT, request=None)
    def post(self, request: Request, pk: UUID) -> Response:
        """End a run before it finishes.

        The run's releases and charges so far remain. The response is 409 if the run has finished or failed. Cancelling
        a run twice has no further effect.
        """
        run = visible_run(request.user, pk, "training.cancel_run")
        ended = run_cancel(run=run, acting_user=request_user(request))
        if ended.status != Run.Status.CANCELLED:
            raise ValidationError("This run has already ended, so there is nothing to cancel.", code=STATE)
        return Response(run_document(visible_run(request.user, pk), request.user))


class ComparisonQuerySerializer(serializers.Serializer):
    """The runs to compare."""

    runs = serializers.RegexField(
        rf"^[0-9a-fA-F-]{{36}}(,[0-9a-fA-F-]{{36}}){{1,{MOST - 1}}}$",
        help_text=f"Ids of 2 to {MOST} runs, separated by commas.",
        error_messages={"invalid": f"Give the ids of two to {MOST} runs, separated by commas."},
    )

    def validate_runs(self, text: str) -> list[UUID]:
        try:
            ids = list(dict.fromkeys(map(UUID, text.split(","))))
        except ValueError:
            raise serializers.ValidationError(
                "Not all of these are ids of runs. GET /api/v1/runs lists yours."
            ) from None
        if len(ids) < 2:
            raise serializers.ValidationError("These are all the same run. Give at least one other run.")
        return ids


class ComparedGroupSerializer(serializers.Serializer):
    name = serializers.CharField()
    used = serializers.FloatField(source="spent_share", help_text="Share of every member's cap that the run has used.")


class ComparedSerializer(serializers.Serializer):
    """The outcome of a run."""

    run = RunSerializer()
    interval = serializers.ListField(
        child=serializers.FloatField(),
        allow_null=True,
        help_text="95 % confidence interval of the accuracy; null if unknown.",
    )
    measures = serializers.DictField(
        source="run.student.measures",
        allow_null=True,
        help_text="Measures of the run's published model on the test data, as in GET /api/v1/models; null if unknown.",
    )
    label_accuracy = serializers.FloatField(
        allow_null=True, help_text="Share of the run's labels that are correct, rounded; null if unknown."
    )
    share = serializers.FloatField(
        allow_null=True,
        help_text="Share of every cap that the run may use; null before its approval, and in rehearsals.",
    )
    used = serializers.FloatField(
        allow_null=True,
        help_text="Share of the cap used by the group that used most; null if nothing is charged.",
    )
    groups = ComparedGroupSerializer(many=True)
    minutes = serializers.IntegerField(
        allow_null=True, help_text="Minutes from the run's approval to its end; null until the run ends."
    )


class ParameterRowSerializer(serializers.Serializer):
    """A parameter that differs between the runs."""

    name = serializers.CharField(
        help_text="Name of the parameter; a dotted path if it belongs to a choice, such as choices.aggregator.sigma."
    )
    values = serializers.ListField(
        child=serializers.JSONField(allow_null=True),
        help_text="Values in the order of the runs; null for runs without this parameter.",
    )


class ComparisonSerializer(serializers.Serializer):
    runs = ComparedSerializer(many=True)
    parameters = ParameterRowSerializer(many=True)


class RunComparison(ApiView):
    query_class = ComparisonQuerySerializer

    @operation("Compare runs", "runs", ComparisonSerializer, parameters=[ComparisonQuerySerializer])
    def get(self, request: Request) -> Response:
        """Return the outcomes of runs and the parameters in which they differ.

        The response is 404 if you may not see one of the runs.
        """
        runs: list[Any] = [visible_run(request.user, pk) for pk in self.query["runs"]]
        return Response(ComparisonSerializer(runs_compare(runs)).data)
