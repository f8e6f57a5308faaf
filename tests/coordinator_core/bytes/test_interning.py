"""Interning agrees with a dictionary, and never loses or mixes keys while it grows."""

import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_core.bytes.interning import NO_ROOM, NOT_FOUND, Interner, find, hash_bytes, intern

KEYS = st.lists(
    st.binary(max_size=40) | st.sampled_from([b"", b"\0", b"\0\0", b"a" * 8, b"a" * 16, b"a" * 17]), max_size=200
)


@settings(deadline=None)  # the first call compiles
@given(keys=KEYS)
def test_interner_gives_ids_in_order_of_first_appearance(keys: list[bytes]) -> None:
    """Ids are those of a dictionary that counts up, also when the table starts with room for one key."""
    interner = Interner(key_capacity=1, byte_capacity=1)
    model: dict[bytes, int] = {}
    for key in keys:
        assert interner.find(key) == model.get(key, NOT_FOUND)
        assert interner.intern(key) == model.setdefault(key, len(model))
    assert len(interner) == len(model)
    assert interner.keys() == list(model)
    assert interner.keys(len(model) // 2) == list(model)[len(model) // 2 :]


@settings(deadline=None)  # the first call compiles
@given(keys=KEYS)
def test_compiled_intern_stops_when_full_and_goes_on_after_grow(keys: list[bytes]) -> None:
    """NO_ROOM changes nothing; after `grow` the same key fits."""
    interner = Interner(key_capacity=2, byte_capacity=4)
    model: dict[bytes, int] = {}
    data = np.frombuffer(b"".join(keys) + b"!", np.uint8)
    position = 0
    for key in keys:
        key_id = intern(interner.table, data, position, len(key))
        if key_id == NO_ROOM:
            assert interner.keys() == list(model)
            interner.grow(len(key))
            key_id = intern(interner.table, data, position, len(key))
        assert key_id == model.setdefault(key, len(model))
        assert find(interner.table, data, position, len(key)) == key_id
        position += len(key)
    assert interner.keys() == list(model)


def test_intern_with_equal_hashes_compares_the_bytes() -> None:
    """Keys whose hashes collide stay apart."""
    interner = Interner()
    assert interner.intern(b"first key") == 0
    second = np.frombuffer(b"2nd key!!", np.uint8)
    value = hash_bytes(second, 0, len(second))
    interner.table.hashes[0] = value
    interner.table.slots[:] = 0
    interner.table.slots[int(value) & (len(interner.table.slots) - 1)] = 1
    assert interner.intern(b"2nd key!!") == 1


def test_interner_survives_pickling() -> None:
    """A pickled interner goes on where it was."""
    interner = Interner(key_capacity=1)
    for number in range(100):
        interner.intern(b"%d" % number)
    other = pickle.loads(pickle.dumps(interner))
    assert other.intern(b"7") == 7
    assert other.intern(b"new") == 100
    assert interner.find(b"new") == NOT_FOUND


def test_hash_spreads_over_the_low_bits() -> None:
    """Keys that differ in the last byte or word do not crowd the same slots."""
    keys = np.frombuffer(np.arange(4096, dtype=">i8").tobytes(), np.uint8)
    slots = {int(hash_bytes(keys, 8 * row, 8)) & 8191 for row in range(4096)}
    assert len(slots) > 2900
