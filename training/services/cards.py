"""Cards: what a user of a student, or of a table, should know."""

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_noop

from common import __version__
from consent.selectors import promises_earlier
from learning.calibration import Calibration
from learning.learners import Model
from learning.students import Releases
from training.engine.spending import share_used
from training.fairness import READABLE, UNREADABLE
from training.methods import method_of
from training.models import Run
from training.selectors import run_promises

ROUNDING = gettext_noop(
    "Accuracies are rounded: to 0.1 % if they rest on 2,000 points or more, to 0.5 % from 400 points, else to 1 %."
)

OUTSIDE = gettext_noop(
    "A number beyond the range that the schema declares counts as the end of the range, and a category that it does "
    "not declare as “other”: the model has seen nothing like them. The site and the client name these columns of each "
    "row; the ONNX file does not, and holds the schema."
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
        return self.evaluation.get("accuracy") if self.evaluation else None

    def to_json(self) -> dict[str, Any]:
        """Part of the card on each, so that whoever uses the chosen one knows of the others."""
        return {"learner": self.learner, "accuracy": self.accuracy}


def card(
    run: Run,
    releases: Releases,
    label_accuracy: float | None,
    chosen: Candidate,
    calibration: Calibration,
    candidates: list[Candidate],
) -> dict[str, Any]:
    """Model card. Nothing in it depends on the private data beyond what was released.

    ``candidates``: all models that might have been published, the chosen one among them.
    """
    return {
        **_about(run),
        "learner": {"name": chosen.learner, "parameters": chosen.parameters, "chosen": chosen.model.chosen},
        "calibration": calibration.to_json(),
        "classes": run.classes,
        **({"target": run.schema["target"]} if "target" in run.schema else {}),
        "learned_from": {
            "dataset": run.public_dataset.name if run.public_dataset else None,
            "provenance": run.public_dataset.provenance if run.public_dataset else "",
            "labels": len(releases),
            "above_noise": int((releases.weights > 0).sum()),
            "queries": run.position,
            "label_accuracy": label_accuracy,
        },
        "evaluation": chosen.evaluation,
        "rounding": ROUNDING,
        "outside": OUTSIDE if run.schema["kind"] == "table" else None,
        "fairness": {"readable": READABLE, "unreadable": UNREADABLE} if chosen.evaluation and run.classes else None,
        **_choice(candidates),
    }


def result_card(run: Run) -> dict[str, Any]:
    """Card of a run's table: whom it is about, and the promise that it keeps."""
    return _about(run)


def _about(run: Run) -> dict[str, Any]:
    """Part of every card: where it comes from, who answers for it, and how it keeps what was promised."""
    return {
        "study": run.study.title,
        "purpose": run.study.purpose,
        "controller": run.study.controller,
        "contact": run.study.contact,
        "contact_telephone": run.study.contact_telephone,
        "run": str(run.pk),
        "rehearsal": run.rehearsal,
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
        "accounting": gettext_noop(
            "(ε, δ)-differential privacy, by one account per holder in Gaussian differential privacy"
        ),
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
