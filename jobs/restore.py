"""restore: committed offsets of groups at a time, as `kafka-consumer-groups --reset-offsets --from-file` takes them.

The file holds `topic,partition,offset` lines for one group and `group,topic,partition,offset` for several, as Kafka's
own `--export` writes them. Nothing is sent to a broker. A table tells what would change against the newest offsets that
the log holds. Partitions of a topic that was deleted since stay out: their offsets would mean records of another topic,
and where there is none of that name, Kafka's tool waits for it in vain and then restores nothing at all. Partitions
that were added since keep the offsets they have.
"""

import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from coordinator_core.java.hash_codes import string_order
from jobs.answers import Value, csv_line, printable, write_answers
from jobs.as_of import SHARE, ArgumentError, CommittedOffset, NoSuchGroupError, SilverAt, TopicPartition
from jobs.errors import JobError
from jobs.sinks import Warehouse
from jobs.times import epoch_ms
from schemas.tables.silver import TOPICS

COLUMNS: Final = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "RESTORED-OFFSET", "DELTA", "CHANGE")


KNOW_OF_DELETIONS: Final = frozenset({"CLUSTER_METADATA", "ADMIN"})
"""Sources of topics' names which would say that a topic was deleted."""


class Change(StrEnum):
    """What becomes of a committed offset."""

    SAME = "same"
    FORWARD = "forward"
    BACK = "back"
    NEW = "new"
    """There is none now."""
    LEFT = "left as it is: there was none then"
    TOPIC_DELETED = "left out: the topic was deleted since"


class Restored(NamedTuple):
    """One partition of a group. `offset` None: it is not in the file."""

    group_id: str
    topic: str
    partition: int
    current_offset: int | None
    offset: int | None
    change: Change


class Restoration(NamedTuple):
    """What a restore would do. `busy`: groups with members, whose offsets Kafka does not reset."""

    rows: tuple[Restored, ...]
    busy: tuple[str, ...]
    doubtful: tuple[str, ...]
    """Topics whose offsets are in the file and were deleted since, and that may be deleted too: nothing tells."""

    @property
    def written(self) -> tuple[Restored, ...]:
        """What goes into the file."""
        return tuple(row for row in self.rows if row.offset is not None)


def restoration(warehouse: Warehouse, cluster_id: str, *, group_ids: Collection[str], at_ms: int) -> Restoration:
    """The offsets of groups at a time against the newest ones, by group, topic and partition.

    Raises NoSuchGroupError if a group had no committed offsets then, ArgumentError for a share group.
    """
    newest = SilverAt(warehouse, cluster_id, group_ids=group_ids)
    then = newest.at(at_ms).committed_offsets()
    now = newest.committed_offsets()
    present = {group.group_id: group for group in newest.groups()}
    for group_id in group_ids:
        if group_id not in then:
            shares = group_id in present and present[group_id].group_type == SHARE
            name = printable(group_id)[:100]
            if shares:
                raise ArgumentError(f"{name} is a share group: it has start offsets, no committed offsets")
            raise NoSuchGroupError(f"{name} had no committed offsets then")
    topics = _topics(warehouse, cluster_id)
    rows = [
        _restored(group_id, place, now.get(group_id, {}).get(place), then[group_id].get(place), topics)
        for group_id in sorted(set(group_ids), key=string_order)
        for place in sorted(then[group_id].keys() | now.get(group_id, {}).keys())
    ]
    busy = tuple(group_id for group_id, group in present.items() if group.members)
    doubtful = {row.topic for row in rows if row.change is Change.NEW} - topics.there
    return Restoration(tuple(rows), busy, tuple(sorted(doubtful)))


class _Topics(NamedTuple):
    """What is known of topics, by name."""

    deleted_ms: dict[str, list[tuple[str, int]]]
    """Ids and times of deletion."""
    there: set[str]
    """Those which a source that knows of deletions does not know to be deleted."""


def _topics(warehouse: Warehouse, cluster_id: str) -> _Topics:
    topics = _Topics({}, set())
    names = ("topic", "topic_id", "valid_to", "learned_from")
    for row in warehouse.read(TOPICS, names, where={"cluster_id": cluster_id}).to_pylist():
        if row["valid_to"] is not None:
            topics.deleted_ms.setdefault(row["topic"], []).append((row["topic_id"], epoch_ms(row["valid_to"])))
        elif row["learned_from"] in KNOW_OF_DELETIONS:
            topics.there.add(row["topic"])
    return topics


def _restored(
    group_id: str,
    place: TopicPartition,
    now: CommittedOffset | None,
    then: CommittedOffset | None,
    topics: _Topics,
) -> Restored:
    current_offset = now.offset if now else None
    if then is None:
        return Restored(group_id, *place, current_offset, None, Change.LEFT)
    for topic_id, at_ms in topics.deleted_ms.get(place.topic, ()):
        if then.topic_id in (None, topic_id) and at_ms > then.committed_at_ms:
            return Restored(group_id, *place, current_offset, None, Change.TOPIC_DELETED)
    if current_offset is None:
        change = Change.NEW
    elif current_offset == then.offset:
        change = Change.SAME
    else:
        change = Change.FORWARD if then.offset > current_offset else Change.BACK
    return Restored(group_id, *place, current_offset, then.offset, change)


def reset_csv(rows: Sequence[Restored]) -> str:
    """The file for `--from-file`: with the group in front where there are several. No formula is defused here: Kafka
    must read each name as it is."""
    written = [row for row in rows if row.offset is not None]
    is_single = len({row.group_id for row in written}) == 1
    cells = [(row.group_id, row.topic, row.partition, row.offset) for row in written]
    return "".join(csv_line(row[1:] if is_single else row) for row in cells)


def run_restore(
    warehouse: Warehouse,
    cluster_id: str,
    *,
    group_ids: Collection[str],
    at_ms: int,
    output: str | None,
    output_format: str,
    out: TextIO | None = None,
) -> list[str]:
    """Print what would change and write the file, if one is asked for; what else is to be said, line by line.

    Raises JobError where the file is there already or cannot be written, or would be empty.
    """
    plan = restoration(warehouse, cluster_id, group_ids=group_ids, at_ms=at_ms)
    write_answers(COLUMNS, [_cells(row) for row in plan.rows], output_format, out or sys.stdout)
    if output is not None:
        if not plan.written:
            raise JobError("there is nothing to restore: every offset of that time is left out, the table says why")
        _write_new(Path(output), reset_csv(plan.rows))
    return list(_remarks(plan, output))


def _cells(row: Restored) -> tuple[Value, ...]:
    both = row.offset is not None and row.current_offset is not None
    delta = row.offset - row.current_offset if both else None  # type: ignore[operator]
    return (row.group_id, row.topic, row.partition, row.current_offset, row.offset, delta, row.change.value)


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except FileExistsError as error:
        raise JobError(f"{path} is there already: name a new file, or remove it first") from error
    except OSError as error:
        raise JobError(f"cannot write {path}: {error.strerror}") from error


def _remarks(plan: Restoration, output: str | None) -> Iterator[str]:
    for group_id in plan.busy:
        yield f"{printable(group_id)[:100]} has members: Kafka resets offsets of empty groups only"
    for topic in plan.doubtful:
        yield (
            f"offsets of {printable(topic)[:100]} were deleted since, and nothing that was captured tells whether the "
            "topic was: if it is gone, take its lines out of the file, or Kafka's tool restores nothing"
        )
    if output is None:
        yield "dry run: nothing was written; --output FILE writes what Kafka's tool takes"
    else:
        group_ids = dict.fromkeys(row.group_id for row in plan.written)
        words = [word for group_id in group_ids for word in ("--group", shlex.quote(printable(group_id)))]
        command = ["kafka-consumer-groups", "--reset-offsets", *words, "--from-file", shlex.quote(output), "--execute"]
        yield f"restore with: {' '.join(command)}"
