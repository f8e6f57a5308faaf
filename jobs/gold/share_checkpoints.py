"""What an audit keeps of a log partition of `__share_group_state`, as bytes (see `inference.share_past`)."""

from dataclasses import dataclass
from typing import Any, Final, Self

import msgpack
import numpy as np
import pyarrow as pa

from coordinator_core.errors import StateUnreadable
from coordinator_core.inference.columns import joined, taken
from coordinator_core.inference.share_days import ShareCounts, SharePlace
from coordinator_core.inference.share_log import GroupPast, SharePast, ShareTransitions
from coordinator_core.inference.share_past import Kept, Known

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
COUNTS: Final = ("place", "day", "acknowledged", "redelivered", "archived")


@dataclass(frozen=True, slots=True)
class SavedShares:
    """What the audit before kept."""

    past: SharePast
    known: Known
    next_offset: int
    """Log offset: what lies before is here, needed of what is settled, and all of what is not. Silver has it as well,
    but in row groups of which only the end is wanted."""
    states: pa.Table
    """Columns as `share_reader` reads them, and `last_persisted`."""
    transitions: ShareTransitions
    """In log order."""
    counts: ShareCounts
    """Of what is settled."""

    @classmethod
    def of(
        cls,
        kept: Kept,
        states: pa.Table,
        unsettled: ShareTransitions,
        next_offset: int,
        counts: ShareCounts,
    ) -> Self:
        """`states`: the rows that `kept.state_rows` are of, with their `last_persisted`, and those which are not
        settled, as the transitions `unsettled` are."""
        past = SharePast(kept.settled_to, kept.observed_ms, kept.groups, kept.known.until_ms)
        transitions = joined(kept.transitions, unsettled)
        # what comes next lies behind them, and need not be sorted then
        order = np.lexsort((transitions.first_offset, transitions.log_offset))
        return cls(past, kept.known, max(next_offset, kept.settled_to), states, taken(transitions, order), counts)

    def packed(self) -> bytes:
        """As bytes."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.states.schema) as writer:
            writer.write_table(self.states)  # as it is: the file that it goes into is compressed
        packed: bytes = msgpack.packb(
            {
                "past": (self.past.from_log_offset, self.past.observed_ms, self.past.until_ms),
                "groups": {group_id: tuple(past) for group_id, past in self.past.groups.items()},
                "known": tuple(self.known),
                "next_offset": self.next_offset,
                "states": sink.getvalue().to_pybytes(),
                "transitions": {name: getattr(self.transitions, name).tobytes() for name in TYPES},
                "places": self.counts.places,
                "counts": {name: getattr(self.counts, name).tobytes() for name in COUNTS},
            }
        )
        return packed

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """From the bytes of `packed`. Raises StateUnreadable for any other."""
        try:
            decoded: dict[str, Any] = msgpack.unpackb(packed, strict_map_key=False)
            from_log_offset, observed_ms, until_ms = decoded["past"]
            groups = {group_id: GroupPast(*past) for group_id, past in decoded["groups"].items()}
            group_ids, topics, known_until_ms, fingerprint = decoded["known"]
            columns = {name: np.frombuffer(decoded["transitions"][name], type_) for name, type_ in TYPES.items()}
            with pa.ipc.open_stream(decoded["states"]) as reader:
                states = reader.read_all()
            return cls(
                SharePast(from_log_offset, observed_ms, groups, until_ms),
                Known(tuple(group_ids), tuple(topics), known_until_ms, fingerprint),
                decoded["next_offset"],
                states,
                ShareTransitions(**columns),
                ShareCounts(
                    tuple(SharePlace(*place) for place in decoded["places"]),
                    **{name: np.frombuffer(decoded["counts"][name], np.int64) for name in COUNTS},
                ),
            )
        except (KeyError, TypeError, ValueError, pa.ArrowInvalid, msgpack.UnpackException) as error:
            raise StateUnreadable(f"what an audit kept of a log partition cannot be read: {error}") from error
