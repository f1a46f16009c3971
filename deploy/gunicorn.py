"""Gunicorn settings of an installation: ``gunicorn --config deploy/gunicorn.py ipate_web.wsgi:application``."""

import os
import shutil
import tempfile

bind = os.environ.get("IPATE_BIND", "127.0.0.1:8000")
workers = int(os.environ.get("WEB_CONCURRENCY", "4"))
# A first plan with an embedding learned from public points takes about a minute.
timeout = 180
graceful_timeout = 60
# The processes for holders and staff would share one socket in the home folder, which is never used.
control_socket_disable = True

# Where processes share their counts for /metrics; this folder must exist before the first of them starts.
_metrics = tempfile.mkdtemp(prefix="ipate-metrics-")
os.environ["PROMETHEUS_MULTIPROC_DIR"] = _metrics


def child_exit(server, worker):
    """Clear what a process was doing when it ended."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker.pid)


def on_exit(server):
    shutil.rmtree(_metrics, ignore_errors=True)
