"""A share group under random members, topics which come, grow and go, and a share coordinator which may fail.

In addition to what is true of any group (`group_machine`), by the names of their methods:

- `members_are_consistent`: epochs and partitions of a member fit together; it fetches from nothing but its target and
  its own topics.
- `targets_are_ready`: a target of the present epoch has initialised partitions only, and each of them that somebody
  reads, for somebody; members who read alike have alike many, give or take one.
- `picture_is_consistent`: a share partition is in one column of the picture.

`settle`: after heartbeats and initialisations without failure, all partitions of all topics are read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from coordinator_core.live.coordinator.image import Topic
from coordinator_core.live.coordinator.member_timers import session_key
from coordinator_core.live.coordinator.metadata_hash import metadata_hash
from coordinator_core.live.offsets.messages import DeletedTopic
from coordinator_core.live.share.messages import ShareGroupHeartbeatRequest, ShareStatePartitions
from coordinator_core.replay.share.state import ShareGroup, ShareGroupStatePartitions
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP, Clients
from tests.coordinator_core.stateful.group_machine import GroupMachine

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
SESSION_MS = 45_000
BEAT_MS = 1000
ROUNDS_MAX = 50
"""An initialisation which was lost is tried again after 30 seconds."""
PARTITIONS_MAX = 6

TOPIC_NAMES = ("foo", "bar", "baz")
NAMES = st.sampled_from([("foo",), ("foo",), ("foo", "bar"), ("bar", "baz"), ("foo", "bar", "baz")])
WHO = st.integers(0, 5)

Partition = tuple[str, int]
"""(topic id, partition)."""

GIVEN_UP = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}


@dataclass(slots=True)
class Client:
    """A share consumer. `assigned` is its last assignment."""

    member_id: str
    names: tuple[str, ...]
    epoch: int = JOIN_EPOCH
    assigned: set[Partition] = field(default_factory=set)
    must_tell_all: bool = True

    def abandon(self) -> None:
        """The client has to join again."""
        self.epoch, self.assigned, self.must_tell_all = JOIN_EPOCH, set(), True


def partitions_of(owned: Mapping[str, Any]) -> set[Partition]:
    """Topic id -> partitions, as pairs."""
    return {(topic_id, partition) for topic_id, partitions in owned.items() for partition in partitions}


class ShareMachine(GroupMachine):
    """Clients of one share group, and the share coordinator as the group coordinator sees it."""

    @initialize(interval_ms=st.sampled_from([0, 0, 3000]), size_max=st.sampled_from([2, 4, 4]))
    def begin(self, interval_ms: int, size_max: int) -> None:
        self.begin_with(Clients(group_share_assignment_interval_ms=interval_ms, group_share_max_size=size_max))
        self.members: list[Client] = []
        self.to_initialize: list[Mapping[str, tuple[int, ...]]] = []
        self.topic_count = 0
        for name, partition_count in (("foo", 3), ("bar", 2)):
            self.make_topic(name, partition_count)

    @property
    def share_group(self) -> ShareGroup | None:
        group = self.group
        return group if isinstance(group, ShareGroup) else None

    @property
    def picture(self) -> ShareGroupStatePartitions:
        return self.coordinator.shard.groups.share_partitions.get(GROUP, ShareGroupStatePartitions())

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
            self.accept_appends()  # where the log refuses this, Kafka leaves the group in want of a topic for ever
            self.clients.ask("maybe_cleanup_share_group_state", (DeletedTopic(name, topic.topic_id),))
        if is_refused:
            self.refuse_the_next_append()
            self.all_beat()

    @precondition(lambda self: self.to_initialize)
    @rule(fails=st.sampled_from([False, False, False, True]))
    def end_initialization(self, fails: bool) -> None:
        """The share coordinator has initialised partitions, or failed to."""
        operation = "uninitialize_share_group_state" if fails else "initialize_share_group_state"
        self.clients.ask(operation, ShareStatePartitions(GROUP, self.to_initialize.pop(0)))

    @precondition(lambda self: self.to_initialize)
    @rule()
    def lose_initialization(self) -> None:
        """The broker went down with it."""
        del self.to_initialize[0]

    # --- requests ---

    @rule(names=NAMES)
    def join(self, names: tuple[str, ...]) -> None:
        client = Client(f"m{self.clients.request_count}", names)
        self.members.append(client)
        self.send(client)

    @precondition(lambda self: self.members)
    @rule(who=WHO, is_lost=st.sampled_from([False, False, False, True]))
    def heartbeat(self, who: int, is_lost: bool) -> None:
        self.send(self.client(who), is_lost=is_lost)

    @precondition(lambda self: self.members)
    @rule()
    def all_beat(self) -> None:
        for client in self.members:
            self.send(client)

    @precondition(lambda self: self.members)
    @rule(who=WHO, names=NAMES)
    def subscribe(self, who: int, names: tuple[str, ...]) -> None:
        client = self.client(who)
        client.names, client.must_tell_all = names, True
        self.send(client)

    @precondition(lambda self: self.members)
    @rule(who=WHO, epoch_change=st.sampled_from([-2, -1, 1, 7]))
    def beat_at_another_epoch(self, who: int, epoch_change: int) -> None:
        """Nobody is let in with an epoch that is neither the member's nor the one before."""
        client, group = self.client(who), self.share_group
        member = None if group is None else group.members.get(client.member_id)
        if member is None or member.member_epoch + epoch_change <= 0:
            return
        epoch = member.member_epoch + epoch_change
        outcome = self.clients.ask("share_group_heartbeat", ShareGroupHeartbeatRequest(GROUP, client.member_id, epoch))
        is_previous = epoch == member.previous_member_epoch
        code = None if outcome.error is None else outcome.error.code
        assert is_previous or code in GIVEN_UP
        client.must_tell_all = True

    @precondition(lambda self: self.members)
    @rule(who=WHO)
    def leave(self, who: int) -> None:
        client = self.client(who)
        self.members.remove(client)
        group = self.share_group
        if group is not None and client.member_id in group.members:
            request = ShareGroupHeartbeatRequest(GROUP, client.member_id, LEAVE_EPOCH)
            outcome = self.clients.ask("share_group_heartbeat", request)
            after = self.share_group
            if outcome.error is None:
                assert after is not None
                assert client.member_id not in after.members
                assert after.group_epoch == group.group_epoch + 1, "the others get no new epoch"

    @precondition(lambda self: self.share_group is not None)
    @rule()
    def delete_group(self) -> None:
        """First what the share coordinator has of it, then the group itself; not while it has members."""
        has_members = bool(self.share_group and self.share_group.members)
        self.clients.ask("share_partition_delete_requests", (GROUP,))
        self.clients.ask("delete_groups", (GROUP,))
        assert not has_members or self.share_group is not None, "a group with members was deleted"
        self.to_initialize.clear()

    @precondition(lambda self: self.share_group is not None)
    @rule(delay_ms=st.sampled_from([1000, 9000, 40_000]))
    def wait_while_all_are_well(self, delay_ms: int) -> None:
        """Nobody goes before its time."""
        group = self.share_group
        assert group is not None
        timers = [timer for key in self.timer_keys() if (timer := self.coordinator.timers.get(key)) is not None]
        is_well = all(timer.deadline_ms > self.clients.now_ms + delay_ms for timer in timers)
        self.clients.wait(delay_ms)
        after = self.share_group
        assert not is_well or (after is not None and after.members == group.members)

    # --- clients ---

    def client(self, who: int) -> Client:
        return self.members[who % len(self.members)]

    def send(self, client: Client, *, is_lost: bool = False) -> None:
        """A heartbeat, and what client and broker make of the answer."""
        is_full = client.must_tell_all or client.epoch == JOIN_EPOCH
        names = client.names if is_full else None
        request = ShareGroupHeartbeatRequest(GROUP, client.member_id, client.epoch, subscribed_topic_names=names)
        outcome = self.clients.ask("share_group_heartbeat", request)
        if outcome.error is None and outcome.response.initialize_share_state is not None:
            self.to_initialize.append(outcome.response.initialize_share_state.partitions)
        if is_lost:
            client.must_tell_all = True
        else:
            self.take_answer(client, outcome)

    def take_answer(self, client: Client, outcome: Any) -> None:
        if outcome.error is not None:
            if outcome.error.code in GIVEN_UP:
                client.abandon()
            else:
                assert outcome.error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE, outcome.error
            client.must_tell_all = True
            return
        group, response = self.share_group, outcome.response
        assert group is not None
        member = group.members[client.member_id]
        assert response.member_epoch == member.member_epoch >= client.epoch
        client.epoch, client.must_tell_all = response.member_epoch, False
        if response.assignment is not None:
            client.assigned = partitions_of(
                {one.topic_id: one.partitions for one in response.assignment.topic_partitions}
            )
        assert client.assigned == partitions_of(member.assigned), "the client did not get its assignment"

    @precondition(lambda self: self.members)
    @rule()
    def settle(self) -> None:
        """Members and a share coordinator that follow the protocol end with all partitions read."""
        self.accept_appends()
        for _ in range(ROUNDS_MAX):
            written_count = len(self.clients.log.entries)
            for client in self.members:
                self.send(client)
            while self.to_initialize:
                self.end_initialization(fails=False)
            self.clients.wait(BEAT_MS)
            if len(self.clients.log.entries) == written_count and self.is_settled():
                return
        raise AssertionError("the group does not settle")

    def is_settled(self) -> bool:
        group, image = self.share_group, self.coordinator.image
        if group is None or not group.members:
            return True
        clients = {client.member_id: client for client in self.members if client.epoch != JOIN_EPOCH}
        if set(clients) != set(group.members):
            return True  # somebody is silent, and keeps what it has until its session ends
        names = {name for client in clients.values() for name in client.names}
        topics = [topic for name in names if (topic := image.topics.get(name)) is not None]
        wanted = {(topic.topic_id, number) for topic in topics for number in range(topic.partition_count)}
        read = set().union(*(client.assigned for client in clients.values()))
        epochs = {client.epoch for client in clients.values()}
        return epochs == {group.group_epoch} == {group.assignment_epoch} and read == wanted

    # --- what must hold ---

    @invariant()
    def members_are_consistent(self) -> None:
        group = self.share_group
        if group is None:
            return
        assert group.assignment_epoch <= group.group_epoch
        assert len(group.members) <= self.coordinator.config.group_share_max_size
        assert set(group.target_assignment) <= set(group.members)
        for member in group.members.values():
            assert member.previous_member_epoch <= member.member_epoch <= group.assignment_epoch
            if member.member_epoch == group.assignment_epoch:
                target = partitions_of(group.target_assignment.get(member.member_id, {}))
                assert partitions_of(member.assigned) <= target
                known = {self.coordinator.image.names.get(topic_id) for topic_id in member.assigned} - {None}
                assert known <= set(member.subscribed_topic_names)

    @invariant()
    def targets_are_ready(self) -> None:
        group, image = self.share_group, self.coordinator.image
        if group is None or not group.members or group.assignment_epoch != group.group_epoch:
            return
        if group.metadata_hash != metadata_hash(image, group.name_counts):
            return  # no coordinator has got the change of a topic yet
        targets = {member_id: partitions_of(target) for member_id, target in group.target_assignment.items()}
        initialized = partitions_of({topic_id: numbers for topic_id, (_, numbers) in self.picture.initialized.items()})
        for target in targets.values():
            here = {partition for partition in target if image.names.get(partition[0]) in group.name_counts}
            assert here <= initialized
        kinds = {frozenset(member.subscribed_topic_names) for member in group.members.values()}
        if len(kinds) == 1 and len(targets) == len(group.members):
            counts = [len(target) for target in targets.values()]
            assert max(counts) - min(counts) <= 1, "one member has more than its share"

    @invariant()
    def picture_is_consistent(self) -> None:
        picture = self.picture
        columns = [
            {(topic_id, number) for topic_id, (_, numbers) in column.items() for number in numbers}
            for column in (picture.initializing, picture.initialized)
        ]
        assert not columns[0] & columns[1]
        assert not set(picture.deleting) & {topic_id for column in columns for topic_id, _ in column}

    def epochs_of(self, group: Any) -> dict[str, int]:
        if not isinstance(group, ShareGroup):
            return {}
        members = {f"epoch of {member.member_id}": member.member_epoch for member in group.members.values()}
        return {"group epoch": group.group_epoch, "assignment epoch": group.assignment_epoch, **members}

    def timer_keys(self) -> Iterator[str]:
        group = self.share_group
        for member_id in () if group is None else group.members:
            yield session_key(GROUP, member_id)

    def rest(self) -> None:
        """The sessions of all end."""
        for _ in range(3):
            self.clients.wait(SESSION_MS)
        group = self.share_group
        assert group is None or not group.members or self.untimed
