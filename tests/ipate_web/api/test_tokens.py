"""The page on which people create and revoke API tokens."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from consent.models import Study
from consent.services.accounts import administrator_set
from ipate_web.tokens.models import ApiToken
from tests.factories import holder_create, members_add, study_open, user_create
from tests.pages import as_
from tests.snapshots import built_once

TOKENS = "/api/tokens"


@pytest.fixture
@built_once
def ward(db: None) -> Study:
    return members_add(study_open("ward"), rita="researcher")


ALL = ("read", "propose", "predict", "decide")


def token_make(client: Client, name: str = "notebook", lifetime: str = "90", scopes: tuple[str, ...] = ALL) -> str:
    """Return the token, as the page shows it."""
    page = client.post(TOKENS, {"name": name, "lifetime": lifetime, "scopes": scopes})
    assert "no-store" in page["Cache-Control"]
    found = re.search(r"<code>(ipate_\w+)</code>", page.text)
    assert found, "the page shows no new token"
    return found[1]


def runs(token: str) -> int:
    return Client().get("/api/v1/runs", headers={"Authorization": f"Bearer {token}"}).status_code


def test_a_new_token_is_shown_once_works_and_is_kept_as_a_digest(ward: Study) -> None:
    rita = as_("rita")
    token = token_make(rita)
    assert runs(token) == 200
    kept = ApiToken.objects.get()
    assert token not in (kept.digest, kept.token_key)
    assert kept.name == "notebook"
    page = rita.get(TOKENS).text
    assert token not in page and kept.token_key in page


def test_a_token_works_until_it_expires_or_is_revoked(ward: Study) -> None:
    rita = as_("rita")
    token = token_make(rita, lifetime="30")
    kept = ApiToken.objects.get()
    assert abs(kept.expiry - timezone.now() - timedelta(days=30)) < timedelta(minutes=1)
    ApiToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))
    assert "expired" in rita.get(TOKENS).text
    assert runs(token) == 401
    token = token_make(rita, "another")
    address = f"{TOKENS}/{ApiToken.objects.get(name='another').token_key}/revoke"
    assert "another" in rita.get(address).text
    assert runs(token) == 200, "the page only asks for confirmation"
    assert rita.post(address, follow=True).redirect_chain == [(TOKENS, 302)]
    assert runs(token) == 401


def test_nobody_sees_or_revokes_tokens_of_others(ward: Study) -> None:
    token = token_make(as_("rita"))
    key, olga = ApiToken.objects.get().token_key, as_("olga")
    assert key not in olga.get(TOKENS).text
    assert olga.post(f"{TOKENS}/{key}/revoke").status_code == 404
    assert runs(token) == 200


def test_a_name_and_a_lifetime_are_needed(ward: Study) -> None:
    rita, good = as_("rita"), {"name": "a", "lifetime": "90", "scopes": ALL}
    for wrong in ({"name": ""}, {"lifetime": "10000"}, {"scopes": "all"}, {"scopes": ()}):
        answer = rita.post(TOKENS, good | wrong)
        assert answer.status_code == 422 and "There is a problem" in answer.text, wrong
    assert not ApiToken.objects.exists()
    token_make(rita)
    assert "Choose another" in rita.post(TOKENS, good | {"name": "notebook"}).text
    token_make(as_("olga"))


def test_the_page_is_for_those_who_can_use_the_api(ward: Study) -> None:
    holder_create(ward, user=user_create("hanna"))
    assert as_("hanna").get(TOKENS).status_code == 404
    assert Client().get(TOKENS)["Location"] == f"/sign-in/?next={TOKENS}"
    administrator_set(user=user_create("ada"), appointed=True, acting_user=None)  # who has no study
    assert as_("ada").get(TOKENS).status_code == 200


def test_a_token_does_what_it_was_made_for_and_nothing_else(ward: Study) -> None:
    """The token's user is an operator, who may do all of it."""
    members_add(ward, rita2="operator")
    run = "/api/v1/runs/11111111-1111-4111-8111-111111111111"
    body = {
        "read": ("get", "/api/v1/runs", 200),
        "propose": ("post", "/api/v1/runs", 400),
        "predict": ("post", run.replace("runs", "models") + "/predict", 404),
        "decide": ("post", f"{run}/approve", 404),
        "rehearse": ("post", "/api/v1/studies/nowhere/datasets", 404),
        "webhooks": ("get", "/api/v1/studies/nowhere/webhooks", 404),  # reading them requires it, too
    }
    for scope in body:
        token = token_make(as_("rita2"), name=scope, scopes=(scope,))
        for wanted, (method, address, allowed) in body.items():
            answer = getattr(Client(), method)(
                address,
                **({} if method == "get" else {"content_type": "application/json"}),
                headers={"Authorization": f"Bearer {token}"},
            )
            assert answer.status_code == (allowed if wanted == scope else 403), (scope, wanted)
            if wanted != scope:
                assert f"not have the scope “{wanted}”" in answer.json()["detail"]
    assert "decide" in as_("rita2").get(TOKENS).text
