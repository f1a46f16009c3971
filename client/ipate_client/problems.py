"""Errors: answers of the site that say what is wrong, and runs that ended without a model."""

from __future__ import annotations

from typing import Any

import httpx


class ProblemError(Exception):
    """An answer of the site that is an error.

    Attributes:
        status: HTTP status.
        detail: What is wrong, and what to do.
        errors: One for each mistake: its “message”, and “field”, or “row” and “column”.
    """

    def __init__(self, status: int, detail: str, errors: list[dict[str, Any]]) -> None:
        lines = [detail, *(f"{_place(error)}{error['message']}" for error in errors)]
        super().__init__("\n".join(lines))
        self.status, self.detail, self.errors = status, detail, errors

    @classmethod
    def of(cls, response: httpx.Response) -> ProblemError:
        """The error of an answer, whether or not it is a problem document (a proxy may have given it)."""
        try:
            document = response.json()
            return cls(response.status_code, document["detail"], document.get("errors", []))
        except (ValueError, KeyError, TypeError):
            return cls(response.status_code, f"{response.status_code} {response.reason_phrase}", [])


class RunEndedError(Exception):
    """A run that ended without a model: it failed, or somebody cancelled it. The message says why."""


def _place(error: dict[str, Any]) -> str:
    """Where a mistake is, for the line that tells it."""
    if "row" in error:
        column = f", column {error['column']}" if "column" in error else ""
        return f"row {error['row']}{column}: "
    return f"{error['field']}: " if error.get("field") else ""
