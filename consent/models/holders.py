"""Data holders, the people who take part in a study."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.recorded import Recorded
from consent.models.studies import Study


class DataHolder(Recorded):
    """A person who takes part in a study: the unit of privacy."""

    sealed_fields = ("user", "linked_at")
    # The pseudonym gives way to a commitment when records are erased: no digest of it may stay.
    working_fields = ("pseudonym", "public_id", "erased_at", "created_at")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="holders")
    pseudonym = models.CharField(_("pseudonym"), max_length=200)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="holdings"
    )
    linked_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the account was linked; none where that was not noted."
    )
    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    erased_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When their records were erased; from then on the pseudonym is a keyed commitment to it.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("data holder")
        verbose_name_plural = _("data holders")
        ordering = ["study", "pseudonym"]
        constraints = [
            models.UniqueConstraint(fields=["study", "pseudonym"], name="holder_pseudonym_is_unique_in_a_study"),
            models.UniqueConstraint(
                fields=["study", "user"], condition=Q(user__isnull=False), name="a_user_is_one_holder_of_a_study"
            ),
        ]

    def __str__(self) -> str:
        return self.pseudonym

    @property
    def known_as(self) -> str:
        """The pseudonym; empty once it was erased."""
        return "" if self.erased_at else self.pseudonym
