"""Template tag for tables, which scroll sideways on a narrow screen, by keyboard, too."""

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

register = template.Library()


@register.simple_block_tag
def table(content: str, label: str = "", labelledby: str = "", kind: str = "") -> SafeString:
    """Rows in a table in a region that has a name: `label`, or the text of the element with the id `labelledby`.

    On a phone columns whose head has the class `less` are left out until *All columns* is ticked (components.css).
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
