"""The columns of lists that other tables give: who, which topics, and when a leader epoch began."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from coordinator_core.text import counted
from jobs.console.names import short, some_of
from jobs.console.output import time_text
from jobs.delta.times import epoch_ms
from jobs.queries.answers.lists import BEGAN_AT, NO_MEMBER, OWNER, TOPICS, WHO
from jobs.queries.sql.sql_duckdb import DuckDb

MEMBERS: Final = """
    SELECT group_id, member_id, instance_id, client_id, client_host, valid_from, valid_to FROM silver.group_members
    WHERE list_contains($1, group_id) ORDER BY from_log_offset
"""
HAD: Final = """
    SELECT group_id, topic, partition, min(from_generation) AS first, max(to_generation) AS last
    FROM silver.member_assignments WHERE list_contains($1, group_id) AND assignment <> 'REVOKING' GROUP BY ALL
"""
"""From when until when groups had partitions."""
BEGAN: Final = """
    SELECT group_id, started_at FROM gold.rebalances WHERE list_contains($1, group_id) AND started_at IS NOT NULL
"""
COUNTS: Final = """
    SELECT topic, valid_from AS "at", lag(partition_count) OVER times AS was, partition_count AS now
    FROM silver.partition_counts WINDOW times AS (PARTITION BY topic_id ORDER BY valid_from)
    UNION ALL
    SELECT topic, max(valid_to), arg_max(partition_count, valid_to), 0
    FROM silver.partition_counts GROUP BY topic, topic_id HAVING count(valid_to) = count(*)
    ORDER BY "at", topic
"""
"""When topics came, went, or changed their partition count."""
EPOCHS: Final = """
    SELECT topic, partition, leader_epoch, arg_min(max_timestamp, base_offset) AS "at"
    FROM bronze.record_batches WHERE leader_epoch >= 0 GROUP BY ALL
"""


def _named(ledger: DuckDb, rows: Sequence[Mapping[str, Any]], who: str) -> Iterator[str]:
    """For each rebalance or commit the clients and hosts of the members in a column: there by member id or, if they
    flapped, by group instance id or else client id. Where none did, those of all members at the time: one of them asked
    for it. A commit while the group was empty is of no member."""
    members: defaultdict[str, list[tuple[Any, Any, str]]] = defaultdict(list)
    by_id: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for it in ledger.rows_of(MEMBERS, sorted({row["group_id"] for row in rows})):
        client = f"{short(it['client_id'] or '?')} on {short(it['client_host'] or '?')}"
        text = f"{short(it['instance_id'])}: {client}" if it["instance_id"] else client
        for name in (it["member_id"], it["instance_id"] or it["client_id"]):
            by_id[it["group_id"], name].add(text)
        members[it["group_id"]].append((it["valid_from"], it["valid_to"], text))
    for row in rows:
        group_id, wanted = row["group_id"], [row[who]] if who == OWNER else row[who] or ()
        found = {text for it in wanted for text in by_id.get((group_id, it), ())}
        if who == "flapping_members" and not found and (at := row["started_at"]) is not None:
            until = row["completed_at"] or at
            found = {
                text
                for since, gone, text in members[group_id]
                if since is not None and since <= until and (gone is None or gone >= at)
            }
        yield NO_MEMBER if row.get("was_group_empty") else some_of(sorted(found))


def topics_changed(ledger: DuckDb, rows: Sequence[Mapping[str, Any]], _: str = "") -> Iterator[str]:
    """For each rebalance what `TOPICS_MEANS` says."""
    had: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    began: defaultdict[str, list[datetime]] = defaultdict(list)
    group_ids = sorted({row["group_id"] for row in rows})
    for it in ledger.rows_of(HAD, group_ids):
        had[it["group_id"]].append(it)
    for it in ledger.rows_of(BEGAN, group_ids):
        began[it["group_id"]].append(it["started_at"])
    changes = list(ledger.rows_of(COUNTS)) if rows else []
    for row in rows:
        group_id, at = row["group_id"], row["started_at"]
        before = max((it for it in began[group_id] if at is not None and it < at), default=None)
        topics = {it["topic"] for it in had[group_id]}
        texts = [
            _change_of_topic(it)
            for it in changes
            if at is not None and (before is None or it["at"] > before) and it["at"] <= at
            if it["topic"] in topics or it["topic"].startswith(f"{group_id}-")
        ]
        firsts = {it["topic"] for it in had[group_id] if it["first"] == row["to_generation"]}
        lasts = {it["topic"] for it in had[group_id] if it["last"] == row["from_generation"]}
        yield some_of(texts or [f"{short(it)} {'came' if it in firsts else 'went'}" for it in sorted(firsts | lasts)])


def _change_of_topic(it: Mapping[str, Any]) -> str:
    topic = short(it["topic"])
    if not it["now"]:
        return f"{topic} was deleted"
    many = counted(it["now"], "partition")
    return f"{topic} went from {it['was']} to {many}" if it["was"] else f"{topic} came with {many}"


def _began_at(ledger: DuckDb, rows: Sequence[Mapping[str, Any]], _: str) -> Iterator[str | None]:
    """For each leader epoch the time of its first batch."""
    keys = ("topic", "partition", "leader_epoch")
    times = {tuple(it[name] for name in keys): it["at"] for it in (ledger.rows_of(EPOCHS) if rows else ())}
    for row in rows:
        at = times.get(tuple(row[name] for name in keys))
        yield None if at is None else time_text(epoch_ms(at))


MORE: Final[Mapping[str, Callable[[DuckDb, Sequence[Mapping[str, Any]], str], Iterator[str | None]]]] = {
    WHO: _named,
    TOPICS: topics_changed,
    BEGAN_AT: _began_at,
}
"""How the columns are made that other tables give."""
