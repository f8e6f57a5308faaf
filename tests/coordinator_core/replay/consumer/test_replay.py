"""Replay of consumer group records: members, epochs, static members, patterns, owners."""

from typing import Any

import pytest

from coordinator_core.replay.anomalies import DOUBLE_OWNER, MEMBER_TOMBSTONE_TOO_EARLY, TARGET_TOMBSTONE_TOO_EARLY
from coordinator_core.replay.consumer.state import ConsumerGroup
from schemas.consumer_offsets import RecordType as T
from tests.coordinator_core.group_records import T1, T2, Record, folded, record

GROUP = {"group_id": "g"}


def key(member_id: str) -> dict[str, str]:
    return {"group_id": "g", "member_id": member_id}


def member(member_id: str, **fields: Any) -> Record:
    return record(T.CONSUMER_GROUP_MEMBER_METADATA, key(member_id), {"classic_member_metadata": None, **fields})


def current(
    member_id: str,
    epoch: int,
    partitions: list[int],
    *,
    epochs: list[int] | None = None,
    revoking: tuple[int, ...] = (),
    state: int = 0,
) -> Record:
    return record(
        T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        key(member_id),
        {
            "member_epoch": epoch,
            "previous_member_epoch": epoch - 1,
            "state": state,
            "assigned_partitions": [{"topic_id": T1, "partitions": partitions, "assignment_epochs": epochs}],
            "partitions_pending_revocation": [{"topic_id": T1, "partitions": list(revoking)}] if revoking else [],
        },
    )


def gone(record_type: T, member_id: str) -> Record:
    return record(record_type, key(member_id), None)


def group_of(*records: Record) -> tuple[ConsumerGroup, list[str]]:
    shard, codes = folded(*records)
    group = shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group, codes


def test_target_is_replaced_whole_and_sorted() -> None:
    """Type 7 tells the whole target of a member, topics which come twice included."""
    targets = [
        record(
            T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            key("A"),
            {"topic_partitions": [{"topic_id": topic, "partitions": numbers} for topic, numbers in topics]},
        )
        for topics in ([(T1, [9])], [(T2, [3, 1]), (T1, [0]), (T2, [2])])
    ]
    group, _ = group_of(*targets)
    assert group.target_assignment["A"] == {T1: (0,), T2: (1, 2, 3)}
    assert not group_of(*targets, gone(T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, "A"))[0].target_assignment


def test_static_member_is_replaced() -> None:
    """The instance id goes to the new member, and stays there when the old one is removed late."""
    first = [member("A", instance_id="i"), gone(T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "A")]
    old_gone, new = gone(T.CONSUMER_GROUP_MEMBER_METADATA, "A"), member("B", instance_id="i")
    for records in ([*first, old_gone, new], [*first, new, old_gone]):
        group, codes = group_of(*records)
        assert (dict(group.static_members.items()), sorted(group.members), codes) == ({"i": "B"}, ["B"], [])


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([current("A", 3, [0])], MEMBER_TOMBSTONE_TOO_EARLY),
        (
            [
                record(T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key("A"), {}),
                gone(T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "A"),
            ],
            MEMBER_TOMBSTONE_TOO_EARLY,
        ),
    ],
)
def test_member_tombstone_too_early(before: list[Record], expected: str) -> None:
    """A member which still has something is removed all the same, with what it owns."""
    group, codes = group_of(member("A"), *before, gone(T.CONSUMER_GROUP_MEMBER_METADATA, "A"))
    assert (codes, dict(group.members.items()), dict(group.owners.items())) == ([expected], {}, {})


def test_target_tombstone_too_early() -> None:
    """The assignment epoch goes, the targets stay."""
    group, codes = group_of(
        record(T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key("A"), {}),
        record(T.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, GROUP, None),
    )
    assert (codes, group.assignment_epoch, dict(group.target_assignment.items())) == (
        [TARGET_TOMBSTONE_TOO_EARLY],
        -1,
        {"A": {}},
    )


@pytest.mark.parametrize(
    ("records", "codes", "owner"),
    [
        ([current("A", 1, [0]), current("B", 2, [0])], [DOUBLE_OWNER], "B"),
        ([current("A", 1, [], revoking=(0,)), current("B", 2, [0])], [DOUBLE_OWNER], "B"),
        ([current("A", 1, [0]), current("A", 2, []), current("B", 2, [0])], [], "B"),
        ([current("A", 1, [0]), current("A", 2, [], revoking=(0,)), current("A", 3, [0])], [], "A"),
        ([current("A", 1, [0]), current("B", 2, [0]), current("A", 3, [])], [DOUBLE_OWNER], "B"),
        ([current("A", 1, [0]), current("B", 2, [0]), current("B", 3, [])], [DOUBLE_OWNER], None),
    ],
)
def test_double_owner(records: list[Record], codes: list[str], owner: str | None) -> None:
    """A partition may change hands only after its old owner's record no longer lists it in either set."""
    group, reported = group_of(*records)
    assert (reported, group.owners.get((T1, 0))) == (codes, owner)
