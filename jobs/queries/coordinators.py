"""Which broker coordinates a group now: a live cluster tells it.

The leader of the log partition of a group is its coordinator. A cluster is asked for its metadata, as any client does,
and not by FindCoordinator: that would make `__consumer_offsets` in a cluster that has none yet.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_core.lookup import group_partition
from jobs.errors import BrokerError
from jobs.settings import Settings
from jobs.sources.broker import Broker, Deadline
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC

ELECTION_MS: Final = 3_000
"""A log partition that has no leader for longer is not waited for."""


def live_coordinators(broker: Broker, group_ids: Iterable[str]) -> Mapping[str, str]:
    """Group -> its coordinator now, as Kafka's tools print it: `host:port  (node id)`.

    Groups whose log partition has no leader are missing, and all of them where the cluster has had no group yet.
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
    """`live_coordinators` of the cluster that is named."""
    address = settings.broker_address
    assert address is not None
    with Broker.connect(address, timeout_ms=settings.request_timeout_ms) as broker:
        return live_coordinators(broker, partitions)
