"""Clients that other people's generators make from the OpenAPI document propose every method, and read it back.

The generators are not among our requirements: ``pip install openapi-python-client openapi-generator-cli`` in an
environment of its own, and ``npm install typescript``; IPATE_GENERATORS names the folders of their programs.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from consent.models import Study
from ipate_web.tokens.models import ApiToken
from tests.factories import user_create
from tests.ipate_web.api.test_runs import proposal
from training.models import Run

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
    """One of each method and of each variant that has choices of its own."""
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
    made = run_program(
        program, "generate", "--path", str(document), "--meta", "none", "--output-path", "client", folder=folder
    )
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
