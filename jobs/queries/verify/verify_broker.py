"""The answers of a live cluster about its groups, for verify."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.history.comparison_with_broker import NOT_STORED, STORED, TOPOLOGY_DESCRIPTION, Path
from coordinator_core.replay.lookup import SharePartitionKey, group_partition, share_partition_partition
from jobs.errors import JobError
from jobs.queries.verify.verify_ledger import assignment_path, group_facts, member_facts
from jobs.sources.admin import Admin
from jobs.sources.admin_answers import (
    AssignedPartition,
    CommittedOffset,
    GroupDescription,
    Refusal,
    ShareOffset,
    ShareState,
    Topic,
    TopicPartitionId,
    TopologyStatus,
)
from jobs.sources.admin_questions import GROUP_ID_NOT_FOUND
from jobs.sources.broker import Broker, OffsetSpec
from schemas import consumer_offsets, share_group_state
from schemas.group_types import GroupType

NO_PARTITION: Final = -1
NOT_FOUND: Final = Refusal.of(GROUP_ID_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class Asked:
    """The answers of a cluster, and the end offsets of its coordinators' logs before and after."""

    group_ids: frozenset[str] | None
    """The groups asked about; None: all."""
    starts: Mapping[LogPartition, int]
    before: Mapping[LogPartition, int]
    after: Mapping[LogPartition, int]
    topics: Mapping[str, Topic]
    descriptions: Mapping[str, GroupDescription | Refusal]
    offsets: Mapping[str, Mapping[tuple[str, int], CommittedOffset] | Refusal]
    share_offsets: Mapping[str, Mapping[TopicPartitionId, ShareOffset | Refusal] | Refusal]
    share_states: Mapping[SharePartitionKey, ShareState | Refusal]

    def partition_count(self, topic: str) -> int:
        """The partition count of a coordinator topic; 0 where it does not exist."""
        return self.topics[topic].partition_count if topic in self.topics else 0

    def group_log(self, group_id: str) -> LogPartition:
        count = self.partition_count(consumer_offsets.TOPIC)
        return consumer_offsets.TOPIC, group_partition(group_id, count) if count else NO_PARTITION

    def share_log(self, key: SharePartitionKey) -> LogPartition:
        count = self.partition_count(share_group_state.TOPIC)
        return share_group_state.TOPIC, share_partition_partition(key, count) if count else NO_PARTITION


def ask(broker: Broker, group_ids: Collection[str] | None = None) -> Asked:
    """Ask a cluster about some groups, or all. Raises BrokerError."""
    admin = Admin(broker)
    topics = admin.topics()
    coordinators = (consumer_offsets.TOPIC, share_group_state.TOPIC)
    logs = [(name, number) for name in coordinators if name in topics for number in range(topics[name].partition_count)]
    if consumer_offsets.TOPIC not in topics:
        raise JobError(
            f"this cluster shows no topic {consumer_offsets.TOPIC}: no group was ever in it, or the principal may not "
            "describe it"
        )
    starts = broker.offsets(logs, OffsetSpec.EARLIEST)
    before = broker.offsets(logs)
    listed = {name: it.group_type for name, it in admin.list_groups().items()}
    if group_ids is not None:
        listed = {name: listed.get(name, "") for name in group_ids}
    descriptions = admin.describe_groups(listed)
    types = {name: it.group_type for name, it in descriptions.items() if isinstance(it, GroupDescription)}
    offsets = admin.committed_offsets([name for name, kind in types.items() if kind != GroupType.SHARE])
    share_offsets = admin.share_offsets([name for name, kind in types.items() if kind == GroupType.SHARE])
    described = {
        SharePartitionKey(group_id, place.topic_id, place.partition): offset
        for group_id, places in share_offsets.items()
        if not isinstance(places, Refusal)
        for place, offset in places.items()
    }
    # only the coordinator's own epoch: a higher one would be written to the log
    leader_epochs = {key: offset.leader_epoch for key, offset in described.items() if isinstance(offset, ShareOffset)}
    share_states = admin.share_states(described, leader_epochs)
    after = broker.offsets(logs)
    return Asked(
        None if group_ids is None else frozenset(group_ids),
        starts,
        before,
        after,
        topics,
        descriptions,
        offsets,
        share_offsets,
        share_states,
    )


def description_facts(group: GroupDescription) -> dict[Path, Any]:
    """A description as facts, in the form of the ledger's facts."""
    epochs = group.group_epoch, group.assignment_epoch
    facts = group_facts(group.group_type, group.state, group.protocol_type, group.protocol_name, *epochs)
    if group.group_type == GroupType.CONSUMER:
        facts["assignor",] = group.protocol_name
    if group.group_type == GroupType.STREAMS:
        facts["topology epoch",] = group.topology_epoch
        if group.topology_status is not TopologyStatus.NOT_REQUESTED:
            is_stored = group.topology_status is not TopologyStatus.NOT_STORED
            facts[TOPOLOGY_DESCRIPTION] = STORED if is_stored else NOT_STORED
    facts["member count",] = len(group.members)
    for member in group.members:
        facts |= member_facts(group.group_type, member.member_id, partial(getattr, member))
        facts |= _described_partitions(member.member_id, member.assigned, is_target=False)
        facts |= _described_partitions(member.member_id, member.target or (), is_target=True)
    return facts


def _described_partitions(
    member_id: str, partitions: Iterable[AssignedPartition], *, is_target: bool
) -> dict[Path, Any]:
    return {
        assignment_path(member_id, it.topic, it.partition, it.task_type, is_target=is_target): it.topic_id or True
        for it in partitions
    }
