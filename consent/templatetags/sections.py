"""Template tag for sections of a page, each with the heading that names it."""

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_block_tag
def section(content: str, name: str, heading: str, kind: str = "stack", level: int = 2) -> SafeString:
    """A section with the id ``name`` of its heading; ``kind`` are its classes, ``level`` is that of the heading.

    Of the kind ``fold`` it is closed at first. ``name`` is then the id of what it holds: a link to that opens it.
    """
    if kind == "fold":
        title = format_html('<h{} id="{}-heading">{}</h{}>', level, name, heading, level)
        opening = format_html('<details class="fold" id="{}-fold"><summary>{}</summary>', name, title)
        return format_html('{}<div class="stack" id="{}">{}</div></details>', opening, name, content)
    opening = format_html('<section class="{}" aria-labelledby="{}">', kind, name)
    return format_html('{}<h{} id="{}">{}</h{}>{}</section>', opening, level, name, heading, level, content)
