"""Silver as of a time: groups, members, committed offsets and share partitions as the coordinators had them then.

Files are read with pyarrow, without Spark; row groups that statistics exclude are skipped. Ids are compared as values
and never become part of a query text, so they match only themselves.

"As of T" includes what was written at T. Intervals are selected by their ends; fields that an interval only has for its
own end (epochs, states) come from the events up to T. In a log partition whose timestamps go back, or are missing, T
corresponds to one or more log offsets (`coordinator_core.history.moments`), and rows are selected by log offset. After
a coordinator topic got more partitions, a group's rows are those of the log partition that Kafka uses for it
(`jobs.silver.homes`).
"""

import json
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from datetime import UTC, datetime
from functools import cache, partial, reduce
from itertools import chain
from math import inf
from operator import and_, itemgetter
from typing import Any, Final, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.kafka_versions import METADATA_VERSION, RELEASE_4_4, least_release
from coordinator_core.bytes.log.chunk import I64, BoolArray
from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.history.moments import NO_TIME, filled, is_regular, log_ends_at, unplaced_at
from coordinator_core.history.rows import NOT_IN_FORCE
from coordinator_core.history.simple_log import FEATURE
from coordinator_core.inference.facts.configs import GROUP, STREAMS_ASSIGNOR
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.replay.java.hash_codes import string_order
from coordinator_core.replay.lookup import SharePartitionKey
from jobs.delta.arrow_columns import (
    as_read,
    codes_of,
    columns_read,
    dicts_of,
    epoch_ms_column,
    indices_in,
    numbers_of,
    texts_of,
)
from jobs.delta.arrow_schemas import TIMESTAMP_TYPE, file_schema
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import WholeRun
from jobs.delta.scanner import Scanner, dataset_of, read_whole
from jobs.delta.table_files import TableFile
from jobs.delta.times import epoch_ms
from jobs.gold.share_reader import counts_by_id, topic_partition_counts
from jobs.queries.as_of.clock_steps import clock_steps
from jobs.queries.as_of.group_model import (
    CommittedOffset,
    Group,
    Row,
    SampledEnd,
    ShareStart,
    TopicPartition,
    Untimed,
    share_key,
)
from jobs.queries.as_of.group_state import PAST_COLUMNS, TELLING, Past, by_group, group_of, members_of
from jobs.queries.as_of.newest_commits import COMMIT_KEY, newest_of
from jobs.silver.homes import CoordinatorPartitions, LeftBehind, Move, PartitionCounts, partition_counts
from jobs.silver.reader import SilverFiles
from jobs.silver.replay_failures import ReplayFailure, read_failures
from schemas import consumer_offsets, share_group_state
from schemas.group_types import GroupType
from schemas.tables.bronze import COVERAGE, END_OFFSETS, QUARANTINE
from schemas.tables.declare import STRING, Table
from schemas.tables.silver import (
    CONFIGS,
    COORDINATOR_PARTITIONS,
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    OFFSET_COMMITS,
    PARTITION_COUNTS,
    SHARE_PARTITION_STATES,
)

SAMPLE_AGE_MAX_MS: Final = InferenceSettings().lag_sample_age_max_ms
"""Default maximum age of a sampled end offset that is used for lag."""
COMMIT_TEXTS: Final = ("group_id", "topic", "topic_id", "outcome", "change")
INTERVAL_COLUMNS: Final = ("valid_from", "valid_to", "to_log_offset")
ASSIGNMENT_COLUMNS: Final = (
    "group_id",
    "member_id",
    "topic",
    "topic_id",
    "partition",
    "assignment",
    "task_type",
    "log_partition",
)
SHARE_STATE_COLUMNS: Final = (
    "group_id",
    "topic_id",
    "topic",
    "partition",
    "log_partition",
    "log_offset",
    "valid_from",
    "record_kind",
    "start_offset",
    "leader_epoch",
    "delivery_complete_count",
)
SHARE_STATE_TEXTS: Final = ("group_id", "topic_id", "topic", "record_kind")
COMMIT_VALUES: Final = ("applied_at", "committed_offset", "leader_epoch", "topic_id", "change")
RECORD_TIMES: Final = (
    (GROUP_EVENTS, "log_offset", "at"),
    (GROUP_GENERATIONS, "from_log_offset", "valid_from"),
    (GROUP_MEMBERS, "from_log_offset", "valid_from"),
    (MEMBER_ASSIGNMENTS, "from_log_offset", "valid_from"),
)
"""Tables with rows of groups' own records, and their columns with log offset and timestamp of the record."""
CLOCK_ROWS_MAX: Final = 5_000_000
"""Above this number of commits or share states, a query for all groups does not search them for clock steps, but
only the groups' other records, which are few."""
DEFAULT_STREAMS_ASSIGNOR: Final = "sticky"
"""The only one of the brokers' group.streams.assignors by default (KIP-1357)."""
TOPOLOGY_CHANGED: Final = "TOPOLOGY_CHANGED"
GROUPS_LOG: Final = consumer_offsets.TOPIC
SHARES_LOG: Final = share_group_state.TOPIC
T = TypeVar("T")
R = TypeVar("R")


class SilverAt:
    """Silver of one cluster as of a time. `at_ms` None: the newest state. `group_ids` None: all groups."""

    def __init__(
        self, tables: ClusterTables, at_ms: int | None = None, group_ids: Collection[str] | None = None
    ) -> None:
        self._tables = tables
        self._whole = WholeRun.newest(tables)
        self._gold = cache(partial(WholeAudit.newest, tables))
        self._places = cache(lambda: CoordinatorPartitions(self._whole.read(COORDINATOR_PARTITIONS)))
        self._counts = cache(partial(partition_counts, tables))
        self._log_ends: Mapping[LogPartition, int] = {}
        """For log partitions in which timestamps do not decide: the end offset (exclusive) that corresponds to the
        time."""
        self.passed: Mapping[LogPartition, tuple[int, ...]] = {}
        """Log partitions that pass the time several times, with the end offsets (exclusive); set by `passages`."""
        self.untimed: Mapping[LogPartition, Untimed] = {}
        """Records without a timestamp that may be from before or after the time; set by `passages`."""
        self.moves: Sequence[Move] = ()
        """Groups that have obsolete records in other log partitions; set by `left_behind`."""
        self.at_ms = at_ms
        self._group_ids = None if group_ids is None else pa.array(sorted(set(group_ids)), pa.string())

    def of_groups(self, group_ids: Collection[str]) -> Self:
        """The same runs and time, for other groups."""
        those = copy(self)
        those._group_ids = pa.array(sorted(set(group_ids)), pa.string())
        return those

    def at(self, at_ms: int | None) -> Self:
        """The same runs and groups, as of another time."""
        then = copy(self)
        then.at_ms = at_ms
        then._log_ends = {}
        return then

    def behind(self, log_ends: Mapping[LogPartition, int]) -> Self:
        """The same groups and time, at these end offsets (exclusive) of some log partitions."""
        there = copy(self)
        there._log_ends = dict(log_ends)
        return there

    def passages(self, *, with_offsets: bool = True) -> list[Self]:
        """The same groups and time, once for each position in the log that corresponds to the time, in log order:
        mostly one.

        `with_offsets`: consider positions of commits and share states. For all groups they are skipped where there are
        too many rows.
        """
        if self.at_ms is None:
            return [self]
        with_offsets = with_offsets or self._may_be_twice(self.at_ms)
        places: dict[LogPartition, tuple[int, ...]] = {}
        untimed: dict[LogPartition, Untimed] = {}
        for log, (offsets, times) in self._own_records(with_offsets=with_offsets).items():
            if not is_regular(times):
                places[log] = log_ends_at(offsets, filled(times), self.at_ms)
                is_unplaced = unplaced_at(times, self.at_ms)
                if is_unplaced.any():
                    those = offsets[is_unplaced]
                    untimed[log] = Untimed(int(those[0]), int(those[-1]), len(those))
        count = max(map(len, places.values()), default=1)
        passages = [
            self.behind({log: ends[max(len(ends) - count + number, 0)] for log, ends in places.items()})
            for number in range(count)
        ]
        for passage in passages:
            passage.passed = {log: ends for log, ends in places.items() if len(ends) > 1}
            passage.untimed = untimed
        return passages

    def _may_be_twice(self, at_ms: int) -> bool:
        """Did the clock of some log partition go back over a time, as far as the newest audit knows? Commits then tell
        more than the groups' own records."""
        gold = self._gold()
        if gold.replay_version < self._whole.replay_version:
            return True
        return any(step.repeats(at_ms) for step in clock_steps(gold))

    def log_end(self, log: LogPartition) -> int | None:
        """The end offset (exclusive) of a log partition at the time, where timestamps do not decide; else None."""
        return self._log_ends.get(log)

    def _own_records(self, *, with_offsets: bool) -> dict[LogPartition, tuple[I64, I64]]:
        """Log offsets and timestamps (`NO_TIME` if missing) of the groups' records, one per offset, in log order, by
        log partition, as far as silver has rows of them."""
        parts: list[tuple[str, I64, I64, I64]] = []
        for table, offset, time in RECORD_TIMES:
            rows = self.scan(table, ("log_partition", offset, time))
            parts.append((GROUPS_LOG, *_times_of(rows, offset, time)))
        if with_offsets and (self._group_ids is not None or self._row_count(OFFSET_COMMITS) <= CLOCK_ROWS_MAX):
            names = ("outcome", "log_partition", "log_offset", "applied_log_offset", "applied_at", "commit_time")
            for rows, is_asked in self._row_groups(OFFSET_COMMITS, names, ("outcome",)):
                chosen = rows.filter(pa.array(is_asked & (indices_in(rows["outcome"], ("APPLIED",)) == 0)))
                # where a record has no timestamp, its value has one in most versions; transaction markers have no such
                # value
                is_own = pc.equal(chosen["log_offset"], chosen["applied_log_offset"])
                said = pc.if_else(is_own, chosen["commit_time"], pa.scalar(None, TIMESTAMP_TYPE))
                chosen = chosen.append_column("time", pc.coalesce(chosen["applied_at"], said))
                parts.append((GROUPS_LOG, *_times_of(chosen, "applied_log_offset", "time")))
        if with_offsets and (self._group_ids is not None or self._row_count(SHARE_PARTITION_STATES) <= CLOCK_ROWS_MAX):
            state_names = ("log_partition", "log_offset", "valid_from")
            for rows, is_asked in self._row_groups(SHARE_PARTITION_STATES, state_names, ()):
                chosen = rows.filter(pa.array(is_asked))
                parts.append((SHARES_LOG, *_times_of(chosen, "log_offset", "valid_from")))
        return _by_log_partition(parts)

    def _row_count(self, table: Table) -> int:
        return sum(file.row_count or 0 for file in self._files(table))

    def groups(self, *, with_offsets: bool = False) -> list[Group]:
        """The groups, sorted like in Kafka's tools. Committed offsets and share start offsets only with
        `with_offsets`."""
        newest = self._newest_commits() if with_offsets else None
        left = self.left_behind()
        generations = left.present(self.open_rows(GROUP_GENERATIONS))
        members = by_group(left.present(self.open_rows(GROUP_MEMBERS)))
        owned = dicts_of(self.scan(MEMBER_ASSIGNMENTS, ASSIGNMENT_COLUMNS, self.holds()))
        assignments = by_group(left.present(owned))
        pasts = self._pasts({row["group_id"]: row["log_partition"] for row in generations})
        offsets = {} if newest is None else _committed(newest, left)
        starts = self._share_starts() if with_offsets else {}
        has_streams = any(row["group_type"] == GroupType.STREAMS for row in generations)
        streams_assignor = self._streams_assignor() if has_streams else None
        inputs = self._inputs(left) if has_streams and with_offsets else {}
        groups = [
            group_of(
                {**row, "protocol_name": streams_assignor(group_id)}
                if streams_assignor is not None and row["group_type"] == GroupType.STREAMS
                else row,
                tuple(members_of(members[group_id], assignments[group_id], pasts[group_id], row["unread_members"])),
                [member["server_assignor"] for member in members[group_id]],
                pasts[group_id],
                offsets.get(group_id, {}),
                starts.get(group_id, {}),
                inputs.get(group_id, {}),
            )
            for row in generations
            for group_id in (row["group_id"],)
        ]
        return sorted(groups, key=lambda group: string_order(group.group_id))

    def _streams_assignor(self) -> Callable[[str], str | None]:
        """The assignor of a streams group, which no record of the group contains: that of its config, else the default
        of brokers since Kafka 4.4. None where brokers may be older: they tell of none."""
        is_of_group = (pc.field("resource_type") == GROUP) & (pc.field("name") == STREAMS_ASSIGNOR)
        is_level = (pc.field("resource_type") == FEATURE) & (pc.field("name") == METADATA_VERSION)
        is_begun = _until("valid_from", self.at_ms)
        is_open = pc.field("valid_to").is_null()
        if self.at_ms is not None:
            is_open |= pc.field("valid_to") > timestamp_scalar(self.at_ms)
        names = ["resource_type", "resource_name", "value"]
        rows = self._scan_all(CONFIGS, names, [is_of_group | is_level, is_open, *is_begun]).to_pylist()
        of_groups = {row["resource_name"]: row["value"] for row in rows if row["resource_type"] == GROUP}
        releases = [least_release(int(row["value"])) for row in rows if row["resource_type"] == FEATURE]
        default = DEFAULT_STREAMS_ASSIGNOR if any(it is not None and it >= RELEASE_4_4 for it in releases) else None
        return lambda group_id: of_groups.get(group_id) or default

    def _inputs(self, left: LeftBehind) -> dict[str, dict[str, dict[str, float]]]:
        """By streams group and subtopology: the topics that it reads, with their partition counts."""
        is_topology = pc.field("event_type") == TOPOLOGY_CHANGED
        events = left.present(dicts_of(self.scan(GROUP_EVENTS, PAST_COLUMNS, is_topology)))
        counts: dict[str, float] = {}
        for topic, known in self.topic_partition_counts().items() if events else ():
            until = [count for at_ms, count in known if self.at_ms is None or at_ms <= self.at_ms]
            counts[topic] = max(until or (count for _, count in known))
        return {
            event["group_id"]: {
                subtopology_id: {topic: counts.get(topic, inf) for topic in topics}
                for subtopology_id, topics in json.loads(event["details"]["subtopologies"]).items()
            }
            for event in sorted(filter(self._is_past, events), key=itemgetter("log_offset"))
        }

    def open_rows(self, table: Table, *conditions: Any) -> list[dict[str, Any]]:
        """Rows of an interval table that are valid at the time, in the order of their key. Times are datetimes."""
        names = file_schema(table).names
        rows: list[dict[str, Any]] = self.scan(table, names, self.holds(), *conditions).to_pylist()
        keys = [name for name in table.key if name in names]
        return sorted(rows, key=lambda row: tuple((row[name] is not None, row[name]) for name in keys))

    def committed_offsets(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Committed offsets in force, by group."""
        return _committed(self._newest_commits(), self.left_behind())

    def _newest_commits(self) -> pa.Table:
        """The last applied commit or deletion of each group, log partition and topic partition."""
        return newest_of(self._applied_commits((*COMMIT_KEY, *COMMIT_VALUES)))

    def left_behind(self) -> LeftBehind:
        """Groups that moved to another log partition of `__consumer_offsets` by then, with those that have obsolete
        records of them."""
        left = self._places().left_behind(GROUPS_LOG, self.at_ms, self._asked())
        self.moves = tuple(left.moves.values())
        return left

    def shares_left_behind(self) -> LeftBehind:
        """The same of share partitions, in `__share_group_state`."""
        return self._places().left_behind(SHARES_LOG, self.at_ms, self._asked())

    def left_at(self) -> dict[tuple[str, int], int]:
        """By group and former log partition of `__consumer_offsets`: when Kafka last used it for the group (epoch
        ms, exclusive)."""
        return self._places().left_at(GROUPS_LOG)

    def _asked(self) -> list[str] | None:
        """The selected groups; None: all."""
        if self._group_ids is None:
            return None
        group_ids: list[str] = self._group_ids.to_pylist()
        return group_ids

    def partition_counts(self, topic: str) -> PartitionCounts:
        return self._counts()[topic]

    def topic_partition_counts(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """By topic, its known partition counts, each with the time (epoch ms) from which it applies."""
        files = SilverFiles({PARTITION_COUNTS.full_name: self._whole.files(PARTITION_COUNTS)})
        return topic_partition_counts(counts_by_id(files))

    def failures(self) -> list[ReplayFailure]:
        """What the last run failed to replay of the selected groups."""
        asked = None if self._group_ids is None else set(self._group_ids.to_pylist())
        failures = chain.from_iterable(read_failures(self._whole).values())
        return [it for it in failures if asked is None or it.group_id is None or it.group_id in asked]

    def coverage(self, topic: str) -> list[dict[str, Any]]:
        """Rows of bronze.coverage of a coordinator topic."""
        rows: list[dict[str, Any]] = self._tables.read(COVERAGE, topic=topic).to_pylist()
        return rows

    def quarantined(self) -> pa.Table:
        """Rows of bronze.quarantine: record, group and defect."""
        names = ["topic", "partition", "offset", "stage", "code", "group_id", "resolved_at"]
        return self._tables.read(QUARANTINE, names)

    def commits_until(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the selected groups' commits written by the time, whatever their outcome; `outcome` and `group_id`
        are dictionary-encoded. Yields nothing for all groups if there are too many."""
        if self._group_ids is None and self._row_count(OFFSET_COMMITS) > CLOCK_ROWS_MAX:
            return
        needed = tuple(dict.fromkeys((*names, "group_id", "recorded_at", "log_offset", "log_partition")))
        for rows, is_asked in self._row_groups(OFFSET_COMMITS, needed, ("outcome",)):
            is_chosen = is_asked
            if self.at_ms is not None:
                is_by_then = epoch_ms_column(rows["recorded_at"]) <= self.at_ms  # null: possibly
                is_chosen = is_asked & self._by_place(GROUPS_LOG, rows, "log_offset", is_by_then)
            yield rows.filter(pa.array(is_chosen))

    def applied_commits(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield commits and deletions that were applied by the time, unordered; strings in `COMMIT_TEXTS` are
        dictionary-encoded."""
        for rows, chosen in self._applied_commits(names):
            yield from (rows if len(chosen) == rows.num_rows else rows.take(pa.array(chosen))).to_batches()

    def _applied_commits(self, names: Sequence[str]) -> Iterator[tuple[pa.Table, I64]]:
        """Yield row groups, and which of their rows were applied by the time."""
        needed = dict.fromkeys((*names, "outcome", "applied_at", "applied_log_offset", "log_partition"))
        for rows, is_asked in self._row_groups(OFFSET_COMMITS, tuple(needed), COMMIT_TEXTS):
            is_chosen = is_asked & (indices_in(rows["outcome"], ("APPLIED",)) == 0)
            if self.at_ms is not None:
                is_by_then = rows["applied_at"].is_valid().to_numpy()
                is_by_then &= epoch_ms_column(rows["applied_at"]) <= self.at_ms
                is_chosen &= self._by_place(GROUPS_LOG, rows, "applied_log_offset", is_by_then)
            yield rows.select(list(names)), np.flatnonzero(is_chosen)

    def _row_groups(
        self, table: Table, names: Sequence[str], coded: Collection[str]
    ) -> Iterator[tuple[pa.Table, BoolArray]]:
        """Yield some columns, row group by row group, and which rows belong to the selected groups. Columns in
        `coded`, and `group_id`, are dictionary-encoded. Row groups without such rows are skipped."""
        texts = {*coded, "group_id"}
        schema = columns_read(table, names, texts)
        # each file stays open until its last row group is read, since another thread may be reading it
        scanners = (Scanner(file.path, sorted(texts), use_threads=True) for file in self._files(table))
        places = ((scanner, index) for scanner in scanners for index in range(len(scanner.row_counts)))

        def read(place: tuple[Scanner, int]) -> tuple[pa.Table, BoolArray] | None:
            is_asked = self._is_asked(*place)
            scanner, index = place
            rows = scanner.read_row_group(index, names) if is_asked.any() else None
            return None if rows is None else (as_read(rows, schema), is_asked)

        yield from filter(None, one_ahead(read, places))

    def _is_asked(self, scanner: Scanner, row_group: int) -> BoolArray:
        """Which rows belong to the selected groups."""
        if self._group_ids is None:
            return np.ones(scanner.row_counts[row_group], np.bool_)
        codes, texts = codes_of(scanner.read_row_group(row_group, ["group_id"])["group_id"])
        asked = set(self._group_ids.to_pylist())
        is_asked: BoolArray = np.array([*(text in asked for text in texts), False])[codes]
        return is_asked

    def end_offsets(self, sample_age_max_ms: int = SAMPLE_AGE_MAX_MS) -> dict[TopicPartition, SampledEnd]:
        """End offsets of topics in the newest sample up to the time, if it is recent enough."""
        at_ms = epoch_ms(datetime.now(UTC)) if self.at_ms is None else self.at_ms
        oldest = pc.field("sampled_at") >= timestamp_scalar(max(at_ms - sample_age_max_ms, 0))
        names = ("topic", "partition", "sampled_at", "end_offset", "log_start_offset")
        rows = self._scan_all(END_OFFSETS, names, [oldest, *_until("sampled_at", at_ms)]).to_pylist()
        rows.sort(key=lambda row: row["sampled_at"])
        return {
            TopicPartition(row["topic"], row["partition"]): SampledEnd(
                row["end_offset"], epoch_ms(row["sampled_at"]), row["log_start_offset"]
            )
            for row in rows
        }

    def scan(self, table: Table, names: Sequence[str], *conditions: Any) -> pa.Table:
        """Rows of the selected groups that satisfy all conditions, unordered."""
        return self._scan_all(table, names, [*self._of_groups(), *conditions])

    def coded_rows(self, table: Table, names: Sequence[str], *conditions: Any) -> pa.Table:
        """As `scan`, with all strings dictionary-encoded, for large results. Conditions may only use the named
        columns."""
        needed = tuple(dict.fromkeys((*names, "group_id")))
        texts = {column.name for column in table.columns if column.type is STRING and column.name in needed}
        found = [columns_read(table, needed, texts).empty_table()]
        for rows, is_asked in self._row_groups(table, needed, texts):
            chosen = rows if is_asked.all() else rows.filter(pa.array(is_asked))
            found.append(chosen.filter(reduce(and_, conditions)) if conditions else chosen)
        return pa.concat_tables(found).unify_dictionaries()

    def _scan_all(self, table: Table, names: Sequence[str], conditions: Iterable[Any]) -> pa.Table:
        try:
            dataset = self._dataset(table)
            if dataset is None:
                return columns_read(table, names).empty_table()
            return dataset.to_table(columns=list(names), filter=reduce(and_, conditions, pc.scalar(True)))
        except (pa.ArrowInvalid, OSError):
            read_whole(file.path for file in self._files(table))
            raise

    def _dataset(self, table: Table) -> Any:
        """The files of the cluster's rows; None if there are none."""
        paths = [file.path for file in self._files(table)]
        if not paths:
            return None
        return dataset_of(paths, file_schema(table))

    def _files(self, table: Table) -> list[TableFile]:
        """The files of the cluster's rows."""
        return list((self._gold() if table.layer == "gold" else self._whole).files(table))

    def _of_groups(self) -> list[Any]:
        return [] if self._group_ids is None else [pc.field("group_id").isin(self._group_ids)]

    def holds(self) -> Any:
        """A condition on rows of an interval table: valid at the time."""
        if self.at_ms is None:
            return pc.field("to_log_offset").is_null()
        is_begun, at = _until("valid_from", self.at_ms)[0], timestamp_scalar(self.at_ms)
        holds = is_begun & (pc.field("valid_to").is_null() | (pc.field("valid_to") > at))
        begins, ends = pc.field("from_log_offset"), pc.field("to_log_offset")
        return self._at_places(holds, lambda end: (begins < end) & (ends.is_null() | (ends >= end)))

    def _at_places(self, by_time: Any, by_log_end: Callable[[int], Any]) -> Any:
        """A condition on rows of groups: by timestamp, or by log offset where timestamps do not decide."""
        ends = {number: end for (topic, number), end in self._log_ends.items() if topic == GROUPS_LOG}
        if not ends:
            return by_time
        condition = by_time & ~pc.field("log_partition").isin(pa.array(list(ends), pa.int32()))
        for number, end in ends.items():
            condition |= (pc.field("log_partition") == number) & by_log_end(end)
        return condition

    def _by_place(
        self, log: str, rows: pa.Table, offset: str, by_time: BoolArray, ended: str | None = None
    ) -> BoolArray:
        """As `_at_places`, for rows that are in memory. `by_time`: the result by timestamp; `offset`, `ended`:
        columns with the log offsets at which a row begins and ends."""
        ends = {number: end for (topic, number), end in self._log_ends.items() if topic == log}
        if not ends:
            return by_time
        numbers = numbers_of(rows["log_partition"])
        result = by_time.copy()
        for number, end in ends.items():
            is_here = numbers == number
            is_in = rows[offset].is_valid().to_numpy() & (numbers_of(rows[offset]) < end)
            if ended is not None:
                is_in &= ~rows[ended].is_valid().to_numpy() | (numbers_of(rows[ended]) >= end)
            result[is_here] = is_in[is_here]
        return result

    def _pasts(self, groups: Mapping[str, int]) -> dict[str, "Past"]:
        """The events of groups (given with their log partitions) that decide on past states. Empty for the newest
        state, which the rows themselves have."""
        events: dict[str, list[dict[str, Any]]] = {}
        if self.at_ms is not None:
            # rows of a group without later events are still right
            is_telling = pc.field("event_type").isin(pa.array(TELLING))
            is_later = pc.field("at") > timestamp_scalar(self.at_ms)
            is_later = self._at_places(is_later, lambda end: pc.field("log_offset") >= end)
            later = self.scan(GROUP_EVENTS, ("group_id",), is_telling, is_later)
            is_changed = pc.field("group_id").isin(pc.unique(later["group_id"]))
            rows = dicts_of(self.scan(GROUP_EVENTS, PAST_COLUMNS, is_telling, is_changed))
            events = by_group(row for row in rows if row["log_partition"] == groups.get(row["group_id"]))
        return {group_id: Past(events.get(group_id, ()), self._is_past) for group_id in groups}

    def _is_past(self, event: Row) -> bool:
        log_end = self._log_ends.get((GROUPS_LOG, event["log_partition"]))
        if log_end is not None:
            return bool(event["log_offset"] < log_end)
        return self.at_ms is None or (event["at"] is not None and event["at"] <= self.at_ms)

    def _share_starts(self) -> dict[str, dict[TopicPartition, ShareStart]]:
        """Start offsets of share partitions, by group; deleted states are left out."""
        starts: dict[str, dict[TopicPartition, ShareStart]] = defaultdict(dict)
        newest: dict[SharePartitionKey, Row] = {}
        left = self.shares_left_behind()
        for row in sorted(self._share_states(), key=itemgetter("log_offset")):
            key = share_key(row)
            if not left.is_past(key.as_coordinator_key(), row["log_partition"]):
                newest[key] = row
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
        """The states of share partitions that are valid at the time."""
        names = tuple(dict.fromkeys((*SHARE_STATE_COLUMNS, *INTERVAL_COLUMNS)))
        for rows, is_asked in self._row_groups(SHARE_PARTITION_STATES, names, SHARE_STATE_TEXTS):
            chosen = np.flatnonzero(is_asked & self._is_holding(rows))
            yield from dicts_of(rows.select(list(SHARE_STATE_COLUMNS)).take(pa.array(chosen)))

    def _is_holding(self, rows: pa.Table) -> BoolArray:
        """As `holds`, for rows that are in memory."""
        if self.at_ms is None:
            is_open: BoolArray = rows["to_log_offset"].is_null().to_numpy()
            return is_open
        begun = rows["valid_from"].is_valid().to_numpy() & (epoch_ms_column(rows["valid_from"]) <= self.at_ms)
        ended = rows["valid_to"].is_valid().to_numpy() & (epoch_ms_column(rows["valid_to"]) <= self.at_ms)
        is_holding: BoolArray = begun & ~ended
        return self._by_place(SHARES_LOG, rows, "log_offset", is_holding, "to_log_offset")


def timestamp_scalar(timestamp_ms: int) -> pa.Scalar:
    """A time as an Arrow scalar of the tables' type."""
    return pa.scalar(timestamp_ms * 1000, pa.int64()).cast(TIMESTAMP_TYPE)


def _until(column: str, at_ms: int | None) -> list[Any]:
    return [] if at_ms is None else [pc.field(column) <= timestamp_scalar(at_ms)]


def one_ahead(read: Callable[[T], R], places: Iterable[T]) -> Iterator[R]:
    """Yield the result for each place, in order, while a thread reads the next one."""
    with ThreadPoolExecutor(1) as reader:
        waiting: deque[Future[R]] = deque()
        for place in places:
            waiting.append(reader.submit(read, place))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        if waiting:
            yield waiting.popleft().result()


def _committed(newest: pa.Table, left: LeftBehind) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Committed offsets by group, from the newest commit or deletion of each partition."""
    offsets: dict[str, dict[TopicPartition, CommittedOffset]] = defaultdict(dict)
    if not newest.num_rows:
        return offsets
    in_force = newest.filter(pa.array(indices_in(newest["change"], NOT_IN_FORCE) < 0))
    groups, topics, topic_ids = (texts_of(in_force[name]) for name in ("group_id", "topic", "topic_id"))
    names = ("partition", "committed_offset", "leader_epoch", "log_partition")
    partitions, committed_offsets, leader_epochs, log_partitions = (in_force[name].to_pylist() for name in names)
    times = _times_or_none(in_force["applied_at"])
    places = map(TopicPartition, topics, partitions)
    committed = map(CommittedOffset, committed_offsets, leader_epochs, topic_ids, times, log_partitions)
    for group_id, log_partition, place, offset in zip(groups, log_partitions, places, committed, strict=True):
        if not left or not left.is_past(group_id, log_partition):
            offsets[group_id][place] = offset
    return offsets


def _times_or_none(column: pa.ChunkedArray) -> list[int | None]:
    """Epoch milliseconds, or None."""
    times: list[int | None] = epoch_ms_column(column).tolist()
    if column.null_count:
        times = [
            time if is_known else None for time, is_known in zip(times, column.is_valid().to_pylist(), strict=True)
        ]
    return times


def _times_of(rows: pa.Table, offset: str, time: str) -> tuple[I64, I64, I64]:
    """Log partitions, offsets and timestamps (`NO_TIME` if missing) of rows."""
    times = np.where(rows[time].is_valid().to_numpy(), epoch_ms_column(rows[time]), NO_TIME)
    return numbers_of(rows["log_partition"]), numbers_of(rows[offset]), times


def _by_log_partition(parts: Sequence[tuple[str, I64, I64, I64]]) -> dict[LogPartition, tuple[I64, I64]]:
    """Offsets and timestamps by log partition, in log order; of several timestamps at one offset the latest."""
    found: dict[LogPartition, tuple[I64, I64]] = {}
    for topic in dict.fromkeys(topic for topic, *_ in parts):
        columns = zip(*(part for name, *part in parts if name == topic), strict=True)
        numbers, offsets, times = (np.concatenate(column) for column in columns)
        order = np.lexsort((times, offsets, numbers))
        numbers, offsets, times = numbers[order], offsets[order], times[order]
        is_last = np.ones(len(order), np.bool_)
        is_last[:-1] = (numbers[1:] != numbers[:-1]) | (offsets[1:] != offsets[:-1])
        numbers, offsets, times = numbers[is_last], offsets[is_last], times[is_last]
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])) if len(numbers) else np.zeros(0, np.int64)
        for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(numbers)], strict=False):
            found[topic, int(numbers[first])] = (offsets[first:last], times[first:last])
    return found
