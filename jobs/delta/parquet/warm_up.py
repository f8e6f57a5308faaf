"""Load all compiled loops at once: numba takes a quarter of a second for the first one, and some time for
each other.
"""

import pyarrow as pa

from jobs.delta.parquet.file import ParquetFileWriter


def _every_kind() -> pa.Table:
    """One column for each loop, with a null in each."""
    texts = pa.array(["a", None])
    return pa.table(
        {
            "int": pa.array([1, None], pa.int32()),
            "bigint": pa.array([1, None], pa.int64()),
            "boolean": pa.array([True, None]),
            "binary": pa.array([b"a", None]),
            "string": texts.dictionary_encode(),
            "array": pa.array([["a", None], None]),
        }
    )


def use_loops() -> None:
    """Call every loop once."""
    rows = _every_kind()
    ParquetFileWriter(pa.BufferOutputStream(), rows.schema, codec="none").write(rows)
