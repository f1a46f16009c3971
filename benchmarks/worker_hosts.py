"""Test and time worker hosts on one machine: network namespaces, PostgreSQL, Redis and an S3-compatible storage.

    .venv/bin/python benchmarks/worker_hosts.py [--hosts N] [--cut] [--keep]

Creates a bridge with 1 to 8 namespaces (two without --hosts), each with its own address and one Celery worker of one
process, as well as a PostgreSQL cluster, a Redis and an S3 (moto) that listen only on the bridge. The workers carry out
a run of 100 teachers, random forests, whose training in 20 chunks is most of the work. Prints the wall-clock seconds
from the approval of the run to its end, the workers' processor time in between, and each host's number of chunks, after
verify_ledger has found no fault. With --cut, one host loses its network for ten seconds while all of them train
teachers. Everything is removed at the end (--keep leaves the logs). Needs root, iproute2, redis-server and PostgreSQL's
initdb; other programs on the machine are not affected.
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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from training.models import Run

ROOT = Path(__file__).resolve().parent.parent
#: Names of all possible hosts.
NAMES = "abcdefgh"
#: Seconds for which one host loses its network. This exceeds the heartbeat's limit, so that others take over.
CUT = 10
#: Maximum seconds for anything.
DEADLINE = 600
#: Variables of a worker: one thread, and limits so short that another worker soon takes over a dead worker's work.
LIMITS = {"IPATE_HEARTBEAT_TIMEOUT": "5", "IPATE_SWEEP_INTERVAL": "2", "OMP_NUM_THREADS": "1"}

#: The storages shared by hosts.
BUCKETS = ("private", "models", "keys")


def sh(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def network(number: int, hosts: str) -> Iterator[str]:
    """Create a bridge with a namespace for each host; yield the address on which shared services should listen."""
    net, bridge = f"10.213.{number}", f"ipate-br{number}"
    try:
        sh("ip", "link", "add", bridge, "type", "bridge")
        sh("ip", "addr", "add", f"{net}.1/24", "dev", bridge)
        sh("ip", "link", "set", bridge, "up")
        for place, host in enumerate(hosts, start=2):
            space, outer, inner = f"ipate-{host}{number}", f"ip{host}o{number}", f"ip{host}i{number}"
            sh("ip", "netns", "add", space)
            sh("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
            sh("ip", "link", "set", outer, "master", bridge, "up")
            sh("ip", "-n", space, "addr", "add", f"{net}.{place}/24", "dev", inner)
            sh("ip", "-n", space, "link", "set", inner, "up")
            sh("ip", "-n", space, "link", "set", "lo", "up")
        yield f"{net}.1"
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", f"ipate-{host}{number}"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", bridge], stderr=subprocess.DEVNULL)


@contextmanager
def cut_off(number: int, host: str) -> Iterator[None]:
    """Disconnect a host from the network inside the block."""
    link = f"ip{host}o{number}"
    sh("ip", "link", "set", link, "down")
    try:
        yield
    finally:
        sh("ip", "link", "set", link, "up")


@contextmanager
def process(command: list[str], log: Path, **options: object) -> Iterator[subprocess.Popen]:
    """Yield a process that is stopped, along with its children, at the end."""
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
            raise SystemExit(f"{what}: not reached within {DEADLINE} s.")
        time.sleep(0.2)


def answers(command: list[str]) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


@contextmanager
def services(folder: Path, address: str) -> Iterator[dict[str, str]]:
    """Run PostgreSQL, Redis and S3 at ``address``; yield the variables with which a host uses them."""
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
        for name in BUCKETS:
            variables[f"IPATE_{name.upper()}_STORAGE"] = "storages.backends.s3.S3Storage"
            variables[f"IPATE_{name.upper()}_STORAGE_OPTIONS"] = json.dumps(storage | {"bucket_name": name})
        yield variables


def buckets_made(storage: dict[str, str]) -> bool:
    """Return whether the buckets exist, after creating any that are missing."""
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
        for name in BUCKETS:
            client.create_bucket(Bucket=name)
    except BotoCoreError:
        return False
    return True


@contextmanager
def workers(folder: Path, number: int, hosts: str) -> Iterator[set[int]]:
    """Run a worker on each host; the first one sends periodic tasks. Yield their sessions once all are ready."""
    logs = {host: folder / f"worker-{host}.log" for host in hosts}
    sessions = set()
    with ExitStack() as stack:
        for host, log in logs.items():
            celery = [sys.executable, "-m", "celery", "-A", "ipate_web", "worker", "--loglevel", "INFO"]
            celery += ["--concurrency", "1", "--hostname", f"{host}@%h", *(["--beat"] if host == hosts[0] else [])]
            command = ["ip", "netns", "exec", f"ipate-{host}{number}", *celery]
            environment = os.environ | {"IPATE_VAR_DIR": str(folder / host)}
            sessions.add(stack.enter_context(process(command, log, cwd=ROOT, env=environment)).pid)
        for host, log in logs.items():
            wait_for(f"worker {host}", lambda log=log: "ready." in log.read_text())
        yield sessions


def processor_seconds(sessions: set[int]) -> float:
    """Return the total processor time of all processes in these sessions."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            fields = file.read_text().rpartition(")")[2].split()
            if int(fields[3]) in sessions:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Course:
    """Course of a run: its state, and for each chunk of teachers the host that took it last.

    Args:
        run: The run, just approved.
        bar: Progress bar of chunks.
    """

    def __init__(self, run: "Run", bar: tqdm) -> None:
        self.run, self.bar = run, bar
        self.took: dict[int, str] = {}

    def follow(self, what: str, condition: Callable[[], bool]) -> None:
        """Check the run repeatedly until ``condition`` holds or the run has ended."""
        wait_for(what, lambda: self._look() or condition())

    def _look(self) -> bool:
        """Check the run and the claims on its chunks; return whether the run has ended."""
        from common.jobs import claimant

        self.run.refresh_from_db()
        chunks = list(self.run.chunks.values_list("pk", "claimed_by", "state"))
        self.took |= {pk: claimant(claim).partition("@")[0] for pk, claim, _ in chunks if claim}
        self.bar.n = sum(state == "done" for _, _, state in chunks)
        self.bar.set_postfix_str(self.run.status)
        return self.run.has_ended


def django_setup(folder: Path, variables: dict[str, str]) -> None:
    """Create an empty site that uses the services; workers inherit its variables."""
    os.environ |= variables | LIMITS
    os.environ |= {"IPATE_VAR_DIR": str(folder / "site"), "DJANGO_SETTINGS_MODULE": "ipate_web.settings"}
    sys.path.insert(0, str(ROOT))
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def run_carry_out(folder: Path, number: int, hosts: str, cut: bool) -> None:
    """Let the hosts carry out a run, check the result, and print how long it took.

    Args:
        folder: Folder for logs and workers' files.
        number: Number of the network.
        hosts: Their names.
        cut: Whether the last host loses its network for a while.
    """
    from django.core.management import call_command

    from tests.training.runs import TABLE_RUN, run_start, study_with_table
    from training.methods.pate_teachers import CHUNKS
    from training.models import Run

    study = study_with_table("hosts", holders=200, records=3, points=24)
    forest = {"learner": "random_forest", "learner_parameters": {"trees": 300}, "teachers": 100}
    with workers(folder, number, hosts) as sessions:
        begun, used = time.monotonic(), processor_seconds(sessions)
        run = run_start(study, share=0.5, **TABLE_RUN | forest)
        with tqdm(total=CHUNKS, desc=f"hosts: {len(hosts)}", unit="chunk") as bar:
            course = Course(run, bar)
            if cut:
                course.follow("all hosts at work", lambda: set(course.took.values()) == set(hosts))
                until = time.monotonic() + CUT
                with cut_off(number, hosts[-1]):
                    course.follow("the cut", lambda: time.monotonic() > until)
            course.follow("the end of the run", lambda: False)
        seconds, used = time.monotonic() - begun, processor_seconds(sessions) - used
    call_command("verify_ledger")
    took = Counter(course.took.values())
    print(f"run: {run.status}, {run.labels} labels; {run.message or 'no message'}")
    chunks = ", ".join(f"{host} {took[host]}" for host in hosts)
    print(f"hosts: {len(hosts)}; {seconds:.1f} s, {used:.1f} s of processor time of the workers; chunks: {chunks}")
    if run.status != Run.Status.FINISHED or not all(took[host] for host in hosts):
        raise SystemExit("Not all hosts worked, or the run did not finish.")


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    most = len(NAMES)
    parser.add_argument(
        "--hosts", type=int, default=2, choices=range(1, most + 1), metavar="N", help=f"number of hosts, 1 to {most}"
    )
    parser.add_argument("--cut", action="store_true", help=f"disconnect one host from the network for {CUT} seconds")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    given = parser.parse_args()
    if given.cut and given.hosts < 2:
        parser.error("--cut needs at least two hosts, so that another can take over.")
    return given


def main() -> None:
    """Carry out the measurement, and remove everything."""
    given = arguments()
    if os.geteuid() != 0:
        raise SystemExit("Network namespaces need root.")
    number, hosts = os.getpid() % 250, NAMES[: given.hosts]
    folder = Path(tempfile.mkdtemp(prefix="ipate-hosts-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user
    try:
        with network(number, hosts) as address, services(folder, address) as variables:
            django_setup(folder, variables)
            run_carry_out(folder, number, hosts, given.cut)
    finally:
        if given.keep:
            print(f"logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
