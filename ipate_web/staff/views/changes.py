"""Page of the changes of a study's configuration, for those who oversee it."""

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from common.requests import SignedInRequest
from consent.change_lists import change_lines, changers, changes_of, models_recorded
from consent.models import Study
from ipate_web.staff.forms.changes import ChangesFilter
from ipate_web.staff.views.pages import paginate, render_page, study_page

_A_PAGE = 20


@require_safe
@study_page("consent.view_configurationchange")
def changes(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the changes, newest first, with the values before and after; auditors also find those that are sealed."""
    sealed = "consent.view_sealedchange" in request.can and request.GET.get("record") == "sealed"
    form = ChangesFilter(request.GET, models=models_recorded(sealed=sealed), people=changers(study, sealed=sealed))
    page = paginate(request, changes_of(study, sealed=sealed, **form.chosen()), _A_PAGE)
    context = {"form": form, "page": page, "changes": change_lines(page), "sealed": sealed}
    return render_page(request, study, "staff/study/changes.html", context)
