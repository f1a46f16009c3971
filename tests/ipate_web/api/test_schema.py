"""The API's schema, clients that other tools generate from it, and the guide's commands, which run unchanged."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command, get_commands
from django.test import Client as BrowserClient
from jsonschema import Draft202012Validator
from pytest_django.live_server_helper import LiveServer
from rest_framework.test import APIClient

from consent.models import Study
from consent.services.accounts import administrator_set
from docs.generated import CAPABILITIES, ERRORS, PLACES, addresses, capabilities_page, client_methods, errors_page
from ipate_web.api.schema import bodies
from ipate_web.tokens.models import ApiToken
from learning.formats import catalogue_load
from tests.factories import user_create
from tests.ipate_web.api.conftest import Client
from tests.ipate_web.api.test_runs import proposal
from tests.ipate_web.api.test_secrets import api_patterns
from tests.training.runs import run_draft
from training.demonstration import people, rehearsal_build, study_build
from training.methods import METHODS, method_by
from training.models import Run
from training.services.drawings import head_counts_draw

SENT = {
    "/api/v1/runs": ("researcher", 201),
    "/api/v1/runs/plan": ("researcher", 200),
    "/api/v1/runs/{id}/approve": ("operator", 202),
    "/api/v1/models/{id}/predict": ("researcher", 200),
}
"""Endpoint, status of the response, and body."""


def examples(schema: dict[str, Any], path: str) -> list[dict[str, Any]]:
    body = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    assert body["examples"], path
    return [example["value"] for example in body["examples"].values()]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """Return the schema, after checking that drf-spectacular gives no warning and that all references resolve."""
    out = io.StringIO()
    call_command("spectacular", "--fail-on-warn", "--validate", stdout=out)
    found = yaml.safe_load(out.getvalue())
    names = set(re.findall(r"#/components/schemas/(\w+)", out.getvalue()))
    assert names <= set(found["components"]["schemas"])
    return found


def test_every_endpoint_is_described_with_its_errors(schema: dict[str, Any]) -> None:
    assert len(schema["paths"]) == len(api_patterns())
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation.get("summary"), where
            assert operation.get("description"), where
            problems = {status: message for status, message in operation["responses"].items() if status >= "4"}
            expected = {"400", "429"} if not operation.get("security") else {"400", "401", "403", "429"}
            assert expected <= set(problems) and "default" not in operation["responses"], where
            assert ("404" in problems) == ("{" in path), where
            for message in problems.values():
                assert message["description"] and "application/problem+json" in message["content"], where


def test_every_body_has_an_example_that_its_schema_allows(schema: dict[str, Any]) -> None:
    components = {"components": {"schemas": _nullable(schema["components"]["schemas"])}}
    for body in bodies(schema):
        given = [each["value"] for each in body.get("examples", {}).values()] or [body["example"]]
        for example in given:
            Draft202012Validator({**_nullable(body["schema"]), **components}).validate(example)


def _nullable(schema: Any) -> Any:
    """Return a schema of OpenAPI 3.0 as JSON Schema, which has no ``nullable``."""
    if not isinstance(schema, dict):
        return [_nullable(each) for each in schema] if isinstance(schema, list) else schema
    found = {name: _nullable(each) for name, each in schema.items() if name not in ("example", "nullable")}
    return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") is True else found


def test_each_method_has_typed_proposals_and_runs_that_its_name_tells_apart(schema: dict[str, Any]) -> None:
    schemas = schema["components"]["schemas"]
    for base in ("RunProposal", "PlanRequest", "RunDetail", "JointProposal"):
        mapping = schemas[base]["discriminator"]["mapping"]
        assert [each["$ref"] for each in schemas[base]["oneOf"]] == list(mapping.values())
        assert schemas[base]["discriminator"]["propertyName"] == "method" and mapping.keys() == METHODS.keys()
        for name, address in mapping.items():
            own = schemas[address.rpartition("/")[2]]
            assert own["properties"]["method"]["enum"] == [name] and "method" in own["required"]
            choices = schemas[own["properties"]["choices"]["$ref"].rpartition("/")[2]]["properties"]
            variants = own["properties"]["variant"]["enum"]
            named = [{each.name for each in method_by(name, variant).choices.described()} for variant in variants]
            assert choices.keys() == set().union(*named)


def test_the_schema_documents_limits_headers_and_server(schema: dict[str, Any], settings: Any) -> None:
    assert schema["servers"][0]["url"] == settings.SITE_URL
    assert "600/min for each user" in schema["info"]["description"]
    for operations in schema["paths"].values():
        for operation in operations.values():
            for code, answer in operation["responses"].items():
                assert ("Location" in answer["headers"]) == (code in ("201", "202"))
                assert {"RateLimit", "RateLimit-Policy"} <= answer["headers"].keys()
    assert "ETag" in schema["paths"]["/api/v1/models/{id}/onnx"]["get"]["responses"]["200"]["headers"]


@pytest.mark.exhaustive
def test_every_example_works(schema: dict[str, Any], study: Study, tryout: Study, run: Run, client: Client) -> None:
    """The examples' names and numbers are replaced by those of an existing study."""
    for path, (role, status) in SENT.items():
        for example in examples(schema, path):
            if not all(isinstance(row, dict) for row in example.get("rows", [])):
                continue  # images, but this run learned from a table
            if "private_dataset" in example:
                proposed = proposal(tryout if "rehearsed" in example else study)
                own = {name: value for name, value in proposed.items() if name == "study" or name.endswith("_dataset")}
                own = {name: value for name, value in own.items() if name in example}
                example = {**example, **own}
            pk = str(run_draft(study).pk if path.endswith("approve") else run.pk)
            answer = client(role).post(path.replace("{id}", pk), example, format="json")
            assert answer.status_code == status, (path, answer.content)


@pytest.mark.exhaustive
@pytest.mark.django_db(reset_sequences=True, transaction=True)
def test_every_example_of_a_proposal_works_on_the_demo(schema: dict[str, Any], client: Client) -> None:
    """Unchanged examples have the names and numbers that ``make demo`` gives a new installation."""

    def track(each: Iterable[Any], _description: str, _total: int) -> Iterable[Any]:
        return each

    splits, (users, _logins) = catalogue_load("digits"), people()
    study, _datasets = study_build("digits", splits, users, track)
    rehearsal_build("digits", splits, users)
    head_counts_draw(study=study, acting_user=users["operator2"])
    for example in examples(schema, "/api/v1/runs"):
        for path, status in (("/api/v1/runs/plan", 200), ("/api/v1/runs", 201)):
            answer = client("demo-operator2").post(path, example, format="json")
            assert answer.status_code == status, (example["title"], path, answer.content)


@pytest.mark.django_db
def test_the_pages_need_no_inline_script() -> None:
    client = BrowserClient()
    page = client.get("/api/docs")
    assert page.status_code == 200
    html = page.content.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", html)
    script = client.get("/api/docs?script=")
    assert script["Content-Type"].startswith("application/javascript")
    assert "/api/schema" in script.content.decode()
    assert client.get("/api/schema").status_code == 200


def test_the_generated_documents_are_those_of_the_code() -> None:
    """Each kind of error has its section, and each address of the API its page, client's methods and command."""
    assert PLACES.keys() == api_patterns().keys()
    assert {command for _page, command in PLACES.values()} - {""} <= get_commands().keys()
    methods = client_methods()
    assert {name for name, address in addresses().items() if address not in methods} == {"root", "run-events"}
    for path, page in ((ERRORS, errors_page()), (CAPABILITIES, capabilities_page())):
        assert path.read_text("utf-8") == page, "run: python -m docs.generated"


GUIDE = Path(__file__).resolve().parents[3] / "docs" / "api.md"


@pytest.mark.exhaustive
@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("openssl"), reason="needs curl and openssl")
def test_every_command_of_the_guide_works(live_server: LiveServer, study: Study, run: Run, tmp_path: Path) -> None:
    administrator_set(user=user_create("researcher"), appointed=True, acting_user=None)  # for rehearsal studies
    _, secret = ApiToken.objects.create(user_create("researcher"), name="guide")
    commands = "\n".join(_blocks("sh"))
    variables = {"SITE": live_server.url, "TOKEN": secret, "STUDY": study.slug, "RUN": str(run.pk)}
    environment = os.environ | variables | {"COLLEAGUE": "operator", "no_proxy": "*"}
    bash = ["bash", "-eu", "-o", "pipefail", "-c", commands]
    done = subprocess.run(bash, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert Run.objects.filter(title="Weighted, 20 teachers", status="draft").exists()
    assert Run.objects.filter(title="Every holder votes", method="neighbours", status="draft").exists()
    assert Run.objects.filter(title="Private gradient steps", method="sgd", status="draft").exists()
    flowers = Study.objects.get(slug="flowers")
    assert flowers.rehearsal and set(flowers.datasets.values_list("kind", flat=True)) == {"private", "public", "test"}
    assert '"forecast":' in done.stdout, "of its plan"
    assert '"answers":' in done.stdout, "of the plan"
    assert (tmp_path / "labels.csv").read_text().startswith("row,label")
    assert '"predictions"' in done.stdout
    [program] = _blocks("python")
    here = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert here.returncode == 0, here.stderr
    assert here.stdout.startswith("['healthy']") or here.stdout.startswith("['ill']")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


PATH = os.pathsep.join(filter(None, (os.environ.get("IPATE_GENERATORS"), os.environ["PATH"])))
_NOT_VOTED = {"public_dataset": None, "test_dataset": None, "student_learner": ""}

_PYTHON = """
import json, sys
from client import AuthenticatedClient, models
from client.api.runs import runs_create, runs_plan_create, runs_retrieve

site, token, proposals = sys.argv[1], sys.argv[2], json.load(sys.stdin)
client, told = AuthenticatedClient(base_url=site, token=token), []
for document in proposals:
    name = document["method"].capitalize()
    proposal = getattr(models, f"{name}Proposal").from_dict(document)
    answer = runs_create.sync_detailed(client=client, body=proposal)
    assert answer.status_code == 201, answer.content
    run = runs_retrieve.sync(id=answer.parsed.id, client=client)
    told.append([type(run).__name__, type(run.choices).__name__, run.choices.to_dict()])
    plan = runs_plan_create.sync_detailed(
        client=client, body=getattr(models, f"{name}PlanRequest").from_dict(document | {"share": 0.1}))
    assert plan.status_code == 200 and plan.parsed.outlook.people > 0, plan.content
print(json.dumps(told))
"""
_TYPESCRIPT = """
const {RunsApi, Configuration, RunProposalFromJSON} = require("./js/index.js");
const [site, token] = process.argv.slice(1), proposals = JSON.parse(require("fs").readFileSync(0, "utf-8"));
(async () => {
  const api = new RunsApi(new Configuration({basePath: site, headers: {Authorization: `Bearer ${token}`}})), told = [];
  for (const document of proposals) {
    const made = await api.runsCreate({runProposal: RunProposalFromJSON(document)});
    const run = await api.runsRetrieve({id: made.id});
    told.push([run.method, run.choices]);
  }
  console.log(JSON.stringify(told));
})();
"""


def run_program(*command: str, folder: Path, sent: str = "") -> str:
    environment = {**os.environ, "PATH": PATH, "no_proxy": "*", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, input=sent, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [name for name in programs if shutil.which(name, path=PATH) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


@pytest.fixture
def proposals(study: Study, tryout: Study) -> list[dict[str, Any]]:
    """Return one proposal of each method and of each variant that has separate choices."""
    user_create("researcher")
    deniable = {"released": 40, "plausible": 20, "epsilon0": 2.0, "fewest": 1, "most": 1, "values": 4}
    levels = {"HIGH": {"share": 0.5, "epsilon": 1}, "LOW": {"share": 0.5, "epsilon": 3}}
    others: list[tuple[Study, dict[str, Any]]] = [
        (study, {"method": "neighbours", "choices": {"rounds": 1, "sigma": 12.0}}),
        (study, {"method": "sgd", "choices": {"steps": 5}}),
        (study, {"method": "sgd", "variant": "scale", "choices": {"network": "linear", "steps": 6, "expected": 100}}),
        (study, {"method": "counts", "choices": {"column": "smoker"}, **_NOT_VOTED}),
        (study, {"method": "synthesis", "choices": {"rows": 100}, **_NOT_VOTED}),
        (tryout, {"method": "synthesis", "variant": "deniability", "choices": deniable, **_NOT_VOTED}),
    ]
    documents = [proposal(study)]
    for of, fields in others:
        documents.append({**proposal(of), **fields})
        if of.rehearsal:
            documents[-1]["rehearsed"] = {"levels": levels, "method": "data_dependent", "conversion": "improved"}
    return documents


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "openapi.json"
    path.write_bytes(APIClient().get("/api/schema?format=json").content)
    return path


@pytest.fixture
def token(study: Study) -> str:
    _, secret = ApiToken.objects.create(user_create("researcher"), name="generated")
    return secret


@pytest.mark.exhaustive
@needs("openapi-python-client")
def test_a_generated_python_client_proposes_every_method(live_server, proposals, document, token) -> None:
    folder, program = document.parent, shutil.which("openapi-python-client", path=PATH)
    assert program is not None
    generate = ("generate", "--path", str(document), "--meta", "none", "--output-path", "client")
    made = run_program(program, *generate, folder=folder)
    assert "Endpoint" not in made, made
    interpreter = str(Path(program).with_name("python"))
    told = json.loads(
        run_program(interpreter, "-c", _PYTHON, live_server.url, token, folder=folder, sent=json.dumps(proposals))
    )
    for sent, (run, choices, values) in zip(proposals, told, strict=True):
        name = sent["method"].capitalize()
        assert (run, choices) == (f"{name}Run", f"{name}Choices")
        assert sent["choices"].items() <= values.items()


@pytest.mark.exhaustive
@needs("openapi-generator-cli", "java", "node", "tsc")
def test_a_generated_typescript_client_proposes_every_method(live_server, proposals, document, token) -> None:
    folder = document.parent / "client"
    folder.mkdir()
    generate = ("openapi-generator-cli", "generate", "-i", str(document), "-g", "typescript-fetch", "-o", ".")
    run_program(*generate, folder=folder)
    options = {"outDir": "js", "module": "commonjs", "target": "es2020", "strict": True, "lib": ["es2020", "dom"]}
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["index.ts"]}))
    run_program("tsc", "-p", ".", folder=folder)
    told = json.loads(
        run_program("node", "-e", _TYPESCRIPT, live_server.url, token, folder=folder, sent=json.dumps(proposals))
    )
    for sent, (method, choices) in zip(proposals, told, strict=True):
        assert method == sent["method"]
        assert {_camel(name): value for name, value in sent["choices"].items()}.items() <= choices.items()
    assert Run.objects.filter(status="draft").count() == len(proposals)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)
