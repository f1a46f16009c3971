"""Periodic tasks of the accounts."""

from accounting import sweep
from common.dispatch import task_of

accounts_sweep = task_of("accounting.tasks.accounts_sweep", sweep.accounts_sweep)
