"""Rows of a study's hash chains, and the signed heads of these chains."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from common.append_only import Chained, Head
from consent.models.studies import Study


class ChainHead(Head):
    """Signed heads of a study's hash chains; see :mod:`common.append_only`."""

    # The rows of a chain protect their study; one that has none, not even a role given, takes the heads along.
    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="chain_heads")

    class Meta:
        verbose_name = _("chain head")
        ordering = ["study", "chain"]
        constraints = [models.UniqueConstraint(fields=["study", "chain"], name="a_chain_has_one_head")]

    def __str__(self) -> str:
        return f"{self.chain} {self.sequence}"


class StudyChained(Chained):
    """Row of one of a study's hash chains, whose head is kept in :class:`ChainHead`."""

    head_model = ChainHead

    class Meta(Chained.Meta):
        abstract = True
