"""The state machines that the runtime drives: their interface, and the group coordinator as one of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from coordinator_core.bytes.codec import decode_key, decode_value
from coordinator_core.bytes.log.batch import Record
from coordinator_core.errors import ContradictoryLog, UnknownRecordType
from coordinator_core.live.classic.messages import HeartbeatResponse
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.modules import MODULES
from coordinator_core.live.coordinator.operation import Outcome, Parked
from coordinator_core.live.coordinator.records import Producer, encode_record
from coordinator_core.live.coordinator.service import refusal
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.live.runtime.batching import Batcher
from coordinator_core.live.runtime.messages import Request
from coordinator_core.replay.anomalies import Anomaly
from coordinator_core.replay.dispatch import CoordinatorShard, replay_end_transaction_marker, replay_record
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC


class StateMachine(ABC):
    """One live coordinator: commands return records and a response, and only replay changes `state`.

    `Outcome.parked` is what it continues (`resume`) once the records are committed, or lost.
    """

    @property
    def has_tasks(self) -> bool:
        """Whether background tasks are queued."""
        return False

    @property
    @abstractmethod
    def state(self) -> Any:
        """The immutable state after all records so far: a reference to it is a snapshot."""

    @abstractmethod
    def revert(self, state: Any) -> None:
        """Restore an earlier state."""

    @abstractmethod
    def handle(self, request: Request, now_ms: int) -> Outcome:
        """Run an operation; its records go to the machine's batcher."""

    @abstractmethod
    def run_next_timer(self, now_ms: int) -> Outcome: ...

    def run_tasks(self, now_ms: int) -> Outcome:
        return Outcome()

    @abstractmethod
    def resume(self, parked: Any, error: Refused | None, now_ms: int) -> Outcome:
        """Continue an operation once its records are committed, or lost (error)."""

    @abstractmethod
    def end_transaction(self, producer: Producer, *, is_commit: bool, now_ms: int) -> None:
        """Write a transaction marker and replay it. Raises Refused if the log does."""

    @abstractmethod
    def update_metadata(self, image: MetadataImage, changed_topics: Iterable[str], now_ms: int) -> Outcome:
        """Topics were created, enlarged or deleted."""

    def unload(self, now_ms: int) -> Outcome:
        """Answer waiting requests and stop."""
        return Outcome()

    @abstractmethod
    def next_deadline_ms(self) -> int | None: ...


class MachineKind(ABC):
    """What the runtime needs to know about a type of coordinator."""

    topic: str

    @abstractmethod
    def empty_state(self) -> Any: ...

    @abstractmethod
    def replay(self, state: Any, record: Record, producer_id: int) -> Any:
        """The state after a record of the log; unknown types are skipped, as in CoordinatorLoaderImpl. Raises CoreError
        if Kafka's loader fails: DecodeError for unreadable bytes, ContradictoryLog if its replay would throw."""

    def replay_marker(self, state: Any, producer_id: int, *, is_commit: bool) -> Any:
        """The state after a transaction marker of the log."""
        return state

    @abstractmethod
    def start(self, state: Any, batcher: Batcher, image: MetadataImage, now_ms: int) -> StateMachine:
        """The live coordinator with a loaded state and its timers."""

    @abstractmethod
    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Key and value of a record that the machine wrote."""

    def refusal(self, request: Request) -> Any:
        """The response to an invalid request, which must not reach a coordinator, or None."""
        return None

    def answer_while_loading(self, request: Request) -> Any:
        """The response during loading, instead of COORDINATOR_LOAD_IN_PROGRESS, or None."""
        return None


class GroupMachine(StateMachine):
    """A `GroupCoordinator` as a state machine."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.coordinator = coordinator

    @property
    def state(self) -> CoordinatorShard:
        return self.coordinator.shard

    @property
    def has_tasks(self) -> bool:
        return bool(self.coordinator.tasks)

    def revert(self, state: CoordinatorShard) -> None:
        """Restore an earlier shard; live classic groups follow."""
        self.coordinator.revert(state)

    def handle(self, request: Request, now_ms: int) -> Outcome:
        return self.coordinator.handle(
            request.operation,
            request.message,
            now_ms=now_ms,
            api_version=request.api_version,
            client=request.client,
            request_id=request.request_id,
            new_uuid=request.new_uuid,
        )

    def run_next_timer(self, now_ms: int) -> Outcome:
        """Run the next timer that is due, at its deadline."""
        return self.coordinator.advance(now_ms, timers_max=1)

    def run_tasks(self, now_ms: int) -> Outcome:
        return self.coordinator.run_tasks(now_ms)

    def resume(self, parked: Parked, error: Refused | None, now_ms: int) -> Outcome:
        return self.coordinator.resume(parked, error, now_ms=now_ms)

    def end_transaction(self, producer: Producer, *, is_commit: bool, now_ms: int) -> None:
        """Decide the pending offsets of a producer."""
        self.coordinator.end_transaction(producer, committed=is_commit, now_ms=now_ms)

    def update_metadata(self, image: MetadataImage, changed_topics: Iterable[str], now_ms: int) -> Outcome:
        self.coordinator.update_metadata(image, changed_topics, now_ms=now_ms)
        return Outcome()

    def unload(self, now_ms: int) -> Outcome:
        return self.coordinator.unload(now_ms=now_ms)

    def next_deadline_ms(self) -> int | None:
        return self.coordinator.timers.next_deadline_ms()


class GroupMachines(MachineKind):
    """Group coordinators for `__consumer_offsets`."""

    topic = OFFSETS_TOPIC

    def __init__(self, config: GroupCoordinatorConfig | None = None, modules: Iterable[GroupModule] = MODULES) -> None:
        self.config = config or GroupCoordinatorConfig()
        self.modules = tuple(modules)

    def empty_state(self) -> CoordinatorShard:
        return CoordinatorShard()

    def replay(self, state: CoordinatorShard, record: Record, producer_id: int) -> CoordinatorShard:
        try:
            key = decode_key(OFFSETS_TOPIC, record.key or b"")
        except UnknownRecordType:
            return state
        value = None if record.value is None else decode_value(OFFSETS_TOPIC, key.record_type, record.value).fields
        return replay_record(
            state,
            key.record_type,
            key.fields,
            value,
            offset=record.offset,
            producer_id=producer_id,
            report=_contradiction,
            version=self.config.kafka_version,
        )

    def replay_marker(self, state: CoordinatorShard, producer_id: int, *, is_commit: bool) -> CoordinatorShard:
        return replay_end_transaction_marker(state, producer_id, committed=is_commit)

    def start(self, state: CoordinatorShard, batcher: Batcher, image: MetadataImage, now_ms: int) -> GroupMachine:
        return GroupMachine(
            GroupCoordinator(
                self.modules,
                now_ms=now_ms,
                config=self.config,
                image=image,
                log=batcher,
                shard=state,
                is_deferring=True,
            )
        )

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def refusal(self, request: Request) -> Any:
        """The response of GroupCoordinatorService itself."""
        return refusal(request.message, self.config, api_version=request.api_version)

    def answer_while_loading(self, request: Request) -> Any:
        """A classic member's heartbeat succeeds while the group loads (GroupCoordinatorService.heartbeat)."""
        return HeartbeatResponse() if request.operation == "classic_heartbeat" else None


def _contradiction(anomaly: Anomaly) -> None:
    raise ContradictoryLog(f"{anomaly.code}: {anomaly.message}")
