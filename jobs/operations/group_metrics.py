"""Metrics of groups for the Prometheus textfile: events of the cluster and of each group on the last day of the log,
and verdicts.

A cluster may have more groups than Prometheus should have series. Only the groups that need attention first have their
own metrics, up to `[metrics] groups`; sums over the cluster include all groups.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from jobs.queries.answers.group_verdicts import GONE, MOVED, OK, SEVERITIES, GroupVerdict

OF_DAY: Final[Mapping[str, str]] = {
    "rebalances": "Rebalances",
    "storm_rebalances": "Rebalances in storms",
    "unowned_seconds": "Time in which partitions most likely had no owner, summed over partitions",
    "given_up_records": "Records that share groups gave up",
    "redelivered_records": "Records that were handed back or given out again, each counted once",
    "extra_deliveries": "Deliveries of share groups' records beyond the first",
    "rewinds": "Commits that went back, by members or reset by a tool",
    "share_offset_changes": "Share partitions whose offsets a tool reset or deleted, each time",
}
"""What is counted, for groups and clusters."""
LAG: Final = "group_lag_records"
VERDICT: Final = "group_verdict"
GROUPS: Final = "cluster_groups"
LOG_END: Final = "cluster_log_end_timestamp_seconds"
GAUGES: Final[Mapping[str, str]] = {
    VERDICT: "How a group is: 0 OK, 1 WARN, 2 STALLED; `rule`: by which rule, the worst one.",
    **{f"group_{name}": f"{about}, of a group, in the day that ends with the log." for name, about in OF_DAY.items()},
    LAG: "Newest known lag of a group, all partitions together; not there where no end of a topic was sampled.",
    GROUPS: "Groups of the cluster by verdict.",
    **{
        f"cluster_{name}": f"{about}, of a cluster, in the day that ends with the log."
        for name, about in OF_DAY.items()
    },
    LOG_END: "Up to when the coordinators' log was read.",
}


class Sample(NamedTuple):
    """A gauge value, and its labels other than the cluster."""

    gauge: str
    value: float
    labels: Mapping[str, str]


def samples(verdicts: Sequence[GroupVerdict], newest_ms: int, groups_max: int) -> Iterator[Sample]:
    """Yield samples of a cluster and its groups, the worst first. Sums over the cluster include groups that are gone.

    Every group has the same labels, whatever its verdict, so that series do not come and go.
    """
    sums: Counter[str] = Counter()
    for it in verdicts:
        sums.update(_of_day(it))
    verdicts = [it for it in verdicts if it.state != GONE]
    found: Counter[str] = Counter(it.verdict for it in verdicts)
    for verdict in SEVERITIES:
        yield Sample(GROUPS, found[verdict], {"verdict": verdict})
    for name in OF_DAY:
        yield Sample(f"cluster_{name}", sums[name], {})
    if newest_ms:
        yield Sample(LOG_END, newest_ms / 1000, {})
    for it in verdicts[:groups_max]:
        labels = {"group_id": it.group_id, "group_type": it.group_type}
        rule = next(iter(it.rules), OK)
        yield Sample(VERDICT, SEVERITIES[::-1].index(it.verdict), {**labels, "rule": rule})
        for name, value in _of_day(it).items():
            yield Sample(f"group_{name}", value, labels)
        if it.lag is not None:
            yield Sample(LAG, it.lag, labels)


def _of_day(it: GroupVerdict) -> dict[str, float]:
    counts = it.rebalance_count, it.storm_count, it.unowned_ms / 1000
    offsets = it.given_up_count, it.redelivered_count, it.extra_delivery_count, it.rewind_count, it.rules.get(MOVED, 0)
    return dict(zip(OF_DAY, (*counts, *offsets), strict=True))
