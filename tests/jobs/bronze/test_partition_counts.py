"""How many partitions topics have, and since when."""

from hypothesis import given
from hypothesis import strategies as st

from jobs.bronze.partition_counts import KnownCount, grown, known_counts, merged, partition_count_rows
from tests.jobs.conftest import LedgerOf

COUNTS = st.dictionaries(st.tuples(st.sampled_from("AB"), st.integers(0, 9)), st.integers(1, 6))


@given(parts=st.lists(COUNTS, max_size=4))
def test_counts_are_the_same_however_they_are_cut(parts: list[dict[tuple[str, int], int]]) -> None:
    """Merged one by one or all at once, in any order, with what was dropped on the way: the same growth."""
    whole = merged(*parts)
    step: dict[tuple[str, int], int] = {}
    for part in reversed(parts):
        step = merged(step, grown(part))
    assert step == whole
    for topic_id in "AB":
        counts = [count for (of, _), count in sorted(whole.items()) if of == topic_id]
        assert counts == sorted(set(counts))


def test_rows_are_intervals() -> None:
    """A number of partitions holds until there are more, or until the topic is deleted; the log comes before Admin."""
    rows = partition_count_rows({("A", 5): 3, ("A", 9): 4}, {("A", 7): 3, ("B", 8): 1}, {"A": "a"}, {"A": 20})
    assert [tuple(row.values()) for row in rows] == [
        ("A", "a", 3, 5, 9, "CLUSTER_METADATA"),
        ("A", "a", 4, 9, 20, "CLUSTER_METADATA"),
        ("B", None, 1, 8, None, "ADMIN"),
    ]


def test_the_metadata_log_tells_the_internal_topics(ledger_of: LedgerOf) -> None:
    """After a night it is known how many log partitions coordinator topics have; the user may know of more."""
    ledger = ledger_of("full-a")
    known = known_counts(ledger.tables)
    assert {topic: (it.partition_count, it.source) for topic, it in known.items() if topic.startswith("__")} == {
        "__cluster_metadata": (1, "CLUSTER_METADATA"),
        "__consumer_offsets": (5, "CLUSTER_METADATA"),
        "__share_group_state": (5, "CLUSTER_METADATA"),
        "__transaction_state": (5, "CLUSTER_METADATA"),
    }
    more = known_counts(ledger.tables, {"__consumer_offsets": 6, "__share_group_state": 4})
    assert more["__consumer_offsets"] == KnownCount(6, "SETTING", None)
    assert more["__share_group_state"] == known["__share_group_state"]
