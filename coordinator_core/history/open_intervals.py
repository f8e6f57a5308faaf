"""The open intervals of a group while its log is replayed: where each of them began."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import msgspec

from coordinator_core.history.rows import NOTHING, Assigned, TopicKey


class Open(msgspec.Struct, gc=False, array_like=True):
    log_offset: int
    timestamp_ms: int
    incarnation: int
    generation: int


class OpenAssignment(msgspec.Struct, gc=False, array_like=True):
    """What a member was assigned of one kind in one step and still has. Most of an assignment comes in one step."""

    opened: Open
    assigned: Assigned
    """Never modified, since a cache of `views` may share it. Never empty."""


class OpenGeneration(msgspec.Struct, gc=False, array_like=True):
    group_type: str
    incarnation: int
    generation: int
    log_offset: int
    timestamp_ms: int
    previous_generation: int | None
    is_contiguous: bool
    current_state_at: int | None


class OpenIntervals(msgspec.Struct, gc=False, array_like=True):
    incarnation: int = -1
    generation: OpenGeneration | None = None
    members: dict[str, Open] = {}
    attributes: dict[str, Open] = {}
    """Member id -> since when its attributes are unchanged, if they changed after it joined."""
    assignments: dict[str, dict[str, list[OpenAssignment]]] = {}
    """Member id -> kind -> what it has, without repetition. Empty kinds are left out."""
    assignors: dict[str, int] = {}
    """Server assignor -> how many members ask for it."""
    newest: dict[str, tuple[int, int]] = {}
    """Group type -> newest (incarnation, generation)."""
    notes: list[str] = []
    """Digests of reported malformed client bytes: each of protocol, kind of client, and message."""


def parted(
    before: Sequence[OpenAssignment], assigned: Assigned
) -> tuple[list[OpenAssignment], list[OpenAssignment], Assigned]:
    """Split a member's assignment into what it keeps, what it lost, and what is new, if `assigned` is all it has
    now."""
    if not before:
        return [], [], assigned
    had: Mapping[TopicKey, Collection[int]] = before[0].assigned
    has: Mapping[TopicKey, Collection[int]] = assigned
    if len(before) > 1:
        had, has = _together([open_assignment.assigned for open_assignment in before]), _together([assigned])
    elif had == has:
        return list(before), [], NOTHING
    kept: list[OpenAssignment] = []
    gone: list[OpenAssignment] = []
    for open_assignment in before:
        left, lost = _split(open_assignment.assigned, has)
        if not lost:
            kept.append(open_assignment)
            continue
        gone.append(OpenAssignment(open_assignment.opened, lost))
        if left:
            kept.append(OpenAssignment(open_assignment.opened, left))
    return kept, gone, _split(assigned, had)[1]


def _split(assigned: Assigned, other: Mapping[TopicKey, Collection[int]]) -> tuple[Assigned, Assigned]:
    """Split `assigned` into what `other` has too, and the rest."""
    both: dict[TopicKey, tuple[int, ...]] = {}
    rest: dict[TopicKey, tuple[int, ...]] = {}
    for key, partitions in assigned.items():
        others = other.get(key)
        if others is None:
            rest[key] = partitions
        elif partitions == others:
            both[key] = partitions
        else:
            known = frozenset(others)
            common = tuple([partition for partition in partitions if partition in known])
            if common:
                both[key] = common
            if len(common) < len(partitions):
                rest[key] = tuple([partition for partition in partitions if partition not in known])
    return both, rest


def _together(parts: Iterable[Assigned]) -> Mapping[TopicKey, frozenset[int]]:
    """The union of the parts, as sets for lookup."""
    partitions: dict[TopicKey, set[int]] = {}
    for assigned in parts:
        for key, some in assigned.items():
            partitions.setdefault(key, set()).update(some)
    return {key: frozenset(every) for key, every in partitions.items()}


def in_runs(gone: Sequence[OpenAssignment]) -> Iterator[tuple[Open, Assigned]]:
    """Runs by topic and partition, cut wherever the next partition was assigned at another time."""
    if len(gone) == 1:
        assigned = gone[0].assigned
        yield gone[0].opened, assigned if len(assigned) == 1 else dict(sorted(assigned.items()))
        return
    opened = {
        (key, partition): open_assignment.opened
        for open_assignment in gone
        for key, partitions in open_assignment.assigned.items()
        for partition in partitions
    }
    for at, places in groupby(sorted(opened), opened.__getitem__):
        topics = groupby(places, itemgetter(0))
        yield at, {key: tuple([partition for _, partition in some]) for key, some in topics}
