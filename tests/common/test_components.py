"""Components of templates: what they declare is checked when a template that uses them is compiled."""

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.template import Context, Template, TemplateSyntaxError, engines

from common.templatetags.components import COMPONENTS, component_render, components_read


def render(text: str, **context: object) -> str:
    return "".join(Template(text).render(Context(context)).split("\n"))


def test_a_component_is_a_tag_with_positional_named_and_default_arguments() -> None:
    assert render('{% badge "new" %}') == '<span class="badge">new</span>'
    assert render("{% badge word kind=look %}", word="<b>", look="good") == (
        '<span class="badge badge-good">&lt;b&gt;</span>'
    )
    assert component_render("badge", text="new", unknown=1).strip() == '<span class="badge">new</span>'


@pytest.mark.parametrize("use", ["{% badge %}", '{% badge "new" colour="red" %}', '{% badge "new" "good" "?" %}'])
def test_a_missing_or_unknown_argument_is_an_error_before_anything_is_rendered(use: str) -> None:
    with pytest.raises(TemplateSyntaxError):
        Template("{% if never %}" + use + "{% endif %}")


def test_a_component_sees_its_arguments_and_nothing_else_of_the_page() -> None:
    assert "warn" not in render('{% badge "new" %}', kind="warn")


def test_the_place_where_a_component_is_defined_shows_nothing() -> None:
    file = COMPONENTS["badge"].file
    assert engines["django"].get_template(file).render().strip() == ""


@pytest.mark.parametrize(
    "text",
    [
        "{% component twice %}{% endcomponent %}{% component twice %}{% endcomponent %}",
        '{% component late a="" b %}{% endcomponent %}',
    ],
)
def test_a_name_is_defined_once_and_required_parameters_come_first(tmp_path: Path, text: str) -> None:
    (tmp_path / "parts.html").write_text(text)
    with pytest.raises(ImproperlyConfigured, match=r"parts\.html"):
        components_read(tmp_path)


def test_no_component_has_the_name_of_another_tag() -> None:
    builtins = engines["django"].engine.template_builtins
    others = {name for library in builtins if "component" not in library.tags for name in library.tags}
    between = {"else", "elif", "empty", "plural"}
    assert COMPONENTS.keys() & (others | between) == set()
