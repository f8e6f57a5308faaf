"""Any sequence of what members may do: what must hold of tasks, and of the log."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.state_dump import dump_shard
from coordinator_core.live.streams.messages import RequestSubtopology, RequestTopology, TaskIds, TopicInfo
from coordinator_core.replay.dispatch import CoordinatorShard, replay_record
from coordinator_core.replay.streams.state import StreamsGroup, StreamsMember, Tasks
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.streams.streams_clients import TOPIC_ID, StreamsClients

MEMBERS = ("a", "b", "c", "d")
PARTITION_COUNT = 4
ROUNDS_TO_SETTLE = 8
STATEFUL = RequestTopology(0, (RequestSubtopology("0", ("in",), state_changelog_topics=(TopicInfo("log"),)),))
IMAGE = image_of([Topic("in", TOPIC_ID, PARTITION_COUNT), Topic("log", "A" * 21 + "g", PARTITION_COUNT)])

ACTIONS = st.lists(
    st.tuples(st.sampled_from(MEMBERS), st.sampled_from(["enter", "heartbeat", "own", "leave", "wait", "reload"])),
    max_size=40,
)


def active_tasks(member: StreamsMember) -> list[int]:
    """All that the member has, in whatever state."""
    return [*member.active.get("0", {}), *member.active_pending_revocation.get("0", {})]


def reported(tasks: Tasks) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(name, partitions) for name, partitions in tasks.items())


def own(clients: StreamsClients, member_id: str) -> None:
    """A dutiful heartbeat: the member has what it was given and nothing else."""
    member = clients.streams.members[member_id]
    active = {name: tuple(partitions) for name, partitions in member.active.items()}
    clients.heartbeat(member_id, active_tasks=reported(active), standby_tasks=reported(member.standby), warmup_tasks=())


def act(clients: StreamsClients, member_id: str, action: str) -> None:
    group = clients.coordinator.group(GROUP)
    is_member = isinstance(group, StreamsGroup) and member_id in group.members
    if action == "enter":
        clients.enter(member_id, topology=STATEFUL, process_id=f"process {ord(member_id) % 3}")
    elif action == "wait":
        clients.wait(7_000)
    elif action == "reload":
        clients.coordinator.reload(now_ms=clients.now_ms)
    elif is_member and action == "own":
        own(clients, member_id)
    elif is_member:
        clients.heartbeat(member_id, -1 if action == "leave" else None)


def check_no_task_twice(clients: StreamsClients) -> None:
    group = clients.coordinator.group(GROUP)
    if isinstance(group, StreamsGroup):
        owned = Counter(task for member in group.members.values() for task in active_tasks(member))
        assert max(owned.values(), default=1) == 1
        copies = Counter(
            (member.process_id, task)
            for member in group.members.values()
            for tasks in (member.standby, member.standby_pending_revocation, {"0": active_tasks(member)})
            for task in tasks.get("0", ())
        )
        assert max(copies.values(), default=1) == 1


def check_log_tells_all(clients: StreamsClients) -> None:
    shard = CoordinatorShard()
    for entry in clients.records:
        record = entry.record
        shard = replay_record(
            shard, record.record_type, record.key, record.value, offset=entry.offset, report=lambda found: None
        )
    assert dump_shard(shard) == dump_shard(clients.coordinator.shard)


@given(ACTIONS, st.sampled_from([0, 1, 2]), st.sampled_from([0, 3000]), st.sampled_from([0, 1000]))
def test_tasks_are_had_once_and_all_of_them_in_the_end(
    actions: list[tuple[str, str]], standby_count: int, delay_ms: int, interval_ms: int
) -> None:
    """No active task twice, no task twice in a process; members that follow the protocol get all tasks in the end."""
    clients = StreamsClients(
        group_streams_num_standby_replicas=standby_count,
        group_streams_initial_rebalance_delay_ms=delay_ms,
        group_streams_assignment_interval_ms=interval_ms,
    )
    clients.coordinator.image = IMAGE
    for member_id, action in actions:
        act(clients, member_id, action)
        check_no_task_twice(clients)
    check_log_tells_all(clients)
    group = clients.coordinator.group(GROUP)
    if not isinstance(group, StreamsGroup) or not group.members:
        return
    for _ in range(ROUNDS_TO_SETTLE):
        for member_id in sorted(clients.streams.members):
            own(clients, member_id)
        clients.wait(1_000)
    assert clients.streams.state == "Stable"
    owned = sorted(task for member in clients.streams.members.values() for task in active_tasks(member))
    assert owned == list(range(PARTITION_COUNT))
