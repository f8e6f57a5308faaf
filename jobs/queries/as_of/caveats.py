"""What an answer about groups as of a time cannot know, in words: on stderr, and within JSON output.

A caveat is given only where it matters: for the groups of the answer, and their log partitions up to that time.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.replay.lookup import key_partition
from jobs.console.names import names_of, short, some_of
from jobs.console.output import Value, time_text
from jobs.delta.arrow_columns import codes_of, indices_in
from jobs.delta.cluster_tables import ClusterTables
from jobs.queries.as_of.as_of import GROUPS_LOG, SHARES_LOG, SilverAt
from jobs.queries.as_of.group_model import share_key
from jobs.queries.as_of.holes import LACKING, compacted, elsewhere, gaps, number_now
from jobs.queries.as_of.in_log import share_remarks
from jobs.queries.as_of.unread import unread_records, unread_records_text
from jobs.silver.homes import move_text
from jobs.silver.replay_failures import failure_text
from schemas.group_types import GroupType
from schemas.tables.silver import GROUP_GENERATIONS, SHARE_PARTITION_STATES

NOTE: Final = "NOTE"
"""Column for caveats, added where there are any."""
REPLACED: Final = "what they changed is not in this answer"
LOG_POSITION: Final = "LOG-POSITION"
"""Column for the log position, added where the log passes the time several times."""
NO_ENDS: Final = (
    "not in any log of Kafka's coordinators: the ends of topics; lag is known where a live capture sampled them"
)


class Caveat(NamedTuple):
    """A caveat about some groups."""

    group_ids: tuple[str, ...]
    text: str


def caveats_of(
    silver: SilverAt,
    groups: Mapping[str, int],
    *,
    with_offsets: bool,
    share_groups: Collection[str] = (),
    is_history: bool = False,
) -> list[Caveat]:
    """All caveats for groups (given with their log partitions) at the time of `silver`.

    `with_offsets`: the answer shows committed offsets. `share_groups`: those of which it shows share state.
    `is_history`: it is about all times up to then.
    """
    found = [*moved(silver, groups), *_untimed(silver, groups), *_holes(silver, groups, is_history)]
    found += _failed(silver, groups)
    found += _moved_shares(silver, share_groups)
    found += _share_gaps(silver, share_groups, is_history)
    found += (Caveat((it.group_id,), unread_records_text(it)) for it in unread_records(silver, groups))
    if with_offsets:
        found += _undecided(silver, groups)
    return found


def of_other_groups(silver: SilverAt, groups: Mapping[str, int], *, is_history: bool = False) -> list[Caveat]:
    """What is missing of the log where none of these groups is: an answer about all groups may lack some. It is a
    caveat about no group in particular."""
    text = elsewhere(silver, set(groups.values()), is_history=is_history)
    return [] if text is None else [Caveat((), f"further groups may lack in this answer: {text}")]


def log_remarks(
    tables: ClusterTables, group_ids: Collection[str] | None = None, *, with_offsets: bool = False
) -> Iterator[str]:
    """Caveats, as lines, of an answer about the whole history of groups (None: of all groups)."""
    silver = SilverAt(tables, group_ids=group_ids)
    columns = ["group_id", "group_type", "log_partition"]
    rows = silver.scan(GROUP_GENERATIONS, columns).group_by(columns, use_threads=False).aggregate([])
    present = silver.left_behind().present(rows.to_pylist())
    share_groups = {row["group_id"] for row in present if row["group_type"] == GroupType.SHARE}
    groups = {row["group_id"]: row["log_partition"] for row in present}
    is_of_all = group_ids is None
    caveats = caveats_of(silver, groups, with_offsets=with_offsets, share_groups=share_groups, is_history=not is_of_all)
    if is_of_all:  # one line for all log partitions: the cleaner was in most of them
        taken = [text for place, text in compacted(silver, is_history=True).items() if place in groups.values()]
        caveats += [Caveat((), f"{some_of(taken)}: {REPLACED}")] if taken else []
        caveats += of_other_groups(silver, groups, is_history=True)
    yield from lines_of(caveats)
    if share_groups:
        yield from share_remarks(tables)


def twice(silver: SilverAt, group_ids: Collection[str]) -> Caveat:
    """Log partitions pass the time of `silver` several times, and the answers differ."""
    places = [
        f"{topic}-{number} at its offsets {' and '.join(str(end - 1) for end in ends)}"
        for (topic, number), ends in sorted(silver.passed.items())
    ]
    text = (
        f"the log has {time_text(silver.at_ms)} more than once, since the clock of a coordinator went back: "
        f"{some_of(places)}. Each answer is given with its place in the log"
    )
    return Caveat(tuple(sorted(group_ids)), text)


def notes_by_group(caveats: Iterable[Caveat]) -> dict[str, str]:
    notes: dict[str, list[str]] = {}
    for caveat in caveats:
        for group_id in caveat.group_ids:
            notes.setdefault(group_id, []).append(caveat.text)
    return {group_id: "; ".join(texts) for group_id, texts in notes.items()}


def lines_of(caveats: Iterable[Caveat]) -> Iterator[str]:
    """The caveats as lines, each with its groups."""
    for text, group_ids in _by_text(caveats).items():
        yield f"note: {names_of(group_ids)}: {text}" if group_ids else f"note: {text}"


def with_notes(
    columns: Sequence[str], rows: Sequence[Sequence[Value]], notes: Mapping[str, str]
) -> tuple[tuple[str, ...], list[tuple[Value, ...]]]:
    """Add a column for caveats if a group, in the first column, has any."""
    if not any(row[0] in notes for row in rows):
        return tuple(columns), [tuple(row) for row in rows]
    return (*columns, NOTE), [(*row, notes.get(str(row[0]))) for row in rows]


def _by_text(caveats: Iterable[Caveat]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for caveat in caveats:
        texts.setdefault(caveat.text, []).extend(caveat.group_ids)
    return texts


# --- log partitions


def moved(silver: SilverAt, groups: Mapping[str, int]) -> Iterator[Caveat]:
    """Only the caveats about groups (given with their log partitions) with records in former log partitions."""
    moves = {move.key: move for move in silver.moves if move.key in groups}
    for move in moves.values():
        yield Caveat((move.key,), move_text(move))
    counts = silver.partition_counts(GROUPS_LOG)
    for group_id, log_partition in groups.items():
        number = number_now(counts, silver.at_ms)
        if group_id not in moves and number and log_partition >= 0:
            here = key_partition(group_id, number)
            if here != log_partition:
                yield Caveat(
                    (group_id,),
                    f"all its records are in {GROUPS_LOG}-{log_partition}. The topic has {number} partitions now, "
                    f"so Kafka looks for it in {GROUPS_LOG}-{here}, where it has no record: what is shown is from "
                    "before the topic got more partitions",
                )


def _moved_shares(silver: SilverAt, group_ids: Collection[str]) -> Iterator[Caveat]:
    """Share partitions whose state, or a part of it, is in log partitions of before."""
    if not group_ids:
        return
    of_groups = silver.of_groups(group_ids)
    number, left = number_now(silver.partition_counts(SHARES_LOG), silver.at_ms), of_groups.shares_left_behind()
    if not number and not left:
        return
    columns = ["group_id", "topic", "topic_id", "partition", "log_partition"]
    rows = of_groups.coded_rows(SHARE_PARTITION_STATES, columns)
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows.group_by(columns, use_threads=False).aggregate([]).sort_by("partition").to_pylist():
        key = share_key(row).as_coordinator_key()
        name = f"{short(row['topic'] or row['topic_id'])}-{row['partition']}"
        if left.is_past(key, row["log_partition"]):
            text = (
                f"older state of {{}} is in {SHARES_LOG}-{row['log_partition']}, from before that topic got more "
                "partitions, and is not in this answer"
            )
        elif key not in left.moves and number and (here := key_partition(key, number)) != row["log_partition"]:
            text = (
                f"all state of {{}} is in {SHARES_LOG}-{row['log_partition']}. That topic has {number} partitions now, "
                f"so Kafka looks for it in {SHARES_LOG}-{here}, where it has no record: what is shown is from before "
                "the topic got more partitions"
            )
        else:
            continue
        found.setdefault(row["group_id"], {}).setdefault(text, []).append(name)
    for group_id, texts in sorted(found.items()):
        yield from (Caveat((group_id,), text.format(some_of(names))) for text, names in texts.items())


def _by_log(groups: Mapping[str, int]) -> dict[int, list[str]]:
    by_log: dict[int, list[str]] = {}
    for group_id, log_partition in groups.items():
        by_log.setdefault(log_partition, []).append(group_id)
    return by_log


def _holes(silver: SilverAt, groups: Mapping[str, int], is_history: bool) -> Iterator[Caveat]:
    """What is missing of the groups' log partitions before the time."""
    by_log = _by_log(groups)
    lack = (
        REPLACED
        if is_history
        else "if one of them was in force at that time, an older one or none is shown in its place"
    )
    texts = [(number, f"{text}: {LACKING}") for number, text in gaps(silver, GROUPS_LOG, is_history=is_history)]
    texts += ((number, f"{text}: {lack}") for number, text in compacted(silver, is_history=is_history).items())
    for log_partition, text in texts:
        if log_partition in by_log:
            yield Caveat(tuple(sorted(by_log[log_partition])), text)


def _share_gaps(silver: SilverAt, group_ids: Collection[str], is_history: bool) -> Iterator[Caveat]:
    """Ranges of the share state log that were not read: for groups with state in that log partition, and for groups
    without known state."""
    holes = list(gaps(silver, SHARES_LOG, is_history=is_history)) if group_ids else []
    if not holes:
        return
    columns = ("group_id", "log_partition")
    rows = silver.of_groups(group_ids).coded_rows(SHARE_PARTITION_STATES, columns)
    places: dict[str, set[int]] = {}
    for row in rows.group_by(list(columns), use_threads=False).aggregate([]).to_pylist():
        places.setdefault(row["group_id"], set()).add(row["log_partition"])
    for log_partition, text in holes:
        those = tuple(it for it in sorted(group_ids) if log_partition in places.get(it, (log_partition,)))
        if those:
            yield Caveat(those, f"{text}: {LACKING}")


def _failed(silver: SilverAt, groups: Mapping[str, int]) -> Iterator[Caveat]:
    for failure in silver.failures():
        of_log = failure.log_topic == SHARES_LOG or groups.get(failure.group_id or "") == failure.log_partition
        if failure.group_id is None:
            of_log = failure.log_topic == GROUPS_LOG
            those = [group_id for group_id, log_partition in groups.items() if log_partition == failure.log_partition]
        else:
            those = [failure.group_id] if failure.group_id in groups else []
        if those and of_log:
            yield Caveat(tuple(sorted(those)), f"not all of it could be replayed: {failure_text(failure)}")


def _untimed(silver: SilverAt, groups: Mapping[str, int]) -> Iterator[Caveat]:
    """Records without a timestamp that may have been written before or after the time."""
    by_log = _by_log(groups)
    for (topic, number), (first, last, count) in silver.untimed.items():
        yield Caveat(
            tuple(sorted(by_log.get(number, groups) if topic == GROUPS_LOG else groups)),
            f"{count:,} of the records in {topic}-{number} between offsets {first} and {last} have no time: they are "
            "placed by their offsets, and may have been written later than that",
        )


# --- transactions


def _undecided(silver: SilverAt, groups: Mapping[str, int]) -> Iterator[Caveat]:
    """Commits whose outcome is not known."""
    unknown: set[str] = set()
    pending: dict[str, int] = {}
    for batch in silver.of_groups(groups).commits_until(("outcome", "is_transactional", "producer_id")):
        codes, texts = codes_of(batch["group_id"])
        is_pending = indices_in(batch["outcome"], ("PENDING",)) == 0
        is_applied = indices_in(batch["outcome"], ("APPLIED",)) == 0
        is_none = pc.fill_null(pc.equal(batch["producer_id"], pa.scalar(-1, pa.int64())), False)
        is_unknown = batch["is_transactional"].is_null().to_numpy() & ~is_none.to_numpy() & is_applied
        unknown |= {texts[code] for code in np.unique(codes[is_unknown]).tolist() if code >= 0}
        for code, count in zip(*np.unique(codes[is_pending], return_counts=True), strict=True):
            pending[texts[int(code)]] = pending.get(texts[int(code)], 0) + int(count)
    if unknown:
        yield Caveat(
            tuple(sorted(unknown)),
            "the dump that it is from does not say which commits belong to transactions, and has no markers: offsets "
            "of aborted transactions count as committed. Capture segments or the live cluster to know",
        )
    for group_id, count in sorted(pending.items()):
        yield Caveat(
            (group_id,),
            f"{count:,} commits of transactions have no marker as far as the log was read: they are left out, and may "
            "have been committed"
            if count > 1
            else "1 commit of a transaction has no marker as far as the log was read: it is left out, and may have "
            "been committed",
        )
