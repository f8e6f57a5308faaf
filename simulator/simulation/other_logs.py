"""The other two internal logs of a cluster: `__cluster_metadata` and `__transaction_state`.

The controller's log has the names of topics, their partition counts, and the configs of topics and groups: a replay of
the coordinators' logs uses these. A setting that the scenario gives for all brokers (`[cluster]`) is written as a
config of each group: real brokers have theirs in files, which no log contains.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from coordinator_core.bytes import codec
from coordinator_core.bytes.kafka_versions import METADATA_VERSION, KafkaVersion, Since, production_level
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.replay.lookup import transactional_id_partition
from schemas import cluster_metadata as metadata
from schemas import transaction_state as transactions
from schemas.wire import Message
from simulator.simulation.clock import EventLoop
from simulator.simulation.scenario import ClusterSpec, GroupSpec, TopicSpec, coordinator_configs
from simulator.simulation.topics import replicas_of

METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Uuid.METADATA_TOPIC_ID: the same in every cluster."""
CONTROLLER_ID: Final = 1
STREAMS_RELEASE: Final = KafkaVersion(4, 2)
"""The first release whose new clusters have the streams protocol (StreamsVersion.LATEST_PRODUCTION)."""
AGE_MS: Final = 60_000
"""How long before the start of the scenario the cluster was set up."""
BATCH_RECORDS_MAX: Final = 500
TRANSACTION_TIMEOUT_MS: Final = 60_000
"""transaction.timeout.ms of the producers."""


class MetadataLog:
    """`__cluster_metadata`-0, as the controller writes it."""

    def __init__(self, spec: ClusterSpec, loop: EventLoop) -> None:
        self.log = PartitionLog(metadata.TOPIC, 0, (CONTROLLER_ID,))
        self._spec = spec
        self._loop = loop
        self._topic_ids: dict[str, str] = {}

    def set_up(self, groups: Sequence[GroupSpec]) -> None:
        """Write the configuration of the cluster before its first client: features, and the configs of groups."""
        at_ms = self._loop.now_ms - AGE_MS
        levels = {
            METADATA_VERSION: production_level(self._spec.kafka_version),
            "group.version": 1,
            "share.version": 2 if Since.ARCHIVING_IS_A_STATE.holds_in(self._spec.kafka_version) else 1,
            "transaction.version": self._spec.transaction_version,
        }
        if self._spec.kafka_version >= STREAMS_RELEASE:
            levels["streams.version"] = 1
        brokers = []
        for broker_id in range(1, self._spec.brokers + 1):
            end_point = codec.make(metadata.BROKER_ENDPOINT, name="PLAINTEXT", host=f"broker-{broker_id}", port=9092)
            brokers.append(
                _record(metadata.REGISTER_BROKER_RECORD, broker_id=broker_id, end_points=(end_point,), features=())
            )
        self._append(brokers, at_ms)
        features = [
            _record(metadata.FEATURE_LEVEL_RECORD, name=name, feature_level=level) for name, level in levels.items()
        ]
        self._append(features, at_ms)
        configs = (
            _config(metadata.ConfigResourceType.GROUP, group_id, name, value)
            for group in groups
            for group_id in group.group_ids()
            for name, value in self._group_configs(group)
        )
        self._append(configs, at_ms)

    def make_topic(
        self,
        name: str,
        topic_id: str,
        partition_count: int,
        configs: Iterable[tuple[str, str]] = (),
        *,
        at_ms: int | None = None,
    ) -> None:
        """Write a new topic; without a time, one created before the scenario starts."""
        at_ms = self._loop.now_ms - AGE_MS if at_ms is None else at_ms
        self._topic_ids[name] = topic_id
        records = [_record(metadata.TOPIC_RECORD, name=name, topic_id=topic_id)]
        records += [_config(metadata.ConfigResourceType.TOPIC, name, key, value) for key, value in configs]
        records += self._partitions(name, topic_id, range(partition_count))
        self._append(records, at_ms)

    def set_group_config(self, group_id: str, name: str, value: str) -> None:
        self._append([_config(metadata.ConfigResourceType.GROUP, group_id, name, value)], self._loop.now_ms)

    def add_partitions(self, name: str, topic_id: str, numbers: range) -> None:
        self._append(self._partitions(name, topic_id, numbers), self._loop.now_ms)

    def elect(self, name: str, number: int, leader: int | None) -> None:
        """Write the new leader of a partition; None if no broker leads it."""
        change = _record(
            metadata.PARTITION_CHANGE_RECORD,
            partition_id=number,
            topic_id=self._topic_ids[name],
            leader=metadata.NO_LEADER if leader is None else leader,
        )
        self._append([change], self._loop.now_ms)

    def remove_topic(self, topic_id: str) -> None:
        self._append([_record(metadata.REMOVE_TOPIC_RECORD, topic_id=topic_id)], self._loop.now_ms)

    def _partitions(self, name: str, topic_id: str, numbers: range) -> list[bytes]:
        records = []
        for number in numbers:
            replicas = replicas_of(name, number, self._spec.brokers)
            records.append(
                _record(
                    metadata.PARTITION_RECORD,
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                )
            )
        return records

    def _group_configs(self, group: GroupSpec) -> Iterable[tuple[str, str]]:
        spec = self._spec
        for name, number in coordinator_configs(group, spec.settings).items():
            yield name, str(number)
        if group.protocol == "share":
            lock_ms, limit = group.record_lock_duration_ms, group.delivery_count_limit
            yield "share.record.lock.duration.ms", str(lock_ms or spec.share_record_lock_duration_ms)
            yield "share.delivery.count.limit", str(limit or spec.share_delivery_count_limit)
            yield "share.partition.max.record.locks", str(group.max_record_locks)
            yield "share.renew.acknowledge.enable", str(group.renew_acknowledge).lower()
            yield "share.auto.offset.reset", group.auto_offset_reset
            yield "share.isolation.level", group.isolation_level
            if group.dead_letter_topic is not None:
                yield "errors.deadletterqueue.topic.name", group.dead_letter_topic

    def _append(self, values: Iterable[bytes], at_ms: int) -> None:
        every = list(values)
        for first in range(0, len(every), BATCH_RECORDS_MAX):
            part = every[first : first + BATCH_RECORDS_MAX]
            base_offset = self.log.end_offset
            records = [Record(base_offset + index, at_ms, None, value) for index, value in enumerate(part)]
            self.log.append(CONTROLLER_ID, build_batch(records))


class TransactionLogs:
    """`__transaction_state`: the state of each transactional id, as the transaction coordinators write it."""

    def __init__(self, spec: ClusterSpec, loop: EventLoop) -> None:
        numbers = range(spec.transaction_state_partitions)
        self.logs = [PartitionLog(transactions.TOPIC, number, (CONTROLLER_ID,)) for number in numbers]
        self._version = spec.transaction_version
        self._loop = loop

    def write(
        self,
        transactional_id: str,
        status: transactions.TransactionStatus,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]] = (),
        started_ms: int = -1,
    ) -> None:
        now_ms = self._loop.now_ms
        key = codec.make(transactions.TRANSACTION_LOG_KEY, transactional_id=transactional_id)
        of_topics = [
            codec.make(transactions.PARTITIONS_SCHEMA, topic=topic, partition_ids=(number,))
            for topic, number in partitions
        ]
        value = codec.make(
            transactions.TRANSACTION_LOG_VALUE,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            transaction_status=int(status),
            transaction_partitions=tuple(of_topics) or None,
            transaction_last_update_timestamp_ms=now_ms,
            transaction_start_timestamp_ms=started_ms,
            client_transaction_version=self._version,
        )
        log = self.logs[transactional_id_partition(transactional_id, len(self.logs))]
        record = Record(
            log.end_offset,
            now_ms,
            codec.encode_key(transactions.TOPIC, transactions.TRANSACTION_LOG, key),
            codec.encode_value(transactions.TOPIC, transactions.TRANSACTION_LOG, 1, value),
        )
        log.append(CONTROLLER_ID, build_batch([record]))


def topic_configs(spec: TopicSpec) -> Iterator[tuple[str, str]]:
    """The configs with which a topic of the scenario is created."""
    if spec.retention_ms is not None:
        yield "retention.ms", str(spec.retention_ms)
    if spec.dead_letters:
        yield "errors.deadletterqueue.group.enable", "true"


def _record(message: Message, **values: Any) -> bytes:
    return codec.encode_metadata(message, codec.make(message, **values), 0)


def _config(resource_type: metadata.ConfigResourceType, resource: str, name: str, value: str) -> bytes:
    return _record(
        metadata.CONFIG_RECORD, resource_type=int(resource_type), resource_name=resource, name=name, value=value
    )
