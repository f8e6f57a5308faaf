"""GroupCoordinator: one live `__consumer_offsets` partition (CoordinatorRuntime over GroupCoordinatorShard).

The contract with commands, timers and group types is the docstring of `coordinator_core.live.coordinator`.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from coordinator_core.bytes.kafka_versions import KafkaVersion
from coordinator_core.errors import ContradictoryRecord
from coordinator_core.live.classic.live import LiveClassicGroup
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.errors import Refused, UnknownOperation, answer_for_append_error
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.log import Log
from coordinator_core.live.coordinator.operation import (
    Client,
    Command,
    Context,
    Fired,
    GroupRules,
    Outcome,
    OutcomeBuilder,
    Parked,
    Result,
    Task,
)
from coordinator_core.live.coordinator.records import NO_PRODUCER, AppendedRecord, CoordinatorRecord, Producer
from coordinator_core.live.coordinator.timers import Timer, Timers
from coordinator_core.live.state_dump import Json, dump_shard
from coordinator_core.replay.anomalies import Anomaly
from coordinator_core.replay.classic.state import ClassicGroup
from coordinator_core.replay.dispatch import CoordinatorShard, Group, replay_end_transaction_marker, replay_record
from schemas.consumer_offsets import RecordType
from schemas.error_codes import ErrorCode

K = TypeVar("K")
T = TypeVar("T")

OFFSET_RECORD_TYPES: Final = frozenset({RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT})

REPLACED_GROUPS_MAX: Final = 1024
"""More groups than one unwritten batch deletes."""


class GroupCoordinator:
    """One coordinator partition. Every call gets the time: a coordinator has no clock."""

    def __init__(
        self,
        modules: Iterable[GroupModule],
        *,
        now_ms: int,
        log: Log,
        config: GroupCoordinatorConfig | None = None,
        image: MetadataImage | None = None,
        shard: CoordinatorShard | None = None,
        is_deferring: bool = False,
    ) -> None:
        self.modules = tuple(modules)
        self.is_deferring = is_deferring
        """`on_append` is not called here but parked in the outcome: the caller that replicates the log calls
        `resume`."""
        self.config = config or GroupCoordinatorConfig()
        self.group_settings: dict[str, Mapping[str, int]] = {}
        """Group id -> dynamic settings of the group (GroupConfig), named as the broker's without `group_`."""
        self.image = image or MetadataImage()
        self.log = log
        self.shard = shard or CoordinatorShard()
        self.now_ms = now_ms
        """The latest time of any call: an overdue timer runs at that time, not in the past."""
        self.classic_groups: dict[str, LiveClassicGroup] = {}
        self.timers = Timers()
        self.tasks: dict[str, Task] = {}
        self._live: dict[type, object] = {}
        self._forgotten: dict[str, Group] = {}
        self._replaced: dict[str, LiveClassicGroup] = {}
        """Live groups whose records were deleted last: they are restored as they were if those records are lost."""
        self._commands = _merged(module.commands for module in self.modules)
        self._timers = _merged(module.timers for module in self.modules)
        self._tasks = _merged(module.tasks for module in self.modules)
        self.rules = _merged(module.rules for module in self.modules)
        self.reload(now_ms=now_ms)

    def handle(
        self,
        operation: str,
        request: Any,
        *,
        now_ms: int,
        api_version: int = -1,
        client: Client | None = None,
        request_id: int = -1,
        new_uuid: str = "",
    ) -> Outcome:
        """Serve one request. `request_id` identifies it in `Completed`; `new_uuid` is the suffix of a new member id.

        Raises UnknownOperation if no module serves it; errors of the request itself are in the outcome.
        """
        self.now_ms = max(self.now_ms, now_ms)
        command = self.command(operation)
        context = Context(self, now_ms, api_version, client or Client(), request_id, new_uuid)
        response, error = None, None
        try:
            result = command(context, request)
            context.apply(result)
            response = result.response
        except Refused as refused:
            error = refused
        return context.outcome(response, error)

    def advance(self, now_ms: int, *, timers_max: int | None = None) -> Outcome:
        """Run the timers that are due by `now_ms`, each at its own deadline, or now if that has passed.

        All of them, or `timers_max` at most.
        """
        step = OutcomeBuilder()
        while len(step.fired) != timers_max and (timer := self.timers.pop_due(now_ms)) is not None:
            step.fired.append(Fired(timer.key, timer.deadline_ms, len(step.records), timer.arguments))
            self.now_ms = max(self.now_ms, timer.deadline_ms)
            context = Context(self, self.now_ms, step=step)
            try:
                context.apply(self._timers[timer.name](context, *timer.arguments))
            except Refused:
                self.retry(timer)
            else:
                if self.is_deferring and timer.retry_backoff_ms is not None:
                    step.parked.append(Parked(context, partial(_retry_where_lost, timer)))
        if timers_max is None:
            self.now_ms = max(self.now_ms, now_ms)
        return step.outcome()

    def resume(self, parked: Parked, error: Refused | None, *, now_ms: int) -> Outcome:
        """Continue `parked`: its records are committed (error None) or lost."""
        self.now_ms = max(self.now_ms, now_ms)
        context = parked.context.resumed(now_ms)
        answer = None if error is None else Refused(answer_for_append_error(error.code))
        try:
            parked.on_append(context, answer)
        except Refused as refused:
            return context.outcome(None, refused)
        return context.outcome(None, None)

    def revert(self, shard: CoordinatorShard) -> None:
        """Restore an earlier state, because the log refused the later records. Timers stay, as in Kafka.

        A live classic group that is in no record any more stays while it has members: `on_append` removes it.
        """
        undone, self.shard = self.shard.groups.groups, shard
        for group_id, group in shard.groups.groups.items():
            if not isinstance(group, ClassicGroup):
                self.classic_groups.pop(group_id, None)
            elif group_id not in self.classic_groups:
                self.classic_groups[group_id] = self._replaced.get(group_id) or LiveClassicGroup.of(group)
        for group_id, live in tuple(self.classic_groups.items()):
            if group_id not in shard.groups.groups and group_id in undone and not live.members:
                del self.classic_groups[group_id]

    def run_tasks(self, now_ms: int) -> Outcome:
        """Run the queued background tasks, in the order of scheduling; each sees the results of those before."""
        self.now_ms = max(self.now_ms, now_ms)
        step = OutcomeBuilder()
        for task in tuple(self.tasks.values()):
            self.tasks.pop(task.key, None)
            step.tasks.append(task.key)
            context = Context(self, now_ms, step=step)
            try:
                context.apply(self._tasks[task.name](context, *task.arguments))
            except Refused:
                continue
        return step.outcome()

    def end_transaction(self, producer: Producer, *, committed: bool, now_ms: int) -> int:
        """Write a transaction marker and replay it. Returns its offset."""
        self.now_ms = max(self.now_ms, now_ms)
        offset = self.log.append_marker(producer, now_ms, committed=committed)
        self.shard = replay_end_transaction_marker(self.shard, producer.producer_id, committed=committed)
        return offset

    def update_metadata(self, image: MetadataImage, changed_topics: Iterable[str], *, now_ms: int) -> None:
        """Apply a new metadata image. `changed_topics`: names of topics created, enlarged or deleted."""
        self.now_ms = max(self.now_ms, now_ms)
        self.image = image
        context = Context(self, now_ms)
        for module in self.modules:
            if module.on_metadata is not None:
                module.on_metadata(context, frozenset(changed_topics))

    def reload(self, *, now_ms: int) -> None:
        """Lose everything that is in no record, like when another broker takes over: waiting requests get no
        response."""
        self.now_ms = max(self.now_ms, now_ms)
        self.timers = Timers()
        self.tasks = {}
        self._live = {}
        groups = self.shard.groups.groups
        for group_id, group in self._forgotten.items():
            groups = groups if group_id in groups else groups.set(group_id, group)
        self.shard = replace(self.shard, groups=replace(self.shard.groups, groups=groups))
        self._forgotten = {}
        self._replaced = {}
        self.classic_groups = {
            group_id: LiveClassicGroup.of(group)
            for group_id, group in self.shard.groups.groups.items()
            if isinstance(group, ClassicGroup)
        }
        context = Context(self, now_ms)
        for module in self.modules:
            if module.on_loaded is not None:
                module.on_loaded(context)

    def forget_group(self, group_id: str) -> None:
        """Drop a group from memory without a record, so that a reload brings it back.

        No rule requires this: Kafka 4.3.1 does it to an empty group of another type at a JoinGroup with a member id,
        and the effect is visible to clients (classicGroupJoinToClassicGroup).
        """
        groups = self.shard.groups.groups
        self._forgotten[group_id] = groups[group_id]
        self.shard = replace(self.shard, groups=replace(self.shard.groups, groups=groups.delete(group_id)))

    def unload(self, *, now_ms: int) -> Outcome:
        """Another broker takes over: answer pending requests, and stop. Only `reload` may follow."""
        context = Context(self, max(self.now_ms, now_ms))
        for module in self.modules:
            if module.on_unloaded is not None:
                module.on_unloaded(context)
        self.timers = Timers()
        self.tasks = {}
        return context.outcome(None, None)

    def live(self, kind: type[T]) -> T:
        """The only object of this class, which a group type keeps in memory; created by `kind()` on demand."""
        found = self._live.get(kind)
        if not isinstance(found, kind):
            found = kind()
            self._live[kind] = found
        return found

    def group(self, group_id: str) -> Any:
        """The LiveClassicGroup, ConsumerGroup, ShareGroup or StreamsGroup of this id, or None."""
        return self.classic_groups.get(group_id) or self.shard.groups.groups.get(group_id)

    def group_ids(self) -> list[str]:
        return sorted({*self.classic_groups, *self.shard.groups.groups})

    def command(self, operation: str) -> Command:
        """The command of an operation; raises UnknownOperation."""
        command = self._commands.get(operation)
        if command is None:
            raise UnknownOperation(f"no group type serves {operation}")
        return command

    def rules_of(self, group: Any) -> GroupRules:
        """The rules for operations on all group types, for this group's type; raises UnknownOperation."""
        rules = self.rules.get(type(group))
        if rules is None:
            raise UnknownOperation(f"no rules for groups of {type(group).__name__}")
        return rules

    def dump(self) -> dict[str, Json]:
        """Group id -> dump, like `state_dump.dump_shard`, with live classic groups and the additions of modules."""
        dumps = dump_shard(self.shard)
        for group_id, group in self.classic_groups.items():
            dumps.setdefault(group_id, {})["group"] = group.dump()
        for module in self.modules:
            if module.add_to_dump is not None:
                module.add_to_dump(self, dumps)
        return dumps

    def append(self, result: Result, now_ms: int) -> list[AppendedRecord]:
        """Append the records of one operation and replay them. Where the log raises Refused, nothing changes."""
        if not result.records:
            return []
        if not result.is_atomic and result.producer == NO_PRODUCER:
            return self._append_each(result.records, now_ms)
        first_offset = self.log.append(result.records, result.producer, now_ms)
        appended = [
            AppendedRecord(first_offset + index, now_ms, record, result.producer)
            for index, record in enumerate(result.records)
        ]
        shard = self.shard
        for entry in appended:
            shard = _replayed(shard, entry, self.config.kafka_version)
        self.shard = shard
        self._follow(appended)
        return appended

    def _append_each(self, records: tuple[CoordinatorRecord, ...], now_ms: int) -> list[AppendedRecord]:
        """Append and replay records one by one. If the log raises Refused, records in earlier batches stay."""
        appended = []
        for record in records:
            entry = AppendedRecord(self.log.append_one(record, now_ms), now_ms, record)
            self.shard = _replayed(self.shard, entry, self.config.kafka_version)
            self._follow([entry])
            appended.append(entry)
        return appended

    def _follow(self, appended: list[AppendedRecord]) -> None:
        """Update the live classic groups after the records created, changed or removed groups."""
        for entry in appended:
            key = entry.record.key
            is_offset = entry.record.record_type in OFFSET_RECORD_TYPES
            is_classic = is_offset or entry.record.record_type == RecordType.GROUP_METADATA
            group_id: str = key.group if is_classic else key.group_id
            group = self.shard.groups.groups.get(group_id)
            if isinstance(group, ClassicGroup):
                if group_id not in self.classic_groups:
                    self.classic_groups[group_id] = LiveClassicGroup.of(group)
            elif not is_offset and group_id in self.classic_groups:
                self._replaced[group_id] = self.classic_groups.pop(group_id)
                if len(self._replaced) > REPLACED_GROUPS_MAX:
                    del self._replaced[next(iter(self._replaced))]

    def retry(self, timer: Timer) -> None:
        """Run a timer again after its backoff, if it has one (CoordinatorTimerImpl)."""
        if timer.retry_backoff_ms is not None:
            self.timers.schedule(
                timer.key,
                self.now_ms + timer.retry_backoff_ms,
                timer.name,
                timer.arguments,
                retry_backoff_ms=timer.retry_backoff_ms,
            )


def _merged(tables: Iterable[Mapping[K, T]]) -> dict[K, T]:
    """Merge tables. A key in two of them is an error in the modules."""
    merged: dict[K, T] = {}
    for table in tables:
        twice = merged.keys() & table.keys()
        if twice:
            raise ValueError(f"two group types bring {sorted(map(str, twice))}")
        merged.update(table)
    return merged


def _replayed(shard: CoordinatorShard, entry: AppendedRecord, version: KafkaVersion) -> CoordinatorShard:
    return replay_record(
        shard,
        entry.record.record_type,
        entry.record.key,
        entry.record.value,
        offset=entry.offset,
        producer_id=entry.producer.producer_id,
        report=_contradiction,
        version=version,
    )


def _retry_where_lost(timer: Timer, context: Context, error: Refused | None) -> None:
    """Retry a timer whose records were lost, unless the coordinator no longer coordinates its partition."""
    if error is not None and error.code is not ErrorCode.NOT_COORDINATOR:
        context.coordinator.retry(timer)


def _contradiction(anomaly: Anomaly) -> None:
    raise ContradictoryRecord(f"{anomaly.code}: {anomaly.message}")
