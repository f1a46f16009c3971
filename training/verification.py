"""Verification that stored releases agree with the register, and charges with the plan."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.contrib.auth import get_user_model
from django.db.models import Count, F, Q, QuerySet
from django.utils import timezone

from accounting.models import Release
from accounting.restores import missing_rows
from accounting.shares import ROUNDING, shares
from accounting.verification import Check, installation_checks, study_checks
from common.artifacts import arrays_digest, arrays_load, model_fetch
from common.keyrings import ring_load
from common.row_hashes import json_digest
from consent.models import Disposal, Membership, Role, Study
from consent.selectors import role_faults
from consent.services.consent_forms import form_faults
from consent.services.disposals import holders_erased_once, unstorable_holders
from consent.services.erasures import holders_waiting
from consent.services.mail import mails_send
from learning.sites.documents import AnswerDocument, Refused
from training.alliances.documents import roster, vector_load
from training.engine.commits import used_share
from training.engine.records import ring_of
from training.methods import MethodOutcome, method_of
from training.models import Batch, Dataset, JointQuestion, JointRun, Query, Run, RunResult, Verification
from training.services.cards import card_digest

logger = logging.getLogger(__name__)

#: Longest time within which a requested erasure must be completed.
LONGEST_WAIT = timedelta(days=1)


def checks_of(study: Study, watch: Callable[[Iterable[Any]], Iterable[Any]] = iter) -> list[Check]:
    """Return all checks of a study, which run every night and in ``ipate verify_ledger``.

    The rows of the chains are passed through ``watch``, which may report progress.
    """
    return [
        *study_checks(study, watch),
        *(
            Check(f"releases of run {run.pk}", lambda run=run: release_faults(run))  # type: ignore[misc]
            for run in Run.objects.filter(study=study).select_related("study")
        ),
        Check("releases of unknown runs", lambda: orphaned_release_faults(study)),
        Check("datasets match their digests", lambda: record_faults(study)),
        # A request is private, so people who decide about runs must not learn of an overdue erasure.
        Check("requested erasures were carried out", lambda: erasure_faults(study), for_deciders=False),
        Check("forms match their proposals", lambda: form_faults(study)),
        Check("roles match their recorded changes", lambda: role_faults(study)),
    ]


def release_faults(run: Run) -> Iterator[str]:
    """Check that every query of a run belongs to a batch, and that every batch has one release with its cost."""
    answered = Count("results", filter=Q(results__label__isnull=False, results__reinforced=False))
    batches = list(run.batches.annotate(queried=Count("results"), answered=answered).order_by("index"))
    releases = {each.batch: each for each in Release.objects.filter(run=run.pk, batch__isnull=False)}
    method, position = method_of(run), 0
    for number, batch in enumerate(batches):
        who = f"run {run.pk}, batch {batch.index}"
        if (batch.index, batch.start) != (number, position):
            yield f"{who}: does not follow the batch before it."
        queries = batch.size if method.releases_labels else 0
        if (batch.queried, batch.answered) != (queries, batch.labels):
            found = f"{batch.answered} for {batch.queried}"
            yield f"{who}: expected {batch.labels} labels for {queries} queries, found {found}."
        position = batch.start + batch.size
        if not run.rehearsal:
            yield from _register_faults(run, batch, releases.pop(batch.index, None), who)
    if (run.position, run.labels) != (position, sum(batch.labels for batch in batches)):
        yield f"run {run.pk}: its position or number of labels does not match its batches."
    if run.reinforced != run.queries.filter(reinforced=True, label__isnull=False).count():
        yield f"run {run.pk}: its number of reinforced labels does not match its queries."
    if strays := run.queries.exclude(batch__in=run.batches.all()).count():
        yield f"run {run.pk}: {strays} of its queries are not in any of its batches."
    if strays := Query.objects.filter(batch__in=run.batches.all()).exclude(run=run).count():
        yield f"run {run.pk}: {strays} queries in its batches belong to other runs."
    if not run.rehearsal:
        yield from _spending_faults(run)
    for release in releases.values():
        yield f"release {release.sequence}: batch {release.batch} of run {run.pk} is missing."
    if run.alliance_id:
        yield from _joint_faults(run)
    if not run.rehearsal:
        yield from _share_faults(run)
        yield from _model_faults(run) if method.outcome == MethodOutcome.MODEL else _result_faults(run)


def _register_faults(run: Run, batch: Batch, release: Release | None, who: str) -> Iterator[str]:
    if release is None:
        yield f"{who}: was released without an entry in the register."
        return
    method = method_of(run)
    if release.kind != method.kind_of(batch):
        yield f"release {release.sequence}: has the kind {release.kind}, which this run's method does not release."
        return
    content = release.content
    if method.releases_labels and (content["queries"], content["labels"]) != (batch.size, batch.labels):
        yield (
            f"release {release.sequence}: covers {content['labels']} labels for {content['queries']} queries, "
            f"but {who} released {batch.labels} for {batch.size}."
        )
    yield from method.content_faults(run, batch, release)


def _spending_faults(run: Run) -> Iterator[str]:
    """Check that a run's recorded charges, which decide when it ends, are the sum of its releases' charges."""
    charged_for = Q(batch__isnull=False) | Q(kind=Release.Kind.SUMS)
    contents = Release.objects.filter(charged_for, run=run.pk).values_list("content", flat=True)
    charged = np.sum([content["charges"] for content in contents], axis=0) if contents else np.zeros(len(run.spent))
    if not np.allclose(run.spent, charged, rtol=ROUNDING, atol=0):
        yield f"run {run.pk}: its recorded charges are not the sum of its releases' charges."


def _joint_faults(run: Run) -> Iterator[str]:
    """Check that every answer to a hub is in the register exactly once, and that the hub has signed every total."""
    questions = list(JointQuestion.objects.filter(joint__run=run.pk).order_by("number"))
    sums = Release.objects.filter(run=run.pk, kind=Release.Kind.SUMS).order_by("sequence")
    released = [(content["number"], content["vector"]) for content in _contents(sums, Release.Kind.SUMS)]
    answered = [(each.number, _signed_vector(each.answer_content)) for each in questions if each.answered_at]
    if released != answered:
        yield f"run {run.pk}: its answers to the hub differ from the register."
    joint = JointRun.objects.filter(run=run.pk).select_related("run__alliance").first()
    if joint is not None and joint.content and not joint.missing:
        try:
            roster(joint)
        except Refused as error:
            yield f"run {run.pk}: its approvals differ from the signed ones: {error}"
    for each in questions:
        files = [(each.answer, each.answer_content), (each.total, each.total_content)]
        for artifact, content in files:
            if not artifact:
                continue
            try:
                vector = hashlib.sha256(vector_load(artifact)).hexdigest()
            except (OSError, KeyError, ValueError):
                vector = ""
            if vector != _signed_vector(content):
                yield f"run {run.pk}, question {each.number}: its numbers differ from the signed ones."


def _signed_vector(content: str) -> str:
    """Return the SHA-256 that was signed for the numbers of an answer or a total."""
    try:
        return AnswerDocument.read(content.encode()).vector
    except Refused:
        return "unreadable"


def _share_faults(run: Run) -> Iterator[str]:
    share = shares(run.study).get(run.pk)
    if share is None:
        if run.position or (run.approved_at and run.plan):
            yield f"run {run.pk}: was approved, but was not granted a share."
        return
    if abs(share.granted - run.share) > ROUNDING:
        yield f"run {run.pk}: its share differs from the one that was granted."
    if (run.has_ended or run.status == Run.Status.LEARNING) != (share.used is not None):
        yield f"run {run.pk}: its status ({run.status}) contradicts the state of its share."
    if share.used is not None and share.limit is not None and share.used < used_share(run) * (1 - 1e-9):
        yield f"run {run.pk}: used more than its final share."


def _model_faults(run: Run) -> Iterator[str]:
    """Check that student versions match the register and their files, and that the last one chosen is published."""
    models = Release.objects.filter(run=run.pk, kind=Release.Kind.MODEL)
    # Old entries of the register do not contain the student's number.
    released = {content.get("version", 1): content for content in models.values_list("content", flat=True)}
    thresholds = Release.objects.filter(run=run.pk, kind=Release.Kind.THRESHOLD).order_by("sequence")
    renewed = {content["version"]: content for content in thresholds.values_list("content", flat=True)}
    versions = {version.version: version for version in run.students.all()}
    digests = {number: content["digest"] for number, content in released.items()}
    if {number: version.digest for number, version in versions.items()} != digests or len(models) != len(released):
        yield f"run {run.pk}: its student models differ from the register."
    for number, version in sorted(versions.items()):
        files = [(version.artifact, version.digest)]
        # If an ONNX file was created later than the version, it is not in the register.
        if onnx := (renewed.get(number) or released.get(number, {})).get("onnx", version.onnx_digest):
            files.append((version.onnx, onnx))
        for artifact, recorded in files:
            yield from _file_faults(f"run {run.pk}: the file of student version {number}", artifact, recorded)
        if version.calibration != released.get(number, {}).get("calibration"):
            yield f"run {run.pk}: the calibration of student version {number} differs from the register."
        if card_digest(version.card) != released.get(number, {}).get("card"):
            yield f"run {run.pk}: the card of student version {number} differs from the register."
        if version.card.get("threshold") != renewed.get(number, {}).get("threshold"):
            yield f"run {run.pk}: the threshold of student version {number} differs from the register."
    yield from _withdrawal_faults(run)
    choices = Release.objects.filter(run=run.pk, kind=Release.Kind.CHOICE).order_by("sequence")
    last = choices.values_list("content", flat=True).last()
    by_itself = [number for number in versions if released.get(number, {}).get("published")]
    chosen = last["version"] if last else min(by_itself, default=None)
    if (run.student.version if run.student else None) != chosen:
        yield f"run {run.pk}: the published student version is not the one that was chosen."


def _result_faults(run: Run) -> Iterator[str]:
    """Check that the table, its file and its card match the register, and that they are unavailable if withdrawn."""
    result = RunResult.objects.filter(run=run).first()
    entries = Release.objects.filter(run=run.pk)
    released = [
        {name: content.get(name) for name in ("digest", "content", "card")}
        for content in _contents(entries, Release.Kind.RESULT)
    ]
    withdrawn = [content["digest"] for content in _contents(entries, Release.Kind.WITHDRAWAL)]
    if result is None:
        if released:
            yield f"run {run.pk}: its table is missing."
        return
    kept = {"digest": result.digest, "content": json_digest(result.content), "card": card_digest(result.card)}
    if released != [kept]:
        yield f"run {run.pk}: its table differs from the register."
    yield from _file_faults(f"run {run.pk}: the file of its table", result.artifact, result.digest)
    if withdrawn != ([result.digest] if result.is_withdrawn else []):
        yield f"run {run.pk}: whether its table is withdrawn differs from the register."


def _contents(entries: QuerySet[Release], kind: str) -> list[dict[str, Any]]:
    return list(entries.filter(kind=kind).order_by("sequence").values_list("content", flat=True))


def _withdrawal_faults(run: Run) -> Iterator[str]:
    """Check that the withdrawn versions are those that the register lists as withdrawn."""
    withdrawals = Release.objects.filter(run=run.pk, kind=Release.Kind.WITHDRAWAL).values_list("content", flat=True)
    withheld = run.students.filter(withdrawn_at__isnull=False).values_list("version", flat=True)
    if {content["version"] for content in withdrawals} != set(withheld):
        yield f"run {run.pk}: its withdrawn versions differ from the register."


def record_faults(study: Study) -> Iterator[str]:
    """Check that every dataset is unchanged, and that no private ones remain after the study's records were erased."""
    private = 0
    for dataset in Dataset.objects.filter(study=study, removed_at=None):
        yield from _file_faults(f"dataset “{dataset.name}”: its file", dataset.artifact, dataset.digest, arrays_digest)
        private += dataset.kind == Dataset.Kind.PRIVATE
    if study.expired_at and private:
        yield f"The private records of the study were erased, but {private} private datasets remain."


def erasure_faults(study: Study) -> Iterator[str]:
    """Check that all erasures requested by holders were carried out."""
    waiting = Disposal.objects.filter(study=study, kind=Disposal.Kind.ASKED, holder__in=holders_waiting(study))
    if waiting.filter(recorded_at__lt=timezone.now() - LONGEST_WAIT).exists():
        yield "A person asked more than a day ago to have their records erased, but they still exist."
    gone = unstorable_holders(study, np.array(list(holders_erased_once(study.pk)), np.int64)) - holders_waiting(study)
    for dataset in Dataset.objects.filter(study=study, removed_at=None, kind=Dataset.Kind.PRIVATE):
        try:
            owners = arrays_load(dataset.artifact, "holder")["holder"]
        except FileNotFoundError:  # another check reports this as a fault in the dataset
            continue
        left = ring_load(ring_of(dataset.artifact)).has(np.array(list(gone), dtype=np.int64))
        if left.any():
            yield f"dataset “{dataset.name}”: contains the key of a person whose records were erased."
        if np.isin(owners, list(gone)).any():
            yield f"dataset “{dataset.name}”: contains records of a person whose records were erased."


def _model_digest(artifact: str) -> str:
    return hashlib.sha256(model_fetch(artifact)).hexdigest()


def _file_faults(
    which: str, artifact: str, recorded: str, digest: Callable[[str], str] = _model_digest
) -> Iterator[str]:
    """Check that a file matches its recorded digest; ``digest`` computes it, by default for models and tables."""
    try:
        if digest(artifact) != recorded:
            yield f"{which} differs from the recorded one."
    except OSError:
        yield f"{which} is missing."


def orphaned_release_faults(study: Study) -> Iterator[str]:
    """Yield messages about releases of a study that belong to unknown runs."""
    unknown = Release.objects.filter(study=study, run__isnull=False).exclude(
        run__in=Run.objects.filter(study=study).values("pk")
    )
    for run, entries in unknown.order_by("run").values_list("run").annotate(Count("pk")):
        yield f"run {run}: has {entries} entries in the register, but does not exist in this study."


def batches_with_votes(study: Study) -> QuerySet[Batch]:
    """Return the batches whose votes were kept so that their charges can be recomputed."""
    batches = Batch.objects.filter(run__study=study, run__rehearsal=False, run__status=Run.Status.FINISHED)
    kept = batches.filter(run__forgotten_at=None)  # the study may have started keeping votes later
    whole = kept.filter(run__private_dataset__removed_at=None) if study.retain_votes else batches.none()
    return whole.select_related("run__private_dataset", "run__public_dataset", "round").order_by("run", "index")


def replay_faults(batch: Batch) -> Iterator[str]:
    """Yield messages about a batch's charges that differ from those recomputed by its method."""
    release = Release.objects.get(run=batch.run_id, batch=batch.index)
    yield from method_of(batch.run).replay_faults(batch, release)


# --- Every night ------------------------------------------------------------------------------------------------------


#: Hour, in the installation's time zone, from which studies are verified every night.
_HOUR = 2
#: Time after which another worker repeats a verification whose worker has died.
_LEASE = timedelta(hours=3)
#: Maximum number of faults whose messages are stored.
_KEPT = 100


def check_results_store(
    study: Study | None,
    checks: Iterable[Check],
    report: Callable[[Check, list[str]], None] = lambda check, faults: None,
) -> int:
    """Run the checks of a study or of the installation, and store their results.

    Args:
        study: the study; None for the installation.
        report: called with each check and its faults.

    Returns:
        The number of faults.
    """
    verified_at = timezone.now()
    alarm, entries = False, []
    for check in checks:
        faults = check.faults()
        report(check, faults)
        alarm |= bool(faults) and check.for_deciders
        entries += [[check.name, fault] for fault in faults]
    Verification.objects.update_or_create(
        study=study,
        defaults={
            "verified_at": verified_at,
            "faults": len(entries),
            "found": entries[:_KEPT],
            "fault_for_deciders": alarm,
            "locked": study is not None and bool(missing_rows(study)),
        },
    )
    return len(entries)


def studies_verify() -> None:
    """Verify the studies that have not been verified since last night began, and report faults by email."""
    now = timezone.now()
    night = timezone.localtime(now).replace(hour=_HOUR, minute=0, second=0, microsecond=0)
    if night > now:
        night -= timedelta(days=1)
    for study in [None, *Study.objects.order_by("pk")]:
        if not _claim(study, night):
            continue  # done, or another worker is working on it
        if check_results_store(study, checks_of(study) if study else installation_checks()):
            logger.error("A verification found faults; the auditors are being notified.")
        _mail(study)


def _claim(study: Study | None, night: datetime) -> bool:
    now = timezone.now()
    free = Verification.objects.filter(
        Q(verified_at=None) | Q(verified_at__lt=night),
        Q(claimed_at=None) | Q(claimed_at__lt=now - _LEASE) | Q(claimed_at__lte=F("verified_at")),
        pk=Verification.objects.get_or_create(study=study)[0].pk,
    )
    return bool(free.update(claimed_at=now))


def _mail(study: Study | None) -> None:
    """Email all faults to auditors, and notify the committee that there are faults. This is repeated every night.

    Faults of the installation are reported to the auditors of all studies and to the installation's administrators.
    """
    outcome = Verification.objects.get(study=study)
    roles = Membership.objects.order_by().values_list("user_id", flat=True).distinct()
    if study is None:
        if outcome.faults:
            root = get_user_model().objects.filter(is_superuser=True, is_active=True).values_list("pk", flat=True)
            mails_send("installation_fault", sorted({*roles.filter(role=Role.AUDITOR), *root}))
        return
    if outcome.faults or outcome.locked:
        mails_send("fault_found", roles.filter(study=study, role=Role.AUDITOR), study=study)
    if outcome.fault_for_deciders or outcome.locked:
        committee = roles.filter(study=study, role__in=[Role.COMMITTEE, Role.CHAIR])
        mails_send("fault_found_committee", committee, study=study)
