"""Hash codes and natural orders of Java's and Kafka's types, as JDK 17 to 25 compute them."""

import struct
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from coordinator_core.bytes.codec import uuid_bytes

UINT32_MASK: Final = 0xFFFF_FFFF
INT32_SIGN: Final = 0x8000_0000
HASH_CACHE_SIZE: Final = 65_536

_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
"""In native byte order, to be read as an array of numbers."""

K = TypeVar("K")
HashCode = Callable[[K], int]
"""Java's `hashCode`, signed or unsigned: only the low 32 bits count."""


class TopicIdPartition(NamedTuple):
    """A partition by topic id, like `org.apache.kafka.server.common.TopicIdPartition`."""

    topic_id: str
    partition: int


def signed(code: int) -> int:
    """The low 32 bits as Java's int."""
    return ((code & UINT32_MASK) ^ INT32_SIGN) - INT32_SIGN


@lru_cache(maxsize=HASH_CACHE_SIZE)
def string_hash_code(text: str) -> int:
    """`String.hashCode`: s[0]*31^(n-1) + ... + s[n-1] over UTF-16 code units, signed."""
    code = 0
    for unit in memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H"):
        code = (code * 31 + unit) & UINT32_MASK
    return signed(code)


def integer_hash_code(number: int) -> int:
    """`Integer.hashCode`."""
    return number


@lru_cache(maxsize=HASH_CACHE_SIZE)
def uuid_order(topic_id: str) -> tuple[int, int]:
    """The sort key of `Uuid.compareTo`: the upper and the lower half, both signed. It differs from the order of the
    texts.
    """
    most_significant, least_significant = struct.unpack(">qq", uuid_bytes(topic_id))
    return most_significant, least_significant


@lru_cache(maxsize=HASH_CACHE_SIZE)
def uuid_hash_code(topic_id: str) -> int:
    """`Uuid.hashCode` of a topic id in its usual 22 characters."""
    most_significant, least_significant = uuid_order(topic_id)
    halves = most_significant ^ least_significant
    return ((halves >> 32) ^ halves) & UINT32_MASK


def topic_id_partition_hash_code(partition: TopicIdPartition) -> int:
    """`TopicIdPartition.hashCode`: it is a Java record, whose hash code in the JDK is 31 * first + second."""
    return 31 * uuid_hash_code(partition.topic_id) + partition.partition


def topic_partition_hash_code(partition: tuple[str, int]) -> int:
    """`org.apache.kafka.common.TopicPartition.hashCode` of (topic, partition)."""
    topic, number = partition
    return 31 * (31 + number) + string_hash_code(topic)


def share_partition_key_hash_code(key: tuple[str, str, int]) -> int:
    """`SharePartitionKey.hashCode` of (group id, topic id, partition); the topic partition in it has no name."""
    group_id, topic_id, number = key
    topic_id_partition = 31 * (31 + uuid_hash_code(topic_id)) + topic_partition_hash_code(("", number))
    return 31 * (31 + string_hash_code(group_id)) + topic_id_partition


def string_order(text: str) -> bytes:
    """The sort key of `String.compareTo`: UTF-16 code units, not code points as in Python."""
    return text.encode("utf-16-be", "surrogatepass")
