"""Parts of pages that are kept from one request to the next: every page says what it says without them."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import caches
from django.test import Client, override_settings
from django.utils import timezone

from tests.factories import user_create
from tests.pages import url
from tests.training.asking import ASKING_RUN, SAMPLED_RUN, batch_ask, run_ask
from tests.training.runs import TABLE_RUN, run_approve, run_draft, run_teach, study_with_table
from training.models import Run
from training.services.students import student_withdraw

pytestmark = pytest.mark.django_db

#: Language and time zone; it is never the same day in both of the Pacific.
READERS = (("en", "Pacific/Kiritimati"), ("en", "Pacific/Pago_Pago"), ("de", "Europe/Berlin"))
#: What a cache is that forgets everything.
NOTHING_KEPT = {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="\w+"')


def states(fields: dict[str, Any]) -> Iterator[Run]:
    """A run after everything that changes what is said of it."""
    run, olga = run_draft(study_with_table(), title="A first title", **fields), user_create("olga")
    yield run
    Run.objects.filter(pk=run.pk).update(title="A second title")
    run.refresh_from_db()
    yield run
    run = run_approve(run=run, acting_user=olga, share=0.5)
    yield run
    for work in (run_teach, batch_ask, batch_ask, run_ask):
        run = work(run)
        yield run
    assert run.status == Run.Status.FINISHED and run.student is not None
    student_withdraw(run=run, version=run.student.version, reason="The labels were wrong.", acting_user=olga)
    run.refresh_from_db()
    yield run


def reader(language: str, zone: str) -> Client:
    client = Client(headers={"accept-language": language})
    client.cookies["zone"] = zone
    client.force_login(user_create("olga"))
    return client


def pages(run: Run, client: Client) -> dict[str, str]:
    """Text of every page with parts that are kept, without the tokens of its forms."""
    addresses = [
        *(url(name, run.study) for name in ("study", "runs")),
        *(url(name, run) for name in ("run", "run_live")),
    ]
    found = {address: client.get(address) for address in addresses}
    assert all(page.status_code == 200 for page in found.values())
    return {address: TOKEN.sub("", page.text) for address, page in found.items()}


@pytest.mark.exhaustive
@pytest.mark.parametrize("fields", [TABLE_RUN, ASKING_RUN, SAMPLED_RUN], ids=["pate", "neighbours", "sampled"])
def test_pages_say_the_same_with_kept_parts_as_without(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In each state of a run, with what is left of the states before.

    A finished run, of which everything is shown, is looked at by different readers in turns.
    """
    caches["template_fragments"].clear()
    readers = [reader(*each) for each in READERS]
    for run in states(fields):
        looking = readers if run.status == Run.Status.FINISHED else readers[:1]
        with monkeypatch.context() as patch:
            now = timezone.now()
            patch.setattr(timezone, "now", lambda now=now: now)  # how long a run still takes is told
            found = [pages(run, each) for each in looking]
            with override_settings(CACHES=settings.CACHES | {"template_fragments": NOTHING_KEPT}):
                assert found == [pages(run, each) for each in looking], run.status
