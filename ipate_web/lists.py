"""Lists, each described once. Query, order, filters, cells, CSV and API parameters all follow from the description."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any

from django import forms
from django.core.exceptions import ObjectDoesNotExist
from django.core.paginator import Page, Paginator
from django.db.models import F, Q, QuerySet
from django.forms.boundfield import BoundField
from django.forms.renderers import Jinja2
from django.http import HttpRequest, QueryDict, StreamingHttpResponse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.functional import Promise
from django.utils.html import conditional_escape, format_html, strip_tags
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from common.spreadsheets import csv_pieces
from common.templatetags.components import component_render
from common.templatetags.moments import moment
from consent.models import Study
from ipate_web.accounts.models import SavedList

Text = str | Promise
SIZES = (20, 50, 100, 200)
"""Allowed numbers of rows on a page of a list."""
#: Fields of the form that do not filter rows. ``record`` names one of the lists of a page.
_LAYOUT = {"sort", "columns", "size", "record"}


class DayInput(forms.DateInput):
    """Widget for a day that uses the browser's calendar."""

    def __init__(self) -> None:
        super().__init__(attrs={"type": "date"}, format="%Y-%m-%d")


class DayField(forms.DateField):
    """Field for a day that uses the browser's calendar."""

    widget = DayInput


class FilterForm(forms.Form):
    """Form above a list. Malformed values are reported and ignored."""

    use_required_attribute = False
    #: Jinja renders long lists of choices several times as fast as Django's own templates do.
    default_renderer = Jinja2()

    def chosen(self) -> dict[str, Any]:
        """Return the valid values that are not empty."""
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}

    @property
    def narrows(self) -> bool:
        """Whether a filter is set, so that the list may omit rows."""
        return bool(self.chosen().keys() - _LAYOUT)

    @property
    def first(self) -> BoundField | None:
        """The field for search words, which is next to the list. Other fields are folded."""
        return self["search"] if "search" in self.fields else None

    @property
    def others(self) -> list[BoundField]:
        """All other fields."""
        return [each for each in self.visible_fields() if each.name != "search"]

    @property
    def narrowed_by(self) -> list[tuple[str, str]]:
        """Label and value of each filter that is set."""
        found = []
        for name, value in self.chosen().items():
            if name not in _LAYOUT:
                field = self.fields[name]
                offered: dict[Any, Any] = dict(field.choices) if isinstance(field, forms.ChoiceField) else {}  # type: ignore[arg-type]
                found.append((str(field.label), str(offered.get(value, value))))
        return found


@dataclass(frozen=True)
class Reader:
    """Reader of a list: the study of its page, and the reader's permissions there."""

    study: Study
    can: Collection[str] = ()


class SiteReader(Reader):
    """Reader of a list that belongs to no study: the user."""

    def __init__(self, user: Any) -> None:
        super().__init__(study=None)  # type: ignore[arg-type]
        object.__setattr__(self, "user", user)


@dataclass(frozen=True)
class Filter:
    """A filter of a list.

    Attributes:
        name: Parameter in URLs of pages and of the API.
        condition: Lookup that must equal the value, or a function from the value to a condition.
        label: Label on the page; without it, only the API has the filter.
        help: Description in the API.
        choices: Permitted values with their labels.
        options: Function from all rows and their reader to the values and labels that the page offers; the API accepts
            any text.
        longest: Maximum length of a text.
        kind: ``text``, ``day`` or ``slug``.
        is_private: Whether its value is kept out of URLs, and so of logs and browser histories, because it may name
            people.
    """

    name: str
    condition: str | Callable[[Any], Q]
    label: Text = ""
    help: str = ""
    choices: Sequence[tuple[str, Any]] = ()
    options: Callable[[QuerySet, Reader], Collection[tuple[str, Any]]] | None = None
    longest: int | None = None
    kind: str = "text"
    is_private: bool = False

    def q(self, value: Any) -> Q:
        """Return the condition on rows for a value."""
        return self.condition(value) if callable(self.condition) else Q(**{self.condition: value})

    def form_field(self, rows: QuerySet, reader: Reader) -> forms.Field:
        """Return the filter's field for the page of a list of ``rows``."""
        shared: dict[str, Any] = {"label": self.label, "required": False}
        if self.choices or self.options:
            named = [(value, capfirst(str(label))) for value, label in self.choices]
            return forms.ChoiceField(
                choices=[("", _("all")), *(self.options(rows, reader) if self.options else named)], **shared
            )
        if self.kind == "day":
            return DayField(**shared)
        words = forms.TextInput(attrs={"placeholder": self.label})
        return forms.CharField(max_length=self.longest, widget=words, **shared)

    def parameter(self) -> serializers.Field:
        """Return the filter's field for the API's parameters."""
        shared: dict[str, Any] = {"required": False, "help_text": self.help or None}
        if self.choices:
            return serializers.ChoiceField(self.choices, **shared)
        match self.kind:
            case "day":
                return serializers.DateField(**shared)
            case "slug":
                return serializers.SlugField(**shared)
        return serializers.CharField(max_length=self.longest, **shared)


@dataclass(frozen=True)
class Column:
    """A column of a list.

    Attributes:
        name: Name in URLs.
        title: Heading.
        cell: Function that returns the content of a cell, given a row and its reader; it is escaped unless marked safe.
        fields: Fields of the model that ``cell`` reads. The query loads only the fields of visible columns.
        values: Expressions computed by the query for ``cell``, by attribute name.
        orders: Orders by this column, each with a name, a label and an expression for the query.
        text: Content of a cell in a file; by default the text of ``cell``.
        kind: Classes of its cells, such as ``number``, or ``below`` for long values, which phones show below the row.
        is_minor: Whether small screens hide it.
        is_silent: Whether only screen readers get the column's heading; files omit the column.
        is_head: Whether its cells are the row headings.
        is_for: Function that returns whether a reader gets the column.
    """

    name: str
    title: Text
    cell: Callable[[Any, Reader], Any]
    fields: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    orders: Mapping[str, tuple[Text, Any]] = field(default_factory=dict)
    text: Callable[[Any, Reader], object] | None = None
    kind: str = ""
    is_minor: bool = False
    is_silent: bool = False
    is_head: bool = False
    is_for: Callable[[Any], bool] = lambda _reader: True

    @property
    def classes(self) -> str:
        """Classes of its heading, with ``less`` first (see the tag ``table``)."""
        shared = [each for each in self.kind.split() if each in ("number", "below")]
        return " ".join(["less"] * self.is_minor + shared)

    @property
    def tags(self) -> tuple[str, str]:
        """Tags around its cells."""
        if self.is_head:
            return '<th scope="row">', "</th>"
        return f'<td class="{self.kind}">' if self.kind else "<td>", "</td>"

    def content(self, row: Any, reader: Reader) -> object:
        """Return the content of a cell in a file."""
        if self.text is not None:
            return self.text(row, reader)
        cell = self.cell(row, reader)
        return cell if isinstance(cell, int | float) else " ".join(strip_tags(str(cell)).split())


def piece(component: str) -> Callable[[Any, Reader], SafeString]:
    """Return a cell rendered by a component, which may declare ``row``, ``study`` and ``can`` as arguments."""

    def cell(row: Any, reader: Reader) -> SafeString:
        return component_render(component, row=row, study=reader.study, can=reader.can)

    return cell


def day(moment: datetime | None, never: Text = "–") -> SafeString | Text:
    """Return a cell with the date of a time in the reader's time zone."""
    if moment is None:
        return never
    local = timezone.localtime(moment)
    return format_html('<time datetime="{}">{}</time>', local.isoformat(), date_format(local, "SHORT_DATE_FORMAT"))


def day_column(name: str, title: Text, field: str, *, never: Text = "–", **about: Any) -> Column:
    """Return the column with the date of a time field; ``never`` is shown for an empty field."""
    return Column(name, title, lambda row, _reader: day(getattr(row, field), never), fields=(field,), **about)


def newest_or_oldest(name: str, field: str) -> dict[str, tuple[Text, Any]]:
    """Return the orders of a column by a field whose values grow with time."""
    return {
        f"-{name}": (_("newest first"), F(field).desc()),
        name: (_("oldest first"), F(field).asc()),
    }


def time_column(name: str, title: Text, field: str, **about: Any) -> Column:
    """Return the column with the date and time of a field, which can be sorted."""
    orders = newest_or_oldest(name, field)
    return Column(name, title, lambda row, _reader: moment(getattr(row, field)), orders=orders, **about)


def account(row: Any, field: str, nobody: Text = "–") -> object:
    """Return the user of a field, by number if the account has been deleted, or ``nobody``."""
    with suppress(ObjectDoesNotExist):
        if user := getattr(row, field):
            return user
    number = getattr(row, f"{field}_id")
    return gettext("deleted account %(number)s") % {"number": number} if number else nobody


def actor_column(name: str, title: Text, field: str, nobody: Text = "–", **about: Any) -> Column:
    """Return the column with the user of a field, even if the account has been deleted."""
    return Column(name, title, lambda row, _reader: account(row, field, nobody), **about)


def user_filter(name: str, field: str, label: Text, help: str = "") -> Filter:
    """Return the filter by the user of a field, which offers the users of all rows."""
    path = f"{field}__username"

    def users(rows: QuerySet, _reader: Reader) -> list[tuple[str, str]]:
        names = rows.order_by(path).values_list(path, flat=True).distinct()
        return [(name, name) for name in names if name]

    return Filter(name, path, label, help, options=users, longest=150)


def day_filters(field: str) -> tuple[Filter, Filter]:
    """Return filters by the first and the last day of a time field."""
    return (
        Filter("since", f"{field}__date__gte", _("From"), kind="day"),
        Filter("until", f"{field}__date__lte", _("Until"), kind="day"),
    )


def action_link(address: str, text: str, of: object) -> SafeString:
    """Return a cell with a link to the actions for a row; screen readers get the row's name."""
    return format_html('<a href="{}">{}<span class="visually-hidden">: {}</span></a>', address, text, of)


@dataclass(frozen=True)
class Listing:
    """Description of a list.

    Attributes:
        columns: Its columns, from left to right.
        filters: Its filters.
        ties: Order of rows that would otherwise be equal, or of all rows if there is no ``default``.
        default: Name of the initial order.
        fields: Fields that are loaded for any choice of columns.
        prefetched: Relations that are loaded by separate queries.
        size: Initial number of rows per page.
        prepare: Function from some rows to the objects that cells get, which may look up several rows at once.
    """

    columns: tuple[Column, ...]
    filters: tuple[Filter, ...] = ()
    ties: tuple[Any, ...] = ("pk",)
    default: str = ""
    fields: tuple[str, ...] = ()
    prefetched: tuple[str, ...] = ()
    size: int = 50
    prepare: Callable[[list[Any]], Iterable[Any]] = lambda rows: rows

    @cached_property
    def orders(self) -> dict[str, tuple[Text, Any]]:
        """All orders by name, each with label and expression, starting with the default's column."""
        columns = sorted(self.columns, key=lambda column: self.default not in column.orders)
        return {name: order for column in columns for name, order in column.orders.items()}

    def select(self, rows: QuerySet, *, sort: str = "", **chosen: Any) -> QuerySet:
        """Return the rows that match all filter values, with all computed values, in the chosen order."""
        for each in self.filters:
            if value := chosen.get(each.name):
                rows = rows.filter(each.q(value))
        sort = sort or self.default
        order = [self.orders[sort][1]] if sort else []
        values = {name: value for column in self.columns for name, value in column.values.items()}
        return rows.annotate(**values).order_by(*order, *self.ties)

    def _shown(self, reader: Reader) -> list[Column]:
        return [column for column in self.columns if column.is_for(reader)]

    def table(self, rows: QuerySet, reader: Reader, names: Collection[str] = ()) -> "Table":
        """Return rows from `select` as a table of the named columns or of all columns; load only the fields needed."""
        columns = [
            column
            for column in self._shown(reader)
            if not names or column.name in names or column.is_head or column.is_silent
        ]
        fields = {*self.fields, *(name for column in columns for name in column.fields)}
        related = {name.rpartition("__")[0] for name in fields} - {""}
        rows = rows.select_related(*sorted(related)) if related else rows
        rows = rows.only(*sorted(fields | related)) if fields else rows
        return Table(columns, rows.prefetch_related(*self.prefetched), reader, self.prepare)

    def form(self, data: QueryDict, rows: QuerySet, reader: Reader) -> FilterForm:
        """Return the form above the list: filters, order, columns, and rows per page."""
        fields = {each.name: each.form_field(rows, reader) for each in self.filters if each.label}
        if self.orders:
            orders = [("" if name == self.default else name, label) for name, (label, _order) in self.orders.items()]
            fields["sort"] = forms.ChoiceField(label=_("Order"), required=False, choices=orders)
        titles = [(each.name, each.title) for each in self._shown(reader) if not each.is_silent and not each.is_head]
        fields["columns"] = forms.MultipleChoiceField(
            label=_("Columns"),
            required=False,
            choices=titles,
            widget=forms.CheckboxSelectMultiple,
            help_text=_("If you choose none, all are shown."),
        )
        sizes = [("" if size == self.size else str(size), str(size)) for size in sorted({*SIZES, self.size})]
        fields["size"] = forms.ChoiceField(label=_("Rows per page"), required=False, choices=sizes)
        if "record" in data:
            fields["record"] = forms.SlugField(required=False, widget=forms.HiddenInput)
        if self.default and data.get("sort") == self.default:
            data = data.copy()
            data["sort"] = ""
        # The page may have another form with a field of the same name.
        return type("ListForm", (FilterForm,), fields)(data, auto_id="list_%s")

    def page(self, request: HttpRequest, rows: QuerySet, reader: Reader) -> "ListPage":
        """Return the page of the list that a request asks for."""
        return ListPage(self, request, rows, reader)

    def parameters(self, name: str, usual: str) -> type[serializers.Serializer]:
        """Return the API's filter and order parameters as a serializer class. ``usual`` describes the default order."""
        fields: dict[str, Any] = {each.name: each.parameter() for each in self.filters}
        fields["sort"] = serializers.ChoiceField(list(self.orders), required=False, help_text=usual)
        return type(name, (serializers.Serializer,), fields)


#: URL parameter that refers to values in the session.
_KEPT = "kept"


def choices_keep(request: HttpRequest, page: str, private: str) -> str:
    """Return the URL of a page with the posted choices, except a ``private`` choice, which is kept in the session.

    The session keeps the private choice of one page at a time.
    """
    sent = request.POST.copy()
    value = sent.pop(private, [""])[-1][:200]
    for name in ("csrfmiddlewaretoken", "page"):
        sent.pop(name, None)
    request.session[_KEPT] = {"page": page, "values": {private: value}}
    if value:
        sent[_KEPT] = "1"
    return f"{page}?{listed_query(sent)}"


def choices_kept(request: HttpRequest) -> dict[str, str]:
    """Return the private choices that the session keeps for the page, if the page's URL refers to them."""
    kept = request.session.get(_KEPT, {}) if _KEPT in request.GET else {}
    return dict(kept["values"]) if kept.get("page") == request.path else {}


def listed_query(sent: QueryDict) -> str:
    """Return the query part of a list's URL, without the page number and empty values."""
    kept = sent.copy()
    for name in ("page", "format"):
        kept.pop(name, None)
    for name in [name for name, values in kept.lists() if not any(values)]:
        del kept[name]
    return kept.urlencode()


class Table:
    """Rows of a list in columns."""

    def __init__(
        self,
        columns: Sequence[Column],
        objects: QuerySet,
        reader: Reader,
        prepare: Callable[[list[Any]], Iterable[Any]] = lambda rows: rows,
    ) -> None:
        self.columns, self.objects, self.reader, self.prepare = columns, objects, reader, prepare

    @property
    def headings(self) -> list[tuple[Column, str, str]]:
        """Columns, each with the order that its heading links to and its current sort direction (may be empty)."""
        return [(column, "", "") for column in self.columns]

    def rendered(self, rows: Iterable[Any]) -> list[SafeString]:
        """Return the cells of the given rows as HTML. A template would take twice as long to render them."""
        around = [each.tags for each in self.columns]
        try:
            return [
                mark_safe(  # noqa: S308, the cells are escaped
                    "".join(
                        f"{start}{conditional_escape(column.cell(row, self.reader))}{end}"
                        for column, (start, end) in zip(self.columns, around, strict=True)
                    )
                )
                for row in self.prepare(list(rows))
            ]
        except ObjectDoesNotExist as error:  # a template would show an empty list
            raise RuntimeError("A cell refers to a missing row.") from error

    @cached_property
    def rows(self) -> list[SafeString]:
        """The cells of each row."""
        return self.rendered(self.objects)

    def csv(self) -> Iterator[str]:
        """Yield all rows as CSV."""
        columns = {str(column.title): column for column in self.columns if not column.is_silent}
        rows = self.objects.iterator(chunk_size=1000)
        chunks = iter(lambda: self.prepare(list(islice(rows, 1000))), [])
        cells = (
            {name: column.content(row, self.reader) for name, column in columns.items()}
            for chunk in chunks
            for row in chunk
        )
        return csv_pieces(list(columns), cells)


class ListPage(Table):
    """The requested page of a list, with the form above it.

    Attributes:
        form: Filters, order, columns, and rows per page.
        chosen: Valid values of the form.
        page: The page.
        is_private: Whether its form is posted, so that no choice appears in a URL.
    """

    def __init__(self, listing: Listing, request: HttpRequest, rows: QuerySet, reader: Reader) -> None:
        sent: QueryDict = request.GET
        private = [each.name for each in listing.filters if each.is_private]
        if private:
            sent = sent.copy()
            kept = choices_kept(request)
            for name in private:
                sent[name] = kept.get(name, "")
        self.is_private = bool(private)
        self.form = listing.form(sent, rows, reader)
        self.chosen = self.form.chosen()
        values = {name: value for name, value in self.chosen.items() if name not in ("columns", "size")}
        table = listing.table(listing.select(rows, **values), reader, self.chosen.get("columns", ()))
        super().__init__(table.columns, table.objects, reader, listing.prepare)
        self.sort = values.get("sort", listing.default)
        size = int(self.chosen.get("size", listing.size))
        self.page: Page = Paginator(self.objects, size).get_page(request.GET.get("page"))
        self._request = request

    @property
    def headings(self) -> list[tuple[Column, str, str]]:
        found = []
        for column in self.columns:
            names = list(column.orders)
            place = names.index(self.sort) if self.sort in names else -1
            direction = "" if place < 0 else "descending" if self.sort.startswith("-") else "ascending"
            found.append((column, names[(place + 1) % len(names)] if names else "", direction))
        return found

    @cached_property
    def rows(self) -> list[SafeString]:
        return self.rendered(self.page)

    @property
    def address(self) -> str:
        """Name of the URL of its page."""
        match = self._request.resolver_match
        return (match and match.url_name) or ""

    @property
    def query(self) -> str:
        """Return the choices as query parameters; empty for the default choices."""
        return listed_query(self._request.GET)

    @property
    def whole(self) -> str:
        """URL of the list without choices; empty if there are none."""
        record = self.chosen.get("record")
        query = f"record={record}" if record else ""
        return f"{self._request.path}?{query}" if self.query != query or self.form.narrows else ""

    @property
    def can_be_saved(self) -> bool:
        """Whether the reader can save choices of this list."""
        return not self.is_private and self.reader.study is not None

    @property
    def saved(self) -> QuerySet[SavedList]:
        """Return the choices that the reader has saved for this list."""
        if self.reader.study is None:
            return SavedList.objects.none()
        return SavedList.objects.filter(user=self._request.user.pk, study=self.reader.study, page=self.address)

    def file(self, name: str) -> StreamingHttpResponse | None:
        """Return all rows as a CSV file, if the request asks for one."""
        if self._request.GET.get("format") != "csv":
            return None
        headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
        return StreamingHttpResponse(self.csv(), content_type="text/csv; charset=utf-8", headers=headers)
