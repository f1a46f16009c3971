"""Address ``/metrics``, for whoever has the token."""

import os
from secrets import compare_digest

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from ipate_web.metrics.collector import WorkCollector


def _is_allowed(request: HttpRequest) -> bool:
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return bool(settings.METRICS_TOKEN) and compare_digest(token.encode(), settings.METRICS_TOKEN.encode())


def metrics(request: HttpRequest) -> HttpResponse:
    """Metrics of all processes of this site and of the work in the background; 404 without the token."""
    if not _is_allowed(request):
        raise Http404
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)
    else:
        registry.register(REGISTRY)
    registry.register(WorkCollector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
