"""A long life: groups of all kinds keep busy, Kafka prunes and compacts within seconds, the broker is restarted,
capture is killed. Afterwards what could be read is in bronze, the rest is named, and verify finds no difference.

`make test-conformance` runs a short one. --minutes says how long that of `make test-live` is.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from tests.lengths import is_long, minutes
from tests.live.broker import CLIENT_SETTINGS, PRUNING_SETTINGS, LiveBroker
from tests.live.clients import LiveClients, PlayedGroup
from tests.live.disk import DiskBatch, DiskWatch, Place, log_starts, read_logs
from tests.live.job import Job, capture_words
from tests.live.kafka_home import KafkaHome
from tests.live.ledger import rows_in

SEED: Final = 11
EVERY: Final = "10s"
SHORT_S: Final = 20
MINUTES: Final = minutes(10)
GROUPS: Final = (12, 50)
"""In the short run, and in the long one."""
PAUSE_MS: Final = (4_000, 20_000)
"""The longest rest of a group between two acts: fifty groups that never rest would take both cores of a machine."""
KEEPS_TOMBSTONES: Final = {"log.cleaner.delete.retention.ms": 3_600_000}
"""As brokers do (24 hours by default): whoever reads once in that time sees all that was deleted."""
CAPTURED: Final = "CAPTURED"
LOST: Final = ("MISSING", "COMPACTED")
DONE: Final = 0
FAILED: Final = 1


@dataclass
class Run:
    """What is left of it."""

    groups: Mapping[str, PlayedGroup]
    warehouse: Path
    seen: Mapping[Place, Mapping[int, set[bytes]]]
    """Every batch that was ever in a segment file, in every form."""
    disk: Mapping[Place, list[DiskBatch]]
    """The segment files at the end."""
    starts: Mapping[Place, int]
    """Log start offsets that the files alone do not show."""
    captures_said: str
    verify_said: str
    verify_code: int

    def rows(self, table: str) -> dict[Place, list[dict[str, Any]]]:
        """Of a bronze table, by log partition and in order of offsets."""
        rows: dict[Place, list[dict[str, Any]]] = {}
        for row in rows_in(self.warehouse, table):
            rows.setdefault((row["topic"], row["partition"]), []).append(row)
        key = "base_offset" if table == "bronze.record_batches" else "from_offset"
        return {place: sorted(found, key=lambda row: int(row[key])) for place, found in rows.items()}


@pytest.fixture(scope="module")
def run(home: KafkaHome, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three parts: until the broker is restarted, until capture is killed, until the end."""
    root = tmp_path_factory.mktemp("long-run")
    part_s = (MINUTES * 60 if is_long() else SHORT_S) / 3
    with (
        LiveBroker(
            home, root / "broker", settings={**CLIENT_SETTINGS, **PRUNING_SETTINGS, **KEEPS_TOMBSTONES}
        ) as broker,
        LiveClients(home, root / "clients", broker.address) as clients,
        DiskWatch(broker.data) as watch,
    ):
        clients.play(SEED, ["offsets"], ["commit"])  # so that there is a log
        words = [*capture_words(broker.address), "--every", EVERY]
        with Job(root, "capture", *words) as capture:
            clients.churn(SEED, GROUPS[is_long()], PAUSE_MS[is_long()])
            capture.await_commit()
            time.sleep(part_s)
            broker.restart()
            time.sleep(part_s)
            assert capture.is_running, capture.end_of_said()
            capture.kill()
        with Job(root, "capture", *words) as capture:
            capture.await_commit()
            time.sleep(part_s)
            if is_long():
                broker.restart(kill=True)
            groups = clients.calm()
            capture.await_commit()
            assert capture.interrupt() == DONE, capture.end_of_said()
            captures_said = capture.said
        with Job(root, "verify", "--bootstrap-server", broker.address) as verify:
            verify_code = verify.wait()
            verify_said = verify.said
        broker.stop()
        watch.stop()
        disk, starts = read_logs(broker.data), log_starts(broker.data)
    return Run(groups, root / "warehouse", watch.seen, disk, starts, captures_said, verify_said, verify_code)


def test_it_was_a_busy_life(run: Run) -> None:
    """Groups of many kinds did much, and Kafka has pruned share states and compacted offsets: else nothing is shown."""
    assert len(run.groups) == GROUPS[is_long()] + 1
    assert len({group.kind for group in run.groups.values()}) >= min(GROUPS[is_long()], 16)
    assert sum(sum(group.done.values()) for group in run.groups.values()) >= 5 * len(run.groups)
    on_disk = {place: {batch.base_offset for batch in batches} for place, batches in run.disk.items()}
    gone = {place for place, seen in run.seen.items() if seen.keys() - on_disk[place]}
    assert {topic for topic, _ in gone} >= {"__consumer_offsets", "__share_group_state"}


def test_bronze_is_what_was_on_disk(run: Run) -> None:
    """Each batch of bronze was in a segment file, byte by byte as it is; none is there twice, not even in part."""
    bronze = run.rows("bronze.record_batches")
    for place, rows in bronze.items():
        for row in rows:
            assert row["batch"] in run.seen[place][row["base_offset"]], (place, row["base_offset"])
        for before, after in pairwise(rows):
            assert before["last_offset"] < after["base_offset"], place
    assert {topic for topic, _ in bronze} == {topic for topic, _ in run.disk}


def test_nothing_that_was_there_to_read_is_missing(run: Run) -> None:
    """Every record of the segment files at the end, from the log start offset to where capture ended, is in bronze."""
    bronze, coverage = run.rows("bronze.record_batches"), run.rows("bronze.coverage")
    for place, batches in run.disk.items():
        start, end = run.starts.get(place, 0), coverage[place][-1]["to_offset"] + 1 if place in coverage else 0
        on_disk = {offset for batch in batches for offset in batch.offsets() if start <= offset < end}
        assert on_disk <= offsets_of(bronze.get(place, ())), place


def test_coverage_names_the_rest_exactly(run: Run) -> None:
    """Coverage speaks of every offset once: CAPTURED are those in bronze, and all others are named as lost, with the
    times between which they were."""
    bronze = run.rows("bronze.record_batches")
    for place, ranges in run.rows("bronze.coverage").items():
        assert ranges[0]["from_offset"] == 0
        for before, after in pairwise(ranges):
            assert after["from_offset"] == before["to_offset"] + 1, place
        assert {it["kind"] for it in ranges} <= {CAPTURED, *LOST}
        captured = {
            offset
            for it in ranges
            if it["kind"] == CAPTURED
            for offset in range(it["from_offset"], it["to_offset"] + 1)
        }
        assert captured == offsets_of(bronze[place]), place
        kinds = [it["kind"] for it in ranges]
        between = slice(kinds.index(CAPTURED), len(kinds) - kinds[::-1].index(CAPTURED))
        lost = [it for it in ranges[between] if it["kind"] == LOST[0]]
        assert all(it["first_timestamp"] <= it["last_timestamp"] for it in lost), place


def test_the_ledger_is_what_the_broker_says(run: Run) -> None:
    """verify finds no difference, and can tell of all that is in __consumer_offsets."""
    assert run.verify_code != FAILED, run.verify_said
    doubts = [line for line in run.verify_said.splitlines() if line.startswith("CANNOT_TELL")]
    assert [line for line in doubts if "__share_group_state" not in line] == [], run.verify_said
    assert "Traceback" not in run.captures_said + run.verify_said


def offsets_of(rows: Iterable[Mapping[str, Any]]) -> set[int]:
    """The offsets of the records in rows of bronze.record_batches."""
    return {offset for row in rows for offset in DiskBatch(row["batch"]).offsets()}
