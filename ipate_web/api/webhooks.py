"""Webhooks of a study. Its operators can list, create, test and remove them, as on the page of the same name."""

from http import HTTPStatus

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_view
from rest_framework import exceptions, generics, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from consent.models import WebhookDelivery, WebhookEndpoint
from consent.services.webhooks import EVENTS, TEST, endpoint_create, endpoint_remove, endpoint_test
from ipate_web.api.base import (
    IDEMPOTENCY_KEY,
    ApiView,
    MinuteField,
    StrictSerializer,
    UserField,
    body_of,
    created,
    operation,
    request_user,
    visible_study,
)
from ipate_web.api.problems import UNPROCESSABLE
from ipate_web.tokens.models import Scope

_NAMES = ", ".join(EVENTS)
_MANAGE = "consent.manage_webhooks"


class WebhookSerializer(serializers.ModelSerializer):
    """Program that is notified of events in a study. Its secret is not shown."""

    events = serializers.ListField(child=serializers.ChoiceField([(name, name) for name in EVENTS]))
    created_by = UserField("created_by")

    class Meta:
        model = WebhookEndpoint
        fields = ["id", "url", "events", "created_by", "created_at"]


class MadeWebhookSerializer(WebhookSerializer):
    """New webhook with its secret."""

    secret = serializers.CharField(
        help_text="Secret that signs each message. It is shown only in this response, so store it."
    )

    class Meta(WebhookSerializer.Meta):
        fields = [*WebhookSerializer.Meta.fields, "secret"]


class WebhookRequestSerializer(StrictSerializer):
    """A webhook to create. The service checks its URL."""

    url = serializers.CharField(
        max_length=WebhookEndpoint._meta.get_field("url").max_length,
        help_text="URL that begins with https:// and points to a public host. Messages are sent to this URL by POST.",
    )
    events = serializers.ListField(
        child=serializers.ChoiceField(
            [(name, name) for name in EVENTS],
            error_messages={"invalid_choice": f"There is no event “{{input}}”. Use: {_NAMES}."},
        ),
        help_text="Names of the events to send; at least one.",
    )


class WebhookDeliverySerializer(serializers.ModelSerializer):
    """Message to a webhook, with the status of its delivery."""

    webhook = serializers.IntegerField(source="endpoint_id", help_text="Id of the webhook.")
    event = serializers.ChoiceField([(name, name) for name in (*EVENTS, TEST)])
    status = serializers.IntegerField(
        allow_null=True, help_text="HTTP status of the last response; null if there was none."
    )
    fault = serializers.CharField(help_text="Reason why the last request got no response; empty if it got one.")
    created_at = MinuteField()
    sent_at = MinuteField(allow_null=True, help_text="Time of delivery, to the minute; null if it was not delivered.")
    next_try = serializers.SerializerMethodField(
        help_text="Time of the next attempt, to the minute; null if there is none."
    )

    class Meta:
        model = WebhookDelivery
        fields = ["id", "webhook", "event", "state", "tries", "status", "fault", "created_at", "sent_at", "next_try"]

    @extend_schema_field(MinuteField(allow_null=True))
    def get_next_try(self, delivery: WebhookDelivery) -> str | None:
        waits = delivery.state == WebhookDelivery.State.WAITING
        return MinuteField().to_representation(delivery.due_at) if waits else None


def _managed_webhook(request: Request, slug: str, pk: int) -> WebhookEndpoint:
    """Return a webhook of a study whose webhooks the user may manage.

    Raises:
        NotFound: the user may not see the study, or the study has no such webhook.
        PermissionDenied: the user's role in the study does not include managing webhooks.
    """
    endpoint = WebhookEndpoint.objects.filter(study=visible_study(request.user, slug, _MANAGE), pk=pk).first()
    if endpoint is None:
        raise exceptions.NotFound(
            "The study does not have this webhook. GET /api/v1/studies/{slug}/webhooks lists its webhooks."
        )
    return endpoint


class WebhookView(ApiView):
    """Endpoint of webhooks. URLs may contain keys of other programs, so even reading them requires the scope."""

    scope = Scope.WEBHOOKS
    reading_scope = Scope.WEBHOOKS


@extend_schema_view(get=operation("Webhooks of a study (operators)", "webhooks"))
class StudyWebhooks(WebhookView, generics.ListAPIView):
    """List the programs that are notified of a study's events, and the events that each one receives."""

    serializer_class = WebhookSerializer

    def get_queryset(self) -> QuerySet[WebhookEndpoint]:
        study = visible_study(self.request.user, self.kwargs["slug"], _MANAGE)
        return WebhookEndpoint.objects.filter(study=study)

    @operation(
        "Create a webhook (operators)",
        "webhooks",
        MadeWebhookSerializer,
        UNPROCESSABLE,
        status=201,
        request=WebhookRequestSerializer,
        parameters=[IDEMPOTENCY_KEY],
        examples=[
            OpenApiExample(
                "When runs end",
                request_only=True,
                value={"url": "https://hooks.example.org/ipate", "events": ["run.finished", "run.failed"]},
            )
        ],
    )
    def post(self, request: Request, slug: str) -> Response:
        """Notify a program of selected events. Only this response shows the secret that signs the messages.

        The URL must begin with `https://` and point to a public host. A study can have at most ten webhooks.
        """
        study = visible_study(request.user, slug, _MANAGE)
        body = body_of(request, WebhookRequestSerializer)
        made = endpoint_create(study=study, acting_user=request_user(request), **body)
        document = WebhookSerializer(made.endpoint).data | {"secret": made.secret}
        return created(document, "study-webhooks", slug)


class StudyWebhook(WebhookView):
    @operation("Remove a webhook (operators)", "webhooks", None, status=204, request=None)
    def delete(self, request: Request, slug: str, pk: int) -> Response:
        """Stop notifying a program. Pending messages are not sent, and the list no longer shows its deliveries."""
        endpoint_remove(endpoint=_managed_webhook(request, slug, pk), acting_user=request_user(request))
        return Response(status=status.HTTP_204_NO_CONTENT)


class StudyWebhookTest(WebhookView):
    @operation(
        "Send a test (operators)",
        "webhooks",
        WebhookDeliverySerializer,
        UNPROCESSABLE,
        status=202,
        request=None,
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, slug: str, pk: int) -> Response:
        """Send a test event. The list of deliveries shows the result."""
        delivery = endpoint_test(endpoint=_managed_webhook(request, slug, pk))
        return created(
            WebhookDeliverySerializer(delivery).data, "study-webhook-deliveries", slug, status=HTTPStatus.ACCEPTED
        )


@extend_schema_view(get=operation("Deliveries of a study's webhooks (operators)", "webhooks"))
class StudyWebhookDeliveries(WebhookView, generics.ListAPIView):
    """List the messages of the last 30 days, newest first, with the number of attempts and the last response."""

    serializer_class = WebhookDeliverySerializer

    def get_queryset(self) -> QuerySet[WebhookDelivery]:
        return WebhookDelivery.objects.filter(
            endpoint__study=visible_study(self.request.user, self.kwargs["slug"], _MANAGE)
        )
