"""Shared parts of a study's pages: permission check, navigation, pagination, and links to the documents."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.text import slugify
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from common.requests import SignedInRequest
from common.requests import faults_in as faults_in
from common.templatetags.components import capfirst
from consent.models import Study
from consent.permissions import SEES_PEOPLE, study_permissions
from consent.selectors import is_asking
from consent.templatetags.elements import has_documents
from training.models import Run
from training.watch import Watch, budget_is_low, watch_of

PAGE_SIZE = 50

#: The pages of a study in groups: URL name, title, and the permission required to see the link.
_GROUPS: tuple[tuple[Promise, tuple[tuple[str, Promise, str], ...]], ...] = (
    (
        pgettext_lazy("group of pages", "Learn"),
        (
            ("staff:study", _("Overview"), "training.view_run"),
            ("staff:runs", _("Runs"), "training.view_run"),
            ("staff:models", _("Models"), "training.view_run"),
            ("staff:datasets", _("Datasets"), "consent.view_dashboard"),
            ("staff:alliances", _("Alliances"), "consent.view_dashboard"),
        ),
    ),
    (
        pgettext_lazy("group of pages", "People"),
        (
            ("staff:recruitment", _("Recruitment"), "consent.view_group_sizes"),
            ("staff:invitations", _("Invitations"), "consent.invite_holders"),
            ("staff:letters", _("Letters"), "consent.invite_holders"),
        ),
    ),
    (
        pgettext_lazy("group of pages", "Rules"),
        (
            ("staff:policies", _("ε policy"), "consent.view_dashboard"),
            ("staff:consent_forms", _("Consent form"), "consent.view_dashboard"),
            ("staff:committee", _("Ethics committee"), "consent.view_dashboard"),
            ("staff:members", _("Roles"), "consent.view_dashboard"),
        ),
    ),
    (
        pgettext_lazy("group of pages", "Records"),
        (
            ("staff:ledger", _("Release register"), "accounting.view_ledger"),
            ("staff:ledger_check", _("Verification"), "accounting.view_ledger"),
            ("staff:changes", _("Changes"), "consent.view_configurationchange"),
            ("staff:webhooks", _("Webhooks"), "consent.manage_webhooks"),
        ),
    ),
)
#: Pages about people who are asked, and about promises to them. A rehearsal has no such pages.
_ABOUT_PEOPLE = {
    *("staff:recruitment", "staff:committee", "staff:policies", "staff:consent_forms", "staff:invitations"),
    *("staff:letters", "staff:ledger", "staff:ledger_check", "staff:alliances"),
}


@dataclass(frozen=True)
class Section:
    """Link in a study's navigation."""

    url: str
    text: str | Promise
    current: bool


@dataclass(frozen=True)
class Group:
    """Pages of a study that belong together."""

    name: str | Promise
    sections: list[Section]


def groups_of(study: Study, can: Collection[str], path: str) -> list[Group]:
    """Return the pages of ``study`` for a user with permissions ``can``; ``path`` is the current page's path."""
    shown = [
        (
            name,
            [
                (reverse(each, args=[study.slug]), text)
                for each, text, permission in pages
                if permission in can and not (study.rehearsal and each in _ABOUT_PEOPLE)
            ],
        )
        for name, pages in _GROUPS
    ]
    # Some paths begin with another page's path, so the longest match is the current page.
    here = max((url for _name, pages in shown for url, _text in pages if path.startswith(url)), key=len, default="")
    return [Group(name, [Section(url, text, url == here) for url, text in pages]) for name, pages in shown if pages]


@dataclass(frozen=True)
class StudyState:
    """State of a study for the header: a word or two, the kind of their badge, and warnings, each with a URL."""

    words: str
    kind: str
    warnings: list[tuple[str, str]]


def study_state(study: Study, watch: Watch | None) -> StudyState:
    """Return a study's state, with warnings if the reader may see its ``watch``. Takes at most two queries."""
    warnings = []
    if watch is not None:
        check = reverse("staff:ledger_check", args=[study.slug])
        warnings = [(text, check) for text in watch.warnings]
        if budget_is_low(study):
            overview = reverse("staff:study", args=[study.slug])
            warnings.append((capfirst(gettext("a privacy group has little of its budget left")), f"{overview}#budgets"))
    if study.is_closed:
        return StudyState(gettext("closed"), "", warnings)
    if study.rehearsal:
        return StudyState(gettext("rehearsal"), "", warnings)
    if watch is not None and watch.locked:
        return StudyState(gettext("locked"), "bad", warnings)
    if is_asking(study):
        return StudyState(gettext("asking people"), "live", warnings)
    return StudyState(gettext("in preparation"), "", warnings)


def study_page(permission: str) -> Callable[[Callable[..., HttpResponseBase]], Callable[..., HttpResponseBase]]:
    """Decorator for views of one study that require ``permission``; ``request.can`` has the user's other permissions.

    Other users get 404 if they have no role in the study, and 403 if they have a role.
    """

    def decorate(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        @never_cache
        @login_required
        @wraps(view)
        def wrapped(request: SignedInRequest, slug: str, **kwargs: Any) -> HttpResponseBase:
            study = get_object_or_404(Study, slug=slug)
            request.can = study_permissions(request.user, study)
            if permission not in request.can:
                if not request.can:
                    raise Http404
                raise PermissionDenied
            return view(request, study, **kwargs)

        return wrapped

    return decorate


def study_form(permission: str) -> Callable[[Callable[..., HttpResponseBase]], Callable[..., HttpResponseBase]]:
    """Decorator for views of one study that process a form. Otherwise like :func:`study_page`."""

    def decorate(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        return require_http_methods(["GET", "HEAD", "POST"])(study_page(permission)(view))

    return decorate


def number_sent(sent: QueryDict, name: str) -> int | None:
    """Return a whole number of at most ten digits from a form or URL; None if there is no such number."""
    text = sent.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


@contextmanager
def faults_show(request: SignedInRequest) -> Iterator[None]:
    """Show a service's errors at the top of the next page."""
    try:
        yield
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))


def render_page(
    request: SignedInRequest, study: Study, template: str, context: dict[str, Any], *, status: int | None = None
) -> HttpResponse:
    """Render a page of ``study``. The template has the user's permissions in ``can``.

    By default, ``status`` is 422 if the context's ``form`` is not valid, and 200 otherwise.
    """
    can = request.can
    page = (request.resolver_match.url_name if request.resolver_match else None) or ""
    rail = groups_of(study, can, request.path)
    overview = reverse("staff:study", args=[study.slug])
    up = [
        each for group in rail for each in group.sections if each.current and each.url not in {request.path, overview}
    ]
    shared: dict[str, Any] = {"study": study, "can": can, "rail": rail, "up": up, "help": help_address(page)}
    shared["page_words"] = HELP_WORDS.get(page, "")
    if "consent.view_dashboard" in can:
        shared["watch"] = watch_of(study, sees_all=SEES_PEOPLE in can)
    shared["state_of_study"] = study_state(study, shared.get("watch"))
    form = context.get("form")
    status = status or (422 if form is not None and form.errors else 200)
    return render(request, template, {**shared, **context}, status=status)


def paginate(request: SignedInRequest, rows: QuerySet, size: int = PAGE_SIZE) -> Page:
    """Return the requested page of ``rows``, or the nearest one that exists."""
    return Paginator(rows, size).get_page(request.GET.get("page"))


def file_name(run: Run) -> str:
    """Return the beginning of the names of a run's downloaded files."""
    return f"{run.study.slug}-{slugify(run.title) or run.pk}"


def streamed_attachment(
    study: Study, pieces: Callable[[Study], Iterator[str]] | None, name: str
) -> StreamingHttpResponse:
    """Stream a study's record as a download; 404 if ``pieces`` is None."""
    if pieces is None:
        raise Http404
    content_type = "application/json" if name.endswith(".json") else "text/csv; charset=utf-8"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(pieces(study), content_type=content_type, headers=headers)


def pdf_answer(content: bytes, name: str, *, is_saved: bool) -> HttpResponse:
    """Return a PDF to be saved under a name, or shown in the browser."""
    disposition = f'{"attachment" if is_saved else "inline"}; filename="{name}"'
    return HttpResponse(content, content_type="application/pdf", headers={"Content-Disposition": disposition})


def attachment(content: bytes | str, name: str, content_type: str) -> HttpResponse:
    """Return a file to be saved under a name."""
    return HttpResponse(
        content, content_type=content_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


#: Name of a URL → page in the documentation. Other staff pages use `HELP_ELSEWHERE`.
HELP_SECTIONS: Final = {
    "study_new": "install.html#first-steps-on-a-new-installation",
    "study": "roles.html",
    "study_edit": "install.html#first-steps-on-a-new-installation",
    "changes": "checkpoints.html",
    "members": "roles.html",
    "invitations": "consent.html#invitations",
    "letterhead": "consent.html#letters-on-paper",
    "letters": "consent.html#letters-on-paper",
    "link_new": "consent.html#invitations",
    "recruitment": "consent.html#what-data-stewards-see",
    "paper_consent": "operations.html#decisions-on-paper",
    "paper_list": "operations.html#decisions-on-paper",
    "circumstances": "consent.html#when-someone-else-answers",
    "receipt_check": "consent.html#afterwards",
    "disposals": "rights.html#erasure",
    "study_close": "rights.html#datasets-studies-retention",
    "consent_forms": "how-to/committee.html",
    "consent_form_new": "how-to/committee.html",
    "consent_form_facts": "rights.html#gdpr-point-by-point",
    "consent_form_publish": "how-to/committee.html",
    "committee": "how-to/committee.html",
    "policies": "consent.html#when-a-promise-changes",
    "policy_new": "consent.html#understanding",
    "policy_approve": "consent.html#when-a-promise-changes",
    "datasets": "importing.html#import-in-the-browser",
    "import_new": "importing.html#import-in-the-browser",
    "import": "importing.html#declare-the-columns",
    "encoders": "encoders.html#encoders",
    "dataset": "importing.html#declare-the-columns",
    "dataset_remove": "rights.html#datasets-studies-retention",
    "head_counts": "gaussian-accounts.html#conditions",
    "runs": "choosing-a-method.html",
    "run_new": "choosing-a-method.html",
    "run_edit": "choosing-a-method.html",
    "run_approve": "evaluation.html#forecasts",
    "run_compare": "evaluation.html#measures",
    "run": "evaluation.html",
    "run_tab": "evaluation.html",
    "run_student_new": "students.html#versions",
    "run_student_publish": "evaluation.html#publication",
    "run_student_withdraw": "rights.html#withdrawn-models",
    "run_result_withdraw": "rights.html#withdrawn-models",
    "models": "evaluation.html",
    "model": "evaluation.html#measures",
    "model_threshold": "evaluation.html#threshold",
    "model_stage": "api.html#threshold-and-stage",
    "ledger": "life-of-a-run.html#storage-of-charges",
    "ledger_check": "checkpoints.html#what-an-auditor-can-check",
    "webhooks": "webhooks.html",
}
HELP_ELSEWHERE: Final = "roles.html"
#: Name of a URL → keys of the terms in `consent.wording.glossary` that its page explains.
HELP_WORDS: Final = {
    "study": "policy cap share heads",
    "policies": "policy epsilon times",
    "policy_new": "policy epsilon times",
    "policy_approve": "policy epsilon times",
    "committee": "policy times",
    "datasets": "public records pseudonym",
    "import_new": "public pseudonym",
    "head_counts": "heads noise",
    "runs": "run plan student",
    "run_new": "run plan public student",
    "run_approve": "plan share cap",
    "run": "released noise share cap student",
    "run_tab": "released noise share cap student",
    "models": "student released",
    "ledger": "register released cap share",
    "recruitment": "withdrawing receipt pseudonym",
    "invitations": "pseudonym",
}


def help_address(name: str) -> str:
    """Return the URL of the help for the page with this name; empty if the documentation is not built."""
    if not has_documents():
        return ""
    return reverse("documents") + HELP_SECTIONS.get(name, HELP_ELSEWHERE)
