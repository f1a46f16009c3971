"""Datasets, runs and what they leave behind. Arrays live in private storage; see :mod:`common.artifacts`."""

import uuid
from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from common.jobs.parts import Part
from consent.models import Recorded, Study, StudyChained
from consent.models.actors import actor, actor_or_null
from learning.published import released_itself


class Dataset(Recorded):
    """Rows of one study: private (owned by holders), public (put to the vote) or test (for evaluation)."""

    open_fields = ("name", "kind", "schema", "most_records", "provenance", "imported_by", "imported_at", "removed_at")
    # One person's erasure changes them.
    sealed_fields = ("artifact", "digest")
    working_fields = ("rows", "holders", "seen_classes")  # follow from the arrays

    class Kind(models.TextChoices):
        PRIVATE = "private", _("private")
        PUBLIC = "public", _("public")
        TEST = "test", _("test")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="datasets")
    name = models.CharField(_("name"), max_length=100)
    kind = models.CharField(_("kind"), max_length=10, choices=Kind)
    schema = models.JSONField(help_text="What a row is: the columns or the image shape, and the classes; public.")
    rows = models.PositiveIntegerField()
    holders = models.PositiveIntegerField(default=0)
    most_records = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Records of one holder that it took at most, public; null where it took all, as it once was.",
    )
    seen_classes = models.JSONField(
        blank=True, help_text="Numbers of the classes that the labels hold; a secret if private."
    )
    provenance = models.TextField(
        _("where it comes from"), blank=True, help_text="As the operator states it; on the card if public."
    )
    artifact = models.CharField(max_length=200, help_text="Its arrays in private storage.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the arrays.")
    imported_by = actor_or_null(blank=True)
    imported_at = models.DateTimeField(default=timezone.now, editable=False)
    removed_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When its arrays were deleted; the row stays for its runs."
    )

    class Meta:
        verbose_name = _("dataset")
        ordering = ["study", "kind", "name"]
        constraints = [models.UniqueConstraint(fields=["study", "name"], name="dataset_name_is_unique_in_a_study")]

    def __str__(self) -> str:
        return self.name

    @property
    def classes(self) -> list[str]:
        return self.schema["classes"]


class Run(Recorded):
    """One training of one student, by a method that has its own stages. The row is the truth."""

    open_fields = (
        *("title", "purpose", "rehearsal", "seed", "rehearsed", "private_dataset", "public_dataset", "test_dataset"),
        *("method", "variant", "choices", "student_learner", "student_parameters", "batch_size", "wanted_labels"),
        *("share", "created_by", "created_at", "revision", "approved_by", "approved_at"),
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
        *("prepared", "position", "labels", "stop_reason", "spent", "retired", "outcome", "message", "student"),
        *("student_progress", "forgotten_at", "proposal_key", "proposal_digest"),
    )

    class Status(models.TextChoices):
        DRAFT = "draft", _("draft")
        APPROVED = "approved", _("approved")
        PREPARING = "preparing", _("preparing the people")
        TRAINING = "training", _("training teachers")
        VOTING = "voting", _("voting")
        ASKING = "asking", _("asking the holders")
        LEARNING = "learning", _("learning by private gradient steps")
        STUDENT = "student", _("training the student")
        FINISHED = "finished", _("finished")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")
        WITHDRAWN = "withdrawn", _("withdrawn")

    ACTIVE = (
        Status.APPROVED,
        Status.PREPARING,
        Status.TRAINING,
        Status.VOTING,
        Status.ASKING,
        Status.LEARNING,
        Status.STUDENT,
    )
    #: Of a study's runs, one at a time is in these.
    SPENDING = (Status.VOTING, Status.ASKING, Status.LEARNING)
    ENDED = (Status.FINISHED, Status.FAILED, Status.CANCELLED, Status.WITHDRAWN)

    class Method(models.TextChoices):
        NEIGHBOURS = "neighbours", _("every holder votes")
        PATE = "pate", _("teachers vote")
        SGD = "sgd", _("private gradient steps")

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

    class StopReason(models.TextChoices):
        USED_UP = "used_up", _("every public point was put to the vote")
        ENOUGH = "enough", _("the wanted number of labels was reached")
        SHARE = "share", _("the run's share was used up")
        RETIRED = "retired", _("no group was left to vote")
        STEPS = "steps", _("every planned step was taken")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="runs")
    title = models.CharField(_("title"), max_length=200)
    purpose = models.TextField(_("what it is for"), blank=True)
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT)
    rehearsal = models.BooleanField(
        _("rehearsal"),
        default=False,
        editable=False,
        help_text=_("Of a rehearsal study: nothing is promised."),
    )
    seed = models.PositiveBigIntegerField(_("seed"), null=True, blank=True, help_text=_("Rehearsal studies only."))
    rehearsed = models.JSONField(
        default=dict, blank=True, help_text="Rehearsals: who is at which level and ε, and how costs are counted."
    )

    private_dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="+")
    public_dataset = models.ForeignKey(
        Dataset,
        on_delete=models.PROTECT,
        related_name="+",
        null=True,
        blank=True,
        help_text="Null where a method needs no public points, and none are given.",
    )
    test_dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    method = models.CharField(_("method"), max_length=20, choices=Method, default=Method.PATE)
    variant = models.CharField(_("variant"), max_length=20, choices=Variant, default=Variant.WEIGHTING, blank=True)
    choices = models.JSONField(
        _("choices"),
        default=dict,
        blank=True,
        help_text="Of the method's own dataclass, which describes them.",
    )
    student_learner = models.CharField(_("student learner"), max_length=40, blank=True)
    student_parameters = models.JSONField(default=dict, blank=True)
    batch_size = models.PositiveIntegerField(default=50, validators=[MinValueValidator(1)])
    wanted_labels = models.PositiveIntegerField(
        _("wanted labels"), null=True, blank=True, validators=[MinValueValidator(1)]
    )

    share = models.FloatField(
        _("share"),
        default=1.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(1.0)],
        help_text=_("How much of every holder's cap the run may use; set at its approval."),
    )

    created_by = actor_or_null()
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    proposal_key = models.CharField(
        max_length=100, blank=True, editable=False, help_text="Its proposer's, by which a repeated proposal is known."
    )
    proposal_digest = models.CharField(max_length=64, blank=True, editable=False, help_text="Of what was sent with it.")
    revision = models.PositiveIntegerField(
        default=1, editable=False, help_text="Of the proposal: counted up with each change of the draft."
    )
    approved_by = actor_or_null(blank=True)
    approved_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    spending_began_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    heartbeat = models.DateTimeField(null=True, blank=True, help_text="When work on it was last known to be alive.")
    claimed_by = models.CharField(max_length=80, blank=True, help_text="The worker that holds it.")

    plan = models.JSONField(default=dict, blank=True, help_text="The plan that the snapshot led to.")
    snapshot_at = models.DateTimeField(null=True, blank=True, help_text="The moment whose consents count.")
    consent_sequence = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="The last consent event counted."
    )
    assignment = models.CharField(
        max_length=200,
        blank=True,
        editable=False,
        help_text="Who is in which teacher, or is asked in the batch under way: a file in private storage.",
    )
    prepared = models.FloatField(
        default=0.0, editable=False, help_text="How much of the preparation of its people is done, in tenths."
    )
    position = models.PositiveIntegerField(
        default=0, help_text="Public points put to the vote, or gradient steps taken, so far."
    )
    labels = models.PositiveIntegerField(default=0, help_text="How many of the points were answered.")
    stop_reason = models.CharField(max_length=10, choices=StopReason, blank=True)
    spent = models.JSONField(
        default=list, blank=True, help_text="What each group of the plan was charged so far, in μ²; public."
    )
    retired = models.JSONField(
        default=list, blank=True, help_text="Groups of the plan whose share is used up and whose teachers are silent."
    )
    outcome = models.JSONField(
        default=dict, blank=True, help_text="Rehearsals: ε that each level spent, and what else is known of the vote."
    )
    message = models.TextField(blank=True, help_text="Why it failed or waits, and what to do.")
    student = models.ForeignKey(
        "StudentModel",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        help_text="The published version of its student.",
    )
    student_progress = models.FloatField(
        null=True, blank=True, editable=False, help_text="How much of the training of a student under way is done."
    )
    forgotten_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the teachers' predictions were deleted for good."
    )

    class Meta:
        verbose_name = _("run")
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["study"],
                condition=Q(status__in=("voting", "asking", "learning"), rehearsal=False),
                name="one_run_of_a_study_spends_at_a_time",
            ),
            models.CheckConstraint(
                condition=Q(seed__isnull=True) | Q(rehearsal=True), name="only_a_rehearsal_has_a_seed"
            ),
            models.CheckConstraint(
                condition=~Q(variant__in=("without_strictest", "group_after_group", "non_private")) | Q(rehearsal=True),
                name="only_a_rehearsal_is_a_baseline",
            ),
            models.UniqueConstraint(
                fields=["created_by", "proposal_key"],
                condition=~Q(proposal_key=""),
                name="a_proposal_with_a_key_is_saved_once",
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
        return self.position - self.labels

    @property
    def public_points(self) -> Dataset:
        """The public dataset of a run by a method that needs one."""
        assert self.public_dataset is not None, "the proposal was checked"
        return self.public_dataset

    @property
    def schema(self) -> dict[str, Any]:
        """Schema of a record, as it is told to whoever uses what was learned."""
        return (self.public_dataset or self.private_dataset).schema

    @property
    def classes(self) -> list[str]:
        return self.schema["classes"]

    @property
    def has_ended(self) -> bool:
        return self.status in self.ENDED


class ProposalChange(StudyChained):
    """Change of a draft by whoever proposed it, or its withdrawal."""

    class Kind(models.TextChoices):
        EDITED = "edited", _("changed")
        WITHDRAWN = "withdrawn", _("withdrawn")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="proposal_changes", db_index=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="changes")
    kind = models.CharField(max_length=10, choices=Kind)
    revision = models.PositiveIntegerField(help_text="Of the proposal, from then on.")
    content = models.JSONField(
        default=list, blank=True, help_text="Of each parameter that was changed: name, value before, value after."
    )
    changed_by = actor()
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("change of a proposed run")
        verbose_name_plural = _("changes of proposed runs")
        constraints = [models.UniqueConstraint(fields=["study", "sequence"], name="proposal_change_sequence_is_unique")]

    def __str__(self) -> str:
        return f"{self.kind}: revision {self.revision}"


class TeacherChunk(Part):
    """Some teachers of a run, ``start`` ≤ index < ``stop``."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="chunks")
    start = models.PositiveIntegerField()
    stop = models.PositiveIntegerField()

    class Meta:
        verbose_name = _("chunk of teachers")
        ordering = ["run", "start"]
        constraints = [
            models.UniqueConstraint(fields=["run", "start"], name="chunk_start_is_unique"),
            models.CheckConstraint(condition=Q(stop__gt=F("start")), name="chunk_is_not_empty"),
        ]

    def __str__(self) -> str:
        return f"teachers {self.start}–{self.stop - 1}"


class Shard(Part):
    """Some holders who are asked the batch under way: those whose id leaves ``number`` when divided by the shards."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="shards")
    number = models.PositiveIntegerField()

    class Meta:
        verbose_name = _("shard of holders")
        ordering = ["run", "number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="shard_number_is_unique")]

    def __str__(self) -> str:
        return f"shard {self.number}"


class Round(models.Model):
    """One round in which every holder is asked, in one space of representation: about public points, or for gradients.

    ``artifact`` holds what is asked, all of it public: the fitted ``representation`` (bytes), and what the method of
    the run needs beside it.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="rounds")
    index = models.PositiveIntegerField()
    representation = models.JSONField(help_text="The sentence that says what the space is.")
    artifact = models.CharField(max_length=200)
    sigma = models.FloatField(help_text="Standard deviation of the noise of each number, in units of the largest norm.")
    radius_share = models.FloatField(
        null=True, blank=True, help_text="Of votes: the share of the public points within the radius of a query."
    )
    size = models.PositiveIntegerField(help_text="How many queries are asked, or steps taken.")
    position = models.PositiveIntegerField(default=0, help_text="How many of them were released.")
    opened_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("round")
        ordering = ["run", "index"]
        constraints = [
            models.UniqueConstraint(fields=["run", "index"], name="round_index_is_unique"),
            models.CheckConstraint(condition=Q(position__lte=F("size")), name="round_position_within_size"),
        ]

    def __str__(self) -> str:
        return f"round {self.index + 1}"


class Batch(models.Model):
    """Queries or gradient steps that are committed together, in one transaction with what they cost."""

    # The unique constraint is index enough.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="batches", db_index=False)
    index = models.PositiveIntegerField()
    start = models.PositiveIntegerField()
    size = models.PositiveIntegerField(help_text="How many queries or steps it has.")
    labels = models.PositiveIntegerField(help_text="How many of its queries were answered.")
    round = models.ForeignKey(Round, on_delete=models.CASCADE, null=True, blank=True, related_name="batches")
    asked = models.CharField(
        max_length=200, blank=True, help_text="Who was asked, with what room: a file, kept where votes are."
    )
    released = models.CharField(
        max_length=200, blank=True, help_text="What was released, where that is no query's: a file, public."
    )
    guesses = models.JSONField(
        null=True, blank=True, help_text="What a student took for likeliest before the vote, where it was asked."
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
    """One public point put to the vote: answered with a label, or rejected."""

    # The unique constraint is index enough.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="queries", db_index=False)
    batch = models.ForeignKey(Batch, on_delete=models.CASCADE, related_name="results")
    row = models.PositiveIntegerField(help_text="The point's row in the public dataset.")
    label = models.PositiveSmallIntegerField(null=True, help_text="Class index; empty where rejected.")
    counts = models.JSONField(null=True, blank=True, help_text="Noisy counts by class, where they were released.")

    class Meta:
        verbose_name = _("query")
        verbose_name_plural = _("queries")
        ordering = ["run", "row"]
        constraints = [models.UniqueConstraint(fields=["run", "row"], name="a_point_is_put_to_the_vote_once")]

    def __str__(self) -> str:
        return f"query {self.row}"


class StudentModel(models.Model):
    """A version of a run's student: a model that has learned from releases alone, and its card.

    A run has as many as were trained, numbered from 1; ``Run.student`` is the published one.
    """

    class Stage(models.TextChoices):
        CANDIDATE = "candidate", _("candidate")
        PRODUCTION = "production", _("in production")
        ARCHIVED = "archived", _("archived")

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="students")
    version = models.PositiveIntegerField(default=1)
    artifact = models.CharField(max_length=200, help_text="The model in the models storage.")
    learner = models.CharField(max_length=40, help_text="The learner that reads it.")
    seed = models.PositiveBigIntegerField(
        default=0, help_text="Public: the same releases and seed give the same model."
    )
    digest = models.CharField(max_length=64, help_text="SHA-256 of the file.")
    onnx = models.CharField(max_length=200, blank=True, help_text="The same model as ONNX, once it was asked for.")
    onnx_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of that file.")
    accuracy = models.FloatField(null=True, blank=True)
    label_accuracy = models.FloatField(null=True, blank=True)
    card = models.JSONField()
    seconds = models.FloatField(null=True, blank=True, help_text="How long it learned.")
    score = models.FloatField(
        null=True, blank=True, help_text="Agreement with a fifth of the releases, having learned from the others."
    )
    reference = models.JSONField(
        null=True, blank=True, help_text="How the same student does on true labels of the public points."
    )
    asked_by = actor_or_null(blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    stage = models.CharField(max_length=10, choices=Stage, default=Stage.CANDIDATE, editable=False)
    withdrawn_at = models.DateTimeField(null=True, blank=True, editable=False)
    withdrawal_reason = models.CharField(max_length=500, blank=True, editable=False)

    class Meta:
        verbose_name = _("student model")
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["run", "version"], name="student_version_is_unique")]

    def __str__(self) -> str:
        return f"student {self.version} of {self.run}"

    @property
    def is_withdrawn(self) -> bool:
        """Whether it is given to nobody any more."""
        return self.withdrawn_at is not None

    @property
    def is_released_itself(self) -> bool:
        """Whether it is what a run released step by step, and no student that learned from that."""
        return released_itself(self.learner)


class StudentTraining(Part):
    """Training of students of a finished run, in a task of its own: of another version, or to assess a version.

    To assess a ``version``, the same student learns from four fifths of the releases, and from true public labels.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="trainings")
    version = models.OneToOneField(
        StudentModel, on_delete=models.CASCADE, null=True, blank=True, related_name="assessment"
    )
    learner = models.CharField(max_length=40)
    parameters = models.JSONField(default=dict, blank=True)
    progress = models.FloatField(default=0.0, help_text="How much is done, 0 to 1.")
    message = models.TextField(blank=True, help_text="Why nothing came of it, and what to do.")
    asked_by = actor_or_null(blank=True)
    asked_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("training of a student")
        verbose_name_plural = _("trainings of students")
        ordering = ["run", "asked_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["run"],
                condition=Q(version__isnull=True) & ~Q(state="done"),
                name="one_version_of_a_student_is_trained_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return f"{self.learner} for {self.run}"


class DatasetImport(models.Model):
    """Import of a dataset in the browser: a file was uploaded, a worker checks it against a schema and stores it.

    File and report lie in private storage until it is done or dropped. The row holds nothing of any record.
    """

    class State(models.TextChoices):
        DRAFT = "draft", _("schema to be declared")
        CHECKING = "checking", _("being checked")
        CHECKED = "checked", _("checked")
        IMPORTING = "importing", _("being imported")
        DONE = "done", _("imported")

    #: In these a worker is at it, or is waited for.
    BUSY = (State.CHECKING, State.IMPORTING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="imports")
    name = models.CharField(_("name"), max_length=100)
    kind = models.CharField(_("kind"), max_length=10, choices=Dataset.Kind)
    provenance = models.TextField(_("where it comes from"), blank=True)
    file = models.CharField(max_length=200, help_text="As it was called.")
    label_file = models.CharField(max_length=200, blank=True, help_text="Of an idx file, as it was called.")
    holder_prefix = models.CharField(max_length=100, blank=True, help_text="Each row belongs to a person of its own.")
    with_labels = models.BooleanField(default=False, help_text="Public rows: their labels are kept, for evaluation.")
    schema = models.JSONField(default=dict, blank=True)
    remarks = models.JSONField(default=list, blank=True, help_text="What the draft of the schema could not tell.")
    state = models.CharField(max_length=10, choices=State, default=State.DRAFT)
    progress = models.FloatField(default=0.0, help_text="How much of the file is read, 0 to 1.")
    rows = models.PositiveIntegerField(null=True, blank=True, help_text="Rows without a fault.")
    faults = models.PositiveIntegerField(null=True, blank=True, help_text="How many faults the check found.")
    message = models.JSONField(default=str, blank=True, help_text="Why the import failed.")
    dataset = models.ForeignKey(Dataset, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    claimed_by = models.CharField(max_length=80, blank=True, help_text="The worker that holds it.")
    heartbeat = models.DateTimeField(null=True, blank=True)
    asked_by = actor_or_null(blank=True)
    touched_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("import of a dataset")
        verbose_name_plural = _("imports of datasets")
        ordering = ["-touched_at"]

    def __str__(self) -> str:
        return f"{self.name} of {self.study}"

    @property
    def folder(self) -> str:
        """The place of its files in private storage."""
        return f"imports/{self.pk}"


class Verification(models.Model):
    """Outcome of the last verification of a study, or of what belongs to none: nightly, or by ``verify_ledger``.

    ``found`` names places and numbers: it is for auditors and those who handle consents.
    """

    study = models.OneToOneField(Study, on_delete=models.CASCADE, null=True, related_name="verification")
    claimed_at = models.DateTimeField(null=True, help_text="When a worker last set about it.")
    verified_at = models.DateTimeField(null=True, help_text="When the last one began that was completed.")
    faults = models.PositiveIntegerField(default=0)
    found = models.JSONField(default=list, help_text="Faults in words, with the name of the check; the first ones.")
    fault_told = models.BooleanField(default=False, help_text="Whether a fault is one of which deciders are told.")
    locked = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.study or 'installation'}: {self.faults} faults"
