"""An audit that goes on from what the one before kept says what one audit of the whole log says."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np
import pytest

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.errors import PastDiffers
from coordinator_core.inference.audit.share_past import Kept, Known, kept_of, require_same_groups, settled_to, shown_by
from coordinator_core.inference.facts.columns import joined, taken
from coordinator_core.inference.facts.configs import ConfigRow, Configs
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.offset_changes import (
    EndedState,
    Endings,
    OffsetChange,
    ended_states,
    first_start_offsets,
    offset_changes,
)
from coordinator_core.inference.shares.share_days import NO_COUNTS, ShareCounts, SharePlace
from coordinator_core.inference.shares.share_log import (
    GroupPast,
    GroupStays,
    ShareKeys,
    ShareLog,
    ShareMembers,
    SharePast,
    ShareStates,
    ShareTransitions,
    ordered_share_log,
    sorted_share_log,
)
from coordinator_core.inference.shares.shares import audit_share_log
from coordinator_core.replay.columnar.share_state_columnar import ColumnarOutput, ColumnarShareReplay
from tests.coordinator_core.history.histories import cuts_of, share_log
from tests.coordinator_core.inference.share_logs import counts_of
from tests.coordinator_core.live.share_state.reference import chunk_of
from tests.lengths import how_many

HISTORIES: Final = how_many(42)
PARTS: Final = 2
SETTINGS: Final = InferenceSettings(record_lock_duration_ms=3_000, modern_session_timeout_ms=2_000)
FOREVER_MS: Final = 2**62
Rows = set[tuple[Any, ...]]


def silver_of(log: list[tuple[int, int, Any]]) -> tuple[ShareKeys, ShareStates, ShareTransitions]:
    """The rows of a log, as replay writes them."""
    columnar = ColumnarShareReplay()
    outputs = [columnar.feed(chunk_of([(offset, at, event.encoded()) for offset, at, event in log])), columnar.finish()]
    groups = sorted({*outputs[0].keys.group_ids})
    keys = outputs[0].keys
    return (
        ShareKeys(
            group_ids=groups,
            group=np.array([groups.index(group_id) for group_id in keys.group_ids], np.int64),
            topic_ids=keys.topic_ids,
            topics=["t"] * len(keys),
            partition=keys.partitions.astype(np.int64),
        ),
        joined(*map(states_of, outputs)),
        joined(*map(transitions_of, outputs)),
    )


def states_of(output: ColumnarOutput) -> ShareStates:
    rows = output.partition_states
    return ShareStates(
        key=rows.key.astype(np.int64),
        log_offset=rows.log_offset,
        at_ms=rows.valid_from_ms,
        record_kind=rows.record_kind,
        leader_epoch=np.where(rows.has_state, rows.leader_epoch, -1).astype(np.int64),
        start_offset=np.where(rows.has_state, rows.start_offset, -1),
        effective_start_offset=np.where(rows.has_state, rows.effective_start_offset, -1),
        delivery_complete_count=np.where(rows.has_delivery_complete_count, rows.delivery_complete_count, -1).astype(
            np.int64
        ),
        terminal_count=rows.acknowledged_count + rows.archived_count,
        is_complete=rows.is_complete,
        last_persisted=np.full(len(rows.key), -1, np.int64),
    )


def transitions_of(output: ColumnarOutput) -> ShareTransitions:
    rows = output.transitions
    return ShareTransitions(
        log_offset=rows.log_offset,
        first_offset=rows.first_offset,
        last_offset=rows.last_offset,
        from_state=np.where(rows.has_from, rows.from_state, -1).astype(np.int8),
        from_delivery_count=np.where(rows.has_from, rows.from_delivery_count, -1).astype(np.int32),
        to_state=np.where(rows.has_to, rows.to_state, -1).astype(np.int8),
        to_delivery_count=np.where(rows.has_to, rows.to_delivery_count, -1).astype(np.int32),
        kind=rows.kind,
        released=np.full(len(rows.key), -1, np.int8),
    )


def between(columns: Any, first: int, end: int) -> Any:
    return taken(columns, np.flatnonzero((columns.log_offset >= first) & (columns.log_offset < end)))


def reported(rows: Any, first: int, end: int) -> Rows:
    """Rows of gold of a range of the log."""
    chosen: I64 = np.flatnonzero((rows.log_offset >= first) & (rows.log_offset < end))
    columns = [getattr(rows, name)[chosen].tolist() for name in rows.__slots__]
    found = set(zip(*columns, strict=True))
    assert len(found) == len(chosen)
    return found


class Audits:
    """Audits of one log, each of what is new to it."""

    def __init__(self, silver: tuple[ShareKeys, ShareStates, ShareTransitions], late_ms: int) -> None:
        self._keys, self._states, self._transitions = silver
        self._late_ms = late_ms
        self._kept: Kept | None = None
        self._settled: list[Rows] = [set(), set()]
        self._open: list[Rows] = [set(), set()]
        self._settled_counts = NO_COUNTS
        self.counts: list[tuple[SharePlace, int, list[int]]] = []
        self.recreated_count = 0
        self._ended: list[EndedState] = []
        self.changes: list[OffsetChange] = []

    @property
    def rows(self) -> list[Rows]:
        return [settled | left for settled, left in zip(self._settled, self._open, strict=True)]

    def audit(self, end: int, configs: Configs, members: ShareMembers) -> None:
        """Of the log up to an offset."""
        try:
            self._go_on(end, configs, members)
        except PastDiffers:
            self.recreated_count += 1
            self._kept, self._settled, self._settled_counts, self._ended = None, [set(), set()], NO_COUNTS, []
            self._go_on(end, configs, members)

    def audit_in_slices(self, ends: list[int], configs: Configs, members: ShareMembers) -> None:
        """Of the log up to the last of some offsets, each slice from where the one before is settled."""
        shown = shown_by(
            ordered_share_log(self._keys, between(self._states, first, end), between(self._transitions, first, end))
            for first, end in pairwise([0, *ends])
        )
        for end in ends:
            self._go_on(end, configs, members, shown)

    @property
    def group_pasts(self) -> Mapping[str, GroupPast]:
        """What is kept of each group."""
        assert self._kept is not None
        return self._kept.groups

    def _go_on(
        self, end: int, configs: Configs, members: ShareMembers, shown: Mapping[str, GroupPast] | None = None
    ) -> None:
        kept = self._kept
        if kept is not None:
            kept.known.require_same(configs, members)
        log = replace(self._log(kept, end), shown=shown)
        audit = audit_share_log(log, configs, members, SETTINGS)
        require_same_groups(log, audit.pasts, SETTINGS, configs)
        place = settled_to(log, audit.evidence, end, self._late_ms)
        before = log.past.from_log_offset
        for index, rows in enumerate((audit.redeliveries, audit.archived)):
            self._settled[index] |= reported(rows, before, place)
            self._open[index] = reported(rows, place, end)
        self.counts = counts_of(ShareCounts.together([self._settled_counts, audit.counted.counts()]))
        self._settled_counts = ShareCounts.together([self._settled_counts, audit.counted.counts(place)])
        self._kept = kept_of(log, audit.evidence, place, configs, members)
        ended = [*self._ended, *ended_states(log)]
        self.changes = list(offset_changes(ended, first_start_offsets(log), Endings()))
        self._ended = [state for state in ended if state.log_offset < place]

    def _log(self, kept: Kept | None, end: int) -> ShareLog:
        if kept is None:
            return sorted_share_log(self._keys, between(self._states, 0, end), between(self._transitions, 0, end))
        past = SharePast(kept.settled_to, kept.observed_ms, kept.groups, kept.known.until_ms)
        return sorted_share_log(
            self._keys,
            joined(kept.states, between(self._states, kept.settled_to, end)),
            joined(kept.transitions, between(self._transitions, kept.settled_to, end)),
            past,
        )


def random_members(random: Random) -> ShareMembers:
    """Stays of members of the two groups; of one perhaps nothing is known."""
    members = {}
    for group_id in random.choice((("a", "b"), ("a",), ())):
        joined_ms = np.array([random.randrange(-5_000, 30_000) for _ in range(random.randint(1, 4))], np.int64)
        lengths = [random.choice((random.randrange(20_000), FOREVER_MS)) for _ in joined_ms]
        members[group_id] = GroupStays(joined_ms, np.minimum(joined_ms + np.array(lengths, np.int64), FOREVER_MS))
    return members


def members_by(members: ShareMembers, at_ms: int) -> ShareMembers:
    """What was known of them at a time."""
    return {
        group_id: GroupStays(
            stays.joined_ms[stays.joined_ms <= at_ms],
            np.where(stays.left_ms <= at_ms, stays.left_ms, FOREVER_MS)[stays.joined_ms <= at_ms],
        )
        for group_id, stays in members.items()
        if (stays.joined_ms <= at_ms).any()
    }


def random_configs(random: Random) -> Configs:
    reported_ones = (
        ("share.delivery.count.limit", ("2", "3", "5")),
        ("share.record.lock.duration.ms", ("2000", "4000")),
        ("share.isolation.level", ("read_committed",)),
    )
    return Configs(
        ConfigRow("GROUP", group_id, name, random.choice(values), number, random.choice((0, 9_000)), None)
        for group_id in ("a", "b")
        for number, (name, values) in enumerate(reported_ones)
        if random.random() < 0.5
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_audits_of_what_is_new_say_what_one_says(part: int) -> None:
    """Random logs of share partitions, audited after each of several captures, with members known at once or late; and
    at once, but in slices."""
    went_on = change_count = 0
    for seed in range(part, HISTORIES, PARTS):
        random = Random(f"share past/{seed}")
        log, _ = share_log(random)
        silver = silver_of(log)
        configs, members = random_configs(random), random_members(random)
        is_late = random.random() < 0.3
        late_ms = random.choice((0, 0, 2_000, 10_000))
        audits = Audits(silver, late_ms)
        ends = [log[cut][0] if cut < len(log) else log[-1][0] + 1 for cut in cuts_of(random, len(log))[1:]]
        for end in ends:
            known_ms = 1_000 * end - random.choice((0, 6_000)) if is_late and end != ends[-1] else 2**61
            audits.audit(end, configs, members_by(members, known_ms) if is_late else members)
        went_on += len(ends) - 1 - audits.recreated_count
        whole = Audits(silver, late_ms)
        whole.audit(ends[-1], configs, members_by(members, 2**61) if is_late else members)
        assert audits.rows == whole.rows, seed
        assert audits.counts == whole.counts, seed
        assert audits.changes == whole.changes, seed
        slices = Audits(silver, late_ms)
        slices.audit_in_slices(ends, configs, members_by(members, 2**61) if is_late else members)
        assert slices.rows == whole.rows, seed
        assert slices.counts == whole.counts, seed
        assert slices.changes == whole.changes, seed
        change_count += len(whole.changes)
        assert slices.group_pasts == whole.group_pasts, seed
    assert went_on > HISTORIES // PARTS, "most audits judge what is new"
    assert change_count, "states end"


def test_what_is_kept_is_little() -> None:
    """Of a long log that hands nothing back, the newest state is kept and where it began."""
    random = Random(1)
    log, _ = share_log(random)
    long = [(offset + 100 * turn, at + 100_000 * turn, event) for turn in range(20) for offset, at, event in log]
    keys, states, transitions = silver_of(long)
    share = sorted_share_log(keys, states, transitions)
    audit = audit_share_log(share, Configs(), {}, SETTINGS)
    end = long[-1][0] + 1
    kept = kept_of(share, audit.evidence, settled_to(share, audit.evidence, end, 0), Configs(), {})
    assert len(kept.states) < 40 < len(states)
    assert replace(kept).observed_ms == long[-1][1]


@pytest.mark.parametrize("pair", list(pairwise(["a", "b", "c"])))
def test_known_names_every_group(pair: tuple[str, str]) -> None:
    """A stay of any of the groups changes the fingerprint, one behind the time does not."""
    first, second = pair
    stays: ShareMembers = {first: GroupStays(np.array([5], np.int64), np.array([FOREVER_MS], np.int64))}
    other: ShareMembers = {second: stays[first]}

    def known(members: ShareMembers, until_ms: int = 10) -> Known:
        return Known.of([first, second], ["t"], until_ms, Configs(), members)

    assert known(stays) != known(other)
    assert known(stays, 4).fingerprint == known({}, 4).fingerprint


@pytest.mark.parametrize(
    ("past", "limit"),
    [
        (GroupPast(3, ends_there=False), 5),
        (GroupPast(4, ends_there=False), 5),
        (GroupPast(5, ends_there=False), 6),
        (GroupPast(4, ends_there=True), 5),
        (GroupPast(2, ends_there=True), 3),
    ],
)
def test_the_limit_that_a_group_shows(past: GroupPast, limit: int) -> None:
    """To hand back once more, below the default, shows no other limit: what was said before stays."""
    assert past.assumed_limit(5) == limit
