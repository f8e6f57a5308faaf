"""Batches, markers and legacy message sets which Kafka's own builders wrote: read here, and written again.

A line of the file holds `name` and `hex`. The builder gave the same records to all codecs, so each name must hold
what its uncompressed sister holds; written again, every batch of magic 2 must have the same bytes, compressed or not.
The streams inside legacy wrappers must be written alike too, with two exceptions: the LZ4 header checksum of magic 0,
which Kafka computes wrongly, and one snappy block, for which the snappy library under Java picks other matches.
"""

import json
from pathlib import Path
from typing import Final

from coordinator_core.bytes.log.batch import Record, build_batch, build_marker, parse_header
from coordinator_core.bytes.log.chunk import RecordChunk
from coordinator_core.bytes.log.compression import Codec, compress, decompress
from coordinator_core.bytes.log.records import decode_chunk, iter_records
from coordinator_core.errors import CoreError

CODECS: Final = {codec.name.lower(): codec for codec in Codec}
LEGACY_HEADER_BYTES: Final = {0: 26, 1: 34}
"""Of a wrapper with null key, up to its value."""
LZ4_HEADER_CHECKSUM: Final = 6
"""Place of the LZ4 frame's header checksum, which Kafka computes wrongly for magic 0."""


def run(path: str | Path) -> tuple[int, int, list[str]]:
    """Judge every vector of the file: (cases, passed, failures)."""
    vectors = read_vectors(path)
    failures: list[str] = []
    for name, data in vectors.items():
        try:
            fault = fault_of(name, data, vectors)
        except CoreError as error:
            fault = f"raises {type(error).__name__}: {error}"
        if fault:
            failures.append(f"{name}: {fault}")
    return len(vectors), len(vectors) - len(failures), failures


def read_vectors(path: str | Path) -> dict[str, bytes]:
    """Bytes by name."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return {case["name"]: bytes.fromhex(case["hex"]) for case in map(json.loads, lines)}


def entries(data: bytes) -> list[bytes]:
    """The batches or legacy entries of a vector, one by one."""
    found = []
    position = 0
    while position < len(data):
        size = parse_header(data, position).size
        found.append(data[position : position + size])
        position += size
    return found


def reference_records(data: bytes) -> list[Record]:
    """All records, by the plain reader."""
    return [record for entry in entries(data) for record in iter_records(entry)]


def compiled_records(chunk: RecordChunk) -> list[Record]:
    """All records of a chunk, without headers, which the columns do not have."""
    columns = chunk.records
    return [
        Record(
            int(columns.offset[row]),
            int(columns.timestamp_ms[row]),
            _bytes(chunk, int(columns.key_position[row]), int(columns.key_length[row])),
            _bytes(chunk, int(columns.value_position[row]), int(columns.value_length[row])),
        )
        for row in range(len(columns))
    ]


def _bytes(chunk: RecordChunk, position: int, length: int) -> bytes | None:
    return None if length < 0 else chunk.data[position : position + length].tobytes()


def fault_of(name: str, data: bytes, vectors: dict[str, bytes]) -> str | None:
    """What is wrong with reading or writing one vector; None when nothing is."""
    chunk = decode_chunk(data)
    if chunk.findings:
        return f"findings {chunk.findings}"
    records = reference_records(data)
    if compiled_records(chunk) != [Record(r.offset, r.timestamp_ms, r.key, r.value) for r in records]:
        return "compiled and plain reader differ"
    if name.startswith("v2-"):
        return _batch_fault(name, data, records, vectors)
    if name.endswith("-marker"):
        return _marker_fault(name, data, chunk)
    if name.startswith("legacy-"):
        return _legacy_fault(name, data, records)
    return _empty_fault(data, chunk)


def rebuilt(data: bytes, records: list[Record]) -> bytes:
    """A batch of magic 2, written again from its records and the fields of its header."""
    header = parse_header(data)
    return build_batch(
        records,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        codec_id=header.codec_id,
        leader_epoch=header.leader_epoch,
        is_log_append_time=header.is_log_append_time,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        delete_horizon_ms=header.base_timestamp_ms if header.has_delete_horizon else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def _batch_fault(name: str, data: bytes, records: list[Record], vectors: dict[str, bytes]) -> str | None:
    _, codec, size = name.split("-")
    if parse_header(data).codec_id != CODECS[codec]:
        return f"codec id {parse_header(data).codec_id}"
    if len(records) != {"small": 3, "large": 40}[size]:
        return f"{len(records)} records"
    if records != reference_records(vectors[f"v2-none-{size}"]):
        return "other records than without compression"
    if rebuilt(data, records) != data:
        return "is written with other bytes"
    return None


def _marker_fault(name: str, data: bytes, chunk: RecordChunk) -> str | None:
    is_commit = name == "commit-marker"
    if chunk.batches.control_type.tolist() != [int(is_commit)] or not chunk.batches.is_transactional[0]:
        return f"control types {chunk.batches.control_type.tolist()}"
    value = compiled_records(chunk)[0].value
    written = build_marker(
        offset=int(chunk.batches.base_offset[0]),
        timestamp_ms=int(chunk.records.timestamp_ms[0]),
        producer_id=int(chunk.batches.producer_id[0]),
        producer_epoch=int(chunk.batches.producer_epoch[0]),
        is_commit=is_commit,
        coordinator_epoch=int.from_bytes((value or b"")[2:6], "big"),
        leader_epoch=int(chunk.batches.leader_epoch[0]),
    )
    return None if written == data else "is written with other bytes"


def _empty_fault(data: bytes, chunk: RecordChunk) -> str | None:
    if len(chunk.records) or chunk.batches.last_offset.tolist() != [chunk.batches.base_offset[0] + 9]:
        return f"last offset {chunk.batches.last_offset.tolist()}, {len(chunk.records)} records"
    return None if rebuilt(data, []) == data else "is written with other bytes"


def _legacy_fault(name: str, data: bytes, records: list[Record]) -> str | None:
    _, version, codec = name.split("-")
    magic = int(version[1:])
    first_ms = 1_700_000_000_000 if magic == 1 else -1
    second_ms = 1_700_000_000_001 if magic == 1 else -1
    if records != [Record(10, first_ms, b"k", b"v"), Record(11, second_ms, b"k2", None)]:
        return f"records {records}"
    if codec == "none":
        return None
    # read-only by design, but the codec's stream inside must be the one we would write
    packed = data[LEGACY_HEADER_BYTES[magic] :]
    chunk = decode_chunk(data)
    written = compress(CODECS[codec], chunk.data.tobytes())
    if magic == 0 and codec == "lz4":
        packed, written = _without(packed, LZ4_HEADER_CHECKSUM), _without(written, LZ4_HEADER_CHECKSUM)
    if (magic, codec) == (0, "snappy"):
        return None if decompress(Codec.SNAPPY, written) == chunk.data.tobytes() else "is compressed to other data"
    return None if written == packed else "is compressed to other bytes"


def _without(data: bytes, position: int) -> bytes:
    return data[:position] + data[position + 1 :]
