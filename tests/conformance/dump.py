"""What Kafka's own dump tool said of a log (DumpLogSegments with --print-data-log), read back from its text.

A dump is a second opinion on every batch header, key, value and marker. It is read here without any of the code under
test: text in, plain Python values out.
"""

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

SEGMENT: Final = re.compile(r"^Dumping (?P<path>\S+)$")
BATCH: Final = re.compile(
    r"^baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>\d+)"
    r" baseSequence: (?P<base_sequence>-?\d+) lastSequence: -?\d+ producerId: (?P<producer_id>-?\d+)"
    r" producerEpoch: (?P<producer_epoch>-?\d+) partitionLeaderEpoch: (?P<leader_epoch>-?\d+)"
    r" isTransactional: (?P<is_transactional>true|false) isControl: (?P<is_control>true|false)"
    r" deleteHorizonMs: OptionalLong(?:\.empty|\[(?P<delete_horizon_ms>\d+)\])"
    r" position: (?P<position>\d+) (?P<timestamp_type>CreateTime|LogAppendTime): (?P<max_timestamp_ms>-?\d+)"
    r" size: (?P<size>\d+) magic: (?P<magic>\d+) compresscodec: (?P<codec>\w+) crc: (?P<crc>\d+)"
    r" isvalid: (?P<is_valid>true|false)$"
)
RECORD: Final = re.compile(
    r"^\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<timestamp_ms>-?\d+)"
    r" keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+) sequence: -?\d+ headerKeys: \[\] (?P<rest>.*)$"
)
MARKER: Final = re.compile(r"^endTxnMarker: (?P<type>COMMIT|ABORT) coordinatorEpoch: (?P<epoch>-?\d+)$")
OTHER_LINES: Final = ("Log starting offset:", "Non-consecutive offsets", "  ", "Found ", "Mismatches ")
TOMBSTONE: Final = "<DELETE>"
STATUS_NUMBERS: Final = {
    name: number
    for number, name in enumerate(
        (
            "Empty",
            "Ongoing",
            "PrepareCommit",
            "PrepareAbort",
            "CompleteCommit",
            "CompleteAbort",
            "Dead",
            "PrepareEpochFence",
        )
    )
}
"""TransactionState by name."""


class Place(NamedTuple):
    """A log partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class DumpRecord:
    """One record. `key` and `value` are Kafka's JSON of them; `value` is None for a tombstone."""

    offset: int
    timestamp_ms: int
    key_size: int
    value_size: int
    key: dict[str, Any] | None
    value: dict[str, Any] | None
    control: str | None
    """COMMIT or ABORT, or another control record's name; None for data."""

    @property
    def record_type(self) -> int:
        """Type of a coordinator record, by its key; -1 for others."""
        return -1 if self.key is None else int(self.key["type"])


@dataclass(frozen=True, slots=True)
class DumpBatch:
    """One batch header, and its records."""

    place: Place
    file_name: str
    base_offset: int
    last_offset: int
    record_count: int
    base_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp_ms: int
    size: int
    magic: int
    codec: str
    crc: int
    is_valid: bool
    records: list[DumpRecord] = field(default_factory=list)


class UnreadableDump(Exception):
    """A line which is none of those the dump tool writes: the comparison must not skip it."""


@cache
def read_dump(path: Path) -> list[DumpBatch]:
    """All batches of a `<topic>.dump.txt.gz`, in the order of the text (by segment). Many tests read it, and none
    changes it."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return list(parse_dump(line.rstrip("\n") for line in lines))


def parse_dump(lines: Iterable[str]) -> Iterator[DumpBatch]:
    """Batches of the lines of a dump. Raises UnreadableDump for a line of no known form."""
    place, file_name = Place("", -1), ""
    batch: DumpBatch | None = None
    for line in lines:
        if match := RECORD.match(line):
            if batch is None:
                raise UnreadableDump(f"a record before any batch: {line[:120]!r}")
            batch.records.append(_record(match))
        elif match := BATCH.match(line):
            if batch is not None:
                yield batch
            batch = _batch(match, place, file_name)
        elif match := SEGMENT.match(line):
            folder, file_name = match["path"].split("/")[-2:]
            topic, _, partition = folder.rpartition("-")
            place = Place(topic, int(partition))
        elif line and not line.startswith(OTHER_LINES):
            raise UnreadableDump(line[:200])
    if batch is not None:
        yield batch


def _batch(match: re.Match[str], place: Place, file_name: str) -> DumpBatch:
    horizon = match["delete_horizon_ms"]
    return DumpBatch(
        place=place,
        file_name=file_name,
        base_offset=int(match["base_offset"]),
        last_offset=int(match["last_offset"]),
        record_count=int(match["count"]),
        base_sequence=int(match["base_sequence"]),
        producer_id=int(match["producer_id"]),
        producer_epoch=int(match["producer_epoch"]),
        leader_epoch=int(match["leader_epoch"]),
        is_transactional=match["is_transactional"] == "true",
        is_control=match["is_control"] == "true",
        delete_horizon_ms=None if horizon is None else int(horizon),
        position=int(match["position"]),
        timestamp_type=match["timestamp_type"],
        max_timestamp_ms=int(match["max_timestamp_ms"]),
        size=int(match["size"]),
        magic=int(match["magic"]),
        codec=match["codec"],
        crc=int(match["crc"]),
        is_valid=match["is_valid"] == "true",
    )


def _record(match: re.Match[str]) -> DumpRecord:
    key, value, control = _key_and_value(match["rest"])
    return DumpRecord(
        offset=int(match["offset"]),
        timestamp_ms=int(match["timestamp_ms"]),
        key_size=int(match["key_size"]),
        value_size=int(match["value_size"]),
        key=key,
        value=value,
        control=control,
    )


def _with_status_number(value: dict[str, Any]) -> dict[str, Any]:
    """From 4.4 on Kafka's tool prints the status of a transaction as its name (CompleteCommit)."""
    data = value.get("data")
    if isinstance(data, dict) and isinstance(data.get("transactionStatus"), str):
        data["transactionStatus"] = STATUS_NUMBERS[data["transactionStatus"]]
    return value


def _key_and_value(rest: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str | None]:
    if match := MARKER.match(rest):
        return None, None, match["type"]
    key = None
    if rest.startswith("key: "):
        key, end = json.JSONDecoder().raw_decode(rest, len("key: "))
        rest = rest[end:].lstrip()
    if rest.startswith("payload: "):
        text = rest.removeprefix("payload: ")
        return key, None if text == TOMBSTONE else _with_status_number(json.loads(text)), None
    name, colon, text = rest.partition(": ")
    if colon and text.startswith("{") and key is None:
        return None, json.loads(text), name
    raise UnreadableDump(rest[:200])
