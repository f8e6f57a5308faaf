"""gold.share_offset_changes: where an admin, or the end of its group, changed what a share partition delivers next.

The state of a share partition lasts until a reset or a tombstone (`EndedState`). Until then, everything between its
first start offset and its last one was delivered, and what in-flight batches show beyond. Where the next state begins
further on, the records in between are never delivered, unless a later state begins before them; where it begins further
back, those that had been delivered are delivered again: all of them as long as that state lasts, and those that it had
delivered when it ended. The next state begins at the offset of the reset; after a deletion, at the first start offset
that the group wrote when it came back, which may be much later, or never.

| method | shows | kind |
| --- | --- | --- |
| RESET_RECORD | an Initialize snapshot over a state (AlterShareGroupOffsets) | SKIPPED_BY_RESET, REWOUND_BY_RESET |
| GROUP_TOMBSTONE | the group's tombstone, just after that of the state | GROUP_DELETED |
| DELETING_RECORD | ShareGroupStatePartitionMetadata names the topic as to be deleted | OFFSETS_DELETED |
| STATE_TOMBSTONE | neither, and no topic was removed then; GUESS | OFFSETS_DELETED |

CERTAIN needs a state that is complete from its beginning on, with no record missing, and no record that the broker
finished in memory alone. A tombstone because the topic was removed gives no row. Counts are of offsets. In a topic that
transactions write to, or that was compacted, not each of them is a record: LIKELY.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.confidence import CERTAIN, GUESS, LIKELY
from coordinator_core.inference.commits.deletions import Removed
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.configs import NO_CONFIGS, Configs
from coordinator_core.inference.shares.share_days import COUNTED, ShareCounts, SharePlace
from coordinator_core.inference.shares.share_log import NONE, RESET, TOMBSTONE, ShareLog
from coordinator_core.replay.columnar.share_state_rows import TRANSITION_KINDS
from schemas.group_types import GroupType

FORGOTTEN: Final = TRANSITION_KINDS.index("RESET")
ASKED_BEFORE_MS: Final = 60_000
"""A deletion of offsets is written before the share coordinator is asked to delete the state, which it may retry."""
GROUP_AFTER_MS: Final = 10_000
"""A group that is deleted ends as soon as its share partitions have no state."""
TOPIC_BEFORE_MS: Final = 600_000
"""How long after the removal of a topic its states may be deleted."""
OFFSET_MAX: Final = 2**63 - 1
CLOCK_SLACK_MS: Final = 1_000
"""By how much timestamps of different logs may differ."""

Ranges = Sequence[tuple[int, int]]
"""First and last offsets, both inclusive."""


class EndedState(NamedTuple):
    """A state of a share partition that a reset or a tombstone ended. Offsets are -1 where not known."""

    group_id: str
    topic_id: str
    partition: int
    log_offset: int
    """Of the reset or the tombstone."""
    at_ms: int
    is_deletion: bool
    is_known: bool
    """The log has a snapshot of the state, and no record is missing."""
    is_whole: bool
    """It also has its beginning."""
    first_offset: int
    """Its first start offset."""
    next_offset: int
    """Its last start offset, moved over what was finished."""
    hidden_count: int
    """Offsets that the broker had finished in memory alone."""
    to_offset: int
    """The start offset that a reset sets."""
    in_flight: Ranges
    """What had been delivered from `next_offset` on."""

    @property
    def is_sure(self) -> bool:
        """Does it show all that it delivered?"""
        return self.is_known and not self.hidden_count


class OffsetChange(NamedTuple):
    """gold.share_offset_changes."""

    group_id: str
    group_type: str
    topic: str | None
    topic_id: str
    partition: int
    log_offset: int
    at: int
    kind: str
    from_offset: int | None
    to_offset: int | None
    never_delivered_count: int | None
    delivered_again_count: int | None
    method: str
    confidence: str


@dataclass(frozen=True, slots=True)
class Endings:
    """What other logs show about the ends of states. Times are epoch ms."""

    deleting: Mapping[str, Sequence[tuple[int, str | None]]] = field(default_factory=dict)
    """By group, when offsets were to be deleted, and the topic."""
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By group, when it was deleted."""
    topics: Removed = field(default_factory=dict)

    def of(self, group_id: str, topic: str | None, at_ms: int) -> tuple[str, str, str] | None:
        """Kind, method and confidence of a deletion; None if it was the topic's."""
        is_asked = any(
            at_ms - ASKED_BEFORE_MS <= asked_ms <= at_ms + CLOCK_SLACK_MS and (topic is None or name in (None, topic))
            for asked_ms, name in self.deleting.get(group_id, ())
        )
        ended = self.groups.get(group_id, ())
        if any(at_ms - CLOCK_SLACK_MS <= ended_ms <= at_ms + GROUP_AFTER_MS for ended_ms in ended):
            return "GROUP_DELETED", "GROUP_TOMBSTONE", CERTAIN if is_asked else LIKELY
        if is_asked:
            return "OFFSETS_DELETED", "DELETING_RECORD", CERTAIN
        removed = () if topic is None else self.topics.get(topic, ())
        if any(at_ms - TOPIC_BEFORE_MS <= removed_ms <= at_ms + CLOCK_SLACK_MS for removed_ms in removed):
            return None
        return "OFFSETS_DELETED", "STATE_TOMBSTONE", GUESS


def ended_states(log: ShareLog) -> list[EndedState]:
    """The states that ended from `log.past.from_log_offset` on."""
    states, changes, keys = log.states, log.transitions, log.keys
    is_end = np.isin(states.record_kind, (RESET, TOMBSTONE)) & (states.log_offset >= log.past.from_log_offset)
    is_end[:1] = False
    is_end[1:] &= (states.key[1:] == states.key[:-1]) & (states.record_kind[:-1] != TOMBSTONE)
    began, started = states.began(), states.started()
    found = []
    for row in np.flatnonzero(is_end).tolist():
        before, key = row - 1, states.key[row]
        first, next_offset = began[before], int(states.effective_start_offset[before])
        is_beginning = states.start_offset[first] < 0 or states.record_kind[first] == RESET
        is_hole = np.searchsorted(log.holes, states.log_offset[first]) < np.searchsorted(
            log.holes, states.log_offset[row]
        )
        own = slice(*np.searchsorted(log.state_of_transition, (row, row + 1)))
        is_delivered = (changes.kind[own] == FORGOTTEN) & (changes.from_delivery_count[own] > 0)
        is_delivered &= changes.last_offset[own] >= next_offset
        firsts = np.maximum(changes.first_offset[own][is_delivered], next_offset)
        complete_count, terminal_count = states.delivery_complete_count[before], states.terminal_count[before]
        found.append(
            EndedState(
                keys.group_ids[keys.group[key]],
                keys.topic_ids[key],
                int(keys.partition[key]),
                int(states.log_offset[row]),
                int(states.at_ms[row]),
                bool(states.record_kind[row] == TOMBSTONE),
                bool(states.is_complete[before] and not is_hole),
                bool(states.is_complete[before] and not is_hole and is_beginning),
                int(states.start_offset[started[before]]) if started[before] >= first else NONE,
                next_offset,
                max(int(complete_count - terminal_count), 0),
                int(states.start_offset[row]),
                tuple(zip(firsts.tolist(), changes.last_offset[own][is_delivered].tolist(), strict=True)),
            )
        )
    return found


def first_start_offsets(log: ShareLog) -> dict[tuple[str, str, int], tuple[str | None, int]]:
    """By share partition, the name of its topic, and the first start offset of its newest state; -1 if it has none."""
    states, keys = log.states, log.keys
    began, started = states.began(), states.started()
    there = np.unique(states.key)
    newest = np.searchsorted(states.key, there, side="right") - 1
    offsets = np.where(started[newest] >= began[newest], states.start_offset[started[newest]], NONE)
    return {
        (keys.group_ids[keys.group[key]], keys.topic_ids[key], int(keys.partition[key])): (keys.topics[key], offset)
        for key, offset in zip(there.tolist(), offsets.tolist(), strict=True)
    }


def offset_changes(
    ended: Iterable[EndedState],
    newest: Mapping[tuple[str, str, int], tuple[str | None, int]],
    endings: Endings,
    configs: Configs = NO_CONFIGS,
) -> Iterator[OffsetChange]:
    """The changes that all ended states of a log partition show. `newest`: its `first_start_offsets`."""
    share_partition = itemgetter(slice(3))
    for key, states in groupby(sorted(ended, key=itemgetter(0, 1, 2, 3)), share_partition):
        topic, offset = newest[key]
        of_key, offset = _moved(states, offset)
        delivered: list[tuple[int, int]] = []
        are_records = not (configs.was_transactional([topic]) | configs.was_compacted([topic])).any()
        is_whole = True
        for state, later in zip(of_key, _later(of_key, offset), strict=True):
            delivered = _together([*delivered, *_delivered(state)])
            is_whole &= state.is_whole
            change = _change(state._replace(is_whole=is_whole), topic, later, delivered, endings)
            if change is not None:
                is_counted = change.never_delivered_count or change.delivered_again_count
                is_likely = change.confidence == CERTAIN and is_counted and not are_records
                yield change._replace(confidence=LIKELY) if is_likely else change


def _moved(states: Iterable[EndedState], offset: int) -> tuple[list[EndedState], int]:
    """Without resets to where a state was anyway, which goes on in the next one; and the newest first start offset."""
    moved: list[EndedState] = []
    first: EndedState | None = None
    for ended in states:
        state = ended
        if first is not None:
            is_known, is_whole = first.is_known and ended.is_known, first.is_whole and ended.is_whole
            state = ended._replace(first_offset=first.first_offset, is_known=is_known, is_whole=is_whole)
        is_same = not state.is_deletion and state.to_offset == state.next_offset >= 0
        first = state if is_same and state.is_sure and not state.in_flight else None
        if first is None:
            moved.append(state)
    return moved, offset if first is None else first.first_offset


class _Later(NamedTuple):
    """What the states after one show."""

    next_start: int
    """The first known start offset; -1 if none is."""
    by_next: Ranges
    """What the state that began there delivered, or delivers from now on."""
    by_all: Ranges
    unsure_from: int
    """The lowest start offset of those that delivered more than they show."""


def _later(of_key: Sequence[EndedState], offset: int) -> Iterable[_Later]:
    """For each ended state of a share partition. `offset`: the first start offset of its newest state."""
    present = [(offset, OFFSET_MAX)] if offset >= 0 else []
    found, after = [], _Later(offset, present, present, OFFSET_MAX)
    for state in reversed(of_key):
        found.append(after)
        own, is_started = _delivered(state), state.first_offset >= 0
        after = _Later(
            state.first_offset if is_started else _to(state, after),
            own if is_started else after.by_next,
            _together([*own, *after.by_all]),
            after.unsure_from if state.is_sure else min(after.unsure_from, state.first_offset),
        )
    return reversed(found)


def _delivered(state: EndedState) -> Ranges:
    """What a state shows to have been delivered, as far as its start offsets are known."""
    is_moved = 0 <= state.first_offset < state.next_offset
    return [*([(state.first_offset, state.next_offset - 1)] if is_moved else []), *state.in_flight]


def _to(state: EndedState, later: _Later) -> int:
    return later.next_start if state.is_deletion else state.to_offset


def _change(
    state: EndedState, topic: str | None, later: _Later, delivered: Ranges, endings: Endings
) -> OffsetChange | None:
    from_offset, to_offset, never, again = state.next_offset, _to(state, later), None, None
    is_counted = from_offset >= 0 and to_offset >= 0
    is_proven = state.is_whole
    if is_counted and state.is_known:
        ever = _together([*delivered, *later.by_all])
        never = max(to_offset - from_offset, 0)
        never = max(never - _common(ever, [(from_offset, to_offset - 1)]) - state.hidden_count, 0)
        is_proven &= not (never and state.hidden_count) and later.unsure_from >= max(from_offset, to_offset)
        if state.is_whole or to_offset >= state.first_offset:  # else earlier records may have delivered more
            again = _common(delivered, later.by_next)
    if state.is_deletion:
        reason = endings.of(state.group_id, topic, state.at_ms)
        if reason is None:
            return None
    elif not is_counted or (from_offset == to_offset and again == 0):
        return None  # nothing that was delivered changes
    else:
        kind = "SKIPPED_BY_RESET" if to_offset > from_offset else "REWOUND_BY_RESET"
        reason = kind, "RESET_RECORD", CERTAIN
    kind, method, confidence = reason
    return OffsetChange(
        state.group_id,
        GroupType.SHARE,
        topic,
        state.topic_id,
        state.partition,
        state.log_offset,
        state.at_ms,
        kind,
        None if from_offset < 0 else from_offset,
        None if state.is_deletion else to_offset,
        never,
        again,
        method,
        LIKELY if confidence == CERTAIN and not is_proven else confidence,
    )


def _common(some: Ranges, others: Ranges) -> int:
    """Offsets that are in both; each has disjoint ranges."""
    return sum(max(min(last, to) - max(first, begin) + 1, 0) for first, last in some for begin, to in others)


def _together(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of ranges: sorted and disjoint."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def counts_of_changes(changes: Sequence[OffsetChange]) -> ShareCounts:
    """What the days of share groups count of them: `ShareCounts.together` adds them up."""
    timed = [change for change in changes if change.at >= 0]
    places = tuple(SharePlace(it.group_id, it.topic_id, it.partition, it.topic) for it in timed)
    numbers = np.zeros((len(COUNTED), len(timed)), np.int64)
    for number, it in enumerate(timed):
        counts = {"offset_change_count": 1}
        counts |= {name: getattr(it, name) or 0 for name in ("never_delivered_count", "delivered_again_count")}
        for name, count in counts.items():
            numbers[COUNTED.index(name), number] = count
    days = np.array([it.at // DAY_MS for it in timed], np.int64)
    return ShareCounts(places, np.arange(len(timed)), days, numbers)
