"""A consumer group under random members: quick and slow ones, static ones, some whose answers are lost, and topics
which come, grow and go.

A client does as Kafka's own: it reports what it owns, gives up what it is no longer assigned (a slow one later), takes
it is newly assigned, and starts from nothing once it is fenced. In addition to what is true of any group
(`group_machine`), by the names of their methods:

- `nobody_shares`: no two clients own a partition at the same time, as long as the coordinator has not given up on them.
- `owners_are_unique`: a partition has one owner at most, pending revocation included, and the map of owners
  says so; targets are disjoint, too.
- `members_are_consistent`: states, epochs and partitions of a member fit together (`reconciliation`).
- `targets_are_complete`: a target of the present epoch and topics has every partition that somebody reads.

`settle` is what all this is for: members who follow the protocol reach the target of the last epoch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from coordinator_core.live.consumer.messages import ConsumerGroupHeartbeatRequest
from coordinator_core.live.consumer.target import subscribed_names
from coordinator_core.live.coordinator.image import Topic
from coordinator_core.live.coordinator.member_timers import rebalance_key, session_key
from coordinator_core.live.coordinator.metadata_hash import metadata_hash
from coordinator_core.live.coordinator.modern_messages import TopicPartitions
from coordinator_core.replay.consumer.state import ConsumerGroup, MemberState
from coordinator_core.replay.consumer.subscriptions import subscriptions_of
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP, Clients
from tests.coordinator_core.stateful.group_machine import GroupMachine

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
SESSION_MS = 45_000
REBALANCE_MS = 20_000
BEAT_MS = 1000
ROUNDS_MAX = 25
PARTITIONS_MAX = 6

TOPIC_NAMES = ("foo", "bar", "baz")
NAMES = st.sampled_from([("foo",), ("foo",), ("foo", "bar"), ("bar", "baz"), ("foo", "bar", "baz"), ()])
REGEXES = st.sampled_from([None, None, None, "ba.*", "f.*|baz"])
ASSIGNORS = st.sampled_from([None, None, "uniform", "range"])
INSTANCES = st.sampled_from([None, None, None, "i", "j"])
WHO = st.integers(0, 5)

Partition = tuple[str, int]
"""(topic id, partition)."""

GIVEN_UP = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}
"""The coordinator has given up on the client, and may have let in another, or the group is deleted: join again."""
NOT_WRITTEN = ErrorCode.COORDINATOR_NOT_AVAILABLE


@dataclass(slots=True)
class Client:
    """A consumer. `assigned` is its last assignment, `owned` what it reads."""

    member_id: str
    instance: str | None
    names: tuple[str, ...]
    regex: str | None
    assignor: str | None
    is_slow: bool
    epoch: int = JOIN_EPOCH
    owned: set[Partition] = field(default_factory=set)
    assigned: set[Partition] = field(default_factory=set)
    must_tell_all: bool = True

    def abandon(self) -> None:
        """The client is fenced: it owns nothing and has to join again."""
        self.epoch, self.owned, self.assigned, self.must_tell_all = JOIN_EPOCH, set(), set(), True

    def revoke(self) -> None:
        """Give up what is no longer assigned, then take what is."""
        self.owned = set(self.assigned)


def partitions_of(partition_epochs: Mapping[str, Any]) -> set[Partition]:
    """Topic id -> partitions, as pairs."""
    return {(topic_id, partition) for topic_id, partitions in partition_epochs.items() for partition in partitions}


def reported(owned: set[Partition]) -> tuple[TopicPartitions, ...]:
    """What a client owns, as its heartbeat says it."""
    topic_ids = sorted({topic_id for topic_id, _ in owned})
    return tuple(
        TopicPartitions(topic_id, tuple(sorted(number for other, number in owned if other == topic_id)))
        for topic_id in topic_ids
    )


class ConsumerMachine(GroupMachine):
    """Clients of one consumer group."""

    @initialize(interval_ms=st.sampled_from([0, 0, 3000]), size_max=st.sampled_from([2, 4, 4]))
    def begin(self, interval_ms: int, size_max: int) -> None:
        self.begin_with(
            Clients(
                group_consumer_assignment_interval_ms=interval_ms,
                group_consumer_max_size=size_max,
                group_consumer_session_timeout_ms=SESSION_MS,
            )
        )
        self.members: list[Client] = []
        self.topic_count = 0
        for name, partition_count in (("foo", 3), ("bar", 2)):
            self.make_topic(name, partition_count)

    @property
    def consumer_group(self) -> ConsumerGroup | None:
        group = self.group
        return group if isinstance(group, ConsumerGroup) else None

    def is_member(self, client: Client) -> bool:
        """The coordinator still counts on the client."""
        group = self.consumer_group
        return group is not None and client.member_id in group.members

    # --- topics ---

    def make_topic(self, name: str, partition_count: int) -> None:
        self.topic_count += 1
        topic_id = f"{name}{self.topic_count:0>3}".rjust(21, "A") + "A"
        self.take_image(self.coordinator.image.with_topic(Topic(name, topic_id, partition_count)), name)

    def take_image(self, image: Any, name: str) -> None:
        self.coordinator.update_metadata(image, [name], now_ms=self.clients.now_ms)

    @rule(
        name=st.sampled_from(TOPIC_NAMES),
        partition_count=st.integers(1, PARTITIONS_MAX),
        is_refused=st.sampled_from([False, False, True]),
    )
    def change_topic(self, name: str, partition_count: int, is_refused: bool) -> None:
        """Make it; or let it grow; or delete it, where it is as large already. The log may refuse what comes of it."""
        image = self.coordinator.image
        topic = image.topics.get(name)
        if topic is None:
            self.make_topic(name, partition_count)
        elif partition_count > topic.partition_count:
            self.take_image(image.with_topic(Topic(name, topic.topic_id, partition_count)), name)
        elif partition_count == topic.partition_count:
            self.take_image(image.without_topic(name), name)
        if is_refused:
            self.refuse_the_next_append()
            self.all_beat(is_quick=False)

    @rule()
    def run_tasks(self) -> None:
        self.coordinator.run_tasks(self.clients.now_ms)

    # --- requests ---

    @rule(
        instance=INSTANCES, names=NAMES, regex=REGEXES, assignor=ASSIGNORS, is_slow=st.sampled_from([True, True, False])
    )
    def join(
        self, instance: str | None, names: tuple[str, ...], regex: str | None, assignor: str | None, is_slow: bool
    ) -> None:
        if instance is not None and any(client.instance == instance for client in self.members):
            return  # two processes with one instance id do not follow the protocol
        client = Client(f"m{self.clients.request_count}", instance, names, regex, assignor, is_slow)
        self.members.append(client)
        self.send(client)

    @precondition(lambda self: self.members)
    @rule(who=WHO, is_lost=st.sampled_from([False, False, False, True]))
    def heartbeat(self, who: int, is_lost: bool) -> None:
        self.send(self.client(who), is_lost=is_lost)

    @precondition(lambda self: self.members)
    @rule(is_quick=st.sampled_from([False, False, True]))
    def all_beat(self, is_quick: bool) -> None:
        for client in self.members:
            if is_quick:
                client.revoke()
            self.send(client)

    @precondition(lambda self: self.members)
    @rule(who=WHO)
    def revoke(self, who: int) -> None:
        """A slow client is done with what it had to give up."""
        self.client(who).revoke()

    @precondition(lambda self: self.members)
    @rule(who=WHO, names=NAMES, regex=REGEXES)
    def subscribe(self, who: int, names: tuple[str, ...], regex: str | None) -> None:
        client = self.client(who)
        client.names, client.regex, client.must_tell_all = names, regex, True
        self.send(client)

    @precondition(lambda self: self.members)
    @rule(who=WHO, epoch_change=st.sampled_from([-1, 1, 2, 7]))
    def beat_at_another_epoch(self, who: int, epoch_change: int) -> None:
        """Nobody is let in with an epoch that is neither the member's nor the one before."""
        client = self.client(who)
        group = self.consumer_group
        member = None if group is None else group.members.get(client.member_id)
        if member is None or member.member_epoch + epoch_change <= 0:
            return
        before = self.coordinator.shard
        epoch = member.member_epoch + epoch_change
        owned = reported({("nothing of mine".ljust(22, "A"), 0)})
        request = ConsumerGroupHeartbeatRequest(GROUP, client.member_id, epoch, topic_partitions=owned)
        outcome = self.clients.ask("consumer_group_heartbeat", request)
        assert outcome.error is not None
        assert outcome.error.code == ErrorCode.FENCED_MEMBER_EPOCH
        assert self.coordinator.shard is before

    @precondition(lambda self: self.members)
    @rule(who=WHO, is_back_soon=st.booleans())
    def leave(self, who: int, is_back_soon: bool) -> None:
        """For good; or, with an instance id, for a while: then another process may take its place."""
        client = self.client(who)
        self.members.remove(client)
        if not self.is_member(client):
            return
        epoch = LEAVE_STATIC_EPOCH if is_back_soon and client.instance is not None else LEAVE_EPOCH
        request = ConsumerGroupHeartbeatRequest(GROUP, client.member_id, epoch, client.instance)
        outcome = self.clients.ask("consumer_group_heartbeat", request)
        if outcome.error is not None:
            assert outcome.error.code == NOT_WRITTEN
        else:
            assert self.is_member(client) == (epoch == LEAVE_STATIC_EPOCH)

    @precondition(lambda self: self.members)
    @rule(who=WHO, is_stale=st.booleans())
    def commit(self, who: int, is_stale: bool) -> None:
        """A member commits at its epoch; nobody does at one which is still to come."""
        client = self.client(who)
        before = self.coordinator.shard.offsets
        topic_id = next((topic_id for topic_id, number in sorted(client.owned) if number == 0), "A" * 22)
        self.clients.commit(
            generation_id_or_member_epoch=client.epoch + 100 * is_stale,
            member_id=client.member_id,
            group_instance_id=client.instance,
            offset=self.clients.request_count,
            topic_id=topic_id,
            api_version=10,
        )
        if (is_stale and client.epoch >= 0 and self.is_member(client)) or (
            self.has_members and not self.is_member(client)
        ):
            assert self.coordinator.shard.offsets == before, "a commit of nobody"

    @property
    def has_members(self) -> bool:
        group = self.consumer_group
        return group is not None and bool(group.members)

    @precondition(lambda self: self.consumer_group is not None)
    @rule()
    def delete_group(self) -> None:
        has_members = self.has_members
        self.clients.ask("delete_groups", (GROUP,))
        assert not has_members or self.has_members, "a group with members was deleted"

    @precondition(lambda self: self.has_members)
    @rule(delay_ms=st.sampled_from([1000, 9000, 40_000]))
    def wait_while_all_are_well(self, delay_ms: int) -> None:
        """Nobody goes before its time."""
        group = self.consumer_group
        assert group is not None
        keys = [key(GROUP, member_id) for member_id in group.members for key in (session_key, rebalance_key)]
        timers = [timer for key in keys if (timer := self.coordinator.timers.get(key)) is not None]
        is_well = all(timer.deadline_ms > self.clients.now_ms + delay_ms for timer in timers)
        self.clients.wait(delay_ms)
        after = self.consumer_group
        assert not is_well or (after is not None and after.members == group.members)

    # --- clients ---

    def client(self, who: int) -> Client:
        return self.members[who % len(self.members)]

    def send(self, client: Client, *, is_lost: bool = False) -> None:
        """A heartbeat, and what the client makes of the answer."""
        is_full = client.must_tell_all or client.epoch == JOIN_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            GROUP,
            client.member_id,
            client.epoch,
            client.instance,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            subscribed_topic_names=client.names if is_full else None,
            subscribed_topic_regex=(client.regex or "") if is_full else None,
            server_assignor=client.assignor if is_full else None,
            topic_partitions=reported(client.owned),
        )
        outcome = self.clients.ask("consumer_group_heartbeat", request, api_version=1)
        if is_lost:
            client.must_tell_all = True
        else:
            self.take_answer(client, outcome)

    def take_answer(self, client: Client, outcome: Any) -> None:
        if outcome.error is not None:
            if outcome.error.code in GIVEN_UP:
                client.abandon()
            else:
                assert client.epoch == JOIN_EPOCH or outcome.error.code == NOT_WRITTEN, outcome.error
            client.must_tell_all = True
            return
        response = outcome.response
        group = self.consumer_group
        assert group is not None
        member = group.members[client.member_id]
        assert response.member_id == client.member_id
        assert response.member_epoch == member.member_epoch >= client.epoch
        client.epoch, client.must_tell_all = response.member_epoch, False
        if response.assignment is not None:
            assignment = {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}
            assert partitions_of(assignment) == partitions_of(member.assigned)
            client.assigned = partitions_of(assignment)
            if not client.is_slow:
                client.revoke()
        assert client.assigned == partitions_of(member.assigned), "the client did not get its assignment"

    @precondition(lambda self: self.members)
    @rule()
    def settle(self) -> None:
        """Members who follow the protocol come to the target of the last epoch, and then nothing is written."""
        self.accept_appends()
        for _ in range(ROUNDS_MAX):
            written_count = len(self.clients.log.entries)
            for client in self.members:
                client.revoke()
                self.send(client)
                self.nobody_shares()
            self.run_tasks()
            self.clients.wait(BEAT_MS)
            if len(self.clients.log.entries) == written_count and self.is_settled():
                return
        raise AssertionError("the group does not settle")

    def is_settled(self) -> bool:
        """All who got an answer own what they are to own."""
        group = self.consumer_group
        clients = {client.member_id: client for client in self.members if client.epoch != JOIN_EPOCH}
        if group is None or not clients:
            return True
        # A static member which missed the answer when it joined is not let in again before its session ends.
        silent = set(group.members) - set(clients)
        known_hash = metadata_hash(self.coordinator.image, subscriptions_of(group).topic_names)
        return (group.assignment_epoch, group.metadata_hash) == (group.group_epoch, known_hash) and all(
            self.is_at_target(client, group, silent) for client in clients.values()
        )

    def is_at_target(self, client: Client, group: ConsumerGroup, silent: set[str]) -> bool:
        """The client owns its target, but for what those hold who say nothing any more."""
        member = group.members[client.member_id]
        target = partitions_of(group.target_assignment.get(member.member_id, {}))
        # A target may have what its member does not read: see `targets_are_complete`. No answer has that.
        names, read = self.coordinator.image.names, set(subscribed_names(group, member))
        there = {partition for partition in target if names.get(partition[0]) in read}
        missing = there - client.owned
        return (
            member.member_epoch == group.assignment_epoch
            and member.state == (MemberState.UNRELEASED_PARTITIONS if missing else MemberState.STABLE)
            and all(group.owners.get(partition) in silent for partition in missing)
            and client.owned <= target
        )

    # --- what must hold ---

    @invariant()
    def nobody_shares(self) -> None:
        owners: dict[Partition, str] = {}
        for client in self.members:
            if self.is_member(client):
                for partition in client.owned:
                    assert owners.setdefault(partition, client.member_id) == client.member_id, partition

    @invariant()
    def owners_are_unique(self) -> None:
        group = self.consumer_group
        if group is None:
            return
        owners: dict[Partition, str] = {}
        for member in group.members.values():
            partition_epochs = [*partitions_of(member.assigned), *partitions_of(member.pending_revocation)]
            for partition in partition_epochs:
                assert partition not in owners, "a partition has two owners"
                owners[partition] = member.member_id
        assert dict(group.owners) == owners
        targets = [partitions_of(target) for target in group.target_assignment.values()]
        assert sum(map(len, targets)) == len(set().union(*targets)), "a partition is promised twice"
        assert set(group.target_assignment) <= set(group.members)

    @invariant()
    def members_are_consistent(self) -> None:
        group = self.consumer_group
        if group is None:
            return
        assert group.assignment_epoch <= group.group_epoch
        assert len(group.members) <= self.coordinator.config.group_consumer_max_size
        instances = {one.instance_id: one.member_id for one in group.members.values() if one.instance_id is not None}
        assert dict(group.static_members) == instances
        for member in group.members.values():
            if member.member_epoch == LEAVE_STATIC_EPOCH:
                assert member.instance_id is not None
                continue
            assert (member.state == MemberState.UNREVOKED_PARTITIONS) == bool(member.pending_revocation)
            assert member.previous_member_epoch <= member.member_epoch <= group.assignment_epoch
            epochs = {epoch for partition_epochs in member.assigned.values() for epoch in partition_epochs.values()}
            assert max(epochs, default=0) <= member.member_epoch
            if member.state != MemberState.UNREVOKED_PARTITIONS and member.member_epoch == group.assignment_epoch:
                target = partitions_of(group.target_assignment.get(member.member_id, {}))
                assert partitions_of(member.assigned) <= target

    @invariant()
    def targets_are_complete(self) -> None:
        group = self.consumer_group
        if group is None or not group.members or group.assignment_epoch != group.group_epoch:
            return
        if not all(member.subscribed_topic_names for member in group.members.values()):
            # A new member without topics does not change what kind of subscriptions Kafka takes the group to have.
            return
        image, names = self.coordinator.image, subscriptions_of(group).topic_names
        if group.metadata_hash != metadata_hash(image, names):
            return  # no coordinator has got the change of a topic yet
        topics = [topic for name in names if (topic := image.topics.get(name)) is not None]
        wanted = {(topic.topic_id, number) for topic in topics for number in range(topic.partition_count)}
        targets = [partitions_of(target) for target in group.target_assignment.values()]
        assert wanted <= set().union(*targets)
        members = group.members.values()
        kinds = {(frozenset(member.subscribed_topic_names), member.subscribed_topic_regex or "") for member in members}
        is_uniform = all(member.server_assignor in {None, "uniform"} for member in members)
        if is_uniform and len(kinds) == 1 and len(targets) == len(members):
            counts = [len(target) for target in targets]
            assert max(counts) - min(counts) <= 1, "one member has more than its share"

    def epochs_of(self, group: Any) -> dict[str, int]:
        if not isinstance(group, ConsumerGroup):
            return {}
        members = {
            f"epoch of {member.member_id}": member.member_epoch
            for member in group.members.values()
            if member.member_epoch != LEAVE_STATIC_EPOCH
        }
        return {"group epoch": group.group_epoch, "assignment epoch": group.assignment_epoch, **members}

    def timer_keys(self) -> Iterator[str]:
        group = self.consumer_group
        for member in () if group is None else group.members.values():
            yield session_key(GROUP, member.member_id)
            if member.state == MemberState.UNREVOKED_PARTITIONS and member.member_epoch != LEAVE_STATIC_EPOCH:
                yield rebalance_key(GROUP, member.member_id)

    def rest(self) -> None:
        """The sessions of all end."""
        for _ in range(3):
            self.clients.wait(SESSION_MS)
        assert not self.has_members or self.untimed
