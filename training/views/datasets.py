"""The data of a study: what there is, and how more comes in."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from consent.models import Study
from ipate_web.requests import SignedInRequest
from training.formats import ImageSchema, schema_from_json
from training.models import Dataset
from training.selectors import runs_visible_to
from training.views.pages import render_page, study_page


@require_safe
@study_page("consent.view_dashboard")
def datasets(request: SignedInRequest, study: Study) -> HttpResponse:
    """All datasets, and how to import one."""
    context = {"datasets": study.datasets.order_by("kind", "name"), "kinds": Dataset.Kind}
    return render_page(request, study, "training/datasets.html", context)


@require_safe
@study_page("consent.view_dashboard")
def dataset(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """What one dataset holds. Rows and labels are never shown: they belong to people."""
    found = get_object_or_404(Dataset.objects.select_related("imported_by"), study=study, pk=pk)
    schema = schema_from_json(found.schema)
    role = f"{found.kind}_dataset"
    context = {
        "dataset": found,
        "image": schema if isinstance(schema, ImageSchema) else None,
        "columns": found.schema.get("columns", []),
        "numbers": len(schema.shape) == 1 and schema.shape[0],
        "runs": runs_visible_to(request.user).filter(study=study, **{role: found})[:20],
    }
    return render_page(request, study, "training/dataset.html", context)
