"""Dead letters of share groups (KIP-1191): the headers of a copy, and why a record was copied."""

from enum import StrEnum
from typing import Final, NamedTuple


class DeadLetterCause(StrEnum):
    """Why records are copied to the dead letter topic (ShareGroupDLQManager)."""

    REJECTED = "Offset rejected by client."
    DELIVERY_LIMIT = "Offset delivery count exceeded the threshold."


HEADER_TOPIC: Final = "__dlq.errors.topic"
HEADER_PARTITION: Final = "__dlq.errors.partition"
HEADER_OFFSET: Final = "__dlq.errors.offset"
HEADER_GROUP: Final = "__dlq.errors.group"
HEADER_DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
HEADER_MESSAGE: Final = "__dlq.errors.message"


class DeadLetterOrigin(NamedTuple):
    """The original of a dead letter."""

    group_id: str
    topic: str
    partition: int
    offset: int
