"""Changes of what a run of gradient steps has released, as somebody who wants to hide something would make them."""

from collections.abc import Callable, Iterable
from copy import deepcopy

from django.db import transaction

from common.artifacts import arrays_load, arrays_save
from training.models import Batch, Round, Run
from training.verification import release_faults

#: A change, and part of the fault that tells of it.
Forgery = tuple[Callable[[Run], object], str]


def assert_found(run: Run, chunk: str, forgeries: Iterable[Forgery]) -> None:
    """Every change of what was released is told of; what a change does to the file ``chunk`` is undone."""
    kept, plan = arrays_load(chunk), deepcopy(run.plan)
    for forge, fault in forgeries:
        with transaction.atomic():
            forge(run)
            found = list(release_faults(Run.objects.get(pk=run.pk)))
            transaction.set_rollback(True)
        arrays_save(chunk, **kept)
        run.refresh_from_db()
        assert run.plan == plan
        assert any(fault in line for line in found), (fault, found)


def plan_change(run: Run) -> None:
    run.plan["rounds"][0]["plan"]["step_size"] = 99.0
    Run.objects.filter(pk=run.pk).update(plan=run.plan)


FORGERIES_OF_STEPS: list[Forgery] = [
    (plan_change, "asked something else"),
    (plan_change, "was not asked as its plan says"),
    (lambda run: Round.objects.update(sigma=99.0), "what its round says of itself"),
    (lambda run: Batch.objects.filter(index=1).update(released="rounds/none.npz"), "cannot be read"),
    (lambda run: Batch.objects.filter(index=2).delete(), "is in the register, but not there"),
    (lambda run: Run.objects.filter(pk=run.pk).update(spent=[0.0, 0.0, 0.0]), "is not the sum of its releases"),
]
