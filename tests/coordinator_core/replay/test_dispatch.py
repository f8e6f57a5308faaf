"""The replay table: which group a record belongs to, conversions of groups, and what holds for any log."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given

from coordinator_core.live.state_dump import dump_shard
from coordinator_core.replay.anomalies import (
    DOUBLE_OWNER,
    GROUP_TOMBSTONE_TOO_EARLY,
    GROUP_TYPE_MISMATCH,
    Anomaly,
)
from coordinator_core.replay.classic.state import ClassicGroup
from coordinator_core.replay.consumer.state import ConsumerGroup
from coordinator_core.replay.dispatch import (
    REPLAY,
    CoordinatorShard,
    Group,
    GroupShard,
    replay,
    replay_end_transaction_marker,
    replay_record,
    touch_simple_group,
)
from coordinator_core.replay.share.state import ShareGroup
from coordinator_core.replay.streams.state import StreamsGroup
from schemas.consumer_offsets import RecordType
from tests.coordinator_core.group_records import T1, Record, any_records, folded, no_anomaly, record

T = RecordType
SIMPLE = touch_simple_group(GroupShard(), "g")
GROUP = {"group_id": "g"}
A, B = {"group_id": "g", "member_id": "A"}, {"group_id": "g", "member_id": "B"}

CONSUMER_MEMBER = record(T.CONSUMER_GROUP_MEMBER_METADATA, A, {})
SHARE_MEMBER = record(T.SHARE_GROUP_MEMBER_METADATA, A, {})
STREAMS_MEMBER = record(T.STREAMS_GROUP_MEMBER_METADATA, A, {})
CLASSIC_MEMBERS = record(
    T.GROUP_METADATA,
    {"group": "g"},
    {
        "protocol_type": "consumer",
        "generation": 7,
        "protocol": "range",
        "leader": "A",
        "members": [{"member_id": "A"}, {"member_id": "B"}],
    },
)
CLASSIC_EMPTY = record(
    T.GROUP_METADATA, {"group": "g"}, {"protocol_type": "consumer", "generation": 8, "protocol": None, "leader": None}
)
CLASSIC_TOMBSTONE = record(T.GROUP_METADATA, {"group": "g"}, None)


def test_every_group_record_type_has_a_replay_function() -> None:
    """The table leaves out the two types of offset commits, and nothing else."""
    assert set(REPLAY) == set(RecordType) - {T.LEGACY_OFFSET_COMMIT, T.OFFSET_COMMIT}


@pytest.mark.parametrize("record_type", [9, 18, 24, 99, -1, T.OFFSET_COMMIT])
def test_other_types_change_no_group(record_type: int) -> None:
    """A type without a replay function gives the same shard."""
    assert replay(SIMPLE, record_type, CONSUMER_MEMBER[1], CONSUMER_MEMBER[2], report=no_anomaly) is SIMPLE


@pytest.mark.parametrize(
    ("arriving", "kind", "anomalies"),
    [
        (CONSUMER_MEMBER, ConsumerGroup, []),
        (STREAMS_MEMBER, StreamsGroup, []),
        (SHARE_MEMBER, ShareGroup, [GROUP_TYPE_MISMATCH]),
        (record(T.CONSUMER_GROUP_MEMBER_METADATA, A, None), ConsumerGroup, []),
        (record(T.STREAMS_GROUP_TOPOLOGY, GROUP, None), StreamsGroup, []),
        (record(T.SHARE_GROUP_MEMBER_METADATA, A, None), ClassicGroup, [GROUP_TYPE_MISMATCH]),
        (record(T.SHARE_GROUP_STATE_PARTITION_METADATA, GROUP, {}), ShareGroup, [GROUP_TYPE_MISMATCH]),
        (record(T.SHARE_GROUP_STATE_PARTITION_METADATA, GROUP, None), ClassicGroup, [GROUP_TYPE_MISMATCH]),
        (CLASSIC_EMPTY, ClassicGroup, []),
    ],
)
def test_simple_group_gives_way(arriving: Record, kind: type, anomalies: list[str]) -> None:
    """A group of offsets only is replaced by consumer and streams records, tombstones too; share ones contradict."""
    shard, codes = folded(arriving, shard=SIMPLE)
    assert (type(shard.groups["g"]), codes) == (kind, anomalies)


MEMBERS = {
    ConsumerGroup: CONSUMER_MEMBER,
    ShareGroup: SHARE_MEMBER,
    StreamsGroup: STREAMS_MEMBER,
    ClassicGroup: CLASSIC_MEMBERS,
}
EPOCHS = {
    ConsumerGroup: record(T.CONSUMER_GROUP_METADATA, GROUP, {"epoch": 3}),
    ShareGroup: record(T.SHARE_GROUP_METADATA, GROUP, {"epoch": 3}),
    StreamsGroup: record(T.STREAMS_GROUP_METADATA, GROUP, {"epoch": 3}),
}
PAIRS = [(there, arriving) for there in MEMBERS for arriving in EPOCHS if there is not arriving]


@pytest.mark.parametrize(("there", "arriving"), PAIRS)
def test_type_mismatch_keeps_a_group_with_members(there: type[Group], arriving: type[Group]) -> None:
    """A value of another type is an anomaly and changes nothing where the group has members."""
    before, _ = folded(MEMBERS[there])
    shard, codes = folded(EPOCHS[arriving], shard=before)
    assert (shard, codes) == (before, [GROUP_TYPE_MISMATCH])


@pytest.mark.parametrize(("there", "arriving"), [pair for pair in PAIRS if pair[0] is not ClassicGroup])
def test_type_mismatch_replaces_a_group_without_members(there: type[Group], arriving: type[Group]) -> None:
    """A value of another type is an anomaly and wins where nobody is in the group; a tombstone never wins."""
    before, _ = folded(EPOCHS[there])
    shard, codes = folded(EPOCHS[arriving], shard=before)
    assert (type(shard.groups["g"]), codes) == (arriving, [GROUP_TYPE_MISMATCH])
    record_type, key, _ = EPOCHS[arriving]
    assert folded((record_type, key, None), shard=before) == (before, [GROUP_TYPE_MISMATCH])


def test_empty_classic_group_with_a_protocol_is_not_simple() -> None:
    """Only a group without protocol type gives way in silence: others have a record of their own to delete them."""
    shard, codes = folded(CLASSIC_EMPTY, CONSUMER_MEMBER)
    assert (type(shard.groups["g"]), codes) == (ConsumerGroup, [GROUP_TYPE_MISMATCH])


@pytest.mark.parametrize("there", MEMBERS)
def test_group_metadata_asks_nothing(there: type[Group]) -> None:
    """GroupMetadata replaces a group of any type, and its tombstone removes one."""
    shard, codes = folded(MEMBERS[there], CLASSIC_EMPTY)
    assert (shard.groups["g"], codes) == (
        ClassicGroup("g", generation_id=8, protocol_type="consumer"),
        [],
    )
    assert folded(MEMBERS[there], CLASSIC_TOMBSTONE) == (GroupShard(), [])


def test_share_partitions_outlive_their_group() -> None:
    """The picture of share partitions goes with its own tombstone only, whoever has the group id."""
    picture = record(
        T.SHARE_GROUP_STATE_PARTITION_METADATA,
        GROUP,
        {"initialized_topics": [{"topic_id": T1, "topic_name": "t", "partitions": [1, 0]}]},
    )
    shard, codes = folded(picture, CLASSIC_TOMBSTONE, CLASSIC_MEMBERS)
    assert shard.share_partitions["g"].initialized == {T1: ("t", (0, 1))}
    assert codes == []
    kept, codes = folded(picture, shard=shard)
    assert (kept, codes) == (shard, [GROUP_TYPE_MISMATCH])
    gone, codes = folded(record(T.SHARE_GROUP_STATE_PARTITION_METADATA, GROUP, None), shard=shard)
    assert (gone.share_partitions.get("g"), gone.groups, codes) == (None, shard.groups, [GROUP_TYPE_MISMATCH])


def current(key: dict[str, str], epoch: int, partitions: list[int]) -> Record:
    topics = [{"topic_id": T1, "partitions": partitions, "assignment_epochs": [epoch] * len(partitions)}]
    return record(
        T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        key,
        {"member_epoch": epoch, "previous_member_epoch": epoch, "assigned_partitions": topics},
    )


def target(key: dict[str, str], partitions: list[int]) -> Record:
    topics = [{"topic_id": T1, "partitions": partitions}]
    return record(T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key, {"topic_partitions": topics})


CLASSIC_TO_CONSUMER = [
    CLASSIC_TOMBSTONE,
    *(
        record(T.CONSUMER_GROUP_MEMBER_METADATA, key, {"classic_member_metadata": {"session_timeout_ms": 9}})
        for key in (A, B)
    ),
    record(T.CONSUMER_GROUP_METADATA, GROUP, {"epoch": 7}),
    target(A, [0, 1]),
    target(B, [2]),
    record(T.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, GROUP, {"assignment_epoch": 7}),
    current(A, 7, [0, 1]),
    current(B, 7, [2]),
]
CONSUMER_TO_CLASSIC = [
    *(record(T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, None) for key in (A, B)),
    *(record(T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key, None) for key in (A, B)),
    record(T.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, GROUP, None),
    *(record(T.CONSUMER_GROUP_MEMBER_METADATA, key, None) for key in (A, B)),
    record(T.CONSUMER_GROUP_PARTITION_METADATA, GROUP, None),
    record(T.CONSUMER_GROUP_METADATA, GROUP, None),
    CLASSIC_MEMBERS,
]


@pytest.mark.parametrize("lost", range(6))
def test_downgrade_that_lost_a_tombstone_is_noticed(lost: int) -> None:
    """Without any one of the tombstones a later one comes too early; the end is the same all the same."""
    needed = [tombstone for tombstone in CONSUMER_TO_CLASSIC if tombstone[0] != T.CONSUMER_GROUP_PARTITION_METADATA]
    shard, codes = folded(CLASSIC_MEMBERS, *CLASSIC_TO_CONSUMER, *needed[:lost], *needed[lost + 1 :])
    assert codes
    assert shard == folded(CLASSIC_MEMBERS)[0]


@pytest.mark.parametrize("kind", EPOCHS)
def test_group_tombstone_too_early(kind: type[Group]) -> None:
    """A group which is deleted before its members goes with them, and that is an anomaly."""
    record_type, key, _ = EPOCHS[kind]
    shard, codes = folded(MEMBERS[kind], (record_type, key, None))
    assert (shard, codes) == (GroupShard(), [GROUP_TOMBSTONE_TOO_EARLY])


@given(any_records())
def test_replay_never_raises_and_never_changes_its_argument(records: list[Record]) -> None:
    """Any records in any order replay, dump, and leave the states before them as they were."""
    shard = CoordinatorShard()
    for offset, (record_type, key, value) in enumerate(records):
        before = dump_shard(shard)
        after = replay_record(
            shard, record_type, key, value, offset=offset, producer_id=offset % 3 - 1, report=lambda _: None
        )
        assert dump_shard(shard) == before
        shard = after
    for producer_id in (0, 1):
        shard = replay_end_transaction_marker(shard, producer_id, committed=producer_id == 0)
    assert not shard.offsets.pending


@given(any_records(tombstones_only=True))
def test_tombstones_for_the_unknown_change_nothing(records: list[Record]) -> None:
    """A compacted log may begin with tombstones of what it no longer tells."""
    shard = CoordinatorShard()
    for record_type, key, value in records:
        shard = replay_record(shard, record_type, key, value, offset=0, report=no_anomaly)
    assert shard == CoordinatorShard()


@given(any_records())
def test_owners_are_those_who_hold_the_partitions(records: list[Record]) -> None:
    """The index of owners agrees with the members; two holders of one partition never go unreported."""
    shard = GroupShard()
    doubles: Counter[str] = Counter()
    for record_type, key, value in records:
        anomalies: list[Anomaly] = []
        shard = replay(shard, record_type, key, value, report=anomalies.append)
        doubles.update(anomaly.code for anomaly in anomalies)
        for group in shard.groups.values():
            if isinstance(group, ConsumerGroup):
                _check_owners(group, doubles[DOUBLE_OWNER])


def _check_owners(group: ConsumerGroup, double_count: int) -> None:
    owned: dict[tuple[str, int], set[str]] = {}
    for member in group.members.values():
        for topics in (member.assigned, member.pending_revocation):
            for topic_id, partitions in topics.items():
                for partition in partitions:
                    owned.setdefault((topic_id, partition), set()).add(member.member_id)
    owners: dict[Any, str] = dict(group.owners.items())
    assert all(owner in owned[place] for place, owner in owners.items())
    if not double_count:
        assert {place: {owner} for place, owner in owners.items()} == owned
