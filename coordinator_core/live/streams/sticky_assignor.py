"""The task assignor of streams groups: sticky, balanced by process (StickyTaskAssignor of the group coordinator).

Active tasks stay with their member up to the member's share; the rest goes to members that had the task as a standby,
and then to the process with the least load. Standby tasks are assigned the same way, never to a process that already
has the task. For equal loads the order of Kafka's hash maps and heaps decides, so these are emulated.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion, Since
from coordinator_core.replay.java.hash_codes import string_hash_code, string_order
from coordinator_core.replay.java.hash_map import HashMap
from coordinator_core.replay.streams.state import TaskAssignment, TaskId

NUM_STANDBY_REPLICAS: Final = "num.standby.replicas"
"""Name of the one assignment config."""

T = TypeVar("T")


class MemberSpec(NamedTuple):
    """The assignor's view of a member: its process and its previous tasks."""

    member_id: str
    process_id: str
    tasks: TaskAssignment
    """Its last target, from 4.4 on its current tasks."""
    offsets: Mapping[TaskId, int] = {}
    """Reported offsets: the tasks whose state it has, and how much of it."""


class SubtopologySpec(NamedTuple):
    task_count: int
    is_stateful: bool


def assign_tasks(
    members: Iterable[MemberSpec],
    subtopologies: Mapping[str, SubtopologySpec],
    standby_count: int,
    version: KafkaVersion = DEFAULT_VERSION,
) -> dict[str, TaskAssignment]:
    """New targets by member id. `members`: at least one, in the order of Kafka's map of members.

    `standby_count`: how many copies of each stateful task are kept in addition to the active one; there may be fewer if
    there are fewer processes. Warm-up tasks are never assigned.
    """
    assignor = _Assignor(list(members), subtopologies, standby_count, version)
    assignor.assign_active()
    assignor.assign_standby()
    return assignor.targets()


class PriorityQueue(Generic[T]):
    """java.util.PriorityQueue: equal elements are returned in the order that results from its heap."""

    def __init__(self, priority: Callable[[T], float], elements: Iterable[T] = ()) -> None:
        self._priority = priority
        self._heap: list[T] = []
        for element in elements:
            self.add(element)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, element: T) -> None:
        """`offer`: sift up from the last place while the parent is greater."""
        heap, priority = self._heap, self._priority(element)
        heap.append(element)
        place = len(heap) - 1
        while place > 0 and self._priority(heap[(place - 1) // 2]) > priority:
            heap[place] = heap[(place - 1) // 2]
            place = (place - 1) // 2
        heap[place] = element

    def poll(self) -> T:
        """Remove the least element; the last one sifts down from the top while a child is smaller."""
        heap = self._heap
        least, element = heap[0], heap.pop()
        if not heap:
            return least
        place, priority = 0, self._priority(element)
        while (child := 2 * place + 1) < len(heap):
            right = child + 1
            if right < len(heap) and self._priority(heap[child]) > self._priority(heap[right]):
                child = right
            if priority <= self._priority(heap[child]):
                break
            heap[place] = heap[child]
            place = child
        heap[place] = element
        return least


class _Process:
    """Members of one process and the tasks assigned to them so far (ProcessState)."""

    def __init__(self) -> None:
        self.task_counts: HashMap[str, int] = HashMap(string_hash_code)
        """Member id -> number of tasks."""
        self.tasks: set[TaskId] = set()
        self._task_count = 0
        self._by_load: PriorityQueue[str] | None = None

    @property
    def load(self) -> float:
        return self._task_count / len(self.task_counts)

    def add_member(self, member_id: str) -> None:
        self.task_counts[member_id] = 0

    def add_task(self, member_id: str, task: TaskId) -> int:
        self._by_load = None
        return self._add(member_id, task)

    def add_task_to_least_loaded(self, task: TaskId) -> tuple[str, int]:
        """Assign a task to the member with the fewest tasks. Returns the member and its number of tasks."""
        if self._by_load is None:
            self._by_load = PriorityQueue(self.task_counts.__getitem__, self.task_counts)
        member_id = self._by_load.poll()
        count = self._add(member_id, task)
        self._by_load.add(member_id)
        return member_id, count

    def _add(self, member_id: str, task: TaskId) -> int:
        self._task_count += 1
        self.tasks.add(task)
        self.task_counts[member_id] += 1
        return self.task_counts[member_id]


class _Copy(NamedTuple):
    """A member that may have the state of a task on its disk."""

    member_id: str
    is_standby: bool
    offset: int


def _by_use(copy: _Copy) -> tuple[bool, int]:
    """Standby tasks first, then the copy with the higher offset."""
    return not copy.is_standby, -copy.offset


class _Share:
    """How many tasks each member may have: the rest is divided again whenever a member is full."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._task_count = task_count
        self._member_count = member_count

    @property
    def per_member(self) -> int:
        return -(-self._task_count // self._member_count) if self._member_count else 0

    def count(self, tasks_of_member: int) -> None:
        """Note a member's current number of tasks."""
        if tasks_of_member == self.per_member:
            self._member_count -= 1
            self._task_count -= tasks_of_member


class _Assignor:
    def __init__(
        self,
        members: list[MemberSpec],
        subtopologies: Mapping[str, SubtopologySpec],
        standby_count: int,
        version: KafkaVersion,
    ) -> None:
        self._goes_by_tasks = Since.STREAMS_STICKY_TO_CURRENT_TASKS.holds_in(version)
        self._members = members
        self._standby_count = standby_count
        self._active = [(name, number) for name, spec in subtopologies.items() for number in range(spec.task_count)]
        self._stateful = [task for task in self._active if subtopologies[task[0]].is_stateful]
        task_count = len(self._active) + standby_count * len(self._stateful)
        self._active_share = _Share(len(self._active), len(members))
        self._share = _Share(task_count, len(members))
        self._processes: HashMap[str, _Process] = HashMap(string_hash_code, len(members))
        self._process_of: dict[str, _Process] = {}
        """Member id -> its process."""
        self._had_active: dict[TaskId, str] = {}
        self._had_standby: dict[TaskId, list[str]] = defaultdict(list)
        self._new_active: dict[str, list[TaskId]] = defaultdict(list)
        self._new_standby: dict[str, list[TaskId]] = defaultdict(list)
        self._copies: dict[TaskId, list[_Copy]] = defaultdict(list)
        for member in members:
            self._take_member(member)
        for task, copies in self._copies.items():
            self._had_standby[task] = [copy.member_id for copy in sorted(copies, key=_by_use)]

    def _take_member(self, member: MemberSpec) -> None:
        if self._goes_by_tasks:
            self._processes.compute_if_absent(member.process_id, _Process)
        elif member.process_id not in self._processes:
            self._processes[member.process_id] = _Process()
        process = self._processes[member.process_id]
        process.add_member(member.member_id)
        self._process_of[member.member_id] = process
        for task in _task_ids(member.tasks.active):
            self._had_active[task] = member.member_id
        had_standby = list(_task_ids(member.tasks.standby))
        if not self._goes_by_tasks:
            for task in had_standby:
                self._had_standby[task].append(member.member_id)
            return
        for task in had_standby:
            self._copies[task].append(_Copy(member.member_id, True, member.offsets.get(task, 0)))
        for task in member.offsets.keys() - had_standby:
            self._copies[task].append(_Copy(member.member_id, False, member.offsets[task]))

    def targets(self) -> dict[str, TaskAssignment]:
        return {
            member.member_id: TaskAssignment(
                _by_subtopology(self._new_active[member.member_id]),
                _by_subtopology(self._new_standby[member.member_id]),
            )
            for member in self._members
        }

    # --- active tasks ---

    def assign_active(self) -> None:
        """Assign active tasks: to the previous member, to a member with a standby, to the process with the least
        load."""
        left = sorted(self._active, key=_by_partition)
        left = [task for task in left if not self._give_back(task, self._had_active.get(task))]
        left = [task for task in left if not self._give_back(task, self._least_loaded_standby(task, is_active=True))]
        queue = PriorityQueue(_load, (self._processes[process_id] for process_id in self._processes))
        for task in sorted(left, key=_by_name):
            process = queue.poll()
            member_id, count = process.add_task_to_least_loaded(task)
            self._count_active(member_id, task, count)
            queue.add(process)

    def _give_back(self, task: TaskId, member_id: str | None) -> bool:
        """Assign the task to this previous member if its share allows. Returns whether it did."""
        if member_id is None:
            return False
        process = self._process_of[member_id]
        if process.task_counts[member_id] >= self._active_share.per_member:
            return False
        self._count_active(member_id, task, process.add_task(member_id, task))
        return True

    def _count_active(self, member_id: str, task: TaskId, count: int) -> None:
        self._new_active[member_id].append(task)
        self._active_share.count(count)
        self._share.count(count)

    # --- standby tasks ---

    def assign_standby(self) -> None:
        """Assign standby tasks: to a member that had the task in any role, then to processes without it, by load."""
        left: list[tuple[TaskId, int]] = []
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            for number in range(self._standby_count):
                member_id = self._standby_keeper(task)
                if member_id is None:
                    left.append((task, self._standby_count - number))
                    break
                self._count_standby(member_id, task, self._process_of[member_id].add_task(member_id, task))
        queue = PriorityQueue(_load, (self._processes[process_id] for process_id in self._processes))
        for task, count in sorted(left, key=lambda entry: _by_name(entry[0]), reverse=True):
            for _ in range(count):
                if not self._give_standby_by_load(queue, task):
                    break

    def _standby_keeper(self, task: TaskId) -> str | None:
        """A member that had the task, active before standby, and may keep a copy of it."""
        for member_id in (self._had_active.get(task), self._least_loaded_standby(task, is_active=False)):
            if member_id is None:
                continue
            process = self._process_of[member_id]
            if task not in process.tasks and process.task_counts[member_id] < self._share.per_member:
                return member_id
        return None

    def _give_standby_by_load(self, queue: PriorityQueue[_Process], task: TaskId) -> bool:
        """Assign to the first process without the task. Returns whether there was one. Processes go back into the queue
        in reverse order.
        """
        passed_over = []
        is_given = False
        while len(queue) and not is_given:
            process = queue.poll()
            passed_over.append(process)
            if task not in process.tasks:
                member_id, count = process.add_task_to_least_loaded(task)
                self._count_standby(member_id, task, count)
                is_given = True
        for process in reversed(passed_over):
            queue.add(process)
        return is_given

    def _count_standby(self, member_id: str, task: TaskId, count: int) -> None:
        self._new_standby[member_id].append(task)
        self._share.count(count)

    def _least_loaded_standby(self, task: TaskId, *, is_active: bool) -> str | None:
        """The member with the least load among those that had a standby of the task (findPrevMemberWithLeastLoad).

        For a standby task, the process must not have the task. In the end, Kafka up to 4.3 checks that only for the
        first candidate, whichever was found after it.
        """
        holders = self._had_standby.get(task)
        if holders and self._goes_by_tasks and not is_active:
            holders = [member_id for member_id in holders if task not in self._process_of[member_id].tasks]
        if not holders:
            return None
        first = found = holders[0]
        process_load = self._process_of[first].load
        member_load = self._process_of[first].task_counts[first]
        for member_id in holders[1:]:
            process = self._process_of[member_id]
            has_task = not is_active and task in process.tasks
            if process.load < process_load and not has_task and process.task_counts[member_id] < member_load:
                found, process_load, member_load = member_id, process.load, process.task_counts[member_id]
        return found if is_active or task not in self._process_of[first].tasks else None


def _load(process: _Process) -> float:
    return process.load


def _by_partition(task: TaskId) -> tuple[int, bytes]:
    return task[1], string_order(task[0])


def _by_name(task: TaskId) -> tuple[bytes, int]:
    return string_order(task[0]), task[1]


def _task_ids(tasks: Mapping[str, Iterable[int]]) -> Iterable[TaskId]:
    return ((subtopology_id, partition) for subtopology_id, partitions in tasks.items() for partition in partitions)


def _by_subtopology(tasks: Iterable[TaskId]) -> dict[str, tuple[int, ...]]:
    partitions: dict[str, list[int]] = defaultdict(list)
    for subtopology_id, partition in tasks:
        partitions[subtopology_id].append(partition)
    return {subtopology_id: tuple(sorted(numbers)) for subtopology_id, numbers in partitions.items()}
