"""Splits one log partition by key into buckets, so that several tasks can replay it.

A coordinator's log partition is one stream, and nearly all of its work is done key by key: the key is the group id in
`__consumer_offsets`, the share partition in `__share_group_state`. So several tasks can read one log partition, and
each replays the records of its own keys. Keys are hashed into slots, and slots are assigned to buckets (`shared_out`).

What belongs to no key is counted once: bucket 0 counts the markers, the batches that cannot be read, and the findings
of framing. Markers themselves act on all groups, and every bucket gets them.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from coordinator_core.bytes.codec import uuid_bytes, uuid_text
from coordinator_core.bytes.interning import Interned, hash_bytes
from coordinator_core.bytes.log.chunk import I16, I32, I64, U8, BoolArray, RecordChunk
from coordinator_core.bytes.log.kernels import be16, be64, read_only
from coordinator_core.replay.columnar.offsets_kernels import is_utf8
from coordinator_core.replay.columnar.share_state_kernels import borrowing, inlined
from coordinator_core.replay.lookup import Key, SharePartitionKey

SLOT_COUNT: Final = 1 << 12
"""A power of two, and many more than there are tasks, so that slots of different weights make buckets of equal
weight."""
BUCKET_COUNT_MAX: Final = 64
"""Buckets of one log partition. Each of its tasks reads the whole partition, so that more tasks would mostly read."""
SLOT_OF_OTHERS: Final = 0
"""Slot of keys without a group id, and of group ids that are not UTF-8 or contain U+FFFD. Different invalid bytes may
decode to the same group id with U+FFFD, so all of these share one slot."""
NOBODY: Final = 255
"""Owner of slots that are in no bucket: greater than any bucket number."""
_GROUP_PLACE: Final = 4
"""Where the group id's bytes begin in a key: after the record type and the length."""
_SHARE_KEY_BYTES: Final = 16 + 4
"""Topic id and partition, which follow the group id."""
_SHARE_TYPE_LAST: Final = 1
_HIGH_BITS: Final = np.uint64(0x8080808080808080)


@dataclass(frozen=True, slots=True)
class KeyBucket:
    """One of the buckets of a log partition. Small and picklable: it is sent to a task."""

    number: int
    owners: bytes
    """The bucket of each slot."""
    is_share: bool
    """The keys are share partitions, not groups."""

    @property
    def is_first(self) -> bool:
        """Whether it counts what belongs to no key."""
        return self.number == 0

    def has_groups(self, group_ids: Sequence[str]) -> BoolArray:
        return self._has(_slots_of_texts([group_id.encode() for group_id in group_ids], 0))

    def has_interned(self, group_ids: Interned) -> BoolArray:
        return self._has(_slots_of(read_only(group_ids.data), group_ids.starts, 0))

    def has_share_partitions(self, keys: Sequence[SharePartitionKey]) -> BoolArray:
        return self._has(_slots_of_texts(list(map(_share_text, keys)), _SHARE_KEY_BYTES))

    def own_records(self, chunk: RecordChunk) -> RecordChunk:
        """The chunk with only this bucket's records and the markers. All batches stay, with their record counts reduced
        accordingly.
        """
        records, batches = chunk.records, chunk.batches
        own = np.empty(len(records), np.int64)
        counts = np.zeros(len(batches), np.int32)
        count = _own_rows(
            read_only(chunk.data),
            np.ascontiguousarray(batches.is_control),
            records.batch_index,
            records.key_position,
            records.key_length,
            self.is_share,
            np.frombuffer(self.owners, np.uint8),
            self.number,
            self.is_first,
            own,
            counts,
        )
        own = own[:count]
        if self.is_first and chunk.findings:
            # batches that cannot be read have no records: the record counts in their headers are used here
            readable = np.bincount(records.batch_index, minlength=len(batches)) > 0
            counts = np.where(readable, counts, batches.record_count).astype(np.int32)
        return replace(_some_records(chunk, own, counts), findings=chunk.findings if self.is_first else ())

    def _has(self, slots: I16) -> BoolArray:
        has: BoolArray = np.frombuffer(self.owners, np.uint8)[slots] == self.number
        return has


def slot_of_record(chunk: RecordChunk, row: int, *, is_share: bool) -> int:
    """The slot of a record's key."""
    records = chunk.records
    return int(_slot_of_key(chunk.data, int(records.key_position[row]), int(records.key_length[row]), is_share))


def bucket_of_slots(slots: Iterable[int], *, is_share: bool) -> KeyBucket:
    """A bucket of the given slots, which counts nothing but its own records."""
    owners = np.full(SLOT_COUNT, NOBODY, np.uint8)
    owners[list(slots)] = 1
    return KeyBucket(1, owners.tobytes(), is_share)


def keys_in(chunk: RecordChunk, *, is_share: bool) -> Iterator[tuple[int, Key]]:
    """The row and key of each record that has a key. Markers and keys without a group id have none.

    For the few chunks and records that are read one by one.
    """
    records = chunk.records
    raw = memoryview(chunk.data)  # type: ignore[arg-type]
    is_control = chunk.batches.is_control[records.batch_index]
    for row in np.flatnonzero(~is_control & (records.key_length >= _GROUP_PLACE)).tolist():
        begin = int(records.key_position[row])
        key = _key_of(raw[begin : begin + int(records.key_length[row])].tobytes(), is_share)
        if key is not None:
            yield row, key


def without_keys(chunk: RecordChunk, keys: Set[Key], *, is_share: bool) -> tuple[RecordChunk, I64]:
    """The chunk without the records of some keys, and the offsets of the removed records. Their bytes are overwritten
    too.
    """
    own_bucket = bucket_of_slots(set(slots_of(keys).tolist()), is_share=is_share)
    is_near = np.frombuffer(own_bucket.owners, np.uint8)[record_slots(chunk, is_share=is_share)] == own_bucket.number
    near = np.flatnonzero(is_near)
    found = [near[row] for row, key in keys_in(_some_records(chunk, near), is_share=is_share) if key in keys]
    if not found:
        return chunk, np.empty(0, np.int64)
    records = chunk.records
    is_left_out = np.zeros(len(records), np.bool_)
    is_left_out[found] = True
    own = np.flatnonzero(~is_left_out)
    left_out = np.bincount(records.batch_index[is_left_out], minlength=len(chunk.batches))
    counts = (chunk.batches.record_count - left_out).astype(np.int32)
    kept = _some_records(chunk, own, counts)
    return replace(kept, data=_blanked(chunk, is_left_out)), records.offset[is_left_out]


def slots_of(keys: Iterable[Key]) -> I16:
    of_groups = [key.encode() for key in keys if isinstance(key, str)]
    of_shares = [_share_text(key) for key in keys if not isinstance(key, str)]
    return np.append(_slots_of_texts(of_groups, 0), _slots_of_texts(of_shares, _SHARE_KEY_BYTES))


def _share_text(key: SharePartitionKey) -> bytes:
    return b"".join((key.group_id.encode(), uuid_bytes(key.topic_id), key.partition.to_bytes(4, "big", signed=True)))


def _key_of(data: bytes, is_share: bool) -> Key | None:
    """The group or share partition of a record's key; None if the key cannot be read."""
    length = int.from_bytes(data[2:_GROUP_PLACE], "big", signed=True)
    end = _GROUP_PLACE + length
    if length < 0 or end + (_SHARE_KEY_BYTES if is_share else 0) > len(data):
        return None
    group_id = data[_GROUP_PLACE:end].decode("utf-8", "replace")
    if not is_share:
        return group_id
    partition = int.from_bytes(data[end + 16 : end + _SHARE_KEY_BYTES], "big", signed=True)
    return SharePartitionKey(group_id, uuid_text(data[end : end + 16]), partition)


def _some_records(chunk: RecordChunk, rows: I64, counts: I32 | None = None) -> RecordChunk:
    """The chunk with some of its records. `counts` is the new record count of each batch; without it the counts
    stay."""
    is_after_others = np.diff(rows, prepend=-1) != 1
    if chunk.is_after_others is not None:
        is_after_others |= chunk.is_after_others[rows]
    return RecordChunk(
        chunk.data,
        chunk.batches if counts is None else replace(chunk.batches, record_count=counts),
        chunk.records.take(rows),
        chunk.findings,
        is_after_others,
    )


def _blanked(chunk: RecordChunk, is_left_out: BoolArray) -> U8:
    """The bytes of a chunk, with some keys and values overwritten."""
    data, records = chunk.data.copy(), chunk.records
    for row in np.flatnonzero(is_left_out).tolist():
        for position, length in (
            (records.key_position[row], records.key_length[row]),
            (records.value_position[row], records.value_length[row]),
        ):
            data[position : position + max(length, 0)] = 0
    return data


def buckets_of(owners: bytes, *, is_share: bool) -> list[KeyBucket]:
    """All buckets of a log partition."""
    return [KeyBucket(number, owners, is_share) for number in range(max(owners) + 1)]


def shared_out(weights: I64, count: int) -> bytes:
    """The bucket of each slot, in `count` buckets of similar weight: the heaviest slot first, into the lightest bucket.

    `weights`: weight of each slot in a sample. Slots without a weight are assigned round-robin, since nothing is known
    about them.
    """
    if not 1 <= count <= BUCKET_COUNT_MAX:
        raise ValueError(f"{count} buckets: 1 to {BUCKET_COUNT_MAX} are possible")
    owners = np.arange(SLOT_COUNT) % count
    filled = [0] * count
    for slot in sorted(np.flatnonzero(weights).tolist(), key=lambda slot: (-int(weights[slot]), slot)):
        lightest = filled.index(min(filled))
        owners[slot] = lightest
        filled[lightest] += int(weights[slot])
    return owners.astype(np.uint8).tobytes()


def slot_weights(chunk: RecordChunk, *, is_share: bool) -> I64:
    """How many bytes of keys and values each slot has in a chunk."""
    records = chunk.records
    slots = record_slots(chunk, is_share=is_share)
    sizes = np.maximum(records.key_length, 0) + np.maximum(records.value_length, 0) + 1
    sizes[chunk.batches.is_control[records.batch_index]] = 0
    return np.bincount(slots, weights=sizes, minlength=SLOT_COUNT).astype(np.int64)


def record_slots(chunk: RecordChunk, *, is_share: bool) -> I16:
    """The slot of each record's key. For markers it has no meaning."""
    records = chunk.records
    slots = np.empty(len(records), np.int16)
    _fill_slots(read_only(chunk.data), records.key_position, records.key_length, is_share, slots)
    return slots


@borrowing
def _is_utf8_as_written(data: U8, position: int, length: int) -> bool:
    """`_is_read_as_written` for bytes that are not all ASCII."""
    if not is_utf8(data, position, length):
        return False
    for first in range(position, position + length - 2):
        if data[first] == 0xEF and data[first + 1] == 0xBF and data[first + 2] == 0xBD:
            return False
    return True


@inlined
def _is_read_as_written(data: U8, position: int, length: int) -> bool:
    """Whether no other bytes decode to the same text. False for bytes that decode to U+FFFD, and for U+FFFD itself."""
    end = position + length
    at = position
    while at + 8 <= end:
        if np.uint64(be64(data, at)) & _HIGH_BITS != 0:
            break
        at += 8
    while at < end and data[at] < 0x80:
        at += 1
    return at == end or _is_utf8_as_written(data, position, length)


@inlined
def _slot(data: U8, position: int, group_bytes: int, more_bytes: int) -> np.int64:
    """Slot of a group id's bytes and the bytes that follow it."""
    if not _is_read_as_written(data, position, group_bytes):
        return np.int64(SLOT_OF_OTHERS)
    return np.int64(hash_bytes(data, position, group_bytes + more_bytes) & np.uint64(SLOT_COUNT - 1))


@inlined
def _slot_of_key(data: U8, position: int, length: int, is_share: bool) -> np.int64:
    if length < _GROUP_PLACE or (is_share and not 0 <= be16(data, position) <= _SHARE_TYPE_LAST):
        return np.int64(SLOT_OF_OTHERS)
    group_bytes = be16(data, position + 2)
    more_bytes = _SHARE_KEY_BYTES if is_share else 0
    if group_bytes < 0 or group_bytes > length - _GROUP_PLACE - more_bytes:
        return np.int64(SLOT_OF_OTHERS)
    return _slot(data, position + _GROUP_PLACE, group_bytes, more_bytes)


@borrowing
def _fill_slots(data: U8, positions: I64, lengths: I32, is_share: bool, slots: I16) -> None:
    for i in range(len(positions)):
        slots[i] = _slot_of_key(data, positions[i], int(lengths[i]), is_share)


@borrowing
def _own_rows(
    data: U8,
    is_control: BoolArray,
    batch_index: I32,
    positions: I64,
    lengths: I32,
    is_share: bool,
    owners: U8,
    number: int,
    is_first: bool,
    own: I64,
    counts: I32,
) -> int:
    """Fill in the rows of a bucket's records, and the record count of each batch. Returns the number of rows."""
    count = 0
    for i in range(len(positions)):
        batch = batch_index[i]
        if is_control[batch]:
            # share partitions have no transactions: their markers are only counted
            if is_share and not is_first:
                continue
            counts[batch] += is_first
        elif owners[_slot_of_key(data, positions[i], int(lengths[i]), is_share)] == number:
            counts[batch] += 1
        else:
            continue
        own[count] = i
        count += 1
    return count


@borrowing
def _fill_slots_of(data: U8, starts: I64, more_bytes: int, slots: I16) -> None:
    for i in range(len(slots)):
        slots[i] = _slot(data, starts[i], starts[i + 1] - starts[i] - more_bytes, more_bytes)


def _slots_of(data: U8, starts: I64, more_bytes: int) -> I16:
    """The slots of concatenated keys."""
    slots = np.empty(len(starts) - 1, np.int16)
    _fill_slots_of(data, starts, more_bytes, slots)
    return slots


def _slots_of_texts(keys: Sequence[bytes], more_bytes: int) -> I16:
    starts = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(key) for key in keys], out=starts[1:])
    return _slots_of(np.frombuffer(b"".join(keys), np.uint8), starts, more_bytes)
