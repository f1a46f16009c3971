"""Letters on paper to holders whom no mail reaches."""

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.actors import actor
from consent.models.holders import DataHolder
from consent.models.studies import Study


class Letter(models.Model):
    """Letter on paper to a holder whom no mail reaches: of which kind, about what, printed when and by whom.

    Its words and the code in it are not kept. Printing it again is another row.
    """

    class Kind(models.TextChoices):
        NEW_FORM = "new_form", _("new information, decide again")
        RENEWAL = "renewal", _("the consent ends or has ended, decide again")
        ANSWERER = "answerer", _("somebody else answers now")
        RECEIPT = "receipt", _("receipt of a decision on paper")
        NEWS = "news", _("what was learned")

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="letters")
    holder = models.ForeignKey(DataHolder, on_delete=models.CASCADE, related_name="letters")
    kind = models.CharField(max_length=10, choices=Kind)
    about = models.CharField(max_length=40, help_text="Key of the row that it is about.")
    made_by = actor()
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("letter")
        verbose_name_plural = _("letters")
        ordering = ["-made_at", "-pk"]
        indexes = [models.Index(fields=["study", "kind", "about"], name="letter_about")]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["new_form", "renewal", "answerer", "receipt", "news"]),
                name="letter_kind_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} to {self.holder}"
