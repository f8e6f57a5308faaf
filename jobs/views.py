"""Views of the newest state and SQL functions of any time, by the names of the tables' documentation.

A definition is a constant: no id, path or time is ever put into its text. What a caller asks for reaches Spark as an
argument of the function, thus as a value. All intervals are half open, so a moment belongs to one row only; what
happened at the very millisecond asked for counts as done.

Functions of a time have a column more: `is_moment_repeated` where the clock of a leader went back, so that the log goes
through the moment twice. Then the row is one of two answers; `describe`, `owner` and `restore` give both.

In Spark's in-memory catalogue they are temporary, and last as long as the session; with a metastore they are made
persistent beside the tables, so that other sessions find them.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.declare import Table
from schemas.tables.gold import PARTITION_OWNERS
from schemas.tables.silver import GROUP_GENERATIONS, OFFSET_COMMITS, SHARE_PARTITION_STATES, SHARE_STATE_BATCHES


class Kind(StrEnum):
    """What a definition makes."""

    VIEW = "VIEW"
    FUNCTION = "FUNCTION"


class Definition(NamedTuple):
    """A view or a table function. `signature`: of a function, its parameters."""

    kind: Kind
    name: str
    about: str
    """What it gives."""
    signature: str
    tables: tuple[Table, ...]
    """What its query reads."""
    query: str

    def statement(self, *, is_persistent: bool, is_audited: bool = True) -> str:
        """The DDL. `is_audited`: gold.log_anomalies is there, which says where the time of a log went back."""
        temporary = "" if is_persistent else "TEMPORARY "
        if self.kind is Kind.VIEW:
            return f"CREATE OR REPLACE {temporary}VIEW {self.name} AS {self.query}"
        query = self.query if is_audited else self.query.replace(CLOCK_STEPS, NO_CLOCK_STEPS)
        return f"CREATE OR REPLACE {temporary}FUNCTION {self.name}{self.signature} RETURNS TABLE RETURN {query}"


CLOCK_STEPS: Final = """(
        SELECT cluster_id, log_topic, log_partition,
            collect_list(struct(at AS from_time, before + (before - at) AS to_time)) AS steps
        FROM (
            SELECT cluster_id, log_topic, log_partition, at,
                timestamp_millis(CAST(regexp_extract(details, '^from (-?[0-9]+) to', 1) AS BIGINT)) AS before
            FROM gold.log_anomalies WHERE rule = 'TIME_WENT_BACK'
        ) GROUP BY cluster_id, log_topic, log_partition
    )"""
"""By log partition, the stretches of time that its log goes through twice: from the earlier time of two records to that
of the later one, and as far again, since nobody knows how much of it passed before the clock went back."""
NO_CLOCK_STEPS: Final = """(
        SELECT CAST(NULL AS STRING) AS cluster_id, CAST(NULL AS STRING) AS log_topic,
            CAST(NULL AS INT) AS log_partition,
            CAST(NULL AS ARRAY<STRUCT<from_time: TIMESTAMP, to_time: TIMESTAMP>>) AS steps WHERE false
    )"""


def _clocks(alias: str, topic: str) -> str:
    """The clock steps (`k`) of the log partition of a row."""
    return f"""LEFT JOIN {CLOCK_STEPS} AS k
        ON {alias}.cluster_id = k.cluster_id AND k.log_topic = '{topic}' AND {alias}.log_partition = k.log_partition"""


def _is_repeated(time: str) -> str:
    """The last column of functions of a time."""
    return f"coalesce(exists(k.steps, s -> {time} BETWEEN s.from_time AND s.to_time), false) AS is_moment_repeated"


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
    s.acknowledged_count, s.archived_count, s.is_complete, s.valid_from, s.valid_to, s.log_partition, s.log_offset
"""
NEWEST: Final = "valid_to IS NULL"


def _holds_at(time: str, prefix: str = "") -> str:
    """That an interval holds a moment."""
    return f"{prefix}valid_from <= {time} AND ({prefix}valid_to IS NULL OR {time} < {prefix}valid_to)"


def _homes(with_commits: str | None = None) -> str:
    """From when (`began`) to when (`left_at`) each group was in which log partition (`home`).

    Numbers of partitions only grow, and a group begins again in the log partition that it then hashes to.
    `with_commits`: commits that meet this count, too; else generations alone.
    """
    began = "SELECT cluster_id, group_id, log_partition, valid_from AS began FROM silver.group_generations"
    if with_commits is not None:
        began += f"""
            UNION ALL SELECT cluster_id, group_id, log_partition, min(applied_at) AS began
            FROM silver.offset_commits WHERE {with_commits} GROUP BY cluster_id, group_id, log_partition
        """
    return _stays(f"({began})", "cluster_id, group_id", "began")


def _stays(rows: str, key: str, began: str) -> str:
    return f"""(
        SELECT {key}, log_partition AS home, began,
            lead(began) OVER (PARTITION BY {key} ORDER BY began NULLS FIRST, log_partition) AS left_at
        FROM (
            SELECT {key}, log_partition, min({began}) AS began FROM {rows} GROUP BY {key}, log_partition
        )
    )"""


SHARE_KEY: Final = "cluster_id, group_id, topic_id, partition"


def _groups(condition: str, time: str | None) -> str:
    """Groups whose generations meet a condition, each where it is."""
    repeated, clocks = ("", "") if time is None else (f", {_is_repeated(time)}", _clocks("g", OFFSETS_TOPIC))
    return f"""
        SELECT {_prefixed(GROUP_COLUMNS, "g")}{repeated} FROM silver.group_generations AS g LEFT JOIN {_homes()} AS h
            ON g.cluster_id = h.cluster_id AND g.group_id = h.group_id AND g.log_partition = h.home
        {clocks}
        WHERE {condition} AND {_is_home(time)}
    """


def _is_home(time: str | None) -> str:
    """Was the key in the log partition of a row (`h`) at a time (None: the newest)? So are rows without any."""
    return "h.left_at IS NULL" if time is None else f"(h.left_at IS NULL OR {time} < h.left_at)"


def _prefixed(columns: str, alias: str) -> str:
    return ", ".join(f"{alias}.{name.strip()}" for name in columns.split(","))


def _offsets(condition: str, time: str | None, homes: str) -> str:
    """The offsets in force after the commits which meet a condition: the last one applied to each partition, in the log
    partition where the group is."""
    repeated, clocks = ("", "") if time is None else (f", {_is_repeated(time)}", _clocks("c", OFFSETS_TOPIC))
    names = OFFSET_COLUMNS if time is None else f"{OFFSET_COLUMNS}, is_moment_repeated"
    return f"""
        SELECT {names} FROM (
            SELECT c.*{repeated}, row_number() OVER (
                PARTITION BY c.cluster_id, c.group_id, c.topic, c.partition
                ORDER BY c.applied_log_offset DESC, c.log_offset DESC
            ) AS newness
            FROM silver.offset_commits AS c LEFT JOIN {homes} AS h
                ON c.cluster_id = h.cluster_id AND c.group_id = h.group_id AND c.log_partition = h.home
            {clocks}
            WHERE c.outcome = 'APPLIED' AND {condition} AND {_is_home(time)}
        ) WHERE newness = 1 AND change <> 'DELETE'
    """


def _share_partitions(condition: str, batches_condition: str, time: str | None) -> str:
    """Share partitions with their batches in flight, in order of offsets, each in the log partition where it is."""
    repeated, clocks = ("", "") if time is None else (f", {_is_repeated(time)}", _clocks("s", SHARE_TOPIC))
    return f"""
        SELECT {SHARE_COLUMNS}, coalesce(b.batches, array()) AS batches{repeated}
        FROM silver.share_partition_states AS s LEFT JOIN (
            SELECT cluster_id, group_id, topic_id, partition, log_partition, sort_array(collect_list(struct(
                first_offset, last_offset, delivery_state, delivery_count))) AS batches
            FROM silver.share_state_batches WHERE {batches_condition}
            GROUP BY cluster_id, group_id, topic_id, partition, log_partition
        ) AS b ON s.cluster_id = b.cluster_id AND s.group_id = b.group_id
            AND s.topic_id = b.topic_id AND s.partition = b.partition AND s.log_partition <=> b.log_partition
        LEFT JOIN {_stays("silver.share_partition_states", SHARE_KEY, "valid_from")} AS h
            ON s.cluster_id = h.cluster_id AND s.group_id = h.group_id
            AND s.topic_id = h.topic_id AND s.partition = h.partition AND s.log_partition = h.home
        {clocks}
        WHERE s.record_kind <> 'TOMBSTONE' AND {condition} AND {_is_home(time)}
    """


CURRENT_GROUPS: Final = Definition(
    Kind.VIEW,
    "current_groups",
    "Every group that is there, with its newest generation or epoch.",
    "",
    (GROUP_GENERATIONS,),
    _groups(f"g.{NEWEST}", None),
)

CURRENT_OFFSETS: Final = Definition(
    Kind.VIEW,
    "current_offsets",
    "Every committed offset that is in force.",
    "",
    (OFFSET_COMMITS, GROUP_GENERATIONS),
    _offsets("true", None, _homes("outcome = 'APPLIED'")),
)

CURRENT_SHARE_PARTITIONS: Final = Definition(
    Kind.VIEW,
    "current_share_partitions",
    "Every share partition that has a state, with its batches in flight.",
    "",
    (SHARE_PARTITION_STATES, SHARE_STATE_BATCHES),
    _share_partitions("s.valid_to IS NULL", NEWEST, None),
)

GROUP_AT: Final = Definition(
    Kind.FUNCTION,
    "group_at",
    "Every group that was there, with its generation or epoch then; `state` is that at the end of it.",
    "(time TIMESTAMP)",
    (GROUP_GENERATIONS,),
    _groups(_holds_at("group_at.time", "g."), "group_at.time"),
)

OWNER_AT: Final = Definition(
    Kind.FUNCTION,
    "owner_at",
    "Who owned a partition of a topic, given by name or id, in each group.",
    "(topic STRING, partition INT, time TIMESTAMP)",
    (PARTITION_OWNERS, GROUP_GENERATIONS),
    f"""
    SELECT {_prefixed(OWNER_COLUMNS, "o")}, {_is_repeated("owner_at.time")} FROM gold.partition_owners AS o
    LEFT JOIN {_homes()} AS h
        ON o.cluster_id = h.cluster_id AND o.group_id = h.group_id AND o.log_partition = h.home
    {_clocks("o", OFFSETS_TOPIC)}
    WHERE {_is_home("owner_at.time")} AND owner_at.topic IN (o.topic, o.topic_id) AND o.partition = owner_at.partition
        AND {_holds_at("owner_at.time", "o.")}
    """,
)

OFFSETS_AT: Final = Definition(
    Kind.FUNCTION,
    "offsets_at",
    "The committed offsets of a group which were in force.",
    "(`group` STRING, time TIMESTAMP)",
    (OFFSET_COMMITS, GROUP_GENERATIONS),
    _offsets(
        "c.group_id = offsets_at.`group` AND c.applied_at <= offsets_at.time",
        "offsets_at.time",
        _homes("outcome = 'APPLIED'"),
    ),
)

SHARE_PARTITION_AT: Final = Definition(
    Kind.FUNCTION,
    "share_partition_at",
    "The state of a share partition, its topic given by name or id, with its batches in flight.",
    "(`group` STRING, topic STRING, partition INT, time TIMESTAMP)",
    (SHARE_PARTITION_STATES, SHARE_STATE_BATCHES),
    _share_partitions(
        f"""s.group_id = share_partition_at.`group` AND share_partition_at.topic IN (s.topic, s.topic_id)
        AND s.partition = share_partition_at.partition AND {_holds_at("share_partition_at.time", "s.")}""",
        f"""group_id = share_partition_at.`group` AND partition = share_partition_at.partition
        AND {_holds_at("share_partition_at.time")}""",
        "share_partition_at.time",
    ),
)

DEFINITIONS: Final = (
    CURRENT_GROUPS,
    CURRENT_OFFSETS,
    CURRENT_SHARE_PARTITIONS,
    GROUP_AT,
    OWNER_AT,
    OFFSETS_AT,
    SHARE_PARTITION_AT,
)


def definitions_named_in(text: str) -> list[Definition]:
    """The definitions which a statement, in lower case, may name; all of them for SHOW VIEWS and SHOW FUNCTIONS."""
    words = text.split()
    is_all = words[:1] == ["show"] and not {"views", "functions"}.isdisjoint(words)
    return [definition for definition in DEFINITIONS if is_all or definition.name in text]
