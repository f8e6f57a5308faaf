"""The clock steps that an audit found: places in a log where timestamps go back."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow.compute as pc

from coordinator_core.inference.audit.log_anomalies import TIME_WENT_BACK, step_of
from coordinator_core.text import counted
from jobs.console.command_name import command
from jobs.console.output import time_text
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from schemas.tables.gold import LOG_ANOMALIES

LISTED_MAX: Final = 5


class ClockStep(NamedTuple):
    """A record whose timestamp is before that of an earlier record (epoch ms)."""

    log: str
    """The coordinator topic."""
    log_partition: int
    log_offset: int
    before_ms: int
    now_ms: int

    def repeats(self, at_ms: int) -> bool:
        """Does the log have a time more than once?"""
        return self.now_ms <= at_ms <= self.before_ms

    def touches(self, from_ms: int | None, to_ms: int | None) -> bool:
        """Does the log have times of a span (`to_ms` exclusive; None: without end) more than once?"""
        return (to_ms is None or self.now_ms < to_ms) and (from_ms is None or self.before_ms >= from_ms)


def clock_steps(gold: WholeAudit, log: str | None = None) -> list[ClockStep]:
    """The clock steps of one log (`log`: its topic), or of all logs; by log partition, in log order."""
    rows = gold.read(LOG_ANOMALIES, ["rule", "log_topic", "log_partition", "log_offset", "details"])
    rows = rows.filter(pc.equal(rows["rule"], TIME_WENT_BACK))
    if log is not None:
        rows = rows.filter(pc.equal(rows["log_topic"], log))
    found = []
    for row in rows.to_pylist():
        times = step_of(row["details"] or "")
        if times is not None:
            found.append(ClockStep(row["log_topic"], row["log_partition"], row["log_offset"], *times))
    return sorted(found)


def step_lines(
    tables: ClusterTables, steps: Iterable[ClockStep], from_ms: int | None, to_ms: int | None, listed: str
) -> Iterator[str]:
    """Sentences about the steps that touch a span. `listed`: how a list shows what was written around them."""
    touched = [step for step in steps if step.touches(from_ms, to_ms)]
    for step in touched[:LISTED_MAX]:
        yield (
            f"the time of {step.log}-{step.log_partition} went back at offset {step.log_offset}, from "
            f"{time_text(step.before_ms)} to {time_text(step.now_ms)}: {listed}"
        )
    if len(touched) > LISTED_MAX:
        more = counted(len(touched) - LISTED_MAX, "place")
        yield f"... and went back at {more} more: {command('audit --list oddities' + tables.place_words)}"
