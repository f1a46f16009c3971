"""Errors: error responses of the site, and runs that ended without a model."""

from __future__ import annotations

from typing import Any

import httpx


class ProblemError(Exception):
    """An error response of the site.

    Attributes:
        status: HTTP status.
        detail: The error, and how to resolve it.
        errors: One for each error: its “message”, and “field”, or “row” and “column”.
    """

    def __init__(self, status: int, detail: str, errors: list[dict[str, Any]]) -> None:
        lines = [detail, *(f"{_place(error)}{error['message']}" for error in errors)]
        super().__init__("\n".join(lines))
        self.status, self.detail, self.errors = status, detail, errors

    @classmethod
    def of(cls, response: httpx.Response) -> ProblemError:
        """Return the error of a response, whether or not it is a problem document (a proxy may have sent it)."""
        try:
            document = response.json()
            return cls(response.status_code, document["detail"], document.get("errors", []))
        except (ValueError, KeyError, TypeError):
            return cls(response.status_code, f"{response.status_code} {response.reason_phrase}", [])


class RowsError(ProblemError, ValueError):
    """A row that a model does not take. The site refuses it with the same words as a model on this machine.

    Attributes:
        row: Its place, from 1; None if no single row is wrong.
        column: The column that is wrong, if one is.
    """

    def __init__(self, problem: str, remedy: str = "", *, row: int | None = None, column: str | None = None) -> None:
        place = {name: value for name, value in (("row", row), ("column", column)) if value is not None}
        message = f"{problem} {remedy}".strip()
        super().__init__(400, f"{_place(place)}{message}", [{**place, "message": message}])
        self.args = (self.detail,)
        self.row, self.column = row, column

    @classmethod
    def by_site(cls, problem: ProblemError, *, before: int) -> RowsError | None:
        """Return the error for a refusal by the site, sent as many rows ``before``; None if it is about no row."""
        error = problem.errors[0] if problem.status == 400 and problem.errors else {}
        if not error.keys() & {"row", "column"}:
            return None
        row = error["row"] + before if "row" in error else None
        return cls(error["message"], row=row, column=error.get("column"))


class RunEndedError(Exception):
    """A run that ended without a model: it failed, or was cancelled. The message says why."""


def _place(error: dict[str, Any]) -> str:
    """Return the place of an error, for the line that reports it."""
    if "row" in error:
        column = f", column {error['column']}" if "column" in error else ""
        return f"row {error['row']}{column}: "
    return f"{error['field']}: " if error.get("field") else ""
