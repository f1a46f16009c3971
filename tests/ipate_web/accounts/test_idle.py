"""Staff who leave their browser are signed out; people who read about their own records are not."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch):
    """``after(minutes)``: time passes."""
    now = [timezone.now()]
    monkeypatch.setattr(timezone, "now", lambda: now[0])

    def after(minutes: float) -> None:
        now[0] += timedelta(minutes=minutes)

    return after


@pytest.fixture
def olga(db: None) -> User:
    factories.study_open()
    return User.objects.get(username="olga")


def test_staff_are_signed_out_after_an_hour_without_a_request(client: Client, olga: User, after, settings) -> None:
    client.force_login(olga)
    for _ in range(3):
        assert client.get("/studies/digits/").status_code == 200
        after(minutes=59)
    assert client.get("/studies/digits/").status_code == 200
    after(minutes=61)
    page = client.get("/studies/digits/", follow=True)
    assert "You were signed out because nothing was done for a while." in page.text
    assert "_auth_user_id" not in client.session
    settings.STAFF_IDLE_MINUTES = 10
    client.force_login(olga)
    client.get("/studies/digits/")
    after(minutes=11)
    assert client.get("/studies/digits/").status_code == 302


def test_requests_of_an_open_page_do_not_count_as_activity(client: Client, olga: User, after) -> None:
    client.force_login(olga)
    client.get("/studies/digits/")
    for _ in range(3):
        after(minutes=25)
        client.get("/studies/digits/", headers={"HX-Request": "true"})
    assert "_auth_user_id" not in client.session


def test_holders_stay_signed_in_and_nothing_is_kept_of_when_they_came(client: Client, olga: User, after) -> None:
    hanna = factories.user_create("hanna")
    factories.holder_create(olga.memberships.first().study, user=hanna)
    client.force_login(hanna)
    client.get("/my/")
    after(minutes=24 * 60)
    assert client.get("/my/").status_code == 200
    assert "last_request" not in client.session
