"""The student learns from releases alone; it, or what was released itself, is published with its card."""

import logging
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounting.models import Release
from accounting.services import release_record
from common import __version__
from common.artifacts import arrays_load, model_fetch, model_store
from consent.selectors import promises_earlier
from consent.services import study_lock
from training.accuracy import published_accuracy
from training.errors import RunError
from training.formats import DataError, Schema, schema_from_json
from training.learners import Model
from training.models import Run, StudentModel
from training.published import LINEAR, published_load
from training.selectors import run_promises
from training.services.lessons import student_fit
from training.services.methods import method_of
from training.services.spending import share_used
from training.students import Releases

logger = logging.getLogger(__name__)

ROUNDING = gettext_noop(
    "Accuracies are rounded: to 0.1 % if they rest on 2,000 points or more, to 0.5 % from 400 points, else to 1 %."
)

CHOICE = gettext_noop("Which of these is published was settled before the run, not by how often they are right.")

EXCEPTION = gettext_noop(
    "Whoever was promised a larger ε before, at another level or under an earlier policy, keeps to that one, and is "
    "charged nothing more until they are within the smaller one."
)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that may be published: its learner and parameters, and how it does on the test data, rounded."""

    learner: str
    parameters: dict[str, Any]
    model: Model
    evaluation: dict | None

    @property
    def accuracy(self) -> float | None:
        return self.evaluation["accuracy"] if self.evaluation else None

    def to_json(self) -> dict[str, Any]:
        """Part of the card on each, so that whoever uses the chosen one knows of the others."""
        return {"learner": self.learner, "accuracy": self.accuracy}


def student_train(run: Run) -> bool:
    """Train and evaluate the student, store what is published with its card, and finish the run."""
    lesson = method_of(run).lesson(run)
    releases = lesson.releases
    if not len(releases):
        raise RunError(
            gettext_noop(
                "No label was released, so there is nothing for a student to learn from. Propose a run with more noise "
                "(a larger σ makes labels cheaper) or a lower threshold, or approve one with a larger share."
            )
        )
    student = student_fit(run, lesson)
    truth = _truth(run)
    right = None if truth is None else int((truth[releases.rows] == releases.labels).sum())
    label_accuracy = None if right is None else published_accuracy(right, len(releases))
    candidates = [Candidate(run.student_learner, run.student_parameters, student, _evaluation(run, student))]
    if lesson.model is not None:
        candidates.append(Candidate(LINEAR, {}, lesson.model, _evaluation(run, lesson.model)))
    chosen = candidates[-1 if lesson.publish == "model" else 0]
    # A name of its own, so that a second worker cannot touch the file that the row leads to.
    artifact = f"students/{run.pk}-{uuid4().hex[:12]}.model"
    digest = model_store(artifact, chosen.model.to_bytes())
    with transaction.atomic():
        study_lock(run.study_id)
        run = Run.objects.select_for_update(of=("self",)).select_related("study", "public_dataset").get(pk=run.pk)
        if run.status != Run.Status.STUDENT:
            return False
        StudentModel.objects.update_or_create(
            run=run,
            defaults={
                "artifact": artifact,
                "learner": chosen.learner,
                "digest": digest,
                "accuracy": chosen.accuracy,
                "label_accuracy": label_accuracy,
                "card": _card(run, releases, label_accuracy, chosen) | _choice(candidates),
            },
        )
        if not run.rehearsal:
            release_record(
                study=run.study,
                kind=Release.Kind.MODEL,
                run=run.pk,
                content={"digest": digest, "learner": chosen.learner, "labels": run.labels},
                acting_user_id=run.approved_by_id,
            )
        run.status = Run.Status.FINISHED
        run.ended_at = timezone.now()
        run.message = ""
        run.save(update_fields=["status", "ended_at", "message"])
    logger.info("The student has learned from %d releases.", len(releases))
    return True


def _truth(run: Run) -> np.ndarray | None:
    """(n,) the classes of the public points, where they are known."""
    try:
        return arrays_load(run.public_dataset.artifact, "y")["y"]
    except KeyError:
        return None


def _evaluation(run: Run, model: Model) -> dict | None:
    """Accuracy and, for each class, precision and recall on the test dataset, rounded."""
    if run.test_dataset is None:
        return None
    test = arrays_load(run.test_dataset.artifact)
    predicted, truth = model.predict(test["x"]), test["y"]
    per_class = []
    for number, name in enumerate(run.test_dataset.classes):
        hits = int(((predicted == number) & (truth == number)).sum())
        called, are = int((predicted == number).sum()), int((truth == number).sum())
        per_class.append(
            {
                "class": name,
                "points": are,
                "precision": published_accuracy(hits, called),
                "recall": published_accuracy(hits, are),
            }
        )
    return {
        "dataset": run.test_dataset.name,
        "points": len(truth),
        "accuracy": published_accuracy(int((predicted == truth).sum()), len(truth)),
        "classes": per_class,
    }


def _card(run: Run, releases: Releases, label_accuracy: float | None, chosen: Candidate) -> dict:
    """Model card. Nothing in it depends on the private data beyond what was released."""
    return {
        "study": run.study.title,
        "purpose": run.study.purpose,
        "controller": run.study.controller,
        "contact": run.study.contact,
        "run": str(run.pk),
        "rehearsal": run.rehearsal,
        "learner": {"name": chosen.learner, "parameters": chosen.parameters, "chosen": chosen.model.chosen},
        "classes": run.public_dataset.classes,
        "learned_from": {
            "dataset": run.public_dataset.name,
            "provenance": run.public_dataset.provenance,
            "labels": len(releases),
            "above_noise": int((releases.weights > 0).sum()),
            "queries": run.position,
            "label_accuracy": label_accuracy,
        },
        "evaluation": chosen.evaluation,
        "rounding": ROUNDING,
        "privacy": _rehearsal_privacy(run) if run.rehearsal else _privacy(run),
        "software": f"iPATE {__version__}",
    }


def _choice(candidates: list[Candidate]) -> dict[str, Any]:
    """Part of the card on the models that might have been published; nothing where there is one alone."""
    if len(candidates) == 1:
        return {"candidates": [], "choice": ""}
    return {"candidates": [each.to_json() for each in candidates], "choice": CHOICE}


def _privacy(run: Run) -> dict:
    """The promise that the model keeps, and what keeps it."""
    return {
        "unit": gettext_noop("data holder"),
        "neighbours": "one holder's records and participation, added or removed",
        "accounting": gettext_noop("one account per holder, Gaussian differential privacy"),
        "mechanism": method_of(run).mechanism(run),
        "method": run.method,
        "variant": run.variant,
        "delta": run.study.delta,
        "share": share_used(run),
        "groups": run_promises(run),
        "earlier": [{"level": each.level, "epsilon": each.epsilon} for each in promises_earlier(run.study)],
        "exception": EXCEPTION,
    }


def _rehearsal_privacy(run: Run) -> dict:
    """Costs of a rehearsal by the papers' accounting; it promises nothing to anybody."""
    return {
        "note": gettext_noop("A rehearsal on data that are nobody's secret: nothing is promised."),
        "mechanism": method_of(run).mechanism(run),
        "method": run.method,
        "variant": run.variant,
        "delta": run.study.delta,
        "accounting": run.outcome["method"],
        "groups": run.outcome["epsilons"],
    }


def student_predict(student: StudentModel, rows: list) -> dict:
    """Ask a student for predictions on raw ``rows``, as the dataset's schema describes them. Raises DataError."""
    if not rows:
        raise DataError("There are no rows.", "Give at least one.")
    schema: Schema = schema_from_json(student.run.public_dataset.schema)
    probabilities = published_load(student.learner, model_fetch(student.artifact)).predict_proba(schema.encode(rows))
    classes = student.run.public_dataset.classes
    return {
        "classes": classes,
        "predictions": [classes[number] for number in probabilities.argmax(axis=1)],
        "probabilities": probabilities.tolist(),
    }
