"""Turns the actions of coordinators into lines of the truth, with the causes of rebalances.

A record of a coordinator is true once the log has committed it: until then its lines wait, and lines for records that
the log lost are never written.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from coordinator_core.bytes.client_protocols import TopicPartitions, decode_assignment
from coordinator_core.errors import DecodeError
from coordinator_core.live.classic.live import EMPTY, PREPARING_REBALANCE, STABLE, LiveClassicGroup
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.operation import Outcome, Parked
from coordinator_core.live.coordinator.records import AppendedRecord, Producer
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.live.runtime.batching import Batcher
from coordinator_core.live.runtime.machines import GroupMachine, GroupMachines
from coordinator_core.live.runtime.messages import Request
from coordinator_core.replay.classic.state import ClassicGroupState
from coordinator_core.replay.dispatch import CoordinatorShard
from coordinator_core.replay.member_epochs import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
)
from coordinator_core.replay.record_families import CONSUMER, SHARE, STREAMS
from schemas.consumer_offsets import RecordType
from schemas.group_types import GroupType
from simulator.simulation.exchange import Exchange, api_of
from simulator.simulation.heartbeats import Heartbeats, is_quiet
from simulator.simulation.process import Process
from simulator.simulation.truth import Facts, Truth

HEARTBEATS: Final = frozenset(
    {"classic_heartbeat", "consumer_group_heartbeat", "share_group_heartbeat", "streams_group_heartbeat"}
)
COMMITS: Final = frozenset({"commit_offset", "commit_transactional_offset"})
OF_MANY_GROUPS: Final = {"delete_groups": "GROUP_DELETED", "on_topics_deleted": "TOPIC_DELETED"}
"""Operations for several groups -> the reason why they delete offsets."""
EXPIRY_TIMER: Final = "expire-group-metadata"
MEMBERSHIP: Final = frozenset({"classic_join", "classic_sync", "classic_leave"})
MODERN_HEARTBEATS: Final = HEARTBEATS - {"classic_heartbeat"}
HARMLESS: Final = HEARTBEATS | COMMITS | {"fetch_offsets"}
"""Operations that do not wake the parked members of a quiet group; after a heartbeat it may no longer be quiet."""

UUID_CHARACTERS: Final = 22
"""The length of the end of a member id that identifies the member: full UUIDs are longer."""

ABSENT: Final = (None, -1, frozenset[str]())
"""State, generation and members of a group that does not exist."""

REASONS: Final = {
    "cached metadata has changed": "TOPIC_CHANGED",
    "group subscription has changed": "SUBSCRIPTION_CHANGED",
    "need to revoke partitions and re-join": "REVOKED_PARTITIONS",
    "consumer poll timeout has expired.": "POLL_EXPIRED",
    "the consumer is being closed": "MEMBER_LEFT",
}
"""The reason text of a request -> the reason in the truth."""

EPOCH_REASONS: Final = {
    JOIN_GROUP_MEMBER_EPOCH: "MEMBER_JOINED",
    LEAVE_GROUP_MEMBER_EPOCH: "MEMBER_LEFT",
    LEAVE_GROUP_STATIC_MEMBER_EPOCH: "STATIC_MEMBER_AWAY",
}
"""Member epoch of a heartbeat that caused a new group epoch -> the reason."""

GROUP_TYPES: Final = {
    CONSUMER.metadata: GroupType.CONSUMER,
    SHARE.metadata: GroupType.SHARE,
    STREAMS.metadata: GroupType.STREAMS,
}
"""Record of a new group epoch -> the group type."""

TIMER_REASONS: Final = {
    "heartbeat": "SESSION_EXPIRED",
    "session": "SESSION_EXPIRED",
    "share": "SESSION_EXPIRED",
    "sync": "SYNC_EXPIRED",
    "rebalance": "REBALANCE_EXPIRED",
}
"""First word of a timer's key -> the reason."""


ANOTHER_TIMER: Final = "TIMER"

Seen = tuple[ClassicGroupState | None, int, frozenset[str]]


class ObservedMachine(GroupMachine):
    """A group coordinator that reports everything to its observer."""

    def __init__(self, coordinator: GroupCoordinator, batcher: Batcher, observer: "TruthRecorder") -> None:
        super().__init__(coordinator)
        self.batcher = batcher
        self.partition = batcher.partition
        self.observer = observer

    def handle(self, request: Request, now_ms: int) -> Outcome:
        self.observer.before(self, request)
        outcome = super().handle(request, now_ms)
        self.observer.served(self, request, outcome)
        return outcome

    def run_next_timer(self, now_ms: int) -> Outcome:
        outcome = super().run_next_timer(now_ms)
        self.observer.fired(self, outcome)
        return outcome

    def run_tasks(self, now_ms: int) -> Outcome:
        outcome = super().run_tasks(now_ms)
        self.observer.fired(self, outcome)
        return outcome

    def resume(self, parked: Parked, error: Refused | None, now_ms: int) -> Outcome:
        """Continue an operation whose records are committed."""
        outcome = super().resume(parked, error, now_ms)
        self.observer.fired(self, outcome)
        return outcome

    def end_transaction(self, producer: Producer, *, is_commit: bool, now_ms: int) -> None:
        offset = self.coordinator.end_transaction(producer, committed=is_commit, now_ms=now_ms)
        self.observer.marked(self, producer, is_commit=is_commit, offset=offset)

    def revert(self, state: CoordinatorShard) -> None:
        """The log refused a batch, which would have begun at the batcher's next offset."""
        super().revert(state)
        self.observer.forget(self.partition, self.batcher.next_offset)


class ObservedMachines(GroupMachines):
    def __init__(
        self,
        config: GroupCoordinatorConfig,
        observer: "TruthRecorder",
        group_settings: Mapping[str, Mapping[str, int]],
    ) -> None:
        super().__init__(config)
        self._group_settings = group_settings
        self._observer = observer

    def start(self, state: CoordinatorShard, batcher: Batcher, image: MetadataImage, now_ms: int) -> ObservedMachine:
        machine = super().start(state, batcher, image, now_ms)
        machine.coordinator.group_settings.update(self._group_settings)
        observed = ObservedMachine(machine.coordinator, batcher, self._observer)
        self._observer.started(observed)
        return observed


def group_id_of(message: Any) -> str | None:
    """The group of a request; None if it is about several groups or none."""
    return getattr(message, "group_id", None)


class TruthRecorder:
    """The observer of all group coordinators."""

    def __init__(
        self,
        truth: Truth,
        exchange: Exchange,
        processes: Callable[[str], Process | None],
        now_ms: Callable[[], int],
    ) -> None:
        self.heartbeats: Heartbeats
        """Set later: heartbeats need the coordinators, and these need their observer."""
        self._truth = truth
        self._exchange = exchange
        self._process = processes
        self._now_ms = now_ms
        self._waiting: dict[int, deque[tuple[int, int, str, Facts]]] = {}
        """Partition -> (last offset, time, file, facts), in the order of the log."""
        self._causes: dict[str, list[Facts]] = {}
        """Group -> the causes of its rebalance, since its last generation was written."""
        self._seen: dict[str, Seen] = {}
        """Group -> its state, generation and members at the last check."""
        self._clients: dict[str, str] = {}
        """End of a member id -> client id."""
        self._deleted_by: str | None = None
        """The reason why the current operation deletes offsets and groups."""

    # --- the observer ---

    def started(self, machine: ObservedMachine) -> None:
        self._exchange.coordinator_moved(machine.coordinator, None, "loading")

    def before(self, machine: ObservedMachine, request: Request) -> None:
        """Wake the group if the request may change it."""
        group_id = group_id_of(request.message)
        if group_id is not None and request.operation not in HARMLESS:
            self.heartbeats.wake(group_id)
        if group_id is not None and request.operation in MEMBERSHIP:
            self._seen[group_id] = _look(machine, group_id)
        if request.new_uuid and request.client is not None:
            self._clients[request.new_uuid[-UUID_CHARACTERS:]] = request.client.client_id

    def served(self, machine: ObservedMachine, request: Request, outcome: Outcome) -> None:
        """Record what the request wrote, and why."""
        group_id = group_id_of(request.message)
        if self._exchange.is_watching:
            sender = "" if request.client is None else f" of {request.client.client_id}"
            why = f"{api_of(request.message, request.operation)}{sender}"
            self._exchange.coordinator_moved(machine.coordinator, group_id, why)
        if request.operation in OF_MANY_GROUPS:
            self._note_records(machine, outcome.records, OF_MANY_GROUPS[request.operation])
        if group_id is None:
            return
        if request.operation in COMMITS:
            self._note_commit(machine, request, outcome)
            return
        if request.operation in MODERN_HEARTBEATS:
            self._after_modern_heartbeat(machine, group_id, request, outcome)
            return
        if request.operation in MEMBERSHIP:
            process = None if request.client is None else self._process(request.client.client_id)
            self._note_cause(machine, group_id, _reason_of(request), process, wrote=bool(outcome.records))
        self._note_records(machine, outcome.records)

    def fired(self, machine: ObservedMachine, outcome: Outcome) -> None:
        """A timer may have ended a session or a phase: wake the groups that are no longer quiet."""
        self._exchange.coordinator_moved(machine.coordinator, None, "records committed", outcome.fired)
        for fired in outcome.fired:
            client_id = self._clients.get(fired.key[-UUID_CHARACTERS:])
            process = None if client_id is None else self._process(client_id)
            for group_id in map(str, fired.arguments[:1]):
                reason = TIMER_REASONS.get(fired.key.partition("-")[0], ANOTHER_TIMER)
                self._note_cause(machine, group_id, reason, process)
                self._note_modern_cause(group_id, reason, process, outcome)
                if not is_quiet(machine.coordinator, group_id):
                    self.heartbeats.wake(group_id)
        is_expiry = any(fired.key == EXPIRY_TIMER for fired in outcome.fired)
        self._note_records(machine, outcome.records, "EXPIRED" if is_expiry else None)

    def marked(self, machine: ObservedMachine, producer: Producer, *, is_commit: bool, offset: int) -> None:
        facts = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "outcome": "COMMITTED" if is_commit else "ABORTED",
        }
        self._note(machine, offset, "transactions", facts)

    # --- what the log commits ---

    def committed(self, partition: int, high_watermark: int) -> None:
        """Write the lines of records below the high watermark."""
        waiting = self._waiting.get(partition)
        while waiting and waiting[0][0] < high_watermark:
            _, now_ms, file, facts = waiting.popleft()
            self._truth.record(file, now_ms, facts)

    def forget(self, partition: int, from_offset: int) -> None:
        """Drop the lines of records that the log lost, from an offset on."""
        waiting = self._waiting.get(partition)
        while waiting and waiting[-1][0] >= from_offset:
            waiting.pop()

    def _wait(self, machine: ObservedMachine, last_offset: int, file: str, facts: Facts) -> None:
        self._waiting.setdefault(machine.partition, deque()).append((last_offset, self._now_ms(), file, facts))

    def _note(self, machine: ObservedMachine, offset: int, file: str, facts: Facts) -> None:
        """A line about one record, with its place in the log."""
        self._wait(machine, offset, file, {**facts, "log": [machine.partition, offset]})

    # --- lines ---

    def _note_commit(self, machine: ObservedMachine, request: Request, outcome: Outcome) -> None:
        if not outcome.records:
            return
        message = request.message
        facts = {
            "group": message.group_id,
            "member_id": message.member_id,
            "client_id": None if request.client is None else request.client.client_id,
            "producer_id": outcome.records[0].producer.producer_id,
            "log_partition": machine.partition,
            "offsets": [
                [entry.record.key.topic, entry.record.key.partition, entry.record.value.offset, entry.offset]
                for entry in outcome.records
                if entry.record.value is not None
            ],
        }
        self._wait(machine, outcome.records[-1].offset, "commits", facts)

    def _note_records(
        self, machine: ObservedMachine, records: tuple[AppendedRecord, ...], deleted_by: str | None = None
    ) -> None:
        self._deleted_by = deleted_by
        for entry in records:
            note = NOTES.get(entry.record.record_type)
            if note is not None:
                note(self, machine, entry)

    def _note_classic_generation(self, machine: ObservedMachine, entry: AppendedRecord) -> None:
        key, value = entry.record.key, entry.record.value
        if value is None:
            self._note_deletion(machine, entry, key.group)
            return
        members = frozenset(member.member_id for member in value.members)
        self._seen[key.group] = (STABLE if members else EMPTY, value.generation, members)
        facts = {
            "group": key.group,
            "group_type": GroupType.CLASSIC,
            "generation": value.generation,
            "causes": self._causes.pop(key.group, []) if value.generation else [],
            "leader": value.leader,
            "protocol_name": value.protocol,
            "members": {
                member.member_id: {
                    "client_id": member.client_id,
                    "instance_id": member.group_instance_id,
                    "assignment": _assignment(member.assignment),
                }
                for member in value.members
            },
        }
        self._note(machine, entry.offset, "generations", facts)

    def _note_offset(self, machine: ObservedMachine, entry: AppendedRecord) -> None:
        if entry.record.value is None:
            key = entry.record.key
            self._note_deletion(machine, entry, key.group, what="OFFSET", topic=key.topic, partition=key.partition)

    def _note_deletion(
        self, machine: ObservedMachine, entry: AppendedRecord, group_id: str, *, what: str = "GROUP", **place: object
    ) -> None:
        facts = {"group": group_id, "what": what, **place, "why": self._deleted_by}
        self._note(machine, entry.offset, "deletions", facts)

    def _note_epoch(self, machine: ObservedMachine, entry: AppendedRecord) -> None:
        """Record a group epoch of a consumer, share or streams group."""
        group_id, value = entry.record.key.group_id, entry.record.value
        if value is None:
            self._note_deletion(machine, entry, group_id)
            return
        group = machine.coordinator.group(group_id)
        facts = {
            "group": group_id,
            "group_type": GROUP_TYPES[entry.record.record_type],
            "generation": value.epoch,
            "causes": self._causes.pop(group_id, []),
            "members": {
                member_id: {"client_id": member.client_id} for member_id, member in sorted(group.members.items())
            },
        }
        self._note(machine, entry.offset, "generations", facts)

    def _note_current_assignment(self, machine: ObservedMachine, entry: AppendedRecord) -> None:
        """Record what a member of a consumer or share group owns from now on, according to its coordinator."""
        key, value = entry.record.key, entry.record.value
        pending = getattr(value, "partitions_pending_revocation", ())
        facts = {
            "group": key.group_id,
            "member_id": key.member_id,
            "member_epoch": None if value is None else value.member_epoch,
            "assigned": [] if value is None else _by_topic_id(value.assigned_partitions),
            "pending_revocation": _by_topic_id(pending or ()),
        }
        self._note(machine, entry.offset, "assignments", facts)

    def _note_tasks(self, machine: ObservedMachine, entry: AppendedRecord) -> None:
        """Record the tasks of a member of a streams group from now on, according to its coordinator."""
        key, value = entry.record.key, entry.record.value
        facts: Facts = {
            "group": key.group_id,
            "member_id": key.member_id,
            "member_epoch": None if value is None else value.member_epoch,
        }
        for kind in ("active", "standby", "warmup"):
            for what, field in ((kind, f"{kind}_tasks"), (f"{kind}_pending", f"{kind}_tasks_pending_revocation")):
                tasks = getattr(value, field, None) or ()
                facts[what] = [[entry.subtopology_id, list(entry.partitions)] for entry in tasks]
        self._note(machine, entry.offset, "tasks", facts)

    # --- causes ---

    def _after_modern_heartbeat(
        self, machine: ObservedMachine, group_id: str, request: Request, outcome: Outcome
    ) -> None:
        """Handle a heartbeat of a modern protocol, with which a member may join, leave, or reconcile."""
        if request.client is not None:
            self._clients[request.message.member_id[-UUID_CHARACTERS:]] = request.client.client_id
        if not outcome.records:
            return
        is_share = request.operation == "share_group_heartbeat"
        # The partitions of a share group change once the share coordinators have their state.
        unasked = "PARTITIONS_CHANGED" if is_share else "TOPIC_CHANGED"
        if getattr(request.message, "subscribed_topic_names", None) is not None:
            unasked = "SUBSCRIPTION_CHANGED"
        reason = EPOCH_REASONS.get(request.message.member_epoch, unasked)
        process = None if request.client is None else self._process(request.client.client_id)
        self._note_modern_cause(group_id, reason, process, outcome)
        self._note_records(machine, outcome.records)
        if not is_quiet(machine.coordinator, group_id):
            self.heartbeats.wake(group_id)

    def _note_modern_cause(self, group_id: str, reason: str, process: Process | None, outcome: Outcome) -> None:
        """Record the cause of a new group epoch, if this step wrote one."""
        if any(entry.record.record_type in GROUP_TYPES for entry in outcome.records):
            self._add_cause(group_id, reason, process)

    def _note_cause(
        self, machine: ObservedMachine, group_id: str, reason: str, process: Process | None, *, wrote: bool = False
    ) -> None:
        """Record the cause if the group must rebalance since this step, or has another member in a rebalance."""
        state_before, generation_before, members_before = self._seen.get(group_id, ABSENT)
        state, generation, members = self._seen[group_id] = _look(machine, group_id)
        if state_before is not PREPARING_REBALANCE:
            is_cause = state is PREPARING_REBALANCE or generation > generation_before >= 0
        else:
            # who has not joined by the end of the phase is no cause of it
            is_cause = members != members_before and reason != ANOTHER_TIMER
        is_static_back = wrote and state is STABLE
        if not is_cause and not is_static_back:
            return
        self.heartbeats.wake(group_id)
        self._add_cause(group_id, "STATIC_MEMBER_BACK" if is_static_back else reason, process)

    def _add_cause(self, group_id: str, reason: str, process: Process | None) -> None:
        facts = {
            "reason": reason,
            "at_ms": self._now_ms(),
            "client_id": None if process is None else process.client_id,
            "fault": None if process is None else process.fault,
        }
        self._causes.setdefault(group_id, []).append(facts)


def _look(machine: ObservedMachine, group_id: str) -> Seen:
    group = machine.coordinator.group(group_id)
    return (
        (group.state, group.generation_id, frozenset(group.members)) if isinstance(group, LiveClassicGroup) else ABSENT
    )


def _reason_of(request: Request) -> str:
    message = request.message
    if request.operation == "classic_leave":
        return REASONS.get(message.members[0].reason or "", "MEMBER_LEFT")
    return REASONS.get(getattr(message, "reason", None) or "", "MEMBER_JOINED")


def _by_topic_id(partitions: Sequence[Any]) -> list[list[Any]]:
    return [[entry.topic_id, list(entry.partitions)] for entry in partitions]


def _assignment(data: bytes) -> TopicPartitions | None:
    """The partitions by topic in a consumer's assignment; None if the data is not an assignment."""
    try:
        decoded = decode_assignment(data)
    except DecodeError:
        return None
    return () if decoded is None else decoded.assigned_partitions


NOTES: Final = {
    RecordType.GROUP_METADATA: TruthRecorder._note_classic_generation,
    RecordType.OFFSET_COMMIT: TruthRecorder._note_offset,
    **dict.fromkeys(GROUP_TYPES, TruthRecorder._note_epoch),
    CONSUMER.current: TruthRecorder._note_current_assignment,
    SHARE.current: TruthRecorder._note_current_assignment,
    STREAMS.current: TruthRecorder._note_tasks,
}
"""Record type -> the method that turns it into a line."""
