"""Dispatch of the tasks of :mod:`training.tasks`."""

from common import dispatch


def send(task: str, *ids: object) -> None:
    """Queue a task of :mod:`training.tasks` by name once the transaction has committed."""
    dispatch.send(f"training.tasks.{task}", *ids)
