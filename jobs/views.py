"""Views of the newest state and SQL functions of any time, by the names of the tables' documentation.

A definition is a constant: no id, path or time is ever put into its text. What a caller asks for reaches Spark as an
argument of the function, thus as a value. All intervals are half open, so a moment belongs to one row only; what
happened at the very millisecond asked for counts as done.

In Spark's in-memory catalogue they are temporary, and last as long as the session; with a metastore they are made
persistent beside the tables, so that other sessions find them.
"""

from enum import StrEnum
from typing import Final, NamedTuple

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

    def statement(self, *, is_persistent: bool) -> str:
        """The DDL."""
        temporary = "" if is_persistent else "TEMPORARY "
        if self.kind is Kind.VIEW:
            return f"CREATE OR REPLACE {temporary}VIEW {self.name} AS {self.query}"
        return f"CREATE OR REPLACE {temporary}FUNCTION {self.name}{self.signature} RETURNS TABLE RETURN {self.query}"


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


def _offsets(condition: str) -> str:
    """The offsets in force after the commits which meet a condition: the last one applied to each partition."""
    return f"""
        SELECT {OFFSET_COLUMNS} FROM (
            SELECT *, row_number() OVER (
                PARTITION BY cluster_id, group_id, topic, partition ORDER BY applied_log_offset DESC, log_offset DESC
            ) AS newness
            FROM silver.offset_commits WHERE outcome = 'APPLIED' AND {condition}
        ) WHERE newness = 1 AND change <> 'DELETE'
    """


def _share_partitions(condition: str, batches_condition: str) -> str:
    """Share partitions with their batches in flight, in order of offsets."""
    return f"""
        SELECT {SHARE_COLUMNS}, coalesce(b.batches, array()) AS batches
        FROM silver.share_partition_states AS s LEFT JOIN (
            SELECT cluster_id, group_id, topic_id, partition, sort_array(collect_list(struct(
                first_offset, last_offset, delivery_state, delivery_count))) AS batches
            FROM silver.share_state_batches WHERE {batches_condition}
            GROUP BY cluster_id, group_id, topic_id, partition
        ) AS b ON s.cluster_id = b.cluster_id AND s.group_id = b.group_id
            AND s.topic_id = b.topic_id AND s.partition = b.partition
        WHERE s.record_kind <> 'TOMBSTONE' AND {condition}
    """


CURRENT_GROUPS: Final = Definition(
    Kind.VIEW,
    "current_groups",
    "Every group that is there, with its newest generation or epoch.",
    "",
    (GROUP_GENERATIONS,),
    f"SELECT {GROUP_COLUMNS} FROM silver.group_generations WHERE {NEWEST}",
)

CURRENT_OFFSETS: Final = Definition(
    Kind.VIEW, "current_offsets", "Every committed offset that is in force.", "", (OFFSET_COMMITS,), _offsets("true")
)

CURRENT_SHARE_PARTITIONS: Final = Definition(
    Kind.VIEW,
    "current_share_partitions",
    "Every share partition that has a state, with its batches in flight.",
    "",
    (SHARE_PARTITION_STATES, SHARE_STATE_BATCHES),
    _share_partitions("s.valid_to IS NULL", NEWEST),
)

GROUP_AT: Final = Definition(
    Kind.FUNCTION,
    "group_at",
    "Every group that was there, with its generation or epoch then; `state` is that at the end of it.",
    "(time TIMESTAMP)",
    (GROUP_GENERATIONS,),
    f"SELECT {GROUP_COLUMNS} FROM silver.group_generations WHERE {_holds_at('group_at.time')}",
)

OWNER_AT: Final = Definition(
    Kind.FUNCTION,
    "owner_at",
    "Who owned a partition of a topic, given by name or id, in each group.",
    "(topic STRING, partition INT, time TIMESTAMP)",
    (PARTITION_OWNERS,),
    f"""
    SELECT {OWNER_COLUMNS} FROM gold.partition_owners AS o
    WHERE owner_at.topic IN (o.topic, o.topic_id) AND o.partition = owner_at.partition
        AND {_holds_at("owner_at.time", "o.")}
    """,
)

OFFSETS_AT: Final = Definition(
    Kind.FUNCTION,
    "offsets_at",
    "The committed offsets of a group which were in force.",
    "(`group` STRING, time TIMESTAMP)",
    (OFFSET_COMMITS,),
    _offsets("group_id = offsets_at.`group` AND applied_at <= offsets_at.time"),
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
