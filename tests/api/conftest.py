"""A small study of a table with one finished run and one simulation, and a client for each role."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from consent.models import ConsentEvent, ConsentForm, DataHolder, EpsilonPolicy, Level, Role, Study
from consent.services import membership_add
from ipate_web.tokens.models import ApiToken
from tests.factories import study_open, user_create
from tests.training.runs import run_draft, run_finish
from training.formats import Rows, TabularSchema, schema_from_json
from training.models import Run
from training.services.datasets import dataset_import
from training.services.lifecycle import run_approve

HOLDERS = {Level.HIGH: 87, Level.AVERAGE: 156, Level.LOW: 13}
"""How many holders are at each level: two groups whose size is rounded, one too small to be shown."""
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


@pytest.fixture(autouse=True)
def _nobody_has_asked_yet() -> Iterator[None]:
    """Throttles count in the cache."""
    cache.clear()
    yield
    cache.clear()


def _rows(count: int) -> Rows:
    """Old people are ill."""
    rng = np.random.default_rng(1)
    assert isinstance(SCHEMA, TabularSchema)
    ages = rng.uniform(0, 100, count)
    x = SCHEMA.encode([{"age": age, "smoker": rng.choice(["no", "yes"])} for age in ages])
    return Rows(x, (ages > 50).astype(np.int64))


@pytest.fixture
def study(db: Any) -> Study:
    """Two holders of the private records have not decided; everyone else has."""
    study = study_open("ward", delta=1e-4)
    people = sum(HOLDERS.values()) + 2
    for kind, rows in (
        ("private", _rows(people).one_holder_per_row("patient")),
        ("public", _rows(POINTS)),
        ("test", _rows(20)),
    ):
        dataset_import(study=study, name=f"{kind} rows", kind=kind, rows=rows, schema=SCHEMA)
    form, policy = ConsentForm.objects.get(study=study), EpsilonPolicy.objects.get(study=study)
    levels = [level for level, count in HOLDERS.items() for _ in range(count)]
    ConsentEvent.append(
        [
            ConsentEvent(study=study, holder=holder, kind="given", level=level, form=form, policy=policy)
            for holder, level in zip(DataHolder.objects.filter(study=study).order_by("pk"), levels, strict=False)
        ]
    )
    for role in Role.values:
        membership_add(study=study, user=user_create(role), role=role)
    return study


def _run(study: Study, **fields: Any) -> Run:
    """Noise so large that labels are cheap, whatever the votes: some are always released."""
    run = run_draft(
        study, learner_parameters={}, aggregator={"name": "gnmax", "sigma": 30.0}, method=Run.Method.EXACT, **fields
    )
    return run_finish(run_approve(run=run, acting_user=user_create("olga")))


@pytest.fixture
def run(study: Study) -> Run:
    """A run that released labels and made a student."""
    return _run(study, title="Weighted")


@pytest.fixture
def simulation(study: Study) -> Run:
    return _run(study, title="Only tried", simulation=True, seed=20_220_131)


@pytest.fixture
def client() -> Client:
    """``client("researcher")`` asks with a token of that user; ``client("")`` with none."""

    def create(username: str) -> APIClient:
        client = APIClient()
        if username:
            user = user_create(username)
            _, secret = ApiToken.objects.create(user, name=f"token {user.auth_token_set.count()}")
            client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
        return client

    return create
