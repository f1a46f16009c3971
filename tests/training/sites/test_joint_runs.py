"""Joint runs from their proposal to their end, through services and requests."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accounting.book import balances, charges_of
from accounting.caps import caps_of
from accounting.models import Release
from common.artifacts import arrays_load, model_fetch
from common.sentences import Sentence
from consent.models import Study
from consent.selectors import consent_snapshot
from learning.formats import Rows
from learning.sites.documents import sign
from tests.factories import committee_fill, form_publish, policy_approve, study_create
from tests.training.asking import NoNoise
from tests.training.runs import TABLE, consents_give, head_counts_state, run_start
from tests.training.sites.alliances import Installations, advance, finish
from training.engine.records import records_load
from training.models import JointQuestion, Run
from training.services.datasets import dataset_import
from training.sites import asking
from training.sites.keys import identity_known
from training.sites.wire import Unreachable
from training.verification import checks_of

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

STEPS: dict[str, Any] = {
    "method": Run.Method.SGD,
    "choices": {"steps": 3, "sigma": 10.0},
    "student_learner": "nearest_neighbour",
}
VOTES: dict[str, Any] = {
    "method": Run.Method.NEIGHBOURS,
    "choices": {"sigma": 10.0, "radius_share": 0.2},
    "batch_size": 6,
    "student_learner": "nearest_neighbour",
}


def faults(study: Study) -> list[str]:
    return [fault for check in checks_of(study) for fault in check.faults()]


def assert_within_caps(study: Study) -> None:
    """No account of a study is above its cap."""
    snapshot = consent_snapshot(study)
    caps = caps_of(snapshot.epsilons, study.delta)
    assert (balances(study).of(snapshot.holders) <= caps).all()


def central(there: Installations, **fields: Any) -> Run:
    """The same run in one study of the people of all sites, up to its student."""
    study = study_create("central", delta=1e-4)
    parts = [records_load(there.dataset(site, "private")) for site in there.studies]
    owners = [f"p{place}-{number:03}" for place, part in enumerate(parts) for number in range(len(part["x"]))]
    rows = Rows(np.concatenate([p["x"] for p in parts]), np.concatenate([p["y"] for p in parts]), owners)
    dataset_import(study=study, name="private", kind="private", rows=rows, schema=TABLE)
    for kind in ("public", "test"):
        found = arrays_load(there.dataset(there.hub_study, kind).artifact)
        dataset_import(study=study, name=kind, kind=kind, rows=Rows(found["x"], found["y"]), schema=TABLE)
    committee_fill(study)
    form_publish(study)
    policy_approve(study)
    consents_give(study, "HAL")
    head_counts_state(study)
    run = run_start(study, share=0.5, **fields)
    return finish([run])[0]


def released(run: Run) -> list[Any]:
    """Everything that the batches of a run released."""
    counts = list(run.queries.order_by("row").values_list("row", "label", "counts"))
    files = [
        arrays_load(name, "sums")["sums"].tolist() for name in run.batches.values_list("released", flat=True) if name
    ]
    return [counts, files]


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody adds noise, so that totals are what people have said."""
    monkeypatch.setattr(asking, "SystemNoise", NoNoise)
    monkeypatch.setattr("training.engine.noise.SystemNoise", NoNoise)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(("fields", "mode"), [(STEPS, "together"), (VOTES, "separate")], ids=["steps", "votes"])
def test_noise_set_aside_a_joint_run_releases_what_a_central_one_does(fields: dict[str, Any], mode: str) -> None:
    there = Installations()
    runs = finish(there.start(mode=mode, **fields))
    assert {run.status for run in runs} == {Run.Status.FINISHED}, [str(run.message) for run in runs]
    alone = central(there, **fields | {"batch_size": runs[0].batch_size})
    for run in runs:
        assert released(run) == released(alone)
        assert faults(run.study) == []
    versions = [run.student for run in runs]
    assert len({version.digest for version in versions}) == 1
    assert {model_fetch(version.artifact) for version in versions} == {model_fetch(versions[0].artifact)}
    for study in there.studies:
        assert_within_caps(study)
        kinds = list(Release.objects.filter(study=study, kind="sums").values_list("kind", flat=True))
        assert len(kinds) == runs[0].batches.count()
    assert not Release.objects.filter(study=there.hub_study).exclude(charges="").exists()


def test_a_site_whose_answer_is_lost_sends_the_same_bytes_and_charges_once(monkeypatch: pytest.MonkeyPatch) -> None:
    there, sent, send = Installations(), [], asking.answer_send

    def lossy(question: JointQuestion, vector: bytes) -> None:
        sent.append((question.joint.run_id, question.number, vector))
        if len(sent) % 2:
            raise Unreachable(Sentence("The network is down."))
        send(question, vector)

    monkeypatch.setattr(asking, "answer_send", lossy)
    runs = finish(there.start(**STEPS))
    assert {run.status for run in runs} == {Run.Status.FINISHED}, [str(run.message) for run in runs]
    assert len(sent) > 9 and len({each[:2] for each in sent}) == len({*sent}) == 9
    for run in runs[1:]:
        assert Release.objects.filter(run=run.pk, kind="sums").count() == 3
        assert faults(run.study) == []


def test_a_hub_that_lies_about_a_drop_out_learns_two_totals_and_both_are_charged() -> None:
    there = Installations(4)
    runs = finish(
        there.start(**STEPS), lambda runs: JointQuestion.objects.filter(answered_at__isnull=False).count() == 4
    )
    asking.question_end(runs[0], Sentence("Clinic A is silent, says the hub."), ["Clinic A"])
    runs = finish(runs)
    assert {run.status for run in runs} == {Run.Status.FINISHED}, [str(run.message) for run in runs]
    charged = [Release.objects.filter(run=run.pk, kind="sums").count() for run in runs[1:]]
    assert charged == [1, 4, 4, 4]
    for run in runs:
        assert faults(run.study) == []
    for study in there.studies:
        assert_within_caps(study)


def test_with_too_few_sites_left_a_run_ends_everywhere_with_a_reason() -> None:
    there = Installations(3)
    runs = finish(there.start(**STEPS), lambda runs: JointQuestion.objects.exclude(total="").count() >= 4)
    asking.question_end(runs[0], Sentence("Clinic A is silent."), ["Clinic A"])
    runs = finish(runs)
    assert {run.status for run in runs} == {Run.Status.FAILED}
    assert all("Clinic A is silent" in str(run.message) for run in runs), [str(run.message) for run in runs]
    for run in runs:
        assert faults(run.study) == []


def lie(change: dict[str, Any]) -> Callable[[JointQuestion], None]:
    """A hub that signs a question in which something else stands than it should."""

    def tell(question: JointQuestion) -> None:
        alliance = question.joint.run.alliance
        document = replace(question.document, **change)
        question.content = document.content().decode()
        question.signature = sign(document, identity_known(alliance)).signature.hex()
        question.save()

    return tell


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spread": 1.0}, "spread"),
        ({"question": "0" * 64}, "question"),
        ({"part": (0, 2)}, "part"),
        ({"state": "1" * 64}, "state"),
        ({"participants": ("Clinic A", "Clinic B")}, "at least 3"),
        ({"participants": ("Clinic A", "Clinic B", "Clinic X")}, "Clinic X"),
        ({"roster": "2" * 64}, "roster"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_question_that_does_not_follow_is_refused_and_charges_nobody(change: dict[str, Any], message: str) -> None:
    there = Installations()
    hub, *sites = there.start(**STEPS)
    for run in (*sites, hub):  # the sites send their approvals, and the hub asks
        advance(run)
    lie(change)(JointQuestion.objects.get())
    runs = finish([hub, *sites])
    assert {run.status for run in runs} == {Run.Status.FAILED}
    assert any(message in str(run.message) for run in runs[1:]), [str(run.message) for run in runs]
    assert not Release.objects.filter(kind="sums").exists()
    for run in runs[1:]:
        assert not any(charges_of(each).spent.any() for each in Release.objects.filter(run=run.pk).exclude(charges=""))
