"""What truly happened: lines of JSON, as the docstring of the package describes them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator_core.live.assignors.client_group import TopicPartition

Facts = dict[str, Any]


class Sink(Protocol):
    def write(self, file: str, facts: Facts) -> None:
        """Add a line to a file, named without its extension."""
        ...


class MemorySink:
    """Keeps all lines, by file."""

    def __init__(self) -> None:
        self.lines: dict[str, list[Facts]] = {}

    def write(self, file: str, facts: Facts) -> None:
        self.lines.setdefault(file, []).append(facts)


@dataclass(slots=True)
class _Interval:
    from_ms: int
    first_position: int
    generation: int


class Truth:
    """Writes lines, and keeps the state needed for lines that end an interval: the current owners."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.counts: Counter[str] = Counter()
        """File -> number of lines."""
        self._owned: dict[tuple[str, str, TopicPartition], _Interval] = {}

    def record(self, file: str, now_ms: int, facts: Facts) -> int:
        """Write a line; returns its index in its file, from 0."""
        self._sink.write(file, {"ts_ms": now_ms, **facts})
        self.counts[file] += 1
        return self.counts[file] - 1

    def topic(self, name: str, topic_id: str, partition_count: int, now_ms: int) -> None:
        """A topic was created or enlarged; a count of 0: it was deleted."""
        self.record("topics", now_ms, {"topic": name, "topic_id": topic_id, "partition_count": partition_count})

    def took(
        self,
        group: str,
        client_id: str,
        positions: Sequence[tuple[TopicPartition, int]],
        generation: int,
        now_ms: int,
    ) -> None:
        for at, position in positions:
            self._owned[group, client_id, at] = _Interval(now_ms, position, generation)

    def gave(
        self,
        group: str,
        client_id: str,
        positions: Sequence[tuple[TopicPartition, int]],
        ended_by: str,
        now_ms: int,
    ) -> None:
        """A client no longer owns partitions; it received the records between the two positions."""
        for at, position in positions:
            interval = self._owned.pop((group, client_id, at), None)
            if interval is None:
                continue
            facts = {
                "group": group,
                "topic": at.topic,
                "partition": at.partition,
                "client_id": client_id,
                "generation": interval.generation,
                "from_ms": interval.from_ms,
                "to_ms": None if ended_by == "STILL" else now_ms,
                "first_offset": interval.first_position,
                "next_offset": position,
                "ended_by": None if ended_by == "STILL" else ended_by,
            }
            self.record("owners", now_ms, facts)
