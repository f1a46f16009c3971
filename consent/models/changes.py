"""Changes of a study's configuration, with the values before and after."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.actors import actor
from consent.models.chains import StudyChained
from consent.models.studies import Study


class Change(StudyChained):
    """Abstract change of one row of a :class:`consent.models.Recorded` model: added, changed or removed."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="+")
    model = models.CharField(max_length=50, help_text="Label of the row's model.")
    row = models.CharField(max_length=36, help_text="Key of the row.")
    before = models.JSONField(null=True, blank=True, help_text="Field → value; of a change what changed. Null: added.")
    after = models.JSONField(null=True, blank=True, help_text="Field → value; of a change what changed. Null: removed.")
    changed_by = actor(null=True, blank=True, help_text="Empty: the command line, a date, or a data holder.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        abstract = True

    def __str__(self) -> str:
        return f"{self.model} {self.row}, change {self.sequence}"


class ConfigurationChange(Change):
    """Change of ``open_fields``. How many there are follows from what staff decide, never from a holder."""

    class Meta(Change.Meta):
        verbose_name = _("change of the configuration")
        verbose_name_plural = _("changes of the configuration")


class SealedChange(Change):
    """Change of ``sealed_fields``; of each value ``before`` and ``after`` have a keyed digest.

    One person's act can add a row: neither the rows nor their number are for those who decide about runs.
    """

    class Meta(Change.Meta):
        verbose_name = _("sealed change")
        verbose_name_plural = _("sealed changes")
        indexes = [models.Index(fields=["study", "model", "row"], name="sealed_change_of_row")]
