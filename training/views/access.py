"""Looking at one person's choice, and who has looked."""

from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.views.decorators.http import require_http_methods, require_safe

from consent.access import holder_level_look
from consent.models import LevelAccess, Study
from ipate_web.requests import SignedInRequest
from training.forms.access import LookForm
from training.views.pages import paginate, render_page, study_page


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.view_holder_level")
def holder_look(request: SignedInRequest, study: Study) -> HttpResponse:
    """Say whose choice and why; the answer stands on this page alone."""
    form = LookForm(request.POST or None)
    context: dict[str, object] = {"form": form}
    if form.is_valid():
        try:
            context["current"] = holder_level_look(study=study, acting_user=request.user, **form.cleaned_data)
            context["looked_at"] = form.cleaned_data["pseudonym"]
        except ValidationError as error:
            form.add_error(None, error)
    return render_page(request, study, "training/holder_look.html", context, status=422 if form.errors else 200)


@require_safe
@study_page("consent.view_levelaccess")
def holder_looks(request: SignedInRequest, study: Study) -> HttpResponse:
    """Every look at one person's choice, the latest first; what was seen is not shown."""
    looks = LevelAccess.objects.filter(study=study).select_related("holder", "seen_by").order_by("-sequence")
    return render_page(request, study, "training/holder_looks.html", {"page": paginate(request, looks)})
