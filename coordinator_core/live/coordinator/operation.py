"""One operation of a coordinator: what it may use (`Context`), decides (`Result`), and the outcome of the step
(`Outcome`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.errors import Refused, answer_for_append_error
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.records import NO_PRODUCER, AppendedRecord, CoordinatorRecord, Producer
from coordinator_core.replay.dispatch import CoordinatorShard

if TYPE_CHECKING:
    from coordinator_core.live.coordinator.shard import GroupCoordinator


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


class Context:
    """What one operation may use: the coordinator, the time, the client, and where responses and timers go."""

    def __init__(
        self,
        coordinator: "GroupCoordinator",
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
