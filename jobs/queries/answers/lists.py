"""What `audit --list` lists, each declared once: the table, the rows of it, the columns, and what a night says of them.

Conditions are DuckDB's SQL on a row `r` of the table.
"""

from typing import Any, Final, NamedTuple

from coordinator_core.confidence import GUESS
from coordinator_core.history.rows import FORGOTTEN, REPLACED_STATIC
from coordinator_core.inference.audit.log_anomalies import (
    AUDIT,
    CLIENT,
    COORDINATOR,
    GROUP,
    INPUT_NOT_READ,
    LOG,
    LOG_NOT_JUDGED,
    LOG_NOT_REPLAYED,
    NOT_JUDGED,
    NOT_REPLAYED,
    TWO_APPLICATIONS,
)
from coordinator_core.inference.commits.commit_anomalies import TOPIC_RECREATED
from coordinator_core.inference.groups.causes import CONNECT_DELAY_OVER, COOPERATIVE_FOLLOW_UP, METADATA_FOLLOW_UP
from coordinator_core.inference.groups.leave_reasons import EXPIRED, SILENT_FOR_POLL_INTERVAL
from jobs.bronze.coverage import HOLE_SQL
from jobs.bronze.log_ends import COORDINATOR_TOPICS
from jobs.bronze.quarantine import COPIES_PART, OPEN_SQL
from jobs.cli_enums import Listing
from jobs.queries.as_of.as_of import GROUPS_LOG, SHARES_LOG
from jobs.queries.views.counted_events import IS_BACK, IS_DELETED, IS_WITHOUT_OWNER, number_named
from schemas.tables.bronze import COVERAGE, QUARANTINE
from schemas.tables.declare import Table
from schemas.tables.gold import (
    ARCHIVED_RECORDS,
    COMMIT_ANOMALIES,
    HANGING_TRANSACTIONS,
    LAG_HISTORY,
    LOG_ANOMALIES,
    PARTITION_OWNERS,
    REBALANCES,
    REDELIVERIES,
    SHARE_OFFSET_CHANGES,
)
from schemas.tables.silver import GROUP_MEMBERS
from schemas.tables.state import OFFSET_RANGES, Ranges


class Finding(NamedTuple):
    """How a night speaks of the rows of a list."""

    one: str
    many: str
    amount: str = "1"
    """What a row counts for."""
    name: str = "r.group_id"
    """Whose it is."""
    guess: str = "false"
    """Is a row only a guess?"""
    lasts: bool = False
    """The row says how it is, until it is over; others say what happened."""
    is_reported: bool = True
    """Does a night report it?"""


class Listed(NamedTuple):
    """A list. `time`: the column by which it is in a span; empty: the rows have none."""

    table: Table
    time: str
    logs: tuple[str, ...]
    """The logs from which it is inferred."""
    first: tuple[str, ...]
    """The columns that are the answer, by importance."""
    then: tuple[str, ...] = ()
    """Those that come next, where there is room."""
    where: str = "true"
    finding: Finding | None = None
    see_also: Listing | None = None
    """The list of what one may look for here, and is there."""
    more: str = ""
    """A column that other tables give: WHO, TOPICS or BEGAN_AT."""
    time_name: str = ""
    """What the list calls the column `time`; empty: as the table."""
    who: str = ""
    """With WHO: the column of its members, or of the one."""
    cause: str = ""
    """Which cause of a rebalance is the row's, with its method and confidence; empty: the main one."""


WHO: Final = "who"
OWNER: Final = "owner_member_id"
NO_MEMBER: Final = "no member"
TOPICS: Final = "topics"
BEGAN_AT: Final = "at"
TOPICS_MEANS: Final = (
    "topics of the group that came, went or changed their partition count since the rebalance before, by the metadata "
    "log; where it shows none, those with partitions that the group had for the first or the last time"
)
BEGAN_AT_MEANS: Final = "of leaders: the time of the first batch that was written in the leader epoch"
WHO_MEANS: Final = (
    "clients and hosts of the members that went, or in a storm of those that come and go; where nobody does, of all "
    "members at the time, one of which asked for the rebalance; of a commit: the member that owned the partition, or "
    f"{NO_MEMBER}, where a tool did it, or a consumer without membership"
)
PARTITIONS_CHANGED: Final = "PARTITIONS_CHANGED"
FOLLOW_UPS: Final = (COOPERATIVE_FOLLOW_UP, CONNECT_DELAY_OVER, METADATA_FOLLOW_UP)
"""Methods of rebalances that complete the one before and have its cause: what caused both happened once."""
NOT_GROWN: Final = ("CONNECTORS_CHANGED", "CONFIGS_CHANGED", "SHARE_PARTITIONS_INITIALIZED", *FOLLOW_UPS)
"""Methods of PARTITIONS_CHANGED that do not mean a changed partition count: connectors and tasks are not topics."""
NOT_JUDGED_RULES: Final = (NOT_JUDGED, NOT_REPLAYED)
"""Rules about groups that gold lacks."""
LACKING_RULES: Final = (LOG_NOT_JUDGED, LOG_NOT_REPLAYED, INPUT_NOT_READ)
"""Rules about inputs that all of gold lacks."""
WITHOUT_COPY: Final = ("REFUSED", "NOT_TRIED")
"""Values of `dead_letter` where a group has a dead-letter topic, but certainly no copy of the record."""


def causes_such(condition: str) -> str:
    """The causes of a rebalance such that... `c[1]`: the cause, `c[2]`: its method, `c[3]`: its confidence."""
    return f"list_filter(list_zip(r.causes, r.cause_methods, r.cause_confidences), lambda c: {condition})"


def has_cause(condition: str) -> str:
    """Has a rebalance such a cause?"""
    return f"coalesce(len({causes_such(condition)}) > 0, false)"


def of_cause(condition: str) -> dict[str, str]:
    """The first such cause that is no guess, else the first such: what the columns of a row have in place of its main
    cause."""
    sure = causes_such(f"({condition}) AND c[3] <> '{GUESS}'")
    found = f"coalesce({sure}[1], {causes_such(condition)}[1])"
    return {name: f"{found}[{place}]" for place, name in enumerate(("cause", "method", "confidence"), 1)}


THROWN_OUT: Final = f"(c[1] = '{EXPIRED}' OR c[2] = '{SILENT_FOR_POLL_INTERVAL}') AND c[2] NOT IN {FOLLOW_UPS}"
TOPICS_CHANGED: Final = f"c[1] = '{PARTITIONS_CHANGED}' AND c[2] NOT IN {NOT_GROWN}"
SURELY_THROWN_OUT: Final = f"{THROWN_OUT} AND c[3] <> '{GUESS}'"
IS_LAST: Final = """r.incarnation * 4294967296 + r.to_generation = (
    SELECT max(l.incarnation * 4294967296 + l.to_generation) FROM gold.rebalances AS l
    WHERE l.group_id = r.group_id AND NOT coalesce(l.is_former_log_partition, false)
) AND NOT coalesce(r.is_former_log_partition, false)"""
"""The last rebalance of its group. Rows of a former log partition do not reflect the present."""
IS_RESET: Final = (
    f"r.kind = 'EMPTY_GROUP_RESET' AND coalesce(r.confidence, '') <> '{GUESS}' "
    f"AND r.from_offset IS DISTINCT FROM r.to_offset AND coalesce(r.likely_cause, '') <> '{TOPIC_RECREATED}'"
)
IS_SHARED_NOW: Final = f"""r.rule = '{TWO_APPLICATIONS}' AND (r.group_id, r.log_partition, r.log_offset, r.ordinal) IN (
    SELECT (group_id, log_partition, log_offset, ordinal) FROM gold.log_anomalies WHERE category = '{GROUP}'
    QUALIFY row_number() OVER (
        PARTITION BY group_id ORDER BY "at" DESC NULLS LAST, log_offset DESC, ordinal DESC
    ) = 1
)"""
"""The newest row of its group."""
IS_LEADER_CHANGE: Final = f"""r.kind = '{Ranges.LEADER_EPOCH}' AND r.leader_epoch >= 0 AND NOT r.is_checkpoint
    AND r.topic IN {COORDINATOR_TOPICS} AND EXISTS (
        SELECT 1 FROM state.offset_ranges AS l WHERE l.kind = r.kind AND l.topic = r.topic
            AND l.partition = r.partition AND NOT l.is_checkpoint AND l.leader_epoch BETWEEN 0 AND r.leader_epoch - 1
    ) AND NOT EXISTS (
        SELECT 1 FROM state.offset_ranges AS l WHERE l.kind = r.kind AND l.topic = r.topic
            AND l.partition = r.partition AND NOT l.is_checkpoint AND l.leader_epoch = r.leader_epoch
            AND l.from_offset < r.from_offset
    )"""
"""The first batch of each leader epoch but the first one."""
PLACE: Final = "r.topic || '-' || r.partition"
PLACE_OR_FILE: Final = f"coalesce({PLACE}, split_part(r.source, '/', -1))"
LACK: Final = (
    f"CASE WHEN r.rule IN {NOT_JUDGED_RULES} THEN r.group_id WHEN r.rule = '{INPUT_NOT_READ}' "
    "THEN split_part(r.details, ':', 1) ELSE r.log_topic || '-' || r.log_partition END"
)
NOTE: Final = "regexp_replace(r.details, '; clients like .*, protocol ', '; protocol ', 's')"
"""Client software is known by how it writes the protocol, not by client ids, which are names of applications."""
OF_GROUPS: Final = (GROUPS_LOG,)
OF_SHARES: Final = (SHARES_LOG,)
OF_REBALANCES: Final = ("cause", "confidence", "to_generation", "member_count", "partitions_moved")
OF_RECORDS: Final = ("group_id", "topic", "partition", "first_offset", "last_offset")
OF_OFFSETS: Final = ("group_id", "kind", "confidence", "topic", "partition", "from_offset", "to_offset")
WHY: Final = ("likely_cause", "confidence", "at")


class Usual(NamedTuple):
    """Of the lists of a table: what `Listed` has, unless a list has its own."""

    time: str
    logs: tuple[str, ...]
    first: tuple[str, ...]
    then: tuple[str, ...] = ()


USUAL: Final[dict[Table, Usual]] = {
    COVERAGE: Usual(
        "observed_at",
        COORDINATOR_TOPICS,
        ("topic", "partition", "from_offset", "to_offset", "kind", "reason", "first_timestamp", "last_timestamp"),
    ),
    QUARANTINE: Usual(
        "seen_at",
        COORDINATOR_TOPICS,
        ("topic", "partition", "offset", "stage", "code", "message", "source", "seen_at"),
    ),
    OFFSET_RANGES: Usual(
        "", COORDINATOR_TOPICS, ("topic", "partition", "from_offset", "least_end_offset", "greatest_end_offset")
    ),
    LOG_ANOMALIES: Usual(
        "at",
        COORDINATOR_TOPICS,
        ("group_id", "at", "rule", "details", "meaning", "remedy", "topic", "partition", "member_id"),
    ),
    GROUP_MEMBERS: Usual(
        "valid_to", OF_GROUPS, ("group_id", "instance_id", "client_id", "client_host", "valid_from", "valid_to")
    ),
    REBALANCES: Usual("started_at", OF_GROUPS, ("group_id", "started_at", WHO, "cause", "confidence")),
    PARTITION_OWNERS: Usual(
        "valid_from",
        OF_GROUPS,
        ("group_id", "topic", "partition", "client_id", "client_host", "valid_from", "valid_to"),
    ),
    COMMIT_ANOMALIES: Usual("at", OF_GROUPS, (*OF_OFFSETS, WHO, "at", "likely_cause")),
    HANGING_TRANSACTIONS: Usual(
        "since", OF_GROUPS, ("group_id", "since", "producer_id", "uncleanable_count", "meaning", "remedy")
    ),
    LAG_HISTORY: Usual(
        "at",
        OF_GROUPS,
        ("group_id", "topic", "partition", "at", "lag", "confidence", "lag_min", "lag_max", "time_behind_ms"),
    ),
    ARCHIVED_RECORDS: Usual("at", OF_SHARES, (*OF_RECORDS, *WHY), ("cause", "delivery_count")),
    REDELIVERIES: Usual("at", OF_SHARES, (*OF_RECORDS, "to_delivery_count", *WHY), ("cause",)),
    SHARE_OFFSET_CHANGES: Usual("at", OF_SHARES, (*OF_OFFSETS, "never_delivered_count", "delivered_again_count", "at")),
}


def _of(table: Table, **own: Any) -> Listed:
    """A list of a table's rows."""
    return Listed(**{"table": table, **USUAL[table]._asdict(), **own})


LISTS: Final[dict[Listing, Listed]] = {
    Listing.NOT_JUDGED: _of(
        LOG_ANOMALIES,
        where=f"r.category = '{AUDIT}'",
        finding=Finding("could not be judged", "could not be judged", name=LACK, lasts=True),
    ),
    Listing.HOLES: _of(
        COVERAGE,
        where=HOLE_SQL,
        finding=Finding("hole in coverage", "holes in coverage", name=PLACE, lasts=True),
    ),
    Listing.QUARANTINE: _of(
        QUARANTINE,
        where=OPEN_SQL,
        finding=Finding("row in quarantine", "rows in quarantine", name=PLACE_OR_FILE, lasts=True),
    ),
    Listing.COPIES: _of(
        QUARANTINE,
        where=f"r.code = '{COPIES_PART}'",
        first=("topic", "partition", "offset", "message", "source", "seen_at"),
        finding=Finding("place where copies part ways", "places where copies part ways", name=PLACE),
    ),
    Listing.RULES: _of(
        LOG_ANOMALIES,
        where=f"r.category = '{COORDINATOR}'",
        finding=Finding("broken rule", "broken rules", name="r.rule"),
    ),
    Listing.HANGING: _of(
        HANGING_TRANSACTIONS,
        finding=Finding("group with a hanging transaction", "groups with a hanging transaction", lasts=True),
    ),
    Listing.FORGOTTEN: _of(
        LOG_ANOMALIES,
        logs=OF_GROUPS,
        where=f"r.rule = '{FORGOTTEN}'",
        finding=Finding("group not loaded wholly by a new leader", "groups not loaded wholly by a new leader"),
    ),
    Listing.ARCHIVED: _of(
        ARCHIVED_RECORDS,
        finding=Finding("record given up", "records given up", number_named("records_given_up").expression),
    ),
    Listing.SHARE_OFFSETS: _of(
        SHARE_OFFSET_CHANGES,
        finding=Finding("share offset moved by a tool", "share offsets moved by a tool"),
    ),
    Listing.RESETS: _of(
        COMMIT_ANOMALIES,
        where=IS_RESET,
        more=WHO,
        who=OWNER,
        finding=Finding("offset reset by a tool", "offsets reset by a tool"),
        see_also=Listing.REWINDS,
    ),
    Listing.DELETED: _of(
        COMMIT_ANOMALIES,
        where=IS_DELETED,
        first=(*OF_OFFSETS, "at", "likely_cause"),
        finding=Finding(
            "offset deleted, not explained by offsets_retention_ms",
            "offsets deleted, not explained by offsets_retention_ms",
        ),
    ),
    Listing.FLAPPING: _of(
        REBALANCES,
        where="r.in_storm",
        finding=Finding("rebalance in storms", "rebalances in storms"),
        more=WHO,
        who="flapping_members",
    ),
    Listing.EXPIRED: _of(
        REBALANCES,
        where=has_cause(THROWN_OUT),
        finding=Finding("time thrown out", "times thrown out", guess=f"NOT {has_cause(SURELY_THROWN_OUT)}"),
        more=WHO,
        who="members_left",
        cause=THROWN_OUT,
    ),
    Listing.UNOWNED: _of(
        REBALANCES,
        where=IS_WITHOUT_OWNER,
        first=("group_id", "started_at", "unowned_likely_ms", "partitions_total", *OF_REBALANCES),
        finding=Finding("rebalance with long unowned time", "rebalances with long unowned time"),
    ),
    Listing.REWINDS: _of(
        COMMIT_ANOMALIES,
        where=f"{IS_BACK} AND NOT ({IS_RESET})",
        more=WHO,
        who=OWNER,
        finding=Finding("commit that went back", "commits that went back"),
        see_also=Listing.RESETS,
    ),
    Listing.SKIPPED: _of(
        COMMIT_ANOMALIES,
        where="r.kind = 'SKIP'",
        more=WHO,
        who=OWNER,
        finding=Finding("commit that skipped ahead", "commits that skipped ahead"),
    ),
    Listing.INSTANCES: _of(
        GROUP_MEMBERS,
        where=f"r.ended_by = '{REPLACED_STATIC}'",
        finding=Finding("member replaced in a war", "members replaced in wars"),
    ),
    Listing.SHARED: _of(
        LOG_ANOMALIES,
        logs=OF_GROUPS,
        where=IS_SHARED_NOW,
        finding=Finding("group id of several applications", "group ids of several applications", lasts=True),
    ),
    Listing.STARTS: _of(
        OFFSET_RANGES,
        where=f"r.kind = '{Ranges.LEADER_EPOCH}' AND r.leader_epoch < 0",
        finding=Finding("log start that moved", "log starts that moved", lasts=True),
    ),
    Listing.EMPTIED: _of(
        REBALANCES,
        where=f"r.member_count = 0 AND {IS_LAST}",
        time_name="since",
        first=("group_id", "since", WHO, "cause", "confidence"),
        finding=Finding("group left empty", "groups left empty"),
        more=WHO,
        who="members_left",
    ),
    Listing.GROWN: _of(
        REBALANCES,
        where=has_cause(TOPICS_CHANGED),
        first=("group_id", "started_at", TOPICS, "cause", "confidence"),
        finding=Finding("change of topics", "changes of topics"),
        more=TOPICS,
        cause=TOPICS_CHANGED,
    ),
    Listing.ODDITIES: _of(
        LOG_ANOMALIES,
        where=f"r.category = '{LOG}' AND r.rule <> '{FORGOTTEN}'",
        finding=Finding("oddity of the log", "oddities of the log", name="r.rule"),
    ),
    Listing.LEADERS: _of(
        OFFSET_RANGES,
        where=IS_LEADER_CHANGE,
        first=("topic", "partition", "leader_epoch", BEGAN_AT, "from_offset"),
        finding=Finding("change of leader", "changes of leaders", name=PLACE),
        more=BEGAN_AT,
    ),
    Listing.CLIENTS: _of(
        LOG_ANOMALIES,
        logs=OF_GROUPS,
        where=f"r.category = '{CLIENT}'",
        finding=Finding("note on clients", "notes on clients", name=NOTE),
    ),
    Listing.WITHOUT_COPY: _of(
        ARCHIVED_RECORDS,
        where=f"r.dead_letter IN {WITHOUT_COPY}",
        first=(*OF_RECORDS, "dead_letter", *WHY),
        see_also=Listing.ARCHIVED,
    ),
    Listing.REDELIVERIES: _of(
        REDELIVERIES,
        finding=Finding(
            "record redelivered",
            "records redelivered",
            number_named("records_redelivered").expression,
            is_reported=False,
        ),
    ),
    Listing.REBALANCES: _of(REBALANCES, first=("group_id", "started_at", *OF_REBALANCES)),
    Listing.COMMITS: _of(COMMIT_ANOMALIES, more=WHO, who=OWNER),
    Listing.LAG: _of(LAG_HISTORY),
    Listing.OWNERS: _of(PARTITION_OWNERS),
}
"""Those that a night reports: worst first."""
FINDINGS: Final[dict[Listing, Finding]] = {
    listing: it.finding for listing, it in LISTS.items() if it.finding is not None and it.finding.is_reported
}


def finding_of(listing: Listing) -> Finding:
    finding = LISTS[listing].finding
    assert finding is not None, listing
    return finding
