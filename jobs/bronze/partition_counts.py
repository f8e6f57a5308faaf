"""Partition counts of topics: as rows of silver.partition_counts, and those of the internal topics as known now.

They come from the metadata log (a PartitionRecord for each partition that is created), from the Admin of a live
cluster, and from the user (`--partitions TOPIC=COUNT`). The highest partition number found is no proof: a higher one
may be on a disk or broker that is in no source.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from jobs.bronze.admin_snapshots import ADMIN
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC
from schemas.tables.bronze import TOPICS
from schemas.tables.silver import PARTITION_COUNTS

CLUSTER_METADATA: Final = "CLUSTER_METADATA"
SETTING: Final = "SETTING"
"""The count comes from `--partitions`, or from `sources.partitions` in the settings."""


CountsOverTime = Mapping[tuple[str, int], int]
"""Topic id and time (epoch ms) -> the least number of partitions that the topic has from then on."""


class KnownCount(NamedTuple):
    """The partition count of a topic now. `since_ms`: since when it is known to have them; None: unknown."""

    partition_count: int
    source: str
    """CLUSTER_METADATA, ADMIN or SETTING."""
    since_ms: int | None


def grown(counts: CountsOverTime) -> dict[tuple[str, int], int]:
    """Only the counts that are higher than all earlier ones of the topic id: partitions are never removed."""
    most: dict[str, int] = {}
    kept: dict[tuple[str, int], int] = {}
    for (topic_id, at), count in sorted(counts.items()):
        if count > most.get(topic_id, 0):
            kept[topic_id, at] = most[topic_id] = count
    return kept


def merged(*counts: CountsOverTime) -> dict[tuple[str, int], int]:
    """Merge counts of several sources; the order does not matter."""
    together: dict[tuple[str, int], int] = {}
    for some in counts:
        for place, count in some.items():
            together[place] = max(count, together.get(place, 0))
    return grown(together)


def partition_count_rows(
    logged: CountsOverTime, observed: CountsOverTime, name_of: Mapping[str, str], deleted: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Rows of silver.partition_counts: one for each number of partitions of a topic id, sorted by id and number.

    `observed`: counts from Admin. Times are epoch ms.
    """
    together = merged(logged, observed)
    rows: list[dict[str, Any]] = []
    for (topic_id, at), count in sorted(together.items()):
        if rows and rows[-1]["topic_id"] == topic_id:
            rows[-1]["valid_to"] = at
        rows.append(
            {
                "topic_id": topic_id,
                "topic": name_of.get(topic_id),
                "partition_count": count,
                "valid_from": at,
                "valid_to": deleted.get(topic_id),
                "learned_from": CLUSTER_METADATA if logged.get((topic_id, at)) == count else ADMIN,
            }
        )
    return rows


def observed_counts(tables: ClusterTables, version: int | None = None) -> dict[tuple[str, int], int]:
    """Partition counts of Admin snapshots. `version`: version of bronze.topics, None: the newest."""
    if version is not None and version < 0:
        return {}
    names = ["topic_id", "observed_at", "partition_count"]
    rows = tables.read(TOPICS, names, version=version).to_pylist()
    counts = {
        (row["topic_id"], epoch_ms(row["observed_at"])): row["partition_count"]
        for row in rows
        if row["partition_count"] is not None
    }
    return grown(counts)


def known_counts(tables: ClusterTables, settings: Mapping[str, int] | None = None) -> dict[str, KnownCount]:
    """The partition counts of topics now, where anything other than the partitions found gives them.

    The highest count of all sources is right, since partitions are never removed. `settings`: counts that the user
    gives.
    """
    # the metadata topic has one partition in every cluster (KRaft)
    known: dict[str, KnownCount] = {METADATA_TOPIC: KnownCount(1, CLUSTER_METADATA, None)}
    rows = WholeRun.newest(tables, with_unaudited=True).read(PARTITION_COUNTS).to_pylist()
    for row in rows:
        if row["topic"] is None or row["valid_to"] is not None:
            continue
        since_ms = None if row["valid_from"] is None else epoch_ms(row["valid_from"])
        _take(known, row["topic"], KnownCount(row["partition_count"], row["learned_from"], since_ms))
    observed = tables.read(TOPICS).to_pylist()
    for row in _newest_observed(observed):  # a capture may be newer than silver
        if row["partition_count"] is not None:
            _take(known, row["topic"], KnownCount(row["partition_count"], ADMIN, epoch_ms(row["observed_at"])))
    for topic, count in (settings or {}).items():
        _take(known, topic, KnownCount(count, SETTING, None))
    return known


def _take(known: dict[str, KnownCount], topic: str, count: KnownCount) -> None:
    if topic not in known or known[topic].partition_count < count.partition_count:
        known[topic] = count


def _newest_observed(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest row of each topic id."""
    newest: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["observed_at"]):
        newest[row["topic_id"]] = row
    return list(newest.values())
