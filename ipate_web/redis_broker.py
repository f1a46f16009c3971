"""Celery's Redis transport, with which a worker survives the loss of Redis while it holds unacknowledged tasks.

When kombu 5.7 loses the connection it gives such messages back over a connection whose settings it has already dropped,
and fails with an AttributeError. Celery does not know that as a lost connection, so the worker's process ends. Counted
among the errors of a connection, it makes the worker connect again, and Redis hands the messages out once more.
"""

from kombu.transport import redis


class Transport(redis.Transport):
    """Redis transport for which a half-closed connection is a lost one."""

    connection_errors = (*redis.Transport.connection_errors, AttributeError)
