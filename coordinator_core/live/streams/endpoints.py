"""Where the state of each partition is: what members get for interactive queries (KIP-1071).

Source: StreamsGroup.buildEndpointToPartitions, EndpointToPartitionsManager.
"""

from collections.abc import Iterable, Mapping

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion, Since
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.streams.live import LiveStreamsGroup
from coordinator_core.live.streams.messages import Endpoint, EndpointToPartitions, EndpointTopicPartition
from coordinator_core.live.streams.topology import ConfiguredSubtopology
from coordinator_core.replay.java.hash_codes import integer_hash_code
from coordinator_core.replay.java.hash_map import in_hash_order
from coordinator_core.replay.streams.state import StreamsGroup, StreamsMember, Tasks


def endpoints_of(
    group: StreamsGroup,
    live: LiveStreamsGroup,
    updated: StreamsMember,
    image: MetadataImage,
    *,
    replaced_id: str | None = None,
    version: KafkaVersion = DEFAULT_VERSION,
) -> tuple[EndpointToPartitions, ...]:
    """All members with an endpoint. The requesting member is included as updated, in place of the static member that it
    replaces.

    If the topology does not fit the cluster, the result is empty. Kafka fails there with a NoSuchElementException, so
    that the member gets UNKNOWN_SERVER_ERROR.
    """
    is_other = {updated.member_id, replaced_id}.isdisjoint
    others = (member for member in group.members_in_table_order() if is_other({member.member_id}))
    found = (
        _endpoint(live, member, image, version) for member in (*others, updated) if member.user_endpoint is not None
    )
    return tuple(endpoint for endpoint in found if endpoint is not None)


def _endpoint(
    live: LiveStreamsGroup, member: StreamsMember, image: MetadataImage, version: KafkaVersion
) -> EndpointToPartitions | None:
    known = live.endpoints.get(member.member_id)
    if known is not None and known[0] is member:
        return known[1]
    configured = live.configured_topology
    if configured is None or configured.subtopologies is None or member.user_endpoint is None:
        return None
    host, port = member.user_endpoint
    endpoint = EndpointToPartitions(
        Endpoint(host, port),
        _partitions(member.active, configured.subtopologies, image, version),
        _partitions(_copies(member, version), configured.subtopologies, image, version),
    )
    live.endpoints[member.member_id] = (member, endpoint)
    return endpoint


def _copies(member: StreamsMember, version: KafkaVersion) -> Tasks:
    """Tasks of which the member has a standby or warm-up copy."""
    if not Since.STREAMS_TASK_OFFSETS.holds_in(version):
        return member.standby
    return {
        subtopology_id: (*member.standby.get(subtopology_id, ()), *member.warmup.get(subtopology_id, ()))
        for subtopology_id in {**member.standby, **member.warmup}
    }


def _partitions(
    tasks: Mapping[str, Iterable[int]],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    image: MetadataImage,
    version: KafkaVersion,
) -> tuple[EndpointTopicPartition, ...]:
    """Input topics of the tasks, with the partitions. Up to 4.3, a topic with fewer partitions than tasks gets the
    first of the task numbers, even if the topic has no such partitions."""
    found = []
    are_own = Since.STREAMS_ENDPOINTS_NAME_OWN_PARTITIONS.holds_in(version)
    for subtopology_id, numbers in tasks.items():
        configured = subtopologies.get(subtopology_id)
        partitions = sorted(numbers)
        for topic in dict.fromkeys(() if configured is None else configured.input_topics):
            known = image.topics.get(topic)
            if known is None:
                continue
            count = known.partition_count
            if are_own:
                own = tuple(partition for partition in partitions if partition < count)
                if own:
                    found.append(EndpointTopicPartition(topic, own))
                continue
            named = partitions[:count] if count < len(partitions) else in_hash_order(partitions, integer_hash_code)
            found.append(EndpointTopicPartition(topic, tuple(named)))
    return tuple(found)
