"""Views of the newest state, and functions of any time.

Intervals are half-open, so each moment belongs to one row; an event at the requested millisecond counts as done.

Functions of a time have an additional column `is_moment_repeated`: true where a leader's clock went back, so that the
log passes the time twice, and for an interval that a record without a timestamp ended, perhaps before the time. The row
is then one of several answers; `describe`, `owner` and `restore` go by log position.
"""

from typing import Final

from coordinator_core.history.rows import NOT_IN_FORCE
from jobs.queries.views.declare import CLOCK_STEPS, COORDINATOR_ROWS, Definition, Kind, columns_of
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.declare import BIGINT, BOOLEAN, INT, STRING, ArrayOf, Column, StructOf
from schemas.tables.gold import PARTITION_OWNERS
from schemas.tables.silver import (
    GROUP_GENERATIONS,
    OFFSET_COMMITS,
    SHARE_PARTITION_STATES,
    SHARE_STATE_BATCHES,
)


def _clocks(alias: str, topic: str) -> str:
    """The clock steps (`k`) of a row's log partition."""
    return f"""LEFT JOIN (
            SELECT cluster_id, log_topic, log_partition, {{steps}} AS steps FROM {CLOCK_STEPS}
            GROUP BY cluster_id, log_topic, log_partition
        ) AS k
        ON {alias}.cluster_id = k.cluster_id AND k.log_topic = '{topic}' AND {alias}.log_partition = k.log_partition"""


def _is_repeated(of_interval: str | None = None) -> str:
    """The last column of functions of a time. `of_interval`: the alias of rows that are intervals."""
    is_twice = "coalesce({is_twice}, false)"
    if of_interval is not None:
        is_twice += f" OR ({of_interval}.valid_to IS NULL AND {of_interval}.to_log_offset IS NOT NULL)"
    return f"{is_twice} AS is_moment_repeated"


GROUP_COLUMNS: Final = """
    cluster_id, group_id, group_type, incarnation, generation, state, protocol_type, protocol_name, leader_member_id,
    member_count, assignment_epoch, topology_epoch, is_contiguous, valid_from, valid_to, log_partition, from_log_offset
"""
OFFSET_COLUMNS: Final = """
    cluster_id, group_id, topic, topic_id, partition, committed_offset, leader_epoch, metadata, commit_time,
    applied_at, log_partition, log_offset
"""
OWNER_COLUMNS: Final = """
    cluster_id, group_id, group_type, topic, topic_id, partition, member_id, instance_id, client_id, client_host,
    from_generation, to_generation, valid_from, valid_to, from_log_offset
"""
SHARE_COLUMNS: Final = """
    s.cluster_id, s.group_id, s.topic, s.topic_id, s.partition, s.start_offset, s.effective_start_offset,
    s.snapshot_epoch, s.state_epoch, s.leader_epoch, s.delivery_complete_count, s.available_count,
    s.acknowledged_count, s.archived_count, s.is_complete, s.valid_from, s.valid_to, s.log_partition, s.log_offset,
    s.archiving_count
"""
IS_REPEATED: Final = Column("is_moment_repeated", BOOLEAN, "One of several answers: the log passes the time twice.")
BATCHES: Final = Column(
    "batches",
    ArrayOf(
        StructOf(
            (("first_offset", BIGINT), ("last_offset", BIGINT), ("delivery_state", STRING), ("delivery_count", INT))
        )
    ),
    "The batches in flight, in the order of their offsets.",
)
NEWEST: Final = "to_log_offset IS NULL"
"""Where a record without a timestamp ended an interval, `valid_to` is null as in an open one."""


def _holds_at(time: str, prefix: str) -> str:
    """A condition: the interval contains the time."""
    return f"{prefix}valid_from <= {time} AND ({prefix}valid_to IS NULL OR {time} < {prefix}valid_to)"


def _places(alias: str, topic: str) -> str:
    """The intervals (`h`) of a row's group or share partition."""
    share = f" AND h.topic_id = {alias}.topic_id AND h.partition = {alias}.partition" if topic == SHARE_TOPIC else ""
    return f"""LEFT JOIN {COORDINATOR_ROWS} AS h
        ON h.cluster_id = {alias}.cluster_id AND h.log_topic = '{topic}' AND h.group_id = {alias}.group_id{share}"""


def _is_there(alias: str, time: str | None) -> str:
    """Did Kafka use the row's log partition for its group or share partition at a time (None: now)? One interval of
    each key is valid."""
    holds = "h.valid_to IS NULL"
    if time is not None:
        holds = f"(h.valid_from IS NULL OR h.valid_from <= {time}) AND (h.valid_to IS NULL OR {time} < h.valid_to)"
    return f"(h.log_topic IS NULL OR (h.log_partition = {alias}.log_partition AND {holds}))"


def _groups(condition: str, time: str | None) -> str:
    """Groups whose generations satisfy a condition, each in the log partition that Kafka uses for it."""
    repeated, clocks = ("", "") if time is None else (f", {_is_repeated('g')}", _clocks("g", OFFSETS_TOPIC))
    return f"""
        SELECT {_prefixed(GROUP_COLUMNS, "g")}{repeated} FROM silver.group_generations AS g
        {_places("g", OFFSETS_TOPIC)}
        {clocks}
        WHERE {condition} AND {_is_there("g", time)}
    """


def _prefixed(columns: str, alias: str) -> str:
    return ", ".join(f"{alias}.{name.strip()}" for name in columns.split(","))


def _offsets(condition: str, time: str | None) -> str:
    """Offsets in force after the commits that satisfy a condition: the last one applied to each partition, in the
    log partition that Kafka uses for the group."""
    repeated, clocks = ("", "") if time is None else (f", {_is_repeated()}", _clocks("c", OFFSETS_TOPIC))
    names = OFFSET_COLUMNS if time is None else f"{OFFSET_COLUMNS}, is_moment_repeated"
    return f"""
        SELECT {names} FROM (
            SELECT c.*{repeated}, row_number() OVER (
                PARTITION BY c.cluster_id, c.group_id, c.topic, c.partition
                ORDER BY c.applied_log_offset DESC, c.log_offset DESC
            ) AS newness
            FROM silver.offset_commits AS c
            {_places("c", OFFSETS_TOPIC)}
            {clocks}
            WHERE c.outcome = 'APPLIED' AND {condition} AND {_is_there("c", time)}
        ) WHERE newness = 1 AND change NOT IN {NOT_IN_FORCE}
    """


def _share_partitions(condition: str, batches_condition: str, time: str | None) -> str:
    """Share partitions with their batches in flight, in offset order, each in the log partition that Kafka uses for
    it."""
    repeated, clocks = ("", "") if time is None else (f", {_is_repeated('s')}", _clocks("s", SHARE_TOPIC))
    return f"""
        SELECT {SHARE_COLUMNS}, coalesce(b.batches, {{no_batches}}) AS batches{repeated}
        FROM silver.share_partition_states AS s LEFT JOIN (
            SELECT x.cluster_id, x.group_id, x.topic_id, x.partition, x.log_partition, {{batches}} AS batches
            FROM silver.share_state_batches AS x WHERE {batches_condition}
            GROUP BY x.cluster_id, x.group_id, x.topic_id, x.partition, x.log_partition
        ) AS b ON s.cluster_id = b.cluster_id AND s.group_id = b.group_id
            AND s.topic_id = b.topic_id AND s.partition = b.partition
            AND s.log_partition IS NOT DISTINCT FROM b.log_partition
        {_places("s", SHARE_TOPIC)}
        {clocks}
        WHERE s.record_kind <> 'TOMBSTONE' AND {condition} AND {_is_there("s", time)}
    """


CURRENT_GROUPS: Final = Definition(
    Kind.VIEW,
    "current_groups",
    "Every group that exists, with its newest generation or epoch.",
    "",
    (GROUP_GENERATIONS,),
    _groups(f"g.{NEWEST}", None),
    (*columns_of(GROUP_GENERATIONS, GROUP_COLUMNS),),
)

CURRENT_OFFSETS: Final = Definition(
    Kind.VIEW,
    "current_offsets",
    "Every committed offset that is in force.",
    "",
    (OFFSET_COMMITS,),
    _offsets("true", None),
    (*columns_of(OFFSET_COMMITS, OFFSET_COLUMNS),),
)

CURRENT_SHARE_PARTITIONS: Final = Definition(
    Kind.VIEW,
    "current_share_partitions",
    "Every share partition that has a state, with its batches in flight.",
    "",
    (SHARE_PARTITION_STATES, SHARE_STATE_BATCHES),
    _share_partitions(f"s.{NEWEST}", NEWEST, None),
    (*columns_of(SHARE_PARTITION_STATES, SHARE_COLUMNS), BATCHES),
)

GROUP_AT: Final = Definition(
    Kind.FUNCTION,
    "group_at",
    "Every group that existed then, with its generation or epoch; `state` is the state at the end of that generation.",
    "(time TIMESTAMP)",
    (GROUP_GENERATIONS,),
    _groups(_holds_at("{time}", "g."), "{time}"),
    (*columns_of(GROUP_GENERATIONS, GROUP_COLUMNS), IS_REPEATED),
)

OWNER_AT: Final = Definition(
    Kind.FUNCTION,
    "owner_at",
    "Who owned a partition of a topic, given by name or id, in each group.",
    "(topic STRING, partition INT, time TIMESTAMP)",
    (PARTITION_OWNERS,),
    f"""
    SELECT {_prefixed(OWNER_COLUMNS, "o")}, {_is_repeated("o")} FROM gold.partition_owners AS o
    {_places("o", OFFSETS_TOPIC)}
    {_clocks("o", OFFSETS_TOPIC)}
    WHERE {_is_there("o", "{time}")} AND {{topic}} IN (o.topic, o.topic_id)
        AND o.partition = {{partition}} AND {_holds_at("{time}", "o.")}
    """,
    (*columns_of(PARTITION_OWNERS, OWNER_COLUMNS), IS_REPEATED),
)

OFFSETS_AT: Final = Definition(
    Kind.FUNCTION,
    "offsets_at",
    "The committed offsets of a group that were in force.",
    "(`group` STRING, time TIMESTAMP)",
    (OFFSET_COMMITS,),
    _offsets("c.group_id = {group} AND c.applied_at <= {time}", "{time}"),
    (*columns_of(OFFSET_COMMITS, OFFSET_COLUMNS), IS_REPEATED),
)

SHARE_PARTITION_AT: Final = Definition(
    Kind.FUNCTION,
    "share_partition_at",
    "The state of a share partition, its topic given by name or id, with its batches in flight.",
    "(`group` STRING, topic STRING, partition INT, time TIMESTAMP)",
    (SHARE_PARTITION_STATES, SHARE_STATE_BATCHES),
    _share_partitions(
        f"""s.group_id = {{group}} AND {{topic}} IN (s.topic, s.topic_id)
        AND s.partition = {{partition}} AND {_holds_at("{time}", "s.")}""",
        f"x.group_id = {{group}} AND x.partition = {{partition}} AND {_holds_at('{time}', 'x.')}",
        "{time}",
    ),
    (*columns_of(SHARE_PARTITION_STATES, SHARE_COLUMNS), BATCHES, IS_REPEATED),
)

MOMENTS: Final = (
    CURRENT_GROUPS,
    CURRENT_OFFSETS,
    CURRENT_SHARE_PARTITIONS,
    GROUP_AT,
    OWNER_AT,
    OFFSETS_AT,
    SHARE_PARTITION_AT,
)
