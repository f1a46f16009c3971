"""Parts of pages that are kept from one request to the next: every page says what it says without them."""

import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import caches
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from consent.models import Study
from tests.factories import user_create
from tests.training.asking import ASKING_RUN, SAMPLED_RUN, STEPS_RUN, batch_ask, run_ask
from tests.training.runs import TABLE_RUN, run_draft, run_teach, study_with_table
from training.models import Run
from training.services.runs import run_approve
from training.services.students import student_withdraw

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

#: Language and time zone; it is never the same day in both of the Pacific.
READERS = (("en", "Pacific/Kiritimati"), ("en", "Pacific/Pago_Pago"), ("de", "Europe/Berlin"))
#: What a cache is that forgets everything.
NOTHING_KEPT = {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="\w+"')


@pytest.fixture
def study() -> Study:
    return study_with_table()


def states(study: Study, fields: dict[str, Any]) -> Iterator[Run]:
    """A run after everything that changes what is said of it."""
    run = run_draft(study, title="A first title", **fields)
    yield run
    Run.objects.filter(pk=run.pk).update(title="A second title")
    run.refresh_from_db()
    yield run
    run = run_approve(run=run, acting_user=user_create("olga"), share=0.5)
    yield run
    run = run_teach(run)
    yield run
    for _batch in range(2):
        run = batch_ask(run)
        yield run
    run = run_ask(run)
    assert run.status == Run.Status.FINISHED
    yield run
    if run.student is not None:
        olga = user_create("olga")
        student_withdraw(run=run, version=run.student.version, reason="The labels were wrong.", acting_user=olga)
        run.refresh_from_db()
        yield run


def reader(language: str, zone: str) -> Client:
    client = Client(headers={"accept-language": language})
    client.cookies["zone"] = zone
    client.force_login(user_create("olga"))
    return client


def pages(study: Study, run: Run, client: Client) -> dict[str, str]:
    """Text of every page with parts that are kept, without the tokens of its forms."""
    named = {"study": [], "runs": [], "run": [run.pk], "run_live": [run.pk]}
    found = {name: client.get(reverse(f"staff:{name}", args=[study.slug, *more])) for name, more in named.items()}
    assert all(page.status_code == 200 for page in found.values())
    return {name: TOKEN.sub("", page.text) for name, page in found.items()}


def _same(moment: datetime) -> datetime:
    return moment


@pytest.mark.parametrize(
    "fields", [TABLE_RUN, ASKING_RUN, STEPS_RUN, SAMPLED_RUN], ids=["pate", "neighbours", "sgd", "sampled"]
)
def test_pages_say_the_same_with_kept_parts_as_without(
    study: Study, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each state of a run, with what is left of the states before.

    A finished run, of which everything is shown, is looked at by different readers in turns.
    """
    caches["template_fragments"].clear()
    readers = [reader(*each) for each in READERS]
    for run in states(study, fields):
        looking = readers if run.status == Run.Status.FINISHED else readers[:1]
        with monkeypatch.context() as patch:
            patch.setattr(timezone, "now", partial(_same, timezone.now()))  # how long a run still takes is told
            found = [pages(study, run, each) for each in looking]
            with override_settings(CACHES=settings.CACHES | {"template_fragments": NOTHING_KEPT}):
                assert found == [pages(study, run, each) for each in looking], run.status
