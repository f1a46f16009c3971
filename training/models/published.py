"""What can be taken away again: fields of everything that a run publishes."""

from django.db import models


class Published(models.Model):
    """Something published of a run, which is given to nobody any more once it was withdrawn."""

    withdrawn_at = models.DateTimeField(null=True, blank=True, editable=False)
    withdrawal_reason = models.CharField(max_length=500, blank=True, editable=False)

    class Meta:
        abstract = True

    @property
    def is_withdrawn(self) -> bool:
        """Whether it is given to nobody any more."""
        return self.withdrawn_at is not None
