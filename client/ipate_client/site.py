"""The site, with one method for each action of a researcher."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ipate_client.documents import Dataset, Plan, Predictions, PublicPoints, Run, Study
from ipate_client.local_model import LocalModel
from ipate_client.problems import ProblemError, RowsError, RunEndedError
from ipate_client.rows import Rows, features_of, sendable

ROWS_AT_ONCE = 1000
"""Most rows that the site takes in one request."""
_TRIES = 4
_LONGEST_WAIT = 180.0
"""Seconds for which it retries while the site asks it to wait."""


class Site:
    """A site of iPATE, and the actions of its API.

    Args:
        address: Address of the site; the variable IPATE_SITE if left out.
        token: Your token, from the page “API tokens”; the variable IPATE_TOKEN if left out.
        timeout: Seconds to wait for an answer.

    Every method raises ProblemError if the site refuses, and httpx.TransportError if it cannot be reached.
    """

    def __init__(self, address: str | None = None, token: str | None = None, *, timeout: float = 60.0) -> None:
        address, token = address or os.environ.get("IPATE_SITE"), token or os.environ.get("IPATE_TOKEN")
        if not address or not token:
            raise ValueError("Give address and token, or set the variables IPATE_SITE and IPATE_TOKEN.")
        self._http = httpx.Client(
            base_url=f"{address.rstrip('/')}/api/v1/", headers={"Authorization": f"Bearer {token}"}, timeout=timeout
        )

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # --- Studies

    def studies(self) -> list[Study]:
        """Return the studies whose runs you may see."""
        return [_study(each, self) for each in self._pages("studies")]

    def study(self, slug: str) -> Study:
        """Return a study with its levels, head counts and datasets."""
        return _study(self._json("GET", f"studies/{slug}"), self)

    def budget(self, study: Study | str) -> pd.DataFrame:
        """Return the most that each privacy group of a study has used, and the parts reserved and left.

        The table has a row for each promise: level, policy, epsilon, epsilon_used, epsilon_reserved, epsilon_left,
        share_used, share_reserved, share_left, and runs, a list of uses with their times. Shares of the cap add up, ε
        do not.
        """
        parts = ("used", "reserved", "left")
        columns = ["level", "policy", "epsilon", *(f"epsilon_{part}" for part in parts)]
        columns += [*(f"share_{part}" for part in parts), "runs"]
        return pd.DataFrame(self._json("GET", f"studies/{_slug(study)}/budget")["groups"], columns=columns)

    def waiting(self) -> pd.DataFrame:
        """Return the tasks that wait for you: study, kind, text, url, since, and whether it is your own proposal."""
        columns = ["study", "kind", "text", "url", "since", "own"]
        return pd.DataFrame(self._json("GET", "waiting")["waiting"], columns=columns)

    # --- Webhooks, for operators with a token of the scope “webhooks”

    def webhooks(self, study: Study | str) -> list[dict[str, Any]]:
        """Return the programs that receive a study's events: id, url, events, and who created each and when."""
        return list(self._pages(f"studies/{_slug(study)}/webhooks"))

    def make_webhook(self, study: Study | str, url: str, *, events: Sequence[str]) -> dict[str, Any]:
        """Create a webhook for some events of a study; return it with its ``secret``, which is shown only once.

        Args:
            study: A study that you operate.
            url: Address of the program: begins with https:// and leads to a public host.
            events: Names such as ``run.finished``; docs/webhooks.md lists them.
        """
        return self._once(f"studies/{_slug(study)}/webhooks", json={"url": url, "events": list(events)}).json()

    def test_webhook(self, study: Study | str, webhook: int) -> dict[str, Any]:
        """Send a test to a webhook by its id; return the new delivery. `webhook_deliveries` shows its outcome."""
        return self._once(f"studies/{_slug(study)}/webhooks/{webhook}/test").json()

    def remove_webhook(self, study: Study | str, webhook: int) -> None:
        """Remove a webhook by its id, so that its program receives nothing more."""
        self._request("DELETE", f"studies/{_slug(study)}/webhooks/{webhook}")

    def webhook_deliveries(self, study: Study | str) -> pd.DataFrame:
        """Return messages of the last 30 days to a study's webhooks, newest first, with their outcomes."""
        columns = ["id", "webhook", "event", "state", "tries", "status", "fault", "created_at", "sent_at", "next_try"]
        return pd.DataFrame(self._pages(f"studies/{_slug(study)}/webhooks/deliveries"), columns=columns)

    # --- Rehearsals

    def set_up_rehearsal(self, *, members: Mapping[str, str] | None = None, **fields: Any) -> Study:
        """Create a rehearsal study, about data that are not confidential. For administrators of the installation.

        You become its operator and data steward.

        Args:
            members: Roles of other people by their user names, as ``{"ben": "operator"}``: another person has to
                approve your proposals.
            **fields: ``slug``, ``title``, ``purpose``, ``controller``, ``contact``, ``delta`` (1e-5 if left out).
        """
        people = [{"username": name, "role": role} for name, role in (members or {}).items()]
        document = self._json("POST", "studies", json={**fields, "rehearsal": True, "members": people})
        return _study(document, self)

    def import_dataset(
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
        """Import a dataset into a rehearsal study, completely or not at all. For its data stewards.

        Args:
            study: A rehearsal.
            rows: A data frame with the columns of the schema, sent as CSV; or a file: CSV, Parquet, npz, mat or idx.
            name: Name of the dataset in the study.
            kind: private, public or test.
            schema: Schema of a row; that of the study's last dataset if left out.
            labels: For an idx file of images, the file of its labels.
            **fields: ``holder_prefix``, ``with_labels``, ``provenance``.
        """
        sent, files = _upload(rows, schema, labels, {"name": name, "kind": kind, **fields})
        return Dataset.of(self._json("POST", f"studies/{_slug(study)}/datasets", data=sent, files=files))

    # --- Data of studies that ask people

    def import_records(
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
        """Import a dataset: upload, check, and store if nothing is wrong. For data stewards.

        Args:
            study: Any study; see `import_dataset` for other fields.
            rows: A data frame, or a file.
            name: Name of the dataset.
            kind: private, public or test.
            schema: Schema of a row; that of the study's last dataset if left out.
            labels: A file of labels, or a table of the images of a zip file.
            every: Seconds between two requests.
            timeout: Seconds after which to give up waiting; the import continues.
            different_people: Store it even if new pseudonyms look like others.
            **fields: ``known`` (must be true for private rows), ``holder_prefix``, ``with_labels``, ``provenance``.

        Returns:
            The import: with ``dataset`` if it was stored, otherwise with ``problems`` or ``look_alikes``.

        Raises:
            TimeoutError: it takes longer.
        """
        sent, files = _upload(rows, schema, labels, {"name": name, "kind": kind, **fields})
        path = f"studies/{_slug(study)}/imports"
        begun = self._once(path, data=sent, files=files).json()
        path, until = f"{path}/{begun['id']}", None if timeout is None else time.monotonic() + timeout
        while True:
            state = self._json("GET", path)
            if state["state"] == "checked" and not state["faults"] and (different_people or not state["look_alikes"]):
                state = self._json("POST", f"{path}/store")
            if state["state"] not in ("checking", "importing"):
                return state
            if until is not None and time.monotonic() > until:
                raise TimeoutError(f"The import {begun['id']} is not done yet.")
            time.sleep(every)

    def record_consents(
        self,
        study: Study | str,
        decisions: str | PathLike[str],
        scans: Sequence[str | PathLike[str]],
        *,
        dry_run: bool = False,
    ) -> int:
        """Record a list of decisions on paper, all or none. For data stewards.

        Args:
            study: The study.
            decisions: A CSV file, as on the page *Recruitment*.
            scans: The files that the list names.
            dry_run: Only look for errors.

        Returns:
            Number of decisions that were recorded, or could be.
        """
        files = [("list", (Path(decisions).name, Path(decisions).read_bytes()))]
        files += [("scans", (Path(scan).name, Path(scan).read_bytes())) for scan in scans]
        sent = {"dry_run": str(dry_run).lower()}
        return self._json("POST", f"studies/{_slug(study)}/consents", data=sent, files=files)["decisions"]

    def draw_head_counts(
        self, study: Study | str, *, counts: Mapping[str, int] | None = None, follows: int = 0
    ) -> pd.DataFrame:
        """Count the holders of each promise with noise, which charges them, or enter public numbers. For operators.

        Args:
            study: The study.
            counts: Public numbers by level, such as ``{"HIGH": 120, "AVERAGE": 310, "LOW": 90}``.
            follows: To draw again, the ``release`` of the newest head counts, because each draw charges everyone.
        """
        sent = {"follows": follows} if counts is None else {"counts": dict(counts)}
        return pd.DataFrame(self._once(f"studies/{_slug(study)}/head-counts", json=sent).json())

    # --- Runs

    def plan(self, *, share: float | None = None, **proposal: Any) -> Plan:
        """Return the plan of a run, saving nothing: actions, charges, forecasts, warnings.

        Args:
            share: The part of every holder's cap to plan for; a quarter, or the free part, if left out.
            **proposal: Fields of a proposal, see `propose`.
        """
        return Plan(self._json("POST", "runs/plan", json=proposal if share is None else {**proposal, "share": share}))

    def propose(self, **proposal: Any) -> Run:
        """Save a draft of a run. It starts once an operator of the study, someone other than you, approves it.

        It is saved once, even if the connection breaks and the request is sent again.

        Args:
            **proposal: ``study``, ``title``, ``private_dataset`` and so on, as listed in the site's /api/docs.
        """
        return _run(self._once("runs", json=proposal).json())

    def edit(self, run: Run | str, **proposal: Any) -> Run:
        """Replace a draft of yours with another complete proposal of the same study."""
        return _run(self._json("PUT", f"runs/{_id(run)}", json=proposal))

    def withdraw(self, run: Run | str) -> Run:
        """Withdraw a draft of yours permanently."""
        return _run(self._json("POST", f"runs/{_id(run)}/withdraw"))

    def plan_of(self, run: Run | str, *, share: float | None = None) -> Plan:
        """Return a run's stored plan; for a draft (operators only), the plan that approval with this share stores."""
        return Plan(self._json("GET", f"runs/{_id(run)}/plan", params={} if share is None else {"share": share}))

    def approve(self, run: Run | str, *, share: float | None = None, revision: int | None = None) -> Run:
        """Let another person's draft start, as an operator. A worker then calculates its plan; see `wait`.

        Args:
            run: The draft.
            share: The part of every holder's cap that it may use; a quarter, or the free part, if left out.
            revision: Revision of the proposal that you looked at, from its document: if it was changed since, it is
                refused.
        """
        body = {name: value for name, value in (("share", share), ("revision", revision)) if value is not None}
        return _run(self._json("POST", f"runs/{_id(run)}/approve", json=body))

    def approval_undo(self, run: Run | str) -> Run:
        """As an operator, turn a run whose plan is still being calculated back into a draft."""
        return _run(self._json("DELETE", f"runs/{_id(run)}/approve"))

    def cancel(self, run: Run | str) -> Run:
        """End a run that has not ended, as an operator. Its releases stay released and charged."""
        return _run(self._json("POST", f"runs/{_id(run)}/cancel"))

    # --- Runs over sites

    def alliances(self, study: Study | str) -> list[dict[str, Any]]:
        """Return the alliances of a study, with their sites; at a site also the runs that the hub proposes."""
        return self._request("GET", f"studies/{_slug(study)}/alliances").json()

    def propose_over_sites(self, study: Study | str, alliance: int, **proposal: Any) -> Run:
        """Save a draft of a run over sites, at their hub.

        Args:
            study: The hub's study.
            alliance: Its ``id`` in `alliances`.
            **proposal: ``title``, ``method``, ``mode``, ``sites`` and so on, as listed in the site's /api/docs.
        """
        return _run(self._once(f"studies/{_slug(study)}/alliances/{alliance}/runs", json=proposal).json())

    def take_up(self, study: Study | str, alliance: int, number: str, *, private_dataset: int) -> Run:
        """Save a run that the hub proposes as a draft of a site's study; another operator approves it."""
        path = f"studies/{_slug(study)}/alliances/{alliance}/proposals/{number}/take"
        return _run(self._json("POST", path, json={"private_dataset": private_dataset}))

    def decline(self, study: Study | str, alliance: int, number: str) -> dict[str, Any]:
        """Decline a run that the hub proposes, as an operator of a site: the hub ends it."""
        return self._json("POST", f"studies/{_slug(study)}/alliances/{alliance}/proposals/{number}/decline")

    def over_sites(self, run: Run | str) -> dict[str, Any]:
        """Return the participants of a run over sites, the sites that it waits for, and its questions."""
        return self._json("GET", f"runs/{_id(run)}/sites")

    def go_on(self, run: Run | str, *, without: str) -> dict[str, Any]:
        """Continue without a site that a run waits for, as an operator of the hub."""
        return self._json("POST", f"runs/{_id(run)}/go-on", json={"without": without})

    def runs(self, **filters: str) -> list[Run]:
        """Return the runs that you may see, newest first.

        Args:
            **filters: ``study``, ``search`` (words of title or purpose), ``status``, ``method``, ``variant``,
                ``proposer`` (a user's name), ``since`` and ``until`` (days of the proposal, as 2026-01-31), ``sort``
                (``-proposed``, ``proposed``, ``title``, ``-labels``, ``-accuracy``).
        """
        return [_run(each) for each in self._pages("runs", filters)]

    def compare(self, *runs: Run | str) -> dict[str, Any]:
        """Return outcomes of two to six runs, and the ``parameters`` that differ, with a value for each run."""
        return self._get("runs/compare", {"runs": ",".join(map(_id, runs))}).json()

    def run(self, run: Run | str) -> Run:
        """Return a run in its current state."""
        return _run(self._json("GET", f"runs/{_id(run)}"))

    def wait(self, run: Run | str, *, every: float = 5.0, timeout: float | None = None, progress: bool = True) -> Run:
        """Wait until a run is finished, with a bar that shows its stage, or its place in the queue.

        If a run finishes without a published model, a warning says why.

        Args:
            run: The run; a draft waits for its approval, and the bar shows why the last one failed, if it did.
            every: Seconds between two requests.
            timeout: Seconds to wait at most; None to wait as long as it takes.
            progress: Whether to show the bar.

        Raises:
            RunEndedError: it failed or was cancelled; the message says why.
            TimeoutError: it takes longer.
        """
        begun = time.monotonic()
        with tqdm(total=1.0, disable=not progress, bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}") as bar:
            while True:
                row = self.run(run)
                bar.set_description_str(row.standing, refresh=False)
                bar.n = row.done
                bar.refresh()
                if row.has_ended:
                    break
                if timeout is not None and time.monotonic() - begun + every > timeout:
                    raise TimeoutError(f"The run is “{row.status}” after {timeout:g} seconds.")
                time.sleep(every)
        if row.status != "finished":
            raise RunEndedError(f"The run is {row.status}. {row.document['reason']}".strip())
        if row.without_model:
            warnings.warn(row.without_model, stacklevel=2)
        return row

    def costs(self, run: Run | str) -> pd.DataFrame:
        """Return the charge of every member of each group for a run, in μ²; empty in rehearsals."""
        return pd.DataFrame(self._json("GET", f"runs/{_id(run)}/costs")["groups"])

    # --- Labels and models

    def labels(self, run: Run | str) -> pd.DataFrame:
        """Return released labels by row of the public dataset, and a column count_… for each class with noisy counts.

        A column ``reinforced`` is 1 for labels that are the student's own, if there are any.

        The study's release register records this download.
        """
        return pd.read_csv(
            io.BytesIO(self._get(f"runs/{_id(run)}/labels", {"format": "csv"}).content),
            index_col="row",
            dtype={"label": str},
            keep_default_na=False,
        )

    def public_points(self, run: Run | str) -> PublicPoints:
        """Return all public points of a run, with the released labels and counts for some of them."""
        content = self._get(f"runs/{_id(run)}/labels", {"format": "npz"}).content
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            points = {name: arrays[name] for name in arrays.files}
        classes = points["classes"].tolist()
        return PublicPoints(
            points.get("x"), points["row"], points["label"], points.get("counts"), classes, points["reinforced"]
        )

    def counts(self, run: Run | str) -> pd.DataFrame:
        """Return the table of a run of *counts*: values of its columns, people, intervals, sum of weights.

        The interval from least_95 to most_95 holds however the levels are spread over the cells. If people count by
        their promise, that from low_95 to high_95 holds if the levels are spread over the cells at random.

        The study's release register records this download.
        """
        content = self._get(f"runs/{_id(run)}/table", {"format": "csv"}).content
        frame = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
        numbers = ["people", "low_95", "high_95", "weighted", "least_95", "most_95"]
        return frame.astype(dict.fromkeys(numbers, np.float64))

    def synthetic_rows(self, run: Run | str) -> pd.DataFrame:
        """Return the rows that a run of *synthesis* drew: a column for each of the schema, the class column last.

        The study's release register records this download.
        """
        content = self._get(f"runs/{_id(run)}/rows", {"format": "csv"}).content
        return pd.read_csv(io.BytesIO(content), keep_default_na=False)

    def summaries(self, run: Run | str) -> pd.DataFrame:
        """Return mean and quartiles of a counted column of numbers, each with its interval, a row for each group."""
        summaries = self._json("GET", f"runs/{_id(run)}/table")["summaries"]
        rows = []
        for each in summaries:
            row = {"column": each["column"], "group": each["group"]}
            for name, estimate in zip(
                ("mean", "q25", "median", "q75"), [each["mean"], *each["quantiles"]], strict=True
            ):
                known = estimate or dict.fromkeys(("value", "low", "high"), float("nan"))
                row |= {name: known["value"], f"{name}_low": known["low"], f"{name}_high": known["high"]}
            rows.append(row)
        return pd.DataFrame(rows)

    def models(self, **filters: str) -> list[dict[str, Any]]:
        """Return the published models that you may use, newest first; filtered by ``study`` or ``stage``."""
        return list(self._pages("models", filters))

    def stage(self, run: Run | str, stage: str) -> dict[str, Any]:
        """Put the published model of a run into a stage: candidate, production or archived. For operators."""
        return self._json("POST", f"models/{_id(run)}/stage", json={"stage": stage})

    def card(self, run: Run | str, *, version: int | None = None) -> dict[str, Any]:
        """Return the document of a run's model: its card, the schema of a row, and its files."""
        return self._get(f"models/{_id(run)}", _version(version)).json()

    def model(self, run: Run | str, *, version: int | None = None) -> LocalModel:
        """Return the model of a run, to predict on this machine.

        Args:
            run: A finished run.
            version: Version of its student; the published one if left out.

        Raises:
            ValueError: the file does not match the site's digest.
        """
        response = self._get(f"models/{_id(run)}/onnx", _version(version))
        digest = base64.b64encode(hashlib.sha256(response.content).digest()).decode()
        if response.headers["Repr-Digest"] != f"sha-256=:{digest}:":
            raise ValueError("The file differs from what the site says of it: fetch it again.")
        return LocalModel.of(response.content)

    def predict(self, run: Run | str, rows: Rows, *, version: int | None = None) -> Predictions:
        """Return the site's predictions for any number of rows; if a row is wrong, RowsError says which."""
        names = None
        if isinstance(rows, np.ndarray) and rows.ndim == 2:
            names = [column["name"] for column in features_of(self.card(run, version=version)["schema"])] or None
        sent, parts = sendable(rows, names), []
        for start in range(0, max(len(sent), 1), ROWS_AT_ONCE):
            question = {"rows": sent[start : start + ROWS_AT_ONCE]}
            try:
                parts.append(self._json("POST", f"models/{_id(run)}/predict", json=question, params=_version(version)))
            except ProblemError as problem:
                raise RowsError.by_site(problem, before=start) or problem from None
        labels = [label for part in parts for label in part["predictions"]]
        names, values = ("classes", "probabilities") if "classes" in parts[0] else ("columns", "values")
        probabilities = np.concatenate([np.asarray(part[values], np.float64) for part in parts])
        outside = [columns for part in parts for columns in part["outside"]]
        answers = np.empty(len(labels), object)
        answers[:] = labels
        return Predictions(parts[0][names], answers, probabilities, outside)

    def withdraw_version(self, run: Run | str, *, version: int, reason: str) -> list[dict[str, Any]]:
        """Withdraw a version of a run's student permanently, as an operator; return all its versions afterwards.

        Args:
            run: A finished run.
            version: Version of its student.
            reason: Shown to everyone who took the model or asks for it.
        """
        path = f"runs/{_id(run)}/students/{version}/withdraw"
        return self._json("POST", path, json={"reason": reason})["versions"]

    # --- Requests

    def _pages(self, path: str, filters: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
        offset, size = 0, 1000
        while True:
            page = self._get(path, {**(filters or {}), "limit": size, "offset": offset}).json()
            yield from page["results"]
            offset += size
            if not page["next"]:
                return

    def _get(self, path: str, params: dict[str, Any] | None = None) -> httpx.Response:
        return self._request("GET", path, params=params)

    def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        return self._request(method, path, **arguments).json()

    def _once(self, path: str, **arguments: Any) -> httpx.Response:
        """Send a request that must not be carried out twice, with a key that lets the site recognise a repetition."""
        return self._request("POST", path, headers={"Idempotency-Key": uuid4().hex}, **arguments)

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Return a successful response, retrying if the site asks to wait or the connection breaks.

        A request that changes data is sent again only with a key that lets the site recognise it.
        """
        repeatable = method in ("GET", "PUT") or "Idempotency-Key" in arguments.get("headers", {})
        left, until = _TRIES - 1, time.monotonic() + _LONGEST_WAIT
        while True:
            try:
                response = self._http.request(method, path, **arguments)
            except httpx.TransportError:
                if not (left and repeatable):
                    raise
                time.sleep(2.0 ** (_TRIES - left - 1))
                left -= 1
                continue
            pause = float(response.headers.get("Retry-After", 1))
            if response.status_code != httpx.codes.TOO_MANY_REQUESTS or time.monotonic() + pause > until:
                break
            time.sleep(pause)
        if response.is_error:
            raise ProblemError.of(response)
        return response


def _upload(
    rows: pd.DataFrame | str | PathLike[str],
    schema: dict[str, Any] | None,
    labels: str | PathLike[str] | None,
    fields: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, tuple[str, bytes]]]:
    """Return the fields and files of a form that uploads a dataset."""
    if isinstance(rows, pd.DataFrame):
        written = {"sep": (schema or {}).get("delimiter", ","), "decimal": (schema or {}).get("decimal", ".")}
        files = {"file": ("rows.csv", rows.to_csv(index=False, **written).encode())}
    else:
        files = {"file": (Path(rows).name, Path(rows).read_bytes())}
    if labels is not None:
        files["label_file"] = (Path(labels).name, Path(labels).read_bytes())
    return fields | ({} if schema is None else {"schema": json.dumps(schema)}), files


def _id(run: Run | str) -> str:
    return run.id if isinstance(run, Run) else run


def _slug(study: Study | str) -> str:
    return study.slug if isinstance(study, Study) else study


def _version(version: int | None) -> dict[str, Any]:
    return {} if version is None else {"version": version}


def _study(document: dict[str, Any], site: Site) -> Study:
    return Study(document["slug"], document["title"], document["delta"], document["rehearsal"], document, site)


def _run(document: dict[str, Any]) -> Run:
    return Run(document["id"], document["study"], document["title"], document["status"], document)
