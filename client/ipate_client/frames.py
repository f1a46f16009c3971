"""Tables as data frames, which require pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def pandas() -> Any:
    """Return the module pandas. Raises ImportError with the name of the package to install."""
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("Tables need pandas: pip install ipate-client[pandas]") from None
    return pd


def frame(rows: Any, columns: list[str] | None = None) -> pd.DataFrame:
    """Return rows as a data frame with these columns, even if there are no rows."""
    made: pd.DataFrame = pandas().DataFrame(rows, columns=columns)
    return made


def of_schema(read: pd.DataFrame, schema: dict[str, Any] | None) -> pd.DataFrame:
    """Return a table of strings, converted to the types that a schema declares.

    Numbers become float64 (NaN for declared markers of unknown values), and categories become string categories: “007”
    remains “007”. Other columns remain strings.
    """
    for column in (schema or {}).get("columns", []):
        name = column["name"]
        if name not in read or column["role"] != "feature":
            continue
        if column["type"] in ("numeric", "date"):
            read[name] = read[name].mask(read[name].isin([*column["missing"], ""])).astype("float64")
        elif column["type"] == "categorical":
            others = [value for value in read[name].unique() if value not in column["values"]]
            read[name] = pandas().Categorical(read[name], [*column["values"], *others])
    return read
