"""``/metrics`` shows the site's operation to holders of the token, and nothing about the people in its studies."""

import json
import math
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery import current_app
from django.conf import settings as site_settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from rest_framework.test import APIClient

from common.models import WorkerHeartbeat
from consent.models import Checkpoint, Mail
from consent.services import consent_withdraw
from ipate_web.health import COUNTED
from ipate_web.tokens.models import ApiToken
from tests import factories
from tests.test_roles import TABLE
from tests.training.asking import ASKING_RUN, run_ask
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, study_with_table
from training.models import Run
from training.selectors import study_budgets

TOKEN = "t" * 32
DASHBOARD = Path(site_settings.BASE_DIR) / "deploy" / "grafana.json"
ALERTS = Path(site_settings.BASE_DIR) / "deploy" / "prometheus-alerts.yaml"

Sample = tuple[str, frozenset[tuple[str, str]]]

pytestmark = pytest.mark.django_db


@pytest.fixture
def ask(client: Client, settings: Any) -> Callable[[], dict[Sample, float]]:
    settings.METRICS_TOKEN = TOKEN

    def ask() -> dict[Sample, float]:
        answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200
        families = text_string_to_metric_families(answer.content.decode())
        samples = [sample for family in families for sample in family.samples]
        return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}

    return ask


def of_work(samples: dict[Sample, float], study: str) -> dict[Sample, float]:
    """Return the metrics of the installation's work and of one study's budgets."""
    own = frozenset({("study", study)})
    return {
        (name, labels - own): value
        for (name, labels), value in samples.items()
        if name.startswith("ipate_") and ("study" not in dict(labels) or own <= labels)
    }


def test_metrics_require_the_token(client: Client, settings: Any) -> None:
    assert client.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404, "no token is set"
    settings.METRICS_TOKEN = TOKEN
    for header in ("", "Bearer ", f"Bearer {TOKEN}x", "Bearer", TOKEN[:-1], "Bearer ä"):
        assert client.get("/metrics", headers={"Authorization": header}).status_code == 404, header


def test_the_work_in_the_background(ask: Callable[[], dict[Sample, float]], monkeypatch: pytest.MonkeyPatch) -> None:
    study, now = study_with_table(), timezone.now()
    _draft, done, quiet = (run_draft(study, **TABLE_RUN) for _ in range(3))
    moments = {"approved_at": 100, "started_at": 95, "spending_began_at": 60, "ended_at": 20}
    times = {name: now - timedelta(minutes=ago) for name, ago in moments.items()}
    Run.objects.filter(pk=done.pk).update(status=Run.Status.FAILED, **times)
    Run.objects.filter(pk=quiet.pk).update(status=Run.Status.PREPARING, heartbeat=now - timedelta(minutes=5))
    quiet.chunks.create(start=0, stop=2, deaths=3)
    for name, ago in (("alive", 0), ("dead", 300)):
        WorkerHeartbeat.objects.create(name=name, heard_at=now - timedelta(seconds=ago))
    staff = factories.user_create("u")
    for kind, ago in (("run_ended", 2.5), ("receipt", 40)):
        Mail.objects.create(user=staff, kind=kind, due_at=now - timedelta(minutes=ago))
    current_app.control.purge()
    current_app.send_task("training.tasks.runs_sweep")
    found = ask()
    current_app.control.purge()

    def value(name: str, **labels: str) -> float:
        return found[name, frozenset(labels.items())]

    assert value("ipate_workers") == 1
    assert value("ipate_queue_length") == 0, "in hundreds"
    runs = [value("ipate_runs", status=status) for status in ("draft", "preparing", "failed", "finished")]
    assert runs == [1, 1, 1, 0]
    assert value("ipate_run_silence_seconds") == pytest.approx(300, abs=60)
    assert value("ipate_worker_deaths") == 3
    assert value("ipate_mail_overdue_seconds") in (120, 180), "of the mails that do not depend on holders, in minutes"
    classes = {
        stage: [value("ipate_run_stage_seconds_bucket", stage=stage, le=le) for le in ("60.0", "600.0", "3600.0")]
        for stage in ("waiting", "preparing", "releasing")
    }
    assert classes == {"waiting": [0, 1, 1], "preparing": [0, 0, 1], "releasing": [0, 0, 1]}

    nobody = current_app.connection_for_read("redis://127.0.0.1:1/0", transport="redis")
    monkeypatch.setattr(current_app._get_current_object(), "connection_for_read", lambda: nobody)
    assert {name for name, _ in found} - {name for name, _ in ask()} == {"ipate_queue_length"}


def test_the_age_of_the_last_checkpoint(ask: Callable[[], dict[Sample, float]], settings: Any) -> None:
    age = ("ipate_checkpoint_age_seconds", frozenset[tuple[str, str]]())
    assert ask()[age] == 0, "none are made"
    settings.CHECKPOINT_KEYS = ["a key"]
    assert ask()[age] == float("inf")
    made_at = timezone.now() - timedelta(hours=30)
    Checkpoint.objects.create(number=1, day=made_at.date(), entry="{}", note="", made_at=made_at)
    assert ask()[age] == pytest.approx(30 * 3600, abs=60)


def test_metrics_are_independent_of_who_takes_part(ask, monkeypatch) -> None:
    """The same run has other levels, fewer people, and some who leave during it; labels show no difference."""
    # One interval of durations, because a stage's duration here depends on what else the machine does.
    monkeypatch.setattr("ipate_web.health.CLASSES", (math.inf,))
    seen: list[dict[Sample, float]] = []
    clocks = ("ipate_mail_overdue_seconds", "ipate_run_silence_seconds", "ipate_queue_length")
    clocks += ("ipate_backup_age_seconds", "ipate_verification_age_seconds", "ipate_beat_age_seconds")
    clocks += ("ipate_certificate_seconds", "ipate_disk_free_ratio")
    for slug, levels, holders in (("cardiology", "L", 30), ("oncology", "HHHA", 24)):
        study = study_with_table(slug, levels=levels, holders=holders)
        before = of_work(ask(), slug)
        run = run_start(study, share=0.5, **ASKING_RUN)
        run_ask(run, 1)
        if slug == "oncology":
            for holder in study.holders.all()[:5]:
                consent_withdraw(holder=holder, acting_user=None)
        assert run_ask(run).status == Run.Status.FINISHED
        after = of_work(ask(), slug)
        current_app.control.purge()
        seen.append({sample: value - before[sample] for sample, value in after.items() if sample[0] not in clocks})
    assert seen[0] == seen[1]
    assert seen[0]["ipate_runs", frozenset({("status", "finished")})] == 1
    allowed = {"le", "status", "stage", "view", "method", "type", "generation", "implementation", "major", "minor"}
    allowed |= {"patchlevel", "version"}
    for name, labels in ask():
        if name == "ipate_group_budget_share":
            assert {label for label, _ in labels} == {"study", "level", "policy", "part"}
            continue
        assert {label for label, _ in labels} <= allowed, name
        assert not name.endswith("_sum") or not name.startswith("ipate_"), "sums reveal the duration of one stage"
        for _, value in labels:  # no address of the site has these words
            assert not re.search(r"cardiology|oncology|[0-9a-f]{8}-", value)


#: Every metric of the site with its labels. Before adding one here, check what can change it.
LABELS = {
    **{f"ipate_{name}": set() for name in ("workers", "queue_length", "run_silence_seconds", "worker_deaths")},
    **{f"ipate_{name}_seconds": set() for name in ("mail_overdue", "certificate", "alliance_silence")},
    **{f"ipate_{name}_age_seconds": set() for name in ("backup", "beat", "verification", "checkpoint")},
    **{f"ipate_{name}": set() for name in ("disk_free_ratio", "studies_faulty", "studies_locked")},
    "ipate_runs": {"status"},
    # Public bounds from the register, which no decision changes.
    "ipate_group_budget_share": {"study", "level", "policy", "part"},
    "ipate_run_stage_seconds": {"stage", "le"},
    "django_http_requests_latency_including_middlewares_seconds": {"le"},
    "django_http_requests_latency_seconds_by_view_method": {"view", "method", "le"},
    "django_http_responses_total_by_status_view_method": {"status", "view", "method"},
    "django_http_exceptions_total_by_type": {"type"},
}


def test_no_metric_depends_on_one_persons_decision(ask: Callable[[], dict[Sample, float]], client: Client) -> None:
    """Decisions on the page, by the API and on paper: request, mail and task leave every number unchanged."""
    study = factories.members_add(study_with_table(), sven="steward")
    holder = study.holders.first()
    assert holder is not None
    holder.user = factories.user_create("hanna")
    holder.user.email = "hanna@example.org"
    holder.user.save()
    holder.save()
    _, secret = ApiToken.objects.create(User.objects.get(username="sven"), name="token")
    client.force_login(holder.user)
    mine, api = f"/my/{study.slug}", APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}")
    client.get(f"{mine}/withdraw/")
    ask()
    before, mails = ask(), Mail.objects.count()
    client.get(f"{mine}/choice/")
    answer = client.post(f"{mine}/withdraw/", {"records": "keep", "confirmed": "1"})
    assert answer.status_code == 302
    Mail.objects.create(user=holder.user, kind="receipt", due_at=timezone.now() - timedelta(hours=3))
    assert api.post(f"/api/v1/studies/{study.slug}/consents", {}, format="multipart").status_code == 400
    client.get("/join/no-such-link/")
    assert Mail.objects.count() > mails + 1, "a receipt is waiting, too"
    after = ask()
    current_app.control.purge()
    clocks = tuple(f"ipate_{name}" for name in ("certificate", "beat_age", "backup_age", "verification_age"))
    moved = {sample for sample in before | after if before.get(sample) != after.get(sample)}
    assert {each for each in moved if not each[0].startswith(("process_", "python_", *clocks))} == set()

    assert client.get("/readyz").status_code < 600
    labels: dict[str, set[str]] = {}
    for name, found in ask():
        if name.startswith(("ipate_", "django_")):
            base = re.sub(r"_(?:bucket|count|sum|total|created)$", "", name)
            labels.setdefault(base, set()).update(label for label, _ in found)
    assert {name: LABELS.get(name) for name in labels} == labels

    of_staff = tuple(f"staff:{page}" for page in ("recruitment", "holder", "paper", "invitation", "link"))
    people = ("consent:", *of_staff, "api:study-consents", "account", "join", "open_link", "leave", "stay", "home")
    follow = [name for name in TABLE if name.startswith(people)]
    assert len(follow) > 25
    assert [name for name in follow if name.startswith(COUNTED)] == []


def test_what_each_privacy_group_has_used_and_has_left(ask: Callable[[], dict[Sample, float]]) -> None:
    study = study_with_table()
    run_finish(run_start(study, share=0.5, **TABLE_RUN))
    run_start(study, share=0.25, **TABLE_RUN)
    found = {labels: value for (name, labels), value in ask().items() if name == "ipate_group_budget_share"}
    expected = {}
    for group in study_budgets(study):
        of_group = {"study": "table", "level": group.level, "policy": "1"}
        for part, share in (("used", group.share_used), ("left", group.share_left)):
            expected[frozenset((of_group | {"part": part}).items())] = pytest.approx(share)
    assert found == expected and len(found) == 6


def test_the_dashboard_and_the_alerts_ask_for_metrics_that_are_there(ask, client) -> None:
    client.get("/readyz")
    panels = json.loads(DASHBOARD.read_text())["panels"]
    requests = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    requests += [rule["expr"] for rule in rules]
    assert len(requests) > 10
    ask()
    known = {name for name, _ in ask()} | {"up"}
    named = {name for each in requests for name in re.findall(r"\b(?:ipate|django)_\w+|\bup\b", each)}
    assert named - known <= {"django_http_exceptions_total_by_type_total"}, "it appears with the first exception"
