"""Silver at a time: groups, members, committed offsets and share partitions as the coordinators had them then.

Files are read with pyarrow, row groups that cannot matter left out: no Spark is needed. Ids are compared as values and
reach no query text, so whatever they hold they match themselves and nothing else.

At a time T holds what was written until T, T included. Intervals tell it by their ends; what an interval only knows
for its own end (epochs, states) comes from the events until T.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial, reduce
from operator import and_, itemgetter
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from coordinator_core.inference.columns import distinct, numbered_pairs
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.java.hash_codes import string_order
from coordinator_core.log.chunk import I64, BoolArray
from coordinator_core.lookup import SharePartitionKey
from jobs.arrow_columns import (
    as_read,
    codes_of,
    columns_read,
    dicts_of,
    epoch_ms_column,
    indices_in,
    numbers_of,
    texts_of,
)
from jobs.arrow_schemas import TIMESTAMP_MS_MAX, TIMESTAMP_TYPE, arrow_schema
from jobs.audits import WholeAudit
from jobs.errors import JobError
from jobs.runs import WholeRun
from jobs.sinks import TableFile, Warehouse
from jobs.stores import filesystem_of
from jobs.times import epoch_ms
from schemas.tables.bronze import END_OFFSETS
from schemas.tables.declare import STRING, Table
from schemas.tables.silver import (
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    OFFSET_COMMITS,
    SHARE_PARTITION_STATES,
)

CLASSIC: Final = "CLASSIC"
CONSUMER: Final = "CONSUMER"
SHARE: Final = "SHARE"
STREAMS: Final = "STREAMS"

DEFAULT_ASSIGNOR: Final = "uniform"
"""First of the brokers' group.consumer.assignors, taken where no member asks for one; the log holds only what members
ask for."""
INITIAL_ASSIGNMENT_EPOCH: Final = 1
"""Of a modern group before its first target (TargetAssignmentMetadata.INITIAL)."""
STABLE_MEMBER: Final = "STABLE"

SAMPLE_AGE_MAX_MS: Final = InferenceSettings().lag_sample_age_max_ms
"""A sampled log end which is older than this says nothing of the lag now, by default."""

COMMIT_KEY: Final = ("group_id", "topic", "partition", "applied_log_offset")
COMMIT_TEXTS: Final = ("group_id", "topic", "topic_id", "outcome", "change")
INTERVAL_COLUMNS: Final = ("valid_from", "valid_to", "to_log_offset")
ASSIGNMENT_COLUMNS: Final = ("group_id", "member_id", "topic", "topic_id", "partition", "assignment", "task_type")
SHARE_STATE_COLUMNS: Final = (
    "group_id",
    "topic_id",
    "topic",
    "partition",
    "log_offset",
    "record_kind",
    "start_offset",
    "leader_epoch",
    "delivery_complete_count",
)
SHARE_STATE_TEXTS: Final = ("group_id", "topic_id", "topic", "record_kind")
Row = Mapping[str, Any]
T = TypeVar("T")
R = TypeVar("R")


class ArgumentError(JobError):
    """An argument of the command line is wrong."""

    exit_code = 2


class NoSuchGroupError(JobError):
    """Groups that were asked for by name are not there at that time."""


def parse_time(text: str) -> int:
    """Epoch milliseconds of a time given as such, or as ISO 8601 (UTC unless it says otherwise).

    Raises ArgumentError.
    """
    text = text.strip()
    if text.isascii() and text.isdecimal():
        timestamp_ms = int(text)
        _refuse_other_unit(text, timestamp_ms)
    else:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise ArgumentError(
                f"{text[:50]!r} is no time: give ISO 8601, as 2026-11-20T03:12:00Z, or epoch milliseconds"
            ) from None
        timestamp_ms = epoch_ms(at if at.tzinfo else at.replace(tzinfo=UTC))
    if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise ArgumentError(f"{text[:50]!r} is out of range")
    return timestamp_ms


NUMBER_MS_MIN: Final = 10**11
"""March 1973. Seconds since 1970 come up to it in the year 5138: a smaller number is no milliseconds of Kafka's."""
NUMBER_MS_END: Final = 10**14
"""The year 5138. Microseconds have been above it since 1973."""
OTHER_UNITS: Final = (("seconds", 1_000, 1), ("microseconds", 1, 1_000), ("nanoseconds", 1, 1_000_000))


def _refuse_other_unit(text: str, number: int) -> None:
    """Raise ArgumentError for a number which as milliseconds would be far from any time of Kafka's."""
    if NUMBER_MS_MIN <= number < NUMBER_MS_END:
        return
    for unit, factor, divisor in OTHER_UNITS:
        meant_ms = number * factor // divisor
        if NUMBER_MS_MIN <= meant_ms < min(NUMBER_MS_END, TIMESTAMP_MS_MAX):
            year = (
                f"a time in {datetime.fromtimestamp(number / 1000, UTC).year}"
                if number <= TIMESTAMP_MS_MAX
                else "no time"
            )
            raise ArgumentError(
                f"{text} is {year} in milliseconds: are these {unit}? Give milliseconds, {meant_ms}, or ISO 8601, "
                f"{datetime.fromtimestamp(meant_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
            )
    raise ArgumentError(f"{text[:50]} is out of range: give milliseconds since 1970 (13 digits), or ISO 8601")


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class SampledEnd(NamedTuple):
    """The end of a source topic's log when it was asked."""

    end_offset: int
    sampled_at_ms: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset in force. `topic_id` is None where the record holds none."""

    offset: int
    leader_epoch: int | None
    topic_id: str | None
    committed_at_ms: int


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group. Partitions ascend; of streams groups, the "topic" is the subtopology."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    member_epoch: int | None
    """None in classic groups."""
    uses_classic_protocol: bool | None
    """Of consumer groups alone, else None."""
    assigned: tuple[TopicPartition, ...]
    """What it holds, what it must still give up included, as Admin shows it."""
    target: tuple[TopicPartition, ...]
    is_unread: bool = False
    """Its assignment cannot be read: nobody can say what it holds."""


@dataclass(frozen=True, slots=True)
class ShareStart:
    """What the share coordinator stores of one share partition: None where no offset is set yet."""

    start_offset: int | None
    leader_epoch: int | None
    delivery_complete_count: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """A group at a time."""

    group_id: str
    group_type: str
    state: str
    """As Kafka spells it."""
    protocol_type: str | None
    assignor: str | None
    group_epoch: int | None
    """None in classic groups, as `assignment_epoch`."""
    assignment_epoch: int | None
    members: tuple[Member, ...] = ()
    """By member id."""
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    share_starts: Mapping[TopicPartition, ShareStart] = field(default_factory=dict)


class SilverAt:
    """Silver of one cluster at one time. `at_ms` None: the newest. `group_ids` None: all groups."""

    def __init__(
        self, warehouse: Warehouse, cluster_id: str, at_ms: int | None = None, group_ids: Collection[str] | None = None
    ) -> None:
        self._whole = WholeRun.newest(warehouse, cluster_id)
        self._gold = cache(partial(WholeAudit.newest, warehouse, cluster_id))
        self.at_ms = at_ms
        self._group_ids = None if group_ids is None else pa.array(sorted(set(group_ids)), pa.string())

    def of_groups(self, group_ids: Collection[str]) -> Self:
        """Some groups, of the same runs at the same time."""
        those = copy(self)
        those._group_ids = pa.array(sorted(set(group_ids)), pa.string())
        return those

    def at(self, at_ms: int) -> Self:
        """The same groups of the same runs, at another time."""
        then = copy(self)
        then.at_ms = at_ms
        return then

    def groups(self, *, with_offsets: bool = False) -> list[Group]:
        """The groups there are, as Kafka's tools sort them; committed offsets and share starts only if asked for."""
        generations = self.open_rows(GROUP_GENERATIONS)
        members = _by_group(self.open_rows(GROUP_MEMBERS))
        assignments = _by_group(dicts_of(self.scan(MEMBER_ASSIGNMENTS, ASSIGNMENT_COLUMNS, self.holds())))
        pasts = self._pasts(row["group_id"] for row in generations)
        offsets = self.committed_offsets() if with_offsets else {}
        starts = self._share_starts() if with_offsets else {}
        groups = [
            group_of(
                row,
                tuple(members_of(members[group_id], assignments[group_id], pasts[group_id], row["unread_members"])),
                [member["server_assignor"] for member in members[group_id]],
                pasts[group_id],
                offsets.get(group_id, {}),
                starts.get(group_id, {}),
            )
            for row in generations
            for group_id in (row["group_id"],)
        ]
        return sorted(groups, key=lambda group: string_order(group.group_id))

    def open_rows(self, table: Table, *conditions: Any) -> list[dict[str, Any]]:
        """Rows of an interval table that hold at the time, in the order of their key. Times are datetimes."""
        names = tuple(name for name in table.column_names if name not in table.partition_by)
        rows: list[dict[str, Any]] = self.scan(table, names, self.holds(), *conditions).to_pylist()
        keys = [name for name in table.key if name in names]
        return sorted(rows, key=lambda row: tuple((row[name] is not None, row[name]) for name in keys))

    def committed_offsets(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Committed offsets in force, by group."""
        names = (*COMMIT_KEY, "applied_at", "committed_offset", "leader_epoch", "topic_id", "change")
        offsets: dict[str, dict[TopicPartition, CommittedOffset]] = defaultdict(dict)
        newest = _newest_of(self._applied_commits(names))
        if not newest.num_rows:
            return offsets
        in_force = newest.filter(pa.array(indices_in(newest["change"], ("DELETE",)) < 0))
        groups, topics, topic_ids = (texts_of(in_force[name]) for name in ("group_id", "topic", "topic_id"))
        numbers = (in_force[name].to_pylist() for name in ("partition", "committed_offset", "leader_epoch"))
        partitions, committed_offsets, leader_epochs = numbers
        times = epoch_ms_column(in_force["applied_at"]).tolist()
        places = map(TopicPartition, topics, partitions)
        committed = map(CommittedOffset, committed_offsets, leader_epochs, topic_ids, times)
        for group_id, place, offset in zip(groups, places, committed, strict=True):
            offsets[group_id][place] = offset
        return offsets

    def applied_commits(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Commits and deletions which had taken effect by the time, in no order; texts of `COMMIT_TEXTS` are coded."""
        for rows, chosen in self._applied_commits(names):
            yield from (rows if len(chosen) == rows.num_rows else rows.take(pa.array(chosen))).to_batches()

    def _applied_commits(self, names: Sequence[str]) -> Iterator[tuple[pa.Table, I64]]:
        """Row groups, and which of their rows had taken effect by the time."""
        needed = dict.fromkeys((*names, "outcome", "applied_at"))
        for rows, is_asked in self._row_groups(OFFSET_COMMITS, tuple(needed), COMMIT_TEXTS):
            is_chosen = is_asked & (indices_in(rows["outcome"], ("APPLIED",)) == 0)
            if self.at_ms is not None:
                is_chosen &= rows["applied_at"].is_valid().to_numpy()
                is_chosen &= epoch_ms_column(rows["applied_at"]) <= self.at_ms
            yield rows.select(list(names)), np.flatnonzero(is_chosen)

    def _row_groups(
        self, table: Table, names: Sequence[str], coded: Collection[str]
    ) -> Iterator[tuple[pa.Table, BoolArray]]:
        """Some columns, row group by row group, and which of their rows are of the groups in question; those of
        `coded`, and `group_id`, come as codes. Row groups without such rows are left out."""
        texts = {*coded, "group_id"}
        schema = columns_read(table, names, texts)
        parquets = (
            # closed when its last row group was read: until then a reader may be at it
            pq.ParquetFile(filesystem.open_input_file(path), read_dictionary=sorted(texts))
            for filesystem, path in map(filesystem_of, (file.path for file in self._files(table)))
        )
        places = ((parquet, index) for parquet in parquets for index in range(parquet.num_row_groups))

        def read(place: tuple[pq.ParquetFile, int]) -> tuple[pa.Table, BoolArray] | None:
            is_asked = self._is_asked(*place)
            parquet, index = place
            rows = parquet.read_row_group(index, columns=list(names)) if is_asked.any() else None
            return None if rows is None else (as_read(rows, schema), is_asked)

        yield from filter(None, one_ahead(read, places))

    def _is_asked(self, parquet: pq.ParquetFile, row_group: int) -> BoolArray:
        """Rows of the groups in question."""
        if self._group_ids is None:
            return np.ones(parquet.metadata.row_group(row_group).num_rows, np.bool_)
        codes, texts = codes_of(parquet.read_row_group(row_group, columns=["group_id"])["group_id"])
        asked = set(self._group_ids.to_pylist())
        is_asked: BoolArray = np.array([*(text in asked for text in texts), False])[codes]
        return is_asked

    def end_offsets(self, sample_age_max_ms: int = SAMPLE_AGE_MAX_MS) -> dict[TopicPartition, SampledEnd]:
        """Log ends of source topics by the newest sample until the time, if it is recent enough to speak of it."""
        at_ms = epoch_ms(datetime.now(UTC)) if self.at_ms is None else self.at_ms
        oldest = pc.field("sampled_at") >= timestamp_scalar(max(at_ms - sample_age_max_ms, 0))
        names = ("topic", "partition", "sampled_at", "end_offset")
        rows = self._scan_all(END_OFFSETS, names, [oldest, *_until("sampled_at", at_ms)]).to_pylist()
        rows.sort(key=lambda row: row["sampled_at"])
        return {
            TopicPartition(row["topic"], row["partition"]): SampledEnd(row["end_offset"], epoch_ms(row["sampled_at"]))
            for row in rows
        }

    def scan(self, table: Table, names: Sequence[str], *conditions: Any) -> pa.Table:
        """Rows of the groups in question for which all conditions hold, in no order."""
        return self._scan_all(table, names, [*self._of_groups(), *conditions])

    def coded_rows(self, table: Table, names: Sequence[str], *conditions: Any) -> pa.Table:
        """As `scan`, all texts as codes: where there may be many rows. Conditions are on columns that are named."""
        needed = tuple(dict.fromkeys((*names, "group_id")))
        texts = {column.name for column in table.columns if column.type is STRING and column.name in needed}
        found = [columns_read(table, needed, texts).empty_table()]
        for rows, is_asked in self._row_groups(table, needed, texts):
            chosen = rows if is_asked.all() else rows.filter(pa.array(is_asked))
            found.append(chosen.filter(reduce(and_, conditions)) if conditions else chosen)
        return pa.concat_tables(found).unify_dictionaries()

    def _scan_all(self, table: Table, names: Sequence[str], conditions: Iterable[Any]) -> pa.Table:
        dataset = self._dataset(table)
        if dataset is None:
            schema = arrow_schema(table)
            return pa.schema([schema.field(name).remove_metadata() for name in names]).empty_table()
        return dataset.to_table(columns=list(names), filter=reduce(and_, conditions, pc.scalar(True)))

    def _dataset(self, table: Table) -> ds.Dataset | None:
        """The files of the cluster's rows; None if there are none."""
        files = [filesystem_of(file.path) for file in self._files(table)]
        if not files:
            return None
        declared = arrow_schema(table)
        stored = pa.schema([declared.field(name) for name in table.column_names if name not in table.partition_by])
        paths = [path for _, path in files]
        return ds.dataset(paths, schema=stored.remove_metadata(), filesystem=files[0][0], format="parquet")

    def _files(self, table: Table) -> list[TableFile]:
        """The files of the cluster's rows."""
        return list((self._gold() if table.layer == "gold" else self._whole).files(table))

    def _of_groups(self) -> list[Any]:
        return [] if self._group_ids is None else [pc.field("group_id").isin(self._group_ids)]

    def holds(self) -> Any:
        """A condition on rows of an interval table: they hold at the time."""
        if self.at_ms is None:
            return pc.field("to_log_offset").is_null()
        is_begun, at = _until("valid_from", self.at_ms)[0], timestamp_scalar(self.at_ms)
        return is_begun & (pc.field("valid_to").is_null() | (pc.field("valid_to") > at))

    def _until(self, column: str) -> list[Any]:
        return _until(column, self.at_ms)

    def _pasts(self, group_ids: Iterable[str]) -> dict[str, "Past"]:
        """What events tell of groups; nothing where the newest is asked for, which rows tell by themselves."""
        events: dict[str, list[dict[str, Any]]] = {}
        if self.at_ms is not None:
            # of a group to which nothing happened since, the rows tell by themselves as well
            is_telling = pc.field("event_type").isin(pa.array(TELLING))
            later = self.scan(GROUP_EVENTS, ("group_id",), is_telling, pc.field("at") > timestamp_scalar(self.at_ms))
            is_changed = pc.field("group_id").isin(pc.unique(later["group_id"]))
            names = ("group_id", "log_offset", "event_index", "event_type", "at", "generation", "member_id", "details")
            events = _by_group(dicts_of(self.scan(GROUP_EVENTS, names, is_telling, is_changed)))
        return {group_id: Past(events.get(group_id, ()), self._is_past) for group_id in group_ids}

    def _is_past(self, event: Row) -> bool:
        return self.at_ms is None or (event["at"] is not None and event["at"] <= self.at_ms)

    def _share_starts(self) -> dict[str, dict[TopicPartition, ShareStart]]:
        """Start offsets of share partitions, by group; those whose state was deleted are not there."""
        starts: dict[str, dict[TopicPartition, ShareStart]] = defaultdict(dict)
        newest: dict[SharePartitionKey, Row] = {}
        for row in sorted(self._share_states(), key=itemgetter("log_offset")):
            newest[SharePartitionKey(row["group_id"], row["topic_id"], row["partition"])] = row
        for key, state in newest.items():
            if state["record_kind"] != "TOMBSTONE":
                is_set = state["start_offset"] is not None and state["start_offset"] >= 0
                starts[key.group_id][TopicPartition(state["topic"] or key.topic_id, key.partition)] = ShareStart(
                    state["start_offset"] if is_set else None,
                    state["leader_epoch"] if is_set else None,
                    state["delivery_complete_count"],
                )
        return starts

    def _share_states(self) -> Iterator[Row]:
        """The states of share partitions that hold at the time."""
        names = (*SHARE_STATE_COLUMNS, *INTERVAL_COLUMNS)
        for rows, is_asked in self._row_groups(SHARE_PARTITION_STATES, names, SHARE_STATE_TEXTS):
            chosen = np.flatnonzero(is_asked & self._is_holding(rows))
            yield from dicts_of(rows.select(list(SHARE_STATE_COLUMNS)).take(pa.array(chosen)))

    def _is_holding(self, rows: pa.Table) -> BoolArray:
        """As `holds`, for rows which were read already."""
        if self.at_ms is None:
            is_open: BoolArray = rows["to_log_offset"].is_null().to_numpy()
            return is_open
        begun = rows["valid_from"].is_valid().to_numpy() & (epoch_ms_column(rows["valid_from"]) <= self.at_ms)
        ended = rows["valid_to"].is_valid().to_numpy() & (epoch_ms_column(rows["valid_to"]) <= self.at_ms)
        is_holding: BoolArray = begun & ~ended
        return is_holding


TARGET_COMPUTED: Final = "TARGET_COMPUTED"
MEMBER_RECONCILED: Final = "MEMBER_RECONCILED"
MEMBER_LEFT: Final = "MEMBER_LEFT"
ANEW: Final = ("GROUP_CREATED", "GROUP_CONVERTED")
TELLING: Final = (*ANEW, TARGET_COMPUTED, MEMBER_RECONCILED, "MEMBER_JOINED", MEMBER_LEFT, "GROUP_EMPTIED")
"""Events which change an epoch or the state of a group or a member."""


def timestamp_scalar(timestamp_ms: int) -> pa.Scalar:
    """A time as the tables have it."""
    return pa.scalar(timestamp_ms * 1000, pa.int64()).cast(TIMESTAMP_TYPE)


def _until(column: str, at_ms: int | None) -> list[Any]:
    return [] if at_ms is None else [pc.field(column) <= timestamp_scalar(at_ms)]


def one_ahead(read: Callable[[T], R], places: Iterable[T]) -> Iterator[R]:
    """What is read of each place, in order, while what comes next is read already."""
    with ThreadPoolExecutor(1) as reader:
        waiting: deque[Future[R]] = deque()
        for place in places:
            waiting.append(reader.submit(read, place))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        if waiting:
            yield waiting.popleft().result()


def _by_group(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["group_id"]].append(row)
    return groups


def newest_commits(commits: Iterable[pa.RecordBatch]) -> pa.Table:
    """Of applied commits, with the columns `COMMIT_KEY`, those which took effect last of their group and partition."""
    return _newest_of((pa.Table.from_batches([batch]), np.arange(batch.num_rows)) for batch in commits)


def _newest_of(parts: Iterable[tuple[pa.Table, I64]]) -> pa.Table:
    """As `newest_commits`, of some rows of each part."""
    held = [rows.take(pa.array(_newest(rows, chosen))) for rows, chosen in parts]
    if not held:
        return pa.table({})
    rows = pa.concat_tables(held)
    return rows.take(pa.array(_newest(rows, np.arange(rows.num_rows))))


def _newest(rows: pa.Table, chosen: I64) -> I64:
    """Those of the chosen rows which took effect last of their group and partition."""
    group, _ = codes_of(rows["group_id"])
    topic, topics = codes_of(rows["topic"])
    partition, applied_at = (numbers_of(rows[name])[chosen] for name in ("partition", "applied_log_offset"))
    if np.any(applied_at[1:] < applied_at[:-1]):
        order = np.argsort(applied_at, kind="stable")
        chosen, partition = chosen[order], partition[order]
    # two steps: no product of three is sure to fit
    _, owner = distinct(group[chosen] * len(topics) + topic[chosen])
    keys, key = distinct(numbered_pairs(owner, partition))
    # of several values for one index numpy keeps the last
    last = np.zeros(len(keys), np.int64)
    last[key] = chosen
    return np.sort(last)


class Past:
    """What the events of one group tell of epochs and states at a moment, given those before it and those after it."""

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
        """Did nothing happen to the group (or to one member) between the time and the end of a row's stretch? Then
        what the row says of its end held at the time as well."""
        to_log_offset = row["to_log_offset"]
        return not any(
            (to_log_offset is None or event["log_offset"] < to_log_offset)
            and (member_id is None or event["member_id"] == member_id)
            for event in self._later
        )

    def assignment_epoch(self) -> int:
        """Epoch of the target assignment."""
        epoch = INITIAL_ASSIGNMENT_EPOCH
        for event in self._until:
            if event["event_type"] in ANEW:
                epoch = INITIAL_ASSIGNMENT_EPOCH
            elif event["event_type"] == TARGET_COMPUTED:
                epoch = event["generation"]
        return epoch


def members_of(
    rows: Sequence[Row], assignments: Sequence[Row], past: Past, unread_members: Sequence[str] | None = None
) -> Iterator[Member]:
    """Members of a group at a moment, by rows of silver.group_members and silver.member_assignments which hold then.
    `unread_members`: as the generation of the moment tells."""
    unread = frozenset(unread_members or ())
    held: dict[str, set[TopicPartition]] = defaultdict(set)
    target: dict[str, set[TopicPartition]] = defaultdict(set)
    for row in assignments:
        if row["task_type"] in (None, "ACTIVE"):
            kind = target if row["assignment"] == "TARGET" else held
            kind[row["member_id"]].add(TopicPartition(row["topic"] or row["topic_id"], row["partition"]))
    for row in sorted(rows, key=lambda row: string_order(row["member_id"])):
        member_id, epoch = row["member_id"], row["member_epoch"]
        if row["group_type"] != CLASSIC and not past.is_settled(row, member_id):
            epoch = past.reconciled[member_id]["generation"] if member_id in past.reconciled else 0
        yield Member(
            member_id,
            row["instance_id"],
            row["client_id"] or "",
            row["client_host"] or "",
            epoch,
            bool(row["uses_classic_protocol"]) if row["group_type"] == CONSUMER else None,
            tuple(sorted(held[member_id])),
            tuple(sorted(target[member_id])),
            member_id in unread,
        )


def group_of(
    row: Row,
    members: tuple[Member, ...],
    asked_assignors: Iterable[str | None],
    past: Past,
    offsets: Mapping[TopicPartition, CommittedOffset],
    starts: Mapping[TopicPartition, ShareStart],
) -> Group:
    """A group at a moment, by the row of silver.group_generations which holds then."""
    group_type, state = row["group_type"], row["state"]
    assignor, assignment_epoch = row["protocol_name"], row["assignment_epoch"]
    if not past.is_settled(row):
        if group_type == CLASSIC:
            state, assignor = ("Stable", assignor) if members else ("Empty", None)
        else:
            assignment_epoch = past.assignment_epoch()
            state = _modern_state(row, members, past.reconciled, assignment_epoch)
    if group_type == CONSUMER:
        assignor = _voted(asked_assignors) or DEFAULT_ASSIGNOR
    return Group(
        row["group_id"],
        group_type,
        state,
        row["protocol_type"],
        assignor,
        None if group_type == CLASSIC else row["generation"],
        None if group_type == CLASSIC else assignment_epoch,
        members,
        offsets,
        starts,
    )


def _modern_state(row: Row, members: Sequence[Member], reconciled: Mapping[str, Row], assignment_epoch: int) -> str:
    """ConsumerGroup.maybeUpdateGroupState, ShareGroup and StreamsGroup, over what the log holds."""
    if not members:
        return "Empty"
    if row["group_type"] == SHARE:
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
    """The assignor most members ask for."""
    counts = Counter(name for name in asked if name is not None)
    return max(counts, key=lambda name: (counts[name], name)) if counts else None
