"""The live coordinators: heartbeats that change nothing, and acknowledgements, a second and core.

Time is CPU time of this process, so that what else runs on the machine counts little. A heartbeat is one call of
`GroupCoordinator.handle`; an acknowledgement goes the whole way: acquired, acknowledged, written by the share
coordinator, replayed, answered by the persister.
"""

from collections.abc import Callable, Iterator
from time import process_time
from typing import Any, Final

from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from coordinator_core.live.consumer.messages import ConsumerGroupHeartbeatRequest
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.modules import MODULES
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.live.share.messages import ShareGroupHeartbeatRequest, ShareStatePartitions
from coordinator_core.live.share_partition.acknowledge import acknowledge
from coordinator_core.live.share_partition.acquire import acquire
from coordinator_core.live.share_partition.state import (
    AcknowledgementBatch,
    FetchedBatches,
    LogBatch,
    SharePartition,
    SharePartitionConfig,
)
from coordinator_core.live.share_partition.window import next_fetch_offset
from coordinator_core.live.share_state.coordinator import ShareCoordinator
from coordinator_core.live.share_state.messages import InitializePartition, StateRequest, StateTopic
from coordinator_core.live.share_state.persister import Persister, Send
from coordinator_core.replay.lookup import SharePartitionKey
from tests.coordinator_core.live.share_state.exchange import exchange
from tests.coordinator_core.logs import CountingLog, MemoryLog

HEARTBEAT_COUNT: Final = 60_000
ACKNOWLEDGEMENT_COUNT: Final = 30_000
MEMBER_COUNTS: Final = (10, 1000)
AIM: Final = 20_000
"""Heartbeats or acknowledgements a second and core."""

TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
JOIN_MS: Final = 3000
"""Rebalance time-out of classic members, and the delay of their first rebalance."""
PARTITION_COUNT: Final = 32
FETCHED_COUNT: Final = 500
ACCEPT: Final = 1

Beat = Callable[[int], Any]
"""Sends heartbeat number n of a group, and gives the answer."""


def main() -> None:
    """Print a line for every kind of heartbeat and of acknowledgement."""
    print(f"live coordinators, a second and core (the aim is {AIM:,}):")
    for member_count in MEMBER_COUNTS:
        for name, start in (("classic", classic_group), ("consumer", consumer_group), ("share", share_group)):
            print(f"  heartbeats, {name} group of {member_count:,}: {heartbeat_rate(start, member_count):,.0f}")
    for record_count in (1, 10, FETCHED_COUNT):
        call_rate, record_rate = acknowledgement_rates(record_count)
        print(f"  acknowledgements of {record_count:,}: {call_rate:,.0f} calls, {record_rate:,.0f} records")


def heartbeat_rate(start: Callable[[GroupCoordinator, int], Beat], member_count: int) -> float:
    """Heartbeats a second of a group in which nothing happens."""
    coordinator = GroupCoordinator(
        MODULES,
        now_ms=0,
        config=GroupCoordinatorConfig(group_share_max_size=1000, group_consumer_assignment_interval_ms=0),
        image=image_of([Topic("t", TOPIC_ID, PARTITION_COUNT)]),
        log=CountingLog(),
    )
    heartbeat = start(coordinator, member_count)
    for number in range(4 * member_count):
        heartbeat(number)
    started = process_time()
    for number in range(HEARTBEAT_COUNT):
        response = heartbeat(number)
        assert response.error_code == 0, response
    return HEARTBEAT_COUNT / (process_time() - started)


def classic_group(coordinator: GroupCoordinator, member_count: int) -> Beat:
    """A stable classic group; the function sends one heartbeat."""
    protocols = (JoinProtocol("range", b""),)
    joined: dict[int, str] = {}
    for number in range(member_count):
        request = JoinGroupRequest("g", 45_000, JOIN_MS, "", "consumer", protocols, group_instance_id=f"i{number}")
        coordinator.handle(
            "classic_join", request, now_ms=0, api_version=9, request_id=number, new_uuid=f"{number:036}"
        )
    outcome = coordinator.advance(JOIN_MS)
    for answer in outcome.completed:
        joined[answer.request_id] = answer.response.member_id
    generation = outcome.completed[0].response.generation_id
    leader = outcome.completed[0].response.leader
    for member_id in sorted(joined.values(), key=lambda member_id: member_id == leader):
        assignments = tuple(SyncGroupRequestAssignment(other, b"") for other in joined.values())
        sync = SyncGroupRequest("g", generation, member_id, assignments=assignments if member_id == leader else ())
        coordinator.handle("classic_sync", sync, now_ms=JOIN_MS, api_version=5, request_id=member_count)
    requests = [HeartbeatRequest("g", generation, member_id) for member_id in joined.values()]

    def heartbeat(number: int) -> Any:
        return coordinator.handle("classic_heartbeat", requests[number % member_count], now_ms=JOIN_MS + 1).response

    return heartbeat


def consumer_group(coordinator: GroupCoordinator, member_count: int) -> Beat:
    """A consumer group; the function sends one heartbeat, with the values of the answer before."""
    epochs: dict[int, int] = {}
    owned: dict[int, Any] = {}
    for number in range(member_count):
        request = ConsumerGroupHeartbeatRequest(
            "g", f"m{number}", 0, rebalance_timeout_ms=1000, subscribed_topic_names=("t",), topic_partitions=()
        )
        response = coordinator.handle("consumer_group_heartbeat", request, now_ms=0, api_version=1).response
        epochs[number], owned[number] = response.member_epoch, response.assignment.topic_partitions

    def heartbeat(number: int) -> Any:
        member = number % member_count
        request = ConsumerGroupHeartbeatRequest("g", f"m{member}", epochs[member], topic_partitions=owned[member])
        response = coordinator.handle("consumer_group_heartbeat", request, now_ms=1, api_version=1).response
        epochs[member] = response.member_epoch
        if response.assignment is not None:
            owned[member] = response.assignment.topic_partitions
        return response

    return heartbeat


def share_group(coordinator: GroupCoordinator, member_count: int) -> Beat:
    """A share group; the function sends one heartbeat."""
    epochs: dict[int, int] = {}
    for number in range(member_count):
        request = ShareGroupHeartbeatRequest("g", f"m{number}", 0, subscribed_topic_names=("t",))
        response = coordinator.handle("share_group_heartbeat", request, now_ms=0, api_version=1).response
        epochs[number] = response.member_epoch

    wanted = ShareStatePartitions("g", {TOPIC_ID: tuple(range(PARTITION_COUNT))})
    coordinator.handle("initialize_share_group_state", wanted, now_ms=0)

    def heartbeat(number: int) -> Any:
        member = number % member_count
        request = ShareGroupHeartbeatRequest("g", f"m{member}", epochs[member])
        response = coordinator.handle("share_group_heartbeat", request, now_ms=1, api_version=1).response
        epochs[member] = response.member_epoch
        return response

    return heartbeat


def _one_node(_key: SharePartitionKey) -> int:
    """Where every share coordinator is."""
    return 1


def acknowledgement_rates(record_count: int) -> tuple[float, float]:
    """(calls, records) a second, each call with one batch of so many records, accepted in the order of offsets."""
    coordinator = ShareCoordinator(now_ms=0, image=image_of([Topic("t", TOPIC_ID, 1)]), log=MemoryLog())
    partitions = (InitializePartition(0, 1, 0),)
    request = StateRequest("g", (StateTopic(TOPIC_ID, partitions),))
    coordinator.handle("initialize_state", request, now_ms=0)
    persister = Persister(_one_node, lambda: 0.5)
    partition = SharePartition(SharePartitionConfig(leader_epoch=0))
    key = SharePartitionKey("g", TOPIC_ID, 0)

    def serve(send: Send) -> Any:
        return coordinator.handle(send.operation, send.request, now_ms=0).response

    persister.read_into(partition, key, lambda: 0)
    exchange(persister, _one_node, serve, 0)
    call_count = 0
    started = process_time()
    while call_count * record_count < max(ACKNOWLEDGEMENT_COUNT, 100 * record_count):
        for batch in _acquired(partition, record_count):
            write = acknowledge(partition, "m", [batch], 0)
            if write is not None:
                persister.write_of(partition, key, write)
                exchange(persister, _one_node, serve, 0)
            call_count += 1
    seconds = process_time() - started
    return call_count / seconds, call_count * record_count / seconds


def _acquired(partition: SharePartition, record_count: int) -> Iterator[AcknowledgementBatch]:
    """Fetch, and acknowledge what was acquired in batches."""
    offset = next_fetch_offset(partition)
    bounds = range(offset, offset + FETCHED_COUNT, record_count)
    fetched = FetchedBatches(offset, [LogBatch(first, first + record_count - 1) for first in bounds])
    got = acquire(partition, "m", fetched, 0, batch_size=FETCHED_COUNT, fetch_records_max=FETCHED_COUNT)
    for first_offset, last_offset, _ in got.records:
        for first in range(first_offset, last_offset + 1, record_count):
            yield AcknowledgementBatch(first, first + record_count - 1, (ACCEPT,))
