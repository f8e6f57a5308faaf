"""restore: committed offsets of groups at a time, as input for `kafka-consumer-groups --reset-offsets --from-file`.

The file has `topic,partition,offset` lines for one group and `group,topic,partition,offset` lines for several, like
Kafka's own `--export`. Nothing is sent to a broker. A table shows the changes against the newest offsets in the log.
Partitions of a topic that was deleted since are left out: their offsets would refer to records of another topic, and if
there is no topic of that name, Kafka's tool waits for it in vain and restores nothing. Partitions that were added since
keep their offsets.
"""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TextIO

from coordinator_core.replay.java.hash_codes import string_order
from coordinator_core.text import counted
from jobs.console.command_name import command, shell_word
from jobs.console.names import names_of, short, some_of
from jobs.console.new_files import new_file, require_new
from jobs.console.output import Value, csv_line, time_text, write_answers
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.times import epoch_ms
from jobs.errors import ArgumentError, JobError, NoSuchGroupError
from jobs.queries.as_of.as_of import GROUPS_LOG, SilverAt
from jobs.queries.as_of.caveats import (
    LOG_POSITION,
    Caveat,
    caveats_of,
    lines_of,
    moved,
    notes_by_group,
    twice,
    with_notes,
)
from jobs.queries.as_of.group_model import CommittedOffset, Group, TopicPartition
from jobs.queries.as_of.holes import where_absent
from jobs.queries.as_of.in_log import require_groups
from schemas.group_types import GroupType
from schemas.tables.silver import TOPICS

COLUMNS: Final[tuple[str, ...]] = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "RESTORED-OFFSET",
    "DELTA",
    "CHANGE",
)


ONE_RESET_MS: Final = 60_000
"""Offsets that go back within this time of one another are of one reset: a tool writes partition by partition."""
KNOW_OF_DELETIONS: Final = frozenset({"CLUSTER_METADATA", "ADMIN"})
"""Sources of topic names that would show the deletion of a topic."""


class Change(StrEnum):
    SAME = "same"
    FORWARD = "forward"
    BACK = "back"
    NEW = "new"
    """There is no current offset."""
    LEFT = "left as it is: there was none then"
    TOPIC_DELETED = "left out: the topic was deleted since"
    NEGATIVE = "left out: the offset was negative, and Kafka's tool refuses a file with one"


WRITTEN: Final = frozenset({Change.SAME, Change.FORWARD, Change.BACK, Change.NEW})


class Restored(NamedTuple):
    """One partition of a group. `offset` None: it is not in the file."""

    group_id: str
    topic: str
    partition: int
    current_offset: int | None
    offset: int | None
    change: Change
    log_position: str | None = None
    """The log position of the offset, if the log passes the time several times."""


class Restoration(NamedTuple):
    """What a restore would do. `busy`: groups with members, whose offsets Kafka does not reset."""

    rows: tuple[Restored, ...]
    busy: tuple[str, ...]
    doubtful: tuple[str, ...]
    """Topics in the file whose offsets were deleted since; the topics may be deleted, too, but no source shows it."""
    caveats: tuple[Caveat, ...] = ()
    ambiguous: tuple[str, ...] = ()
    """Groups whose offsets differ between the log positions of the time."""
    twice_counted: tuple[str, ...] = ()
    """Streams groups that would read records again: Kafka's tool leaves their state as it is."""
    moved_then: tuple[str, ...] = ()
    """Groups whose offsets moved in the very millisecond of the time: those before are of the one before."""

    @property
    def written(self) -> tuple[Restored, ...]:
        return tuple(row for row in self.rows if row.offset is not None)


Offsets = Mapping[TopicPartition, CommittedOffset]


def restoration(
    tables: ClusterTables, *, group_ids: Collection[str], at_ms: int, log_offset: int | None = None
) -> Restoration:
    """The offsets of groups at a time compared with the newest ones, by group, topic and partition.

    If the log passes the time several times with different offsets, all of them are returned, unless `log_offset`
    selects a position: the last included offset of the log partition.

    Raises NoSuchGroupError if a group had no committed offsets then, ArgumentError for an unknown group, a share group,
    and for a `log_offset` that is not one of the positions, also where there is only one.
    """
    newest = SilverAt(tables, group_ids=group_ids)
    passages = newest.at(at_ms).passages()
    then = [passage.committed_offsets() for passage in passages]
    before = newest.at(at_ms - 1).committed_offsets()
    now = newest.committed_offsets()
    present = {group.group_id: group for group in newest.groups()}
    for group_id in group_ids:
        if not any(group_id in offsets for offsets in then):
            shares = group_id in present and present[group_id].group_type == GroupType.SHARE
            name = short(group_id)
            if shares:
                raise ArgumentError(
                    f"{name} is a share group, without committed offsets: history --group shows its start offsets, "
                    "kafka-share-groups --reset-offsets moves them"
                )
            require_groups(tables, [group_id])
            since = _first_commit_ms(newest, group_id, at_ms)
            times = {"had some until": at_ms - 1 if group_id in before else None, "has some since": since}
            others = "".join(f"; it {had} {time_text(it)}, for --at" for had, it in times.items() if it is not None)
            raise NoSuchGroupError(
                f"{name} had no committed offsets then{others}{_reservation(passages[-1], present, group_id)}"
            )
    topics = _topics(tables)
    rows: list[Restored] = []
    caveats: dict[str, int] = {}
    ambiguous: list[str] = []
    is_chosen = False
    for group_id in sorted(set(group_ids), key=string_order):
        of_group, log_partition = _distinct(passages, then, group_id)
        caveats[group_id] = log_partition
        if log_offset is not None and len(of_group) > 1:
            of_group, is_chosen = _chosen(of_group, group_id, log_offset), True
        if len(of_group) > 1:
            ambiguous.append(group_id)
        for end, offsets in of_group:
            position = f"{GROUPS_LOG}-{log_partition}@{end - 1}" if end is not None and len(of_group) > 1 else None
            rows += [
                _restored(group_id, place, now.get(group_id, {}).get(place), offsets.get(place), topics, position)
                for place in sorted(offsets.keys() | now.get(group_id, {}).keys())
            ]
    if log_offset is not None and not is_chosen:
        raise ArgumentError("the log has these offsets at that time once only: leave out --log-offset")
    busy = tuple(group_id for group_id, group in present.items() if group.members)
    new = ((TopicPartition(row.topic, row.partition), row) for row in rows if row.change is Change.NEW)
    # a current commit of a negative offset is none
    doubtful = {row.topic for place, row in new if place not in now.get(row.group_id, {})} - topics.there
    said = caveats_of(passages[-1], caveats, with_offsets=True)
    # the current offsets are of now, and so is the place where Kafka takes the file
    places = {group_id: _log_partition(now.get(group_id, {}), then) for group_id, then in caveats.items()}
    said += (it for it in moved(newest, places) if it not in said)
    texts = {text for _, text in said}
    said += (
        Caveat(group_ids, f"of the current offsets: {text}")
        for group_ids, text in caveats_of(newest, places, with_offsets=True)
        if text not in texts
    )
    if ambiguous:
        said.append(twice(passages[-1], ambiguous))
    streams = {group_id for group_id, group in present.items() if group.group_type == GroupType.STREAMS}
    twice_counted = dict.fromkeys(it.group_id for it in rows if it.change is Change.BACK and it.group_id in streams)
    moved_then = (it for it in caveats if _offsets(before, it) not in [_offsets(offsets, it) for offsets in then])
    return Restoration(
        tuple(rows),
        busy,
        tuple(sorted(doubtful)),
        tuple(said),
        tuple(ambiguous),
        tuple(twice_counted),
        tuple(moved_then),
    )


def _offsets(of_groups: Mapping[str, Offsets], group_id: str) -> dict[TopicPartition, int]:
    return {place: it.offset for place, it in of_groups.get(group_id, {}).items()}


def _log_partition(offsets: Offsets, default: int) -> int:
    return next((it.log_partition for it in offsets.values()), default)


def _first_commit_ms(newest: SilverAt, group_id: str, after_ms: int) -> int | None:
    """When a group has committed offsets first after a time; None: never."""
    times = (
        epoch_ms(row["applied_at"])
        for batch in newest.applied_commits(("group_id", "applied_at", "committed_offset"))
        for row in batch.to_pylist()
        if row["group_id"] == group_id and row["applied_at"] is not None and row["committed_offset"] is not None
    )
    return min((it for it in times if it > after_ms), default=None)


def _reservation(then: SilverAt, present: Mapping[str, Group], group_id: str) -> str:
    """Caveats to append to an answer without offsets."""
    if group_id in present:
        said = caveats_of(then, {group_id: present[group_id].log_partition}, with_offsets=True)
        texts = [caveat.text for caveat in said]
    else:
        texts = where_absent(then, [group_id])
    return "".join(f"; {text}" for text in texts)


Passage = tuple[int | None, Offsets]
"""An end offset of the log (exclusive; None where timestamps decide), and the offsets committed by then."""


def _distinct(
    passages: Sequence[SilverAt], then: Sequence[Mapping[str, Offsets]], group_id: str
) -> tuple[list[Passage], int]:
    """The distinct offsets of a group at the log positions of the time; and its log partition."""
    found: list[Passage] = []
    log_partition = -1
    for passage, by_group in zip(passages, then, strict=True):
        offsets = by_group.get(group_id, {})
        log_partition = _log_partition(offsets, log_partition)
        if all(offsets != others for _, others in found):
            found.append((passage.log_end((GROUPS_LOG, log_partition)), offsets))
    return found, log_partition


def _chosen(of_group: Sequence[Passage], group_id: str, log_offset: int) -> list[Passage]:
    """The selected log position."""
    found = [passage for passage in of_group if passage[0] == log_offset + 1]
    if not found:
        places = " or ".join(str(end - 1) for end, _ in of_group if end is not None)
        raise ArgumentError(f"at that time the log of {short(group_id)} is at offset {places}, not {log_offset}")
    return found


class _Topics(NamedTuple):
    """What is known of topics, by name."""

    deleted_ms: dict[str, list[tuple[str, int]]]
    """Ids and deletion times."""
    there: set[str]
    """Topics that a source which shows deletions does not show as deleted."""


def _topics(tables: ClusterTables) -> _Topics:
    topics = _Topics({}, set())
    names = ("topic", "topic_id", "valid_to", "learned_from")
    for row in tables.read(TOPICS, names).to_pylist():
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
    position: str | None,
) -> Restored:
    # brokers treat a committed negative offset as none
    current_offset = now.offset if now and now.offset >= 0 else None
    change = _change(place, current_offset, then, topics)
    offset = then.offset if then and change in WRITTEN else None
    return Restored(group_id, *place, current_offset, offset, change, position)


def _change(place: TopicPartition, current_offset: int | None, then: CommittedOffset | None, topics: _Topics) -> Change:
    if then is None:
        return Change.LEFT
    if then.offset < 0:
        return Change.NEGATIVE
    for topic_id, at_ms in topics.deleted_ms.get(place.topic, ()):
        if then.topic_id in (None, topic_id) and (then.committed_at_ms is None or at_ms > then.committed_at_ms):
            return Change.TOPIC_DELETED
    if current_offset is None:
        return Change.NEW
    if current_offset == then.offset:
        return Change.SAME
    return Change.FORWARD if then.offset > current_offset else Change.BACK


def reset_csv(rows: Sequence[Restored]) -> str:
    """The file for `--from-file`, with a group column where there are several groups.

    Formulas are not escaped: Kafka must read each name as it is.
    """
    written = [row for row in rows if row.offset is not None]
    is_single = len({row.group_id for row in written}) == 1
    cells = [(row.group_id, row.topic, row.partition, row.offset) for row in written]
    return "".join(csv_line(row[1:] if is_single else row) for row in cells)


def run_restore(
    tables: ClusterTables,
    *,
    group_ids: Collection[str],
    at_ms: int,
    output: str | None,
    output_format: str,
    log_offset: int | None = None,
    out: TextIO | None = None,
) -> list[str]:
    """Print the changes and write the file, if requested. Returns the caveats as lines.

    Raises JobError where the file exists already, cannot be written, or would be empty.
    """
    require_new(output)
    plan = restoration(tables, group_ids=group_ids, at_ms=at_ms, log_offset=log_offset)
    _write_plan(plan, output_format, out or sys.stdout)
    if output is not None:
        if plan.ambiguous:
            raise JobError(
                f"the log has that time more than once for {names_of(plan.ambiguous)}: choose a place in the log with "
                "--log-offset, the number after @ in the table"
            )
        if not plan.written:
            raise JobError("there is nothing to restore: every offset of that time is left out, the table says why")
        with new_file(output) as file:
            file.write(reset_csv(plan.rows))
    return [*lines_of(plan.caveats), *_remarks(plan, at_ms, output)]


def _write_plan(plan: Restoration, output_format: str, out: TextIO) -> None:
    columns, rows = COLUMNS, [_cells(row) for row in plan.rows]
    if plan.ambiguous:
        columns = (*columns, LOG_POSITION)
        rows = [(*cells, row.log_position) for cells, row in zip(rows, plan.rows, strict=True)]
    if output_format != "table":
        columns, rows = with_notes(columns, rows, notes_by_group(plan.caveats))
    write_answers(columns, rows, output_format, out)


def _cells(row: Restored) -> tuple[Value, ...]:
    both = row.offset is not None and row.current_offset is not None
    delta = row.offset - row.current_offset if both else None  # type: ignore[operator]
    return (row.group_id, row.topic, row.partition, row.current_offset, row.offset, delta, row.change.value)


def _remarks(plan: Restoration, at_ms: int, output: str | None) -> Iterator[str]:
    negative = [row for row in plan.rows if row.change is Change.NEGATIVE]
    if negative:
        names = dict.fromkeys(f"{short(row.topic)}-{row.partition}" for row in negative)
        yield f"left out, since their offsets were negative: {some_of(names)}"
    for group_id in plan.moved_then:
        yield f"offsets of {short(group_id)} moved at that very time; those before: --at {time_text(at_ms - 1)}"
    for group_id in plan.busy:
        yield f"{short(group_id)} has members: Kafka resets offsets of empty groups only"
    for group_id in plan.twice_counted:
        yield (
            f"{short(group_id)} is a streams group: its state stores and changelogs stay as they are, so they take in "
            "again what it reads again"
        )
    for topic in plan.doubtful:
        yield (
            f"offsets of {short(topic)} were deleted since, and what was captured does not show whether the topic was "
            "deleted, too: if it was, remove its lines from the file, or Kafka's tool restores nothing"
        )
    if output is None:
        yield "dry run: nothing was written; --output FILE writes what Kafka's tool takes"
    else:
        group_ids = dict.fromkeys(row.group_id for row in plan.written)
        words = [word for group_id in group_ids for word in ("--group", shell_word(group_id))]
        words += ["--reset-offsets", "--from-file", shell_word(output), "--execute"]
        yield f"restore with: kafka-consumer-groups --bootstrap-server HOST:PORT {' '.join(words)}"


def offer(tables: ClusterTables, group_id: str, back_ms: Sequence[int]) -> Iterator[str]:
    """The command that shows, and writes for Kafka's tool, the offsets as they were before they went back; of several
    times shortly after one another, before the first."""
    if back_ms:
        begin_ms = back_ms[-1]
        for at_ms in reversed(back_ms):
            begin_ms = at_ms if begin_ms - at_ms <= ONE_RESET_MS else begin_ms
        last = sum(at_ms >= begin_ms for at_ms in back_ms)
        words = f"restore --group {shell_word(group_id)} --at {time_text(begin_ms - 1)}{tables.place_words}"
        before = (
            "that" if len(back_ms) == 1 else "the last" if last == 1 else f"the last {last}, which are close together"
        )
        yield f"offsets went back {counted(len(back_ms), 'time')}; those before {before}: {command(words)}"
