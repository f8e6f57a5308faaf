"""One log as segments and as dumps of it: the same silver tables, but for what a dump cannot tell."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from jobs.bronze.capture import capture
from jobs.bronze.export_segments import export_segments
from jobs.delta.warehouse import Warehouse
from jobs.errors import SourceError
from jobs.settings import load_settings
from jobs.sources.dumps import source
from jobs.sources.dumps.files import DumpFile
from jobs.spark.executors import Executor
from schemas.tables import TABLES
from schemas.tables.silver import SILVER_TABLES
from tests.conformance.recordings import CAPTURED_AT, make_warehouse_of
from tests.groupledger.raw import raw_records
from tests.jobs.dump_builders import kafka_rows, write_json_lines
from tests.recorded import RECORDINGS

FULL_A: Final = RECORDINGS / "full-a"
OFFSETS: Final = "__consumer_offsets"
CLUSTER: Final = "c"

COMMITS: Final = "silver.offset_commits"
NOT_IN_ROWS: Final = ("producer_id", "is_transactional")
"""Columns of silver.offset_commits which rows of keys and values cannot tell: they are null."""
ASSUMED_OF_ROWS: Final = ("outcome", "applied_log_offset", "applied_at", "change", "previous_offset", "delta")
"""Those which follow from markers: each commit counts as applied at its own offset."""

WAYS: Final = ("segments", "rows", "records", "lines", "printed")


@pytest.fixture(scope="module")
def warehouses(no_spark: Executor, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Warehouse]:
    """The recording read in each way. `records`: rows of what the API reads, with producers, markers and batches."""
    root = tmp_path_factory.mktemp("dumps")
    rows = kafka_rows(FULL_A / "logs")
    pq.write_table(rows.take(pa.array(range(rows.num_rows - 1, -1, -1))), root / "rows.parquet", row_group_size=1000)
    make_warehouse_of(no_spark, root / "segments", cluster_id=CLUSTER, segments=(str(FULL_A / "logs"),))
    records = raw_records(Warehouse(str(root / "segments")))
    is_later = pc.greater(records["base_offset"], 150)
    write_json_lines(records.filter(is_later), root / "lines.json")
    (root / "records.parquet").mkdir()
    for number, some in enumerate((records.filter(is_later), records.filter(pc.invert(is_later)))):
        pq.write_table(some, root / "records.parquet" / f"{number}.parquet", row_group_size=1000)
    sources: dict[str, dict[str, Any]] = {
        "rows": {"dumps": (str(root / "rows.parquet"),)},
        "records": {"dumps": (str(root / "records.parquet"),)},
        "lines": {"dumps": (str(root / "lines.json"), str(root / "records.parquet" / "1.parquet"))},
        "printed": {"dumps": (str(FULL_A / "decoded"),)},
    }
    for name, given in sources.items():
        make_warehouse_of(no_spark, root / name, cluster_id=CLUSTER, **given)
    return {name: Warehouse(str(root / name)) for name in WAYS}


def rows_of(warehouse: Warehouse, table: str, without: tuple[str, ...] = ()) -> list[str]:
    """All rows of a table in a fixed order, without some columns."""
    columns = [column.name for column in TABLES[table].columns if column.name not in without]
    return sorted(map(repr, warehouse.read(TABLES[table], columns).to_pylist()))


@pytest.mark.parametrize("way", ["records", "lines", "printed"])
@pytest.mark.parametrize("table", [table.full_name for table in SILVER_TABLES])
def test_a_dump_with_producers_and_markers_gives_the_same_silver(
    warehouses: Mapping[str, Warehouse], way: str, table: str
) -> None:
    """What kafka-dump-log printed, and rows with the API's columns, tell everything that silver is made of."""
    assert rows_of(warehouses[way], table) == rows_of(warehouses["segments"], table)


@pytest.mark.parametrize("table", [table.full_name for table in SILVER_TABLES if table.full_name != COMMITS])
def test_rows_give_the_same_silver(warehouses: Mapping[str, Warehouse], table: str) -> None:
    """All tables but the commits are made of keys, values, offsets and times alone."""
    assert rows_of(warehouses["rows"], table) == rows_of(warehouses["segments"], table)


def test_commits_from_rows_lack_transactions_alone(warehouses: Mapping[str, Warehouse]) -> None:
    """Every commit is there, with all that its record tells; those outside of transactions differ in nothing else,
    unless a transaction committed the same partition."""
    without = (*NOT_IN_ROWS, *ASSUMED_OF_ROWS)
    assert rows_of(warehouses["rows"], COMMITS, without) == rows_of(warehouses["segments"], COMMITS, without)
    by_place: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}
    for name in ("rows", "segments"):
        found = warehouses[name].read(TABLES[COMMITS]).to_pylist()
        by_place[name] = {(row["log_partition"], row["log_offset"]): row for row in found}
    of_transactions = {
        (row["group_id"], row["topic"], row["partition"])
        for row in by_place["segments"].values()
        if row["producer_id"] != -1
    }
    assert of_transactions
    compared_count = 0
    for place, reported in by_place["segments"].items():
        row = by_place["rows"][place]
        assert [row[name] for name in NOT_IN_ROWS] == [None, None]
        assert (row["outcome"], row["applied_log_offset"]) == ("APPLIED", row["log_offset"])
        if (row["group_id"], row["topic"], row["partition"]) not in of_transactions:
            assert row | {name: reported[name] for name in NOT_IN_ROWS} == reported
            compared_count += 1
    assert compared_count > 400


def test_rows_without_producers_among_others(
    no_spark: Executor, warehouses: Mapping[str, Warehouse], tmp_path: Path
) -> None:
    """A table that got its columns later: of the records before, nobody knows whether they are transactional."""
    records = raw_records(warehouses["segments"])
    records = records.filter(pc.or_(pc.invert(records["is_control"]), pc.greater_equal(records["offset"], 150)))
    for name in ("producer_id", "is_control"):
        column = pc.if_else(pc.less(records["offset"], 150), None, records[name])
        records = records.set_column(records.column_names.index(name), name, column)
    pq.write_table(records, tmp_path / "it.parquet")
    make_warehouse_of(no_spark, tmp_path / "warehouse", cluster_id=CLUSTER, dumps=(str(tmp_path / "it.parquet"),))
    commits = Warehouse(str(tmp_path / "warehouse")).read(TABLES[COMMITS]).to_pylist()
    assert {row["is_transactional"] is None for row in commits if row["log_offset"] < 150} == {True}
    assert {row["is_transactional"] for row in commits if row["log_offset"] >= 150} == {True, False}


def test_bronze_says_that_it_is_a_dump(warehouses: Mapping[str, Warehouse]) -> None:
    """Batches of dumps are marked as such; a dump of rows leaves holes where markers were, and coverage says it."""
    for name in ("rows", "printed"):
        kinds = warehouses[name].read(TABLES["bronze.record_batches"], ["source_kind"])["source_kind"]
        assert set(kinds.to_pylist()) == {"DUMP"}
    coverage = warehouses["rows"].read(TABLES["bronze.coverage"]).to_pylist()
    holes = [row for row in coverage if row["topic"] == OFFSETS and row["kind"] == "COMPACTED"]
    assert holes
    assert {row["reason"] for row in holes} == {
        "the dump tells no record here: a marker, compaction, or left out of the dump"
    }
    batches = warehouses["segments"].read(TABLES["bronze.record_batches"]).to_pylist()
    markers = {
        (row["partition"], row["base_offset"]) for row in batches if row["topic"] == OFFSETS and row["is_control"]
    }
    gone = {(row["partition"], it) for row in holes for it in range(row["from_offset"], row["to_offset"] + 1)}
    assert markers <= gone


def test_export_of_a_printed_log_is_the_log(
    no_spark: Executor, warehouses: Mapping[str, Warehouse], tmp_path: Path
) -> None:
    """Segments exported of what kafka-dump-log printed are those of the broker, byte for byte."""
    export_segments(no_spark, warehouses["printed"], cluster_id=CLUSTER, output=str(tmp_path / "out"), topics=[OFFSETS])
    written = {path.relative_to(tmp_path / "out"): path.read_bytes() for path in (tmp_path / "out").glob("*/*.log")}
    logs = FULL_A / "logs"
    assert written == {path.relative_to(logs): path.read_bytes() for path in logs.glob(f"{OFFSETS}-*/*.log")}


def capture_of(no_spark: Executor, warehouse: Warehouse, **options: Any) -> Any:
    """One capture."""
    copied_at = options.pop("copied_at", None)
    settings = load_settings({"cluster_id": CLUSTER, **options}, environment={})
    if copied_at is not None:
        settings = replace(settings, copied_at_ms=int(copied_at.timestamp() * 1000))
    return capture(no_spark, warehouse, settings, capture_id="again", captured_at=copied_at or CAPTURED_AT)


def test_sources_of_one_log_join(no_spark: Executor, warehouse: Warehouse, tmp_path: Path) -> None:
    """A dump of all and segments of a part: the segments give their part, the dump the rest, nothing comes twice; a
    capture of a longer dump adds what is new, and one of the same adds nothing."""
    rows = kafka_rows(FULL_A / "logs", [OFFSETS])
    early = rows.filter(pa.array([offset < 100 for offset in rows["offset"].to_pylist()]))
    segments = tmp_path / "logs" / f"{OFFSETS}-0"
    segments.mkdir(parents=True)
    source = FULL_A / "logs" / f"{OFFSETS}-0" / f"{0:020d}.log"
    (segments / source.name).write_bytes(source.read_bytes())
    pq.write_table(early, tmp_path / "early.parquet")
    pq.write_table(rows, tmp_path / "all.parquet")
    captured = capture_of(
        no_spark, warehouse, segments=(str(tmp_path / "logs"),), dumps=(str(tmp_path / "early.parquet"),)
    )
    assert captured.quarantined_count == 0
    assert capture_of(no_spark, warehouse, dumps=(str(tmp_path / "all.parquet"),)).quarantined_count == 0
    again = capture_of(no_spark, warehouse, dumps=(str(tmp_path / "all.parquet"),))
    assert (again.batch_count, again.quarantined_count) == (0, 0)
    assert not list(Path(warehouse.root).glob("_staging/dumps/*"))
    batches = warehouse.read(TABLES["bronze.record_batches"]).to_pylist()
    by_kind = {(row["partition"], row["source_kind"]) for row in batches}
    assert by_kind == {(0, "SEGMENT"), *((partition, "DUMP") for partition in range(1, 5))}
    spans = sorted((row["partition"], row["base_offset"], row["last_offset"]) for row in batches)
    for (partition, _, last), (next_partition, first, _) in pairwise(spans):
        assert next_partition != partition or first > last
    others = sum(row["record_count"] for row in batches if row["partition"] > 0)
    assert others == sum(partition > 0 for partition in rows["partition"].to_pylist())


def test_faults_of_a_dump_are_in_quarantine(no_spark: Executor, warehouse: Warehouse, tmp_path: Path) -> None:
    """Bad lines are rows of bronze.quarantine, the same after a second capture, and resolved when it is mended."""
    dump = tmp_path / "rows.json"
    dump.write_text('{"topic": "__consumer_offsets", "partition": 0, "offset": -1}\n{"junk\n', encoding="utf-8")
    for _ in range(2):
        assert capture_of(no_spark, warehouse, dumps=(str(dump),)).quarantined_count == 2
        found = warehouse.read(TABLES["bronze.quarantine"]).to_pylist()
        assert sorted((row["stage"], row["code"], row["byte_position"], row["source"]) for row in found) == [
            ("FILE", "BAD_ROW", 0, str(dump)),
            ("FILE", "BAD_ROW", 62, str(dump)),
        ]
    dump.write_text('{"topic": "__consumer_offsets", "partition": 0, "offset": 1, "key": "AAE="}', encoding="utf-8")
    assert capture_of(no_spark, warehouse, dumps=(str(dump),)).is_clean is False  # offset 0 was never seen
    rows = warehouse.read(TABLES["bronze.quarantine"]).to_pylist()
    assert [row["resolved_at"] is not None for row in rows] == [True, True]


def test_a_capture_reads_the_new_files_of_a_lake(
    no_spark: Executor, warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of rows is read once, as long as it is the same and is read in the same way; one that could not be read to
    its end is read again. Bronze is what all files at once give."""
    rows, lake = kafka_rows(FULL_A / "logs", [OFFSETS]), tmp_path / "lake"
    lake.mkdir()
    halves = [rows.slice(0, rows.num_rows // 2), rows.slice(rows.num_rows // 2)]
    read: set[str] = set()
    unpack = source._unpack_parquet

    def reading(file: DumpFile, *more: Any) -> None:
        read.add(Path(file.path).stem)
        unpack(file, *more)

    monkeypatch.setattr(source, "_unpack_parquet", reading)

    def captured(**options: Any) -> tuple[str, int]:
        """Which files a capture reads, and how many records are new."""
        read.clear()
        record_count = capture_of(no_spark, warehouse, dumps=(str(lake),), **options).record_count
        return "".join(sorted(read)), record_count

    pq.write_table(halves[0], lake / "1.pq")
    assert captured() == ("1", halves[0].num_rows)
    pq.write_table(halves[1], lake / "2.pq")
    (lake / "3.pq").write_bytes((lake / "2.pq").read_bytes()[:-100])
    assert captured() == ("23", halves[1].num_rows), "the third one is damaged, as one that is being written"
    pq.write_table(rows, lake / "3.pq")
    assert captured() == ("3", 0)
    summary = capture_of(no_spark, warehouse, dumps=(str(lake),))
    assert f"{lake}: read before, and unchanged: 3 of 3 files" in summary.notes
    assert captured() == ("", 0)
    assert captured(copied_at=CAPTURED_AT.replace(year=2027)) == ("123", 0)
    assert captured(topics=(OFFSETS,)) == ("123", 0)
    pq.write_table(halves[0], lake / "1.pq", compression="none")
    assert captured(topics=(OFFSETS,)) == ("1", 0)
    batches = warehouse.read(TABLES["bronze.record_batches"], ["record_count"])
    assert sum(batches["record_count"].to_pylist()) == rows.num_rows


def test_formatter_lines_meet_no_other_source(no_spark: Executor, warehouse: Warehouse) -> None:
    """Records without offsets are captured alone, again without effect, and are refused together with the log."""
    formatted = (str(FULL_A / "truth" / "formatters"),)
    first = capture_of(no_spark, warehouse, dumps=formatted)
    assert first.record_count == 1719
    assert capture_of(no_spark, warehouse, dumps=formatted).record_count == 0
    with pytest.raises(SourceError, match="--cluster-id"):
        capture_of(no_spark, warehouse, dumps=formatted, segments=(str(FULL_A / "logs"),))
    capture_of(no_spark, warehouse, cluster_id="other", segments=(str(FULL_A / "logs"),))
    with pytest.raises(SourceError, match="--cluster-id"):
        capture_of(no_spark, warehouse, cluster_id="other", dumps=formatted)
