"""A classic group under random requests: members join, sync, heartbeat, commit and leave, in time, late, or not at all.

In addition to what is true of any group (`group_machine`), by the names of their methods:

- `whoever_waits_is_parked`: a request without an answer is that of a member, once; no request is answered twice.
- `answers_are_right`: in a generation all get one protocol and one leader, who alone gets the members;
  a member is assigned what the leader of the generation gave it.
- `group_is_consistent`: counts and maps agree with the members; the leader is one of them; the protocol is everybody's.
- `stable_is_persisted`: while the group is Stable, a reload changes nothing but the protocols which were not chosen.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from coordinator_core.live.classic.live import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    LiveClassicGroup,
)
from coordinator_core.live.classic.messages import JoinGroupResponse, LeaveGroupRequest, MemberIdentity
from coordinator_core.live.classic.timers import heartbeat_key, join_key, sync_key
from coordinator_core.replay.classic.state import ClassicGroup
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP, REBALANCE_TIMEOUT_MS, Clients
from tests.coordinator_core.stateful.group_machine import GroupMachine

KNOWN_MAX = 2
"""Requests name a member, one of so many of the ids which were handed out last, or one that nobody has."""
WHO_MAX = 7
WHO = st.integers(0, WHO_MAX)
INSTANCES = st.sampled_from([None, None, None, "i", "j"])
PROTOCOLS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",)])
API_VERSIONS = st.sampled_from([3, 5, 9])
WAIT_MS = 1000
INITIAL_DELAY_MS = 3000
NO_SUCH_GENERATION = 99_999
ROUNDS_MAX = 8
OLD_API_VERSION = 3
"""JoinGroup: a new member is taken in at once."""
SILENCE_MS = 10 * REBALANCE_TIMEOUT_MS


class Asked(NamedTuple):
    """A request: who asked, and in which generation. `instance` is the group instance id, if any."""

    kind: str
    member_id: str
    instance: str | None
    generation_id: int


def assignment_of(generation_id: int, member_id: str, instance: str | None) -> bytes:
    """What the leader of a generation gives a member, and nobody else."""
    return f"{generation_id}/{instance or member_id}".encode()


class ClassicMachine(GroupMachine):
    """Clients of one classic group."""

    @initialize(delay_ms=st.sampled_from([0, INITIAL_DELAY_MS]), size_max=st.sampled_from([2, 4, 4]))
    def begin(self, delay_ms: int, size_max: int) -> None:
        self.begin_with(Clients(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size_max))
        self.known: list[tuple[str, str | None]] = []
        self.asked: dict[int, Asked] = {}
        self.waiting: set[int] = set()
        self.protocol_of: dict[int, str | None] = {}

    @property
    def live(self) -> LiveClassicGroup | None:
        return self.coordinator.classic_groups.get(GROUP)

    # --- requests ---

    @rule(instance=INSTANCES, protocols=PROTOCOLS, api_version=API_VERSIONS)
    def join(self, instance: str | None, protocols: tuple[str, ...], api_version: int) -> None:
        self.join_as("", instance, protocols, api_version)

    @rule(count=st.integers(2, 4), protocols=PROTOCOLS, are_static=st.booleans())
    def join_together(self, count: int, protocols: tuple[str, ...], are_static: bool) -> None:
        """Several members at once, as when an application starts, and the time that the first rebalance waits."""
        taken = set() if self.live is None else set(self.live.static_members)
        for instance in ("i", "j", None, None)[:count]:
            is_static = are_static and instance not in taken
            self.join_as("", instance if is_static else None, protocols, OLD_API_VERSION)
        for _ in range(2):
            self.clients.wait(INITIAL_DELAY_MS)

    @precondition(lambda self: self.live is not None)
    @rule()
    def followers_sync(self) -> None:
        """All wait for what the leader makes of it."""
        group = self.live
        assert group is not None
        for member in tuple(group.members.values()):
            if member.member_id != group.leader:
                self.sync_as(member.member_id, member.group_instance_id, group.generation_id)

    @precondition(lambda self: self.live is not None and self.live.static_members)
    @rule(who=WHO, protocols=PROTOCOLS, api_version=API_VERSIONS, is_refused=st.booleans())
    def come_back(self, who: int, protocols: tuple[str, ...], api_version: int, is_refused: bool) -> None:
        """A process with an instance id starts again, and does not know its member id."""
        group = self.live
        assert group is not None
        instances = sorted(group.static_members)
        if is_refused:
            self.refuse_the_next_append()
        self.join_as("", instances[who % len(instances)], protocols, api_version)

    @precondition(lambda self: self.known or self.live)
    @rule(who=WHO, protocols=PROTOCOLS, api_version=API_VERSIONS)
    def rejoin(self, who: int, protocols: tuple[str, ...], api_version: int) -> None:
        self.join_as(*self.member(who), protocols, api_version)

    def join_as(self, member_id: str, instance: str | None, protocols: tuple[str, ...], api_version: int) -> None:
        def send() -> int:
            return self.clients.join(member_id, instance=instance, protocols=protocols, api_version=api_version)

        self.ask("join", member_id, instance, send)

    @precondition(lambda self: self.known or self.live)
    @rule(who=WHO, is_late=st.sampled_from([False, False, False, True]))
    def sync(self, who: int, is_late: bool) -> None:
        member_id, instance = self.member(who)
        self.sync_as(member_id, instance, self.generation_of(is_late))

    def sync_as(self, member_id: str, instance: str | None, generation_id: int) -> None:
        """A leader sends what it assigns; another member sends nonsense, which nobody must get."""
        group = self.live
        members = () if group is None else group.members.values()
        is_leader = group is not None and group.leader == member_id
        given = {
            member.member_id: assignment_of(generation_id, member.member_id, member.group_instance_id)
            if is_leader
            else b"nonsense"
            for member in members
        }
        is_refusing = self.clients.log.next_error is not None
        synced = [member for member in members if member.awaiting_sync is not None]
        self.ask(
            "sync",
            member_id,
            instance,
            lambda: self.clients.sync(member_id, given, instance=instance, generation_id=generation_id),
        )
        for member in synced:
            if member.awaiting_sync is None:
                timer = self.coordinator.timers.get(heartbeat_key(GROUP, member.member_id))
                assert timer is not None
                assert timer.deadline_ms == self.clients.now_ms + member.session_timeout_ms
        if is_refusing and self.clients.log.next_error is None:
            answer = self.clients.answers[self.clients.request_count]
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    @precondition(lambda self: self.known or self.live)
    @rule(who=WHO, is_late=st.sampled_from([False, False, False, True]))
    def heartbeat(self, who: int, is_late: bool) -> None:
        """A sign of life counts from a member of the present generation only."""
        member_id, instance = self.member(who)
        generation_id = self.generation_of(is_late)
        code = self.clients.heartbeat(member_id, instance=instance, generation_id=generation_id)
        group = self.live
        member = None if group is None else group.members.get(member_id)
        if member is None or group is None:
            assert code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
            return
        if is_late:
            assert code == ErrorCode.ILLEGAL_GENERATION
            return
        assert code == (ErrorCode.REBALANCE_IN_PROGRESS if group.state == PREPARING_REBALANCE else ErrorCode.NONE)
        timer = self.coordinator.timers.get(heartbeat_key(GROUP, member_id))
        assert timer is not None
        assert timer.deadline_ms == self.clients.now_ms + member.session_timeout_ms

    @precondition(lambda self: self.known or self.live)
    @rule(who=WHO, is_late=st.sampled_from([False, False, True]))
    def commit(self, who: int, is_late: bool) -> None:
        """A member of the present generation commits; nobody else does."""
        member_id, instance = self.member(who)
        group = self.live
        is_member = group is not None and member_id in group.members
        before = self.coordinator.shard.offsets
        self.clients.commit(
            generation_id_or_member_epoch=self.generation_of(is_late),
            member_id=member_id,
            group_instance_id=instance,
            offset=self.clients.request_count,
        )
        if is_late or not is_member:
            assert self.coordinator.shard.offsets == before, "a commit of nobody"

    @precondition(lambda self: self.known or self.live)
    @rule(who=WHO)
    def leave(self, who: int) -> None:
        member_id, instance = self.member(who)
        if self.live is not None:
            self.leave_as(member_id, instance)
            group = self.live
            assert group is None or member_id not in {*group.members, *group.pending_join_members}
            self.waiting -= {number for number in self.waiting if self.asked[number].kind == "sync"} - self.parked()

    def leave_as(self, member_id: str, instance: str | None) -> None:
        """The log may refuse the end of the group; who leaves is gone all the same."""
        self.clients.ask("classic_leave", LeaveGroupRequest(GROUP, (MemberIdentity(member_id, instance),)))

    @precondition(lambda self: self.live is not None)
    @rule(delay_ms=st.sampled_from([1, 3000, 9000]))
    def wait_while_all_are_well(self, delay_ms: int) -> None:
        """Before their sessions end, nobody of a Stable group goes."""
        group = self.live
        assert group is not None
        timers = [self.coordinator.timers.get(heartbeat_key(GROUP, member_id)) for member_id in group.members]
        end_ms = self.clients.now_ms + delay_ms
        is_well = group.state == STABLE and all(timer is not None and timer.deadline_ms > end_ms for timer in timers)
        members, generation_id = set(group.members), group.generation_id
        self.clients.wait(delay_ms)
        if is_well:
            assert (set(group.members), group.generation_id, group.state) == (members, generation_id, STABLE)

    @precondition(lambda self: self.live is not None)
    @rule()
    def settle(self) -> None:
        """Members who follow the protocol make a Stable group, within a few rounds."""
        self.accept_appends()
        for _ in range(ROUNDS_MAX):
            group = self.live
            if group is None or self.is_settled(group):
                return
            self.play_a_round(group)
            self.check_invariants_now()
        raise AssertionError("the group does not settle")

    def play_a_round(self, group: LiveClassicGroup) -> None:
        for member_id in sorted(group.pending_join_members):
            self.leave_as(member_id, None)
        for member in tuple(group.members.values()):
            if group.state == PREPARING_REBALANCE and member.awaiting_join is None:
                names = tuple(name for name, _ in member.protocols)
                self.join_as(member.member_id, member.group_instance_id, names, OLD_API_VERSION)
        waited_ms = 0
        while group.state == PREPARING_REBALANCE and waited_ms <= REBALANCE_TIMEOUT_MS:
            self.clients.wait(WAIT_MS)
            waited_ms += WAIT_MS
        for member in tuple(group.members.values()):
            if group.state in {COMPLETING_REBALANCE, STABLE} and member.awaiting_sync is None:
                self.sync_as(member.member_id, member.group_instance_id, group.generation_id)

    def is_settled(self, group: LiveClassicGroup) -> bool:
        if not group.members:
            return True
        return group.state == STABLE and all(
            member.assignment.endswith(f"/{member.group_instance_id or member.member_id}".encode())
            for member in group.members.values()
        )

    def forget(self) -> None:
        self.waiting.clear()
        self.protocol_of.clear()

    # --- clients ---

    @property
    def generation_id(self) -> int:
        return 0 if self.live is None else self.live.generation_id

    def generation_of(self, is_late: bool) -> int:
        """The present generation, or the one before; where there is none, one that never was."""
        before = self.generation_id - 1 if self.generation_id > 0 else NO_SUCH_GENERATION
        return before if is_late else self.generation_id

    def member(self, who: int) -> tuple[str, str | None]:
        """(member id, group instance id) of a member, or of one from before, or of nobody."""
        members = () if self.live is None else self.live.members.values()
        ids = [(member.member_id, member.group_instance_id) for member in members] + self.known[-KNOWN_MAX:]
        return ids[who % len(ids)] if ids and who < WHO_MAX else ("nobody", None)

    def parked(self, member_id: str | None = None) -> set[int]:
        """Requests which wait in the group, all or those of one member."""
        members = () if self.live is None else self.live.members.values()
        return {
            number
            for member in members
            if member_id in {None, member.member_id}
            for number in (member.awaiting_join, member.awaiting_sync)
            if number is not None
        }

    def ask(self, kind: str, member_id: str, instance: str | None, send: Callable[[], int]) -> None:
        """Send a request. A client that asks again does not wait for its first answer; nor does Kafka give one."""
        before, generation_id = self.parked(member_id), self.generation_id
        self.asked[self.clients.request_count + 1] = Asked(kind, member_id, instance, generation_id)
        number = send()
        self.waiting.add(number)
        after, answer = self.parked(member_id), self.clients.answers.get(number)
        if number in after or (answer is not None and answer.error_code == ErrorCode.NONE):
            self.waiting -= before - after - self.clients.answers.keys()

    # --- what must hold ---

    def check_invariants_now(self) -> None:
        """Between the parts of a rule, what must hold between rules."""
        self.answers_are_right()
        self.whoever_waits_is_parked()
        self.group_is_consistent()

    @invariant()
    def answers_are_right(self) -> None:
        joined = []
        for number in sorted(self.waiting & self.clients.answers.keys()):
            asked, answer = self.asked[number], self.clients.answers[number]
            if isinstance(answer, JoinGroupResponse):
                self.learn(asked, answer)
                if answer.error_code == ErrorCode.NONE:
                    joined.append(answer)
            elif answer.error_code == ErrorCode.NONE:
                expected = assignment_of(asked.generation_id, asked.member_id, asked.instance)
                assert answer.assignment == expected, "what another member is to do"
        self.waiting -= self.clients.answers.keys()
        leaders = [answer for answer in joined if answer.members]
        assert len({answer.generation_id for answer in leaders}) == len(leaders), "two leaders"
        for answer in joined:
            assert self.protocol_of.setdefault(answer.generation_id, answer.protocol_name) == answer.protocol_name
        for answer in leaders:
            assert answer.leader == answer.member_id
            ids = [member.member_id for member in answer.members]
            assert len(ids) == len(set(ids))
            assert answer.member_id in ids

    def learn(self, asked: Asked, answer: JoinGroupResponse) -> None:
        member_id = (answer.member_id, asked.instance)
        if answer.member_id and member_id not in self.known:
            self.known.append(member_id)

    @invariant()
    def whoever_waits_is_parked(self) -> None:
        assert self.parked() == self.waiting - self.clients.answers.keys()

    @invariant()
    def group_is_consistent(self) -> None:
        group = self.live
        if group is None:
            return
        members = group.members.values()
        assert +group.supported_protocols == Counter(name for member in members for name, _ in member.protocols)
        instances = {member.group_instance_id: member.member_id for member in members if member.group_instance_id}
        assert group.static_members == instances
        assert (group.leader in group.members) if members else group.leader is None
        assert not group.pending_join_members & group.members.keys()
        assert len(group.members) <= max(self.coordinator.config.group_max_size, 1) or group.state != STABLE
        assert (group.state == EMPTY) <= (not members)
        if group.state != PREPARING_REBALANCE:
            assert all(member.awaiting_join is None for member in members)
        if group.state != COMPLETING_REBALANCE:
            assert all(member.awaiting_sync is None for member in members)
        if group.state in {COMPLETING_REBALANCE, STABLE}:
            assert all(group.protocol_name in {name for name, _ in member.protocols} for member in members)

    @invariant()
    def stable_is_persisted(self) -> None:
        persisted = self.coordinator.shard.groups.groups.get(GROUP)
        if self.live is None or self.live.state != STABLE:
            return
        assert isinstance(persisted, ClassicGroup)
        after, now = LiveClassicGroup.of(persisted), self.live
        for name in ("state", "generation_id", "protocol_type", "protocol_name", "leader", "static_members"):
            assert getattr(after, name) == getattr(now, name), name
        assert after.subscribed_topics == now.subscribed_topics
        assert after.members.keys() == now.members.keys()
        for member_id, member in after.members.items():
            chosen = tuple(pair for pair in now.members[member_id].protocols if pair[0] == now.protocol_name)
            assert member == replace(now.members[member_id], protocols=chosen)

    def epochs_of(self, group: Any) -> dict[str, int]:
        return {"generation": group.generation_id} if isinstance(group, ClassicGroup) else {}

    @invariant()
    def live_is_not_behind_the_log(self) -> None:
        persisted = self.coordinator.shard.groups.groups.get(GROUP)
        if isinstance(persisted, ClassicGroup) and self.live is not None:
            assert self.live.generation_id >= persisted.generation_id

    def timer_keys(self) -> Iterator[str]:
        group = self.live
        if group is None:
            return
        for member in group.members.values():
            if not member.has_satisfied_heartbeat:
                yield heartbeat_key(GROUP, member.member_id)
        for member_id in group.pending_join_members:
            yield heartbeat_key(GROUP, member_id)
        if group.state == PREPARING_REBALANCE:
            yield join_key(GROUP)
        if group.state == COMPLETING_REBALANCE and group.pending_sync_members:
            yield sync_key(GROUP)

    def rest(self) -> None:
        """All are answered, and nobody is left; whose end is not in the log, since it refused, is so after a load."""
        for _ in range(ROUNDS_MAX):
            self.clients.wait(SILENCE_MS)
        self.answers_are_right()
        assert self.waiting == set()
        group = self.live
        assert group is None or (group.state, group.members, group.pending_join_members) == (EMPTY, {}, set())
        assert not list(self.timer_keys())
