"""Demonstration studies for ``manage.py demo``: accounts, data, consents and runs."""

import secrets
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from allauth.account.models import EmailAddress
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import transaction

from accounting.group_budgets import head_counts
from consent import services
from consent.models import ConsentEvent, ConsentForm, DataHolder, Level, Role, Study
from consent.services.accounts import administrator_set
from consent.services.letters import letterhead_save, logo_read
from learning.formats import Splits
from learning.students import suggested_student
from training.models import Dataset, Run
from training.services.approvals import run_approve
from training.services.datasets import dataset_import
from training.services.drawings import head_counts_draw
from training.services.runs import run_propose

_CHOSEN: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
STUDIES: dict[str, dict[str, Any]] = _CHOSEN["studies"]
"""Parameters of the study and its runs, by dataset of the catalogue."""
EPSILONS: dict[str, float] = _CHOSEN["epsilons"]

T = TypeVar("T")
Track = Callable[[Iterable[T], str, int], Iterable[T]]
"""Progress display: ``track(iterable, description, total)`` yields the items of the iterable."""


@dataclass(frozen=True)
class Login:
    role: str
    username: str
    password: str


def people() -> tuple[dict[str, User], list[Login]]:
    """Create or update one account per role, a second operator and a second committee member.

    They share a new password, which is hashed only once because eleven hashes would take longer than everything else.
    Their names begin with ``demo-``, so no other account's password is changed.
    """
    password = secrets.token_urlsafe(9)
    hashed = make_password(password)
    roles = {
        name: f"{Role(role).label}, second person" if name.endswith("2") else str(Role(role).label)
        for name, role in _CHOSEN["members"].items()
    }
    users, logins = {}, []
    for name, role in (roles | _CHOSEN["others"]).items():
        user, _ = User.objects.get_or_create(username=f"demo-{name}")
        user.password = hashed
        user.email = f"demo-{name}@hospital.example"  # fictitious, because the domain is reserved for examples
        user.save()
        EmailAddress.objects.get_or_create(user=user, email=user.email, defaults={"primary": True, "verified": True})
        users[name] = user
        logins.append(Login(role, user.username, password))
    administrator_set(user=users["administrator"], appointed=True, acting_user=None)
    return users, logins


def demo_study(name: str, users: dict[str, User]) -> Study:
    """Return the study with its form, approved policy and members, creating it if necessary."""
    slug = f"demo-{name}"
    study = Study.objects.filter(slug=slug).first()
    if study is None:
        with transaction.atomic():
            study = _study_create(STUDIES[name], slug, users)
    members_add(study, users)
    return study


def study_build(name: str, splits: Splits, users: dict[str, User], track: Track) -> tuple[Study, dict[str, Dataset]]:
    """Create the study with its data and consents; existing parts are not changed."""
    study = demo_study(name, users)
    datasets = _datasets_import(study, splits, STUDIES[name]["provenance"], users["steward"])
    consents_give(study, users["holder"], track)
    return study, datasets


def members_add(study: Study, users: dict[str, User]) -> None:
    """Assign the roles as the command line does, because an operator is not allowed to appoint the committee."""
    for username, role in _CHOSEN["members"].items():
        services.membership_add(study=study, user=users[username], role=Role(role), acting_user=None)


def _study_create(chosen: dict[str, Any], slug: str, users: dict[str, User]) -> Study:
    study = study_begin(chosen, slug, users, _CHOSEN["controller"])
    study_publish(study, chosen, users)
    return study


def study_begin(chosen: dict[str, Any], slug: str, users: dict[str, User], controller: str) -> Study:
    """Create and return a study that has not asked people for consent yet."""
    words = chosen["words"]
    study = services.study_create(
        acting_user=users["operator"],
        slug=slug,
        title=words["en"]["title"],
        translations={
            "de": {
                "title": words["de"]["title"],
                "harm": _CHOSEN["harm"]["de"],
                "contact_hours": _CHOSEN["contact_hours"]["de"],
            }
            | _notice_facts(words["de"], "de")
        },
        harm=_CHOSEN["harm"]["en"],
        controller=controller,
        contact=_CHOSEN["contact"],
        contact_hours=_CHOSEN["contact_hours"]["en"],
        controller_address=_CHOSEN["controller_address"],
        data_protection_officer=_CHOSEN["data_protection_officer"],
        supervisory_authority=_CHOSEN["supervisory_authority"],
        without_recipients=True,
        delta=chosen["delta"],
        **_CHOSEN["asked"],
        **_notice_facts(words["en"], "en"),
    )
    logo = logo_read(Path(__file__).with_name("demonstration.png").read_bytes())
    letterhead_save(study=study, texts=_CHOSEN["letters"], logo=logo, acting_user=users["operator"])
    return study


def study_publish(study: Study, chosen: dict[str, Any], users: dict[str, User]) -> None:
    """Publish the study's consent form and approve its policy."""
    words, controller = chosen["words"], study.controller
    proposal = services.consent_form_propose(
        study=study,
        acting_user=users["committee"],
        texts={
            language: text.format(controller=controller, **words[language])
            for language, text in _CHOSEN["consent_form"].items()
        },
    )
    services.consent_form_approve(proposal=proposal, acting_user=users["committee2"])
    policy = services.epsilon_policy_propose(
        study=study,
        acting_user=users["committee"],
        high=EPSILONS["high"],
        average=EPSILONS["average"],
        low=EPSILONS["low"],
        reason="These are the values of the Individualized PATE paper. At high protection, someone who guesses whether "
        "a person took part is right at most 56 times in 100.",
    )
    services.epsilon_policy_approve(policy=policy, acting_user=users["committee2"])


def _notice_facts(words: dict[str, str], language: str) -> dict[str, Any]:
    """Return the facts that people must be given besides the title (GDPR, Articles 13 and 14), in one language."""
    records = words["records"]
    texts = {"purpose": words["purpose"], "data_categories": f"{records[:1].upper()}{records[1:]}."}
    return texts | _CHOSEN["facts"][language]


def consents_give(study: Study, holder_user: User, track: Track) -> None:
    """Record a consent for every undecided holder, through the service that the form uses."""
    form = ConsentForm.objects.filter(study=study).latest("version")
    holders = list(DataHolder.objects.filter(study=study).order_by("pk"))
    if holders and holders[0].user_id is None:
        services.holder_link(holder=holders[0], user=holder_user)
    decided = set(ConsentEvent.objects.filter(holder__study=study).values_list("holder_id", flat=True))
    levels = [Level(level) for level, share in _CHOSEN["shares"].items() for _ in range(share)]
    # 37 is coprime to 100, so consecutive holders are spread across the levels. An interruption does not change the
    # result.
    undecided = [(each, levels[place * 37 % 100]) for place, each in enumerate(holders) if each.pk not in decided]
    for holder, level in track(undecided, "consents", len(undecided)):
        services.consent_give(holder=holder, level=level, form=form, acting_user=None)


def demo_rehearsal(name: str, users: dict[str, User]) -> Study:
    """Return the rehearsal study, creating it if necessary."""
    slug = f"demo-{name}-rehearsal"
    study = Study.objects.filter(slug=slug).first()
    if study is None:
        study = services.study_create(
            acting_user=users["operator"],
            slug=slug,
            title=f"{STUDIES[name]['words']['en']['title']}: rehearsal",
            purpose="Compare variants and baselines on records that are published anyway.",
            controller=_CHOSEN["controller"],
            contact=_CHOSEN["contact"],
            delta=STUDIES[name]["delta"],
            rehearsal=True,
        )
    services.membership_add(study=study, user=users["operator2"], role=Role.OPERATOR, acting_user=None)
    return study


def rehearsal_build(name: str, splits: Splits, users: dict[str, User]) -> tuple[Study, dict[str, Dataset]]:
    """Create a rehearsal study of the same records, which are not confidential, to compare the papers' variants."""
    study = demo_rehearsal(name, users)
    return study, _datasets_import(study, splits, STUDIES[name]["provenance"], users["operator"])


def _datasets_import(study: Study, splits: Splits, provenance: str, operator: User) -> dict[str, Dataset]:
    """Return the study's datasets by kind, importing missing ones; existing ones are not changed."""
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
    """Start two runs with people's consent, and two rehearsals that compare numbers of teachers; idempotent."""
    rehearsed = {"method": Run.Method.PATE, "choices": STUDIES[name]["rehearsed"]}
    return [
        neighbours_run_start(name, real, proposer=proposer, approver=approver),
        pate_run_start(name, real, proposer=proposer, approver=approver),
        *(
            _run_start(name, rehearsal, title, rehearsed | {"variant": variant}, 1.0, proposer, approver)
            for title, variant in (
                ("Individualized PATE: weighting", Run.Variant.WEIGHTING),
                ("Baseline: everyone at the smallest ε", Run.Variant.STANDARD),
            )
        ),
    ]


def neighbours_run_start(name: str, real: tuple[Study, dict[str, Dataset]], *, proposer: User, approver: User) -> Run:
    """Draw head counts and start the run in which every holder votes; idempotent."""
    _head_counts(real[0], approver)
    everybody = {"method": Run.Method.NEIGHBOURS, "choices": {"rounds": 1}}
    return _run_start(name, real, "Every holder votes", everybody, _CHOSEN["uses"]["neighbours"], proposer, approver)


def pate_run_start(name: str, real: tuple[Study, dict[str, Dataset]], *, proposer: User, approver: User) -> Run:
    """Draw head counts and start Individualized PATE with weighting; idempotent."""
    _head_counts(real[0], approver)
    fields = {"method": Run.Method.PATE, "variant": Run.Variant.WEIGHTING, "choices": STUDIES[name]["teachers"]}
    return _run_start(name, real, "Individualized PATE", fields, _CHOSEN["uses"]["pate"], proposer, approver)


def _head_counts(study: Study, operator: User) -> None:
    """Draw head counts unless they already exist."""
    if not head_counts(study):
        head_counts_draw(study=study, acting_user=operator)


def _run_start(
    name: str,
    place: tuple[Study, dict[str, Dataset]],
    title: str,
    fields: dict[str, Any],
    share: float,
    proposer: User,
    approver: User,
) -> Run:
    study, datasets = place
    chosen = STUDIES[name]
    run = study.runs.filter(title=title).exclude(status__in=["failed", "cancelled", "withdrawn"]).first()
    if run is None:
        run = run_propose(
            study=study,
            acting_user=proposer,
            title=title,
            purpose=chosen["words"]["en"]["purpose"],
            private_dataset=datasets["private"],
            public_dataset=datasets["public"],
            test_dataset=datasets["test"],
            student_learner=suggested_student(datasets["public"].schema["kind"]).name,
            student_parameters=chosen.get("student_parameters", {}),
            batch_size=chosen["batch_size"],
            **fields,
        )
    if run.status == Run.Status.DRAFT:
        run = run_approve(run=run, acting_user=approver, share=share)
    return run
