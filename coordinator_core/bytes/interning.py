"""Maps byte strings to small integer ids in compiled loops: each distinct key is hashed, compared and stored once.

An open-addressing hash table over a pool of bytes. Compiled code calls `intern` and `find` on an `InternTable` (a named
tuple of arrays, which numba accepts); `Interner` owns the arrays and enlarges them between two calls. Compiled code
cannot grow a table: `intern` returns `NO_ROOM`, the loop stops at that record, `Interner.grow` makes room, and the loop
resumes there. Callers that must not stop call `Interner.reserve` first.

Ids are assigned from 0 in order of first appearance, and never change. Pass read-only arrays of bytes to compiled code,
as `bytes` and chunks are: numba compiles every loop once more for writable ones.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from coordinator_core.bytes.log.chunk import I32, I64, U8
from coordinator_core.bytes.log.kernels import le64, read_only

U64 = NDArray[np.uint64]

NO_ROOM: Final = -1
"""`intern`: the table is full. Nothing was changed."""
NOT_FOUND: Final = -1
"""`find`: the key was never interned."""

_MULTIPLIER_LENGTH: Final = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_WORD: Final = np.uint64(0xFF51AFD7ED558CCD)
_MULTIPLIER_TAIL: Final = np.uint64(0xC4CEB9FE1A85EC53)
_HALF: Final = np.uint64(32)
_ONE: Final = np.uint64(1)


F = TypeVar("F", bound=Callable[..., object])


def inlined(function: F) -> F:
    """numba's njit, inlined, for small functions that take many arrays. Without inlining, every call would increment
    and decrement a reference count for each array, which costs more than most of these functions do."""
    result: F = njit(cache=True, nogil=True, forceinline=True)(function)
    return result


class InternTable(NamedTuple):
    """The arrays of an `Interner`, for compiled code. Valid until the interner grows."""

    slots: I32
    """Id + 1, or 0 for an empty slot. The length is a power of two and at least twice `len(hashes)`, so every probe
    reaches an empty slot."""
    hashes: U64
    """Per id."""
    starts: I64
    """One more than there are ids: key `i` is `pool[starts[i]:starts[i + 1]]`."""
    pool: U8
    size: I64
    """One element: the number of ids."""


@inlined
def hash_bytes(data: U8, position: int, length: int) -> np.uint64:
    """A 64-bit hash of `data[position:position + length]`, eight bytes a step. Not cryptographic."""
    at = np.uint64(position)
    value = np.uint64(length) * _MULTIPLIER_LENGTH
    for _ in range(length >> 3):
        value = (value ^ le64(data, at)) * _MULTIPLIER_WORD
        value ^= value >> _HALF
        at += np.uint64(8)
    tail = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(length & 7):
        tail |= np.uint64(data[at]) << shift
        shift += np.uint64(8)
        at += _ONE
    value = (value ^ tail) * _MULTIPLIER_TAIL
    return np.uint64(value ^ (value >> _HALF))


@inlined
def equal_bytes(left: U8, left_position: int, right: U8, right_position: int, length: int) -> bool:
    """Whether `length` bytes are equal at two places. Compares eight bytes a step."""
    at, other = np.uint64(left_position), np.uint64(right_position)
    for _ in range(length >> 3):
        if le64(left, at) != le64(right, other):
            return False
        at += np.uint64(8)
        other += np.uint64(8)
    for _ in range(length & 7):
        if left[at] != right[other]:
            return False
        at += _ONE
        other += _ONE
    return True


@njit(cache=True, nogil=True)
def find_in(slots: I32, hashes: U64, starts: I64, pool: U8, data: U8, position: int, length: int) -> int:
    """Like `find`, with the table's arrays as separate arguments: loops over many records take them out of the tuple
    once. Taking an array out of a tuple counts a reference, and numba does not optimize that away in every loop."""
    value = hash_bytes(data, position, length)
    mask = np.uint64(len(slots) - 1)
    slot = value & mask
    while True:
        key_id = int(slots[slot]) - 1
        if key_id < 0:
            return NOT_FOUND
        if hashes[key_id] == value:
            start = starts[key_id]
            if starts[key_id + 1] - start == length and equal_bytes(pool, start, data, position, length):
                return key_id
        slot = (slot + _ONE) & mask


@inlined
def find(table: InternTable, data: U8, position: int, length: int) -> int:
    """The id of `data[position:position + length]`, or `NOT_FOUND`. The range must lie inside `data`."""
    return int(find_in(table.slots, table.hashes, table.starts, table.pool, data, position, length))


@inlined
def intern(table: InternTable, data: U8, position: int, length: int) -> int:
    """The id of `data[position:position + length]`, assigned now if the key is new; `NO_ROOM` if the table is full.

    A key is new when its id equals the size before the call. The range must lie inside `data`.
    """
    value = hash_bytes(data, position, length)
    mask = np.uint64(len(table.slots) - 1)
    slot = value & mask
    while True:
        key_id = int(table.slots[slot]) - 1
        if key_id < 0:
            break
        if table.hashes[key_id] == value:
            start = table.starts[key_id]
            if table.starts[key_id + 1] - start == length and equal_bytes(table.pool, start, data, position, length):
                return key_id
        slot = (slot + _ONE) & mask
    new_id = int(table.size[0])
    end = int(table.starts[new_id])
    if new_id >= len(table.hashes) or end + length > len(table.pool):
        return NO_ROOM
    for at in range(length):  # a slice assignment takes four seconds to compile
        table.pool[end + at] = data[position + at]
    table.hashes[new_id] = value
    table.starts[new_id + 1] = end + length
    table.slots[slot] = new_id + 1
    table.size[0] = new_id + 1
    return new_id


@njit(cache=True, nogil=True)
def _fill_slots(slots: I32, hashes: U64, count: int) -> None:
    """Put ids `0..count` into empty slots."""
    mask = np.uint64(len(slots) - 1)
    for key_id in range(count):
        slot = hashes[key_id] & mask
        while slots[slot] != 0:
            slot = (slot + _ONE) & mask
        slots[slot] = key_id + 1


@njit(cache=True, nogil=True)
def _intern_each(table: InternTable, data: U8, starts: I64, ids: I32) -> None:
    """Intern keys that all have room, and fill in their ids."""
    for key in range(len(starts) - 1):
        ids[key] = intern(table, data, starts[key], starts[key + 1] - starts[key])


@njit(cache=True, nogil=True)
def _copy_keys(starts: I64, data: U8, wanted: I64, taken_starts: I64, taken: U8) -> None:
    for key in range(len(wanted)):
        start, to = starts[wanted[key]], taken_starts[key]
        for at in range(taken_starts[key + 1] - to):
            taken[to + at] = data[start + at]


class Interned(NamedTuple):
    """The keys of an interner in the order of their ids: key `i` is `data[starts[i]:starts[i + 1]]`."""

    starts: I64
    data: U8

    def taken(self, wanted: I64) -> "Interned":
        """The keys with the given ids."""
        starts = np.zeros(len(wanted) + 1, np.int64)
        np.cumsum(np.diff(self.starts)[wanted], out=starts[1:])
        taken = np.zeros(starts[-1], np.uint8)
        _copy_keys(self.starts, read_only(self.data), wanted, starts, taken)
        return Interned(starts, taken)


NO_KEYS: Final = Interned(np.zeros(1, np.int64), np.zeros(0, np.uint8))


class Interner:
    """Owns an `InternTable`. It consists of plain arrays, so that it can be pickled."""

    table: InternTable

    def __init__(self, *, key_capacity: int = 1024, byte_capacity: int = 64 * 1024) -> None:
        """Reserve room for `key_capacity` keys with `byte_capacity` bytes in total, before it first grows."""
        key_capacity = max(key_capacity, 1)
        self.table = InternTable(
            slots=np.zeros(_slot_count(key_capacity), np.int32),
            hashes=np.zeros(key_capacity, np.uint64),
            starts=np.zeros(key_capacity + 1, np.int64),
            pool=np.zeros(max(byte_capacity, 1), np.uint8),
            size=np.zeros(1, np.int64),
        )

    @classmethod
    def of(cls, interned: Interned) -> "Interner":
        """An interner in which these distinct keys have the ids from 0 on."""
        interner = cls()
        if len(interned.starts) == 1:
            return interner
        interner.add(interned)
        return interner

    def add(self, interned: Interned) -> I32:
        """Intern some keys. Returns the id of each."""
        self.reserve(len(interned.starts) - 1, len(interned.data))
        ids = np.empty(len(interned.starts) - 1, np.int32)
        _intern_each(self.table, read_only(interned.data), interned.starts, ids)
        return ids

    def export(self) -> Interned:
        starts = self.table.starts[: len(self) + 1].copy()
        return Interned(starts, self.table.pool[: starts[-1]].copy())

    def __len__(self) -> int:
        return int(self.table.size[0])

    def reserve(self, key_count: int, byte_count: int) -> None:
        """Make room for `key_count` new keys with `byte_count` bytes in total. Replaces `table` if it must grow."""
        count = len(self)
        used = int(self.table.starts[count])
        slots, hashes, starts, pool = self.table.slots, self.table.hashes, self.table.starts, self.table.pool
        if count + key_count > len(hashes):
            key_capacity = max(count + key_count, 2 * len(hashes))
            hashes = np.zeros(key_capacity, np.uint64)
            hashes[:count] = self.table.hashes[:count]
            starts = np.zeros(key_capacity + 1, np.int64)
            starts[: count + 1] = self.table.starts[: count + 1]
            slots = np.zeros(_slot_count(key_capacity), np.int32)
            _fill_slots(slots, hashes, count)
        if used + byte_count > len(pool):
            pool = np.zeros(max(used + byte_count, 2 * len(pool)), np.uint8)
            pool[:used] = self.table.pool[:used]
        self.table = InternTable(slots, hashes, starts, pool, self.table.size)

    def grow(self, byte_count: int) -> None:
        """Grow after `NO_ROOM`: at least double the keys, with room for one key of `byte_count` bytes."""
        self.reserve(max(len(self), 1), max(int(self.table.starts[len(self)]), byte_count))

    def intern(self, key: bytes) -> int:
        """The id of `key`, assigned now if the key is new."""
        data = np.frombuffer(key, np.uint8)
        self.reserve(1, len(key))
        return int(intern(self.table, data, 0, len(data)))

    def find(self, key: bytes) -> int:
        """The id of `key`, or `NOT_FOUND`."""
        data = np.frombuffer(key, np.uint8)
        return int(find(self.table, data, 0, len(data)))

    def keys(self, first_id: int = 0) -> list[bytes]:
        """The keys from `first_id` on, in order of their ids."""
        count = len(self)
        starts = self.table.starts[first_id : count + 1].tolist()
        pool = self.table.pool[: starts[-1]].tobytes() if starts else b""
        return [pool[start:end] for start, end in pairwise(starts)]


def _slot_count(key_capacity: int) -> int:
    """The power of two that is at least twice the keys, so that at least half of the slots stay empty."""
    return 1 << (2 * key_capacity - 1).bit_length()
