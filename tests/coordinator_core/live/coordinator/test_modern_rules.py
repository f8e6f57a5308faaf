"""Tests of what offsets, deletion and lists ask of consumer and share groups."""

from immutables import Map
from msgspec.structs import replace

from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.operation import Context
from coordinator_core.live.offsets.messages import (
    OffsetCommitPartition,
    OffsetCommitTopic,
    TxnOffsetCommitRequest,
)
from coordinator_core.replay.consumer.state import ClassicMemberMetadata, ConsumerGroup, ConsumerMember, ResolvedRegex
from coordinator_core.replay.dispatch import Group
from coordinator_core.replay.share.state import ShareGroup, ShareMember
from schemas.consumer_offsets import RecordType
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import Clients

TOPIC_ID = "B" * 22
RETENTION_MS = 7 * 24 * 60 * 60 * 1000

MEMBER = ConsumerMember(
    "m",
    member_epoch=5,
    subscribed_topic_names=("t",),
    assigned={TOPIC_ID: {0: 3}},
    pending_revocation={"C" * 22: {0: 5}},
)
CONSUMER_GROUP = ConsumerGroup(
    "g",
    members=Map({"m": MEMBER}),
    target_assignment=Map({"m": {TOPIC_ID: (0,)}}),
    resolved_regexes=Map({"r.*": ResolvedRegex(("resolved",), 1, 2)}),
)
SHARE_GROUP = ShareGroup(
    "g",
    members=Map({"m": ShareMember("m", subscribed_topic_names=("t",))}),
    target_assignment=Map({"m": {TOPIC_ID: (0,)}}),
)


def clients_of(group: Group) -> Clients:
    """A coordinator that has this group, and topics t, u and v."""
    clients = Clients()
    coordinator = clients.coordinator
    coordinator.shard = replace(coordinator.shard, groups=replace(coordinator.shard.groups, groups=Map({"g": group})))
    coordinator.image = image_of([Topic("t", TOPIC_ID, 1), Topic("u", "C" * 22, 1), Topic("v", "D" * 22, 1)])
    return clients


def test_a_share_group_stays_until_it_is_deleted() -> None:
    """It does not expire; its tombstones go from the leaves up."""
    clients = clients_of(SHARE_GROUP)
    (answer,) = clients.ask("delete_groups", ("g",)).response
    assert answer.error_code == ErrorCode.NON_EMPTY_GROUP
    rules = clients.coordinator.rules_of(SHARE_GROUP)
    context = Context(clients.coordinator, clients.now_ms)
    types = [record.record_type for record in rules.tombstones(context, SHARE_GROUP)]
    assert types == [14, 13, 12, 10, 15, 11]
    assert rules.is_subscribed_to(SHARE_GROUP, "t")
    assert not rules.is_subscribed_to(SHARE_GROUP, "u")
    assert not rules.is_empty(SHARE_GROUP)
    assert rules.expiration_base(SHARE_GROUP) is None
    clients = clients_of(ShareGroup("g"))
    clients.wait(2 * RETENTION_MS)
    assert clients.coordinator.group("g") is not None
    clients.ask("delete_groups", ("g",))
    assert [entry.record.record_type for entry in clients.records] == [
        RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
        RecordType.SHARE_GROUP_STATE_PARTITION_METADATA,
        RecordType.SHARE_GROUP_METADATA,
    ]
    assert clients.coordinator.dump() == {}


def test_a_classic_member_of_a_topic_that_is_gone_gets_the_same_in_a_transaction() -> None:
    """Elsewhere the text names the partition."""
    member = replace(MEMBER, classic_member_metadata=ClassicMemberMetadata())
    clients = clients_of(replace(CONSUMER_GROUP, members=Map({"m": member})))
    for topic, text in (
        ("unknown", "Specified group generation id is not valid."),
        ("v", "Partition v-0 is not assigned or pending revocation for member."),
    ):
        topics = (OffsetCommitTopic((OffsetCommitPartition(0, 9),), topic),)
        request = TxnOffsetCommitRequest("g", 5, 1, topics, generation_id=4, member_id="m")
        error = clients.ask("commit_transactional_offset", request).error
        assert error is not None
        assert (error.code, error.message) == (ErrorCode.ILLEGAL_GENERATION, text)
