"""Templates: their lines are readable, none is dead or apart from its only user, components declare what they use."""

import re
from functools import cache
from pathlib import Path
from unittest.mock import patch

import allauth
import pytest
from django.conf import settings
from django.template import Engine
from django.template.base import Variable

from common.templatetags.components import _OF_REQUEST, COMPONENTS, Component
from consent.services.mail import KINDS
from training.methods import IMPLEMENTED

ROOT = Path(settings.BASE_DIR)
FOLDER = ROOT / "templates"
#: Pages that Django, its handlers of errors and a load balancer's middleware ask for by the number of an error.
ERRORS = {"400.html", "403.html", "403_csrf.html", "404.html", "429.html", "500.html", "503.html"}
#: Those whose names views put together.
BUILT = {"staff/budgets/home.html", "staff/budgets/live.html", "site/accessibility.html", "site/privacy.html"}
#: Templates that one other includes although they are short, and why.
SHORT: dict[str, str] = {}


@cache
def templates() -> dict[str, str]:
    return {
        str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8")
        for path in sorted(FOLDER.rglob("*"))
        if path.is_file()
    }


@cache
def programs() -> str:
    """All product code that renders templates."""
    folders = ("common", "consent", "ipate_web", "training")
    return "\n".join(
        path.read_text(encoding="utf-8") for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))
    )


def body(component: Component) -> str:
    begun = templates()[component.file].split("{% component " + component.name + " ", 1)[1]
    return begun.split("%}", 1)[1].split("{% endcomponent %}", 1)[0]


def test_no_line_is_longer_than_a_screen() -> None:
    long = [
        f"{name}:{number}"
        for name, text in templates().items()
        for number, line in enumerate(text.split("\n"), 1)
        if len(line) > 160
    ]
    assert long == [], "break it between attributes or cells, or take blocktranslate trimmed"


def test_every_template_is_rendered_by_a_view_or_used_by_another() -> None:
    used = programs() + "\n".join(templates().values())
    libraries = Path(allauth.__file__).parent / "templates"
    homes = {component.file for component in COMPONENTS.values()}
    dead = [
        name
        for name in templates()
        if f'"{name}"' not in used and name not in ERRORS | BUILT | homes and not (libraries / name).is_file()
    ]
    assert dead == []


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
    assert sorted(apart) == sorted(SHORT)


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
