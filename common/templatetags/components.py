"""Components of pages and emails: pieces of templates, each used as a tag with declared parameters.

A template file defines one or several related components::

    {% component badge text kind="" %}
    <span class="badge{% if kind %} badge-{{ kind }}{% endif %}">{{ text }}</span>
    {% endcomponent %}

and every template can use them: ``{% badge _("closed") kind="warn" %}``. A parameter without a default is required. A
missing or unknown argument is an error when the template that uses the component is compiled. A component has access to
its arguments, but not to the page's variables except those in :data:`_OF_REQUEST`.
"""

import re
from ast import literal_eval
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django import template
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.template import Context, Engine, Node, NodeList
from django.template.base import FilterExpression, Parser, Token
from django.template.defaultfilters import stringfilter
from django.template.library import parse_bits
from django.utils.safestring import SafeString

register = template.Library()

#: Variables of the page's context that a component can use.
_OF_REQUEST = ("csrf_token", "request", "user")
_HEAD = re.compile(r"{% component (\w+)((?: .+?)?) %}")
_PARAMETER = re.compile(r"""(\w+)(?:=("[^"]*"|\w+))?""")


@register.filter(is_safe=True)
@stringfilter
def capfirst(text: str) -> str:
    """Return a text with a capital first letter, except for a symbol: a capital ε looks like an E."""
    return text if "α" <= text[:1] <= "ω" else text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Component:
    """Piece of a template with the names of its parameters. Those in ``defaults`` are optional and come last."""

    name: str
    file: str
    parameters: tuple[str, ...]
    defaults: dict[str, Any]

    def render(self, context: Context, values: dict[str, Any]) -> SafeString:
        """Render the component with ``values`` as its arguments, in the language and escaping of ``context``."""
        assert context.template is not None
        file = context.template.engine.get_template(self.file)
        shown = {key: context[key] for key in _OF_REQUEST if key in context}
        with context.render_context.push_state(file):
            return file.extra_data["components"][self.name].render(context.new(shown | self.defaults | values))


def _declared(file: str, head: re.Match[str]) -> Component:
    parameters = _PARAMETER.findall(head[2])
    defaults = {name: literal_eval(value) for name, value in parameters if value}
    names = tuple(name for name, _value in parameters)
    if names[len(names) - len(defaults) :] != tuple(defaults):
        raise ImproperlyConfigured(f"{file}: the component {head[1]} has a required parameter after an optional one.")
    return Component(head[1], file, names, defaults)


def components_read(folder: Path) -> dict[str, Component]:
    """Return the components that the templates below ``folder`` define, by name."""
    found: dict[str, Component] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".html", ".txt"):
            for head in _HEAD.finditer(path.read_text(encoding="utf-8")):
                component = _declared(str(path.relative_to(folder)), head)
                if component.name in found:
                    places = f"{found[component.name].file} and {component.file}"
                    raise ImproperlyConfigured(f"The component {component.name} is defined twice: {places}.")
                found[component.name] = component
    return found


COMPONENTS = components_read(Path(settings.BASE_DIR, "templates"))


def component_render(name: str, /, *, autoescape: bool = True, **values: Any) -> SafeString:
    """Render a component outside a template. ``values`` that it does not declare are ignored."""
    component = COMPONENTS[name]
    context = Context(autoescape=autoescape)
    with context.bind_template(Engine.get_default().get_template(component.file)):
        return component.render(context, {key: values[key] for key in component.parameters if key in values})


class ComponentNode(Node):
    """Use of a component in a template."""

    def __init__(self, component: Component, args: list[FilterExpression], kwargs: dict[str, FilterExpression]) -> None:
        self.component = component
        self.arguments = dict(zip(component.parameters, args, strict=False)) | kwargs

    def render(self, context: Context) -> SafeString:
        values = {name: argument.resolve(context) for name, argument in self.arguments.items()}
        return self.component.render(context, values)


class DefinitionNode(Node):
    """Definition of a component. It renders nothing."""

    def render(self, context: Context) -> SafeString:
        return SafeString()


@register.tag("component")
def component_define(parser: Parser, token: Token) -> DefinitionNode:
    """Parse the content between this tag and ``endcomponent``, and store it in the template as a component."""
    body: NodeList = parser.parse(("endcomponent",))
    parser.delete_first_token()
    parser.extra_data.setdefault("components", {})[token.split_contents()[1]] = body
    return DefinitionNode()


def _use(component: Component) -> Callable[[Parser, Token], ComponentNode]:
    """Return a compiler for the tag of a component."""

    def compiled(parser: Parser, token: Token) -> ComponentNode:
        args, kwargs = parse_bits(  # type: ignore[call-arg]
            parser,
            token.split_contents()[1:],
            params=list(component.parameters),
            varargs=None,
            varkw=None,
            defaults=tuple(component.defaults.values()),
            kwonly=[],
            kwonly_defaults=None,
            takes_context=False,
            name=component.name,
        )
        return ComponentNode(component, args, kwargs)

    return compiled


for _component in COMPONENTS.values():
    register.tag(_component.name, _use(_component))
