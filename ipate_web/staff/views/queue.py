"""Page of the queue and the workers of the whole installation."""

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from common.requests import SignedInRequest
from training.queue import queue_for, queue_watchable


@never_cache
@login_required
@require_safe
def queue(request: SignedInRequest) -> HttpResponse:
    """Show which runs are under way and which wait, and which workers there are."""
    return _rendered(request, "staff/queue/queue.html")


@never_cache
@login_required
@require_safe
def queue_live(request: SignedInRequest) -> HttpResponse:
    """Live part of the page."""
    return _rendered(request, "staff/queue/home.html" if "short" in request.GET else "staff/queue/live.html")


def _rendered(request: SignedInRequest, template: str) -> HttpResponse:
    if not queue_watchable(request.user):
        raise PermissionDenied
    return render(request, template, {"queue": queue_for(request.user)})
