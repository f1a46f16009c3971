"""The site for asyncio programs: each method of `Site` runs in a thread.

Written by `python -m client.generate`; do not edit it.
"""

from __future__ import annotations

from asyncio import to_thread
from typing import TYPE_CHECKING

from ipate_client.site import Site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from typing import Any

    import pandas as pd

    from ipate_client.charts import Svg
    from ipate_client.documents import Card, Dataset, Plan, Predictions, PublicPoints, Run, Study
    from ipate_client.local_model import LocalModel
    from ipate_client.rows import Rows


class AsyncSite:
    """An iPATE site, with the methods of `Site` as coroutines.

    Cancelling a coroutine ends the wait, but not the request.

    Args:
        address: URL of the site; by default the environment variable IPATE_SITE.
        token: Your token; by default the environment variable IPATE_TOKEN.
        timeout: Seconds to wait for an answer.
    """

    def __init__(self, address: str | None = None, token: str | None = None, *, timeout: float = 60) -> None:
        self.site = Site(address, token, timeout=timeout)

    async def __aenter__(self) -> AsyncSite:
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_thread(self.site.close)

    async def studies(self) -> list[Study]:
        """Return the studies whose runs you may see."""
        return await to_thread(self.site.studies)

    async def study(self, slug: str) -> Study:
        """Return a study with its levels, head counts and datasets."""
        return await to_thread(self.site.study, slug)

    async def budget(self, study: Study | str) -> pd.DataFrame:
        """Return each group's budget in a study: the largest use by a member, and the reserved and remaining parts."""
        return await to_thread(self.site.budget, study)

    async def budget_groups(self, study: Study | str) -> list[dict[str, Any]]:
        """Return the rows of `budget` as dictionaries."""
        return await to_thread(self.site.budget_groups, study)

    async def waiting(self) -> pd.DataFrame:
        """Return the tasks waiting for you: study, kind, text, url, since, and whether the proposal is your own."""
        return await to_thread(self.site.waiting)

    async def example_rows(self, study: Study | str, *, rows: int = 10, seed: int = 0) -> dict[str, Any]:
        """Return invented rows of a study, so that you can write programs before you have data."""
        return await to_thread(self.site.example_rows, study, rows=rows, seed=seed)

    async def encoders(self, study: Study | str) -> list[dict[str, Any]]:
        """Return the encoders of a study, each with the progress of encoding datasets."""
        return await to_thread(self.site.encoders, study)

    async def register_encoder(
        self,
        study: Study | str,
        file: str | PathLike[str],
        *,
        takes: Mapping[str, Any],
        tokenizer: str | PathLike[str] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Register an encoder; the site then encodes the study's datasets with it."""
        return await to_thread(self.site.register_encoder, study, file, takes=takes, tokenizer=tokenizer, **fields)

    async def set_up_rehearsal(self, *, members: Mapping[str, str] | None = None, **fields: Any) -> Study:
        """Create a rehearsal study for data that is not secret."""
        return await to_thread(self.site.set_up_rehearsal, members=members, **fields)

    async def import_dataset(
        self,
        study: Study | str,
        rows: pd.DataFrame | str | PathLike[str],
        *,
        name: str,
        kind: str,
        schema: dict[str, Any] | None = None,
        labels: str | PathLike[str] | None = None,
        **fields: Any,
    ) -> Dataset:
        """Import a dataset into a rehearsal study, completely or not at all."""
        return await to_thread(
            self.site.import_dataset, study, rows, name=name, kind=kind, schema=schema, labels=labels, **fields
        )

    async def import_records(
        self,
        study: Study | str,
        rows: pd.DataFrame | str | PathLike[str],
        *,
        name: str,
        kind: str,
        schema: dict[str, Any] | None = None,
        labels: str | PathLike[str] | None = None,
        every: float = 2.0,
        timeout: float | None = None,
        different_people: bool = False,
        **fields: Any,
    ) -> dict[str, Any]:
        """Upload and check a dataset, and store it if there are no errors."""
        return await to_thread(
            self.site.import_records,
            study,
            rows,
            name=name,
            kind=kind,
            schema=schema,
            labels=labels,
            every=every,
            timeout=timeout,
            different_people=different_people,
            **fields,
        )

    async def discard_import(self, study: Study | str, number: str) -> None:
        """Discard an import that has not been stored, by its ``id`` from `import_records`."""
        return await to_thread(self.site.discard_import, study, number)

    async def record_consents(
        self,
        study: Study | str,
        decisions: str | PathLike[str],
        scans: Sequence[str | PathLike[str]],
        *,
        dry_run: bool = False,
    ) -> int:
        """Record a list of decisions made on paper, either all of them or none."""
        return await to_thread(self.site.record_consents, study, decisions, scans, dry_run=dry_run)

    async def draw_head_counts(
        self, study: Study | str, *, counts: Mapping[str, int] | None = None, follows: int = 0
    ) -> pd.DataFrame:
        """Count people at each level with noise, or enter public numbers."""
        return await to_thread(self.site.draw_head_counts, study, counts=counts, follows=follows)

    async def webhooks(self, study: Study | str) -> list[dict[str, Any]]:
        """Return the webhooks of a study: id, url, events, creator and time of creation."""
        return await to_thread(self.site.webhooks, study)

    async def make_webhook(self, study: Study | str, url: str, *, events: Sequence[str]) -> dict[str, Any]:
        """Create a webhook for these events of a study; return it with its ``secret``, which is shown only once."""
        return await to_thread(self.site.make_webhook, study, url, events=events)

    async def test_webhook(self, study: Study | str, webhook: int) -> dict[str, Any]:
        """Send a test message to a webhook and return its delivery."""
        return await to_thread(self.site.test_webhook, study, webhook)

    async def remove_webhook(self, study: Study | str, webhook: int) -> None:
        """Remove a webhook by its id, so that its program receives no more messages."""
        return await to_thread(self.site.remove_webhook, study, webhook)

    async def webhook_deliveries(self, study: Study | str) -> pd.DataFrame:
        """Return the messages sent to a study's webhooks in the last 30 days, newest first, with their outcomes."""
        return await to_thread(self.site.webhook_deliveries, study)

    async def methods(self) -> list[dict[str, Any]]:
        """Return the available methods with their variants, each with its choices."""
        return await to_thread(self.site.methods)

    async def learners(self) -> list[dict[str, Any]]:
        """Return the available teacher learners with their parameters, for the choice ``learner`` of *pate*."""
        return await to_thread(self.site.learners)

    async def student_learners(self) -> list[dict[str, Any]]:
        """Return the available students with their parameters, for ``student_learner`` of a run."""
        return await to_thread(self.site.student_learners)

    async def aggregators(self) -> list[dict[str, Any]]:
        """Return the aggregators, which turn teachers' votes into labels, for the choice ``aggregator`` of *pate*."""
        return await to_thread(self.site.aggregators)

    async def representations(self) -> list[dict[str, Any]]:
        """Return the spaces available for votes and gradient steps, for the choice ``representation``."""
        return await to_thread(self.site.representations)

    async def plan(self, *, share: float | None = None, **proposal: Any) -> Plan:
        """Return the plan of a run without saving anything: its steps, charges, forecasts and warnings."""
        return await to_thread(self.site.plan, share=share, **proposal)

    async def propose(self, **proposal: Any) -> Run:
        """Save a draft of a run, which starts once another person, an operator of the study, approves it."""
        return await to_thread(self.site.propose, **proposal)

    async def edit(self, run: Run | str, **proposal: Any) -> Run:
        """Replace one of your drafts with another complete proposal for the same study."""
        return await to_thread(self.site.edit, run, **proposal)

    async def withdraw(self, run: Run | str) -> Run:
        """Permanently withdraw one of your drafts."""
        return await to_thread(self.site.withdraw, run)

    async def plan_of(self, run: Run | str, *, share: float | None = None) -> Plan:
        """Return a run's stored plan or, for a draft (operators only), its plan for this share."""
        return await to_thread(self.site.plan_of, run, share=share)

    async def approve(self, run: Run | str, *, share: float | None = None, revision: int | None = None) -> Run:
        """Approve another person's draft, as an operator."""
        return await to_thread(self.site.approve, run, share=share, revision=revision)

    async def approval_undo(self, run: Run | str) -> Run:
        """Turn a run whose plan is still being calculated back into a draft, as an operator."""
        return await to_thread(self.site.approval_undo, run)

    async def cancel(self, run: Run | str) -> Run:
        """Cancel a run that has not ended, as an operator."""
        return await to_thread(self.site.cancel, run)

    async def runs(self, **filters: str) -> list[Run]:
        """Return the runs that you may see, newest first."""
        return await to_thread(self.site.runs, **filters)

    async def compare(self, *runs: Run | str) -> dict[str, Any]:
        """Return the outcomes of two to six runs, and the ``parameters`` that differ, with their values in each run."""
        return await to_thread(self.site.compare, *runs)

    async def run(self, run: Run | str) -> Run:
        """Return a run in its current state."""
        return await to_thread(self.site.run, run)

    async def wait(
        self, run: Run | str, *, every: float = 5.0, timeout: float | None = None, progress: bool = True
    ) -> Run:
        """Wait until a run is finished, with a progress bar that shows its stage or its place in the queue."""
        return await to_thread(self.site.wait, run, every=every, timeout=timeout, progress=progress)

    async def costs(self, run: Run | str) -> pd.DataFrame:
        """Return the charge of a run for each member of each group, in μ²; empty in rehearsals."""
        return await to_thread(self.site.costs, run)

    async def alliances(self, study: Study | str) -> list[dict[str, Any]]:
        """Return a study's alliances with their sites and, at a site, the runs that the hub proposes."""
        return await to_thread(self.site.alliances, study)

    async def alliance(self, study: Study | str, alliance: int) -> dict[str, Any]:
        """Return an alliance of a study, by its ``id`` in `alliances`."""
        return await to_thread(self.site.alliance, study, alliance)

    async def propose_across_sites(self, study: Study | str, alliance: int, **proposal: Any) -> Run:
        """Save a draft of a run across sites, as an operator of their hub."""
        return await to_thread(self.site.propose_across_sites, study, alliance, **proposal)

    async def accept(self, study: Study | str, alliance: int, number: str, *, private_dataset: int) -> Run:
        """Accept a run proposed by the hub: save it as a draft in the site's study, for another operator to approve."""
        return await to_thread(self.site.accept, study, alliance, number, private_dataset=private_dataset)

    async def decline(self, study: Study | str, alliance: int, number: str) -> dict[str, Any]:
        """Decline a run proposed by the hub, as an operator of a site; the hub then ends the run."""
        return await to_thread(self.site.decline, study, alliance, number)

    async def sites_of(self, run: Run | str) -> dict[str, Any]:
        """Return the sites that take part in a run across sites, those it is waiting for, and its questions."""
        return await to_thread(self.site.sites_of, run)

    async def continue_run(self, run: Run | str, *, without: str) -> dict[str, Any]:
        """Continue a run without a site that it is waiting for, as an operator of the hub."""
        return await to_thread(self.site.continue_run, run, without=without)

    async def labels(self, run: Run | str) -> pd.DataFrame:
        """Return the released labels, indexed by row of the public dataset."""
        return await to_thread(self.site.labels, run)

    async def public_points(self, run: Run | str) -> PublicPoints:
        """Return all public points of a run, with the released labels and counts for some of them."""
        return await to_thread(self.site.public_points, run)

    async def counts(self, run: Run | str) -> pd.DataFrame:
        """Return the table of a *counts* run: values of its columns, people, intervals, and sums of weights."""
        return await to_thread(self.site.counts, run)

    async def counts_plot(self, run: Run | str) -> Svg:
        """Return an image of the table of a *counts* run: the number of people in each cell, with intervals."""
        return await to_thread(self.site.counts_plot, run)

    async def synthetic_rows(self, run: Run | str) -> pd.DataFrame:
        """Return the rows drawn by a *synthesis* run, with the columns of the schema and the class column last."""
        return await to_thread(self.site.synthetic_rows, run)

    async def summaries(self, run: Run | str) -> pd.DataFrame:
        """Return the mean and quartiles of the numeric column of a *counts* run, with intervals; one row per group."""
        return await to_thread(self.site.summaries, run)

    async def withdraw_table(self, run: Run | str, *, reason: str) -> dict[str, Any]:
        """Withdraw a run's table or synthetic rows permanently, as an operator."""
        return await to_thread(self.site.withdraw_table, run, reason=reason)

    async def models(self, **filters: str) -> list[dict[str, Any]]:
        """Return the published models that you may use, newest first, optionally filtered by ``study`` or ``stage``."""
        return await to_thread(self.site.models, **filters)

    async def stage(self, run: Run | str, stage: str) -> dict[str, Any]:
        """Set the stage of a run's published model: candidate, production or archived."""
        return await to_thread(self.site.stage, run, stage)

    async def card(self, run: Run | str, *, version: int | None = None) -> Card:
        """Return the document of a run's model: its card, the schema of a row, and its files."""
        return await to_thread(self.site.card, run, version=version)

    async def model(self, run: Run | str, *, version: int | None = None) -> LocalModel:
        """Return the model of a run as a fitted scikit-learn estimator for predictions on this machine."""
        return await to_thread(self.site.model, run, version=version)

    async def model_file(self, run: Run | str, *, version: int | None = None) -> bytes:
        """Return the weights of a run's model as a skops (scikit-learn) or safetensors (networks) file."""
        return await to_thread(self.site.model_file, run, version=version)

    async def statement(self, run: Run | str, *, version: int | None = None) -> str:
        """Return a JSON Web Signature of a model's card and digests, which you can check with the public `keys`."""
        return await to_thread(self.site.statement, run, version=version)

    async def keys(self) -> list[dict[str, Any]]:
        """Return the site's public keys as JSON Web Keys and as PEM, starting with the current key."""
        return await to_thread(self.site.keys)

    async def set_threshold(self, run: Run | str, class_name: str, **costs: float) -> dict[str, Any]:
        """Set the minimum probability for predicting a class, as an operator; return the model's document."""
        return await to_thread(self.site.set_threshold, run, class_name, **costs)

    async def students(self, run: Run | str) -> dict[str, Any]:
        """Return the ``versions`` of a run's student with their evaluations, and any ``training`` in progress."""
        return await to_thread(self.site.students, run)

    async def train_student(
        self, run: Run | str, student_learner: str, student_parameters: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Train the student of a finished run again on its releases, at no privacy cost; return all versions."""
        return await to_thread(self.site.train_student, run, student_learner, student_parameters)

    async def publish_version(self, run: Run | str, *, version: int, reason: str = "") -> list[dict[str, Any]]:
        """Make a version of a run's student its published model, as an operator; return all versions."""
        return await to_thread(self.site.publish_version, run, version=version, reason=reason)

    async def predict(self, run: Run | str, rows: Rows, *, version: int | None = None) -> Predictions:
        """Return the site's predictions for any number of rows."""
        return await to_thread(self.site.predict, run, rows, version=version)

    async def withdraw_version(self, run: Run | str, *, version: int, reason: str) -> list[dict[str, Any]]:
        """Withdraw a version of a run's student permanently, as an operator; return all its versions afterwards."""
        return await to_thread(self.site.withdraw_version, run, version=version, reason=reason)
