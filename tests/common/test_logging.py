"""Log lines carry their run, and no secret."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from django.conf import settings
from pythonjsonlogger.json import JsonFormatter

from accounting.book import balances
from common.logging import RunFilter, logging_run
from tests.factories import user_create
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.methods.pate.ballot import ballot_load
from training.methods.pate.planning import plan_from_json
from training.services.runs import run_cancel

pytestmark = pytest.mark.django_db


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """All that is logged meanwhile, as the site writes it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    spec = settings.LOGGING["formatters"]["json"]
    handler.setFormatter(JsonFormatter(spec["format"], rename_fields=spec["rename_fields"]))
    handler.addFilter(RunFilter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.setLevel(level)
    root.removeHandler(handler)


def test_lines_outside_a_run_say_so_and_runs_do_not_leak_into_each_other(lines: io.StringIO) -> None:
    logger = logging.getLogger("here")
    with logging_run("outer"):
        with logging_run("inner"):
            logger.info("one")
        logger.info("two")
    logger.info("three")
    records = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [line["run"] for line in records] == ["inner", "outer", "-"]


@pytest.mark.slow
def test_nothing_secret_is_logged_and_every_line_about_a_run_carries_its_id(lines: io.StringIO) -> None:
    study = study_with_table(retain_votes=True)
    run = run_finish(run_start(study, share=0.5, **TABLE_RUN))
    cancelled = run_start(study, share=0.25, **TABLE_RUN)
    run_cancel(run=cancelled, acting_user=user_create("olga"))
    log = lines.getvalue()
    about = [line for line in map(json.loads, log.splitlines()) if line["logger"].startswith("training.services")]
    assert {line["run"] for line in about} == {str(run.pk), str(cancelled.pk)}
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in about)
    secrets = list(map(str, balances(study).spent.tolist()))
    ballot = ballot_load(run.pk)
    plan = plan_from_json(run.plan)
    counts = plan.aggregator.count(ballot.predictions, len(run.classes), plan.teacher_weights())
    secrets += [str(row.tolist()) for row in counts]
    secrets += list(study.holders.values_list("pseudonym", flat=True))
    assert not [secret for secret in secrets if secret in log]


@pytest.mark.slow
def test_why_a_run_failed_is_logged_under_its_id(lines: io.StringIO) -> None:
    loud = {"name": "gnmax", "sigma": 0.01}
    run = run_finish(run_start(study_with_table(), **TABLE_RUN | {"aggregator": loud}))
    (record,) = [json.loads(line) for line in lines.getvalue().splitlines() if "The run failed" in line]
    assert (record["level"], record["run"]) == ("WARNING", str(run.pk))
