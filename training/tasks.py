"""What workers do: take ids, call a service. Unknown arguments are ignored, so that a rolling update breaks nothing."""

from celery import shared_task
from celery.signals import worker_ready

from training.services import lifecycle


@shared_task
def run_advance(run_id: str, *_: object, **__: object) -> None:
    lifecycle.run_advance(run_id)


@shared_task
def chunk_train(chunk_id: str, *_: object, **__: object) -> None:
    lifecycle.chunk_train(chunk_id)


@shared_task
def runs_sweep(*_: object, **__: object) -> None:
    lifecycle.runs_sweep()


@worker_ready.connect
def _sweep_at_start(**_: object) -> None:
    """A worker that starts looks at once for what a dead one left behind."""
    runs_sweep.delay()
