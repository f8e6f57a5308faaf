"""The hash of topic metadata in modern groups, by which they notice that a topic was created, enlarged or deleted.

Kafka hashes with XXH3 (64 bits, seed 0, default secret) over the bytes of hash4j's streams: numbers little-endian, text
as UTF-16 code units followed by their count (org.apache.kafka.coordinator.group.Utils.computeTopicHash,
computeGroupHash). Racks of replicas would follow each partition's number; this image of the cluster has none.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from coordinator_core.bytes.codec import uuid_bytes
from coordinator_core.live.coordinator.image import MetadataImage, Topic
from coordinator_core.replay.java.hash_codes import string_order

TOPIC_HASH_MAGIC: Final = 0
TOPIC_CACHE_SIZE: Final = 65_536


def metadata_hash(image: MetadataImage, topic_names: Iterable[str]) -> int:
    """Signed 64-bit hash of the existing ones of these topics; 0 if none exists (computeGroupHash)."""
    topics = [topic for name in sorted(set(topic_names), key=string_order) if (topic := image.topics.get(name))]
    if not topics:
        return 0
    return _signed(xxh3_64(struct.pack(f"<{len(topics)}q", *map(topic_hash, topics))))


@lru_cache(maxsize=TOPIC_CACHE_SIZE)
def topic_hash(topic: Topic) -> int:
    """Signed 64-bit hash of a topic: its id, its name and its partitions (computeTopicHash)."""
    most_significant, least_significant = struct.unpack(">qq", uuid_bytes(topic.topic_id))
    name = topic.name.encode("utf-16-le", "surrogatepass")
    count = topic.partition_count
    head = struct.pack("<bqq", TOPIC_HASH_MAGIC, most_significant, least_significant)
    tail = struct.pack(f"<ii{count}i", len(name) // 2, count, *range(count))
    return _signed(xxh3_64(head + name + tail))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


# --- XXH3 ---

MASK_64: Final = 0xFFFF_FFFF_FFFF_FFFF
MASK_32: Final = 0xFFFF_FFFF
PRIME_32: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
PRIME_64: Final = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
PRIME_MX: Final = (0x165667919E3779F9, 0x9FB21C651E98DF25)
SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
LONG_FROM_BYTES: Final = 241
STRIPE_BYTES: Final = 64
STRIPES_A_BLOCK: Final = 16
"""The number of eight-byte steps of the secret before its last stripe."""


def xxh3_64(data: bytes) -> int:
    """XXH3 of the bytes, unsigned, with seed 0: XXH3_64bits of xxHash."""
    length = len(data)
    if length >= LONG_FROM_BYTES:
        return _hash_long(data)
    if length > 128:
        return _hash_129_to_240(data)
    if length > 16:
        return _hash_17_to_128(data)
    if length > 8:
        return _hash_9_to_16(data)
    if length > 3:
        return _hash_4_to_8(data)
    if length:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        return _avalanche_64(combined ^ _u32(SECRET, 0) ^ _u32(SECRET, 4))
    return _avalanche_64(_u64(SECRET, 56) ^ _u64(SECRET, 64))


def _hash_4_to_8(data: bytes) -> int:
    value = (_u32(data, len(data) - 4) + (_u32(data, 0) << 32)) ^ _u64(SECRET, 8) ^ _u64(SECRET, 16)
    value ^= _rotated(value, 49) ^ _rotated(value, 24)
    value = value * PRIME_MX[1] & MASK_64
    value ^= (value >> 35) + len(data)
    value = value * PRIME_MX[1] & MASK_64
    return value ^ value >> 28


def _hash_9_to_16(data: bytes) -> int:
    low = _u64(data, 0) ^ _u64(SECRET, 24) ^ _u64(SECRET, 32)
    high = _u64(data, len(data) - 8) ^ _u64(SECRET, 40) ^ _u64(SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche(len(data) + swapped + high + _folded_product(low, high))


def _hash_17_to_128(data: bytes) -> int:
    """Pairs of 16 bytes from both ends towards the middle."""
    length = len(data)
    total = length * PRIME_64[0]
    for pair in range((length - 1) // 32 + 1):
        total += _mix_16(data, 16 * pair, 32 * pair) + _mix_16(data, length - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(total)


def _hash_129_to_240(data: bytes) -> int:
    length = len(data)
    total = length * PRIME_64[0] + sum(_mix_16(data, position, position) for position in range(0, 128, 16))
    total = _avalanche(total)
    for position in range(128, length - 15, 16):
        total += _mix_16(data, position, position - 128 + 3)
    return _avalanche(total + _mix_16(data, length - 16, 136 - 17))


def _hash_long(data: bytes) -> int:
    accumulators = [PRIME_32[2], *PRIME_64[:4], PRIME_32[1], PRIME_64[4], PRIME_32[0]]
    for stripe in range((len(data) - 1) // STRIPE_BYTES):
        step = stripe % STRIPES_A_BLOCK
        _accumulate(accumulators, data, STRIPE_BYTES * stripe, 8 * step)
        if step == STRIPES_A_BLOCK - 1:
            _scramble(accumulators)
    # the last 64 bytes, whether or not they are a full stripe
    _accumulate(accumulators, data, len(data) - STRIPE_BYTES, len(SECRET) - STRIPE_BYTES - 7)
    total = len(data) * PRIME_64[0]
    for pair in range(0, 8, 2):
        first, second = _u64(SECRET, 11 + 8 * pair), _u64(SECRET, 19 + 8 * pair)
        total += _folded_product(accumulators[pair] ^ first, accumulators[pair + 1] ^ second)
    return _avalanche(total)


def _accumulate(accumulators: list[int], data: bytes, position: int, secret_position: int) -> None:
    """Add one stripe of 64 bytes to the eight accumulators."""
    values = struct.unpack_from("<8Q", data, position)
    keys = struct.unpack_from("<8Q", SECRET, secret_position)
    for lane, (value, key) in enumerate(zip(values, keys, strict=True)):
        keyed = value ^ key
        accumulators[lane ^ 1] = accumulators[lane ^ 1] + value & MASK_64
        accumulators[lane] = accumulators[lane] + (keyed & MASK_32) * (keyed >> 32) & MASK_64


def _scramble(accumulators: list[int]) -> None:
    """Scramble the accumulators after a block."""
    keys = struct.unpack_from("<8Q", SECRET, len(SECRET) - STRIPE_BYTES)
    for lane, key in enumerate(keys):
        accumulators[lane] = (accumulators[lane] ^ accumulators[lane] >> 47 ^ key) * PRIME_32[0] & MASK_64


def _mix_16(data: bytes, position: int, secret_position: int) -> int:
    low, high = struct.unpack_from("<2Q", data, position)
    low_key, high_key = struct.unpack_from("<2Q", SECRET, secret_position)
    return _folded_product(low ^ low_key, high ^ high_key)


def _folded_product(left: int, right: int) -> int:
    product = left * right
    return (product ^ product >> 64) & MASK_64


def _avalanche(value: int) -> int:
    value &= MASK_64
    value = (value ^ value >> 37) * PRIME_MX[0] & MASK_64
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    """The final mix of the older XXH64, which is used for the shortest inputs."""
    value = (value ^ value >> 33) * PRIME_64[1] & MASK_64
    value = (value ^ value >> 29) * PRIME_64[2] & MASK_64
    return value ^ value >> 32


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK_64


def _u64(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "little")


def _u32(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "little")
