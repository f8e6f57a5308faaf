"""How many partitions topics have: as rows of silver.partition_counts, and of the internal topics as it is known now.

The metadata log tells it (a PartitionRecord for each partition that is made), a live cluster's Admin does, and the user
may (`--partitions TOPIC=COUNT`). The highest partition that was seen is no proof: another one may be on a disk or a
broker that nobody named.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from jobs.bronze.admin_snapshots import ADMIN
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import Warehouse
from schemas.tables.bronze import TOPICS
from schemas.tables.silver import PARTITION_COUNTS

CLUSTER_METADATA: Final = "CLUSTER_METADATA"
SETTING: Final = "SETTING"
"""`--partitions`, or `sources.partitions` in the settings."""

METADATA_TOPIC: Final = "__cluster_metadata"
"""Has one partition in every cluster (KRaft)."""

CountsOverTime = Mapping[tuple[str, int], int]
"""Topic id and time (epoch ms) -> number of partitions that the topic has at least from then on."""


class KnownCount(NamedTuple):
    """How many partitions a topic has now. `since_ms`: from when on it is known to have them; None: no time is."""

    partition_count: int
    source: str
    """CLUSTER_METADATA ADMIN SETTING."""
    since_ms: int | None


def grown(counts: CountsOverTime) -> dict[tuple[str, int], int]:
    """Those counts alone that are more than all before them of their topic id: partitions are never taken away."""
    most: dict[str, int] = {}
    kept: dict[tuple[str, int], int] = {}
    for (topic_id, at), count in sorted(counts.items()):
        if count > most.get(topic_id, 0):
            kept[topic_id, at] = most[topic_id] = count
    return kept


def merged(*counts: CountsOverTime) -> dict[tuple[str, int], int]:
    """Several together; the order does not matter."""
    together: dict[tuple[str, int], int] = {}
    for some in counts:
        for place, count in some.items():
            together[place] = max(count, together.get(place, 0))
    return grown(together)


def partition_count_rows(
    logged: CountsOverTime, observed: CountsOverTime, name_of: Mapping[str, str], deleted: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Rows of silver.partition_counts: one for each number of partitions of a topic id, by id and number. `observed`:
    by Admin. Times are epoch ms."""
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


def observed_counts(warehouse: Warehouse, cluster_id: str, version: int | None = None) -> dict[tuple[str, int], int]:
    """Partition counts of Admin snapshots; `version`: of bronze.topics, None: the newest."""
    if version is not None and version < 0:
        return {}
    names = ["topic_id", "observed_at", "partition_count"]
    rows = warehouse.read(TOPICS, names, where={"cluster_id": cluster_id}, version=version).to_pylist()
    counts = {
        (row["topic_id"], epoch_ms(row["observed_at"])): row["partition_count"]
        for row in rows
        if row["partition_count"] is not None
    }
    return grown(counts)


def known_counts(
    warehouse: Warehouse, cluster_id: str, settings: Mapping[str, int] | None = None
) -> dict[str, KnownCount]:
    """The numbers of partitions of topics now, by topic, as far as anything but the logs' own names tells them.

    Of several sources the one that knows of most partitions is right: they are never taken away. `settings`: what the
    user says.
    """
    known: dict[str, KnownCount] = {METADATA_TOPIC: KnownCount(1, CLUSTER_METADATA, None)}
    rows = WholeRun.newest(warehouse, cluster_id).read(PARTITION_COUNTS).to_pylist()
    for row in rows:
        if row["topic"] is None or row["valid_to"] is not None:
            continue
        since_ms = None if row["valid_from"] is None else epoch_ms(row["valid_from"])
        _take(known, row["topic"], KnownCount(row["partition_count"], row["learned_from"], since_ms))
    observed = warehouse.read(TOPICS, where={"cluster_id": cluster_id}).to_pylist()
    for row in _newest_observed(observed):  # a capture may be newer than silver is
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
