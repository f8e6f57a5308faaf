"""One internal topic of the cluster: its logs, their leaders, and the coordinators that the brokers run on them.

Requests that arrive at a broker within one millisecond may share a batch. Followers fetch `REPLICATION_MS` after an
append; then the answers for what was written become available. A new leader loads its coordinator from its copy of the
log: records that no follower had are lost.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from coordinator_core.live.runtime.machines import StateMachine
from coordinator_core.live.runtime.messages import Answer, EndTransaction, Request
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.runtime.runtime import CoordinatorRuntime
from simulator.simulation.clock import EventLoop
from simulator.simulation.topics import replicas_of

REPLICATION_MS: Final = 1
"""The time from an append to the fetches that commit it."""
LOADING_MS: Final = 200
"""The time that a new leader takes to load a coordinator."""


class ClusterOfTopic(Protocol):
    """What an internal topic tells the cluster, and asks it."""

    alive: set[int]

    def answered(self, answer: Answer) -> None:
        """A broker has an answer."""

    def committed(self, log: PartitionLog) -> None:
        """The high watermark may have moved."""

    def elected(self, log: PartitionLog) -> None:
        """The log has another leader, or none; with another one the records behind its end are lost."""


class InternalTopic:
    """The topic. Broker ids begin with 1."""

    def __init__(
        self,
        topic: str,
        partition_count: int,
        broker_count: int,
        *,
        loop: EventLoop,
        cluster: ClusterOfTopic,
        make_runtime: Callable[[int], CoordinatorRuntime],
    ) -> None:
        self.topic = topic
        self.logs = [
            PartitionLog(topic, partition, replicas_of(topic, partition, broker_count))
            for partition in range(partition_count)
        ]
        self.runtimes = {broker_id: make_runtime(broker_id) for broker_id in range(1, broker_count + 1)}
        self.exists = False
        """Whether the topic was created (`start`)."""
        self._loop = loop
        self._cluster = cluster
        self._make_runtime = make_runtime
        self._due: set[int] = set()
        """Brokers with a run scheduled for now."""
        self._deadlines: dict[int, int] = {}
        """Broker -> the time of the earliest run scheduled for later."""
        self._replicating: set[int] = set()
        """Partitions with a scheduled fetch of their followers."""
        for log in self.logs:
            log.on_append = partial(self._replicate_soon, log.partition)

    def start(self) -> None:
        """Create the topic: the brokers load their coordinators at once."""
        if self.exists:
            return
        self.exists = True
        for log in self.logs:
            self._load(log, 0)
        for broker_id in self.runtimes:
            if broker_id not in self._cluster.alive:
                self.elect_after(broker_id)

    def leader(self, partition: int) -> int | None:
        if not self.exists:
            return None
        leader = self.logs[partition].leader
        return leader if leader is not None and leader in self._cluster.alive else None

    def leader_machine(self, partition: int) -> StateMachine | None:
        """The state machine of the leader's coordinator, whether the leader is up or not."""
        leader = self.logs[partition].leader
        coordinator = None if leader is None else self.runtimes[leader].coordinators.get(partition)
        return None if coordinator is None else coordinator.machine

    # --- running ---

    def submit(self, broker_id: int, partition: int, request: Request | EndTransaction) -> None:
        self.runtimes[broker_id].submit(partition, request)
        self.run_soon(broker_id)

    def touch(self, partition: int) -> None:
        """Something outside the coordinator has set one of its timers."""
        leader = self.logs[partition].leader
        if leader is not None:
            self.runtimes[leader].touch(partition)
            self.run_soon(leader)

    def run_soon(self, broker_id: int) -> None:
        """Let a broker run its pending work, after all actions that are already scheduled for now."""
        if broker_id not in self._due:
            self._due.add(broker_id)
            self._loop.at(self._loop.now_ms, self._run_due, broker_id)

    def _run_due(self, broker_id: int) -> None:
        self._due.discard(broker_id)
        self._run(broker_id)

    def _run(self, broker_id: int) -> None:
        if broker_id not in self._cluster.alive:
            return
        runtime = self.runtimes[broker_id]
        self._answer(runtime.run(self._loop.now_ms))
        deadline_ms = runtime.next_deadline_ms()
        known_ms = self._deadlines.get(broker_id)
        if deadline_ms is not None and (known_ms is None or deadline_ms < known_ms):
            self._deadlines[broker_id] = deadline_ms
            self._loop.at(deadline_ms, self._run_at_deadline, broker_id, deadline_ms)

    def _answer(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            self._cluster.answered(answer)

    def _run_at_deadline(self, broker_id: int, deadline_ms: int) -> None:
        if self._deadlines.get(broker_id) != deadline_ms:
            return
        del self._deadlines[broker_id]
        if broker_id not in self._due:  # else the deadline may have moved, and would part requests that share a batch
            self._run(broker_id)

    # --- replication ---

    def _replicate_soon(self, partition: int) -> None:
        """Schedule the fetches that follow every append, whatever else is queued or under way."""
        if partition not in self._replicating:
            self._replicating.add(partition)
            self._loop.after(REPLICATION_MS, self._replicate, partition)

    def _replicate(self, partition: int) -> None:
        self._replicating.discard(partition)
        if self.leader(partition) is not None:
            self.fetch_all(self.logs[partition])
            self.note_commits(self.logs[partition])

    def fetch_all(self, log: PartitionLog) -> None:
        """Let each follower fetch twice: the first fetch copies, the second one reports this to the leader."""
        followers = [
            broker_id for broker_id in log.replicas if broker_id != log.leader and broker_id in self._cluster.alive
        ]
        for broker_id in (*followers, *followers):
            log.fetch(broker_id)

    def note_commits(self, log: PartitionLog) -> None:
        """The high watermark may have moved: report the committed records, and answer the requests that waited for
        it."""
        if log.leader is None:
            return
        self._cluster.committed(log)
        if self.runtimes[log.leader].has_work:
            self._run(log.leader)

    # --- brokers that fail and return ---

    def led_by(self, broker_id: int) -> frozenset[int]:
        if not self.exists:
            return frozenset()
        return frozenset(log.partition for log in self.logs if log.leader == broker_id)

    def elect_after(self, broker_id: int) -> None:
        """Remove a failed broker from the in-sync replicas, and elect other leaders for its partitions."""
        for log in () if not self.exists else self.logs:
            was_leader = log.leader == broker_id
            log.shrink_isr(broker_id)
            if not was_leader:
                self.note_commits(log)
                continue
            leader = log.elect_next([member for member in log.isr if member in self._cluster.alive])
            self._cluster.elected(log)
            if leader is not None:
                self.fetch_all(log)
                self._load(log, LOADING_MS)
                self.note_commits(log)

    def revive(self, broker_id: int, loading_ms: int = LOADING_MS) -> None:
        """A broker is up again, with its logs and no other state."""
        self.runtimes[broker_id] = self._make_runtime(broker_id)
        self._deadlines.pop(broker_id, None)
        for log in () if not self.exists else self.logs:
            if log.leader == broker_id:
                # It returned before the controller noticed: it keeps the leadership, from what its log has.
                log.elect(broker_id)
                self._load(log, loading_ms)
                self._replicate_soon(log.partition)
            elif log.leader is None and broker_id in log.isr:
                # No in-sync replica was up: the first that returns leads.
                log.elect(broker_id)
                self._cluster.elected(log)
                self._load(log, loading_ms)
                self._replicate_soon(log.partition)
            elif broker_id in log.replicas and log.leader is not None:
                log.replicate([broker_id])
                self.note_commits(log)

    def lead_offline(self) -> None:
        """Let the last in-sync replica lead each partition without a leader, as if it returned now."""
        for broker_id in sorted({log.isr[0] for log in self.logs if self.exists and log.leader is None}):
            self.revive(broker_id, loading_ms=0)
            self._answer(self.runtimes[broker_id].run(self._loop.now_ms))

    def preferred_of(self, broker_id: int) -> list[PartitionLog]:
        """The logs whose preferred leader the broker is, and with which it is in sync, but which it does not lead
        now."""
        return [
            log
            for log in (() if not self.exists else self.logs)
            if next(iter(log.replicas)) == broker_id and log.leader not in {broker_id, None} and broker_id in log.isr
        ]

    def lead_again(self, log: PartitionLog, broker_id: int) -> None:
        """The leader hands a log over to another broker: nothing is lost, and pending requests are answered."""
        former = log.leader
        assert former is not None
        now_ms = self._loop.now_ms
        self._answer(self.runtimes[former].run(now_ms))
        log.replicate()
        epoch = log.elect(broker_id)
        self._cluster.elected(log)
        self._answer(self.runtimes[former].unload(log.partition, epoch, now_ms=now_ms))
        self.fetch_all(log)
        self._load(log, LOADING_MS)
        self.note_commits(log)

    def _load(self, log: PartitionLog, duration_ms: int) -> None:
        assert log.leader is not None
        self.runtimes[log.leader].load(log, now_ms=self._loop.now_ms, duration_ms=duration_ms)
        self.run_soon(log.leader)
