"""Tests of what offsets, deletion and lists ask of consumer and share groups."""

from immutables import Map
from msgspec.structs import replace

from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.operation import Context, Outcome
from coordinator_core.live.offsets.messages import (
    OffsetCommitPartition,
    OffsetCommitTopic,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from coordinator_core.replay.consumer.state import ClassicMemberMetadata, ConsumerGroup, ConsumerMember, ResolvedRegex
from coordinator_core.replay.dispatch import Group
from coordinator_core.replay.offsets.replay import ZERO_UUID
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


def commit(clients: Clients, topic: str = "t", epoch: int = 5, member_id: str = "m", api_version: int = 9) -> int:
    """The error of a commit, or the code of its one partition."""
    known = clients.coordinator.image.topics.get(topic)
    topic_id = ZERO_UUID if known is None else known.topic_id
    return code_of(
        clients.commit(
            topic, generation_id_or_member_epoch=epoch, member_id=member_id, api_version=api_version, topic_id=topic_id
        )
    )


def code_of(outcome: Outcome) -> int:
    """The error of a commit, or the code of its one partition."""
    if outcome.error is not None:
        return outcome.error.code
    code: int = outcome.response.topics[0].partitions[0].error_code
    return code


def delete_offset(clients: Clients, topic: str) -> Outcome:
    """OffsetDelete of partition 0."""
    topics = (OffsetDeleteTopic(topic, (OffsetDeletePartition(0),)),)
    return clients.ask("delete_offsets", OffsetDeleteRequest("g", topics))


def test_others_may_commit_only_without_members() -> None:
    """An administrator, or a stand-alone consumer; a transaction whose producer says nothing of a member always."""
    clients = clients_of(CONSUMER_GROUP)
    assert commit(clients, epoch=-1, member_id="") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(clients, api_version=8) == ErrorCode.UNSUPPORTED_VERSION
    topics = (OffsetCommitTopic((OffsetCommitPartition(0, 9),), "t"),)
    assert code_of(clients.ask("commit_transactional_offset", TxnOffsetCommitRequest("g", 5, 1, topics))) == 0
    assert commit(clients_of(ConsumerGroup("g")), epoch=-1, member_id="") == ErrorCode.NONE


def test_offsets_of_a_consumer_group() -> None:
    """Those of topics it reads, by name or by pattern, are neither deleted nor do they expire."""
    clients = clients_of(CONSUMER_GROUP)
    for topic in ("t", "resolved", "u"):
        commit(clients, topic)
    for topic, code in (("t", 86), ("resolved", 86), ("v", 0)):
        assert delete_offset(clients, topic).response.topics[0].partitions[0].error_code == code
    clients.wait(2 * RETENTION_MS)
    assert sorted(key.topic for key in clients.coordinator.shard.offsets.offsets) == ["resolved", "t"]
    clients = clients_of(ConsumerGroup("g"))
    clients.wait(600_000)
    assert clients.coordinator.dump() == {}


def test_a_consumer_group_is_deleted_from_the_leaves_up() -> None:
    """Only without members; the records are what its replay wants, in that order."""
    clients = clients_of(CONSUMER_GROUP)
    (answer,) = clients.ask("delete_groups", ("g",)).response
    assert answer.error_code == ErrorCode.NON_EMPTY_GROUP
    rules = clients.coordinator.rules_of(CONSUMER_GROUP)
    context = object()
    types = [record.record_type for record in rules.tombstones(context, CONSUMER_GROUP)]  # type: ignore[arg-type]
    assert types == [8, 7, 6, 5, 16, 4, 3]
    clients = clients_of(ConsumerGroup("g"))
    assert clients.ask("delete_groups", ("g",)).response[0].error_code == 0
    assert [entry.record.record_type for entry in clients.records] == [6, 4, 3]
    assert clients.coordinator.dump() == {}


def test_a_share_group_has_no_offsets() -> None:
    """Every request about them is refused, but for reading: there are none."""
    clients = clients_of(SHARE_GROUP)
    assert commit(clients) == ErrorCode.GROUP_ID_NOT_FOUND
    outcome = delete_offset(clients, "t")
    assert outcome.error is not None
    assert outcome.error.message == "Group g is not a consumer group."
    assert clients.ask("fetch_offsets", OffsetFetchRequest("g")).response.topics == ()


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
