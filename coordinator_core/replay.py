"""REPLAY: record type to replay function. One replay for history, simulation and tests.

Contract (bodies follow the group types' own modules):

`replay(shard, record, report) -> shard` applies one record of one `__consumer_offsets` partition. `report` takes an
`Anomaly` where the log breaks one of the coordinator's own rules (Kafka throws there); the best effort is applied.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from immutables import Map

from coordinator_core.classic.state import ClassicGroup
from coordinator_core.consumer.state import ConsumerGroup
from coordinator_core.share.state import ShareGroup, ShareGroupStatePartitions
from coordinator_core.streams.state import StreamsGroup

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


@dataclass(frozen=True, slots=True)
class Anomaly:
    """The log contradicts the state. `kafka_exception`: the exception Kafka's loader throws here."""

    code: str
    message: str
    kafka_exception: str = "IllegalStateException"


Report = Callable[[Anomaly], None]


@dataclass(frozen=True, slots=True)
class GroupShard:
    """State of one `__consumer_offsets` partition, offsets aside. The group map is keyed by id alone."""

    groups: Map[str, Group] = field(default_factory=Map)
    share_partitions: Map[str, ShareGroupStatePartitions] = field(default_factory=Map)
