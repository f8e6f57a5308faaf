"""A member of the streams protocol (KIP-1071): a thread of a Kafka Streams application, to which brokers assign tasks.

It works as a member of the consumer protocol does, with the same states; it sends its topology when it joins, and tasks
where a consumer sends partitions. It owns the partitions that its active tasks read; standby tasks read changelogs,
which no group knows. While the group cannot assign yet (its internal topics are being created, or its initial delay
runs), the member has no tasks and waits.

Source: StreamsMembershipManager, StreamsGroupHeartbeatRequestManager of Kafka's clients.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.streams.messages import (
    KeyValue,
    RequestSubtopology,
    RequestTopology,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicInfo,
)
from simulator.simulation.clients.consumer import ConsumerMember
from simulator.simulation.clients.machine import Send

HEARTBEAT_VERSION: Final = 0
HEARTBEAT_VERSION_44: Final = 1
"""The version since Kafka 4.4."""

REPARTITION_CONFIGS: Final = (
    KeyValue("cleanup.policy", "delete"),
    KeyValue("message.timestamp.type", "CreateTime"),
    KeyValue("retention.ms", "-1"),
    KeyValue("segment.bytes", "52428800"),
)
CHANGELOG_CONFIGS: Final = (
    KeyValue("cleanup.policy", "compact"),
    KeyValue("message.timestamp.type", "CreateTime"),
)
"""The configs of internal topics that Streams requests (RepartitionTopicConfig, UnwindowedChangelogTopicConfig)."""

READING, COUNTING = "0", "1"
"""The ids of the subtopologies."""


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    """The settings that the members of one application share, and the process of the member's thread."""

    process_id: str
    topology: RequestTopology
    heartbeat_version: int = HEARTBEAT_VERSION
    client_tags: tuple[KeyValue, ...] = ()


def repartition_topic(application_id: str) -> str:
    """The topic between the two subtopologies."""
    return f"{application_id}-counts-repartition"


def changelog_topic(application_id: str) -> str:
    return f"{application_id}-counts-changelog"


def topology_of(
    application_id: str, topics: Iterable[str], *, is_stateful: bool, has_repartition: bool
) -> RequestTopology:
    """The topology of an application that reads topics: with a state store, and a repartition before it, if it has
    them.
    """
    changelogs = (TopicInfo(changelog_topic(application_id), topic_configs=CHANGELOG_CONFIGS),) if is_stateful else ()
    sources = tuple(sorted(topics))
    if not has_repartition:
        return RequestTopology(0, (RequestSubtopology(READING, sources, state_changelog_topics=changelogs),))
    between = repartition_topic(application_id)
    return RequestTopology(
        0,
        (
            RequestSubtopology(READING, sources, repartition_sink_topics=(between,)),
            RequestSubtopology(
                COUNTING,
                repartition_source_topics=(TopicInfo(between, topic_configs=REPARTITION_CONFIGS),),
                state_changelog_topics=changelogs,
            ),
        ),
    )


@dataclass(slots=True)
class StreamsMember(ConsumerMember):
    streams: StreamsConfig = StreamsConfig("", RequestTopology())
    active: tuple[TaskIds, ...] = field(default=(), init=False)
    standby: tuple[TaskIds, ...] = field(default=(), init=False)
    warmup: tuple[TaskIds, ...] = field(default=(), init=False)

    def _heartbeat(self, tag: str, member_epoch: int, **fields: Any) -> Send:
        request = StreamsGroupHeartbeatRequest(
            self.config.group_id, self.member_id, member_epoch, instance_id=self.config.instance_id, **fields
        )
        return self._send("streams_group_heartbeat", request, tag, self.streams.heartbeat_version)

    def _full_beat(self, tag: str) -> Send:
        """The heartbeat with which the member joins: its topology, and no tasks."""
        self.sent, self.active, self.standby, self.warmup = self.subscribed, (), (), ()
        return self._heartbeat(
            tag,
            self.member_epoch,
            rack_id=self.config.rack_id,
            rebalance_timeout_ms=self.config.max_poll_interval_ms,
            topology=self.streams.topology,
            active_tasks=(),
            standby_tasks=(),
            warmup_tasks=(),
            process_id=self.streams.process_id,
            client_tags=self.streams.client_tags,
        )

    def _acknowledgement(self) -> Send:
        return self._heartbeat(
            "heartbeat",
            self.member_epoch,
            active_tasks=self.active,
            standby_tasks=self.standby,
            warmup_tasks=self.warmup,
        )

    def _target_of(self, response: StreamsGroupHeartbeatResponse) -> tuple[TopicPartition, ...] | None:
        """The partitions that its new tasks read; None if the tasks are unchanged."""
        if response.active_tasks is None:
            return None
        self.active = response.active_tasks
        self.standby, self.warmup = response.standby_tasks or (), response.warmup_tasks or ()
        return tuple(sorted(self._read_by(self.active)))

    def _read_by(self, tasks: Iterable[TaskIds]) -> Iterator[TopicPartition]:
        inputs = {
            subtopology.subtopology_id: (
                *subtopology.source_topics,
                *(topic.name for topic in subtopology.repartition_source_topics),
            )
            for subtopology in self.streams.topology.subtopologies
        }
        for of_subtopology in tasks:
            for topic in inputs[of_subtopology.subtopology_id]:
                for number in of_subtopology.partitions:
                    at = TopicPartition(topic, number)
                    if self.topics.exists(at):
                        yield at
