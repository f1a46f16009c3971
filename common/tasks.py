"""Periodic tasks of the foundations."""

from common.dispatch import task_of
from common.throttle import entries_sweep

throttle_sweep = task_of("common.tasks.throttle_sweep", entries_sweep)
