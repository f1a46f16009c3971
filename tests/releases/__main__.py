"""Make an installation of :mod:`tests.releases` in FILE, or run `facts` or `go_on` in an existing one.

Both also verify it, because starting another process for that would take seconds.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import django
from django.conf import settings
from django.core.management import call_command

_FOLDER = Path(__file__).parents[2]


def release_write(file: Path) -> None:
    """Make an installation in a separate process, and write an archive of what it leaves behind."""
    from tests.releases import environment

    with TemporaryDirectory() as var, TemporaryDirectory() as left:
        command = [sys.executable, "-m", "tests.releases", "make"]
        given = os.environ | environment(Path(var)) | {"IPATE_RELEASE_FOLDER": left}
        given.pop("DATABASE_URL", None)
        subprocess.run(command, env=given, cwd=_FOLDER, check=True)
        with tarfile.open(file, "w:xz", preset=9) as archive:
            for path in sorted(Path(left).iterdir()):
                archive.add(path, path.name)


def main(command: str) -> None:
    """Run the command line."""
    if command not in ("make", "facts", "go_on"):
        release_write(Path(command))
        return
    django.setup()
    from tests.releases import installation

    if command == "make":
        from tests.everything import study_with_everything

        folder = Path(os.environ["IPATE_RELEASE_FOLDER"])
        call_command("migrate", verbosity=0)
        study_with_everything()  # every table has rows that a migration may have to convert
        call_command("backup", str(folder), "--unencrypted")
        shutil.copytree(settings.JOURNAL_DIR, folder / "journal")
        (folder / "facts.json").write_text(json.dumps(installation.facts(), indent=1) + "\n", "utf-8")
    elif command == "facts":
        call_command("makemigrations", check_changes=True, dry_run=True)
        call_command("migrate", check_unapplied=True)
        call_command("verify_ledger")
        sys.stdout.write(json.dumps(installation.facts()))
    else:
        installation.installation_go_on()
        call_command("verify_ledger")


if __name__ == "__main__":
    main(sys.argv[1])
