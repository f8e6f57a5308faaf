"""Group coordinators with an observer: callbacks before every operation, and for every record once written."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.operation import Outcome, Parked
from coordinator_core.live.coordinator.records import Producer
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.live.runtime.batching import Batcher
from coordinator_core.live.runtime.machines import GroupMachine, GroupMachines
from coordinator_core.live.runtime.messages import Request
from coordinator_core.replay.dispatch import CoordinatorShard


class Observer(Protocol):
    def started(self, machine: "ObservedMachine") -> None:
        """A coordinator has loaded its log."""

    def before(self, machine: "ObservedMachine", request: Request, now_ms: int) -> None:
        """A request is about to be served."""

    def served(self, machine: "ObservedMachine", request: Request, outcome: Outcome, now_ms: int) -> None:
        """A request was served."""

    def fired(self, machine: "ObservedMachine", outcome: Outcome, now_ms: int) -> None:
        """Timers, tasks or a parked operation ran."""

    def marked(self, machine: "ObservedMachine", producer: Producer, *, is_commit: bool, offset: int) -> None:
        """A transaction marker was written."""

    def reverted(self, machine: "ObservedMachine", from_offset: int) -> None:
        """The log refused the records from an offset on."""


class ObservedMachine(GroupMachine):
    """A group coordinator that reports everything to its observer."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        batcher: Batcher,
        observer: Observer,
        locate: Callable[["ObservedMachine"], int],
    ) -> None:
        super().__init__(coordinator)
        self.batcher = batcher
        self.observer = observer
        self._locate = locate
        self._partition = -1

    @property
    def partition(self) -> int:
        if self._partition < 0:
            self._partition = self._locate(self)
        return self._partition

    def handle(self, request: Request, now_ms: int) -> Outcome:
        self.observer.before(self, request, now_ms)
        outcome = super().handle(request, now_ms)
        self.observer.served(self, request, outcome, now_ms)
        return outcome

    def run_next_timer(self, now_ms: int) -> Outcome:
        outcome = super().run_next_timer(now_ms)
        self.observer.fired(self, outcome, now_ms)
        return outcome

    def run_tasks(self, now_ms: int) -> Outcome:
        outcome = super().run_tasks(now_ms)
        self.observer.fired(self, outcome, now_ms)
        return outcome

    def resume(self, parked: Parked, error: Refused | None, now_ms: int) -> Outcome:
        """Continue an operation whose records are committed."""
        outcome = super().resume(parked, error, now_ms)
        self.observer.fired(self, outcome, now_ms)
        return outcome

    def end_transaction(self, producer: Producer, *, is_commit: bool, now_ms: int) -> None:
        offset = self.coordinator.end_transaction(producer, committed=is_commit, now_ms=now_ms)
        self.observer.marked(self, producer, is_commit=is_commit, offset=offset)

    def revert(self, state: CoordinatorShard) -> None:
        """The log refused a batch, which would have begun at the batcher's next offset."""
        super().revert(state)
        self.observer.reverted(self, self.batcher.next_offset)


class ObservedMachines(GroupMachines):
    def __init__(
        self,
        config: GroupCoordinatorConfig,
        observer: Observer,
        locate: Callable[[ObservedMachine], int],
        group_settings: Mapping[str, Mapping[str, int]],
    ) -> None:
        super().__init__(config)
        self._group_settings = group_settings
        self._observer = observer
        self._locate = locate

    def start(self, state: CoordinatorShard, batcher: Batcher, image: MetadataImage, now_ms: int) -> ObservedMachine:
        machine = super().start(state, batcher, image, now_ms)
        machine.coordinator.group_settings.update(self._group_settings)
        observed = ObservedMachine(machine.coordinator, batcher, self._observer, self._locate)
        self._observer.started(observed)
        return observed


def group_id_of(message: Any) -> str | None:
    """The group of a request; None if it is about several groups or none."""
    return getattr(message, "group_id", None)
