"""The assignors of Kafka 4.3, by the names that members and brokers use."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from coordinator_core.live.assignors import client_range, server_range
from coordinator_core.live.assignors.client_group import ClientAssignor
from coordinator_core.live.assignors.client_round_robin import assign_round_robin
from coordinator_core.live.assignors.client_sticky import assign_cooperative_sticky, assign_sticky
from coordinator_core.live.assignors.server_group import ServerAssignor
from coordinator_core.live.assignors.server_simple import assign_simple
from coordinator_core.live.assignors.server_uniform import assign_uniform

CLIENT_ASSIGNORS: Final[Mapping[str, ClientAssignor]] = MappingProxyType(
    {
        "range": client_range.assign_range,
        "roundrobin": assign_round_robin,
        "sticky": assign_sticky,
        "cooperative-sticky": assign_cooperative_sticky,
    }
)
"""Protocol name of classic groups -> the assignor that their leader runs (partition.assignment.strategy)."""

CONSUMER_GROUP_ASSIGNORS: Final[Mapping[str, ServerAssignor]] = MappingProxyType(
    {"uniform": assign_uniform, "range": server_range.assign_range}
)
"""Server assignor name -> the assignor that the coordinator runs (group.consumer.assignors; the first is the
default)."""

SHARE_GROUP_ASSIGNORS: Final[Mapping[str, ServerAssignor]] = MappingProxyType({"simple": assign_simple})
