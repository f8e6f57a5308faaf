"""Small logs made by hand for tests of whole nights: records with the times one wants, as segments."""

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from coordinator_core.bytes.codec import encode_key, encode_value, make
from coordinator_core.bytes.log.batch import Record, build_batch, build_marker
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.registry import REGISTRY
from schemas.share_group_state import (
    SHARE_SNAPSHOT_KEY,
    SHARE_SNAPSHOT_VALUE,
    SHARE_UPDATE_KEY,
    SHARE_UPDATE_VALUE,
    STATE_BATCH,
    ShareStateRecordType,
)
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from tests.coordinator_core.group_records import T1, record

NOON_MS: Final = 1_780_000_000_000
"""2026-05-28T20:26:40Z."""
SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 300_000


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def assignment(topic: str, *partitions: int) -> bytes:
    """ConsumerProtocolAssignment, version 0."""
    head = struct.pack(">hi", 0, 1) + struct.pack(">h", len(topic)) + topic.encode()
    return head + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions) + struct.pack(">i", -1)


class SmallLog:
    """One log partition, record by record, each in a batch of its own."""

    def __init__(self, partition: int = 0, topic: str = TOPIC) -> None:
        self.topic = topic
        self.partition = partition
        self.batches: list[bytes] = []
        self.next_offset = 0
        self.leader_epoch = 0

    def write(self, root: Path) -> Path:
        """As a segment under a folder of logs, which is given back."""
        folder = root / f"{self.topic}-{self.partition}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{0:020d}.log").write_bytes(b"".join(self.batches))
        return root

    def write_behind(self, root: Path) -> Path:
        """As another segment of a log partition that is in a folder of logs already."""
        begin = self.next_offset - len(self.batches)
        folder = root / f"{self.topic}-{self.partition}"
        (folder / f"{begin:020d}.log").write_bytes(b"".join(self.batches))
        return root

    def skip(self, count: int) -> None:
        """Offsets which the cleaner took."""
        self.next_offset += count

    def put(self, key: bytes, value: bytes | None, at_ms: int | None, *, magic: int = 2, producer_id: int = -1) -> None:
        """One record. `at_ms` None: it has no time; magic 0 has no room for one."""
        at = -1 if at_ms is None else at_ms
        if magic < 2:
            body = bytes((magic, 0)) + (struct.pack(">q", at) if magic else b"")
            body += b"".join(
                struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part for part in (key, value)
            )
            whole = struct.pack(">I", zlib.crc32(body)) + body
            self.batches.append(struct.pack(">qi", self.next_offset, len(whole)) + whole)
        else:
            records = [Record(self.next_offset, at, key, value)]
            is_transactional = producer_id >= 0
            epoch = 0 if is_transactional else -1
            batch = build_batch(
                records,
                leader_epoch=self.leader_epoch,
                is_transactional=is_transactional,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            self.batches.append(batch)
        self.next_offset += 1

    def marker(self, at_ms: int, producer_id: int, *, is_commit: bool = True) -> None:
        """The end of a transaction."""
        batch = build_marker(
            offset=self.next_offset,
            timestamp_ms=at_ms,
            producer_id=producer_id,
            producer_epoch=0,
            is_commit=is_commit,
            coordinator_epoch=0,
        )
        self.batches.append(batch)
        self.next_offset += 1

    def group_record(
        self, record_type: RecordType, key: dict[str, Any], value: dict[str, Any] | None, at_ms: int | None, **how: Any
    ) -> None:
        """Any record of a group, from the fields that are not at their defaults. `version`: of the value."""
        version = how.pop("version", _newest_version(record_type))
        _, key_fields, value_fields = record(record_type, key, value)
        data = None if value_fields is None else encode_value(TOPIC, record_type, version, value_fields)
        self.put(encode_key(TOPIC, record_type, key_fields), data, at_ms, **how)

    def commit(self, group_id: str, partition: int, offset: int | None, at_ms: int | None, **how: Any) -> None:
        """A commit to a partition of topic `in`, or its tombstone. `commit_ms`: the time that the value carries;
        `topic_id`: of version 4."""
        value = None
        commit_ms, topic = how.pop("commit_ms", at_ms), how.pop("topic", "in")
        topic_id = how.pop("topic_id", None)
        if offset is not None:
            value = {
                "offset": offset,
                "leader_epoch": -1,
                "metadata": "",
                "commit_timestamp": -1 if commit_ms is None else commit_ms,
            }
            if topic_id is not None:
                value["topic_id"], how["version"] = topic_id, 4
        key = {"group": group_id, "topic": topic, "partition": partition}
        self.group_record(RecordType.OFFSET_COMMIT, key, value, at_ms, **({"version": 3} | how))

    def expiring_commit(self, group_id: str, offset: int, at_ms: int, *, expire_ms: int) -> None:
        """A commit to partition 0 of topic `in`, as brokers before 2.1 wrote it: the value has its expiry."""
        value = {"offset": offset, "metadata": "", "commit_timestamp": at_ms, "expire_timestamp": expire_ms}
        key = {"group": group_id, "topic": "in", "partition": 0}
        self.group_record(RecordType.OFFSET_COMMIT, key, value, at_ms, version=1)

    def generation(
        self, group_id: str, generation: int, members: Mapping[str, tuple[int, ...]], at_ms: int | None, **how: Any
    ) -> None:
        """A generation of a classic group whose members read topic `in`. `state_ms`: of its state; `instances`: group
        instance ids by member."""
        instances = how.pop("instances", {})
        state_ms = how.pop("state_ms", at_ms)
        value = {
            "protocol_type": "consumer",
            "generation": generation,
            "protocol": "range" if members else None,
            "leader": min(members, default=None),
            "current_state_timestamp": -1 if state_ms is None else state_ms,
            "members": tuple(
                {
                    "member_id": member_id,
                    "group_instance_id": instances.get(member_id),
                    "client_id": member_id,
                    "client_host": f"/{member_id}",
                    "rebalance_timeout": REBALANCE_MS,
                    "session_timeout": SESSION_MS,
                    "subscription": subscription("in"),
                    "assignment": assignment("in", *partitions),
                }
                for member_id, partitions in members.items()
            ),
        }
        self.group_record(RecordType.GROUP_METADATA, {"group": group_id}, value, at_ms, **({"version": 3} | how))

    def snapshot(
        self, group_id: str, at_ms: int | None, batches: tuple[tuple[int, int, int, int], ...], **how: Any
    ) -> None:
        """A ShareSnapshot of partition 0 of a topic: first offset, last offset, delivery state and count of each.
        `is_tagged`: it has a tagged field that no declaration has."""
        tagged_fields = b"\1\x63\1\0" if how.pop("is_tagged", False) else b"\0"
        fields = {
            "snapshot_epoch": how.pop("snapshot_epoch", 0),
            "leader_epoch": how.pop("leader_epoch", 0),
            "start_offset": how.pop("start_offset", 0),
            "create_timestamp": -1 if at_ms is None else at_ms,
            "write_timestamp": -1 if at_ms is None else at_ms,
            "state_batches": _state_batches(batches),
        }
        key = make(SHARE_SNAPSHOT_KEY, group_id=group_id, topic_id=T1, partition=0)
        kind = ShareStateRecordType.SHARE_SNAPSHOT
        value = encode_value(SHARE_TOPIC, kind, 0, make(SHARE_SNAPSHOT_VALUE, **fields))
        self.put(encode_key(SHARE_TOPIC, kind, key), value[:-1] + tagged_fields, at_ms, **how)

    def tombstone(self, group_id: str, at_ms: int) -> None:
        """The end of the state of the same partition."""
        key = make(SHARE_SNAPSHOT_KEY, group_id=group_id, topic_id=T1, partition=0)
        self.put(encode_key(SHARE_TOPIC, ShareStateRecordType.SHARE_SNAPSHOT, key), None, at_ms)

    def update(
        self, group_id: str, at_ms: int, batches: tuple[tuple[int, int, int, int], ...], start: int = -1
    ) -> None:
        """A ShareUpdate of the same partition."""
        fields = {"leader_epoch": 0, "start_offset": start, "state_batches": _state_batches(batches)}
        key = make(SHARE_UPDATE_KEY, group_id=group_id, topic_id=T1, partition=0)
        kind = ShareStateRecordType.SHARE_UPDATE
        value = encode_value(SHARE_TOPIC, kind, 0, make(SHARE_UPDATE_VALUE, **fields))
        self.put(encode_key(SHARE_TOPIC, kind, key), value, at_ms)


def _state_batches(batches: tuple[tuple[int, int, int, int], ...]) -> tuple[Any, ...]:
    return tuple(
        make(STATE_BATCH, first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    )


def _newest_version(record_type: RecordType) -> int:
    _, message = REGISTRY[TOPIC][record_type]
    return int(message.versions.split("-")[-1].rstrip("+"))
