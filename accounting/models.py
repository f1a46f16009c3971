"""Accounts of holders in μ² (Gaussian differential privacy): releases, shares, head counts.

The records are two chained tables: a study's releases with their charges (:class:`Release`), and grants of shares of
every account's cap (:class:`ShareRecord`). Accounts are computed from them.
"""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models import Level, Study, StudyChained
from consent.models.recorded import actor


class Release(StudyChained):
    """Entry of the release register: something that has left a study or is visible to decision-makers, with its charge.

    ``content`` describes the release in public terms: mechanism, parameters, counts and digests. Each person's charge
    is secret and stored in the file ``charges`` in private storage; the file's digest is part of the chain.
    """

    class Kind(models.TextChoices):
        LABELS = "labels", _("labels")
        COUNTS = "counts", _("noisy counts")
        TALLIES = "tallies", _("noisy counts of teachers' votes")
        STEPS = "steps", _("gradient steps")
        SUMS = "sums", _("noisy sums for a hub")
        TABLE = "table", _("table of counts")
        RESULT = "result", _("run result")
        HEAD_COUNTS = "head_counts", _("head counts")
        ANSWERS = "answers", _("answers to check questions")
        MODEL = "model", _("student model")
        CHOICE = "choice", _("selection of the published student")
        DOWNLOAD = "download", _("download")
        WITHDRAWAL = "withdrawal", _("withdrawal of a published result")
        STAGE = "stage", _("model stage")
        THRESHOLD = "threshold", _("model threshold")
        GAP = "gap", _("gap after a restore")

    # The unique constraint on study and sequence is a sufficient index.
    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="releases", db_index=False)
    kind = models.CharField(max_length=20, choices=Kind)
    run = models.UUIDField(null=True, blank=True)
    batch = models.PositiveIntegerField(null=True, blank=True)
    content = models.JSONField(default=dict, blank=True, help_text="Public description of the release.")
    charge = models.FloatField(default=0.0, help_text="Largest charge to any account, in μ². Public.")
    charges = models.CharField(max_length=200, blank=True, help_text="Charge file in private storage.")
    charges_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the charge file.")
    recorded_by = actor(null=True)
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("release")
        verbose_name_plural = _("releases")
        constraints = [
            *StudyChained.Meta.constraints,
            models.UniqueConstraint(
                fields=["run", "batch"], condition=Q(batch__isnull=False), name="release_charges_a_batch_once"
            ),
            models.CheckConstraint(condition=Q(charge__gte=0), name="release_charge_is_not_negative"),
        ]
        permissions = [("view_ledger", "Can see the release register and the shares")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.sequence}"


class ShareRecord(StudyChained):
    """Grant of a share of every holder's cap, its opening for spending, or a record of the part used.

    ``subject`` is the id of a run, of a drawing of head counts, or of a settled gap. Shares are public, because they
    depend on decisions and releases, never on accounts.
    """

    class Kind(models.TextChoices):
        GRANTED = "granted", _("granted")
        OPENED = "opened", _("opened")
        SETTLED = "settled", _("settled")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="share_records", db_index=False)
    subject = models.UUIDField()
    purpose = models.CharField(max_length=40, help_text="Purpose of the share, in words.")
    kind = models.CharField(max_length=10, choices=Kind)
    share = models.FloatField(help_text="If granted or opened, the share of every cap; if settled, the part used.")
    limit = models.FloatField(
        null=True, blank=True, help_text="If opened, the total share of its cap that an account may have used by then."
    )
    recorded_by = actor(null=True)
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("share record")
        verbose_name_plural = _("share records")
        constraints = [
            *StudyChained.Meta.constraints,
            models.UniqueConstraint(fields=["subject", "kind"], name="share_record_is_made_once"),
            models.CheckConstraint(condition=Q(share__gte=0, share__lte=1), name="share_record_is_a_share"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.share:g} for {self.purpose}"


class AccountBook(models.Model):
    """Amounts spent by all holders of a study, stored in one file: the sum of all charge files up to ``sequence``.

    The charge files are authoritative; :func:`accounting.verification.study_checks` recomputes the sum from them.
    """

    study = models.OneToOneField(Study, on_delete=models.PROTECT, primary_key=True, related_name="account_book")
    artifact = models.CharField(max_length=200, help_text="File in private storage.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the file.")
    sequence = models.PositiveBigIntegerField(help_text="Last release whose charges are included.")

    class Meta:
        verbose_name = _("account book")
        verbose_name_plural = _("account books")

    def __str__(self) -> str:
        return f"accounts of {self.study_id}"


class HeadCount(models.Model):
    """Number of holders of one promise, for plans: drawn once with noise, or a public number."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="head_counts")
    release = models.ForeignKey(Release, on_delete=models.PROTECT, related_name="head_counts")
    level = models.CharField(max_length=10, choices=Level)
    epsilon = models.FloatField()
    count = models.PositiveIntegerField()
    sigma = models.FloatField(null=True, blank=True, help_text="Standard deviation of the noise; empty if entered.")

    class Meta:
        verbose_name = _("head count")
        verbose_name_plural = _("head counts")
        ordering = ["study", "-release", "epsilon"]
        constraints = [models.UniqueConstraint(fields=["release", "level", "epsilon"], name="head_count_is_given_once")]

    def __str__(self) -> str:
        return f"{self.level}, ε = {self.epsilon:g}: {self.count}"


class EndedReach(models.Model):
    """Upper bound, in μ², on the charges of erased studies to a person's account; used for the ceiling.

    The links from such studies to accounts have been deleted. Only this public bound is kept, as one number for all of
    these studies.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="ended_reach"
    )
    mu_squared = models.FloatField(default=0.0)

    class Meta:
        verbose_name = _("upper bound on charges by erased studies")
        verbose_name_plural = _("upper bounds on charges by erased studies")
        constraints = [models.CheckConstraint(condition=Q(mu_squared__gte=0), name="ended_reach_is_not_negative")]

    def __str__(self) -> str:
        return f"account {self.user_id}: {self.mu_squared:g}"
