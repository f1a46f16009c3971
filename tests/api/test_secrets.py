"""What a researcher can fetch holds nothing that must stay inside."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import get_resolver, reverse

from accounting.selectors import account_consumption
from consent.models import Study
from consent.services import consent_give
from tests.api.conftest import HOLDERS, Client
from tests.training.runs import run_finish, run_start
from training.models import Run, TeacherChunk
from training.services.lifecycle import run_advance

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


@pytest.mark.parametrize(("teachers", "steps"), [(4, 4), (12, 10), (25, 10)])
def test_progress_does_not_count_teachers(study: Study, client: Client, teachers: int, steps: int) -> None:
    """In upsampling their number follows from the sizes of the groups, so it takes the same steps as any other run."""
    researcher, in_all = client("researcher"), set()
    for variant in ("weighting", "upsampling"):
        run = run_start(study, share=0.25, variant=variant, teachers=teachers)
        run_advance(run.pk)
        told = []
        for chunk in run.chunks.all():
            TeacherChunk.objects.filter(pk=chunk.pk).update(state=TeacherChunk.State.DONE)
            document = researcher.get(reverse("api:run", kwargs={"pk": run.pk})).json()
            told.append(document["progress"]["teachers"])
        assert sorted({0.0, *told}) == [step / steps for step in range(steps + 1)]
        assert document["teachers"] == teachers
        run.refresh_from_db()
        in_all.add(run.plan["teachers"])
    assert len(in_all) == 2, "then this test shows nothing"


def test_one_who_joins_later_is_not_a_group_in_what_is_published(study: Study, run: Run, client: Client) -> None:
    holder = study.holders.filter(consent_events__isnull=True).earliest("pk")
    consent_give(holder=holder, level="LOW", form=study.consent_forms.get(), acting_user=None)
    second = run_finish(run_start(study, learner_parameters={}, aggregator={"name": "gnmax", "sigma": 30.0}))
    address = reverse("api:run", kwargs={"pk": second.pk})
    each = client("auditor").get(address).json()["groups"]
    assert [group["level"] for group in each] == ["HIGH", "AVERAGE", "LOW", "LOW"]
    published = client("researcher").get(address).json()["groups"]
    assert [group["level"] for group in published] == ["HIGH", "AVERAGE", "LOW"]
    assert published[2]["epsilon_published"] == max(group["epsilon_published"] for group in each[2:])
    model = client("researcher").get(reverse("api:model", kwargs={"pk": second.pk})).json()
    assert model["card"]["privacy"]["groups"] == published
