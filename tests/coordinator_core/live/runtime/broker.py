"""A small cluster for the tests: one partition, and the runtime of its leader."""

from collections.abc import Sequence

from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.records import Producer
from coordinator_core.live.offsets.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from coordinator_core.live.runtime.coordinator import PartitionCoordinator, RuntimeConfig
from coordinator_core.live.runtime.machines import GroupMachines
from coordinator_core.live.runtime.messages import Answer, EndTransaction, Request
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.runtime.runtime import CoordinatorRuntime
from schemas.consumer_offsets import TOPIC

PARTITION = 7
START_MS = 1_700_000_000_000
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
PRODUCER = Producer(9000, 3)


def _topics(offset: int) -> tuple[OffsetCommitTopic, ...]:
    return (OffsetCommitTopic((OffsetCommitPartition(0, offset),), "t"),)


def commit_request(group_id: str = "g", offset: int = 5) -> OffsetCommitRequest:
    """A commit by nobody's member: it makes a simple group."""
    return OffsetCommitRequest(group_id, _topics(offset))


def transactional_commit_request(group_id: str = "g", offset: int = 5) -> TxnOffsetCommitRequest:
    """The same in a transaction."""
    return TxnOffsetCommitRequest(group_id, PRODUCER.producer_id, PRODUCER.producer_epoch, _topics(offset))


class Broker:
    """Leader of `PARTITION`, with followers where asked for. Requests are numbered from 1; answers are by number."""

    def __init__(
        self,
        replicas: Sequence[int] = (0,),
        *,
        min_insync_replicas: int = 1,
        config: RuntimeConfig | None = None,
        initial_rebalance_delay_ms: int = 0,
        load_ms: int = 0,
        log: PartitionLog | None = None,
    ) -> None:
        self.now_ms = START_MS
        self.log = log or PartitionLog(TOPIC, PARTITION, replicas, min_insync_replicas=min_insync_replicas)
        self.kind = GroupMachines(GroupCoordinatorConfig(group_initial_rebalance_delay_ms=initial_rebalance_delay_ms))
        self.config = config or RuntimeConfig()
        self.runtime = CoordinatorRuntime(replicas[0], self.kind, self.config)
        self.answers: dict[int, Answer] = {}
        self.number = 0
        self.runtime.load(self.log, now_ms=self.now_ms, duration_ms=load_ms)
        self.run()

    @property
    def coordinator(self) -> PartitionCoordinator:
        """The coordinator of the partition."""
        return self.runtime.coordinators[PARTITION]

    def submit(self, operation: str, message: object, *, api_version: int = 9) -> int:
        """Put a request into the queue; gives its number."""
        self.number += 1
        request = Request(operation, message, self.number, api_version, new_uuid=f"uuid{self.number}")
        self.runtime.submit(PARTITION, request)
        return self.number

    def send(self, operation: str, message: object, *, api_version: int = 9) -> int:
        """Submit a request and run."""
        number = self.submit(operation, message, api_version=api_version)
        self.run()
        return number

    def commit(self, group_id: str = "g", offset: int = 5) -> int:
        """Commit an offset."""
        return self.send("commit_offset", commit_request(group_id, offset))

    def commit_in_transaction(self, offset: int = 5) -> int:
        """Commit an offset in a transaction."""
        return self.send("commit_transactional_offset", transactional_commit_request(offset=offset))

    def end_transaction(self, *, is_commit: bool) -> int:
        """Write a marker."""
        self.number += 1
        self.runtime.submit(PARTITION, EndTransaction(PRODUCER, is_commit, 11, self.number))
        self.run()
        return self.number

    def fetch_offset(self, group_id: str = "g") -> int:
        """Ask for all offsets of a group."""
        return self.send("fetch_offsets", OffsetFetchRequest(group_id))

    def join(self, group_id: str = "g", member_id: str = "") -> int:
        """Join as an old client, which needs no member id first."""
        request = JoinGroupRequest(
            group_id, SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS, member_id, "consumer", (JoinProtocol("range", b""),)
        )
        return self.send("classic_join", request, api_version=3)

    def sync(self, generation_id: int, member_id: str, group_id: str = "g") -> int:
        """Sync as the leader, who gives itself everything."""
        request = SyncGroupRequest(
            group_id, generation_id, member_id, assignments=(SyncGroupRequestAssignment(member_id, b"all"),)
        )
        return self.send("classic_sync", request)

    def heartbeat(self, generation_id: int, member_id: str, group_id: str = "g") -> int:
        """Heartbeat of a classic member."""
        return self.send("classic_heartbeat", HeartbeatRequest(group_id, generation_id, member_id))

    def run(self) -> None:
        """Run what there is to do now."""
        for answer in self.runtime.run(self.now_ms):
            assert answer.request_id not in self.answers, "answered twice"
            self.answers[answer.request_id] = answer

    def wait(self, duration_ms: int) -> None:
        """Let time pass, stopping at every deadline."""
        until_ms = self.now_ms + duration_ms
        while (deadline_ms := self.runtime.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.run()
        self.now_ms = until_ms

    def replicate(self) -> None:
        """Let the followers fetch all there is, and run."""
        self.log.replicate()
        self.run()

    def offset(self, number: int) -> int:
        """The one offset in the answer to `fetch_offset`; -1 where there is none."""
        response = self.answers[number].response
        return response.topics[0].partitions[0].committed_offset if response.topics else -1
