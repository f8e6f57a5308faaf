"""One internal topic of the cluster: its logs, who leads them, and the coordinators which the brokers run over them.

What arrives at a broker within one millisecond may share a batch. Followers fetch `REPLICATION_MS` after an append;
then answers to what was written become available. A new leader loads its coordinator from its copy of the log: what no
follower had is lost.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from coordinator_core.runtime.messages import Answer, EndTransaction, Request
from coordinator_core.runtime.partition import PartitionLog
from coordinator_core.runtime.runtime import CoordinatorRuntime
from coordinator_core.simulate.clock import EventLoop

REPLICATION_MS: Final = 1
"""From an append to the fetches which commit it."""
LOADING_MS: Final = 200
"""How long a new leader loads a coordinator."""
REPLICATION_FACTOR: Final = 3


class Listener(Protocol):
    """Callbacks for what the brokers do."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is there."""
        ...

    def answered(self, broker_id: int, answer: Answer) -> None:
        """A broker has an answer."""
        ...

    def committed(self, log: PartitionLog) -> None:
        """The high watermark may have moved."""
        ...

    def elected(self, log: PartitionLog) -> None:
        """Another broker leads, or none does."""
        ...

    def truncated(self, log: PartitionLog) -> None:
        """Another leader may have less than the one before."""
        ...


class InternalTopic:
    """The topic. Brokers are named by their ids, 1 and up."""

    def __init__(
        self,
        topic: str,
        partition_count: int,
        broker_count: int,
        *,
        loop: EventLoop,
        listener: Listener,
        make_runtime: Callable[[int], CoordinatorRuntime],
    ) -> None:
        self.topic = topic
        self.logs = [
            PartitionLog(topic, partition, _replicas(partition, broker_count)) for partition in range(partition_count)
        ]
        self.runtimes = {broker_id: make_runtime(broker_id) for broker_id in range(1, broker_count + 1)}
        self.exists = False
        """Made by its first user (`start`)."""
        self._loop = loop
        self._listener = listener
        self._make_runtime = make_runtime
        self._due: set[int] = set()
        """Brokers of which a run is scheduled for now."""
        self._deadlines: dict[int, int] = {}
        """Broker -> the earliest run that is scheduled for later."""
        self._replicating: set[int] = set()
        """Partitions whose followers are about to fetch."""
        for log in self.logs:
            log.on_append = partial(self._replicate_soon, log.partition)

    def start(self) -> None:
        """The topic is made: the brokers load their coordinators, at once."""
        if self.exists:
            return
        self.exists = True
        for log in self.logs:
            self._load(log, 0)
        for broker_id in self.runtimes:
            if not self._listener.is_alive(broker_id):
                self.elect_after(broker_id)

    def leader(self, partition: int) -> int | None:
        """Who leads and is there, or None."""
        if not self.exists:
            return None
        leader = self.logs[partition].leader
        return leader if leader is not None and self._listener.is_alive(leader) else None

    def leader_runtime(self, partition: int) -> CoordinatorRuntime | None:
        """The coordinators of the broker which leads, be it there or not."""
        leader = self.logs[partition].leader
        return None if leader is None else self.runtimes[leader]

    # --- running ---

    def submit(self, broker_id: int, partition: int, request: Request | EndTransaction) -> None:
        """A request reaches a broker, which is there."""
        self.runtimes[broker_id].submit(partition, request)
        self.run_soon(broker_id)

    def touch(self, partition: int) -> None:
        """A timer of the coordinator was set from outside."""
        leader = self.logs[partition].leader
        if leader is not None:
            self.runtimes[leader].touch(partition)
            self.run_soon(leader)

    def run_soon(self, broker_id: int) -> None:
        """Let a broker run what it has to do, after all else of now that is scheduled already."""
        if broker_id not in self._due:
            self._due.add(broker_id)
            self._loop.at(self._loop.now_ms, self._run_due, broker_id)

    def _run_due(self, broker_id: int) -> None:
        self._due.discard(broker_id)
        self._run(broker_id)

    def _run(self, broker_id: int) -> None:
        if not self._listener.is_alive(broker_id):
            return
        runtime = self.runtimes[broker_id]
        for answer in runtime.run(self._loop.now_ms):
            self._listener.answered(broker_id, answer)
        deadline_ms = runtime.next_deadline_ms()
        known_ms = self._deadlines.get(broker_id)
        if deadline_ms is not None and (known_ms is None or deadline_ms < known_ms):
            self._deadlines[broker_id] = deadline_ms
            self._loop.at(deadline_ms, self._run_at_deadline, broker_id, deadline_ms)

    def _run_at_deadline(self, broker_id: int, deadline_ms: int) -> None:
        if self._deadlines.get(broker_id) != deadline_ms:
            return
        del self._deadlines[broker_id]
        self._run(broker_id)

    # --- replication ---

    def _replicate_soon(self, partition: int) -> None:
        """Every append is followed by fetches, whoever appended, and whatever else is queued or under way."""
        if partition not in self._replicating:
            self._replicating.add(partition)
            self._loop.after(REPLICATION_MS, self._replicate, partition)

    def _replicate(self, partition: int) -> None:
        self._replicating.discard(partition)
        if self.leader(partition) is not None:
            self.fetch_all(self.logs[partition])
            self.note_commits(self.logs[partition])

    def fetch_all(self, log: PartitionLog) -> None:
        """Two fetches of each follower: one copies, and the next one tells the leader so."""
        followers = [
            broker_id for broker_id in log.replicas if broker_id != log.leader and self._listener.is_alive(broker_id)
        ]
        for broker_id in (*followers, *followers):
            log.fetch(broker_id)

    def note_commits(self, log: PartitionLog) -> None:
        """The high watermark may have moved: what waited for it becomes true, and is answered."""
        if log.leader is None:
            return
        self._listener.committed(log)
        if self.runtimes[log.leader].has_work:
            self._run(log.leader)

    # --- brokers that go and come ---

    def led_by(self, broker_id: int) -> frozenset[int]:
        """Partitions which a broker leads."""
        if not self.exists:
            return frozenset()
        return frozenset(log.partition for log in self.logs if log.leader == broker_id)

    def elect_after(self, broker_id: int) -> None:
        """The controller takes a dead broker out of sync, and others lead what it led."""
        for log in () if not self.exists else self.logs:
            was_leader = log.leader == broker_id
            log.shrink_isr(broker_id)
            if not was_leader:
                self.note_commits(log)
                continue
            alive = [member for member in log.isr if self._listener.is_alive(member)]
            if not alive:
                self._listener.elected(log)
            else:
                log.elect(alive[0])
                self._listener.elected(log)
                self._listener.truncated(log)
                self.fetch_all(log)
                self._load(log, LOADING_MS)
                self.note_commits(log)

    def revive(self, broker_id: int, loading_ms: int = LOADING_MS) -> None:
        """A broker is back, with its logs and nothing else."""
        self.runtimes[broker_id] = self._make_runtime(broker_id)
        self._deadlines.pop(broker_id, None)
        for log in () if not self.exists else self.logs:
            if log.leader == broker_id:
                # It came back before anybody noticed: it leads on, from what its log has.
                log.elect(broker_id)
                self._load(log, loading_ms)
                self._replicate_soon(log.partition)
            elif log.leader is None and broker_id in log.isr:
                # Nobody who is in sync was there: the first who comes back leads.
                log.elect(broker_id)
                self._listener.elected(log)
                self._listener.truncated(log)
                self._load(log, loading_ms)
                self._replicate_soon(log.partition)
            elif broker_id in log.replicas and log.leader is not None:
                log.replicate([broker_id])
                self.note_commits(log)

    def lead_offline(self) -> None:
        """Let the last who was in sync lead each partition without a leader, as if it came back now."""
        for broker_id in sorted({log.isr[0] for log in self.logs if self.exists and log.leader is None}):
            self.revive(broker_id, loading_ms=0)
            for answer in self.runtimes[broker_id].run(self._loop.now_ms):
                self._listener.answered(broker_id, answer)

    def preferred_of(self, broker_id: int) -> list[PartitionLog]:
        """Logs which the broker led at first, is in sync with, and does not lead now."""
        return [
            log
            for log in (() if not self.exists else self.logs)
            if next(iter(log.replicas)) == broker_id and log.leader not in {broker_id, None} and broker_id in log.isr
        ]

    def lead_again(self, log: PartitionLog, broker_id: int) -> None:
        """The leader hands a log over to another one: nothing is lost, and pending requests are answered."""
        former = log.leader
        assert former is not None
        now_ms = self._loop.now_ms
        for answer in self.runtimes[former].run(now_ms):
            self._listener.answered(former, answer)
        log.replicate()
        epoch = log.elect(broker_id)
        self._listener.elected(log)
        self._listener.truncated(log)
        for answer in self.runtimes[former].unload(log.partition, epoch, now_ms=now_ms):
            self._listener.answered(former, answer)
        self.fetch_all(log)
        self._load(log, LOADING_MS)
        self.note_commits(log)

    def _load(self, log: PartitionLog, duration_ms: int) -> None:
        assert log.leader is not None
        self.runtimes[log.leader].load(log, now_ms=self._loop.now_ms, duration_ms=duration_ms)
        self.run_soon(log.leader)


def _replicas(partition: int, broker_count: int) -> tuple[int, ...]:
    """Brokers of a partition, the one which leads first: round robin."""
    count = min(REPLICATION_FACTOR, broker_count)
    return tuple((partition + index) % broker_count + 1 for index in range(count))
