"""Tests of a coordinator whose log is replicated: what waits for the commit, and what a lost batch takes back."""

from collections.abc import Sequence

import pytest

from coordinator_core.bytes.codec import make
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.operation import Context, Outcome, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord, Producer
from coordinator_core.live.coordinator.shard import GroupCoordinator
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.classic import GROUP_METADATA_KEY, GROUP_METADATA_VALUE, MEMBER_METADATA
from schemas.consumer_offsets.consumer import CONSUMER_GROUP_METADATA_KEY, CONSUMER_GROUP_METADATA_VALUE
from schemas.error_codes import ErrorCode
from tests.coordinator_core.logs import CountingLog

NOW_MS = 1000
LOST = Refused(ErrorCode.NOT_ENOUGH_REPLICAS)


def classic(group_id: str, *member_ids: str) -> CoordinatorRecord:
    """A classic group at generation 7."""
    members = [make(MEMBER_METADATA, member_id=member_id, client_id="c", client_host="h") for member_id in member_ids]
    value = make(GROUP_METADATA_VALUE, protocol_type="consumer", generation=7, members=members)
    return CoordinatorRecord(RecordType.GROUP_METADATA, make(GROUP_METADATA_KEY, group=group_id), value, 3)


def consumer(group_id: str) -> CoordinatorRecord:
    """A consumer group at epoch 3."""
    key = make(CONSUMER_GROUP_METADATA_KEY, group_id=group_id)
    return CoordinatorRecord(RecordType.CONSUMER_GROUP_METADATA, key, make(CONSUMER_GROUP_METADATA_VALUE, epoch=3))


class Reported:
    """The arguments of `on_append`, with the time it saw."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, ErrorCode | None]] = []


def write(context: Context, records: Sequence[CoordinatorRecord]) -> Result:
    """Write, note how it went, and answer a request which is not this one."""

    def on_append(later: Context, error: Refused | None) -> None:
        later.live(Reported).lines.append((later.now_ms, None if error is None else error.code))
        later.complete(99, later.request_id)

    return Result(tuple(records), "written", on_append=on_append)


def write_each(context: Context, records: Sequence[CoordinatorRecord]) -> Result:
    """Write records which need not be in one batch."""
    return Result(tuple(records), "written", is_atomic=False)


def set_timers(context: Context, backoff_ms: int | None) -> Result:
    """Two timers, 10 and 20 ms from now."""
    context.schedule("a", 10, "ring", "a", retry_backoff_ms=backoff_ms)
    context.schedule("b", 20, "ring", "b", retry_backoff_ms=backoff_ms)
    return Result(response="set")


def ring(context: Context, name: str) -> Result:
    """A timer which writes a group."""
    return Result((classic(name),))


MODULE = GroupModule("test", {"write": write, "write_each": write_each, "set_timers": set_timers}, {"ring": ring})


def coordinator(log: CountingLog | None = None) -> GroupCoordinator:
    """A coordinator which defers."""
    return GroupCoordinator((MODULE,), now_ms=NOW_MS, log=log or CountingLog(), is_deferring=True)


def handle(under_test: GroupCoordinator, operation: str, request: object, now_ms: int = NOW_MS) -> Outcome:
    """Serve request number 1."""
    return under_test.handle(operation, request, now_ms=now_ms, request_id=1)


def test_what_follows_an_append_is_parked() -> None:
    """The records are in the log and replayed; the rest comes with `resume`, at its time."""
    under_test = coordinator()
    outcome = handle(under_test, "write", [classic("g")])
    assert (outcome.response, len(outcome.records), len(outcome.parked)) == ("written", 1, 1)
    assert under_test.group_ids() == ["g"]
    assert under_test.live(Reported).lines == []
    later = under_test.resume(outcome.parked[0], None, now_ms=NOW_MS + 50)
    assert under_test.live(Reported).lines == [(NOW_MS + 50, None)]
    assert [(completed.request_id, completed.response) for completed in later.completed] == [(99, 1)]
    assert outcome.completed == ()


def test_a_state_is_taken_back_with_its_live_groups() -> None:
    """Groups which the lost records made go, those which they removed or turned into another type come back."""
    under_test = coordinator()
    handle(under_test, "write", [classic("kept"), classic("turned"), consumer("other")])
    before = under_test.shard
    kept, turned = under_test.classic_groups["kept"], under_test.classic_groups["turned"]
    end = CoordinatorRecord(RecordType.GROUP_METADATA, make(GROUP_METADATA_KEY, group="turned"), None)
    handle(under_test, "write", [classic("new"), classic("other"), end, consumer("turned")])
    assert sorted(under_test.classic_groups) == ["kept", "new", "other"]
    under_test.revert(before)
    assert under_test.shard is before
    assert sorted(under_test.classic_groups) == ["kept", "turned"]
    assert under_test.classic_groups["kept"] is kept
    assert under_test.classic_groups["turned"] is turned


def test_a_live_group_with_members_outlives_its_record() -> None:
    """Whoever joined is answered by the operation that lost it, not dropped."""
    under_test = coordinator()
    before = under_test.shard
    handle(under_test, "write", [classic("g", "m")])
    under_test.revert(before)
    assert sorted(under_test.classic_groups) == ["g"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [(None, [NOW_MS + 20]), (LOST, [NOW_MS + 20, NOW_MS + 510]), (Refused(ErrorCode.NOT_COORDINATOR), [NOW_MS + 20])],
    ids=["committed", "lost", "moved away"],
)
def test_a_timer_whose_records_are_lost_rings_again(error: Refused | None, expected: list[int]) -> None:
    """After its back-off, unless another broker has the partition now."""
    under_test = coordinator()
    handle(under_test, "set_timers", 500)
    outcome = under_test.advance(NOW_MS + 10, timers_max=1)
    assert [fired.key for fired in outcome.fired] == ["a"]
    under_test.resume(outcome.parked[0], error, now_ms=NOW_MS + 10)
    rings = []
    while (deadline_ms := under_test.timers.next_deadline_ms()) is not None:
        rings.append(deadline_ms)
        under_test.advance(deadline_ms)
    assert rings == expected


class FullLog(CountingLog):
    """Takes so many records, then refuses."""

    room = 2

    def append(self, records: Sequence[CoordinatorRecord], producer: Producer, timestamp_ms: int) -> int:
        if self.next_offset + len(records) > self.room:
            raise LOST
        return super().append(records, producer, timestamp_ms)


def test_an_operation_of_several_batches_is_replayed_as_it_is_appended() -> None:
    """What a batch before took stays; an operation of one batch is all or nothing."""
    records = [classic("a"), classic("b"), classic("c")]
    whole, parts = coordinator(FullLog()), coordinator(FullLog())
    for under_test, operation, expected in ((whole, "write", []), (parts, "write_each", ["a", "b"])):
        outcome = handle(under_test, operation, records)
        assert outcome.error is not None
        assert outcome.error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert under_test.group_ids() == expected
        assert sorted(under_test.classic_groups) == expected


def test_records_one_by_one_have_consecutive_offsets() -> None:
    """As if they had been appended together."""
    under_test = coordinator()
    outcome = handle(under_test, "write_each", [classic("a"), consumer("b"), classic("c")])
    assert [entry.offset for entry in outcome.records] == [0, 1, 2]
    assert under_test.group_ids() == ["a", "b", "c"]
    assert sorted(under_test.classic_groups) == ["a", "c"]
