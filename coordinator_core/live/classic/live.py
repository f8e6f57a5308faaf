"""A classic group as its coordinator has it in memory (Kafka's ClassicGroup, ClassicGroupMember).

Most of a classic group's life is never written: which members have joined, which are waiting, the state. This object
has it, and `commands` changes it in place. A record of type 2 is a snapshot of it at the moments when Kafka persists
it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from coordinator_core.errors import IllegalTransition
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.state_dump import (
    CONSUMER_PROTOCOL_TYPE,
    Json,
    classic_group,
    classic_member,
    subscribed_topics,
)
from coordinator_core.replay.classic.state import ClassicGroup, ClassicGroupState
from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.java.hash_map import TABLE_SIZE_DEFAULT, grown, in_bucket_order
from schemas.error_codes import ErrorCode

EMPTY: Final = ClassicGroupState.EMPTY
PREPARING_REBALANCE: Final = ClassicGroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE: Final = ClassicGroupState.COMPLETING_REBALANCE
STABLE: Final = ClassicGroupState.STABLE
DEAD: Final = ClassicGroupState.DEAD

VALID_PREVIOUS: Final[Mapping[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    EMPTY: frozenset({PREPARING_REBALANCE}),
    PREPARING_REBALANCE: frozenset({STABLE, COMPLETING_REBALANCE, EMPTY}),
    COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE}),
    STABLE: frozenset({COMPLETING_REBALANCE}),
    DEAD: frozenset(ClassicGroupState),
}
"""New state -> the states that it may follow (ClassicGroupState)."""

Protocols = tuple[tuple[str, bytes], ...]
"""(protocol name, metadata), in the member's order of preference."""


@dataclass(slots=True)
class LiveMember:
    """A member. `awaiting_join` and `awaiting_sync` are the ids of its waiting requests, or None."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """It joined for the first time, and the join phase has not ended yet: a waiting request is then no sign of life."""
    awaiting_join: int | None = None
    awaiting_sync: int | None = None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the member counts as alive without a heartbeat, because it is waiting for a response."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for a protocol, empty if it has none."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The candidate that comes first in the member's protocols."""
        wanted = frozenset(candidates)
        return next(name for name, _ in self.protocols if name in wanted)


@dataclass(slots=True)
class LiveClassicGroup:
    """A classic group. Change members only through the methods, which keep the protocol counts correct."""

    group_id: str
    state: ClassicGroupState = EMPTY
    previous_state: ClassicGroupState = DEAD
    current_state_timestamp_ms: int | None = None
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, LiveMember] = field(default_factory=dict)
    """By member id, in insertion order. Kafka iterates in hash order: `members_in_hash_order`."""
    static_members: dict[str, str] = field(default_factory=dict)
    """Group instance id -> member id."""
    pending_join_members: set[str] = field(default_factory=set)
    """Ids that were assigned (MEMBER_ID_REQUIRED) and have not joined yet."""
    pending_sync_members: set[str] = field(default_factory=set)
    subscribed_topics: frozenset[str] | None = None
    """None: unknown, or not computed yet."""
    new_member_added: bool = False
    """A member joined while the first rebalance was delayed: it may be delayed again."""
    supported_protocols: Counter[str] = field(default_factory=Counter)
    """Protocol name -> how many members support it."""
    table_capacity: int = TABLE_SIZE_DEFAULT
    """Buckets of Kafka's hash map of members, which decide its iteration order."""

    @classmethod
    def of(cls, group: ClassicGroup) -> "LiveClassicGroup":
        """The group after loading: Empty or Stable. Only the chosen protocol of each member is known."""
        timestamp_ms = group.current_state_timestamp_ms
        live = cls(
            group.group_id,
            state=group.state,
            current_state_timestamp_ms=None if timestamp_ms < 0 else timestamp_ms,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader,
        )
        for member in sorted(group.members.values(), key=lambda member: (member.place, member.member_id)):
            live._insert(
                LiveMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    group.protocol_type or "",
                    ((group.protocol_name or "", member.subscription),),
                    member.assignment,
                )
            )
        live.subscribed_topics = live.compute_subscribed_topics()
        return live

    # --- members ---

    def add(self, member: LiveMember) -> None:
        """Add a member, which is no longer pending. The first one becomes leader and decides the protocol type."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self._insert(member)
        self.pending_join_members.discard(member.member_id)

    def _insert(self, member: LiveMember) -> None:
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self.supported_protocols.update(name for name, _ in member.protocols)
        self.table_capacity = grown(self.table_capacity, len(self.members))

    def remove(self, member_id: str) -> None:
        """Remove a member, joined or pending; if it led, another one becomes leader. An unknown id is fine."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.supported_protocols.subtract(name for name, _ in member.protocols)
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next((other.member_id for other in self.members_in_hash_order()), None)
        self.pending_join_members.discard(member_id)
        self.pending_sync_members.discard(member_id)

    def replace_static_member(self, group_instance_id: str, member_id: str, new_member_id: str) -> LiveMember:
        """Give a static member a new id. Requests waiting under the old id must have been answered before."""
        old = self.members.pop(member_id)
        member = replace(old, member_id=new_member_id, is_new=False, awaiting_join=None, awaiting_sync=None)
        self.members[new_member_id] = member
        if self.leader == member_id:
            self.leader = new_member_id
        self.static_members[group_instance_id] = new_member_id
        return member

    def update_member(
        self, member: LiveMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self.supported_protocols.subtract(name for name, _ in member.protocols)
        self.supported_protocols.update(name for name, _ in protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def members_in_hash_order(self) -> list[LiveMember]:
        """Members in the iteration order of Kafka's hash map."""
        member_ids = in_bucket_order(self.members, string_hash_code, self.table_capacity)
        return [self.members[member_id] for member_id in member_ids]

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise Refused unless this is a member: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the
        instance id.
        """
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise Refused(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)

    @property
    def awaiting_join_count(self) -> int:
        """How many members are waiting for the end of the join phase."""
        return sum(member.awaiting_join is not None for member in self.members.values())

    @property
    def has_all_members_joined(self) -> bool:
        """Whether all members have joined: all are waiting, and no id is pending."""
        return not self.pending_join_members and self.awaiting_join_count == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """If the leader has not rejoined, choose a member that has. False if there is none."""
        if self.leader is None:
            return False
        if self.members[self.leader].awaiting_join is not None:
            return True
        joined = next((member for member in self.members_in_hash_order() if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    # --- protocols ---

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members are consumers, whose metadata the coordinator can read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols may join: in an empty group always, else one must be common to all
        members.
        """
        if self.state == EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        if self.protocol_type != protocol_type:
            return False
        return any(self.supported_protocols[name] == len(self.members) for name in names)

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that all members support; on a tie the first in hash order."""
        candidates = [name for name, count in self.supported_protocols.items() if count == len(self.members)]
        votes = Counter(member.vote(candidates) for member in self.members_in_hash_order())
        return max(in_bucket_order(votes, string_hash_code), key=votes.__getitem__)

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Topics of all members, or None if they are unknown."""
        subscriptions = [member.metadata(self.protocol_name) for member in self.members.values()]
        return subscribed_topics(self.protocol_type, self.protocol_name, subscriptions)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic; true if the topics of consumers are unknown."""
        return self.uses_consumer_protocol if self.subscribed_topics is None else topic in self.subscribed_topics

    # --- states ---

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        """Enter a state. Raises IllegalTransition if it may not follow the current one."""
        if self.state not in VALID_PREVIOUS[state]:
            raise IllegalTransition(f"{state.value} may not follow {self.state.value}")
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS[PREPARING_REBALANCE]

    def init_next_generation(self, now_ms: int) -> None:
        """End the join phase: a new generation with the remaining members, or an empty group."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)
        self.pending_sync_members.clear()

    @property
    def is_simple(self) -> bool:
        """Whether it is a group with offsets only, which a modern group may replace (ClassicGroup.isSimpleGroup)."""
        return self.protocol_type is None and self.state == EMPTY and not self.pending_join_members

    def dump(self) -> Json:
        """The group in the format of `state_dump`, with what only its coordinator knows."""
        members = {
            member.member_id: classic_member(
                member,
                member.protocols,
                awaits_join=member.awaiting_join is not None,
                awaits_sync=member.awaiting_sync is not None,
            )
            for member in self.members.values()
        }
        return classic_group(self, members, self.pending_join_members, self.subscribed_topics)
