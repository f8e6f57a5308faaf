"""One log by three ways: from its broker, from the broker's segment files, and from dumps of it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from jobs.spark.executors import SparkExecutor
from tests.live.conftest import Played
from tests.live.disk import TOPICS, read_logs
from tests.live.ledger import SILVER, Ledger, counted
from tests.live.simulated import DECODERS

TRIES_MAX: Final = 3
OUTCOMES: Final = {"committed": "APPLIED", "aborted": "ABORTED", "timed out": "ABORTED", "open": "PENDING"}
"""Of silver.offset_commits, by what a client knows of its transaction."""
ELSEWHERE: Final = ("source", "source_kind", "captured_at", "capture_id")
"""Columns of bronze which say where and when a batch was read."""
NOT_IN_ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    # No marker is in a dump of rows, and nothing tells which commits belonged to a transaction.
    "silver.offset_commits": (
        "is_settled",
        "is_transactional",
        "producer_id",
        "outcome",
        "applied_log_offset",
        "applied_at",
        "change",
        "previous_offset",
        "delta",
    ),
}


@dataclass(frozen=True)
class Inputs:
    """The ledgers of one log."""

    live: Ledger
    segments: Ledger
    printed: Ledger
    rows: Ledger


@pytest.fixture(scope="module")
def inputs(played: Played, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Four ledgers of a log on which nothing was written meanwhile."""
    broker = played.broker
    for _ in range(TRIES_MAX):
        root = tmp_path_factory.mktemp("inputs")
        ends = broker.snapshot()["leo_before"]
        live = Ledger(SparkExecutor(spark), root / "live", bootstrap_servers=broker.address)
        segments = Ledger(SparkExecutor(spark), root / "segments", segments=(str(broker.data),))
        printed = print_log(played, root / "printed")
        rows = consume_all(broker.address, root / "rows.parquet")
        if broker.snapshot()["leo_after"] == ends:
            return Inputs(
                live,
                segments,
                Ledger(SparkExecutor(spark), root / "from-printed", dumps=tuple(str(path) for path in printed)),
                Ledger(SparkExecutor(spark), root / "from-rows", dumps=(str(rows),)),
            )
    raise AssertionError("groups at rest write to the log")


def print_log(played: Played, folder: Path) -> list[Path]:
    """What kafka-dump-log prints of the coordinators' logs."""
    folder.mkdir()
    decoders = {**DECODERS, "__transaction_state": "--transaction-log-decoder"}
    return [
        played.broker.dump(
            sorted(played.broker.data.glob(f"{topic}-*/*.log")),
            "--deep-iteration",
            "--print-data-log",
            decoders[topic],
            to=folder / f"{topic}.txt",
        )
        for topic in TOPICS
    ]


def consume_all(address: str, file: Path) -> Path:
    """What a Python client reads of the coordinators' topics, transactions open and aborted included, as Parquet."""
    columns: dict[str, list[Any]] = {name: [] for name in ("topic", "partition", "offset", "timestamp", "key", "value")}
    with KafkaConsumer(bootstrap_servers=address, exclude_internal_topics=False, enable_auto_commit=False) as consumer:
        places = [TopicPartition(topic, it) for topic in TOPICS for it in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        consumer.seek_to_beginning(*places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            for records in consumer.poll(timeout_ms=500).values():
                for record in records:
                    for name, values in columns.items():
                        values.append(getattr(record, name))
    types = [pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary()]
    arrays = [pa.array(columns[name], kind) for name, kind in zip(columns, types, strict=True)]
    pq.write_table(pa.table(arrays, names=list(columns)), file)
    return file


@pytest.mark.parametrize("table", SILVER)
def test_live_is_segments(inputs: Inputs, table: str) -> None:
    """Every silver table of groups is the same, row by row, whether the broker or its files were read."""
    live = counted(inputs.live.rows(table))
    assert live == counted(inputs.segments.rows(table))
    assert live


def test_bronze_is_what_the_files_hold(inputs: Inputs, played: Played) -> None:
    """Batches read live are those of the segment files, byte by byte; only where they were read differs."""
    live, segments = (ledger.rows("bronze.record_batches") for ledger in (inputs.live, inputs.segments))
    assert counted(live, ELSEWHERE) == counted(segments, ELSEWHERE)
    found = {(row["topic"], row["partition"], row["base_offset"]): row["batch"] for row in live}
    expected = {
        (topic, partition, batch.base_offset): batch.data
        for (topic, partition), batches in read_logs(played.broker.data).items()
        for batch in batches
    }
    assert found == expected
    assert {(row["source"], row["source_kind"]) for row in live} == {(f"kafka://{played.broker.address}", "KAFKA")}


@pytest.mark.parametrize("table", SILVER)
def test_what_the_dump_tool_printed_is_segments(inputs: Inputs, table: str) -> None:
    """What kafka-dump-log prints makes the same silver tables: it tells everything."""
    assert counted(inputs.printed.rows(table)) == counted(inputs.segments.rows(table))


@pytest.mark.parametrize("table", SILVER)
def test_rows_are_segments_but_for_transactions(inputs: Inputs, table: str) -> None:
    """Rows of keys and values make the same silver tables, but for what they cannot tell of transactions."""
    without = NOT_IN_ROWS.get(table, ())
    assert counted(inputs.rows.rows(table), without) == counted(inputs.segments.rows(table), without)


def test_markers_read_live_end_transactions_as_clients_did(inputs: Inputs, played: Played) -> None:
    """Each offset which a client's transaction committed is APPLIED or SUPERSEDED, ABORTED, or PENDING: as the client
    says, and as often."""
    journal = list(played.clients.journal())
    assert not [line for line in journal if line["what"] == "transaction refused"]
    expected: Counter[tuple[str, str, int, str]] = Counter()
    opened: dict[str, list[tuple[str, str, int, str]]] = {}
    for line in journal:
        if line["what"] != "transaction":
            continue
        if line["outcome"] == "fenced":
            for group, place, offset, _ in opened.pop(line["group"]):
                expected[group, place, offset, "PENDING"] -= 1
                expected[group, place, offset, "ABORTED"] += 1
            continue
        rows = [(line["group"], place, it, OUTCOMES[line["outcome"]]) for place, it in line["offsets"].items()]
        expected.update(rows)
        if line["outcome"] == "open":
            opened[line["group"]] = rows
    found = Counter(
        (
            row["group_id"],
            f"{row['topic']}-{row['partition']}",
            row["committed_offset"],
            "APPLIED" if row["outcome"] == "SUPERSEDED" else row["outcome"],
        )
        for row in inputs.live.rows("silver.offset_commits")
        if row["is_transactional"]
        and row["topic"] in {name for it in played.groups.values() for name in it.topics}
        and not row["group_id"].startswith("streams")  # whose clients keep no journal
    )
    assert found == +expected
    assert {outcome for *_, outcome in found} == {"APPLIED", "ABORTED", "PENDING"}
