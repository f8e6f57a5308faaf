"""Serializes a group between two runs: its state and its open intervals.

The bytes are MessagePack of the dataclasses' fields by position. Mappings are sorted by key, because a persistent map's
own order depends on Python's hash seed. Deserializing creates only these dataclasses, whatever the bytes. The bytes are
valid only for the code that wrote them: `STATE_FORMAT` is its version (a test notices a field that was changed without
raising the number).
"""

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

from cattrs.errors import BaseValidationError
from cattrs.preconf.msgpack import make_converter
from immutables import Map
from msgpack import UnpackException

from coordinator_core.codegen import Source
from coordinator_core.errors import StateUnreadable
from coordinator_core.history.open_intervals import Open, OpenAssignment, OpenIntervals
from coordinator_core.replay import Group
from coordinator_core.share.state import ShareGroupStatePartitions

STATE_FORMAT: Final = 7
"""Raise it whenever older saved state cannot be read, or would have another meaning: that state is then rebuilt."""


@dataclass(frozen=True, slots=True)
class GroupCheckpoint:
    """One group id at the end of a run."""

    group: Group | None
    """None: the group does not exist now; the intervals remember earlier ones with its id."""
    share_partitions: ShareGroupStatePartitions | None
    intervals: OpenIntervals | None


def pack_group(saved: GroupCheckpoint) -> bytes:
    packed: bytes = _CONVERTER.dumps(saved)
    return packed


def unpack_group(packed: bytes) -> GroupCheckpoint:
    """Deserialize the bytes of `pack_group`. Raises StateUnreadable for any other bytes."""
    try:
        return _CONVERTER.loads(packed, GroupCheckpoint, strict_map_key=False)
    except (BaseValidationError, UnpackException, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StateUnreadable("the saved state of a group cannot be read") from error


def _is_mapping(kind: Any) -> bool:
    return get_origin(kind) in {Map, Mapping, dict}


def _is_plain(kind: Any) -> bool:
    """Whether MessagePack returns such a value unchanged."""
    return kind in _PLAIN or _is_plain_union(kind)


def _is_plain_union(kind: Any) -> bool:
    return isinstance(kind, UnionType) and _PLAIN.issuperset(get_args(kind))


def _is_plain_tuple(kind: Any) -> bool:
    """Whether MessagePack returns such a value as a list with the same elements."""
    return get_origin(kind) is tuple and all(each is Ellipsis or _is_plain(each) for each in get_args(kind))


def _has_plain_keys(kind: Any) -> bool:
    return get_args(kind)[0] in {str, int}


_PLAIN: Final = frozenset({str, int, bytes, bool, NoneType})


def _unstructure_mapping(kind: Any) -> Callable[[Any], Any]:
    value_kind = get_args(kind)[1]
    value_of = _CONVERTER.get_unstructure_hook(value_kind)
    if _has_plain_keys(kind):
        if _is_plain(value_kind) or _is_plain_tuple(value_kind):
            return lambda mapping: dict(sorted(mapping.items()))
        return lambda mapping: {key: value_of(mapping[key]) for key in sorted(mapping)}
    if _is_plain(value_kind):
        return lambda mapping: sorted(mapping.items())
    return lambda mapping: [(key, value_of(mapping[key])) for key in sorted(mapping)]


def _structure_mapping(kind: Any) -> Callable[[Any, Any], Any]:
    key_kind, value_kind = get_args(kind)
    value_of = _CONVERTER.get_structure_hook(value_kind)
    make = Map if get_origin(kind) is Map else dict
    if _has_plain_keys(kind):
        if _is_plain(value_kind):
            return lambda saved, _: make(saved.items())
        return lambda saved, _: make({key: value_of(value, value_kind) for key, value in saved.items()})
    if _is_plain_tuple(key_kind) and _is_plain(value_kind):
        return lambda saved, _: make({tuple(key): value for key, value in saved})
    key_of = _CONVERTER.get_structure_hook(key_kind)
    return lambda saved, _: make({key_of(key, key_kind): value_of(value, value_kind) for key, value in saved})


_fields_of_open: Final = attrgetter(*(field.name for field in dataclasses.fields(Open)))
"""`Open` is the most frequent saved object: it becomes four numbers without names."""


def _unstructure_assignment(open_assignment: OpenAssignment) -> Any:
    keys = sorted(open_assignment.assigned)
    return *_fields_of_open(open_assignment.opened), keys, [open_assignment.assigned[key] for key in keys]


def _structure_assignment(saved: Any, _: Any) -> OpenAssignment:
    *opened, keys, partitions = saved
    made = [key if isinstance(key, str) else tuple(key) for key in keys]
    return OpenAssignment(Open(*opened), dict(zip(made, map(tuple, partitions), strict=True)))


def _saved_fields(kind: Any) -> Iterator[tuple[str, Any]]:
    """Names and types of a dataclass's saved fields."""
    hints = typing.get_type_hints(kind)
    return ((field.name, hints[field.name]) for field in dataclasses.fields(kind) if field.init)


def _unstructure_fields(kind: Any) -> Callable[[Any], Any]:
    """Write the fields by position: their names, which cattrs writes, would take a fifth of the saved bytes."""
    source = Source("unstructured(state)")
    values = []
    for name, hint in _saved_fields(kind):
        value = f"state.{name}"
        if not _is_plain(hint) and not _is_plain_tuple(hint):
            value = f"{source.name('hook', _CONVERTER.get_unstructure_hook(hint))}({value})"
        values.append(value)
    source.add(f"return ({', '.join(values)},)")
    return source.compiled(f"unstructured {kind.__name__}")


def _structure_fields(kind: Any) -> Callable[[Any, Any], Any]:
    source = Source("structured(saved, _)")
    names, values = [], []
    for name, hint in _saved_fields(kind):
        hook, hinted = source.name("hook", _CONVERTER.get_structure_hook(hint)), source.name("hint", hint)
        names.append(name)
        values.append(f"{hook}({name}, {hinted})")
    source.add(f"({', '.join(names)},) = saved", f"return {source.name('Kind', kind)}({', '.join(values)})")
    return source.compiled(f"structured {kind.__name__}")


def _is_group_or_none(kind: Any) -> bool:
    return bool(kind == Group | None)


def _unstructure_group(group: Group | None) -> Any:
    return None if group is None else (type(group).__name__, _CONVERTER.unstructure(group))


def _structure_group(saved: Any, _: Any) -> Group | None:
    if saved is None:
        return None
    name, fields = saved
    group: Group = _CONVERTER.structure(fields, _GROUPS[name])
    return group


_GROUPS: Final[Mapping[str, type[Group]]] = {kind.__name__: kind for kind in get_args(Group)}


_CONVERTER: Final = make_converter(detailed_validation=False)
_CONVERTER.register_structure_hook_func(_is_plain_union, lambda saved, _: saved)
_CONVERTER.register_structure_hook_func(_is_plain_tuple, lambda saved, _: tuple(saved))
_CONVERTER.register_unstructure_hook_func(_is_plain_tuple, lambda plain: plain)
_CONVERTER.register_unstructure_hook_factory(dataclasses.is_dataclass, _unstructure_fields)
_CONVERTER.register_structure_hook_factory(dataclasses.is_dataclass, _structure_fields)
_CONVERTER.register_unstructure_hook(Open, _fields_of_open)
_CONVERTER.register_structure_hook(Open, lambda saved, _: Open(*saved))
_CONVERTER.register_unstructure_hook(OpenAssignment, _unstructure_assignment)
_CONVERTER.register_structure_hook(OpenAssignment, _structure_assignment)
_CONVERTER.register_unstructure_hook_factory(_is_mapping, _unstructure_mapping)
_CONVERTER.register_structure_hook_factory(_is_mapping, _structure_mapping)
_CONVERTER.register_unstructure_hook_func(_is_group_or_none, _unstructure_group)
_CONVERTER.register_structure_hook_func(_is_group_or_none, _structure_group)
