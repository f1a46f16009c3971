"""Carry out the demo's steps in this installation, one per input line, for ``manage.py demo --sites``.

A line is a JSON object with the ``step`` and its ``given`` arguments. The response is also a line of JSON. If a step
fails, the response contains the error as ``failed``, the traceback goes to stderr, and the next step can follow.
"""

import json
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from accounting.accounts import balances
from accounting.caps import caps_of
from accounting.models import Release
from consent.models import DataHolder, Study
from consent.selectors import consent_snapshot
from ipate_web.processes import static_files_collect
from learning.formats import Splits, catalogue_load
from training.alliances import services
from training.alliances.exchange import exchange
from training.alliances.runs import joint_run_propose, joint_run_take
from training.alliances.wire import invitation_write
from training.demonstration import STUDIES, Login, consents_give, members_add, people, study_begin, study_publish
from training.models import Alliance, Dataset, JointRun, Run
from training.services.approvals import run_approve, run_plan
from training.services.datasets import dataset_import
from training.services.drawings import head_counts_draw
from training.verification import checks_of

SLUG = "demo-sites"
#: Number of steps. Few are enough, because they use the curvature of public points. Each is a question to all sites.
QUESTIONS = 15

Step = Callable[..., dict[str, Any]]


def hub_create(data: str, splits: Splits, names: list[str], address: str) -> dict[str, Any]:
    """Create a study without people at the hub, its public points, and the alliance."""
    users, logins = people()
    study = study_begin(STUDIES[data], SLUG, users, "Example University, the hub")
    members_add(study, users)
    points = {
        kind: dataset_import(
            study=study,
            name=kind,
            kind=kind,
            rows=rows,
            schema=splits.schema,
            provenance=STUDIES[data]["provenance"],
            acting_user=users["operator"],
        )
        for kind, rows in (("public", splits.public), ("test", splits.test))
    }
    alliance, codes = services.alliance_create(
        study=study,
        name="Example alliance",
        sites=names,
        schema_of=points["public"],
        public=points["public"],
        acting_user=users["operator"],
    )
    invitations = {name: invitation_write(alliance, code, address) for name, code in codes.items()}
    return {"invitations": invitations, "logins": _login_rows(logins)}


def site_register(
    data: str, splits: Splits, place: int, of: int, name: str, invitation: str, certificate: str
) -> dict[str, Any]:
    """Create a study with a site's part of the records, and register it at the hub."""
    users, logins = people()
    study = study_begin(STUDIES[data], SLUG, users, name)
    members_add(study, users)
    dataset_import(
        study=study,
        name="private",
        kind=Dataset.Kind.PRIVATE,
        rows=splits.private[place::of],
        schema=splits.schema,
        acting_user=users["steward"],
    )
    services.alliance_connect(
        study=study, invitation=invitation, acting_user=users["operator"], certificate=certificate
    )
    return {"logins": _login_rows(logins)}


def hub_sign() -> dict[str, Any]:
    """Sign the alliance at the hub."""
    services.alliance_sign(alliance=_alliance(), acting_user=_user("operator"))
    return {}


def site_join(data: str) -> dict[str, Any]:
    """Describe the alliance in a site's form and publish it, record and count people's consents, and join."""
    alliance = _alliance()
    exchange(alliance)
    services.alliance_add_to_form(alliance=alliance, acting_user=_user("operator"))
    study = Study.objects.get(slug=SLUG)
    users = {name: _user(name) for name in ("committee", "committee2", "holder", "operator2")}
    study_publish(study, STUDIES[data], users)
    consents_give(study, users["holder"], lambda rows, _description, _total: rows)
    head_counts_draw(study=study, acting_user=users["operator2"])
    services.alliance_join(alliance=_alliance(), acting_user=users["operator2"])
    exchange(_alliance())
    return {"holders": DataHolder.objects.filter(study=study).count()}


def hub_run(mode: str, share: float) -> dict[str, Any]:
    """Propose a run at the hub, unless the last run is still in progress, and approve it."""
    alliance = _alliance()
    run = Run.objects.filter(alliance=alliance, joint__isnull=False).order_by("created_at").last()
    if run is None or run.status in Run.ENDED:
        run = _run_propose(alliance, mode)
    if run.status == Run.Status.DRAFT:
        run = run_approve(run=run, acting_user=_user("operator2"), share=share)
    if run.status == Run.Status.PLANNING:
        run_plan(run)  # the sites request the run at once
    return {"number": run.pk.hex}


def _run_propose(alliance: Alliance, mode: str) -> Run:
    datasets = {dataset.kind: dataset for dataset in Dataset.objects.filter(study=alliance.study, rows__gt=0)}
    return joint_run_propose(
        alliance=alliance,
        acting_user=_user("operator"),
        mode=mode,
        title="Steps across sites",
        purpose="Learn together; the records stay where they are.",
        method=Run.Method.SGD,
        choices={"steps": QUESTIONS, "publish": "model"},
        public_dataset=datasets["public"],
        test_dataset=datasets["test"],
    )


def site_run(number: str, share: float) -> dict[str, Any]:
    """Accept the run at a site, unless already done, and approve it."""
    alliance = _alliance()
    if taken := JointRun.objects.filter(run__alliance=alliance, content__contains=number).first():
        run = taken.run
    else:
        exchange(alliance)
        private = Dataset.objects.get(study=alliance.study, kind=Dataset.Kind.PRIVATE)
        run = joint_run_take(alliance=alliance, number=number, private_dataset=private, acting_user=_user("operator"))
    run_approve(run=run, acting_user=_user("operator2"), share=share)
    return {}


def run_state() -> dict[str, Any]:
    """Return the state of this installation's joint run."""
    run = JointRun.objects.select_related("run__student").latest("run__created_at").run
    return {
        "status": run.status,
        "message": str(run.message),
        "position": run.position,
        "size": sum(each["plan"]["steps"] for each in run.plan["rounds"]) if run.plan else 0,
        "accuracy": run.student.accuracy if run.student else None,
        "digest": run.student.digest if run.student else None,
    }


def accounts_state() -> dict[str, Any]:
    """Return this installation's faults, the largest used share of a cap, and the numbers of charges and repeats."""
    study = Study.objects.get(slug=SLUG)
    snapshot = consent_snapshot(study)
    spent, caps = balances(study).of(snapshot.holders), caps_of(snapshot.epsilons, study.delta)
    sums = Release.objects.filter(study=study, kind=Release.Kind.SUMS)
    charged = [(str(release.run), release.content["number"]) for release in sums]
    return {
        "faults": [fault for check in checks_of(study) for fault in check.faults()],
        "within": bool((spent <= caps).all()),
        "most": float((spent / caps).max(initial=0.0)),
        "charged": len(charged),
        "twice": len(charged) - len(set(charged)),
    }


def _alliance() -> Alliance:
    return Alliance.objects.select_related("study").get(study__slug=SLUG)


def _user(name: str) -> User:
    return User.objects.get(username=f"demo-{name}")


def _login_rows(logins: list[Login]) -> list[dict[str, str]]:
    return [asdict(login) for login in logins]


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (hub_create, site_register, hub_sign, site_join, hub_run, site_run, run_state, accounts_state)
}
"""Steps by the name that ``manage.py demo_step`` receives."""


class Command(BaseCommand):
    help = __doc__

    def handle(self, **_options: Any) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            try:
                answer = _step(order["step"], order["given"])
            except Exception as error:  # the caller decides whether to try again
                answer = {"failed": f"{type(error).__name__}: {error}"}
                with suppress(OSError):  # the log may be on a disk that is full
                    traceback.print_exc()
                connections.close_all()
            self.stdout.write(json.dumps(answer))
            self.stdout.flush()


def _step(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name in ("hub_create", "site_register"):
        arguments["splits"] = catalogue_load(arguments["data"], settings.DATA_DIR or None)
    return {**STEPS, **_OWN}[name](**arguments)


def _migrate() -> dict[str, Any]:
    call_command("migrate", verbosity=0)
    return {}


def _collect() -> dict[str, Any]:
    static_files_collect()
    return {}


def _listened(port: int) -> dict[str, Any]:
    """Wait until something listens on a port of this host."""
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return {}
        time.sleep(0.2)
    raise CommandError(f"Nothing listens on port {port}.")


_OWN: dict[str, Step] = {"migrate": _migrate, "collect": _collect, "listened": _listened}
