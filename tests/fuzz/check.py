"""What must hold for any bytes, and the loop that looks for bytes for which it does not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from coordinator_core.bytes import codec
from coordinator_core.bytes.log import records, scan
from coordinator_core.bytes.log.batch import Record, parse_header
from coordinator_core.bytes.log.chunk import RecordChunk
from coordinator_core.errors import DecodeError
from tests.conformance.families.batches import compiled_records
from tests.fuzz import corpus
from tests.fuzz.mutate import mutate_batch, mutate_segment

BYTES_MAX: Final = 1024 * 1024
"""Decompression limit while fuzzing: small, so that bombs meet it."""
SEGMENT_SHARE: Final = 0.15


@dataclass(frozen=True, slots=True)
class Target:
    """The decoders under test; a canary puts a broken one in."""

    decode_chunk: Callable[..., RecordChunk] = records.decode_chunk
    iter_records: Callable[..., Iterator[Record]] = records.iter_records
    scan_segment: Callable[..., scan.SegmentScan] = scan.scan_segment
    decode_key: Callable[[str, bytes], Any] = codec.decode_key
    decode_value: Callable[[str, int, bytes], Any] = codec.decode_value


@dataclass(frozen=True, slots=True)
class Failure:
    """A mutant for which something else came out. `seed` and `number` make it again."""

    seed: int
    number: int
    what: str
    data: bytes


@dataclass(slots=True)
class Summary:
    """What a run has met."""

    mutants: int = 0
    accepted: int = 0
    """Batch mutants that still read without a finding."""
    findings: int = 0
    records: int = 0
    values_refused: int = 0
    failures: list[Failure] | None = None


class ViolationError(Exception):
    """Something which must hold for any bytes does not."""


def fuzz(seed: int, numbers: range, target: Target | None = None, failures_max: int = 10) -> Summary:
    """Make and check the mutants of these numbers; stops after `failures_max` failures."""
    target = target or Target()
    summary = Summary(failures=[])
    failures = summary.failures
    assert failures is not None
    for number in numbers:
        data = b""
        try:
            random = Random(f"{seed}:{number}")
            if random.random() < SEGMENT_SHARE:
                sample = random.choice(corpus.segments())
                data = mutate_segment(sample, random)
                check_segment(data, sample.base_offset, target, summary)
            else:
                sample = random.choice(corpus.batches())
                data = mutate_batch(sample, random)
                check_batch(data, sample.topic, target, summary)
        except Exception as error:  # whatever comes out here is what is looked for
            failures.append(Failure(seed, number, f"{type(error).__name__}: {error}", data))
        summary.mutants += 1
        if len(failures) >= failures_max:
            break
    return summary


def check_batch(data: bytes, topic: str, target: Target, summary: Summary) -> None:
    """Compiled and plain reader agree on every record and every refusal, and values decode or are refused."""
    chunk = target.decode_chunk(data, bytes_max=BYTES_MAX)
    compiled = compiled_records(chunk)
    summary.findings += len(chunk.findings)
    summary.accepted += not chunk.findings
    summary.records += len(compiled)
    for record in compiled:
        _check_value(record, topic, target, summary)
    try:
        is_one_batch = parse_header(data).size == len(data)
    except DecodeError:
        is_one_batch = False
    try:
        plain = list(target.iter_records(data, bytes_max=BYTES_MAX))
    except DecodeError as error:
        if is_one_batch and [finding.code for finding in chunk.findings] != [error.code]:
            raise ViolationError(f"plain reader {error.code}, compiled {chunk.findings}") from error
        return
    if chunk.findings:
        raise ViolationError(f"only the compiled reader refuses: {chunk.findings}")
    if compiled != [Record(r.offset, r.timestamp_ms, r.key, r.value) for r in plain]:
        raise ViolationError("compiled and plain records differ")


def _check_value(record: Record, topic: str, target: Target, summary: Summary) -> None:
    if record.key is None:
        return
    try:
        key = target.decode_key(topic, record.key)
        if record.value is not None:
            target.decode_value(topic, key.record_type, record.value)
    except DecodeError:
        summary.values_refused += 1


def check_segment(data: bytes, base_offset: int, target: Target, summary: Summary) -> None:
    """Every byte is in a batch, in a finding of stage FILE, or in the zeros at the end; offsets only rise."""
    found = target.scan_segment(data, base_offset=base_offset, is_last=True, next_offset_min=0)
    check_scan(data, base_offset, found)
    summary.findings += len(found.findings)
    whole = b"".join(
        data[position : position + size]
        for position, size, is_valid in zip(
            found.batches.position.tolist(), found.batches.size.tolist(), found.crc_valid.tolist(), strict=True
        )
        if is_valid
    )
    chunk = target.decode_chunk(whole, bytes_max=BYTES_MAX)
    summary.records += len(chunk.records)
    stray = [
        finding for finding in chunk.findings if finding.code in ("CRC_MISMATCH", "TRUNCATED_BATCH", "INVALID_BATCH")
    ]
    if stray:
        raise ViolationError(f"what the scan took for whole batches is none: {stray}")


def check_scan(data: bytes, base_offset: int, found: scan.SegmentScan) -> None:
    """The invariant of a scan; raises ViolationError."""
    batches = found.batches
    ranges = [(p, p + s) for p, s in zip(batches.position.tolist(), batches.size.tolist(), strict=True)]
    position = 0
    for start, stop in sorted(ranges + list(found.skipped)):
        if start != position or stop <= start:
            raise ViolationError(f"bytes {position}..{start} are nowhere, or twice")
        position = stop
    if any(data[position:]):
        raise ViolationError(f"bytes from {position} on are nowhere and not zero")
    file_findings = [f.byte_position for f in found.findings if f.stage == "FILE"]
    if file_findings != [start for start, _ in found.skipped]:
        raise ViolationError("findings of stage FILE and skipped ranges differ")
    crc_findings = [f.byte_position for f in found.findings if f.stage == "BATCH"]
    if crc_findings != batches.position[~found.crc_valid].tolist():
        raise ViolationError("findings of stage BATCH and invalid checksums differ")
    next_offset = base_offset
    for first, last in zip(batches.base_offset.tolist(), batches.last_offset.tolist(), strict=True):
        if first < next_offset or last < first:
            raise ViolationError(f"offset {first} below {next_offset}")
        next_offset = last + 1
    if found.next_offset != next_offset:
        raise ViolationError(f"next offset {found.next_offset}, not {next_offset}")
