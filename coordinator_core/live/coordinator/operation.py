"""One operation of a coordinator: what it may use (`Context`), what it decides (`Result`), the rules that each group
type has for it (`GroupRules`), and the outcome of the step (`Outcome`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from coordinator_core.live.classic.live import LiveClassicGroup
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.errors import Refused, answer_for_append_error
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.records import NO_PRODUCER, AppendedRecord, CoordinatorRecord, Producer
from coordinator_core.live.coordinator.timers import Timer, Timers
from coordinator_core.replay.dispatch import CoordinatorShard
from coordinator_core.replay.offsets.state import CommittedOffset

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Client:
    client_id: str = "client"
    client_host: str = "/127.0.0.1"


OnAppend = Callable[["Context", Refused | None], None]
"""Called with None once the records are in the log and replayed, otherwise with the error of the append."""


@dataclass(frozen=True, slots=True)
class Result:
    """The decision of a command: records in order, and the response (None: it comes later, by `Context.complete`)."""

    records: tuple[CoordinatorRecord, ...] = ()
    response: Any = None
    producer: Producer = NO_PRODUCER
    on_append: OnAppend | None = None
    is_atomic: bool = True
    """Whether all records go into one batch. If False, each is replayed before the next is appended."""


NOTHING: Final = Result()

Command = Callable[["Context", Any], Result]
Function = Callable[..., Result]
"""A timer or task: (context, *arguments) -> Result."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The response to an earlier request, or to this one."""

    request_id: int
    response: Any


@dataclass(frozen=True, slots=True)
class Fired:
    """A timer that ran. Its records begin at index `first_record` of the step's records."""

    key: str
    at_ms: int
    first_record: int
    arguments: tuple[object, ...] = ()
    """The timer's: timers of a group and of its members have the group id first."""


@dataclass(frozen=True, slots=True)
class Parked:
    """An `on_append` that waits until the records are committed, where the coordinator defers it."""

    context: "Context"
    on_append: OnAppend


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one step. At most one of `response` and `error` is set."""

    response: Any = None
    error: Refused | None = None
    records: tuple[AppendedRecord, ...] = ()
    completed: tuple[Completed, ...] = ()
    fired: tuple[Fired, ...] = ()
    tasks: tuple[str, ...] = ()
    parked: tuple[Any, ...] = ()
    """Of a group coordinator: `Parked`."""


@dataclass(frozen=True, slots=True)
class Task:
    """A background task, run by `GroupCoordinator.run_tasks`."""

    key: str
    name: str
    arguments: tuple[object, ...]


class OutcomeBuilder:
    """Collects the results of the operations of one step."""

    def __init__(self) -> None:
        self.records: list[AppendedRecord] = []
        self.completed: list[Completed] = []
        self.fired: list[Fired] = []
        self.tasks: list[str] = []
        self.parked: list[Parked] = []

    def outcome(self, response: Any = None, error: Refused | None = None) -> Outcome:
        return Outcome(
            response,
            error,
            tuple(self.records),
            tuple(self.completed),
            tuple(self.fired),
            tuple(self.tasks),
            tuple(self.parked),
        )


class Coordinator(Protocol):
    """What operations use of their coordinator; `shard.GroupCoordinator` says what each is."""

    shard: CoordinatorShard
    image: MetadataImage
    timers: Timers
    tasks: dict[str, Task]
    classic_groups: dict[str, LiveClassicGroup]
    group_settings: dict[str, Mapping[str, int]]

    @property
    def config(self) -> GroupCoordinatorConfig: ...

    @property
    def is_deferring(self) -> bool: ...

    def group(self, group_id: str) -> Any: ...

    def group_ids(self) -> Sequence[str]: ...

    def command(self, operation: str) -> Command: ...

    def live(self, kind: type[T]) -> T: ...

    def rules_of(self, group: Any) -> "GroupRules": ...

    def append(self, result: Result, now_ms: int) -> Sequence[AppendedRecord]: ...

    def forget_group(self, group_id: str) -> None: ...

    def retry(self, timer: Timer) -> None: ...


class Context:
    """What one operation may use: the coordinator, the time, the client, and where responses and timers go."""

    def __init__(
        self,
        coordinator: Coordinator,
        now_ms: int,
        api_version: int = -1,
        client: Client | None = None,
        request_id: int = -1,
        new_uuid: str = "",
        step: OutcomeBuilder | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.now_ms = now_ms
        self.api_version = api_version
        self.client = client or Client()
        self.request_id = request_id
        self.new_uuid = new_uuid
        self._step = step or OutcomeBuilder()

    @property
    def shard(self) -> CoordinatorShard:
        """The state after all records so far."""
        return self.coordinator.shard

    @property
    def config(self) -> GroupCoordinatorConfig:
        """The broker's settings."""
        return self.coordinator.config

    def group_setting(self, group_id: str, name: str) -> int:
        """A setting of one group, such as `share_session_timeout_ms`; otherwise that of the broker."""
        settings = self.coordinator.group_settings.get(group_id)
        if settings is not None and name in settings:
            return settings[name]
        value: int = getattr(self.coordinator.config, f"group_{name}")
        return value

    @property
    def image(self) -> MetadataImage:
        return self.coordinator.image

    def group(self, group_id: str) -> Any:
        """The group that has the id now: a LiveClassicGroup, the state of another type, or None."""
        return self.coordinator.group(group_id)

    def command(self, operation: str) -> Command:
        """Another module's command."""
        return self.coordinator.command(operation)

    def live(self, kind: type[T]) -> T:
        """See `shard.GroupCoordinator.live`."""
        return self.coordinator.live(kind)

    def schedule(
        self, key: str, delay_ms: int, name: str, *arguments: object, retry_backoff_ms: int | None = None
    ) -> None:
        """Run the timer function `name` with the arguments in `delay_ms`; replaces the timer with the same key."""
        self.coordinator.timers.schedule(
            key, self.now_ms + delay_ms, name, arguments, retry_backoff_ms=retry_backoff_ms
        )

    def cancel(self, key: str) -> None:
        self.coordinator.timers.cancel(key)

    def schedule_task(self, key: str, name: str, *arguments: object) -> bool:
        """Queue a background task; False if one with this key is queued already."""
        if key in self.coordinator.tasks:
            return False
        self.coordinator.tasks[key] = Task(key, name, arguments)
        return True

    def complete(self, request_id: int, response: Any) -> None:
        """Answer a waiting request, or this one."""
        self._step.completed.append(Completed(request_id, response))

    def apply(self, result: Result) -> None:
        """Append and replay the records of an operation, and call its `on_append`. Raises Refused if the log
        refused.
        """
        try:
            self._step.records.extend(self.coordinator.append(result, self.now_ms))
        except Refused as refused:
            answer = Refused(answer_for_append_error(refused.code))
            if result.on_append is not None:
                result.on_append(self, answer)
                if result.response is None:
                    return  # `on_append` answers the request
            raise answer from refused
        if result.on_append is None:
            return
        if self.coordinator.is_deferring:
            self._step.parked.append(Parked(self, result.on_append))
        else:
            result.on_append(self, None)

    def resumed(self, now_ms: int) -> "Context":
        """The same operation at a later time; its further results belong to another step."""
        return Context(self.coordinator, now_ms, self.api_version, self.client, self.request_id, self.new_uuid)

    def outcome(self, response: Any, error: Refused | None) -> Outcome:
        """The results of the step, with the response or error for the request itself."""
        return self._step.outcome(response, error)


class BaseTimestamp(Protocol):
    """From when the retention of a committed offset counts, in epoch milliseconds (OffsetExpirationCondition)."""

    def __call__(self, committed: CommittedOffset, /) -> int: ...


@dataclass(frozen=True, slots=True)
class OffsetCommitter:
    """The sender of a commit. `generation_id_or_member_epoch` is negative for an admin client or a stand-alone
    consumer.
    """

    member_id: str
    group_instance_id: str | None
    generation_id_or_member_epoch: int
    is_transactional: bool
    api_version: int


class CheckPartition(Protocol):
    """Raises Refused, for the whole commit, if (topic name, topic id, partition) may not be committed."""

    def __call__(self, topic: str, topic_id: str, partition: int, /) -> None: ...


def commit_timestamp(committed: CommittedOffset) -> int:
    """Retention counts from the commit."""
    return committed.commit_timestamp_ms


class GroupRules(ABC):
    """The rules of one group type. `group` is the object returned by `Context.group`."""

    @abstractmethod
    def validate_offset_commit(self, context: Context, group: Any, committer: OffsetCommitter) -> CheckPartition | None:
        """Raise Refused, or return the check for each partition (None: all are allowed)."""

    @abstractmethod
    def validate_offset_fetch(self, group: Any, member_id: str | None, member_epoch: int) -> None:
        """Raise Refused if a member may not read offsets."""

    @abstractmethod
    def validate_offset_delete(self, group: Any) -> None:
        """Raise Refused if OffsetDelete is not possible for this group."""

    @abstractmethod
    def validate_delete_group(self, group: Any) -> None:
        """Raise Refused if the group may not be deleted."""

    @abstractmethod
    def tombstones(self, context: Context, group: Any) -> tuple[CoordinatorRecord, ...]:
        """The records that delete the group, in order."""

    @abstractmethod
    def is_subscribed_to(self, group: Any, topic: str) -> bool:
        """Whether the offsets of the topic are in use."""

    def is_empty(self, group: Any) -> bool:
        """Whether the group has no members, so that it is deleted with its last offset."""
        return not group.members

    def should_expire(self, group: Any) -> bool:
        """Whether its offsets expire, and the group with the last of them."""
        return True

    def expiration_base(self, group: Any) -> BaseTimestamp | None:
        """From when retention counts; None: nothing expires now."""
        return commit_timestamp

    @abstractmethod
    def refresh_on_commit(self, context: Context, group: Any, member_id: str) -> None:
        """Restart the session of the member for an accepted commit, if the group type does so."""
