"""Documents generated from the code; ``python -m docs.generated`` writes them."""

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ERRORS, CAPABILITIES = ROOT / "docs" / "errors.md", ROOT / "docs" / "capabilities.md"
CLIENT = ROOT / "client" / "ipate_client"

_ERRORS = """# Errors of the API

Every error response is a problem document (RFC 9457). Its `type` is one of the addresses on this page, relative to the
site, and stays the same in all versions of the API. Programs should check `type`; `detail` is for people.

```json
{
  "type": "/docs/errors.html#invalid-data",
  "title": "Bad Request",
  "status": 400,
  "detail": "row 2, column age: “old” is not a number. Write a finite number.",
  "errors": [{"row": 2, "column": "age", "message": "“old” is not a number. Write a finite number."}]
}
```
"""
_CAPABILITIES = """# Pages, API, client and commands

This table lists each endpoint of the [API](api.md) with the page, the methods of the [client](client.md) and the
`manage.py` command that do the same. It is generated from the code, and a test checks that it is complete.

| address below `/api/v1` | what it does | page | client (`Site`) | command |
|---|---|---|---|---|
"""

PLACES: dict[str, tuple[str, str]] = {
    "root": ("api-docs", ""),
    "studies": ("home", ""),
    "study": ("staff:study", ""),
    "study-budget": ("staff:study_budgets", ""),
    "study-datasets": ("staff:import_new", "import_dataset"),
    "study-example-rows": ("", ""),
    "study-imports": ("staff:import_new", "import_dataset"),
    "study-import": ("staff:import", ""),
    "study-import-store": ("staff:import_store", ""),
    "study-consents": ("staff:paper_list", "import_paper_consents"),
    "study-head-counts": ("staff:head_counts", ""),
    "study-encoders": ("staff:encoders", ""),
    "study-alliances": ("staff:alliances", ""),
    "study-alliance": ("staff:alliance", ""),
    "alliance-runs": ("staff:joint_run_new", ""),
    "proposal-take": ("staff:joint_run_take", ""),
    "proposal-decline": ("staff:alliance_act", ""),
    "study-webhooks": ("staff:webhooks", ""),
    "study-webhook-deliveries": ("staff:webhooks", ""),
    "study-webhook": ("staff:webhook_remove", ""),
    "study-webhook-test": ("staff:webhook_test", ""),
    "waiting": ("home", ""),
    **dict.fromkeys(("learners", "students", "aggregators", "methods", "representations"), ("staff:run_new", "")),
    "runs": ("staff:runs", ""),
    "run-plan": ("staff:run_new", ""),
    "run-comparison": ("staff:run_compare", ""),
    "run": ("staff:run", ""),
    "run-events": ("staff:run_live", ""),
    "run-planned": ("staff:run_approve", "run_plan"),
    "run-approve": ("staff:run_approve", ""),
    "run-withdraw": ("staff:run_withdraw", ""),
    "run-cancel": ("staff:run_cancel", ""),
    "run-sites": ("staff:run", ""),
    "run-go-on": ("staff:joint_run_without", ""),
    "run-labels": ("staff:run_labels", ""),
    "run-costs": ("staff:run", ""),
    "run-table": ("staff:run", ""),
    "run-rows": ("staff:run", ""),
    "run-table-withdraw": ("staff:run_result_withdraw", ""),
    "run-students": ("staff:run_students", "student_train"),
    "run-student-publish": ("staff:run_student_publish", ""),
    "run-student-withdraw": ("staff:run_student_withdraw", ""),
    "models": ("staff:models", ""),
    "model": ("staff:run", ""),
    "model-file": ("staff:run_student_model", ""),
    "model-onnx": ("staff:run_student_onnx", ""),
    "model-statement": ("", ""),
    "model-threshold": ("staff:model_threshold", ""),
    "model-stage": ("staff:model_stage", ""),
    "model-predict": ("", ""),
    "keys": ("", "verify_checkpoints"),
}
"""Name of the page and command for the addresses of the API, by endpoint name."""


def errors_page() -> str:
    """Return the page that lists the kinds of problems."""
    from ipate_web.api.problems import KINDS

    sections = [
        f"## {kind.name}\n\n**{kind.status.value} {kind.status.phrase}.** {kind.meaning} {kind.remedy}\n"
        for kind in KINDS.values()
    ]
    return "\n".join([_ERRORS, *sections])


def capabilities_page() -> str:
    """Return the page that compares pages, API, client and commands."""
    from drf_spectacular.generators import SchemaGenerator

    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    methods, rows = client_methods(), []
    for name, address in addresses().items():
        page, command = PLACES[name]
        does = "; ".join(f"{verb.upper()}: {each['summary']}" for verb, each in paths[f"/api/v1/{address}"].items())
        cells = (f"`{address or '/'}`", does, _page(page), ", ".join(f"`{each}`" for each in methods[address]))
        rows.append(f"| {' | '.join((*cells, command and f'`{command}`'))} |".replace("|  |", "| – |"))
    return _CAPABILITIES + "\n".join(row.replace("|  |", "| – |") for row in rows) + "\n"


def addresses() -> dict[str, str]:
    """Return the addresses of the API below its root by their names, as the OpenAPI document writes them."""
    from ipate_web.api.urls import version_1

    found = {each.name: str(each.pattern) for each in version_1 if each.name and not each.name.startswith("site-")}
    return {name: re.sub(r"<(?:\w+:)?(\w+)>", lambda part: f"{{{_NAMES.get(part[1], part[1])}}}", each)
            for name, each in found.items()}  # fmt: skip


_NAMES = {"pk": "id"}


def client_methods() -> dict[str, list[str]]:
    """Return the client's methods by the address that they request, as the OpenAPI document writes it."""
    known = {re.sub(r"{\w+}", "{}", address): address for address in addresses().values()}
    found: dict[str, list[str]] = defaultdict(list)
    for method in _methods():
        for text in sorted(set(_texts(method)) & known.keys() - {""}):
            found[known[text]].append(method.name)
    return found


def _methods() -> Iterator[ast.FunctionDef]:
    """Yield the public methods of the client's class ``Site`` and of its bases."""
    trees = [ast.parse(path.read_text("utf-8")) for path in sorted(CLIENT.glob("*.py"))]
    classes = {each.name: each for tree in trees for each in tree.body if isinstance(each, ast.ClassDef)}
    kinds = ["Site"]
    for name in kinds:
        kinds += [base.id for base in classes[name].bases if isinstance(base, ast.Name) and base.id in classes]
        for each in classes[name].body:
            if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
                yield each


def _texts(method: ast.FunctionDef) -> Iterator[str]:
    """Yield possible addresses: the arguments of the client's requests, and the parts given to ``at``."""
    for node in ast.walk(method):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "at":
            yield "/".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.args)
        elif isinstance(node.func, ast.Attribute) and node.func.attr.startswith("_"):
            yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))


def _page(name: str) -> str:
    """Return the address of a page by its name, or an empty text if there is no name."""
    from django.urls import get_resolver

    if not name:
        return ""
    *space, view = name.split(":")
    prefix, resolver = get_resolver().namespace_dict[space[0]] if space else ("", get_resolver())
    path, _arguments = resolver.reverse_dict.getlist(view)[0][0][0]
    return "`/" + prefix + re.sub(r"%\((\w+)\)s", r"{\1}", path) + "`"


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    ERRORS.write_text(errors_page(), "utf-8")
    CAPABILITIES.write_text(capabilities_page(), "utf-8")
