"""Tests of offsets of consumer groups: which partitions a member may commit at an older epoch."""

import pytest
from immutables import Map
from msgspec.structs import replace

from coordinator_core.live.consumer.rules import ConsumerGroupRules
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.operation import Context, OffsetCommitter
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.replay.consumer.state import ClassicMemberMetadata, ConsumerGroup, ConsumerMember
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


@pytest.mark.parametrize(
    ("topic", "topic_id", "partition", "epoch", "expected"),
    [
        ("Orders", ORDERS, 0, 5, ""),
        ("Orders", ORDERS, 0, 3, ""),
        ("Payments", PAYMENTS, 1, 5, ""),
        ("Orders", ORDERS, 0, 6, "Received member epoch 6 is newer than current member epoch 5."),
        ("Orders", ORDERS, 0, 2, "Received member epoch 2 is older than assignment epoch 3 for partition Orders-0."),
        (
            "Payments",
            PAYMENTS,
            1,
            4,
            "Received member epoch 4 is older than assignment epoch 5 for partition Payments-1.",
        ),
        ("Orders", ORDERS, 1, 3, "Partition Orders-1 is not assigned or pending revocation for member."),
        ("Orders", ZERO_UUID, 0, 3, "Partition Orders-0 is not assigned or pending revocation for member."),
    ],
)
def test_commits_of_members(topic: str, topic_id: str, partition: int, epoch: int, expected: str) -> None:
    """At the member's epoch all, at an older one what was owned then; a name alone does not say what is owned."""
    assert check(MEMBER, topic, topic_id, partition, epoch=epoch, is_transactional=False) == expected


def test_commits_of_transactions_are_looked_up_by_name() -> None:
    """TxnOffsetCommit has no topic ids."""
    assert check(MEMBER, "Orders", ZERO_UUID, 0, epoch=3, is_transactional=True) == ""


def test_classic_members_are_reported_generations() -> None:
    """It is the same number by another name."""
    member = replace(MEMBER, classic_member_metadata=ClassicMemberMetadata())
    text = check(member, "Orders", ORDERS, 0, epoch=2, is_transactional=False)
    assert text == "Received generation id 2 is older than assignment epoch 3 for partition Orders-0."
