"""Pages of a study's datasets and of the encoders of their images and texts."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.db.models.functions import Lower
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from common.reading import UnreadableError, document_parse
from common.requests import SignedInRequest
from common.templatetags.components import component_render
from consent.models import Study
from ipate_web.lists import Column, Listing, Reader, day_column, newest_or_oldest
from ipate_web.run_list import RUNS
from ipate_web.staff.columns import Columns
from ipate_web.staff.fields import ReasonForm
from ipate_web.staff.imports import MOST_MB
from ipate_web.staff.pages import faults_in, render_page, study_form, study_page
from learning.encoders.files import FIRST, LARGEST_SIDE, LAST, MOST_TOKENS
from learning.formats import ImageSchema, schema_from_json
from training.models import Dataset, DatasetImport, Encoder
from training.selectors import encoders_seen, runs_visible_to
from training.services.datasets import dataset_provenance_state
from training.services.encoders import encoder_is_used, encoder_register, encoder_withdraw
from training.services.erasures import dataset_remove


def _name(dataset: Dataset, reader: Reader) -> SafeString:
    link = format_html(
        '<a href="{}">{}</a>', reverse("staff:dataset", args=[reader.study.slug, dataset.pk]), dataset.name
    )
    removed = component_render("badge", text=_("removed"), kind="warn") if dataset.removed_at else ""
    return format_html("{} {}", link, removed)


def _rows(dataset: Dataset, reader: Reader) -> object:
    return dataset.rows if dataset.kind != Dataset.Kind.PRIVATE or "consent.view_group_sizes" in reader.can else "–"


def _holders(dataset: Dataset, reader: Reader) -> object:
    is_seen = dataset.kind == Dataset.Kind.PRIVATE and "consent.view_group_sizes" in reader.can
    return dataset.holders if is_seen else "–"


#: Sorting by rows or holders is not possible, because it would reveal these numbers to members who may not see them.
DATASETS = Listing(
    columns=(
        Column(
            "name",
            gettext_lazy("Name"),
            _name,
            fields=("name", "removed_at"),
            orders={"name": (gettext_lazy("name"), Lower("name").asc())},
            is_head=True,
        ),
        Column("kind", gettext_lazy("Kind"), lambda dataset, _reader: dataset.get_kind_display(), fields=("kind",)),
        Column("rows", gettext_lazy("Rows"), _rows, fields=("kind", "rows"), kind="number"),
        Column("holders", gettext_lazy("Holders"), _holders, fields=("kind", "holders"), kind="number", is_minor=True),
        Column(
            "classes",
            gettext_lazy("Classes"),
            lambda dataset, _reader: "–" if dataset.schema.get("target") else len(dataset.classes),
            fields=("schema",),
            kind="number",
            is_minor=True,
        ),
        day_column(
            "imported", gettext_lazy("Imported"), "imported_at", orders=newest_or_oldest("imported", "imported_at")
        ),
    ),
    ties=("kind", "name"),
)


class ProvenanceForm(forms.Form):
    """Form for the source of a dataset's points. Leave it empty to withdraw the statement."""

    provenance = forms.CharField(
        label=gettext_lazy("Source of the points"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy(
            "Source, licence, and whether the points could include people who might take part. Model cards of later "
            "runs show this. The site does not check whether points overlap with holders' records."
        ),
    )


class EncoderForm(forms.Form):
    """Form for an encoder's file, its input, and the statement about it."""

    file = forms.FileField(
        label=gettext_lazy("ONNX file"), help_text=gettext_lazy("Up to 200 MB, including the weights.")
    )
    name = forms.CharField(label=gettext_lazy("Name"), max_length=100)
    kind = forms.ChoiceField(
        label=gettext_lazy("Input"), choices=[("image", gettext_lazy("images")), ("text", gettext_lazy("texts"))]
    )
    size = forms.IntegerField(
        label=gettext_lazy("Image size in pixels"),
        required=False,
        min_value=4,
        max_value=LARGEST_SIDE,
        help_text=gettext_lazy("Images are resized to this size first."),
    )
    mean = forms.CharField(
        label=gettext_lazy("Mean"),
        required=False,
        help_text=gettext_lazy("For pixels between 0 and 1, one value per colour: 0.5 0.5 0.5."),
    )
    spread = forms.CharField(
        label=gettext_lazy("Spread"),
        required=False,
        help_text=gettext_lazy("Pixels are divided by these values, which have the same format as the mean."),
    )
    layout = forms.ChoiceField(
        label=gettext_lazy("Layout"),
        required=False,
        choices=[
            (FIRST, gettext_lazy("channels first (n, 3, height, width)")),
            (LAST, gettext_lazy("channels last (n, height, width, 3)")),
        ],
    )
    length = forms.IntegerField(
        label=gettext_lazy("Tokens per piece of text"),
        required=False,
        min_value=4,
        max_value=MOST_TOKENS,
        help_text=gettext_lazy("Longer texts are split into pieces, and the vectors of the pieces are averaged."),
    )
    tokenizer = forms.FileField(
        label=gettext_lazy("Tokenizer"),
        required=False,
        help_text=gettext_lazy("For texts: the network's file tokenizer.json."),
    )
    licence = forms.CharField(
        label=gettext_lazy("Licence"), max_length=200, help_text=gettext_lazy("For example Apache-2.0.")
    )
    source = forms.CharField(
        label=gettext_lazy("Source"),
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy(
            "State where the encoder comes from and which data it was made with. The model card shows this."
        ),
    )
    stated = forms.BooleanField(
        label=gettext_lazy("I confirm that the encoder was made without this study's private data."), required=False
    )

    of_images = ("size", "mean", "spread", "layout")
    of_texts = ("length", "tokenizer")

    def clean_file(self) -> bytes:
        return _content(self.cleaned_data["file"])

    def clean_tokenizer(self) -> str:
        file = self.cleaned_data["tokenizer"]
        try:
            text = _content(file).decode() if file else ""
            if text:
                document_parse(text)
        except (UnicodeDecodeError, UnreadableError):
            raise ValidationError(gettext_lazy("This is not a JSON file. Upload tokenizer.json.")) from None
        return text

    def clean_mean(self) -> list[float]:
        return _numbers(self.cleaned_data["mean"])

    def clean_spread(self) -> list[float]:
        return _numbers(self.cleaned_data["spread"])

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``encoder_register``; the form must be valid."""
        data = self.cleaned_data
        names = self.of_images if data["kind"] == "image" else ("length",)
        fields = {name: data[name] for name in ("name", "tokenizer", "licence", "source", "stated")}
        return fields | {
            "content": data["file"],
            "takes": {"kind": data["kind"], **{name: data[name] for name in names}},
        }


def _content(file: UploadedFile) -> bytes:
    if (file.size or 0) > MOST_MB << 20:
        raise ValidationError(gettext_lazy("The file is larger than %(most)d MB.") % {"most": MOST_MB})
    return file.read()


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.replace(";", " ").split()]
    except ValueError:
        raise ValidationError(gettext_lazy("Write numbers with a decimal point, separated by spaces.")) from None


@require_safe
@study_page("consent.view_dashboard")
def datasets(request: SignedInRequest, study: Study) -> HttpResponseBase:
    """List the datasets, and explain how to import one."""
    may_import = request.user.has_perm("training.import_dataset", study)
    unfinished = study.imports.exclude(state=DatasetImport.State.DONE) if may_import else []
    found = DATASETS.page(request, study.datasets.all(), Reader(study, request.can))
    if file := found.file(f"{study.slug}-datasets"):
        return file
    context = {"list": found, "imports": unfinished}
    return render_page(request, study, "staff/datasets/datasets.html", context)


@study_form("consent.view_dashboard")
def dataset(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Describe one dataset, with a form for the source of public points.

    Rows and labels are never shown, because they are personal data.
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
            messages.success(request, _("Statement saved. Model cards of later runs will show it."))
            return redirect("staff:dataset", study.slug, row.pk)
    schema = schema_from_json(row.schema)
    runs = RUNS.select(runs_visible_to(request.user).filter(study=study, **{f"{row.kind}_dataset": row}))
    context = {
        "dataset": row,
        "form": form if may_state else None,
        "image": schema if isinstance(schema, ImageSchema) else None,
        "columns": Columns(row.schema).uses,
        "numbers": len(schema.shape) == 1 and schema.shape[0],
        "runs": RUNS.table(runs[:20], Reader(study)),
    }
    return render_page(request, study, "staff/datasets/dataset.html", context)


@study_form("training.remove_dataset")
def dataset_removal(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Explain the effects of removing a dataset, and remove it."""
    dataset = get_object_or_404(Dataset, study=study, pk=pk, removed_at=None)
    form = ReasonForm(request.POST or None)
    if form.is_valid():
        with faults_in(form):
            dataset_remove(dataset=dataset, acting_user=request.user, **form.cleaned_data)
            messages.success(request, _("Dataset removed."))
            return redirect("staff:datasets", study.slug)
    context = {"form": form, "dataset": dataset}
    return render_page(request, study, "staff/datasets/remove.html", context)


@study_form("consent.view_dashboard")
def encoders(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the encoders with their progress on each dataset, with a form to register another."""
    may_register = "training.import_dataset" in request.can and not study.is_closed
    is_sent = request.method == "POST"
    form = EncoderForm(request.POST if is_sent else None, request.FILES if is_sent else None)
    if is_sent and not may_register:
        raise PermissionDenied
    if form.is_valid():
        with faults_in(form):
            encoder_register(study=study, acting_user=request.user, **form.arguments())
            return redirect("staff:encoders", study.slug)
    rows = encoders_seen(study, request.user).select_related("stated_by")
    context = {"encoders": rows, "form": form if may_register else None}
    return render_page(request, study, "staff/datasets/encoders.html", context)


@study_form("training.remove_dataset")
def encoder_withdrawal(request: SignedInRequest, study: Study, pk: int) -> HttpResponse:
    """Explain the effects of withdrawing an encoder, and withdraw it."""
    encoder = get_object_or_404(Encoder, study=study, pk=pk, withdrawn_at=None)
    form = ReasonForm(request.POST or None)
    if form.is_valid():
        with faults_in(form):
            encoder_withdraw(encoder=encoder, acting_user=request.user, **form.cleaned_data)
            messages.success(request, _("Encoder withdrawn."))
            return redirect("staff:encoders", study.slug)
    context = {"form": form, "encoder": encoder, "used": encoder_is_used(encoder)}
    return render_page(request, study, "staff/datasets/encoder_withdraw.html", context)
