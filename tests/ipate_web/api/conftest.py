"""A small study of a table with a finished run, a rehearsal study, and a client for each role."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from rest_framework.test import APIClient

from consent.models import ConsentEvent, ConsentForm, DataHolder, EpsilonPolicy, Level, Role, Study
from consent.services import membership_add
from ipate_web.tokens.models import ApiToken
from learning.formats import Rows, TabularSchema, schema_from_json
from tests.factories import study_create, study_open, user_create
from tests.snapshots import built_once
from tests.training.asking import EVERYBODY, run_ask
from tests.training.runs import run_approve, run_draft, run_finish
from training.models import Run
from training.services.datasets import dataset_import
from training.services.drawings import head_counts_enter

HOLDERS = {Level.HIGH: 187, Level.AVERAGE: 259, Level.LOW: 113}
"""Number of holders at each level: secrets that no other number in these studies equals."""
UNDECIDED = 2
HEAD_COUNTS = {"HIGH": 200, "AVERAGE": 250, "LOW": 100}
"""Public head counts of these holders."""
POINTS = 30
SCHEMA = schema_from_json(
    {
        "kind": "table",
        "columns": [
            {"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 100},
            {"name": "smoker", "role": "feature", "type": "categorical", "values": ["no", "yes"]},
        ],
        "classes": ["healthy", "ill"],
    }
)

Client = Callable[[str], APIClient]


def _rows(count: int) -> Rows:
    """Return rows in which old people are ill."""
    rng = np.random.default_rng(1)
    assert isinstance(SCHEMA, TabularSchema)
    ages = rng.uniform(0, 100, count)
    x = SCHEMA.encode([{"age": age, "smoker": rng.choice(["no", "yes"])} for age in ages])
    return Rows(x, (ages > 50).astype(np.int64))


def _data_and_people(study: Study, roles: Iterable[str]) -> None:
    people = sum(HOLDERS.values()) + UNDECIDED
    private, public, test = _rows(people).one_holder_per_row("patient"), _rows(POINTS), _rows(20)
    for kind, rows in (("private", private), ("public", public), ("test", test)):
        dataset_import(study=study, name=f"{kind} rows", kind=kind, rows=rows, schema=SCHEMA)
    for role in roles:
        membership_add(study=study, user=user_create(role), role=role, acting_user=None)


@built_once
def ward() -> Study:
    study = study_open("ward", delta=1e-4)
    _data_and_people(study, Role.values)
    form, policy = ConsentForm.objects.get(study=study), EpsilonPolicy.objects.get(study=study)
    levels = [level for level, count in HOLDERS.items() for _ in range(count)]
    ConsentEvent.append(
        [
            ConsentEvent(study=study, holder=holder, kind="given", level=level, form=form, policy=policy)
            for holder, level in zip(DataHolder.objects.filter(study=study).order_by("pk"), levels, strict=False)
        ]
    )
    head_counts_enter(study=study, acting_user=user_create("olga"), counts=HEAD_COUNTS)
    return study


def run_whole(study: Study, *, share: float = 1.0, **fields: Any) -> Run:
    """Return a run whose noise is so large that labels are cheap: every point gets one."""
    run = run_draft(study, learner_parameters={}, aggregator={"name": "gnmax", "sigma": 30.0}, **fields)
    return run_finish(run_approve(run=run, acting_user=user_create("olga"), share=share))


@built_once
def ward_with_run() -> Study:
    study = ward()
    run_whole(study, title="Weighted")
    return study


@pytest.fixture
def study(request: pytest.FixtureRequest, db: Any) -> Study:
    """Return the study. Two holders of private records have not decided; everyone else has consented."""
    return ward_with_run() if "run" in request.fixturenames else ward()


@pytest.fixture
def run(study: Study) -> Run:
    """Return a run that released labels and made a student."""
    return Run.objects.filter(study=study, title="Weighted").first() or run_whole(study, title="Weighted")


@pytest.fixture
def asking_run(study: Study) -> Run:
    """Return a run in which every holder voted, in two batches, with half of every cap."""
    run = run_draft(study, **EVERYBODY, title="Everybody", batch_size=20, choices={"sigma": 11.7})
    return run_ask(run_approve(run=run, acting_user=user_create("olga"), share=0.5))


@pytest.fixture
@built_once
def tryout(db: Any) -> Study:
    """Return a rehearsal study on records that are not confidential."""
    study = study_create("tryout", delta=1e-4, rehearsal=True)
    _data_and_people(study, [Role.OPERATOR, Role.RESEARCHER])
    return study


@pytest.fixture
def client() -> Client:
    """Return a client with a token of this user: ``client("researcher")``; ``client("")`` has none."""

    def create(username: str) -> APIClient:
        client = APIClient()
        if username:
            user = user_create(username)
            _, secret = ApiToken.objects.create(user, name=f"token {user.auth_token_set.count()}")
            client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
        return client

    return create
