"""The iteration order of Java's hash collections.

A table of 2^k buckets is iterated from the first to the last; an element's bucket is the low k bits of its folded hash
code. `put` appends a new element to its bucket, `computeIfAbsent` prepends it. The table doubles when it is more than
three quarters full, and never shrinks: `put` checks after the insertion, `computeIfAbsent` before. Nothing else has to
be emulated (java.util.HashMap, JDK 17 to 25).

Not emulated: buckets of eight or more elements in tables of at least 64, which Java turns into trees. Hash codes of ids
are well distributed, so such a bucket is not expected; here its order would be the order of insertion.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from coordinator_core.replay.java.hash_codes import UINT32_MASK, HashCode

TABLE_SIZE_DEFAULT: Final = 16
LOAD_FACTOR: Final = 0.75
TREEIFY_THRESHOLD: Final = 8
TREE_TABLE_SIZE_MIN: Final = 64
"""A long bucket in a smaller table doubles the table instead of becoming a tree."""

K = TypeVar("K")
V = TypeVar("V")


def bucket_of(code: int, table_size: int) -> int:
    """The bucket of an element with this hash code: the upper half is folded into the lower one."""
    code &= UINT32_MASK
    return (code ^ code >> 16) & (table_size - 1)


def grown(table_size: int, element_count: int) -> int:
    """Size of a table after an insertion: doubled once if it is more than three quarters full."""
    return table_size * 2 if element_count > table_size * LOAD_FACTOR else table_size


class HashMap(Generic[K, V]):
    """A map with the iteration order of `java.util.HashMap`. Iterations are over a copy: the map may change
    meanwhile."""

    def __init__(self, hash_code: HashCode[K], initial_capacity: int = TABLE_SIZE_DEFAULT) -> None:
        self._hash_code = hash_code
        self._values: dict[K, V] = {}
        self._places: dict[K, int] = {}
        """Key -> its position in its bucket."""
        self._first_place = 0
        self._next_place = 0
        self._table_size = _power_of_two_from(initial_capacity)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def __setitem__(self, key: K, value: V) -> None:
        """`put`: an existing key keeps its place."""
        if key not in self._values:
            self._places[key] = self._next_place
            self._next_place += 1
            self._values[key] = value
            self._split_if_bucket_exceeds(TREEIFY_THRESHOLD, key)
            self._grow_if_full()
        self._values[key] = value

    def __delitem__(self, key: K) -> None:
        del self._values[key]
        del self._places[key]

    def __iter__(self) -> Iterator[K]:
        return iter(sorted(self._values, key=lambda key: (self._bucket(key), self._places[key])))

    def get(self, key: K) -> V | None:
        return self._values.get(key)

    def compute_if_absent(self, key: K, compute: Callable[[], V]) -> V:
        """The value of the key, computed if it was missing. The table may grow in either case."""
        self._grow_if_full()
        if key not in self._values:
            self._first_place -= 1
            self._places[key] = self._first_place
            self._values[key] = compute()
            self._split_if_bucket_exceeds(TREEIFY_THRESHOLD - 1, key)
        return self._values[key]

    def items(self) -> Iterator[tuple[K, V]]:
        """Keys and values in Java's order."""
        return iter([(key, self._values[key]) for key in self])

    def _bucket(self, key: K) -> int:
        return bucket_of(self._hash_code(key), self._table_size)

    def _grow_if_full(self) -> None:
        self._table_size = grown(self._table_size, len(self._values))

    def _split_if_bucket_exceeds(self, length: int, key: K) -> None:
        """`treeifyBin` of a small table: a bucket that became long doubles the table."""
        if self._table_size < TREE_TABLE_SIZE_MIN and len(self._values) > length:
            bucket = self._bucket(key)
            if sum(self._bucket(other) == bucket for other in self._values) > length:
                self._table_size *= 2


class HashSet(HashMap[K, None]):
    """A set with the iteration order of `java.util.HashSet`, which is a map without values."""

    def __init__(
        self, hash_code: HashCode[K], elements: Iterable[K] = (), *, initial_capacity: int = TABLE_SIZE_DEFAULT
    ) -> None:
        super().__init__(hash_code, initial_capacity)
        for element in elements:
            self.add(element)

    def add(self, element: K) -> None:
        """Add an element; an existing one keeps its place."""
        self[element] = None

    def discard(self, element: K) -> None:
        """Remove an element, if it exists (`remove`)."""
        if element in self:
            del self[element]


def in_hash_order(
    elements: Iterable[K], hash_code: HashCode[K], *, initial_capacity: int = TABLE_SIZE_DEFAULT
) -> list[K]:
    """The elements in the iteration order of a HashSet that was filled in the given order."""
    return list(HashSet(hash_code, elements, initial_capacity=initial_capacity))


def in_bucket_order(elements: Iterable[K], hash_code: HashCode[K], table_size: int = TABLE_SIZE_DEFAULT) -> list[K]:
    """The elements, given in insertion order, in the iteration order of a table of this size, however full it is."""
    return sorted(elements, key=lambda element: bucket_of(hash_code(element), table_size))


def capacity_for(mapping_count: int) -> int:
    """Initial capacity of the maps that Kafka creates for a known number of elements (AssignorHelpers.newHashMap)."""
    return int((mapping_count + 1) / LOAD_FACTOR + 1)


def capacity_of_copy(element_count: int) -> int:
    """Initial capacity of `new HashSet<>(collection)`."""
    return max(int(element_count / LOAD_FACTOR) + 1, TABLE_SIZE_DEFAULT)


def capacity_of_map_copy(size: int) -> int:
    """Initial capacity of `new HashMap<>(map)`; for an empty map the default."""
    return int(size / LOAD_FACTOR + 1) if size else TABLE_SIZE_DEFAULT


def _power_of_two_from(capacity: int) -> int:
    """`HashMap.tableSizeFor`: the smallest power of two that is not below the capacity."""
    return 1 << max(capacity - 1, 0).bit_length()
