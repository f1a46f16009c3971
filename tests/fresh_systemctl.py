#!/usr/bin/python3
"""Stand-in for systemctl where no systemd runs: starts the ExecStart lines of units with their user and environment."""

import shlex
import subprocess
import sys
from pathlib import Path

UNITS = Path("/etc/systemd/system")


def settings(unit: Path) -> dict[str, list[str]]:
    """All lines of a unit by name."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def start(name: str) -> None:
    unit = settings(UNITS / f"{name}.service")
    variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    for file in unit["EnvironmentFile"]:
        lines = [line for line in Path(file).read_text().splitlines() if line and line[0] not in "#;"]
        variables |= dict(line.split("=", 1) for line in lines)
    (user,), (command,) = unit["User"], unit["ExecStart"]
    log = Path(f"/var/log/fresh-{name}.log").open("ab")  # noqa: SIM115  # the process keeps it
    process = subprocess.Popen(
        ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--no-new-privs", *shlex.split(command)],
        cwd=unit["WorkingDirectory"][0],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    if unit.get("Type") == ["oneshot"] and process.wait():
        sys.exit(Path(log.name).read_text())


def main(verb: str, *names: str) -> None:
    if verb == "daemon-reload":
        return
    for name in names:
        if name.startswith("--"):
            continue
        if name.endswith((".timer", ".target")):
            assert (UNITS / name).is_file(), name
        else:
            start(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
