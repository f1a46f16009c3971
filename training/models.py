"""Datasets, runs and what they leave behind. Arrays live in private storage; see :mod:`training.artifacts`."""

import uuid

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounting.models import RunAccount
from consent.models import Study


class Dataset(models.Model):
    """Rows of one study: private (owned by holders), public (put to the vote) or test (for evaluation)."""

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
    seen_classes = models.JSONField(
        blank=True, help_text="Numbers of the classes that the labels hold; a secret if private."
    )
    artifact = models.CharField(max_length=200, help_text="Its arrays in private storage.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the arrays.")
    imported_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    imported_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("dataset")
        ordering = ["study", "kind", "name"]
        constraints = [models.UniqueConstraint(fields=["study", "name"], name="dataset_name_is_unique_in_a_study")]

    def __str__(self) -> str:
        return self.name

    @property
    def classes(self) -> list[str]:
        return self.schema["classes"]


class Run(models.Model):
    """One training of one student: snapshot → teachers → vote → student. The row is the truth."""

    class Status(models.TextChoices):
        DRAFT = "draft", _("draft")
        APPROVED = "approved", _("approved")
        TRAINING = "training", _("training teachers")
        VOTING = "voting", _("voting")
        STUDENT = "student", _("training the student")
        FINISHED = "finished", _("finished")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    ACTIVE = (Status.APPROVED, Status.TRAINING, Status.VOTING, Status.STUDENT)
    ENDED = (Status.FINISHED, Status.FAILED, Status.CANCELLED)

    class Variant(models.TextChoices):
        STANDARD = "standard", _("standard")
        UPSAMPLING = "upsampling", _("upsampling")
        WEIGHTING = "weighting", _("weighting")

    class WeightScheme(models.TextChoices):
        CALIBRATED = "calibrated", _("calibrated: groups reach their budgets together")
        PROPORTIONAL = "proportional", _("proportional to ε, as in the paper")

    class SmallGroups(models.TextChoices):
        MERGE = "merge", _("merge into the next stricter group")
        LEAVE_OUT = "leave_out", _("leave out")

    class OnExhausted(models.TextChoices):
        STOP = "stop", _("end the vote")
        RETIRE = "retire", _("retire that group's teachers and go on")

    class Method(models.TextChoices):
        EXACT = "exact", _("exact divergence of the actual votes")
        DATA_DEPENDENT = "data_dependent", _("data-dependent bound")
        DATA_INDEPENDENT = "data_independent", _("data-independent bound (strict)")

    class Conversion(models.TextChoices):
        IMPROVED = "improved", _("improved")
        CLASSIC = "classic", _("classic, as in the papers")

    class StopReason(models.TextChoices):
        USED_UP = "used_up", _("every public point was put to the vote")
        ENOUGH = "enough", _("the wanted number of labels was reached")
        BUDGET = "budget", _("the next query could have exceeded a budget, or what the run may spend")
        RETIRED = "retired", _("no teacher was left to vote")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="runs")
    title = models.CharField(_("title"), max_length=200)
    purpose = models.TextField(_("what it is for"), blank=True)
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT)
    simulation = models.BooleanField(
        _("simulation"),
        default=False,
        help_text=_("Touches no ledger; its results are secrets and are never published."),
    )
    seed = models.PositiveBigIntegerField(_("seed"), null=True, blank=True, help_text=_("Simulations only."))

    private_dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="+")
    public_dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="+")
    test_dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    learner = models.CharField(_("teacher learner"), max_length=40)
    learner_parameters = models.JSONField(default=dict, blank=True)
    student_learner = models.CharField(_("student learner"), max_length=40)
    student_parameters = models.JSONField(default=dict, blank=True)
    variant = models.CharField(_("variant"), max_length=20, choices=Variant, default=Variant.WEIGHTING)
    weight_scheme = models.CharField(_("weights"), max_length=20, choices=WeightScheme, default=WeightScheme.CALIBRATED)
    aggregator = models.JSONField(_("aggregator"), help_text="Name and parameters, before any scaling.")
    teachers = models.PositiveIntegerField(_("number of teachers"), validators=[MinValueValidator(1)])
    small_groups = models.CharField(max_length=10, choices=SmallGroups, default=SmallGroups.MERGE)
    on_exhausted = models.CharField(
        _("when a group's budget is used up"), max_length=10, choices=OnExhausted, default=OnExhausted.STOP
    )
    method = models.CharField(_("cost method"), max_length=20, choices=Method, default=Method.EXACT)
    conversion = models.CharField(max_length=10, choices=Conversion, default=Conversion.IMPROVED)
    batch_size = models.PositiveIntegerField(default=50, validators=[MinValueValidator(1)])
    wanted_labels = models.PositiveIntegerField(
        _("wanted labels"), null=True, blank=True, validators=[MinValueValidator(1)]
    )

    spending_share = models.FloatField(
        _("share of what is left"),
        default=1.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(1.0)],
        help_text=_("How much of what is left the run may spend, set at its approval; all of it is 1."),
    )
    spending_epsilons = models.JSONField(
        default=dict, blank=True, help_text="Instead of a share, level → ε that the run may cost; set at its approval."
    )

    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    approved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    approved_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    voting_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    heartbeat = models.DateTimeField(null=True, blank=True, help_text="When work on it was last known to be alive.")
    claimed_by = models.CharField(max_length=80, blank=True, help_text="The worker that holds it.")

    plan = models.JSONField(default=dict, blank=True, help_text="The plan that the snapshot led to.")
    snapshot_at = models.DateTimeField(null=True, blank=True, help_text="The moment whose consents count.")
    consent_sequence = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="The last consent event counted."
    )
    assignment = models.CharField(
        max_length=200, blank=True, editable=False, help_text="Who is in which teacher: a file in private storage."
    )
    account = models.OneToOneField(RunAccount, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    position = models.PositiveIntegerField(default=0, help_text="Public points put to the vote so far.")
    labels = models.PositiveIntegerField(default=0, help_text="How many of them were answered.")
    stop_reason = models.CharField(max_length=10, choices=StopReason, blank=True)
    teacher_accuracy = models.FloatField(null=True, blank=True, help_text="Mean on the public points. A secret.")
    message = models.TextField(blank=True, help_text="Why it failed or waits, and what to do.")
    forgotten_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the teachers' predictions were deleted for good."
    )

    class Meta:
        verbose_name = _("run")
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["study"],
                condition=Q(status="voting", simulation=False),
                name="one_run_of_a_study_votes_at_a_time",
            ),
            models.CheckConstraint(
                condition=Q(seed__isnull=True) | Q(simulation=True), name="only_a_simulation_has_a_seed"
            ),
            models.CheckConstraint(condition=Q(labels__lte=F("position")), name="labels_within_queries"),
            models.CheckConstraint(
                condition=Q(spending_share__gt=0, spending_share__lte=1), name="run_spends_a_share_of_what_is_left"
            ),
            models.CheckConstraint(condition=Q(batch_size__gt=0, teachers__gt=0), name="run_sizes_are_positive"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def rejected(self) -> int:
        return self.position - self.labels

    @property
    def has_ended(self) -> bool:
        return self.status in self.ENDED


class TeacherChunk(models.Model):
    """Some teachers of a run, ``start`` ≤ index < ``stop``, trained in one task."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        RUNNING = "running", _("running")
        DONE = "done", _("done")

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="chunks")
    start = models.PositiveIntegerField()
    stop = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State, default=State.PENDING)
    artifact = models.CharField(max_length=200, blank=True, help_text="Its predictions in private storage.")
    claimed_by = models.CharField(max_length=80, blank=True)
    heartbeat = models.DateTimeField(null=True, blank=True)
    deaths = models.PositiveIntegerField(default=0, help_text="How many workers died over it.")

    class Meta:
        verbose_name = _("chunk of teachers")
        ordering = ["run", "start"]
        constraints = [
            models.UniqueConstraint(fields=["run", "start"], name="chunk_start_is_unique"),
            models.CheckConstraint(condition=Q(stop__gt=F("start")), name="chunk_is_not_empty"),
        ]

    def __str__(self) -> str:
        return f"teachers {self.start}–{self.stop - 1}"


class VoteBatch(models.Model):
    """Queries voted on and committed together. Written in one transaction with its queries and its charges."""

    # The unique constraint is index enough.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="batches", db_index=False)
    index = models.PositiveIntegerField()
    start = models.PositiveIntegerField()
    queries = models.PositiveIntegerField()
    labels = models.PositiveIntegerField()
    silent_teachers = models.JSONField(default=list, help_text="Teachers that cast no vote: retired. A secret.")
    simulated_rdp = models.JSONField(
        null=True, blank=True, help_text="Groups × orders: a simulation's costs, which have no ledger entry."
    )
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("batch of votes")
        verbose_name_plural = _("batches of votes")
        ordering = ["run", "index"]
        constraints = [models.UniqueConstraint(fields=["run", "index"], name="batch_index_is_unique")]

    def __str__(self) -> str:
        return f"batch {self.index}"


class Query(models.Model):
    """One public point put to the vote: answered with a label, or rejected."""

    # The unique constraint is index enough.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="queries", db_index=False)
    batch = models.ForeignKey(VoteBatch, on_delete=models.CASCADE, related_name="results")
    row = models.PositiveIntegerField(help_text="The point's row in the public dataset.")
    label = models.PositiveSmallIntegerField(null=True, help_text="Class index; empty where rejected.")

    class Meta:
        verbose_name = _("query")
        verbose_name_plural = _("queries")
        ordering = ["run", "row"]
        constraints = [models.UniqueConstraint(fields=["run", "row"], name="a_point_is_put_to_the_vote_once")]

    def __str__(self) -> str:
        return f"query {self.row}"


class StudentModel(models.Model):
    """What is published: a model that has learned from released labels alone, and its card."""

    run = models.OneToOneField(Run, on_delete=models.PROTECT, related_name="student")
    artifact = models.CharField(max_length=200, help_text="The model in the models storage.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the file.")
    accuracy = models.FloatField(null=True, blank=True)
    label_accuracy = models.FloatField(null=True, blank=True)
    card = models.JSONField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("student model")
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"student of {self.run}"
