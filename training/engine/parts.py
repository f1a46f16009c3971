"""Parts of a run: teachers to be trained, holders to be asked, students to learn."""

from collections.abc import Callable
from typing import Any

from django.utils import timezone

from common.jobs.parts import part_do
from training.models import Run


def run_part_do(part: Any, *, status: str, work: Callable[[Any], str], died: str) -> bool:
    """Do a part of a run while the run is in ``status``, see :func:`common.jobs.parts.part_do`."""
    done = part_do(part, is_due=lambda found: found.run.status == status, work=work, died=died)
    if done:
        Run.objects.filter(pk=part.run_id).update(heartbeat=timezone.now())
    return done
