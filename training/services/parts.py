"""Parts of a run, each done in one task by one worker at a time, and done anew where that worker dies over it."""

from collections.abc import Callable
from typing import Any

from django.utils import timezone

from common.artifacts import arrays_delete
from training.errors import RunError
from training.leases import lease
from training.models import Part, Run

#: How many workers may die over one part before its run fails: more than accidents explain.
DEATHS = 20


def part_do(part: Any, *, status: str, work: Callable[[Any], str], died: str) -> bool:
    """Do a part of a run once.

    Args:
        part: The row, a :class:`training.models.Part` with its ``run``.
        status: In which its run has to be.
        work: Computes what comes of the part and returns the name of the file; empty where it leaves none.
        died: What is said where workers died over it again and again.

    Returns:
        Whether this call has done it.

    Raises:
        RunError: Too many workers died over it.
    """
    if part.state == Part.State.DONE:
        return False
    rows = type(part).objects.filter(pk=part.pk)
    with lease(type(part), part.pk) as token:
        if token is None:
            return False
        # Looked up under the claim: who ends a run waits for claims to end.
        found = rows.select_related("run__study", "run__private_dataset", "run__public_dataset").first()
        if found is None or found.run.status != status or found.state == Part.State.DONE:
            return False
        mine = rows.filter(claimed_by=token)
        if found.state == Part.State.RUNNING:  # but nobody's: who was at it died
            mine.update(deaths=found.deaths + 1)
            if found.deaths + 1 >= DEATHS:
                raise RunError(died)
        mine.update(state=Part.State.RUNNING)
        try:
            artifact = work(found)
        except BaseException:
            mine.update(state=Part.State.PENDING)
            raise
        if not mine.update(state=Part.State.DONE, artifact=artifact):
            if artifact:
                arrays_delete(artifact)  # it was done anew by somebody else, or nobody waits for it any more
            return False
        Run.objects.filter(pk=found.run_id).update(heartbeat=timezone.now())
    return True
