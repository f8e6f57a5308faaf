"""Silver's state at a position of the log, as facts to compare with a broker's answers.

Each history has the states between two end offsets: those recorded before and after the broker was asked. An interval
is valid at end offset E (exclusive) if it began before E and had not ended.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.history.comparison_with_broker import (
    EXISTS,
    MEMBER_EXISTS,
    NOT_STORED,
    STORED,
    TOPOLOGY_DESCRIPTION,
    Facts,
    Path,
)
from coordinator_core.history.rows import GROUP_DELETED, TOPOLOGY_DESCRIPTION_CHANGED
from coordinator_core.history.views import REVOKING, TARGET
from coordinator_core.replay.lookup import SharePartitionKey, key_partition
from jobs.delta.arrow_schemas import file_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.queries.as_of.as_of import SilverAt
from jobs.queries.as_of.group_model import Row, share_key
from jobs.queries.as_of.group_state import RESTARTING_EVENTS, TELLING, Past, group_of, members_of
from jobs.queries.as_of.newest_commits import newest_commits
from schemas import consumer_offsets, share_group_state
from schemas.group_types import GroupType
from schemas.tables.declare import Table
from schemas.tables.silver import (
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    SHARE_PARTITION_STATES,
    SHARE_STATE_BATCHES,
)

TOMBSTONE: Final = "TOMBSTONE"
STORED_TOPOLOGY_EPOCH: Final = "stored_topology_epoch"
NO_TOPOLOGY: Final = "-1"
INITIALIZED: Final = "SHARE_PARTITIONS_INITIALIZED"
NOT_SET: Final = -1

COMMIT_COLUMNS: Final = (
    "log_partition",
    "group_id",
    "topic",
    "partition",
    "applied_log_offset",
    "committed_offset",
    "leader_epoch",
    "metadata",
)
EVENT_COLUMNS: Final = (
    "group_id",
    "log_partition",
    "log_offset",
    "event_index",
    "event_type",
    "generation",
    "member_id",
    "details",
)


class Window(NamedTuple):
    """End offsets (exclusive) between which a broker was asked."""

    from_end: int
    to_end: int


NOTHING: Final = Window(0, 0)


@dataclass(slots=True)
class GroupInWindow:
    """The rows of one group that are valid within a window, and its events if anything happened in the window."""

    window: Window
    generations: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    assignments: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    descriptions: list[Row] = field(default_factory=list)
    """For streams groups, in log order: events after which the broker's plugin has another topology description, and
    those that begin a group, which then has none."""

    def states(self, names: Mapping[str, str]) -> list[Facts]:
        """The group's states in the window, at least one. `names`: of topic ids whose names the ledger lacks."""
        return [self._at(log_end, names) for log_end in self._log_ends()]

    @property
    def begun(self) -> dict[Path, int]:
        """Offsets of the records that created the group and each of its members, if they exist at the end of the
        window.
        """
        found: dict[Path, int] = {}
        for row in _open_at(self.generations, self.window.to_end):
            found[EXISTS] = row["from_log_offset"]
        for row in _open_at(self.members, self.window.to_end):
            found["member", row["member_id"], MEMBER_EXISTS] = row["from_log_offset"]
        return found

    def _log_ends(self) -> list[int]:
        offsets = {event["log_offset"] for event in (*self.events, *self.descriptions)}
        for row in (*self.generations, *self.members, *self.assignments):
            offsets |= {row["from_log_offset"], row["to_log_offset"]}
        return _log_ends(offsets, self.window)

    def _at(self, log_end: int, names: Mapping[str, str]) -> Facts:
        generations = _open_at(self.generations, log_end)
        if not generations:
            return {}
        row = generations[0]
        member_rows = _open_at(self.members, log_end)
        assignments = _open_at(self.assignments, log_end)
        past = Past(self.events, lambda event: bool(event["log_offset"] < log_end))
        members = tuple(members_of(member_rows, assignments, past))
        asked = [member["server_assignor"] for member in member_rows]
        group = group_of(row, members, asked, past, {}, {}, {})
        epochs = group.group_epoch, group.assignment_epoch
        facts = group_facts(group.group_type, group.state, group.protocol_type, group.assignor, *epochs)
        if len(generations) > 1:
            facts["open generations",] = len(generations)
        if group.group_type == GroupType.CONSUMER and any(asked):
            facts["assignor",] = group.assignor
        if group.group_type == GroupType.STREAMS:
            facts["topology epoch",] = row["topology_epoch"]
            facts[TOPOLOGY_DESCRIPTION] = self._description(log_end, row["topology_epoch"])
        facts["member count",] = len(members)
        member_epochs = {member.member_id: member.member_epoch for member in members}
        for member in member_rows:
            member_id = member["member_id"]
            client = {name: member[name] or "" for name in ("client_id", "client_host")}
            values = {**member, **client, "member_epoch": member_epochs[member_id]}
            facts |= member_facts(member["group_type"], member_id, values.__getitem__)
        for assignment in assignments:
            facts.update(_assignment_fact(assignment, names))
        return facts

    def _description(self, log_end: int, topology_epoch: int | None) -> str:
        """Is a topology description stored at this end offset?"""
        stored = NO_TOPOLOGY
        for event in self.descriptions:
            if event["log_offset"] < log_end:
                stored = event["details"].get(STORED_TOPOLOGY_EPOCH, NO_TOPOLOGY)
        return STORED if stored == str(topology_epoch) else NOT_STORED


@dataclass(slots=True)
class OffsetHistory:
    """Committed offsets of one group at the beginning of a window, and the changes by each commit in it."""

    base: dict[Path, Any] = field(default_factory=dict)
    applied: dict[Path, int] = field(default_factory=dict)
    """Log offsets at which the initial ones were applied."""
    changes: list[dict[Path, Any]] = field(default_factory=list)


@dataclass(slots=True)
class ShareHistory:
    """The rows of one share partition that are valid within a window."""

    window: Window
    topic: str | None = None
    records: list[Row] = field(default_factory=list)
    batches: list[Row] = field(default_factory=list)

    def states(self) -> list[Facts]:
        """Its states in the window, at least one."""
        offsets = {record["log_offset"] for record in self.records}
        return [self._at(log_end) for log_end in _log_ends(offsets, self.window)]

    @property
    def is_complete(self) -> bool:
        """Does every state in the window follow a snapshot?"""
        return all(record["is_complete"] for record in self.records if record["record_kind"] != TOMBSTONE)

    def _at(self, log_end: int) -> Facts:
        before = [record for record in self.records if record["log_offset"] < log_end]
        newest = max(before, key=lambda record: record["log_offset"], default=None)
        if newest is None or newest["record_kind"] == TOMBSTONE:
            return {}
        return {
            EXISTS: True,
            ("state epoch",): newest["state_epoch"],
            ("leader epoch",): newest["leader_epoch"],
            ("start offset",): newest["start_offset"],
            ("batches",): joined_batches(
                (row["first_offset"], row["last_offset"], row["delivery_state_code"], row["delivery_count"])
                for row in _open_at(self.batches, log_end)
            ),
        }


def joined_batches(batches: Iterable[tuple[int, int, int, int]]) -> tuple[tuple[int, int, int, int], ...]:
    """(first offset, last offset, state, count) ascending.

    Adjacent batches with equal state and count are joined: Kafka may leave them separate (PersisterStateBatchCombiner),
    without an effect on consumers.
    """
    joined: list[tuple[int, int, int, int]] = []
    for first, last, state, count in sorted(batches):
        if joined and joined[-1][1] + 1 == first and joined[-1][2:] == (state, count):
            joined[-1] = (joined[-1][0], last, state, count)
        else:
            joined.append((first, last, state, count))
    return tuple(joined)


class Ledger:
    """Silver of one cluster in the windows of its log partitions. `group_ids` None: all groups.

    Only rows of the log partition that the cluster uses for a group or share partition count: others are from before
    the topic got more partitions. `partition_counts`: of coordinator topics, where they are known.
    """

    def __init__(
        self,
        tables: ClusterTables,
        windows: Mapping[LogPartition, Window],
        group_ids: Collection[str] | None = None,
        partition_counts: Mapping[str, int] | None = None,
    ) -> None:
        self._silver = SilverAt(tables, group_ids=group_ids)
        self._windows = windows
        self._counts = {topic: count for topic, count in (partition_counts or {}).items() if count > 0}
        self._homes: dict[tuple[str, str], int] = {}
        self.former: dict[tuple[str, str], set[int]] = defaultdict(set)
        """By coordinator topic and key: log partitions whose rows did not count, since the cluster uses another one."""

    def groups(self) -> dict[str, GroupInWindow]:
        """Groups that existed in at least a part of their windows."""
        found: dict[str, GroupInWindow] = {}
        for table, name in (
            (GROUP_GENERATIONS, "generations"),
            (GROUP_MEMBERS, "members"),
            (MEMBER_ASSIGNMENTS, "assignments"),
        ):
            for row in self._rows(table, consumer_offsets.TOPIC):
                window = self._window(consumer_offsets.TOPIC, row["log_partition"])
                history = found.setdefault(row["group_id"], GroupInWindow(window))
                getattr(history, name).append(row)
        for group_id, events in self._events(found).items():
            found[group_id].events = events
        for group_id, events in self._descriptions(found).items():
            found[group_id].descriptions = events
        return found

    def left_empty(self, group_ids: Collection[str]) -> frozenset[str]:
        """Those groups that a transaction left without offsets, so that its marker removed them: nothing else was
        written at that offset, and the first event of a record has index 0.
        """
        found = set()
        for group_id, events in self._events_of(group_ids, ("GROUP_CREATED", GROUP_DELETED, "OFFSETS_DELETED")).items():
            last = max(events, key=lambda event: (event["log_offset"], event["event_index"]))
            is_alone = [event["log_offset"] for event in events].count(last["log_offset"]) == 1
            if last["event_type"] == GROUP_DELETED and last["event_index"] and is_alone:
                found.add(group_id)
        return frozenset(found)

    def committed_offsets(self) -> dict[str, OffsetHistory]:
        """Committed offsets by group."""
        from_ends = self._from_ends(consumer_offsets.TOPIC)
        moved: list[pa.RecordBatch] = []

        def before() -> Iterator[pa.RecordBatch]:
            for applied in self._silver.applied_commits(COMMIT_COLUMNS):
                batch = self._at_home(applied)
                ends = from_ends[np.minimum(batch["log_partition"].to_numpy(), len(from_ends) - 1)]
                is_before = batch["applied_log_offset"].to_numpy() < ends
                moved.append(batch.filter(pa.array(~is_before)))
                yield batch.filter(pa.array(is_before))

        histories: dict[str, OffsetHistory] = defaultdict(OffsetHistory)
        in_force = newest_commits(before())
        for row in in_force.to_pylist():
            history = histories[row["group_id"]]
            history.base[_offset_path(row)] = _offset_value(row)
            history.applied[_offset_path(row)] = row["applied_log_offset"]
        later = pa.Table.from_batches(moved).to_pylist() if moved else []
        for row in sorted(later, key=lambda row: (row["log_partition"], row["applied_log_offset"])):
            window = self._window(consumer_offsets.TOPIC, row["log_partition"])
            if row["applied_log_offset"] < window.to_end:
                change = {_offset_path(row): _offset_value(row)}
                histories[row["group_id"]].changes.append(change)
        return dict(histories)

    def share_partitions(self) -> dict[SharePartitionKey, ShareHistory]:
        """Share partitions that have a state, or had one in their windows."""
        found: dict[SharePartitionKey, ShareHistory] = {}
        for row in self._rows(SHARE_PARTITION_STATES, share_group_state.TOPIC):
            history = found.setdefault(share_key(row), ShareHistory(self._share_window(row)))
            history.records.append(row)
            history.topic = history.topic or row["topic"]
        for row in self._rows(SHARE_STATE_BATCHES, share_group_state.TOPIC):
            history = found.setdefault(share_key(row), ShareHistory(self._share_window(row)))
            history.batches.append(row)
        return found

    def initialized(self) -> frozenset[SharePartitionKey]:
        """Share partitions that their groups recorded as initialized."""
        is_such = pc.field("event_type") == pc.scalar(INITIALIZED)
        rows = self._silver.scan(GROUP_EVENTS, ("group_id", "details"), is_such).to_pylist(maps_as_pydicts="strict")
        return frozenset(
            SharePartitionKey(row["group_id"], row["details"]["topic_id"], int(partition))
            for row in rows
            for partition in row["details"]["partitions"].split(",")
        )

    def _is_home(self, topic: str, key: str, log_partition: int) -> bool:
        """Does the cluster use this log partition for a key?"""
        if topic not in self._counts:
            return True
        home = self._home(topic, key)
        if home != log_partition:
            self.former[topic, key].add(log_partition)
        return home == log_partition

    def _home(self, topic: str, key: str) -> int:
        """The log partition that the cluster uses for a key."""
        home = self._homes.get((topic, key))
        if home is None:
            home = self._homes[topic, key] = key_partition(key, self._counts[topic])
        return home

    def _at_home(self, commits: pa.RecordBatch) -> pa.RecordBatch:
        """Commits in the log partitions that the cluster uses for their groups."""
        topic = consumer_offsets.TOPIC
        if topic not in self._counts or not commits.num_rows:
            return commits
        groups = commits["group_id"]
        names = groups.dictionary.to_pylist()
        homes = np.full(len(names) + 1, NOT_SET, np.int64)
        for index, group_id in enumerate(names):
            homes[index] = self._home(topic, group_id)
        group = pc.fill_null(groups.indices, NOT_SET).to_numpy(zero_copy_only=False)
        log_partition = commits["log_partition"].to_numpy()
        is_home = homes[group] == log_partition
        if not is_home.all():
            for index, number in np.unique(np.stack([group, log_partition])[:, ~is_home], axis=1).T.tolist():
                self.former[topic, names[index]].add(number)
        return commits.filter(pa.array(is_home))

    def _window(self, topic: str, partition: int) -> Window:
        return self._windows.get((topic, partition), NOTHING)

    def _share_window(self, row: Row) -> Window:
        return self._window(share_group_state.TOPIC, row["log_partition"])

    def _from_ends(self, topic: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        """First end offset by partition, with one more element for partitions that were not asked about."""
        of_topic = {partition: window.from_end for (name, partition), window in self._windows.items() if name == topic}
        ends = np.zeros(max(of_topic, default=-1) + 2, np.int64)
        for partition, end in of_topic.items():
            ends[partition] = end
        return ends

    def _rows(self, table: Table, topic: str) -> Iterator[Row]:
        """Rows of an interval table that are valid within their windows, from the interval's or the record's own
        offset on."""
        first_end = min((it.from_end for (name, _), it in self._windows.items() if name == topic), default=0)
        to = pc.field("to_log_offset")
        names = [name for name in file_schema(table).names if name != "changed_batches"]
        begins = "from_log_offset" if "from_log_offset" in names else "log_offset"
        for row in self._silver.scan(table, names, to.is_null() | (to >= pc.scalar(first_end))).to_pylist():
            window = self._window(topic, row["log_partition"])
            is_open = row["to_log_offset"] is None or row["to_log_offset"] >= window.from_end
            if is_open and row[begins] < window.to_end:
                is_group = topic == consumer_offsets.TOPIC
                key = row["group_id"] if is_group else share_key(row).as_coordinator_key()
                if self._is_home(topic, key, row["log_partition"]):
                    yield row

    def _events(self, histories: Mapping[str, GroupInWindow]) -> dict[str, list[Row]]:
        """The events of groups with changes since the beginning of their windows."""
        first_end = min((history.window.from_end for history in histories.values()), default=0)
        since = pc.field("log_offset") >= pc.scalar(first_end)
        recent = self._silver.scan(GROUP_EVENTS, ("group_id", "log_offset"), since).to_pylist()
        moving = {
            row["group_id"]
            for row in recent
            if row["group_id"] in histories and row["log_offset"] >= histories[row["group_id"]].window.from_end
        }
        return self._events_of(moving, TELLING)

    def _descriptions(self, histories: Mapping[str, GroupInWindow]) -> dict[str, list[Row]]:
        """Events that decide which topology description a streams group has."""
        streams = {
            group_id
            for group_id, history in histories.items()
            if any(row["group_type"] == GroupType.STREAMS for row in history.generations)
        }
        events = self._events_of(streams, (*RESTARTING_EVENTS, TOPOLOGY_DESCRIPTION_CHANGED))
        for of_group in events.values():
            of_group.sort(key=lambda event: (event["log_offset"], event["event_index"]))
        return events

    def _events_of(self, group_ids: Collection[str], event_types: Collection[str]) -> dict[str, list[Row]]:
        events: dict[str, list[Row]] = defaultdict(list)
        if group_ids:
            is_asked = pc.field("group_id").isin(pa.array(sorted(group_ids)))
            is_telling = pc.field("event_type").isin(pa.array(sorted(event_types)))
            rows = self._silver.scan(GROUP_EVENTS, EVENT_COLUMNS, is_asked & is_telling)
            for row in rows.to_pylist(maps_as_pydicts="strict"):
                if self._is_home(consumer_offsets.TOPIC, row["group_id"], row["log_partition"]):
                    events[row["group_id"]].append(row)
        return events


def _log_ends(offsets: Iterable[int | None], window: Window) -> list[int]:
    """The end offsets at which a state of the window begins."""
    within = {offset + 1 for offset in offsets if offset is not None and window.from_end <= offset < window.to_end}
    return [window.from_end, *sorted(within - {window.from_end})]


def _open_at(rows: Sequence[Row], log_end: int) -> list[Row]:
    return [
        row
        for row in rows
        if row["from_log_offset"] < log_end and (row["to_log_offset"] is None or row["to_log_offset"] >= log_end)
    ]


def group_facts(
    group_type: str,
    state: str,
    protocol_type: str | None,
    protocol_name: str | None,
    group_epoch: int | None,
    assignment_epoch: int | None,
) -> dict[Path, Any]:
    """What brokers tell of every group of a type."""
    facts: dict[Path, Any] = {EXISTS: True, ("type",): group_type, ("state",): state}
    if group_type == GroupType.CLASSIC:
        return facts | {("protocol_type",): protocol_type or "", ("protocol_name",): protocol_name or ""}
    return facts | {("group epoch",): group_epoch, ("assignment epoch",): assignment_epoch}


def member_facts(group_type: str, member_id: str, value_of: Callable[[str], Any]) -> dict[Path, Any]:
    """What brokers tell of every member of a group of a type."""
    names = ["client_id", "client_host"]
    if group_type != GroupType.SHARE:
        names.append("instance_id")
    if group_type != GroupType.CLASSIC:
        names += ["member_epoch", "rack_id"]
    if group_type == GroupType.CONSUMER:
        names.append("uses_classic_protocol")
    return {("member", member_id, MEMBER_EXISTS): True} | {
        ("member", member_id, name): value_of(name) for name in names
    }


def _assignment_fact(row: Row, names: Mapping[str, str]) -> Iterator[tuple[Path, Any]]:
    """Brokers show what a member has: owned partitions and those to be revoked; for streams groups only owned ones.
    They show targets of consumer and streams groups. The value is the topic id, or true where the group uses topic
    names."""
    is_target = row["assignment"] == TARGET
    is_shown = row["group_type"] != GroupType.SHARE if is_target else True
    if row["group_type"] == GroupType.STREAMS and row["assignment"] == REVOKING:
        is_shown = False
    if is_shown:
        topic = row["topic"] or names.get(row["topic_id"]) or row["topic_id"]
        path = assignment_path(row["member_id"], topic, row["partition"], row["task_type"], is_target=is_target)
        yield path, row["topic_id"] or True


def assignment_path(member_id: str, topic: str, partition: int, task_type: str | None, *, is_target: bool) -> Path:
    """The path of the fact that a member has a partition, or is to get it."""
    place = f"{topic}-{partition}"
    return "target" if is_target else "assigned", member_id, f"{task_type} {place}" if task_type else place


def _offset_path(row: Row) -> Path:
    return "offset", row["topic"], row["partition"]


def _offset_value(row: Row) -> tuple[int, int | None, str] | None:
    """None: the offset was deleted, or is negative: brokers accept such a commit, and report no offset."""
    offset = row["committed_offset"]
    return None if offset is None or offset < 0 else (offset, row["leader_epoch"], row["metadata"] or "")
