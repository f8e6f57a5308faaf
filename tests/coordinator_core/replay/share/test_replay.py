"""Replay of share group records: members share partitions, and the state of share partitions."""

from coordinator_core.replay.anomalies import MEMBER_TOMBSTONE_TOO_EARLY
from coordinator_core.replay.share.state import ShareGroup, ShareGroupState, ShareGroupStatePartitions, ShareMember
from schemas.consumer_offsets import RecordType as T
from tests.coordinator_core.group_records import T1, T2, Record, folded, record

GROUP = {"group_id": "g"}


def key(member_id: str) -> dict[str, str]:
    return {"group_id": "g", "member_id": member_id}


def current(member_id: str, epoch: int, partitions: list[int]) -> Record:
    return record(
        T.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        key(member_id),
        {
            "member_epoch": epoch,
            "previous_member_epoch": epoch - 1,
            "assigned_partitions": [{"topic_id": T1, "partitions": partitions}],
        },
    )


def group_of(*records: Record) -> tuple[ShareGroup, list[str]]:
    shard, codes = folded(*records)
    group = shard.groups["g"]
    assert isinstance(group, ShareGroup)
    return group, codes


MEMBER = record(T.SHARE_GROUP_MEMBER_METADATA, key("A"), {"client_id": "c", "subscribed_topic_names": ["t"]})


def test_join_and_leave() -> None:
    """Values 10, 11, 13, 12, 14 and tombstones 14, 13, 10, as a heartbeat writes them."""
    joined = [
        MEMBER,
        record(T.SHARE_GROUP_METADATA, GROUP, {"epoch": 2, "metadata_hash": 8}),
        record(
            T.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
            key("A"),
            {"topic_partitions": [{"topic_id": T1, "partitions": [1, 0]}]},
        ),
        record(T.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, GROUP, {"assignment_epoch": 2, "assignment_timestamp": 7}),
        current("A", 2, [1, 0]),
    ]
    group, codes = group_of(*joined)
    assert codes == []
    assert (group.state, group.group_epoch, group.metadata_hash) == (ShareGroupState.STABLE, 2, 8)
    assert (group.assignment_epoch, group.assignment_timestamp_ms) == (2, 7)
    assert group.target_assignment["A"] == {T1: (0, 1)}
    assert group.members["A"] == ShareMember(
        "A",
        member_epoch=2,
        previous_member_epoch=1,
        rack_id="",
        client_id="c",
        subscribed_topic_names=("t",),
        assigned={T1: (0, 1)},
    )
    left = [
        record(T.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, key("A"), None),
        record(T.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, key("A"), None),
        record(T.SHARE_GROUP_MEMBER_METADATA, key("A"), None),
    ]
    away, _ = group_of(*joined, left[0])
    assert (away.members["A"].member_epoch, away.members["A"].assigned) == (-1, {})
    group, codes = group_of(*joined, *left)
    assert (group.state, dict(group.target_assignment.items()), codes) == (ShareGroupState.EMPTY, {}, [])


def test_members_may_share_a_partition() -> None:
    """Overlap is what share groups are for."""
    group, codes = group_of(current("A", 2, [0]), current("B", 2, [0]))
    assert ([m.assigned for m in group.members.values()], codes) == ([{T1: (0,)}] * 2, [])


def test_member_tombstone_too_early() -> None:
    """A member which still has an assignment is removed all the same."""
    group, codes = group_of(current("A", 2, [0]), record(T.SHARE_GROUP_MEMBER_METADATA, key("A"), None))
    assert (dict(group.members.items()), codes) == ({}, [MEMBER_TOMBSTONE_TOO_EARLY])


def test_state_partitions_are_a_complete_picture() -> None:
    """Each value replaces the one before."""
    first, second = (
        record(
            T.SHARE_GROUP_STATE_PARTITION_METADATA,
            GROUP,
            {name: [{"topic_id": T1, "topic_name": "t", "partitions": [2, 0]}], "deleting_topics": deleting},
        )
        for name, deleting in (
            ("initializing_topics", []),
            ("initialized_topics", [{"topic_id": T2, "topic_name": "u"}]),
        )
    )
    assert folded(first)[0].share_partitions["g"] == ShareGroupStatePartitions(initializing={T1: ("t", (0, 2))})
    assert folded(first, second)[0].share_partitions["g"] == ShareGroupStatePartitions(
        initialized={T1: ("t", (0, 2))}, deleting={T2: "u"}
    )


def subscription(member_id: str, *topics: str) -> Record:
    return record(
        T.SHARE_GROUP_MEMBER_METADATA, key(member_id), {"client_id": "c", "subscribed_topic_names": list(topics)}
    )


def test_subscriptions_are_counted() -> None:
    """By topic name, whatever the order of records; nobody's topic is gone, and an assignment changes nothing."""
    records = [subscription("A", "t", "u"), subscription("B", "t"), current("B", 2, [0])]
    assert dict(group_of(*records)[0].name_counts) == {"t": 2, "u": 1}
    records += [subscription("A", "t"), record(T.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, key("B"), None)]
    records += [record(T.SHARE_GROUP_MEMBER_METADATA, key("B"), None)]
    group, codes = group_of(*records)
    assert codes == []
    assert dict(group.name_counts) == {"t": 1}


TABLE_ORDER = [f"member-{number}" for number in (3, 0, 5, 7, 2, 4, 6, 1)]
"""What Kafka's TimelineHashMap gives of member-0 to member-7."""


def test_members_have_the_order_of_kafkas_table() -> None:
    """Each new member has the next place; slots double with the members, and stay when they go."""
    names = [f"member-{number}" for number in range(8)]
    group, _ = group_of(*(subscription(name, "t") for name in names))
    assert [group.members[name].place for name in names] == list(range(8))
    assert (group.members_ever, group.table_capacity) == (8, 8)
    assert [member.member_id for member in group.members_in_table_order()] == TABLE_ORDER
    gone = [record(T.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, key("member-0"), None)]
    gone += [record(T.SHARE_GROUP_MEMBER_METADATA, key("member-0"), None)]
    group, _ = group_of(*(subscription(name, "t") for name in names), *gone, subscription("member-0", "t"))
    assert (group.members["member-0"].place, group.table_capacity) == (8, 8)
