"""Alliances of sites and their joint runs: signatures, questions, and releases.

Hub and sites store rows of the same form. ``own_name`` is the site's name in the alliance, or empty at the hub.
:mod:`learning.sites` describes the protocol.
"""

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models import Recorded, Study
from learning.sites.documents import AllianceDocument, QuestionDocument, RunDocument
from training.models.runs import Run


class Alliance(Recorded):
    """Agreement between a hub and its sites, as stored in the study of the hub or of a site."""

    open_fields = (
        *("key", "name", "own_name", "colluding", "terms", "address", "certificate"),
        *("joined_at", "left_at", "renewal"),
    )
    # Long texts for programs only; people see names and fingerprints on the alliance's page.
    sealed_fields = ("content", "signature", "former")
    working_fields = ("last_contact", "heard_since", "problem", "silence_is_known", "version", "proposals", "offered")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="alliances")
    key = models.UUIDField(_("number"), default=uuid.uuid4, editable=False, help_text="The same at hub and sites.")
    name = models.CharField(_("name"), max_length=100)
    own_name = models.CharField(
        _("name of this site"), max_length=100, blank=True, help_text="Name of this site; empty at the hub."
    )
    colluding = models.PositiveSmallIntegerField(
        _("sites that may collude"),
        default=1,
        help_text=_(
            "Up to this many sites can collude with the hub, or leave out their noise, without anyone learning more "
            "about people."
        ),
    )
    terms = models.JSONField(
        _("terms"), default=dict, blank=True, help_text="Shared by all sites: schema, levels and public points."
    )
    address = models.URLField(_("hub address"), blank=True)
    certificate = models.TextField(
        _("hub certificate"),
        blank=True,
        help_text=_(
            "Needed only if no generally trusted authority signed the certificate. Enter it as PEM. No other "
            "certificate will then be accepted."
        ),
    )
    content = models.TextField(
        _("signed document"), blank=True, help_text="Document to sign; empty until the hub has signed it."
    )
    signature = models.CharField(_("signature"), max_length=128, blank=True, help_text="Signature of the hub.")
    former = models.JSONField(
        _("earlier documents"),
        default=list,
        blank=True,
        help_text="Content and signature of every earlier document, oldest first.",
    )
    renewal = models.JSONField(
        _("key to be replaced"), default=dict, blank=True, help_text="At the hub: site, new key, and who proposed it."
    )
    offered = models.JSONField(
        default=list, blank=True, help_text="At a site: newer documents that have not been confirmed here."
    )
    joined_at = models.DateTimeField(_("joined on"), null=True, blank=True, help_text="At a site: when it signed.")
    left_at = models.DateTimeField(
        _("left on"), null=True, blank=True, help_text="Time at which the site left or the hub ended the alliance."
    )
    last_contact = models.DateTimeField(null=True, blank=True, help_text="At a site: time of the hub's last response.")
    heard_since = models.DateTimeField(
        null=True, blank=True, help_text="At the hub: start of the current period of uninterrupted contact with sites."
    )
    problem = models.JSONField(default=str, blank=True, help_text="At a site: why the hub was unreachable.")
    silence_is_known = models.BooleanField(default=False, help_text="Whether operators were told of the hub's silence.")
    version = models.CharField(max_length=40, blank=True, help_text="Version of the software on the other side.")
    proposals = models.JSONField(
        default=dict, blank=True, help_text="At a site: runs proposed by the hub that no one here has taken up."
    )

    class Meta:
        verbose_name = _("alliance")
        verbose_name_plural = _("alliances")
        ordering = ["study", "name"]
        constraints = [models.UniqueConstraint(fields=["study", "key"], name="alliance_is_known_once_in_a_study")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_hub(self) -> bool:
        return not self.own_name

    @property
    def open_proposals(self) -> list[str]:
        """Numbers of the runs that the hub has proposed and this site has neither accepted nor declined."""
        return [number for number, proposal in self.proposals.items() if not proposal.get("declined")]

    @property
    def document(self) -> AllianceDocument:
        """The signed document. Raises Refused if it cannot be read."""
        return AllianceDocument.read(self.content.encode())

    @property
    def founding(self) -> AllianceDocument:
        """The first signed document; later documents differ only in keys. Raises Refused."""
        return AllianceDocument.read(self.former[0]["content"].encode()) if self.former else self.document

    @property
    def is_signed(self) -> bool:
        return bool(self.content)


class AllianceSite(models.Model):
    """Site of an alliance, as stored at the hub."""

    alliance = models.ForeignKey(Alliance, on_delete=models.CASCADE, related_name="sites")
    name = models.CharField(_("name"), max_length=100)
    code_digest = models.CharField(max_length=64, help_text="SHA-256 of the site's registration code.")
    public_key = models.CharField(max_length=64, blank=True, help_text="Ed25519 public key in hexadecimal.")
    signature = models.CharField(max_length=128, blank=True, help_text="The site's signature of the current document.")
    joined_at = models.DateTimeField(null=True, blank=True)
    left_at = models.DateTimeField(null=True, blank=True)
    head_counts = models.JSONField(default=list, blank=True, help_text="Head counts released by the site.")
    last_contact = models.DateTimeField(null=True, blank=True)
    version = models.CharField(max_length=40, blank=True, help_text="Version of the site's software.")

    class Meta:
        verbose_name = _("site")
        verbose_name_plural = _("sites")
        ordering = ["alliance", "name"]
        constraints = [models.UniqueConstraint(fields=["alliance", "name"], name="site_is_in_an_alliance_once")]

    def __str__(self) -> str:
        return self.name

    @property
    def takes_part(self) -> bool:
        return self.joined_at is not None and self.left_at is None

    @property
    def is_eligible(self) -> bool:
        """Whether the site can be asked to take part in a new run, because it has signed the current document."""
        return self.takes_part and bool(self.signature)


class JointRun(models.Model):
    """Additional data of a joint run."""

    class Mode(models.TextChoices):
        TOGETHER = "together", _("together: sums are masked, and the total noise is that of a single study")
        SEPARATE = "separate", _("separate: every site adds the full noise, so no one needs to be trusted")

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="joint", primary_key=True)
    mode = models.CharField(_("mode"), max_length=10, choices=Mode, default=Mode.TOGETHER)
    sites = models.JSONField(default=list, help_text="Names of the sites invited to take part, in order.")
    proposal = models.TextField(blank=True, help_text="The hub's plan as JSON; its digest is signed.")
    content = models.TextField(blank=True, help_text="Proposal signed by the hub; empty for a draft.")
    signature = models.CharField(max_length=128, blank=True)
    approvals = models.JSONField(default=dict, blank=True, help_text="Content and signature of each site's approval.")
    dropped = models.JSONField(default=dict, blank=True, help_text="Sites that are no longer asked, with the reasons.")
    ended = models.CharField(max_length=500, blank=True, help_text="At a site: reason why the hub ended the run.")
    model = models.JSONField(default=dict, blank=True, help_text="At a site: the hub's signed model publication.")
    withdrawn = models.JSONField(
        default=dict,
        blank=True,
        help_text="At a site: withdrawals signed by the hub, by SHA-256 of the file.",
    )
    agreement = models.CharField(
        max_length=200, blank=True, help_text="At a site: file with its agreement key, deleted when the run ends."
    )

    class Meta:
        verbose_name = _("joint run")
        verbose_name_plural = _("joint runs")

    def __str__(self) -> str:
        return str(self.run_id)

    @property
    def alliance(self) -> Alliance:
        """The alliance of the run."""
        assert self.run.alliance is not None, "a joint run is one of an alliance"
        return self.run.alliance

    @property
    def document(self) -> RunDocument:
        """The document that the hub has signed. Raises Refused."""
        return RunDocument.read(self.content.encode())

    @property
    def participants(self) -> tuple[str, ...]:
        """Names of the sites that the run asks, without excluded ones."""
        return tuple(name for name in self.sites if name not in self.dropped)

    @property
    def missing(self) -> list[str]:
        """Names of the sites that have not approved yet."""
        return [name for name in self.sites if name not in self.approvals]


class JointQuestion(models.Model):
    """Question to the sites, as stored at the hub or a site, with its signature, endorsements, answers and outcome."""

    joint = models.ForeignKey(JointRun, on_delete=models.CASCADE, related_name="questions")
    number = models.PositiveIntegerField()
    content = models.TextField()
    signature = models.CharField(max_length=128)
    endorsements = models.JSONField(default=dict, blank=True, help_text="Each endorsing site and its signature.")
    opened_at = models.DateTimeField(default=timezone.now, editable=False)
    moved_at = models.DateTimeField(default=timezone.now, help_text="Time of the last message from a site about it.")
    silence_is_known = models.BooleanField(default=False, help_text="Whether operators were told of late sites.")
    closed_at = models.DateTimeField(null=True, blank=True)
    ended = models.JSONField(default=str, blank=True, help_text="Reason why the question ended without a total.")
    total = models.CharField(max_length=200, blank=True, help_text="File with the total, including noise.")
    total_content = models.TextField(blank=True, help_text="Document about the total, signed by the hub.")
    total_signature = models.CharField(max_length=128, blank=True)
    state = models.CharField(max_length=64, blank=True, help_text="Digest of all totals up to and including this one.")
    answer = models.CharField(max_length=200, blank=True, help_text="At a site: file with its answer.")
    answer_content = models.TextField(blank=True, help_text="Document about the answer, signed by the site.")
    answer_signature = models.CharField(max_length=128, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True, help_text="At a site: when people were charged for it.")
    attempt = models.CharField(
        max_length=200,
        blank=True,
        help_text="At a site: file that lists who was asked, if this is not the same throughout the run.",
    )
    sent_at = models.DateTimeField(null=True, blank=True, help_text="At a site: when the hub accepted the answer.")

    class Meta:
        verbose_name = _("question to sites")
        verbose_name_plural = _("questions to sites")
        ordering = ["joint", "number"]
        constraints = [
            models.UniqueConstraint(fields=["joint", "number"], name="question_to_sites_has_its_number"),
            models.UniqueConstraint(
                fields=["joint"], condition=Q(closed_at__isnull=True), name="one_question_to_sites_is_open"
            ),
        ]

    def __str__(self) -> str:
        return f"question {self.number}"

    @property
    def document(self) -> QuestionDocument:
        """The document that the hub has signed. Raises Refused."""
        return QuestionDocument.read(self.content.encode())

    @property
    def is_endorsed(self) -> bool:
        """Whether every participant has endorsed the question."""
        return set(self.endorsements) == set(self.document.participants)

    @property
    def pending_sites(self) -> list[str]:
        """Sites whose endorsement is missing or, at the hub once all have endorsed, whose answer is missing."""
        responded = set(self.answers.values_list("site", flat=True)) if self.is_endorsed else set(self.endorsements)
        return [site for site in self.document.participants if site not in responded]


class JointAnswer(models.Model):
    """Site's answer, as stored at the hub."""

    question = models.ForeignKey(JointQuestion, on_delete=models.CASCADE, related_name="answers")
    site = models.CharField(max_length=100)
    content = models.TextField()
    signature = models.CharField(max_length=128)
    artifact = models.CharField(max_length=200, help_text="File with the numbers; deleted once the total is computed.")
    received_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("site's answer")
        verbose_name_plural = _("sites' answers")
        ordering = ["question", "site"]
        constraints = [models.UniqueConstraint(fields=["question", "site"], name="site_answers_a_question_once")]

    def __str__(self) -> str:
        return self.site
