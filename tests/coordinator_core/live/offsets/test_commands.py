"""Tests of the commands about offsets, and of those about groups of all types."""

from coordinator_core.live.classic.live import DEAD, LiveClassicGroup
from coordinator_core.live.classic.rules import ClassicGroupRules
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.operation import CheckPartition, Context, OffsetCommitter, Outcome
from coordinator_core.live.coordinator.records import Producer
from coordinator_core.live.offsets.messages import (
    OffsetCommitPartition,
    OffsetCommitTopic,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
    TxnOffsetCommitRequest,
)
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import Clients

TOPIC_ID, OTHER_ID = "B" * 22, "C" * 22
PRODUCER = Producer(5, 1)
DAY_MS = 24 * 60 * 60 * 1000
RETENTION_MS = 7 * DAY_MS


def code_of(outcome: Outcome) -> ErrorCode:
    """The error of a refused request."""
    assert outcome.error is not None
    return outcome.error.code


def only_partition_code(outcome: Outcome) -> int:
    """The error code of the one partition of a commit."""
    assert outcome.error is None
    code: int = outcome.response.topics[0].partitions[0].error_code
    return code


def commit_in_transaction(clients: Clients, topic: str = "t", offset: int = 9, generation_id: int = -1) -> Outcome:
    """TxnOffsetCommit of partition 0."""
    topics = (OffsetCommitTopic((OffsetCommitPartition(0, offset),), topic, TOPIC_ID),)
    request = TxnOffsetCommitRequest("g", PRODUCER.producer_id, PRODUCER.producer_epoch, topics, "tx", generation_id)
    return clients.ask("commit_transactional_offset", request, api_version=5)


def delete_offset(clients: Clients, topic: str = "t") -> Outcome:
    """OffsetDelete of partition 0."""
    topics = (OffsetDeleteTopic(topic, (OffsetDeletePartition(0),)),)
    return clients.ask("delete_offsets", OffsetDeleteRequest("g", topics))


def fetched(clients: Clients, topic: str = "t") -> tuple[int, str, int]:
    """(offset, metadata, error code) of partition 0."""
    request = OffsetFetchRequest("g", (OffsetFetchTopic(topic, (0,)),))
    partition = clients.ask("fetch_offsets", request).response.topics[0].partitions[0]
    return partition.committed_offset, partition.metadata, partition.error_code


def keys(clients: Clients) -> list[tuple[str, int]]:
    """(topic, partition) of the committed offsets."""
    return sorted((key.topic, key.partition) for key in clients.coordinator.shard.offsets.offsets)


def test_metadata_has_a_limit() -> None:
    """Counted in UTF-16 units. The group is there even so."""
    clients = Clients(offset_metadata_max_bytes=4)
    assert only_partition_code(clients.commit(metadata="\U0001f600\U0001f600a")) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert clients.records == []
    assert clients.group.is_simple
    assert only_partition_code(clients.commit(metadata="\U0001f600\U0001f600")) == 0


def test_a_commit_that_cannot_be_written_leaves_nothing() -> None:
    """Neither the offset nor the group which was made for it; a group that was there stays."""
    clients = Clients()
    clients.log.next_error = ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(clients.commit()) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert clients.coordinator.dump() == {}
    clients.commit()
    clients.log.next_error = ErrorCode.MESSAGE_TOO_LARGE
    clients.commit(offset=8)
    assert fetched(clients) == (7, "", 0)
    assert clients.group.is_simple


def test_no_commits_between_join_and_sync() -> None:
    """The member does not know yet what it owns; a transaction is bound to the generation only."""
    clients = Clients(group_initial_rebalance_delay_ms=0)
    number = clients.join()
    clients.wait(0)
    member_id = clients.answers[number].member_id
    outcome = clients.commit(generation_id_or_member_epoch=1, member_id=member_id)
    assert code_of(outcome) == ErrorCode.REBALANCE_IN_PROGRESS
    assert only_partition_code(commit_in_transaction(clients)) == 0


def test_dead_groups_take_no_part() -> None:
    """Every operation finds the group gone."""
    clients = Clients()
    clients.commit()
    clients.group.state = DEAD
    assert code_of(clients.commit()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetched(clients) == (-1, "", 0)
    assert code_of(delete_offset(clients)) == ErrorCode.GROUP_ID_NOT_FOUND
    (deleted,) = clients.ask("delete_groups", ("g",)).response
    assert deleted.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_transaction_of_a_generation_needs_the_group() -> None:
    """No group: no generation. Without one a simple group is made."""
    clients = Clients()
    assert code_of(commit_in_transaction(clients, generation_id=3)) == ErrorCode.ILLEGAL_GENERATION
    assert only_partition_code(commit_in_transaction(clients)) == 0
    assert clients.group.is_simple


class StaleRules(ClassicGroupRules):
    """Rules of a group whose members have epochs, and who commits has an old one."""

    def validate_offset_commit(
        self, context: Context, group: LiveClassicGroup, committer: OffsetCommitter
    ) -> CheckPartition | None:
        raise Refused(ErrorCode.STALE_MEMBER_EPOCH)


def test_a_stale_member_epoch_is_an_illegal_generation_to_a_transaction() -> None:
    """TxnOffsetCommit knows no member epochs."""
    clients = Clients()
    clients.commit()
    clients.coordinator.rules = {LiveClassicGroup: StaleRules()}
    assert code_of(commit_in_transaction(clients)) == ErrorCode.ILLEGAL_GENERATION
    assert code_of(clients.commit()) == ErrorCode.STALE_MEMBER_EPOCH


class PickyRules(ClassicGroupRules):
    """Rules of a group that refuses one partition, readers without member id, and expiry."""

    def validate_offset_commit(
        self, context: Context, group: LiveClassicGroup, committer: OffsetCommitter
    ) -> CheckPartition | None:
        def check(topic: str, topic_id: str, partition: int) -> None:
            if topic == "u":
                raise Refused(ErrorCode.STALE_MEMBER_EPOCH)

        return check

    def validate_offset_fetch(self, group: LiveClassicGroup, member_id: str | None, member_epoch: int) -> None:
        if member_id is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)

    def should_expire(self, group: LiveClassicGroup) -> bool:
        return False


def test_the_rules_of_the_group_decide() -> None:
    """For commits by a look at each partition; other refusals of a transaction are passed on as they are."""
    clients = Clients(offsets_retention_check_interval_ms=RETENTION_MS)
    clients.commit("t")
    clients.coordinator.rules = {LiveClassicGroup: PickyRules()}
    assert only_partition_code(clients.commit("t", offset=8)) == 0
    assert code_of(clients.commit("u")) == ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(clients.ask("fetch_offsets", OffsetFetchRequest("g"))) == ErrorCode.UNKNOWN_MEMBER_ID
    (topic,) = clients.ask("fetch_offsets", OffsetFetchRequest("g", member_id="m")).response.topics
    assert topic.partitions[0].committed_offset == 8
    clients.wait(10 * RETENTION_MS)
    assert keys(clients) == [("t", 0)]
    clients.coordinator.rules = {LiveClassicGroup: ClassicGroupRules()}
    clients.group.state = DEAD
    assert code_of(commit_in_transaction(clients)) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_expiry_of_its_own_goes_before_retention() -> None:
    """Whatever the broker's retention."""
    clients = Clients(offsets_retention_check_interval_ms=1000)
    clients.commit(retention_time_ms=1500)
    clients.wait(1000)
    assert keys(clients) == [("t", 0)]
    clients.wait(1000)
    assert keys(clients) == []
