"""Names and small text files in a broker's log directory. No file is opened here.

Sources: LogFileUtils (names and suffixes), UnifiedLog.parseTopicPartitionName, CheckpointFile, PartitionMetadataFile,
MetaProperties.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from coordinator_core.errors import InvalidCheckpoint
from coordinator_core.limits import PARTITION_COUNT_MAX

_SEGMENT: Final = re.compile(r"([0-9]{20})\.log(\.swap)?", re.ASCII)
_LOG_FILE: Final = re.compile(r".*\.log(?:\.(?:gz|bz2|xz|zst|lz4|snappy|zip))?", re.DOTALL)
_INDEX: Final = re.compile(r"([0-9]{20})\.(?:time)?index", re.ASCII)
_PARTITION_FOLDER: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})", re.ASCII)
"""Topic name as Kafka allows it, a dash, the partition without leading zeros. Folders that are being removed or moved
end in `.<uuid>-delete`, `-future` or `-stray`, so their last part is not a number."""
_TOPIC_ID: Final = re.compile(r"^topic_id: *([A-Za-z0-9_-]{22})\s*$", re.ASCII | re.MULTILINE)
_CLUSTER_ID: Final = re.compile(r"^cluster\.id *[=:] *(\S{1,256})\s*$", re.MULTILINE)
_NO_TOPIC_ID: Final = "A" * 22
"""Uuid.ZERO_UUID: a topic from before Kafka 2.8 has no id."""
_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment of a partition folder, by file name."""

    name: str
    base_offset: int
    is_swap: bool
    """A cleaned segment that a crash left before it got its final name."""


def select_segments(names: Iterable[str]) -> tuple[SegmentFile, ...]:
    """The segments among the file names of a partition folder, ascending by base offset.

    Indexes, snapshots, `.deleted` and `.cleaned` files are left out; `.log.swap` counts where its `.log` is missing.
    """
    chosen: dict[int, SegmentFile] = {}
    for name in names:
        match = _SEGMENT.fullmatch(name)
        if match is None or int(match[1]) > _OFFSET_MAX:
            continue
        segment = SegmentFile(name, int(match[1]), is_swap=match[2] is not None)
        if not segment.is_swap or segment.base_offset not in chosen:
            chosen[segment.base_offset] = segment
    return tuple(chosen[base_offset] for base_offset in sorted(chosen))


def unread_files(names: Iterable[str]) -> tuple[str, ...]:
    """Files among those of a partition folder that look like segments, and are none by their names: sorted."""
    present = set(names)
    segments = {segment.name for segment in select_segments(present)}
    return tuple(sorted(name for name in present - segments if _LOG_FILE.fullmatch(name)))


def lost_segments(names: Iterable[str]) -> tuple[int, ...]:
    """Base offsets of segments that are missing between others, ascending: their indexes are in the folder.

    Kafka deletes an index with its segment, and at a start deletes indexes without one.
    """
    present = set(names)
    segments = [segment.base_offset for segment in select_segments(present)]
    indexed = {int(match[1]): match[1] for match in map(_INDEX.fullmatch, present) if match is not None}
    return tuple(
        base_offset
        for base_offset, digits in sorted(indexed.items())
        if segments
        and segments[0] < base_offset < segments[-1]
        and base_offset not in segments
        and f"{digits}.log.deleted" not in present
    )


def parse_partition_folder(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a folder `<topic>-<partition>`, or None if it is not the folder of a live partition."""
    match = _PARTITION_FOLDER.fullmatch(name)
    if match is None or match[1] in (".", "..") or int(match[2]) >= PARTITION_COUNT_MAX:
        return None
    return match[1], int(match[2])


def parse_checkpoint(text: str) -> dict[tuple[str, int], int]:
    """Offsets by (topic, partition) from log-start-offset-checkpoint, replication-offset-checkpoint and similar files.

    Line 1 is the format version 0, line 2 the number of entries, then follows one `topic partition offset` on each
    line. Raises InvalidCheckpoint, with a message that does not contain the file's text.
    """
    lines = text.splitlines()
    if len(lines) < 2 or lines[0].strip() != "0":
        raise InvalidCheckpoint("not a checkpoint file of version 0")
    count = _number(lines[1].strip(), 2)
    entries: dict[tuple[str, int], int] = {}
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split()
        if len(fields) != 3:
            raise InvalidCheckpoint(f"line {number} is no entry")
        entries[fields[0], _number(fields[1], number)] = _number(fields[2], number)
    if len(entries) != count:
        raise InvalidCheckpoint(f"{len(entries)} entries where {count} are announced")
    return entries


def parse_leader_epochs(text: str) -> tuple[tuple[int, int], ...]:
    """(leader epoch, its first offset), ascending, from leader-epoch-checkpoint in a partition folder.

    Line 1 is the format version 0, line 2 the number of entries, then follows one `epoch offset` on each line. Raises
    InvalidCheckpoint, with a message that does not contain the file's text.
    """
    lines = text.splitlines()
    if len(lines) < 2 or lines[0].strip() != "0":
        raise InvalidCheckpoint("not a checkpoint file of version 0")
    count = _number(lines[1].strip(), 2)
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split()
        if len(fields) != 2:
            raise InvalidCheckpoint(f"line {number} is no entry")
        entries.append((_number(fields[0], number), _number(fields[1], number)))
    if len(entries) != count:
        raise InvalidCheckpoint(f"{len(entries)} entries where {count} are announced")
    if any(later <= earlier for earlier, later in pairwise(entries)):
        raise InvalidCheckpoint("its epochs do not ascend")
    return tuple(entries)


def parse_topic_id(text: str) -> str | None:
    """The topic id in partition.metadata, as Kafka prints it; None if there is none."""
    found = _TOPIC_ID.search(text)
    return None if found is None or found[1] == _NO_TOPIC_ID else found[1]


def is_topic_id(text: str) -> bool:
    """Does a text have the form of a topic id: 16 bytes in URL-safe base64?"""
    return parse_topic_id(f"topic_id: {text}") == text and text[-1] in "AQgw"


def parse_kafka_cluster_id(text: str) -> str | None:
    """The cluster id in meta.properties; None if there is none."""
    found = _CLUSTER_ID.search(text)
    return None if found is None else found[1]


def _number(text: str, line_number: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise InvalidCheckpoint(f"line {line_number} has no number where one must be")
    return int(text)
