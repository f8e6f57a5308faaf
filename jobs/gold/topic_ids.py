"""Offsets that went back because the topic was recreated: commits to the same name with another topic id."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.inference.commits.commit_anomalies import TOPIC_RECREATED, went_back
from coordinator_core.inference.facts.rows import AnomalyRow
from jobs.silver.reader import SilverFiles
from schemas.tables.silver import OFFSET_COMMITS, TOPICS

TOPIC_ID: Final = "TOPIC_ID"
"""Method: the values of both commits have a topic id, and the ids differ."""
_TEXTS: Final = ("group_id", "topic", "topic_id", "outcome")
_COLUMNS: Final = (*_TEXTS, "partition", "log_offset", "applied_log_offset")

Place = tuple[str, str, int]
"""Group id, topic and partition."""


class TopicIds:
    """Topic ids of commits. Commits are read only where a name has several ids and an offset went back."""

    def __init__(self, files: SilverFiles) -> None:
        self._files = files
        ids: dict[str, set[str]] = defaultdict(set)
        named = files.scan(TOPICS, ("topic", "topic_id"))
        for topic, topic_id in zip(named["topic"].to_pylist(), named["topic_id"].to_pylist(), strict=True):
            if topic is not None:
                ids[topic].add(topic_id)
        self._several = {topic for topic, found in ids.items() if len(found) > 1}

    def with_causes(self, rows: Sequence[AnomalyRow], log_partition: int) -> Sequence[AnomalyRow]:
        """The rows of a log partition; an offset that went back in another topic of the same name gets its
        cause."""
        asked = {
            (row.group_id, row.topic, row.partition) for row in rows if went_back(row) and row.topic in self._several
        }
        if not asked:
            return rows
        recreated = self._recreated(asked, log_partition)
        return [
            row._replace(likely_cause=TOPIC_RECREATED, method=TOPIC_ID)
            if went_back(row) and (row.group_id, row.log_offset) in recreated
            else row
            for row in rows
        ]

    def _recreated(self, asked: Iterable[Place], log_partition: int) -> set[tuple[str, int]]:
        """Group id and log offset of applied commits whose topic id differs from that of the commit in force before."""
        asked = set(asked)
        topics = pa.array(sorted({topic for _, topic, _ in asked}))
        applied: dict[Place, list[tuple[int, int, str | None]]] = defaultdict(list)
        for part in self._files.iterate(OFFSET_COMMITS, _COLUMNS, log_partition, _TEXTS):
            of_topics = part.filter(pc.is_in(part["topic"].cast(pa.string()), topics))
            for row in of_topics.to_pylist():
                place = row["group_id"], row["topic"], row["partition"]
                if place in asked and row["outcome"] == "APPLIED":
                    applied[place].append((row["applied_log_offset"], row["log_offset"], row["topic_id"]))
        found = set()
        for (group_id, _, _), commits in applied.items():
            before: str | None = None
            for _, log_offset, topic_id in sorted(commits):
                if topic_id is not None and before is not None and topic_id != before:
                    found.add((group_id, log_offset))
                before = topic_id
        return found
