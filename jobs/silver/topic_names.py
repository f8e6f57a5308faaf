"""Names of topic ids: what the logs and the Admin snapshots say, and which name counts."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final

from coordinator_core.history.rows import TopicName
from coordinator_core.history.simple_log import IS_TRANSACTIONAL, TRANSACTION
from jobs.bronze.admin_snapshots import ADMIN, ObservedConfig
from jobs.bronze.partition_counts import merged
from jobs.delta.arrow_schemas import NO_TIMESTAMP_MS, TIMESTAMP_MS_MAX
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms
from jobs.silver.tasks import ReplayDone
from schemas.tables.state import CHECKPOINTS, Checkpoint

LEARNED_FROM: Final = ("CLUSTER_METADATA", ADMIN, "SHARE_PARTITIONS", "OFFSET_COMMIT", "SUBSCRIPTION", "REGEX")
"""Sources of a topic id's name, the most reliable first."""
NAME_COLUMNS: Final = ("topic_id", "topic", "learned_from", "at", "partition_count")
DELETED: Final = "DELETED"
IN_USE: Final = "IN_USE"
PARTITIONS: Final = "PARTITIONS"
"""`learned_from` of rows in state.checkpoints that are not about a name: when a topic was deleted, the name of its id
in silver's rows, and its partition counts."""


@dataclass(frozen=True, slots=True)
class Names:
    """What is known of topic ids."""

    learned: tuple[TopicName, ...] = ()
    """Each name of an id from each source, at its earliest time."""
    deleted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    in_use: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """Topic id -> the name in silver's rows."""
    partition_counts: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    """Topic id and time (epoch ms) -> partition count from the metadata log."""


def read_names(whole: WholeRun) -> Names:
    rows = whole.read(CHECKPOINTS, NAME_COLUMNS, kind=Checkpoint.TOPIC_ID).to_pylist()
    return Names(
        tuple(
            TopicName(row["topic_id"], row["topic"], at_ms(row["at"]), row["learned_from"])
            for row in rows
            if row["learned_from"] in (*LEARNED_FROM, TRANSACTION)
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
    """The known names, and those that tasks found."""
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
    """One row for each topic id: the name from the most reliable source, from the earliest time at which any source
    gives it.

    `observed`, `deleted_by_admin`: from Admin snapshots. The metadata log takes precedence about deletions.
    """
    names: dict[str, TopicName] = {}
    earliest: dict[tuple[str, str], int] = {}
    deleted = {**deleted_by_admin, **known.deleted}
    for name in chain(observed, (it for it in known.learned if it.learned_from != TRANSACTION)):
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


def transactional_topics(known: Names) -> list[ObservedConfig]:
    """The topics that transactions write to, as rows of silver.configs have them."""
    names = (it for it in known.learned if it.learned_from == TRANSACTION)
    return [ObservedConfig(TRANSACTION, it.topic, IS_TRANSACTIONAL, "true", it.at) for it in names]


def name_by_id(topics: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {row["topic_id"]: row["topic"] for row in topics}


def _sureness(name: TopicName) -> tuple[int, int, str]:
    return LEARNED_FROM.index(name.learned_from), name.at if is_shown(name.at) else TIMESTAMP_MS_MAX + 1, name.topic


def at_ms(at: datetime | None) -> int:
    """As epoch milliseconds; -1 where the record has no timestamp."""
    return NO_TIMESTAMP_MS if at is None else epoch_ms(at)


def _deleted_at(named_ms: int, deleted_ms: int | None) -> int | None:
    """When a topic was deleted: not before it was named, even if the clock of that controller is behind."""
    return None if deleted_ms is None or not is_shown(deleted_ms) else max(named_ms, deleted_ms)


def is_shown(at_ms: int) -> bool:
    """Do tables show this time? Times that they do not show are unknown after a run, so they must not count before."""
    return 0 <= at_ms <= TIMESTAMP_MS_MAX


def _is_sooner(at_ms: int, other_ms: int) -> bool:
    """Is a time earlier than another? No time is later than all."""
    return is_shown(at_ms) and (not is_shown(other_ms) or at_ms < other_ms)
