"""Joint runs from proposal to end, through services and requests."""

import math
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.db import OperationalError, connection
from django.utils import timezone
from django.utils.http import http_date

from accounting.accounts import balances, charges_of
from accounting.caps import caps_of
from accounting.models import Release
from accounting.shares import share_free
from accounting.verification import Check
from common import backoff
from common.append_only import triggers_remove
from common.artifacts import arrays_delete, arrays_list, arrays_load, arrays_save, model_fetch
from common.sentences import Sentence
from consent.models import DataHolder, Mail, Study
from consent.selectors import consent_snapshot
from consent.services import consent_withdraw
from learning.formats import Rows
from learning.mechanisms.protocol import PlanError
from learning.sites.documents import Refused, Withdrawal, sign
from tests.draws import NoNoise
from tests.factories import committee_fill, form_publish, policy_approve, study_create, user_create
from tests.restored import backup_of, restore
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN
from tests.training.runs import TABLE, consents_give, head_counts_state, run_approve, run_start
from tests.training.sites.alliances import POINTS, Installations, InThisProcess, advance, finish, olga
from training import tasks
from training.alliances import asking
from training.alliances.documents import noise_factor, withdrawals_keep
from training.alliances.exchange import exchange
from training.alliances.runs import joint_run_decline, joint_run_take
from training.alliances.services import alliance_contact, alliance_leave, alliances_contact
from training.alliances.wire import Hub, Unreachable, known_identity
from training.engine.budgets import head_count_sigma
from training.engine.records import records_load
from training.methods import joint, method_of
from training.methods.pate import vote_question
from training.methods.pate_teachers import ballot_load
from training.methods.steps import question_load
from training.models import Alliance, Encoder, JointAnswer, JointQuestion, Run, RunResult
from training.services.datasets import dataset_import
from training.services.erasures import dataset_remove, records_erase, records_expire, study_close
from training.services.publication import result_withdraw
from training.services.runs import run_cancel
from training.services.students import student_ask, student_learn, student_publish, student_withdraw
from training.verification import batches_with_votes, checks_of, release_faults, replay_faults

pytestmark = pytest.mark.django_db

STUDENT = {"student_learner": "nearest_neighbour"}
STEPS: dict[str, Any] = STUDENT | {"method": Run.Method.SGD, "choices": {"steps": 3, "sigma": 10.0}}
VOTES: dict[str, Any] = STUDENT | ASKING_RUN | {"batch_size": 6}
COUNTS: dict[str, Any] = {"method": Run.Method.COUNTS, "choices": {"column": "class", "across": "length"}}
SYNTHESIS: dict[str, Any] = {"method": Run.Method.SYNTHESIS, "choices": {"rows": 200, "bins": 4}}
TEACHERS: dict[str, Any] = STUDENT | {
    "method": Run.Method.PATE,
    "variant": Run.Variant.WEIGHTING,
    "choices": {
        **{"teachers": 3, "learner": "nearest_neighbour", "small_groups": "merge"},
        "aggregator": {"name": "gnmax", "sigma": 40.0},
    },
    "batch_size": 5,
}


def faults(study: Study) -> list[str]:
    """Return all faults of a study, with its charges recomputed."""
    replays = [Check("replay", partial(replay_faults, batch)) for batch in batches_with_votes(study)]
    return [fault for check in [*checks_of(study), *replays] for fault in check.faults()]


def finished(runs: list[Run]) -> list[Run]:
    """Return the same runs once they have finished everywhere."""
    runs = finish(runs)
    assert {run.status for run in runs} == {Run.Status.FINISHED}, [str(run.message) for run in runs]
    return runs


def is_asking(runs: list[Run]) -> bool:
    return {run.status for run in runs} == {Run.Status.ASKING}


def network_down() -> Mock:
    return Mock(side_effect=Unreachable(Sentence("The network is down.")))


def assert_within_caps(study: Study) -> None:
    """Check that no account of a study is above its cap."""
    snapshot = consent_snapshot(study)
    caps = caps_of(snapshot.epsilons, study.delta)
    assert (balances(study).of(snapshot.holders) <= caps).all()


def central(there: Installations, **fields: Any) -> Run:
    """Return the same run, up to its student, in one study with the people of all sites."""
    study = study_create("central", delta=1e-4)
    parts = [records_load(there.dataset(site, "private")) for site in there.studies]
    owners = [f"p{place}-{number:03}" for place, part in enumerate(parts) for number in range(len(part["x"]))]
    rows = Rows(np.concatenate([p["x"] for p in parts]), np.concatenate([p["y"] for p in parts]), owners)
    dataset_import(study=study, name="private", kind="private", rows=rows, schema=TABLE)
    for kind in ("public", "test"):
        found = arrays_load(there.dataset(there.hub_study, kind).artifact)
        dataset_import(study=study, name=kind, kind=kind, rows=Rows(found["x"], found["y"]), schema=TABLE)
    if fields["method"] in (Run.Method.COUNTS, Run.Method.SYNTHESIS):
        fields |= {"public_dataset": None, "test_dataset": None, "student_learner": "", "batch_size": 1}
    committee_fill(study)
    form_publish(study)
    policy_approve(study)
    consents_give(study, "HAL")
    head_counts_state(study)
    run = run_start(study, share=0.5, **fields)
    return finish([run])[0]


def released(run: Run) -> list[Any]:
    """Return everything that the batches of a run released."""
    counts = list(run.queries.order_by("row").values_list("row", "label", "counts"))
    files = [
        arrays_load(name, "sums")["sums"].tolist() for name in run.batches.values_list("released", flat=True) if name
    ]
    return [counts, files]


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off noise, so that totals are exact, and plan for as much of it as in a single study."""
    monkeypatch.setattr(asking, "SystemNoise", NoNoise)
    monkeypatch.setattr("training.methods.steps.planned_noise_factor", lambda run: 1.0)
    monkeypatch.setattr("training.engine.questions.SystemNoise", NoNoise)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("fields", "mode", "count"),
    [
        pytest.param(STEPS, "together", 3, marks=pytest.mark.exhaustive),
        (VOTES, "separate", 3),
        pytest.param(VOTES, "together", 5, marks=pytest.mark.exhaustive),
        *(pytest.param(each, "together", 3, marks=pytest.mark.exhaustive) for each in (COUNTS, SYNTHESIS)),
    ],
    ids=lambda value: value["method"] if isinstance(value, dict) else value,
)
def test_noise_set_aside_a_joint_run_releases_what_a_central_one_does(fields, mode, count) -> None:
    there, taught = Installations(count), "student_learner" in fields
    runs = finished(there.start(mode=mode, asks=taught, **fields))
    alone = central(there, **fields | {"batch_size": runs[0].batch_size})
    for run in runs:
        assert released(run) == released(alone)
        assert faults(run.study) == []
    outcomes = [run.student if taught else run.result for run in runs]
    assert len({outcome.digest for outcome in outcomes}) == 1
    assert {model_fetch(outcome.artifact) for outcome in outcomes} == {model_fetch(outcomes[0].artifact)}
    if not taught:
        same = outcomes[0].digest == alone.result.digest
        assert same == (fields is SYNTHESIS), "the noise of counts is larger"
    for study in there.studies:
        assert_within_caps(study)
        assert Release.objects.filter(study=study, kind="sums").count() == runs[0].batches.count()
    assert not Release.objects.filter(study=there.hub_study).exclude(charges="").exists()


@pytest.mark.parametrize(("mode", "ratio"), [("together", 1.5), ("separate", 3.0)])
def test_states_of_a_joint_run_assume_the_noise_that_its_sites_add(mode: Any, ratio: float) -> None:
    """Three sites, one of which may collude: their noise has 3/(3 - 1) times the variance, or 3 times if separate."""
    there = Installations()
    runs = finished(there.start(mode=mode, **STEPS))
    for run in runs:
        plan = question_load(run.rounds.get()).plan
        assert plan.noise_factor == pytest.approx(math.sqrt(ratio)) == pytest.approx(noise_factor(run))
        assert plan.sigma == 10.0
        assert faults(run.study) == []


@pytest.mark.exhaustive
@pytest.mark.usefixtures("no_noise")
def test_teachers_of_all_sites_vote_together_and_their_members_pay() -> None:
    there = Installations()
    runs = finish(there.start(**TEACHERS), is_asking)
    ballots = [ballot_load(run.pk) for run in runs[1:]]
    question = vote_question(runs[1])
    weights = question.plan.teacher_weights()
    votes = sum(question.plan.aggregator.count(each.predictions, 3, weights) for each in ballots)
    runs = finished(runs)
    labels = votes.argmax(axis=1)[: runs[0].position].tolist()
    paid = sum(question.charges(question.state(None), np.ones(runs[0].position, dtype=bool)))
    assert runs[0].position == POINTS and paid > 0
    for run in runs:
        assert list(run.queries.order_by("row").values_list("label", flat=True)) == labels
        assert faults(run.study) == []
    for run, ballot in zip(runs[1:], ballots, strict=True):
        assert_within_caps(run.study)
        charged = [charges_of(each) for each in Release.objects.filter(run=run.pk, kind="sums")]
        assert len(charged) == runs[0].batches.count()
        assert all(set(ballot.members) == set(each.holders) and each.spent.all() for each in charged)
    for run in runs:
        dataset_remove(dataset=run.public_points, reason="Nobody needs them any more.", acting_user=olga())
        assert faults(run.study) == []


def test_what_sites_could_not_carry_out_is_refused_at_hub_or_site(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Installations()
    with pytest.raises((ValidationError, PlanError), match="This site's head counts lead to teachers and budgets"):
        there.take(there.propose(share=0.5, **TEACHERS), 0, share=0.4)
    aggregator = {"name": "confident_gnmax", "sigma": 9.0, "sigma_threshold": 9.0, "threshold": 2.0}
    encoder = Encoder.objects.create(
        study=there.hub_study, name="small", digest="ab" * 32, file_digest="cd", takes={}, width=6
    )
    for recipe, choices in (
        (TEACHERS, {"aggregator": aggregator}),
        (TEACHERS, {"on_exhausted": "retire"}),
        (STEPS, {"encoder": encoder.digest}),
    ):
        with pytest.raises(ValidationError) as refused:
            there.draft(**recipe | {"choices": recipe["choices"] | choices})
        assert f"choices.{next(iter(choices))}" in refused.value.message_dict
    run = there.propose(share=0.2, **STEPS)
    plan = joint.hub_plan(run.joint)
    plan["rounds"] = [each | {"sigma": 1e-8} for each in plan["rounds"]]
    monkeypatch.setattr(joint, "hub_plan", lambda _: plan)
    with pytest.raises((ValidationError, PlanError), match="could overflow"):
        there.take(run, 0, share=0.2)


def test_a_draft_of_the_hub_is_told_to_nobody_and_a_site_approves_no_run_that_its_hub_has_ended() -> None:
    there = Installations()
    draft, site = there.draft(**STEPS), there.sites[0]
    hub = there.propose(**STEPS)
    exchange(site)
    site.refresh_from_db()
    assert not site.problem and list(site.proposals) == [hub.pk.hex]
    run_cancel(run=draft, acting_user=olga())
    exchange(site)
    assert not Alliance.objects.get(pk=site.pk).problem
    private, otto = there.dataset(site.study, "private"), user_create("otto")
    taken = joint_run_take(alliance=site, number=hub.pk.hex, private_dataset=private, acting_user=otto)
    run_cancel(run=hub, acting_user=olga())
    exchange(site)
    with pytest.raises(ValidationError, match="The hub has ended the run: cancelled"):
        run_approve(run=taken, acting_user=olga(), share=0.5)
    assert not Mail.objects.filter(kind="new_use").exists() and share_free(site.study) == 1


def test_a_table_over_sites_counts_the_noise_of_their_head_counts() -> None:
    there = Installations()
    run = there.draft(**COUNTS, asks=False)
    sites = list(there.hub.sites.all())
    assert {count["sigma"] for site in sites for count in site.head_counts} == {0.0} and head_count_sigma(run) == 0
    exact = method_of(run).plan(run).rounds[0]["table"]["error"]
    for site, sigma in zip(sites, (2.0, 3.0, 6.0), strict=True):
        site.head_counts = [count | {"sigma": sigma} for count in site.head_counts]
        site.save()
    assert head_count_sigma(run) == 7.0
    assert method_of(run).plan(run).rounds[0]["table"]["error"] > exact
    for site in sites:  # in the format of earlier versions
        site.head_counts = [{name: count[name] for name in ("level", "epsilon", "count")} for count in site.head_counts]
        site.save()
    assert method_of(run).plan(run).rounds[0]["table"]["error"] == exact


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("fields", "is_left"), [(STEPS, True), (COUNTS, False)], ids=["model, left", "counts, in the alliance"]
)
def test_what_a_hub_withdraws_is_withdrawn_at_its_sites_however_late(fields, is_left, settings) -> None:
    settings.SITES_INTERVAL = 0
    there = Installations()
    hub, *sites = finished(there.start(**fields, asks="student_learner" in fields))
    Run.objects.update(ended_at=timezone.now() - timedelta(days=400))
    for site in there.sites if is_left else []:
        alliance_leave(alliance=site, acting_user=olga())
        alliance_contact(site.pk)
    alliances_contact()
    withdraw = partial(student_withdraw, version=1) if "student_learner" in fields else result_withdraw
    withdraw(run=hub, reason="It is wrong.", acting_user=olga())
    for _ in range(2):
        (tasks.former_hubs_ask if is_left else tasks.alliances_contact)()
        for run in sites:
            given = run.students.get() if "student_learner" in fields else RunResult.objects.get(run=run)
            assert given.is_withdrawn and given.withdrawal_reason == "The hub withdrew the run: It is wrong."
            (entry,) = Release.objects.filter(run=run.pk, kind=Release.Kind.WITHDRAWAL)
            assert entry.content["digest"] == given.digest and entry.recorded_by_id is None
            assert faults(run.study) == []


@pytest.mark.exhaustive
def test_sites_publish_the_version_that_their_hub_has_published_since(settings: Any) -> None:
    settings.SITES_INTERVAL = 0
    there = Installations()
    hub, *sites = finished(there.start(**STEPS))
    recipe = {"student_learner": hub.student_learner, "student_parameters": {}}
    student_learn(student_ask(run=hub, acting_user=olga(), **recipe).pk)
    student_publish(run=hub, version=2, acting_user=olga(), reason="It is better.")
    student_withdraw(run=hub, version=1, reason="It is wrong.", acting_user=olga())
    second = hub.students.get(version=2)
    for _ in range(2):
        tasks.alliances_contact()
        for site in sites:
            site.refresh_from_db()
            assert site.student is not None and (site.student.version, site.student.digest) == (2, second.digest)
            assert site.students.get(version=1).is_withdrawn and faults(site.study) == []


def test_a_withdrawal_that_the_hub_has_not_signed_is_refused() -> None:
    there = Installations()
    joint = there.take(there.propose(**STEPS), 0).joint
    forged = sign(Withdrawal(joint.document.digest(), "ab" * 32, "It is wrong."), known_identity(there.sites[1]))
    sent = {"content": forged.document.content().decode(), "signature": forged.signature.hex()}
    with pytest.raises(Refused, match="signature of the hub"):
        withdrawals_keep(there.sites[0], [sent])
    joint.refresh_from_db()
    assert joint.withdrawn == {}


def test_a_hub_hears_of_a_site_that_left_however_late_and_waits_for_it_no_more(monkeypatch, settings) -> None:
    settings.SITES_INTERVAL = 0
    there = Installations()
    run = there.propose(**STEPS)
    assert "Waiting for the approval of" in str(advance(run).message)
    with monkeypatch.context() as patched:
        patched.setattr(Hub, "post", Mock(side_effect=Unreachable(Sentence("The network is down."))))
        alliance_leave(alliance=there.sites[1], acting_user=olga())
        alliance_contact(there.sites[1].pk)
    assert there.hub.sites.get(name="Clinic B").takes_part
    alliances_contact()
    assert not there.hub.sites.get(name="Clinic B").takes_part
    run = advance(run)
    assert run.status == Run.Status.FAILED
    assert "Clinic B has ended the run: the site has left the alliance" in str(run.message)
    heard = Alliance.objects.get(pk=there.sites[1].pk).last_contact
    alliances_contact()
    assert Alliance.objects.get(pk=there.sites[1].pk).last_contact == heard, "the hub learned of it"


@pytest.mark.parametrize("end", ["closed", pytest.param("over", marks=pytest.mark.exhaustive)])
def test_a_study_that_ends_leaves_its_alliance(end: str) -> None:
    there = Installations()
    run, site, tomorrow = there.propose(**STEPS), there.sites[1], timezone.localdate() + timedelta(days=1)
    if end == "closed":
        study_close(study=site.study, reason="Done.", acting_user=olga(), erase_after=tomorrow)
    else:
        Study.objects.filter(pk=site.study_id).update(retention_until=timezone.localdate())
        records_expire(study=site.study, today=tomorrow)
    alliance_contact(site.pk)
    assert not there.hub.sites.get(name="Clinic B").takes_part
    run = advance(run)
    assert run.status == Run.Status.FAILED and "Clinic B has ended the run" in str(run.message)


@pytest.mark.exhaustive
@pytest.mark.parametrize("until", ["approved", "a total is signed"])
def test_a_run_that_a_restored_hub_has_forgotten_ends_at_its_sites(monkeypatch: pytest.MonkeyPatch, until: str) -> None:
    there = Installations()
    backup = backup_of(there.hub_study)
    runs = there.start(**STEPS)
    if until != "approved":
        with monkeypatch.context() as patched:
            patched.setattr(asking, "total_fetch", network_down())
            finish(runs, lambda runs: JointQuestion.objects.filter(total="").exclude(total_content="").count() == 3)
    restore(there.hub_study, backup)
    for run in finish(runs[1:]):
        assert run.status == Run.Status.FAILED and "The hub no longer has this run" in str(run.message)
        assert run.joint.questions.count() == (until != "approved") and faults(run.study) == []


def test_a_site_whose_answer_is_lost_sends_the_same_bytes_and_charges_once(monkeypatch: pytest.MonkeyPatch) -> None:
    there, sent, send = Installations(), [], asking.answer_send

    def lossy(question: JointQuestion, vector: bytes) -> None:
        sent.append((question.joint.run_id, question.number, vector))
        if len(sent) % 2:
            raise Unreachable(Sentence("The network is down."))
        send(question, vector)

    monkeypatch.setattr(asking, "answer_send", lossy)
    runs = finished(there.start(**STEPS | {"choices": {"steps": 1, "sigma": 10.0}}))
    assert len(sent) > 3 and len({each[:2] for each in sent}) == len({*sent}) == 3
    for run in runs[1:]:
        assert Release.objects.filter(run=run.pk, kind="sums").count() == 1
        assert faults(run.study) == []


@pytest.mark.parametrize(
    "header_of",
    [
        pytest.param(str, id="seconds", marks=pytest.mark.exhaustive),
        pytest.param(lambda seconds: http_date(time.time() + seconds), id="date"),
    ],
)
def test_a_hub_whose_disk_is_full_is_asked_again_when_it_says(monkeypatch, settings, header_of) -> None:
    header, asked = header_of(10_000), []

    class FullHub(InThisProcess):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            asked.append(request.method)
            if request.method == "PUT":
                return httpx.Response(503, headers={"Retry-After": header})
            return super().handle_request(request)

    there = Installations()
    runs = there.start(**STEPS | {"choices": {"steps": 1, "sigma": 10.0}})
    monkeypatch.setattr(Hub, "transport", FullHub())
    runs = finish(runs, lambda _: "PUT" in asked)
    asked.clear()
    for _ in range(3):
        runs = [advance(run) for run in runs]
        alliances_contact()
    assert asked == [] and not any(method_of(run).can_continue(run) for run in runs[1:])
    monkeypatch.setattr(Hub, "transport", InThisProcess())
    now = time.monotonic() + settings.SITES_PATIENCE / 3 * 1.25
    monkeypatch.setattr(backoff.time, "monotonic", lambda: now)
    finished(runs)


def _asked_until_two_have_answered(there: Installations, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Return a run whose first question everyone has endorsed and only the first two sites have answered."""
    send = asking.answer_send

    def send_some(question: JointQuestion, vector: bytes) -> None:
        if question.joint.run.alliance.own_name == there.names[2]:  # type: ignore[union-attr]
            raise Unreachable(Sentence("The network is down."))
        send(question, vector)

    monkeypatch.setattr(asking, "answer_send", send_some)
    return finish(there.start(**STEPS), lambda _: JointAnswer.objects.count() == 2)


@pytest.mark.exhaustive
def test_a_hub_that_was_away_gives_its_sites_time_to_come_back(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    there, now = Installations(), timezone.now()
    hub, *_ = _asked_until_two_have_answered(there, monkeypatch)
    long_ago = now - 2 * timedelta(seconds=settings.SITES_PATIENCE)
    Alliance.objects.filter(pk=there.hub.pk).update(heard_since=long_ago)
    JointQuestion.objects.update(moved_at=long_ago)
    there.hub.sites.update(last_contact=long_ago)
    assert not advance(hub).joint.dropped, "no site was silent: the hub itself may have been unreachable"
    exchange(there.sites[0])
    assert not advance(hub).joint.dropped, "the contact is too recent"
    there.hub.sites.update(last_contact=now)
    Alliance.objects.filter(pk=there.hub.pk).update(heard_since=long_ago)
    assert not advance(hub).joint.dropped, "the site is in contact, so it is still working"
    there.hub.sites.filter(name=there.names[2]).update(last_contact=long_ago)
    assert list(advance(hub).joint.dropped) == [there.names[2]]


def test_a_proposal_is_taken_or_declined_once_whatever_the_hub_says_meanwhile() -> None:
    there = Installations()
    first, second = there.propose(share=0.2, **STEPS), there.propose(share=0.2, **STEPS)
    site, otto = there.sites[0], user_create("otto")
    exchange(site)
    stale, private = Alliance.objects.get(pk=site.pk), there.dataset(site.study, "private")
    joint_run_decline(alliance=stale, number=first.pk.hex, acting_user=otto)
    taken = {"number": second.pk.hex, "private_dataset": private, "acting_user": otto}
    joint_run_take(alliance=stale, **taken)
    assert set(stale.proposals) == {first.pk.hex, second.pk.hex} and not stale.proposals[first.pk.hex].get("declined")
    exchange(stale)  # read before both
    held = Alliance.objects.get(pk=site.pk)
    assert list(held.proposals) == [first.pk.hex] and held.proposals[first.pk.hex]["declined"]
    for number in (first.pk.hex, second.pk.hex):
        with pytest.raises(ValidationError, match="already accepted it"):
            joint_run_take(alliance=site, **{**taken, "number": number})
    assert Run.objects.filter(study=site.study).count() == 1
    stale = Alliance.objects.get(pk=site.pk)
    alliance_leave(alliance=site, acting_user=olga())
    exchange(stale)
    assert Alliance.objects.get(pk=site.pk).proposals == {}


@pytest.mark.exhaustive
def test_answers_are_kept_until_their_run_ends(monkeypatch, django_capture_on_commit_callbacks) -> None:
    def sums_kept(run: Run) -> set[str]:
        """Return stored files of sums that no row of questions names."""
        named = {name for names in run.joint.questions.values_list("answer", "total") for name in names if name}
        kept = set(arrays_list(f"sums/{run.pk}"))
        assert named <= kept
        return kept - named

    there, tell = Installations(), Mock(side_effect=[OperationalError("The connection is gone."), *[None] * 20])
    monkeypatch.setattr(asking, "notify_charged", tell)
    runs = finish(there.start(share=0.3, **STEPS), lambda runs: tell.call_count > 1)
    assert any(sums_kept(run) for run in runs[1:]), "people were not charged for it"
    assert not any(map(sums_kept, finished(runs)))
    hub, *_sites = finish(
        there.start(share=0.3, **STEPS), lambda runs: JointAnswer.objects.filter(question__joint__run=runs[0]).exists()
    )
    assert sums_kept(hub), "no total yet"
    with django_capture_on_commit_callbacks(execute=True):
        run_cancel(run=hub, acting_user=olga())
    assert not sums_kept(hub)


@built_once
def finished_with_a_lost_question() -> Run:
    """Return a site's run that answered four questions for three totals: one ended because another site was silent."""
    there = Installations(4)
    hub, *sites = finish(
        there.start(**STEPS), lambda runs: JointQuestion.objects.filter(answered_at__isnull=False).count() == 4
    )
    asking.question_end(hub, Sentence("Clinic A is silent, says the hub."), ["Clinic A"])
    runs = finished([hub, *sites])
    charged = [Release.objects.filter(run=run.pk, kind="sums").count() for run in runs[1:]]
    assert charged == [1, 4, 4, 4], "a dishonest hub learns two totals, and both are charged"
    for run in runs:
        assert faults(run.study) == []
    for study in there.studies:
        assert_within_caps(study)
    return runs[-1]


@pytest.mark.exhaustive
def test_altered_charges_of_answers_are_found_also_after_an_erasure() -> None:
    """Charges are recomputed even for a lost question, because its total may have been learned."""
    run = finished_with_a_lost_question()
    entries = list(Release.objects.filter(run=run.pk, kind="sums").order_by("sequence"))
    triggers_remove(connection)
    for entry, batch in ((entries[0], 0), (entries[-1], 2)):
        arrays = arrays_load(entry.charges)
        arrays_save(entry.charges, **arrays | {"spent": arrays["spent"] * np.where(np.arange(12) == 3, 0.9, 1.0)})
        found = f"release {entry.sequence}: the charges for batch {batch} differ from its cost."
        assert found in faults(run.study)
        arrays_save(entry.charges, **arrays)
        for name, wrong, fault_text in [
            ("charge", 2 * entry.charge, "its public charge does not match"),
            ("content", entry.content | {"question": "0" * 64}, "is not the one that was charged"),
            ("content", entry.content | {"asked": "0" * 64}, "is not the one that was charged"),
        ]:
            Release._base_manager.filter(pk=entry.pk).update(**{name: wrong})
            assert [fault_text in fault for fault in release_faults(run)] == [True]
            Release._base_manager.filter(pk=entry.pk).update(charge=entry.charge, content=entry.content)
    study, files = run.study, run.joint.questions.values_list("attempt", flat=True)
    assert len(set(files)) == 4, "it is recorded who was asked, even for questions that ended"
    for name in files[:2]:
        arrays = arrays_load(name)
        for wrong, fault_text in [
            ({"cap": 0.5 * arrays["cap"]}, "differ from its cost"),
            ({"holder": arrays["holder"] + 1}, "was not charged to the people who were asked"),
        ]:
            arrays_save(name, **arrays | wrong)
            assert [fault_text in fault for fault in faults(study)] == [True]
        arrays_delete(name)
        assert ["FileNotFoundError" in fault for fault in faults(study)] == [True]
        arrays_save(name, **arrays)
    for holder in DataHolder.objects.filter(study=study)[::5]:
        consent_withdraw(holder=holder, acting_user=None)
    assert records_erase(study.pk) == 3
    assert faults(study) == []
    arrays_save(files[0], **arrays | {"cap": 0.5 * arrays["cap"]})
    assert faults(study), "the remaining people are still checked"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"spread": 1.0}, "spread", marks=pytest.mark.exhaustive),
        pytest.param({"question": "0" * 64}, "question", marks=pytest.mark.exhaustive),
        ({"part": (0, 2)}, "part"),
        pytest.param({"state": "1" * 64}, "state", marks=pytest.mark.exhaustive),
        ({"participants": ("Clinic A", "Clinic B")}, "at least 3"),
        pytest.param({"participants": ("Clinic A", "Clinic B", "Clinic X")}, "X", marks=pytest.mark.exhaustive),
        ({"roster": "2" * 64}, "roster"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_question_that_does_not_follow_is_refused_and_charges_nobody(change: dict[str, Any], message: str) -> None:
    """The hub signs a question with wrong content."""
    there = Installations()
    hub, *sites = there.start(**STEPS)
    for run in (*sites, hub):  # the sites send their approvals, and the hub asks
        advance(run)
    question = JointQuestion.objects.get()
    lie = sign(replace(question.document, **change), known_identity(there.hub))
    question.content, question.signature = lie.document.content().decode(), lie.signature.hex()
    question.save()
    runs = finish([hub, *sites])
    assert {run.status for run in runs} == {Run.Status.FAILED}
    assert any(message in str(run.message) for run in runs[1:]), [str(run.message) for run in runs]
    assert not Release.objects.filter(kind="sums").exists()
    assert not any(balances(run.study).spent.any() for run in runs[1:])
