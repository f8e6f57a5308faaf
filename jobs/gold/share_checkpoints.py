"""Serialized state that an audit keeps of a log partition of `__share_group_state` (see `inference.share_past`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec
import numpy as np
import pyarrow as pa

from coordinator_core.errors import StateUnreadable
from coordinator_core.inference.audit.share_past import Kept, Known
from coordinator_core.inference.facts.columns import joined, taken
from coordinator_core.inference.shares.offset_changes import EndedState
from coordinator_core.inference.shares.share_days import COUNTED, ShareCounts, SharePlace
from coordinator_core.inference.shares.share_log import GroupPast, SharePast, ShareTransitions

TYPES: Final = {
    "log_offset": np.int64,
    "first_offset": np.int64,
    "last_offset": np.int64,
    "from_state": np.int8,
    "from_delivery_count": np.int32,
    "to_state": np.int8,
    "to_delivery_count": np.int32,
    "kind": np.int8,
    "released": np.int8,
}


@dataclass(frozen=True, slots=True)
class SavedShares:
    """What the last audit kept."""

    past: SharePast
    known: Known
    next_offset: int
    """Log offset. Of the rows before it, the state has those that the settled past needs, and all that are not
    settled. Silver has them too, but in row groups of which only the end is needed."""
    states: pa.Table
    """The columns that `share_reader` reads, and `last_persisted`."""
    transitions: ShareTransitions
    """In log order."""
    counts: ShareCounts
    """Counts of what is settled."""
    ended: tuple[EndedState, ...] = ()
    """The states that ended in the settled part."""

    @classmethod
    def of(
        cls,
        kept: Kept,
        states: pa.Table,
        unsettled: ShareTransitions,
        next_offset: int,
        counts: ShareCounts,
        ended: Iterable[EndedState] = (),
    ) -> Self:
        """`states`: the rows for `kept.states`, with their `last_persisted`, followed by the rows that are not settled;
        `unsettled`: the transitions that are not settled.
        """
        past = SharePast(kept.settled_to, kept.observed_ms, kept.groups, kept.known.until_ms)
        transitions = joined(kept.transitions, unsettled)
        # later transitions follow these, so nothing needs to be sorted again
        order = np.lexsort((transitions.first_offset, transitions.log_offset))
        next_offset = max(next_offset, kept.settled_to)
        settled = tuple(state for state in ended if state.log_offset < kept.settled_to)
        return cls(past, kept.known, next_offset, states, taken(transitions, order), counts, settled)

    def packed(self) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.states.schema) as writer:
            writer.write_table(self.states)  # uncompressed: the Parquet file that contains it is compressed
        return msgspec.msgpack.encode(
            {
                "past": (self.past.from_log_offset, self.past.observed_ms, self.past.until_ms),
                "groups": {group_id: tuple(past) for group_id, past in self.past.groups.items()},
                "known": tuple(self.known),
                "next_offset": self.next_offset,
                "states": sink.getvalue().to_pybytes(),
                "transitions": {name: getattr(self.transitions, name).tobytes() for name in TYPES},
                "ended": self.ended,
                "places": self.counts.places,
                "counts": np.vstack((self.counts.place, self.counts.day, self.counts.numbers)).tobytes(),
            }
        )

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """Deserialize the bytes of `packed`. Raises StateUnreadable for any others."""
        try:
            decoded: dict[str, Any] = msgspec.msgpack.decode(packed)
            from_log_offset, observed_ms, until_ms = decoded["past"]
            groups = {group_id: GroupPast(*past) for group_id, past in decoded["groups"].items()}
            group_ids, topics, known_until_ms, fingerprint = decoded["known"]
            place, day, *numbers = np.frombuffer(decoded["counts"], np.int64).reshape(2 + len(COUNTED), -1)
            columns = {name: np.frombuffer(decoded["transitions"][name], type_) for name, type_ in TYPES.items()}
            with pa.ipc.open_stream(decoded["states"]) as reader:
                states = reader.read_all()
            return cls(
                SharePast(from_log_offset, observed_ms, groups, until_ms),
                Known(tuple(group_ids), tuple(topics), known_until_ms, fingerprint),
                decoded["next_offset"],
                states,
                ShareTransitions(**columns),
                ShareCounts(tuple(SharePlace(*it) for it in decoded["places"]), place, day, np.array(numbers)),
                tuple(EndedState(*it) for it in decoded["ended"]),
            )
        except (KeyError, TypeError, ValueError, pa.ArrowInvalid, msgspec.MsgspecError) as error:
            raise StateUnreadable(f"what an audit kept of a log partition cannot be read: {error}") from error
