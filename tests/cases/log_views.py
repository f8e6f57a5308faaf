"""A cluster's log as users have it: cleaned, begun late, cut short, in unlike copies, as rows of a dump, with holes.

A view is a function of its seed. It says what each night reads, and which records any of them has.
"""

import base64
import json
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from coordinator_core.bytes.log.batch import BatchHeader, Record, build_batch, parse_header
from coordinator_core.bytes.log.records import iter_records
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC
from schemas.consumer_offsets import TOPIC as GROUPS_TOPIC
from schemas.share_group_state import TOPIC as SHARES_TOPIC

KINDS: Final = ("cleaned", "between", "late", "cut", "copies", "dump", "missing", "mixed", "no times", "nights", "lost")
"""`cleaned` before the first night, or `between` nights; `missing`: log partitions, `lost`: segments in the middle."""
NIGHTS: Final = {"cleaned": 1, "late": 1, "cut": 1, "missing": 1, "lost": 1, "nights": 3}
CLEANED_AT_ONCE: Final = frozenset({"cleaned", "copies", "mixed"})
CLEANED_LATER: Final = frozenset({"between", "dump"})
CUT: Final = frozenset({"cut", "mixed"})
LATE: Final = frozenset({"late", "mixed"})
END: Final = 2**62


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a log."""

    header: BatchHeader
    records: tuple[Record, ...]
    data: bytes

    @property
    def base_offset(self) -> int:
        return self.header.base_offset


Log = Sequence[Batch]


@dataclass
class View:
    """What the nights read."""

    nights: list[dict[str, tuple[str, ...]]] = field(default_factory=list)
    """The settings of each that name its sources."""
    captured: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By folder of a log partition: the offsets of the records that some night has."""


def batches_of(data: bytes) -> list[Batch]:
    """The batches of a segment."""
    found, position = [], 0
    while position < len(data):
        header = parse_header(data, position)
        batch = data[position : position + header.size]
        found.append(Batch(header, tuple(iter_records(batch)), batch))
        position += header.size
    return found


def read_logs(root: Path) -> dict[str, Log]:
    """Log partitions by their folders."""
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    return {
        it.name: [one for path in sorted(it.glob("*.log")) for one in batches_of(path.read_bytes())] for it in folders
    }


def _with_records(batch: Batch, records: Sequence[Record]) -> Batch:
    header = batch.header
    data = build_batch(
        records,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        codec_id=header.codec_id,
        leader_epoch=header.leader_epoch,
        is_transactional=header.is_transactional,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return Batch(parse_header(data), tuple(records), data)


def _transactions(log: Log) -> tuple[dict[int, tuple[int, bool]], set[int]]:
    """By index of a batch of a transaction: that of its marker, and whether it committed. And batches without one."""
    ends: dict[int, tuple[int, bool]] = {}
    open_batches: dict[int, list[int]] = defaultdict(list)
    for index, batch in enumerate(log):
        if batch.header.is_control:
            is_commit = struct.unpack(">hh", (batch.records[0].key or b"")[:4])[1] == 1
            ends |= dict.fromkeys(open_batches.pop(batch.header.producer_id, []), (index, is_commit))
        elif batch.header.is_transactional:
            open_batches[batch.header.producer_id].append(index)
    return ends, {index for indices in open_batches.values() for index in indices}


def cleaned(log: Log, dirty: int, old: int) -> list[Batch]:
    """As Kafka's cleaner leaves a log: below `dirty`, which is before any open transaction, the newest record of each
    key and no aborted ones; tombstones, and markers whose records are gone, only from `old` on."""
    ends, still_open = _transactions(log)
    dirty = min([dirty, *(log[index].base_offset for index in still_open)])
    spans = [(log[index].base_offset, log[marker].base_offset) for index, (marker, _) in ends.items()]
    dirty = min([dirty, *(first for first, last in spans if first < dirty <= last)])
    aborted = {index for index, (_, is_commit) in ends.items() if not is_commit}
    is_data = [not (batch.header.is_control or index in aborted) for index, batch in enumerate(log)]
    newest = {
        it.key: it.offset
        for batch, is_kept in zip(log, is_data, strict=True)
        for it in batch.records
        if is_kept and it.offset < dirty
    }
    left: dict[int, Batch] = {}
    for index, batch in enumerate(log):
        if batch.base_offset >= dirty or batch.header.is_control:
            left[index] = batch
        elif is_data[index]:
            kept = [
                it
                for it in batch.records
                if it.offset >= dirty or (newest[it.key] == it.offset and (it.value is not None or it.offset >= old))
            ]
            if kept:
                left[index] = batch if len(kept) == len(batch.records) else _with_records(batch, kept)
    needed = {marker for index, (marker, _) in ends.items() if index in left}
    return [
        batch
        for index, batch in left.items()
        if index in needed or not batch.header.is_control or batch.base_offset >= min(old, dirty)
    ]


def _write_log(folder: Path, log: Log, start: int, segment_starts: Sequence[int], torn: bytes) -> None:
    folder.mkdir(parents=True)
    names = sorted({start, *(it for it in segment_starts if it > start)})
    for name, until in zip(names, [*names[1:], END], strict=True):
        data = b"".join(batch.data for batch in log if name <= batch.base_offset < until)
        data += torn if until == END else b""
        if data or until == END:
            (folder / f"{name:020d}.log").write_bytes(data)


def _write_dump(path: Path, logs: Mapping[str, Log], *, has_times: bool) -> bool:
    """Write rows without markers, as Spark's Kafka source has them. Were there any?"""
    lines = []
    for name, log in logs.items():
        topic, _, partition = name.rpartition("-")
        for it in (record for batch in log if not batch.header.is_control for record in batch.records):
            row: dict[str, object] = {"topic": topic, "partition": int(partition), "offset": it.offset}
            row |= {
                name: base64.b64encode(data).decode()
                for name, data in (("key", it.key), ("value", it.value))
                if data is not None
            }
            if has_times:
                row |= {"timestamp": it.timestamp_ms, "timestampType": 0}
            lines.append(json.dumps(row))
    if lines:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return bool(lines)


class _Making:
    """A view while it is made. What retention and the cleaner took from a log stays gone in later nights."""

    def __init__(self, random: Random, kind: str, logs: Mapping[str, Log], root: Path) -> None:
        self.view = View()
        self._random, self._kind, self._logs, self._root = random, kind, logs, root
        self._names = [name for name in logs if name.rpartition("-")[0] in (GROUPS_TOPIC, SHARES_TOPIC)]
        self._segments = {
            name: sorted(random.sample([it.base_offset for it in logs[name]], min(len(logs[name]), 3)))
            for name in self._names
        }
        self._is_known = kind != "mixed" or self._happens(0.5)
        """Is there a copy of the metadata log?"""
        self._missing = {name for name in self._names if kind == "missing" and self._happens(0.4)}
        self._ends = dict.fromkeys(self._names, 0)
        self._starts = dict.fromkeys(self._names, 0)
        self._dirty = dict.fromkeys(self._names, 0)
        self._old = dict.fromkeys(self._names, 0)

    def _happens(self, share: float) -> bool:
        return self._random.random() < share

    def night(self, number: int, *, is_last: bool) -> None:
        """Write what one night reads."""
        for name in self._names:
            log = self._logs[name]
            end = log[-1].header.last_offset + 1 if log else 0
            is_whole = is_last and not (self._kind in CUT and self._happens(0.6))
            self._ends[name] = end if is_whole else self._random.randint(self._ends[name], end)
        folders, dumped = [], dict[str, Log]()
        copies = 2 if self._kind == "copies" or (self._kind == "mixed" and self._happens(0.5)) else 1
        for copy in range(copies):
            folder = self._root / f"night-{number}-copy-{copy}"
            folder.mkdir(parents=True)
            for name in self._names:
                if name in self._missing or (self._kind == "mixed" and copies == 2 and self._happens(0.3)):
                    continue
                log = self._seen(name, number)
                is_dump = self._is_dump(number)
                self.view.captured[name].update(
                    it.offset for batch in log if not (is_dump and batch.header.is_control) for it in batch.records
                )
                if is_dump:
                    dumped[name] = log
                else:
                    torn = self._torn(name)
                    _write_log(folder / name, log, self._starts[name], self._segments[name], torn)
            metadata = f"{METADATA_TOPIC}-0"
            if self._is_known and not copy:
                _write_log(folder / metadata, self._logs[metadata], 0, (), b"")
            folders += [str(folder)] if any(folder.iterdir()) else []
        path = self._root / f"night-{number}.jsonl"
        has_times = self._kind != "no times" and self._happens(0.8)
        dumps = (str(path),) if _write_dump(path, dumped, has_times=has_times) else ()
        if folders or dumps:
            self.view.nights.append({"segments": tuple(folders), "dumps": dumps})

    def _is_dump(self, night: int) -> bool:
        if self._kind == "dump":
            return not night or self._happens(0.3)
        return self._kind == "no times" or (self._kind == "mixed" and self._happens(0.15))

    def _seen(self, name: str, night: int) -> Log:
        """The log of this night, up to its end."""
        log = [batch for batch in self._logs[name] if batch.base_offset < self._ends[name]]
        is_cleaned = self._kind in CLEANED_AT_ONCE or (self._kind in CLEANED_LATER and night > 0)
        if name.startswith(GROUPS_TOPIC) and is_cleaned and len(log) > 1 and self._happens(0.85):
            dirty = self._random.randint(0, log[-1].base_offset)  # the last segment is not cleaned
            old = self._random.choice((0, 0, self._random.randint(0, dirty)))
            if self._kind != "copies":  # each replica is cleaned by itself
                dirty = self._dirty[name] = max(dirty, self._dirty[name])
                old = self._old[name] = max(old, self._old[name])
            log = cleaned(log, dirty, old)
        if self._kind in LATE and log and self._happens(0.5):
            self._starts[name] = max(self._starts[name], self._random.choice(log).base_offset)
        starts = self._segments[name]
        if self._kind == "lost" and len(starts) > 2 and self._happens(0.6):
            first = self._random.randrange(2)
            log = [batch for batch in log if not starts[first] <= batch.base_offset < starts[first + 1]]
        return [batch for batch in log if batch.base_offset >= self._starts[name]]

    def _torn(self, name: str) -> bytes:
        """The beginning of a batch that was being written."""
        rest = [batch.data for batch in self._logs[name] if batch.base_offset >= self._ends[name]]
        is_torn = self._kind in CUT and rest and self._happens(0.5)
        return rest[0][: self._random.randrange(1, len(rest[0]))] if is_torn else b""


def view_of(seed: int, kind: str, logs: Mapping[str, Log], root: Path) -> View:
    """A view of some logs, in a folder."""
    random = Random(f"{seed} {kind}")
    making = _Making(random, kind, logs, root)
    night_count = NIGHTS.get(kind) or random.choice((2, 3))
    for number in range(night_count):
        making.night(number, is_last=number == night_count - 1)
    return making.view
