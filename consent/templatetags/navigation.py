"""Template tags of the frame of all pages: the site's navigation, limited to what the user may open; headings."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django import template
from django.conf import settings
from django.template import Context
from django.template.loader_tags import BLOCK_CONTEXT_KEY
from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from consent.models import DataHolder
from consent.permissions import administers, permissions_anywhere
from consent.views.visits import Visit, visit_of
from consent.wording.glossary import WORDS, WORDS_OF_STAFF

register = template.Library()


@dataclass(frozen=True)
class Link:
    url: str
    text: str | Promise


def _links(user: Any, by_invitation: bool, can: Collection[str]) -> list[tuple[str, str | Promise]]:
    if by_invitation:
        return [("consent:my_studies", _("My studies"))]
    if user is None or not user.is_authenticated:
        return [("account_login", _("Sign in"))]
    names: list[tuple[str, str | Promise]] = []
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
    """Name of the installation."""
    return settings.SITE_NAME


@register.simple_tag
def has_documents() -> bool:
    """Whether the installation has the site of documents."""
    return (settings.DOCUMENTS / "index.html").is_file()


@register.simple_tag
def words_of(keys: str) -> list[tuple[str, str | Promise, str | Promise]]:
    """Return the words with these keys, divided by spaces: key, word, meaning."""
    known = WORDS | WORDS_OF_STAFF
    return [(key, *known[key]) for key in keys.split()]


@register.inclusion_tag("components/words.html")
def words(keys: str) -> dict[str, Any]:
    """The words with these keys, divided by spaces, each with a pop-up that says what it means."""
    return {"words": words_of(keys)}


@register.simple_tag(takes_context=True)
def block_text(context: Context, name: str) -> str:
    """What a page fills the block ``name`` with, for a second place: a block itself stands in one."""
    return context.render_context[BLOCK_CONTEXT_KEY].get_block(name).render(context)


@register.simple_tag(takes_context=True)
def visit_open(context: Context) -> Visit | None:
    """The visit by invitation of this request that is not over, or None."""
    request = context.get("request")
    visit = visit_of(request) if request is not None and hasattr(request, "user") else None
    return visit if visit is not None and not visit.is_over else None


@register.inclusion_tag("components/navigation.html", takes_context=True)
def navigation(context: Context) -> dict[str, Any]:
    """Navigation links for the user of this request; those to apps that are not installed are left out."""
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
        "searched": context.get("words", ""),
        "by_invitation": by_invitation,
        **{key: context.get(key) for key in ("user", "request")},
    }
