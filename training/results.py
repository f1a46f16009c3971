"""Published models and tables as the people of a study read about them: public, but for what each cost one holder."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

from django.db.models import Q

from accounting.models import Release
from consent.models import DataHolder, Study
from consent.promises.uses import Result
from learning.mechanisms.counts.tables import CountTable
from training.accuracy import published_accuracy
from training.models import Run, RunResult, StudentModel
from training.uses import costs


def results(study: Study, holder: DataHolder | None = None) -> list[Result]:
    """Every published model and table of a study, newest first, withdrawn ones too; none of a rehearsal."""
    published = Q(student__isnull=False) | Q(result__isnull=False)
    runs = list(
        Run.objects.filter(published, study=study, rehearsal=False, ended_at__isnull=False)
        .select_related("student", "result")
        .order_by("-ended_at", "pk")
    )
    cost = costs(holder) if holder is not None and runs else {}
    released = _released(study) if runs else {}
    return [
        (_model if run.student is not None else _table)(run, released.get(run.pk, []), cost.get(run.pk)) for run in runs
    ]


def result_titles(digests: Collection[str]) -> dict[str, str]:
    """Digest of a model or table → title of the run that gave it."""
    rows = (StudentModel.objects.filter(digest__in=digests), RunResult.objects.filter(digest__in=digests))
    return dict(chain.from_iterable(each.values_list("digest", "run__title") for each in rows))


def _released(study: Study) -> dict[UUID | None, list[Release]]:
    """Entries of the register about models and tables, by run, oldest first."""
    kind = Release.Kind
    kinds = (kind.MODEL, kind.CHOICE, kind.STAGE, kind.THRESHOLD, kind.DOWNLOAD)
    by_kind = defaultdict(list)
    for release in Release.objects.filter(study=study, kind__in=kinds).order_by("sequence"):
        by_kind[release.run].append(release)
    return by_kind


def _model(run: Run, released: list[Release], cost: Any) -> Result:
    model = run.student
    assert model is not None, "a run without a published model is told as a table"
    published = [each.recorded_at for each in released if _is_publication(each)]
    return Result(
        key=str(run.pk),
        title=run.title,
        purpose=run.purpose,
        classes=run.classes,
        outcome=run.learns.kind,
        published_at=published[0] if published else model.created_at,
        changed_at=published[-1] if len(published) > 1 else None,
        **_quality(model),
        stage=model.get_stage_display(),
        in_use_since=_last(released, Release.Kind.STAGE, version=model.version, stage=model.stage)
        if model.stage == StudentModel.Stage.PRODUCTION
        else None,
        takers=_takers(released, model.digest, model.onnx_digest, *_replaced(released, model)),
        predictions=model.predictions,
        withdrawn_at=model.withdrawn_at,
        reason=model.withdrawal_reason,
        cost=cost,
    )


def _table(run: Run, released: list[Release], cost: Any) -> Result:
    table = run.result
    size = {"rows": table.content["rows"]} if table.is_rows else {"cells": len(CountTable.from_json(table.content))}
    return Result(
        key=str(run.pk),
        title=run.title,
        purpose=run.purpose,
        classes=[],
        **size,
        published_at=table.created_at,
        takers=_takers(released, table.digest),
        withdrawn_at=table.withdrawn_at,
        reason=table.withdrawal_reason,
        cost=cost,
    )


def _is_publication(release: Release) -> bool:
    """Whether a version was published by it: by the run itself, or by a person."""
    by_run = release.kind == Release.Kind.MODEL and release.content.get("published")
    return release.kind == Release.Kind.CHOICE or bool(by_run)


def _takers(released: list[Release], *digests: str) -> int:
    """Number of people and programs that took one of these files."""
    taken = (each for each in released if _is_taken(each) and each.content.get("digest") in {*digests} - {""})
    return len({each.recorded_by_id for each in taken})


def _replaced(released: list[Release], model: StudentModel) -> list[str]:
    """Digests of the files of a model as ONNX that thresholds have replaced: who took one has taken the model."""
    kinds = (Release.Kind.MODEL, Release.Kind.THRESHOLD)
    entries = (each.content for each in released if each.kind in kinds and each.content["digest"] == model.digest)
    return [content.get("onnx", "") for content in entries]


def _is_taken(release: Release) -> bool:
    return release.kind == Release.Kind.DOWNLOAD and release.recorded_by_id is not None


def _last(released: list[Release], kind: str, **content: Any) -> datetime | None:
    """When the last entry of a kind that says ``content`` was made; None without one."""
    said = (each for each in reversed(released) if each.kind == kind and content.items() <= each.content.items())
    return next((each.recorded_at for each in said), None)


def _quality(model: StudentModel) -> dict[str, Any]:
    """How often the model is right on test records, and how often whoever always gives the commonest answer.

    Of another outcome than classes, the measure that decides whether it is worth publishing.
    """
    evaluation = model.card.get("evaluation")
    if evaluation and "measures" in evaluation:
        return {"points": evaluation["points"], "worth": evaluation["measures"][0]["value"]}
    if not evaluation or evaluation["accuracy"] is None:
        return {}
    points = evaluation["points"]
    commonest = published_accuracy(max(each["points"] for each in evaluation["classes"]), points)
    return {
        "right": round(100 * evaluation["accuracy"]),
        "points": points,
        "commonest": round(100 * commonest) if commonest is not None else None,
    }
