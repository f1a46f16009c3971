"""The tags ``translate`` and ``blocktranslate`` of Django, with texts that speak about a person where they should.

Within :func:`consent.wording.third_person.in_third_person` a text that has a third person is said in it.
"""

from copy import copy
from typing import Any

from django import template
from django.template import Context
from django.template.base import Parser, Token, render_value_in_context
from django.templatetags.i18n import BlockTranslateNode, TranslateNode, do_block_translate, do_translate
from django.utils.safestring import SafeString, mark_safe

from consent.wording.third_person import third_person

register = template.Library()


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
        tag_name=node.tag_name,
    )
