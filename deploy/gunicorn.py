"""Gunicorn settings for an installation: ``gunicorn --config deploy/gunicorn.py ipate_web.wsgi:application``."""

import os
import shutil
import tempfile

bind = os.environ.get("IPATE_BIND", "127.0.0.1:8000")
workers = int(os.environ.get("WEB_CONCURRENCY", "4"))
# The first plan with an embedding that is learned from public points takes about a minute.
timeout = 180
graceful_timeout = 60
# The processes for holders and for staff would otherwise share a control socket, which nothing uses.
control_socket_disable = True

# Folder in which processes share their counts for /metrics; it must exist before the first process starts.
_metrics = tempfile.mkdtemp(prefix="ipate-metrics-")
os.environ["PROMETHEUS_MULTIPROC_DIR"] = _metrics


def child_exit(server, worker):
    """Remove the metrics of requests that were in progress when a process ended."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker.pid)


def on_exit(server):
    shutil.rmtree(_metrics, ignore_errors=True)
