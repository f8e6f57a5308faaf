"""Files that are written here say to every reader what was written."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.transaction import AddAction
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from jobs.delta.arrow_schemas import file_schema
from jobs.delta.parquet.codecs import CODECS
from jobs.delta.parquet.file import ParquetFileWriter
from schemas.tables import TABLES

LIST = pa.list_(pa.field("element", pa.string(), nullable=False))
STRUCT = pa.struct([("first", pa.int64()), ("state", pa.string())])
KINDS: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "time": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "bytes": pa.binary(),
    "texts": LIST,
    "structs": pa.list_(pa.field("element", STRUCT, nullable=False)),
    "map": pa.map_(pa.string(), pa.int64()),
}
"""A column of each kind that tables are declared with."""

TEXTS = ["", "a", "groupé", "x" * 40]
integers = {
    bits: st.one_of(st.integers(0, 3), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)) for bits in (8, 16, 32, 64)
}
texts = st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tinyint": integers[8],
    "smallint": integers[16],
    "int": integers[32],
    "bigint": integers[64],
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "time": st.integers(0, 2**52),
    "text": texts,
    "bytes": st.binary(max_size=5),
    "texts": st.lists(texts, max_size=3),
    "structs": st.lists(
        st.fixed_dictionaries({"first": st.none() | integers[64], "state": st.none() | texts}), max_size=3
    ),
    "map": st.dictionaries(texts, st.none() | integers[64], max_size=3).map(lambda entries: [*entries.items()]),
}


@st.composite
def columns(draw: st.DrawFn, count: int, kind: str) -> tuple[pa.Field, pa.Array]:
    """A column of some rows: values in any order or in runs, null or not, coded or not, from any place of an array."""
    is_nullable = draw(st.booleans())
    value = st.none() | VALUES[kind] if is_nullable else VALUES[kind]
    values: list[Any] = []
    while len(values) < count + 9:
        values += [draw(value)] * draw(st.sampled_from([1, 1, 2, 7, 8, 9, 32, 150]))
    array = pa.array(values, KINDS[kind]).slice(draw(st.integers(0, 9)), count)
    if kind == "text" and draw(st.booleans()):
        array = array.dictionary_encode()
    return pa.field(kind, array.type, nullable=is_nullable), array


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Some rows of a column of each of a few kinds."""
    count = draw(st.integers(1, 300))
    kinds = draw(st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=4, unique=True))
    made = [draw(columns(count, kind)) for kind in kinds]
    return pa.Table.from_arrays([array for _, array in made], schema=pa.schema([field for field, _ in made]))


def written(rows: Sequence[pa.Table], codec: str = "lz4", row_group_rows_max: int | None = None) -> pa.Buffer:
    """A file of rows that are written one after the other."""
    stream = pa.BufferOutputStream()
    writer = ParquetFileWriter(stream, rows[0].schema, codec=codec, statistics=["int", "bigint"])
    for part in rows:
        writer.write(part, row_group_rows_max)
    writer.close()
    file = stream.getvalue()
    assert writer.size_bytes == file.size
    return file


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python has them."""
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


@given(tables(), st.sampled_from([*CODECS]), st.none() | st.integers(1, 400), st.data())
def test_what_is_written_is_read(
    rows: pa.Table, codec: str, row_group_rows_max: int | None, data: st.DataObject
) -> None:
    """Whatever the values, the codec and the row groups; a second write of the same schema comes behind the first."""
    cut = data.draw(st.integers(0, rows.num_rows))
    file = written([rows.slice(0, cut), rows.slice(cut)], codec, row_group_rows_max)
    assert plain(pq.read_table(pa.BufferReader(file))) == plain(rows)
    metadata = pq.ParquetFile(pa.BufferReader(file)).metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    assert max(group.num_rows for group in groups) <= (row_group_rows_max or 300)
    for name in {"int", "bigint"} & {*rows.schema.names}:
        at = metadata.schema.names.index(name)
        start = 0
        for group in groups:
            values = rows.column(name).slice(start, group.num_rows).drop_null().to_pylist()
            start += group.num_rows
            reported = group.column(at).statistics
            assert reported.null_count == group.num_rows - len(values)
            assert (reported.min, reported.max) == ((min(values), max(values)) if values else (None, None))


def every_kind() -> pa.Table:
    """4,000 rows of all kinds: runs and none, all numbers of bits, nulls here and there, often, and always."""
    random = np.random.default_rng(7)
    count = 4_000
    made: dict[str, pa.Array] = {}
    for share in (0.0, 0.01, 0.5, 1.0):
        is_null = random.random(count) < share
        bits = random.integers(0, 63, count)
        any_number = random.integers(-(2**62), 2**62, count) >> bits
        in_runs = np.repeat(any_number[: count // 50], 50)
        of: dict[str, Any] = {
            "tinyint": (any_number % 2**7).astype(np.int8),
            "smallint": (any_number % 2**15).astype(np.int16),
            "int": any_number.astype(np.int32),
            "bigint": in_runs if share == 0.01 else any_number,
            "double": any_number / 3,
            "boolean": any_number % 3 == 0,
            "time": np.cumsum(any_number % 2**30),
            "text": [TEXTS[number % 4] if share != 0.5 else f"text {number}" for number in in_runs],
            "bytes": [bytes(number % 300) for number in range(count)],
            "texts": [[TEXTS[number % 4]] * (number % 5) for number in range(count)],
            "structs": [
                [{"first": None if other == 3 else number, "state": TEXTS[other % 4]} for other in range(number % 7)]
                for number in range(count)
            ],
            "map": [[(str(key), number if key else None) for key in range(number % 3)] for number in range(count)],
        }
        for kind, values in of.items():
            listed = values.tolist() if isinstance(values, np.ndarray) else values
            masked = [None if null else value for null, value in zip(is_null.tolist(), listed, strict=True)]
            made[f"{kind}_{int(100 * share)}"] = pa.array(masked, KINDS[kind])
    made["coded"] = made["text_1"].dictionary_encode()
    made["number"] = pa.array(np.arange(count))
    fields = [pa.field(name, array.type, nullable=not name.endswith("_0")) for name, array in made.items()]
    return pa.Table.from_arrays([*made.values()], schema=pa.schema(fields))


def by_duckdb(path: Path, _: pa.Table) -> list[dict[str, Any]]:
    """DuckDB's own reader."""
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        return plain(connection.read_parquet(str(path)).order("number").to_arrow_table())


def by_delta_rs(path: Path, rows: pa.Table) -> list[dict[str, Any]]:
    """arrow-rs, by delta-rs's own engine."""
    folder = path.parent / "table"
    write_deltalake(folder, rows.slice(0, 0).drop_columns(["coded"]).append_column("coded", pa.array([], pa.string())))
    path.rename(folder / "part.parquet")
    delta = DeltaTable(folder)
    stats = '{"numRecords": 4000}'
    action = AddAction("part.parquet", (folder / "part.parquet").stat().st_size, {}, 0, True, stats)
    delta.create_write_transaction([action], mode="append", schema=delta.schema())
    found = QueryBuilder().register("t", DeltaTable(folder)).execute("select * from t order by number").read_all()
    return plain(pa.table(found).select(rows.schema.names))


@pytest.mark.parametrize("codec", [*CODECS])
@pytest.mark.parametrize("reader", [by_duckdb, by_delta_rs])
def test_other_readers_read_it(
    tmp_path: Path, reader: Callable[[Path, pa.Table], list[dict[str, Any]]], codec: str
) -> None:
    """Readers that share no code with pyarrow find the same values."""
    rows = every_kind()
    path = tmp_path / "rows.parquet"
    path.write_bytes(written([rows], codec, 1_500))
    found = reader(path, rows)
    for got, row in zip(found, plain(rows), strict=True):
        for name, value in row.items():
            # a map comes as pairs, or as what Python has for it
            same = (
                dict(value) == dict(got[name]) if name.startswith("map") and value is not None else value == got[name]
            )
            assert same, (name, value, got[name])


@pytest.mark.spark
@pytest.mark.parametrize("is_vectorized", [True, False])
@pytest.mark.parametrize("codec", [*CODECS])
def test_spark_reads_it(spark: SparkSession, tmp_path: Path, codec: str, *, is_vectorized: bool) -> None:
    """Both of Spark's readers, the vectorized one and that of parquet-java."""
    rows = every_kind()
    path = tmp_path / "rows.parquet"
    path.write_bytes(written([rows], codec, 1_500))
    settings = {"spark.sql.parquet.enableVectorizedReader": str(is_vectorized).lower()}
    settings["spark.sql.parquet.enableNestedColumnVectorizedReader"] = settings[
        "spark.sql.parquet.enableVectorizedReader"
    ]
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        found = spark.read.parquet(str(path)).orderBy("number").toArrow()
    finally:
        for name, former in before.items():
            spark.conf.unset(name) if former is None else spark.conf.set(name, former)
    for name in rows.schema.names:
        assert found[name].to_pylist() == rows[name].to_pylist(), name


@pytest.mark.parametrize(("step", "compression"), [("any", "UNCOMPRESSED"), ("mostly none", "LZ4")])
def test_what_a_codec_makes_nothing_of_is_left_as_it_is(step: str, compression: str) -> None:
    """Times that differ from each other in any way are packed already; those with many equal neighbours are not."""
    random = np.random.default_rng(1)
    steps = random.integers(0, 2**40, 50_000)
    if step != "any":
        steps[random.random(50_000) < 0.9] = 0
    times = pa.array(np.cumsum(steps)).cast(KINDS["time"])
    file = written([pa.table({"time": times})])
    column = pq.ParquetFile(pa.BufferReader(file)).metadata.row_group(0).column(0)
    assert column.compression == compression
    assert (column.total_compressed_size < 0.9 * column.total_uncompressed_size) == (compression == "LZ4")
    assert pq.read_table(pa.BufferReader(file))["time"].combine_chunks() == times


def test_a_row_group_is_no_larger_than_a_page_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of many bytes are written in as many row groups as it takes; a single one is written whole."""
    monkeypatch.setattr("jobs.delta.parquet.file.ROW_GROUP_BYTES_MAX", 10_000)
    rows = pa.table({"bytes": [bytes(number) for number in (3_000, 4_000, 5_000, 60_000, 1, 2)]})
    file = pq.ParquetFile(pa.BufferReader(written([rows])))
    counts = [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]
    assert counts == [1, 2, 1, 2]
    assert file.read() == rows


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.full_name)
def test_every_table_can_be_written(table: Any) -> None:
    """All that tables are declared with has a place in a file, also where nothing is known."""
    schema = file_schema(table)
    rows = pa.Table.from_arrays([pa.nulls(3, field.type) for field in schema], schema=schema)
    found = pq.read_table(pa.BufferReader(written([rows])))
    assert plain(found) == plain(rows)
    assert found.schema.equals(schema.remove_metadata())


def test_a_file_without_rows_is_one() -> None:
    """It has its columns, and no row group."""
    file = pq.ParquetFile(pa.BufferReader(written([every_kind().slice(0, 0)])))
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (0, 0)
    assert file.schema_arrow.names == every_kind().schema.names


@pytest.mark.parametrize(
    ("field", "array"),
    [
        (pa.field("n", pa.int64(), nullable=False), pa.array([1, None])),
        (pa.field("l", LIST, nullable=False), pa.array([["a"], None], LIST)),
        (pa.field("l", LIST), pa.array([["a", None]], pa.list_(pa.string()))),
        (pa.field("s", pa.list_(pa.field("element", STRUCT))), pa.array([[None]], pa.list_(STRUCT))),
    ],
)
def test_a_null_where_none_is_declared_is_refused(field: pa.Field, array: pa.Array) -> None:
    """What the file cannot express is an error, not another value."""
    writer = ParquetFileWriter(pa.BufferOutputStream(), pa.schema([field]), codec="none")
    with pytest.raises(ValueError, match=f"^{field.name}"):
        writer.write(pa.table([array], names=[field.name]))


def test_elements_of_a_null_list_are_nothing() -> None:
    """Arrow may have some behind a null; nobody can read them, and they do not move others."""
    offsets, values = pa.array([0, 2, 3, 5], pa.int32()), pa.array(["a", "b", "hidden", "c", "d"])
    lists = pa.ListArray.from_arrays(offsets, values, mask=pa.array([False, True, False]))
    table = pa.table({"lists": lists})
    assert plain(pq.read_table(pa.BufferReader(written([table])))) == plain(table)


def test_a_dictionary_without_some_of_its_texts_is_refused() -> None:
    """Its places would be those of other texts in the file."""
    coded = pa.DictionaryArray.from_arrays(pa.array([1]), pa.array([None, "a"]))
    with pytest.raises(ValueError, match="null among the texts"):
        written([pa.table({"text": coded})])


def test_a_type_of_no_table_is_refused() -> None:
    """The schema says what can be written."""
    with pytest.raises(TypeError, match="d: decimal"):
        ParquetFileWriter(pa.BufferOutputStream(), pa.schema([("d", pa.decimal128(3, 1))]), codec="none")


COMPILED = """
from jobs.delta.parquet import kernels
from jobs.delta.parquet import warm_up
from tests.jobs.delta.parquet.test_file import every_kind, written

def compiled():
    functions = {name: getattr(kernels, name) for name in dir(kernels)}
    return {name: len(of.signatures) for name, of in functions.items() if hasattr(of, "signatures")}

warm_up.use_loops()
before = compiled()
assert before["put_deltas"] and before["put_runs"], before
rows = every_kind()
written([rows.slice(1, 1000), rows.slice(0, 1500)])
assert compiled() == before, (before, compiled())
"""


def test_nothing_is_compiled_while_a_night_waits() -> None:
    """What the set-up compiles is all that any table takes."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
