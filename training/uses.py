"""Uses of a holder's data, and published models and tables, as shown to a study's people."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import chain
from math import sqrt
from typing import Any, cast
from uuid import UUID

import numpy as np
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from accounting.caps import caps_of
from accounting.ceilings import ceilings_left
from accounting.models import Release, ShareRecord
from accounting.shares import GAP, ROUNDING, shares
from common.artifacts import arrays_load
from consent.models import DataHolder, Study
from consent.promises.odds import right_guesses_at
from consent.promises.uses import Cost, Result, Usage, Use
from consent.selectors import PromiseSpan, promise_spans
from learning.formats.columns import texts
from learning.formats.rows import as_numbers, is_text
from learning.mechanisms.counts.tables import CountTable
from training.engine.records import records_load
from training.measures import published_accuracy
from training.methods import MethodOutcome, method_of
from training.models import Dataset, Run, RunResult, StudentModel
from training.selectors import without_model


def _state(run: Run) -> str:
    if run.status == Run.Status.FINISHED:
        if method_of(run).outcome == MethodOutcome.TABLE:
            if run.method == Run.Method.SYNTHESIS:
                return _("The run has finished and published a table of made-up people, based on noisy counts.")
            return _("The run has finished and published a table of noisy counts.")
        if without_model(run):
            return _("The run has finished without publishing a model.")
        return _("The run has finished, and a model has learned from its releases.")
    if run.ended_at:
        return _("The run ended early. Results released before then stay released.")
    return _("The run is in progress.")


def _records(holder: DataHolder) -> dict[str, Any]:
    """Return the holder's own records as stored, by dataset."""
    own = {}
    for dataset in Dataset.objects.filter(study=holder.study_id, kind=Dataset.Kind.PRIVATE, removed_at=None):
        arrays = records_load(dataset, holders=np.array([holder.pk]))
        if len(x := arrays["x"]):
            outcome = dataset.outcome
            labels = [outcome.written(code) for code in arrays["y"].tolist()] if "y" in arrays else []
            own[dataset.name] = {"records": texts(x) if is_text(x) else as_numbers(x).tolist(), "labels": labels}
    return own


def usage(holder: DataHolder) -> Usage:
    """Return the runs that asked the holder to contribute, newest first, with upper bounds on the holder's spending.

    This reveals neither whether the holder's records voted nor the state of the account, which may have excluded the
    holder (rule 6 in docs/architecture.md). The runs depend only on consents and owned records; the amounts depend only
    on shares.
    """
    runs = _runs_of(holder)
    course = _course(holder, {run.pk for run in runs})
    costs = {run: Cost(*(right_guesses_at(sqrt(spent)) for spent in (before, after))) for run, before, after in course}
    uses = [Use(str(run.pk), run.purpose, _state(run), first, costs.get(run.pk)) for run, first in runs.items()]
    is_full = bool(ceilings_left(holder.study, np.array([holder.pk]))[0] <= 0)
    return Usage(uses, course[-1][2] if course else 0.0, lambda: _records(holder), is_full)


def _runs_of(holder: DataHolder) -> dict[Run, datetime]:
    """Return the runs that asked a holder, newest first, each with the time of its first release that concerns them."""
    charged = Release.objects.filter(study=holder.study_id, batch__isnull=False).exclude(charges="").order_by("batch")
    releases = defaultdict(list)
    for run_id, charges, recorded_at in charged.values_list("run", "charges", "recorded_at"):
        releases[run_id].append((charges, recorded_at))
    by_run = {}
    runs = Run.objects.filter(study=holder.study_id, rehearsal=False).exclude(spending_began_at=None)
    for run in runs.order_by("-spending_began_at"):
        first = next((recorded_at for charges, recorded_at in releases[run.pk] if _concerns(charges, holder)), None)
        if first is not None:
            by_run[run] = first
    return by_run


def _batches(run: Run) -> QuerySet[Release]:
    """Return the releases of a run that have charges. These record who was asked."""
    return (
        Release.objects.filter(study=run.study_id, run=run.pk, batch__isnull=False)
        .exclude(charges="")
        .order_by("batch")
    )


def _concerns(charges: str, holder: DataHolder) -> bool:
    """Return whether a holder was asked to contribute to the release with this file of charges, even if charged 0."""
    return bool(np.isin(holder.pk, arrays_load(charges, "holder")["holder"]))


def _course(holder: DataHolder, among: set[UUID]) -> list[tuple[UUID, float, float]]:
    """Return upper bounds on a holder's spending before and after each opened share, in μ², under their promises.

    The bounds depend on public shares, the holder's promises, and the runs that asked the holder (``among``).
    A share opened without asking the holder adds nothing, regardless of their choices in the meantime.

    In a run, an account reaches at most the share's limit. If a run has returned part of its share, no one was charged
    more than the part used, so only this part is added. A drawing of head counts charges participants at most its share
    of the smallest cap.
    """
    spans, delta = promise_spans(holder), holder.study.delta
    if not any(span.epsilon for span in spans):
        return []
    runs = {run.pk: run for run in Run.objects.filter(study=holder.study_id)}
    known, spent, course = shares(holder.study), 0.0, []
    opened = ShareRecord.objects.filter(study=holder.study_id, kind=ShareRecord.Kind.OPENED).order_by("sequence")
    for subject, purpose, moment in opened.values_list("subject", "purpose", "recorded_at"):
        share = known[subject]
        limit, before = cast(float, share.limit), spent
        if purpose == GAP:
            # Earlier decisions may have been lost. A holder without a decision up to that moment joined later, so their
            # first promise counts.
            promises = _promises(spans, None, moment) or [span.epsilon for span in spans if span.epsilon][:1]
            spent = max(spent, limit * _cap(promises, delta))
        elif subject not in runs:
            spent += share.committed * _cap(_promises(spans, moment, moment), delta)
        elif subject in among:
            promises = _promises_then(runs[subject], holder, spans)
            cap = _cap(promises, delta)
            gave_back = share.committed < share.granted * (1 - 2 * ROUNDING) and len(set(promises)) == 1
            spent = max(spent, min(spent + share.committed * cap, limit * cap) if gave_back else limit * cap)
        course.append((subject, before, spent))
    return course


def _cap(promises: Iterable[float], delta: float) -> float:
    """Return the largest cap of the given promises, or 0 if there are none."""
    largest = max(promises, default=0.0)
    return float(caps_of(largest, delta)) if largest else 0.0


def _promises(spans: Sequence[PromiseSpan], since: datetime | None, until: datetime) -> list[float]:
    """Return the ε of every promise in force at some time from ``since`` (None: from the beginning) to ``until``."""
    ends = [*(span.since for span in spans[1:]), None]
    return [
        span.epsilon
        for span, end in zip(spans, ends, strict=True)
        if span.epsilon and span.since <= until and (since is None or end is None or end > since)
    ]


def _promises_then(run: Run, holder: DataHolder, spans: Sequence[PromiseSpan]) -> list[float]:
    """Return the ε of every promise on which a run could have based a holder's charges.

    With teachers, all charges are based on the consents at approval. If everyone is asked, a charge is based on the
    promise in force at the release or, if the holder withdrew in the meantime, on their last promise before it.
    """
    began = min(moment for moment in (run.snapshot_at, run.approved_at, run.spending_began_at) if moment is not None)
    if method_of(run).charges_promises_of_approval:
        last = _batches(run).last()
        return _promises(spans, began, last.recorded_at if last else began)
    epsilons: list[float] = []
    for release in _batches(run):
        promises = _promises(spans, release.recorded_at, release.recorded_at)
        # Read a charge file only if it can add something.
        if any(promise not in epsilons for promise in promises) and _concerns(release.charges, holder):
            epsilons += promises
    return epsilons or _promises(spans, began, timezone.now())


# --- Published results ------------------------------------------------------------------------------------------------


def results(study: Study) -> list[Result]:
    """Return a study's published models and tables, newest first, including withdrawn ones; none for rehearsals."""
    published = Q(student__isnull=False) | Q(result__isnull=False)
    runs = list(
        Run.objects.filter(published, study=study, rehearsal=False, ended_at__isnull=False)
        .select_related("student", "result", "private_dataset", "public_dataset")
        .order_by("-ended_at", "pk")
    )
    released = _released(study) if runs else {}
    return [(_model if run.student is not None else _table)(run, released.get(run.pk, [])) for run in runs]


def result_titles(digests: Collection[str]) -> dict[str, str]:
    """Return a mapping from the digest of each model or table to the title of its run."""
    rows = (StudentModel.objects.filter(digest__in=digests), RunResult.objects.filter(digest__in=digests))
    return dict(chain.from_iterable(each.values_list("digest", "run__title") for each in rows))


def _released(study: Study) -> dict[UUID | None, list[Release]]:
    """Return the register's entries about models and tables for each run, oldest first."""
    kind = Release.Kind
    kinds = (kind.MODEL, kind.CHOICE, kind.STAGE, kind.THRESHOLD, kind.DOWNLOAD)
    by_kind = defaultdict(list)
    for release in Release.objects.filter(study=study, kind__in=kinds).order_by("sequence"):
        by_kind[release.run].append(release)
    return by_kind


def _model(run: Run, released: list[Release]) -> Result:
    model = run.student
    assert model is not None, "a run without a published model is described by its table"
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
        downloaders=_downloaders(released, model.digest, model.onnx_digest, *_replaced(released, model)),
        predictions=model.predictions,
        withdrawn_at=model.withdrawn_at,
        reason=model.withdrawal_reason,
    )


def _table(run: Run, released: list[Release]) -> Result:
    table = run.result
    size = {"rows": table.content["rows"]} if table.is_rows else {"cells": len(CountTable.from_json(table.content))}
    return Result(
        key=str(run.pk),
        title=run.title,
        purpose=run.purpose,
        classes=[],
        **size,
        published_at=table.created_at,
        downloaders=_downloaders(released, table.digest),
        withdrawn_at=table.withdrawn_at,
        reason=table.withdrawal_reason,
    )


def _is_publication(release: Release) -> bool:
    """Return whether a release is the publication of a version, automatically or by a person."""
    by_run = release.kind == Release.Kind.MODEL and release.content.get("published")
    return release.kind == Release.Kind.CHOICE or bool(by_run)


def _downloaders(released: list[Release], *digests: str) -> int:
    """Return the number of people and programs that downloaded one of these files."""
    taken = (each for each in released if _is_taken(each) and each.content.get("digest") in {*digests} - {""})
    return len({each.recorded_by_id for each in taken})


def _replaced(released: list[Release], model: StudentModel) -> list[str]:
    """Return digests of a model's replaced ONNX files, because people who downloaded one of them have the model too."""
    kinds = (Release.Kind.MODEL, Release.Kind.THRESHOLD)
    entries = (each.content for each in released if each.kind in kinds and each.content["digest"] == model.digest)
    return [content.get("onnx", "") for content in entries]


def _is_taken(release: Release) -> bool:
    return release.kind == Release.Kind.DOWNLOAD and release.recorded_by_id is not None


def _last(released: list[Release], kind: str, **content: Any) -> datetime | None:
    """Return the time of the last entry of a kind with this ``content``; None if there is no such entry."""
    matching = (each for each in reversed(released) if each.kind == kind and content.items() <= each.content.items())
    return next((each.recorded_at for each in matching), None)


def _quality(model: StudentModel) -> dict[str, Any]:
    """Return the shares of test records on which the model is right and the most frequent answer would be right.

    If its answers are balanced, both are also returned for equally frequent answers.
    For outcomes other than classes, return the measure that decides publication.
    """
    evaluation = model.card.get("evaluation")
    if evaluation and "measures" in evaluation:
        return {"points": evaluation["points"], "worth": evaluation["measures"][0]["value"]}
    if not evaluation or evaluation["accuracy"] is None:
        return {}
    points = evaluation["points"]
    commonest = published_accuracy(max(each["points"] for each in evaluation["classes"]), points)
    found = {
        "right": round(100 * evaluation["accuracy"]),
        "points": points,
        "commonest": round(100 * commonest) if commonest is not None else None,
    }
    if "balance" in model.card and evaluation["balanced_accuracy"] is not None:
        tested = sum(each["points"] > 0 for each in evaluation["classes"])
        found |= {"balanced": round(100 * evaluation["balanced_accuracy"]), "chance": round(100 / tested)}
    return found
