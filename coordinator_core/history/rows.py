"""Rows of the silver group tables as the core makes them: the declared columns without `cluster_id` and
`log_partition`.

Times are epoch milliseconds. An open interval has None in `valid_to_ms` and `to_log_offset`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from schemas.group_types import GroupType


class GenerationRow(NamedTuple):
    """silver.group_generations."""

    group_id: str
    group_type: str
    incarnation: int
    generation: int
    from_log_offset: int
    to_log_offset: int | None
    valid_from: int
    valid_to: int | None
    state: str
    protocol_type: str | None
    protocol_name: str | None
    leader_member_id: str | None
    member_count: int
    assignment_epoch: int | None
    topology_epoch: int | None
    metadata_hash: int | None
    previous_generation: int | None
    is_contiguous: bool
    current_state_at: int | None
    unread_members: tuple[str, ...] = ()


class MemberRow(NamedTuple):
    """silver.group_members: columns of the interval, then of the member itself (`views.MemberFields`)."""

    group_id: str
    group_type: str
    member_id: str
    from_log_offset: int
    to_log_offset: int | None
    valid_from: int
    valid_to: int | None
    incarnation: int
    from_generation: int
    to_generation: int
    ended_by: str | None
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None
    subscribed_topics: tuple[str, ...] | None
    subscribed_regex: str | None
    server_assignor: str | None
    rebalance_timeout_ms: int | None
    session_timeout_ms: int | None
    member_epoch: int | None
    uses_classic_protocol: bool
    process_id: str | None = None


class AttributesRow(NamedTuple):
    """silver.member_attributes: columns of the interval, then of the member without its epoch
    (`views.MemberFields`)."""

    group_id: str
    group_type: str
    member_id: str
    from_log_offset: int
    to_log_offset: int | None
    valid_from: int
    valid_to: int | None
    incarnation: int
    from_generation: int
    to_generation: int
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None
    subscribed_topics: tuple[str, ...] | None
    subscribed_regex: str | None
    server_assignor: str | None
    rebalance_timeout_ms: int | None
    session_timeout_ms: int | None
    uses_classic_protocol: bool
    process_id: str | None = None


class AssignmentRow(NamedTuple):
    """silver.member_assignments; `topic` is None if only the id is known."""

    group_id: str
    group_type: str
    member_id: str
    topic_id: str | None
    topic: str | None
    partition: int
    assignment: str
    task_type: str | None
    from_log_offset: int
    to_log_offset: int | None
    valid_from: int
    valid_to: int | None
    incarnation: int
    from_generation: int
    to_generation: int


TopicKey = str | tuple[str, str]
"""What a partition belongs to: a topic id in a consumer or share group, a topic in a classic group, a task type and a
subtopology in a streams group. Keys of one group are sortable; rows have that order."""

GROUP_TYPES_WITH_TASKS: Final = frozenset({GroupType.STREAMS})
GROUP_TYPES_WITH_TOPIC_IDS: Final = frozenset({GroupType.CONSUMER, GroupType.SHARE})


def key_columns(group_type: str, key: TopicKey) -> tuple[str | None, str | None, str | None]:
    """Task type, topic id and topic (for a streams group: its subtopology), as in silver.member_assignments."""
    task_type, topic = (None, key) if isinstance(key, str) else key
    return (task_type, topic, None) if group_type in GROUP_TYPES_WITH_TOPIC_IDS else (task_type, None, topic)


Assigned = Mapping[TopicKey, tuple[int, ...]]
"""What a member has: by topic, its partitions, ascending and at least one. Plain values, since a large group has
thousands.
"""


NOTHING: Final[Assigned] = {}


class AssignmentRun(NamedTuple):
    """The columns that consecutive rows of silver.member_assignments share: all but those of the partition."""

    group_id: str
    group_type: str
    member_id: str
    assignment: str
    from_log_offset: int
    to_log_offset: int | None
    valid_from: int
    valid_to: int | None
    incarnation: int
    from_generation: int
    to_generation: int


class AssignmentRows:
    """Rows of silver.member_assignments in runs: partitions that a member gets together are mostly lost together."""

    __slots__ = ("keys", "lengths", "partitions", "runs")

    def __init__(self) -> None:
        self.runs: list[AssignmentRun] = []
        self.lengths: list[int] = []
        """The number of topics in each run."""
        self.keys: list[TopicKey] = []
        self.partitions: list[tuple[int, ...]] = []
        """The partitions of each topic, one row for each topic."""

    def append(self, run: AssignmentRun, assigned: Assigned) -> None:
        """Append the rows of a run, in the order of `assigned`."""
        self.runs.append(run)
        self.lengths.append(len(assigned))
        self.keys += assigned
        self.partitions += assigned.values()

    def extend(self, other: "AssignmentRows") -> None:
        self.runs += other.runs
        self.lengths += other.lengths
        self.keys += other.keys
        self.partitions += other.partitions

    def __len__(self) -> int:
        return sum(map(len, self.partitions))

    def by_run(self) -> Iterator[tuple[AssignmentRun, Assigned]]:
        """Each run, with the partitions of its rows."""
        topics = zip(self.keys, self.partitions, strict=True)
        for run, length in zip(self.runs, self.lengths, strict=True):
            yield run, dict(islice(topics, length))

    def __iter__(self) -> Iterator[AssignmentRow]:
        for run, assigned in self.by_run():
            shared: dict[str, Any] = run._asdict()
            for key, partitions in assigned.items():
                task_type, topic_id, topic = key_columns(run.group_type, key)
                for partition in partitions:
                    yield AssignmentRow(
                        topic_id=topic_id, topic=topic, partition=partition, task_type=task_type, **shared
                    )


class EventRow(NamedTuple):
    """silver.group_events."""

    log_offset: int
    event_index: int
    group_id: str
    group_type: str | None
    event_type: str
    at: int
    generation: int | None
    member_id: str | None
    topic: str | None
    partition: int | None
    details: dict[str, str]


class TopicName(NamedTuple):
    """A name that was learned for a topic id."""

    topic_id: str
    topic: str
    at: int
    learned_from: str


LEFT_OR_EXPIRED: Final = "LEFT_OR_EXPIRED"
REPLACED_STATIC: Final = "REPLACED_STATIC"
GROUP_DELETED: Final = "GROUP_DELETED"
NEXT_REBALANCE: Final = "next_rebalance_ms"
"""Detail of GENERATION_STARTED of Kafka Streams on the classic protocol: when a member is to join again (ms)."""
PATTERNS_NEW: Final = "patterns_new"
PATTERNS_CHANGED: Final = "patterns_changed"
"""Details of a consumer group's GENERATION_STARTED: how many patterns its operation resolved to topics for the first
time, and to other topics than before."""
CONVERTED: Final = "CONVERTED"
FORGOTTEN: Final = "FORGOTTEN"
"""Values of `ended_by` in silver.group_members. FORGOTTEN is an `event_type`, too: a new leader loaded the log without
records of the group."""

NOT_IN_FORCE: Final = ("DELETE", FORGOTTEN)
"""Values of `change` in silver.offset_commits after which a partition has no committed offset."""

ASSIGNMENT_CONFIGS_CHANGED: Final = "ASSIGNMENT_CONFIGS_CHANGED"
"""`event_type` of silver.group_events: the configs of a streams group's assignor changed."""
TOPOLOGY_DESCRIPTION_CHANGED: Final = "TOPOLOGY_DESCRIPTION_CHANGED"
"""`event_type`: the broker's plugin has the description of another topology epoch (KIP-1331)."""
SUBSCRIPTIONS_APART: Final = "SUBSCRIPTIONS_APART"
"""`event_type`: from here on, some members have no topic in common with the others."""
SUBSCRIPTIONS_TOGETHER: Final = "SUBSCRIPTIONS_TOGETHER"
"""`event_type`: all members are connected by common topics again."""


@dataclass(slots=True)
class GroupRows:
    generations: list[GenerationRow] = field(default_factory=list)
    members: list[MemberRow] = field(default_factory=list)
    attributes: list[AttributesRow] = field(default_factory=list)
    assignments: AssignmentRows = field(default_factory=AssignmentRows)
    events: list[EventRow] = field(default_factory=list)
    topics: list[TopicName] = field(default_factory=list)

    def __len__(self) -> int:
        of_members = len(self.members) + len(self.attributes)
        return len(self.generations) + of_members + len(self.assignments) + len(self.events)

    def extend(self, other: "GroupRows") -> None:
        self.generations += other.generations
        self.members += other.members
        self.attributes += other.attributes
        self.assignments.extend(other.assignments)
        self.events += other.events
        self.topics += other.topics
