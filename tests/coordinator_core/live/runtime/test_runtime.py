"""Tests of all coordinators of a broker together."""

import random

import pytest

from coordinator_core.bytes.codec import make
from coordinator_core.live.classic.messages import HeartbeatRequest, JoinGroupRequest, JoinProtocol, SyncGroupRequest
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.image import MetadataImage, Topic
from coordinator_core.live.coordinator.modules import MODULES
from coordinator_core.live.coordinator.operation import NOTHING, Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.live.offsets.messages import OffsetFetchRequest
from coordinator_core.live.runtime.coordinator import RuntimeConfig
from coordinator_core.live.runtime.loader import load
from coordinator_core.live.runtime.machines import GroupMachines
from coordinator_core.live.runtime.messages import Answer, EndTransaction, Request
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.runtime.runtime import DEADLINES_KEPT_MAX, CoordinatorRuntime
from coordinator_core.live.runtime.states import CoordinatorState
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.consumer_offsets.classic import GROUP_METADATA_KEY
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.runtime.broker import (
    PARTITION,
    PRODUCER,
    START_MS,
    Broker,
    commit_request,
    transactional_commit_request,
)


def commit(number: int, offset: int = 1) -> Request:
    """A commit of group `g`."""
    return Request("commit_offset", commit_request(offset=offset), number)


def test_partitions_do_not_wait_for_each_other() -> None:
    """A follower which is slow for one of them holds up that one only."""
    runtime = CoordinatorRuntime(0, GroupMachines())
    slow, fast = PartitionLog(TOPIC, 0, (0, 1)), PartitionLog(TOPIC, 1)
    runtime.load(slow, now_ms=START_MS)
    runtime.load(fast, now_ms=START_MS)
    assert runtime.handle(0, commit(1), now_ms=START_MS) == []
    assert [answer.request_id for answer in runtime.handle(1, commit(2), now_ms=START_MS)] == [2]
    assert [it.state for it in runtime.coordinators.values()] == [CoordinatorState.ACTIVE] * 2
    slow.replicate()
    assert runtime.has_work
    assert [answer.request_id for answer in runtime.run(START_MS)] == [1]
    assert not runtime.has_work


def test_requests_to_partitions_of_others_are_refused() -> None:
    """A marker in the words of brokers."""
    runtime = CoordinatorRuntime(0, GroupMachines())
    runtime.submit(3, commit(1))
    runtime.submit(3, EndTransaction(PRODUCER, True, 0, 2))
    assert [(answer.partition, answer.error_code) for answer in runtime.run(START_MS)] == [
        (3, ErrorCode.NOT_COORDINATOR),
        (3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]


def test_the_next_deadline_is_the_earliest_of_all_partitions() -> None:
    """Loading, write time-outs and timers; what is over is forgotten."""
    runtime = CoordinatorRuntime(0, GroupMachines())
    late, soon = PartitionLog(TOPIC, 0, (0, 1)), PartitionLog(TOPIC, 1)
    runtime.load(late, now_ms=START_MS, duration_ms=50)
    runtime.load(soon, now_ms=START_MS, duration_ms=20)
    runtime.run(START_MS)
    assert runtime.next_deadline_ms() == START_MS + 20
    runtime.run(START_MS + 20)
    assert runtime.next_deadline_ms() == START_MS + 50
    runtime.run(START_MS + 50)
    runtime.handle(0, commit(1), now_ms=START_MS + 60)
    assert runtime.next_deadline_ms() == START_MS + 5060
    late.replicate()
    runtime.run(START_MS + 70)
    after = runtime.next_deadline_ms()
    assert after is None or after > START_MS + 5060
    runtime.unload(0, None, now_ms=START_MS)
    runtime.unload(1, None, now_ms=START_MS)
    assert runtime.next_deadline_ms() is None


class Seen:
    """The calls that the module below got."""

    def __init__(self) -> None:
        self.topics: list[str] = []


def on_metadata(context: Context, changed: frozenset[str]) -> None:
    """Note the topics, and queue a task which writes a tombstone."""
    context.live(Seen).topics.extend(sorted(changed))
    context.schedule_task("task", "write")


def write(context: Context) -> Result:
    """The task."""
    key = make(GROUP_METADATA_KEY, group="gone")
    return Result((CoordinatorRecord(RecordType.GROUP_METADATA, key, None),))


def topics_seen(context: Context, request: object) -> Result:
    """The arguments of `on_metadata`."""
    return Result(response=tuple(context.live(Seen).topics))


MODULE = GroupModule("test", {"topics_seen": topics_seen}, {}, {"write": write}, on_metadata=on_metadata)


def test_news_of_topics_reach_every_coordinator_and_tasks_run_after_them() -> None:
    """A coordinator which loads later begins with the newest picture."""
    runtime = CoordinatorRuntime(0, GroupMachines(modules=(*MODULES, MODULE)))
    logs = [PartitionLog(TOPIC, partition) for partition in (0, 1)]
    runtime.load(logs[0], now_ms=START_MS)
    runtime.run(START_MS)
    image = MetadataImage().with_topic(Topic("t", "AAAAAAAAAAAAAAAAAAAAAQ", 2))
    runtime.update_metadata(image, ["t"])
    runtime.run(START_MS)
    (answer,) = runtime.handle(0, Request("topics_seen", None, 1), now_ms=START_MS)
    assert answer.response == ("t",)
    assert logs[0].end_offset == 1
    runtime.load(logs[1], now_ms=START_MS)
    runtime.run(START_MS)
    assert runtime.coordinators[1].image is image
    assert NOTHING.records == ()


def test_a_steady_heartbeat_leaves_nothing_behind() -> None:
    """No entry of any queue, and one deadline, however many of them come."""
    broker = Broker()
    joined = broker.join()
    broker.wait(0)
    answer = broker.answers[joined].response
    broker.sync(answer.generation_id, answer.member_id)
    message = HeartbeatRequest("g", answer.generation_id, answer.member_id)
    for number in range(100, 5000):
        broker.now_ms += 100
        (heartbeat,) = broker.runtime.handle(
            PARTITION, Request("classic_heartbeat", message, number), now_ms=broker.now_ms
        )
        assert heartbeat.error_code == ErrorCode.NONE
    assert len(broker.runtime._deadlines) <= DEADLINES_KEPT_MAX + 3
    assert not broker.runtime.has_work


def member_request(rng: random.Random, number: int) -> Request:
    """Something which a member of a classic group may send, at the right time or not."""
    group_id = rng.choice(("a", "b"))
    member_id = rng.choice(("", f"client-uuid{rng.randrange(number)}"))
    messages: dict[str, object] = {
        "classic_join": JoinGroupRequest(group_id, 6000, 6000, member_id, "consumer", (JoinProtocol("range", b""),)),
        "classic_sync": SyncGroupRequest(group_id, rng.randrange(1, 4), member_id),
        "classic_heartbeat": HeartbeatRequest(group_id, rng.randrange(1, 4), member_id),
    }
    operation = rng.choice(("classic_join", "classic_join", *messages))
    return Request(operation, messages[operation], number, rng.choice((3, 9)), new_uuid=f"uuid{number}")


@pytest.mark.parametrize("seed", range(60))
def test_whatever_fails_every_answer_is_kept(seed: int) -> None:  # noqa: C901  (one random walk: a branch for each event)
    """Random commits, transactions, failovers and lost replicas, on three brokers.

    Nobody is answered twice. An offset whose commit was confirmed is what the log says, or something later. After it
    is quiet, the coordinator's state is the replay of its log, and so is the committed one.
    """
    rng = random.Random(seed)
    log = PartitionLog(TOPIC, PARTITION, (0, 1, 2), min_insync_replicas=2)
    config = RuntimeConfig(append_linger_ms=rng.choice((None, None, 0, 5)))
    kind = GroupMachines()
    alive = {0, 1, 2}
    runtimes = {broker_id: CoordinatorRuntime(broker_id, kind, config) for broker_id in alive}
    runtimes[0].load(log, now_ms=START_MS)
    sent: dict[int, int] = {}
    answered: dict[int, Answer] = {}
    confirmed = 0
    now_ms = START_MS

    def take(answers: list[Answer]) -> None:
        nonlocal confirmed
        for answer in answers:
            assert answer.request_id not in answered
            answered[answer.request_id] = answer
            if answer.error is None and answer.request_id in sent:
                confirmed = max(confirmed, sent[answer.request_id])

    def elect(*durations_ms: int) -> bool:
        if log.elect_next(sorted(alive)) is None:
            return False
        assert log.leader is not None
        runtimes[log.leader].load(log, now_ms=now_ms, duration_ms=rng.choice(durations_ms))
        return True

    def run() -> None:
        for broker_id in sorted(alive):
            take(runtimes[broker_id].run(now_ms))

    for number in range(1, 150):
        now_ms += rng.randrange(20)
        target = log.leader if log.leader is not None and rng.random() < 0.9 else rng.choice(sorted(alive))
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                runtimes[target].submit(PARTITION, commit(number, number))
                sent[number] = number
            case 4:
                runtimes[target].submit(
                    PARTITION, Request("commit_transactional_offset", transactional_commit_request("x", number), number)
                )
            case 5:
                runtimes[target].submit(PARTITION, EndTransaction(PRODUCER, rng.random() < 0.5, 1, number))
            case 6:
                runtimes[target].submit(PARTITION, member_request(rng, number))
            case 7 | 8:
                log.fetch(rng.choice(sorted(alive)))
            case 9 if len(alive) > 1:
                gone = rng.choice(sorted(alive))
                alive.discard(gone)
                was_leader = gone == log.leader
                log.shrink_isr(gone)
                if was_leader:
                    elect(0, 10)
            case 10:
                back = rng.choice((0, 1, 2))
                if back not in alive:
                    alive.add(back)
                    runtimes[back] = CoordinatorRuntime(back, kind, config)
                    if log.leader is None:
                        elect(0)
            case 11 if log.leader in alive and rng.random() < 0.3:
                old = log.leader
                epoch = log.elect(rng.choice([member for member in log.isr if member in alive]))
                runtimes[log.leader].load(log, now_ms=now_ms)
                if log.leader != old:
                    take(runtimes[old].unload(PARTITION, epoch, now_ms=now_ms))
        if rng.random() < 0.7:
            run()
    for broker_id in (0, 1, 2):
        if broker_id not in alive:
            alive.add(broker_id)
            runtimes[broker_id] = CoordinatorRuntime(broker_id, kind, config)
    if log.leader is None:
        assert elect(0)
    for _ in range(4):
        now_ms += 10
        run()
        log.replicate((0, 1, 2))
    run()
    assert log.leader is not None
    leader = runtimes[log.leader]
    coordinator = leader.coordinators[PARTITION]
    assert coordinator.machine is not None
    assert coordinator.machine.state == load(kind, log)
    assert coordinator.committed_offset == log.end_offset
    fetch = Request("fetch_offsets", OffsetFetchRequest("g"), 10**6)
    (answer,) = leader.handle(PARTITION, fetch, now_ms=now_ms)
    topics = answer.response.topics
    assert (topics[0].partitions[0].committed_offset if topics else 0) >= confirmed
    assert confirmed > 0 or len(answered) > 10
