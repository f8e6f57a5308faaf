"""The messages of each record type, by topic: the same number has different meanings in different topics."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType, ModuleType
from typing import Final

from schemas import (
    client_protocols,
    cluster_metadata,
    consumer_offsets,
    control_records,
    share_group_state,
    transaction_state,
)
from schemas.consumer_offsets import classic, consumer, offsets, share, streams
from schemas.wire import Message, Role


def _records(*modules: ModuleType) -> Mapping[int, tuple[Message, Message]]:
    """Record type -> (key, value), of all keys and values that the modules declare."""
    pairs: defaultdict[int, dict[Role, Message]] = defaultdict(dict)
    for message in chain.from_iterable(vars(module).values() for module in modules):
        if isinstance(message, Message) and message.record_type is not None:
            pairs[message.record_type][message.role] = message
    return MappingProxyType({type_: (pair[Role.KEY], pair[Role.VALUE]) for type_, pair in sorted(pairs.items())})


CONSUMER_OFFSETS: Final = _records(offsets, classic, consumer, share, streams)

REGISTRY: Final[Mapping[str, Mapping[int, tuple[Message, Message]]]] = MappingProxyType(
    {
        consumer_offsets.TOPIC: CONSUMER_OFFSETS,
        share_group_state.TOPIC: _records(share_group_state),
        transaction_state.TOPIC: _records(transaction_state),
    }
)
"""Topic -> record type -> (key, value)."""

METADATA: Final[Mapping[int, Message]] = MappingProxyType(
    {message.record_type: message for message in cluster_metadata.MESSAGES if message.record_type is not None}
)
"""apiKey -> record of the metadata log."""

EMBEDDED: Final = (
    client_protocols.CONSUMER_PROTOCOL_SUBSCRIPTION,
    client_protocols.CONSUMER_PROTOCOL_ASSIGNMENT,
    control_records.CONTROL_RECORD_TYPE_SCHEMA,
    control_records.END_TXN_MARKER,
    control_records.LEADER_CHANGE_MESSAGE,
    client_protocols.CONNECT_PROTOCOL_METADATA,
    client_protocols.CONNECT_PROTOCOL_ASSIGNMENT,
    client_protocols.STICKY_ASSIGNOR_USER_DATA,
    client_protocols.COOPERATIVE_STICKY_ASSIGNOR_USER_DATA,
)
"""Messages inside other fields, and control records."""

MESSAGES: Final[Mapping[str, Message]] = MappingProxyType(
    {
        message.name: message
        for message in (
            *(message for topic in REGISTRY.values() for pair in topic.values() for message in pair),
            *cluster_metadata.MESSAGES,
            *EMBEDDED,
        )
    }
)
"""Every declared message, by Kafka's name."""
