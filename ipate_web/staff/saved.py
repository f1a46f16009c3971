"""Lists that a reader saves under a name, with filters, order and columns."""

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from common.requests import SignedInRequest
from consent.models import Study
from ipate_web.accounts.models import SavedList
from ipate_web.lists import listed_query
from ipate_web.staff.pages import study_form

PAGES = {
    *("runs", "models", "datasets", "alliances", "ledger", "changes", "members", "webhooks"),
    *("holder_looks", "disposals"),
}
"""URL names of lists whose choices can be saved. Lists that are searched by pseudonym are excluded."""
MOST = 20
"""Largest number of saved choices per reader and list."""


@study_form("training.view_run")
def list_save(request: SignedInRequest, study: Study) -> HttpResponse:
    """Save the choices made in a list under a name; if there are none, delete the saved list with this name."""
    page, name = request.POST.get("page", ""), " ".join(request.POST.get("name", "").split())[:60]
    if page not in PAGES or request.method != "POST":
        raise Http404
    address = reverse(f"staff:{page}", args=[study.slug])
    mine = SavedList.objects.filter(user_id=request.user.pk, study=study, page=page)
    query = listed_query(QueryDict(request.POST.get("query", "")[:1000]))
    if not query:
        mine.filter(name=name).delete()
    elif not name or "\0" in name + query or len(query) > 1000:
        messages.error(request, _("Enter a name."))
    elif not mine.filter(name=name).exists() and mine.count() >= MOST:
        messages.error(
            request,
            _("You have already saved %(most)d views of this list, which is the maximum. Delete one first.")
            % {"most": MOST},
        )
    else:
        with transaction.atomic():
            mine.update_or_create(
                name=name,
                defaults={"query": query},
                create_defaults={
                    "user_id": request.user.pk,
                    "study": study,
                    "page": page,
                    "query": query,
                    "name": name,
                },
            )
        messages.success(request, _("Saved as “%(name)s”.") % {"name": name})
    return redirect(f"{address}?{query}" if query else address)
