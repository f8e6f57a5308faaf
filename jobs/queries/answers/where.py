"""where: the log partition of a group, a share partition or a transactional id.

Its leader is the coordinator, which FindCoordinator returns to clients. The partition count comes from a live cluster,
or from the ledger.
"""

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TextIO

from coordinator_core.bytes.log.segment import is_topic_id
from coordinator_core.replay.lookup import (
    SharePartitionKey,
    group_partition,
    share_partition_partition,
    transactional_id_partition,
)
from jobs.bronze.partition_counts import SETTING, KnownCount, known_counts
from jobs.console.names import or_nearest, short
from jobs.console.output import Value, printable, write_answers
from jobs.delta.cluster_tables import ClusterTables
from jobs.errors import ArgumentError, JobError
from jobs.queries.as_of.in_log import no_partition_text, require_partition, require_topic, unknown_groups
from jobs.settings import Settings
from jobs.sources.broker import Broker
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.silver import TOPICS
from schemas.transaction_state import TOPIC as TRANSACTIONS_TOPIC

COLUMNS: Final = ("KEY-TYPE", "KEY", "TOPIC", "PARTITION", "PARTITIONS", "LEARNED-FROM", "COORDINATOR")
CLUSTER: Final = "CLUSTER"
"""The live cluster reported the partition count."""
COUNT_MAX: Final = 2**31 - 1


class Asked(NamedTuple):
    """What to look up; at least one is set."""

    groups: Collection[str] = ()
    shares: Collection[str] = ()
    """Each as GROUP:TOPIC:PARTITION, with the name or the id of the topic."""
    transactional_ids: Collection[str] = ()


class Place(NamedTuple):
    """The log partition of a key. `coordinator`: the broker that leads it now; None without a live cluster."""

    key_type: str
    key: str
    topic: str
    partition: int
    partition_count: int
    learned_from: str
    coordinator: str | None


class _Sources:
    """Where topic facts come from: the live cluster if one is configured, else the ledger."""

    def __init__(self, settings: Settings, broker: Broker | None, ledger: Callable[[], ClusterTables]) -> None:
        self._settings = settings
        self._ledger = ledger
        self._broker = broker
        self._known: dict[str, KnownCount] | None = None

    def partition_count(self, topic: str) -> tuple[int, str]:
        """The partition count of an internal topic, and its source."""
        if self._broker is not None:
            found = self._broker.topics([topic])
            if topic not in found:
                raise JobError(
                    f"the cluster has no topic {topic} yet: brokers create it when a client first needs a coordinator"
                )
            return found[topic].partition_count, CLUSTER
        if self._known is None:
            said = self._settings.partition_counts
            if topic in said:
                return said[topic], SETTING
            self._known = known_counts(self._ledger(), said)
        known = self._known.get(topic)
        if known is None:
            raise JobError(
                f"what was captured does not contain the partition count of {topic}: name a live cluster "
                f"(--bootstrap-server), or give the count (--partitions {topic}=50)"
            )
        return known.partition_count, known.source

    def topic_id(self, topic: str, partition: int) -> str:
        """The id of a topic, which keys of share partitions contain. What looks like one, and is no name, is the id.

        Raises ArgumentError where the topic is known not to have the partition.
        """
        if self._broker is not None:
            found = self._broker.topics([topic])
            if topic not in found and is_topic_id(topic):
                return topic
            if topic not in found:
                raise ArgumentError(f"there is no topic {or_nearest(topic, ())} in the cluster")
            if partition >= found[topic].partition_count:
                raise ArgumentError(no_partition_text(topic, partition, found[topic].partition_count))
            known = found[topic].topic_id
            if known is None:
                raise JobError("the cluster's brokers are older than topic ids, and have no share groups")
            return known
        try:
            rows = self._ledger().read(TOPICS, ["topic_id", "valid_to"], topic=topic).to_pylist()
        except JobError:
            if not is_topic_id(topic):
                raise
            rows = []  # an id needs no table
        if not rows and is_topic_id(topic):
            return topic
        ids = [row["topic_id"] for row in rows if row["valid_to"] is None]
        if not ids:
            require_topic(self._ledger(), topic)
        if len(ids) != 1:
            raise JobError(
                f"what was captured does not contain the id of topic {printable(topic)[:100]}, which the key of a "
                "share partition has: name a live cluster (--bootstrap-server), or capture __cluster_metadata"
            )
        require_partition(self._ledger(), topic, partition)
        topic_id: str = ids[0]
        return topic_id

    def coordinator(self, topic: str, partition: int) -> str | None:
        """The current leader of a partition, as node id and address."""
        if self._broker is None:
            return None
        leader = self._broker.leader(topic, partition)
        return f"{leader.node_id} ({leader.host_port})"


def find(asked: Asked, settings: Settings, ledger: Callable[[], ClusterTables]) -> list[Place]:
    """Look up groups, share partitions and transactional ids. `ledger`: opens the tables if they are needed."""
    if not any(asked):
        raise ArgumentError(
            "say what to look for: --group GROUP, --share GROUP:TOPIC:PARTITION or --transactional-id ID"
        )
    shares = [(text, _share_key(text)) for text in asked.shares]
    with _connected(settings) as broker:
        sources = _Sources(settings, broker, ledger)
        places = []

        def add(key_type: str, key: str, topic: str, partition: int, answered: tuple[int, str]) -> None:
            places.append(Place(key_type, key, topic, partition, *answered, sources.coordinator(topic, partition)))

        for group_id in asked.groups:
            answered = sources.partition_count(OFFSETS_TOPIC)
            add("GROUP", group_id, OFFSETS_TOPIC, group_partition(group_id, answered[0]), answered)
        for text, (group_id, topic, number) in shares:
            answered = sources.partition_count(SHARE_TOPIC)
            key = SharePartitionKey(group_id, sources.topic_id(topic, number), number)
            add("SHARE", text, SHARE_TOPIC, share_partition_partition(key, answered[0]), answered)
        for transactional_id in asked.transactional_ids:
            answered = sources.partition_count(TRANSACTIONS_TOPIC)
            partition = transactional_id_partition(transactional_id, answered[0])
            add("TRANSACTION", transactional_id, TRANSACTIONS_TOPIC, partition, answered)
    return places


def run_where(
    asked: Asked, settings: Settings, ledger: Callable[[], ClusterTables], output_format: str, out: TextIO | None = None
) -> list[str]:
    """Look up and print. Returns remarks: any name has a log partition, also that of a group that is in no table."""
    rows: list[tuple[Value, ...]] = [tuple(place) for place in find(asked, settings, ledger)]
    write_answers(COLUMNS, rows, output_format, out or sys.stdout)
    if not asked.groups or settings.broker_address is not None:
        return []
    try:
        unknown = unknown_groups(ledger(), asked.groups)
    except JobError:
        return []  # with the number of partitions given, no tables are needed
    return [f"group {short(name)} is in no table: this is where it would be" for name in sorted(unknown)]


def _share_key(text: str) -> tuple[str, str, int]:
    """Group, topic and partition; a group id may contain colons, a topic name cannot."""
    group_id, topic, number = text.rsplit(":", 2) if text.count(":") >= 2 else ("", "", "")
    if not group_id or not topic or not number.isascii() or not number.isdigit() or int(number) > COUNT_MAX:
        raise ArgumentError(f"--share {printable(text)[:100]}: write GROUP:TOPIC:PARTITION, as workers:jobs:0")
    return group_id, topic, int(number)


@contextmanager
def _connected(settings: Settings) -> Iterator[Broker | None]:
    """The configured cluster, if there is one."""
    address = settings.broker_address
    if address is None:
        yield None
        return
    with Broker.connect(address, timeout_ms=settings.request_timeout_ms) as broker:
        yield broker
