"""A group which only commits on is not looked at again: what was said of it is what one audit of all of it says."""

from random import Random
from typing import Final

import numpy as np
import pytest

from coordinator_core.history.groups import GroupRows
from coordinator_core.history.offsets_log import OffsetsLogReplay, OffsetsLogState
from coordinator_core.inference.broken_rules import group_anomalies
from coordinator_core.inference.groups import GroupGold, audit_group
from coordinator_core.inference.life import GroupCommits, GroupLife
from coordinator_core.inference.quiet import Quiet, commit_counts, is_noted
from coordinator_core.inference.rows import GroupDayRow
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.log.records import decode_chunk
from coordinator_core.offsets.lane import CHANGES, OUTCOMES
from tests.coordinator_core.history.histories import GROUP_IDS, commits_on, offsets_log
from tests.coordinator_core.offsets.reference import Row, rows_of

HISTORIES: Final = 200
PARTS: Final = 10
SETTINGS: Final = InferenceSettings(skip_offset_count=500, stalled_ms=10_000)


class Replayed:
    """A log as far as it is replayed: the rows of its groups, and which of them the newest run touched."""

    def __init__(self, before: "Replayed | None", batches: list[bytes]) -> None:
        replay = OffsetsLogReplay(None if before is None else before.state)
        data = np.frombuffer(b"".join(batches), np.uint8)
        output = replay.feed(decode_chunk(data, bytes_max=2**20, chunk_bytes_max=2**22, crc="skip"))
        self.state: OffsetsLogState = replay.export_state()
        last = replay.finish()
        self.asleep = set(replay.asleep)
        self.commits: dict[int, Row] = {} if before is None else dict(before.commits)
        self.commits |= {row.log_offset: row for part in (output, last) for row in rows_of(part.commits)}
        self.settled = GroupRows()
        if before is not None:
            self.settled.extend(before.settled)
        self.settled.extend(output.groups)
        self.open = GroupRows()
        self.open.extend(last.groups)
        if before is not None:
            for name in ("generations", "members", "assignments"):
                rows = [row for row in getattr(before.open, name) if row.group_id in self.asleep]
                getattr(self.open, name).extend(rows)

    def life(self, group_id: str) -> GroupLife:
        def rows(name: str) -> tuple[object, ...]:
            every = [*getattr(self.settled, name), *getattr(self.open, name)]
            return tuple(row for row in every if row.group_id == group_id)

        own = [row for row in self.commits.values() if row.group == group_id]
        return GroupLife(
            group_id,
            0,
            rows("generations"),  # type: ignore[arg-type]
            rows("members"),  # type: ignore[arg-type]
            rows("assignments"),  # type: ignore[arg-type]
            rows("events"),  # type: ignore[arg-type]
            commits_of(own),
        )


def commits_of(rows: list[Row]) -> GroupCommits:
    def numbers(name: str) -> np.ndarray:
        return np.array([-1 if getattr(row, name) is None else getattr(row, name) for row in rows], np.int64)

    ordered = sorted(rows, key=lambda row: row.log_offset)
    rows = ordered
    topics = tuple(sorted({row.topic for row in rows}))
    return GroupCommits(
        topics=topics,
        topic=np.array([topics.index(row.topic) for row in rows], np.int32),
        partition=numbers("partition").astype(np.int32),
        log_offset=numbers("log_offset"),
        recorded_at_ms=numbers("recorded_at_ms"),
        applied_log_offset=numbers("applied_log_offset"),
        applied_at_ms=numbers("applied_at_ms"),
        committed_offset=numbers("committed_offset"),
        previous_offset=numbers("previous_offset"),
        outcome=np.array([OUTCOMES.index(row.outcome) for row in rows], np.int8),
        change=np.array([-1 if row.change is None else CHANGES.index(row.change) for row in rows], np.int8),
        is_transactional=np.array([bool(row.is_transactional) for row in rows], np.bool_),
    )


def counted(gold: GroupGold, quiet: Quiet, life: GroupLife, from_log_offset: int) -> list[GroupDayRow] | None:
    """The days of before with new commits counted, as an audit does it; None: it looks at the group."""
    new = life.commits.log_offset >= from_log_offset
    commits = commits_of_rows(life.commits, new)
    if is_noted(commits, np.zeros(len(commits), np.int64), [quiet], SETTINGS).any():
        return None
    counts = commit_counts(commits, np.zeros(len(commits), np.int64), [life.group_id])
    days = {row.day: row for row in gold.days}
    for (group_id, day), count in counts.items():
        made = quiet.day(group_id, day, count)
        if day in days:
            days[day] = days[day]._replace(commit_count=days[day].commit_count + count)
        elif made is None:
            return None
        else:
            days[day] = made
    return [days[day] for day in sorted(days)]


def commits_of_rows(commits: GroupCommits, chosen: np.ndarray) -> GroupCommits:
    names = [name for name in GroupCommits.__slots__ if name != "topics"]
    return GroupCommits(commits.topics, **{name: getattr(commits, name)[chosen] for name in names})


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_not_looked_at_again_would_be_said_again(part: int) -> None:
    """Random groups that go on to commit, a little or much happening besides."""
    kept = 0
    for seed in range(part, HISTORIES, PARTS):
        random = Random(f"quiet/{seed}")
        batches = offsets_log(random)
        first = Replayed(None, batches)
        before = Replayed(first, commits_on(random, 200))
        after = Replayed(before, commits_on(random, 300))
        for group_id in GROUP_IDS:
            old, new = before.life(group_id), after.life(group_id)
            quiet = Quiet.of(old, SETTINGS)
            if group_id not in after.asleep or quiet.has_pending or not len(old.commits):
                continue
            gold = audit_group(old, SETTINGS)
            days = counted(gold, quiet, new, 300)
            if days is None:
                continue
            kept += 1
            whole = audit_group(new, SETTINGS)
            assert (gold.owners, gold.rebalances, gold.anomalies) == (whole.owners, whole.rebalances, whole.anomalies)
            assert group_anomalies(old) == group_anomalies(new)
            assert days == whole.days, seed
    assert kept > 1, "some groups are left alone"
