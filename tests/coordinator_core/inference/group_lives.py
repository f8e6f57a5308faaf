"""Groups to infer from: written as the coordinator's operations, and replayed into rows as the replay job does."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from coordinator_core.bytes.client_protocols import Assignment, Subscription, encode_assignment, encode_subscription
from coordinator_core.bytes.codec import encode_key, encode_value, make
from coordinator_core.bytes.log.batch import NO_TIMESTAMP
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.history.groups import GroupHistory
from coordinator_core.history.offsets_log import OffsetsLogReplay, OffsetsLogState
from coordinator_core.history.operations import GroupRecord, Operation
from coordinator_core.history.rows import GroupRows
from coordinator_core.inference.audit.groups import GroupGold
from coordinator_core.inference.facts.life import NO_EXPIRY, GroupCommits, GroupLife
from coordinator_core.replay.columnar.offsets_columnar import CHANGES, OUTCOMES
from schemas.consumer_offsets import TOPIC as LOG_TOPIC
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.offsets import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from tests.coordinator_core.group_records import Record, record
from tests.coordinator_core.live.offsets.reference import LogBatch, LogRecord, Row, encode_batches, rows_of

GROUP = "g"
TOPIC = "t"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SESSION_MS = 45_000
REBALANCE_MS = 300_000
ROWS: Final = ("generations", "members", "assignments", "events")

Partitions = Mapping[str, Sequence[int]]
"""Member id -> partitions of TOPIC."""


def classic(
    generation: int,
    partitions: Partitions,
    *,
    state_at: int = -1,
    protocol: str = "range",
    instances: Mapping[str, str] | None = None,
    topics: Mapping[str, Sequence[str]] | None = None,
    host: str = "/h",
    hosts: Mapping[str, str] | None = None,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    assigned: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    user_data: bytes | None = None,
) -> list[Record]:
    """A generation of a classic group: the whole picture in one record. `assigned`: of more topics than TOPIC.
    `user_data`: of each assignment."""
    members = [
        {
            "member_id": member_id,
            "client_id": f"client-{member_id}",
            "client_host": (hosts or {}).get(member_id, host),
            "rebalance_timeout": rebalance_ms,
            "session_timeout": session_ms,
            "group_instance_id": (instances or {}).get(member_id),
            "subscription": encode_subscription(
                Subscription(version=3, topics=tuple((topics or {}).get(member_id, (TOPIC,))))
            ),
            "assignment": encode_assignment(
                Assignment(
                    version=3,
                    assigned_partitions=tuple(
                        (topic, tuple(numbers))
                        for topic, numbers in (assigned or {}).get(member_id, {TOPIC: owned}).items()
                    ),
                    user_data=user_data,
                )
            ),
        }
        for member_id, owned in partitions.items()
    ]
    value = {
        "protocol_type": "consumer",
        "generation": generation,
        "protocol": protocol if members else None,
        "leader": next(iter(partitions), None),
        "current_state_timestamp": state_at,
        "members": members,
    }
    return [record(RecordType.GROUP_METADATA, {"group": GROUP}, value)]


def batches_of(reported: Sequence[Sequence[LogRecord]], *, without_time: Collection[int] = ()) -> list[bytes]:
    """A batch of each operation, a second apart; some, by their number, without any time."""
    timed = (
        LogBatch(
            tuple(
                record._replace(timestamp_ms=NO_TIMESTAMP if number in without_time else 1_000 * number)
                for record in records
            )
        )
        for number, records in enumerate(reported)
    )
    return encode_batches(list(timed))


def generation(number: int, partitions: Partitions, **reported: Any) -> list[LogRecord]:
    """As `classic` tells it, in bytes."""
    records = classic(number, partitions, **reported)
    return [
        LogRecord(encode_key(LOG_TOPIC, type_, key), encode_value(LOG_TOPIC, type_, 3, value), 0)
        for type_, key, value in records
        if value is not None
    ]


def unowned_ms(gold: GroupGold) -> tuple[list[tuple[str, int]], ...]:
    """Group and time without an owner of each row of owners, rebalances and days."""
    return (
        [(owner.group_id, owner.unowned_partition_ms) for owner in gold.owners],
        [(rebalance.group_id, rebalance.unowned_partition_ms or 0) for rebalance in gold.rebalances],
        [(day.group_id, day.unowned_partition_ms) for day in gold.days],
    )


def commit(offset: int | None, partition: int = 0, group_id: str = GROUP) -> list[LogRecord]:
    """An offset of the group; None: it is deleted."""
    key = make(OFFSET_COMMIT_KEY, group=group_id, topic=TOPIC, partition=partition)
    kind = RecordType.OFFSET_COMMIT
    value = None if offset is None else encode_value(LOG_TOPIC, kind, 4, make(OFFSET_COMMIT_VALUE, offset=offset))
    return [LogRecord(encode_key(LOG_TOPIC, kind, key), value, 0)]


def moved_member() -> tuple[list[bytes], int]:
    """A log in batches, and how many of them there are before one of two members comes back from another host. An
    offset of each went back."""
    both: Partitions = {"m": [0], "other": [1]}
    before = [generation(1, both, host="/old"), commit(10), commit(5), commit(10, 1), commit(5, 1)]
    since = [generation(2, both, host="/new", hosts={"other": "/old"}), commit(20)]
    return batches_of([*before, *since]), len(before)


def joins(member_id: str, instance_id: str | None = None, regex: str | None = None, host: str = "/h") -> list[Record]:
    """A member comes to a consumer group."""
    value = {
        "instance_id": instance_id,
        "client_id": f"client-{member_id}",
        "client_host": host,
        "subscribed_topic_names": (TOPIC,) if regex is None else (),
        "subscribed_topic_regex": regex,
        "rebalance_timeout_ms": REBALANCE_MS,
    }
    key = {"group_id": GROUP, "member_id": member_id}
    return [record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, key, value)]


def goes(member_id: str) -> list[Record]:
    """A member goes from a consumer group, whatever the reason."""
    key = {"group_id": GROUP, "member_id": member_id}
    return [
        record(record_type, key, None)
        for record_type in (
            RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        )
    ]


def epoch(number: int, metadata_hash: int = 7) -> list[Record]:
    """The group epoch is raised."""
    value = {"epoch": number, "metadata_hash": metadata_hash}
    return [record(RecordType.CONSUMER_GROUP_METADATA, {"group_id": GROUP}, value)]


def target(number: int, partitions: Partitions) -> list[Record]:
    """A target is computed for a group epoch."""
    members = [
        record(
            RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            {"group_id": GROUP, "member_id": member_id},
            {"topic_partitions": [_owned(owned)] if owned else []},
        )
        for member_id, owned in partitions.items()
    ]
    value = {"assignment_epoch": number}
    return [*members, record(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, {"group_id": GROUP}, value)]


def reconciled(
    member_id: str, number: int, owned: Sequence[int], *, revoking: Sequence[int] = (), state: int = 0
) -> list[Record]:
    """A member is given its assignment for an epoch. States: 0 STABLE, 1 UNREVOKED, 2 UNRELEASED partitions."""
    value = {
        "member_epoch": number,
        "previous_member_epoch": number,
        "state": state,
        "assigned_partitions": [_owned(owned)] if owned else [],
        "partitions_pending_revocation": [_owned(revoking)] if revoking else [],
    }
    key = {"group_id": GROUP, "member_id": member_id}
    return [record(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, value)]


def _owned(partitions: Sequence[int]) -> dict[str, Any]:
    return {"topic_id": TOPIC_ID, "partitions": tuple(partitions)}


def life_of(
    operations: Iterable[tuple[int, Sequence[Record]]], commits: Iterable[tuple[int, int, int]] = ()
) -> GroupLife:
    """The life of a group: operations as (time in ms, records), commits as (time in ms, partition, offset).

    Both are laid into one log, in the order of time; at one time operations come first.
    """
    history = GroupHistory()
    reported: list[tuple[int, int, int, Any]] = [(at, 0, index, what) for index, (at, what) in enumerate(operations)]
    reported.extend((at, 1, index, (partition, offset)) for index, (at, partition, offset) in enumerate(commits))
    reported.sort(key=lambda step: step[:3])
    log_offset = 0
    committed: list[tuple[int, int, int, int]] = []
    for at, kind, _, what in reported:
        if kind:
            committed.append((at, log_offset, what[0], what[1]))
            log_offset += 1
            continue
        records = [GroupRecord(log_offset + index, *one) for index, one in enumerate(what)]
        log_offset += len(records)
        history.apply(Operation(GROUP, at, records[-1].offset, records))
    rows = history.finish()
    return GroupLife(
        GROUP,
        0,
        tuple(rows.generations),
        tuple(rows.members),
        tuple(
            row if row.topic or row.group_type == "CLASSIC" else row._replace(topic=TOPIC) for row in rows.assignments
        ),
        tuple(rows.events),
        _columns(committed),
    )


def _columns(committed: Sequence[tuple[int, int, int, int]]) -> GroupCommits:
    at, log_offset, partition, offset = np.array(committed, np.int64).reshape(-1, 4).T
    count = len(committed)
    known = dict[int, int]()
    changes = []
    for _, _, of_partition, to in committed:
        before = known.get(of_partition, -1)
        changes.append("ADVANCE" if to > before else "REPEAT" if to == before else "REWIND")
        known[of_partition] = to
    return GroupCommits(
        topics=(TOPIC,),
        topic=np.zeros(count, np.int32),
        partition=partition.astype(np.int32),
        log_offset=log_offset,
        recorded_at_ms=at,
        applied_log_offset=log_offset,
        applied_at_ms=at,
        committed_offset=offset,
        previous_offset=np.full(count, -1, np.int64),
        outcome=np.full(count, OUTCOMES.index("APPLIED"), np.int8),
        change=np.array([CHANGES.index(change) for change in changes], np.int8),
        is_transactional=np.zeros(count, np.bool_),
    )


class Replayed:
    """A log as far as it is replayed: the rows of its groups, and which of them the newest run touched."""

    def __init__(self, before: "Replayed | None", batches: list[bytes]) -> None:
        replay = OffsetsLogReplay(None if before is None else before.state)
        data = np.frombuffer(b"".join(batches), np.uint8)
        output = replay.feed(decode_chunk(data, bytes_max=2**20, chunk_bytes_max=2**22, crc="skip"))
        self.state: OffsetsLogState = replay.export_state()
        last = replay.finish()
        self.serialized = set(replay.serialized)
        self.commits: dict[int, Row] = {} if before is None else dict(before.commits)
        self.commits |= {row.log_offset: row for part in (output, last) for row in rows_of(part.commits)}
        self.settled = GroupRows()
        if before is not None:
            self.settled.extend(before.settled)
        self.settled.extend(output.groups)
        self.open = GroupRows()
        self.open.extend(last.groups)
        if before is not None:
            for name in ("generations", "members"):
                rows = [row for row in getattr(before.open, name) if row.group_id in self.serialized]
                getattr(self.open, name).extend(rows)
            for run, assigned in before.open.assignments.by_run():
                if run.group_id in self.serialized:
                    self.open.assignments.append(run, assigned)

    def life(self, group_id: str) -> GroupLife:
        """All that is known of one group."""

        def rows(name: str) -> tuple[Any, ...]:
            every = [*getattr(self.settled, name), *getattr(self.open, name)]
            return tuple(row for row in every if row.group_id == group_id)

        own = [row for row in self.commits.values() if row.group == group_id]
        return GroupLife(
            group_id, 0, rows("generations"), rows("members"), rows("assignments"), rows("events"), commits_of(own)
        )

    @property
    def group_ids(self) -> set[str]:
        """All there is anything of."""
        rows = chain.from_iterable(getattr(part, name) for part in (self.settled, self.open) for name in ROWS)
        return {row.group_id for row in rows} | {row.group for row in self.commits.values()}

    def pieces(self, from_log_offset: int) -> Iterable[tuple[GroupCommits, np.ndarray, tuple[str, ...]]]:
        """Its commits, some at a time, in no order of groups."""
        rows = [row for row in self.commits.values() if row.log_offset >= from_log_offset]
        for some in (rows[::2], rows[1::2]):
            ids = tuple({row.group for row in some})
            ordered = sorted(some, key=lambda row: row.log_offset)
            yield commits_of(some), np.array([ids.index(row.group) for row in ordered], np.int64), ids


def commits_of(rows: list[Row]) -> GroupCommits:
    def numbers(name: str) -> np.ndarray:
        return np.array([-1 if getattr(row, name) is None else getattr(row, name) for row in rows], np.int64)

    rows = sorted(rows, key=lambda row: row.log_offset)
    topics = tuple(sorted({row.topic for row in rows}))
    return GroupCommits(
        topics=topics,
        topic=np.array([topics.index(row.topic) for row in rows], np.int32),
        partition=numbers("partition").astype(np.int32),
        log_offset=numbers("log_offset"),
        recorded_at_ms=numbers("recorded_at_ms"),
        applied_log_offset=numbers("applied_log_offset"),
        applied_at_ms=numbers("applied_at_ms"),
        committed_offset=numbers("committed_offset"),
        previous_offset=numbers("previous_offset"),
        outcome=np.array([OUTCOMES.index(row.outcome) for row in rows], np.int8),
        change=np.array([-1 if row.change is None else CHANGES.index(row.change) for row in rows], np.int8),
        is_transactional=np.array([bool(row.is_transactional) for row in rows], np.bool_),
        expire_at_ms=np.array([row.expire_time_ms or NO_EXPIRY for row in rows], np.int64),
    )
