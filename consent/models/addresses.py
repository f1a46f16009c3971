"""How holders without an account are told of their decisions and of news."""

from uuid import uuid4

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.holders import DataHolder
from consent.models.recorded import Recorded
from consent.models.studies import Study


def new_key() -> str:
    """Key of an address that was just left."""
    return uuid4().hex


class HolderAddress(Recorded):
    """Way in which a holder without an account is told: mails to an address that they left, letters, or no news.

    That it changed is on record, the address is not: no digest of it stays once it is deleted. ``key`` is another for
    each address; signed it is the link with which the address is confirmed and deleted.
    """

    class Way(models.TextChoices):
        MAIL = "mail", _("by mail")
        LETTER = "letter", _("by letter")
        NOTHING = "nothing", _("no news")

    sealed_fields = ("holder", "way", "key", "confirmed_at")
    working_fields = ("email", "language", "left_at")

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="+")
    holder = models.OneToOneField(DataHolder, on_delete=models.CASCADE, related_name="address")
    way = models.CharField(max_length=10, choices=Way)
    email = models.EmailField(blank=True)
    key = models.CharField(max_length=32, unique=True, default=new_key, editable=False)
    language = models.CharField(max_length=10)
    confirmed_at = models.DateTimeField(null=True)
    left_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("address that a holder left")
        verbose_name_plural = _("addresses that holders left")
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                condition=(Q(way="mail") & ~Q(email="")) | Q(way__in=["letter", "nothing"], email=""),
                name="address_of_mails_alone",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.way} to holder {self.holder_id}"
