"""The brokers: who leads what, requests on their way, replication, and failover.

A broker has one `CoordinatorRuntime` for groups. What arrives at a broker within one millisecond may share a batch.
Followers fetch `REPLICATION_MS` after an append; then the answers to what was written become available. A broker which
is gone answers nobody: its connections break, which clients notice after their latency. `DETECTION_MS` later the
controller elects new leaders, which load the coordinators from their copies of the logs: what no follower had is lost.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from coordinator_core.coordinator.errors import ErrorCode
from coordinator_core.coordinator.records import Producer
from coordinator_core.coordinator.shard import Client
from coordinator_core.coordinator.timers import Timer
from coordinator_core.log.compression import Codec
from coordinator_core.lookup import group_partition
from coordinator_core.runtime.coordinator import RuntimeConfig
from coordinator_core.runtime.messages import NO_REQUEST, Answer, EndTransaction, Request
from coordinator_core.runtime.partition import PartitionLog
from coordinator_core.runtime.runtime import CoordinatorRuntime
from coordinator_core.simulate.chronicle import COMMITS, Chronicle, is_quiet
from coordinator_core.simulate.clients.machine import Send, Service
from coordinator_core.simulate.clock import EventLoop
from coordinator_core.simulate.draw import java_uuid, stream
from coordinator_core.simulate.observe import ObservedMachine, ObservedMachines
from coordinator_core.simulate.process import Process
from coordinator_core.simulate.scenario import ClusterSpec
from coordinator_core.simulate.topics import Topics
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC

REPLICATION_MS: Final = 1
"""From an append to the fetches which commit it."""
DETECTION_MS: Final = 2000
"""From a broker's death to the election of other leaders."""
LOADING_MS: Final = 200
"""How long a new leader loads a coordinator."""
REBALANCE_LEADERS_MS: Final = 10_000
"""From a broker's return until it leads again what it led at first."""
REPLICATION_FACTOR: Final = 3

JOINS: Final = frozenset({"classic_join"})
"""Operations which may hand out a member id."""


@dataclass(slots=True)
class Broker:
    """One broker."""

    broker_id: int
    groups: CoordinatorRuntime
    is_alive: bool = True
    is_due: bool = False
    """A run of it is scheduled for now."""
    deadline_ms: int | None = None
    """The earliest run that is scheduled for later."""
    asked: dict[int, tuple[Process, int, Send]] = field(default_factory=dict)
    """Request id -> (who asked, in which incarnation, what)."""


class Cluster:
    """All brokers, and the logs which they share."""

    def __init__(self, spec: ClusterSpec, loop: EventLoop, topics: Topics, chronicle: Chronicle, *, seed: int) -> None:
        self.spec = spec
        self.chronicle = chronicle
        self.image_version = 1
        self._loop = loop
        self._topics = topics
        self._uuids = stream(seed, "uuids")
        self._request_id = 0
        self._replicating: set[int] = set()
        """Partitions whose followers are about to fetch."""
        self._group_partitions: dict[str, int] = {}
        self.request_count = 0
        ids = range(1, spec.brokers + 1)
        self.logs = [
            PartitionLog(OFFSETS_TOPIC, partition, _replicas(partition, spec.brokers))
            for partition in range(spec.consumer_offsets_partitions)
        ]
        self.brokers = {broker_id: self._new_broker(broker_id) for broker_id in ids}
        for log in self.logs:
            self._load(log, 0)

    # --- requests ---

    def partition_of(self, group_id: str) -> int:
        """The log partition of a group."""
        partition = self._group_partitions.get(group_id)
        if partition is None:
            partition = group_partition(group_id, len(self.logs))
            self._group_partitions[group_id] = partition
        return partition

    def leader(self, send: Send) -> int | None:
        """The broker which coordinates the group now; None while nobody does."""
        leader = self.logs[self.partition_of(send.key)].leader
        return leader if leader is not None and self.brokers[leader].is_alive else None

    def deliver(self, process: Process, broker_id: int, send: Send) -> None:
        """A request reaches a broker."""
        broker = self.brokers[broker_id]
        self.request_count += 1
        if not broker.is_alive:
            self._loop.after(
                process.latency_ms, process.answered, process.incarnation, send, None, ErrorCode.REQUEST_TIMED_OUT
            )
            return
        self._request_id += 1
        request = Request(
            send.operation,
            send.request,
            self._request_id,
            send.api_version,
            Client(process.client_id, process.host),
            java_uuid(process.uuids) if send.operation in JOINS else "",
        )
        broker.asked[self._request_id] = (process, process.incarnation, send)
        broker.groups.submit(self.partition_of(send.key), request)
        self._schedule_run(broker)

    def end_transaction(
        self, group_id: str, producer: Producer, *, is_commit: bool, on_done: Callable[[], None] | None = None
    ) -> None:
        """Write the marker of a transaction into a group's log, on whoever leads it."""
        partition = self.partition_of(group_id)
        leader = self.logs[partition].leader
        if leader is None or not self.brokers[leader].is_alive:
            self._loop.after(
                DETECTION_MS, lambda: self.end_transaction(group_id, producer, is_commit=is_commit, on_done=on_done)
            )
            return
        broker = self.brokers[leader]
        broker.groups.submit(partition, EndTransaction(producer, is_commit, 0, NO_REQUEST))
        self._schedule_run(broker)
        if on_done is not None:
            self._loop.after(REPLICATION_MS, on_done)

    # --- running brokers ---

    def _schedule_run(self, broker: Broker) -> None:
        if not broker.is_due:
            broker.is_due = True
            self._loop.at(self._loop.now_ms, self._run, broker)

    def _run(self, broker: Broker) -> None:
        broker.is_due = False
        if not broker.is_alive:
            return
        now_ms = self._loop.now_ms
        runtime = broker.groups
        for answer in runtime.run(now_ms):
            self._answer(broker, answer)
        for partition in tuple(self.chronicle.dirty):
            self._replicate_soon(partition)
        deadline_ms = runtime.next_deadline_ms()
        if deadline_ms is not None and (broker.deadline_ms is None or deadline_ms < broker.deadline_ms):
            broker.deadline_ms = deadline_ms
            self._loop.at(deadline_ms, self._run_at_deadline, broker, deadline_ms)

    def _run_at_deadline(self, broker: Broker, deadline_ms: int) -> None:
        if broker.deadline_ms == deadline_ms:
            broker.deadline_ms = None
            self._run(broker)

    def _answer(self, broker: Broker, answer: Answer) -> None:
        asked = broker.asked.pop(answer.request_id, None)
        if asked is None:
            return
        process, incarnation, send = asked
        if send.operation in COMMITS and self.chronicle.beats is not None:
            self.chronicle.beats.signed(process)
        error = None if answer.error is None else answer.error.code
        self._loop.after(process.latency_ms, process.answered, incarnation, send, answer.response, error)

    def _replicate_soon(self, partition: int) -> None:
        log = self.logs[partition]
        if log.leader is None or partition in self._replicating:
            return
        if log.end_offset > log.high_watermark:
            self._replicating.add(partition)
            self._loop.after(REPLICATION_MS, self._replicate, partition)
        else:
            self.chronicle.committed(partition, log.high_watermark)

    def _replicate(self, partition: int) -> None:
        self._replicating.discard(partition)
        log = self.logs[partition]
        if log.leader is None or not self.brokers[log.leader].is_alive:
            return
        self._fetch_all(log)
        self._note_commits(log)

    def _fetch_all(self, log: PartitionLog) -> None:
        """Two fetches of each follower: one copies, and the next one tells the leader so."""
        followers = [
            broker_id for broker_id in log.replicas if broker_id != log.leader and self.brokers[broker_id].is_alive
        ]
        for broker_id in (*followers, *followers):
            log.fetch(broker_id)

    def _note_commits(self, log: PartitionLog) -> None:
        """The high watermark may have moved: what waited for it becomes true, and is answered."""
        self.chronicle.committed(log.partition, log.high_watermark)
        assert log.leader is not None
        leader = self.brokers[log.leader]
        if leader.groups.has_work:
            self._run(leader)

    # --- sessions, for `beats` ---

    def _machine(self, group_id: str) -> ObservedMachine | None:
        partition = self.partition_of(group_id)
        leader = self.logs[partition].leader
        if leader is None:
            return None
        coordinator = self.brokers[leader].groups.coordinators.get(partition)
        machine = None if coordinator is None else coordinator.machine
        return machine if isinstance(machine, ObservedMachine) else None

    def is_quiet(self, group_id: str) -> bool:
        """Whether heartbeats of the group's members change nothing."""
        machine = self._machine(group_id)
        if machine is None:
            return False
        return is_quiet(machine.coordinator.group(group_id))

    def park_session(self, group_id: str, key: str) -> Timer | None:
        """Take a session timer out of its coordinator."""
        machine = self._machine(group_id)
        if machine is None:
            return None
        timer = machine.coordinator.timers.get(key)
        machine.coordinator.timers.cancel(key)
        return timer

    def restore_session(self, group_id: str, timer: Timer, deadline_ms: int) -> None:
        """Set it again. Where the coordinator is gone, so is the session."""
        machine = self._machine(group_id)
        if machine is None:
            return
        machine.coordinator.timers.schedule(
            timer.key, deadline_ms, timer.name, timer.arguments, retry_backoff_ms=timer.retry_backoff_ms
        )
        partition = self.partition_of(group_id)
        leader = self.logs[partition].leader
        assert leader is not None
        broker = self.brokers[leader]
        broker.groups.touch(partition)
        self._schedule_run(broker)

    # --- topics ---

    def update_metadata(self, changed_topics: Iterable[str]) -> None:
        """Topics have changed: all coordinators are told."""
        self.image_version += 1
        image = self._topics.image(self.image_version)
        self._wake_all()
        for broker in self.brokers.values():
            broker.groups.update_metadata(image, changed_topics)
            self._schedule_run(broker)

    def _wake_all(self, partitions: frozenset[int] | None = None) -> None:
        if self.chronicle.beats is not None:
            self.chronicle.beats.wake_where(
                lambda group_id: partitions is None or self.partition_of(group_id) in partitions
            )

    # --- brokers that go and come ---

    def _new_broker(self, broker_id: int) -> Broker:
        image = self._topics.image(self.image_version)
        config = RuntimeConfig(
            append_linger_ms=self.spec.append_linger_ms, codec_id=Codec[self.spec.compression.upper()]
        )
        kind = ObservedMachines(self.spec.settings, self.chronicle, self._partition_of_machine)
        return Broker(broker_id, CoordinatorRuntime(broker_id, kind, config, image))

    def _partition_of_machine(self, machine: ObservedMachine) -> int:
        for broker in self.brokers.values():
            for partition, coordinator in broker.groups.coordinators.items():
                if coordinator.machine is machine:
                    return partition
        raise LookupError("a machine which no broker has")

    def _load(self, log: PartitionLog, duration_ms: int) -> None:
        assert log.leader is not None
        broker = self.brokers[log.leader]
        broker.groups.load(log, now_ms=self._loop.now_ms, duration_ms=duration_ms)
        self._schedule_run(broker)

    def kill(self, broker_id: int) -> None:
        """A broker dies, and with it all that only it knew."""
        broker = self.brokers[broker_id]
        led = frozenset(log.partition for log in self.logs if log.leader == broker_id)
        self._wake_all(led)
        broker.is_alive = False
        for process, incarnation, send in broker.asked.values():
            self._loop.after(process.latency_ms, process.answered, incarnation, send, None, ErrorCode.REQUEST_TIMED_OUT)
        self._loop.after(DETECTION_MS, self._elect_after, broker_id)

    def _elect_after(self, broker_id: int) -> None:
        """The controller takes the broker out of sync, and others lead."""
        if self.brokers[broker_id].is_alive:
            return
        for log in self.logs:
            was_leader = log.leader == broker_id
            log.shrink_isr(broker_id)
            if was_leader:
                alive = [member for member in log.isr if self.brokers[member].is_alive]
                if alive:
                    self._move(log, alive[0])
            elif log.leader is not None:
                # What waited for the dead follower is committed now.
                self._note_commits(log)

    def _move(self, log: PartitionLog, leader: int) -> None:
        """Another broker leads from now on."""
        log.elect(leader)
        self.chronicle.forget(log.partition, log.end_offset)
        self._fetch_all(log)
        self._load(log, LOADING_MS)
        self._note_commits(log)

    def revive(self, broker_id: int) -> None:
        """The broker is back: it fetches what it missed, and later leads again what it led at first."""
        old = self.brokers[broker_id]
        if old.is_alive:
            return
        self.brokers[broker_id] = self._new_broker(broker_id)
        for log in self.logs:
            if log.leader == broker_id:
                # It came back before anybody noticed: it leads on, from what its log has.
                log.elect(broker_id)
                self._load(log, LOADING_MS)
            elif broker_id in log.replicas and log.leader is not None:
                log.replicate([broker_id])
        self._loop.after(REBALANCE_LEADERS_MS, self._lead_again, broker_id)

    def _lead_again(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        for log in self.logs:
            preferred = next(iter(log.replicas))
            if not broker.is_alive or preferred != broker_id or log.leader in {broker_id, None}:
                continue
            if broker_id not in log.isr:
                continue
            self._wake_all(frozenset({log.partition}))
            assert log.leader is not None
            former = self.brokers[log.leader]
            for answer in former.groups.run(self._loop.now_ms):
                self._answer(former, answer)
            log.replicate()
            epoch = log.elect(broker_id)
            for answer in former.groups.unload(log.partition, epoch, now_ms=self._loop.now_ms):
                self._answer(former, answer)
            self._load(log, LOADING_MS)

    # --- the end ---

    def settle(self) -> None:
        """Let the followers have all that was appended, so that the truth and the logs end together."""
        for log in self.logs:
            if log.leader is not None:
                self._fetch_all(log)
                self.chronicle.committed(log.partition, log.high_watermark)

    def dump(self) -> dict[str, Any]:
        """Group id -> what its coordinator knows."""
        groups: dict[str, Any] = {}
        for log in self.logs:
            if log.leader is None:
                continue
            coordinator = self.brokers[log.leader].groups.coordinators.get(log.partition)
            if coordinator is not None and isinstance(coordinator.machine, ObservedMachine):
                groups.update(coordinator.machine.coordinator.dump())
        return groups


def _replicas(partition: int, broker_count: int) -> tuple[int, ...]:
    """Brokers of a partition, the one which leads first: round robin."""
    count = min(REPLICATION_FACTOR, broker_count)
    return tuple((partition + index) % broker_count + 1 for index in range(count))
