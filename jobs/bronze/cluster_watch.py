"""What a capture asks a live cluster besides its logs: end offsets of consumed topics, names of topic ids, configs.

The answers go to bronze as they are, with the time of the request. Names and configs are written only when they change;
end offsets are a sample each time. Replay works without them, so a capture reports what a cluster refuses and goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.inference.facts.configs import BROKER, GROUP, TOPIC
from jobs.bronze.admin_snapshots import newest
from jobs.bronze.identity import refuse_other_cluster
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.scanner import Scanner
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import Warehouse
from jobs.errors import JobError, SourceError, WarehouseError
from jobs.settings import Settings
from jobs.sources.admin import Admin
from jobs.sources.admin_answers import Config, Refusal
from jobs.sources.broker import Broker, OffsetSpec
from schemas.group_types import GroupType
from schemas.tables.bronze import CONFIGS, END_OFFSETS, TOPICS
from schemas.tables.declare import Table
from schemas.tables.silver import MEMBER_ASSIGNMENTS, OFFSET_COMMITS, SHARE_PARTITION_STATES

CONSUMING_TABLES: Final = (OFFSET_COMMITS, MEMBER_ASSIGNMENTS, SHARE_PARTITION_STATES)
"""Tables in which `topic` is a topic that a group consumes."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What was asked and written. `refused`: what the cluster does not answer, in words."""

    row_count: int
    refused: tuple[str, ...] = ()


class ClusterWatch:
    """Asks one cluster. Use it from one thread."""

    def __init__(self, tables: ClusterTables, broker: Broker, silver: "SilverTopics | None" = None) -> None:
        self._tables = tables
        self._broker = broker
        self._admin = Admin(broker)
        self._silver = silver or SilverTopics(tables)

    def sample_end_offsets(self, sampled_at: datetime) -> Reported:
        """Add the log start offset and the end offset of every partition of the topics that groups consume.

        `sampled_at`: the time of the call. A sample has the time at which the end offsets were asked for: which topics
        there are may take long to find out.
        """
        began = monotonic()
        wanted, refused = self.consumed_topics()
        found = self._admin.topics(wanted) if wanted else {}
        places = [(topic.topic, partition) for topic in found.values() for partition in range(topic.partition_count)]
        starts = self._broker.offsets(places, OffsetSpec.EARLIEST)
        sampled_at += timedelta(seconds=monotonic() - began)
        ends = self._broker.offsets(places, OffsetSpec.LATEST)
        rows = [
            {
                "topic": topic,
                "partition": partition,
                "sampled_at": sampled_at,
                "log_start_offset": starts[topic, partition],
                "end_offset": ends[topic, partition],
            }
            for topic, partition in sorted(places)
        ]
        return Reported(self._append(END_OFFSETS, rows, epoch_ms(sampled_at)), refused)

    def consumed_topics(self) -> tuple[set[str], tuple[str, ...]]:
        """Topics that groups consume, from silver and from the live coordinators; and what the coordinators do not
        answer.
        """
        topics = self._silver.names()
        try:
            groups = self._admin.list_groups()
        except SourceError as error:
            return topics, (str(error),)
        refused: dict[str, str] = {}
        offsets = self._admin.committed_offsets(
            [it.group_id for it in groups.values() if it.group_type != GroupType.SHARE]
        )
        for group_id, answer in offsets.items():
            if isinstance(answer, Refusal):
                refused[f"offsets of groups: {answer.why}"] = group_id
            else:
                topics |= {topic for topic, _ in answer}
        share_offsets = self._admin.share_offsets(
            [it.group_id for it in groups.values() if it.group_type == GroupType.SHARE]
        )
        for group_id, places in share_offsets.items():
            if isinstance(places, Refusal):
                refused[f"offsets of share groups: {places.why}"] = group_id
            else:
                topics |= {place.topic for place in places}
        return topics, tuple(f"{what} (as of {group_id!r})" for what, group_id in refused.items())

    def note_topics(self, observed_at: datetime) -> Reported:
        """Add topics that are new, have more partitions, or were deleted."""
        last = newest(self._tables, TOPICS, ("topic_id",))
        # brokers before 2.8 have no topic ids; replay then takes the names from commits
        found = {it.topic_id: it for it in self._admin.topics().values() if it.topic_id is not None}
        rows: list[dict[str, Any]] = []
        for topic_id, topic in sorted(found.items()):
            before = last.get((topic_id,))
            if before is None or before["is_deleted"] or before["partition_count"] != topic.partition_count:
                counted = {"partition_count": topic.partition_count, "is_deleted": False}
                rows.append({"topic_id": topic_id, "observed_at": observed_at, "topic": topic.topic, **counted})
        for (topic_id,), before in sorted(last.items()):
            if topic_id not in found and not before["is_deleted"]:
                rows.append(before | {"observed_at": observed_at, "partition_count": None, "is_deleted": True})
        return Reported(self._append(TOPICS, rows, epoch_ms(observed_at)))

    def note_configs(self, observed_at: datetime) -> Reported:
        """Add the configs of groups, brokers and consumed topics that are new or have changed."""
        refusals: list[str] = []
        groups = self._admin.configured_groups()
        if isinstance(groups, Refusal):
            refusals.append(f"which groups have configs: {groups.why}")
            groups = tuple(sorted(self._admin.list_groups()))
        topics, _ = self.consumed_topics()
        configs, refused = self._admin.configs(
            group_ids=groups, topics=self._admin.topics(topics) if topics else (), broker_ids=self._admin.broker_ids()
        )
        refusals += sorted({f"configs of {kind.lower()}s: {refusal.why}" for (kind, _), refusal in refused.items()})
        key = ("resource_type", "resource_name", "name")
        last = newest(self._tables, CONFIGS, key)
        rows: list[dict[str, Any]] = []
        found: dict[tuple[str, ...], Config] = {(it.resource_type, it.resource_name, it.name): it for it in configs}
        for place, config in sorted(found.items()):
            before = last.get(place)
            if before is None or (before["value"], before["source"]) != (config.value, config.source):
                rows.append(
                    dict(zip(key, place, strict=True))
                    | {"observed_at": observed_at, "value": config.value, "source": config.source}
                )
        asked = {GROUP: set(groups), TOPIC: topics, BROKER: {str(it) for it in self._admin.broker_ids()}}
        for place, before in sorted(last.items()):
            resource_type, resource_name, _ = place
            is_gone = resource_type == GROUP and resource_name not in asked[GROUP] and not refusals
            was_asked = resource_name in asked[resource_type] and (resource_type, resource_name) not in refused
            if place not in found and (is_gone or was_asked) and before["value"] is not None:
                rows.append(before | {"observed_at": observed_at, "value": None, "source": None})
        return Reported(self._append(CONFIGS, rows, epoch_ms(observed_at)), tuple(refusals))

    def _append(self, table: Table, rows: Sequence[Mapping[str, Any]], version: int) -> int:
        """Append rows in one commit. The time is the transaction version, so an older answer never follows a newer
        one."""
        if not rows:
            return 0
        committed = self._tables.write(table, rows, app_id=f"watch/{self._tables.cluster_id}", version=version)
        if committed.skipped:
            raise WarehouseError(
                f"{table.full_name}: another capture of this cluster asked later than this one, or the clock went back"
            )
        return committed.row_count


def watch_once(warehouse: Warehouse, settings: Settings, asked_at: datetime) -> tuple[str, ...]:
    """Ask everything once. `asked_at`: the time of the call. Returns what could not be asked or was refused, in words:
    the capture goes on without it."""
    address = settings.broker_address
    assert address is not None
    tables = ClusterTables(warehouse, settings.cluster_id)
    notes: list[str] = []
    began = monotonic()
    with Broker.connect(address, timeout_ms=settings.request_timeout_ms) as broker:
        watch = ClusterWatch(tables, broker)
        for ask in (watch.note_topics, watch.note_configs, watch.sample_end_offsets):
            try:
                refuse_other_cluster(tables, broker)
                now = asked_at + timedelta(seconds=monotonic() - began)
                notes += (f"the cluster refused: {refused}" for refused in ask(now).refused)
            except JobError as error:
                notes.append(str(error))
    return tuple(dict.fromkeys(notes))


@dataclass(slots=True)
class SilverTopics:
    """Topics that groups consume, from silver; read again after each change of silver."""

    tables: ClusterTables
    _versions: dict[str, int] = field(default_factory=dict)
    _names: dict[str, set[str]] = field(default_factory=dict)

    def names(self) -> set[str]:
        found: set[str] = set()
        for table in CONSUMING_TABLES:
            version = self.tables.warehouse.version(table)
            if self._versions.get(table.full_name) != version:
                self._names[table.full_name] = _topics_of(self.tables, table)
                self._versions[table.full_name] = version
            found |= self._names[table.full_name]
        return found


def _topics_of(tables: ClusterTables, table: Table) -> set[str]:
    """Distinct topics in a large table. The strings stay dictionary-encoded, as they are in the files."""
    has_types = "group_type" in table.column_names
    columns = ["topic", *(["group_type"] if has_types else [])]
    found: set[str] = set()
    for file in tables.files(table):
        with Scanner(file.path, columns) as scanner:
            for rows in scanner.row_groups(columns):
                texts = rows["topic"]
                if has_types:
                    texts = texts.filter(pc.not_equal(rows["group_type"].cast(pa.string()), GroupType.STREAMS))
                found |= set(pc.unique(texts).to_pylist())
    return found - {None}
