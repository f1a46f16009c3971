"""Record of the last backup that succeeded."""

from datetime import datetime, timedelta

from django.utils import timezone

from common.models import BackupRecord


def backup_last() -> datetime | None:
    """Moment of the last backup that succeeded; None: there was none, as far as this database knows."""
    return BackupRecord.objects.order_by("-made_at").values_list("made_at", flat=True).first()


def backup_age() -> timedelta:
    """Time since then; the largest there is where there was none."""
    last = backup_last()
    return timezone.now() - last if last else timedelta.max
