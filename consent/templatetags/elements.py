"""Tags and filters for all pages: sections, tables, odds, days, navigation, texts about a study or another person.

The tags ``translate`` and ``blocktranslate`` are Django's. Inside :func:`consent.wording.third_person.in_third_person`
they use a text's third person, if it has one.
"""

from collections.abc import Collection, Iterable
from copy import copy
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from django import template
from django.conf import settings
from django.template import Context
from django.template.base import Parser, Token, render_value_in_context
from django.template.loader_tags import BLOCK_CONTEXT_KEY
from django.templatetags.i18n import BlockTranslateNode, TranslateNode, do_block_translate, do_translate
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from common.moments import moment_words, zone_name
from consent.forms import Option
from consent.models import Checkpoint, DataHolder, Study
from consent.people.circumstances import day_of
from consent.permissions import administers, permissions_anywhere
from consent.promises.odds import CHANCE
from consent.views.visits import Visit, visit_of
from consent.wording.facts import contact_text, study_text, together
from consent.wording.glossary import WORDS, WORDS_OF_STAFF
from consent.wording.third_person import third_person

register = template.Library()


@register.simple_block_tag
def section(content: str, name: str, heading: str, kind: str = "stack", level: int = 2) -> SafeString:
    """Return a section whose heading has the id ``name`` and this ``level``; ``kind`` are the section's classes.

    A section of the kind ``fold`` is initially closed. ``name`` is then the id of its content, so a link to it opens
    the section.
    """
    if kind == "fold":
        title = format_html('<h{} id="{}-heading">{}</h{}>', level, name, heading, level)
        opening = format_html('<details class="fold" id="{}-fold"><summary>{}</summary>', name, title)
        return format_html('{}<div class="stack" id="{}">{}</div></details>', opening, name, content)
    opening = format_html('<section class="{}" aria-labelledby="{}">', kind, name)
    return format_html('{}<h{} id="{}">{}</h{}>{}</section>', opening, level, name, heading, level, content)


@register.simple_block_tag
def table(content: str, label: str = "", labelledby: str = "", kind: str = "") -> SafeString:
    """Return a table in a region named by `label` or by the text of the element with the id `labelledby`.

    On a phone, columns whose header has the class `less` are hidden until *All columns* is ticked (components.css).
    """
    name, value = ("aria-labelledby", labelledby) if labelledby else ("aria-label", label)
    all_columns = ""
    if 'class="less' in content:
        all_columns = format_html(
            '<label class="check all-columns"><input type="checkbox" autocomplete="off"> {}</label>', _("All columns")
        )
    return format_html(
        '<div class="{}" tabindex="0" role="region" {}="{}">{}<table class="table">{}</table></div>',
        *(f"table-wrap {kind}".strip(), name, value, all_columns, content),
    )


def _dots(first: int, end: int) -> str:
    """Return the SVG path of points ``first`` to ``end`` (exclusive) of a ten by ten grid, ten units apart."""
    return "".join(f"M{5 + 10 * (n % 10)} {5 + 10 * (n // 10)}h0" for n in range(first, end))


@register.inclusion_tag("consent/icon_array.html")
def icon_array(right: int) -> dict[str, Any]:
    """Return an icon array of 100 guesses: right by chance, right beyond chance (up to ``right``), and wrong."""
    return {
        "right": right,
        "more": right - CHANCE,
        "wrong": 100 - right,
        "by_chance_dots": _dots(0, CHANCE),
        "more_dots": _dots(CHANCE, right),
        "wrong_dots": _dots(right, 100),
    }


@register.filter
def times_high(options: Iterable[Option], level: str) -> int:
    """Return the `times_high` of the option for a level."""
    return next(option.times_high for option in options if option.value == level)


register.filter("zone", zone_name)


@register.filter
def moment(value: datetime) -> str:
    """Return the day and time with the time zone."""
    return moment_words(value)


@register.filter
def days_left(day: date) -> int:
    """Return the number of days from today to ``day``; negative if it has passed."""
    return (day - day_of(timezone.now())).days


@register.filter
def absolute(number: int) -> int:
    """Return the absolute value."""
    return abs(number)


@register.simple_tag
def checkpoint_keys() -> list[str]:
    """Return the public keys for checking signed checkpoints, the current one first."""
    return settings.CHECKPOINT_KEYS


@register.simple_tag
def last_checkpoint() -> Checkpoint | None:
    """Return the last signed checkpoint of the installation."""
    return Checkpoint.objects.last()


# --- The frame of all pages -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Link:
    url: str
    text: str


def _links(user: Any, by_invitation: bool, can: Collection[str]) -> list[tuple[str, str]]:
    if by_invitation:
        return [("consent:my_studies", _("My studies"))]
    if user is None or not user.is_authenticated:
        return [("account_login", _("Sign in"))]
    names: list[tuple[str, str]] = []
    if DataHolder.objects.filter(user_id=user.pk).exists():
        names.append(("consent:my_studies", _("My studies")))
    if "training.view_run" in can:
        names.append(("home", _("Studies")))
    is_administrator = administers(user)
    if "training.use_student" in can or is_administrator:
        names += [("api-tokens", _("API tokens")), ("api-docs", _("API docs"))]
    if is_administrator:
        names.append(("staff_accounts", _("Staff accounts")))
    return [*names, ("account_overview", _("My account"))]


@register.simple_tag
def site_name() -> str:
    """Return the name of the installation."""
    return settings.SITE_NAME


@register.simple_tag
def has_documents() -> bool:
    """Return whether the installation has the documentation site."""
    return (settings.DOCUMENTS / "index.html").is_file()


@register.simple_tag
def document_link(page: str, section: str = "") -> str:
    """Return a link to a page of the documentation; the name of its file if the documentation is not built."""
    name = f"docs/{page}.md"
    if not has_documents():
        return name
    return format_html('<a href="{}{}">{}</a>', reverse("document", args=[f"{page}.html"]), section, name)


@register.simple_tag(name="words_of")
def glossary_words(keys: str) -> list[tuple[str, str | Promise, str | Promise]]:
    """Return key, word and meaning for each of the space-separated keys."""
    known = WORDS | WORDS_OF_STAFF
    return [(key, *known[key]) for key in keys.split()]


@register.inclusion_tag("components/words.html")
def words(keys: str) -> dict[str, Any]:
    """Return the words with the given space-separated keys, each with a pop-up explanation."""
    return {"words": glossary_words(keys)}


@register.simple_tag(takes_context=True)
def block_text(context: Context, name: str) -> str:
    """Return the content of the page's block ``name``, so that it can be shown a second time."""
    return context.render_context[BLOCK_CONTEXT_KEY].get_block(name).render(context)


@register.simple_tag(takes_context=True)
def visit_open(context: Context) -> Visit | None:
    """Return this request's visit by invitation if it has not ended, or None."""
    request = context.get("request")
    visit = visit_of(request) if request is not None and hasattr(request, "user") else None
    return visit if visit is not None and not visit.is_over else None


@register.inclusion_tag("components/navigation.html", takes_context=True)
def navigation(context: Context) -> dict[str, Any]:
    """Return navigation links for the user of this request, except links to apps that are not installed."""
    links = []
    by_invitation = visit_open(context) is not None
    user = context.get("user")
    is_known = user is not None and user.is_authenticated and not by_invitation
    can = permissions_anywhere(user) if is_known else frozenset()
    for name, text in _links(user, by_invitation, can):
        try:
            links.append(Link(reverse(name), text))
        except NoReverseMatch:
            continue
    brand = {"name": settings.SITE_NAME, "has_logo": bool(settings.SITE_LOGO)}
    return {
        "brand": brand,
        "links": links,
        "can_search": bool(can),
        "study": context.get("study"),
        "state": context.get("state_of_study"),
        "searched": context.get("words", ""),
        "by_invitation": by_invitation,
        **{key: context.get(key) for key in ("user", "request")},
    }


# --- A study's texts, and sentences about another person --------------------------------------------------------------


@register.filter
def text_of(study: Study, field: str) -> SafeString | str:
    """Return a study's text for the reader, marked with its language if that differs from the page's."""
    return text_in(study, field)


@register.simple_tag
def text_in(study: Study, field: str, language: str | None = None) -> SafeString | str:
    """Return a study's text in a language that readers chose, by default their own."""
    text = study_text(study, field, language)
    if text.language == get_language():
        return text.text
    return format_html('<span lang="{}">{}</span>', text.language, text.text)


@register.filter
def words_of(study: Study, field: str) -> str:
    """Return a study's text for the reader, for places without markup: page titles, emails, addresses."""
    return study_text(study, field).text


@register.filter
def contact_of(study: Study) -> str:
    """Return the study's contact for holders as plain text, for emails and letters."""
    return contact_text(study)


@register.filter
def together_of(study: Study) -> str:
    """Return the partners that a study learns with, and the data shared with them; empty if it learns on its own."""
    return together(study.alliance)


class Translate(TranslateNode):
    """Node of the tag ``translate``. Variables are translated as by Django."""

    def render(self, context: Context) -> SafeString | str:
        text = getattr(self.filter_expression.var, "literal", None)
        third = None
        if isinstance(text, str) and not self.noop and self.message_context is None:
            third = third_person(text.replace("%", "%%"))
        if third is None:
            return super().render(context)
        expression = copy(self.filter_expression)
        expression.var, expression.is_var = mark_safe(third), False  # noqa: S308 – the name in it is escaped
        value = render_value_in_context(expression.resolve(context), context).replace("%%", "%")
        value = mark_safe(value)  # noqa: S308 – as the text was, or escaped by the line above
        if self.asvar:
            context[self.asvar] = value
            return ""
        return value


class BlockTranslate(BlockTranslateNode):
    """Node of the tag ``blocktranslate``."""

    def render_token_list(self, tokens: Any) -> tuple[str, list[str]]:
        text, names = super().render_token_list(tokens)
        third = third_person(text) if self.message_context is None else None
        return text if third is None else third, names


@register.tag("translate")
def translate(parser: Parser, token: Token) -> Translate:
    node = do_translate(parser, token)
    return Translate(node.filter_expression, node.noop, node.asvar, node.message_context)


@register.tag("blocktranslate")
def blocktranslate(parser: Parser, token: Token) -> BlockTranslate:
    node = do_block_translate(parser, token)
    return BlockTranslate(
        node.extra_context,
        node.singular,
        node.plural,
        node.countervar,
        node.counter,
        node.message_context,
        trimmed=node.trimmed,
        asvar=node.asvar,
        tag_name=node.tag_name,  # type: ignore[attr-defined]
    )
