"""Endpoint of what waits for whoever asks."""

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ipate_web.api.base import ApiView, MinuteField, operation, request_user
from ipate_web.waiting import Kind, waiting_for

#: Told on pages alone: they follow from how long private work takes, and from who decided what.
_PAGES_ALONE = frozenset({Kind.SILENT, Kind.ERASURES, Kind.LETTERS})


class TaskSerializer(serializers.Serializer):
    """Task, and the page on which it is done."""

    study = serializers.CharField(source="study.slug")
    kind = serializers.ChoiceField([(kind.value, kind.value) for kind in Kind if kind not in _PAGES_ALONE])
    text = serializers.CharField()
    url = serializers.SerializerMethodField(help_text="Of a page of the site.")
    since = MinuteField(help_text="To the minute.")
    answer_by = serializers.DateField(
        allow_null=True, help_text="The last day on which an answer is wanted; null where none was named."
    )
    own = serializers.BooleanField(
        source="is_own", help_text="Whether you proposed it yourself, so that somebody else has to decide."
    )

    def get_url(self, task: object) -> str:
        return settings.SITE_URL.rstrip("/") + task.url  # type: ignore[attr-defined]


class WaitingSerializer(serializers.Serializer):
    waiting = TaskSerializer(many=True, help_text="By the day on which an answer is wanted, then oldest first.")


class WaitingList(ApiView):
    """Tasks that you can act on now."""

    @operation("What waits for you", "studies", WaitingSerializer)
    def get(self, request: Request) -> Response:
        """Proposals to decide, runs that failed, and what your studies lack, by your role in each of them.

        Runs that no worker is at, records that are to be erased and letters that are to be printed are told on the
        overview alone: no answer of this interface follows from how long private work takes or from who decided what.
        """
        waiting = [task for task in waiting_for(request_user(request)) if task.kind not in _PAGES_ALONE]
        return Response(WaitingSerializer({"waiting": waiting}).data)
