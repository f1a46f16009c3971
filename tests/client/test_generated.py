"""Generated parts of the client, and what they cover."""

import inspect
import re
import sys
from typing import get_type_hints

import pytest
from drf_spectacular.generators import SchemaGenerator
from ipate_client import AsyncSite, Dataset, Site, Study

from client.generate import operations, stale

pytestmark = pytest.mark.django_db

ELSEWHERE = {("GET", ""), ("GET", "runs/{}/events")}
"""The list of addresses itself, and server-sent events, which the client replaces by requesting the run."""


def test_the_generated_files_are_current() -> None:
    """If it fails, run `python -m client.generate`."""
    assert [path.name for path in stale()] == []


def test_every_operation_of_the_api_is_in_the_client() -> None:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    described = {(verb, path.removeprefix("/api/v1/")) for path, verbs in paths.items() for verb in verbs}
    offered = {(verb.upper(), re.sub(r"\{\w+\}", "{}", path)) for verb, path in described}
    sent = {request for requests in operations().values() for request in requests}
    assert offered - sent - ELSEWHERE == set() and sent - offered == set()


class Told(Site):
    """A site that only records proposals."""

    def propose(self, **proposal: object) -> dict[str, object]:  # type: ignore[override]
        return proposal

    plan = propose  # type: ignore[assignment]


def study_of(*kinds: str) -> Study:
    described = {"classes": ["a", "b"], "shape": [2]}
    datasets = [{**described, "id": place, "name": kind, "kind": kind} for place, kind in enumerate(kinds, 1)]
    return Study("ward", "Ward", 1e-5, False, {"datasets": datasets}, Told("http://127.0.0.1:1", "token"))


def test_a_proposal_by_keyword() -> None:
    study = study_of("private", "public", "test")
    expected = {
        **{"study": "ward", "method": "pate", "variant": "standard", "title": "T", "purpose": "P"},
        **{"private_dataset": 1, "public_dataset": 2, "test_dataset": 3},
        "choices": {"learner": "random_forest", "teachers": 100},
    }
    assert study.propose_pate(title="T", purpose="P", learner="random_forest", teachers=100) == expected
    assert study.plan_pate(title="T", purpose="P", learner="random_forest", teachers=100) == expected
    counted = {"study": "ward", "method": "counts", "title": "T", "purpose": "", "private_dataset": 1}
    assert study.propose_counts(title="T", column="class") == counted | {"choices": {"column": "class"}}
    private = Dataset(7, "", "private", [], (), {})
    assert study.propose_sgd_samples(title="T", private_dataset=private)["private_dataset"] == 7
    with pytest.raises(LookupError, match="2 private datasets\\. Pass private_dataset"):
        study_of("private", "private").propose_counts(title="T", column="class")


def test_editors_see_the_keywords_with_their_types() -> None:
    signature = inspect.signature(Study.propose_pate)
    assert signature.parameters["learner"].default is inspect.Parameter.empty
    assert "nearest_neighbour" in str(signature.parameters["learner"].annotation)
    assert {name for name in vars(Site) if name.startswith("_")} and get_type_hints(AsyncSite.__init__)


@pytest.mark.exhaustive
def test_types_are_strict(tmp_path: pytest.TempPathFactory) -> None:
    from django.conf import settings
    from mypy import api

    lenient = (
        "[mypy-pandas.*,sklearn.*,onnxruntime.*,sksurv.*,tokenizers.*,mlflow.*,skops.*]\nignore_missing_imports=True"
    )
    config = tmp_path / "mypy.ini"  # type: ignore[operator]
    config.write_text(f"[mypy]\nstrict = True\n{lenient}\n")
    folder = settings.BASE_DIR / "client" / "ipate_client"
    out, errors, status = api.run(["--config-file", str(config), "--no-incremental", str(folder)])
    assert (status, errors) == (0, ""), out + sys.version
