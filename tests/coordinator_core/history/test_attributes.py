"""silver.member_attributes: what a member had, and from when to when."""

from itertools import pairwise

import pytest

from coordinator_core.history.groups import GroupHistory
from coordinator_core.history.operations import GroupRecord, Operation
from coordinator_core.history.rows import AttributesRow, MemberRow
from tests.coordinator_core.group_records import Record
from tests.coordinator_core.inference.group_lives import GROUP, classic, epoch, goes, joins

Reported = list[tuple[int, list[Record]]]

CLASSIC: Reported = [
    (0, classic(1, {"a": (0,), "b": (1,)})),
    (1_000, classic(2, {"a": (), "b": (1,)}, topics={"a": ("u",)})),
    (2_000, classic(3, {"a": (), "b": (1,)}, topics={"a": ("u",)})),
    (3_000, classic(4, {"a": (0,), "b": (1,)}, hosts={"a": "/other"}, session_ms=6_000)),
    (4_000, classic(5, {"b": (1,)}, session_ms=6_000)),
]
CONSUMER: Reported = [
    (0, [*joins("a"), *epoch(2)]),
    (1_000, [*joins("a", regex="t.*"), *epoch(3)]),
    (2_000, [*joins("a", regex="t.*"), *epoch(4)]),
    (3_000, [*goes("a"), *epoch(5)]),
]


def replayed(reported: Reported, cut: int | None = None) -> tuple[list[AttributesRow], list[MemberRow]]:
    """Rows of both tables, be it that a night ends before the operation `cut`."""
    history = GroupHistory()
    offset = 0
    attributes: list[AttributesRow] = []
    members: list[MemberRow] = []
    for number, (at, records) in enumerate(reported):
        if number == cut:
            rows, saved = history.take(), history.save()
            attributes, members = attributes + rows.attributes, members + rows.members
            history = GroupHistory(saved=saved)
        operation = [GroupRecord(offset + index, *one) for index, one in enumerate(records)]
        offset += len(records)
        history.apply(Operation(GROUP, at, operation[-1].offset, operation))
    rows = history.take()
    attributes, members = attributes + rows.attributes, members + rows.members
    rows = history.finish()
    return sorted(attributes + rows.attributes, key=str), sorted(members + rows.members, key=str)


def test_attributes_of_a_classic_member_are_reported_as_they_changed() -> None:
    """Topics, then host and session time-out; a generation in which nothing of it changes begins no interval."""
    rows, _ = replayed(CLASSIC)
    found = [
        (row.valid_from, row.valid_to, row.subscribed_topics, row.client_host, row.session_timeout_ms)
        for row in rows
        if row.member_id == "a"
    ]
    assert sorted(found) == [
        (0, 1_000, ("t",), "/h", 45_000),
        (1_000, 3_000, ("u",), "/h", 45_000),
        (3_000, 4_000, ("t",), "/other", 6_000),
    ]
    generations = sorted((row.from_generation, row.to_generation) for row in rows if row.member_id == "a")
    assert generations == [(1, 1), (2, 3), (4, 4)]


def test_attributes_of_a_consumer_group_member() -> None:
    """From names to a pattern; the epoch is no attribute."""
    rows, _ = replayed(CONSUMER)
    found = sorted((row.valid_from, row.valid_to, row.subscribed_topics, row.subscribed_regex) for row in rows)
    assert found == [(0, 1_000, ("t",), None), (1_000, 3_000, (), "t.*")]


@pytest.mark.parametrize("reported", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_intervals_of_attributes_fill_the_time_of_the_member(reported: Reported) -> None:
    """They follow one another without a gap from when it came to when it went, the last as silver.group_members has it,
    however the log is cut into nights."""
    whole = replayed(reported)
    for cut in range(1, len(reported)):
        assert replayed(reported, cut) == whole
    rows, members = whole
    for member in members:
        mine = sorted((row for row in rows if row.member_id == member.member_id), key=lambda row: row.from_log_offset)
        assert mine[0].from_log_offset == member.from_log_offset
        assert mine[-1].to_log_offset == member.to_log_offset
        assert all(one.to_log_offset == other.from_log_offset for one, other in pairwise(mine))
        same = AttributesRow._fields[AttributesRow._fields.index("instance_id") :]
        assert [getattr(mine[-1], name) for name in same] == [getattr(member, name) for name in same]
