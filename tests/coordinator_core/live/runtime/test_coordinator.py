"""Tests of one coordinator: what waits for what, what a refused write takes back, loading and unloading."""

import pytest

from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.live.classic.messages import HeartbeatResponse, JoinGroupRequest
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.live.runtime.coordinator import RuntimeConfig
from coordinator_core.live.runtime.loader import load
from coordinator_core.live.runtime.machines import GroupMachine
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.runtime.states import CoordinatorState
from schemas.consumer_offsets import TOPIC
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.runtime.broker import PARTITION, Broker, commit_request

REPLICAS = (0, 1, 2)


def replicated(config: RuntimeConfig | None = None) -> Broker:
    """A leader with two followers, which fetch only when asked to."""
    return Broker(REPLICAS, min_insync_replicas=2, config=config)


def group_coordinator(broker: Broker) -> GroupCoordinator:
    """The live coordinator."""
    machine = broker.coordinator.machine
    assert isinstance(machine, GroupMachine)
    return machine.coordinator


def stable_member(broker: Broker) -> tuple[int, str]:
    """(generation, member id) of the one member of a Stable group `g`."""
    joined = broker.join()
    broker.replicate()
    broker.wait(0)
    answer = broker.answers[joined].response
    broker.sync(answer.generation_id, answer.member_id)
    broker.replicate()
    return answer.generation_id, answer.member_id


# --- commits ---


def test_a_write_is_answered_once_it_is_committed() -> None:
    """The record is in the leader's log at once."""
    broker = replicated()
    number = broker.commit()
    assert broker.log.end_offset == 1
    assert number not in broker.answers
    broker.replicate()
    assert broker.answers[number].response.topics[0].partitions[0].error_code == ErrorCode.NONE


# --- refused writes ---


def test_a_refused_batch_takes_the_state_back_and_fails_all_its_operations() -> None:
    """What came before stays; later writes go on from there."""
    broker = replicated()
    broker.commit(offset=1)
    broker.replicate()
    before = group_coordinator(broker).shard
    broker.log.shrink_isr(1)
    broker.log.shrink_isr(2)
    numbers = [broker.submit("commit_offset", commit_request(group, 9)) for group in ("g", "new")]
    broker.run()
    assert [broker.answers[number].error_code for number in numbers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert group_coordinator(broker).shard is before
    assert "new" not in group_coordinator(broker).classic_groups
    broker.replicate()
    broker.log.replicate(REPLICAS)
    number = broker.commit(offset=3)
    broker.log.replicate(REPLICAS)
    broker.run()
    assert broker.answers[number].error is None
    assert broker.offset(broker.fetch_offset()) == 3


# --- classic groups between append and commit ---


def test_a_join_whose_write_failed_is_not_answered_again() -> None:
    """It stays in the group, which goes on without telling: to the client the error was the answer."""
    broker = Broker(REPLICAS, min_insync_replicas=2, initial_rebalance_delay_ms=6000)
    first = broker.join()
    broker.replicate()
    broker.commit("other")
    second = broker.join()
    broker.wait(5000)
    assert broker.answers[second].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.replicate()
    broker.wait(60_000)
    broker.replicate()
    assert broker.answers[first].response.generation_id == 1
    assert len(broker.answers[first].response.members) == 2
    assert broker.answers[second].response is None


def test_an_answered_request_is_not_answered_by_the_loss_of_its_record() -> None:
    """The sync was answered with a rejoin while its record was on its way; that the record is lost is no news to it."""
    broker = replicated()
    joined = broker.join()
    broker.replicate()
    broker.wait(0)
    answer = broker.answers[joined].response
    number = broker.sync(answer.generation_id, answer.member_id)
    broker.join()
    broker.wait(5000)
    assert broker.answers[number].response.error_code == ErrorCode.REBALANCE_IN_PROGRESS


# --- loading ---


def test_while_the_log_is_loaded_clients_are_asked_for_patience() -> None:
    """Heartbeats of classic members are fine meanwhile."""
    log = Broker().log
    broker = Broker(load_ms=100, log=log)
    number = broker.commit()
    assert broker.answers[number].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.answers[broker.heartbeat(1, "m")].response == HeartbeatResponse()
    assert broker.answers[broker.end_transaction(is_commit=True)].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.runtime.next_deadline_ms() == broker.now_ms + 100
    broker.wait(99)
    before = broker.coordinator.state
    broker.wait(1)
    assert (before, broker.coordinator.state) == (CoordinatorState.LOADING, CoordinatorState.ACTIVE)
    assert broker.answers[broker.commit()].error is None


def test_what_is_not_committed_when_loaded_is_in_the_state_but_not_read() -> None:
    """The new leader has it in its log: it commits it, but does not tell before."""
    broker = replicated()
    broker.commit(offset=1)
    broker.replicate()
    broker.commit(offset=2)
    broker.log.fetch(1), broker.log.fetch(2)
    broker.log.shrink_isr(0)
    broker.log.elect(1)
    other = Broker((1,), log=broker.log)
    assert other.coordinator.committed_offset == 1
    number = other.fetch_offset()
    assert number not in other.answers
    other.replicate()
    assert other.offset(number) == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0\1\0", b"\0\1"), (b"\0\2\0\1g", b"\x7f\xff"), (b"\0\3\0\1g", b"\0\0")],
    ids=["a key cut short", "a value of an unknown version", "a value cut short"],
)
def test_a_log_which_cannot_be_read_fails_the_coordinator(key: bytes, value: bytes) -> None:
    """NOT_COORDINATOR until the broker leads in a later epoch, and the log is better then."""
    log = PartitionLog(TOPIC, PARTITION)
    log.append(0, build_batch([Record(0, 1, key, value)]))
    broker = Broker(log=log)
    assert broker.coordinator.state is CoordinatorState.FAILED
    assert broker.coordinator.load_error is not None
    assert broker.answers[broker.commit()].error_code == ErrorCode.NOT_COORDINATOR
    broker.runtime.load(log, now_ms=broker.now_ms)
    broker.run()
    assert broker.coordinator.state is CoordinatorState.FAILED
    log.delete_records(1)
    log.elect(0)
    broker.runtime.load(log, now_ms=broker.now_ms)
    assert broker.answers[broker.commit()].error is None


def test_a_record_of_an_unknown_type_is_passed_over() -> None:
    """A later Kafka may have written it."""
    log = PartitionLog(TOPIC, PARTITION)
    log.append(0, build_batch([Record(0, 1, b"\x03\xe7rest", b"\0\0")]))
    broker = Broker(log=log)
    assert broker.answers[broker.commit()].error is None


def test_a_contradictory_log_fails_the_coordinator() -> None:
    """Kafka's replay throws there."""
    broker = Broker()
    stable_member(broker)
    log = broker.log
    # ConsumerGroupMetadata of a group id which belongs to a classic group with a member
    log.append(0, build_batch([Record(0, 1, b"\0\3\0\1g", b"\0\0\0\0\0\1\0")]))
    log.elect(0)
    assert Broker(log=log).coordinator.state is CoordinatorState.FAILED


def test_a_broker_that_is_no_leader_any_more_when_loading_ends_fails() -> None:
    """It learns that soon enough; until then it refuses."""
    log = PartitionLog(TOPIC, PARTITION, (0, 1))
    broker = Broker(load_ms=10, log=log)
    log.elect(1)
    broker.wait(10)
    assert broker.coordinator.state is CoordinatorState.FAILED


# --- unloading ---


def test_an_unloaded_coordinator_answers_everybody_who_waits() -> None:
    """Writes which wait for a commit and parked joins alike get NOT_COORDINATOR."""
    broker = Broker(REPLICAS, min_insync_replicas=2, initial_rebalance_delay_ms=3000)
    joined = broker.join("waiting")
    broker.replicate()
    commit = broker.commit()
    queued = broker.submit("commit_offset", commit_request(offset=2))
    broker.log.shrink_isr(0)
    epoch = broker.log.elect(1)
    answers = {answer.request_id: answer for answer in broker.runtime.unload(PARTITION, epoch, now_ms=broker.now_ms)}
    assert {answer.error_code for answer in answers.values()} == {ErrorCode.NOT_COORDINATOR}
    assert answers.keys() == {joined, commit, queued}
    assert broker.runtime.coordinators == {}
    assert broker.answers[broker.commit()].error_code == ErrorCode.NOT_COORDINATOR
    assert broker.runtime.next_deadline_ms() is None


def test_old_news_of_another_leader_change_nothing() -> None:
    """An epoch in which this broker leads, or an earlier one."""
    broker = replicated()
    assert broker.runtime.unload(PARTITION, broker.log.leader_epoch, now_ms=broker.now_ms) == []
    assert broker.coordinator.state is CoordinatorState.ACTIVE
    assert broker.runtime.unload(99, None, now_ms=broker.now_ms) == []
    broker.runtime.unload(PARTITION, None, now_ms=broker.now_ms)
    assert broker.runtime.coordinators == {}


def test_a_log_somebody_else_wrote_to_is_loaded_again() -> None:
    """State and log are out of step: who waits is sent away, then all goes on from what the log tells."""
    broker = Broker()
    broker.commit(offset=1)
    foreign = next(iter(broker.log.batches())).data
    broker.log.append(0, foreign)
    number = broker.commit(offset=2)
    assert broker.answers[number].error_code == ErrorCode.NOT_COORDINATOR
    assert broker.coordinator.state is CoordinatorState.ACTIVE
    assert broker.answers[broker.commit(offset=3)].error is None
    assert broker.offset(broker.fetch_offset()) == 3
    assert group_coordinator(broker).shard == load(broker.kind, broker.log)


# --- the service ---


def test_what_needs_no_coordinator_is_answered_by_any_broker() -> None:
    """A session time-out out of bounds is refused wherever it comes."""
    broker = Broker()
    request = JoinGroupRequest("g", 1, 1, "", "consumer", ())
    broker.runtime.unload(PARTITION, None, now_ms=broker.now_ms)
    number = broker.send("classic_join", request)
    assert broker.answers[number].error_code == ErrorCode.INVALID_SESSION_TIMEOUT
