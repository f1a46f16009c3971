"""Demonstration study of ``manage.py demo``: holders, consents, runs, and public parameters."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.db import transaction

from accounting.head_counts import head_counts, head_counts_draw
from consent import services
from consent.accounts import administrator_set
from consent.models import ConsentForm, DataHolder, Level, Role, Study
from learning.formats import Splits
from learning.mechanisms.pate.choices import Teachers
from learning.students import student_suggested
from training.models import Dataset, Run
from training.services.datasets import dataset_import
from training.services.runs import run_approve, run_propose

#: The share of holders at each level, in hundredths (Individualized PATE, section 5).
SHARES = {Level.HIGH: 34, Level.AVERAGE: 43, Level.LOW: 23}
EPSILONS = {"high": 1.0, "average": 2.0, "low": 3.0}


#: What the real run uses of every holder's cap, beside the head counts.
SHARE = 0.95
#: For 100 and for 250 rehearsed teachers, the latter as in the papers.
_SMALL = {"name": "confident_gnmax", "sigma": 12.0, "sigma_threshold": 40.0, "threshold": 40.0}
_LARGE = {"name": "confident_gnmax", "sigma": 40.0, "sigma_threshold": 150.0, "threshold": 200.0}


@dataclass(frozen=True)
class Words:
    """Texts of a demonstration study about itself, in a language; ``records`` stands in its consent form."""

    title: str
    purpose: str
    records: str


@dataclass(frozen=True)
class Demonstration:
    """Dataset of a demonstration study, with the parameters of its runs.

    ``words`` are those of the site's first language. ``provenance`` is what the card says of the public points.
    ``batch_size`` is that of the run in which every holder votes; ``teachers`` are those of the rehearsals. The student
    is the one that is suggested for such data, with ``student_parameters``.
    """

    words: Words
    german: Words
    provenance: str
    delta: float
    batch_size: int
    teachers: Teachers
    student_parameters: dict[str, Any] = field(default_factory=dict)


DEMONSTRATIONS = {
    "digits": Demonstration(
        words=Words(
            title="Reading handwritten digits",
            purpose="A program that reads digits on forms, so that letters reach the right ward.",
            records="one digit written by your hand, as an image of 8 × 8 pixels",
        ),
        german=Words(
            title="Handgeschriebene Ziffern lesen",
            purpose="Ein Programm, das Ziffern auf Formularen liest, damit Briefe auf der richtigen Station ankommen.",
            records="eine Ziffer von Ihrer Hand, als Bild aus 8 × 8 Punkten",
        ),
        provenance="Other digits of the set that scikit-learn ships, published by the UCI repository.",
        delta=5e-5,
        batch_size=100,
        teachers=Teachers(100, "nearest_neighbour", {"copies": 20}, _SMALL, "proportional"),
        student_parameters={"steps": 300},
    ),
    "mnist": Demonstration(
        words=Words(
            title="Reading handwritten digits (MNIST)",
            purpose="A program that reads digits on forms, so that letters reach the right ward.",
            records="one digit written by your hand, as an image of 28 × 28 pixels",
        ),
        german=Words(
            title="Handgeschriebene Ziffern lesen (MNIST)",
            purpose="Ein Programm, das Ziffern auf Formularen liest, damit Briefe auf der richtigen Station ankommen.",
            records="eine Ziffer von Ihrer Hand, als Bild aus 28 × 28 Punkten",
        ),
        provenance="Digits of MNIST's published test set.",
        delta=1e-5,
        batch_size=3000,
        teachers=Teachers(250, "cnn", {"epochs": 4, "copies": 4}, _LARGE, "proportional"),
    ),
    "adult": Demonstration(
        words=Words(
            title="Who earns above 50,000 (Adult)",
            purpose="A forecast of incomes from census records, to plan where help with rents is needed.",
            records="one census record: age, work, schooling, family, hours and origin",
        ),
        german=Words(
            title="Wer mehr als 50.000 verdient (Adult)",
            purpose="Eine Schätzung von Einkommen aus Daten einer Volkszählung, um Hilfe bei der Miete zu planen.",
            records="ein Eintrag einer Volkszählung: Alter, Arbeit, Schulbildung, Familie, Arbeitszeit und Herkunft",
        ),
        provenance="Other records of the Adult set, published by the UCI repository.",
        delta=1e-5,
        batch_size=4000,
        teachers=Teachers(250, "random_forest", {"trees": 100}, _LARGE, "proportional"),
    ),
    "diabetes": Demonstration(
        words=Words(
            title="Readmission within 30 days (Diabetes 130-US hospitals)",
            purpose="A warning when a patient is likely to come back within 30 days, so that care at home is arranged.",
            records="your stays in hospital: diagnoses, tests, medication and length of stay",
        ),
        german=Words(
            title="Wiederaufnahme binnen 30 Tagen (Diabetes, 130 Krankenhäuser in den USA)",
            purpose="Eine Warnung, wenn jemand wohl binnen 30 Tagen wiederkommt, damit Pflege zu Hause bereitsteht.",
            records="Ihre Aufenthalte im Krankenhaus: Diagnosen, Untersuchungen, Medikamente und Dauer",
        ),
        provenance="Stays of other patients of the same set, published by the UCI repository.",
        delta=1e-5,
        batch_size=4000,
        teachers=Teachers(250, "random_forest", {"trees": 100, "balanced": True, "leaf": 5}, _LARGE, "proportional"),
    ),
}

#: Who works on a demonstration's study.
ROLES = {
    "operator": Role.OPERATOR,
    "steward": Role.STEWARD,
    "operator2": Role.OPERATOR,
    "chair": Role.CHAIR,
    "committee": Role.COMMITTEE,
    "committee2": Role.COMMITTEE,
    "auditor": Role.AUDITOR,
    "researcher": Role.RESEARCHER,
}

_ENGLISH = """\
## What this is about

{controller} asks for your permission to learn from **{records}**.

**What for.** {purpose}

**Who sees your data.** Only the staff who keep your records, and the program that learns from them. What is published
is a second program that has never seen your data. For each of many public examples, the records of all who take part
vote on the right answer; chance is added to every count, so that no single person can tip it, and the second program
learns from the counts alone.

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
ein zweites Programm, das Ihre Daten nie gesehen hat. Bei jedem von vielen öffentlichen Beispielen stimmen die Daten
aller, die mitmachen, über die richtige Antwort ab; jeder Auszählung wird Zufall beigemischt, sodass keine einzelne
Person sie entscheiden kann, und das zweite Programm lernt allein aus den Auszählungen.

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
    """Create or update one account per role, a second operator and a second committee member, with fresh passwords.

    Nobody approves what they proposed: that takes two operators and two committee members.

    Their names begin with ``demo-``: nobody else's password is ever changed.
    """
    users, logins = {}, []
    for name, role in (
        ("operator", Role.OPERATOR.label),
        ("operator2", f"{Role.OPERATOR.label}, second person"),
        ("steward", Role.STEWARD.label),
        ("chair", Role.CHAIR.label),
        ("committee", Role.COMMITTEE.label),
        ("committee2", f"{Role.COMMITTEE.label}, second person"),
        ("auditor", Role.AUDITOR.label),
        ("researcher", Role.RESEARCHER.label),
        ("administrator", "administrator of the installation"),
        ("holder", "data holder"),
    ):
        user, _ = User.objects.get_or_create(username=f"demo-{name}")
        password = secrets.token_urlsafe(9)
        user.set_password(password)
        user.email = f"demo-{name}@hospital.example"  # nobody's: the name is reserved for examples
        user.save()
        EmailAddress.objects.get_or_create(user=user, email=user.email, defaults={"primary": True, "verified": True})
        users[name] = user
        logins.append(Login(str(role), user.username, password))
    administrator_set(user=users["administrator"], appointed=True, acting_user=None)
    return users, logins


def study_build(name: str, splits: Splits, users: dict[str, User], track: Track) -> tuple[Study, dict[str, Dataset]]:
    """Create the study with its form, approved policy, data and consents; existing parts are left as they are."""
    demonstration = DEMONSTRATIONS[name]
    slug = f"demo-{name}"
    study = Study.objects.filter(slug=slug).first()
    if study is None:
        with transaction.atomic():
            study = _study_create(demonstration, slug, users)
    # At the command line: an operator could not appoint the committee.
    for username, role in ROLES.items():
        services.membership_add(study=study, user=users[username], role=role, acting_user=None)
    datasets = _datasets_import(study, splits, demonstration.provenance, users["steward"])
    _consents_give(study, users["holder"], track)
    return study, datasets


def _study_create(demonstration: Demonstration, slug: str, users: dict[str, User]) -> Study:
    words, german = demonstration.words, demonstration.german
    study = services.study_create(
        acting_user=users["operator"],
        slug=slug,
        title=words.title,
        purpose=words.purpose,
        translations={"de": {"title": german.title, "purpose": german.purpose}},
        controller=_CONTROLLER,
        contact="privacy@hospital.example",
        delta=demonstration.delta,
    )
    services.consent_form_publish(
        study=study,
        acting_user=users["committee"],
        texts={
            "en": _ENGLISH.format(controller=_CONTROLLER, **vars(words)),
            "de": _GERMAN.format(controller=_CONTROLLER, **vars(german)),
        },
    )
    policy = services.epsilon_policy_propose(
        study=study,
        acting_user=users["committee"],
        **EPSILONS,
        reason="The values of the Individualized PATE paper: at high protection someone who guesses whether "
        "a person took part is right at most 56 times in 100.",
    )
    services.epsilon_policy_approve(policy=policy, acting_user=users["committee2"])
    return study


def _consents_give(study: Study, holder_user: User, track: Track) -> None:
    """Record a consent for every holder without a decision, through the service that the form calls."""
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


def rehearsal_build(name: str, splits: Splits, users: dict[str, User]) -> tuple[Study, dict[str, Dataset]]:
    """A rehearsal study on the same records, which are nobody's secret: there the baselines of the papers are tried."""
    demonstration = DEMONSTRATIONS[name]
    slug = f"demo-{name}-rehearsal"
    study = Study.objects.filter(slug=slug).first()
    if study is None:
        study = services.study_create(
            acting_user=users["operator"],
            slug=slug,
            title=f"{demonstration.words.title}: rehearsal",
            purpose="Compare variants and baselines on records that are published anyway.",
            controller=_CONTROLLER,
            contact="privacy@hospital.example",
            delta=demonstration.delta,
            rehearsal=True,
        )
    services.membership_add(study=study, user=users["operator2"], role=Role.OPERATOR, acting_user=None)
    return study, _datasets_import(study, splits, demonstration.provenance, users["operator"])


def _datasets_import(study: Study, splits: Splits, provenance: str, operator: User) -> dict[str, Dataset]:
    """The study's datasets by kind; those that it has already are left as they are."""
    datasets = {dataset.kind: dataset for dataset in Dataset.objects.filter(study=study)}
    for kind, rows in (("private", splits.private), ("public", splits.public), ("test", splits.test)):
        if kind not in datasets:
            datasets[kind] = dataset_import(
                study=study,
                name=kind,
                kind=kind,
                rows=rows,
                schema=splits.schema,
                provenance=provenance if kind == Dataset.Kind.PUBLIC else "",
                acting_user=operator,
            )
    return datasets


def runs_start(
    name: str,
    real: tuple[Study, dict[str, Dataset]],
    rehearsal: tuple[Study, dict[str, Dataset]],
    *,
    proposer: User,
    approver: User,
) -> list[Run]:
    """Start the run in which every holder votes, and in the rehearsal study what it is compared with; idempotent."""
    demonstration = DEMONSTRATIONS[name]
    teachers = {"method": Run.Method.PATE, "choices": demonstration.teachers.to_json()}
    return [
        everybody_start(name, real, proposer=proposer, approver=approver),
        *(
            _run_start(
                demonstration, rehearsal, title, teachers | {"variant": variant}, proposer=proposer, approver=approver
            )
            for title, variant in (
                ("Individualized PATE: weighting", Run.Variant.WEIGHTING),
                ("Baseline: everyone at the smallest ε", Run.Variant.STANDARD),
            )
        ),
    ]


def everybody_start(name: str, real: tuple[Study, dict[str, Dataset]], *, proposer: User, approver: User) -> Run:
    """Start the run in which every holder votes, after a draw of head counts; idempotent."""
    demonstration = DEMONSTRATIONS[name]
    if not head_counts(real[0]):
        head_counts_draw(study=real[0], acting_user=approver)
    everybody = {"method": Run.Method.NEIGHBOURS}
    return _run_start(demonstration, real, "Every holder votes", everybody, proposer=proposer, approver=approver)


def _run_start(
    demonstration: Demonstration,
    place: tuple[Study, dict[str, Dataset]],
    title: str,
    fields: dict[str, Any],
    *,
    proposer: User,
    approver: User,
) -> Run:
    study, datasets = place
    run = study.runs.filter(title=title).exclude(status__in=["failed", "cancelled", "withdrawn"]).first()
    if run is None:
        run = run_propose(
            study=study,
            acting_user=proposer,
            title=title,
            purpose=demonstration.words.purpose,
            private_dataset=datasets["private"],
            public_dataset=datasets["public"],
            test_dataset=datasets["test"],
            student_learner=student_suggested(datasets["public"].schema["kind"]).name,
            student_parameters=demonstration.student_parameters,
            batch_size=demonstration.batch_size,
            **fields,
        )
    if run.status == Run.Status.DRAFT:
        run = run_approve(run=run, acting_user=approver, share=SHARE)
    return run
