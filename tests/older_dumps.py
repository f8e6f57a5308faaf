"""Small logs as Kafka 0.9 to 2.x wrote them, for which `tests/data/older_dumps` has what kafka-dump-log of each release
prints: `2.8.2-magic-2.txt` is the tool of 2.8.2 on a segment of magic 2. `tests/live/test_older_dumps.py` runs them.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from coordinator_core.codec import encode_key, encode_value, make
from coordinator_core.log.batch import Record, build_batch, build_marker
from coordinator_core.log.compression import Codec
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.registry import REGISTRY
from schemas.transaction_state import PARTITIONS_SCHEMA, TRANSACTION_LOG, TransactionStatus
from schemas.transaction_state import TOPIC as TRANSACTIONS
from tests.cases.small_logs import assignment, subscription
from tests.conftest import PROJECT_ROOT
from tests.coordinator_core.group_records import record

PRINTED: Final = PROJECT_ROOT / "tests" / "data" / "older_dumps"
PARTITION: Final = 7
FIRST_MS: Final = 1_700_000_000_000
DAY_MS: Final = 86_400_000
MAGIC_2: Final = "magic-2"
MAGIC_1: Final = "magic-1"
MAGIC_0: Final = "magic-0"
STATE: Final = "transactions"

KeyValue = tuple[bytes, bytes | None]


def group_record(kind: RecordType, key: dict[str, Any], value: dict[str, Any] | None, version: int) -> KeyValue:
    """Key and value of any record of groups."""
    _, key_fields, fields = record(kind, key, value)
    return encode_key(TOPIC, kind, key_fields), None if fields is None else encode_value(TOPIC, kind, version, fields)


def commit(group: str, topic: str, partition: int, offset: int | None, at_ms: int, metadata: str = "") -> KeyValue:
    """A commit as it was written until 2.0, with its expiry; without an offset its tombstone."""
    times = {"commit_timestamp": at_ms, "expire_timestamp": at_ms + DAY_MS}
    value = None if offset is None else {"offset": offset, "metadata": metadata, **times}
    return group_record(
        RecordType.OFFSET_COMMIT, {"group": group, "topic": topic, "partition": partition}, value, version=1
    )


def generation(
    group: str, number: int, members: dict[str, bytes], version: int, protocol_type: str = "consumer"
) -> KeyValue:
    """A generation of a group, with the assignment of each member."""
    value = {
        "protocol_type": protocol_type,
        "generation": number,
        "protocol": "range" if members else None,
        "leader": min(members, default=None),
        "members": tuple(
            {
                "member_id": member_id,
                "client_id": f"c-{member_id}",
                "client_host": "/127.0.0.1",
                **({"rebalance_timeout": 300_000} if version else {}),
                "session_timeout": 10_000,
                "subscription": subscription("orders"),
                "assignment": assigned,
            }
            for member_id, assigned in members.items()
        ),
    }
    return group_record(RecordType.GROUP_METADATA, {"group": group}, value, version)


def assigned(*partitions: int, user_data: bytes = b"") -> bytes:
    """An assignment with user data, which the oldest tools need."""
    return assignment("orders", *partitions)[:-4] + struct.pack(">i", len(user_data)) + user_data


def operations(version: int) -> Iterator[list[KeyValue]]:
    """What is written at once, a millisecond apart: names with separators of the printed texts in them, texts of
    several lines, and deletions. `version`: of groups; the tool of 0.9 knows version 0 alone, no group without members,
    and fails at user data."""
    at_ms = iter(range(FIRST_MS, FIRST_MS + 100))
    yield [generation("g", 1, {"m-1": assigned(0, 1), "m=2,x": assigned(2, user_data=b"\x01\xff" * version)}, version)]
    now = next(at_ms)
    yield [
        commit("g", "orders", 0, 5, now),
        commit("g", "orders", 1, 7, now, "some: text"),
        commit("g", "a-b.c_d", 12, 2**40, now),
    ]
    yield [commit("g:x,partition=a-1", "orders", 0, 5, next(at_ms), "two\nlines, \n\noffset=7")]
    yield [commit("grüße", "orders", 0, 5, next(at_ms), "é key: 1 payload: 2")]
    yield [generation("connect", 3, {"w": b"\x00\x01\x02" * version}, version, "connect")]
    if version:
        yield [generation("g", 2, {}, version)]
    yield [commit("g", "orders", 1, None, 0)]
    yield [group_record(RecordType.GROUP_METADATA, {"group": "gone"}, None, version=1)]
    yield [commit("h", "orders", 0, 9, next(at_ms))]


def magic_2() -> list[bytes]:
    """Batches, a transaction that is aborted, a hole, and a compressed batch that lost records."""
    batches, offset = [], 0
    for number, records in enumerate(operations(1)):
        rows = [Record(offset + index, FIRST_MS + number, *it) for index, it in enumerate(records)]
        batches.append(build_batch(rows, leader_epoch=3))
        offset += len(records)
    writer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 2, "leader_epoch": 3}
    at_ms = FIRST_MS + 20
    pending = Record(offset, at_ms, *commit("tx", "orders", 0, 50, at_ms))
    batches.append(build_batch([pending], is_transactional=True, base_sequence=0, **writer))
    batches.append(
        build_marker(offset=offset + 1, timestamp_ms=at_ms + 1, is_commit=False, coordinator_epoch=4, **writer)
    )
    first = offset + 4
    kept = [Record(first + it, at_ms + 2 + it, *commit("z", "orders", 0, 51 + it, at_ms + 2)) for it in (1, 3)]
    batches.append(build_batch(kept, base_offset=first, last_offset=first + 4, leader_epoch=3, codec_id=Codec.GZIP))
    return batches


def legacy(magic: int) -> list[bytes]:
    """Messages of magic 0 or 1, the last three compressed as one."""
    messages, offset = [], 0
    for number, records in enumerate(operations(magic)):
        for it in records:
            messages.append(message(magic, offset, FIRST_MS + number, *it))
            offset += 1
    at_ms = FIRST_MS + 30
    inner = [
        message(magic, it if magic else offset + it, at_ms + it, *commit("z", "orders", 0, 60 + it, at_ms))
        for it in range(3)
    ]
    messages.append(message(magic, offset + 2, at_ms + 2, None, gzip.compress(b"".join(inner), mtime=0), attributes=1))
    return messages


def message(
    magic: int, offset: int, at_ms: int, key: bytes | None, value: bytes | None, *, attributes: int = 0
) -> bytes:
    """One message of magic 0 or 1."""
    time = struct.pack(">q", at_ms) if magic else b""
    parts = [struct.pack(">i", -1) if it is None else struct.pack(">i", len(it)) + it for it in (key, value)]
    body = bytes((magic, attributes)) + time + b"".join(parts)
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def transactions() -> list[bytes]:
    """States of two transactional ids, and a tombstone."""
    key_message, value_message = REGISTRY[TRANSACTIONS][TRANSACTION_LOG]

    def state(name: str, status: TransactionStatus | None, at_ms: int, topics: dict[str, tuple[int, ...]]) -> Record:
        key = encode_key(TRANSACTIONS, TRANSACTION_LOG, make(key_message, transactional_id=name))
        if status is None:
            return Record(0, at_ms, key, None)
        partitions = tuple(make(PARTITIONS_SCHEMA, topic=it, partition_ids=topics[it]) for it in topics)
        value = make(
            value_message,
            producer_id=7,
            producer_epoch=2,
            transaction_timeout_ms=60_000,
            transaction_status=int(status),
            transaction_partitions=partitions,
            transaction_last_update_timestamp_ms=at_ms,
            transaction_start_timestamp_ms=FIRST_MS if partitions else -1,
        )
        return Record(0, at_ms, key, encode_value(TRANSACTIONS, TRANSACTION_LOG, 0, value))

    both = {"orders": (0, 12), TOPIC: (7,)}
    records = [
        state("tx-1", TransactionStatus.EMPTY, FIRST_MS, {}),
        state("tx-1", TransactionStatus.ONGOING, FIRST_MS + 1, both),
        state("a,b=c", TransactionStatus.EMPTY, FIRST_MS + 2, {}),
        state("tx-1", TransactionStatus.PREPARE_ABORT, FIRST_MS + 3, both),
        state("tx-1", TransactionStatus.COMPLETE_ABORT, FIRST_MS + 4, {}),
        state("a,b=c", None, FIRST_MS + 5, {}),
    ]
    return [
        build_batch([Record(offset, it.timestamp_ms, it.key, it.value)], leader_epoch=3)
        for offset, it in enumerate(records)
    ]


LOGS: Final = {
    MAGIC_2: (TOPIC, magic_2),
    MAGIC_1: (TOPIC, lambda: legacy(1)),
    MAGIC_0: (TOPIC, lambda: legacy(0)),
    STATE: (TRANSACTIONS, transactions),
}
"""By name: the topic, and what gives its batches."""


def write_log(root: Path, name: str) -> Path:
    """One of the logs as a segment; gives its path."""
    topic, batches = LOGS[name]
    path = root / f"{topic}-{PARTITION}" / f"{0:020d}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(batches()))
    return path


def printed_files() -> Sequence[Path]:
    """What the tools printed."""
    return sorted(PRINTED.glob("*.txt"))
