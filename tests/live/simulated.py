"""A simulated cluster for a real broker: its topics as the cluster's metadata must have them, its dumps, and what the
simulator's truth says of the end, as facts of the same form as those of the broker's answers.
"""

import gzip
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from coordinator_core.bytes.client_protocols import decode_assignment
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.text import DURATION, UNIT_MS
from jobs.laboratory.simulate import Written, simulate
from tests.conformance.dump import DumpBatch, parse_dump
from tests.conformance.truth import CONSUMER_OFFSETS, OPEN_ROWS, SHARE_GROUP_STATE, Facts, Snapshot, TopicLife, Truth
from tests.live.broker import BrokerTopic, LiveBroker

DECODERS: Final = {
    CONSUMER_OFFSETS: "--offsets-decoder",
    SHARE_GROUP_STATE: "--share-group-state-decoder",
}
INTERNAL_CONFIGS: Final = {"cleanup.policy": "compact"}
FAULT: Final = "[[fault]]\n"
"""What a fault of a scenario file begins with."""
DEFAULT_ASSIGNOR: Final = "uniform"
"""First of group.consumer.assignors, for groups in which no member asks for one."""
REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance"})
"""States of classic groups which no log holds: a broker which loads such a group shows its last generation."""

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario file, maybe with other values for keys which it has. In a shorter story there are only the faults that
    strike before its end: no other is taken."""

    scenario: Path
    values: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For test ids."""
        return "-".join((self.scenario.stem, *map(str, self.values.values())))

    def text(self) -> str:
        """The scenario, its first line of each key replaced."""
        text = self.scenario.read_text(encoding="utf-8")
        for key, value in self.values.items():
            text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {json.dumps(value)}", text, count=1)
            assert count, f"{self.scenario.name} has no key {key}"
        end_ms = _ms_of(tomllib.loads(text)["duration"])
        tables = re.split(r"(?m)^(?=\[)", text)
        return "".join(
            it for it in tables if not it.startswith(FAULT) or _ms_of(tomllib.loads(it)["fault"][0]["at"]) < end_ms
        )


def _ms_of(duration: str) -> int:
    match = DURATION.fullmatch(duration)
    assert match, duration
    return int(match[1]) * UNIT_MS[match[2]]


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulation's output folder."""

    root: Path
    written: Written

    @classmethod
    def of(cls, case: Case, root: Path) -> Self:
        """Simulate a case into a folder."""
        root.mkdir()
        scenario = root / case.scenario.name
        scenario.write_text(case.text(), encoding="utf-8")
        return cls(root / "simulated", simulate(str(scenario), str(root / "simulated")))

    @property
    def logs(self) -> Path:
        """The partition folders."""
        return self.root / "logs"

    def truth(self, file: str) -> Iterator[Line]:
        """Lines of a truth file; none where there is none."""
        path = self.root / "truth" / f"{file}.jsonl"
        if path.exists():
            with path.open(encoding="utf-8") as lines:
                yield from map(json.loads, lines)

    @property
    def log_ends(self) -> dict[str, int]:
        """End offset (exclusive) of the coordinators' logs, by `<topic>-<partition>`."""
        lines = (line for line in self.truth("log_ends") if line["topic"] in DECODERS)
        return {f"{line['topic']}-{line['partition']}": line["end_offset"] for line in lines}

    def segments(self, topic: str) -> list[Path]:
        """The segments of a topic, in order."""
        return sorted(self.logs.glob(f"{topic}-*/*.log"))

    def indexes(self) -> list[Path]:
        """The index files of all segments."""
        patterns = [f"{topic}-*/*.{kind}" for topic in DECODERS for kind in ("index", "timeindex")]
        return sorted(path for pattern in patterns for path in self.logs.glob(pattern))

    def topics(self) -> list[BrokerTopic]:
        """Internal and data topics as they were at the end."""
        folders: dict[str, dict[int, Path]] = defaultdict(dict)
        for folder in self.logs.iterdir():
            topic, _, partition = folder.name.rpartition("-")
            if topic in DECODERS:
                folders[topic][int(partition)] = folder
        internal = [
            BrokerTopic(topic, _topic_id(by_partition[0]), _leader_epochs(by_partition), INTERNAL_CONFIGS)
            for topic, by_partition in folders.items()
        ]
        counts: dict[tuple[str, str], int] = {}
        latest: dict[str, str] = {}
        """Topic -> the id that it has, or had last."""
        grown = (line for line in self.truth("faults") if line["fault"] == "add_partitions")
        for line in sorted((*self.truth("topics"), *grown), key=lambda line: line["ts_ms"]):
            topic_id = latest[line["topic"]] = line.get("topic_id", latest.get(line["topic"]))
            counts[line["topic"], topic_id] = line["partitions"] if "fault" in line else line["partition_count"]
        return internal + [
            BrokerTopic(topic, topic_id, [0] * count) for (topic, topic_id), count in counts.items() if count
        ]

    def end_of_groups(self) -> dict[str, Facts]:
        """What the group coordinators knew when the clock stopped."""
        names = {line["topic_id"]: line["topic"] for line in self.truth("topics")}
        return {line["group"]: end_facts(line["state"], names) for line in self.truth("end")}

    def initializing(self) -> set[SharePartitionKey]:
        """Share partitions of which a group did not yet know at the end that they are initialized: Admin shows none."""
        return {
            SharePartitionKey(line["group"], topic_id, partition)
            for line in self.truth("end")
            for topic_id, partitions in line["state"].get("shareStatePartitions", {}).get("initializing", {}).items()
            for partition in partitions
        }


def _topic_id(folder: Path) -> str:
    return (folder / "partition.metadata").read_text().split("topic_id:")[1].strip()


def _leader_epochs(folders: Mapping[int, Path]) -> list[int]:
    """The last leader epoch of each partition; 0 for a log without any."""
    assert sorted(folders) == list(range(len(folders)))
    epochs = []
    for partition in range(len(folders)):
        entries = (folders[partition] / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        epochs.append(int(entries[-1].split()[0]) if entries else 0)
    return epochs


# --- the broker's word ---


def truth_of(snapshot: Mapping[str, Any], simulated: Simulated) -> Truth:
    """A broker's answers over a simulated log, in the form in which those of recordings are compared."""
    reported = Snapshot(
        number=0,
        label=simulated.written.summary.scenario,
        prefix="",
        ts0_ms=snapshot["ts0_ms"],
        ts1_ms=snapshot["ts1_ms"],
        leo_before=snapshot["leo_before"],
        leo_after=snapshot["leo_after"],
        groups=snapshot["groups"],
    )
    lives: dict[str, TopicLife] = {}
    for line in simulated.truth("topics"):
        deleted_ms = None if line["partition_count"] else line["ts_ms"]
        lives[line["topic_id"]] = TopicLife(line["topic_id"], line["topic"], 0, deleted_ms)
    return Truth((reported,), tuple(lives.values()))


def dump(broker: LiveBroker, simulated: Simulated, folder: Path) -> Path:
    """Have Kafka's tool read every segment; the folder is then one of dumps, as recordings have them."""
    folder.mkdir()
    for topic, decoder in DECODERS.items():
        files = simulated.segments(topic)
        if files:
            text = broker.dump(
                files, "--deep-iteration", "--print-data-log", decoder, to=folder / f"{topic}.dump.txt"
            ).read_bytes()
            (folder / f"{topic}.dump.txt.gz").write_bytes(gzip.compress(text, compresslevel=1))
    return folder


def dumped(folder: Path) -> list[DumpBatch]:
    """All batches of a folder of dumps. Raises UnreadableDump for a line which is none of a sound log."""
    return [
        batch
        for path in sorted(folder.glob("*.dump.txt"))
        for batch in parse_dump(path.read_text(encoding="utf-8").splitlines())
    ]


# --- the simulator's word ---


def end_facts(state: Line, names: Mapping[str, str]) -> Facts:
    """The dump of a group in `end.jsonl` as the facts of `tests.conformance.truth.group_facts`.

    `names` are topics by id. Of a classic group which was rebalancing only the offsets are given: no log has the rest.
    """
    facts = _offset_facts(state.get("offsets", {}))
    group = state.get("group")
    if group is None:  # whoever commits without joining has a group all the same, as long as its offsets live
        group = {"type": "classic", "state": "Empty", "protocolType": None, "protocolName": None, "members": {}}
    if group["state"] in REBALANCING:
        return facts
    facts |= {OPEN_ROWS: 1, ("type",): group["type"].upper(), ("state",): group["state"]}
    facts["member count",] = len(group["members"])
    if group["type"] == "classic":
        facts["protocol_type",] = group["protocolType"] or ""
        facts["protocol_name",] = group["protocolName"] or ""
        facts["simple",] = not group["protocolType"]
    else:
        facts["group epoch",] = group["groupEpoch"]
        facts["assignment epoch",] = group["assignmentEpoch"]
    if group["type"] == "consumer":
        asked = Counter(it["serverAssignor"] for it in group["members"].values() if it["serverAssignor"])
        facts["assignor",] = asked.most_common(1)[0][0] if asked else DEFAULT_ASSIGNOR
    if group["type"] == "streams":
        facts["topology epoch",] = group["topology"]["epoch"]
        for member_id, target in group["targetAssignment"].items():
            facts |= _task_facts("target", member_id, target)
    for member_id, member in group["members"].items():
        facts |= _member_facts(group["type"], member_id, member)
        if group["type"] == "streams":
            tasks = {kind: member[f"{kind}Assigned"] for kind in ("active", "standby", "warmup")}
            facts |= _task_facts("assigned", member_id, tasks)
            continue
        facts |= {("assigned", member_id, place): True for place in _assigned(group["type"], member, names)}
    if group["type"] == "consumer":
        for member_id, by_topic in group["targetAssignment"].items():
            facts |= {("target", member_id, place): True for place in _places(by_topic, names)}
    return facts


def _task_facts(kind: str, member_id: str, tasks: Line) -> Facts:
    return {
        (kind, member_id, f"{task_type.upper()} {subtopology}-{partition}"): True
        for task_type, of_type in tasks.items()
        for subtopology, partitions in of_type.items()
        for partition in partitions
    }


def _offset_facts(offsets: Line) -> Facts:
    return {
        ("offset", f"{topic}-{partition}"): (
            reported["offset"],
            None if reported["leaderEpoch"] == -1 else reported["leaderEpoch"],
            reported["metadata"],
        )
        for topic, by_partition in offsets.items()
        for partition, reported in by_partition.items()
    }


def _member_facts(group_type: str, member_id: str, member: Line) -> Facts:
    facts: Facts = {
        ("member", member_id, "client_id"): member["clientId"],
        ("member", member_id, "client_host"): member["clientHost"],
        ("member", member_id, "instance_id"): member["instanceId"],
    }
    if group_type == "classic":
        return facts
    if group_type != "streams":
        facts["member", member_id, "rack_id"] = member["rackId"]
    facts["member", member_id, "member_epoch"] = member["memberEpoch"]
    facts["member", member_id, "member_epoch by events"] = member["memberEpoch"]
    if group_type == "consumer":
        facts["member", member_id, "uses_classic_protocol"] = member["useClassicProtocol"]
    return facts


def _assigned(group_type: str, member: Line, names: Mapping[str, str]) -> Iterator[str]:
    """What Admin shows as a member's: with what it has still to give up."""
    if group_type == "classic":
        assignment = decode_assignment(bytes.fromhex(member["assignment"]))
        for topic, partitions in assignment.assigned_partitions if assignment else ():
            yield from (f"{topic}-{partition}" for partition in partitions)
        return
    yield from _places(member["assigned"], names)
    yield from _places(member.get("pendingRevocation", {}), names)


def _places(by_topic: Line, names: Mapping[str, str]) -> Iterator[str]:
    for topic_id, partitions in by_topic.items():
        yield from (f"{names[topic_id]}-{partition}" for partition in partitions)
