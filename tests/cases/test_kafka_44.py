"""What Kafka 4.4's group coordinator does reads as what it is: its own logs, and those of 4.3, through whole nights."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator_core.bytes import codec
from coordinator_core.bytes.codec import decode_key, decode_value
from coordinator_core.bytes.kafka_versions import KafkaVersion
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.live.coordinator.records import AppendedRecord, CoordinatorRecord, encode_record
from coordinator_core.replay.dispatch import replay_record
from schemas import cluster_metadata as metadata
from schemas.consumer_offsets import TOPIC, RecordType
from tests.cases.harness import Ledger
from tests.cases.judged import Judged
from tests.cases.small_logs import NOON_MS
from tests.coordinator_core.group_records import record
from tests.coordinator_core.live.consumer.members import Members
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.streams.streams_clients import StreamsClients
from tests.jobs.builders import write_segment
from tests.recorded import RECORDINGS

V43, V44 = KafkaVersion(4, 3), KafkaVersion(4, 4)
SECOND_MS = 1_000
RECORDING = RECORDINGS / "new-44"

Operation = Sequence[tuple[bytes, bytes | None]]


def metadata_log(root: Path, levels: Iterable[tuple[int, int]]) -> Path:
    """`__cluster_metadata` with the levels that metadata.version had, each with the minute from which on it had it."""
    data = b""
    for offset, (minute, level) in enumerate(levels):
        fields = codec.make(metadata.FEATURE_LEVEL_RECORD, name="metadata.version", feature_level=level)
        value = codec.encode_metadata(metadata.FEATURE_LEVEL_RECORD, fields, 0)
        data += build_batch([Record(offset, NOON_MS + minute * 60 * SECOND_MS, None, value)])
    write_segment(root, metadata.TOPIC, 0, 0, data)
    return root


def batches_of(operations: Iterable[Operation]) -> list[bytes]:
    """A batch and a minute each."""
    data, offset = [], 0
    for number, records in enumerate(filter(None, operations)):
        at_ms = NOON_MS + number * 60 * SECOND_MS
        batch = [Record(offset + place, at_ms, key, value) for place, (key, value) in enumerate(records)]
        data.append(build_batch(batch))
        offset += len(batch)
    return data


def written(operations: Iterable[Operation], root: Path) -> Path:
    """Operations as a log."""
    write_segment(root, TOPIC, 0, 0, b"".join(batches_of(operations)))
    return root


def bytes_of(records: Iterable[AppendedRecord]) -> Operation:
    """Keys and values."""
    return [encode_record(entry.record) for entry in records]


def causes(ledger: Ledger | Judged, group_id: str = "g") -> list[tuple[str, str, str]]:
    """Main cause, method and confidence of each rebalance of a group."""
    rows = [row for row in ledger.rows("gold.rebalances") if row["group_id"] == group_id]
    rows.sort(key=lambda row: (int(row["incarnation"]), int(row["to_generation"])))
    return [(row["cause"], row["method"], row["confidence"]) for row in rows]


class ConsumerLog:
    """What a consumer group's coordinator of a release writes."""

    def __init__(self, version: KafkaVersion) -> None:
        self.members = Members(kafka_version=version)
        self.operations: list[Operation] = []

    def heartbeat(self, member_id: str, **fields: Any) -> None:
        """A heartbeat; by default one with nothing new."""
        self.members.heartbeat(member_id, **fields)
        self.operations.append(bytes_of(self.members.records))

    def join(self, member_id: str, instance_id: str, assignor: str | None) -> None:
        """A static member comes, or comes back."""
        self.members.join(member_id, "a", instance_id=instance_id, server_assignor=assignor)
        self.operations.append(bytes_of(self.members.records))


@pytest.mark.parametrize(("before", "after"), [("uniform", "range"), (None, "range")])
def test_another_server_assignor_makes_the_epoch(judged: Judged, before: str | None, after: str) -> None:
    """A static member that comes back with another assignor: that it came back makes no epoch, the assignor does."""
    log = ConsumerLog(V44)
    log.join("m", "i", before)
    log.heartbeat("m", epoch=-2, instance_id="i")
    log.join("n", "i", after)
    judged.night(batches_of(log.operations))
    assert causes(judged)[1:] == [("PROTOCOL_CHANGED", "PREFERRED_ASSIGNOR", "CERTAIN")]


@pytest.mark.parametrize("version", [V43, V44], ids=str)
def test_other_topics_of_a_static_member_that_comes_back_are_no_new_partitions(
    judged: Judged, version: KafkaVersion
) -> None:
    """Its subscription changes the hash of the group's topics: that a topic got partitions is not certain."""
    log = ConsumerLog(version)
    log.join("m", "i", None)
    log.heartbeat("m", epoch=-2, instance_id="i")
    log.members.join("n", "a", "b", instance_id="i")
    log.operations.append(bytes_of(log.members.records))
    judged.night(batches_of(log.operations))
    ((cause, _, confidence),) = causes(judged)[1:]
    assert (cause, confidence) != ("PARTITIONS_CHANGED", "CERTAIN")


def test_a_tie_of_assignors_is_not_certain(judged: Judged) -> None:
    """Where as many members ask for each of two, the order of a hash map says which one the coordinator takes."""
    log = ConsumerLog(V44)
    log.join("m", "i", "uniform")
    log.join("n", "j", "range")
    log.heartbeat("m", epoch=-2, instance_id="i")
    log.join("o", "i", "range")
    judged.night(batches_of(log.operations))
    assert causes(judged)[-1] == ("PROTOCOL_CHANGED", "PREFERRED_ASSIGNOR", "LIKELY")


def test_43_makes_no_epoch_of_another_assignor(judged: Judged) -> None:
    """The change waits for a rebalance that something else makes: no cause of it is certain but that."""
    log = ConsumerLog(V43)
    log.join("m", "i", "uniform")
    log.heartbeat("m", epoch=-2, instance_id="i")
    log.join("n", "i", "range")
    log.heartbeat("n", instance_id="i", subscribed_topic_names=("a", "b"))
    judged.night(batches_of(log.operations))
    assert causes(judged)[1:] == [("SUBSCRIPTION_CHANGED", "IN_LOG", "CERTAIN")]


def upgraded() -> ConsumerLog:
    """A group whose member asks for another assignor and other topics at once, every other minute."""
    log = ConsumerLog(V44)
    log.join("m", "i", "uniform")
    for assignor, topics in (("range", ("a", "b")), ("uniform", ("a",)), ("range", ("a", "b"))):
        log.heartbeat("m", server_assignor=assignor, subscribed_topic_names=topics)
        log.heartbeat("m")
    log.operations = [records for records in log.operations if records]
    return log


def all_causes(ledger: Ledger) -> list[list[str]]:
    """Of each rebalance of the group but the first, all causes with their confidence."""
    rows = sorted(ledger.rows("gold.rebalances"), key=lambda row: int(row["to_generation"]))
    return [
        [f"{cause} {confidence}" for cause, confidence in zip(row["causes"], row["cause_confidences"], strict=True)]
        for row in rows[1:]
    ]


UPGRADE = [(-10, 30), (3, 33)]
"""From 4.3 to 4.4 in minute 3."""


def test_what_a_release_does_is_certain_since_the_log_was_upgraded_to_it(ledger: Ledger, tmp_path: Path) -> None:
    """Two changes at once: that the one which only 4.4 answers made the epoch is known after the upgrade alone."""
    log = upgraded()
    logs = written(log.operations, tmp_path / "logs")
    ledger.night(logs)
    unknown = all_causes(ledger)
    ledger.night(metadata_log(logs, UPGRADE), number=2)
    assert unknown == [["SUBSCRIPTION_CHANGED CERTAIN", "PROTOCOL_CHANGED GUESS"]] * 3
    assert all_causes(ledger) == [
        *unknown[:2],
        ["SUBSCRIPTION_CHANGED CERTAIN", "PROTOCOL_CHANGED CERTAIN"],
    ]
    features = [row for row in ledger.rows("silver.configs") if row["resource_type"] == "FEATURE"]
    assert [(row["name"], row["value"]) for row in features] == [("metadata.version", "30"), ("metadata.version", "33")]


def test_an_upgrade_between_two_nights_says_what_one_run_says(tmp_path: Path) -> None:
    """The nights are cut in the group's log and in the metadata log."""
    log = upgraded()
    nights, whole = Ledger(tmp_path / "nights"), Ledger(tmp_path / "whole")
    first = written(log.operations[:2], tmp_path / "first")
    nights.night(metadata_log(first, UPGRADE[:1]))
    logs = metadata_log(written(log.operations, tmp_path / "logs"), UPGRADE)
    nights.night(logs, number=2)
    whole.night(logs)
    assert all_causes(nights) == all_causes(whole)
    assert len(all_causes(whole)) == 3


def encoded(kind: RecordType, key: dict[str, Any], value: dict[str, Any] | None) -> tuple[bytes, bytes | None]:
    """Key and value of a record, from plain fields."""
    record_type, made_key, made_value = record(kind, key, value)
    return encode_record(CoordinatorRecord(RecordType(record_type), made_key, made_value))


def test_other_assignment_configs_make_an_epoch(judged: Judged) -> None:
    """Kafka writes the configs by which it assigned; the change is an event with both."""
    clients = StreamsClients(kafka_version=V44)
    clients.enter("a")
    first = bytes_of(clients.records)
    clients.coordinator.group_settings[GROUP] = {"streams_num_standby_replicas": 1}
    since = len(clients.records)
    clients.heartbeat("a")
    judged.night(batches_of([first, bytes_of(clients.records[since:])]))
    assert causes(judged)[1:] == [("CONFIG_CHANGED", "ASSIGNMENT_CONFIGS", "CERTAIN")]
    changed = [row for row in judged.rows("silver.group_events") if row["event_type"] == "ASSIGNMENT_CONFIGS_CHANGED"]
    assert [dict(row["details"])["to"] for row in changed] == ['{"num.standby.replicas": "1"}']


@pytest.mark.parametrize(
    ("level", "confidence"),
    [
        pytest.param(None, "GUESS", id="no-metadata-log"),
        pytest.param(29, "GUESS", id="4.2-may-have-left-them-out"),
        pytest.param(30, "CERTAIN", id="4.3-had-none"),
    ],
)
def test_first_assignment_configs_may_be_those_of_an_upgrade(
    ledger: Ledger, tmp_path: Path, level: int | None, confidence: str
) -> None:
    """Kafka before 4.3 kept none: that there are some now proves a change only where 4.3 wrote the epoch before."""
    clients = StreamsClients(kafka_version=V43)
    clients.enter("a")
    records = [
        dataclasses.replace(
            entry, record=dataclasses.replace(entry.record, value=replace(value, last_assignment_configs=()))
        )
        if (value := entry.record.value) is not None and hasattr(value, "last_assignment_configs")
        else entry
        for entry in clients.records
    ]
    clients.coordinator.group_settings[GROUP] = {"streams_num_standby_replicas": 1}
    since = len(records)
    clients.heartbeat("a")
    logs = written([bytes_of(records), bytes_of(clients.records[since:])], tmp_path / "logs")
    ledger.night(logs if level is None else metadata_log(logs, [(-1, level)]))
    assert causes(ledger)[1:] == [("CONFIG_CHANGED", "ASSIGNMENT_CONFIGS", confidence)]


def test_an_epoch_for_a_task_that_is_lacking_is_a_refinement(judged: Judged) -> None:
    """A Stable group whose member lacks a task of its target gets an epoch; the targets and their time stay."""
    clients = StreamsClients(kafka_version=V44)
    clients.enter("a")
    first = bytes_of(clients.records)
    group = clients.streams
    lacking = encoded(
        RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        {"group_id": GROUP, "member_id": "a"},
        {
            "member_epoch": group.group_epoch,
            "previous_member_epoch": group.group_epoch,
            "state": 1,
            "active_tasks": [{"subtopology_id": "0", "partitions": (0, 1), "assignment_epochs": (2, 2)}],
        },
    )
    clients.coordinator.shard = replayed(clients, lacking)
    since = len(clients.records)
    clients.heartbeat("a")
    assert clients.streams.group_epoch == group.group_epoch + 1
    judged.night(batches_of([first, [lacking], bytes_of(clients.records[since:])]))
    assert causes(judged)[1:] == [("ASSIGNMENT_REFINED", "TARGET_KEPT", "CERTAIN")]


def replayed(clients: StreamsClients, entry: tuple[bytes, bytes | None]) -> Any:
    """The coordinator's state after one record more."""
    key = decode_key(TOPIC, entry[0])
    value = decode_value(TOPIC, key.record_type, entry[1] or b"").fields
    return replay_record(
        clients.coordinator.shard, key.record_type, key.fields, value, offset=99, report=lambda _: None, version=V44
    )


def test_a_recording_of_a_44_broker(ledger: Ledger) -> None:
    """Why its groups got their epochs, as its clients and admins did it."""
    ledger.night(RECORDING / "logs")
    assert causes(ledger, "k21-assignor")[1] == ("PROTOCOL_CHANGED", "PREFERRED_ASSIGNOR", "CERTAIN")
    assert causes(ledger, "t11-streams-static")[3] == ("CONFIG_CHANGED", "ASSIGNMENT_CONFIGS", "CERTAIN")


def test_which_topology_the_plugin_has_a_description_of(ledger: Ledger) -> None:
    """An event where it changes and nowhere else: uncertain while it is stored or deleted, -1 without one, which is
    what a group begins with. No epoch comes of it."""
    ledger.night(RECORDING / "logs")
    rows = [row for row in ledger.rows("silver.group_events") if row["event_type"] == "TOPOLOGY_DESCRIPTION_CHANGED"]
    rows.sort(key=lambda row: (row["group_id"], row["log_offset"]))
    assert [(row["group_id"], row["generation"], dict(row["details"])["stored_topology_epoch"]) for row in rows] == [
        ("t11-streams-static", 2, "-2"),
        ("t11-streams-static", 2, "0"),
        ("t12-streams-dynamic", 2, "-2"),
        ("t12-streams-dynamic", 2, "0"),
        ("t12-streams-dynamic", 6, "-2"),
        ("t12-streams-dynamic", 6, "-1"),
    ]
    assert {dict(row["details"])["failed_topology_epoch"] for row in rows} == {"-1"}


def test_a_description_is_that_of_the_group_which_got_it(tmp_path: Path) -> None:
    """A group of the same id, made after the first one was deleted, begins without; one whose first records were
    compacted has it at once; a night that ends between two records says each change once."""
    key = {"group_id": "s"}

    def metadata_record(epoch: int, stored: int, failed: int = -1) -> Operation:
        value = {"epoch": epoch, "stored_description_topology_epoch": stored}
        value["failed_description_topology_epoch"] = failed
        return [encoded(RecordType.STREAMS_GROUP_METADATA, key, value)]

    operations: list[Operation] = [
        metadata_record(7, 4),
        metadata_record(8, 4),
        metadata_record(8, 4, 5),
        [encoded(RecordType.STREAMS_GROUP_METADATA, key, None)],
        metadata_record(2, -1),
        metadata_record(2, -2),
    ]
    whole, nights = Ledger(tmp_path / "whole"), Ledger(tmp_path / "nights")
    whole.night(written(operations, tmp_path / "logs"))
    for number, end in enumerate((2, 5, 6), 1):
        nights.night(written(operations[:end], tmp_path / str(number)), number=number)
    for ledger in (whole, nights):
        found = [
            (generation, *map(dict(details).get, ("stored_topology_epoch", "failed_topology_epoch")))
            for event_type, generation, _, details in events(ledger)
            if event_type == "TOPOLOGY_DESCRIPTION_CHANGED"
        ]
        assert found == [(7, "4", "-1"), (8, "4", "5"), (2, "-2", "-1")]


def test_nights_say_what_one_night_says(tmp_path: Path) -> None:
    """The group before, by which a change of assignors shows, is kept from one night to the next."""
    log = ConsumerLog(V44)
    log.join("m", "i", "uniform")
    log.heartbeat("m", epoch=-2, instance_id="i")
    log.join("n", "i", "range")
    whole, nights = Ledger(tmp_path / "whole"), Ledger(tmp_path / "nights")
    whole.night(written(log.operations, tmp_path / "logs"))
    nights.night(written(log.operations[:2], tmp_path / "first"))
    nights.night(tmp_path / "logs", number=2)
    assert causes(nights) == causes(whole)
    assert events(nights) == events(whole)


def events(ledger: Ledger) -> list[tuple[Any, ...]]:
    """What happened to groups, in log order."""
    rows = sorted(ledger.rows("silver.group_events"), key=lambda row: (row["log_offset"], row["event_index"]))
    return [(row["event_type"], row["generation"], row["member_id"], row["details"]) for row in rows]
