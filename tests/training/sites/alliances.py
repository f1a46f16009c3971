"""A hub and sites that talk by real requests through the application itself; each is a separate study."""

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
from django.test import Client

from consent.models import AfterWithdrawal, Study
from learning.formats import Rows
from tests.factories import committee_fill, form_publish, policy_approve, study_create, user_create
from tests.snapshots import built_once
from tests.training.runs import TABLE, consents_give, head_counts_state, run_approve, table_rows
from training.alliances import services, wire
from training.alliances.exchange import exchange
from training.alliances.runs import joint_run_propose, joint_run_take
from training.alliances.wire import invitation_write
from training.models import Alliance, Dataset, Run
from training.services.advance import chunk_train, run_advance, shard_ask
from training.services.datasets import dataset_import

ADDRESS = "http://testserver"
POINTS = 12


class Installations:
    """The studies of a hub and its sites, joined in an alliance, with the table of `tests.training.runs`."""

    def __init__(self, count: int = 3, holders: int = 12, *, joined: bool = True) -> None:
        self.names = [f"Clinic {chr(65 + place)}" for place in range(count)]
        if joined:
            self.hub = _joined(count, holders, wire.settings.SECRET_KEY)
            self.hub_study = self.hub.study
            self.studies = list(Study.objects.filter(slug__startswith="clinic-").order_by("pk"))
            self.sites = [Alliance.objects.get(study=study) for study in self.studies]
        else:
            self._found(count, holders)

    def _found(self, count: int, holders: int) -> None:
        self.hub_study = study_create("hub", delta=1e-4, controller="University Hub")
        for kind, rows in (("public", table_rows(POINTS)), ("test", table_rows(21))):
            dataset_import(study=self.hub_study, name=kind, kind=kind, rows=rows, schema=TABLE)
        self.hub, self.codes = services.alliance_create(
            study=self.hub_study,
            name="Clinics",
            sites=self.names,
            schema_of=self.dataset(self.hub_study, "public"),
            public=self.dataset(self.hub_study, "public"),
            acting_user=olga(),
        )
        self.studies = [self._study(place, holders) for place in range(count)]
        self.sites = [
            services.alliance_connect(
                study=study, invitation=invitation_write(self.hub, self.codes[name], ADDRESS), acting_user=olga()
            )
            for study, name in zip(self.studies, self.names, strict=True)
        ]
        self.hub = services.alliance_sign(alliance=self.hub, acting_user=olga())

    @staticmethod
    def dataset(study: Study, kind: str) -> Dataset:
        return Dataset.objects.filter(study=study, kind=kind).earliest("pk")

    @staticmethod
    def _study(place: int, holders: int) -> Study:
        kept = {"retain_votes": True, "after_withdrawal": AfterWithdrawal.ERASED}
        study = study_create(f"clinic-{place}", delta=1e-4, controller=f"Clinic {chr(65 + place)}", **kept)
        owners = [f"p{place}-{number:03}" for number in range(holders)]
        x = np.random.default_rng(place).uniform(0, 1, (holders, 2)).astype(np.float32)
        rows = Rows(x, (np.arange(holders) % 3).astype(np.int64), owners)
        dataset_import(study=study, name="private", kind="private", rows=rows, schema=TABLE)
        return committee_fill(study)

    def join(self, site: Alliance) -> None:
        """Let a site's operators, committee and people act until it has joined."""
        exchange(site)
        services.alliance_add_to_form(alliance=site, acting_user=olga())
        site.study.refresh_from_db()
        form_publish(site.study)
        policy_approve(site.study)
        consents_give(site.study, "HAL")
        head_counts_state(site.study)
        services.alliance_join(alliance=site, acting_user=olga())
        site.refresh_from_db()
        exchange(site)

    def draft(self, *, mode: str = "together", **fields: Any) -> Run:
        """Return a joint run that nobody has approved yet."""
        public = self.dataset(self.hub_study, "public") if fields.pop("asks", True) else None
        fields |= {"mode": mode, "title": "Joint", "public_dataset": public}
        return joint_run_propose(alliance=self.hub, acting_user=user_create("otto"), **fields)

    def propose(self, *, share: float = 0.5, **fields: Any) -> Run:
        """Return a joint run that the hub has approved."""
        return run_approve(run=self.draft(**fields), acting_user=olga(), share=share)

    def take(self, run: Run, place: int, share: float = 0.5) -> Run:
        """Return the run at a site, accepted by one operator and approved by another."""
        site = self.sites[place]
        exchange(site)
        private, otto = self.dataset(site.study, "private"), user_create("otto")
        taken = joint_run_take(alliance=site, number=run.pk.hex, private_dataset=private, acting_user=otto)
        return run_approve(run=taken, acting_user=olga(), share=share)

    def start(self, **fields: Any) -> list[Run]:
        """Return a joint run that everyone has approved: the hub's run, then those of the sites."""
        run = self.propose(**fields)
        return [run, *(self.take(run, place) for place in range(len(self.sites)))]


@built_once
def _joined(count: int, holders: int, _secret: str) -> Alliance:
    """Return an alliance at its hub once all sites have joined; ``_secret`` is the key that encrypts their keys."""
    there = Installations(count, holders, joined=False)
    for site in there.sites:
        there.join(site)
    return Alliance.objects.get(pk=there.hub.pk)


def olga() -> Any:
    """Return the operator of all studies."""
    return user_create("olga")


def advance(run: Run) -> Run:
    """Take one step of a run, as a worker would."""
    run_advance(run.pk)
    for shard in run.shards.exclude(state="done"):
        shard_ask(shard.pk)
    for chunk in run.chunks.exclude(state="done"):
        chunk_train(chunk.pk)
    return Run.objects.get(pk=run.pk)


def _step(run: Run) -> Run:
    if not run.has_ended:
        return advance(run)
    if run.status != Run.Status.FINISHED and not run.alliance.is_hub:
        services.alliance_contact(run.alliance_id)  # sent when it has ended
    return run


def finish(runs: list[Run], until: Callable[[list[Run]], bool] | None = None) -> list[Run]:
    """Let all workers act in turn until all runs have ended, or until a condition is met."""
    for _ in range(80):
        runs = [_step(run) for run in runs]
        if all(run.has_ended for run in runs) or (until is not None and until(runs)):
            return runs
    raise AssertionError([(run.status, str(run.message)) for run in runs])


class InThisProcess(httpx.BaseTransport):
    """A transport that sends requests to the application in this process, through all of its middleware."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
        kind = request.headers.get("content-type", "application/octet-stream")
        path = request.url.raw_path.decode()
        answer = Client().generic(request.method, path, request.read(), kind, **headers)
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content)
