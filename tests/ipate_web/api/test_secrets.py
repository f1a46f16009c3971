"""No response of the API reveals secrets to anyone: accounts, votes, head counts, accuracy of teachers."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from django.urls import URLPattern, get_resolver, reverse

from accounting.accounts import balances
from accounting.models import Release
from accounting.services import book_write
from common.artifacts import arrays_load
from consent.models import ConsentForm, DataHolder, Role, Study, WebhookEndpoint
from consent.services import consent_give, consent_withdraw
from consent.services.webhooks import endpoint_test
from tests.factories import consent_choose, user_create
from tests.ipate_web.api.conftest import HEAD_COUNTS, HOLDERS, POINTS, UNDECIDED, Client, run_whole
from tests.ipate_web.api.test_everybody import proposal as everybody
from tests.ipate_web.api.test_runs import proposal
from tests.training.asking import EVERYBODY, run_ask
from tests.training.runs import run_draft, run_start, run_teach
from training.engine.records import records_load
from training.methods.pate_plan import plan_from_json
from training.methods.pate_teachers import ballot_load
from training.models import Dataset, Run, RunResult, Shard, TeacherChunk
from training.services.advance import run_advance

pytestmark = pytest.mark.django_db

SECRET_NAMES = {
    *("account", "accounts", "balance", "teacher_accuracy", "votes", "seen_classes", "pseudonym", "consent_sequence"),
    *("secret", "snapshot_at", "artifact", "assignment", "claimed_by", "heartbeat", "deaths", "forgotten_at"),
}
KEYS = {"id", "private_dataset", "public_dataset", "test_dataset", "row", "counts", "webhook"}
"""Names whose numbers count something else, or contain noise and can have any value."""
PAIRS = {"run-comparison"}
"""Endpoints about two runs."""

ROLES = [Role.OPERATOR, Role.STEWARD, Role.RESEARCHER]
"""Roles with special permissions; `tests/test_roles.py` tests what they may not do."""


def api_patterns() -> dict[str, URLPattern]:
    """Return all endpoints of the API by name, except those of sites, which sign their requests and are not users."""
    (_, (_prefix, resolver)) = next(item for item in get_resolver().namespace_dict.items() if item[0] == "api")
    return {each.name: each for each in resolver.url_patterns if each.name and not each.name.startswith("site-")}


def addresses(study: Study) -> list[str]:
    """Return everything that can be fetched about a study, its runs and their models."""
    found, runs = [], list(study.runs.values_list("pk", flat=True))
    results = RunResult.objects.filter(run__study=study)
    missing = PAIRS | (set() if results.exists() else {"run-table"})
    missing |= set() if results.filter(dataset__isnull=False).exists() else {"run-rows"}
    about: dict[tuple[str, ...], list[dict[str, Any]]] = {(): [{}], ("slug",): [{"slug": study.slug}]}
    about[("pk",)] = [{"pk": pk} for pk in runs]
    for name, pattern in sorted(api_patterns().items()):
        if hasattr(pattern.callback.cls, "get") and name not in missing:
            found += [reverse(f"api:{name}", kwargs=each) for each in about.get(tuple(pattern.pattern.converters), [])]
    pairs = [f"{reverse(f'api:{name}')}?runs={one},{other}" for name in PAIRS for one, other in pairwise(runs)]
    return [*found, *pairs, *(f"{address}?format=csv" for address in found if address.endswith("/labels"))]


Answers = dict[tuple[str, str], tuple[int, bytes]]
"""Status and content by role and request."""


def everything(client: Client, study: Study) -> Answers:
    """Return responses to each role: all documents, plans that head counts do and do not allow, and predictions."""
    webhook, is_new = WebhookEndpoint.objects.get_or_create(
        study=study, url="https://hooks.example.org/", events=[], created_by=user_create("operator")
    )
    if is_new:
        endpoint_test(endpoint=webhook)
    answers: Answers = {}
    for role in ROLES:
        asking = client(role)

        def keep(query: str, answer: Any, role: str = role) -> None:
            answers[role, query] = (answer.status_code, answer.content)

        for address in addresses(study):
            keep(address, asking.get(address))
        plans = {"everybody": everybody(study, choices={"rounds": 2})}
        for teachers in (20, sum(HEAD_COUNTS.values()) + 1, 10_000):
            plans[str(teachers)] = proposal(study, teachers=teachers, aggregator={"name": "gnmax", "sigma": 30.0})
        for name, request in plans.items():
            keep(f"plan {name}", asking.post(reverse("api:run-plan"), request, format="json"))
        for pk in study.runs.values_list("pk", flat=True):
            address = reverse("api:model-predict", kwargs={"pk": pk})
            keep(address, asking.post(address, {"rows": [{"age": 30, "smoker": "no"}]}, format="json"))
    return answers


def leaves(document: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a JSON document with its name."""
    if isinstance(document, dict):
        for key, inner in document.items():
            yield key, None
            yield from leaves(inner, key)
    elif isinstance(document, list):
        for inner in document:
            yield from leaves(inner, name)
    else:
        yield name, document


def numbers_in(content: bytes) -> Iterator[float]:
    """Yield all numbers in a response, also within sentences, except ids. No name in it may be that of a secret."""
    try:
        document = json.loads(content)
    except ValueError:
        document = content.decode("utf-8", "replace")
    for name, value in leaves(document):
        assert name not in SECRET_NAMES, name
        if isinstance(value, str) and not value.startswith(("/", "http")):  # addresses contain ids
            yield from map(float, re.findall(r"(?<![\w.:-])\d+(?:\.\d+)?(?![\w.:-])", value))
        elif isinstance(value, int | float) and name not in KEYS:
            yield value


def secret_numbers(study: Study) -> dict[str, set[float]]:
    """Return exact numbers that would reveal choices, accounts and records, except those that are public anyway.

    The exceptions are weights, the number of votes of a single teacher, shares of the public points, and possible
    values of a student's accuracy, which has three digits.
    """
    private = records_load(Dataset.objects.get(study=study, kind="private"))
    together = sum(HOLDERS.values())
    found = {
        "head counts": {*map(float, HOLDERS.values()), together, together + UNDECIDED, len(private["y"])},
        "accounts": set(balances(study).spent.tolist()),
        "votes": set[float](),
        "accuracy of teachers": set[float](),
    }
    public = {part / whole for whole in (*range(1, POINTS + 1), 1000) for part in range(whole + 1)}
    public |= set(range(POINTS + 1))
    for run in study.runs.all():
        public |= {group["weight"] for group in run.plan["groups"]}
        ballot = ballot_load(run.pk)
        truth = arrays_load(run.public_dataset.artifact)["y"]
        right = ballot.predictions == truth
        plan = plan_from_json(run.plan)
        votes = plan.aggregator.count(ballot.predictions, len(run.classes), plan.teacher_weights())
        found["votes"] |= set(votes.ravel().tolist())
        # One teacher's accuracy is a share of the points; that of the first few is hardly ever one.
        found["accuracy of teachers"] |= {float(right[:count].mean()) for count in range(1, len(right) + 1)}
    return {kind: {each for each in numbers if each not in public} for kind, numbers in found.items()}


def test_no_answer_contains_an_exact_number(study: Study, client: Client) -> None:
    Study.objects.update(retain_votes=True)  # so that the test can search for them
    runs = [run_whole(study, share=0.5), run_whole(study, share=0.5)]
    secrets = secret_numbers(study)
    assert all(secrets.values()), "otherwise this test shows nothing"
    assert not secrets["accounts"] & {spent for run in runs for spent in run.spent}, "accounts include both runs"
    answers = everything(client, study)
    for request, (_status, content) in answers.items():
        shares = np.fromiter(numbers_in(content), dtype=float)
        for kind, numbers in secrets.items():
            found = [number for number in numbers if np.isclose(shares, number, rtol=1e-9, atol=0).any()]
            assert not found, f"{kind} in {request}: {found}"
    allowed = [
        status
        for (role, request), (status, _) in answers.items()
        if role in ("researcher", "operator") and not request.endswith("/sites")  # runs that ended have no sites: 404
    ]
    assert sorted(set(allowed)) == [200, 403, 409]
    assert allowed.count(403) == 4, "webhooks, their deliveries, and plans of two saved runs, which are for operators"
    assert allowed.count(409) == 4, "two plans that exceed the head counts, each requested by both"


def consents_change(study: Study) -> None:
    """Let one person withdraw, one join, and one choose another level."""
    form = ConsentForm.objects.get(study=study)
    holders = DataHolder.objects.filter(study=study)
    high = holders.filter(consent_events__level="HIGH").order_by("pk")
    consent_withdraw(holder=high[0], acting_user=None)
    consent_choose(holder=high[1], level="LOW", form=form)
    undecided = holders.filter(consent_events__isnull=True).earliest("pk")
    consent_give(holder=undecided, level="AVERAGE", form=form, acting_user=None)


def accounts_change(study: Study) -> None:
    book = balances(study)
    book_write(study, book.charged(book), Release.head(study.pk).sequence)


def records_change(study: Study) -> None:
    Dataset.objects.filter(study=study, kind="private").update(rows=3, holders=2, seen_classes=[1], digest="0" * 64)


def work_changes(study: Study) -> None:
    """Retrain teachers, let workers start and stop, and make everything take longer."""
    chunks = TeacherChunk.objects.filter(run__study=study)
    chunks.filter(start=0).update(state=TeacherChunk.State.PENDING, deaths=3, claimed_by="another")
    Shard.objects.filter(run__study=study).update(state=Shard.State.DONE, deaths=3, claimed_by="another")
    exact = datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC)
    study.runs.update(heartbeat=exact, claimed_by="another")
    for name in ("approved_at", "started_at", "spending_began_at", "ended_at"):
        for run in study.runs.exclude(**{name: None}):
            moment = getattr(run, name)
            study.runs.filter(pk=run.pk).update(**{name: moment.replace(second=59 - moment.second)})


def test_no_answer_contains_charges_of_a_holder(asking_run: Run, study: Study, client: Client) -> None:
    spent = set(balances(study).spent.tolist()) - {0.0, *asking_run.spent}
    assert spent, "otherwise this test shows nothing"
    counted = {*map(float, HOLDERS.values()), float(sum(HOLDERS.values())), float(sum(HOLDERS.values()) + UNDECIDED)}
    for (role, address), (_status, content) in everything(client, study).items():
        if "format=csv" in address:
            continue  # released counts, which noise may change to any number
        shares = np.fromiter(numbers_in(content), dtype=float)
        found = [number for number in spent | counted if np.isclose(shares, number, rtol=1e-9, atol=0).any()]
        assert not found, f"{role} {address}: {found}"


@pytest.fixture
def busy(study: Study, run: Run) -> Study:
    """Return the study with a finished run, one whose teachers are being trained, and a draft."""
    run_teach(run_start(study, share=0.2, learner_parameters={}))
    run_draft(study)
    return study


@pytest.fixture
def asking(study: Study, asking_run: Run) -> Study:
    """Return the study with a run in which every holder voted, and one that is asking its second batch."""
    run = run_ask(run_start(study, share=0.2, **EVERYBODY, batch_size=10), batches=1)
    run_advance(run.pk)
    assert run.shards.exists(), "otherwise nobody is being asked"
    return study


def assert_nothing_follows_from_private_state(client: Client, study: Study) -> None:
    """Check that all responses to everybody are the same, byte for byte, while nothing is released."""
    before = everything(client, study)
    changes: list[Callable[[Study], None]] = [consents_change, accounts_change, records_change, work_changes]
    for change in changes:  # no change reverses another
        change(study)
    after = everything(client, study)
    assert [requests for requests in before if before[requests] != after[requests]] == []


@pytest.mark.exhaustive
def test_responses_do_not_depend_on_private_state_after_a_run(busy: Study, run: Run, client: Client) -> None:
    assert_nothing_follows_from_private_state(client, busy)


@pytest.mark.exhaustive
def test_responses_do_not_depend_on_private_state_while_people_are_asked(asking: Study, client: Client) -> None:
    assert_nothing_follows_from_private_state(client, asking)


@pytest.mark.parametrize(("teachers", "steps"), [(4, 4), (12, 10)])
def test_progress_of_teachers_is_rounded_to_tenths(study: Study, client: Client, teachers: int, steps: int) -> None:
    researcher, in_all = client("researcher"), set()
    for variant in ("weighting", "upsampling"):
        run = run_start(study, share=0.25, variant=variant, teachers=teachers)
        run_advance(run.pk)
        shares = []
        for chunk in run.chunks.all():
            TeacherChunk.objects.filter(pk=chunk.pk).update(state=TeacherChunk.State.DONE, artifact="predictions")
            document = researcher.get(reverse("api:run", kwargs={"pk": run.pk})).json()
            shares.append(document["progress"]["stages"][1]["share"])
        assert sorted({0.0, *shares}) == [step / steps for step in range(steps + 1)]
        assert document["choices"]["teachers"] == teachers
        run.refresh_from_db()
        in_all.add(run.plan["teachers"])
        Run.objects.filter(pk=run.pk).update(status=Run.Status.FAILED)  # the next run would wait for its turn
    assert len(in_all) == 2, "otherwise this test shows nothing"
