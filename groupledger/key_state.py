"""The state of a replay by key: what one replay leaves in a row for the next one, and where that one begins.

A row has the bytes of nightly's checkpoints: the state before the key's last operation, and the records of that
operation, which may go on in records to come. So it does not matter where records are cut. A worker gets the state as a
row before the records of its key.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.errors import StateUnreadable
from coordinator_core.history.checkpoint import STATE_FORMAT
from coordinator_core.history.log_checkpoint import unpack_offset_state, unpack_share_state
from coordinator_core.history.offsets_log import OffsetsLogState
from coordinator_core.replay.columnar.share_state_columnar import ColumnarState as ShareState
from groupledger.sparks import Batches, stream_of
from jobs.delta.arrow_schemas import arrow_schema
from schemas.tables.common import CLUSTER_ID, LOG_PARTITION, SHARE_PARTITION_OR_GROUP, as_key, key
from schemas.tables.declare import BIGINT, BINARY, STRING, ArrayOf, Column, StructOf, Table

LogPlace = tuple[str | None, int]
"""Cluster, where the records name it, and log partition."""

KEY_STATE_FORMAT: Final = f"{STATE_FORMAT}.2"
"""Format of `KeyState`: that of nightly's state, and a number of its own."""
STATE_OFFSET: Final = -1
"""`log_offset` of a row whose value is the state of its key: it sorts before all records."""

RANGE: Final = ("from_offset", "from_ms", "log_offset", "timestamp_ms")
"""A range of records."""
LOG_TOPIC: Final = key("log_topic", STRING, "Internal topic.")
KEY_STATES: Final = Table(
    layer="api",
    name="key_states",
    comment="One row a group or share partition, and one without a group a log partition: what a replay leaves for the "
    "next one.",
    columns=(
        CLUSTER_ID,
        LOG_TOPIC,
        as_key(LOG_PARTITION),
        key("group_id", STRING, "The group."),
        *SHARE_PARTITION_OR_GROUP,
        Column("last_offset", BIGINT, "Offset of the last record replayed: records up to it are skipped."),
        Column(
            "settled_offset",
            BIGINT,
            "Rows that ended up to this offset are final; the next replay of new records gives all others again.",
        ),
        Column("open_producers", ArrayOf(BIGINT), "Producers with open transactions."),
        Column("log_first_offset", BIGINT, "First offset of the log partition that was ever read."),
        Column("log_last_offset", BIGINT, "Last offset of the log partition that was read."),
        Column(
            "log_ranges",
            ArrayOf(StructOf(tuple((name, BIGINT) for name in RANGE))),
            "Of a log partition: records that were read without a gap, and whose times do not go back, by offset and "
            "time (epoch milliseconds, -1: none) of the first one and the last one.",
        ),
        Column("state", BINARY, "The state of the replay.", is_personal=True),
        Column("state_format", STRING, "Format of the state: no other version reads it."),
    ),
)
"""The schema of `.state`."""


class KeyState(msgspec.Struct, frozen=True, array_like=True):
    """The state of one key."""

    last_offset: int
    settled_offset: int
    open_producers: list[int] = []
    replay: bytes = b""
    """State of the columnar replay; none: the key could not be replayed, and begins again."""
    groups: dict[str, bytes] = {}
    last_operation: bytes = b""
    """The records of the last operation, as an Arrow stream."""

    @classmethod
    def before(cls, rows: pa.Table) -> "KeyState":
        """Before an operation with these records, which are kept."""
        offsets = rows["log_offset"]
        producers = rows["producer_id"].unique().drop_null().to_pylist() if "producer_id" in rows.column_names else []
        return cls(offsets[-1].as_py(), offsets[0].as_py() - 1, producers, last_operation=stream_of(rows))

    @classmethod
    def of(cls, packed: bytes) -> "KeyState":
        """From its bytes. Raises StateUnreadable for others."""
        try:
            return msgspec.msgpack.decode(packed, type=cls)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StateUnreadable("the state of a key cannot be read") from error


@dataclass(frozen=True, slots=True)
class Begin:
    """Where the replay of a key begins."""

    first: Mapping[str, Any] = field(default_factory=dict)
    """The key, and the place of its first record to replay."""
    state: KeyState | None = None
    knows_past: bool = True
    """False: the log, or the key, has earlier records that were never read."""

    cluster_id: str | None = None

    @property
    def offsets_log(self) -> OffsetsLogState | None:
        """Of a group; None: the replay begins with nothing."""
        if self.state is None or not self.state.replay:
            return None
        return OffsetsLogState(unpack_offset_state(self.state.replay), self.state.groups)

    @property
    def share_state(self) -> ShareState | None:
        """Of a share partition; None: the replay begins with nothing."""
        return None if self.state is None or not self.state.replay else unpack_share_state(self.state.replay)


AT_START: Final = Begin()
_FIRST: Final = ("log_partition", "log_offset", "group_id", "topic_id", "partition")


def begun(batches: Batches, later_logs: Set[LogPlace] = frozenset()) -> tuple[Begin, Batches]:
    """Where the replay of a key begins, and the records to replay: none where no record is new.

    `later_logs`: log partitions that are not known from their first record on.
    """
    given = next(batches)
    row = {field.name: given[field.name][0].as_py() for field in given.schema}
    knows_past = (row.get("cluster_id"), row["log_partition"]) not in later_logs
    first = {name: row[name] for name in _FIRST if name in row}
    if row["log_offset"] != STATE_OFFSET:
        return Begin(first, None, knows_past, row.get("cluster_id")), chain([given], batches)
    state = KeyState.of(row["value"])
    begin = Begin(first, state, knows_past and bool(state.replay), row.get("cluster_id"))
    new = _behind(chain([given.slice(1)], batches), state.last_offset)
    first_new = next(new, None)
    if first_new is None:
        return begin, iter(())
    first["log_offset"] = first_new["log_offset"][0].as_py()
    return begin, chain(_as_given(state.last_operation, given.schema), [first_new], new)


def _behind(batches: Batches, offset: int) -> Batches:
    for batch in batches:
        kept = batch.filter(pc.greater(batch["log_offset"], offset))
        if kept.num_rows:
            yield kept


def _as_given(kept: bytes, schema: pa.Schema) -> Batches:
    """Kept records with the columns that the new ones have."""
    for batch in pa.ipc.open_stream(kept) if kept else ():
        there = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays = [there.get(field.name, pa.nulls(batch.num_rows, field.type)) for field in schema]
        yield pa.RecordBatch.from_arrays([a.cast(f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema)


def state_row(begin: Begin, state: KeyState) -> pa.Table:
    """A row of `KEY_STATES`, with the columns that a worker knows."""
    row = {
        **{name: begin.first.get(name) for name in ("log_partition", "group_id", "topic_id", "partition")},
        "last_offset": state.last_offset,
        "settled_offset": state.settled_offset,
        "open_producers": state.open_producers,
        "state": msgspec.msgpack.encode(state),
    }
    return pa.Table.from_pylist([row], schema=pa.schema([arrow_schema(KEY_STATES).field(name) for name in row]))
