"""The student learns from released labels alone; it is what is published, with its card."""

import logging
from uuid import uuid4

import numpy as np
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from ipate_web import __version__
from training.artifacts import arrays_load, model_fetch, model_store
from training.errors import RunError
from training.formats import DataError, Schema, schema_from_json
from training.learners import Model, learner_create, model_load, model_save
from training.models import Run, StudentModel
from training.selectors import promises

logger = logging.getLogger(__name__)


#: Why a card may show a published ε above the promised one.
ABOUT_THE_BOUND = gettext_noop(
    "The promise is kept by accounting, in the way named here, for what the votes actually tell; the result is a "
    "secret like the votes. The published ε is the bound that holds whatever the votes are. It needs no secret, and is "
    "larger."
)


def student_train(run: Run) -> bool:
    """Train and evaluate the student, store it with its card, and finish the run."""
    answered = dict(run.queries.filter(label__isnull=False).values_list("row", "label"))
    if not answered:
        raise RunError(
            gettext_noop(
                "No label could be released within the budgets, so there is nothing for a student to learn from. "
                "Propose a run with more noise (a larger σ makes labels cheaper) or with more teachers, or approve one "
                "that may spend more."
            )
        )
    public = arrays_load(run.public_dataset.artifact)
    rows, labels = np.array(list(answered)), np.array(list(answered.values()))
    classes = run.public_dataset.classes
    model = learner_create(run.student_learner, run.student_parameters).fit(
        public["x"][rows], labels, classes=len(classes), seed=run.seed or 0
    )
    truth = public.get("y")
    label_accuracy = None if truth is None else float((truth[rows] == labels).mean())
    evaluation = _evaluation(run, model)
    # A name of its own, so that a second worker cannot touch the file that the row leads to.
    artifact = f"students/{run.pk}-{uuid4().hex[:12]}.model"
    digest = model_store(artifact, model_save(model))
    with transaction.atomic():
        run = Run.objects.select_for_update().get(pk=run.pk)
        if run.status != Run.Status.STUDENT:
            return False
        StudentModel.objects.update_or_create(
            run=run,
            defaults={
                "artifact": artifact,
                "digest": digest,
                "accuracy": evaluation["accuracy"] if evaluation else None,
                "label_accuracy": label_accuracy,
                "card": _card(run, label_accuracy, evaluation),
            },
        )
        run.status = Run.Status.FINISHED
        run.ended_at = timezone.now()
        run.message = ""
        run.save(update_fields=["status", "ended_at", "message"])
    logger.info("The student was trained on %d labels.", len(labels))
    return True


def _evaluation(run: Run, model: Model) -> dict | None:
    """Accuracy and, for each class, precision and recall on the test dataset."""
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
                "precision": hits / called if called else None,
                "recall": hits / are if are else None,
            }
        )
    return {
        "dataset": run.test_dataset.name,
        "points": len(truth),
        "accuracy": float((predicted == truth).mean()),
        "classes": per_class,
    }


def _card(run: Run, label_accuracy: float | None, evaluation: dict | None) -> dict:
    """What a user of the model should know. Nothing in it depends on the private data beyond the released labels."""
    assert run.account is not None, "a run that has voted has an account"
    return {
        "study": run.study.title,
        "purpose": run.study.purpose,
        "controller": run.study.controller,
        "contact": run.study.contact,
        "run": str(run.pk),
        "simulation": run.simulation,
        "learner": {"name": run.student_learner, "parameters": run.student_parameters},
        "classes": run.public_dataset.classes,
        "learned_from": {
            "dataset": run.public_dataset.name,
            "labels": run.labels,
            "queries": run.position,
            "label_accuracy": label_accuracy,
        },
        "evaluation": evaluation,
        "privacy": {
            "unit": "data holder",
            # As asked for: the noise of an upsampling run as planned would tell how large the groups are.
            "mechanism": run.aggregator,
            "variant": run.variant,
            "delta": run.study.delta,
            "accounting": run.method,
            "bound": "data-independent",
            "note": ABOUT_THE_BOUND,
            "groups": promises(run.account),
        },
        "software": f"iPATE {__version__}",
    }


def student_predict(student: StudentModel, rows: list) -> dict:
    """Ask a student for predictions on raw ``rows``, as the dataset's schema describes them. Raises DataError."""
    if not rows:
        raise DataError("There are no rows.", "Give at least one.")
    schema: Schema = schema_from_json(student.run.public_dataset.schema)
    probabilities = model_load(student.run.student_learner, model_fetch(student.artifact)).predict_proba(
        schema.encode(rows)
    )
    classes = student.run.public_dataset.classes
    return {
        "classes": classes,
        "predictions": [classes[number] for number in probabilities.argmax(axis=1)],
        "probabilities": probabilities.tolist(),
    }
