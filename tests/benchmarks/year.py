"""A year of nights of one cluster, with all that befalls a ledger in a year; and what each night costs.

    python -m tests.benchmarks.year [--groups N] [--nights N]

Groups rebalance, commit, go and come back; share groups redeliver and give up records; the metadata log has two
upgrades of the brokers and a topic that gets more partitions. The brokers keep the segments of some days. Each week old
rows go (bronze after 30 days, gold after 90) and files are merged. For a week no night runs; three times a client's
host is erased; once the warehouse is put back from a copy that is a week old.

At the end the tables of silver, and of gold as far as it is kept, are those of a ledger that read all segments since
the first day at once, but for the erasures. Figures go to build/year.csv and, as a picture, to build/year.svg:
processor seconds of each night, and bytes of the warehouse. In the temporary folder it takes twice the room of the log
and three times that of the warehouse.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Final, NamedTuple

from coordinator_core.bytes import codec
from coordinator_core.inference.facts.settings import InferenceSettings
from jobs.delta.warehouse import Warehouse
from jobs.operations.erase import KEY_BYTES, erase, erased_ids
from jobs.operations.maintain import maintain
from jobs.settings import RETENTION_TABLES
from schemas import cluster_metadata as metadata
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.wire import Message
from tests.benchmarks.runs import write_figures
from tests.cases.small_logs import SmallLog
from tests.coordinator_core.group_records import T1, T2
from tests.coordinator_core.inference.group_weeks import DAY_MS, Weeks
from tests.coordinator_core.live.offsets.reference import LogBatch, encode_batches
from tests.jobs.gold.test_incremental_audit import Gold, Nights
from tests.jobs.silver.test_replay import STARTED_AT

BEGIN_MS: Final = int(STARTED_AT.timestamp() * 1000)
PARTITIONS: Final = 5
KEPT_DAYS: Final = 10
"""Segments that brokers keep."""
BRONZE_DAYS, GOLD_DAYS = 30, 90
WEEK: Final = 7
ACTIVE: Final = 0.2
"""How many groups have more than a commit on a day."""
HOUR_MS: Final = 3_600_000
KEY: Final = b"a year's key".ljust(KEY_BYTES, b".")
UPGRADES: Final = ((1 / 3, "27"), (2 / 3, "30"))
"""When, as a share of the year, and to which metadata.version."""
GROWS_AT: Final = 1 / 2
OUTAGE_AT: Final = 0.4
ERASED_AT: Final = (0.25, 0.6, 0.7)
RESTORED_AT: Final = 0.9
HEIGHT: Final = 220
WIDTH: Final = 730


class Night(NamedTuple):
    """One night: its number, its processor seconds, and how large the warehouse is after it."""

    number: int
    seconds: float
    warehouse_bytes: int
    file_count: int


class Cluster:
    """The logs of a cluster, day by day: each day a segment of each log partition."""

    def __init__(self, seed: str, group_count: int, day_count: int) -> None:
        self._random = Random(seed)
        self._day_count = day_count
        self._groups = [
            Weeks(Random(f"{seed}/{number}"), f"group-{number:04d}", has_long_steps=False)
            for number in range(group_count)
        ]
        self._shares = {f"share-{number:04d}": 0 for number in range(max(1, group_count // 20))}
        self._written = [0] * group_count
        self._offsets = [0] * PARTITIONS
        self._share_log = SmallLog(0, SHARE_TOPIC)
        self._metadata = SmallLog(0, metadata.TOPIC)

    def day(self, day: int) -> dict[str, bytes]:
        """The segments of a day, by path."""
        segments = {}
        for partition, begin in enumerate(self._offsets):
            batches = sorted(self._batches(day, partition), key=lambda one: one.records[0].timestamp_ms)
            segments[f"{OFFSETS_TOPIC}-{partition}/{begin:020d}.log"] = b"".join(encode_batches(batches, begin, 0))
            self._offsets[partition] += sum(max(len(batch.records), 1) for batch in batches)
        for log, put in ((self._share_log, self._deliver), (self._metadata, self._administer)):
            begin, log.batches = log.next_offset, []
            put(day)
            segments[f"{log.topic}-{log.partition}/{begin:020d}.log"] = b"".join(log.batches)
        return {path: data for path, data in segments.items() if data}

    def _batches(self, day: int, partition: int) -> Iterator[LogBatch]:
        begin_ms = BEGIN_MS + day * DAY_MS
        for number in range(partition, len(self._groups), PARTITIONS):
            group = self._groups[number]
            is_active = not day or self._random.random() < ACTIVE
            group.wait_until(begin_ms + self._random.randrange(HOUR_MS))
            batches = group.reported(self._random.randint(2, 8)) if is_active else group.goes_on(4)
            yield from batches[self._written[number] :]
            self._written[number] = len(batches)

    def _deliver(self, day: int) -> None:
        """Records of share groups are delivered, some again, some are given up."""
        for group_id, start in self._shares.items():
            at_ms = BEGIN_MS + day * DAY_MS + self._random.randrange(HOUR_MS)
            if not day:
                self._share_log.snapshot(group_id, at_ms, ())
            elif day % 30 == 0:
                self._share_log.snapshot(group_id, at_ms, (), start_offset=start, snapshot_epoch=day // 30)
            for count in range(1, self._random.choice((1, 1, 3, 5)) + 1):
                state = 0 if count < 5 else 4
                self._share_log.update(group_id, at_ms + count * 1_000, ((start, start + 2, state, count),), start)
            self._shares[group_id] += 3
            self._share_log.update(group_id, at_ms + 60_000, (), self._shares[group_id])

    def _administer(self, day: int) -> None:
        """Topics are made at first; one gets more partitions; brokers are upgraded."""
        at_ms = BEGIN_MS + day * DAY_MS
        if not day:
            for name, topic_id, count in (("t", T2, 4), ("in", T1, 1)):
                self._tell(metadata.TOPIC_RECORD, at_ms, name=name, topic_id=topic_id)
                self._make_partitions(topic_id, 0, count, at_ms)
        if day == int(GROWS_AT * self._day_count):
            self._make_partitions(T2, 4, 6, at_ms)
        for share, level in UPGRADES:
            if day == int(share * self._day_count):
                self._tell(metadata.FEATURE_LEVEL_RECORD, at_ms, name="metadata.version", feature_level=int(level))

    def _make_partitions(self, topic_id: str, first: int, end: int, at_ms: int) -> None:
        for partition in range(first, end):
            of = {"topic_id": topic_id, "partition_id": partition, "replicas": (1,), "isr": (1,), "leader": 1}
            self._tell(metadata.PARTITION_RECORD, at_ms, version=2, **of)

    def _tell(self, message: Message, at_ms: int, *, version: int = 0, **fields: object) -> None:
        value = codec.encode_metadata(message, codec.make(message, **fields), version)
        self._metadata.put(b"", value, at_ms)


class Ledger(Nights):
    """The nights over a folder of logs, without Spark."""

    def __init__(self, root: Path, logs: Path) -> None:
        super().__init__(root, logs, late_ms=InferenceSettings().late_ms)
        days = {name: BRONZE_DAYS if name.startswith("bronze.") else GOLD_DAYS for name in RETENTION_TABLES}
        self.settings = replace(self.settings, maintain=replace(self.settings.maintain, retention_days=days))
        self.root = root

    def night(self, day: int) -> None:
        """After a day, as a process of its own, which knows nothing of the ones before."""
        self.warehouse = Warehouse(self.settings.warehouse)
        assert self.nightly(f"{day}", (after(day) - STARTED_AT) / timedelta(days=1)) in {0, 3}, day

    def maintain(self, day: int) -> None:
        maintain(self.executor, self.warehouse, self.settings, started_at=after(day))

    def erase(self, host: str, day: int) -> None:
        ids = erased_ids([f"host={host}"])
        erase(self.executor, self.warehouse, ids=ids, new_key=KEY, at=after(day))

    def tables(self) -> Gold:
        """Silver and gold as readers see them, in one order."""
        return self.gold() | self.silver()


def after(day: int) -> datetime:
    """When the night after a day begins: at three in the morning."""
    return STARTED_AT + timedelta(days=day + 1, hours=3)


def lived(scratch: Path, seed: str, group_count: int, night_count: int) -> tuple[list[Night], Ledger, Ledger]:
    """The nights, their ledger, and one over all segments that has a night only where an id is erased, and the last:
    from an erasure on nobody knows who is who on both sides."""
    cluster = Cluster(seed, group_count, night_count)
    logs = Logs(scratch)
    ledger, whole = Ledger(scratch / "warehouse", logs.kept), Ledger(scratch / "whole", logs.ever)
    outage, restored = (int(share * night_count) for share in (OUTAGE_AT, RESTORED_AT))
    erased = [int(share * night_count) for share in ERASED_AT]
    nights = []
    for day in range(night_count):
        logs.add(cluster.day(day))
        if day == restored - WEEK:
            shutil.copytree(ledger.root, scratch / "copy")
        if outage <= day < outage + WEEK:
            continue
        begin = process_time()
        ledger.night(day)
        nights.append(Night(day, process_time() - begin, *_size(ledger.root)))
        if day in erased:
            whole.night(day)
            for one in (ledger, whole):
                one.erase(f"/host-{erased.index(day)}", day)
        if day % WEEK == WEEK - 1:
            ledger.maintain(day)
        if day == restored:
            shutil.rmtree(ledger.root)
            (scratch / "copy").rename(ledger.root)
    whole.night(night_count - 1)
    for one in (ledger, whole):
        one.maintain(night_count - 1)
    return nights, ledger, whole


class Logs:
    """All segments since the first day, and the newest ones, as brokers have them."""

    def __init__(self, root: Path) -> None:
        self.ever, self.kept = root / "ever", root / "kept"
        self._newest: deque[list[Path]] = deque()

    def add(self, day: Mapping[str, bytes]) -> None:
        """The segments of a day, by path; the oldest that are kept go."""
        for path, data in day.items():
            for folder in (self.ever, self.kept):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.ever / path).write_bytes(data)
            os.link(self.ever / path, self.kept / path)
        self._newest.append([self.kept / path for path in day])
        if len(self._newest) > KEPT_DAYS:
            for segment in self._newest.popleft():
                segment.unlink()


def _size(root: Path) -> tuple[int, int]:
    sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


def differences(ledger: Ledger, whole: Ledger) -> dict[str, tuple[list[str], list[str]]]:
    """By table: the rows that only the one has, and those that only the other has."""
    found, expected = ledger.tables(), whole.tables()
    return {
        name: (sorted(set(found[name]) - set(rows)), sorted(set(rows) - set(found[name])))
        for name, rows in expected.items()
        if found[name] != rows
    }


def show(nights: Sequence[Night]) -> None:
    """The table and the picture."""
    for begin in range(0, len(nights), 30):
        some = nights[begin : begin + 30]
        seconds = median(night.seconds for night in some)
        print(f"nights {begin + 1} to {begin + len(some)}: {seconds:.2f} s, {some[-1].warehouse_bytes / 1e6:,.1f} MB")
    write_figures("year", nights, picture(nights))


def picture(nights: Sequence[Night]) -> str:
    """Processor seconds a night, and how large the warehouse was, over the year."""
    last, parts = nights[-1].number, ['<rect width="100%" height="100%" fill="white"/>']
    for number, (name, unit, values, colour) in enumerate(
        (
            ("Processor seconds of a night", "s", [night.seconds for night in nights], "#66c2a5"),
            ("Size of the warehouse", "MB", [night.warehouse_bytes / 1e6 for night in nights], "#8da0cb"),
        )
    ):
        top, most = 30 + number * (HEIGHT + 50), max(values)
        points = " ".join(
            f"{20 + WIDTH * night.number / last:.1f},{top + HEIGHT * (1 - value / most):.1f}"
            for night, value in zip(nights, values, strict=True)
        )
        parts.append(f'<text x="20" y="{top - 10}">{name}: at most {most:,.1f} {unit}</text>')
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>')
        parts.append(f'<path stroke="#999" d="M20 {top + HEIGHT}h{WIDTH}"/>')
    width, height = WIDTH + 40, 2 * (HEIGHT + 50)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">{"".join(parts)}</svg>\n'


def main() -> None:
    """Live through the year, and compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.year", description=__doc__)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--seed", default="year")
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp())
    try:
        nights, ledger, whole = lived(scratch, arguments.seed, arguments.groups, arguments.nights)
        show(nights)
        others = differences(ledger, whole)
        for name, (more, fewer) in others.items():
            print(f"{name}: {len(more)} rows of the nights alone, {len(fewer)} of one run alone")
            print(*more[:3], "--", *fewer[:3], sep="\n")
        sys.exit(bool(others))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
