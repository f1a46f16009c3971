"""Metrics of requests by django-prometheus, without what would tell of holders' decisions.

How often pages of holders or of data stewards are opened follows the people of a study: a request more may be one more
withdrawal. Such requests are not counted, however they are called, unless the site failed on them; no sizes of answers
are kept.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django_prometheus.middleware import Metrics, PrometheusAfterMiddleware, PrometheusBeforeMiddleware

#: Pages and addresses of the API that are counted, each by itself; what is not named here may follow a person.
COUNTED = (
    *("staff:stud", "staff:run", "staff:polic", "staff:dataset", "staff:ledger", "healthz", "readyz"),
    *("api:aggregators", "api:learners", "api:methods", "api:model", "api:representations", "api:run", "api:schema"),
    *("api:students", "api:studies", "api:study-datasets", "api:study-encoders"),
)
#: The view of all others, where the site failed on them.
OTHER = "other"
#: Exceptions with which a page refuses a request: no failures of the site.
_REFUSALS = ("Http404", "PermissionDenied")

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


def _is_counted(request: HttpRequest) -> bool:
    return request.resolver_match is not None and request.resolver_match.view_name.startswith(COUNTED)


class BeforeMiddleware(PrometheusBeforeMiddleware):
    """First middleware: measures whole requests."""

    metrics_cls = RequestMetrics

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        return super().process_response(request, response) if _is_counted(request) else response


class AfterMiddleware(PrometheusAfterMiddleware):
    """Last middleware: measures views."""

    metrics_cls = RequestMetrics

    def label_metric(
        self, metric: Any, request: HttpRequest, response: HttpResponse | None = None, **labels: str
    ) -> Any:
        if "status" in labels:
            labels["status"] = f"{labels['status'][0]}xx"
        if not _is_counted(request):
            is_failure = labels.get("status") == "5xx" or labels.get("type", "Http404") not in _REFUSALS
            if not is_failure:
                return _Dropped()
            labels |= {name: value for name, value in (("view", OTHER), ("method", "any")) if name in labels}
        return super().label_metric(metric, request, response, **labels)
