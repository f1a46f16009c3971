"""Runs: proposals, questions and releases in rounds and batches, workers' parts, and verifications."""

import uuid
from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from common.jobs import Part
from common.models import SentenceField
from consent.models import Recorded, Study, StudyChained
from consent.models.recorded import actor, actor_or_null
from learning.formats import outcome_of
from learning.outcomes import Outcome
from training.models.datasets import Dataset


class Run(Recorded):
    """One use of the holders' data by a method, which determines questions and outcome. The row is authoritative."""

    open_fields = (
        *("title", "purpose", "rehearsal", "seed", "rehearsed", "private_dataset", "public_dataset", "test_dataset"),
        "labelled_dataset",
        *("method", "variant", "choices", "student_learner", "student_parameters", "batch_size", "wanted_labels"),
        *("alliance", "share", "created_by", "created_at", "revision", "approved_by", "approved_at"),
        *("plan", "snapshot_at"),
    )
    working_fields = (
        *(
            "status",
            "started_at",
            "spending_began_at",
            "ended_at",
            "heartbeat",
            "claimed_by",
            "consent_sequence",
            "assignment",
        ),
        *("prepared", "position", "labels", "reinforced", "stop_reason", "spent", "outcome", "message", "student"),
        *("student_progress", "forgotten_at", "plan_basis"),
    )

    class Status(models.TextChoices):
        DRAFT = "draft", _("draft")
        #: Approved by a second person; a worker computes the plan and carries out the approval.
        PLANNING = "planning", _("being planned")
        APPROVED = "approved", _("approved")
        PREPARING = "preparing", _("preparing")
        #: Asking people and spending its share. Only one run of a study does so at a time.
        ASKING = "asking", _("asking")
        LEARNING = "learning", _("learning")
        FINISHED = "finished", _("finished")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")
        WITHDRAWN = "withdrawn", _("withdrawn")

    ACTIVE = (Status.PLANNING, Status.APPROVED, Status.PREPARING, Status.ASKING, Status.LEARNING)
    ENDED = (Status.FINISHED, Status.FAILED, Status.CANCELLED, Status.WITHDRAWN)

    class Method(models.TextChoices):
        NEIGHBOURS = "neighbours", _("every holder votes")
        PATE = "pate", _("teachers vote")
        SGD = "sgd", _("private gradient steps")
        COUNTS = "counts", _("people are counted")
        SYNTHESIS = "synthesis", _("synthetic rows are drawn")

    class Variant(models.TextChoices):
        STANDARD = "standard", _("standard")
        UPSAMPLING = "upsampling", _("upsampling")
        WEIGHTING = "weighting", _("weighting")
        VANISHING = "vanishing", _("vanishing")
        INDIVIDUAL = "individual", _("everyone is charged for their own gradients")
        SAMPLE = "sample", _("samples, each level drawn at its own rate")
        SCALE = "scale", _("samples, each level clipped to its own norm")
        WITHOUT_STRICTEST = "without_strictest", _("baseline: without the strictest level")
        GROUP_AFTER_GROUP = "group_after_group", _("baseline: one level after the other")
        NON_PRIVATE = "non_private", _("baseline: without privacy")
        MARGINALS = "marginals", _("from noisy counts of everyone")
        DENIABILITY = (
            "deniability",
            _("from real rows, if many others could have led to the same result (plausible deniability)"),
        )

    class StopReason(models.TextChoices):
        USED_UP = "used_up", _("every public point was put to the vote")
        ENOUGH = "enough", _("the requested number of labels was reached")
        SHARE = "share", _("the run's share was used up")
        RETIRED = "retired", _("no group could vote any more")
        STEPS = "steps", _("all planned steps were taken")
        COUNTED = "counted", _("all planned counts were made")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="runs")
    title = models.CharField(_("title"), max_length=200)
    purpose = models.TextField(_("purpose"), blank=True)
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT)
    rehearsal = models.BooleanField(
        _("rehearsal"),
        default=False,
        editable=False,
        help_text=_("Whether the run belongs to a rehearsal study, which makes no promises."),
    )
    seed = models.PositiveBigIntegerField(_("seed"), null=True, blank=True, help_text=_("Rehearsal studies only."))
    rehearsed = models.JSONField(
        default=dict, blank=True, help_text="For rehearsals: each person's level and ε, and the accounting method."
    )

    private_dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="+")
    public_dataset = models.ForeignKey(
        Dataset,
        on_delete=models.PROTECT,
        related_name="+",
        null=True,
        blank=True,
        help_text="Null if the method needs no public points and none were given.",
    )
    test_dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    labelled_dataset = models.ForeignKey(
        Dataset,
        on_delete=models.PROTECT,
        related_name="+",
        null=True,
        blank=True,
        help_text="Public rows with known labels from which the student learns in addition to the releases.",
    )
    method = models.CharField(_("method"), max_length=20, choices=Method, default=Method.PATE)
    variant = models.CharField(_("variant"), max_length=20, choices=Variant, default=Variant.WEIGHTING, blank=True)
    choices = models.JSONField(
        _("choices"), default=dict, blank=True, help_text="Fields of the method's dataclass, where they are documented."
    )
    student_learner = models.CharField(_("student learner"), max_length=40, blank=True)
    student_parameters = models.JSONField(default=dict, blank=True)
    batch_size = models.PositiveIntegerField(default=50, validators=[MinValueValidator(1)])
    wanted_labels = models.PositiveIntegerField(
        _("requested labels"), null=True, blank=True, validators=[MinValueValidator(1)]
    )

    alliance = models.ForeignKey(
        "Alliance",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        editable=False,
        related_name="runs",
        help_text="The alliance of a joint run, which asks the people of all its sites.",
    )
    share = models.FloatField(
        _("share"),
        default=1.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(1.0)],
        help_text=_("Part of every holder's cap that the run may use. It is set at approval."),
    )

    created_by = actor_or_null()
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    revision = models.PositiveIntegerField(
        default=1, editable=False, help_text="Revision of the proposal, incremented with every change to the draft."
    )
    approved_by = actor_or_null(blank=True)
    approved_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    spending_began_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    heartbeat = models.DateTimeField(null=True, blank=True, help_text="Time of the last sign of a worker.")
    claimed_by = models.CharField(max_length=80, blank=True, help_text="Worker that is processing the run.")

    plan = models.JSONField(default=dict, blank=True, help_text="Plan computed from the snapshot.")
    plan_basis = models.CharField(
        max_length=64, blank=True, editable=False, help_text="During planning: digest of the facts it depends on."
    )
    snapshot_at = models.DateTimeField(null=True, blank=True, help_text="Consents valid at this time are included.")
    consent_sequence = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Last consent event included in the snapshot."
    )
    assignment = models.CharField(
        max_length=200,
        blank=True,
        editable=False,
        help_text="File in private storage: each teacher's holders, or those asked in this batch.",
    )
    prepared = models.FloatField(
        default=0.0, editable=False, help_text="Fraction of holders' data that has been prepared, in tenths."
    )
    position = models.PositiveIntegerField(
        default=0, help_text="Number of public points voted on, or gradient steps taken, so far."
    )
    labels = models.PositiveIntegerField(default=0, help_text="Number of points that were answered with a label.")
    reinforced = models.PositiveIntegerField(
        default=0, help_text="Number of other points that keep the student's own label at no cost."
    )
    stop_reason = models.CharField(max_length=10, choices=StopReason, blank=True)
    spent = models.JSONField(
        default=list, blank=True, help_text="Charge of each of the plan's groups so far, in μ². Public."
    )
    outcome = models.JSONField(
        default=dict, blank=True, help_text="For rehearsals: ε spent by each level, and other facts about the vote."
    )
    message = SentenceField(blank=True, help_text="Reason why the run failed or is waiting, and what to do.")
    student = models.ForeignKey(
        "StudentModel",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        help_text="Published version of the run's student.",
    )
    student_progress = models.FloatField(
        null=True, blank=True, editable=False, help_text="Fraction of the current student training that is done."
    )
    forgotten_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the teachers' predictions were permanently deleted."
    )

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["study"],
                condition=Q(status="asking", rehearsal=False),
                name="one_run_of_a_study_spends_at_a_time",
            ),
            models.CheckConstraint(
                condition=Q(seed__isnull=True) | Q(rehearsal=True), name="only_a_rehearsal_has_a_seed"
            ),
            models.CheckConstraint(
                condition=~Q(variant__in=("without_strictest", "group_after_group", "non_private", "deniability"))
                | Q(rehearsal=True),
                name="only_a_rehearsal_is_a_baseline",
            ),
            models.CheckConstraint(
                condition=Q(created_by=None) | Q(approved_by=None) | ~Q(approved_by=F("created_by")),
                name="run_is_approved_by_a_second_person",
            ),
            models.CheckConstraint(condition=Q(labels__lte=F("position")), name="labels_within_queries"),
            models.CheckConstraint(condition=Q(share__gt=0, share__lte=1), name="run_uses_a_share"),
            models.CheckConstraint(condition=Q(batch_size__gt=0), name="run_sizes_are_positive"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def rejected(self) -> int:
        return self.position - self.labels - self.reinforced

    @property
    def public_points(self) -> Dataset:
        """The public dataset of a run whose method requires one."""
        assert self.public_dataset is not None, "the proposal was checked"
        return self.public_dataset

    @property
    def are_points_removed(self) -> bool:
        """Whether public points or labelled rows used by the run's student were removed."""
        taught = (self.public_dataset, self.labelled_dataset)
        return any(dataset is not None and dataset.removed_at is not None for dataset in taught)

    @property
    def schema(self) -> dict[str, Any]:
        """Schema of a record, as published to users of the results."""
        return (self.public_dataset or self.private_dataset).schema

    @property
    def encoder(self) -> str:
        """Digest of the encoder whose vectors the run learns from; empty if it learns from the records themselves."""
        return self.choices.get("encoder", "") if isinstance(self.choices, dict) else ""

    @property
    def classes(self) -> list[str]:
        """Names of the classes; empty if the run learns another kind of target."""
        return self.schema["classes"]

    @property
    def learns(self) -> Outcome:
        """The outcome that the run learns to predict."""
        return outcome_of(self.schema)

    @property
    def has_ended(self) -> bool:
        return self.status in self.ENDED


class ProposalChange(StudyChained):
    """Change or withdrawal of a draft by its proposer."""

    class Kind(models.TextChoices):
        EDITED = "edited", _("changed")
        WITHDRAWN = "withdrawn", _("withdrawn")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="proposal_changes", db_index=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="changes")
    kind = models.CharField(max_length=10, choices=Kind)
    revision = models.PositiveIntegerField(help_text="Revision of the proposal after this change.")
    content = models.JSONField(
        default=list, blank=True, help_text="Changed parameters, each as a list of name, old value and new value."
    )
    changed_by = actor()
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("change to a proposed run")
        verbose_name_plural = _("changes to proposed runs")

    def __str__(self) -> str:
        return f"{self.kind}: revision {self.revision}"


# --- Questions and releases -------------------------------------------------------------------------------------------


class Round(models.Model):
    """Round in which every holder is asked about public points or for gradients, in one representation space.

    ``artifact`` contains the public questions: the fitted ``representation`` (bytes), and further data for the run's
    method.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="rounds")
    index = models.PositiveIntegerField()
    representation = models.JSONField(help_text="Sentence that describes the representation space.")
    artifact = models.CharField(max_length=200)
    sigma = models.FloatField(help_text="Standard deviation of the noise of each number, in units of the largest norm.")
    radius_share = models.FloatField(
        null=True, blank=True, help_text="For votes: the fraction of public points within the radius of a query."
    )
    size = models.PositiveIntegerField(help_text="Number of planned queries or gradient steps.")
    position = models.PositiveIntegerField(default=0, help_text="Number of queries or steps released so far.")
    opened_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("round")
        verbose_name_plural = _("rounds")
        ordering = ["run", "index"]
        constraints = [
            models.UniqueConstraint(fields=["run", "index"], name="round_index_is_unique"),
            models.CheckConstraint(condition=Q(position__lte=F("size")), name="round_position_within_size"),
        ]

    def __str__(self) -> str:
        return f"round {self.index + 1}"


class Batch(models.Model):
    """Queries or gradient steps that are committed in one transaction with their charges."""

    # The unique constraint serves as the index.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="batches", db_index=False)
    index = models.PositiveIntegerField()
    start = models.PositiveIntegerField()
    size = models.PositiveIntegerField(help_text="Number of queries or gradient steps in the batch.")
    labels = models.PositiveIntegerField(help_text="Number of the batch's queries that were answered with a label.")
    round = models.ForeignKey(Round, on_delete=models.CASCADE, null=True, blank=True, related_name="batches")
    attempt = models.CharField(
        max_length=200, blank=True, help_text="File with the people asked and their budgets; kept if votes are."
    )
    released = models.CharField(
        max_length=200, blank=True, help_text="Public file with a release that does not answer queries."
    )
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("batch")
        verbose_name_plural = _("batches")
        ordering = ["run", "index"]
        constraints = [models.UniqueConstraint(fields=["run", "index"], name="batch_index_is_unique")]

    def __str__(self) -> str:
        return f"batch {self.index}"


class Query(models.Model):
    """One public point to vote on: answered with a label, reinforced or rejected."""

    # The unique constraint serves as the index.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="queries", db_index=False)
    batch = models.ForeignKey(Batch, on_delete=models.CASCADE, related_name="results")
    row = models.PositiveIntegerField(help_text="Row of the point in the public dataset.")
    label = models.PositiveSmallIntegerField(null=True, help_text="Index of the class; empty if rejected.")
    reinforced = models.BooleanField(
        default=False, help_text="Whether the label is the student's own, confirmed by the teachers."
    )
    counts = models.JSONField(null=True, blank=True, help_text="Noisy counts for each class, if they were released.")

    class Meta:
        verbose_name = _("query")
        verbose_name_plural = _("queries")
        ordering = ["run", "row"]
        constraints = [models.UniqueConstraint(fields=["run", "row"], name="a_point_is_put_to_the_vote_once")]

    def __str__(self) -> str:
        return f"query {self.row}"


# --- Parts ------------------------------------------------------------------------------------------------------------


class TeacherChunk(Part):
    """Some of a run's teachers, ``start`` ≤ index < ``stop``."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="chunks")
    start = models.PositiveIntegerField()
    stop = models.PositiveIntegerField()

    class Meta:
        verbose_name = _("teacher chunk")
        verbose_name_plural = _("teacher chunks")
        ordering = ["run", "start"]
        constraints = [
            models.UniqueConstraint(fields=["run", "start"], name="chunk_start_is_unique"),
            models.CheckConstraint(condition=Q(stop__gt=F("start")), name="chunk_is_not_empty"),
        ]

    def __str__(self) -> str:
        return f"teachers {self.start}–{self.stop - 1}"


class Shard(Part):
    """Part of the current batch: all holders whose id modulo the number of shards is ``number``."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="shards")
    number = models.PositiveIntegerField()

    class Meta:
        verbose_name = _("holder shard")
        verbose_name_plural = _("holder shards")
        ordering = ["run", "number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="shard_number_is_unique")]

    def __str__(self) -> str:
        return f"shard {self.number}"


class WorkerTime(models.Model):
    """Time that workers have recently spent on a study's runs, recorded by :mod:`training.engine.scheduling`."""

    study = models.OneToOneField(Study, on_delete=models.CASCADE, related_name="+")
    seconds = models.FloatField(help_text="Seconds of work at that time, decaying by half every ten minutes.")
    noted_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "worker times"

    def __str__(self) -> str:
        return f"{self.study}, {self.seconds:.0f} s"


# --- Verification -----------------------------------------------------------------------------------------------------


class Verification(models.Model):
    """Outcome of the last verification of a study or the installation, by the nightly task or ``verify_ledger``.

    ``found`` contains details and numbers that only auditors and people who handle consents may see.
    """

    study = models.OneToOneField(Study, on_delete=models.CASCADE, null=True, related_name="verification")
    claimed_at = models.DateTimeField(null=True, help_text="Time at which a worker last started a verification.")
    verified_at = models.DateTimeField(null=True, help_text="Start time of the last completed verification.")
    faults = models.PositiveIntegerField(default=0)
    found = models.JSONField(default=list, help_text="First faults found, each as the name of the check and a message.")
    fault_for_deciders = models.BooleanField(
        default=False, help_text="Whether at least one fault concerns people who decide about runs."
    )
    locked = models.BooleanField(default=False)

    class Meta:
        verbose_name_plural = "verifications"

    def __str__(self) -> str:
        return f"{self.study or 'installation'}: {self.faults} faults"
