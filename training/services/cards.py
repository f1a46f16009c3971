"""Cards that describe a published model or table to its users."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from django.utils.translation import gettext_noop

from common import __version__
from common.row_hashes import json_digest
from common.sentences import Sentence
from consent.selectors import promises_earlier
from learning.calibration import Balance, Calibration
from learning.class_shares import ClassShare, differing
from learning.learners import Model
from learning.students import Releases
from training.comparison import READABLE, UNREADABLE, outcomes_of
from training.engine.commits import used_share
from training.engine.records import encoder_of
from training.measures import accuracy_interval, cautions, published_accuracy
from training.methods import method_of
from training.methods.counts import rounds_of_counts
from training.methods.student_training import Duel
from training.models import Run
from training.selectors import run_promises

ROUNDING = gettext_noop(
    "Accuracies are rounded to 0.1 % if they are based on at least 2,000 points, to 0.5 % if they are based on at "
    "least 400, and to 1 % otherwise."
)

OUTSIDE = gettext_noop(
    "A number outside its range in the schema is treated as the nearest end of the range, and an undeclared category "
    "as “other”, because the model has never seen such values. The site and the client list these columns for each "
    "row. The ONNX file does not list them, but it contains the schema."
)

STATEMENT = gettext_noop("The person who registered the encoder confirmed that it was made without the private data.")

CHOICE = gettext_noop(
    "The choice between the student and the model that taught it was made before the run. It does not depend on how "
    "often either is right."
)

DIFFERING = gettext_noop(
    "People's records are distributed differently from the public points. These classes are clearly more frequent or "
    "less frequent among people than among the public points: %(names)s."
)
ALIKE = gettext_noop(
    "Allowing for noise and chance, no class is clearly more or less common among people than among the public points."
)
UNCOMPARED = gettext_noop("There are no labelled public points to compare the classes of people's records with.")

BALANCED = gettext_noop(
    "The model's answers are balanced: each answer is the class whose probability is largest compared with the mean "
    "probability of this class, as if all classes were equally frequent. The probabilities themselves are not "
    "changed. They say how likely each class is among the people, so the answer may not be the most likely class."
)
BALANCED_COST = gettext_noop(
    "On the test data, %(accuracy)d %% of the answers are right, compared with %(accuracy_before)d %% for the most "
    "likely class. The mean over the classes (balanced accuracy) is %(balanced)d %% instead of %(balanced_before)d %%."
)

CHOSEN = gettext_noop(
    "On %(points)d labelled public points that the student had not learned from, the student was right %(student)d "
    "times and the model that taught it %(model)d times. The student is published if it is right more often. The "
    "test data was not used for this."
)

UNJUDGED = gettext_noop(
    "There are no labelled public points to show whether the student is better, so the model that taught it is "
    "published."
)

EXCEPTION = gettext_noop(
    "People who were promised a larger ε before, at another level or under an earlier policy, keep that promise. "
    "They are not charged again until what they have used fits within the smaller promise."
)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Model that may be published: its learner, its parameters, and its rounded evaluation on the test data.

    ``balance`` chooses its classes; None for the most likely ones.
    """

    learner: str
    parameters: dict[str, Any]
    model: Model
    evaluation: dict | None
    balance: Balance | None = None

    @property
    def accuracy(self) -> float | None:
        return self.evaluation.get("accuracy") if self.evaluation else None

    def to_json(self) -> dict[str, Any]:
        """Return the candidate's entry in the card, for users of the chosen model."""
        found = self.evaluation or {}
        entry = {"learner": self.learner, "accuracy": self.accuracy}
        entry |= {name: found[name] for name in ("area", "likeliest") if name in found}
        measures = found.get("measures")
        return entry | {"measure": {name: measures[0][name] for name in ("label", "value")}} if measures else entry


def card(
    run: Run,
    releases: Releases,
    shares: dict[str, Any] | None,
    label_accuracy: float | None,
    chosen: Candidate,
    calibration: Calibration,
    candidates: list[Candidate],
    choice: str | dict[str, Any],
    untested: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the model card, which depends on private data only through the releases.

    ``shares`` come from `shares_document`, ``choice`` from `choice_document`, ``untested`` from `public_answers`.
    ``candidates`` are all models that might have been published, including the chosen one.
    """
    document = {
        **_about(run),
        "learner": {"name": chosen.learner, "parameters": chosen.parameters, "chosen": chosen.model.chosen},
        "calibration": calibration.to_json(),
        **({} if chosen.balance is None else {"balance": balance_document(chosen.balance, chosen.evaluation)}),
        "encoder": _encoder(run),
        "classes": run.classes,
        **({"target": run.schema["target"]} if "target" in run.schema else {}),
        "learned_from": {
            "dataset": run.public_dataset.name if run.public_dataset else None,
            "provenance": run.public_dataset.provenance if run.public_dataset else "",
            "labels": len(releases),
            "reinforced": run.reinforced,
            "labelled": _labelled(run),
            "above_noise": int((releases.weights > 0).sum()),
            "queries": run.position - rounds_of_counts(run),
            "label_accuracy": label_accuracy,
        },
        "shares": shares,
        "evaluation": chosen.evaluation,
        "answers": untested,
        "cautions": [each.to_json() for each in cautions(chosen.evaluation, calibration.scale, untested)],
        "rounding": ROUNDING,
        "outside": OUTSIDE if run.schema["kind"] == "table" else None,
        "fairness": {"readable": READABLE, "unreadable": UNREADABLE} if chosen.evaluation and run.classes else None,
        **_choice(candidates, choice),
    }
    return document | {"forecasts": [each.to_json() for each in outcomes_of(run, document)]}


def shares_document(run: Run, shares: list[ClassShare] | None, truth: np.ndarray | None) -> dict[str, Any] | None:
    """Return the card's section that compares class shares among participants with those among labelled public points.

    ``differing`` lists the classes whose shares differ by more than noise and chance explain, and ``said`` is a
    sentence about them. The result is None if the releases contain no shares.
    """
    if shares is None:
        return None
    points = 0 if truth is None else len(truth)
    counts = np.bincount([] if truth is None else truth, minlength=len(run.classes)).tolist()
    public = [published_accuracy(count, points) for count in counts]
    rows = list(zip(run.classes, shares, public, strict=True))
    differs = [name for name, people, share in rows if share is not None and differing(people, share, points)]
    sentence = Sentence(DIFFERING, names=", ".join(differs)) if differs else Sentence(ALIKE if points else UNCOMPARED)
    return {
        "points": points,
        "said": sentence.to_json(),
        "classes": [
            {
                "class": name,
                "people": round(people.value, 3),
                "interval": [round(people.low, 3), round(people.high, 3)],
                "public": share,
                "public_interval": accuracy_interval(share, points),
            }
            for name, people, share in rows
        ],
        "differing": differs,
    }


def balance_document(balance: Balance, evaluation: dict[str, Any] | None) -> dict[str, Any]:
    """Return the card's section on balanced answers: each class's share, and sentences about their meaning and cost."""
    said = [Sentence(BALANCED)]
    if evaluation is not None:
        likeliest = evaluation["likeliest"]
        shares = {
            "accuracy": evaluation["accuracy"],
            "balanced": evaluation["balanced_accuracy"],
            "accuracy_before": likeliest["accuracy"],
            "balanced_before": likeliest["balanced_accuracy"],
        }
        said.append(Sentence(BALANCED_COST, **{name: round(100 * share) for name, share in shares.items()}))
    return {"shares": list(balance.shares), "said": [each.to_json() for each in said]}


def card_digest(document: dict[str, Any]) -> str:
    """Return the digest of a published card without the threshold, which the register stores separately."""
    return json_digest({name: value for name, value in document.items() if name != "threshold"})


def result_card(run: Run) -> dict[str, Any]:
    """Return the card of a run's table, with the people responsible and the promise."""
    return _about(run)


def _about(run: Run) -> dict[str, Any]:
    """Return the section that all cards have: the origin, the people responsible, and the basis of the promise."""
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


def choice_document(publish: str, duel: Duel | None) -> str | dict[str, Any]:
    """Return the card's reason for publishing a student or the model; ``publish`` is as in `StudentData`."""
    if publish:
        return CHOICE
    if duel is None:
        return UNJUDGED
    return Sentence(CHOSEN, points=duel.points, student=duel.student, model=duel.model).to_json()


def _choice(candidates: list[Candidate], choice: str | dict[str, Any]) -> dict[str, Any]:
    """Return the card's section on the models that might have been published; empty if there is only one."""
    if len(candidates) == 1:
        return {"candidates": [], "choice": ""}
    return {"candidates": [each.to_json() for each in candidates], "choice": choice}


def _labelled(run: Run) -> dict[str, Any] | None:
    """Return the card's section on labelled public rows used by the student; None if there are none."""
    dataset = run.labelled_dataset
    if dataset is None:
        return None
    return {"dataset": dataset.name, "rows": dataset.rows, "provenance": dataset.provenance}


def _encoder(run: Run) -> dict[str, Any] | None:
    """Return the card's section on the encoder whose vectors are the model's input; None if there is none."""
    encoder = encoder_of(run)
    if encoder is None:
        return None
    return {
        "name": encoder.name,
        "file_digest": encoder.file_digest,
        "takes": encoder.takes,
        "licence": encoder.licence,
        "source": encoder.source,
        "statement": STATEMENT,
        "stated_at": encoder.stated_at.isoformat(),
        "withdrawn_at": encoder.withdrawn_at.isoformat() if encoder.withdrawn_at else None,
    }


def _privacy(run: Run) -> dict:
    """Return the model's promise and the mechanism that ensures it."""
    return {
        "unit": gettext_noop("data holder"),
        "neighbours": "one holder's records and participation, added or removed",
        "accounting": gettext_noop(
            "(ε, δ)-differential privacy, with one account per holder in Gaussian differential privacy"
        ),
        "mechanism": method_of(run).mechanism(run),
        "method": run.method,
        "variant": run.variant,
        "delta": run.study.delta,
        "share": used_share(run),
        "groups": run_promises(run),
        "earlier": [{"level": each.level, "epsilon": each.epsilon} for each in promises_earlier(run.study)],
        "exception": EXCEPTION,
    }


def _rehearsal_privacy(run: Run) -> dict:
    """Return the costs of a rehearsal according to the papers' accounting; it promises nothing."""
    return {
        "note": gettext_noop("A rehearsal with data that is not secret. It makes no promises."),
        "mechanism": method_of(run).mechanism(run),
        "method": run.method,
        "variant": run.variant,
        "delta": run.study.delta,
        "accounting": run.outcome["method"],
        "groups": run.outcome["epsilons"],
    }
