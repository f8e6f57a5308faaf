"""Who owned what, when."""

from collections.abc import Sequence
from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.inference.facts.rows import OwnerRow
from coordinator_core.inference.groups.owners import partition_owners
from tests.coordinator_core.group_records import Record
from tests.coordinator_core.inference.group_lives import classic, epoch, goes, joins, life_of, reconciled, target


def reported(rows: Sequence[OwnerRow]) -> list[tuple[int, str, int, int | None, int | None, bool]]:
    return [
        (row.partition, row.member_id, row.valid_from, row.valid_to, row.gap_before_ms, row.is_double) for row in rows
    ]


def test_member_keeps_what_it_is_asked_to_give_up() -> None:
    """Owned and being given up is one interval; the gap until the next owner is said."""
    life = life_of(
        [
            (0, [*joins("a"), *epoch(2), *target(2, {"a": (0, 1)}), *reconciled("a", 2, (0, 1))]),
            (1_000, [*joins("b"), *epoch(3), *target(3, {"a": (0,), "b": (1,)})]),
            (2_000, reconciled("a", 2, (0,), revoking=(1,), state=1)),
            (3_000, reconciled("a", 3, (0,))),
            (3_500, reconciled("b", 3, (1,))),
        ]
    )
    rows = partition_owners(life)
    assert reported(rows) == [
        (0, "a", 0, None, None, False),
        (1, "a", 0, 3_000, None, False),
        (1, "b", 3_500, None, 500, False),
    ]
    assert rows[1].to_log_offset == max(
        row.to_log_offset or 0 for row in life.assignments if (row.partition, row.assignment) == (1, "REVOKING")
    )


def test_two_owners_are_said() -> None:
    """A log in which two members own a partition at one time is broken, and both intervals say so."""
    life = life_of([(0, classic(1, {"a": (0, 1), "b": (1,)})), (1_000, classic(2, {"a": (0,), "b": (1,)}))])
    assert reported(partition_owners(life)) == [
        (0, "a", 0, None, None, False),
        (1, "a", 0, 1_000, None, True),
        (1, "b", 0, None, None, True),
    ]


def test_who_owned_it_is_named() -> None:
    """Client, host and instance are the member's."""
    (row,) = partition_owners(life_of([(0, classic(1, {"a": (0,)}, instances={"a": "i"}))]))
    assert (row.client_id, row.client_host, row.instance_id) == ("client-a", "/h", "i")


@st.composite
def classic_lives(draw: st.DrawFn) -> list[tuple[int, list[Record]]]:
    """Generations in each of which every partition has one owner or none."""
    generations = draw(st.lists(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=4, max_size=4), max_size=8))
    operations = []
    for number, owners in enumerate(generations):
        owned: dict[str, list[int]] = {}
        for partition, owner in enumerate(owners):
            if owner is not None:
                owned.setdefault(owner, []).append(partition)
        operations.append((number * 1_000, classic(number, owned)))
    return operations


@st.composite
def consumer_lives(draw: st.DrawFn) -> list[tuple[int, list[Record]]]:
    """A consumer group as its coordinator runs it: what a member gives up is free before another gets it."""
    operations: list[tuple[int, list[Record]]] = []
    owned_rows: dict[str, set[int]] = {}
    number = 1
    for step in range(draw(st.integers(1, 12))):
        number += 1
        member = draw(st.sampled_from(["a", "b", "c"]))
        taken = set().union(*(owned for name, owned in owned_rows.items() if name != member))
        at = step * 1_000
        if member in owned_rows and draw(st.booleans()):
            del owned_rows[member]
            operations.append((at, [*goes(member), *epoch(number)]))
            continue
        records = [] if member in owned_rows else joins(member)
        owned = draw(st.sets(st.integers(0, 3))) - taken
        given_up = owned_rows.get(member, set()) - owned
        operations.append((at, [*records, *epoch(number), *target(number, {member: tuple(sorted(owned))})]))
        if given_up:
            kept = sorted(owned & owned_rows[member])
            operations.append((at + 300, reconciled(member, number, kept, revoking=sorted(given_up), state=1)))
        operations.append((at + 600, reconciled(member, number, sorted(owned))))
        owned_rows[member] = owned
    return operations


@given(classic_lives() | consumer_lives())
def test_owners_of_one_partition_never_overlap(operations: list[tuple[int, list[Record]]]) -> None:
    """Where the coordinator keeps its rules, no partition has two owners, and gaps fill what lies between."""
    rows = partition_owners(life_of(operations))
    assert not any(row.is_double for row in rows)
    by_partition: dict[int, list[OwnerRow]] = {}
    for row in rows:
        by_partition.setdefault(row.partition, []).append(row)
    for intervals in by_partition.values():
        for one, other in combinations(intervals, 2):
            assert one.to_log_offset is not None
            assert one.to_log_offset <= other.from_log_offset
        for one, other in pairwise(intervals):
            assert other.gap_before_ms == other.valid_from - (one.valid_to or 0)
        assert intervals[0].gap_before_ms is None
