"""Tables of pictures: their first rows are those of the whole table in order, found without sorting all of it."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobs.report.pictures import Column, Kind, first_rows

COLUMNS = (Column("at", Kind.TIME), Column("name", Kind.TEXT), Column("number", Kind.NUMBER))
ROWS = st.lists(
    st.tuples(
        st.integers(0, 5) | st.none(),
        st.sampled_from(["", "a", "b", "é", "\U0001f4a9"]) | st.none(),
        st.integers(-2, 2),
    ),
    max_size=30,
)


def as_spark_sorts(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Null before all else, texts by their bytes."""
    return tuple((value is not None, value.encode() if isinstance(value, str) else value or 0) for value in row)


@given(ROWS, st.integers(0, 40), st.permutations(["at", "name", "number"]))
def test_first_rows_are_those_of_all(rows: list[tuple[Any, ...]], rows_max: int, order: list[str]) -> None:
    """Whichever column comes first, with null in it or without, texts coded or not."""
    at, names, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    times = pa.array([None if ms is None else ms * 1000 for ms in at], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    places = [[column.name for column in COLUMNS].index(name) for name in order]
    expected = sorted(rows, key=lambda row: as_spark_sorts(tuple(row[place] for place in places)))[:rows_max]
    texts = pa.array(names, pa.string())
    for column in (texts, texts.dictionary_encode()):
        table = pa.table({"at": times, "name": column, "number": pa.array(numbers, pa.int64())})
        assert first_rows(table, COLUMNS, order, rows_max) == expected
