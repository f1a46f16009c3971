"""Metrics of requests by django-prometheus, without what would tell of holders' decisions.

How often a single page of holders or of data stewards is opened follows the people of a study: a page that is asked for
once more is one more withdrawal. Such pages are counted together, without method, and no sizes of answers are kept.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django_prometheus.middleware import Metrics, PrometheusAfterMiddleware, PrometheusBeforeMiddleware

#: Pages that are counted one by one; all others are "other".
COUNTED = ("staff:stud", "staff:run", "staff:polic", "staff:dataset", "staff:ledger", "api:", "healthz", "readyz")
OTHER = "other"

_KEPT = {
    "django_http_requests_latency_including_middlewares_seconds",
    "django_http_requests_latency_seconds_by_view_method",
    "django_http_responses_total_by_status_view_method",
    "django_http_exceptions_total_by_type",
}


class _Dropped:
    """Metric that keeps nothing."""

    def labels(self, **_: str) -> "_Dropped":
        return self

    def inc(self) -> None:
        pass

    def observe(self, _: float) -> None:
        pass


class RequestMetrics(Metrics):
    """Metrics of django-prometheus that are kept; the others exist without a content."""

    def register_metric(
        self, metric_cls: type, name: str, documentation: str, labelnames: Any = (), **kwargs: Any
    ) -> Any:
        if name not in _KEPT:
            return _Dropped()
        return super().register_metric(metric_cls, name, documentation, labelnames, **kwargs)


class BeforeMiddleware(PrometheusBeforeMiddleware):
    """First middleware: measures whole requests."""

    metrics_cls = RequestMetrics


class AfterMiddleware(PrometheusAfterMiddleware):
    """Last middleware: measures views."""

    metrics_cls = RequestMetrics

    def label_metric(
        self, metric: Any, request: HttpRequest, response: HttpResponse | None = None, **labels: str
    ) -> Any:
        if "view" in labels and not labels["view"].startswith(COUNTED):
            labels["view"] = OTHER
            if "method" in labels:
                labels["method"] = "any"
        if "status" in labels:
            labels["status"] = f"{labels['status'][0]}xx"
        return super().label_metric(metric, request, response, **labels)
