"""Group types, as the tables name them."""

from enum import StrEnum


class GroupType(StrEnum):
    """`group_type` of silver and gold: Kafka's GroupType."""

    CLASSIC = "CLASSIC"
    CONSUMER = "CONSUMER"
    SHARE = "SHARE"
    STREAMS = "STREAMS"
