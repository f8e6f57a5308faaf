"""Random histories: the log of a partition of each coordinator topic, its older part compacted, in batches.

`Random` rather than hypothesis: hundreds of whole logs are wanted, each from its seed, and none of them shrunk.
"""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.codec import Struct, encode_key, encode_value, make
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatch
from coordinator_core.replay.share_state.state import ShareSnapshot, ShareUpdate
from schemas import wire
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.consumer_offsets.offsets import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from schemas.registry import REGISTRY
from tests.coordinator_core.live.offsets.reference import ABORT, COMMIT, LogBatch, LogRecord, encode_batches, marker
from tests.coordinator_core.live.share_state.reference import Event

GROUP_IDS: Final = ("a", "b")
TOPIC_IDS: Final = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")
PRODUCERS: Final = (7, 8)
SUBSCRIPTION: Final = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
PRIMITIVES: Final[dict[wire.Primitive, Sequence[Any]]] = {
    wire.Bool: (False, True),
    wire.Int8: (-1, 0, 1, 2),
    wire.Int16: (-1, 0, 1, 2),
    wire.UInt16: (0, 1, 2),
    wire.Int32: (-2, -1, 0, 1, 2, 3),
    wire.Int64: (-1, 0, 1, 2, 3),
    wire.Uuid: TOPIC_IDS,
    wire.String: GROUP_IDS,
    wire.Bytes: (b"", SUBSCRIPTION, b"\x00"),
}
COMMIT_TYPES: Final = (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT)
GROUP_TYPES: Final = tuple(record_type for record_type in RecordType if record_type not in COMMIT_TYPES)
RECORDS_MAX: Final = 4
"""In one batch."""
DROPPED_TOMBSTONES: Final = 0.5
"""Of those in the compacted part, the share that the cleaner took away as well."""


PlacedEvent = tuple[int, int, Event]
"""Offset, time in ms, record."""


class Placed(NamedTuple):
    """A record in its batch."""

    offset: int
    batch: int
    record: LogRecord
    is_control: bool


def offsets_log(random: Random, step_ms: int = 1_000) -> list[bytes]:
    """A log of `__consumer_offsets`: two groups, commits with and without transactions, any other record."""
    batches = [_offsets_batch(random, step_ms * (index // 2)) for index in range(random.randint(4, 20))]
    return list(_encoded(batches, _compacted(_placed(batches), random)))


def probe(batch_count: int) -> list[bytes]:
    """Batches for behind a log of so many: all transactions are committed, then each partition is committed once."""
    keys = [
        make(OFFSET_COMMIT_KEY, group=group_id, topic="t", partition=partition)
        for group_id in GROUP_IDS
        for partition in range(2)
    ]
    value = encode_value(TOPIC, RecordType.OFFSET_COMMIT, 4, make(OFFSET_COMMIT_VALUE, offset=5))
    commits = [LogRecord(encode_key(TOPIC, RecordType.OFFSET_COMMIT, key), value, 0) for key in keys]
    batches = [*(marker(producer_id, COMMIT) for producer_id in PRODUCERS), LogBatch(tuple(commits))]
    return encode_batches(batches, base_offset=RECORDS_MAX * batch_count)


def commits_on(random: Random, base_offset: int) -> list[bytes]:
    """Batches in which groups commit on, hours apart; hardly anything else happens."""
    batches = []
    at_ms = 100_000 * base_offset
    for number in range(random.randint(1, 8)):
        at_ms += random.choice((0, 1_000, 5_000_000, 90_000_000))
        key = make(OFFSET_COMMIT_KEY, group=random.choice(GROUP_IDS), topic="t", partition=random.randrange(3))
        offset = base_offset + random.choice((*[10 * number] * 9, random.randrange(1_000)))
        value = encode_value(TOPIC, RecordType.OFFSET_COMMIT, 4, make(OFFSET_COMMIT_VALUE, offset=offset))
        batches.append(LogBatch((LogRecord(encode_key(TOPIC, RecordType.OFFSET_COMMIT, key), value, at_ms),)))
        if random.random() < 0.05:
            batches.append(_offsets_batch(random, at_ms))
    return encode_batches(batches, base_offset)


def share_log(random: Random) -> tuple[list[PlacedEvent], list[PlacedEvent]]:
    """A log of `__share_group_state`, a record a batch, of two share partitions; and one record more of each."""
    keys = [SharePartitionKey(group_id, TOPIC_IDS[0], 0) for group_id in GROUP_IDS]
    log = [(index, 1_000 * index, Event(random.choice(keys), _share_value(random))) for index in range(30)]
    end = [(100 + index, 100_000, Event(key, ShareUpdate(0, 0, -1, -1, ()))) for index, key in enumerate(keys)]
    clean_to = random.randrange(len(log))
    # records before the newest snapshot of their key are what the share coordinator prunes
    newest: dict[SharePartitionKey, int] = {}
    for offset, _, event in log[:clean_to]:
        if not isinstance(event.value, ShareUpdate):
            newest[event.key] = offset
    return [item for item in log if item[0] >= clean_to or item[0] >= newest.get(item[2].key, 0)], end


def cuts_of(random: Random, count: int) -> list[int]:
    """Bounds of runs over so many batches, first and last included; a run may find nothing."""
    return sorted([0, count, *(random.randint(0, count) for _ in range(random.randint(1, 5)))])


def _offsets_batch(random: Random, at_ms: int) -> LogBatch:
    if random.random() < 0.15:
        return marker(random.choice(PRODUCERS), random.choice((ABORT, COMMIT)), at_ms)
    if random.random() < 0.5:
        producer_id = random.choice((-1, -1, *PRODUCERS))
        records = tuple(_commit(random, at_ms) for _ in range(random.randint(1, 3)))
        return LogBatch(records, producer_id, producer_id >= 0)
    return LogBatch(tuple(_group_record(random, at_ms) for _ in range(random.randint(1, RECORDS_MAX))))


def _commit(random: Random, at_ms: int) -> LogRecord:
    key = make(OFFSET_COMMIT_KEY, group=random.choice(GROUP_IDS), topic="t", partition=random.randrange(2))
    value = None
    if random.random() < 0.8:
        made = make(OFFSET_COMMIT_VALUE, offset=random.randrange(9), topic_id=random.choice(TOPIC_IDS))
        value = encode_value(TOPIC, RecordType.OFFSET_COMMIT, 4, made)
    return LogRecord(encode_key(TOPIC, RecordType.OFFSET_COMMIT, key), value, at_ms)


def _group_record(random: Random, at_ms: int) -> LogRecord:
    record_type = random.choice(GROUP_TYPES)
    key_message, value_message = REGISTRY[TOPIC][record_type]
    value = None
    if random.random() < 0.7:
        version = wire.message_versions(value_message)[-1]
        value = encode_value(TOPIC, record_type, version, _struct(random, value_message))
    return LogRecord(encode_key(TOPIC, record_type, _struct(random, key_message)), value, at_ms)


def _struct(random: Random, declaration: wire.Message | wire.Struct) -> Struct:
    return make(declaration, **{field.name: _value(random, field) for field in declaration.fields})


def _value(random: Random, field: wire.Field) -> Any:
    if field.nullable != "none" and random.random() < 0.3:
        return None
    return _any(random, field.kind)


def _any(random: Random, kind: wire.Kind) -> Any:
    if isinstance(kind, wire.Array):
        return tuple(_any(random, kind.element) for _ in range(random.randrange(3)))
    return _struct(random, kind) if isinstance(kind, wire.Struct) else random.choice(PRIMITIVES[kind])


def _share_value(random: Random) -> ShareSnapshot | ShareUpdate | None:
    if random.random() < 0.1:
        return None
    start = random.choice((-1, random.randrange(20)))
    cuts = sorted(random.sample(range(30), 2 * random.randrange(4)))
    batches = tuple(
        StateBatch(first, end - 1, random.choice((0, 2, 4)), random.randint(1, 3))
        for first, end in zip(cuts[::2], cuts[1::2], strict=True)
    )
    if random.random() < 0.7:
        return ShareUpdate(random.randrange(3), random.randint(-1, 2), start, random.choice((-1, 0, 5)), batches)
    return ShareSnapshot(random.randrange(3), 0, random.randrange(3), start, random.choice((-1, 0, 5)), 5, 6, batches)


def _placed(batches: Sequence[LogBatch]) -> Iterator[Placed]:
    offset = 0
    for index, batch in enumerate(batches):
        for record in batch.records:
            yield Placed(offset, index, record, batch.control_type is not None)
            offset += 1


def _compacted(log: Iterable[Placed], random: Random) -> list[Placed]:
    """What the cleaner leaves: up to a random place the newest record of each key, and the markers."""
    records = list(log)
    clean_to = random.randrange(len(records) + 1)
    newest = {placed.record.key: placed.offset for placed in records[:clean_to]}

    def is_kept(placed: Placed) -> bool:
        if placed.offset >= clean_to or placed.is_control:
            return True
        is_newest = newest[placed.record.key] == placed.offset
        return is_newest and (placed.record.value is not None or random.random() > DROPPED_TOMBSTONES)

    return [placed for placed in records if is_kept(placed)]


def _encoded(batches: Sequence[LogBatch], kept: Iterable[Placed]) -> Iterator[bytes]:
    """Each batch that has records left, under its old offsets."""
    first = 0
    left: dict[int, list[Placed]] = {}
    for placed in kept:
        left.setdefault(placed.batch, []).append(placed)
    for index, batch in enumerate(batches):
        last = first + len(batch.records) - 1
        kept_records = left.get(index, ())
        if kept_records:
            yield build_batch(
                [Record(it.offset, it.record.timestamp_ms, it.record.key, it.record.value) for it in kept_records],
                base_offset=first,
                last_offset=last,
                is_transactional=batch.is_transactional,
                is_control=batch.control_type is not None,
                producer_id=batch.producer_id,
                producer_epoch=0,
            )
        first = last + 1
