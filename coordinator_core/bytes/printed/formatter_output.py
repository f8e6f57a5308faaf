"""Encodes records from the JSON that Kafka's tools print.

Two tools print the same JSON: the console consumer's formatters (OffsetsMessageFormatter,
GroupMetadataMessageFormatter, TransactionLogMessageFormatter, ShareGroupStateMessageFormatter) for each record, and
kafka-dump-log for each record of a batch (`dump_log_output.py`). Both print fields with the generated JsonConverter
classes, so kafka_json reads them back. What a JsonConverter leaves out (unknown tagged fields, bytes after the last
field) is lost. A tool of a later Kafka prints fields that are not declared here and whose encoding is unknown: the
record is read without them, and their names are reported.

Since 4.4 the tools print the status of a transaction by its name (TransactionState.stateName).

kafka-dump-log also decodes the subscriptions and assignments of the members of a classic consumer group
(DumpLogSegments.OffsetsMessageParser), without printing their versions. The version of a subscription follows from its
fields, that of an assignment does not: the caller gives it as `assignment_version`.

Sources: CoordinatorRecordMessageFormatter and its subclasses, DumpLogSegments.
"""

import binascii
import json
import re
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.codec import Struct, encode, encode_key, encode_metadata, encode_value
from coordinator_core.bytes.printed.kafka_json import from_json
from coordinator_core.errors import EncodeError, LaterKafka, UnreadMetadataType
from schemas import cluster_metadata, consumer_offsets, share_group_state, transaction_state, wire
from schemas.client_protocols import CONSUMER_PROTOCOL_ASSIGNMENT, CONSUMER_PROTOCOL_SUBSCRIPTION
from schemas.consumer_offsets import RecordType
from schemas.registry import METADATA, REGISTRY

Json = Any

ASSIGNMENT_VERSIONS: Final = (3, 2, 1, 0)
"""Versions of ConsumerProtocolAssignment, all with one layout. Clients of Kafka 3.5 and later write 3."""

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

INT16: Final = struct.Struct(">h")

NOT_JSON: Final = "not the JSON which Kafka's tools print"


class FormatterRecord(NamedTuple):
    """A record that a formatter printed, with everything that its line contains."""

    topic: str
    coordinator_key: str
    """The key by which Kafka chooses the partition: group id, `group:topicId:partition` or transactional id."""
    key: bytes
    value: bytes | None
    left_out: frozenset[str] = frozenset()
    """Names of fields of a later Kafka that the value lacks."""


def parse_json(text: str) -> Json:
    """Parse one JSON text. Raises EncodeError if it is not JSON, or is nested too deep for Python."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EncodeError(NOT_JSON) from error


_DECODER: Final = json.JSONDecoder()


def parse_json_at(text: str, position: int) -> tuple[Json, int]:
    """The JSON value that starts at `position`, and where it ends. Raises EncodeError like `parse_json`."""
    try:
        return _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError) as error:
        raise EncodeError(NOT_JSON) from error


def encode_formatter_json(
    topic: str, key: Json, value: Json, *, assignment_version: int, left_out: set[str] | None = None
) -> tuple[bytes, bytes | None]:
    """Key and value of a record of a coordinator topic; a `value` of None is a tombstone.

    Raises LaterKafka for a type or version that is not declared, EncodeError for fields that the version does not have.
    Where `left_out` is given, fields of the value that a later Kafka may have added are put into it instead.
    """
    record_type = _number(key, "type")
    if record_type not in REGISTRY[topic]:
        raise LaterKafka(f"record type {record_type} is not one of {topic}")
    key_message, value_message = REGISTRY[topic][record_type]
    key_fields = from_json(_data_of(key), key_message, 0)
    key_bytes = encode_key(topic, record_type, key_fields)
    if value is None:
        return key_bytes, None
    version = _number(value, "version")
    if version not in wire.message_versions(value_message):
        raise LaterKafka(f"{value_message.name} has no version {version}", _group_of(key_fields))
    data = _data_of(value)
    if topic == consumer_offsets.TOPIC and record_type == RecordType.GROUP_METADATA:
        data = _with_client_protocols(data, assignment_version)
    if topic == transaction_state.TOPIC:
        data = _with_status_code(data)
    fields = from_json(data, value_message, version, left_out=left_out)
    return key_bytes, encode_value(topic, record_type, version, fields)


def _group_of(key: Struct) -> str | None:
    return getattr(key, "group_id", None) or getattr(key, "group", None)


def _with_status_code(data: Mapping[str, Json]) -> Mapping[str, Json]:
    """TransactionLogValue with its status as a code, whether the tool printed the code or the name."""
    status = data.get(_TRANSACTION_STATUS)
    if not isinstance(status, str):
        return data
    if status not in _STATUS_BY_NAME:
        raise LaterKafka("a status which no transaction has")
    return {**data, _TRANSACTION_STATUS: _STATUS_BY_NAME[status]}


_TRANSACTION_STATUS: Final = "transactionStatus"
_STATUS_BY_NAME: Final[Mapping[str, int]] = {
    status.name.title().replace("_", ""): int(status) for status in transaction_state.TransactionStatus
}
"""Status codes by names such as `PrepareCommit`, as TransactionState spells them."""


def has_client_protocols(topic: str, key: Json, value: Json) -> bool:
    """Whether a printed value has a decoded assignment, so that its version is an assumption."""
    try:
        if topic != consumer_offsets.TOPIC or _number(key, "type") != RecordType.GROUP_METADATA or value is None:
            return False
        return any(isinstance(member["assignment"], dict) for member in value["data"]["members"])
    except (EncodeError, TypeError, KeyError):
        return False


def encode_metadata_json(node: Json, left_out: set[str] | None = None) -> bytes:
    """The value of a record of the metadata log, as kafka-dump-log --cluster-metadata-decoder prints it.

    Raises UnreadMetadataType for the many types that this project does not read, EncodeError for what is not a record.
    `left_out`: as in `encode_formatter_json`.
    """
    name = node.get("type") if isinstance(node, dict) else None
    if not isinstance(name, str):
        raise EncodeError(NOT_JSON)
    message = _METADATA_BY_NAME.get(name)
    if message is None:
        raise UnreadMetadataType("a type of the metadata log which is not read")
    version = _number(node, "version")
    if version not in wire.message_versions(message):
        raise LaterKafka(f"{message.name} has no version {version}")
    return encode_metadata(message, from_json(_data_of(node), message, version, left_out=left_out), version)


def formatter_record(node: Json) -> FormatterRecord:
    """The record of an object `{"key": {"type", "data"}, "value": {"version", "data"}}`, with null for a tombstone.

    The names of the key's fields identify the topic. Raises EncodeError if the object has another shape.
    """
    if not is_formatter_object(node):
        raise EncodeError(NOT_JSON)
    names = node["key"]["data"]
    if "transactionalId" in names:
        topic, parts = transaction_state.TOPIC, [names["transactionalId"]]
    elif "topicId" in names:
        topic = share_group_state.TOPIC
        parts = [names.get(name) for name in ("groupId", "topicId", "partition")]
    else:
        topic, parts = consumer_offsets.TOPIC, [names.get("group", names.get("groupId"))]
    left_out: set[str] = set()
    key, value = encode_formatter_json(
        topic, node["key"], node.get("value"), assignment_version=ASSIGNMENT_VERSIONS[0], left_out=left_out
    )
    return FormatterRecord(topic, ":".join(map(str, parts)), key, value, frozenset(left_out))


def is_formatter_object(node: Json) -> bool:
    """Whether an object has the shape that the formatters print."""
    if not isinstance(node, dict) or not isinstance(node.get("key"), dict):
        return False
    return isinstance(node["key"].get("data"), dict) and "type" in node["key"] and "value" in node


def _number(node: Json, name: str) -> int:
    """The number in `type` or `version`: formatters print a number, kafka-dump-log a string."""
    value = node.get(name) if isinstance(node, dict) else None
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if type(value) is not int:
        raise EncodeError(NOT_JSON)
    return value


_DIGITS: Final = re.compile(r"[0-9]{1,5}", re.ASCII)


def _data_of(node: Json) -> Mapping[str, Json]:
    value = node.get("data") if isinstance(node, dict) else None
    if not isinstance(value, dict):
        raise EncodeError(NOT_JSON)
    return value


def _metadata_name(message: wire.Message) -> str:
    """`TopicRecord` -> `TOPIC_RECORD`, as MetadataRecordType spells it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message.name).upper()


_METADATA_BY_NAME: Final = {_metadata_name(message): message for message in METADATA.values()}

METADATA_TOPIC: Final = cluster_metadata.TOPIC


def _with_client_protocols(data: Mapping[str, Json], assignment_version: int) -> Mapping[str, Json]:
    """GroupMetadataValue with its members' decoded subscriptions and assignments encoded again."""
    members = data.get("members")
    if data.get("protocolType") != CONSUMER_PROTOCOL_TYPE or not isinstance(members, list):
        return data
    return {**data, "members": [_closed(member, assignment_version) for member in members]}


def _closed(member: Json, assignment_version: int) -> Json:
    if not isinstance(member, dict):
        raise EncodeError(NOT_JSON)
    closed = dict(member)
    subscription, assignment = member.get("subscription"), member.get("assignment")
    if isinstance(subscription, dict):
        version = _subscription_version(subscription)
        closed["subscription"] = _prefixed(CONSUMER_PROTOCOL_SUBSCRIPTION, subscription, version)
    if isinstance(assignment, dict):
        closed["assignment"] = _prefixed(CONSUMER_PROTOCOL_ASSIGNMENT, assignment, assignment_version)
    return closed


def _subscription_version(subscription: Mapping[str, Json]) -> int:
    """The first version that has all of the fields: a JsonConverter prints every field of its version."""
    for version, name in ((3, "rackId"), (2, "generationId"), (1, "ownedPartitions")):
        if name in subscription:
            return version
    return 0


def _prefixed(message: wire.Message, node: Mapping[str, Json], version: int) -> str:
    """What a JsonConverter would have printed for the bytes field: base64 of the version and the fields."""
    payload = INT16.pack(version) + encode(message, from_json(node, message, version), version)
    return binascii.b2a_base64(payload, newline=False).decode("ascii")
