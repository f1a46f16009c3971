"""Generate the parts of the client that are derived from the site or from the client itself.

    python -m client.generate

This writes `ipate_client/proposals.py` (from the choices of each method), `ipate_client/asynchronous.py` (from the
methods of `Site`), and the tables of methods in README.md. A test checks that they are up to date.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CLIENT = Path(__file__).parent
PACKAGE = CLIENT / "ipate_client"
MODULES = ("studies", "runs", "results")
_NOTE = (
    '"""{about}\n\nWritten by `python -m client.generate`; do not edit it.\n"""\n\n'
    "from __future__ import annotations\n\n"
)
_SENDING = {"_get": "GET", "_pages": "GET", "_download": "GET", "_once": "POST", "_once_list": "POST", "_asked": "POST"}


def generated() -> dict[Path, str]:
    """Return the content of each generated file."""
    return {
        PACKAGE / "proposals.py": _formatted(proposals()),
        PACKAGE / "asynchronous.py": _formatted(asynchronous()),
        CLIENT / "README.md": readme(),
    }


# --- Proposals


def proposals() -> str:
    """Return the source of `proposals.py`, with a propose_… and a plan_… method for each method of runs."""
    from training.methods import IMPLEMENTED

    lines = [
        _NOTE.format(about="Proposals of runs by keyword arguments: `propose_pate`, `plan_pate` and so on."),
        "from collections.abc import Mapping\nfrom typing import TYPE_CHECKING, Any, Literal\n\n",
        "from ipate_client.proposing import Proposing, planning, proposing\n\n",
        "if TYPE_CHECKING:\n    from ipate_client.documents import Dataset\n\n\n",
        "class Proposals(Proposing):\n",
        '    """Proposals of a study. Pass a dataset only if the study has more than one of that kind."""\n',
    ]
    names: set[str] = set()
    for method in IMPLEMENTED:
        name = method.name if method.name not in names else f"{method.name}_{method.choices.__name__.lower()}"
        names.add(name)
        lines += _proposal(name, method)
    return "".join(lines)


def _proposal(name: str, method: Any) -> Iterator[str]:
    described = method.choices.described()
    arguments = {
        **_fields(method),
        **{choice.name: (_type(choice), _required(choice), _explained(choice)) for choice in described},
    }
    variants = [variant for variant in method.variants if variant]
    if len(variants) > 1:
        explained = "Variant of the method."
        arguments = {**arguments, "variant": (_literal(variants), f"{variants[0]!r}", explained)}
    yield f"\n    def _{name}(self, *, "
    for argument, (kind, default, _help) in sorted(arguments.items(), key=lambda pair: pair[1][1] is not None):
        yield f"{argument}: {kind}, " if default is None else f"{argument}: {kind} = {default}, "
    yield ") -> dict[str, Any]:\n"
    yield f'        """Propose a run of the method *{method.name}*{_of_variant(variants)}.\n\n        Args:\n'
    for argument, (_kind, _default, explained) in sorted(arguments.items(), key=lambda pair: pair[1][1] is not None):
        text = f"{argument}: {explained}"
        yield textwrap.fill(text, 116, initial_indent=" " * 12, subsequent_indent=" " * 16) + "\n"
    constant = f', "variant": {variants[0]!r}' if len(variants) == 1 else ""
    chosen = "".join(f"{choice.name!r}, " for choice in described)
    kinds = " ".join(
        ["private", *(["public"] if method.needs_public_points else []), *(["test"] if _learns(method) else [])]
    )
    yield f'        """\n        given = {{**locals(){constant}}}\n'
    yield f"        return self._proposal({method.name!r}, given, ({chosen}), {kinds!r})\n\n"
    yield f"    propose_{name} = proposing(_{name})\n    plan_{name} = planning(_{name})\n"


def _of_variant(variants: list[str]) -> str:
    return f", variant *{variants[0]}*" if len(variants) == 1 else ""


def _learns(method: Any) -> bool:
    return str(method.outcome) != "table"


def _fields(method: Any) -> dict[str, tuple[str, str | None, str]]:
    """Return the type, default and explanation of each field that proposals of every method have."""
    from learning.students import STUDENTS

    dataset = "Dataset | int | None"
    fields: dict[str, tuple[str, str | None, str]] = {
        "title": ("str", None, "Title of the run."),
        "purpose": ("str", '""', "Why the run is needed, for the person who approves it."),
        "private_dataset": (dataset, "None", "People's records; by default the study's only private dataset."),
    }
    if _learns(method):
        points = "by default the study's only public dataset." if method.needs_public_points else "by default none."
        fields |= {
            "public_dataset": (dataset, "None", f"Public points; {points}"),
            "test_dataset": (dataset, "None", "Data to evaluate the model; by default the study's only test dataset."),
            "labelled_dataset": (dataset, "None", "Public dataset whose labels the student also learns from."),
            "student_learner": (
                f"{_literal(list(STUDENTS))} | None",
                "None",
                "The student; by default a suggested one.",
            ),
            "student_parameters": ("Mapping[str, Any] | None", "None", "Parameters of the student."),
            "wanted_labels": ("int | None", "None", "Number of labels after which the run stops."),
        }
    return fields | {
        "batch_size": ("int | None", "None", "Number of queries or steps that are released together."),
        "seed": ("int | None", "None", "Seed; only for rehearsals."),
        "rehearsed": ("Mapping[str, Any] | None", "None", "Settings of a rehearsal: levels, accounting, conversion."),
    }


def _literal(names: list[str]) -> str:
    return f"Literal[{', '.join(map(repr, names))}]"


def _type(choice: Any) -> str:
    kind = {int: "int", float: "float", bool: "bool", str: "str", dict: "Mapping[str, Any]"}[choice.type]
    names = [name for name in choice.named or [] if name]
    kind = _literal(names) if choice.type is str and names else kind
    return kind if _required(choice) is None else f"{kind} | None"


def _required(choice: Any) -> str | None:
    """Return the default of a choice's argument; None if the argument is required."""
    return None if choice.default is None and not choice.optional else "None"


def _explained(choice: Any) -> str:
    label = str(choice.label)
    first = label[:1].upper() if label[:1].isascii() else label[:1]  # keeps ε in lower case
    usual = (choice.values or {}).get("")
    parts = [f"{first}{label[1:]}.", str(choice.help or (f"By default {usual}." if usual else ""))]
    if choice.minimum is not None:
        parts.append(f"From {choice.minimum:g} to {choice.maximum:g}.")
    if choice.default not in (None, "", {}):
        parts.append(f"Default: {choice.default}.")
    return " ".join(filter(None, parts)).replace("\\", "\\\\")


# --- The asynchronous site


def asynchronous() -> str:
    """Return the source of `asynchronous.py`, the asyncio version of the site, which runs each method in a thread."""
    wanted, methods = set(), []
    for node in _methods():
        returns = ast.unparse(node.returns) if node.returns else "None"
        wanted |= set(re.findall(r"\b[A-Z]\w+\b", f"{ast.unparse(node.args)} {returns}"))
        summary = _summary(node).split(". ")[0].rstrip(".") + "."
        arguments = [argument.arg for argument in node.args.args[1:]]
        arguments += [f"*{node.args.vararg.arg}"] if node.args.vararg else []
        arguments += [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
        arguments += [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
        call = ", ".join([f"self.site.{node.name}", *arguments])
        methods.append(
            f"\n    async def {node.name}({ast.unparse(node.args)}) -> {returns}:\n"
            f'        """{summary}"""\n        return await to_thread({call})\n'
        )
    named = {
        **dict.fromkeys(
            ("Card", "Dataset", "Plan", "Predictions", "PublicPoints", "Run", "Study"), "ipate_client.documents"
        ),
        **{
            "LocalModel": "ipate_client.local_model",
            "Rows": "ipate_client.rows",
            "Svg": "ipate_client.charts",
            "PathLike": "os",
            "Any": "typing",
        },
        **dict.fromkeys(("Mapping", "Sequence"), "collections.abc"),
    }
    imports = "".join(f"    from {named[name]} import {name}\n" for name in sorted(wanted & named.keys()))
    return "".join(
        [
            _NOTE.format(about="The site for asyncio programs: each method of `Site` runs in a thread."),
            "from asyncio import to_thread\nfrom typing import TYPE_CHECKING\n\n",
            f"from ipate_client.site import Site\n\nif TYPE_CHECKING:\n{imports}    import pandas as pd\n\n\n",
            'class AsyncSite:\n    """An iPATE site, with the methods of `Site` as coroutines.\n\n',
            "    Cancelling a coroutine ends the wait, but not the request.\n\n    Args:\n",
            "        address: URL of the site; by default the environment variable IPATE_SITE.\n",
            "        token: Your token; by default the environment variable IPATE_TOKEN.\n",
            '        timeout: Seconds to wait for an answer.\n    """\n\n',
            "    def __init__(\n        self, address: str | None = None, token: str | None = None, *, ",
            "timeout: float = 60\n    ) -> None:\n        self.site = Site(address, token, timeout=timeout)\n\n",
            "    async def __aenter__(self) -> AsyncSite:\n        return self\n\n",
            "    async def __aexit__(self, *_: object) -> None:\n        await to_thread(self.site.close)\n",
            *methods,
        ]
    )


# --- The tables of README.md


def operations() -> dict[str, list[tuple[str, str]]]:
    """Return the requests that each `Site` method sends: HTTP method, and path with {} for each parameter."""
    return {node.name: sorted(set(_requests(node))) for node in _methods()}


def readme() -> str:
    """Return README.md with a table of all methods by module."""
    text, sent = (CLIENT / "README.md").read_text("utf-8"), operations()
    heads = {"studies": "Studies and data", "runs": "Runs", "results": "Labels, tables and models"}
    parts = []
    for module in MODULES:
        rows = []
        for node in _methods(module):
            addresses = "<br>".join(f"`{verb} /{path}`" for verb, path in sent[node.name])
            rows.append(f"| `{node.name}({_short(node)})` | {_summary(node)} | {addresses} |")
        parts.append(f"### {heads[module]}\n\n| method | description | API |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    before, rest = text.split("<!-- methods -->\n", 1)
    after = rest.split("<!-- end of methods -->\n", 1)[1]
    return f"{before}<!-- methods -->\n\n{chr(10).join(parts)}\n<!-- end of methods -->\n{after}"


def _summary(node: ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or "").splitlines()[0]


def _short(node: ast.FunctionDef) -> str:
    required = [argument.arg for argument in node.args.args[1:]]
    if node.args.defaults:
        required = required[: -len(node.args.defaults)]
    named = [f"{each.arg}=…" for each, default in zip(node.args.kwonlyargs, node.args.kw_defaults) if default is None]
    rest = ["…"] if node.args.kwarg or any(node.args.kw_defaults) else []
    return ", ".join([*required, *([f"{node.args.vararg.arg}, …"] if node.args.vararg else []), *named, *rest])


def _requests(node: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    paths = {
        target.id: _path(each.value)
        for each in ast.walk(node)
        if isinstance(each, ast.Assign) and (target := each.targets[0]) and isinstance(target, ast.Name)
    } | {
        target.id: _path(value)
        for each in ast.walk(node)
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Tuple) and isinstance(each.value, ast.Tuple)
        for target, value in zip(each.targets[0].elts, each.value.elts)
        if isinstance(target, ast.Name)
    }
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        name, arguments = call.func.attr, list(call.args)
        if name in ("_json", "_list", "_request"):
            verb = str(ast.literal_eval(arguments.pop(0)))
        elif name in _SENDING:
            verb = _SENDING[name]
        else:
            continue
        place = paths.get(arguments[0].id) if isinstance(arguments[0], ast.Name) else _path(arguments[0])
        assert place is not None, f"{node.name} does not build its address with at(…)"
        yield verb, place


def _path(value: ast.expr) -> str | None:
    """Return the path from a call of `at` or from a plain string; None for anything else."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "at":
        return "/".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in value.args)
    return None


def _methods(*modules: str) -> Iterator[ast.FunctionDef]:
    """Yield the public methods of `Site`, in order."""
    for module in modules or MODULES:
        for node in ast.parse((PACKAGE / f"{module}.py").read_text("utf-8")).body:
            for each in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
                    yield each


def _formatted(code: str) -> str:
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    name = ["--stdin-filename", str(PACKAGE / "proposals.py")]
    for command in (["check", "--quiet", "--fix-only", "--select", "I", *name, "-"], ["format", "--quiet", *name, "-"]):
        done = subprocess.run([*ruff, *command], input=code, capture_output=True, text=True, check=True)  # noqa: S603
        code = done.stdout
    return code


def stale() -> Mapping[Path, str]:
    """Return the files whose content would change if they were generated again, with their new content."""
    return {path: text for path, text in generated().items() if not path.exists() or path.read_text("utf-8") != text}


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    for path, text in stale().items():
        path.write_text(text, "utf-8")
        sys.stdout.write(f"{path.relative_to(CLIENT)}\n")
