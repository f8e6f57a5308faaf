"""Any sequence of requests, failures and waits: what always holds of a live coordinator."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.live.classic.live import EMPTY, PREPARING_REBALANCE, STABLE, LiveClassicGroup
from coordinator_core.live.classic.messages import LeaveGroupRequest, MemberIdentity
from coordinator_core.live.state_dump import dump_shard
from coordinator_core.replay.dispatch import CoordinatorShard, replay_record
from schemas.error_codes import ErrorCode
from tests.coordinator_core.group_records import no_anomaly
from tests.coordinator_core.live.coordinator.clients import REBALANCE_TIMEOUT_MS, Clients
from tests.coordinator_core.logs import CountingLog

MEMBERS = 6
"""Requests name one of so many of the ids which were handed out, or one that nobody has."""

INSTANCES = st.sampled_from([None, None, "i", "j"])
PROTOCOLS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",)])
WHO = st.integers(0, MEMBERS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), INSTANCES, PROTOCOLS, st.sampled_from([3, 5, 9])),
        st.tuples(st.just("rejoin"), WHO, PROTOCOLS),
        st.tuples(st.just("sync"), WHO),
        st.tuples(st.just("heartbeat"), WHO),
        st.tuples(st.just("leave"), WHO),
        st.tuples(st.just("commit"), WHO),
        st.tuples(st.just("wait"), st.sampled_from([0, 1000, 3000, 9999, REBALANCE_TIMEOUT_MS])),
        st.tuples(st.just("fail")),
        st.tuples(st.just("reload")),
    ),
    max_size=40,
)


class Play:
    """Clients who do as the steps say, with the ids that they were given."""

    def __init__(self, delay_ms: int) -> None:
        self.clients = Clients(group_initial_rebalance_delay_ms=delay_ms, group_max_size=3)
        self.waiting: set[int] = set()

    def member(self, who: int) -> tuple[str, str | None]:
        """(member id, group instance id) of one of the members and pending ids."""
        group = self.clients.coordinator.classic_groups.get("g")
        known = [] if group is None else [*group.members.values()]
        ids = [(member.member_id, member.group_instance_id) for member in known]
        ids.extend((member_id, None) for member_id in (sorted(group.pending_join_members) if group else ()))
        return ids[who % len(ids)] if ids and who < MEMBERS else ("nobody", None)

    def generation(self) -> int:
        group = self.clients.coordinator.classic_groups.get("g")
        return 0 if group is None else group.generation_id

    def parked(self, member_id: str) -> set[int]:
        """Requests of a member which wait."""
        group = self.clients.coordinator.classic_groups.get("g")
        member = None if group is None else group.members.get(member_id)
        numbers = () if member is None else (member.awaiting_join, member.awaiting_sync)
        return {number for number in numbers if number is not None}

    def ask_again(self, member_id: str, ask: Callable[[], int]) -> None:
        """A client that asks again does not wait for its first answer; nor does Kafka give one."""
        before = self.parked(member_id)
        number = ask()
        self.waiting.add(number)
        if number in self.parked(member_id):
            self.waiting -= before - self.parked(member_id)

    def do(self, step: tuple[Any, ...]) -> None:
        clients = self.clients
        match step:
            case ("join", instance, protocols, api_version):
                self.waiting.add(clients.join(instance=instance, protocols=protocols, api_version=api_version))
            case ("rejoin", who, protocols):
                member_id, instance = self.member(who)
                self.ask_again(member_id, lambda: clients.join(member_id, instance=instance, protocols=protocols))
            case ("sync", who):
                member_id, instance = self.member(who)
                generation_id = self.generation()
                self.ask_again(
                    member_id, lambda: clients.sync(member_id, {}, instance=instance, generation_id=generation_id)
                )
            case ("heartbeat", who):
                member_id, instance = self.member(who)
                clients.heartbeat(member_id, instance=instance, generation_id=self.generation())
            case ("leave", who):
                clients.ask("classic_leave", LeaveGroupRequest("g", (MemberIdentity(*self.member(who)),)))
            case ("commit", who):
                member_id, instance = self.member(who)
                clients.commit(
                    generation_id_or_member_epoch=self.generation(), member_id=member_id, group_instance_id=instance
                )
            case ("wait", delay_ms):
                clients.wait(delay_ms)
            case ("fail",):
                clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
            case ("reload",):
                clients.coordinator.reload(now_ms=clients.now_ms)
                self.waiting.clear()
        self.waiting -= clients.answers.keys()

    def replayed(self) -> CoordinatorShard:
        """A fresh shard after the log."""
        shard = CoordinatorShard()
        assert isinstance(self.clients.coordinator.log, CountingLog)
        for entry in self.clients.records:
            shard = replay_record(
                shard,
                entry.record.record_type,
                entry.record.key,
                entry.record.value,
                offset=entry.offset,
                report=no_anomaly,
            )
        return shard


def check(group: LiveClassicGroup, waiting: set[int]) -> None:
    """What holds of a classic group between any two steps."""
    members = group.members.values()
    counts = Counter(name for member in members for name, _ in member.protocols)
    assert +group.supported_protocols == counts
    instances = {member.group_instance_id: member.member_id for member in members if member.group_instance_id}
    assert group.static_members == instances
    assert (group.leader in group.members) if members else group.leader is None
    assert not group.pending_join_members & group.members.keys()
    assert (group.state == EMPTY) <= (not members)
    parked = [number for member in members for number in (member.awaiting_join, member.awaiting_sync)]
    assert {number for number in parked if number is not None} == waiting
    if group.state != PREPARING_REBALANCE:
        assert all(member.awaiting_join is None for member in members)
    if group.state == STABLE:
        assert all(member.awaiting_sync is None for member in members)


@given(STEPS, st.sampled_from([0, 3000]))
def test_what_always_holds(steps: list[tuple[Any, ...]], delay_ms: int) -> None:
    """Counts and maps agree; whoever waits is parked in the group; the log alone gives the persisted state.

    That nobody is answered twice is seen to by `Clients`.
    """
    play = Play(delay_ms)
    coordinator = play.clients.coordinator
    for step in steps:
        play.do(step)
        group = coordinator.classic_groups.get("g")
        if group is None:
            assert play.waiting == set()
        else:
            check(group, play.waiting)
    assert dump_shard(play.replayed()) == dump_shard(coordinator.shard)


@given(STEPS, st.sampled_from([0, 3000]))
def test_a_group_that_is_left_alone_ends_empty(steps: list[tuple[Any, ...]], delay_ms: int) -> None:
    """Every request is answered in the end, all sessions end, and what is live is what is written.

    Unless a write failed: the end of a group may be what is missing in the log.
    """
    play = Play(delay_ms)
    for step in steps:
        play.do(step)
    play.clients.log.next_error = None
    for _ in range(20):
        play.do(("wait", 10 * REBALANCE_TIMEOUT_MS))
    assert play.waiting == set()
    coordinator = play.clients.coordinator
    group = coordinator.classic_groups.get("g")
    assert group is None or (group.state == EMPTY and not group.members and not group.pending_join_members)
    live = coordinator.dump()
    coordinator.reload(now_ms=play.clients.now_ms)
    assert coordinator.dump() == live or ("fail",) in steps
