"""All coordinators of one broker for one topic (CoordinatorRuntime). The contract is the docstring of the package."""

import heapq
from collections.abc import Iterable
from functools import partial
from typing import Final

from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.runtime.coordinator import PartitionCoordinator, RuntimeConfig, UpdateMetadata
from coordinator_core.live.runtime.machines import MachineKind
from coordinator_core.live.runtime.messages import Answer, EndTransaction, Request
from coordinator_core.live.runtime.partition import PartitionLog
from schemas.error_codes import ErrorCode

DEADLINES_KEPT_MAX: Final = 64
"""How many obsolete deadlines are kept, beyond the number of partitions, before a clean-up."""


class CoordinatorRuntime:
    """The coordinators of a broker, one for each partition that it leads."""

    def __init__(
        self,
        broker_id: int,
        kind: MachineKind,
        config: RuntimeConfig | None = None,
        image: MetadataImage | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.kind = kind
        self.config = config or RuntimeConfig()
        self.image = image or MetadataImage()
        self.coordinators: dict[int, PartitionCoordinator] = {}
        self._answers: list[Answer] = []
        self._deadlines: list[tuple[int, int]] = []
        """Heap of (deadline, partition); an entry is valid while it is the partition's in `_deadline_of`."""
        self._deadline_of: dict[int, int] = {}
        self._touched: dict[int, None] = {}

    def load(self, log: PartitionLog, *, now_ms: int, duration_ms: int = 0) -> None:
        """The broker became leader of `log`: load its coordinator, which takes `duration_ms`.

        If `duration_ms` is 0, the next `run` finishes it.
        """
        coordinator = self.coordinators.get(log.partition)
        if coordinator is None:
            coordinator = PartitionCoordinator(
                self.kind,
                log,
                self.broker_id,
                config=self.config,
                image=self.image,
                on_work=partial(self._touch, log.partition),
            )
            self.coordinators[log.partition] = coordinator
        coordinator.load(log.leader_epoch, now_ms=now_ms, duration_ms=duration_ms)
        self._touched[log.partition] = None

    def unload(self, partition: int, leader_epoch: int | None, *, now_ms: int) -> list[Answer]:
        """Another broker leads in this epoch, or (None) the topic was deleted. Returns the answers to waiting requests.

        An epoch in which this broker leads, or an older one, is ignored.
        """
        coordinator = self.coordinators.get(partition)
        if coordinator is None or (leader_epoch is not None and leader_epoch <= coordinator.leader_epoch):
            return []
        del self.coordinators[partition]
        self._deadline_of.pop(partition, None)
        self._touched.pop(partition, None)
        return coordinator.close(now_ms=now_ms)

    def submit(self, partition: int, request: Request | EndTransaction) -> None:
        """Put an operation into the queue of its partition. `run` returns the answer, then or later."""
        if isinstance(request, Request):
            response = self.kind.refusal(request)
            if response is not None:
                self._answers.append(Answer(partition, request.request_id, response))
                return
        coordinator = self.coordinators.get(partition)
        if coordinator is None:
            is_marker = isinstance(request, EndTransaction)
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_marker else ErrorCode.NOT_COORDINATOR
            self._answers.append(Answer(partition, request.request_id, None, Refused(code)))
            return
        coordinator.queue.append(request)
        self._touched[partition] = None

    def handle(self, partition: int, request: Request | EndTransaction, *, now_ms: int) -> list[Answer]:
        self.submit(partition, request)
        return self.run(now_ms)

    def run(self, now_ms: int) -> list[Answer]:
        """Run everything that is queued or due. Returns the answers that became available, in order."""
        answers, self._answers = self._answers, []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            deadline_ms, partition = heapq.heappop(self._deadlines)
            if self._deadline_of.get(partition) == deadline_ms:
                del self._deadline_of[partition]
                self._touched[partition] = None
        while self._touched:
            partition = next(iter(self._touched))
            del self._touched[partition]
            coordinator = self.coordinators[partition]
            answers.extend(coordinator.run(now_ms))
            self._note_deadline(partition, coordinator.next_deadline_ms())
        return answers

    def next_deadline_ms(self) -> int | None:
        """When `run` next has something to do without a new request, or None."""
        while self._deadlines:
            deadline_ms, partition = self._deadlines[0]
            if self._deadline_of.get(partition) == deadline_ms:
                return deadline_ms
            heapq.heappop(self._deadlines)
        return None

    @property
    def has_work(self) -> bool:
        """Whether `run` has something to do now."""
        return bool(self._touched or self._answers)

    def update_metadata(self, image: MetadataImage, changed_topics: Iterable[str]) -> None:
        """Topics were created, enlarged or deleted; every coordinator is updated when its queue reaches the change."""
        self.image = image
        changed = frozenset(changed_topics)
        for partition, coordinator in self.coordinators.items():
            coordinator.queue.append(UpdateMetadata(image, changed))
            self._touched[partition] = None

    def touch(self, partition: int) -> None:
        """A coordinator's timers or other deadlines were changed from outside: `run` will check them again."""
        if partition in self.coordinators:
            self._touched[partition] = None

    def _touch(self, partition: int) -> None:
        self._touched[partition] = None

    def _note_deadline(self, partition: int, deadline_ms: int | None) -> None:
        if deadline_ms is None:
            self._deadline_of.pop(partition, None)
        elif self._deadline_of.get(partition) != deadline_ms:
            self._deadline_of[partition] = deadline_ms
            heapq.heappush(self._deadlines, (deadline_ms, partition))
            if len(self._deadlines) > 2 * len(self._deadline_of) + DEADLINES_KEPT_MAX:
                self._deadlines = [(deadline, partition) for partition, deadline in self._deadline_of.items()]
                heapq.heapify(self._deadlines)
