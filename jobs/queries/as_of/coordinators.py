"""The current coordinators of groups, from a live cluster.

The coordinator of a group is the leader of its log partition. The cluster is asked for its metadata, like any client
does, and not with FindCoordinator: that would create `__consumer_offsets` in a cluster without it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_core.replay.lookup import group_partition
from jobs.errors import BrokerError
from jobs.settings import Settings
from jobs.sources.broker import Broker, Deadline
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC

ELECTION_MS: Final = 3_000
"""Maximum wait for a log partition without a leader."""


def live_coordinators(broker: Broker, group_ids: Iterable[str]) -> Mapping[str, str]:
    """Group -> its current coordinator, in the format of Kafka's tools: `host:port  (node id)`.

    Groups whose log partition has no leader are missing; so are all groups where the cluster has never had one.
    """
    topic = broker.topics([OFFSETS_TOPIC]).get(OFFSETS_TOPIC)
    if topic is None:
        return {}
    places = {group_id: group_partition(group_id, topic.partition_count) for group_id in group_ids}
    deadline = Deadline(min(broker.timeout_ms, ELECTION_MS))
    by_partition: dict[int, str] = {}
    for partition in sorted(set(places.values())):
        try:
            leader = broker.leader(OFFSETS_TOPIC, partition, deadline=deadline)
        except BrokerError as error:
            if error.code != "NO_LEADER":
                raise
        else:
            by_partition[partition] = f"{leader.host_port}  ({leader.node_id})"
    return {group_id: by_partition[number] for group_id, number in places.items() if number in by_partition}


def coordinators_of_cluster(settings: Settings, partitions: Mapping[str, int]) -> Mapping[str, str]:
    address = settings.broker_address
    assert address is not None
    with Broker.connect(address, timeout_ms=settings.request_timeout_ms) as broker:
        return live_coordinators(broker, partitions)
