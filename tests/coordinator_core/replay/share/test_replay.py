"""Replay of share group records: members share partitions, and the state of share partitions."""

from coordinator_core.replay.anomalies import MEMBER_TOMBSTONE_TOO_EARLY
from coordinator_core.replay.share.state import ShareGroup
from schemas.consumer_offsets import RecordType as T
from tests.coordinator_core.group_records import T1, Record, folded, record


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


def test_member_tombstone_too_early() -> None:
    """A member which still has an assignment is removed all the same."""
    group, codes = group_of(current("A", 2, [0]), record(T.SHARE_GROUP_MEMBER_METADATA, key("A"), None))
    assert (dict(group.members.items()), codes) == ({}, [MEMBER_TOMBSTONE_TOO_EARLY])


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
