"""What is open of a group while its log is replayed: where each interval began."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from coordinator_core.history.rows import NOTHING, Assigned, TopicKey


@dataclass(slots=True)
class Open:
    """Where an interval began."""

    log_offset: int
    timestamp_ms: int
    incarnation: int
    generation: int


@dataclass(slots=True)
class OpenAssignment:
    """What a member was given of one kind in one step, and has had since: most of what it has came at once."""

    opened: Open
    assigned: Assigned
    """Never changed, as it may be what a view remembers, and never empty."""


@dataclass(slots=True)
class OpenGeneration:
    """The open generation of a group."""

    group_type: str
    incarnation: int
    generation: int
    log_offset: int
    timestamp_ms: int
    previous_generation: int | None
    is_contiguous: bool
    current_state_at: int | None


@dataclass(slots=True)
class OpenIntervals:
    """What is open for one group."""

    incarnation: int = -1
    generation: OpenGeneration | None = None
    members: dict[str, Open] = field(default_factory=dict)
    attributes: dict[str, Open] = field(default_factory=dict)
    """Since when members have the attributes that they have, where these changed since they came."""
    assignments: dict[str, dict[str, list[OpenAssignment]]] = field(default_factory=dict)
    """Member id -> kind -> what it has, without repetition; kinds of nothing are left out."""
    assignors: Counter[str] = field(default_factory=Counter)
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Group type -> newest (incarnation, generation)."""
    notes: list[str] = field(default_factory=list)
    """Digests of what was said of the bytes that its clients write: of protocol, kind of client, and words."""


def parted(
    before: Sequence[OpenAssignment], assigned: Assigned
) -> tuple[list[OpenAssignment], list[OpenAssignment], Assigned]:
    """Of what a member had: what it keeps and what it has not any more, if `assigned` is all it has now; and what of
    that is new."""
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
    """What of `assigned` is in `other` too, and what is not."""
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
    """All of it, made to be looked up."""
    partitions: dict[TopicKey, set[int]] = {}
    for assigned in parts:
        for key, some in assigned.items():
            partitions.setdefault(key, set()).update(some)
    return {key: frozenset(every) for key, every in partitions.items()}


def in_runs(gone: Sequence[OpenAssignment]) -> Iterator[tuple[Open, Assigned]]:
    """By topic and partition, cut wherever the next one was given at another time."""
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
