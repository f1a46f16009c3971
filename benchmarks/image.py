"""Build the images of deploy/Containerfile, run the services of compose.yaml in containers, and check that they start.

    .venv/bin/python benchmarks/image.py [--base FOLDER] [--wheels FOLDER] [--volume HOST:IMAGE …] [--keep]

Needs podman, and PostgreSQL (postgres://root@127.0.0.1:5432) and Redis on this machine, which replace the services db
and redis. Builds the image, then runs setup, worker, beat, site and a backup with the environment, command and limits
of each service in compose.yaml. Waits until the site is ready, which means that the database, broker, storages and a
worker respond. Checks that the site's file system is read-only and its user is not root; stops everything and prints
the seconds of each step. --base makes debian:bookworm-slim from a folder filled by debootstrap, for use without a
registry. --wheels has the CPU build of PyTorch; --volume provides files that pip needs here, such as /etc/pip.conf.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
TAGS = {target: f"localhost/ipate-{target}" for target in ("site", "worker")}
DATABASE, PORT = f"ipate_image_{os.getpid()}", 8000
KEY = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"


def podman(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise SystemExit(f"podman {' '.join(arguments[:3])} …\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout + done.stderr


@contextmanager
def step(name: str) -> Iterator[None]:
    begun = time.monotonic()
    yield
    print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)


def base_make(folder: Path) -> None:
    """Make the base image from a folder."""
    with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(
            ["podman", "import", "-", "docker.io/library/debian:bookworm-slim"], stdin=packed.stdout, check=True
        )


def image_build(wheels: Path | None, volumes: list[str]) -> None:
    """Build both images, with this machine's wheels instead of PyTorch's index."""
    options = [each for volume in volumes for each in ("--volume", volume)]
    with ExitStack() as stack:
        if wheels:
            index = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (index / "torch").mkdir(parents=True)
            names = [path.name for path in wheels.glob("torch-*.whl")]
            links = "".join(f'<a href="file:///wheels/{quote(name)}">{name}</a>\n' for name in names)
            (index / "torch" / "index.html").write_text(links)
            index.chmod(0o755)
            options += ["--volume", f"{wheels}:/wheels:ro", "--volume", f"{index}:/index:ro"]
            options += ["--build-arg", "TORCH_INDEX=file:///index"]
        options += ["--network", "host", "-f", str(ROOT / "deploy" / "Containerfile")]
        for target, tag in TAGS.items():
            podman("build", *options, "--target", target, "-t", tag, str(ROOT))


def service_options(service: dict, folder: Path) -> list[str]:
    """Return podman options equivalent to the service in compose.yaml."""
    given = {"IPATE_SECRET_KEY": "s" * 50, "POSTGRES_PASSWORD": "p", "IPATE_BACKUP_RECIPIENT": KEY}
    environment = given | {
        "IPATE_SITE_URL": f"http://127.0.0.1:{PORT}",
        "IPATE_MAIL": "file:///var/lib/ipate/mail",
        "DATABASE_URL": f"postgres://root@127.0.0.1:5432/{DATABASE}",
        "IPATE_BROKER_URL": "redis://127.0.0.1:6379/12",
        "IPATE_CACHE_URL": "redis://127.0.0.1:6379/13",
        "IPATE_BIND": f"127.0.0.1:{PORT}",
    }
    options = ["--network", "host", "--read-only", "--security-opt", "no-new-privileges", "--tmpfs", "/tmp"]
    # podman requests more than this process may have, which would require a privilege
    options += ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]
    options += ["--memory", service["mem_limit"], "--pids-limit", str(service["pids_limit"]), "--cap-drop", "ALL"]
    assert service["read_only"] and service["tmpfs"] == ["/tmp"] and service["cap_drop"] == ["ALL"]
    for name, text in environment.items():
        options += ["--env", f"{name}={text}"]
    for volume in service["volumes"]:
        name, place = volume.split(":")
        options += ["--volume", f"{DATABASE}-{name}:{place}"]
    return options


def psql(statement: str) -> None:
    subprocess.run(["psql", "-q", "postgres://root@127.0.0.1:5432/postgres", "-c", statement], check=True)


def ready() -> dict:
    """Return the site's response once it is ready."""
    end = time.monotonic() + 300
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=10) as answer:
                return json.loads(answer.read())
        except OSError as error:
            if time.monotonic() > end:
                raise SystemExit(f"The site is not ready: {error}") from error
            time.sleep(0.5)


def installation_try(folder: Path) -> None:
    """Start the services of compose.yaml, send requests, and stop them."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    started: list[str] = []

    def run(name: str, *command: str, detach: bool = False) -> str:
        options = service_options(services[name], folder)
        tag = TAGS["worker" if name == "worker" else "site"]
        wanted = command or tuple(services[name].get("command", ()))
        if not detach:
            return podman("run", "--rm", *options, tag, *wanted)
        started.append(f"{DATABASE}-{name}")
        return podman("run", "--detach", "--name", started[-1], *options, tag, *wanted)

    psql(f"CREATE DATABASE {DATABASE}")
    try:
        with step("setup (migrate, collectstatic)"):
            run("setup")
        with step("web, worker, beat until ready"):
            for name in ("worker", "beat", "web", "backup"):
                run(name, detach=True)
            print("readyz:", ready())
        with urlopen(f"http://127.0.0.1:{PORT}/", timeout=60) as answer:
            page = answer.read().decode()
            assert answer.status == 200 and "/static/" in page
        web = f"{DATABASE}-web"
        print("user in the site's container:", podman("exec", web, "id", "-u").strip())
        assert "Read-only file system" in podman("exec", web, "touch", "/opt/ipate/x", check=False)
        confined = podman("exec", web, "python", "-m", "common.confinement").strip()
        print("blocked for upload readers:", confined)
        assert json.loads(confined) == {"network": True, "files": True}
        with step("backup"):
            print(run("backup", "ipate", "backup", "/var/backups/ipate").strip())
        assert ready()["backup"] == "ok"
        with step("verify_ledger"):
            print(podman("exec", web, "ipate", "verify_ledger").strip()[-200:])
        with step("stop"):
            podman("stop", "--time", "60", *started)
        for name in started:
            code = podman("inspect", "--format", "{{.State.ExitCode}}", name).strip()
            print(f"{name.removeprefix(DATABASE + '-')} ended with {code}")
            assert code == "0", podman("logs", name)[-2000:]
    finally:
        for name in started:
            (folder / f"{name}.log").write_text(podman("logs", name, check=False))
            podman("rm", "--force", name, check=False)
        for volume in ("var", "journal", "backups"):
            podman("volume", "rm", "--force", f"{DATABASE}-{volume}", check=False)
        psql(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def main() -> None:
    """Build and try out the image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, metavar="FOLDER", help="root of a Debian system from debootstrap")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="folder with the CPU build of PyTorch")
    parser.add_argument("--volume", action="append", default=[], metavar="HOST:IMAGE", help="mounted while building")
    parser.add_argument("--built", action="store_true", help="the image exists: start it")
    parser.add_argument("--keep", action="store_true", help="keep the image")
    given = parser.parse_args()
    if not given.built:
        if given.base:
            with step("base image"):
                base_make(given.base)
        with step("image"):
            image_build(given.wheels, given.volume)
    for tag in TAGS.values():
        print(f"size of {tag}:", podman("image", "inspect", "--format", "{{.Size}}", tag).strip(), "bytes")
    installation_try(Path(tempfile.mkdtemp(prefix="ipate-image-")))
    if not given.keep:
        podman("image", "rm", *TAGS.values())


if __name__ == "__main__":
    main()
