"""What a researcher can fetch holds nothing that must stay inside."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import get_resolver, reverse

from accounting.selectors import account_consumption
from consent.models import Study
from tests.api.conftest import HOLDERS, Client
from training.models import Run, TeacherChunk

SECRET_NAMES = {
    *("seed", "teacher_accuracy", "epsilon_spent", "epsilon_before", "spent", "past", "rdp", "votes", "seen_classes"),
    *(
        "plan",
        "weight",
        "factor",
        "artifact",
        "claimed_by",
        "heartbeat",
        "silent_teachers",
        "pseudonym",
        "not_for_publication",
    ),
}


def leaves(document: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a JSON document with the name that it stands under."""
    if isinstance(document, dict):
        for key, inner in document.items():
            yield key, None
            yield from leaves(inner, key)
    elif isinstance(document, list):
        for inner in document:
            yield from leaves(inner, name)
    else:
        yield name, document


def api_names() -> set[str]:
    """The names of all endpoints of the API."""
    (_, (_prefix, resolver)) = next(item for item in get_resolver().namespace_dict.items() if item[0] == "api")
    return {pattern.name for pattern in resolver.url_patterns if pattern.name}


@pytest.fixture
def everything(study: Study, run: Run, simulation: Run, client: Client) -> dict[str, Any]:
    """What a researcher gets from every endpoint, by its name; of a run, from one that is done."""
    Run.objects.filter(pk=run.pk).update(message="There are 13 holders.")
    researcher = client("researcher")
    answers: dict[str, Any] = {}
    for name in api_names():
        alone = name in ("studies", "learners", "aggregators", "runs", "run-plan", "models")
        arguments = {} if alone else {"slug": study.slug} if name == "study" else {"pk": run.pk}
        answers[name] = researcher.get(reverse(f"api:{name}", kwargs=arguments))
    rows = [{"age": 30, "smoker": "no"}]
    answers["model-predict"] = researcher.post(
        reverse("api:model-predict", kwargs={"pk": run.pk}), {"rows": rows}, format="json"
    )
    for name in ("run-plan", "runs"):
        answers[f"{name} (refused)"] = researcher.post(reverse(f"api:{name}"), {"study": study.slug}, format="json")
    return answers


def test_no_answer_to_a_researcher_holds_a_secret(everything: dict[str, Any], run: Run, simulation: Run) -> None:
    run.refresh_from_db()
    consumption = account_consumption(run.account)
    secret_numbers = [*(item.spent for item in consumption), run.teacher_accuracy, HOLDERS["HIGH"], HOLDERS["AVERAGE"]]
    assert all(item.spent != pytest.approx(item.published) for item in consumption), "then this test shows nothing"
    for name, response in everything.items():
        text = response.content.decode(errors="replace")
        assert str(simulation.pk) not in text, name
        assert "13 holders" not in text, name
        if "json" not in response["Content-Type"]:
            continue
        for key, value in leaves(response.json()):
            assert key not in SECRET_NAMES, f"{name}: {key}"
            if isinstance(value, int | float) and key not in ("row", "probabilities"):
                assert not any(value == pytest.approx(secret, rel=1e-9) for secret in secret_numbers), f"{name}: {key}"


def test_what_is_for_staff_is_refused_and_the_rest_is_given(everything: dict[str, Any]) -> None:
    """So that the test above has looked at answers, not at refusals."""
    refused = {name for name, response in everything.items() if response.status_code != 200}
    assert refused == {
        *("run-approve", "run-cancel", "run-private-costs", "run-plan"),
        *("run-plan (refused)", "runs (refused)"),
    }


def test_progress_does_not_count_teachers(study: Study, run: Run, client: Client) -> None:
    """In upsampling their number follows from the sizes of the groups."""
    TeacherChunk.objects.filter(run=run, start=0).update(state=TeacherChunk.State.PENDING)
    told = client("researcher").get(reverse("api:run", kwargs={"pk": run.pk})).json()
    assert 0 < told["progress"]["teachers"] < 1
    assert told["teachers"] == run.teachers
