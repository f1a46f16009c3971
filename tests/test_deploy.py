"""Files for installations are valid, and what they start works together, without containers."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from email.message import EmailMessage
from fnmatch import fnmatch
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
import yaml
from aiosmtpd.controller import Controller
from django.conf import settings
from django.db import connection

from ipate_web.apps import encoding_check
from ipate_web.processes import running
from tests.hooks import certificate_make
from tests.ipate_web.accounts.conftest import Mailbox, words
from tests.workers import port_reserve, wait_until

ROOT = Path(settings.BASE_DIR)
BIN = Path(sys.executable).parent
DEPLOY = ROOT / "deploy"
HOST, TOKEN, ADDRESS = "ipate.example", "t" * 40, "ada@example.org"


def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def checked(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([*map(str, command)], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_compose_keeps_to_its_schema() -> None:
    checked(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml")
    assert compose()["services"].keys() == {"db", "redis", "mail"} | OURS


#: Services that use the image.
OURS = {"setup", "web", "holders", "worker", "beat", "backup"}
#: Variables that compose.yaml and the image set themselves.
FIXED = {"DATABASE_URL", "IPATE_BROKER_URL", "IPATE_CACHE_URL", "IPATE_VAR_DIR", "IPATE_JOURNAL_DIR", "IPATE_BIND"}


def documented() -> set[str]:
    """Return the names of the variables in the table of docs/operations.md."""
    lines = (ROOT / "docs" / "operations.md").read_text().splitlines()
    names: set[str] = set()
    for first in (line.split("|")[1] for line in lines if re.match(r"\| `[A-Z_]{8,}`", line)):
        (name, *others) = re.findall(r"`([A-Z_…]+)`", first)
        names |= {name} | {each.replace("…", name) for each in others}
    return names


def test_the_table_has_every_variable_that_is_read() -> None:
    read = {
        name
        for folder in ("ipate_web", "common", "consent", "accounting", "training", "learning")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r'(?:read\(|environ\.get\(|environ\[)\s*"(IPATE_[A-Z_]+)"', path.read_text())
    }
    assert len(read) > 40 and read - documented() == set()


def test_compose_passes_every_variable_of_the_table() -> None:
    given = {name: f"value of {name}" for name in documented()} | {"POSTGRES_PASSWORD": "p"}
    services = compose()["services"]
    for name in OURS:
        passed = environment_of(services[name], given)
        assert {key for key, text in given.items() if passed.get(key) != text} - FIXED == set(), name


def test_services_of_compose_have_few_permissions() -> None:
    everything = compose()
    for name, service in everything["services"].items():
        assert "no-new-privileges:true" in service["security_opt"] and service["mem_limit"], name
        outside = "outside" in service["networks"]
        assert outside == (name in {"web", "holders", "worker", "mail"}), name
        if name not in {"db", "redis"}:
            assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        if name in OURS:
            assert service["pids_limit"] and service["memswap_limit"] == service["mem_limit"], f"{name}: no swap"
            assert service["stop_grace_period"] == "90s", f"{name}: gunicorn gives requests 60 s to finish"
    assert everything["networks"]["inside"] == {"internal": True}


def test_the_image_is_clean() -> None:
    checked(BIN / "hadolint", "deploy/Containerfile")


def test_the_image_gets_every_document_and_no_test() -> None:
    """`mkdocs build` fails there if a document from outside docs/ is missing."""

    def is_sent(file: str) -> bool:
        sent, above = True, [str(path) for path in Path(file).parents][:-1]
        for line in (ROOT / ".dockerignore").read_text().split():
            if any(fnmatch(path, line.removeprefix("!").removeprefix("**/")) for path in [file, *above]):
                sent = line.startswith("!")
        return sent

    documents = re.findall(r'^    "(\S+\.md)": "', (ROOT / "docs" / "hooks.py").read_text(), re.MULTILINE)
    assert len(documents) > 8 and [each for each in documents if not is_sent(each)] == []
    for file in (".env", ".git/config", "var/ipate.sqlite3", "tests/hooks.py", "benchmarks/results/sites.json"):
        assert not is_sent(file)


def test_every_variable_of_an_installation_is_documented() -> None:
    known = (ROOT / "docs" / "operations.md").read_text()
    files = [ROOT / "compose.yaml", DEPLOY / "Containerfile", DEPLOY / "gunicorn.py", ROOT / "ipate"]
    files += [path for path in DEPLOY.rglob("systemd/**/*") if path.is_file()]
    named = {name for path in files for name in re.findall(r"\bIPATE_[A-Z_]+\b", path.read_text())}
    assert len(named) > 8
    assert [name for name in named if f"`{name}`" not in known] == []


@pytest.mark.django_db
def test_a_database_that_stores_no_unicode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(encoding_check(None, ["default"])) == []
    monkeypatch.setattr("ipate_web.apps.connections", {"default": (database := MagicMock(vendor="postgresql"))})
    database.cursor.return_value.__enter__.return_value.fetchone.return_value = ("SQL_ASCII",)
    assert [fault.id for fault in encoding_check(None, ["default"])] == ["ipate.E002"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    units = sorted(DEPLOY.glob("systemd/ipate*"))
    assert len(units) == 10
    shutil.copytree(DEPLOY / "systemd", tmp_path, dirs_exist_ok=True)
    for unit in units:
        if unit.is_file():
            (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/ipate/ipate", str(ROOT / "ipate")))
    units = [tmp_path / unit.name for unit in units if unit.is_file()]
    where = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    assert checked("systemd-analyze", "verify", "--man=no", *units, env=where) == ""
    for unit in units:
        if unit.suffix == ".service":
            command = ("systemd-analyze", "security", "--offline=true", "--threshold=20")
            assert "OK" in checked(*command, unit, env=where).splitlines()[-1], "exposure of at most 2.0 out of 10"
            # Every unit ends: a service by its memory limit, and one that others wait for also by its timeout.
            lines = unit.read_text().splitlines()
            assert [line for line in lines if line.startswith("MemoryMax=")], unit
            assert any(line.startswith("TimeoutStartSec=") for line in lines) or "Type=oneshot" not in lines, unit


def starts(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts an installation."""
    return pytest.mark.worker(pytest.mark.exhaustive(test))


@dataclass(frozen=True)
class Installation:
    """A running site, worker and beat, and the mails that arrived."""

    port: int
    holders_port: int
    folder: Path
    mails: list[EmailMessage]

    def client(self, **headers: str) -> httpx.Client:
        """Return a client next to the proxy, which says that the request came over TLS."""
        through = {"Host": HOST, "X-Forwarded-Proto": "https", "Referer": f"https://{HOST}/"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=through | headers, timeout=300)


def environment_of(service: dict[str, Any], given: dict[str, str]) -> dict[str, str]:
    """Return the environment of a service of ``compose.yaml`` if ``.env`` has only the variables ``given``."""

    def value(match: re.Match) -> str:
        name, default = match["name"], match["default"] or ""
        return given.get(name, default.removeprefix(":-"))

    pattern = re.compile(r"\$\{(?P<name>\w+)(?P<default>:[-?][^}]*)?\}")
    resolved = {name: pattern.sub(value, str(text)) for name, text in service["environment"].items()}
    passed = given if service.get("env_file") == [".env"] else {}
    # The image has the command in its PATH.
    path = {"PATH": f"{ROOT}:{BIN}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
    return path | passed | resolved


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Iterator[Installation]:
    """Run the commands of compose.yaml and of the image, on this machine's database and broker."""
    folder, mailbox, services = tmp_path_factory.mktemp("installation"), Mailbox(), compose()["services"]
    port, holders_port, smtp_port = port_reserve(), port_reserve(), port_reserve()
    (folder / "var").mkdir()
    with ExitStack() as stack:
        smtp = Controller(mailbox, hostname="127.0.0.1", port=smtp_port)
        smtp.start()
        stack.callback(smtp.stop)
        given = {
            **{"IPATE_SECRET_KEY": "s" * 50, "POSTGRES_PASSWORD": "p", "IPATE_METRICS_TOKEN": TOKEN},
            **{"IPATE_SITE_URL": f"https://{HOST}", "IPATE_BEHIND_PROXY": "true"},
            "IPATE_MAIL": f"smtp://127.0.0.1:{smtp.port}",
        }
        here = {
            **{"IPATE_VAR_DIR": str(folder / "var"), "IPATE_JOURNAL_DIR": str(folder / "journal")},
            **{"IPATE_BIND": f"127.0.0.1:{port}", "WEB_CONCURRENCY": "2"},
            **{"DATABASE_URL": "", "IPATE_BROKER_URL": settings.BROKER_URL, "IPATE_CACHE_URL": ""},
        }
        if connection.vendor == "postgresql":
            database, where = f"ipate_deployed_{os.getpid()}", connection.settings_dict
            with django_db_blocker.unblock(), connection.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {database}")
            server = f"{where['USER']}:{where['PASSWORD']}@{where['HOST']}:{where['PORT']}"
            here["DATABASE_URL"] = f"postgres://{server}/{database}"

            def drop() -> None:
                with django_db_blocker.unblock(), connection.cursor() as cursor:
                    cursor.execute(f"DROP DATABASE {database} WITH (FORCE)")

            stack.callback(drop)
        variables = environment_of(services["web"], given) | here
        commands = {name: services[name]["command"] for name in ("holders", "worker", "beat")}
        images = (DEPLOY / "Containerfile").read_text()
        commands["web"] = json.loads(re.search(r" AS site\n.*?\nCMD (.*?)\n", images, re.DOTALL)[1])  # type: ignore[index]
        setup = [services["setup"]["command"], ["ipate", "shell", "-v0", "-c", MAKE_ADA]]
        for command in setup:
            subprocess.run(command, cwd=ROOT, env=variables, check=True, capture_output=True)
        for name, command in commands.items():
            # Not the environment of the tests, except what they share.
            own = {"IPATE_BIND": f"127.0.0.1:{holders_port}"} if name == "holders" else {}
            bare = ["env", "-i", *(f"{key}={text}" for key, text in (variables | own).items()), *command]
            stack.enter_context(running(bare, folder / f"{name}.log"))
        yield Installation(port, holders_port, folder, mailbox.mails)


MAKE_ADA = f"""
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.utils import timezone
ada = User.objects.create_user("ada", "{ADDRESS}", "a secret that nobody guesses", last_login=timezone.now())
EmailAddress.objects.create(user=ada, email=ada.email, verified=True, primary=True)
"""


def wait_for(condition: Any, installation: Installation) -> Any:
    def found() -> Any:
        with suppress(httpx.TransportError):
            return condition()

    return wait_until(found, *installation.folder.glob("*.log"), pause=0.2)


@contextmanager
def served(installation: Installation, address: str) -> Iterator[httpx.Client]:
    """Return a client of the installation, once this address responds as it should."""
    with installation.client() as client:
        wait_for(lambda: client.get(address).status_code == 200, installation)
        yield client


@starts
def test_a_mail_goes_from_the_site_by_the_worker_to_the_server(installation: Installation) -> None:
    with served(installation, "/readyz") as client:
        page = client.get("/account/password/forgotten/")
        style = re.search(r'href="(/static/[^"]+\.css)"', page.text)
        assert style and client.get(style[1]).status_code == 200
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert token
        # httpx sends no secure cookies without TLS.
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in client.cookies.jar)
        sent = {"email": ADDRESS, "csrfmiddlewaretoken": token[1]}
        answer = client.post("/account/password/forgotten/", data=sent, headers={"Cookie": cookies})
        assert answer.status_code == 302, answer.text
    (mail,) = wait_for(lambda: installation.mails, installation)
    assert mail["To"] == ADDRESS
    assert f"https://{HOST}/" in words(mail)


def _announced(port: int, trusted: ssl.SSLContext, path: str, size: int) -> int:
    """Return the response to a request that announces a body of ``size`` bytes, but sends none of them."""
    with closing(HTTPSConnection("127.0.0.1", port, context=trusted, timeout=300)) as connection:
        connection.putrequest("POST", path)
        connection.putheader("Content-Length", str(size))
        connection.endheaders()
        return connection.getresponse().status


@dataclass(frozen=True)
class Proxy:
    """nginx with the repository's file in front of an installation."""

    plain: int
    secure: int
    trusted: ssl.SSLContext
    client: httpx.Client


@contextmanager
def proxied(installation: Installation, folder: Path, *, staff_port: int) -> Iterator[Proxy]:
    """Run ``deploy/nginx.conf``; requests of staff and programs go to ``staff_port``."""
    plain, secure = port_reserve(), port_reserve()
    pem = certificate_make(folder, HOST)
    server = (DEPLOY / "nginx.conf").read_text()
    for old, new in (
        ("127.0.0.1:8000", f"127.0.0.1:{staff_port}"),
        ("127.0.0.1:8001", f"127.0.0.1:{installation.holders_port}"),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen 443", f"listen 127.0.0.1:{secure}"),
        ("/etc/letsencrypt/live/ipate.example/fullchain.pem", str(pem)),
        ("/etc/letsencrypt/live/ipate.example/privkey.pem", str(pem)),
        ("/var/log/nginx/ipate.log", str(folder / "access.log")),
    ):
        assert old in server
        server = server.replace(old, new)
    server = re.sub(r"\n\s*listen \[::\].*", "", server)
    paths = "\n".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main = folder / "nginx.conf"
    main.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {paths}\n{server}\n}}\n"
    )
    checked("nginx", "-t", "-c", main)
    trusted = ssl.create_default_context(cafile=str(pem))
    headers = {"Host": HOST, "Authorization": f"Bearer {TOKEN}"}
    with (
        running(["nginx", "-c", str(main)], folder / "nginx.log"),
        httpx.Client(base_url=f"https://127.0.0.1:{secure}", verify=trusted, headers=headers, timeout=300) as client,
    ):
        wait_for(lambda: client.get("/healthz").status_code == 200, installation)
        yield Proxy(plain, secure, trusted, client)


@starts
@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
def test_the_proxy_lets_people_in_and_keeps_the_rest_out(installation: Installation, tmp_path: Path) -> None:
    with proxied(installation, tmp_path, staff_port=installation.port) as proxy:
        client, headers = proxy.client, dict(proxy.client.headers)
        assert (client.get("/").status_code, client.get("/api/v1/").status_code) == (200, 401)
        assert client.get("/metrics").status_code == client.get("/readyz").status_code == 404
        assert client.get("/join/a-secret-link/").status_code == 302
        to = httpx.get(f"http://127.0.0.1:{proxy.plain}/join/a-secret-link/", headers=headers)
        assert (to.status_code, to.headers["Location"]) == (301, f"https://{HOST}/join/a-secret-link/")
        answer = client.get("/", headers={"X-Forwarded-Proto": "http"})
        assert answer.status_code == 200, "the proxy's header replaces the client's"
        announced = _announced(proxy.secure, proxy.trusted, "/join/a-secret-link/", 10**9)
        assert announced == 413, "nginx logs the refusal"
    logged = (tmp_path / "access.log").read_text()
    assert "GET / " in logged and "secret" not in logged + (tmp_path / "error.log").read_text()


@starts
@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
def test_holders_are_answered_while_all_other_processes_are_taken(installation: Installation, tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,  # accepts connections, but does not respond
        proxied(installation, tmp_path, staff_port=silent.getsockname()[1]) as proxy,
    ):
        for address, status in {
            **dict.fromkeys(("/healthz", "/", "/sign-in/", "/privacy/", "/glossary/"), 200),
            **dict.fromkeys(("/my/", "/join/a-secret-link/", "/account/"), 302),
        }.items():
            assert proxy.client.get(address).status_code == status, address
        with pytest.raises(httpx.ReadTimeout):
            proxy.client.get("/studies/", timeout=2)


PROGRAMS = ("unshare", "nsenter", "chroot", "adduser", "setpriv", "git", "curl", "openssl", "nginx", "redis-server")


def missing() -> str:
    """Return the reason why it cannot be tested here, or an empty text."""
    if os.geteuid() != 0:
        return "it needs root, for a root folder and a network of its own"
    lacking = [name for name in (*PROGRAMS, "/lib/systemd/systemd") if not shutil.which(name)]
    if lacking or not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        return f"not installed: {', '.join(lacking) or 'postgresql'}"
    namespaces = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup")
    if subprocess.run(["unshare", *namespaces, "--fork", "true"], check=False).returncode:
        return "this machine gives no namespaces"
    if not os.access("/sys/fs/cgroup", os.W_OK):
        return "this machine gives no control groups"
    return ""


@pytest.mark.exhaustive
@pytest.mark.worker
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_documented_commands_bring_up_an_installation() -> None:
    venv = "-" if os.environ.get("IPATE_FRESH_MACHINE") == "install" else sys.prefix
    script = Path(__file__).with_name("fresh_machine.sh")
    command = ["bash", script, settings.BASE_DIR, venv]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "THE FRESH MACHINE IS WHOLE" in done.stdout, done.stdout + done.stderr
