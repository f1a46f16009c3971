"""Runs: plans, proposals, approval, progress, and runs across sites."""

from __future__ import annotations

import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

from ipate_client.connection import Connection, at
from ipate_client.documents import Plan, Run, Study, id_of, slug_of
from ipate_client.frames import frame
from ipate_client.problems import RunEndedError

if TYPE_CHECKING:
    import pandas as pd


class Runs(Connection):
    """Requests about runs."""

    def methods(self) -> list[dict[str, Any]]:
        """Return the available methods with their variants, each with its choices."""
        return self._list("GET", "methods")

    def learners(self) -> list[dict[str, Any]]:
        """Return the available teacher learners with their parameters, for the choice ``learner`` of *pate*."""
        return self._list("GET", "learners")

    def student_learners(self) -> list[dict[str, Any]]:
        """Return the available students with their parameters, for ``student_learner`` of a run."""
        return self._list("GET", "students")

    def aggregators(self) -> list[dict[str, Any]]:
        """Return the aggregators, which turn teachers' votes into labels, for the choice ``aggregator`` of *pate*."""
        return self._list("GET", "aggregators")

    def representations(self) -> list[dict[str, Any]]:
        """Return the spaces available for votes and gradient steps, for the choice ``representation``."""
        return self._list("GET", "representations")

    def plan(self, *, share: float | None = None, **proposal: Any) -> Plan:
        """Return the plan of a run without saving anything: its steps, charges, forecasts and warnings.

        Args:
            share: Share of every holder's cap to plan for; by default a quarter, or what is available if that is less.
            **proposal: Fields of a proposal; see `propose`.
        """
        asked = proposal if share is None else {**proposal, "share": share}
        return Plan(self._asked(at("runs", "plan"), json=asked))

    def propose(self, **proposal: Any) -> Run:
        """Save a draft of a run, which starts once another person, an operator of the study, approves it.

        The draft is saved only once, even if the connection breaks and the request is sent again.

        Args:
            **proposal: ``study``, ``title``, ``private_dataset`` and so on, as listed in the site's /api/docs.
        """
        return self._run(self._once("runs", json=proposal))

    def edit(self, run: Run | str, **proposal: Any) -> Run:
        """Replace one of your drafts with another complete proposal for the same study."""
        return self._run(self._json("PUT", at("runs", id_of(run)), json=proposal))

    def withdraw(self, run: Run | str) -> Run:
        """Permanently withdraw one of your drafts."""
        return self._run(self._json("POST", at("runs", id_of(run), "withdraw")))

    def plan_of(self, run: Run | str, *, share: float | None = None) -> Plan:
        """Return a run's stored plan or, for a draft (operators only), its plan for this share."""
        return Plan(self._json("GET", at("runs", id_of(run), "plan"), params={} if share is None else {"share": share}))

    def approve(self, run: Run | str, *, share: float | None = None, revision: int | None = None) -> Run:
        """Approve another person's draft, as an operator. A worker then calculates the plan and starts the run.

        Args:
            run: The draft.
            share: Share of every holder's cap that the run may use; by default a quarter, or what is available if that
                is less.
            revision: Revision of the proposal that you reviewed, from its document. If the proposal has a newer
                revision, the approval is refused.
        """
        body = {name: value for name, value in (("share", share), ("revision", revision)) if value is not None}
        return self._run(self._json("POST", at("runs", id_of(run), "approve"), json=body))

    def approval_undo(self, run: Run | str) -> Run:
        """Turn a run whose plan is still being calculated back into a draft, as an operator."""
        return self._run(self._json("DELETE", at("runs", id_of(run), "approve")))

    def cancel(self, run: Run | str) -> Run:
        """Cancel a run that has not ended, as an operator. Its releases and their charges remain."""
        return self._run(self._json("POST", at("runs", id_of(run), "cancel")))

    def runs(self, **filters: str) -> list[Run]:
        """Return the runs that you may see, newest first.

        Args:
            **filters: ``study``, ``search`` (words in the title or purpose), ``status``, ``method``, ``variant``,
                ``proposer`` (a user's name), ``since`` and ``until`` (dates, such as 2026-01-31), ``sort``
                (``-proposed``, ``proposed``, ``title``, ``-labels``, ``-accuracy``).
        """
        return [self._run(each) for each in self._pages("runs", filters)]

    def compare(self, *runs: Run | str) -> dict[str, Any]:
        """Return the outcomes of two to six runs, and the ``parameters`` that differ, with their values in each run."""
        return self._json("GET", at("runs", "compare"), params={"runs": ",".join(map(id_of, runs))})

    def run(self, run: Run | str) -> Run:
        """Return a run in its current state."""
        return self._run(self._json("GET", at("runs", id_of(run))))

    def wait(self, run: Run | str, *, every: float = 5.0, timeout: float | None = None, progress: bool = True) -> Run:
        """Wait until a run is finished, with a progress bar that shows its stage or its place in the queue.

        If a run finishes without a published model, a warning explains why.

        Args:
            run: The run. A draft is first awaited until its approval; the bar shows why the last approval failed, if
                any.
            every: Seconds between requests.
            timeout: Maximum number of seconds to wait; None to wait without a limit.
            progress: Whether to show the bar.

        Raises:
            RunEndedError: the run failed or was cancelled; the message gives the reason.
            TimeoutError: the run takes longer.
        """
        begun = time.monotonic()
        while True:
            row = self.run(run)
            if progress:
                _show(row, time.monotonic() - begun)
            if row.has_ended:
                break
            if timeout is not None and time.monotonic() - begun + every > timeout:
                raise TimeoutError(f"The run is “{row.status}” after {timeout:g} seconds.")
            time.sleep(every)
        if row.status != "finished":
            raise RunEndedError(f"The run is {row.status}. {row.reason}".strip())
        if row.without_model:
            warnings.warn(row.without_model, stacklevel=2)
        return row

    def costs(self, run: Run | str) -> pd.DataFrame:
        """Return the charge of a run for each member of each group, in μ²; empty in rehearsals."""
        return frame(self._json("GET", at("runs", id_of(run), "costs"))["groups"])

    def alliances(self, study: Study | str) -> list[dict[str, Any]]:
        """Return a study's alliances with their sites and, at a site, the runs that the hub proposes."""
        return self._list("GET", at("studies", slug_of(study), "alliances"))

    def alliance(self, study: Study | str, alliance: int) -> dict[str, Any]:
        """Return an alliance of a study, by its ``id`` in `alliances`."""
        return self._json("GET", at("studies", slug_of(study), "alliances", alliance))

    def propose_across_sites(self, study: Study | str, alliance: int, **proposal: Any) -> Run:
        """Save a draft of a run across sites, as an operator of their hub.

        Args:
            study: The hub's study.
            alliance: The alliance's ``id`` in `alliances`.
            **proposal: ``title``, ``method``, ``mode``, ``sites`` and so on, as listed in the site's /api/docs.
        """
        return self._run(self._once(at("studies", slug_of(study), "alliances", alliance, "runs"), json=proposal))

    def accept(self, study: Study | str, alliance: int, number: str, *, private_dataset: int) -> Run:
        """Accept a run proposed by the hub: save it as a draft in the site's study, for another operator to approve."""
        path = at("studies", slug_of(study), "alliances", alliance, "proposals", number, "take")
        return self._run(self._json("POST", path, json={"private_dataset": private_dataset}))

    def decline(self, study: Study | str, alliance: int, number: str) -> dict[str, Any]:
        """Decline a run proposed by the hub, as an operator of a site; the hub then ends the run."""
        return self._json("POST", at("studies", slug_of(study), "alliances", alliance, "proposals", number, "decline"))

    def sites_of(self, run: Run | str) -> dict[str, Any]:
        """Return the sites that take part in a run across sites, those it is waiting for, and its questions."""
        return self._json("GET", at("runs", id_of(run), "sites"))

    def continue_run(self, run: Run | str, *, without: str) -> dict[str, Any]:
        """Continue a run without a site that it is waiting for, as an operator of the hub."""
        return self._json("POST", at("runs", id_of(run), "go-on"), json={"without": without})

    def _run(self, document: dict[str, Any]) -> Run:
        return Run(document["id"], document["study"], document["title"], document["status"], document, self)


def _show(run: Run, seconds: float) -> None:
    """Overwrite the terminal's last line with a run's progress."""
    filled = round(20 * run.done)
    bar = f"{100 * run.done:3.0f}%|{'█' * filled}{' ' * (20 - filled)}| {seconds // 60:02.0f}:{seconds % 60:02.0f}"
    sys.stderr.write(f"\r\x1b[K{run.status_text}: {bar}" + "\n" * run.has_ended)
    sys.stderr.flush()
