"""Logs, simulated or recorded, as the rows which silver has of them; without Spark."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.history.offsets_log import OffsetsLogReplay
from coordinator_core.history.rows import GroupRows
from coordinator_core.inference.facts.life import GroupCommits, GroupLife
from coordinator_core.replay.columnar.offsets_columnar import CommitColumns
from coordinator_core.replay.lookup import group_partition
from schemas.consumer_offsets import TOPIC
from simulator.simulation.scenario import Scenario
from simulator.simulation.scenario_file import parse_scenario
from simulator.simulation.simulation import Simulation
from simulator.simulation.truth import Facts, MemorySink


class Simulated:
    """A scenario that has run: its truth, and its groups as silver would have them."""

    def __init__(self, scenario: str | Scenario) -> None:
        """`scenario`: a text, or one that was read."""
        self.sink = MemorySink()
        read = parse_scenario(scenario, "test.toml") if isinstance(scenario, str) else scenario
        self.simulation = Simulation(read, self.sink)
        self.simulation.run()

    def life(self, group_id: str) -> GroupLife:
        """All that silver holds of a group."""
        logs = self.simulation.cluster.groups.logs
        log = logs[group_partition(group_id, len(logs))]
        return life_of(b"".join(batch.data for batch in log.stored_batches()), group_id, log.partition)

    def generations(self, group_id: str) -> list[Facts]:
        """The true ones, each once, without that of a group which was just made."""
        lines = [line for line in self.sink.lines["generations"] if line["group"] == group_id and line["generation"]]
        return list({line["generation"]: line for line in reversed(lines)}.values())[::-1]


def recorded_life(logs: Path, group_id: str, partition_count: int) -> GroupLife:
    """A group of a broker's log folder."""
    partition = group_partition(group_id, partition_count)
    data = b"".join(path.read_bytes() for path in sorted((logs / f"{TOPIC}-{partition}").glob("*.log")))
    return life_of(data, group_id, partition)


def life_of(data: bytes, group_id: str, partition: int) -> GroupLife:
    """Replay a log partition and keep one group."""
    replayer = OffsetsLogReplay()
    chunk = decode_chunk(data)
    rows, commits = GroupRows(), []
    for output in (replayer.feed(chunk), replayer.finish()):
        rows.extend(output.groups)
        commits.append(output.commits)
    names = {name.topic_id: name.topic for name in rows.topics}
    assignments = [
        row._replace(topic=names.get(row.topic_id)) if row.topic is None and row.topic_id is not None else row
        for row in rows.assignments
    ]
    return GroupLife(
        group_id,
        partition,
        tuple(
            sorted((row for row in rows.generations if row.group_id == group_id), key=lambda row: row.from_log_offset)
        ),
        tuple(sorted((row for row in rows.members if row.group_id == group_id), key=lambda row: row.from_log_offset)),
        tuple(sorted((row for row in assignments if row.group_id == group_id), key=lambda row: row.from_log_offset)),
        tuple(sorted((row for row in rows.events if row.group_id == group_id), key=lambda row: row.log_offset)),
        _commits(commits, group_id),
    )


def _commits(parts: Iterable[CommitColumns], group_id: str) -> GroupCommits:
    found = [_of_group(part, group_id) for part in parts]
    topics = found[-1].topics
    order = np.argsort(np.concatenate([part.log_offset for part in found]), kind="stable")
    names = [name for name in GroupCommits.__slots__ if name != "topics"]
    columns = {name: np.concatenate([getattr(part, name) for part in found])[order] for name in names}
    return GroupCommits(topics, **columns)


def _of_group(part: CommitColumns, group_id: str) -> GroupCommits:
    numbers = [index for index, name in enumerate(part.groups) if name == group_id]
    rows = np.flatnonzero(np.isin(part.group, numbers))
    return GroupCommits(
        topics=tuple(part.topics),
        topic=part.topic[rows],
        partition=part.partition[rows],
        log_offset=part.log_offset[rows],
        recorded_at_ms=part.recorded_at_ms[rows],
        applied_log_offset=part.applied_log_offset[rows],
        applied_at_ms=part.applied_at_ms[rows],
        committed_offset=np.where(part.is_value[rows], part.committed_offset[rows], -1),
        previous_offset=part.previous_offset[rows],
        outcome=part.outcome[rows],
        change=part.change[rows],
        is_transactional=part.is_transactional[rows],
    )
