"""Where the state of which partition is found: what members are told for interactive queries (KIP-1071).

Source: StreamsGroup.buildEndpointToPartitions, EndpointToPartitionsManager.
"""

from collections.abc import Iterable, Mapping

from coordinator_core.coordinator.image import MetadataImage
from coordinator_core.java.hash_codes import integer_hash_code
from coordinator_core.java.hash_map import in_hash_order
from coordinator_core.streams.live import LiveStreamsGroup
from coordinator_core.streams.messages import Endpoint, EndpointToPartitions, EndpointTopicPartition
from coordinator_core.streams.state import StreamsGroup, StreamsMember
from coordinator_core.streams.topology import ConfiguredSubtopology


def endpoints_of(
    group: StreamsGroup, live: LiveStreamsGroup, updated: StreamsMember, image: MetadataImage
) -> tuple[EndpointToPartitions, ...]:
    """All members with an endpoint; the one which asks as it is going to be.

    Where the topology does not fit the cluster nothing can be said, and the answer is empty. Kafka fails there with a
    NoSuchElementException, so that the member is told UNKNOWN_SERVER_ERROR.
    """
    others = (member for member in group.members_in_table_order() if member.member_id != updated.member_id)
    found = (_endpoint(live, member, image) for member in (*others, updated) if member.user_endpoint is not None)
    return tuple(endpoint for endpoint in found if endpoint is not None)


def _endpoint(live: LiveStreamsGroup, member: StreamsMember, image: MetadataImage) -> EndpointToPartitions | None:
    known = live.endpoints.get(member.member_id)
    if known is not None and known[0] is member:
        return known[1]
    configured = live.configured_topology
    if configured is None or configured.subtopologies is None or member.user_endpoint is None:
        return None
    host, port = member.user_endpoint
    endpoint = EndpointToPartitions(
        Endpoint(host, port),
        _partitions(member.active, configured.subtopologies, image),
        _partitions(member.standby, configured.subtopologies, image),
    )
    live.endpoints[member.member_id] = (member, endpoint)
    return endpoint


def _partitions(
    tasks: Mapping[str, Iterable[int]], subtopologies: Mapping[str, ConfiguredSubtopology], image: MetadataImage
) -> tuple[EndpointTopicPartition, ...]:
    """Input topics of the tasks. Of a topic with fewer partitions than there are tasks, only its first are named."""
    found = []
    for subtopology_id, numbers in tasks.items():
        configured = subtopologies.get(subtopology_id)
        partitions = sorted(numbers)
        for topic in dict.fromkeys(() if configured is None else configured.input_topics):
            known = image.topics.get(topic)
            if known is None:
                continue
            count = known.partition_count
            named = partitions[:count] if count < len(partitions) else in_hash_order(partitions, integer_hash_code)
            found.append(EndpointTopicPartition(topic, tuple(named)))
    return tuple(found)
