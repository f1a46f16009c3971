"""Periodic tasks of the common app."""

from common.jobs import task_of
from common.repeats import requests_sweep
from common.throttle import entries_sweep

throttle_sweep = task_of("common.tasks.throttle_sweep", entries_sweep)
requests_sweep = task_of("common.tasks.requests_sweep", requests_sweep)
