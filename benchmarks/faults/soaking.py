"""Soak test: a production installation and an alliance without a supervisor, exposed to faults for a long time."""

import itertools
import os
import random
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from benchmarks.faults.cables import Cable
from benchmarks.faults.clocks import ShiftedClock
from benchmarks.faults.processes import fill, until

ROOT = Path(__file__).resolve().parent.parent.parent
#: Size of the file system of the site's files.
DISK = "96m"
#: Shortest and longest strike, and pause after it, in seconds. Short strikes are as frequent as long ones.
STRIKE, PAUSE = (0.5, 120.0), (15.0, 60.0)
#: Seconds between two proposals of runs and between two page views; number of joint runs in a whole soak.
PROPOSING, LOOKING, JOINT_RUNS = 45.0, 5.0, 10
#: Share of every cap for a run of the study and for a joint run; number of runs before the next study begins.
SHARE, JOINT_SHARE, RUNS_OF_A_STUDY = 0.01, 0.08, 40
#: Seconds within which the remaining work must end after the strikes, and for which a site may be unreachable.
ENDING, PATIENCE = 1_200.0, 300.0
#: Kinds of strike with their weights.
KINDS = {
    **{"Redis cut": 3, "Redis held up": 1, "PostgreSQL cut": 3, "PostgreSQL held up": 1, "hub cut": 2},
    **{"hub held up": 1, "disk full": 2, "clock forward": 1, "clock back": 1, "worker killed": 1, "site killed": 1},
    **{"web killed": 1},
}
CLOCK = 3_600


@dataclass
class Program:
    """A process of an installation that is restarted, after a kill, only by the soak."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen = field(init=False)
    seconds: float = 0.0

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL the process and its children."""
        self.seconds += self.processor_seconds()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.kill()

    def processor_seconds(self) -> float:
        """Return the processor time of the living processes in its session, and of their ended children."""
        ticks = 0
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = status.read_text().rpartition(") ")[2].split()
                if int(fields[3]) == self.process.pid:
                    ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")


class Soak:
    """A hub's installation with PostgreSQL, Redis, pages, worker and beat, and its sites.

    Args:
        folder: Folder for everything; the hub's files are on a small file system in it.
        logs: Folder for the logs of all processes.
        database: Address of an empty database on PostgreSQL.
        chance: Random generator for the choice and time of strikes.
        stack: Exit stack that ends everything.
        port: First port that may be used, outside the kernel's ephemeral range.
    """

    def __init__(
        self, folder: Path, logs: Path, database: str, chance: random.Random, stack: ExitStack, port: int
    ) -> None:
        from ipate_web.processes import free_port

        ports = [port := free_port(port + 1) for _ in range(6)]
        self.folder, self.chance, self.clock = folder, chance, ShiftedClock(folder)
        self.disk, self.logs = folder / "hub", logs
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.disk)], check=True)
        stack.callback(subprocess.run, ["umount", "--lazy", str(self.disk)], check=True)
        redis, self.port, self.holders_port = ports[:3]
        broker = ["redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self.redis = Program("redis", broker, dict(os.environ), self.logs / "redis.log")
        self._start(self.redis, stack)
        server = urlsplit(database)
        self.cables = {
            "Redis": Cable(("127.0.0.1", redis), ports[3]),
            "PostgreSQL": Cable((server.hostname or "127.0.0.1", server.port or 5432), ports[4]),
            "hub": Cable(("127.0.0.1", self.port), ports[5]),
        }
        login = server.netloc.rpartition("@")[0]
        through = urlunsplit(server._replace(netloc=f"{login}@127.0.0.1:{self.cables['PostgreSQL'].port}"))
        #: Access of the soak itself to the hub's data, unaffected by strikes.
        self.own = {
            "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
            "DATABASE_URL": database,
            "IPATE_BROKER_URL": f"redis://127.0.0.1:{redis}/0",
            "IPATE_CACHE_URL": f"redis://127.0.0.1:{redis}/1",
            "IPATE_SECRET_KEY": secrets.token_urlsafe(50),
            "IPATE_VAR_DIR": str(self.disk),
            "IPATE_JOURNAL_DIR": str(self.disk / "journal"),
            "IPATE_SITE_URL": f"http://127.0.0.1:{self.cables['hub'].port}",
            "IPATE_LEAST_TEST_POINTS": "none",
            "IPATE_SITES_PATIENCE": str(PATIENCE),
            "IPATE_SITES_INTERVAL": "10",
            "OMP_NUM_THREADS": "1",
            "WEB_CONCURRENCY": "2",
        }
        self.redis_port, self.struck, self.restarts = redis, Counter[str](), Counter[str]()
        cable = self.cables["Redis"].port
        self._hub = {
            **os.environ,
            **self.own,
            **self.clock.environment,
            "DATABASE_URL": through,
            "IPATE_BROKER_URL": f"redis://127.0.0.1:{cable}/0",
            "IPATE_CACHE_URL": f"redis://127.0.0.1:{cable}/1",
        }
        self.programs: dict[str, Program] = {}

    def _start(self, program: Program, stack: ExitStack) -> None:
        program.start()
        stack.callback(program.stop)

    # --- Setting up -------------------------------------------------------------------------------------------------

    def installation_begin(self, stack: ExitStack) -> None:
        """Start pages, worker and beat of the hub as described in docs/install.md."""
        for name, options in {
            "web": ["web", "--bind", f"127.0.0.1:{self.port}"],
            "holders": ["web", "--bind", f"127.0.0.1:{self.holders_port}", "--workers", "1"],
            "worker": ["worker", "--concurrency", "1"],
            "beat": ["beat", "--schedule", str(self.folder / "beat")],
        }.items():
            command = [str(ROOT / "ipate"), *options]
            self.programs[name] = Program(name, command, self._hub, self.logs / f"{name}.log")
            self._start(self.programs[name], stack)
        self.ready_wait(120)

    def sites_begin(self, stack: ExitStack, names: list[str]) -> list[Any]:
        """Create an alliance whose sites have one worker each; return the `stepping` of all, starting with the hub."""
        from ipate_web.joint_demo import Installation, alliance_make, databases_make, stepping
        from ipate_web.processes import worker_command

        among = [Installation("Hub", self.disk, self.port, self.own["IPATE_SITE_URL"], (), self.own)]
        for place, name in enumerate(names, 2):
            folder = self.folder / name.lower().replace(" ", "-")
            folder.mkdir()
            variables = {
                **{key: self.own[key] for key in ("IPATE_SITES_INTERVAL", "OMP_NUM_THREADS")},
                "IPATE_BROKER_URL": f"redis://127.0.0.1:{self.redis_port}/{place}",
                "IPATE_CACHE_URL": "",
                "IPATE_JOURNAL_DIR": str(folder / "journal"),
                "HTTP_PROXY": "",
            }
            among.append(Installation(name, folder, 0, "http://127.0.0.1", (), variables))
        steps = [stack.enter_context(stepping(each)) for each in among]
        databases_make(steps[1:])
        alliance_make(steps, "digits", lambda _line: None)
        for each in among[1:]:
            program = Program(
                each.name, worker_command(1), os.environ | each.environment, self.logs / f"{each.folder.name}.log"
            )
            self.programs[each.name] = program
            self._start(program, stack)
        return steps

    def is_ready(self) -> bool:
        """Return whether both sets of pages report that everything responds."""
        with suppress(httpx.HTTPError):
            return all(
                httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=30).status_code == 200
                for port in (self.port, self.holders_port)
            )
        return False

    def ready_wait(self, seconds: float) -> bool:
        return any(self.is_ready() for _ in until(seconds, pause=1))

    # --- Strikes ----------------------------------------------------------------------------------------------------

    def strike(self, kind: str, seconds: float) -> None:
        """Strike, wait this many seconds, and undo it."""
        self.struck[kind] += 1
        what, _, how = kind.partition(" ")
        if what in self.cables:
            cable = self.cables[what]
            begin, end = (cable.cut, cable.repair) if how == "cut" else (cable.hold, cable.release)
            begin()
            time.sleep(seconds)
            end()
        elif what == "disk":
            self._disk_fill(min(seconds, 30.0))
        elif what == "clock":
            self.clock.set(CLOCK if how == "forward" else -CLOCK)
            time.sleep(seconds)
            self.clock.set(0)
        else:
            sites = [name for name in self.programs if name not in ("web", "holders", "worker", "beat")]
            name = self.chance.choice(sites) if what == "site" else what
            self.programs[name].kill()
            time.sleep(min(seconds, 30.0))
            self.programs[name].start()
            self.restarts[name] += 1

    def _disk_fill(self, seconds: float) -> None:
        ballast = self.disk / "ballast"
        try:
            for _ in until(seconds, pause=0.5):
                fill(ballast)
        finally:
            ballast.unlink()

    def length(self) -> float:
        """Return the random duration of a strike in seconds; its logarithm is uniformly distributed."""
        low, high = STRIKE
        return low * (high / low) ** self.chance.random()

    def ended(self) -> list[str]:
        """Restart the programs that have ended by themselves, and return their names."""
        names = [name for name, program in self.programs.items() if not program.is_alive]
        for name in names:
            self.programs[name].start()
        return names

    def disk_used(self) -> int:
        """Return the size of the hub's files in MiB."""
        return shutil.disk_usage(self.disk).used >> 20


# --- Requests by people and programs ----------------------------------------------------------------------------------


class Asking:
    """Requests to the site during strikes: proposing and approving runs through the API, and viewing pages."""

    def __init__(self, soak: Soak) -> None:
        self.soak, self.statuses = soak, Counter[str]()
        self.faults: list[str] = []
        self.refusals: Counter[str] = Counter()
        self.proposed = self.approved = 0
        self.all: list[Any] = []
        self._numbers, self._over = itertools.count(), threading.Event()

    def study_add(self) -> None:
        """Create the study in which runs are proposed from now on."""
        from benchmarks.faults.people import People
        from benchmarks.faults.studies import DELTA, HEAD_COUNT
        from consent.models import Level, Role
        from consent.services import membership_add
        from ipate_web.tokens.models import ApiToken
        from tests.factories import user_create
        from tests.training.runs import study_with_table
        from training.models import Dataset
        from training.services.drawings import head_counts_enter

        slug = f"soak-{len(self.all)}"
        study = study_with_table(slug, holders=31, records=2, points=60, delta=DELTA)
        olga, otto = user_create("olga"), user_create("otto")
        membership_add(study=study, user=otto, role=Role.OPERATOR, acting_user=None)
        head_counts_enter(study=study, acting_user=olga, counts=dict.fromkeys(Level.values, HEAD_COUNT))
        tokens = {user.username: ApiToken.objects.create(user, name=slug)[1] for user in (olga, otto)}
        datasets = {dataset.kind: dataset.pk for dataset in Dataset.objects.filter(study=study)}
        holder = People(study, deciding=1).holders[0]
        holder.refresh_from_db()
        self.tokens, self.datasets = tokens, datasets
        self.pages = [
            (self.soak.port, f"/studies/{slug}/", olga),
            (self.soak.port, f"/studies/{slug}/runs/", olga),
            (self.soak.holders_port, f"/my/{slug}/", holder.user),
            (self.soak.holders_port, "/sign-in/", None),
        ]
        self.all.append(study)

    def propose(self) -> None:
        """Propose a run and approve it, repeating each request until the site has responded."""
        number = next(self._numbers)
        wish = METHODS[number % len(METHODS)] | {
            "study": self.all[-1].slug,
            "title": f"Soak {number}",
            "purpose": "Every run must end despite the faults.",
            **{f"{kind}_dataset": self.datasets[kind] for kind in ("private", "public", "test")},
        }
        made = self._until_answered("otto", "/api/v1/runs", wish, {"Idempotency-Key": f"soak-{number}"})
        if made:
            self.proposed += 1
            if self._until_answered("olga", f"/api/v1/runs/{made['id']}/approve", {"share": SHARE}, {}):
                self.approved += 1

    def _until_answered(self, who: str, path: str, body: Any, headers: dict[str, str]) -> dict[str, Any] | None:
        for _ in until(900, pause=2):
            headers = headers | {"Authorization": f"Bearer {self.tokens[who]}"}
            answer = self._ask(self.soak.port, path, lambda c, url: c.post(url, json=body, headers=headers))  # noqa: B023
            if answer is not None and answer.status_code in (200, 201, 202):
                return answer.json()
            if answer is not None and answer.status_code == 409:  # such as when no policy was in force an hour ago
                self.refusals[answer.text[:200]] += 1
                return None
            if answer is not None and answer.status_code < 500 and answer.status_code != 429:
                self.faults.append(f"POST {path}: {answer.status_code} {answer.text[:300]}")
                return None
        self.faults.append(f"POST {path} got no response.")
        return None

    def look(self) -> None:
        """Open staff pages and pages for holders, each in a new session.

        While the site's clock is an hour ahead, new sessions look expired, too, so the site may ask to sign in.
        """
        from benchmarks.faults.people import session

        for port, path, user in self.pages:
            cookies = session(user) if user else {}
            answer = self._ask(port, path, lambda c, url: c.get(url, cookies=cookies))  # noqa: B023
            if answer is not None and "/sign-in/" in answer.headers.get("location", ""):
                self.statuses["302 to the sign-in"] += 1
            elif answer is not None and answer.status_code not in (200, 503):
                self.faults.append(f"GET {path}: {answer.status_code}")

    def _ask(self, port: int, path: str, ask: Callable[[httpx.Client, str], httpx.Response]) -> httpx.Response | None:
        try:
            with httpx.Client(timeout=30) as client:
                answer = ask(client, f"http://127.0.0.1:{port}{path}")
        except httpx.HTTPError as error:
            self.statuses[type(error).__name__] += 1
            return None
        self.statuses[str(answer.status_code)] += 1
        if answer.status_code == 500:
            self.faults.append(f"{answer.request.method} {path}: 500")
        return answer

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Repeat requests while the block runs."""
        threads = [
            threading.Thread(target=self._repeat, args=given)
            for given in ((self.propose, PROPOSING), (self.look, LOOKING))
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _repeat(self, what: Callable[[], None], seconds: float) -> None:
        while not self._over.wait(seconds):
            try:
                what()
            except Exception as error:  # a thread that has ended would silently stop making requests
                self.faults.append(f"{what.__name__}: {error!r}")


_STUDENT = {"student_learner": "nearest_neighbour"}
METHODS: list[dict[str, Any]] = [
    {"method": "neighbours", "choices": {"rounds": 2, "sigma": 200.0, "radius_share": 0.3}, "batch_size": 10},
    {"method": "sgd", "choices": {"steps": 20, "sigma": 300.0}, "batch_size": 5},
    {
        "method": "pate",
        "choices": {"teachers": 6, "learner": "nearest_neighbour", "aggregator": {"name": "gnmax", "sigma": 2000.0}},
        "batch_size": 10,
    },
]
for _each in METHODS:
    _each |= _STUDENT


# --- The soak ---------------------------------------------------------------------------------------------------------


def soak(
    folder: Path,
    logs: Path,
    database: str,
    seconds: float,
    seed: int,
    names: list[str],
    say: Callable[[str], Any],
    port: int,
) -> dict[str, Any]:
    """Strike for this many seconds, let everything finish, and check it; return the results.

    If the soak's own steps fail, this is noted, and they are tried again after the next strike.
    """
    chance = random.Random(seed)
    with ExitStack() as stack:
        under = Soak(folder, logs, database, chance, stack, port)
        os.environ |= under.own
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        call_command("collectstatic", verbosity=0, interactive=False)
        asking = Asking(under)
        asking.study_add()
        under.installation_begin(stack)
        steps = under.sites_begin(stack, names)
        begun, notes = time.monotonic(), Notes(say)
        joint = JointRuns(under, steps, chance)
        with asking.going_on():
            while (passed := time.monotonic() - begun) < seconds:
                if joint.begun <= JOINT_RUNS * passed / seconds:
                    notes.tried("joint run", joint.begin)
                if asking.proposed >= RUNS_OF_A_STUDY * len(asking.all):
                    notes.tried("next study", asking.study_add)
                kind, length = chance.choices(list(KINDS), list(KINDS.values()))[0], under.length()
                say(
                    f"{passed:6.0f} s: {kind}, {length:.1f} s; {asking.approved} runs approved, {joint.begun} joint, "
                    f"{under.disk_used()} MiB, load {os.getloadavg()[0]:.1f}"
                )
                notes.tried(kind, lambda: under.strike(kind, length))  # noqa: B023
                time.sleep(chance.uniform(*PAUSE))
                notes.wrong += [f"{name} exited unexpectedly during or after: {kind}" for name in under.ended()]
        struck_for = time.monotonic() - begun
        say(f"Strikes stopped after {struck_for:.0f} s.")
        checks = Checks(under, asking, steps, notes)
        checks.all()
        lived = time.monotonic() - begun
        busy = sum(program.seconds + program.processor_seconds() for program in under.programs.values())
        return {
            "seed": seed,
            "minutes": round(struck_for / 60, 1),
            "strikes": dict(under.struck),
            "restarted after kills": dict(under.restarts),
            "answers": dict(asking.statuses),
            "refused": dict(asking.refusals),
            "runs": {"proposed": asking.proposed, "approved": asking.approved, "joint": joint.begun},
            "cores": round(busy / lived, 3),
            "steps tried again": notes.again,
            **checks.found,
            "wrong": asking.faults + notes.wrong,
        }


class Notes:
    """Errors of the soak's own steps."""

    def __init__(self, say: Callable[[str], Any]) -> None:
        self.say = say
        #: Steps that failed and are tried again, and permanent faults.
        self.again: list[str] = []
        self.wrong: list[str] = []

    def tried(self, name: str, step: Callable[[], Any]) -> bool:
        """Carry out a step, and note its error instead of raising it."""
        from django.db import connections

        try:
            step()
        except Exception as error:
            self.say(f"         {name}: {error!r}")
            self.again.append(f"{name}: {error!r}")
            return False
        finally:
            connections.close_all()
        return True


@dataclass
class JointRuns:
    """Joint runs, one after the other. Each one starts when the previous one has ended everywhere."""

    under: Soak
    steps: list[Any]
    chance: random.Random
    begun: int = 0
    #: Mode of a run that has not started everywhere.
    mode: str | None = None

    def begin(self) -> None:
        """Start a run, or continue starting it. Raises CommandError if it has not started everywhere."""
        from ipate_web.joint_demo import ENDED, run_begin

        if self.mode is None:
            if self.begun and any(each.do("run_state")["status"] not in ENDED for each in self.steps):
                return
            self.mode = self.chance.choice(["together", "separate"])
        if self.under.ready_wait(60):
            run_begin(self.steps, self.mode, JOINT_SHARE)
            self.mode, self.begun = None, self.begun + 1


class Checks:
    """Final checks. If one fails, this is noted, and the others follow."""

    def __init__(self, under: Soak, asking: Asking, steps: list[Any], notes: Notes) -> None:
        self.under, self.asking, self.steps, self.notes = under, asking, steps, notes
        self.found: dict[str, Any] = {}

    def all(self) -> None:
        """Wait for everything in progress to end, then run all checks."""
        for check in (self.runs, self.programs, self.register, self.accounts):
            if not any(self.notes.tried(check.__name__, check) for _ in range(3)):
                self.notes.wrong.append(f"the check {check.__name__} could not be carried out")

    def runs(self) -> None:
        """Check that every run has ended."""
        from ipate_web.joint_demo import ENDED
        from training.models import JointRun, Run

        joint: list[dict[str, Any]] = []
        for _ in until(ENDING, pause=5):
            joint = [each.do("run_state") for each in self.steps]
            left = Run.objects.filter(status__in=Run.ACTIVE)
            if not left.exists() and all(state["status"] in ENDED for state in joint):
                break
        else:
            states = zip(self.steps, joint, strict=True)
            self.notes.wrong += [f"run {run.pk} has not ended: {run.status}" for run in left]
            self.notes.wrong += [f"the joint run at {each.at.name}: {state['status']}" for each, state in states]
        ended = Run.objects.filter(pk__in=JointRun.objects.values("run")).values_list("status", "message")
        self.found["joint runs"] = [f"{status} {message}".strip() for status, message in ended]

    def programs(self) -> None:
        """Check that every process is alive and that the pages report that everything responds."""
        self.notes.wrong += [f"{name} exited unexpectedly" for name in self.under.ended()]
        self.found["processes alive"] = [name for name, each in self.under.programs.items() if each.is_alive]
        if not self.under.ready_wait(60):
            self.notes.wrong.append("the site does not report that it is ready")

    def register(self) -> None:
        """Check that runs, register and accounts of the hub's own studies agree."""
        from benchmarks.faults.checks import faults
        from training.models import Run

        counts: Counter[str] = Counter()
        wrong = list(faults(self.asking, counts, may_fail=True))
        made = Run.objects.filter(study__in=self.asking.all).count()
        if made != self.asking.proposed:
            wrong.append(f"{self.asking.proposed} proposals were answered, but there are {made} runs")
        self.found["counts"] = dict(counts)
        self.notes.wrong += wrong

    def accounts(self) -> None:
        """Check that all accounts at the alliance's sites are within their caps and that no one was charged twice."""
        accounts = {each.at.name: each.do("accounts_state") for each in self.steps}
        for name, state in accounts.items():
            self.notes.wrong += [f"{name}: {fault}" for fault in state["faults"]]
            self.notes.wrong += [f"{name}: an account is above its cap"] * (not state["within"])
            self.notes.wrong += [f"{name}: {state['twice']} questions were charged twice"] * bool(state["twice"])
        self.found["accounts"] = accounts
