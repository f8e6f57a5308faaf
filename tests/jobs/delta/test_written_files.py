"""Files that are written here say to every reader what was written."""

import tempfile
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

from jobs.delta.arrow_schemas import arrow_type, file_schema, statistics_columns
from jobs.delta.part_files import PartTarget, PartWriter, write_part
from jobs.errors import WarehouseError
from jobs.settings import CODECS
from schemas.tables import TABLES
from schemas.tables.declare import ArrayOf, Column, MapOf, Scalar, StructOf, Table, Type
from tests.jobs import table_rows

KINDS: dict[str, Type] = {
    "tinyint": Scalar.TINYINT,
    "smallint": Scalar.SMALLINT,
    "int": Scalar.INT,
    "bigint": Scalar.BIGINT,
    "double": Scalar.DOUBLE,
    "boolean": Scalar.BOOLEAN,
    "time": Scalar.TIMESTAMP,
    "text": Scalar.STRING,
    "bytes": Scalar.BINARY,
    "texts": ArrayOf(Scalar.STRING),
    "structs": ArrayOf(StructOf((("first", Scalar.BIGINT), ("state", Scalar.STRING)))),
    "map": MapOf(Scalar.STRING, Scalar.BIGINT),
}
"""A column of each kind that tables are declared with."""
ORDERED = ("tinyint", "smallint", "int", "bigint", "double", "time", "text")
"""Those with statistics."""

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
    array = pa.array(values, arrow_type(KINDS[kind])).slice(draw(st.integers(0, 9)), count)
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


class Target(PartTarget):
    """Where files with columns of some kinds go; a column is named after its kind."""

    @property
    def table(self) -> Table:
        """Its columns are those of the rows to write."""
        columns = (Column(name, KINDS[name.partition("_")[0]], "A column.") for name in self.table_name.split())
        return Table("silver", self.table_name, "A table.", tuple(columns), partition_by=())


def written(
    folder: Path | str, rows: Sequence[pa.Table], codec: str = "snappy", row_group_rows_max: int | None = None
) -> Path:
    """A file of rows that are written one after the other."""
    target = Target(" ".join(rows[0].schema.names), str(folder), codec)
    with PartWriter(target, "rows", {}, row_group_rows_max=row_group_rows_max) as writer:
        for part in rows:
            writer.write(part)
    assert writer.written is not None
    path = Path(folder) / writer.written.path
    assert writer.written.size_bytes == path.stat().st_size
    return path


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
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, [rows.slice(0, cut), rows.slice(cut)], codec, row_group_rows_max)
        found, metadata = pq.read_table(path), pq.read_metadata(path)
    assert plain(found) == plain(rows)
    assert not any(pa.types.is_dictionary(field.type) for field in found.schema)
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    assert max(group.num_rows for group in groups) <= (row_group_rows_max or 300)
    for name in {*rows.schema.names} & {*ORDERED}:
        at, start = metadata.schema.names.index(name), 0
        for group in groups:
            values = rows.column(name).slice(start, group.num_rows).drop_null().to_pylist()
            start += group.num_rows
            reported = group.column(at).statistics
            assert reported.null_count == group.num_rows - len(values)
            # pyarrow has bounds of the dictionary for a coded column that has only nulls
            if values or not pa.types.is_dictionary(rows.schema.field(name).type):
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
            made[f"{kind}_{int(100 * share)}"] = pa.array(masked, arrow_type(KINDS[kind]))
    made["text_coded"] = made["text_1"].dictionary_encode()
    made["bigint_number"] = pa.array(np.arange(count))
    fields = [pa.field(name, array.type, nullable=not name.endswith("_0")) for name, array in made.items()]
    return pa.Table.from_arrays([*made.values()], schema=pa.schema(fields))


def by_duckdb(path: Path, _: pa.Table) -> list[dict[str, Any]]:
    """DuckDB's own reader."""
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        return plain(connection.read_parquet(str(path)).order("bigint_number").to_arrow_table())


def by_delta_rs(path: Path, rows: pa.Table) -> list[dict[str, Any]]:
    """arrow-rs, by delta-rs's own engine."""
    folder = path.parent / "table"
    write_deltalake(
        folder, rows.slice(0, 0).drop_columns(["text_coded"]).append_column("text_coded", pa.array([], pa.string()))
    )
    path.rename(folder / "part.parquet")
    delta = DeltaTable(folder)
    stats = '{"numRecords": 4000}'
    action = AddAction("part.parquet", (folder / "part.parquet").stat().st_size, {}, 0, True, stats)
    delta.create_write_transaction([action], mode="append", schema=delta.schema())
    found = (
        QueryBuilder().register("t", DeltaTable(folder)).execute("select * from t order by bigint_number").read_all()
    )
    return plain(pa.table(found).select(rows.schema.names))


@pytest.mark.parametrize("codec", [*CODECS])
@pytest.mark.parametrize("reader", [by_duckdb, by_delta_rs])
def test_other_readers_read_it(
    tmp_path: Path, reader: Callable[[Path, pa.Table], list[dict[str, Any]]], codec: str
) -> None:
    """Readers that share no code with pyarrow find the same values."""
    rows = every_kind()
    path = written(tmp_path, [rows], codec, 1_500)
    found = reader(path, rows)
    for got, row in zip(found, plain(rows), strict=True):
        for name, value in row.items():
            # a map comes as pairs, or as what Python has for it
            same = (
                dict(value) == dict(got[name]) if name.startswith("map") and value is not None else value == got[name]
            )
            assert same, (name, value, got[name])


@pytest.mark.parametrize("is_vectorized", [True, False])
@pytest.mark.parametrize("codec", [*CODECS])
def test_spark_reads_it(spark: SparkSession, tmp_path: Path, codec: str, *, is_vectorized: bool) -> None:
    """Both of Spark's readers, the vectorized one and that of parquet-java."""
    rows = every_kind()
    path = written(tmp_path, [rows], codec, 1_500)
    settings = {"spark.sql.parquet.enableVectorizedReader": str(is_vectorized).lower()}
    settings["spark.sql.parquet.enableNestedColumnVectorizedReader"] = settings[
        "spark.sql.parquet.enableVectorizedReader"
    ]
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        found = spark.read.parquet(str(path)).orderBy("bigint_number").toArrow()
    finally:
        for name, former in before.items():
            spark.conf.unset(name) if former is None else spark.conf.set(name, former)
    for name in rows.schema.names:
        assert found[name].to_pylist() == rows[name].to_pylist(), name


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.full_name)
def test_every_table_can_be_written(tmp_path: Path, table: Table) -> None:
    """All that tables are declared with has a place in a file, also where nothing is known; statistics are of columns
    that Delta has them of: not of personal ones."""
    schema = file_schema(table)
    rows = pa.Table.from_arrays([pa.nulls(3, field.type) for field in schema], schema=schema)
    target = PartTarget(table.full_name, str(tmp_path), "snappy")
    path = tmp_path / write_part(target, rows, partition_values=dict.fromkeys(table.partition_by)).path
    found = pq.read_table(path)
    assert plain(found) == plain(rows)
    assert found.schema.equals(schema.remove_metadata())
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert {column.path_in_schema for column in columns if column.is_stats_set} == {*statistics_columns(table)}


def test_statistics_of_personal_columns_are_not_written(tmp_path: Path) -> None:
    """Neither in the footer nor in the page index: the texts are in their column alone."""
    table = TABLES["silver.group_members"]
    personal = [column.name for column in table.columns if column.is_personal]
    rows = table_rows.rows(table, {"cluster_id": "c", **{name: f"secret of {name}" for name in personal}})
    for name in personal:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, rows[name].dictionary_encode())
    whole = (tmp_path / write_part(PartTarget(table.full_name, str(tmp_path), "none"), rows).path).read_bytes()
    assert personal
    assert {name: whole.count(f"secret of {name}".encode()) for name in personal} == dict.fromkeys(personal, 1)


def test_a_file_without_rows_is_one(tmp_path: Path) -> None:
    """It has its columns, and no row."""
    file = pq.ParquetFile(written(tmp_path, [every_kind().slice(0, 0)]))
    assert (file.metadata.num_rows, file.schema_arrow.names) == (0, every_kind().schema.names)


def test_later_rows_may_be_dictionary_encoded_or_not(tmp_path: Path) -> None:
    """The first rows say how the file is written, whatever the index types of the others; readers see strings."""
    declared = arrow_type(KINDS["structs"])
    narrow = pa.dictionary(pa.uint8(), pa.string())
    coded = pa.list_(declared.value_field.with_type(pa.struct([("first", pa.int64()), ("state", narrow)])))
    states = [[{"first": 1, "state": "a"}, {"first": None, "state": None}], None]
    names: list[list[str | None]] = [["a", None], ["b", "a"]]
    for first in (0, 1):
        parts = [
            pa.table({"text": pa.array(names[0], narrow), "structs": pa.array(states, coded)}),
            pa.table({"text": names[1], "structs": pa.array(states, declared)}),
        ]
        found = plain(pq.read_table(written(tmp_path, [parts[first], parts[1 - first]])))
        assert [row["text"] for row in found] == [*names[first], *names[1 - first]]
        assert [row["structs"] for row in found] == states * 2


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("texts", pa.array([["a", None]], pa.list_(pa.string()))),
        ("structs", pa.array([[None]], pa.list_(pa.struct([("first", pa.int64()), ("state", pa.string())])))),
    ],
)
def test_a_null_where_none_is_declared_is_refused(tmp_path: Path, name: str, array: pa.Array) -> None:
    """What the file cannot express is an error, not another value."""
    with pytest.raises(WarehouseError, match=f"{name} takes"):
        written(tmp_path, [pa.table([array], names=[name])])
    assert not list(tmp_path.iterdir())


def test_elements_of_a_null_list_are_nothing(tmp_path: Path) -> None:
    """Arrow may have some behind a null; nobody can read them, and they do not move others."""
    offsets, values = pa.array([0, 2, 3, 5], pa.int32()), pa.array(["a", "b", "hidden", "c", "d"])
    mask = pa.array([False, True, False])
    lists = pa.ListArray.from_arrays(offsets, values, type=arrow_type(KINDS["texts"]), mask=mask)
    table = pa.table({"texts": lists})
    assert plain(pq.read_table(written(tmp_path, [table]))) == plain(table)


def test_a_null_among_the_strings_of_a_dictionary_is_refused(tmp_path: Path) -> None:
    """Its places would be those of other strings in the file."""
    coded = pa.DictionaryArray.from_arrays(pa.array([1]), pa.array([None, "a"]))
    with pytest.raises(pa.ArrowNotImplementedError, match="null encoded in dictionary"):
        written(tmp_path, [pa.table({"text": coded})])
    assert not list(tmp_path.iterdir())
