"""Which partition of a coordinator topic a key belongs to.

All three topics have one rule: `Utils.abs(key.hashCode()) % partition_count`, with Java's `String.hashCode` over UTF-16
code units (GroupCoordinatorService.partitionFor, ShareCoordinatorService.partitionFor,
TransactionStateManager.partitionFor). The number of partitions is fixed when the topic is created: take it from the log
directory, not from a setting.
"""

import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.errors import LookupKeyError
from coordinator_core.replay.java.hash_codes import string_hash_code

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
"""In native byte order, to be read as an array of numbers."""


class SharePartitionKey(NamedTuple):
    """A share partition, like Kafka's SharePartitionKey: a group, and a topic partition that it reads."""

    group_id: str
    topic_id: str
    """22 characters of URL-safe base64, as Kafka prints it."""
    partition: int

    def as_coordinator_key(self) -> str:
        """`group:topicId:partition`, the key of FindCoordinator (SharePartitionKey.asCoordinatorKey)."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


Key = str | SharePartitionKey
"""A group id, or a share partition."""


def kafka_abs(number: int) -> int:
    """Kafka's `Utils.abs` of a 32-bit number: 0 for the smallest, whose absolute value does not fit."""
    return 0 if number == INT32_MIN else abs(number)


def key_partition(key: str, partition_count: int) -> int:
    """The partition of a coordinator topic that stores a coordinator key of any kind."""
    if partition_count <= 0:
        raise LookupKeyError(f"a topic has no {partition_count} partitions")
    return kafka_abs(string_hash_code(key)) % partition_count


def key_codes(keys: Sequence[str]) -> I64:
    """The numbers that `key_partition` takes modulo the number of partitions, for many keys at once."""
    raw = [key.encode(_UTF_16, "surrogatepass") for key in keys]
    lengths = np.fromiter(map(len, raw), np.int64, len(raw)) // 2
    # longest key first: the keys that have a character at a position are then a prefix of the order
    order = np.argsort(-lengths, kind="stable")
    units = np.frombuffer(b"".join(raw), np.uint16).astype(np.uint32)
    starts = (np.cumsum(lengths) - lengths)[order]
    ascending = lengths[order][::-1]
    codes = np.zeros(len(raw), np.uint32)
    for place in range(int(lengths.max(initial=0))):
        count = len(raw) - int(np.searchsorted(ascending, place, side="right"))
        codes[:count] = codes[:count] * np.uint32(31) + units[starts[:count] + place]
    found = np.empty(len(raw), np.int64)
    found[order] = np.abs(codes.view(np.int32).astype(np.int64))
    found[found == -INT32_MIN] = 0
    return found


def group_partition(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that stores a group of any type."""
    return key_partition(group_id, partition_count)


def transactional_id_partition(transactional_id: str, partition_count: int) -> int:
    """The partition of `__transaction_state` that stores a transactional id."""
    return key_partition(transactional_id, partition_count)


def share_partition_partition(key: SharePartitionKey, partition_count: int) -> int:
    """The partition of `__share_group_state` that stores a share partition."""
    return key_partition(key.as_coordinator_key(), partition_count)
