"""Serializes a group between two runs: its state and its open intervals.

The bytes are MessagePack of the structs' fields by position. Persistent maps are sorted by key, because their own order
depends on Python's hash seed. Deserializing creates only these structs, whatever the bytes. The bytes are valid only
for the code that wrote them: `STATE_FORMAT` is its version (a test notices a field that was changed without raising the
number).
"""

from typing import Any, Final, get_args, get_origin

import msgspec
from immutables import Map

from coordinator_core.errors import StateUnreadable
from coordinator_core.history.open_intervals import OpenIntervals
from coordinator_core.replay.dispatch import Group
from coordinator_core.replay.share.state import ShareGroupStatePartitions

STATE_FORMAT: Final = 8
"""Raise it whenever older saved state cannot be read, or would have another meaning: that state is then rebuilt."""


class GroupCheckpoint(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """One group id at the end of a run."""

    group: Group | None
    """None: the group does not exist now; the intervals remember earlier ones with its id."""
    share_partitions: ShareGroupStatePartitions | None
    intervals: OpenIntervals | None


def pack_group(saved: GroupCheckpoint) -> bytes:
    return _ENCODER.encode(saved)


def unpack_group(packed: bytes) -> GroupCheckpoint:
    """Deserialize the bytes of `pack_group`. Raises StateUnreadable for any other bytes."""
    try:
        return _DECODER.decode(packed)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise StateUnreadable("the saved state of a group cannot be read") from error


def _plain(mapping: Any) -> Any:
    if not isinstance(mapping, Map):
        raise TypeError(f"a checkpoint holds no {type(mapping).__name__}")
    return dict(sorted(mapping.items()))


def _map(kind: Any, plain: Any) -> Any:
    assert get_origin(kind) is Map, "no other kind of field needs a conversion"
    return Map(msgspec.convert(plain, dict[get_args(kind)], dec_hook=_map))  # type: ignore[misc]


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
_DECODER: Final = msgspec.msgpack.Decoder(GroupCheckpoint, dec_hook=_map)
