"""Names of topic ids: what the logs and the admin snapshots say, and which name counts."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final

from coordinator_core.history.rows import TopicName
from jobs.bronze.admin_snapshots import ADMIN
from jobs.bronze.partition_counts import merged
from jobs.delta.arrow_schemas import NO_TIMESTAMP_MS, TIMESTAMP_MS_MAX
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms
from jobs.silver.tasks import ReplayDone
from schemas.tables.state import TOPIC_NAMES

LEARNED_FROM: Final = ("CLUSTER_METADATA", ADMIN, "SHARE_PARTITIONS", "OFFSET_COMMIT", "SUBSCRIPTION", "REGEX")
"""Sources of a topic id's name, the surest first."""
DELETED: Final = "DELETED"
IN_USE: Final = "IN_USE"
PARTITIONS: Final = "PARTITIONS"
"""Kinds of rows in state.topic_names that are not about a name: when a topic was deleted, under which name silver has
rows of its id, and how many partitions it got."""


@dataclass(frozen=True, slots=True)
class Names:
    """What is known of topic ids."""

    learned: tuple[TopicName, ...] = ()
    """Each name of an id from each source, at its earliest time."""
    deleted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    in_use: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """Topic id -> the name under which silver has its rows."""
    partition_counts: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    """Topic id and time (epoch ms) -> number of partitions by the metadata log."""


def read_names(whole: WholeRun) -> Names:
    rows = whole.read(TOPIC_NAMES).to_pylist()
    return Names(
        tuple(
            TopicName(row["topic_id"], row["topic"], at_ms(row["at"]), row["learned_from"])
            for row in rows
            if row["learned_from"] in LEARNED_FROM
        ),
        {row["topic_id"]: at_ms(row["at"]) for row in rows if row["learned_from"] == DELETED},
        {row["topic_id"]: row["topic"] for row in rows if row["learned_from"] == IN_USE},
        {
            (row["topic_id"], -1 if row["at"] is None else epoch_ms(row["at"])): row["partition_count"]
            for row in rows
            if row["learned_from"] == PARTITIONS
        },
    )


def with_learned(before: Names, done: Collection[ReplayDone]) -> Names:
    """What was known, and what the tasks found."""
    earliest: dict[tuple[str, str, str], TopicName] = {}
    deleted = dict(before.deleted)
    for name in chain(before.learned, *(task.topics for task in done)):
        place = name.topic_id, name.topic, name.learned_from
        if place not in earliest or _is_sooner(name.at, earliest[place].at):
            earliest[place] = name
    for task in done:
        deleted |= task.deleted
    counts = merged(before.partition_counts, *(task.partition_counts for task in done))
    return Names(tuple(earliest[place] for place in sorted(earliest)), deleted, before.in_use, counts)


def name_rows(names: Names, in_use: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Rows of state.topic_names."""
    no_count = {"partition_count": None}
    rows: list[dict[str, Any]] = [name._asdict() | no_count for name in names.learned]
    for topic_id, at in sorted(names.deleted.items()):
        rows.append({"topic_id": topic_id, "topic": None, "learned_from": DELETED, "at": at} | no_count)
    for topic_id, topic in sorted(in_use.items()):
        rows.append({"topic_id": topic_id, "topic": topic, "learned_from": IN_USE, "at": None} | no_count)
    for (topic_id, at), count in sorted(names.partition_counts.items()):
        row = {"topic_id": topic_id, "topic": None, "learned_from": PARTITIONS, "at": at, "partition_count": count}
        rows.append(row)
    return rows


def topic_rows(
    known: Names, observed: Iterable[TopicName], deleted_by_admin: Mapping[str, int]
) -> list[dict[str, Any]]:
    """One row a topic id: the name from the surest source, from the earliest time at which any source gives it.

    `observed`, `deleted_by_admin`: what Admin snapshots add to the logs; the metadata log knows best when a topic was
    deleted.
    """
    names: dict[str, TopicName] = {}
    earliest: dict[tuple[str, str], int] = {}
    deleted = {**deleted_by_admin, **known.deleted}
    for name in chain(observed, known.learned):
        best = names.get(name.topic_id)
        if best is None or _sureness(name) < _sureness(best):
            names[name.topic_id] = name
        place = name.topic_id, name.topic
        if place not in earliest or _is_sooner(name.at, earliest[place]):
            earliest[place] = name.at
    return [
        {
            "topic_id": topic_id,
            "topic": name.topic,
            "valid_from": earliest[topic_id, name.topic],
            "valid_to": _deleted_at(earliest[topic_id, name.topic], deleted.get(topic_id)),
            "learned_from": name.learned_from,
        }
        for topic_id, name in sorted(names.items())
    ]


def name_by_id(topics: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Topic id -> topic."""
    return {row["topic_id"]: row["topic"] for row in topics}


def _sureness(name: TopicName) -> tuple[int, int, str]:
    return LEARNED_FROM.index(name.learned_from), name.at if is_shown(name.at) else TIMESTAMP_MS_MAX + 1, name.topic


def at_ms(at: datetime | None) -> int:
    """As epoch milliseconds; -1: the record that tells it bears no time."""
    return NO_TIMESTAMP_MS if at is None else epoch_ms(at)


def _deleted_at(named_ms: int, deleted_ms: int | None) -> int | None:
    """When a topic was deleted: not before it was named, though the clock of the controller that says so be behind."""
    return None if deleted_ms is None or not is_shown(deleted_ms) else max(named_ms, deleted_ms)


def is_shown(at_ms: int) -> bool:
    """Is it a time that tables show? What they do not show is not known after a run, so it must not count before."""
    return 0 <= at_ms <= TIMESTAMP_MS_MAX


def _is_sooner(at_ms: int, other_ms: int) -> bool:
    """Is a time sooner than another one? One that is none is later than all."""
    return is_shown(at_ms) and (not is_shown(other_ms) or at_ms < other_ms)
