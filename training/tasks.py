"""Celery tasks: take ids, call a service. Unknown arguments are ignored, for rolling updates."""

from celery import shared_task
from celery.signals import worker_ready

from training.services import (
    alliances,
    closing,
    encodings,
    erasures,
    imports,
    sweep,
    turns,
    verifying,
    yearly,
)


@shared_task
def run_advance(run_id: str, *_: object, **__: object) -> None:
    turns.turn_take("run_advance", run_id)


@shared_task
def chunk_train(chunk_id: str, *_: object, **__: object) -> None:
    turns.turn_take("chunk_train", chunk_id)


@shared_task
def shard_ask(shard_id: str, *_: object, **__: object) -> None:
    turns.turn_take("shard_ask", shard_id)


@shared_task
def student_learn(training_id: str, *_: object, **__: object) -> None:
    turns.turn_take("student_learn", training_id)


@shared_task
def import_work(import_id: str, *_: object, **__: object) -> None:
    imports.import_work(import_id)


@shared_task
def encoding_work(encoding_id: str, *_: object, **__: object) -> None:
    encodings.encoding_work(encoding_id)


@shared_task
def records_erase(study_id: str, *_: object, **__: object) -> None:
    erasures.records_erase(study_id)


@shared_task
def records_due_erase(*_: object, **__: object) -> None:
    closing.records_due_erase()


@shared_task
def years_tell(*_: object, **__: object) -> None:
    """Tell people what was learned in a year."""
    yearly.years_tell()


@shared_task
def studies_verify(*_: object, **__: object) -> None:
    verifying.studies_verify()


@shared_task
def runs_sweep(*_: object, **__: object) -> None:
    sweep.runs_sweep()


@shared_task
def alliance_contact(alliance_id: str, *_: object, **__: object) -> None:
    alliances.alliance_contact(alliance_id)


@shared_task
def alliances_contact(*_: object, **__: object) -> None:
    """Ask the hubs of all alliances what is new, and tell operators who is silent."""
    alliances.alliances_contact()
    alliances.silences_tell()


@worker_ready.connect
def _sweep_at_start(**_: object) -> None:
    """Sweep at the start of a worker, for work that a dead one left behind."""
    runs_sweep.delay()
