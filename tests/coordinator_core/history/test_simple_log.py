"""What is read of `__cluster_metadata`, from records made by the codec."""

import numpy as np

from coordinator_core.bytes import codec
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.history.rows import TopicName
from coordinator_core.history.simple_log import (
    ClusterMetadataReplay,
    ConfigChanged,
    PartitionMade,
    SimpleLogOutput,
    TransactionStateReplay,
)
from schemas import cluster_metadata as metadata
from schemas.cluster_metadata import ConfigResourceType
from schemas.transaction_state import TransactionStatus
from simulator.simulation.clock import EventLoop
from simulator.simulation.other_logs import TransactionLogs
from simulator.simulation.scenario import ClusterSpec
from tests.jobs.builders import batch

EMPTY, ONGOING = TransactionStatus.EMPTY, TransactionStatus.ONGOING

GROUP = ConfigResourceType.GROUP
AT = 1_700_000_000_000


def config(resource_type: int, resource_name: str, name: str, value: str | None) -> bytes:
    message = metadata.CONFIG_RECORD
    fields = codec.make(message, resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    return codec.encode_metadata(message, fields, 0)


BEGIN = codec.encode_metadata(metadata.BEGIN_TRANSACTION_RECORD, codec.make(metadata.BEGIN_TRANSACTION_RECORD), 0)
END = codec.encode_metadata(metadata.END_TRANSACTION_RECORD, codec.make(metadata.END_TRANSACTION_RECORD), 0)
ABORT = codec.encode_metadata(metadata.ABORT_TRANSACTION_RECORD, codec.make(metadata.ABORT_TRANSACTION_RECORD), 0)


def replayed(*values: bytes) -> SimpleLogOutput:
    data = b"".join(batch(offset, value=value) for offset, value in enumerate(values))
    return ClusterMetadataReplay().feed(decode_chunk(np.frombuffer(data, np.uint8), bytes_max=1 << 20))


def test_config_of_a_group_is_reported_with_its_place() -> None:
    """A value, and its return to the default, each with offset and time."""
    limit = "share.delivery.count.limit"
    output = replayed(config(GROUP, "g", limit, "7"), config(GROUP, "g", limit, None))
    assert output.configs == (
        ConfigChanged("GROUP", "g", limit, "7", 0, AT),
        ConfigChanged("GROUP", "g", limit, None, 1, AT),
    )
    assert output.counts.decoded_count == 2


def test_configs_which_may_hold_secrets_are_not_kept() -> None:
    """Of a broker only what concerns groups is kept; a key store's password is not."""
    output = replayed(
        config(ConfigResourceType.BROKER, "", "listener.name.x.ssl.keystore.password", "secret"),
        config(ConfigResourceType.CLIENT_METRICS, "c", "share.any", "1"),
        config(ConfigResourceType.BROKER, "", "group.share.delivery.count.limit", "6"),
    )
    assert [(change.resource_type, change.name, change.value) for change in output.configs] == [
        ("BROKER", "group.share.delivery.count.limit", "6")
    ]


def test_configs_of_a_transaction_count_once_it_has_ended() -> None:
    """KIP-868: what is between begin and abort never was; after the end it all is."""
    inside = config(GROUP, "g", "share.heartbeat.interval.ms", "1")
    assert replayed(BEGIN, inside).configs == ()
    assert replayed(BEGIN, inside, ABORT).configs == ()
    assert [change.log_offset for change in replayed(BEGIN, inside, END).configs] == [1]


def made(topic_id: str, partition: int) -> bytes:
    message = metadata.PARTITION_RECORD
    fields = codec.make(message, topic_id=topic_id, partition_id=partition, replicas=(1,), isr=(1,), leader=1)
    return codec.encode_metadata(message, fields, 2)


def test_partitions_are_reported_when_they_were_made() -> None:
    """Each PartitionRecord, once its transaction has ended; one with a number that no partition has
    tells nothing."""
    topic_id = "tmyj-FEYST-VyJ_du8dc1w"
    output = replayed(
        made(topic_id, 0),
        BEGIN,
        made(topic_id, 1),
        ABORT,
        BEGIN,
        made(topic_id, 2),
        END,
        made(topic_id, -1),
        made(topic_id, 2**31 - 1),
    )
    assert output.partitions == (PartitionMade(topic_id, 0, AT), PartitionMade(topic_id, 2, AT))
    assert output.counts.unknown_type_count == 0


def test_records_that_are_not_needed_are_not_unknown() -> None:
    """Every type of Kafka 4.3 is declared or known not to be needed; one of a later version is of an unknown type."""
    declared = {int(message.record_type or 0) for message in metadata.MESSAGES}
    assert declared | metadata.NOT_USED == {*range(29)} - {6, 13, 16}
    assert not declared & metadata.NOT_USED
    register_broker, no_op, later = (bytes((1, number, 0, 0)) for number in (0, 20, 99))
    counts = replayed(register_broker, no_op, config(GROUP, "g", "share.any", "1"), later).counts
    assert (counts.not_used_count, counts.decoded_count, counts.unknown_type_count) == (2, 1, 1)
    assert counts.is_balanced and counts.quarantined_count == 0


def feature(name: str, level: int) -> bytes:
    fields = codec.make(metadata.FEATURE_LEVEL_RECORD, name=name, feature_level=level)
    return codec.encode_metadata(metadata.FEATURE_LEVEL_RECORD, fields, 0)


def test_levels_of_features_are_reported_as_configs_are() -> None:
    """Each with its place, once its transaction has ended; level 0 takes the feature away."""
    version = "metadata.version"
    output = replayed(feature(version, 30), BEGIN, feature(version, 33), ABORT, feature("share.version", 0))
    assert output.configs == (
        ConfigChanged("FEATURE", "", version, "30", 0, AT),
        ConfigChanged("FEATURE", "", "share.version", None, 4, AT),
    )


def test_topics_of_transactions_are_reported_once() -> None:
    """Each with its earliest time, by name, since a transaction has no topic ids; a closed one has no topics."""
    logs = TransactionLogs(ClusterSpec(transaction_state_partitions=1), EventLoop(AT))
    for status, topics in ((EMPTY, ()), (ONGOING, ("out", "__consumer_offsets")), (ONGOING, ("out",)), (EMPTY, ())):
        logs.write("producer", status, 1, 0, [(topic, 0) for topic in topics])
    data = b"".join(stored.data for stored in logs.logs[0].stored_batches())
    output = TransactionStateReplay().feed(decode_chunk(np.frombuffer(data, np.uint8), bytes_max=1 << 20))
    assert output.topics == tuple(TopicName("", topic, AT, "TRANSACTION") for topic in ("__consumer_offsets", "out"))
    assert output.counts.decoded_count == 4
