"""The tables of one recording, and what they say at a log end, as facts of the same form as the brokers' answers.

A row of an interval table holds at log end E (exclusive) if it began before E and had not ended: `from_log_offset < E`
and `to_log_offset` is null or at least E. Its attributes are those at the end of its interval, so at E they are only
known from the row if nothing happened to the group between E and that end; else epochs and states are read from the
events up to E. Who a member is (client, host, instance, rack) is taken from the row in either case: were one of them
to change within an interval, the comparison would differ and had to be looked at.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from coordinator_core.replay.lookup import SharePartitionKey
from schemas.group_types import GroupType
from tests.conformance.truth import OPEN_ROWS, Facts, GroupAnswer, ShareAnswer

Row = Mapping[str, Any]
Rows = list[dict[str, Any]]

TABLE_NAMES: Final = (
    "bronze.record_batches",
    "bronze.coverage",
    "bronze.quarantine",
    "silver.offset_commits",
    "silver.group_generations",
    "silver.group_members",
    "silver.member_assignments",
    "silver.group_events",
    "silver.share_partition_states",
    "silver.share_state_batches",
    "silver.share_batch_transitions",
    "silver.topics",
)

INITIAL_ASSIGNMENT_EPOCH: Final = 1
"""Of a group before its first target (TargetAssignmentMetadata.INITIAL)."""
RESTARTING_EVENTS: Final = frozenset({"GROUP_CREATED", "GROUP_CONVERTED"})

DEFAULT_ASSIGNOR: Final = "uniform"
"""What a group uses where no member asks for an assignor: the first of group.consumer.assignors, left at its default by
the recordings' brokers. The log holds only what members ask for."""

DELIVERY_STATE_CODES: Final = {"AVAILABLE": 0, "ACKNOWLEDGED": 2, "ARCHIVING": 3, "ARCHIVED": 4}
STABLE_MEMBER: Final = "STABLE"
RECONCILED: Final = "MEMBER_RECONCILED"


class Tables:
    """Rows of all bronze and silver tables of one warehouse, by name; times are epoch milliseconds."""

    def __init__(self, rows: Mapping[str, Rows]) -> None:
        self.rows = {name: rows.get(name, []) for name in TABLE_NAMES}
        self._by_group: dict[str, dict[str, Rows]] = {}
        for name in TABLE_NAMES:
            if name.startswith("silver.") and name != "silver.topics":
                groups: dict[str, Rows] = defaultdict(list)
                for row in self.rows[name]:
                    groups[row["group_id"]].append(row)
                self._by_group[name] = dict(groups)
        for events in self._by_group["silver.group_events"].values():
            events.sort(key=lambda event: (event["log_offset"], event["event_index"]))

    def __getitem__(self, name: str) -> Rows:
        return self.rows[name]

    def of_group(self, name: str, group_id: str) -> Rows:
        """A silver table's rows of one group."""
        return self._by_group[name].get(group_id, [])

    @property
    def groups(self) -> frozenset[str]:
        """Every group that any table of groups names."""
        return frozenset(
            group_id
            for name in ("silver.group_generations", "silver.group_members", "silver.offset_commits")
            for group_id in self._by_group[name]
        )

    @property
    def share_partitions(self) -> frozenset[SharePartitionKey]:
        """Every share partition that has a state."""
        return frozenset(
            SharePartitionKey(row["group_id"], row["topic_id"], row["partition"])
            for row in self.rows["silver.share_partition_states"]
        )


def read_tables(warehouse: Path) -> Tables:
    """Read a warehouse of one cluster through delta-rs, no Spark. Raises where a table is missing."""
    return Tables(
        {name: rows_of(DeltaTable(str(warehouse / name.replace(".", "/"))).to_pyarrow_table()) for name in TABLE_NAMES}
    )


def rows_of(table: pa.Table) -> Rows:
    """An Arrow table as dicts, with timestamps as epoch milliseconds."""
    for index, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            as_ms = table.column(index).cast(pa.timestamp("ms", tz=column.type.tz)).cast(pa.int64())
            table = table.set_column(index, column.name, as_ms)
    rows: Rows = table.to_pylist(maps_as_pydicts="strict")
    return rows


# --- groups ---


def group_answers_of(tables: Tables, answer: GroupAnswer) -> Facts:
    """What the tables say of a group at the moment of a broker's answer: the facts of `truth.group_facts`."""
    group_id, log_end = answer.group_id, answer.log_end
    generations = open_at(tables.of_group("silver.group_generations", group_id), log_end)
    members = open_at(tables.of_group("silver.group_members", group_id), log_end)
    events = tables.of_group("silver.group_events", group_id)
    facts: Facts = {}
    if generations:
        facts[OPEN_ROWS] = len(generations)
        facts.update(_generation_facts(generations[0], members, events, log_end))
        facts["member count",] = len(members)
    for row in members:
        facts.update(_member_facts(row, events, log_end))
    for row in open_at(tables.of_group("silver.member_assignments", group_id), log_end):
        facts.update(_assignment_facts(row))
    facts.update(_offset_facts(tables.of_group("silver.offset_commits", group_id), log_end))
    return facts


def open_at(rows: Iterable[Row], log_end: int) -> list[Row]:
    """Rows of an interval table which hold at a log end (exclusive)."""
    return [
        row
        for row in rows
        if row["from_log_offset"] < log_end and (row["to_log_offset"] is None or row["to_log_offset"] >= log_end)
    ]


def _is_settled(row: Row, changes: Iterable[Row], log_end: int) -> bool:
    """Did nothing happen between a log end and the end of a row's interval? Then its attributes apply at both."""
    to = row["to_log_offset"]
    return not any(event["log_offset"] >= log_end and (to is None or event["log_offset"] < to) for event in changes)


def _generation_facts(row: Row, members: Sequence[Row], events: Sequence[Row], log_end: int) -> Facts:
    settled = _is_settled(row, events, log_end)
    facts: Facts = {("type",): row["group_type"]}
    if row["group_type"] == GroupType.CLASSIC:
        facts["state",] = row["state"] if settled else "Stable" if members else "Empty"
        facts["protocol_type",] = row["protocol_type"] or ""
        facts["protocol_name",] = row["protocol_name"] or ""
        facts["simple",] = not row["protocol_type"]
        return facts
    assignment_epoch = INITIAL_ASSIGNMENT_EPOCH
    for event in events:
        if event["log_offset"] < log_end and event["event_type"] in RESTARTING_EVENTS:
            assignment_epoch = INITIAL_ASSIGNMENT_EPOCH
        elif event["log_offset"] < log_end and event["event_type"] == "TARGET_COMPUTED":
            assignment_epoch = event["generation"]
    facts["group epoch",] = row["generation"]
    facts["assignment epoch",] = row["assignment_epoch"] if settled else assignment_epoch
    facts["state",] = (
        row["state"] if settled else _modern_state(row, members, events, log_end, facts["assignment epoch",])
    )
    if row["group_type"] == "CONSUMER":
        facts["assignor",] = (row["protocol_name"] if settled else _assignor(members)) or DEFAULT_ASSIGNOR
    if row["group_type"] == "STREAMS":
        facts["topology epoch",] = row["topology_epoch"]
    return facts


def _modern_state(row: Row, members: Sequence[Row], events: Sequence[Row], log_end: int, assignment_epoch: Any) -> str:
    """The rule of ConsumerGroup.maybeUpdateGroupState and ShareGroup, over the events up to a log end."""
    if not members:
        return "Empty"
    if row["group_type"] == "SHARE":
        return "Stable"
    if row["generation"] > assignment_epoch:
        return "Assigning"
    newest = (_reconciled(member["member_id"], events, log_end) for member in members)
    is_stable = all(
        event is not None and event["details"]["state"] == STABLE_MEMBER and event["generation"] == assignment_epoch
        for event in newest
    )
    return "Stable" if is_stable else "Reconciling"


def _assignor(members: Iterable[Row]) -> str | None:
    asked = Counter(row["server_assignor"] for row in members if row["server_assignor"] is not None)
    return max(asked, key=lambda name: (asked[name], name)) if asked else None


def _reconciled(member_id: str, events: Sequence[Row], log_end: int) -> Row | None:
    """The newest type 8, 14 or 22 value of a member before a log end; None if it joined again since."""
    newest: Row | None = None
    for event in events:
        if event["member_id"] == member_id and event["log_offset"] < log_end:
            if event["event_type"] == RECONCILED:
                newest = event
            elif event["event_type"] == "MEMBER_LEFT":
                newest = None
    return newest


def _member_facts(row: Row, events: Sequence[Row], log_end: int) -> Facts:
    member_id = row["member_id"]
    own = [event for event in events if event["member_id"] == member_id]
    names = ["client_id", "client_host", "instance_id"]
    if row["group_type"] in {"CONSUMER", "SHARE"}:
        names.append("rack_id")
    if row["group_type"] == "CONSUMER":
        names.append("uses_classic_protocol")
    facts: Facts = {("member", member_id, name): row[name] for name in names}
    if row["group_type"] != GroupType.CLASSIC:
        event = _reconciled(member_id, events, log_end)
        by_events = 0 if event is None else event["generation"]
        is_settled = _is_settled(row, own, log_end)
        facts["member", member_id, "member_epoch"] = row["member_epoch"] if is_settled else by_events
        facts["member", member_id, "member_epoch by events"] = by_events
    return facts


def _assignment_facts(row: Row) -> Facts:
    """Admin shows what a member has: owned and still to be given up (recordings, fact 6)."""
    kind = "target" if row["assignment"] == "TARGET" else "assigned"
    place = f"{row['topic']}-{row['partition']}"
    if row["group_type"] == "STREAMS":
        if row["assignment"] == "REVOKING":
            return {}
        place = f"{row['task_type']} {place}"
    elif row["group_type"] == "SHARE" and kind == "target":
        return {}  # the recordings hold no targets of share groups
    return {(kind, row["member_id"], place): True}


def _offset_facts(rows: Iterable[Row], log_end: int) -> Facts:
    newest: dict[tuple[str, int], Row] = {}
    for row in rows:
        applied = row["applied_log_offset"]
        if row["outcome"] != "APPLIED" or applied >= log_end:
            continue
        key = (row["topic"], row["partition"])
        if key not in newest or newest[key]["applied_log_offset"] < applied:
            newest[key] = row
    return {
        ("offset", f"{topic}-{partition}"): (row["committed_offset"], row["leader_epoch"], row["metadata"])
        for (topic, partition), row in newest.items()
        if row["change"] != "DELETE"
    }


# --- share partitions ---


def share_answers_of(tables: Tables, answer: ShareAnswer) -> Facts:
    """What the tables say of a share partition at the moment of a coordinator's answer: as `truth.share_facts`."""

    def own(name: str) -> Iterator[Row]:
        for row in tables.of_group(name, answer.group_id):
            if row["topic_id"] == answer.topic_id and row["partition"] == answer.partition:
                yield row

    states = [row for row in own("silver.share_partition_states") if row["log_offset"] < answer.log_end]
    facts: Facts = {}
    if states:
        newest = max(states, key=lambda row: row["log_offset"])
        if newest["record_kind"] != "TOMBSTONE":
            facts["topic",] = newest["topic"]
            facts["state epoch",] = newest["state_epoch"]
            facts["start offset",] = newest["start_offset"]
            if answer.listed is not None:
                facts["listed start offset",] = newest["start_offset"]
                facts["leader epoch",] = newest["leader_epoch"]
    for row in open_at(own("silver.share_state_batches"), answer.log_end):
        for offset in range(row["first_offset"], row["last_offset"] + 1):
            if ("delivery", offset) in facts:
                facts["delivered twice", offset] = True
            facts["delivery", offset] = (DELIVERY_STATE_CODES[row["delivery_state"]], row["delivery_count"])
    return facts


def deltas(expected: Facts, got: Facts) -> list[tuple[tuple[str | int, ...], Any, Any]]:
    """Facts in which two sides differ, with both values; None where a side has no such fact."""
    return [
        (path, expected.get(path), got.get(path))
        for path in sorted({*expected, *got}, key=str)
        if path not in expected or path not in got or expected[path] != got[path]
    ]
