"""Hash chains of a study and of the installation, their signed heads, and the chains of configuration changes."""

from collections.abc import Iterable
from typing import Any, Self

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from common.append_only import Chained, Head
from consent.models.recorded import actor
from consent.models.studies import Study


class ChainHead(Head):
    """Signed heads of a study's hash chains; see :mod:`common.append_only`."""

    # The rows of a chain prevent the deletion of their study; if the chains are empty, the heads are deleted with it.
    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="chain_heads")

    class Meta:
        verbose_name = _("chain head")
        verbose_name_plural = _("chain heads")
        ordering = ["study", "chain"]
        constraints = [models.UniqueConstraint(fields=["study", "chain"], name="a_chain_has_one_head")]

    def __str__(self) -> str:
        return f"{self.chain} {self.sequence}"


class StudyChained(Chained):
    """Row of one of a study's hash chains, whose head is kept in :class:`ChainHead`."""

    head_model = ChainHead

    class Meta(Chained.Meta):
        abstract = True
        constraints = [models.UniqueConstraint(fields=["study", "sequence"], name="%(class)s_sequence_is_unique")]


class InstallationHead(Head):
    """Signed head of a hash chain that belongs to no study."""

    study_id = None

    class Meta:
        verbose_name = _("installation chain head")
        verbose_name_plural = _("installation chain heads")
        constraints = [models.UniqueConstraint(fields=["chain"], name="a_chain_of_the_installation_has_one_head")]

    def __str__(self) -> str:
        return f"{self.chain} {self.sequence}"


class InstallationChained(Chained):
    """Row of one of the installation's hash chains. There is one chain per model, with None as the id of the study."""

    head_model = InstallationHead
    of_installation = True
    study_id = None

    class Meta(Chained.Meta):
        abstract = True

    @classmethod
    def chain(cls, study_id: int | None = None) -> models.QuerySet[Any]:
        return cls._default_manager.order_by("sequence", "pk")

    @classmethod
    def head(cls, study_id: int | None = None) -> Head:
        """Return the head of the chain; if the chain has not begun, return a signed head that is not saved."""
        row = InstallationHead.objects.filter(chain=cls._meta.label_lower).first()
        if row is not None:
            return row
        head = InstallationHead(chain=cls._meta.label_lower)
        if not cls._default_manager.exists():
            head.sign()
        return head

    @classmethod
    def append(cls, rows: Iterable[Self]) -> list[Self]:
        """Append rows; if two transactions do so at the same time, one waits for the other."""
        head = cls.head()
        head, _made = InstallationHead.objects.get_or_create(
            chain=head.chain, defaults={"signature": head.signature, "sequence": head.sequence, "hash": head.hash}
        )
        InstallationHead.objects.select_for_update().get(pk=head.pk)
        return super().append(rows)


class Change(StudyChained):
    """Abstract change of one row of a :class:`consent.models.Recorded` model: added, changed or removed."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="+")
    model = models.CharField(max_length=50, help_text="Label of the row's model.")
    row = models.CharField(max_length=36, help_text="Key of the row.")
    before = models.JSONField(null=True, blank=True, help_text="Changed fields → old value; null if added.")
    after = models.JSONField(null=True, blank=True, help_text="Changed fields → new value; null if removed.")
    changed_by = actor(null=True, blank=True, help_text="Empty for the command line, a holder or a scheduled date.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        abstract = True

    def __str__(self) -> str:
        return f"{self.model} {self.row}, change {self.sequence}"


class ConfigurationChange(Change):
    """Change of ``open_fields``. The number of such changes depends only on staff decisions, never on a holder."""

    class Meta(Change.Meta):
        verbose_name = _("configuration change")
        verbose_name_plural = _("configuration changes")


class SealedChange(Change):
    """Change of ``sealed_fields``; ``before`` and ``after`` contain a keyed digest of each value.

    A single holder's act can add a row, so people who decide about runs must see neither the rows nor their number.
    """

    class Meta(Change.Meta):
        verbose_name = _("sealed change")
        verbose_name_plural = _("sealed changes")
        indexes = [models.Index(fields=["study", "model", "row"], name="sealed_change_of_row")]
