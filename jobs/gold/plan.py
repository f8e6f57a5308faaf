"""The plan of an audit: the position from which each log partition is audited, and the tasks."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from coordinator_core.bytes.log_partitions import LogPartition
from jobs.gold.snapshot import FORMER_SHARES, REMOVED_TOPICS, REMOVED_UNTIL, SOURCES, Snapshot, sum_of
from jobs.gold.task import NEVER_MS, AuditWork
from jobs.silver.checkpoints import ReplayMode, Watermark, step_of
from jobs.silver.replay_failures import groups_left_out
from jobs.silver.tasks import LogFiles
from jobs.spark.tasks import tapered
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.gold import LOG_ANOMALIES
from schemas.tables.state import AUDITED_LOGS

LOG_BYTES: Final = 400_000
"""Fixed cost of a log partition, in bytes of bronze."""


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The position from which each log partition is audited."""

    logs: tuple[LogFiles, ...]
    steps: Mapping[LogPartition, ReplayMode]
    is_resting: bool
    """Log partitions without new records of groups are not audited."""
    next_offsets: Mapping[LogPartition, int] = dataclasses.field(default_factory=dict)
    """The first offset of each log partition that is not audited."""

    def afresh(self, topic: str) -> "AuditPlan":
        """The plan with all log partitions of a topic audited from their beginning."""
        steps = {log: ReplayMode.AFRESH if log[0] == topic else step for log, step in self.steps.items()}
        return dataclasses.replace(self, steps=steps)

    def partitions(self, topic: str, *steps: ReplayMode) -> frozenset[int]:
        """The log partitions of a topic that are audited in one of these modes."""
        return frozenset(partition for (name, partition), step in self.steps.items() if name == topic and step in steps)


def make_plan(snapshot: Snapshot, *, rebuild: bool = False) -> AuditPlan:
    """Decide from which position each log partition is audited; `rebuild`: all from their beginning."""
    basis, before, now = snapshot.basis, snapshot.audited, snapshot.watermarks
    logs = tuple(LogFiles(*log, files) for log, files in snapshot.bronze.items())
    if rebuild or not basis.may_go_on or snapshot.is_renamed:
        return AuditPlan(logs, dict.fromkeys(snapshot.bronze, ReplayMode.AFRESH), is_resting=False)
    steps = {}
    for place in snapshot.bronze:
        changed_from = snapshot.rewrites.since(place, before[place].capture_version) if place in before else None
        steps[place] = step_of(now[place].replayed if place in now else (), before.get(place), changed_from)
    # silver lacked something then, or does now: no state was kept of these log partitions
    steps |= dict.fromkeys(basis.lacking_logs & steps.keys(), ReplayMode.AFRESH)
    next_offsets = {log: watermark.next_offset for log, watermark in before.items()}
    has_same_sources = basis.unchanged >= SOURCES
    plan = AuditPlan(logs, steps, has_same_sources, next_offsets)
    if not has_same_sources:
        plan = plan.afresh(OFFSETS_TOPIC)
    # settled rows of all log partitions share files, so auditing one from its beginning means auditing all
    is_again = any(step is ReplayMode.AFRESH and log in before and log[0] == SHARE_TOPIC for log, step in steps.items())
    return plan.afresh(SHARE_TOPIC) if is_again or FORMER_SHARES not in basis.unchanged else plan


def removed_since_ms(removals: Sequence[tuple[int, str]], before: Mapping[str, Any]) -> int:
    """The time of the first removal that the last audit did not know. `before`: the settings of that audit."""
    until_ms = before.get(REMOVED_UNTIL, -1)
    known = [removal for removal in removals if removal[0] <= until_ms]
    new = removals if before.get(REMOVED_TOPICS) != sum_of(known) else removals[len(known) :]
    return min((at_ms for at_ms, _ in new), default=NEVER_MS)


def unread_logs(plan: AuditPlan, topic: str) -> list[LogFiles]:
    """The log partitions of a topic, with the offset from which each is audited."""
    return [
        log
        if plan.steps[log.topic, log.partition] is ReplayMode.AFRESH
        else dataclasses.replace(log, from_offset=plan.next_offsets.get((log.topic, log.partition), 0))
        for log in plan.logs
        if log.topic == topic
    ]


def works(
    snapshot: Snapshot, plan: AuditPlan, work: AuditWork, topic: str, hot: Sequence[LogFiles], core_count: int
) -> Iterator[AuditWork]:
    """The tasks of a topic, the heaviest first, numbered from that of `work`.

    `hot`: buckets of log partitions that several tasks audit.
    """
    former = work.former.having(AUDITED_LOGS, "topic", topic).having(LOG_ANOMALIES, "log_topic", topic)
    not_replayed = {log: groups_left_out(found) for log, found in snapshot.basis.failures.items()}
    are_cut = {log.partition for log in hot}
    logs = [log for log in plan.logs if log.topic == topic and log.partition not in are_cut]
    new = [new_bytes(log, plan, snapshot.watermarks) for log in logs]
    bins = tapered([LOG_BYTES + size_bytes for size_bytes in new], core_count, new_bytes=sum(new))
    parts = [*([log] for log in hot), *([logs[index] for index in indices] for indices in bins)]
    for number, part in enumerate(parts, work.number):
        yield dataclasses.replace(
            work,
            number=number,
            topic=topic,
            former=former,
            log_partitions=tuple(log.partition for log in part),
            bucket=part[0].bucket,
            logs=_of_topic(snapshot.logs, topic),
            not_replayed=_of_topic(not_replayed, topic),
            shortened=frozenset(partition for name, partition in snapshot.shortened if name == topic),
            batch_files={log.partition: log.files for log in part},
            going_on=plan.partitions(topic, ReplayMode.GO_ON, ReplayMode.REST),
            resting=plan.partitions(topic, ReplayMode.REST) if plan.is_resting else frozenset(),
            watermarks=_of_topic(snapshot.watermarks, topic),
            next_offsets=_of_topic(plan.next_offsets, topic),
        )


_OfLog = TypeVar("_OfLog")


def _of_topic(of_logs: Mapping[LogPartition, _OfLog], topic: str) -> dict[int, _OfLog]:
    return {partition: value for (name, partition), value in of_logs.items() if name == topic}


def new_bytes(log: LogFiles, plan: AuditPlan, watermarks: Mapping[LogPartition, Watermark]) -> int:
    """Estimated bytes of bronze to audit of a log partition: its size times the share of new offsets, or its whole
    size.
    """
    place = log.topic, log.partition
    if plan.steps[place] is ReplayMode.AFRESH or place not in watermarks:
        return log.size_bytes
    next_offset = watermarks[place].next_offset
    return log.size_bytes * (next_offset - plan.next_offsets.get(place, 0)) // max(next_offset, 1)
