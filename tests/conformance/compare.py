"""Comparisons of one recording's tables with its truth and its dumps; each gives a tally, and names what differs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from coordinator_core.codec import decode, decode_key, decode_metadata, decode_value
from coordinator_core.errors import UnknownRecordType
from coordinator_core.kafka_json import to_json
from coordinator_core.log.chunk import RecordChunk
from coordinator_core.log.records import decode_chunk
from schemas import wire
from schemas.client_protocols import CONSUMER_PROTOCOL_ASSIGNMENT, CONSUMER_PROTOCOL_SUBSCRIPTION
from schemas.consumer_offsets.classic import GROUP_METADATA_VALUE
from schemas.registry import REGISTRY
from tests.conformance import oracle
from tests.conformance.dump import DumpBatch, DumpRecord, Place, read_dump
from tests.conformance.explained import explanation
from tests.conformance.tables import Row, Tables, deltas, group_answers_of, share_answers_of
from tests.conformance.truth import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    GroupAnswer,
    ShareAnswer,
    Truth,
    group_answers,
    group_facts,
    share_answers,
    share_facts,
)

MESSAGES_MAX: Final = 20
"""Failures named one by one; the tally counts all."""


@dataclass(slots=True)
class Tally:
    """How a comparison went: compared = equal + explained + failed."""

    name: str
    compared: int = 0
    equal: int = 0
    facts: int = 0
    """Single values held against each other, where a comparison has several."""
    explained: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def judge(self, place: str, differences: Sequence[Any], reason: str | None = None) -> None:
        """Count one comparison; `differences` are shown if there are any and no reason explains them."""
        self.compared += 1
        if not differences:
            self.equal += 1
        elif reason is not None:
            self.explained[reason] += 1
        else:
            shown = "; ".join(map(str, differences[:4]))
            more = f" and {len(differences) - 4} more" if len(differences) > 4 else ""
            self.failures.append(f"{place}: {shown}{more}")

    @property
    def line(self) -> str:
        """One line for the terminal."""
        reasons = ", ".join(f"{name} {count}" for name, count in sorted(self.explained.items()))
        text = f"{self.name}: compared {self.compared}, equal {self.equal}, explained {self.explained.total()}"
        text += f" ({reasons})" if reasons else ""
        text += f", failed {len(self.failures)}"
        return f"{text}; {self.facts} facts" if self.facts else text

    @property
    def report(self) -> str:
        """The line, and the first failures."""
        return "\n  ".join((self.line, *self.failures[:MESSAGES_MAX]))


# --- truth ---


def compare_groups(tables: Tables, truth: Truth, is_comparable: Any = None) -> Tally:
    """Every group a broker spoke of, and every group of the tables of which it did not, at every still moment."""
    tally = Tally("groups against the broker")
    for answer in group_answers(truth, tables.groups):
        if is_comparable is None or is_comparable(answer):
            expected, got = group_facts(answer.answer), group_answers_of(tables, answer)
            differences = deltas(expected, got)
            reason = explanation(answer, differences) if differences else None
            tally.facts += len({*expected, *got})
            tally.judge(_moment(answer), [_difference(d) for d in differences], reason)
    return tally


def compare_share_partitions(tables: Tables, truth: Truth, is_comparable: Any = None) -> Tally:
    """Every share partition's state, offset by offset, at every still moment."""
    tally = Tally("share partitions against the coordinator")
    for answer in share_answers(truth, tables.share_partitions):
        if is_comparable is None or is_comparable(answer):
            expected, got = share_facts(answer), share_answers_of(tables, answer)
            tally.facts += len({*expected, *got})
            tally.judge(
                f"{_moment(answer)} {answer.topic}-{answer.partition}",
                [_difference(d) for d in deltas(expected, got)],
            )
    return tally


def _moment(answer: GroupAnswer | ShareAnswer) -> str:
    return f"snapshot {answer.snapshot} ({answer.label}) {answer.group_id} at {answer.log_end}"


def _difference(difference: tuple[Sequence[Any], Any, Any]) -> str:
    path, expected, got = difference
    return f"{'/'.join(map(str, path))}: broker {expected!r}, tables {got!r}"


# --- dumps: bytes ---


def dumps_of(folder: Path) -> dict[str, list[DumpBatch]]:
    """The dumps of a `decoded` folder, by topic."""
    return {
        path.name.removesuffix(".dump.txt.gz"): read_dump(path) for path in sorted(folder.glob("*.dump.txt.gz"))
    }


def compare_headers(tables: Tables, dumps: Mapping[str, Sequence[DumpBatch]]) -> Tally:
    """Every batch header of the dumps with its row of bronze.record_batches, both ways."""
    tally = Tally("batch headers against the dump")
    bronze = {(row["topic"], row["partition"], row["base_offset"]): row for row in tables["bronze.record_batches"]}
    for batches in dumps.values():
        for batch in batches:
            row = bronze.pop((*batch.place, batch.base_offset), None)
            expected = _header(batch)
            tally.facts += len(expected)
            tally.judge(_batch_place(batch.place, batch.base_offset), _row_deltas(expected, row))
    for topic, partition, base_offset in bronze:
        tally.judge(_batch_place(Place(topic, partition), base_offset), ["not in the dump"])
    return tally


def _header(batch: DumpBatch) -> dict[str, Any]:
    controls = [record.control for record in batch.records if record.control in {"COMMIT", "ABORT"}]
    expected = {
        "last_offset": batch.last_offset,
        "leader_epoch": batch.leader_epoch,
        "record_count": batch.record_count,
        "magic": batch.magic,
        "codec": batch.codec.upper(),
        "timestamp_type": {"CreateTime": "CREATE_TIME", "LogAppendTime": "LOG_APPEND_TIME"}[batch.timestamp_type],
        "max_timestamp": _unless_none(batch.max_timestamp_ms),
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "control_type": controls[0] if controls else None,
        "crc_valid": batch.is_valid,
        "size": batch.size,
        "crc": batch.crc,
    }
    if batch.delete_horizon_ms is not None:
        expected["base_timestamp"] = batch.delete_horizon_ms
    elif batch.record_count == batch.last_offset - batch.base_offset + 1:
        expected["base_timestamp"] = batch.records[0].timestamp_ms
    return expected


def _unless_none(timestamp_ms: int) -> int | None:
    return None if timestamp_ms == -1 else timestamp_ms


def _row_deltas(expected: Mapping[str, Any], row: Row | None) -> list[str]:
    if row is None:
        return ["not in the table"]
    if "batch" in row:
        row = {**row, "size": len(row["batch"]), "crc": int.from_bytes(row["batch"][17:21], "big")}
    return [
        f"{name}: dump {value!r}, table {row.get(name)!r}" for name, value in expected.items() if row.get(name) != value
    ]


def _batch_place(place: Place, offset: int) -> str:
    return f"{place.topic}-{place.partition} {offset}"


def compare_records(tables: Tables, dumps: Mapping[str, Sequence[DumpBatch]]) -> Tally:
    """Every record in bronze, decoded by the core, with the dump's JSON of it: offset, time, key, value, marker."""
    tally = Tally("keys and values against the dump")
    rows = sorted(
        tables["bronze.record_batches"], key=lambda row: (row["topic"], row["partition"], row["base_offset"])
    )
    dumped = {
        (batch.place, record.offset): record
        for batches in dumps.values()
        for batch in batches
        for record in batch.records
    }
    for place, of_place in groupby(rows, key=lambda row: Place(row["topic"], row["partition"])):
        chunk = decode_chunk(b"".join(row["batch"] for row in of_place))
        for finding in chunk.findings:
            tally.judge(_batch_place(place, finding.base_offset or 0), [finding.message])
        for index, offset in enumerate(chunk.records.offset.tolist()):
            record = dumped.pop((place, offset), None)
            tally.facts += 2
            tally.judge(_batch_place(place, offset), _record_deltas(place.topic, chunk, index, record))
    for place, offset in dumped:
        tally.judge(_batch_place(place, offset), ["not in bronze"])
    return tally


def _record_deltas(topic: str, chunk: RecordChunk, index: int, record: DumpRecord | None) -> list[str]:
    if record is None:
        return ["not in the dump"]
    records = chunk.records
    expected: dict[str, Any] = {
        "timestamp": record.timestamp_ms,
        "key size": record.key_size,
        "value size": record.value_size,
    }
    got: dict[str, Any] = {
        "timestamp": int(records.timestamp_ms[index]),
        "key size": int(records.key_length[index]),
        "value size": int(records.value_length[index]),
    }
    key = _bytes_at(chunk, records.key_position[index], records.key_length[index])
    value = _bytes_at(chunk, records.value_position[index], records.value_length[index])
    if chunk.batches.is_control[records.batch_index[index]]:
        expected["is control"], got["is control"] = record.control is not None, True
    elif topic in REGISTRY:
        expected |= {"key": record.key, "value": record.value}
        got |= _coordinator_json(topic, key or b"", value)
    elif topic == CLUSTER_METADATA:
        try:
            decoded = decode_metadata(value or b"")
        except UnknownRecordType:
            pass  # the metadata log holds many types; the project declares those it reads
        else:
            data = to_json(decoded.fields, decoded.message, decoded.version)
            expected["value"] = record.value
            got["value"] = {"type": (record.value or {}).get("type"), "version": decoded.version, "data": data}
    return [
        f"{name}: dump {expected[name]!r}, decoded {got[name]!r}"
        for name in expected
        if expected[name] != got[name]
    ]


def _coordinator_json(topic: str, key: bytes, value: bytes | None) -> dict[str, Any]:
    named = decode_key(topic, key)
    got: dict[str, Any] = {
        "key": {"type": str(named.record_type), "data": to_json(named.fields, named.message, 0)},
        "value": None,
    }
    if value is not None:
        decoded = decode_value(topic, named.record_type, value)
        data = to_json(decoded.fields, decoded.message, decoded.version)
        if decoded.message is GROUP_METADATA_VALUE and data["protocolType"] == "consumer":
            for member, node in zip(decoded.fields.members, data["members"], strict=True):
                node["subscription"] = _embedded(CONSUMER_PROTOCOL_SUBSCRIPTION, member.subscription)
                node["assignment"] = _embedded(CONSUMER_PROTOCOL_ASSIGNMENT, member.assignment)
        got["value"] = {"version": str(decoded.version), "data": data}
    return got


def _embedded(message: wire.Message, data: bytes) -> dict[str, Any] | str:
    """What clients put inside a GroupMetadata value: the dump tool reads that too, in its own version."""
    if not data:
        return ""
    version = int.from_bytes(data[:2], "big")
    return to_json(decode(message, data, version, position=2), message, version)


def _bytes_at(chunk: RecordChunk, position: int, length: int) -> bytes | None:
    return None if length < 0 else chunk.data[position : position + length].tobytes()


# --- dumps: silver ---


def compare_offset_commits(tables: Tables, batches: Sequence[DumpBatch]) -> Tally:
    """silver.offset_commits with the dump, row by row and column by column, outcomes included."""
    return _compare_rows(
        "silver.offset_commits against the dump",
        oracle.offset_commits(batches),
        tables["silver.offset_commits"],
        ("log_partition", "log_offset"),
    )


def compare_reconciliations(tables: Tables, batches: Sequence[DumpBatch]) -> Tally:
    """One MEMBER_RECONCILED event for each value of types 8, 14 and 22, and no other."""
    names = oracle.Reconciled._fields
    events = [row for row in tables["silver.group_events"] if row["event_type"] == "MEMBER_RECONCILED"]
    return _compare_sets(
        "MEMBER_RECONCILED events against the dump",
        oracle.reconciliations(batches),
        (oracle.Reconciled(**{name: row[name] for name in names}) for row in events),
    )


def compare_generations(tables: Tables, batches: Sequence[DumpBatch]) -> Tally:
    """silver.group_generations with the stretches that types 2, 3, 11 and 17 of the dump make."""
    names = oracle.Generation._fields
    return _compare_sets(
        "silver.group_generations against the dump",
        oracle.generations(batches),
        (oracle.Generation(**{name: row[name] for name in names}) for row in tables["silver.group_generations"]),
    )


def compare_share_states(tables: Tables, batches: Sequence[DumpBatch]) -> Tally:
    """silver.share_partition_states and share_state_batches with the dump, record by record, offset by offset."""
    open_rows: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in tables["silver.share_state_batches"]:
        open_rows[row["group_id"], row["topic_id"], row["partition"]].append(row)
    states = []
    for row in tables["silver.share_partition_states"]:
        state = dict(row)
        state["changed"] = _deliveries(row["changed_batches"] or ())
        state["deliveries"] = _deliveries(
            batch
            for batch in open_rows[row["group_id"], row["topic_id"], row["partition"]]
            if batch["from_log_offset"] <= row["log_offset"]
            and (batch["to_log_offset"] is None or batch["to_log_offset"] > row["log_offset"])
        )
        states.append(state)
    expected = []
    for row in oracle.share_states(batches):
        named = {
            name: {
                offset: (oracle.DELIVERY_STATES[state], count) for offset, (state, count) in row[name].items()
            }
            for name in ("changed", "deliveries")
        }
        expected.append(row | named)
    key = ("group_id", "topic_id", "partition", "log_offset")
    return _compare_rows("silver.share_partition_states against the dump", expected, states, key)


def _deliveries(state_batches: Iterable[Mapping[str, Any]]) -> dict[int, tuple[str, int]]:
    deliveries: dict[int, tuple[str, int]] = {}
    for batch in state_batches:
        for offset in range(batch["first_offset"], batch["last_offset"] + 1):
            twice = ("TWICE", -1) if offset in deliveries else (batch["delivery_state"], batch["delivery_count"])
            deliveries[offset] = twice
    return deliveries


def _compare_rows(
    name: str, expected: Iterable[Mapping[str, Any]], rows: Iterable[Row], key: Sequence[str]
) -> Tally:
    tally = Tally(name)
    by_key: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        place = tuple(row[column] for column in key)
        if place in by_key:
            tally.judge(str(place), ["twice in the table"])
        by_key[place] = row
    for wanted in expected:
        place = tuple(wanted[column] for column in key)
        tally.facts += len(wanted)
        tally.judge(str(place), _row_deltas(wanted, by_key.pop(place, None)))
    for place in by_key:
        tally.judge(str(place), ["not in the dump"])
    return tally


def _compare_sets(name: str, expected: Iterable[Any], got: Iterable[Any]) -> Tally:
    tally = Tally(name)
    wanted, found = Counter(expected), Counter(got)
    for item in sorted({*wanted, *found}, key=str):
        missing = wanted[item] - found[item]
        text = f"{abs(missing)} {'missing' if missing > 0 else 'too many'}"
        tally.judge(str(item), [text] if missing else [])
    return tally


def coordinator_dumps(
    dumps: Mapping[str, Sequence[DumpBatch]],
) -> Iterator[tuple[str, Sequence[DumpBatch]]]:
    """The dumps of the two topics that silver is made of; absent ones are empty."""
    for topic in (CONSUMER_OFFSETS, SHARE_GROUP_STATE):
        yield topic, dumps.get(topic, ())
