"""The state of a group and its members as of a time, from rows and events."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from coordinator_core.replay.java.hash_codes import string_order
from jobs.queries.as_of.group_model import CommittedOffset, Group, Member, Row, ShareStart, TopicPartition
from schemas.group_types import GroupType

DEFAULT_ASSIGNOR: Final = "uniform"
"""The first of the brokers' group.consumer.assignors, used where no member requests one; the log only has members'
requests."""
INITIAL_ASSIGNMENT_EPOCH: Final = 1
"""The assignment epoch of a modern group before its first target (TargetAssignmentMetadata.INITIAL)."""
STABLE_MEMBER: Final = "STABLE"
PAST_COLUMNS: Final = (
    "group_id",
    "log_partition",
    "log_offset",
    "event_index",
    "event_type",
    "at",
    "generation",
    "member_id",
    "details",
)
TARGET_COMPUTED: Final = "TARGET_COMPUTED"
MEMBER_RECONCILED: Final = "MEMBER_RECONCILED"
MEMBER_LEFT: Final = "MEMBER_LEFT"
RESTARTING_EVENTS: Final = ("GROUP_CREATED", "GROUP_CONVERTED")
TELLING: Final = (*RESTARTING_EVENTS, TARGET_COMPUTED, MEMBER_RECONCILED, "MEMBER_JOINED", MEMBER_LEFT, "GROUP_EMPTIED")
"""Events that change an epoch, or the state of a group or member."""


def by_group(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["group_id"]].append(row)
    return groups


class Past:
    """The epochs and states of one group at a time, from its events before and after."""

    def __init__(self, events: Iterable[Row], is_past: Callable[[Row], bool]) -> None:
        events = sorted(events, key=lambda event: (event["log_offset"], event["event_index"]))
        self._until = [event for event in events if is_past(event)]
        self._later = [event for event in events if not is_past(event)]
        self.reconciled: dict[str, Row] = {}
        """The newest reconciled state of each member."""
        for event in self._until:
            if event["event_type"] == MEMBER_RECONCILED:
                self.reconciled[event["member_id"]] = event
            elif event["event_type"] == MEMBER_LEFT:
                self.reconciled.pop(event["member_id"], None)

    def is_settled(self, row: Row, member_id: str | None = None) -> bool:
        """Did nothing happen to the group (or to one member) between the time and the end of a row's interval?

        Then what the row has for its end was true at the time, too.
        """
        to_log_offset = row["to_log_offset"]
        return not any(
            (to_log_offset is None or event["log_offset"] < to_log_offset)
            and (member_id is None or event["member_id"] == member_id)
            for event in self._later
        )

    def assignment_epoch(self) -> int:
        epoch = INITIAL_ASSIGNMENT_EPOCH
        for event in self._until:
            if event["event_type"] in RESTARTING_EVENTS:
                epoch = INITIAL_ASSIGNMENT_EPOCH
            elif event["event_type"] == TARGET_COMPUTED:
                epoch = event["generation"]
        return epoch


def members_of(
    rows: Sequence[Row], assignments: Sequence[Row], past: Past, unread_members: Sequence[str] | None = None
) -> Iterator[Member]:
    """Yield the members of a group, from the rows of silver.group_members and silver.member_assignments that are valid
    at the time. `unread_members`: from the generation at the time.
    """
    unread = frozenset(unread_members or ())
    owned: dict[str, set[TopicPartition]] = defaultdict(set)
    target: dict[str, set[TopicPartition]] = defaultdict(set)
    tasks: dict[str, dict[str, set[TopicPartition]]] = defaultdict(lambda: defaultdict(set))
    for row in assignments:
        member_id, is_target = row["member_id"], row["assignment"] == "TARGET"
        place = TopicPartition(row["topic"] or row["topic_id"], row["partition"])
        if row["task_type"] is None:
            (target if is_target else owned)[member_id].add(place)
        elif row["assignment"] != "REVOKING":
            tasks[member_id][f"TARGET-{row['task_type']}" if is_target else row["task_type"]].add(place)
    for row in sorted(rows, key=lambda row: string_order(row["member_id"])):
        member_id, epoch = row["member_id"], row["member_epoch"]
        if row["group_type"] != GroupType.CLASSIC and not past.is_settled(row, member_id):
            epoch = past.reconciled[member_id]["generation"] if member_id in past.reconciled else 0
        yield Member(
            member_id,
            row["instance_id"],
            row["client_id"] or "",
            row["client_host"] or "",
            epoch,
            bool(row["uses_classic_protocol"]) if row["group_type"] == GroupType.CONSUMER else None,
            tuple(sorted(owned[member_id])),
            tuple(sorted(target[member_id])),
            member_id in unread,
            row["process_id"],
            {kind: tuple(sorted(places)) for kind, places in tasks[member_id].items()},
        )


def group_of(
    row: Row,
    members: tuple[Member, ...],
    asked_assignors: Iterable[str | None],
    past: Past,
    offsets: Mapping[TopicPartition, CommittedOffset],
    starts: Mapping[TopicPartition, ShareStart],
    inputs: Mapping[str, Mapping[str, float]],
) -> Group:
    """A group, from the row of silver.group_generations that is valid at the time."""
    group_type, state = row["group_type"], row["state"]
    assignor, assignment_epoch = row["protocol_name"], row["assignment_epoch"]
    if not past.is_settled(row):
        if group_type == GroupType.CLASSIC:
            state, assignor = ("Stable", assignor) if members else ("Empty", None)
        else:
            assignment_epoch = past.assignment_epoch()
            state = _modern_state(row, members, past.reconciled, assignment_epoch)
    if group_type == GroupType.CONSUMER:
        assignor = _voted(asked_assignors) or DEFAULT_ASSIGNOR
    return Group(
        row["group_id"],
        group_type,
        state,
        row["protocol_type"],
        assignor,
        None if group_type == GroupType.CLASSIC else row["generation"],
        None if group_type == GroupType.CLASSIC else assignment_epoch,
        members,
        offsets,
        starts,
        row.get("log_partition", -1),
        row["topology_epoch"],
        inputs,
    )


def _modern_state(row: Row, members: Sequence[Member], reconciled: Mapping[str, Row], assignment_epoch: int) -> str:
    """The state by the rules of ConsumerGroup.maybeUpdateGroupState, ShareGroup and StreamsGroup, from what the log
    contains."""
    if not members:
        return "Empty"
    if row["group_type"] == GroupType.SHARE:
        return "Stable"
    if row["generation"] > assignment_epoch:
        return "Assigning"
    newest = [reconciled.get(member.member_id) for member in members]
    is_stable = all(
        event is not None and event["details"]["state"] == STABLE_MEMBER and event["generation"] == assignment_epoch
        for event in newest
    )
    return "Stable" if is_stable else "Reconciling"


def _voted(asked: Iterable[str | None]) -> str | None:
    """The assignor that most members request."""
    counts = Counter(name for name in asked if name is not None)
    return max(counts, key=lambda name: (counts[name], name)) if counts else None
