"""Comparisons of one recording's tables with its truth and its dumps; each gives a tally, and names what differs."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from coordinator_core.bytes.codec import decode, decode_key, decode_metadata, decode_value
from coordinator_core.bytes.log.chunk import RecordChunk
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.bytes.printed.kafka_json import to_json
from coordinator_core.errors import UnknownRecordType
from coordinator_core.replay.lookup import SharePartitionKey, group_partition, share_partition_partition
from schemas import wire
from schemas.client_protocols import CONSUMER_PROTOCOL_ASSIGNMENT, CONSUMER_PROTOCOL_SUBSCRIPTION
from schemas.consumer_offsets.classic import GROUP_METADATA_VALUE
from schemas.group_types import GroupType
from schemas.registry import REGISTRY
from tests.conformance import oracle
from tests.conformance.dump import DumpBatch, DumpRecord, Place, read_dump
from tests.conformance.explained import SHARE_INITIALIZING, explanation, is_initializing
from tests.conformance.recordings import DECODED_OF, LOGS_BEFORE, Recording
from tests.conformance.tables import DELIVERY_STATE_CODES, Row, Tables, deltas, group_answers_of, share_answers_of
from tests.conformance.truth import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    Facts,
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

CLOCK_SLACK_MS: Final = 50
"""Clients and broker ran on one machine; their notes of one moment differ by a scheduling delay."""
COMMIT_TIMEOUT_MS: Final = 3000
"""How long a commit may have taken whose start was not noted."""

Moment = GroupAnswer | ShareAnswer


@dataclass(slots=True)
class Tally:
    """How a comparison went: compared = equal + explained + failed."""

    name: str
    compared: int = 0
    equal: int = 0
    facts: int = 0
    """Single values compared with each other, where a comparison has several."""
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


def compare_groups(tables: Tables, truth: Truth, is_comparable: Callable[[Moment], bool] = lambda _: True) -> Tally:
    """Every group a broker spoke of, and every group of the tables of which it did not, at every still moment."""
    tally = Tally("groups against the broker")
    for answer in group_answers(truth, tables.groups):
        if is_comparable(answer):
            expected, got = group_facts(answer.answer), group_answers_of(tables, answer)
            differences = deltas(expected, got)
            reason = explanation(answer, differences) if differences else None
            tally.facts += len({*expected, *got})
            tally.judge(_moment(answer), [_difference(d) for d in differences], reason)
    return tally


def compare_share_partitions(
    tables: Tables, truth: Truth, is_comparable: Callable[[Moment], bool] = lambda _: True
) -> Tally:
    """Every share partition's state, offset by offset, at every still moment."""
    tally = Tally("share partitions against the coordinator")
    for answer in share_answers(truth, tables.share_partitions):
        if is_comparable(answer):
            expected, got = share_facts(answer), share_answers_of(tables, answer)
            differences = deltas(expected, got)
            events = tables.of_group("silver.group_events", answer.group_id)
            reason = SHARE_INITIALIZING if got and differences and is_initializing(answer, got, events) else None
            tally.facts += len({*expected, *got})
            tally.judge(
                f"{_moment(answer)} {answer.topic}-{answer.partition}", [_difference(d) for d in differences], reason
            )
    return tally


def _moment(answer: Moment) -> str:
    return f"snapshot {answer.snapshot} ({answer.label}) {answer.group_id} at {answer.log_end}"


def _difference(difference: tuple[Sequence[Any], Any, Any]) -> str:
    path, expected, got = difference
    return f"{'/'.join(map(str, path))}: broker {expected!r}, tables {got!r}"


# --- dumps: bytes ---


def dumps_of(folder: Path) -> dict[str, list[DumpBatch]]:
    """The dumps of a `decoded` folder, by topic. What bronze has of other topics is compared with nothing."""
    return {path.name.removesuffix(".dump.txt.gz"): read_dump(path) for path in sorted(folder.glob("*.dump.txt.gz"))}


def compare_headers(tables: Tables, dumps: Mapping[str, Sequence[DumpBatch]]) -> Tally:
    """Every batch header of the dumps with its row of bronze.record_batches, both ways."""
    tally = Tally("batch headers against the dump")
    bronze = {
        (row["topic"], row["partition"], row["base_offset"]): row
        for row in tables["bronze.record_batches"]
        if row["topic"] in dumps
    }
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
        (row for row in tables["bronze.record_batches"] if row["topic"] in dumps),
        key=lambda row: (row["topic"], row["partition"], row["base_offset"]),
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
        f"{name}: dump {expected[name]!r}, decoded {got[name]!r}" for name in expected if expected[name] != got[name]
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
    """silver.offset_commits has each dumped commit and tombstone, with the values of its key, value and batch."""
    dumped = ((batch, it) for batch, it in _records(batches) if it.record_type in oracle.OFFSET_COMMIT_TYPES)
    return _compare_sets(
        "silver.offset_commits against the dump",
        (_commit(batch, record) for batch, record in dumped),
        (tuple(row[name] for name in COMMIT_COLUMNS) for row in tables["silver.offset_commits"]),
    )


COMMIT_COLUMNS: Final = (
    *("log_partition", "log_offset", "group_id", "topic", "partition"),
    *("topic_id", "committed_offset", "leader_epoch", "metadata", "commit_time"),
    *("expire_time", "recorded_at", "producer_id", "is_transactional"),
)


def _records(batches: Iterable[DumpBatch]) -> Iterator[tuple[DumpBatch, DumpRecord]]:
    return ((batch, record) for batch in batches for record in batch.records)


def _commit(batch: DumpBatch, record: DumpRecord) -> tuple[Any, ...]:
    """In the order of COMMIT_COLUMNS; a tombstone has nothing of a value."""
    assert record.key is not None
    key, value = record.key["data"], {} if record.value is None else record.value["data"]
    place = (batch.place.partition, record.offset, key["group"], key["topic"], key["partition"])
    epoch, expires = (_unless_none(value.get(name, -1)) for name in ("leaderEpoch", "expireTimestamp"))
    committed = (value.get("topicId"), value.get("offset"), epoch, value.get("metadata"), value.get("commitTimestamp"))
    return (*place, *committed, expires, record.timestamp_ms, batch.producer_id, batch.is_transactional)


def compare_reconciliations(tables: Tables, batches: Sequence[DumpBatch]) -> Tally:
    """One MEMBER_RECONCILED event for each value of types 8, 14 and 22, and no other."""
    names = oracle.Reconciled._fields
    events = [row for row in tables["silver.group_events"] if row["event_type"] == "MEMBER_RECONCILED"]
    return _compare_sets(
        "MEMBER_RECONCILED events against the dump",
        oracle.reconciliations(batches),
        (oracle.Reconciled(**{name: row[name] for name in names}) for row in events),
    )


def compare_intervals(tables: Tables, batches: Sequence[DumpBatch]) -> list[Tally]:
    """silver.group_generations, group_members and member_assignments with the intervals which the dumped records make.

    Assignments of Connect are left out: the dump shows them as bytes.
    """
    expected = oracle.spans(batches)
    opaque = {
        row["group_id"]
        for row in tables["silver.group_generations"]
        if row["protocol_type"] not in {None, "", "consumer"}
    }
    members = (
        (row["member_id"], tuple(sorted((name, _hashable(row[name])) for name in _member_columns(row))))
        for row in tables["silver.group_members"]
    )
    parts = (
        (
            row["member_id"],
            row["topic_id"],
            row["topic"] if row["topic_id"] is None else None,
            row["partition"],
            row["assignment"],
            row["task_type"],
        )
        for row in tables["silver.member_assignments"]
    )
    generations = ((row["generation"],) for row in tables["silver.group_generations"])
    return [
        _compare_sets(
            f"silver.{name} against the dump",
            wanted,
            [
                _interval(row, about)
                for row, about in zip(tables[f"silver.{name}"], abouts, strict=True)
                if row["group_id"] not in left_out
            ],
        )
        for name, wanted, abouts, left_out in (
            ("group_generations", expected.generations, generations, frozenset()),
            ("group_members", expected.members, members, frozenset()),
            (
                "member_assignments",
                [row for row in expected.assignments if row.group_id not in opaque],
                parts,
                opaque,
            ),
        )
    ]


def _member_columns(row: Row) -> list[str]:
    names = [
        "instance_id",
        "client_id",
        "client_host",
        "rack_id",
        "subscribed_topics",
        "subscribed_regex",
        "server_assignor",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    ]
    return names if row["group_type"] == GroupType.CLASSIC else [*names, "member_epoch"]


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _interval(row: Row, about: tuple[Any, ...]) -> oracle.Interval:
    generation = row.get("generation")
    return oracle.Interval(
        log_partition=row["log_partition"],
        group_id=row["group_id"],
        group_type=row["group_type"],
        about=about,
        from_generation=row["from_generation"] if generation is None else generation,
        to_generation=row["to_generation"] if generation is None else generation,
        from_log_offset=row["from_log_offset"],
        to_log_offset=row["to_log_offset"],
    )


def compare_share_states(tables: Tables, batches: Sequence[DumpBatch]) -> Tally:
    """silver.share_partition_states has each dumped snapshot, update and tombstone, with its epochs and deliveries."""
    rows = []
    for row in tables["silver.share_partition_states"]:
        is_value = row["record_kind"] != "TOMBSTONE"
        epochs = (row["snapshot_epoch"], row["leader_epoch"]) if is_value else (None, None)
        own = (
            (it["first_offset"], it["last_offset"], DELIVERY_STATE_CODES[it["delivery_state"]], it["delivery_count"])
            for it in row["changed_batches"] or ()
        )
        key = tuple(row[name] for name in ("group_id", "topic_id", "partition", "log_partition", "log_offset"))
        rows.append((*key, row["valid_from"], *epochs, _deliveries(own)))
    dumped = (_share_record(batch, record) for batch, record in _records(batches))
    return _compare_sets("silver.share_partition_states against the dump", dumped, rows)


def _share_record(batch: DumpBatch, record: DumpRecord) -> tuple[Any, ...]:
    assert record.key is not None
    key, value = record.key["data"], {} if record.value is None else record.value["data"]
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    own = (tuple(it[name] for name in names) for it in value.get("stateBatches", ()))
    place = (key["groupId"], key["topicId"], key["partition"], batch.place.partition, record.offset)
    return (*place, record.timestamp_ms, value.get("snapshotEpoch"), value.get("leaderEpoch"), _deliveries(own))


def _deliveries(state_batches: Iterable[tuple[int, ...]]) -> tuple[tuple[int, int, int], ...]:
    """(offset, state, count) of each offset."""
    return tuple((at, state, count) for first, last, state, count in state_batches for at in range(first, last + 1))


def _compare_sets(name: str, expected: Iterable[Any], got: Iterable[Any]) -> Tally:
    tally = Tally(name)
    wanted, found = Counter(expected), Counter(got)
    for item in sorted({*wanted, *found}, key=str):
        missing = wanted[item] - found[item]
        text = f"{abs(missing)} {'missing' if missing > 0 else 'too many'}"
        tally.judge(str(item), [text] if missing else [])
    return tally


# --- what clients saw ---


def compare_client_views(tables: Tables, recording: Recording) -> Tally:
    """What clients recorded (events.jsonl): assignments with their generation, commits, and ends of transactions."""
    tally = Tally("clients' own accounts")
    log_end_ms = max(row["max_timestamp"] or 0 for row in tables["bronze.record_batches"])
    with (recording.path / "truth" / "events.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            judge = CLIENT_EVENTS.get(event["ev"])
            if judge is not None and "group" in event and event["ts_ms"] <= log_end_ms:
                for name, is_found in judge(tables, event):
                    place = f"{event['ev']} {event['group']} {name} at {event['ts_ms']}"
                    tally.judge(place, [] if is_found else ["no such row"])
    return tally


def _assigned(tables: Tables, event: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """A partition given to a member; the generation of modern groups is its member epoch, at most the group's."""
    generation = event["generation"]
    own = [
        row
        for row in tables.of_group("silver.member_assignments", event["group"])
        if row["member_id"] == event["member_id"] and row["assignment"] != "TARGET"
    ]
    for name in event["partitions"]:
        yield (
            name,
            any(
                f"{row['topic']}-{row['partition']}" == name
                and (row["from_generation"] <= generation or row["group_type"] != GroupType.CLASSIC)
                and generation <= row["to_generation"]
                and row["valid_from"] <= event["ts_ms"] + CLOCK_SLACK_MS
                for row in own
            ),
        )


def _committed(tables: Tables, event: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """A plain commit which the broker confirmed. An unconfirmed one may be in the log or not."""
    if not event["ok"]:
        return
    ts0_ms = event.get("ts0_ms", event["ts_ms"] - COMMIT_TIMEOUT_MS)
    for name, offset in event["offsets"].items():
        yield (
            name,
            any(
                row["outcome"] == "APPLIED"
                and row["leader_epoch"] == offset["leader_epoch"]
                and ts0_ms - CLOCK_SLACK_MS <= row["recorded_at"] <= event["ts_ms"] + CLOCK_SLACK_MS
                for row in _commits_of(tables, event["group"], name, offset)
            ),
        )


def _transaction_ended(tables: Tables, event: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Offsets sent within a transaction: applied by its commit, else aborted. Metadata numbers the transactions."""
    outcome = {"commit": "APPLIED", "abort": "ABORTED"}[event["result"]]
    for name, offset in event.get("offsets", {}).items():
        if isinstance(offset, Mapping):
            rows = [row for row in _commits_of(tables, event["group"], name, offset) if row["producer_id"] != -1]
            yield name, [row["outcome"] for row in rows] == [outcome]


def _commits_of(tables: Tables, group_id: str, name: str, offset: Mapping[str, Any]) -> Iterator[Row]:
    for row in tables.of_group("silver.offset_commits", group_id):
        if (
            f"{row['topic']}-{row['partition']}" == name
            and row["committed_offset"] == offset["offset"]
            and row["metadata"] == offset["metadata"]
        ):
            yield row


CLIENT_EVENTS: Final[Mapping[str, Callable[[Tables, Mapping[str, Any]], Iterator[tuple[str, bool]]]]] = {
    "assigned": _assigned,
    "commit": _committed,
    "txn": _transaction_ended,
}


# --- holes ---


def log_ends(dumps: Mapping[str, Sequence[DumpBatch]]) -> dict[Place, int]:
    """End offset (exclusive) of each dumped log partition."""
    ends: dict[Place, int] = defaultdict(int)
    for batches in dumps.values():
        for batch in batches:
            ends[batch.place] = max(ends[batch.place], batch.last_offset + 1)
    return ends


def moments_of(recording: Recording) -> Callable[[Moment], bool]:
    """Which answers can be compared with a recording's log folder.

    All, of a log that is whole. Of the logs before cleaning, those given before they end. Of compacted or pruned logs
    those given after cleaning began about what no later record touches: of all else the log keeps only the newest.
    """
    if not (recording.path / LOGS_BEFORE).is_dir():
        return lambda answer: True
    ends = log_ends(dumps_of(recording.path / DECODED_OF[LOGS_BEFORE]))
    if not recording.is_compacted:
        return lambda answer: answer.log_end <= ends[_place(answer)]
    newest = _newest_records(dumps_of(recording.decoded))
    return lambda answer: answer.log_end >= ends[_place(answer)] and newest.get(_touched(answer), -1) < answer.log_end


def _place(answer: Moment) -> Place:
    topic = CONSUMER_OFFSETS if isinstance(answer, GroupAnswer) else SHARE_GROUP_STATE
    return Place(topic, answer.log_partition)


def _touched(answer: Moment) -> str | SharePartitionKey:
    if isinstance(answer, GroupAnswer):
        return answer.group_id
    return SharePartitionKey(answer.group_id, answer.topic_id, answer.partition)


def _newest_records(dumps: Mapping[str, Sequence[DumpBatch]]) -> dict[str | SharePartitionKey, int]:
    """Offset of the newest record of each group and of each share partition."""
    newest: dict[str | SharePartitionKey, int] = {}
    for batch in (*dumps.get(CONSUMER_OFFSETS, ()), *dumps.get(SHARE_GROUP_STATE, ())):
        for record in batch.records:
            if record.key is not None:
                named = record.key["data"]
                key: str | SharePartitionKey = named.get("groupId") or named.get("group")
                if batch.place.topic == SHARE_GROUP_STATE:
                    key = SharePartitionKey(named["groupId"], named["topicId"], named["partition"])
                newest[key] = max(newest.get(key, -1), record.offset)
    return newest


def compare_coverage(tables: Tables, dumps: Mapping[str, Sequence[DumpBatch]]) -> Tally:
    """Each log partition's coverage, offset by offset, with the records dumped; and quarantine, which must be empty."""
    tally = Tally("coverage against the dump")
    got: dict[Place, dict[int, str]] = defaultdict(dict)
    for row in (row for row in tables["bronze.coverage"] if row["topic"] in dumps):
        kinds = got[Place(row["topic"], row["partition"])]
        for offset in range(row["from_offset"], row["to_offset"] + 1):
            kinds[offset] = "TWICE" if offset in kinds else row["kind"]
    expected: dict[Place, dict[int, str]] = {}
    for place, of_place in groupby(
        oracle.in_log_order(batch for batches in dumps.values() for batch in batches), key=lambda batch: batch.place
    ):
        expected[place] = _coverage(list(of_place))
    for place in sorted({*expected, *got}):
        wanted, found = expected.get(place, {}), got.get(place, {})
        tally.facts += len(wanted)
        wrong = [o for o in sorted({*wanted, *found}) if wanted.get(o) != found.get(o)]
        tally.judge(_batch_place(place, 0), [f"{o}: dump {wanted.get(o)}, coverage {found.get(o)}" for o in wrong])
    for row in tables["bronze.quarantine"]:
        tally.judge(f"quarantine {row['topic']}-{row['partition']} {row['offset']}", [row["code"]])
    return tally


def _coverage(batches: Sequence[DumpBatch]) -> dict[int, str]:
    """Below the oldest segment the log was deleted; inside, an offset without a record was compacted away."""
    log_start = min(int(batch.file_name.removesuffix(".log")) for batch in batches)
    seen = {record.offset for batch in batches for record in batch.records}
    end = max(batch.last_offset for batch in batches) + 1
    return {
        offset: "MISSING" if offset < log_start else "CAPTURED" if offset in seen else "COMPACTED"
        for offset in range(end)
    }


def compare_end_states(before: Tables, after: Tables, compacted: Recording) -> Tally:
    """Each group's and share partition's last state, by the whole log and by the compacted one.

    What was written on after the whole log ends is compared with the broker instead (`moments_of`).
    """
    tally = Tally("end states against the uncompacted logs")
    ends = log_ends(dumps_of(compacted.path / DECODED_OF[LOGS_BEFORE]))
    newest = _newest_records(dumps_of(compacted.decoded))
    partition_counts = Counter(place.topic for place in ends)
    for group_id in sorted(before.groups | after.groups):
        partition = group_partition(group_id, partition_counts[CONSUMER_OFFSETS])
        log_end = ends[Place(CONSUMER_OFFSETS, partition)]
        if newest.get(group_id, -1) < log_end:
            answer = GroupAnswer(-1, "end", group_id, partition, log_end, None)
            _judge_end(tally, group_id, group_answers_of(before, answer), group_answers_of(after, answer))
    for key in sorted(before.share_partitions | after.share_partitions):
        partition = share_partition_partition(key, partition_counts[SHARE_GROUP_STATE])
        log_end = ends[Place(SHARE_GROUP_STATE, partition)]
        if newest.get(key, -1) < log_end:
            share = ShareAnswer(
                snapshot=-1,
                label="end",
                group_id=key.group_id,
                topic="",
                topic_id=key.topic_id,
                partition=key.partition,
                log_partition=partition,
                log_end=log_end,
                state=None,
                listed=None,
                group_log_end=0,
            )
            _judge_end(tally, str(key), share_answers_of(before, share), share_answers_of(after, share))
    return tally


def _judge_end(tally: Tally, place: str, whole: Facts, compacted: Facts) -> None:
    tally.facts += len({*whole, *compacted})
    tally.judge(
        place, [f"{'/'.join(map(str, path))}: whole {a!r}, compacted {b!r}" for path, a, b in deltas(whole, compacted)]
    )


def compare_contiguity(tables: Tables) -> Tally:
    """group_generations.is_contiguous, from the numbers of the rows themselves: false exactly where one is missing.

    A group seen from its beginning starts at generation 0 or 1 (classic), at epoch 1 or 2 (facts 5 and 8).
    """
    tally = Tally("contiguity of generations")
    ordered = sorted(
        tables["silver.group_generations"],
        key=lambda row: (row["group_id"], row["incarnation"], row["from_log_offset"]),
    )
    for group_id, of_group in groupby(ordered, key=lambda row: row["group_id"]):
        previous: Row | None = None
        for row in of_group:
            generation = row["generation"]
            is_first = previous is None or previous["incarnation"] != row["incarnation"]
            if is_first or previous is None:
                wanted: tuple[int | None, bool] = (
                    None,
                    generation <= (1 if row["group_type"] == GroupType.CLASSIC else 2),
                )
            else:
                # an online conversion keeps the number, or raises it in the same operation
                kept = {previous["generation"]} if previous["group_type"] != row["group_type"] else set()
                wanted = previous["generation"], generation in {previous["generation"] + 1, *kept}
            got = row["previous_generation"], row["is_contiguous"]
            tally.judge(f"{group_id} {generation}", [] if got == wanted else [f"wanted {wanted}, table {got}"])
            previous = row
    return tally


def holes_said(tables: Tables) -> dict[str, int]:
    """How many rows say that they stand on a hole, by the way in which they say it."""
    return {
        "coverage COMPACTED": sum(row["kind"] == "COMPACTED" for row in tables["bronze.coverage"]),
        "coverage MISSING": sum(row["kind"] == "MISSING" for row in tables["bronze.coverage"]),
        "generations not contiguous": sum(not row["is_contiguous"] for row in tables["silver.group_generations"]),
        "share states not complete": sum(not row["is_complete"] for row in tables["silver.share_partition_states"]),
    }
