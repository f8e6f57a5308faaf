"""Share partitions as tasks read them from silver."""

import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator_core.bytes.log.chunk import I64
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.gold import share_reader
from jobs.gold.share_reader import StateRows, evenly_cut, share_members, share_states
from jobs.silver.reader import SilverFiles
from schemas.tables.silver import GROUP_MEMBERS, SHARE_PARTITION_STATES

CLUSTER = "c"
LOG_PARTITION = 3
STATES = st.tuples(
    st.sampled_from(["g", "h", ""]), st.sampled_from(["B", "A"]), st.sampled_from([-(2**31), 1, 2, 2**31 - 1])
)


def states_of(warehouse: Warehouse, number: int, rows: list[dict[str, Any]]) -> StateRows:
    """The rows, written and read; nulls in all other columns."""
    schema = arrow_schema(SHARE_PARTITION_STATES)
    common = dict.fromkeys(schema.names) | {"cluster_id": CLUSTER, "log_partition": LOG_PARTITION}
    table = pa.Table.from_pylist([common | row for row in rows], schema=schema)
    warehouse.ensure(SHARE_PARTITION_STATES)
    warehouse.write(SHARE_PARTITION_STATES, table, app_id="a", version=number, mode="overwrite")
    return share_states(SilverFiles.of(ClusterTables(warehouse, CLUSTER), [SHARE_PARTITION_STATES]), LOG_PARTITION)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(st.lists(STATES, min_size=1, max_size=8), min_size=1, max_size=2))
def test_each_state_finds_its_share_partition(warehouse: Warehouse, parts: list[list[tuple[str, str, int]]]) -> None:
    """By group, topic id and partition, and in this order; partitions may have any number."""
    for part in parts:
        rows = [
            {"group_id": group, "topic_id": topic_id, "partition": partition, "log_offset": number}
            for number, (group, topic_id, partition) in enumerate(part)
        ]
        version = 1 + warehouse.last_version(SHARE_PARTITION_STATES, "a")
        found = states_of(warehouse, version, rows)
        keys = found.keys
        places = [
            (keys.group_ids[group], topic_id, partition)
            for group, topic_id, partition in zip(
                keys.group.tolist(), keys.topic_ids, keys.partition.tolist(), strict=True
            )
        ]
        assert places == sorted(set(part))
        assert [places[key] for key in found.key.tolist()] == [part[at] for at in found.rows["log_offset"].to_pylist()]


def test_any_row_tells_the_topic_of_its_share_partition(warehouse: Warehouse) -> None:
    """A name is given to all rows of the share partition, and to no other."""
    row = {"group_id": "g", "partition": 7, "log_offset": 0}
    rows = [
        row | {"topic_id": "A", "topic": None},
        row | {"topic_id": "A", "topic": "t"},
        row | {"topic_id": "B", "topic": None},
    ]
    assert states_of(warehouse, 0, rows).keys.topics == ["t", None]


def test_no_states(warehouse: Warehouse) -> None:
    """A log partition of which silver holds nothing."""
    warehouse.ensure(SHARE_PARTITION_STATES)
    found = share_states(SilverFiles.of(ClusterTables(warehouse, CLUSTER), [SHARE_PARTITION_STATES]), LOG_PARTITION)
    assert (len(found.key), len(found.keys.partition)) == (0, 0)


def test_who_came_or_went_at_an_unknown_time(warehouse: Warehouse) -> None:
    """Nobody knows who was in a group then, so that nothing is concluded from its members."""
    schema = arrow_schema(GROUP_MEMBERS)
    came, went = datetime(2026, 1, 5, 8, tzinfo=UTC), datetime(2026, 1, 5, 9, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        {"group_id": "stays", "valid_from": came},
        {"group_id": "left", "valid_from": came},
        {"group_id": "left", "valid_from": came, "valid_to": went, "to_log_offset": 7},
        {"group_id": "came sometime"},
        {"group_id": "came sometime", "valid_from": came},
        {"group_id": "went sometime", "valid_from": came, "to_log_offset": 7},
    ]
    common = dict.fromkeys(schema.names) | {"cluster_id": CLUSTER, "group_type": "SHARE"}
    table = pa.Table.from_pylist([common | row for row in rows], schema=schema)
    warehouse.ensure(GROUP_MEMBERS)
    warehouse.write(GROUP_MEMBERS, table, app_id="a", version=0, mode="overwrite")
    found = share_members(SilverFiles.of(ClusterTables(warehouse, CLUSTER), [GROUP_MEMBERS]))
    assert {group: len(stays.joined_ms) for group, stays in found.items()} == {"left": 2, "stays": 1}


@pytest.mark.parametrize("steps_max", [1, 3, 1 << 16])
@given(
    places=st.lists(st.integers(0, 2**62) | st.integers(2**40, 2**40 + 50), max_size=60),
    count_max=st.integers(1, 20),
    at_once=st.integers(1, 60),
)
def test_a_log_is_cut_into_pieces_of_so_many_rows(
    steps_max: int, places: list[int], count_max: int, at_once: int
) -> None:
    """Whatever order they are read in, and as finely as they are measured: one step more would be too many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(share_reader, "STEPS_MAX", steps_max)

        def cut(some: list[int]) -> list[int]:
            parts = [np.array(some[at : at + at_once]) for at in range(0, len(some), at_once)]
            return evenly_cut(lambda: parts, count_max)

        ends = cut(places)
        assert cut(sorted(places)) == ends
    assert ends == sorted(set(ends))
    first, last = min(places, default=0), max(places, default=0)
    width = (last - first) // steps_max + 1

    def count(begin: int, end: int) -> int:
        return sum(begin <= place < end for place in places)

    for begin, end in pairwise([first, *ends, last + 1]):
        assert 0 < count(begin, end) < count_max + max(1, count(begin, begin + width)) or not places
        assert count(begin, end + width) > count_max or end not in ends


def test_what_a_cut_takes_does_not_grow_with_the_log() -> None:
    """Row groups are looked at one after another. All log offsets of a long log are hundreds of megabytes."""

    def peak(row_groups: int) -> int:
        def places() -> Iterator[I64]:
            for number in range(row_groups):
                yield np.arange(number * 10_000, (number + 1) * 10_000)

        tracemalloc.start()
        ends = evenly_cut(places, 25_000)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(ends) == (row_groups * 10_000 - 1) // 25_000
        return used

    assert peak(500) < peak(50) + (1 << 20)
