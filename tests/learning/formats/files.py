"""Files for the tests of readers."""

import pyarrow as pa


def unfolding(**columns: int) -> pa.Table:
    """Table whose columns have so many times the same text of 4 MB; written without its schema it stays small."""
    text = pa.array(["a" * 4_000_000])
    return pa.table(
        {name: pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), text) for name, rows in columns.items()}
    )
