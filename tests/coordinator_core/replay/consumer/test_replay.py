"""Replay of consumer group records: members, epochs, static members, patterns, owners."""

from typing import Any

import pytest

from coordinator_core.replay.anomalies import DOUBLE_OWNER, MEMBER_TOMBSTONE_TOO_EARLY, TARGET_TOMBSTONE_TOO_EARLY
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerGroupState, ConsumerMember, MemberState
from coordinator_core.replay.modern import partition_epochs
from schemas.consumer_offsets import RecordType as T
from tests.coordinator_core.group_records import T1, T2, Record, folded, record

GROUP = {"group_id": "g"}


@pytest.mark.parametrize(
    ("partitions", "epochs"),
    [
        ((0, 3, 7), {0: 5, 3: 6, 7: 4}),
        ((7, 0, 3), {0: 6, 3: 4, 7: 5}),
        ((3, 3, 0), {0: 4, 3: 6}),
        ((0, 3, 3), {0: 5, 3: 6}),
    ],
)
def test_partitions_ascend_whatever_their_order_in_the_record(
    partitions: tuple[int, ...], epochs: dict[int, int]
) -> None:
    """One that comes twice has the higher epoch."""
    assert [*partition_epochs(partitions, (5, 6, 4), 1).items()] == [*epochs.items()]


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


def test_fresh_group_starts_at_epoch_1() -> None:
    """ModernGroup's constructor: epoch 1, assignment epoch 1, nobody in it."""
    group, _ = group_of(record(T.CONSUMER_GROUP_PARTITION_METADATA, GROUP, {}))
    assert (group.group_epoch, group.assignment_epoch, group.state) == (1, 1, ConsumerGroupState.EMPTY)


def test_group_state_follows_epochs_and_members() -> None:
    """Empty, Assigning, Reconciling, Stable, in the order of a first join."""
    records = [
        record(T.CONSUMER_GROUP_METADATA, GROUP, {"epoch": 2, "metadata_hash": -5}),
        member("A"),
        record(T.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, GROUP, {"assignment_epoch": 2, "assignment_timestamp": 9}),
        current("A", 2, [0]),
        current("A", 2, [0], state=1),
    ]
    groups = [group_of(*records[:count])[0] for count in range(1, 6)]
    assert [group.state.value for group in groups] == ["Empty", "Assigning", "Reconciling", "Stable", "Reconciling"]
    assert (groups[-1].metadata_hash, groups[-1].assignment_timestamp_ms) == (-5, 9)


@pytest.mark.parametrize(
    ("epoch", "epochs", "expected"),
    [
        (5, [4, 3], {0: 3, 1: 4}),
        (5, None, {0: 5, 1: 5}),
        (5, [], {0: 5, 1: 5}),
        (5, [4], {0: 5, 1: 5}),
        (-2, None, {0: 0, 1: 0}),
    ],
)
def test_assignment_epochs(epoch: int, epochs: list[int] | None, expected: dict[int, int]) -> None:
    """One epoch a partition; where they do not match, the member's epoch, zero at least, counts for all."""
    group, _ = group_of(current("A", epoch, [1, 0], epochs=epochs))
    assert group.members["A"].assigned == {T1: expected}
    assert list(group.members["A"].assigned[T1]) == [0, 1]


@pytest.mark.parametrize(("state", "expected"), [(0, "STABLE"), (1, "UNREVOKED_PARTITIONS"), (3, "UNKNOWN")])
def test_member_state(state: int, expected: str) -> None:
    """A state byte which nobody knows reads as unknown."""
    group, _ = group_of(current("A", 1, [], state=state))
    assert group.members["A"].state is MemberState[expected]


def test_metadata_keeps_the_assignment_and_the_other_way_round() -> None:
    """Types 5 and 8 each replace their own half of a member."""
    group, _ = group_of(
        current("A", 3, [0], revoking=(1,)),
        member("A", rack_id="r", subscribed_topic_names=["t"], subscribed_topic_regex=None, server_assignor="range"),
        current("A", 4, [2]),
    )
    assert group.members["A"] == ConsumerMember(
        "A",
        member_epoch=4,
        previous_member_epoch=3,
        rack_id="r",
        instance_id="",
        subscribed_topic_names=("t",),
        subscribed_topic_regex=None,
        server_assignor="range",
        assigned={T1: {2: 4}},
    )


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


def test_leaving_takes_the_member_apart() -> None:
    """Tombstones 8, 7, 5: first the assignment, then the target, then the member with its instance id."""
    joined = [member("A", instance_id="i"), current("A", 3, [0, 1], revoking=(2,)), member("B", instance_id="j")]
    leave = [
        gone(T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "A"),
        gone(T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, "A"),
        gone(T.CONSUMER_GROUP_MEMBER_METADATA, "A"),
    ]
    left, _ = group_of(*joined, leave[0])
    away = left.members["A"]
    assert (away.member_epoch, away.previous_member_epoch, away.assigned, away.pending_revocation) == (-1, -1, {}, {})
    assert not left.owners
    group, codes = group_of(*joined, *leave)
    assert (sorted(group.members), dict(group.static_members.items()), codes) == (["B"], {"j": "B"}, [])


def test_static_member_is_replaced() -> None:
    """The instance id goes to the new member, and stays there when the old one is removed late."""
    first = [member("A", instance_id="i"), gone(T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "A")]
    old_gone, new = gone(T.CONSUMER_GROUP_MEMBER_METADATA, "A"), member("B", instance_id="i")
    for records in ([*first, old_gone, new], [*first, new, old_gone]):
        group, codes = group_of(*records)
        assert (dict(group.static_members.items()), sorted(group.members), codes) == ({"i": "B"}, ["B"], [])


def test_static_member_away_keeps_its_partitions() -> None:
    """Epoch -2: the member is away for a while, its partitions are kept for it."""
    group, _ = group_of(member("A", instance_id="i"), current("A", -2, [0], epochs=[0]))
    assert (group.members["A"].member_epoch, group.owners[(T1, 0)]) == (-2, "A")


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


def test_regular_expressions() -> None:
    """Patterns come and go on their own."""
    pattern = {**GROUP, "regular_expression": "a.*"}
    value = {"topics": ["ab", "aa"], "version": 4, "timestamp": 5}
    resolved = record(T.CONSUMER_GROUP_REGULAR_EXPRESSION, pattern, value)
    group, _ = group_of(resolved)
    regex = group.resolved_regexes["a.*"]
    assert (regex.topics, regex.version, regex.timestamp_ms) == (("ab", "aa"), 4, 5)
    assert not group_of(resolved, record(T.CONSUMER_GROUP_REGULAR_EXPRESSION, pattern, None))[0].resolved_regexes


def test_legacy_partition_metadata_is_a_flag() -> None:
    """A value of type 4 sets it, its tombstone clears it."""
    value = record(T.CONSUMER_GROUP_PARTITION_METADATA, GROUP, {})
    tombstone = record(T.CONSUMER_GROUP_PARTITION_METADATA, GROUP, None)
    assert group_of(value)[0].has_legacy_partition_metadata
    assert not group_of(value, tombstone)[0].has_legacy_partition_metadata
