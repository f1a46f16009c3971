"""Pages of a study's datasets."""

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from common.requests import SignedInRequest
from consent.models import Study
from ipate_web.staff.forms.datasets import ProvenanceForm
from ipate_web.staff.views.pages import render_page, study_form, study_page
from learning.formats import ImageSchema, schema_from_json
from training.models import Dataset, DatasetImport
from training.run_lists import runs_filter, runs_in_table
from training.selectors import runs_visible_to
from training.services.datasets import dataset_provenance_state


@require_safe
@study_page("consent.view_dashboard")
def datasets(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the datasets, with how to import one."""
    may_import = request.user.has_perm("training.import_dataset", study)
    unfinished = study.imports.exclude(state=DatasetImport.State.DONE) if may_import else []
    context = {"datasets": study.datasets.order_by("kind", "name"), "kinds": Dataset.Kind, "imports": unfinished}
    return render_page(request, study, "staff/datasets/datasets.html", context)


@study_form("consent.view_dashboard")
def dataset(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Describe one dataset, and let it be stated where public points come from.

    Rows and labels are never shown, as they are personal data.
    """
    row = get_object_or_404(Dataset.objects.select_related("imported_by"), study=study, pk=pk)
    is_stated_by_people = row.kind == Dataset.Kind.PUBLIC and row.provenance not in Dataset.own_words
    may_state = is_stated_by_people and request.user.has_perm("training.state_provenance", study)
    form = ProvenanceForm(request.POST if request.method == "POST" else None, initial={"provenance": row.provenance})
    if request.method == "POST":
        if not may_state:
            raise PermissionDenied
        if form.is_valid():
            dataset_provenance_state(dataset=row, provenance=form.cleaned_data["provenance"], acting_user=request.user)
            messages.success(request, _("The statement is saved. Model cards of later runs hold it."))
            return redirect("staff:dataset", study.slug, row.pk)
    schema = schema_from_json(row.schema)
    role = f"{row.kind}_dataset"
    context = {
        "dataset": row,
        "form": form if may_state else None,
        "image": schema if isinstance(schema, ImageSchema) else None,
        "columns": row.schema.get("columns", []),
        "numbers": len(schema.shape) == 1 and schema.shape[0],
        "runs": runs_in_table(runs_filter(runs_visible_to(request.user).filter(study=study, **{role: row})))[:20],
    }
    return render_page(request, study, "staff/datasets/dataset.html", context)
