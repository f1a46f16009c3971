"""Conventions of the source and of templates that no linter checks."""

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from unittest.mock import patch

import allauth
import pytest
from django.conf import settings
from django.template import Engine
from django.template.base import Variable

from common.templatetags.components import _OF_REQUEST, COMPONENTS, Component
from consent.services.mail import KINDS
from tests.conftest import LOADED, SLOW_LIBRARIES
from training.methods import IMPLEMENTED

ROOT = Path(settings.BASE_DIR)
#: Packages and modules that keep the conventions.
FOLLOWED = ("accounting", "benchmarks", "common", "consent", "ipate_web", "learning", "manage.py", "tests", "training")


def modules() -> Iterator[Path]:
    for name in FOLLOWED:
        path = ROOT / name
        for module in [path] if path.is_file() else sorted(path.rglob("*.py")):
            if module.read_text(encoding="utf-8").strip():
                yield module


def product() -> list[Path]:
    """Return modules that run on a site, without migrations."""
    left_out = {"tests", "benchmarks", "migrations"}
    return [path for path in modules() if not left_out & set(path.relative_to(ROOT).parts)]


def test_every_place_named_in_the_proofs_exists() -> None:
    page = (ROOT / "docs/gaussian-accounts.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:accounting|common|consent|learning|training)\.[\w.]+)`", page))
    assert len(names) > 20
    assert [name for name in names if not is_there(name)] == []
    assert not is_there("accounting.accounts.allowances")


def test_imports_of_benchmarks_and_of_a_script_exist() -> None:
    """No type checker reads them, and only the exhaustive suite runs the script."""
    names = {
        f"{node.module}.{each.name}"
        for path in (ROOT / "benchmarks").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in FOLLOWED
        for each in node.names
    }
    script = (ROOT / "tests/fresh_machine.sh").read_text(encoding="utf-8")
    for module, imported in re.findall(rf"^from ((?:{'|'.join(FOLLOWED)})[\w.]*) import (.+)$", script, re.MULTILINE):
        names.update(f"{module}.{each}" for each in imported.split(", "))
    assert len(names) > 50
    assert [name for name in sorted(names) if not is_there(name)] == []


def is_there(name: str) -> bool:
    """Return whether a dotted name is a module, or something in one."""
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_every_table_is_written_without_formulas() -> None:
    """Spreadsheets evaluate cells, so only the module that prevents this writes CSV, directly or with pandas."""
    writer = re.compile(r"csv\.writer|DictWriter|\.to_csv\((?!\))")
    writers = [module for module in product() if writer.search(module.read_text(encoding="utf-8"))]
    assert writers == [ROOT / "common/spreadsheets.py"]


def test_no_app_names_a_page_or_a_template_of_the_site() -> None:
    """Import-linter sees only imports; these references are strings."""
    arrow = re.compile(r"""["'](?:staff|api)(?::|/)""")
    apps = [path for path in product() if path.relative_to(ROOT).parts[0] not in ("ipate_web", "manage.py")]
    assert len(apps) > 200
    assert [str(path.relative_to(ROOT)) for path in apps if arrow.search(path.read_text(encoding="utf-8"))] == []


def test_collecting_tests_loads_no_slow_library(request: pytest.FixtureRequest) -> None:
    """If it fails, import the library in the tests and functions that use it."""
    assert request.config.stash[LOADED] == set()


def test_starting_the_site_loads_no_slow_library() -> None:
    """Every command and every process of the site starts like this."""
    slow = {*SLOW_LIBRARIES, "pandas", "pyarrow", "typst", "scipy.optimize", "scipy.linalg", "scipy.stats"}
    program = (
        "import django, sys; django.setup(); import learning.learners, training.tasks; "
        "from django.urls import get_resolver; get_resolver().url_patterns; "
        f"print(sorted({slow} & sys.modules.keys()))"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "ipate_web.settings"}
    command = [sys.executable, "-c", program]
    assert subprocess.check_output(command, cwd=ROOT, env=environment, text=True).strip() == "[]"


#: Private names of libraries without a public counterpart: Python and Django document the first four; the others are
#: attributes of fitted scikit-learn estimators, and modules by which skops identifies types in saved estimators.
PRIVATE = {
    **dict.fromkeys(("_exit", "_meta", "_default_manager", "_base_manager", "_predictors"), ""),
    **dict.fromkeys(("_fit_X", "_y", "_baseline_prediction"), "learning/exports/estimators.py"),
    "sklearn.ensemble._hist_gradient_boosting": "learning/students/boosting.py",
    "sklearn.tree._tree": "learning/learners/scikit.py",
}


def test_no_private_name_of_a_library_is_touched() -> None:
    used, ours = defaultdict[str, set[str]](set), set[str]()
    for path in product():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            match node:
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    names = [name]
                case ast.ImportFrom(module=str(name), names=parts) if name.split(".")[0] not in FOLLOWED:
                    names = [name, *(part.name for part in parts)]
                case ast.Import(names=parts):
                    names = [part.name for part in parts]
                case ast.Constant(value=str(name)) if re.fullmatch(r"sklearn(\.\w+)+", name):
                    names = [name.rpartition(".")[0].removesuffix(".predictor")]
                case ast.Attribute(attr=name) | ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    ours.add(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    ours.add(name)
            for name in names:
                used[name].add(str(path.relative_to(ROOT)))
    private = {name for name in used.keys() - ours if re.search(r"(^|\.)(_(?!_)|internal\b)", name)}
    wrong = {name: used[name] for name in private if PRIVATE.get(name) != "" and used[name] != {PRIVATE.get(name)}}
    assert wrong == {}, "use what the library documents, or keep the private name in one place"


FOLDER = ROOT / "templates"
#: Pages that Django, its error handlers and a load balancer's middleware find by the number of an error.
ERRORS = {"400.html", "403.html", "403_csrf.html", "404.html", "429.html", "500.html", "503.html"}
#: Templates whose names views construct.
BUILT = {"staff/budgets/home.html", "staff/budgets/live.html", "site/accessibility.html", "site/privacy.html"}


@cache
def templates() -> dict[str, str]:
    return {str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.*")}


@cache
def programs() -> str:
    """Return all code of the site."""
    return "\n".join(path.read_text(encoding="utf-8") for path in product())


def body(component: Component) -> str:
    begun = templates()[component.file].split("{% component " + component.name + " ", 1)[1]
    return begun.split("%}", 1)[1].split("{% endcomponent %}", 1)[0]


def test_no_line_is_longer_than_a_screen() -> None:
    long = [line for text in templates().values() for line in text.split("\n") if len(line) > 160]
    assert long == [], "break it between attributes or cells, or use blocktranslate trimmed"


def test_every_template_is_rendered_by_a_view_or_used_by_another() -> None:
    used = programs() + "\n".join(templates().values())
    libraries = Path(allauth.__file__).parent / "templates"
    unnamed = {name for name in templates() if f'"{name}"' not in used and not (libraries / name).is_file()}
    assert unnamed - ERRORS - BUILT - {component.file for component in COMPONENTS.values()} == set()


def test_every_component_is_used() -> None:
    tags = set(re.findall(r"{% (\w+)", "\n".join(templates().values())))
    by_name = {f"mail_{kind}" for kind in KINDS} | {
        f"{method.parts}_{part}" for method in IMPLEMENTED for part in ("plan", "mechanism", "vote", "drawn")
    }
    unused = [name for name in COMPONENTS if name not in tags | by_name and f'"{name}"' not in programs()]
    assert unused == []


def test_a_short_template_that_one_other_includes_is_a_part_of_it() -> None:
    apart = []
    for name, text in templates().items():
        including = [each for each, other in templates().items() if f'{{% include "{name}"' in other]
        if len(including) == 1 and len(text.split("\n")) <= 9 and f'"{name}"' not in programs():
            apart.append(name)
    assert apart == []


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_a_component_uses_what_it_declares(name: str) -> None:
    component = COMPONENTS[name]
    text = body(component)
    looked_up: set[str] = set()

    def noted(self: Variable, var: str) -> None:
        begin(self, var)
        looked_up.update((self.lookups or ())[:1])

    begin = Variable.__init__
    with patch.object(Variable, "__init__", noted):
        Engine.get_default().from_string(text)
    for head, inner in re.findall(r"({% blocktranslate.*?%})(.*?){% endblocktranslate %}", text, re.DOTALL):
        looked_up.update(set(re.findall(r"{{ (\w+)", inner)) - set(re.findall(r"(\w+)=", head)))
    bound = {*re.findall(r"\bas(?:var)? (\w+)", text), "forloop"}
    for names in re.findall(r"{% for ([\w, ]+) in", text):
        bound.update(names.split(", "))
    for head in re.findall(r"{% with (.*?) %}", text):
        bound.update(re.findall(r"(\w+)=", head))
    assert looked_up - bound - {*component.parameters, *_OF_REQUEST, "None", "True", "False"} == set(), "not declared"
    words = re.findall(r"\w+", text)
    assert [each for each in component.parameters if each not in words] == [], "not used"
