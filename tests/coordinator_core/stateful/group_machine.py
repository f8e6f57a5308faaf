"""What every machine of a live group coordinator has: the coordinator, its log, a clock, and what holds of any group.

A machine sends random requests, lets time pass, lets the log refuse what is appended, and reloads. After each step
hold, by the names of their methods:

- `log_tells_the_state`: the state is what the bytes of the log give, and nothing else.
- `epochs_never_fall`: what the records of a group count (`epochs_of`) only goes up, as long as the group lives.
- `members_are_timed`: every member is found dead in the end; where the log refused, a timer may be lost until the
  member's next sign of life, as in Kafka.
- `timers_are_in_the_future`: whatever was due has run.

At the end `settle` sees that members who follow the protocol get what they are to get, and `rest` that the group comes
to rest: pending requests are answered, and silent members are gone.
"""

import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from coordinator_core.bytes.codec import decode_key, decode_value
from coordinator_core.live.coordinator.records import AppendedRecord, encode_record
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.replay.dispatch import CoordinatorShard, replay_record
from schemas.consumer_offsets import TOPIC
from schemas.error_codes import ErrorCode
from tests.coordinator_core.group_records import no_anomaly
from tests.coordinator_core.live.coordinator.clients import GROUP, Clients

STEP_COUNT = 40

NEVER_MIND = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def live_at_random(machine: type[RuleBasedStateMachine], base: settings, **more: Any) -> None:
    """Random lives of a machine; the first fault ends them with its exception."""
    more.setdefault("stateful_step_count", STEP_COUNT)
    run_state_machine_as_test(
        machine,
        settings=settings(
            base, database=None, suppress_health_check=NEVER_MIND, deadline=None, report_multiple_bugs=False, **more
        ),
    )


def replayed(shard: CoordinatorShard, entry: AppendedRecord) -> CoordinatorShard:
    """The shard after the bytes of a record, which must not contradict it."""
    key, value = encode_record(entry.record)
    record_type, key_fields = decode_key(TOPIC, key).record_type, decode_key(TOPIC, key).fields
    return replay_record(
        shard,
        record_type,
        key_fields,
        None if value is None else decode_value(TOPIC, record_type, value).fields,
        offset=entry.offset,
        producer_id=entry.producer.producer_id,
        report=no_anomaly,
    )


class GroupMachine(RuleBasedStateMachine):
    """One group of one live coordinator. A subclass calls `begin_with` in its `initialize`."""

    def begin_with(self, clients: Clients) -> None:
        self.clients = clients
        self.log_shard = CoordinatorShard()
        self.log_count = 0
        self.epochs: Mapping[str, int] = {}
        self.untimed: set[str] = set()
        self.is_refusing = False

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.clients.coordinator

    @property
    def group(self) -> Any:
        """The group of the id, or None."""
        return self.coordinator.group(GROUP)

    # --- what any coordinator meets with ---

    @rule(delay_ms=st.sampled_from([1, 500, 1000, 3000, 6000, 9999, 20_000, 60_000]))
    def wait(self, delay_ms: int) -> None:
        self.clients.wait(delay_ms)

    @rule()
    def refuse_the_next_append(self) -> None:
        self.clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
        self.is_refusing = True

    @rule()
    def reload(self) -> None:
        """Another broker takes over: all that no record tells is lost."""
        self.coordinator.reload(now_ms=self.clients.now_ms)
        self.untimed.clear()
        self.forget()

    def accept_appends(self) -> None:
        """The log is well again."""
        self.clients.log.next_error = None
        self.is_refusing = False

    # --- what must hold ---

    @invariant()
    def log_tells_the_state(self) -> None:
        entries = self.clients.log.entries
        for entry in entries[self.log_count :]:
            assert isinstance(entry, AppendedRecord)
            assert entry.timestamp_ms <= self.clients.now_ms
            self.log_shard = replayed(self.log_shard, entry)
        self.log_count = len(entries)
        assert self.log_shard == self.coordinator.shard

    @invariant()
    def epochs_never_fall(self) -> None:
        epochs = self.epochs_of(self.coordinator.shard.groups.groups.get(GROUP))
        for name, epoch in epochs.items():
            assert epoch >= self.epochs.get(name, epoch), name
        self.epochs = epochs

    @invariant()
    def members_are_timed(self) -> None:
        was_refusing, self.is_refusing = self.is_refusing, self.clients.log.next_error is not None
        missing = {key for key in self.timer_keys() if self.coordinator.timers.get(key) is None}
        if was_refusing and not self.is_refusing:
            self.untimed |= missing
        assert missing <= self.untimed
        self.untimed = missing

    @invariant()
    def timers_are_in_the_future(self) -> None:
        next_ms = self.coordinator.timers.next_deadline_ms()
        assert next_ms is None or next_ms >= self.clients.now_ms

    def teardown(self) -> None:
        if sys.exc_info()[0] is None and hasattr(self, "clients"):
            self.accept_appends()
            self.settle()
            self.rest()
            self.log_tells_the_state()

    # --- what a type of groups says ---

    def forget(self) -> None:
        """The coordinator was loaded again: nobody gets an answer to what was asked before."""

    @abstractmethod
    def epochs_of(self, group: Any) -> dict[str, int]:
        """Name -> what never falls, of the group as the records have it; nothing of a group that is not there."""

    @abstractmethod
    def timer_keys(self) -> Iterator[str]:
        """Keys of the timers which have to run now."""

    @abstractmethod
    def settle(self) -> None:
        """All follow the protocol, and nothing fails. A rule of each machine, too."""

    @abstractmethod
    def rest(self) -> None:
        """Nobody does anything any more."""
