"""nightly and replay: real Spark tasks, real Delta tables, on recordings and on logs with something wrong in them."""

import gzip
import struct
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from coordinator_core.bytes import codec
from coordinator_core.bytes.log.batch import Record, build_batch
from jobs.console.progress import Steps
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import ended
from jobs.delta.warehouse import Warehouse
from jobs.exit_codes import DONE, INCOMPLETE
from jobs.operations.nightly import run_nightly, run_replay
from jobs.operations.run_context import RunContext
from jobs.settings import Settings, load_settings
from jobs.spark.executors import Executor, SparkExecutor
from schemas.consumer_offsets import RecordType
from schemas.registry import REGISTRY
from schemas.tables import TABLES
from schemas.tables.bronze import QUARANTINE
from schemas.tables.silver import CONFIGS, COORDINATOR_PARTITIONS, SILVER_TABLES
from schemas.tables.state import RUNS
from tests.recorded import RECORDINGS

CLUSTER = "test"
TOPIC = "__consumer_offsets"
STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)


class Jobs:
    """One warehouse and the jobs on it."""

    def __init__(self, executor: Executor, root: Path, logs: Path) -> None:
        self.executor = executor
        self.settings: Settings = load_settings(
            {"warehouse": str(root), "cluster_id": CLUSTER, "segments": (str(logs),)},
            environment={},
        )
        self.warehouse = Warehouse(self.settings.warehouse)
        self.text = StringIO()
        self.steps = Steps(executor, Console(file=self.text, width=200))

    def nightly(self, run_id: str = "r1", day: float = 0) -> int:
        at = STARTED_AT + timedelta(days=day)
        return run_nightly(
            RunContext(self.executor, self.warehouse, self.settings, run_id=run_id, started_at=at, steps=self.steps)
        )

    def replay(self, run_id: str, *, rebuild: bool) -> int:
        return run_replay(
            RunContext(
                self.executor, self.warehouse, self.settings, run_id=run_id, started_at=STARTED_AT, steps=self.steps
            ),
            rebuild=rebuild,
        )

    def rows(self, name: str) -> list[str]:
        """Rows of a table in one order, comparable; elements of lists and maps included."""
        return sorted(map(repr, self.warehouse.read(TABLES[name], where={"cluster_id": CLUSTER}).to_pylist()))

    def silver(self) -> dict[str, list[str]]:
        return {table.full_name: self.rows(table.full_name) for table in SILVER_TABLES}

    def quarantine(self) -> list[tuple[str, str, int, int | None]]:
        rows = self.warehouse.read(QUARANTINE).to_pylist()
        return sorted((row["stage"], row["code"], row["partition"], row["offset"]) for row in rows)


@pytest.fixture(scope="module")
def full_a(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Jobs, int]:
    """The recording that comes with the project, after one nightly run, and its exit code."""
    jobs = Jobs(SparkExecutor(spark), tmp_path_factory.mktemp("full-a") / "warehouse", RECORDINGS / "full-a" / "logs")
    return jobs, jobs.nightly()


def test_nightly_balances_its_ledger(full_a: tuple[Jobs, int]) -> None:
    """Every record of the recording came out as something, nothing is missing, and the run says so."""
    jobs, code = full_a
    assert code == DONE
    runs = {
        row["topic"]: row for row in ended(ClusterTables(jobs.warehouse, CLUSTER), "replay_version", RUNS.column_names)
    }
    offsets = runs[TOPIC]
    assert offsets["record_count"] == 1598 + 81
    assert offsets["control_count"] == 81
    assert offsets["decoded_count"] + offsets["tombstone_count"] == 1598
    assert runs["__share_group_state"]["record_count"] == 675
    assert "4,000 records in = 2,763 decoded" in jobs.text.getvalue()


def test_every_natural_key_is_unique(full_a: tuple[Jobs, int]) -> None:
    """No silver table has two rows with one key."""
    jobs, _ = full_a
    for table in SILVER_TABLES:
        rows = jobs.warehouse.read(table)
        # no internal topic of the recording got more partitions
        assert (rows.num_rows > 0) is (table is not COORDINATOR_PARTITIONS), table.full_name
        assert rows.group_by(list(table.key)).aggregate([]).num_rows == rows.num_rows, table.full_name


def test_topic_ids_have_names(full_a: tuple[Jobs, int]) -> None:
    """Where the metadata log is there, every topic id of an assignment or share partition has its name."""
    jobs, _ = full_a
    for name in ("silver.member_assignments", "silver.share_partition_states", "silver.share_state_batches"):
        rows = jobs.warehouse.read(TABLES[name], ["topic_id", "topic"]).to_pylist()
        assert [row for row in rows if row["topic_id"] is not None and row["topic"] is None] == []


def test_configs_of_groups_are_kept_over_time(full_a: tuple[Jobs, int]) -> None:
    """The delivery limit that the recording's driver set on a group is there, and levels of features are; brokers' own
    configs are not."""
    jobs, _ = full_a
    rows = jobs.warehouse.read(CONFIGS).to_pylist()
    limits = [
        row for row in rows if row["name"] == "share.delivery.count.limit" and row["resource_name"] == "s05-limit"
    ]
    assert [(row["resource_type"], row["value"], row["valid_to"]) for row in limits] == [("GROUP", "5", None)]
    names = {row["name"].split(".")[0] for row in rows if row["resource_type"] not in {"FEATURE", "TRANSACTION"}}
    assert names <= {"share", "retention", "cleanup", "consumer", "streams"}


def test_running_again_changes_nothing(full_a: tuple[Jobs, int]) -> None:
    """The same input again: no new rows, no new versions of the silver tables; --rebuild makes the same rows."""
    jobs, _ = full_a
    before = jobs.silver()
    versions = {table.full_name: jobs.warehouse.version(table) for table in SILVER_TABLES}
    assert jobs.nightly("r2") == DONE
    assert {table.full_name: jobs.warehouse.version(table) for table in SILVER_TABLES} == versions
    assert jobs.replay("r3", rebuild=True) == DONE
    assert jobs.silver() == before
    assert {table.full_name: jobs.warehouse.version(table) for table in SILVER_TABLES} != versions


def test_another_cluster_is_left_alone(no_spark: Executor, tmp_path: Path) -> None:
    """Two clusters in one warehouse: a run of one replaces nothing of the other."""
    first, other = (Jobs(no_spark, tmp_path / "w", log_folder(tmp_path / name, [GOOD])) for name in ("one", "two"))
    first.nightly()
    before = first.silver()
    other.settings = replace(other.settings, cluster_id="other")
    other.nightly("o1")
    assert first.silver() == before
    assert first.warehouse.read(TABLES["silver.offset_commits"], where={"cluster_id": "other"}).num_rows == 4


def commit(offset: int, *, group: str = "g", partition: int = 0, committed: int = 1) -> Record:
    """A plain offset commit."""
    key_message, value_message = REGISTRY[TOPIC][RecordType.OFFSET_COMMIT]
    key = codec.make(key_message, group=group, topic="t", partition=partition)
    value = codec.make(value_message, offset=committed, metadata="", commit_timestamp=1000 + offset)
    return Record(
        offset,
        1000 + offset,
        codec.encode_key(TOPIC, RecordType.OFFSET_COMMIT, key),
        codec.encode_value(TOPIC, RecordType.OFFSET_COMMIT, 4, value),
        (),
    )


def log_folder(folder: Path, partitions: Iterable[bytes]) -> Path:
    """A broker's log directory with one segment a partition of __consumer_offsets."""
    for partition, data in enumerate(partitions):
        path = folder / f"{TOPIC}-{partition}" / f"{0:020d}.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    return folder


GOOD = build_batch([commit(0), commit(1)]) + build_batch([commit(2)]) + build_batch([commit(3)])


def bomb() -> bytes:
    """A gzip batch of 70 MB of zeros in a few kB, with a right checksum."""
    batch = bytearray(build_batch([commit(2)]))
    section = gzip.compress(bytes(70 * 1024 * 1024))
    batch[61:] = section
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, 1)
    return with_crc(bytes(batch))


def with_crc(batch: bytes) -> bytes:
    """The batch with the checksum its bytes have."""
    import google_crc32c  # noqa: PLC0415

    return batch[:17] + struct.pack(">I", google_crc32c.value(batch[21:])) + batch[21:]


FIRST, SECOND, THIRD = build_batch([commit(0), commit(1)]), build_batch([commit(2)]), build_batch([commit(3)])
UNKNOWN_TYPE = Record(2, 1002, b"\x00\x63\x00\x01g", b"\x00\x00", ())
UNKNOWN_VERSION = Record(2, 1002, commit(2).key, b"\x00\x4d" + (commit(2).value or b"")[2:], ())

DAMAGES: dict[str, tuple[bytes, tuple[str, str], list[int]]] = {
    # name: (log, (stage, code) of the quarantine row, committed offsets still replayed)
    "flipped bit": (
        FIRST + SECOND[:70] + bytes([SECOND[70] ^ 4]) + SECOND[71:] + THIRD,
        ("BATCH", "CRC_MISMATCH"),
        [0, 1, 3],
    ),
    "cut": (FIRST + SECOND + THIRD[:-5], ("FILE", "TRUNCATED_BATCH"), [0, 1, 2]),
    "lying length": (
        FIRST + SECOND[:8] + b"\x7f\xff\xff\xff" + SECOND[12:] + THIRD,
        ("FILE", "INVALID_BATCH"),
        [0, 1, 3],
    ),
    "bomb": (FIRST + bomb() + THIRD, ("BATCH", "DECOMPRESSED_TOO_LARGE"), [0, 1, 3]),
    "unknown type": (FIRST + build_batch([UNKNOWN_TYPE]) + THIRD, ("VALUE", "UNKNOWN_RECORD_TYPE"), [0, 1, 3]),
    "unknown version": (FIRST + build_batch([UNKNOWN_VERSION]) + THIRD, ("VALUE", "UNKNOWN_VALUE_VERSION"), [0, 1, 3]),
    "no segment": (b"PK\x03\x04 this is no segment at all" * 3, ("FILE", "INVALID_BATCH"), []),
}


# a torn tail is nothing that is missing: the broker is writing it
@pytest.mark.parametrize(("names", "exit_code"), [(["cut"], DONE), ([*DAMAGES], INCOMPLETE)], ids=["cut", "all"])
def test_damage_is_said_and_the_rest_is_replayed(
    no_spark: Executor, tmp_path: Path, names: list[str], exit_code: int
) -> None:
    """Of damaged logs and a good one: a row in quarantine each, everything else in silver, exit code 3."""
    logs = log_folder(tmp_path / "logs", [GOOD, *(DAMAGES[name][0] for name in names)])
    jobs = Jobs(no_spark, tmp_path / "warehouse", logs)
    assert jobs.nightly() == exit_code
    commits = jobs.warehouse.read(TABLES["silver.offset_commits"], ["log_partition", "log_offset"]).to_pylist()
    replayed = [[0, 1, 2, 3], *(DAMAGES[name][2] for name in names)]
    expected = [(partition, offset) for partition, offsets in enumerate(replayed) for offset in offsets]
    assert sorted((row["log_partition"], row["log_offset"]) for row in commits) == expected
    quarantined = {row[:3] for row in jobs.quarantine()}
    assert {(*DAMAGES[name][1], partition) for partition, name in enumerate(names, 1)} <= quarantined
    runs = ended(ClusterTables(jobs.warehouse, CLUSTER), "replay_version", RUNS.column_names)
    assert sum(row["record_count"] for row in runs) == sum(
        row[f"{kind}_count"]
        for row in runs
        for kind in ("decoded", "tombstone", "control", "not_used", "unknown_type", "quarantined")
    )


def test_quarantine_rows_stay_when_nothing_is_new(no_spark: Executor, tmp_path: Path) -> None:
    """Rows of capture and of replay are both there after a second run, once each."""
    damaged, _, _ = DAMAGES["bomb"]
    jobs = Jobs(no_spark, tmp_path / "warehouse", log_folder(tmp_path / "logs", [damaged, DAMAGES["flipped bit"][0]]))
    assert jobs.nightly("r1") == INCOMPLETE
    first = jobs.quarantine()
    assert {row[1] for row in first} == {"DECOMPRESSED_TOO_LARGE", "CRC_MISMATCH"}
    assert jobs.nightly("r2") == INCOMPLETE
    assert jobs.replay("r3", rebuild=True) == INCOMPLETE
    assert jobs.quarantine() == first
