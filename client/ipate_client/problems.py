"""Exceptions for error responses of the site and for runs that ended without a model."""

from __future__ import annotations

from typing import Any

import httpx


class ProblemError(Exception):
    """Raised for an error response of the site.

    Attributes:
        status: HTTP status.
        detail: Description of the error and how to resolve it.
        errors: A dictionary for each error, with “message” and either “field” or “row” and “column”.
    """

    def __init__(self, status: int, detail: str, errors: list[dict[str, Any]]) -> None:
        lines = [detail, *(f"{_place(error)}{error['message']}" for error in errors)]
        super().__init__("\n".join(lines))
        self.status, self.detail, self.errors = status, detail, errors

    @classmethod
    def of(cls, response: httpx.Response) -> ProblemError:
        """Return the error for a response, even if it is not a problem document because a proxy sent it."""
        try:
            document = response.json()
            return cls(response.status_code, document["detail"], document.get("errors", []))
        except (ValueError, KeyError, TypeError):
            return cls(response.status_code, f"{response.status_code} {response.reason_phrase}", [])


class RowsError(ProblemError, ValueError):
    """Raised for a row that a model does not accept. The site and a model on this machine give the same message.

    Attributes:
        row: Number of the row, starting at 1; None if the error does not concern a single row.
        column: The wrong column; None if the error does not concern a single column.
    """

    def __init__(self, problem: str, remedy: str = "", *, row: int | None = None, column: str | None = None) -> None:
        place = {name: value for name, value in (("row", row), ("column", column)) if value is not None}
        message = f"{problem} {remedy}".strip()
        super().__init__(400, f"{_place(place)}{message}", [{**place, "message": message}])
        self.args = (self.detail,)
        self.row, self.column = row, column

    @classmethod
    def by_site(cls, problem: ProblemError, *, before: int) -> RowsError | None:
        """Return the error for a row that the site refused after ``before`` others; None if it is not about a row."""
        error = problem.errors[0] if problem.status == 400 and problem.errors else {}
        if not error.keys() & {"row", "column"}:
            return None
        row = error["row"] + before if "row" in error else None
        return cls(error["message"], row=row, column=error.get("column"))


class RunEndedError(Exception):
    """Raised for a run that failed or was cancelled. The message gives the reason."""


def _place(error: dict[str, Any]) -> str:
    """Return the beginning of an error's message: the row and column, or the field."""
    if "row" in error:
        column = f", column {error['column']}" if "column" in error else ""
        return f"row {error['row']}{column}: "
    return f"{error['field']}: " if error.get("field") else ""
