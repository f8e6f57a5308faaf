"""The clock steps that an audit found: places in a log where timestamps go back."""

from typing import NamedTuple

import pyarrow.compute as pc

from coordinator_core.inference.log_anomalies import TIME_WENT_BACK, step_of
from jobs.delta.audit_runs import WholeAudit
from schemas.tables.gold import LOG_ANOMALIES


class ClockStep(NamedTuple):
    """A record whose timestamp is before that of an earlier record (epoch ms)."""

    log_partition: int
    log_offset: int
    before_ms: int
    now_ms: int


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
            found.append(ClockStep(row["log_partition"], row["log_offset"], *times))
    return sorted(found)
