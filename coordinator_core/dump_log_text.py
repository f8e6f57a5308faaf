"""Keys and values as text, as kafka-dump-log printed them before Kafka 3.8 (transactions before 4.0), instead of JSON.

  key: offset::GROUP:TOPIC:PARTITION             payload: OFFSET[:METADATA]                       0.9 to 2.3
  key: offset_commit::group=GROUP,partition=T-P  payload: offset=OFFSET[,metadata=METADATA]       2.4 to 3.7
  key: metadata::GROUP | {"metadata":"GROUP"} | group_metadata::group=GROUP
  key: [transaction_metadata::]transactionalId=ID

The text lacks some fields, but the line also has the sizes of key and value. They prove where a text ends, where a name
with separators in it was to be cut, and which version a value has. Fields that are not printed get Kafka's value for
"none": commit and expiry times, the leader epoch, a group's state time, a transaction's start. A group with members is
printed without leader, clients, timeouts and subscriptions, so no record is made from it.

Sources: DumpLogSegments and GroupMetadataManager.formatRecordKeyAndValue of 0.10.2 to 3.5;
TransactionLog.formatRecordKeyAndValue.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from coordinator_core.errors import EncodeError, UnprintedFields
from coordinator_core.formatter_output import ASSIGNMENT_VERSIONS, encode_formatter_json, parse_json
from schemas import consumer_offsets, transaction_state
from schemas.consumer_offsets import RecordType

KEY: Final = " key: "
PAYLOAD: Final = " payload: "
DELETE: Final = "<DELETE>"

KEY_BYTES_MAX: Final = 2 + 2 * (2 + 2**15) + 4
"""Largest key with two names: their lengths are int16."""
WORDS_MAX: Final = 64
"""By how many characters a printed key may exceed the key's bytes: the words around its names, and digits."""
ESCAPED_MAX: Final = 6
"""Characters of a JSON escape."""
UTF_8_MAX: Final = 4
"""Bytes of one character."""
NO_TIME: Final = -1
"""The value of times and leader epochs that are not printed."""

Json = Mapping[str, Any]


class PrintedKey(NamedTuple):
    """A key, and the name in it."""

    record_type: int
    data: Json
    name: str
    """Group id or transactional id."""


def text_record(topic: str, text: str, key_size: int, value_size: int) -> tuple[bytes, bytes | None]:
    """Key and value from the end of a record line, beginning at ` key: `. Sizes are in bytes, -1 for null.

    Raises UnprintedFields, with the group, where the line lacks fields that the record needs; EncodeError for all other
    text.
    """
    if topic not in _KEYS:
        raise EncodeError("no text of such a record is known")
    if not text.startswith(KEY):
        if value_size < 0 <= key_size:
            raise UnprintedFields("a tombstone whose key is not printed", None)
        raise EncodeError("no key is printed")
    candidates = list(_candidates(topic, text.removeprefix(KEY), key_size))
    if not candidates:
        raise EncodeError("no key and payload of the printed sizes")
    fault = EncodeError("a payload that does not have the printed size")
    for key, payload in candidates:
        key_node = {"type": int(key.record_type), "data": key.data}
        try:
            value_node = _value(topic, key, payload, value_size)
            return encode_formatter_json(topic, key_node, value_node, assignment_version=ASSIGNMENT_VERSIONS[0])
        except UnprintedFields:
            raise
        except EncodeError as error:
            fault = error
    raise fault


def _candidates(topic: str, text: str, key_size: int) -> Iterator[tuple[PrintedKey, str]]:
    """Each key and payload that the text can be cut into, with the key of the given size."""
    if not 0 <= key_size <= KEY_BYTES_MAX:
        return
    is_json = text.startswith(_GROUP_KEY_JSON)
    length_max = ESCAPED_MAX * key_size + len(_GROUP_KEY_JSON) if is_json else key_size + WORDS_MAX
    length_min = key_size if text.isascii() else key_size // UTF_8_MAX
    position = text.find(PAYLOAD, length_min, length_max + len(PAYLOAD))
    while position >= 0:
        key = _key(topic, text[:position]) if not is_json or text.endswith('"}', 0, position) else None
        if key is not None and _key_size(topic, key) == key_size:
            yield key, text[position + len(PAYLOAD) :]
        position = text.find(PAYLOAD, position + 1, length_max + len(PAYLOAD))


_OFFSET_KEYS: Final = (
    re.compile(r"offset::(?P<group>.*):(?P<topic>[^:]*):(?P<partition>[0-9]{1,10})", re.ASCII | re.DOTALL),
    re.compile(
        r"offset_commit::group=(?P<group>.*),partition=(?P<topic>[^,]*)-(?P<partition>[0-9]{1,10})",
        re.ASCII | re.DOTALL,
    ),
)
_GROUP_KEYS: Final = ("metadata::", "group_metadata::group=")
_GROUP_KEY_JSON: Final = '{"metadata":'
_TRANSACTION_KEYS: Final = ("transactionalId=", "transaction_metadata::transactionalId=")


def _offsets_key(text: str) -> PrintedKey | None:
    for pattern in _OFFSET_KEYS:
        match = pattern.fullmatch(text)
        if match:
            data = {"group": match["group"], "topic": match["topic"], "partition": int(match["partition"])}
            return PrintedKey(RecordType.OFFSET_COMMIT, data, match["group"])
    group = next((text.removeprefix(it) for it in _GROUP_KEYS if text.startswith(it)), None)
    if group is None and text.startswith(_GROUP_KEY_JSON):
        node = parse_json(text)
        group = node.get("metadata") if isinstance(node, dict) else None
    return PrintedKey(RecordType.GROUP_METADATA, {"group": group}, group) if isinstance(group, str) else None


def _transaction_key(text: str) -> PrintedKey | None:
    name = next((text.removeprefix(it) for it in _TRANSACTION_KEYS if text.startswith(it)), None)
    kind = transaction_state.TRANSACTION_LOG
    return None if name is None else PrintedKey(kind, {"transactionalId": name}, name)


_KEYS: Final = {consumer_offsets.TOPIC: _offsets_key, transaction_state.TOPIC: _transaction_key}


def _key(topic: str, text: str) -> PrintedKey | None:
    try:
        return _KEYS[topic](text)
    except EncodeError:
        return None


def _key_size(topic: str, key: PrintedKey) -> int:
    """Bytes of the encoded key: its type, then its fields."""
    node = {"type": int(key.record_type), "data": key.data}
    try:
        return len(encode_formatter_json(topic, node, None, assignment_version=ASSIGNMENT_VERSIONS[0])[0])
    except EncodeError:
        return -1


def _value(topic: str, key: PrintedKey, payload: str, size: int) -> Json | None:
    if size < 0:
        if payload != DELETE:
            raise EncodeError("a payload where the size says that there is none")
        return None
    if topic == transaction_state.TOPIC:
        return _transaction(payload, size)
    return _commit(payload, size) if key.record_type == RecordType.OFFSET_COMMIT else _group(key.name, payload, size)


_COMMITS: Final = (
    re.compile(r"offset=(?P<offset>-?[0-9]{1,19})(?:,metadata=(?P<metadata>.*))?", re.ASCII | re.DOTALL),
    re.compile(r"(?P<offset>-?[0-9]{1,19})(?::(?P<metadata>.*))?", re.ASCII | re.DOTALL),
)
_COMMIT_VERSIONS: Final[Mapping[int, tuple[int, Json]]] = {
    2 + 8 + 2 + 8: (2, {}),
    2 + 8 + 2 + 8 + 8: (1, {"expireTimestamp": NO_TIME}),
    2 + 8 + 4 + 2 + 8: (3, {"leaderEpoch": NO_TIME}),
}
"""By the size of a value without metadata (version, offset, length of the metadata, commit time, and the version's
other fields): version and defaults. Versions 0 and 2 have the same layout."""


_LOST: Final = ("?", "\N{REPLACEMENT CHARACTER}")
"""What a console prints for characters that it does not have."""
_LOST_BYTES_MAX: Final = 3


def _commit(payload: str, size: int) -> Json:
    match = next(filter(None, (pattern.fullmatch(payload) for pattern in _COMMITS)), None)
    if match is None:
        raise EncodeError("no offset commit of the printed form")
    metadata = match["metadata"] or ""
    rest = size - len(metadata.encode(errors="replace"))
    # each lost character may have been longer, so that another version may fit as well
    slack = _LOST_BYTES_MAX * sum(map(metadata.count, _LOST))
    fitting = [it for it in _COMMIT_VERSIONS if 0 <= rest - it <= slack]
    if fitting != [rest]:
        raise EncodeError("metadata of another size than what is printed")
    version, more = _COMMIT_VERSIONS[rest]
    fields = {"offset": int(match["offset"]), "metadata": metadata, "commitTimestamp": NO_TIME, **more}
    return {"version": version, "data": fields}


_GROUP_FIELDS: Final = ("protocolType", "protocol", "generationId", "assignment")
_GROUP_TEXT: Final = re.compile(r":(-?[0-9]{1,10}):(?=\{)", re.ASCII)
_NULL: Final = "null"
_NO_MEMBERS: Final = "{}"
_EMPTY_GROUP_BYTES: Final = 2 + 2 + 4 + 2 + 2 + 4
"""Size of a value without members: version, length of the protocol type, generation, null protocol and leader,
count."""
_STATE_TIME_BYTES: Final = 8


def _group(group_id: str, payload: str, size: int) -> Json:
    """A group without members: everything is printed except its state time (version 2)."""
    protocol_type, protocol, generation, assignment = _group_fields(payload)
    if assignment != _NO_MEMBERS:
        raise UnprintedFields(
            "a group with members, of which leader, clients, time-outs and subscriptions are not printed", group_id
        )
    bytes_left = size - _EMPTY_GROUP_BYTES - len(protocol_type.encode(errors="replace"))
    # tools that print no JSON leave out the protocol type, and have no state time that could explain the extra bytes
    possible = (0, _STATE_TIME_BYTES) if payload.startswith("{") else (0,)
    if protocol is not None or bytes_left not in possible:
        raise UnprintedFields("a group without members, of which not all fields are printed", group_id)
    fields = {"protocolType": protocol_type, "generation": generation, "protocol": None, "leader": None, "members": []}
    if not bytes_left:
        return {"version": 1, "data": fields}
    return {"version": 2, "data": {**fields, "currentStateTimestamp": NO_TIME}}


def _group_fields(payload: str) -> tuple[str, str | None, int, str]:
    if payload.startswith("{"):
        node = parse_json(payload)
        found = [node.get(name) for name in _GROUP_FIELDS] if isinstance(node, dict) else []
    else:
        # the assignment of a large group has thousands of colons: the first place that fits is taken
        match = _GROUP_TEXT.search(payload)
        kind, _, chosen = payload[: match.start()].rpartition(":") if match else ("", "", "")
        found = (
            [] if match is None else [kind, None if chosen == _NULL else chosen, int(match[1]), payload[match.end() :]]
        )
    match found:
        case [str() as protocol_type, str() | None as protocol, int() as generation, str() as assignment]:
            return protocol_type, protocol, generation, assignment
    raise EncodeError("no group of the printed form")


_TRANSACTION: Final = re.compile(
    r"producerId:(?P<producerId>-?[0-9]{1,19}),producerEpoch:(?P<producerEpoch>-?[0-9]{1,5}),state=(?P<state>\w+),"
    r"partitions=(?:\[|\w*Set\()(?P<partitions>.*)[\])],"
    r"txnLastUpdateTimestamp=(?P<updated>-?[0-9]{1,19}),txnTimeoutMs=(?P<timeout>-?[0-9]{1,10})",
    re.ASCII,
)
_TRANSACTION_BYTES: Final = 2 + 8 + 2 + 4 + 1 + 4 + 8 + 8
"""Size of version 0 without partitions."""


def _transaction(payload: str, size: int) -> Json:
    match = _TRANSACTION.fullmatch(payload)
    if match is None:
        raise EncodeError("no transaction of the printed form")
    topics: dict[str, list[int]] = {}
    for name in filter(None, (it.strip() for it in match["partitions"].split(","))):
        topic, _, partition = name.rpartition("-")
        if not (topic and partition.isascii() and partition.isdigit() and len(partition) <= _DIGITS_MAX):
            raise EncodeError("no partition of a transaction")
        topics.setdefault(topic, []).append(int(partition))
    if size != _TRANSACTION_BYTES + sum(2 + len(it) + 4 + 4 * len(topics[it]) for it in topics):
        raise EncodeError("no transaction of the printed size")
    return {
        "version": 0,
        "data": {
            "producerId": int(match["producerId"]),
            "producerEpoch": int(match["producerEpoch"]),
            "transactionTimeoutMs": int(match["timeout"]),
            "transactionStatus": match["state"],
            "transactionPartitions": [{"topic": it, "partitionIds": topics[it]} for it in topics],
            "transactionLastUpdateTimestampMs": int(match["updated"]),
            "transactionStartTimestampMs": NO_TIME,
        },
    }


_DIGITS_MAX: Final = 10
