"""Group records for tests: by hand from plain dictionaries, and any that the declarations allow."""

from typing import Any

from hypothesis import strategies as st

from coordinator_core.bytes.codec import Struct, make
from coordinator_core.replay.anomalies import Anomaly
from coordinator_core.replay.dispatch import GroupShard, replay
from schemas import wire
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.registry import REGISTRY

Record = tuple[RecordType, Struct, Struct | None]

T1, T2 = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def record(record_type: RecordType, key: dict[str, Any], value: dict[str, Any] | None) -> Record:
    """A record from the fields which are not at their default; a value of None is a tombstone."""
    key_message, value_message = REGISTRY[TOPIC][record_type]
    return record_type, make(key_message, **key), None if value is None else _struct(value_message, value)


def folded(*records: Record, shard: GroupShard | None = None) -> tuple[GroupShard, list[str]]:
    """The shard after the records, and the codes of the anomalies."""
    shard = shard or GroupShard()
    anomalies: list[Anomaly] = []
    for record_type, key, value in records:
        shard = replay(shard, record_type, key, value, report=anomalies.append)
    return shard, [anomaly.code for anomaly in anomalies]


def no_anomaly(anomaly: Anomaly) -> None:
    """A report for logs which must not contradict themselves."""
    raise AssertionError(anomaly)


def _struct(declaration: wire.Message | wire.Struct, fields: dict[str, Any]) -> Struct:
    kinds = {field.name: field.kind for field in declaration.fields}
    return make(declaration, **{name: _value(kinds[name], value) for name, value in fields.items()})


def _value(kind: wire.Kind, value: Any) -> Any:
    if isinstance(kind, wire.Array) and value is not None:
        return tuple(_value(kind.element, element) for element in value)
    return _struct(kind, value) if isinstance(kind, wire.Struct) and isinstance(value, dict) else value


# --- any record: small spaces, so that ids meet ---

_PRIMITIVES: dict[wire.Primitive, st.SearchStrategy[Any]] = {
    wire.Bool: st.booleans(),
    wire.Int8: st.integers(-1, 4),
    wire.Int16: st.integers(-1, 4),
    wire.UInt16: st.integers(0, 4),
    wire.Int32: st.integers(-2, 4),
    wire.Int64: st.integers(-1, 4),
    wire.Uuid: st.sampled_from([T1, T2]),
    wire.String: st.sampled_from(["", "a", "b"]),
    wire.Bytes: st.sampled_from([b"", b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff", b"\x00"]),
}


def _any_value(kind: wire.Kind) -> st.SearchStrategy[Any]:
    if isinstance(kind, wire.Array):
        return st.lists(_any_value(kind.element), max_size=3).map(tuple)
    return _any_struct(kind) if isinstance(kind, wire.Struct) else _PRIMITIVES[kind]


def _any_struct(declaration: wire.Message | wire.Struct) -> st.SearchStrategy[Struct]:
    fields = {
        field.name: _any_value(field.kind) if field.nullable == "none" else st.none() | _any_value(field.kind)
        for field in declaration.fields
    }
    return st.fixed_dictionaries(fields).map(lambda values: make(declaration, **values))


@st.composite
def _any_record(draw: st.DrawFn, record_type: RecordType, *, tombstones_only: bool) -> Record:
    key_message, value_message = REGISTRY[TOPIC][record_type]
    value = st.none() if tombstones_only else st.none() | _any_struct(value_message)
    return record_type, draw(_any_struct(key_message)), draw(value)


def any_records(*, tombstones_only: bool = False) -> st.SearchStrategy[list[Record]]:
    """Any sequence of records of any type of the topic, two group ids and two member ids."""
    one = st.one_of([_any_record(record_type, tombstones_only=tombstones_only) for record_type in RecordType])
    return st.lists(one, max_size=40)
