"""What was captured and is not replayed yet, or replayed and not audited: answers reflect the last whole run.

After `capture` alone, or during a continuous one, silver lacks records until the next replay. Coverage shows them as
read, although lists from gold lack their effects.
"""

from collections.abc import Iterator

from coordinator_core.bytes.coverage import CoverageKind, subtract, union
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from jobs.bronze.copies import Rewrites, last_capture
from jobs.bronze.log_ends import COORDINATOR_TOPICS
from jobs.console.command_name import command
from jobs.console.names import some_of
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import WholeRun
from jobs.silver.checkpoints import read_watermarks
from schemas.tables.bronze import COVERAGE


def not_replayed(tables: ClusterTables, topic: str) -> dict[int, tuple[OffsetRange, ...]]:
    """By log partition of a topic, the offsets that were captured or changed since the last replay."""
    columns = ("partition", "from_offset", "to_offset", "kind")
    captured: dict[int, list[OffsetRange]] = {}
    for row in tables.read(COVERAGE, columns, topic=topic).to_pylist():
        if row["kind"] == CoverageKind.CAPTURED.name:
            captured.setdefault(row["partition"], []).append((row["from_offset"], row["to_offset"]))
    watermarks = read_watermarks(WholeRun.newest(tables, with_unaudited=True), of_any_format=True)
    rewrites = Rewrites.load(tables, last_capture(tables))
    found: dict[int, tuple[OffsetRange, ...]] = {}
    for partition, ranges in sorted(captured.items()):
        place: LogPartition = (topic, partition)
        watermark = watermarks.get(place)
        new = union(ranges) if watermark is None else subtract(ranges, watermark.replayed)
        changed_from = None if watermark is None else rewrites.since(place, watermark.capture_version)
        if watermark is not None and changed_from is not None and changed_from < watermark.next_offset:
            new = union([*new, (changed_from, watermark.next_offset - 1)])
        if new:
            found[partition] = tuple(new)
    return found


def is_behind(tables: ClusterTables) -> bool:
    """Was anything of the coordinators captured that gold does not show yet?"""
    return any(not_replayed(tables, it) for it in COORDINATOR_TOPICS) or any(not_audited_lines(tables))


def not_replayed_lines(tables: ClusterTables, topic: str) -> Iterator[str]:
    """Sentences about these offsets, with the remedy; none where silver includes everything captured."""
    new = not_replayed(tables, topic)
    if new:
        places = (f"{topic}-{partition} offsets {at[0][0]} to {at[-1][1]}" for partition, at in new.items())
        yield (f"captured and not replayed yet: {some_of(places)}. Run {command('replay' + tables.place_words)}")


def not_audited_lines(tables: ClusterTables, *, of_silver: bool = False) -> Iterator[str]:
    """A sentence if gold, or what readers see of silver, belongs to an earlier replay than the newest; with the
    remedy."""
    which, seen = "gold", WholeAudit.newest(tables).replay_version
    if of_silver:
        which, seen = "this", WholeRun.newest(tables).replay_version
    if seen < WholeRun.newest(tables, with_unaudited=True).replay_version:
        yield (
            f"replayed and not audited yet: {which} is of an earlier replay than silver. Run "
            f"{command('audit' + tables.place_words)}"
        )
