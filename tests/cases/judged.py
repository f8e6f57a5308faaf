"""One log partition of `__consumer_offsets`, replayed and judged in memory: rows of silver and gold as nights over it
make them, without tables. `test_judged.py` compares the two.

A hundredth of the time of a night: for rules that follow from the records and from which of them are missing.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.batch import BatchHeader, parse_header
from coordinator_core.confidence import LIKELY
from coordinator_core.inference.audit.groups import GroupGold, in_order, judge_group
from coordinator_core.inference.audit.log_anomalies import LogAnomalyRow, group_anomalies, time_went_back
from coordinator_core.inference.commits.deletions import NOTHING_REMOVED, Removed
from coordinator_core.inference.facts.log_facts import UNKNOWN_LEADERS, WHOLE, LogFacts
from coordinator_core.inference.facts.rows import AnomalyRow
from jobs.delta.core_tables import ROWS_OF_GROUPS, rows_table
from jobs.gold.group_tables import GROUP_TABLES
from jobs.gold.markers import ABORTED
from jobs.settings import load_settings
from schemas.consumer_offsets import TOPIC
from schemas.tables import TABLES
from schemas.tables.gold import LOG_ANOMALIES
from tests.coordinator_core.inference.group_lives import Replayed

CONSTANTS: Final = {"log_partition": 0, "log_topic": TOPIC, "is_former_log_partition": False}
"""Columns that jobs add to the rows of the core."""


class Judged:
    """What was captured of the log, night by night, and what is judged of it."""

    def __init__(self) -> None:
        self._batches: dict[int, bytes] = {}
        self._seen: set[int] = set()
        """Offsets of which a copy showed whether there is a record."""
        self.removed: Removed = NOTHING_REMOVED
        """What the metadata log says of topics."""

    def night(self, batches: Sequence[bytes], *, from_offset: int = 0) -> None:
        """Capture a copy of the log: its batches, and the offset with which its first segment begins."""
        self._batches = {parse_header(batch).base_offset: batch for batch in batches} | self._batches
        self._seen |= set(range(from_offset, parse_header(batches[-1]).last_offset + 1))

    def _headers(self) -> list[BatchHeader]:
        """Of all batches, in log order."""
        return [parse_header(self._batches[offset]) for offset in sorted(self._batches)]

    def holes(self) -> Iterator[tuple[int, int, bool]]:
        """First and last offset of each missing part, and was it the cleaner who took it?"""
        captured = {offset for it in self._headers() for offset in range(it.base_offset, it.last_offset + 1)}
        lost = sorted(set(range(max(captured))) - captured)
        for _, run in groupby(enumerate(lost), lambda it: (it[1] - it[0], it[1] in self._seen)):
            offsets = [offset for _, offset in run]
            yield offsets[0], offsets[-1], offsets[0] in self._seen

    def facts(self) -> LogFacts:
        """What is known of the log."""
        headers, holes = self._headers(), [*self.holes()]
        led = [next(run) for epoch, run in groupby(headers, attrgetter("leader_epoch")) if epoch >= 0]
        unled = [(it.base_offset, it.last_offset) for it in headers if it.leader_epoch < 0]
        return LogFacts(
            whole_to=holes[0][0] if holes else WHOLE,
            clock_steps=tuple(step.log_offset for step in self._clock_steps()),
            leader_changes=tuple(it.base_offset for it in led),
            leaderless=tuple(unled) if led else UNKNOWN_LEADERS,
            gaps=tuple(first for first, _, is_compacted in holes if not is_compacted),
            holes=tuple(first for first, _, _ in holes),
            hole_ends=tuple(
                next(it.base_timestamp_ms for it in headers if it.base_offset > last) for _, last, _ in holes
            ),
        )

    def _clock_steps(self) -> list[LogAnomalyRow]:
        timed = [(it.base_offset, it.max_timestamp_ms) for it in self._headers() if it.max_timestamp_ms >= 0]
        offset, at_ms = np.array(timed, np.int64).reshape(-1, 2).T
        return time_went_back(0, offset, at_ms, 0)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of a table such as `gold.rebalances`."""
        now, table = Replayed(None, [self._batches[offset] for offset in sorted(self._batches)]), TABLES[name]
        rows: Iterable[NamedTuple]
        if table in ROWS_OF_GROUPS:
            rows = chain(ROWS_OF_GROUPS[table](now.settled), ROWS_OF_GROUPS[table](now.open))
        elif table is LOG_ANOMALIES:
            rows = chain(self._clock_steps(), *(broken for _, broken in self._judged(now)))
        else:
            of_gold = GROUP_TABLES[table].rows
            assert of_gold is not None, name
            rows = chain.from_iterable(of_gold(gold) for gold, _ in self._judged(now))
        found = [*rows]
        return rows_table(table, found, CONSTANTS).to_pylist() if found else []

    def _judged(self, now: Replayed) -> Iterator[tuple[GroupGold, list[LogAnomalyRow]]]:
        settings, facts = load_settings({}, environment={}).inference, self.facts()
        for group_id in sorted(now.group_ids):
            judged = judge_group(in_order(now.life(group_id)._replace(log=facts)), settings, removed=self.removed)
            judged.gold.anomalies = [
                self._with_own_marker(row) if row.kind == ABORTED else row for row in judged.gold.anomalies
            ]
            yield judged.gold, group_anomalies(judged.life)

    def _with_own_marker(self, row: AnomalyRow) -> AnomalyRow:
        """An aborted commit, whose marker may be another transaction's where records before it are missing."""
        headers = self._headers()
        producer_id = next(it.producer_id for it in headers if it.last_offset >= row.log_offset)
        ends = (it.base_offset for it in headers if it.is_control and it.producer_id == producer_id)
        end = next((offset for offset in ends if offset > row.log_offset), WHOLE)
        is_doubtful = any(row.log_offset < first < end for first, _, _ in self.holes())
        return row._replace(confidence=LIKELY) if is_doubtful else row
