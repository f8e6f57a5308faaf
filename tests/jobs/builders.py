"""Record batches and log directories made for tests."""

import struct
from pathlib import Path

import google_crc32c


def varint(value: int) -> bytes:
    """Zigzag and base 128, as in records."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def batch(base_offset: int, count: int = 1, *, timestamp_ms: int = 1_700_000_000_000, value: bytes = b"v") -> bytes:
    """A magic 2 record batch with `count` records, uncompressed, checksum right."""
    records = b""
    for delta in range(count):
        body = b"\x00" + varint(0) + varint(delta) + varint(1) + b"k" + varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    last_delta = max(count - 1, 0)
    covered = struct.pack(">hiqqqhii", 0, last_delta, timestamp_ms, timestamp_ms + 5, -1, -1, 0, count) + records
    rest = struct.pack(">ibI", 3, 2, google_crc32c.value(covered)) + covered
    return struct.pack(">qi", base_offset, len(rest)) + rest


def damaged(whole: bytes) -> bytes:
    """The batch with its last byte changed: framed well, checksum wrong."""
    return whole[:-1] + bytes([whole[-1] ^ 0xFF])


def write_segment(root: Path, topic: str, partition: int, base_offset: int, data: bytes) -> Path:
    """A segment file in a log directory."""
    folder = root / f"{topic}-{partition}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(data)
    return path
