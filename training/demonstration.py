"""What ``manage.py demo`` shows: the study, its people, its consents, its runs, with parameters chosen in the open."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db import transaction

from consent import services
from consent.models import ConsentForm, DataHolder, Level, Role, Study
from training.formats import Splits
from training.models import Dataset, Run
from training.services.datasets import dataset_import
from training.services.lifecycle import run_approve, run_propose

#: The share of holders at each level, in hundredths (Individualized PATE, section 5).
SHARES = {Level.HIGH: 34, Level.AVERAGE: 43, Level.LOW: 23}
EPSILONS = {"high": 1.0, "average": 2.0, "low": 3.0}


@dataclass(frozen=True)
class Demonstration:
    """One dataset's study and the parameters of its runs."""

    title: str
    purpose: str
    records: str
    delta: float
    teachers: int
    aggregator: dict[str, Any]
    learner: str
    student_learner: str
    learner_parameters: dict[str, Any] = field(default_factory=dict)
    student_parameters: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 50


DEMONSTRATIONS = {
    "digits": Demonstration(
        title="Reading handwritten digits",
        purpose="A program that reads digits on forms, so that letters reach the right ward.",
        records="one digit written by your hand, as an image of 8 × 8 pixels",
        delta=1e-4,
        teachers=100,
        aggregator={"name": "confident_gnmax", "sigma": 12.0, "sigma_threshold": 40.0, "threshold": 40.0},
        learner="nearest_neighbour",
        learner_parameters={"copies": 20},
        student_learner="cnn",
        student_parameters={"epochs": 20, "copies": 20, "rotation": 15.0, "shift": 0.12},
        batch_size=10,
    ),
    "mnist": Demonstration(
        title="Reading handwritten digits (MNIST)",
        purpose="A program that reads digits on forms, so that letters reach the right ward.",
        records="one digit written by your hand, as an image of 28 × 28 pixels",
        delta=1e-5,
        teachers=250,
        aggregator={"name": "confident_gnmax", "sigma": 40.0, "sigma_threshold": 150.0, "threshold": 200.0},
        learner="cnn",
        learner_parameters={"epochs": 4, "copies": 4},
        student_learner="cnn",
        student_parameters={"epochs": 5, "copies": 20},
    ),
    "adult": Demonstration(
        title="Who earns above 50,000 (Adult)",
        purpose="A forecast of incomes from census records, to plan where help with rents is needed.",
        records="one census record: age, work, schooling, family, hours and origin",
        delta=1e-5,
        teachers=250,
        aggregator={"name": "confident_gnmax", "sigma": 40.0, "sigma_threshold": 150.0, "threshold": 200.0},
        learner="random_forest",
        learner_parameters={"trees": 100},
        student_learner="random_forest",
        student_parameters={"trees": 100},
    ),
    "diabetes": Demonstration(
        title="Readmission within 30 days (Diabetes 130-US hospitals)",
        purpose="A warning when a patient is likely to come back within 30 days, so that care at home is arranged.",
        records="your stays in hospital: diagnoses, tests, medication and length of stay",
        delta=1e-5,
        teachers=250,
        aggregator={"name": "confident_gnmax", "sigma": 40.0, "sigma_threshold": 150.0, "threshold": 200.0},
        learner="random_forest",
        learner_parameters={"trees": 100, "balanced": True, "leaf": 5},
        student_learner="random_forest",
        student_parameters={"trees": 100, "balanced": True, "leaf": 5},
    ),
}

_ENGLISH = """\
## What this is about

{controller} asks for your permission to learn from **{records}**.

**What for.** {purpose}

**Who sees your data.** Only the staff who keep your records, and the program that learns from them. What is published
is a second program that has never seen your data: it learned from answers that many programs voted on, with chance
added to every vote so that no single person can tip it.

**What could happen.** Somebody who studies the published program closely might guess whether your records were used.
The level that you choose sets how often such a guess can be right.

**You can change your mind** at any time, here, in as few steps as it takes to agree. From then on your data is not used
again. What was published before stays published.
"""
_GERMAN = """\
## Worum es geht

{controller} bittet um Ihre Erlaubnis, aus Folgendem zu lernen: **{records}**.

**Wozu.** {purpose}

**Wer Ihre Daten sieht.** Nur wer Ihre Unterlagen ohnehin führt, und das Programm, das daraus lernt. Veröffentlicht wird
ein zweites Programm, das Ihre Daten nie gesehen hat: Es hat aus Antworten gelernt, über die viele Programme abgestimmt
haben, und jeder Abstimmung wird Zufall beigemischt, sodass keine einzelne Person sie entscheiden kann.

**Was geschehen könnte.** Wer das veröffentlichte Programm genau untersucht, könnte raten, ob Ihre Daten verwendet
wurden. Die Stufe, die Sie wählen, bestimmt, wie oft so jemand richtig liegen kann.

**Sie können es sich jederzeit anders überlegen**, hier, in so wenigen Schritten wie beim Zustimmen. Von da an werden
Ihre Daten nicht mehr verwendet. Was vorher veröffentlicht wurde, bleibt veröffentlicht.
"""
_CONTROLLER = "Example Hospital"

T = TypeVar("T")
Track = Callable[[Iterable[T], str, int], Iterable[T]]
"""Shows progress: ``track(iterable, description, total)`` yields what the iterable does."""


@dataclass(frozen=True)
class Login:
    role: str
    username: str
    password: str


def people() -> tuple[dict[str, User], list[Login]]:
    """One account per role, and a second committee member, by role; fresh passwords at each call.

    Their names begin with ``demo-``: nobody else's password is ever changed.
    """
    users, logins = {}, []
    for name, role in (
        ("operator", Role.OPERATOR.label),
        ("committee", Role.COMMITTEE.label),
        ("committee2", f"{Role.COMMITTEE.label}, second person"),
        ("auditor", Role.AUDITOR.label),
        ("researcher", Role.RESEARCHER.label),
        ("holder", "data holder"),
    ):
        user, _ = User.objects.get_or_create(username=f"demo-{name}")
        password = secrets.token_urlsafe(9)
        user.set_password(password)
        user.save()
        users[name] = user
        logins.append(Login(str(role), user.username, password))
    return users, logins


def study_build(name: str, splits: Splits, users: dict[str, User], track: Track) -> tuple[Study, dict[str, Dataset]]:
    """The study with form, approved policy, data and everyone's consent. What is there already is left as it is."""
    demonstration = DEMONSTRATIONS[name]
    slug = f"demo-{name}"
    study = Study.objects.filter(slug=slug).first()
    if study is None:
        with transaction.atomic():
            study = _study_create(demonstration, slug, users)
    datasets = {dataset.kind: dataset for dataset in Dataset.objects.filter(study=study)}
    for kind, rows in (("private", splits.private), ("public", splits.public), ("test", splits.test)):
        if kind not in datasets:
            datasets[kind] = dataset_import(
                study=study, name=kind, kind=kind, rows=rows, schema=splits.schema, acting_user=users["operator"]
            )
    _consents_give(study, users["holder"], track)
    return study, datasets


def _study_create(demonstration: Demonstration, slug: str, users: dict[str, User]) -> Study:
    study = services.study_create(
        acting_user=users["operator"],
        slug=slug,
        title=demonstration.title,
        purpose=demonstration.purpose,
        controller=_CONTROLLER,
        contact="privacy@hospital.example",
        delta=demonstration.delta,
    )
    for username, role in (
        ("committee", Role.COMMITTEE),
        ("committee2", Role.COMMITTEE),
        ("auditor", Role.AUDITOR),
        ("researcher", Role.RESEARCHER),
    ):
        services.membership_add(study=study, user=users[username], role=role)
    words = {"controller": _CONTROLLER, "records": demonstration.records, "purpose": demonstration.purpose}
    services.consent_form_publish(
        study=study,
        acting_user=users["committee"],
        texts={"en": _ENGLISH.format(**words), "de": _GERMAN.format(**words)},
    )
    policy = services.epsilon_policy_propose(
        study=study,
        acting_user=users["committee"],
        **EPSILONS,
        reason="The budgets of the Individualized PATE paper: at high protection a guess is right at most 73 times in "
        "100.",
    )
    services.epsilon_policy_approve(policy=policy, acting_user=users["committee2"])
    return study


def _consents_give(study: Study, holder_user: User, track: Track) -> None:
    """Every holder who has not decided consents, through the service that the form calls."""
    form = ConsentForm.objects.filter(study=study).latest("version")
    # A list: a cursor that stays open would keep SQLite from folding its log back into the database.
    undecided = list(DataHolder.objects.filter(study=study, consent_events__isnull=True).order_by("pk"))
    levels = [level for level, share in SHARES.items() for _ in range(share)]
    # 37 is coprime to 100: consecutive holders are spread over the levels.
    for place, holder in enumerate(track(undecided, "consents", len(undecided))):
        services.consent_give(holder=holder, level=levels[place * 37 % 100], form=form, acting_user=None)
    first = DataHolder.objects.filter(study=study).order_by("pk").first()
    if first is not None and first.user_id is None:
        services.holder_link(holder=first, user=holder_user)


def runs_start(name: str, study: Study, datasets: dict[str, Dataset], operator: User) -> list[Run]:
    """The individualized run, and its baselines as simulations; each once, however often this is called."""
    demonstration = DEMONSTRATIONS[name]
    runs = []
    for variant, title, simulation in (
        (Run.Variant.WEIGHTING, "Individualized: weighting", False),
        (Run.Variant.STANDARD, "Baseline: everyone at the smallest ε", True),
        (Run.Variant.UPSAMPLING, "Individualized: upsampling", True),
    ):
        run = (
            study.runs.filter(variant=variant, simulation=simulation)
            .exclude(status__in=["failed", "cancelled"])
            .first()
        )
        if run is None:
            run = run_propose(
                study=study,
                acting_user=operator,
                title=title,
                purpose=demonstration.purpose,
                variant=variant,
                simulation=simulation,
                private_dataset=datasets["private"],
                public_dataset=datasets["public"],
                test_dataset=datasets["test"],
                learner=demonstration.learner,
                learner_parameters=demonstration.learner_parameters,
                student_learner=demonstration.student_learner,
                student_parameters=demonstration.student_parameters,
                aggregator=demonstration.aggregator,
                teachers=demonstration.teachers,
                batch_size=demonstration.batch_size,
                method=Run.Method.EXACT,
            )
        if run.status == Run.Status.DRAFT:
            run = run_approve(run=run, acting_user=operator)
        runs.append(run)
    return runs
