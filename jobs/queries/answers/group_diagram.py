"""`history --diagram`: what a group's members and their coordinator must have said, by a recorded log.

A coordinator writes what it decided, not what it was asked. So a message is proven where a record needs it: a
generation has only members that joined and synced; an epoch that a member has reached was sent to it. Why a member
went, and when a join phase began, is inferred: such a message or change has the confidence of gold's cause.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from coordinator_core.confidence import CERTAIN, LIKELY
from coordinator_core.text import counted
from jobs.console.conversation import Change, Conversation, Event, Message
from jobs.console.names import short
from jobs.console.output import time_text
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.pinned_versions import of_one_run
from jobs.delta.replay_runs import PinnedTables, WholeRun
from jobs.delta.times import epoch_ms
from jobs.errors import ArgumentError
from jobs.queries.answers.group_history import causes_of
from schemas.group_types import GroupType
from schemas.tables.declare import Table
from schemas.tables.gold import REBALANCES
from schemas.tables.silver import GROUP_EVENTS, GROUP_GENERATIONS, GROUP_MEMBERS, MEMBER_ASSIGNMENTS

COORDINATOR: Final = "coordinator"
MEMBERS_MAX: Final = 12
"""Members with a line of their own; the messages of others are left out, and the title says so."""
HEARTBEATS: Final = {
    GroupType.CONSUMER: "ConsumerGroupHeartbeat",
    GroupType.SHARE: "ShareGroupHeartbeat",
    GroupType.STREAMS: "StreamsGroupHeartbeat",
}
LEFT: Final = frozenset({"MEMBER_LEFT", "POLL_EXPIRED", "ROLLING_DEPLOYMENT"})
"""Causes with which members that went had sent a request for that; with others, the coordinator removed them."""
STABLE: Final = "Stable"
EMPTY: Final = "Empty"


@dataclass(frozen=True, slots=True)
class _Group:
    """The rows of one group."""

    names: Mapping[str, str]
    """Member id -> name in the diagram, of the members that are drawn."""
    generations: Mapping[tuple[int, int], Mapping[str, Any]]
    """(incarnation, generation) -> row."""
    members: Sequence[Mapping[str, Any]]
    assignments: Mapping[str, Sequence[Mapping[str, Any]]]
    """Member id -> its rows."""

    def assigned(self, member_id: str, log_offset: int) -> str:
        """What a member has from a log offset on."""
        topics: dict[str, list[int]] = {}
        for row in self.assignments.get(member_id, ()):
            if row["from_log_offset"] <= log_offset and (
                row["to_log_offset"] is None or log_offset < row["to_log_offset"]
            ):
                topics.setdefault(row["topic"] or row["topic_id"] or "?", []).append(row["partition"])
        parts = (f"{short(topic)} {', '.join(map(str, sorted(numbers)))}" for topic, numbers in sorted(topics.items()))
        return "; ".join(parts) or "nothing"


def worst_of(tables: ClusterTables, group_id: str, from_ms: int | None, to_ms: int | None) -> Conversation | None:
    """The rebalance between two times that left partitions without an owner for longest, of equals the last; None if
    there was none."""
    worst = max(
        (
            (
                row["unowned_partition_ms"] or 0,
                epoch_ms(row["started_at"]),
                epoch_ms(row["completed_at"] or row["started_at"]),
            )
            for row in WholeAudit.newest(tables).read(REBALANCES, group_id=group_id).to_pylist()
            if row["started_at"] and (from_ms or 0) <= epoch_ms(row["started_at"]) < (to_ms or 2**63)
        ),
        default=None,
    )
    return None if worst is None else conversation_of(tables, group_id, worst[1], worst[2] + 1)


@of_one_run
def conversation_of(tables: ClusterTables, group_id: str, from_ms: int | None, to_ms: int | None) -> Conversation:
    """What was said between two times (epoch ms, `to_ms` exclusive). Raises ArgumentError if no rebalance began in
    between."""
    gold, run = WholeAudit.newest(tables), WholeRun.newest(tables)
    begin_ms, end_ms = 0 if from_ms is None else from_ms, 2**63 if to_ms is None else to_ms

    def rows_of(pinned: PinnedTables, table: Table) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pinned.read(table, group_id=group_id).to_pylist()
        return rows

    timed = (row for row in rows_of(gold, REBALANCES) if row["started_at"])
    rebalances = [row for row in timed if begin_ms <= epoch_ms(row["started_at"]) < end_ms]
    rebalances.sort(key=lambda row: (row["started_at"], row["incarnation"], row["to_generation"]))
    if not rebalances:
        is_whole = from_ms is None and to_ms is None
        remedy = "there is nothing to draw" if is_whole else "give others with --from, --to, or leave them out"
        raise ArgumentError(f"group {short(group_id)} has no rebalance{'' if is_whole else ' in that time'}: {remedy}")
    members = rows_of(run, GROUP_MEMBERS)
    seen = [it for row in rebalances for it in (*(row["members_left"] or ()), *(row["members_joined"] or ()))]
    last = rebalances[-1]
    first_ms, last_ms = epoch_ms(rebalances[0]["started_at"]), epoch_ms(last["completed_at"] or last["started_at"])
    there = [
        row["member_id"]
        for row in members
        if _ms_or(row["valid_from"], last_ms) <= last_ms and _ms_or(row["valid_to"], first_ms) >= first_ms
    ]
    names = _names(members, dict.fromkeys((*there, *seen)))
    shown = dict(list(names.items())[:MEMBERS_MAX])
    assignments: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(run, MEMBER_ASSIGNMENTS):
        if row["assignment"] == "CURRENT":
            assignments.setdefault(row["member_id"], []).append(row)
    group = _Group(
        shown,
        {(row["incarnation"], row["generation"]): row for row in rows_of(run, GROUP_GENERATIONS)},
        members,
        assignments,
    )
    events: list[Event] = []
    state = ""
    for row in rebalances:
        is_classic = row["group_type"] == GroupType.CLASSIC
        said = list(_classic(group, row, state) if is_classic else _modern(group, row, state))
        events += said
        state = next((event.after for event in reversed(said) if isinstance(event, Change) and not event.whose), state)
    types = {row["group_type"] for row in rebalances} - {GroupType.CLASSIC}
    steps = rows_of(run, GROUP_EVENTS) if types else []
    for group_type in sorted(types):
        of_type = [row for row in steps if row["group_type"] == group_type]
        events += _reconciled(group, of_type, group_type, first_ms, end_ms)
    events.sort(key=lambda event: event.at_ms)
    lacks = f", {counted(len(names) - len(shown), 'more member')} not drawn" if len(names) > len(shown) else ""
    spans = " to ".join(time_text(at_ms) or "" for at_ms in (events[0].at_ms, events[-1].at_ms))
    title = f"Group {short(group_id)}: {counted(len(rebalances), 'rebalance')}, {spans}; dashed: inferred{lacks}"
    return Conversation(title, list(shown.values()), [COORDINATOR], events)


def _ms_or(at: datetime | None, otherwise_ms: int) -> int:
    """A time; the other one where it is open, or its records have none."""
    return otherwise_ms if at is None else epoch_ms(at)


def _names(members: Sequence[Mapping[str, Any]], wanted: Mapping[str, None]) -> dict[str, str]:
    """Group instance ids, else client ids; with the end of the member id where several members have the same one."""
    own = {row["member_id"]: row["instance_id"] or row["client_id"] or "?" for row in members}
    called = {member_id: short(own.get(member_id, member_id)) for member_id in wanted}
    count = Counter(called.values())
    return {member_id: name if count[name] == 1 else f"{name} ..{member_id[-4:]}" for member_id, name in called.items()}


def _departures(group: _Group, row: Mapping[str, Any], leave: str, text: str) -> Iterator[Event]:
    """How members went, at the latest when the rebalance began."""
    at_ms = epoch_ms(row["started_at"])
    cause, confidence = next(
        (it for it in causes_of(row) if it[0] in LEFT or it[0].startswith("MEMBER_")), causes_of(row)[0]
    )
    for member_id in row["members_left"] or ():
        name = group.names.get(member_id)
        if name is None:
            continue
        doubt = None if confidence == CERTAIN else confidence
        if cause in LEFT:
            yield Message(at_ms, name, COORDINATOR, leave, text, confidence=doubt)
        else:
            yield Change(at_ms, name, f"member {name}", "member", "gone", cause, doubt)


def _classic(group: _Group, row: Mapping[str, Any], state: str) -> Iterator[Event]:
    generation = group.generations.get((row["incarnation"], row["to_generation"]))
    at_ms = epoch_ms(row["started_at"])
    done_ms = at_ms if generation is None else _ms_or(generation["valid_from"], at_ms)
    why = ", ".join(f"{cause} {confidence or ''}".strip() for cause, confidence in causes_of(row))
    yield from _departures(group, row, "LeaveGroup", "")
    if not row["member_count"]:
        yield Change(done_ms, "", "group", state or STABLE, EMPTY, why)
        return
    yield Change(at_ms, "", "group", state or EMPTY, "PreparingRebalance", f"begun by then: {why}", LIKELY)
    there = [
        (member["member_id"], group.names[member["member_id"]])
        for member in group.members
        if member["member_id"] in group.names
        and member["incarnation"] == row["incarnation"]
        and member["from_generation"] <= row["to_generation"] <= member["to_generation"]
    ]
    leader = None if generation is None else generation["leader_member_id"]
    joined = set(row["members_joined"] or ())
    for member_id, name in there:
        text = "new" if member_id in joined else f"again, from generation {row['from_generation']}"
        yield Message(at_ms, name, COORDINATOR, "JoinGroup", text)
    yield Change(at_ms, "", "group", "PreparingRebalance", "CompletingRebalance", "the join phase ends")
    for member_id, name in there:
        leads = "it leads" if member_id == leader else f"{group.names.get(leader or '', '?')} leads"
        protocol = "" if generation is None else f" by {generation['protocol_name']}"
        text = f"generation {row['to_generation']}{protocol}; {leads}"
        yield Message(at_ms, COORDINATOR, name, "JoinGroup", text, is_answer=True)
    for member_id, name in there:
        text = "with the plan of all" if member_id == leader else ""
        yield Message(done_ms, name, COORDINATOR, "SyncGroup", text)
    yield Change(done_ms, "", "group", "CompletingRebalance", STABLE, "the leader's plan is in the log")
    for member_id, name in there:
        since = -1 if generation is None else generation["from_log_offset"]
        text = f"it gets {group.assigned(member_id, since)}"
        yield Message(done_ms, COORDINATOR, name, "SyncGroup", text, is_answer=True)


def _modern(group: _Group, row: Mapping[str, Any], state: str) -> Iterator[Event]:
    at_ms, api = epoch_ms(row["started_at"]), HEARTBEATS[GroupType(row["group_type"])]
    why = ", ".join(f"{cause} {confidence or ''}".strip() for cause, confidence in causes_of(row))
    yield from _departures(group, row, api, "leaves")
    for member_id in row["members_joined"] or ():
        if member_id in group.names:
            yield Message(at_ms, group.names[member_id], COORDINATOR, api, "joins")
    after = f"epoch {row['to_generation']}" if row["member_count"] else EMPTY
    yield Change(at_ms, "", "group", state or EMPTY, after, why)


def _reconciled(
    group: _Group, rows: Sequence[Mapping[str, Any]], group_type: str, from_ms: int, to_ms: int
) -> Iterator[Event]:
    """The epochs that members were given: each was in the answer to a heartbeat."""
    api = HEARTBEATS[GroupType(group_type)]
    for row in rows:
        name = group.names.get(row["member_id"] or "")
        if row["event_type"] != "MEMBER_RECONCILED" or name is None or row["at"] is None:
            continue
        at_ms = epoch_ms(row["at"])
        if from_ms <= at_ms < to_ms:
            has = group.assigned(row["member_id"], row["log_offset"])
            text = f"epoch {row['generation']}, it has {has}"
            yield Message(at_ms, COORDINATOR, name, api, text, is_answer=True)
