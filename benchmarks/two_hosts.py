"""Try two worker hosts on one machine: network namespaces, PostgreSQL, Redis and an S3-compatible storage.

    .venv/bin/python benchmarks/two_hosts.py [--keep]

Makes a bridge with two namespaces on it, each with an address of its own and one Celery worker, and beside them a
PostgreSQL cluster, a Redis and an S3 (moto) that listen on the bridge alone. A small study's run is carried out by the
two workers; one of them is cut off from the network while it works. Prints how many tasks each has done, what
verify_ledger says, and removes everything (--keep leaves the logs). Needs root, iproute2, redis-server and PostgreSQL's
initdb; nothing that runs on the machine is touched.
"""

import argparse
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOSTS = ("a", "b")
DEADLINE = 240


def sh(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def network(number: int) -> Iterator[str]:
    """A bridge with a namespace for each host; the address at which what serves both is to listen."""
    net, bridge = f"10.213.{number}", f"ipate-br{number}"
    try:
        sh("ip", "link", "add", bridge, "type", "bridge")
        sh("ip", "addr", "add", f"{net}.1/24", "dev", bridge)
        sh("ip", "link", "set", bridge, "up")
        for place, host in enumerate(HOSTS, start=2):
            space, outer, inner = f"ipate-{host}{number}", f"ip{host}o{number}", f"ip{host}i{number}"
            sh("ip", "netns", "add", space)
            sh("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
            sh("ip", "link", "set", outer, "master", bridge, "up")
            sh("ip", "-n", space, "addr", "add", f"{net}.{place}/24", "dev", inner)
            sh("ip", "-n", space, "link", "set", inner, "up")
            sh("ip", "-n", space, "link", "set", "lo", "up")
        yield f"{net}.1"
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", f"ipate-{host}{number}"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", bridge], stderr=subprocess.DEVNULL)


@contextmanager
def process(command: list[str], log: Path, **options: object) -> Iterator[subprocess.Popen]:
    """A process that is stopped with its children at the end."""
    with log.open("ab") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, **options)  # type: ignore[call-overload]
    try:
        yield running
    finally:
        try:
            os.killpg(running.pid, signal.SIGTERM)
            running.wait(15)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(running.pid, signal.SIGKILL)


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds. Raises SystemExit after the deadline."""
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {DEADLINE} s.")
        time.sleep(0.2)


def answers(command: list[str]) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


@contextmanager
def services(folder: Path, address: str) -> Iterator[dict[str, str]]:
    """PostgreSQL, Redis and S3 at ``address``; the variables with which a host uses them."""
    binaries = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    cluster, owner = folder / "postgresql", pwd.getpwnam("postgres")
    cluster.mkdir()
    os.chown(cluster, owner.pw_uid, owner.pw_gid)
    as_postgres = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": [], "cwd": cluster}
    initdb = [str(binaries / "initdb"), "-D", str(cluster), "-U", "ipate", "--auth", "trust", "-N"]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, **as_postgres)
    with (cluster / "pg_hba.conf").open("a") as rules:
        rules.write(f"host all all {address}/24 trust\n")
    server = [str(binaries / "postgres"), "-D", str(cluster), "-h", address, "-k", str(cluster)]
    redis = ["redis-server", "--bind", address, "--port", "6379", "--save", "", "--protected-mode", "no"]
    s3 = [sys.executable, "-m", "moto.server", "-H", address, "-p", "9000"]
    with ExitStack() as stack:
        stack.enter_context(process(server, folder / "postgresql.log", **as_postgres))
        stack.enter_context(process([*redis, "--dir", str(folder)], folder / "redis.log"))
        stack.enter_context(process(s3, folder / "s3.log"))
        wait_for("PostgreSQL", lambda: answers([str(binaries / "pg_isready"), "-h", address]))
        wait_for("Redis", lambda: answers(["redis-cli", "-h", address, "ping"]))
        storage = {
            "endpoint_url": f"http://{address}:9000",
            "access_key": "try",
            "secret_key": "try",
            "region_name": "us-east-1",
        }
        wait_for("S3", lambda: buckets_made(storage))
        variables = {
            "DATABASE_URL": f"postgres://ipate@{address}:5432/postgres",
            "IPATE_BROKER_URL": f"redis://{address}:6379/0",
            "IPATE_SECRET_KEY": secrets.token_urlsafe(50),
            "IPATE_JOURNAL_DIR": str(folder / "journal"),
        }
        for name in ("private", "models"):
            variables[f"IPATE_{name.upper()}_STORAGE"] = "storages.backends.s3.S3Storage"
            variables[f"IPATE_{name.upper()}_STORAGE_OPTIONS"] = json.dumps(storage | {"bucket_name": name})
        yield variables


def buckets_made(storage: dict[str, str]) -> bool:
    """Whether the two buckets are there, now made if they were not."""
    import boto3
    from botocore.exceptions import BotoCoreError

    client = boto3.client(
        "s3",
        endpoint_url=storage["endpoint_url"],
        aws_access_key_id=storage["access_key"],
        aws_secret_access_key=storage["secret_key"],
        region_name=storage["region_name"],
    )
    try:
        for name in ("private", "models"):
            client.create_bucket(Bucket=name)
    except BotoCoreError:
        return False
    return True


def tasks_done(log: Path) -> int:
    """Number of parts of the run that a worker has finished."""
    return sum("chunk_train" in line and "succeeded" in line for line in log.read_text().splitlines())


def run_carry_out(folder: Path, number: int, variables: dict[str, str]) -> None:
    """Let two hosts carry out a run, one of which loses its network for a while, and check what came of it."""
    os.environ |= variables | {"IPATE_VAR_DIR": str(folder / "site"), "DJANGO_SETTINGS_MODULE": "ipate_web.settings"}
    os.environ |= {"IPATE_HEARTBEAT_TIMEOUT": "5", "IPATE_SWEEP_INTERVAL": "2", "OMP_NUM_THREADS": "1"}
    sys.path.insert(0, str(ROOT))
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", verbosity=0)
    from tests.training.runs import TABLE_RUN, run_start, study_with_table
    from training.models import Run

    study = study_with_table("hosts", holders=60, points=24)
    connections.close_all()
    logs = {host: folder / f"worker-{host}.log" for host in HOSTS}
    with ExitStack() as stack:
        for host in HOSTS:
            celery = [sys.executable, "-m", "celery", "-A", "ipate_web", "worker", "--loglevel", "INFO"]
            celery += ["--concurrency", "1", "--hostname", f"{host}@%h", *(["--beat"] if host == "a" else [])]
            command = ["ip", "netns", "exec", f"ipate-{host}{number}", *celery]
            environment = os.environ | {"IPATE_VAR_DIR": str(folder / host)}
            stack.enter_context(process(command, logs[host], cwd=ROOT, env=environment))
        for host in HOSTS:
            wait_for(f"worker {host}", lambda host=host: "ready." in logs[host].read_text())
        run = run_start(study, share=0.5, **TABLE_RUN | {"teachers": 20})

        def state() -> Run:
            return Run.objects.get(pk=run.pk)

        wait_for("both hosts at work", lambda: all(tasks_done(log) for log in logs.values()) or state().has_ended)
        cut = f"ipbo{number}"
        sh("ip", "link", "set", cut, "down")
        time.sleep(10)  # longer than a heartbeat: what the host held has to be taken over
        sh("ip", "link", "set", cut, "up")
        wait_for("the end of the run", lambda: state().has_ended)
        ended = state()
    for host, log in logs.items():
        print(f"host {host}: {tasks_done(log)} chunks of teachers")
    print(f"run: {ended.status}, {ended.labels} labels; {ended.message or 'no message'}")
    call_command("verify_ledger")
    if ended.status != Run.Status.FINISHED or not all(tasks_done(log) for log in logs.values()):
        raise SystemExit("Not both hosts have worked, or the run has not finished.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the folder with the logs")
    keep = parser.parse_args().keep
    if os.geteuid() != 0:
        raise SystemExit("Network namespaces need root.")
    number = os.getpid() % 250
    folder = Path(tempfile.mkdtemp(prefix="ipate-hosts-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user
    try:
        with network(number) as address, services(folder, address) as variables:
            run_carry_out(folder, number, variables)
    finally:
        if keep:
            print(f"logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
