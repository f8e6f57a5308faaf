"""What brokers said of their groups while the recordings were made, as plain facts.

A fact is a path and a value: `("member", "m1", "client_host")` -> `"/127.0.0.1"`. The silver tables, taken at the same
log end, are turned into facts of the same form (tables.py), so that comparing is comparing two dicts.

A moment counts for a group where the end offset of the partition which has it did not move while the broker was asked:
then the log up to that offset and the answers speak of one state.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from coordinator_core.replay.lookup import SharePartitionKey, group_partition, share_partition_partition
from tests.conformance.dump import read_dump

CONSUMER_OFFSETS: Final = "__consumer_offsets"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"

UNANSWERED: Final = frozenset({"describe_error", "offsets_error"})
"""Keys of a recorded group which say that the broker gave an error in place of an answer."""

Path_ = tuple[str | int, ...]
Facts = dict[Path_, Any]

OPEN_ROWS: Final = ("open generations",)
"""How many generations of a group are open at once: 1, or the group is not there and no fact is."""


class TopicLife(NamedTuple):
    """A topic id with its name, from creation to deletion (epoch milliseconds; None: never deleted)."""

    topic_id: str
    name: str
    created_ms: int
    deleted_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """What a broker said of one group at one moment, and the log end at which it said so."""

    snapshot: int
    """Line of snapshots.jsonl, from 0."""
    label: str
    group_id: str
    log_partition: int
    """The group's partition of __consumer_offsets."""
    log_end: int
    """End offset (exclusive) of it."""
    answer: Mapping[str, Any] | None
    """As recorded; None where the broker did not list the group."""


@dataclass(frozen=True, slots=True)
class ShareAnswer:
    """What the share coordinator said of one share partition at one moment."""

    snapshot: int
    label: str
    group_id: str
    topic: str
    topic_id: str
    partition: int
    log_partition: int
    """The key's partition of __share_group_state."""
    log_end: int
    """End offset (exclusive) of it."""
    state: Mapping[str, Any] | None
    """ReadShareGroupState's answer; None where the broker lists no such share partition."""
    listed: Mapping[str, Any] | None
    """Admin's listShareGroupOffsets for it."""
    group_log_end: int
    """End offset (exclusive) of the group's partition of __consumer_offsets when the asking began; it may have moved
    on meanwhile."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One line of snapshots.jsonl."""

    number: int
    label: str
    prefix: str
    """All groups of the broker whose id starts so are in `groups`."""
    ts0_ms: int
    ts1_ms: int
    leo_before: Mapping[str, int]
    leo_after: Mapping[str, int]
    groups: Mapping[str, Mapping[str, Any]]

    def partition_count(self, topic: str) -> int:
        """Partitions of an internal topic; 0 where it did not exist."""
        return sum(name.rpartition("-")[0] == topic for name in self.leo_before)

    def still_end(self, topic: str, partition: int) -> int | None:
        """The end offset of a log partition, if it did not move while the broker was asked."""
        name = f"{topic}-{partition}"
        before, after = self.leo_before.get(name), self.leo_after.get(name)
        return before if before is not None and before == after else None


@dataclass(frozen=True, slots=True)
class Truth:
    """The truth folder of a recording."""

    snapshots: tuple[Snapshot, ...]
    topics: tuple[TopicLife, ...]

    def topic_id(self, name: str, from_ms: int, to_ms: int) -> str | None:
        """The one id which a name meant from one time to another; None where it changed meaning between."""
        alive = [
            topic.topic_id
            for topic in self.topics
            if topic.name == name
            and topic.created_ms <= to_ms
            and (topic.deleted_ms is None or topic.deleted_ms >= from_ms)
        ]
        return alive[0] if len(alive) == 1 else None


@cache
def read_truth(recording: Path) -> Truth:
    """Read `truth/snapshots.jsonl`, and the names of topics from the dump of the metadata log."""
    with (recording / "truth" / "snapshots.jsonl").open(encoding="utf-8") as lines:
        snapshots = tuple(_snapshot(number, json.loads(line)) for number, line in enumerate(lines))
    return Truth(snapshots, tuple(_topics(recording)))


def _snapshot(number: int, line: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        number=number,
        label=f"{line['scenario']}/{line['label']}",
        prefix=line["prefix"],
        ts0_ms=line["ts0_ms"],
        ts1_ms=line["ts1_ms"],
        leo_before=line["leo_before"],
        leo_after=line["leo_after"],
        groups=line["groups"],
    )


def _topics(recording: Path) -> Iterator[TopicLife]:
    """Topic ids from the dumped metadata log; from topics.json (those alive at the end) where there is no dump."""
    dump = recording / "decoded" / f"{CLUSTER_METADATA}.dump.txt.gz"
    if not dump.exists():
        with (recording / "truth" / "topics.json").open(encoding="utf-8") as text:
            for name, topic in json.load(text)["topics"].items():
                yield TopicLife(topic["topic_id"], name, 0, None)
        return
    alive: dict[str, TopicLife] = {}
    for batch in read_dump(dump):
        for record in batch.records:
            kind = (record.value or {}).get("type")
            if kind == "TOPIC_RECORD":
                topic = record.value["data"]  # type: ignore[index]
                alive[topic["topicId"]] = TopicLife(topic["topicId"], topic["name"], record.timestamp_ms, None)
            elif kind == "REMOVE_TOPIC_RECORD":
                gone = alive.pop(record.value["data"]["topicId"])  # type: ignore[index]
                yield gone._replace(deleted_ms=record.timestamp_ms)
    yield from alive.values()


def group_answers(truth: Truth, known_groups: frozenset[str]) -> Iterator[GroupAnswer]:
    """All moments at which the broker's word on a group can be compared with the log.

    `known_groups` are the groups of the tables: those with the snapshot's prefix which the broker did not list are
    answers too, namely that there is no such group.
    """
    for snapshot in truth.snapshots:
        count = snapshot.partition_count(CONSUMER_OFFSETS)
        absent = {g for g in known_groups if g.startswith(snapshot.prefix)} - snapshot.groups.keys()
        for group_id in sorted({*snapshot.groups, *absent}):
            if not count:
                continue
            partition = group_partition(group_id, count)
            log_end = snapshot.still_end(CONSUMER_OFFSETS, partition)
            answer = snapshot.groups.get(group_id)
            if log_end is not None and not (answer and UNANSWERED & answer.keys()):
                yield GroupAnswer(snapshot.number, snapshot.label, group_id, partition, log_end, answer)


def share_answers(truth: Truth, known: frozenset[SharePartitionKey]) -> Iterator[ShareAnswer]:
    """All moments at which the share coordinator's word on a share partition can be compared with the log.

    `known` are the share partitions of the tables; those which a broker did not list are answers too.
    """
    for snapshot in truth.snapshots:
        count = snapshot.partition_count(SHARE_GROUP_STATE)
        if not count:
            continue
        listed: dict[SharePartitionKey, tuple[str, Any, Any]] = {}
        unanswered: set[tuple[str, str]] = set()
        for group_id, group in snapshot.groups.items():
            for name, state in group.get("coordinator_state", {}).items():
                topic, _, partition = name.rpartition("-")
                topic_id = truth.topic_id(topic, snapshot.ts0_ms, snapshot.ts1_ms)
                if topic_id is None or not isinstance(state, Mapping) or state["error"] != "NONE":
                    unanswered.add((group_id, topic))
                else:
                    key = SharePartitionKey(group_id, topic_id, int(partition))
                    listed[key] = (topic, state, group["start_offsets"].get(name))
            if UNANSWERED & group.keys():
                unanswered |= {(group_id, topic.name) for topic in truth.topics}
        names = {topic.topic_id: topic.name for topic in truth.topics}
        for key in known:
            topic = names.get(key.topic_id, "")
            if key.group_id.startswith(snapshot.prefix) and (key.group_id, topic) not in unanswered:
                listed.setdefault(key, (topic, None, None))
        for key, (topic, state, offsets) in sorted(listed.items()):
            log_partition = share_partition_partition(key, count)
            log_end = snapshot.still_end(SHARE_GROUP_STATE, log_partition)
            if log_end is not None:
                yield ShareAnswer(
                    snapshot=snapshot.number,
                    label=snapshot.label,
                    group_id=key.group_id,
                    topic=topic,
                    topic_id=key.topic_id,
                    partition=key.partition,
                    log_partition=log_partition,
                    log_end=log_end,
                    state=state,
                    listed=offsets,
                    group_log_end=_group_log_end(snapshot, key.group_id),
                )


def _group_log_end(snapshot: Snapshot, group_id: str) -> int:
    partition = group_partition(group_id, snapshot.partition_count(CONSUMER_OFFSETS))
    return snapshot.leo_before[f"{CONSUMER_OFFSETS}-{partition}"]


def group_facts(answer: Mapping[str, Any] | None) -> Facts:
    """The broker's answer about a group as facts; none where it listed no such group."""
    if answer is None:
        return {}
    facts: Facts = {OPEN_ROWS: 1, ("type",): answer["type"].upper(), ("state",): answer["state"]}
    kind = answer["type"]
    if kind == "Classic":
        facts["protocol_type",] = answer["protocol_type"]
        facts["protocol_name",] = answer["protocol_name"]
        facts["simple",] = answer["simple"]
    else:
        facts["group epoch",] = answer["group_epoch"]
        facts["assignment epoch",] = answer["target_epoch"]
    if kind == "Consumer":
        facts["assignor",] = answer["assignor"]
    if kind == "Streams":
        facts["topology epoch",] = answer["topology_epoch"]
    for member in answer["members"]:
        facts.update(_member_facts(kind, member))
    facts["member count",] = len(answer["members"])
    for name, offset in answer.get("offsets", {}).items():
        if offset is not None:
            facts["offset", name] = (offset["offset"], offset["leader_epoch"], offset["metadata"])
    return facts


def _member_facts(kind: str, member: Mapping[str, Any]) -> Facts:
    name = member["member_id"]
    facts: Facts = {
        ("member", name, "client_id"): member["client_id"],
        ("member", name, "client_host"): member["host"],
        ("member", name, "instance_id"): member.get("instance_id"),
    }
    if kind != "Classic":
        facts["member", name, "member_epoch"] = member["member_epoch"]
        facts["member", name, "member_epoch by events"] = member["member_epoch"]
    if kind in {"Consumer", "Share"}:
        facts["member", name, "rack_id"] = member["rack"]
    if kind == "Consumer":
        facts["member", name, "uses_classic_protocol"] = not member["upgraded"]
    if kind == "Streams":
        facts.update(_task_facts("assigned", name, member["assignment"]))
        facts.update(_task_facts("target", name, member["target"]))
        return facts
    for partition in member["assignment"]:
        facts["assigned", name, partition] = True
    for partition in member.get("target") or ():
        facts["target", name, partition] = True
    return facts


def _task_facts(kind: str, member_id: str, tasks: Mapping[str, Any] | None) -> Facts:
    return {
        (kind, member_id, f"{task_type.upper()} {subtopology}-{partition}"): True
        for task_type, of_type in (tasks or {}).items()
        for subtopology, partitions in of_type.items()
        for partition in partitions
    }


def share_facts(answer: ShareAnswer) -> Facts:
    """The share coordinator's answer about one share partition as facts, offset by offset; none where unlisted."""
    facts: Facts = {}
    if answer.state is not None:
        facts["topic",] = answer.topic
        facts["state epoch",] = answer.state["state_epoch"]
        facts["start offset",] = answer.state["start_offset"]
        for first, last, state, count in answer.state["batches"]:
            for offset in range(first, last + 1):
                facts["delivery", offset] = (state, count)
    if answer.listed is not None:
        facts["listed start offset",] = answer.listed["start_offset"]
        facts["leader epoch",] = answer.listed["leader_epoch"]
    return facts
