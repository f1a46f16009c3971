"""Released labels of a run as files: tables with noisy counts, and arrays with the public points themselves."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from common.spreadsheets import CsvWriter
from training.models import Run
from training.services.downloads import labels_arrays, labels_table


@dataclass(frozen=True)
class LabelFormat:
    """A format in which labels can be taken away.

    Attributes:
        media_type: Of the file.
        content: All labels of a run in this format.
    """

    media_type: str
    content: Callable[[Run], bytes]


def labels_csv(run: Run) -> bytes:
    """A table: row, label, and a column for each class with noisy counts, where they were released."""
    text = io.StringIO()
    CsvWriter(text).writerows(labels_table(run))
    return text.getvalue().encode()


def labels_parquet(run: Run) -> bytes:
    """The same table as Parquet: rows and counts as 64-bit integers, labels as text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    heading, *lines = labels_table(run)
    columns = list(zip(*lines, strict=True)) or [() for _name in heading]
    kinds = [pa.string() if name == "label" else pa.int64() for name in heading]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    content = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=heading), content)
    return content.getvalue()


def labels_npz(run: Run) -> bytes:
    """NumPy arrays: all public points as encoded records, and what was released about some of them."""
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **labels_arrays(run))
    return content.getvalue()


LABEL_FORMATS = {
    "csv": LabelFormat("text/csv", labels_csv),
    "parquet": LabelFormat("application/vnd.apache.parquet", labels_parquet),
    "npz": LabelFormat("application/x-npz", labels_npz),
}
