"""Leaders of a topic's partitions, and addresses of brokers, from `__cluster_metadata`.

A replay does not need them: coordinator records do not name brokers. `describe` needs them for one point in time.
"""

from collections.abc import Mapping
from typing import Any, Final

from coordinator_core.bytes import codec
from coordinator_core.errors import DecodeError
from coordinator_core.history.metadata_transactions import MetadataTransaction
from schemas.cluster_metadata import (
    LEADER_MESSAGES,
    LEADER_UNCHANGED,
    MESSAGES,
    NO_LEADER,
    LeaderRecordType,
    MetadataRecordType,
)
from schemas.wire import Message

READ: Final[Mapping[int, Message]] = {
    int(message.record_type or 0): message for message in (*MESSAGES, *LEADER_MESSAGES)
}
USED: Final = frozenset({*LeaderRecordType, *MetadataRecordType} - {MetadataRecordType.CONFIG})


class ClusterLeaders:
    """The leaders of one topic's partitions after the records fed so far. Records of a transaction count once it has
    ended.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._topic_id: str | None = None
        self._leaders: dict[int, int] = {}
        """Partition -> broker id."""
        self._addresses: dict[int, str] = {}
        """Broker id -> host:port."""
        self._transaction = MetadataTransaction[tuple[int, Any]]()

    def feed(self, value: bytes) -> None:
        """Apply one record. Records that cannot be read, or have a later version, are skipped."""
        if codec.metadata_record_type(value) not in USED:
            return
        try:
            decoded = codec.decode_metadata(value, READ)
        except DecodeError:
            return
        record_type = int(decoded.message.record_type or 0)
        for taken_type, fields in self._transaction.take(record_type, (record_type, decoded.fields)):
            self._take(taken_type, fields)

    def _take(self, record_type: int, it: Any) -> None:
        match record_type:
            case MetadataRecordType.TOPIC if it.name == self._topic:
                self._topic_id = it.topic_id
                self._leaders.clear()
            case MetadataRecordType.REMOVE_TOPIC if it.topic_id == self._topic_id:
                self._topic_id = None
                self._leaders.clear()
            case MetadataRecordType.PARTITION | LeaderRecordType.PARTITION_CHANGE if it.topic_id == self._topic_id:
                if it.leader != LEADER_UNCHANGED:
                    self._leaders[it.partition_id] = it.leader
            case LeaderRecordType.REGISTER_BROKER if it.end_points:
                self._addresses[it.broker_id] = f"{it.end_points[0].host}:{it.end_points[0].port}"

    def leader(self, partition: int) -> str | None:
        """`host:port  (broker id)` as Kafka's tools print it, `-` for an unknown address; None if there is no
        leader."""
        broker_id = self._leaders.get(partition, NO_LEADER)
        return None if broker_id < 0 else f"{self._addresses.get(broker_id, '-')}  ({broker_id})"
