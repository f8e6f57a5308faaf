"""Mutants. All chance comes from the Random which is passed in, so a seed and a number name a mutant for ever."""

import struct
from random import Random
from typing import Final

from coordinator_core.bytes.log.batch import with_crc
from coordinator_core.bytes.log.compression import compress, decompress
from coordinator_core.bytes.log.kernels import HEADER_BYTES_V2
from coordinator_core.errors import DecodeError
from tests.fuzz.corpus import Sample

HEADER_FIELDS: Final = ((0, 8), (8, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4))
"""(place, size) of every field of a v2 header but leader epoch and checksum."""
EDGES: Final = (0, 1, -1, 2, 127, 128, -128, 255, 256, 32767, -32768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
VARINT_EDGES: Final = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\x80" * 11,
)


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """One to four small changes: flips, edge values, copies, cuts and insertions."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if not out:
            return bytes(out)
        position = random.randrange(len(out))
        kind = random.randrange(7)
        if kind == 0:
            out[position] ^= 1 << random.randrange(8)
        elif kind == 1:
            out[position] = random.randrange(256)
        elif kind == 2:
            edge = random.choice(VARINT_EDGES)
            out[position : position + random.randrange(len(edge) + 1)] = edge
        elif kind == 3:
            size = random.choice((2, 4, 8))
            out[position : position + size] = _field(random.choice(EDGES), min(size, len(out) - position))
        elif kind == 4:
            del out[position : position + random.randrange(1, 9)]
        elif kind == 5:
            out[position:position] = random.randbytes(random.randrange(1, 9))
        else:
            source = random.randrange(len(out))
            size = random.randrange(1, 33)
            out[position : position + size] = out[source : source + size]
    return bytes(out)


def mutate_batch(sample: Sample, random: Random) -> bytes:
    """A changed batch, with length and checksum repaired nearly always: what is inside shall be reached."""
    data = sample.data
    kind = random.randrange(10)
    if data[16] < 2:
        data = (
            mutate_bytes(data[:16], random)[:16].ljust(16, b"\0") + data[16:] if kind == 0 else _body(data, 16, random)
        )
        if kind % 2:  # wrappers: the checksums of the messages inside stay wrong unless nothing there was touched
            data = _sized(data)
        return with_crc(data) if len(data) > 17 and kind != 9 else data
    if kind < 3:
        position, size = random.choice(HEADER_FIELDS)
        field = _field(random.choice(EDGES), size) if kind else mutate_bytes(data[position : position + size], random)
        data = data[:position] + field[:size].ljust(size, b"\0") + data[position + size :]
        if position == 8:
            return with_crc(data)
    elif kind < 7 or not data[22] & 7:
        data = _body(data, HEADER_BYTES_V2, random)
    else:
        data = data[:HEADER_BYTES_V2] + _recompressed(data, random)
    data = _sized(data)
    return data if kind == 9 and random.random() < 0.3 else with_crc(data)


def mutate_segment(sample: Sample, random: Random) -> bytes:
    """A damaged file: nothing is repaired."""
    out = bytearray(sample.data)
    for _ in range(random.choice((1, 1, 2, 3))):
        if not out:
            break
        position = random.randrange(len(out))
        size = random.choice((1, 1, 8, 64, 512))
        kind = random.randrange(8)
        if kind == 0:
            out[position] ^= 1 << random.randrange(8)
        elif kind == 1:
            out[position : position + size] = random.randbytes(len(out[position : position + size]))
        elif kind == 2:
            out[position : position + size] = bytes(len(out[position : position + size]))
        elif kind == 3:
            del out[position:]
        elif kind == 4:
            del out[position : position + size]
        elif kind == 5:
            out += bytes(random.choice((1, 16, 17, 61, 4096)))
        elif kind == 6:
            source = random.randrange(len(out))
            out[position:position] = out[source : source + size]
        else:
            out[position:position] = random.randbytes(size)
    return bytes(out)


def _body(data: bytes, start: int, random: Random) -> bytes:
    return data[:start] + mutate_bytes(data[start:], random)


def _recompressed(data: bytes, random: Random) -> bytes:
    """The section changed inside and compressed again, so that the change gets past the codec."""
    try:
        section = decompress(data[22] & 7, data[HEADER_BYTES_V2:])
        return compress(data[22] & 7, mutate_bytes(section, random))
    except DecodeError:
        return data[HEADER_BYTES_V2:]


def _sized(data: bytes) -> bytes:
    return data[:8] + struct.pack(">i", len(data) - 12) + data[12:]


def _field(value: int, size: int) -> bytes:
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "big")
