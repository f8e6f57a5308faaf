"""The two internal logs that are read record by record: `__cluster_metadata` and `__transaction_state`.

The first has the names of topic ids (TopicRecord, RemoveTopicRecord), the number of partitions of topics
(PartitionRecord), configs of groups, topics and brokers (ConfigRecord), and the levels of cluster features
(FeatureLevelRecord). The second has the topics that transactions write to.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from coordinator_core.bytes import codec
from coordinator_core.bytes.log.chunk import Finding, RecordChunk, unreadable_record_count
from coordinator_core.errors import DecodeError, UnknownRecordType
from coordinator_core.history.ledger import LedgerCounts
from coordinator_core.history.metadata_transactions import MetadataTransaction
from coordinator_core.history.rows import TopicName
from coordinator_core.limits import PARTITION_COUNT_MAX
from coordinator_core.replay.record_findings import RecordFindings
from schemas import transaction_state
from schemas.cluster_metadata import NOT_USED, ConfigResourceType, MetadataRecordType

CLUSTER_METADATA: Final = "CLUSTER_METADATA"
TRANSACTION: Final = "TRANSACTION"
"""Where the name of a topic without an id comes from: transactions write to it. The resource type for that, too."""
IS_TRANSACTIONAL: Final = "isTransactional"
"""What silver.configs has of such a topic: "true"."""
FEATURE: Final = "FEATURE"
"""Resource type for the level of a cluster feature, such as metadata.version."""

CONFIG_PREFIXES: Final = (
    "consumer.",
    "errors.deadletterqueue.",
    "group.",
    "offsets.",
    "retention.",
    "share.",
    "streams.",
)
"""Configs that decide how groups live and how long records are retained. No others are kept: broker configs contain
secrets.
"""

CONFIG_NAMES: Final = frozenset({"cleanup.policy"})


def is_kept_config(name: str) -> bool:
    """Whether silver keeps a config."""
    return name.startswith(CONFIG_PREFIXES) or name in CONFIG_NAMES


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic id whose topic was deleted, with the time (epoch ms)."""

    topic_id: str
    at: int


@dataclass(frozen=True, slots=True)
class PartitionMade:
    """A partition of a topic id that was created, with the time (epoch ms)."""

    topic_id: str
    partition: int
    at: int


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A new value of a config (ConfigRecord), None for its default; or a new level of a feature (FeatureLevelRecord),
    None if the feature was removed."""

    resource_type: str
    """GROUP, TOPIC, BROKER or FEATURE."""
    resource_name: str
    """Group id, topic, or broker id; empty for the defaults of all brokers, and for features."""
    name: str
    value: str | None
    log_offset: int
    at: int
    """Epoch ms."""


@dataclass(frozen=True, slots=True)
class SimpleLogOutput:
    topics: tuple[TopicName, ...]
    deleted: tuple[TopicDeleted, ...]
    configs: tuple[ConfigChanged, ...]
    partitions: tuple[PartitionMade, ...]
    findings: tuple[Finding, ...]
    counts: LedgerCounts


Settled = TopicName | TopicDeleted | ConfigChanged | PartitionMade
"""A record that counts once its transaction has ended."""


class ClusterMetadataReplay:
    """Topic names, partition counts, deletions and configs of `__cluster_metadata`-0.

    Records between BeginTransaction and EndTransaction (KIP-868) count once the transaction has ended; AbortTransaction
    discards them. Other record types are counted as not used if known, else as unknown; none is quarantined.
    """

    def __init__(self, pending: Sequence[Settled] | None = None) -> None:
        """Begin at the start of a log, or where another replay's `pending` was taken."""
        self._transaction = MetadataTransaction[Settled](pending)

    @property
    def pending(self) -> Sequence[Settled] | None:
        """The records of the open transaction; None if none is open. A later replay continues from them."""
        return self._transaction.pending

    def feed(self, chunk: RecordChunk) -> SimpleLogOutput:
        """What this chunk settled."""
        settled: list[Settled] = []
        unknown_field_count = 0

        def read(key: bytes | None, value: bytes | None, timestamp_ms: int, offset: int) -> bool:
            nonlocal unknown_field_count
            if value is None:
                return True
            if codec.metadata_record_type(value) in NOT_USED:
                return False
            decoded = codec.decode_metadata(value)
            unknown_field_count += codec.has_unknown_tags(decoded)
            fields = decoded.fields
            made: Settled | None = None
            match decoded.message.record_type:
                case MetadataRecordType.TOPIC:
                    made = TopicName(fields.topic_id, fields.name, timestamp_ms, CLUSTER_METADATA)
                case MetadataRecordType.PARTITION if 0 <= fields.partition_id < PARTITION_COUNT_MAX:
                    made = PartitionMade(fields.topic_id, fields.partition_id, timestamp_ms)
                case MetadataRecordType.REMOVE_TOPIC:
                    made = TopicDeleted(fields.topic_id, timestamp_ms)
                case MetadataRecordType.CONFIG:
                    made = _config_changed(fields, timestamp_ms, offset)
                case MetadataRecordType.FEATURE_LEVEL:
                    level = str(fields.feature_level) if fields.feature_level else None
                    made = ConfigChanged(FEATURE, "", fields.name, level, offset, timestamp_ms)
            settled.extend(self._transaction.take(decoded.message.record_type, made))
            return True

        findings, counts = _read_records(chunk, read, quarantines_unknown=False)
        counts = replace(counts, unknown_field_count=unknown_field_count)
        return SimpleLogOutput(
            tuple(item for item in settled if isinstance(item, TopicName)),
            tuple(item for item in settled if isinstance(item, TopicDeleted)),
            tuple(item for item in settled if isinstance(item, ConfigChanged)),
            tuple(item for item in settled if isinstance(item, PartitionMade)),
            findings,
            counts,
        )


class TransactionStateReplay:
    """The topics in the transactions of `__transaction_state`, without ids. The log cleaner leaves of each
    transactional id the newest state, which has no topics once the transaction has ended.
    """

    def feed(self, chunk: RecordChunk) -> SimpleLogOutput:
        unknown_field_count = 0
        since: dict[str, int] = {}

        def read(key: bytes | None, value: bytes | None, timestamp_ms: int, offset: int) -> bool:
            nonlocal unknown_field_count
            decoded = codec.decode_key(transaction_state.TOPIC, key or b"")
            if value is not None:
                state = codec.decode_value(transaction_state.TOPIC, decoded.record_type, value)
                unknown_field_count += codec.has_unknown_tags(state)
                for written in state.fields.transaction_partitions or ():
                    since[written.topic] = min(since.get(written.topic, timestamp_ms), timestamp_ms)
            return True

        findings, counts = _read_records(chunk, read, quarantines_unknown=True)
        counts = replace(counts, unknown_field_count=unknown_field_count)
        topics = tuple(TopicName("", topic, at, TRANSACTION) for topic, at in sorted(since.items()))
        return SimpleLogOutput(topics, (), (), (), findings, counts)


def _config_changed(fields: Any, timestamp_ms: int, offset: int) -> ConfigChanged | None:
    """The change in a ConfigRecord; None if silver does not keep the config."""
    if fields.resource_type not in _RESOURCE_TYPES:
        return None
    if not is_kept_config(fields.name):
        return None
    resource_type = ConfigResourceType(fields.resource_type).name
    return ConfigChanged(resource_type, fields.resource_name, fields.name, fields.value, offset, timestamp_ms)


_RESOURCE_TYPES: Final = frozenset({ConfigResourceType.GROUP, ConfigResourceType.TOPIC, ConfigResourceType.BROKER})


def _read_records(
    chunk: RecordChunk, read: Callable[[bytes | None, bytes | None, int, int], bool], *, quarantines_unknown: bool
) -> tuple[tuple[Finding, ...], LedgerCounts]:
    """Call `read(key, value, timestamp_ms, offset)` on every data record. It returns whether the record's type is used;
    a record that it cannot decode becomes a finding."""
    findings = RecordFindings()
    not_used_count = decoded_count = tombstone_count = control_count = unknown_count = quarantined_count = 0
    for row, is_control, key, value in _records(chunk):
        if is_control:
            control_count += 1
            continue
        try:
            is_used = read(key, value, int(chunk.records.timestamp_ms[row]), int(chunk.records.offset[row]))
        except DecodeError as error:
            is_unknown = isinstance(error, UnknownRecordType)
            unknown_count += is_unknown
            quarantined_count += not is_unknown
            if quarantines_unknown or not is_unknown:
                findings.add(chunk, row, error, value if value is not None else key or b"")
        else:
            tombstone_count += value is None
            decoded_count += value is not None and is_used
            not_used_count += not is_used
    return (*chunk.findings, *findings.taken()), LedgerCounts(
        record_count=int(chunk.batches.record_count.sum()),
        decoded_count=decoded_count,
        tombstone_count=tombstone_count,
        control_count=control_count,
        unknown_type_count=unknown_count,
        quarantined_count=quarantined_count + unreadable_record_count(chunk),
        not_used_count=not_used_count,
    )


def _records(chunk: RecordChunk) -> Iterator[tuple[int, bool, bytes | None, bytes | None]]:
    records, data = chunk.records, chunk.data
    is_control = chunk.batches.is_control[records.batch_index]
    places = zip(
        is_control.tolist(),
        records.key_position.tolist(),
        records.key_length.tolist(),
        records.value_position.tolist(),
        records.value_length.tolist(),
        strict=True,
    )
    for row, (control, key_position, key_length, value_position, value_length) in enumerate(places):
        key = None if key_length < 0 else data[key_position : key_position + key_length].tobytes()
        value = None if value_length < 0 else data[value_position : value_position + value_length].tobytes()
        yield row, control, key, value
