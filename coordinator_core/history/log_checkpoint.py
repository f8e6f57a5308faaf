"""Serializes the state of a replayed log partition, which one run leaves for the next, as named arrays and bytes.

Arrays are MessagePack of their types, shapes and bytes, with a checksum over all of it: a damaged or forged state file
can never execute code. (NumPy's archives would work too but cost ten times as much: each of about two dozen arrays,
most of them small, is a file of its own there.)
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from coordinator_core.bytes.interning import Interned
from coordinator_core.errors import StateUnreadable
from coordinator_core.history.rows import TopicName
from coordinator_core.history.simple_log import Settled
from coordinator_core.replay.columnar.offsets_columnar import NO_WRITER
from coordinator_core.replay.columnar.offsets_columnar import ColumnarState as ColumnarOffsetState
from coordinator_core.replay.columnar.offsets_kernels import NOTHING, KeyArrays, RowArrays
from coordinator_core.replay.columnar.share_state_columnar import ColumnarState as ColumnarShareState
from coordinator_core.replay.columnar.share_state_layouts import BATCH, KEY, RANGE, STATE, as_numbers, as_rows

Arrays = Mapping[str, NDArray[Any]]

CHECKSUM_BYTES: Final = 4

_INTERNED: Final = ("keys", "groups", "topics", "topic_ids")


def pack_offset_state(state: ColumnarOffsetState) -> bytes:
    arrays: dict[str, NDArray[Any]] = {
        "touched": state.group_touched,
        "carried_metadata": state.carried_metadata,
        "writer": np.array([state.writer], np.int8),
    }
    for name in _INTERNED:
        interned: Interned = getattr(state, name)
        arrays |= {f"{name}.starts": interned.starts, f"{name}.data": interned.data}
    arrays |= {f"key.{name}": column for name, column in state.key_arrays._asdict().items()}
    arrays |= {f"row.{name}": column for name, column in state.carried._asdict().items()}
    return _pack(arrays)


def unpack_offset_state(packed: bytes) -> ColumnarOffsetState:
    """Deserialize the bytes of `pack_offset_state`. Raises StateUnreadable for any other bytes."""
    arrays = _unpack(packed)
    try:
        # an earlier release did not keep which coordinator wrote last
        arrays.setdefault("writer", np.array([NO_WRITER], np.int8))
        arrays.setdefault("row.value_version", np.full(len(arrays["row.key"]), NOTHING, np.int8))
        return ColumnarOffsetState(
            **{name: Interned(arrays[f"{name}.starts"], arrays[f"{name}.data"]) for name in _INTERNED},
            key_arrays=KeyArrays._make(arrays[f"key.{name}"] for name in KeyArrays._fields),
            group_touched=arrays["touched"],
            carried=RowArrays._make(arrays[f"row.{name}"] for name in RowArrays._fields),
            carried_metadata=arrays["carried_metadata"],
            writer=int(arrays["writer"].max(initial=NO_WRITER)),
        )
    except KeyError as error:
        raise StateUnreadable(f"the saved state of a columnar replay lacks {error}") from error


def pack_share_state(state: ColumnarShareState) -> bytes:
    return _pack(
        {
            **_texts("group_ids", state.group_ids),
            **_texts("topic_ids", state.topic_ids),
            "partitions": state.partitions,
            "key_columns": as_numbers(state.keys),
            "batches": as_numbers(state.batches),
            "open_states": as_numbers(state.open_states).T,
            "open_changed": as_numbers(state.open_changed).T,
        }
    )


def unpack_share_state(packed: bytes) -> ColumnarShareState:
    """Deserialize the bytes of `pack_share_state`. Raises StateUnreadable for any other bytes."""
    arrays = _unpack(packed)
    try:
        return ColumnarShareState(
            group_ids=_from_texts("group_ids", arrays),
            topic_ids=_from_texts("topic_ids", arrays),
            partitions=arrays["partitions"],
            keys=as_rows(arrays["key_columns"], KEY),
            batches=as_rows(arrays["batches"], BATCH),
            open_states=as_rows(arrays["open_states"].T, STATE),
            open_changed=as_rows(arrays["open_changed"].T, RANGE),
        )
    except KeyError as error:
        raise StateUnreadable(f"the saved state of a columnar replay lacks {error}") from error


def pack_metadata(pending: Sequence[Settled] | None) -> bytes:
    """Serialize the records of an open transaction of the metadata log."""
    made = None if pending is None else [(type(item).__name__, *_fields_of(item)) for item in pending]
    return msgspec.msgpack.encode(made)


def unpack_metadata(packed: bytes) -> Sequence[Settled] | None:
    """Deserialize the bytes of `pack_metadata`. Raises StateUnreadable for any other bytes."""
    try:
        made = msgspec.msgpack.decode(packed)
        return None if made is None else [_SETTLED[name](*fields) for name, *fields in made]
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError) as error:
        raise StateUnreadable("the saved state of the metadata log cannot be read") from error


_SETTLED: Final[Mapping[str, type[Settled]]] = {kind.__name__: kind for kind in get_args(Settled)}


def _fields_of(item: Settled) -> tuple[Any, ...]:
    return tuple(item) if isinstance(item, TopicName) else dataclasses.astuple(item)


def _pack(arrays: Arrays) -> bytes:
    columns = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}
    packed = msgspec.msgpack.encode(columns)
    return crc32(packed).to_bytes(CHECKSUM_BYTES, "big") + packed


def _unpack(packed: bytes) -> dict[str, NDArray[Any]]:
    checksum, columns = packed[:CHECKSUM_BYTES], packed[CHECKSUM_BYTES:]
    if int.from_bytes(checksum, "big") != crc32(columns):
        raise StateUnreadable("the saved state of a columnar replay is damaged")
    try:
        # copies, because compiled loops need writable arrays
        return {
            name: np.frombuffer(raw, kind).reshape(shape).copy()
            for name, (kind, shape, raw) in msgspec.msgpack.decode(columns).items()
        }
    except (msgspec.MsgspecError, AttributeError, TypeError, ValueError) as error:
        raise StateUnreadable("the saved state of a columnar replay cannot be read") from error


def _texts(name: str, texts: Sequence[str]) -> Arrays:
    raw = [text.encode() for text in texts]
    ends = np.cumsum([len(part) for part in raw], dtype=np.int64)
    return {f"{name}.ends": ends, f"{name}.data": np.frombuffer(b"".join(raw), np.uint8)}


def _from_texts(name: str, arrays: Arrays) -> tuple[str, ...]:
    data = arrays[f"{name}.data"].tobytes()
    ends = arrays[f"{name}.ends"].tolist()
    return tuple(data[start:end].decode() for start, end in zip([0, *ends], ends, strict=False))
