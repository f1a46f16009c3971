"""Pages of the installation itself: its logo, privacy notice, accessibility statement, and the documents.

Privacy notice and accessibility statement come with the software and hold for it as it is. An installation that has
more to say puts Markdown files into the folder ``settings.SITE_PAGES``, one for each page and language, such as
``privacy.de.md``.
"""

from pathlib import Path

from django.conf import settings
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.safestring import SafeString
from django.utils.translation import get_language
from django.views.decorators.http import require_safe
from django.views.static import serve

from common import __version__
from consent.wording.rendering import markdown_html

_LOGOS = {".svg": "image/svg+xml", ".png": "image/png"}


def own_text(name: str) -> tuple[SafeString, str] | None:
    """The installation's own text of a page and its language: the reader's, or the site's first; None without one."""
    for language in (get_language() or "", settings.LANGUAGE_CODE):
        path = Path(settings.SITE_PAGES, f"{name}.{language.split('-')[0]}.md")
        if settings.SITE_PAGES and path.is_file():
            return markdown_html(path.read_text(encoding="utf-8")), language
    return None


def _page(request: HttpRequest, name: str) -> HttpResponse:
    own = own_text(name)
    context = {
        "own": own[0] if own else None,
        "own_language": own[1] if own else None,
        "site_operator": settings.SITE_OPERATOR,
        "site_contact": settings.SITE_CONTACT,
        "backup_days": settings.BACKUP_DAYS,
        "version": __version__,
    }
    return render(request, f"site/{name}.html", context)


@require_safe
def privacy(request: HttpRequest) -> HttpResponse:
    """Tell what the site itself stores about whoever uses it; open to everybody."""
    return _page(request, "privacy")


@require_safe
def accessibility(request: HttpRequest) -> HttpResponse:
    """Tell how accessible the site is and where to report a barrier; open to everybody."""
    return _page(request, "accessibility")


@require_safe
def logo(request: HttpRequest) -> FileResponse:
    """The installation's logo; 404 without one."""
    if not settings.SITE_LOGO:
        raise Http404
    path = Path(settings.SITE_LOGO)
    response = FileResponse(path.open("rb"), content_type=_LOGOS[path.suffix])
    response["Cache-Control"] = "public, max-age=3600"
    return response


@require_safe
def documents(request: HttpRequest, path: str = "index.html") -> HttpResponseBase:
    """A file of the site of documents; 404 where ``make docs`` has not built it."""
    return serve(request, path, document_root=str(settings.DOCUMENTS))
