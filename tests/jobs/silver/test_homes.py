"""Where Kafka looks for a key that has records in several log partitions."""

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.replay.lookup import SharePartitionKey, key_codes, key_partition
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.times import epoch_ms
from jobs.silver.coordinator_keys import TABLE_COLUMNS, in_several, merged_keys, of_log, without_logs
from jobs.silver.homes import (
    CoordinatorPartitions,
    CountSince,
    PartitionCounts,
    coordinator_partitions,
    is_same,
    move_text,
    stays_of,
)
from schemas.consumer_offsets import TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.state import CHECKPOINTS
from tests.coordinator_core.group_records import T1

LOG = "CLUSTER_METADATA"
GROWN = PartitionCounts(TOPIC, (CountSince(-1, 2, LOG), CountSince(100, 3, LOG)), seen=3)


def group_in(*places: int) -> str:
    """A group that is in these log partitions of topics with 2, 3, ... partitions."""
    names = map("g{}".format, range(10_000))
    return next(it for it in names if places == tuple(key_partition(it, 2 + index) for index in range(len(places))))


def stays(group: str, began: dict[int, int], counts: PartitionCounts) -> list[tuple[Any, ...]]:
    """Intervals as tuples: from, to, log partition, former ones, why."""
    (code,) = key_codes([group]).tolist()
    return [
        (it.from_ms, None if it.to_ms < 0 else it.to_ms, it.log_partition, it.former, it.learned_from)
        for it in stays_of(code, list(began.items()), counts.ages())
    ]


CASES = {
    "the metadata log knows when, and the group began there later": (
        {0: 10, 2: 150},
        GROWN,
        [(-1, 100, 0, (), LOG), (100, 150, 0, (), "EARLIER_COUNT"), (150, None, 2, (0,), LOG)],
    ),
    "compaction took the beginning of the former log partition: what is left of it is younger": (
        {0: 500, 2: 150},
        GROWN,
        [(-1, 500, 2, (), LOG), (500, None, 2, (0,), LOG)],
    ),
    "the same where nothing but the highest number is known": (
        {0: 500, 2: 150},
        PartitionCounts(TOPIC, seen=3),
        [(-1, 500, 2, (), "HIGHEST_SEEN"), (500, None, 2, (0,), "HIGHEST_SEEN")],
    ),
    "the user says more than was found": (
        {0: 500, 2: 150},
        PartitionCounts(TOPIC, said=3, seen=2),
        [(-1, 500, 2, (), "SETTING"), (500, None, 2, (0,), "SETTING")],
    ),
    "what a source said last is less than what was found: the topic got more since": (
        {0: 500, 2: 150},
        PartitionCounts(TOPIC, (CountSince(50, 2, "ADMIN"),), seen=3),
        [(-1, 500, 2, (), "HIGHEST_SEEN"), (500, None, 2, (0,), "HIGHEST_SEEN")],
    ),
    "none has its records by the newest number, so an earlier one tells": (
        {0: 10, 2: 500, 1: 300},
        PartitionCounts(TOPIC, (*GROWN.known, CountSince(700, 50, LOG)), seen=50),
        [
            (-1, 100, 0, (), LOG),
            (100, 300, 0, (), "EARLIER_COUNT"),
            (300, 500, 0, (1,), "EARLIER_COUNT"),
            (500, 700, 2, (0, 1), LOG),
            (700, None, 2, (0, 1), "EARLIER_COUNT"),
        ],
    ),
    "no number explains it": (
        {1: 10, 3: 20},
        PartitionCounts(TOPIC, seen=4),
        [(-1, 20, 1, (), "BEGAN_LAST"), (20, None, 3, (1,), "BEGAN_LAST")],
    ),
    "records without a time are of the beginning": (
        {0: -1, 2: 150},
        PartitionCounts(TOPIC, seen=3),
        [(-1, 150, 0, (), "BEGAN_LAST"), (150, None, 2, (0,), "HIGHEST_SEEN")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_where_a_group_is_over_time(name: str) -> None:
    """By the number of partitions at each time, as far as anything tells it."""
    began, counts, expected = CASES[name]
    group = group_in(0, 2)
    assert stays(group, began, counts) == expected


def keys(*rows: tuple[str, int, str, str | None, int | None, int | None]) -> pa.Table:
    """Rows of state.checkpoints about keys: topic, log partition, group, topic id, partition, began (epoch ms)."""
    schema = arrow_schema(CHECKPOINTS)
    columns = dict(zip(TABLE_COLUMNS, zip(*rows, strict=True), strict=True))
    times = [None if at is None else at * 1000 for at in columns.pop("at")]
    arrays = {name: pa.array(values, schema.field(name).type) for name, values in columns.items()}
    return pa.table({**arrays, "at": pa.array(times, pa.int64()).cast(schema.field("at").type)})


def test_only_keys_in_several_log_partitions_have_rows() -> None:
    """A share partition is a key of its own, and groups of one name in both topics are two."""
    group = group_in(0, 2)
    places = [(n, key_partition(SharePartitionKey(group, T1, n).as_coordinator_key(), 3)) for n in range(3)]
    (share, here), (other, there) = places[0], places[1]
    former = (here + 1) % 3
    found = merged_keys(
        [
            keys((TOPIC, 0, group, None, None, 10), (SHARE_TOPIC, former, group, T1, share, 5)),
            keys((TOPIC, 2, group, None, None, 150), (TOPIC, 2, "alone", None, None, None)),
            keys((SHARE_TOPIC, here, group, T1, share, 300), (SHARE_TOPIC, there, group, T1, other, 7)),
        ]
    )
    assert found.num_rows == 6
    assert in_several(found).num_rows == 4
    counts = {TOPIC: GROWN, SHARE_TOPIC: PartitionCounts(SHARE_TOPIC, seen=3)}
    rows = coordinator_partitions(found, counts, "c")
    now = [row for row in rows.to_pylist() if row["valid_to"] is None]
    assert [(row["log_topic"], row["partition"], row["log_partition"]) for row in now] == [
        (TOPIC, None, 2),
        (SHARE_TOPIC, share, here),
    ]
    places_now = CoordinatorPartitions(rows)
    (move,) = places_now.left_behind(TOPIC, None).moves.values()
    assert (move.key, move.log_partition, move.left) == (group, 2, (0,))
    assert not places_now.left_behind(TOPIC, 20)
    assert not places_now.left_behind(TOPIC, None, ["alone"])
    key = SharePartitionKey(group, T1, share).as_coordinator_key()
    assert places_now.left_behind(SHARE_TOPIC, None, [group]).is_past(key, former)
    assert "now that the topic has 3 partitions" in move_text(move)


def test_what_is_kept_of_log_partitions_is_put_together() -> None:
    """The earliest time that is known counts; log partitions that are replayed again bring their own."""
    found = merged_keys([keys((TOPIC, 0, "a", None, None, 9)), keys((TOPIC, 0, "a", None, None, None))])
    assert [epoch_ms(at) for at in found["at"].to_pylist()] == [9]
    found = merged_keys([found, keys((TOPIC, 0, "a", None, None, 4), (TOPIC, 1, "b", None, None, None))])
    assert [(row["group_id"], row["log_partition"]) for row in found.to_pylist()] == [("a", 0), ("b", 1)]
    assert epoch_ms(found["at"][0].as_py()) == 4
    assert without_logs(found, {TOPIC: {0}, SHARE_TOPIC: {1}})["group_id"].to_pylist() == ["b"]
    assert of_log(found, TOPIC, 0)["group_id"].to_pylist() == ["a"]
    assert merged_keys([]).num_rows == 0


BEGAN = st.dictionaries(st.integers(0, 4), st.integers(-1, 12), min_size=1, max_size=4)
COUNTS = st.builds(
    PartitionCounts,
    st.just(TOPIC),
    st.lists(st.tuples(st.integers(-1, 12), st.integers(1, 5)), max_size=3).map(
        lambda times: tuple(sorted(CountSince(since, count, LOG) for since, count in times))
    ),
    said=st.integers(0, 5),
    seen=st.integers(0, 5),
)


@given(group=st.text("ab", min_size=1, max_size=3), began=BEGAN, counts=COUNTS)
def test_intervals_of_a_key_follow_one_another(group: str, began: dict[int, int], counts: PartitionCounts) -> None:
    """At each time one holds, of a log partition that has records of the key by then, where any has."""
    found = stays(group, began, counts)
    assert found[0][0] == -1 and found[-1][1] is None
    assert all(one[1] == next_one[0] for one, next_one in pairwise(found))
    for at_ms in range(-1, 14):
        ((_, _, here, former, _),) = [it for it in found if it[0] <= at_ms and (it[1] is None or at_ms < it[1])]
        by_then = {number for number, since_ms in began.items() if since_ms <= at_ms}
        if by_then:
            assert by_then == {here, *former}


def test_the_order_of_rows_makes_no_difference() -> None:
    """maintain may put them in another one."""
    group = group_in(0, 2)
    rows = coordinator_partitions(
        keys((TOPIC, 0, group, None, None, 10), (TOPIC, 2, group, None, None, 150)), {TOPIC: GROWN}, "c"
    )
    assert is_same(rows, rows.take(list(reversed(range(rows.num_rows)))))
    assert not is_same(rows, rows.slice(1))
