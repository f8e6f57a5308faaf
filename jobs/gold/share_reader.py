"""Read silver's rows of share groups in tasks, as numpy columns, without Spark (see `jobs.silver.reader`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.history.simple_log import CLUSTER_METADATA
from coordinator_core.inference.commits.deletions import Removed
from coordinator_core.inference.facts.columns import distinct, joined
from coordinator_core.inference.facts.configs import ConfigRow, Configs
from coordinator_core.inference.facts.life import PartitionCounts
from coordinator_core.inference.shares.offset_changes import Endings
from coordinator_core.inference.shares.share_log import (
    GroupStays,
    ShareKeys,
    ShareLog,
    ShareMembers,
    ShareStates,
    ShareTransitions,
    ordered_share_log,
    sorted_share_log,
)
from coordinator_core.replay.columnar.share_state_columnar import DELIVERY_STATES
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS, TRANSITION_KINDS
from jobs.delta.arrow_columns import (
    codes_of,
    epoch_ms_column,
    indices_in,
    numbers_of,
    ordered_codes,
    small_numbers_of,
    together,
)
from jobs.gold.share_checkpoints import SavedShares
from jobs.silver.reader import SilverFiles
from jobs.silver.row_groups import END_OF_LOG, LOG_OFFSET
from jobs.silver.rows import rows_of
from schemas.group_types import GroupType
from schemas.tables.silver import (
    CONFIGS,
    GROUP_EVENTS,
    GROUP_MEMBERS,
    PARTITION_COUNTS,
    SHARE_BATCH_TRANSITIONS,
    SHARE_PARTITION_STATES,
    TOPICS,
)

STILL_THERE_MS: Final = 2**62
"""Later than any timestamp: `left` of a member that has not left."""

STATE_COLUMNS: Final = (
    "group_id",
    "topic_id",
    "partition",
    "topic",
    "log_offset",
    "valid_from",
    "record_kind",
    "snapshot_epoch",
    "state_epoch",
    "leader_epoch",
    "start_offset",
    "effective_start_offset",
    "delivery_complete_count",
    "acknowledged_count",
    "archived_count",
    "is_complete",
)
STATE_TEXTS: Final = ("group_id", "topic_id", "topic", "record_kind")
TRANSITION_COLUMNS: Final = (
    "log_offset",
    "first_offset",
    "last_offset",
    "from_state",
    "from_delivery_count",
    "to_state",
    "to_delivery_count",
    "kind",
)
TRANSITION_TEXTS: Final = ("from_state", "to_state", "kind")
ENDING_COLUMNS: Final = ("group_id", "group_type", "event_type", "at", "topic")
MEMBER_COLUMNS: Final = ("group_id", "group_type", "valid_from", "valid_to", "to_log_offset")


LAST_PERSISTED: Final = "last_persisted"
"""Column of kept states in addition to those of silver: `ShareStates.last_persisted`."""


class StateRows(NamedTuple):
    """Rows of silver.share_partition_states of one log partition, unordered, and the share partition of each."""

    rows: pa.Table
    keys: ShareKeys
    key: I64
    """Index of each row into `keys`."""


SLICE_ROWS_MAX: Final = 750_000
"""Number of states and transitions of a log partition that are judged at once: about 300 bytes each."""
STEPS_MAX: Final = 1 << 16
"""Resolution, in steps per log partition, with which the bounds of slices are found."""


def slice_ends(files: SilverFiles, log_partition: int, from_log_offset: int = 0) -> list[int]:
    """The ends of the slices in which a log partition of `__share_group_state` is judged from a log offset on: log
    offsets, exclusive. The last one is the end of the log.
    """
    tables = SHARE_PARTITION_STATES, SHARE_BATCH_TRANSITIONS
    counts = [files.row_count_max(table, log_partition, from_log_offset=from_log_offset) for table in tables]
    if sum(counts) <= SLICE_ROWS_MAX:
        return [END_OF_LOG]

    def places() -> Iterator[I64]:
        for table in tables:
            for rows in files.iterate(table, (LOG_OFFSET,), log_partition, from_log_offset=from_log_offset):
                yield numbers_of(rows[LOG_OFFSET])

    return [*evenly_cut(places, SLICE_ROWS_MAX), END_OF_LOG]


def evenly_cut(places: Callable[[], Iterable[I64]], count_max: int) -> list[int]:
    """Positions at which to cut, so that each piece has at most `count_max` places, plus at most one step.

    `places` is called several times and yields the places in parts. They are counted by step, since all of them
    together would be as large as the log.
    """
    bounds = [(int(some.min()), int(some.max())) for some in places()]
    if not bounds:
        return []
    first, last = min(low for low, _ in bounds), max(high for _, high in bounds)
    width = (last - first) // STEPS_MAX + 1
    counts = np.zeros((last - first) // width + 1, np.int64)
    for some in places():
        counts += np.bincount((some - first) // width, minlength=len(counts))
    so_far = np.cumsum(counts)
    full = np.searchsorted(so_far, np.arange(count_max, so_far[-1], count_max), side="right")
    return [first + step * width for step in np.unique(full[full > 0]).tolist()]


def share_states(
    files: SilverFiles,
    log_partition: int,
    saved: SavedShares | None = None,
    *,
    from_log_offset: int = 0,
    to_log_offset: int = END_OF_LOG,
) -> StateRows:
    """The states of one log partition of `__share_group_state` within bounds.

    `saved`: take the states that an audit kept, and those after the end of that audit.
    """
    rows = files.read(
        SHARE_PARTITION_STATES,
        STATE_COLUMNS,
        log_partition,
        STATE_TEXTS,
        from_log_offset=from_log_offset if saved is None else saved.next_offset,
        to_log_offset=to_log_offset,
    )
    rows = rows.append_column(LAST_PERSISTED, pa.array(np.full(rows.num_rows, -1, np.int64)))
    if saved is not None:
        rows = together([saved.states.cast(rows.schema), rows])
    return StateRows(rows, *_keys(rows))


def share_log(
    files: SilverFiles,
    log_partition: int,
    found: StateRows,
    saved: SavedShares | None = None,
    *,
    to_log_offset: int = END_OF_LOG,
) -> ShareLog:
    """The share partitions of one log partition of `__share_group_state`, up to a log offset.

    `found`: their states; `saved`: continue from the end of that audit.
    """
    begin = 0 if saved is None else saved.next_offset
    transitions = _transitions(files, log_partition, begin, to_log_offset)
    if saved is None:
        return sorted_share_log(found.keys, _states(found), transitions)
    return sorted_share_log(found.keys, _states(found), joined(saved.transitions, transitions), saved.past)


def share_log_as_written(
    files: SilverFiles, log_partition: int, *, from_log_offset: int, to_log_offset: int
) -> ShareLog:
    """Rows of one log partition of `__share_group_state` within bounds, in log order."""
    found = share_states(files, log_partition, from_log_offset=from_log_offset, to_log_offset=to_log_offset)
    transitions = _transitions(files, log_partition, from_log_offset, to_log_offset)
    return ordered_share_log(found.keys, _states(found), transitions)


def _states(found: StateRows) -> ShareStates:
    rows = found.rows
    return ShareStates(
        key=found.key,
        log_offset=numbers_of(rows["log_offset"]),
        at_ms=epoch_ms_column(rows["valid_from"]),
        record_kind=indices_in(rows["record_kind"], RECORD_KINDS),
        leader_epoch=numbers_of(rows["leader_epoch"]),
        start_offset=numbers_of(rows["start_offset"]),
        effective_start_offset=numbers_of(rows["effective_start_offset"]),
        delivery_complete_count=numbers_of(rows["delivery_complete_count"]),
        terminal_count=numbers_of(rows["acknowledged_count"]) + numbers_of(rows["archived_count"]),
        is_complete=rows["is_complete"].to_numpy(),
        last_persisted=numbers_of(rows[LAST_PERSISTED]),
    )


def _transitions(files: SilverFiles, log_partition: int, from_log_offset: int, to_log_offset: int) -> ShareTransitions:
    rows = files.read(
        SHARE_BATCH_TRANSITIONS,
        TRANSITION_COLUMNS,
        log_partition,
        TRANSITION_TEXTS,
        from_log_offset=from_log_offset,
        to_log_offset=to_log_offset,
    )
    return ShareTransitions(
        log_offset=numbers_of(rows["log_offset"]),
        first_offset=numbers_of(rows["first_offset"]),
        last_offset=numbers_of(rows["last_offset"]),
        from_state=indices_in(rows["from_state"], DELIVERY_STATES),
        from_delivery_count=small_numbers_of(rows["from_delivery_count"]),
        to_state=indices_in(rows["to_state"], DELIVERY_STATES),
        to_delivery_count=small_numbers_of(rows["to_delivery_count"]),
        kind=indices_in(rows["kind"], TRANSITION_KINDS),
        released=np.full(rows.num_rows, -1, np.int8),
    )


def share_members(files: SilverFiles) -> ShareMembers:
    """Membership intervals of all share groups, except those of which a member came or went at an unknown time."""
    rows = files.scan(GROUP_MEMBERS, MEMBER_COLUMNS)
    rows = rows.filter(pc.equal(rows["group_type"], GroupType.SHARE))
    lacks_time = pc.or_(
        pc.is_null(rows["valid_from"]), pc.and_(pc.is_null(rows["valid_to"]), pc.is_valid(rows["to_log_offset"]))
    )
    untimed = rows["group_id"].filter(lacks_time).combine_chunks()
    rows = rows.filter(pc.invert(pc.is_in(rows["group_id"], value_set=untimed)))
    group, group_ids = codes_of(rows["group_id"])
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(len(group_ids) + 1))
    joined_ms = epoch_ms_column(rows["valid_from"])[order]
    left_ms = epoch_ms_column(rows["valid_to"])[order]
    left_ms = np.where(left_ms < 0, STILL_THERE_MS, left_ms)
    return {
        group_id: GroupStays(joined_ms[bounds[code] : bounds[code + 1]], left_ms[bounds[code] : bounds[code + 1]])
        for code, group_id in enumerate(group_ids)
    }


def endings(files: SilverFiles, removed: Removed | None = None) -> Endings:
    """When offsets of share groups were to be deleted, when groups were, and topics. `removed`: the latter, if known
    already."""
    rows = files.scan(GROUP_EVENTS, ENDING_COLUMNS)
    rows = rows.filter(pc.equal(rows["group_type"], GroupType.SHARE))
    deleting: dict[str, list[tuple[int, str | None]]] = {}
    groups: dict[str, list[int]] = {}
    rows = rows.filter(pc.is_in(rows["event_type"], pa.array(["SHARE_PARTITIONS_DELETING", "GROUP_DELETED"])))
    columns = (rows[name].to_pylist() for name in ("group_id", "event_type", "topic"))
    for group_id, event_type, topic, at_ms in zip(*columns, epoch_ms_column(rows["at"]).tolist(), strict=True):
        if event_type == "GROUP_DELETED":
            groups.setdefault(group_id, []).append(at_ms)
        else:
            deleting.setdefault(group_id, []).append((at_ms, topic))
    return Endings(deleting, groups, removed_topics(files) if removed is None else removed)


def configs(files: SilverFiles) -> Configs:
    """Configs of groups, topics and brokers, as far as the metadata log was captured."""
    return Configs(rows_of(files.scan(CONFIGS, ConfigRow._fields), ConfigRow))


def removed_topics(files: SilverFiles) -> Removed:
    """By topic, the times of its removals (ms), as far as the metadata log was captured."""
    rows = files.scan(TOPICS, ("topic", "valid_to", "learned_from"))
    rows = rows.filter(pc.and_(pc.is_valid(rows["valid_to"]), pc.equal(rows["learned_from"], CLUSTER_METADATA)))
    removed: dict[str, list[int]] = {}
    for topic, at_ms in zip(rows["topic"].to_pylist(), epoch_ms_column(rows["valid_to"]).tolist(), strict=True):
        if topic is not None:
            removed.setdefault(topic, []).append(at_ms)
    return {topic: sorted(times) for topic, times in removed.items()}


class PartitionCount(NamedTuple):
    partition_count: int
    at_ms: int
    topic: str | None
    learned_from: str


CountsById = Mapping[str, Sequence[PartitionCount]]
"""By topic id; rows ascend by partition count."""


def topic_growth(counts: CountsById) -> Mapping[str, Sequence[int]]:
    """By topic, the times (ms) at which its partition count grew, as far as the metadata log was captured."""
    growth: dict[str, list[int]] = {}
    for of_topic in counts.values():
        # the first count is that of the topic's creation, or of the first observation
        for row in of_topic[1:]:
            if row.topic is not None and row.learned_from == CLUSTER_METADATA and row.at_ms >= 0:
                growth.setdefault(row.topic, []).append(row.at_ms)
    return {topic: sorted(times) for topic, times in growth.items()}


def topic_partition_counts(counts: CountsById) -> PartitionCounts:
    """By topic, its partition counts, each with the time (ms) from which it holds, from the metadata log or a live
    cluster.
    """
    of_names: dict[str, list[tuple[int, int]]] = {}
    for of_topic in counts.values():
        for row in of_topic:
            if row.topic is not None:
                of_names.setdefault(row.topic, []).append((row.at_ms, row.partition_count))
    return {topic: sorted(of_name) for topic, of_name in of_names.items()}


def counts_by_id(files: SilverFiles) -> CountsById:
    """Rows of silver.partition_counts by topic id, ascending."""
    rows = files.scan(PARTITION_COUNTS, ("topic_id", "topic", "partition_count", "valid_from", "learned_from"))
    counts: dict[str, list[PartitionCount]] = {}
    columns = (rows[name].to_pylist() for name in ("topic_id", "partition_count", "topic", "learned_from"))
    times = epoch_ms_column(rows["valid_from"]).tolist()
    for topic_id, count, topic, learned_from, at_ms in zip(*columns, times, strict=True):
        counts.setdefault(topic_id, []).append(PartitionCount(count, at_ms, topic, learned_from))
    return {topic_id: sorted(of_topic, key=itemgetter(0)) for topic_id, of_topic in counts.items()}


def _keys(rows: pa.Table) -> tuple[ShareKeys, I64]:
    """The share partitions, ordered by group, topic id and partition; and the index of each row's share partition."""
    group, group_ids = ordered_codes(rows["group_id"])
    topic_id, topic_ids = ordered_codes(rows["topic_id"])
    # in two steps: the product of all three may overflow
    pairs, pair = distinct(group * len(topic_ids) + topic_id)
    partition = numbers_of(rows["partition"])
    lowest = int(partition.min()) if len(partition) else 0
    span = int(partition.max()) - lowest + 1 if len(partition) else 1
    places, key = distinct(pair * span + (partition - lowest))
    pair_of = pairs[places // span]
    topics: list[str | None] = [None] * len(places)
    topic, names = codes_of(rows["topic"])
    # the name of a topic id never changes: any row that has it will do
    for place in distinct(key * (len(names) + 1) + topic + 1)[0].tolist():
        number, code = divmod(place, len(names) + 1)
        topics[number] = names[code - 1] if code and names[code - 1] else topics[number]
    found = ShareKeys(
        group_ids=group_ids,
        group=pair_of // max(len(topic_ids), 1),
        topic_ids=[topic_ids[code] for code in (pair_of % max(len(topic_ids), 1)).tolist()],
        topics=topics,
        partition=places % span + lowest,
    )
    return found, key
