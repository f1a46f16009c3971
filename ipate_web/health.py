"""Endpoints for programs that monitor the site: health, readiness and metrics.

``/healthz`` shows whether the site is alive, and ``/readyz`` whether everything it needs responds. For Prometheus,
``/metrics`` counts requests and background work, which it reads from the database and broker on each request.

No metric is about a holder or a single run. Metrics are sums across the installation, durations in classes too wide to
reveal the size of a batch, and public bounds on what studies' privacy groups have used. No metric changes with one
person's decision, although decisions cause emails and tasks: emails to holders are left out, waiting tasks are counted
in hundreds, and times since the last contact are in minutes.

The number of page views by holders or data stewards depends on a study's people, because one more request may mean one
more withdrawal. Such requests are counted only if the site failed, and response sizes are not recorded.
"""

import logging
import math
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from secrets import compare_digest
from typing import Any
from uuid import uuid4

from amqp.exceptions import ChannelError
from celery import current_app
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import DatabaseError, connection
from django.db.models import Max, Min
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.templatetags.static import static
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_prometheus.middleware import Metrics, PrometheusAfterMiddleware, PrometheusBeforeMiddleware
from kombu.exceptions import OperationalError
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from common.jobs import live_worker_count
from consent.models import Checkpoint, Mail, Study
from consent.services.mail import KINDS
from ipate_web.watching import PARTS as WATCHED
from ipate_web.watching import backup_age, backup_last, beat_age, certificate_lifetime, disk_free
from training.selectors import STAGES, longest_silence, runs_by_status, stage_durations, study_budgets, worker_deaths
from training.watch import all_watches, alliances_silence, longest_time_unverified

logger = logging.getLogger(__name__)


def _database() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return True
    except DatabaseError:
        logger.exception("The database cannot be reached.")
        return False


def _broker() -> bool:
    try:
        with current_app.connection_for_write() as broker:
            broker.ensure_connection(max_retries=1, timeout=2)
        return True
    except (OperationalError, OSError):
        logger.exception("The broker cannot be reached.")
        return False


def _storage() -> bool:
    """Return whether a file can be written to and deleted from private storage and model storage."""
    try:
        for alias in ("private", "models"):
            name = storages[alias].save(f"readiness/{uuid4().hex}", ContentFile(b"ready"))
            storages[alias].delete(name)
        return True
    except Exception:  # each kind of storage raises different errors
        logger.exception("The storage cannot be written to.")
        return False


def _styles() -> bool:
    """Return whether the pages' styles have been collected; otherwise every page responds with 500."""
    try:
        return bool(static("css/ipate.css"))
    except (OSError, ValueError):
        logger.exception("The static files were not collected.")
        return False


def _worker() -> bool:
    try:
        return live_worker_count() > 0
    except DatabaseError:
        logger.exception("The state of the workers could not be determined.")
        return False


#: Parts that the site needs: the check, and the message if the check fails.
PARTS: dict[str, tuple[Callable[[], bool], str]] = {
    "database": (_database, "unreachable"),
    "broker": (_broker, "unreachable"),
    "storage": (_storage, "not writable"),
    "static": (_styles, "not collected"),
    "worker": (_worker, "not heard from"),
}


def _note(find: Callable[[], str]) -> str:
    try:
        return find()
    except DatabaseError:
        logger.exception("The site's state could not be determined.")
        return "unknown"


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 as long as the site's own process responds, even if everything else is down."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 if all parts that the site needs respond, otherwise 503 and the parts that do not, without reasons.

    Other problems are listed but do not change the status, because taking the site out of rotation would also prevent
    withdrawals and erasures, which holders need most when something is wrong.
    """
    fine = {name: check() for name, (check, _) in PARTS.items()}
    ready = all(fine.values())
    state = {name: "ok" if fine[name] else fault for name, (_, fault) in PARTS.items()}
    notes = {name: _note(part.state) for name, part in WATCHED.items()}
    return JsonResponse({"status": "ready" if ready else "not ready", **state, **notes}, status=200 if ready else 503)


# --- Metrics ----------------------------------------------------------------------------------------------------------


#: Upper bounds of the histogram buckets for durations, in seconds: 10 s, 1 min, 10 min, 1 h, 6 h, 1 day.
CLASSES = (10.0, 60.0, 600.0, 3600.0, 21600.0, 86400.0)


#: Kinds of email that do not depend on holders: optional emails to staff, and emails about the installation.
_STAFF_WISHES = ("approvals", "ends", "shares")
_STAFF_KINDS = ("alarm", "checkpoint", "fault_found", "fault_found_committee", "installation_fault")
#: Pages and API endpoints that are counted individually; requests of any other URL may depend on a person.
COUNTED = (
    *("staff:stud", "staff:run", "staff:polic", "staff:dataset", "staff:ledger", "healthz", "readyz"),
    *("api:aggregators", "api:learners", "api:methods", "api:model", "api:representations", "api:run", "api:schema"),
    *("api:students", "api:studies", "api:study-datasets", "api:study-encoders"),
)
#: View name for all other requests, which are counted only if the site failed.
OTHER = "other"
#: Exceptions with which a page refuses a request; they are not failures of the site.
_REFUSALS = ("Http404", "PermissionDenied")
_KEPT = {
    "django_http_requests_latency_including_middlewares_seconds",
    "django_http_requests_latency_seconds_by_view_method",
    "django_http_responses_total_by_status_view_method",
    "django_http_exceptions_total_by_type",
}


def queue_length() -> int:
    """Return the number of tasks waiting at the broker, rounded down to hundreds."""
    with current_app.connection_for_read() as broker:
        broker.ensure_connection(max_retries=1, timeout=2)
        try:
            queue = current_app.conf.task_default_queue
            return broker.default_channel.queue_declare(queue, passive=True).message_count // 100 * 100
        except ChannelError:  # no message was ever sent
            return 0


def _mail_overdue() -> float:
    kinds = [kind.name for kind in KINDS.values() if kind.wish in _STAFF_WISHES]
    waiting = Mail.objects.filter(state=Mail.State.WAITING, kind__in=[*kinds, *_STAFF_KINDS])
    due = waiting.aggregate(due=Min("due_at"))["due"]
    return _minutes(timezone.now() - due) if due else 0.0


def _minutes(duration: timedelta) -> float:
    """Return a duration in seconds, rounded down to whole minutes and at least 0."""
    return max(0.0, duration // timedelta(minutes=1) * 60.0)


def _disk_free() -> float:
    return math.floor(100 * disk_free()) / 100


def _backup_age() -> float:
    return backup_age().total_seconds() if backup_last() else math.inf


def _seconds(duration: timedelta) -> float:
    return math.inf if duration == timedelta.max else duration.total_seconds()


def _checkpoint_age() -> float:
    if not settings.CHECKPOINT_KEYS:
        return 0.0
    made = Checkpoint.objects.aggregate(last=Max("made_at"))["last"]
    return (timezone.now() - made).total_seconds() if made else math.inf


def _gauge(name: str, text: str, value: Callable[[], float]) -> Callable[[], Metric]:
    return lambda: GaugeMetricFamily(name, text, value=value())


def _runs() -> Metric:
    family = GaugeMetricFamily("ipate_runs", "Runs of all studies, by status.", labels=["status"])
    for status, number in runs_by_status().items():
        family.add_metric([status], number)
    return family


def _budgets() -> Metric:
    family = GaugeMetricFamily(
        "ipate_group_budget_share",
        "Shares of a privacy group's budget: used by all runs (upper bound), and left after runs in progress.",
        labels=["study", "level", "policy", "part"],
    )
    for study in Study.objects.filter(rehearsal=False, closed_at=None).order_by("slug"):
        for group in study_budgets(study):
            for part, share in (("used", group.share_used), ("left", group.share_left)):
                family.add_metric([study.slug, group.level, str(group.policy), part], share)
    return family


def _stages() -> Metric:
    family = HistogramMetricFamily(
        "ipate_run_stage_seconds", "Time that runs spent in a stage, in wide buckets.", labels=["stage"]
    )
    counts = {stage: [0] * (len(CLASSES) + 1) for stage in STAGES}
    for stage, duration in stage_durations():
        counts[stage][bisect_left(CLASSES, duration.total_seconds())] += 1
    for stage, numbers in counts.items():
        ends = [*map(str, CLASSES), "+Inf"]
        # No sum, because the difference between two sums would show the exact duration of one stage of one run.
        family.add_metric([stage], [(end, sum(numbers[: place + 1])) for place, end in enumerate(ends)], None)
    return family


_FAMILIES: Iterable[Callable[[], Metric]] = (
    _gauge("ipate_workers", "Workers with a recent heartbeat.", live_worker_count),
    _gauge("ipate_queue_length", "Tasks waiting at the broker, in hundreds.", queue_length),
    _runs,
    _budgets,
    _stages,
    _gauge(
        "ipate_run_silence_seconds",
        "Longest time since a run in progress was last processed, to the minute.",
        lambda: _minutes(longest_silence()),
    ),
    _gauge("ipate_worker_deaths", "Workers that died while working on parts of unfinished runs.", worker_deaths),
    _gauge("ipate_mail_overdue_seconds", "Time since the oldest unsent email to staff was due.", _mail_overdue),
    _gauge("ipate_backup_age_seconds", "Time since the last successful backup; +Inf if there was none.", _backup_age),
    _gauge(
        "ipate_beat_age_seconds",
        "Time since a worker last ran a task from beat.",
        lambda: beat_age().total_seconds(),
    ),
    _gauge("ipate_disk_free_ratio", "Smallest free share of the disks with local state and journal.", _disk_free),
    _gauge(
        "ipate_certificate_seconds",
        "Time until the site's certificate expires; +Inf if there is none.",
        lambda: _seconds(certificate_lifetime()),
    ),
    _gauge(
        "ipate_verification_age_seconds",
        "Longest time since any study was verified.",
        lambda: longest_time_unverified().total_seconds(),
    ),
    _gauge(
        "ipate_studies_faulty",
        "Studies with a fault at the last verification; records outside studies count as one.",
        lambda: sum(each.fault for each in all_watches()),
    ),
    _gauge(
        "ipate_studies_locked",
        "Studies locked because their database is older than their journal.",
        lambda: sum(each.locked for each in all_watches()),
    ),
    _gauge(
        "ipate_alliance_silence_seconds",
        "Longest time since contact with a hub or site of an alliance; 0 without alliances.",
        lambda: alliances_silence().total_seconds(),
    ),
    _gauge(
        "ipate_checkpoint_age_seconds",
        "Time since the last signed checkpoint; 0 without a public key, +Inf before the first.",
        _checkpoint_age,
    ),
)


class WorkCollector(Collector):
    """Collector for the metrics of this module. Metrics that cannot be read are left out, which is logged."""

    def collect(self) -> Iterator[Metric]:
        for family in _FAMILIES:
            try:
                yield family()
            except (OperationalError, OSError):
                logger.exception("A metric could not be read.")


class _Dropped:
    """Metric that stores nothing."""

    def labels(self, **_: str) -> "_Dropped":
        return self

    def inc(self) -> None:
        pass

    def observe(self, _: float) -> None:
        pass


class RequestMetrics(Metrics):
    """Metrics of django-prometheus that the site uses. All other metrics exist but have no values."""

    def register_metric(
        self, metric_cls: type, name: str, documentation: str, labelnames: Any = (), **kwargs: Any
    ) -> Any:
        if name not in _KEPT:
            return _Dropped()
        return super().register_metric(metric_cls, name, documentation, labelnames, **kwargs)


def _is_counted(request: HttpRequest) -> bool:
    return request.resolver_match is not None and request.resolver_match.view_name.startswith(COUNTED)


class BeforeMiddleware(PrometheusBeforeMiddleware):
    """First middleware, which measures whole requests."""

    metrics_cls = RequestMetrics

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        return super().process_response(request, response) if _is_counted(request) else response


class AfterMiddleware(PrometheusAfterMiddleware):
    """Last middleware, which measures views."""

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


def _is_allowed(request: HttpRequest) -> bool:
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return bool(settings.METRICS_TOKEN) and compare_digest(token.encode(), settings.METRICS_TOKEN.encode())


def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics of all processes of this site and of background work; 404 without the token."""
    if not _is_allowed(request):
        raise Http404
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)
    else:
        registry.register(REGISTRY)
    registry.register(WorkCollector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
