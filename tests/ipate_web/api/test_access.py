"""Access to the API's addresses beyond the requests of `tests/test_roles.py`."""

from typing import Any

from django.urls import reverse

from consent.models import Study
from tests.factories import holder_create, user_create
from tests.ipate_web.api.conftest import Client
from tests.ipate_web.api.test_runs import proposal
from tests.ipate_web.api.test_secrets import api_patterns
from tests.test_roles import TABLE as ROWS
from tests.training.runs import run_draft
from training.models import Run

ROLES = ("operator", "committee", "auditor", "researcher", "holder", "stranger", "")
TABLE = {
    # endpoint            operator committee auditor researcher holder stranger nobody
    ("POST", "studies"): (403, 403, 403, 403, 403, 403, 401),  # administrators set them up, see test_rehearsals
    ("DELETE", "study-import"): (403, 403, 403, 403, 404, 404, 401),  # data stewards, see test_imports
    ("POST", "study-encoders"): (403, 403, 403, 403, 404, 404, 401),  # data stewards, there as well
    ("POST", "study-webhooks"): (400, 403, 403, 403, 404, 404, 401),  # an address that is not allowed
    ("POST", "runs"): (201, 403, 403, 201, 400, 400, 401),
    ("POST", "run-plan"): (200, 403, 403, 200, 400, 400, 401),  # access depends on what is sent
    ("DELETE", "run-approve"): (409, 403, 403, 403, 404, 404, 401),  # nothing is being planned
    ("PUT", "run"): (403, 403, 403, 403, 404, 404, 401),  # another person's draft
    ("POST", "run-students"): (202, 403, 403, 409, 404, 404, 401),
}
"""Status for each role. People outside a study get 404, or 400 by field, as if it did not exist."""


def test_the_table_is_complete() -> None:
    offered = {
        (method.upper(), name)
        for name, pattern in api_patterns().items()
        for method in ("get", "post", "put", "patch", "delete")
        if hasattr(pattern.callback.cls, method)
    }
    elsewhere = {(ROWS[f"api:{name}"].method.upper(), name) for _, name in offered}
    assert offered - elsewhere == TABLE.keys() - {("POST", "run-plan")}


def test_every_role_can_do_what_it_should_and_nothing_else(study: Study, run: Run, client: Client) -> None:
    holder_create(study, "one who signs in", user=user_create("holder"))
    clients, answers = {role: client(role) for role in ROLES}, {}
    bodies: dict[str, dict[str, Any]] = {
        "runs": proposal(study),
        "run-plan": proposal(study),
        "run": proposal(study),
        "run-students": {"student_learner": "logistic_regression"},
        "study-webhooks": {"url": "https://127.0.0.1/", "events": ["run.failed"]},
    }
    for method, name in TABLE:
        about = {"slug": study.slug, "pk": run_draft(study).pk if method == "PUT" else run.pk}
        arguments = {key: about[key] for key in api_patterns()[name].pattern.converters}
        address = reverse(f"api:{name}", kwargs=arguments)
        answers[method, name] = tuple(
            getattr(clients[role], method.lower())(address, bodies.get(name, {}), format="json").status_code
            for role in ROLES
        )
    assert answers == TABLE
    for role, name in (("stranger", "studies"), ("stranger", "runs"), ("stranger", "models"), ("auditor", "models")):
        assert clients[role].get(reverse(f"api:{name}")).json()["count"] == 0, (role, name)
