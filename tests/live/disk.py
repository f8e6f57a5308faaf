"""What a broker's log directory holds, read from the files themselves by a parser of these tests' own."""

import os
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Final

from tests.live.program import Running

TOPICS: Final = ("__consumer_offsets", "__share_group_state", "__transaction_state")
RECORDS_AT: Final = 61
LOG_OVERHEAD: Final = 12
"""Base offset and length, which the length does not count."""
WATCH_EVERY_S: Final = 0.4

Place = tuple[str, int]
"""(topic, partition)"""


@dataclass(frozen=True, slots=True)
class DiskBatch:
    """A record batch (magic 2) as it is in a file."""

    data: bytes

    @property
    def base_offset(self) -> int:
        """Offset of the first record as first written."""
        return int.from_bytes(self.data[:8], "big")

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + int(struct.unpack_from(">i", self.data, 23)[0]) + 1

    @property
    def record_count(self) -> int:
        """Records which are left in it."""
        return int(struct.unpack_from(">i", self.data, 57)[0])

    def offsets(self) -> list[int]:
        """Of the records which are left in it; the batch is not compressed."""
        offsets, position = [], RECORDS_AT
        for _ in range(self.record_count):
            size, position = _varint(self.data, position)
            _, place = _varint(self.data, position + 1)  # after the attributes: the timestamp's delta
            delta, _ = _varint(self.data, place)
            offsets.append(self.base_offset + delta)
            position += size
        return offsets


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position


def read_logs(directory: Path, topics: Sequence[str] = TOPICS) -> Mapping[Place, list[DiskBatch]]:
    """All batches of the topics' segments, by log partition and in order."""
    logs: dict[Place, list[DiskBatch]] = {}
    for folder in _folders(directory, topics):
        topic, _, partition = folder.name.rpartition("-")
        segments = (path.read_bytes() for path in sorted(folder.glob("*.log")))
        logs[topic, int(partition)] = [batch for data in segments for batch in _batches(data)]
    return logs


def log_starts(directory: Path) -> Mapping[Place, int]:
    """Log start offsets inside a log's first segment, as a broker that has ended left them. What is below them is
    deleted: no fetch returns it, though the file of the segment holds it until the whole segment goes."""
    lines = (directory / "log-start-offset-checkpoint").read_text().splitlines()[2:]  # after the version and the count
    entries = (line.split() for line in lines)
    return {(topic, int(partition)): int(offset) for topic, partition, offset in entries}


def _folders(directory: Path, topics: Sequence[str]) -> Iterator[Path]:
    for topic in topics:
        yield from (path for path in directory.glob(f"{topic}-*") if path.name.removeprefix(f"{topic}-").isdigit())


def _batches(data: bytes) -> Iterator[DiskBatch]:
    """Whole batches; what is being written just now ends them."""
    position = 0
    while position + LOG_OVERHEAD <= len(data):
        size = LOG_OVERHEAD + int(struct.unpack_from(">i", data, position + 8)[0])
        if position + size > len(data):
            return
        yield DiskBatch(data[position : position + size])
        position += size


class DiskWatch(Running):
    """Looks at a log directory all the time, and remembers every batch that was ever in a segment: also those which
    Kafka has pruned or compacted since, in each form that they had."""

    def __init__(self, directory: Path, topics: Sequence[str] = TOPICS) -> None:
        """Begin to look."""
        self._directory = directory
        self._topics = topics
        self._seen: dict[Place, dict[int, set[bytes]]] = defaultdict(lambda: defaultdict(set))
        self._forms: dict[Path, tuple[int, int, int]] = {}
        self._ending = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look once more, and end."""
        self._ending.set()
        self._thread.join()

    @property
    def seen(self) -> Mapping[Place, Mapping[int, set[bytes]]]:
        """Batches by log partition and base offset, in every form. After `stop`."""
        assert not self._thread.is_alive()
        return self._seen

    def _watch(self) -> None:
        while not self._ending.wait(WATCH_EVERY_S):
            self._look()
        self._look()

    def _look(self) -> None:
        for folder in _folders(self._directory, self._topics):
            topic, _, partition = folder.name.rpartition("-")
            for path in sorted(folder.glob("*.log")):
                with suppress(FileNotFoundError):  # deleted, or swapped for its compacted form, just now
                    self._look_at(path, self._seen[topic, int(partition)])

    def _look_at(self, path: Path, seen: dict[int, set[bytes]]) -> None:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            form = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._forms.get(path) == form:
                return
            for batch in _batches(file.read()):
                seen[batch.base_offset].add(batch.data)
            self._forms[path] = form
