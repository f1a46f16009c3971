"""Studies: budgets, data, encoders, decisions on paper, and webhooks."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipate_client.connection import Connection, at
from ipate_client.documents import Dataset, Study, slug_of
from ipate_client.frames import frame

if TYPE_CHECKING:
    import pandas as pd


class Studies(Connection):
    """Requests about studies and their data."""

    def studies(self) -> list[Study]:
        """Return the studies whose runs you may see."""
        return [self._study(each) for each in self._pages("studies")]

    def study(self, slug: str) -> Study:
        """Return a study with its levels, head counts and datasets."""
        return self._study(self._json("GET", at("studies", slug)))

    def budget(self, study: Study | str) -> pd.DataFrame:
        """Return each group's budget in a study: the largest use by a member, and the reserved and remaining parts.

        The table has a row for each promise, with the columns level, policy, epsilon, epsilon_used, epsilon_reserved,
        epsilon_left, share_used, share_reserved, share_left, and runs, a list of uses with their times. Shares of the
        cap add up; values of ε do not.
        """
        parts = ("used", "reserved", "left")
        columns = ["level", "policy", "epsilon", *(f"epsilon_{part}" for part in parts)]
        columns += [*(f"share_{part}" for part in parts), "runs"]
        return frame(self.budget_groups(study), columns=columns)

    def budget_groups(self, study: Study | str) -> list[dict[str, Any]]:
        """Return the rows of `budget` as dictionaries."""
        return list(self._json("GET", at("studies", slug_of(study), "budget"))["groups"])

    def waiting(self) -> pd.DataFrame:
        """Return the tasks waiting for you: study, kind, text, url, since, and whether the proposal is your own."""
        columns = ["study", "kind", "text", "url", "since", "own"]
        return frame(self._json("GET", "waiting")["waiting"], columns=columns)

    def example_rows(self, study: Study | str, *, rows: int = 10, seed: int = 0) -> dict[str, Any]:
        """Return invented rows of a study, so that you can write programs before you have data.

        The rows are generated from the public schema and the seed only, so they reveal nothing about people.

        Args:
            study: The study.
            rows: Number of rows, at most 100.
            seed: Seed; the same seed gives the same rows.

        Returns:
            ``rows`` in the format of `predict`, their invented outcomes in ``answers``, and the ``schema``.
        """
        return self._json("GET", at("studies", slug_of(study), "example-rows"), params={"rows": rows, "seed": seed})

    def encoders(self, study: Study | str) -> list[dict[str, Any]]:
        """Return the encoders of a study, each with the progress of encoding datasets."""
        return self._list("GET", at("studies", slug_of(study), "encoders"))

    def register_encoder(
        self,
        study: Study | str,
        file: str | PathLike[str],
        *,
        takes: Mapping[str, Any],
        tokenizer: str | PathLike[str] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Register an encoder; the site then encodes the study's datasets with it. For data stewards.

        Args:
            study: The study.
            file: An ONNX file of at most 16 MiB.
            takes: Format of the encoder's input, as described on the page *Encoders*.
            tokenizer: For a text encoder, its file tokenizer.json.
            **fields: ``name``, ``licence``, ``source``, and ``stated=True`` to confirm that it was made without the
                private data.
        """
        files = {"file": (Path(file).name, Path(file).read_bytes())}
        if tokenizer is not None:
            files["tokenizer"] = (Path(tokenizer).name, Path(tokenizer).read_bytes())
        sent = {name: str(value).lower() if isinstance(value, bool) else value for name, value in fields.items()}
        path = at("studies", slug_of(study), "encoders")
        return self._json("POST", path, data={**sent, "takes": json.dumps(dict(takes))}, files=files)

    def set_up_rehearsal(self, *, members: Mapping[str, str] | None = None, **fields: Any) -> Study:
        """Create a rehearsal study for data that is not secret. For administrators of the installation.

        You become its operator and data steward.

        Args:
            members: Roles of other people by user name, such as ``{"ben": "operator"}``; another person has to approve
                your proposals.
            **fields: ``slug``, ``title``, ``purpose``, ``controller``, ``contact``, ``delta`` (1e-5 if left out).
        """
        people = [{"username": name, "role": role} for name, role in (members or {}).items()]
        document = self._json("POST", "studies", json={**fields, "rehearsal": True, "members": people})
        return self._study(document)

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
        """Import a dataset into a rehearsal study, completely or not at all. For data stewards.

        Args:
            study: A rehearsal.
            rows: A data frame with the columns of the schema, sent as CSV, or a CSV, Parquet, npz, mat or idx file.
            name: Name of the dataset in the study.
            kind: private, public or test.
            schema: Schema of a row; by default the schema of the study's last dataset.
            labels: For an idx file of images, the idx file of their labels.
            **fields: ``holder_prefix``, ``with_labels``, ``provenance``.
        """
        sent, files = _upload(rows, schema, labels, {"name": name, "kind": kind, **fields})
        return Dataset.of(self._json("POST", at("studies", slug_of(study), "datasets"), data=sent, files=files))

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
        """Upload and check a dataset, and store it if there are no errors. For data stewards.

        Args:
            study: Any study; see `import_dataset` for other fields.
            rows: A data frame, or a file.
            name: Name of the dataset.
            kind: private, public or test.
            schema: Schema of a row; by default the schema of the study's last dataset.
            labels: A file of labels or, for a zip file, a table that lists its images.
            every: Seconds between two requests.
            timeout: Seconds after which to stop waiting; the import itself continues.
            different_people: Whether to store the dataset even if new pseudonyms resemble others.
            **fields: ``known`` (must be true for private rows), ``holder_prefix``, ``with_labels``, ``provenance``.

        Returns:
            The import, with ``dataset`` if it was stored and ``problems`` or ``look_alikes`` if not.

        Raises:
            TimeoutError: the import takes longer.
        """
        sent, files = _upload(rows, schema, labels, {"name": name, "kind": kind, **fields})
        begun = self._once(at("studies", slug_of(study), "imports"), data=sent, files=files)
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            state = self._json("GET", at("studies", slug_of(study), "imports", begun["id"]))
            if state["state"] == "checked" and not state["faults"] and (different_people or not state["look_alikes"]):
                state = self._json("POST", at("studies", slug_of(study), "imports", begun["id"], "store"))
            if state["state"] not in ("checking", "importing"):
                return state
            if until is not None and time.monotonic() > until:
                raise TimeoutError(f"The import {begun['id']} has not finished yet.")
            time.sleep(every)

    def discard_import(self, study: Study | str, number: str) -> None:
        """Discard an import that has not been stored, by its ``id`` from `import_records`. For data stewards."""
        self._request("DELETE", at("studies", slug_of(study), "imports", number))

    def record_consents(
        self,
        study: Study | str,
        decisions: str | PathLike[str],
        scans: Sequence[str | PathLike[str]],
        *,
        dry_run: bool = False,
    ) -> int:
        """Record a list of decisions made on paper, either all of them or none. For data stewards.

        Args:
            study: The study.
            decisions: A CSV file, as described on the page *Recruitment*.
            scans: The files named in the list.
            dry_run: Whether to check for errors without recording anything.

        Returns:
            Number of decisions that were recorded or, in a dry run, could be recorded.
        """
        files = [("list", (Path(decisions).name, Path(decisions).read_bytes()))]
        files += [("scans", (Path(scan).name, Path(scan).read_bytes())) for scan in scans]
        sent = {"dry_run": str(dry_run).lower()}
        return int(self._json("POST", at("studies", slug_of(study), "consents"), data=sent, files=files)["decisions"])

    def draw_head_counts(
        self, study: Study | str, *, counts: Mapping[str, int] | None = None, follows: int = 0
    ) -> pd.DataFrame:
        """Count people at each level with noise, or enter public numbers. For operators.

        Counting charges everyone who is counted.

        Args:
            study: The study.
            counts: Public numbers by level, such as ``{"HIGH": 120, "AVERAGE": 310, "LOW": 90}``; by default,
                people are counted with noise.
            follows: The ``release`` of the newest head counts. Required to count again, because each count is charged.
        """
        sent = {"follows": follows} if counts is None else {"counts": dict(counts)}
        return frame(self._once_list(at("studies", slug_of(study), "head-counts"), json=sent))

    def webhooks(self, study: Study | str) -> list[dict[str, Any]]:
        """Return the webhooks of a study: id, url, events, creator and time of creation."""
        return list(self._pages(at("studies", slug_of(study), "webhooks")))

    def make_webhook(self, study: Study | str, url: str, *, events: Sequence[str]) -> dict[str, Any]:
        """Create a webhook for these events of a study; return it with its ``secret``, which is shown only once.

        Args:
            study: A study that you operate.
            url: URL of the receiving program, which must begin with https:// and refer to a public host.
            events: Names such as ``run.finished``; docs/webhooks.md lists them.
        """
        return self._once(at("studies", slug_of(study), "webhooks"), json={"url": url, "events": list(events)})

    def test_webhook(self, study: Study | str, webhook: int) -> dict[str, Any]:
        """Send a test message to a webhook and return its delivery. `webhook_deliveries` shows the outcome later."""
        return self._once(at("studies", slug_of(study), "webhooks", webhook, "test"))

    def remove_webhook(self, study: Study | str, webhook: int) -> None:
        """Remove a webhook by its id, so that its program receives no more messages."""
        self._request("DELETE", at("studies", slug_of(study), "webhooks", webhook))

    def webhook_deliveries(self, study: Study | str) -> pd.DataFrame:
        """Return the messages sent to a study's webhooks in the last 30 days, newest first, with their outcomes."""
        columns = ["id", "webhook", "event", "state", "tries", "status", "fault", "created_at", "sent_at", "next_try"]
        return frame(self._pages(at("studies", slug_of(study), "webhooks", "deliveries")), columns=columns)

    def _study(self, document: dict[str, Any]) -> Study:
        return Study(document["slug"], document["title"], document["delta"], document["rehearsal"], document, self)


def _upload(
    rows: pd.DataFrame | str | PathLike[str],
    schema: dict[str, Any] | None,
    labels: str | PathLike[str] | None,
    fields: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, tuple[str, bytes]]]:
    """Return the form fields and files for uploading a dataset."""
    if isinstance(rows, (str, PathLike)):
        files = {"file": (Path(rows).name, Path(rows).read_bytes())}
    else:
        written = {"sep": (schema or {}).get("delimiter", ","), "decimal": (schema or {}).get("decimal", ".")}
        files = {"file": ("rows.csv", rows.to_csv(index=False, **written).encode())}
    if labels is not None:
        files["label_file"] = (Path(labels).name, Path(labels).read_bytes())
    return fields | ({} if schema is None else {"schema": json.dumps(schema)}), files
