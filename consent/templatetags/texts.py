"""Tags and filters for texts: a study's statements about itself, and sentences about another person.

The tags ``translate`` and ``blocktranslate`` are Django's. Inside :func:`consent.wording.third_person.in_third_person`
they use a text's third person, if it has one.
"""

from copy import copy
from typing import Any

from django import template
from django.template import Context
from django.template.base import Parser, Token, render_value_in_context
from django.templatetags.i18n import BlockTranslateNode, TranslateNode, do_block_translate, do_translate
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language

from consent.models import Study
from consent.wording.facts import contact_text, study_text, together
from consent.wording.third_person import third_person

register = template.Library()


@register.filter
def text_of(study: Study, field: str) -> SafeString | str:
    """Text of a study for the reader, marked with its language if that differs from the page's."""
    return text_in(study, field)


@register.simple_tag
def text_in(study: Study, field: str, language: str | None = None) -> SafeString | str:
    """Text of a study in a language that the reader chose; their own by default."""
    text = study_text(study, field, language)
    if text.language == get_language():
        return text.text
    return format_html('<span lang="{}">{}</span>', text.language, text.text)


@register.filter
def words_of(study: Study, field: str) -> str:
    """Text of a study for the reader, for places without markup: titles of pages, mails, addresses."""
    return study_text(study, field).text


@register.filter
def contact_of(study: Study) -> str:
    """Contact for holders, for places without markup: mails and letters."""
    return contact_text(study)


@register.filter
def together_of(study: Study) -> str:
    """Partners with whom a study learns, and what leaves it for that; empty if it learns on its own."""
    return together(study.alliance)


class Translate(TranslateNode):
    """Text in one line; a variable is translated as Django does."""

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
    """Text with values."""

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
