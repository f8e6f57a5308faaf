"""Tests of offsets of consumer groups: which partitions a member may commit at an older epoch."""

from immutables import Map

from coordinator_core.live.consumer.rules import ConsumerGroupRules
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.operation import Context, OffsetCommitter
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.replay.offsets.replay import ZERO_UUID
from schemas.error_codes import ErrorCode
from tests.coordinator_core.logs import CountingLog

ORDERS, PAYMENTS = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
MEMBER = ConsumerMember("m", member_epoch=5, assigned={ORDERS: {0: 3}}, pending_revocation={PAYMENTS: {1: 5}})


def check(
    member: ConsumerMember, topic: str, topic_id: str, partition: int, *, epoch: int, is_transactional: bool
) -> str:
    """Text of the refusal; empty where the commit is fine."""
    image = image_of([Topic("Orders", ORDERS, 1), Topic("Payments", PAYMENTS, 2)])
    context = Context(GroupCoordinator((), now_ms=0, image=image, log=CountingLog()), 0)
    group = ConsumerGroup("g", members=Map({"m": member}))
    committer = OffsetCommitter("m", None, epoch, is_transactional, 10)
    try:
        check_partition = ConsumerGroupRules().validate_offset_commit(context, group, committer)
        if check_partition is not None:
            check_partition(topic, topic_id, partition)
    except Refused as refused:
        is_classic = member.classic_member_metadata is not None
        assert refused.code == (ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH)
        return refused.message
    return ""


def test_commits_of_transactions_are_looked_up_by_name() -> None:
    """TxnOffsetCommit has no topic ids."""
    assert check(MEMBER, "Orders", ZERO_UUID, 0, epoch=3, is_transactional=True) == ""
