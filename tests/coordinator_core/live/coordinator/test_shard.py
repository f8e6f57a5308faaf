"""Tests of the frame of the live coordinator, with a group type of our own making."""

from collections.abc import Sequence

import pytest

from coordinator_core.bytes.codec import make
from coordinator_core.errors import ContradictoryRecord
from coordinator_core.live.coordinator.errors import Refused, UnknownOperation
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.operation import NOTHING, Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord, Producer
from coordinator_core.live.coordinator.shard import GroupCoordinator
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.classic import GROUP_METADATA_KEY, GROUP_METADATA_VALUE
from schemas.consumer_offsets.consumer import CONSUMER_GROUP_METADATA_KEY, CONSUMER_GROUP_METADATA_VALUE
from schemas.error_codes import ErrorCode
from tests.coordinator_core.logs import CountingLog


def classic_record(group_id: str, *, tombstone: bool = False) -> CoordinatorRecord:
    """A group without members, or its end."""
    value = make(GROUP_METADATA_VALUE, protocol_type="consumer", generation=7)
    return CoordinatorRecord(
        RecordType.GROUP_METADATA, make(GROUP_METADATA_KEY, group=group_id), None if tombstone else value, 3
    )


def consumer_record(group_id: str) -> CoordinatorRecord:
    """A consumer group at epoch 3."""
    return CoordinatorRecord(
        RecordType.CONSUMER_GROUP_METADATA,
        make(CONSUMER_GROUP_METADATA_KEY, group_id=group_id),
        make(CONSUMER_GROUP_METADATA_VALUE, epoch=3),
    )


class Memory:
    """Live state of the group type."""

    def __init__(self) -> None:
        self.seen: list[object] = []


def write(context: Context, records: tuple[CoordinatorRecord, ...]) -> Result:
    def on_append(later: Context, error: Refused | None) -> None:
        context.live(Memory).seen.append(None if error is None else error.code)
        later.complete(context.request_id, "late answer")

    return Result(records, "written", on_append=on_append)


def refuse(context: Context, request: object) -> Result:
    raise Refused(ErrorCode.ILLEGAL_GENERATION)


def schedule(context: Context, delays_ms: tuple[int, ...]) -> Result:
    for delay_ms in delays_ms:
        context.schedule(f"key-{delay_ms}", delay_ms, "ring", delay_ms, retry_backoff_ms=500)
    return Result(response="scheduled")


def ring(context: Context, delay_ms: int) -> Result:
    context.live(Memory).seen.append((context.now_ms, delay_ms))
    return Result((classic_record(f"group-{delay_ms}"),))


def queue(context: Context, key: str) -> Result:
    return Result(response=context.schedule_task(key, "work", key))


def work(context: Context, key: str) -> Result:
    context.live(Memory).seen.append(key)
    return Result((classic_record(key),))


def on_loaded(context: Context) -> None:
    context.live(Memory).seen.append(("loaded", context.now_ms))


def on_metadata(context: Context, topics: frozenset[str]) -> None:
    assert topics <= set(context.image.topics)
    context.live(Memory).seen.append(sorted(topics))


MODULE = GroupModule(
    "test",
    commands={"write": write, "refuse": refuse, "schedule": schedule, "queue": queue},
    timers={"ring": ring},
    tasks={"work": work},
    on_loaded=on_loaded,
    on_metadata=on_metadata,
)


class RefusingLog(CountingLog):
    """A log whose next append fails, once."""

    def __init__(self) -> None:
        super().__init__()
        self.is_refusing = True

    def append(self, records: Sequence[CoordinatorRecord], producer: Producer, timestamp_ms: int) -> int:
        if self.is_refusing:
            self.is_refusing = False
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        return super().append(records, producer, timestamp_ms)


def test_tasks_run_once_in_order() -> None:
    """A key that is queued is not queued again."""
    coordinator = GroupCoordinator([MODULE], now_ms=0, log=CountingLog())
    queued = [coordinator.handle("queue", key, now_ms=1).response for key in ("b", "a", "b")]
    assert queued == [True, True, False]
    assert coordinator.run_tasks(5).tasks == ("b", "a")
    assert coordinator.run_tasks(6).tasks == ()
    assert coordinator.group_ids() == ["a", "b"]


def test_a_task_that_fails_is_dropped() -> None:
    """As in Kafka, whoever queued it queues it again when it is needed; the others run."""
    coordinator = GroupCoordinator([MODULE], now_ms=0, log=RefusingLog())
    for key in ("b", "a"):
        coordinator.handle("queue", key, now_ms=1)
    assert coordinator.run_tasks(5).tasks == ("b", "a")
    assert coordinator.group_ids() == ["a"]


def test_a_timer_without_back_off_is_dropped_when_it_fails() -> None:
    """It has run."""
    log = RefusingLog()
    coordinator = GroupCoordinator([MODULE], now_ms=0, log=log)
    coordinator.timers.schedule("once", 10, "ring", (10,))
    assert [fired.key for fired in coordinator.advance(10).fired] == ["once"]
    assert coordinator.advance(10_000).fired == ()
    assert coordinator.group_ids() == []


def test_an_overdue_timer_does_not_run_in_the_past() -> None:
    """Time goes on with requests; a timer that became due meanwhile runs at the time of the last one."""
    coordinator = GroupCoordinator([MODULE], now_ms=0, log=CountingLog())
    coordinator.handle("schedule", (10,), now_ms=0)
    coordinator.handle("queue", "a", now_ms=15)
    outcome = coordinator.advance(20)
    assert [fired.at_ms for fired in outcome.fired] == [10]
    assert [entry.timestamp_ms for entry in outcome.records] == [15]


def test_an_unloaded_coordinator_does_nothing_more() -> None:
    """Its modules are called first; then timers and tasks are gone."""
    reported = []
    module = GroupModule("other", on_unloaded=lambda context: reported.append(context.now_ms))
    coordinator = GroupCoordinator([MODULE, module], now_ms=0, log=CountingLog())
    coordinator.handle("schedule", (10,), now_ms=0)
    coordinator.handle("queue", "a", now_ms=0)
    coordinator.unload(now_ms=5)
    assert reported == [5]
    assert coordinator.advance(100).fired == ()
    assert coordinator.run_tasks(100).tasks == ()


def test_a_command_without_response_answers_a_failed_append_itself() -> None:
    """Then the outcome has no error of its own."""
    reported: list[ErrorCode | None] = []

    def park(context: Context, request: object) -> Result:
        return Result(
            (classic_record("a"),),
            on_append=lambda later, error: reported.append(None if error is None else error.code),
        )

    module = GroupModule("parking", commands={"park": park})
    coordinator = GroupCoordinator([module], now_ms=0, log=RefusingLog())
    assert coordinator.handle("park", None, now_ms=1).error is None
    assert coordinator.handle("park", None, now_ms=1).error is None
    assert reported == [ErrorCode.COORDINATOR_NOT_AVAILABLE, None]


def test_live_classic_groups_follow_the_records() -> None:
    """A group that is deleted, or becomes one of another type, is live no more."""
    coordinator = GroupCoordinator([MODULE], now_ms=0, log=CountingLog())
    coordinator.handle("write", (classic_record("a"), classic_record("b")), now_ms=1)
    tombstones = (classic_record("a", tombstone=True), classic_record("b", tombstone=True), consumer_record("b"))
    coordinator.handle("write", tombstones, now_ms=2)
    assert coordinator.classic_groups == {}
    assert coordinator.group("a") is None
    assert coordinator.dump()["b"]["group"]["type"] == "consumer"


def test_mistakes_of_who_writes_commands_are_raised() -> None:
    """An operation nobody serves, one that two serve, and a record which contradicts the state."""
    coordinator = GroupCoordinator([MODULE], now_ms=0, log=CountingLog())
    with pytest.raises(UnknownOperation):
        coordinator.handle("fly", None, now_ms=1)
    with pytest.raises(UnknownOperation):
        coordinator.rules_of(object())
    with pytest.raises(ValueError, match="queue"):
        GroupCoordinator([MODULE, MODULE], now_ms=0, log=CountingLog())
    coordinator.handle("write", (classic_record("a"),), now_ms=1)
    before = coordinator.shard
    with pytest.raises(ContradictoryRecord):
        coordinator.handle("write", (consumer_record("a"),), now_ms=2)
    assert coordinator.shard is before
    assert NOTHING.records == ()
