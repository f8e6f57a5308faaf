"""A log in formats 0, 1 and 2, as brokers from 0.9 on wrote it: wrappers, old values, records without a time."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from coordinator_core.bytes.codec import encode_key, encode_value, make
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.bytes.log.compression import compress
from jobs.bronze.export_segments import export_segments
from jobs.queries.answers.owner import run_owner
from jobs.queries.answers.restore import run_restore
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.registry import REGISTRY
from schemas.tables import TABLES
from tests.answers import printed
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.cases.small_logs import assignment, subscription
from tests.coordinator_core.bytes.log.test_legacy import message
from tests.jobs.in_process import in_process

START_MS: Final = 1_450_000_000_000
MINUTE_MS: Final = 60_000
OF_A_RUN: Final = frozenset({"captured_at", "capture_id", "source", "seen_at", "observed_at", "learned_at"})
"""Columns that say which run saw something."""

KeyValue = tuple[bytes, bytes | None]


def commit(group: str, partition: int, offset: int | None, at_ms: int, version: int) -> KeyValue:
    """An offset commit; its tombstone, without an offset."""
    key_message, value_message = REGISTRY[TOPIC][RecordType.OFFSET_COMMIT]
    key_fields = make(key_message, group=group, topic="orders", partition=partition)
    key = encode_key(TOPIC, RecordType.OFFSET_COMMIT, key_fields)
    if offset is None:
        return key, None
    expires = {"expire_timestamp": at_ms + 86_400_000} if version == 1 else {}
    value = make(value_message, offset=offset, metadata="m", commit_timestamp=at_ms, **expires)
    return key, encode_value(TOPIC, RecordType.OFFSET_COMMIT, version, value)


def generation(number: int, members: dict[str, Sequence[int]], version: int) -> KeyValue:
    """The group `g` with its members and what they own."""
    key_message, value_message = REGISTRY[TOPIC][RecordType.GROUP_METADATA]
    key = encode_key(TOPIC, RecordType.GROUP_METADATA, make(key_message, group="g"))
    kind: Any = value_message.fields[-1].kind
    made = tuple(
        make(
            kind.element,
            member_id=name,
            client_id="c",
            client_host="/10.0.0.1",
            session_timeout=30_000,
            rebalance_timeout=30_000 if version else -1,
            subscription=subscription("orders"),
            assignment=assignment("orders", *partitions),
        )
        for name, partitions in members.items()
    )
    first = next(iter(members), None)
    value = make(
        value_message,
        protocol_type="consumer",
        generation=number,
        protocol=first and "range",
        leader=first,
        members=made,
    )
    return key, encode_value(TOPIC, RecordType.GROUP_METADATA, version, value)


class OldLog:
    """The bytes of a segment, and where its entries begin."""

    def __init__(self) -> None:
        self.data = b""
        self.begins: list[int] = []
        self.next_offset = 0

    def put(self, records: Sequence[KeyValue], at_ms: int, magic: int, codec_id: int = 0) -> None:
        """Records of one request: a batch, a wrapper, or messages one after another."""
        base, last = self.next_offset, self.next_offset + len(records) - 1
        if magic == 2:
            self._add(build_batch([Record(base + index, at_ms, *it) for index, it in enumerate(records)]))
        elif codec_id:
            # offsets in a wrapper are those of the log in format 0, and count from 0 in format 1
            first = base if magic == 0 else 0
            messages = (
                message(first + index, value, key=key, magic=magic, timestamp_ms=at_ms)
                for index, (key, value) in enumerate(records)
            )
            packed = compress(codec_id, b"".join(messages))
            self._add(message(last, packed, magic=magic, attributes=codec_id, timestamp_ms=at_ms))
        else:
            for index, (key, value) in enumerate(records):
                self._add(message(base + index, value, key=key, magic=magic, timestamp_ms=at_ms))
        self.next_offset = last + 1

    def _add(self, entry: bytes) -> None:
        self.begins.append(len(self.data))
        self.data += entry


def upgraded() -> OldLog:
    """Generations and commits of a group and of a group of offsets only; each minute in a later format."""
    log, at_ms = OldLog(), START_MS
    log.put([generation(1, {"a": (0, 1)}, 0)], at_ms, 0)
    log.put([commit("g", 0, 5, at_ms, 0), commit("g", 1, 6, at_ms, 0)], at_ms, 0, codec_id=1)
    log.put([commit("only", 0, 50, at_ms, 0)], at_ms, 0)
    at_ms += MINUTE_MS
    log.put([generation(2, {"a": (0,), "b": (1,)}, 0)], at_ms, 0, codec_id=2)
    log.next_offset += 3  # compaction took these
    log.put([commit("g", 0, 10, at_ms, 1), commit("g", 1, 16, at_ms, 1)], at_ms, 1, codec_id=3)
    at_ms += MINUTE_MS
    log.put([generation(3, {"b": (0, 1)}, 1)], at_ms, 1)
    log.put([commit("g", 1, 26, at_ms + 5, 1), commit("only", 1, 51, at_ms + 5, 1)], at_ms + 5, 1, codec_id=1)
    at_ms += MINUTE_MS
    log.put([commit("g", 0, 30, at_ms, 2)], at_ms, 2)
    log.put([generation(4, {}, 1)], at_ms + 5, 1)
    log.put([commit("only", 0, None, at_ms + MINUTE_MS, 1)], at_ms + MINUTE_MS, 1)
    return log


def written(root: Path, data: bytes) -> Path:
    """A folder of logs with one segment."""
    folder = root / f"{TOPIC}-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(data)
    return root


def tables(ledger: Ledger) -> dict[str, list[str]]:
    """All rows of silver and gold."""
    return {
        name: sorted(repr([row[it] for it in table.column_names if it not in OF_A_RUN]) for row in ledger.rows(name))
        for name, table in TABLES.items()
        if name.startswith(("silver.", "gold."))
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """One night over all of it."""
    root = tmp_path_factory.mktemp("old")
    ledger = Ledger(root / "warehouse")
    night = ledger.night(written(root / "logs", upgraded().data))
    assert night.exit_code == 0, night.text
    return ledger


def test_the_export_has_the_bytes_of_the_brokers(whole: Ledger, tmp_path: Path) -> None:
    """Messages and wrappers stay what they are, and a night over the export gives the same tables."""
    export_segments(in_process(), whole.warehouse, cluster_id=CLUSTER_ID, output=str(tmp_path / "export"))
    (segment,) = (tmp_path / "export" / f"{TOPIC}-0").glob("*.log")
    assert segment.read_bytes() == upgraded().data
    again = Ledger(tmp_path / "warehouse")
    again.night(tmp_path / "export")
    assert tables(again) == tables(whole)


def test_nights_that_end_between_formats_give_the_same_tables(whole: Ledger, tmp_path: Path) -> None:
    """Where the first night has no time at all, and where one ends before format 1 or 2 begins."""
    log, nights = upgraded(), Ledger(tmp_path / "nights")
    for number, place in enumerate((*(log.begins[index] for index in (1, 4, 7)), len(log.data)), 1):
        nights.night(written(tmp_path / f"{number}", log.data[:place]), number=number)
    assert tables(nights) == tables(whole)


@pytest.mark.parametrize(
    ("minute", "offsets"),
    [(0, {0: "5", 1: "6"}), (1, {0: "10", 1: "16"}), (2, {0: "10", 1: "26"}), (3, {0: "30", 1: "26"})],
)
def test_offsets_are_those_of_their_time(whole: Ledger, minute: int, offsets: dict[int, str]) -> None:
    """restore goes by the time that a commit carries, where its record has none."""
    at_ms = START_MS + minute * MINUTE_MS + 1000
    lines, _ = printed(run_restore, whole.tables, "json", group_ids=("g",), at_ms=at_ms)
    rows = [json.loads(line) for line in lines.splitlines()]
    assert {row["PARTITION"]: str(row["RESTORED-OFFSET"]) for row in rows if "PARTITION" in row} == offsets


def test_an_owner_whose_records_have_no_time_is_said_to_have_none(whole: Ledger) -> None:
    """Since when is null, and a note says why; from format 1 on there is a time."""
    found = []
    for partition, minute in ((1, 1), (0, 2)):
        at_ms = START_MS + minute * MINUTE_MS + 1000
        lines, _ = printed(run_owner, whole.tables, "json", topic="orders", partition=partition, at_ms=at_ms)
        found += [json.loads(line) for line in lines.splitlines()]
    assert [
        (row["CONSUMER-ID"], row["OWNED-FROM"] is None, "have no time" in (row.get("NOTE") or "")) for row in found
    ] == [
        ("b", True, True),
        ("b", False, False),
    ]
