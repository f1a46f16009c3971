"""Celery tasks. Each calls a service, and takes no argument other than an id."""

from functools import partial

from celery import shared_task
from celery.signals import worker_ready

from common.jobs import task_of
from training import notices, verification
from training.alliances import runs as joint_runs
from training.alliances import services as alliances
from training.services import advance, encoders, erasures, imports

run_advance, chunk_train, shard_ask, student_learn = (
    task_of(f"training.tasks.{work}", partial(advance.task_do, work), ids=1)
    for work in ("run_advance", "chunk_train", "shard_ask", "student_learn")
)
import_work = task_of("training.tasks.import_work", imports.import_work, ids=1)
encoding_work = task_of("training.tasks.encoding_work", encoders.encoding_work, ids=1)
records_erase = task_of("training.tasks.records_erase", erasures.records_erase, ids=1)
records_due_erase = task_of("training.tasks.records_due_erase", erasures.records_due_erase)
notify_yearly = task_of("training.tasks.notify_yearly", notices.notify_yearly)
studies_verify = task_of("training.tasks.studies_verify", verification.studies_verify)
runs_sweep = task_of("training.tasks.runs_sweep", advance.runs_sweep)
alliance_contact = task_of("training.tasks.alliance_contact", alliances.alliance_contact, ids=1)


@shared_task
def alliances_contact(*_: object, **__: object) -> None:
    """Exchange messages with all hubs, copy published models, and notify operators about silent hubs and sites."""
    alliances.alliances_contact()
    joint_runs.hub_models_publish()
    joint_runs.hub_withdrawals_apply()
    alliances.notify_silences()


@shared_task
def former_hubs_ask(*_: object, **__: object) -> None:
    """Ask the hubs of alliances that have ended here about withdrawn results, and withdraw them here."""
    alliances.former_hubs_ask()
    joint_runs.hub_withdrawals_apply()


@worker_ready.connect
def _sweep_at_start(**_: object) -> None:
    """Run the sweep when a worker starts, to find work left behind by dead workers."""
    runs_sweep.delay()
