"""Page of all staff accounts and of changes to them, for administrators."""

from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Q
from django.db.models.functions import Lower
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from common.templatetags.components import component_render
from consent.models import AccountChange
from consent.services import accounts
from ipate_web.accounts.views import administrator_page
from ipate_web.lists import (
    Column,
    Filter,
    Listing,
    SiteReader,
    actor_column,
    day,
    day_filters,
    piece,
    time_column,
    user_filter,
)
from ipate_web.staff.pages import Section


def _words(text: str) -> Q:
    condition = Q()
    for word in text.split():
        condition &= (
            Q(username__icontains=word)
            | Q(first_name__icontains=word)
            | Q(last_name__icontains=word)
            | Q(email__icontains=word)
        )
    return condition


def _account_state(state: str) -> Q:
    match state:
        case "administrator":
            return Q(administrator__isnull=False)
        case "closed":
            return Q(is_active=False)
    return Q(last_login=None, is_active=True)


def _actions(person: User, reader: Any) -> SafeString:
    return component_render("account_actions", row=person, reader=reader.user)


ACCOUNTS = Listing(
    columns=(
        Column(
            "username",
            gettext_lazy("User name"),
            piece("account_name"),
            orders={"username": (gettext_lazy("user name"), Lower("username").asc())},
            is_head=True,
        ),
        Column("name", gettext_lazy("Name"), lambda person, _reader: person.get_full_name(), is_minor=True),
        Column("email", gettext_lazy("Email address"), lambda person, _reader: person.email, is_minor=True),
        Column(
            "seen",
            gettext_lazy("Last sign-in"),
            lambda person, _reader: day(person.last_login, _("never")),
            orders={
                "-seen": (gettext_lazy("last sign-in, newest first"), F("last_login").desc(nulls_last=True)),
                "seen": (gettext_lazy("last sign-in, oldest first"), F("last_login").asc(nulls_first=True)),
            },
        ),
        Column(
            "actions",
            gettext_lazy("Actions"),
            _actions,
            kind="row-actions",
            is_silent=True,
        ),
    ),
    filters=(
        Filter("search", _words, gettext_lazy("Name or email address"), longest=200),
        Filter(
            "state",
            _account_state,
            gettext_lazy("State"),
            choices=(
                ("administrator", gettext_lazy("administrator")),
                ("closed", gettext_lazy("closed")),
                ("new", gettext_lazy("never signed in")),
            ),
        ),
    ),
    ties=("username",),
    default="username",
)

CHANGES = Listing(
    columns=(
        time_column("when", gettext_lazy("When"), "changed_at"),
        actor_column("account", gettext_lazy("Account"), "user", is_head=True),
        Column("change", gettext_lazy("Change"), lambda change, _reader: change.get_kind_display()),
        actor_column("by", gettext_lazy("Done by"), "changed_by", nobody=gettext_lazy("at the command line")),
    ),
    filters=(
        user_filter("account", "user", gettext_lazy("Account")),
        Filter("kind", "kind", gettext_lazy("Change"), choices=AccountChange.Kind.choices),
        user_filter("by", "changed_by", gettext_lazy("Done by")),
        *day_filters("changed_at"),
    ),
    ties=("-sequence",),
    default="-when",
    prefetched=("user", "changed_by"),
)


@require_safe
@administrator_page
def staff_accounts(request: HttpRequest) -> HttpResponseBase:
    """List staff accounts or the changes to them, but never accounts of data holders."""
    changes = request.GET.get("record") == "changes"
    reader, page = SiteReader(request.user), reverse("staff_accounts")
    found = (
        CHANGES.page(request, accounts.account_changes(), reader)
        if changes
        else ACCOUNTS.page(request, accounts.staff(), reader)
    )
    if file := found.file("changes" if changes else "accounts"):
        return file
    tabs = [Section(page, _("Accounts"), not changes), Section(f"{page}?record=changes", _("Changes"), changes)]
    context = {"list": found, "changes": changes, "tabs": tabs}
    status = 422 if found.form.errors else 200
    return render(request, "accounts/staff_accounts.html", context, status=status)
