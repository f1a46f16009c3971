"""API access control: every endpoint, every role, and users without a role."""

from typing import Any

from django.urls import reverse
from django.utils import timezone

from consent.models import Study, WebhookEndpoint
from tests.everything import alliances_make
from tests.factories import holder_create, user_create
from tests.ipate_web.api.conftest import Client
from tests.ipate_web.api.test_runs import proposal
from tests.ipate_web.api.test_secrets import api_patterns
from tests.training.runs import run_draft
from training.models import Run, StudentModel

ROLES = ("operator", "committee", "auditor", "researcher", "holder", "stranger", "")
TABLE = {
    # endpoint            operator committee auditor researcher holder stranger nobody
    ("GET", "root"): (200, 200, 200, 200, 200, 200, 401),
    ("GET", "studies"): (200, 200, 200, 200, 200, 200, 401),
    ("POST", "studies"): (403, 403, 403, 403, 403, 403, 401),  # administrators set them up, see test_rehearsals
    ("GET", "study-alliances"): (200, 200, 200, 200, 404, 404, 401),
    ("GET", "study-alliance"): (200, 200, 200, 200, 404, 404, 401),
    ("POST", "alliance-runs"): (400, 403, 403, 400, 404, 404, 401),  # nothing is sent
    ("POST", "proposal-take"): (400, 403, 403, 400, 404, 404, 401),
    ("POST", "proposal-decline"): (200, 403, 403, 403, 404, 404, 401),
    ("GET", "run-sites"): (404, 404, 404, 404, 404, 404, 401),  # it is not over sites, see test_alliances
    ("POST", "run-go-on"): (404, 403, 403, 403, 404, 404, 401),
    ("POST", "study-datasets"): (403, 403, 403, 403, 404, 404, 401),  # data stewards of a rehearsal, there as well
    ("POST", "study-imports"): (403, 403, 403, 403, 404, 404, 401),  # data stewards, see test_imports
    ("GET", "study-import"): (403, 403, 403, 403, 404, 404, 401),
    ("DELETE", "study-import"): (403, 403, 403, 403, 404, 404, 401),
    ("POST", "study-import-store"): (403, 403, 403, 403, 404, 404, 401),
    ("POST", "study-consents"): (403, 403, 403, 403, 404, 404, 401),
    ("POST", "study-head-counts"): (400, 403, 403, 403, 404, 404, 401),
    ("GET", "study-encoders"): (200, 200, 200, 200, 404, 404, 401),
    ("POST", "study-encoders"): (403, 403, 403, 403, 404, 404, 401),  # data stewards, there as well
    ("GET", "study"): (200, 200, 200, 200, 404, 404, 401),
    ("GET", "study-webhooks"): (200, 403, 403, 403, 404, 404, 401),
    ("POST", "study-webhooks"): (400, 403, 403, 403, 404, 404, 401),  # an address that is not allowed
    ("GET", "study-webhook-deliveries"): (200, 403, 403, 403, 404, 404, 401),
    ("POST", "study-webhook-test"): (202, 403, 403, 403, 404, 404, 401),
    ("DELETE", "study-webhook"): (204, 403, 403, 403, 404, 404, 401),
    ("GET", "waiting"): (200, 200, 200, 200, 200, 200, 401),
    ("GET", "learners"): (200, 200, 200, 200, 200, 200, 401),
    ("GET", "students"): (200, 200, 200, 200, 200, 200, 401),
    ("GET", "aggregators"): (200, 200, 200, 200, 200, 200, 401),
    ("GET", "methods"): (200, 200, 200, 200, 200, 200, 401),
    ("GET", "representations"): (200, 200, 200, 200, 200, 200, 401),
    ("GET", "runs"): (200, 200, 200, 200, 200, 200, 401),
    ("POST", "runs"): (201, 403, 403, 201, 400, 400, 401),
    ("POST", "run-plan"): (200, 403, 403, 200, 400, 400, 401),
    ("GET", "run-planned"): (200, 403, 403, 403, 404, 404, 401),
    ("GET", "run-comparison"): (200, 200, 200, 200, 404, 404, 401),
    ("GET", "run"): (200, 200, 200, 200, 404, 404, 401),
    ("GET", "run-labels"): (200, 403, 403, 200, 404, 404, 401),
    ("GET", "run-table"): (404, 403, 403, 404, 404, 404, 401),  # it leads to a student
    ("GET", "run-rows"): (404, 403, 403, 404, 404, 404, 401),
    ("POST", "run-table-withdraw"): (404, 403, 403, 403, 404, 404, 401),
    ("GET", "run-costs"): (200, 200, 200, 200, 404, 404, 401),
    ("POST", "run-approve"): (200, 403, 403, 403, 404, 404, 401),
    ("PUT", "run"): (403, 403, 403, 403, 404, 404, 401),  # another's draft
    ("POST", "run-withdraw"): (403, 403, 403, 403, 404, 404, 401),
    ("POST", "run-cancel"): (200, 403, 403, 403, 404, 404, 401),
    ("GET", "run-students"): (200, 200, 200, 200, 404, 404, 401),
    ("POST", "run-students"): (202, 403, 403, 409, 404, 404, 401),
    ("POST", "run-student-publish"): (200, 403, 403, 403, 404, 404, 401),
    ("POST", "run-student-withdraw"): (409, 403, 403, 403, 404, 404, 401),
    ("GET", "models"): (200, 200, 200, 200, 200, 200, 401),
    ("GET", "model"): (200, 404, 404, 200, 404, 404, 401),
    ("GET", "model-file"): (200, 404, 404, 200, 404, 404, 401),
    ("GET", "model-onnx"): (200, 404, 404, 200, 404, 404, 401),
    ("GET", "model-statement"): (200, 404, 404, 200, 404, 404, 401),
    ("POST", "model-stage"): (200, 404, 404, 403, 404, 404, 401),
    ("POST", "model-threshold"): (200, 404, 404, 403, 404, 404, 401),
    ("GET", "keys"): (200,) * 7,
    ("POST", "model-predict"): (200, 404, 404, 200, 404, 404, 401),
}
"""What each role is answered. Where nobody is told of another's study, it does not exist: 404, or 400 by field."""


def test_the_table_is_complete() -> None:
    assert {name for _, name in TABLE} == api_patterns().keys()


def test_every_role_can_do_what_it_should_and_nothing_else(study: Study, run: Run, client: Client) -> None:
    holder_create(study, "one who signs in", user=user_create("holder"))
    clients, patterns = {role: client(role) for role in ROLES}, api_patterns()
    webhook = WebhookEndpoint.objects.create(
        study=study, url="https://hooks.example.org/", events=[], created_by=user_create("operator")
    )
    hub, site = alliances_make(study)
    bodies: dict[str, dict[str, Any]] = {
        "runs": proposal(study),
        "run-plan": proposal(study),
        "run": proposal(study),
        "model-stage": {"stage": "production"},
        "model-threshold": {"class_name": ""},
        "run-approve": {"share": 0.1},
        "run-students": {"student_learner": "logistic_regression"},
        "run-student-withdraw": {"reason": "A defect."},
        "run-table-withdraw": {"reason": "A defect."},
        "study-head-counts": {"counts": {"HIGH": 3}},
        "study-webhooks": {"url": "https://127.0.0.1/", "events": ["run.failed"]},
        "model-predict": {"rows": [{"age": 30, "smoker": "no"}]},
    }
    withdrawn = {"learner": "any", "artifact": "none", "card": {}, "calibration": {"scale": 1.0, "offsets": []}}
    answers = {}
    for (method, name), _ in TABLE.items():
        about = {"slug": study.slug, "pk": run.pk, "version": 1, "number": "ab"}
        if name in ("run-approve", "run-cancel", "run-withdraw") or method == "PUT":
            about["pk"] = run_draft(study).pk
        elif name in ("study-webhook", "study-webhook-test"):
            about["pk"] = webhook.pk
        elif name in ("study-alliance", "alliance-runs"):
            about["pk"] = hub.pk
        elif name.startswith("proposal-"):
            about["pk"] = site.pk
        elif name == "run-student-withdraw":  # one that is not asked for below
            StudentModel.objects.create(run=run, version=2, withdrawn_at=timezone.now(), **withdrawn)
            about["version"] = 2
        arguments = {key: about[key] for key in patterns[name].pattern.converters}
        address = reverse(f"api:{name}", kwargs=arguments)
        if name == "run-comparison":
            address += f"?runs={run.pk},{run_draft(study).pk}"
        answers[method, name] = tuple(
            clients[role].generic(method, address).status_code
            if method == "GET"
            else getattr(clients[role], method.lower())(address, bodies.get(name, {}), format="json").status_code
            for role in ROLES
        )
    assert answers == TABLE
    for role, name in (("stranger", "studies"), ("stranger", "runs"), ("stranger", "models"), ("auditor", "models")):
        assert clients[role].get(reverse(f"api:{name}")).json()["count"] == 0, (role, name)
