"""The order of Kafka's TimelineHashMap, against what Kafka's own class printed."""

from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.java.timeline import (
    TIMELINE_MIN_CAPACITY,
    grown_timeline_capacity,
    timeline_capacity_after,
    timeline_order,
)


class Table:
    """A TimelineHashMap as far as its order goes."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.capacity = TIMELINE_MIN_CAPACITY
        self._next = 0

    def put(self, number: int) -> None:
        key = f"member-{number}"
        self.capacity = grown_timeline_capacity(self.capacity, len(self.places))
        if key not in self.places:
            self.places[key] = self._next
            self._next += 1

    def remove(self, number: int) -> None:
        del self.places[f"member-{number}"]

    def order(self) -> list[int]:
        member_ids = timeline_order(self.places, self.capacity, string_hash_code)
        return [int(member_id.removeprefix("member-")) for member_id in member_ids]


def test_a_slot_is_walked_from_its_newest_element() -> None:
    """Small tables, in which most elements share their slot."""
    table = Table()
    table.put(0)
    table.put(7)
    assert table.order() == [0, 7]
    table.put(0)
    table.put(14)
    assert table.order() == [0, 14, 7]
    for number in (21, 28, 35):
        table.put(number)
    assert table.order() == [21, 28, 0, 7, 35, 14]


def test_what_goes_and_comes_back_is_the_newest_of_its_slot() -> None:
    """Fourteen elements in 16 slots; the table keeps its size when elements go."""
    table = Table()
    for number in range(0, 98, 7):
        table.put(number)
    assert table.order() == [21, 91, 70, 49, 0, 28, 77, 56, 7, 35, 14, 84, 63, 42]
    table.remove(21)
    table.remove(0)
    table.put(0)
    assert table.order() == [91, 70, 0, 49, 28, 77, 56, 7, 35, 14, 84, 63, 42]


def test_a_put_of_what_is_there_grows_the_table_too() -> None:
    """BaseHashTable looks after its size before it knows whether the element is new."""
    assert [grown_timeline_capacity(2, size) for size in (0, 1, 2)] == [2, 2, 4]
    assert [grown_timeline_capacity(4, size) for size in (4, 5)] == [4, 8]
    assert [timeline_capacity_after(put_count) for put_count in (0, 2, 3, 6, 11)] == [2, 2, 4, 8, 16]
