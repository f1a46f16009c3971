"""Template filters for the numbers of charts."""

from django import template

from ipate_web.staff.templatetags.run_words import localised

register = template.Library()


@register.filter
def significant(number: float | None) -> str:
    """Number with four significant digits and the reader's decimal separator; a dash for a gap."""
    return "–" if number is None else localised(f"{number:.4g}")
