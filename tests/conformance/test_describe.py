"""describe at recorded moments against what Kafka's own tools printed then, field by field, in all recordings."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from jobs.cli_enums import Tool, View
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers.describe import (
    CONSUMER_PROTOCOLS,
    Description,
    assignment_text,
    with_coordinators,
    write_descriptions,
)
from jobs.queries.as_of.as_of import SilverAt
from jobs.queries.as_of.group_model import Group, TopicPartition
from jobs.queries.as_of.logged_coordinators import logged_coordinators
from schemas.tables.bronze import COVERAGE
from tests.answers import describe
from tests.conformance.conftest import ReportLine
from tests.conformance.recordings import LOGS, Recording, WarehouseOf, cluster_id_of
from tests.conformance.truth import GroupAnswer, group_answers, read_truth
from tests.lengths import is_long

OUTPUTS: Final = re.compile(r"[^-]+-(consumer|share|streams)-groups-(offsets|members|state)\.txt")
COORDINATOR: Final = re.compile(r"(\S+:\d+) +\((\d+)\)")
IN_NO_LOG: Final = {"LOG-END-OFFSET", "LAG"}
"""Columns of which no log tells, and nobody sampled the ends of the recordings' topics."""
SNAPSHOTS_JUDGED_MAX: Final = 20 if is_long() else 10
MOVES_ON: Final = re.compile("Preparing|Completing")
"""A classic group in the middle of a rebalance: who has come so far is in the coordinator's memory alone."""

Line = tuple[str, ...]


def silver_of_recording(recording: Recording, warehouse_of: WarehouseOf) -> ClusterTables:
    """The tables of a recording."""
    return ClusterTables(Warehouse(str(warehouse_of(recording))), cluster_id_of(recording))


def outputs(recording: Recording) -> Iterator[tuple[Path, Tool, View]]:
    """The recorded outputs of the describe commands."""
    for path in sorted((recording.path / "truth" / "cli").iterdir()):
        found = OUTPUTS.fullmatch(path.name)
        if found:
            yield path, Tool(found[1]), View(found[2])


def fields(text: str, hidden: set[str]) -> list[Line]:
    """Messages, headers and rows, as fields; in the hidden columns `-`. Group ids may hold spaces, other ids do not."""
    lines: list[Line] = []
    header: Line = ()
    for line in text.splitlines():
        words = tuple(
            COORDINATOR.sub(r"\1(\2)", line.removeprefix("Error: ").replace("COORDINATOR (ID)", "COORDINATOR")).split()
        )
        if words[:1] == ("GROUP",):
            header = words
        elif words and "'" not in line:
            surplus = len(words) - len(header)
            words = (" ".join(words[: surplus + 1]), *words[surplus + 1 :])
            words = tuple("-" if name in hidden else word for name, word in zip(header, words, strict=True))
        if words:
            lines.append(words)
    return lines


def test_it_prints_what_kafkas_tools_printed(
    recording: Recording, warehouse_of: WarehouseOf, report_line: ReportLine
) -> None:
    """Every line and every field of every recorded output, but for what no log holds, which is `-`.

    Logs that were copied before compaction end before the outputs: what became of them is judged in their place.
    """
    silver, compared = silver_of_recording(replace(recording, folder=LOGS), warehouse_of), 0
    for path, tool, view in outputs(recording):
        command, _, printed = path.read_text(encoding="utf-8").partition("\n")
        at_ms, verbose = int(command.split()[1]), "--verbose" in command
        reported = io.StringIO()
        described = describe(silver.warehouse, silver.cluster_id, view=view, at_ms=at_ms, tool=tool)
        if view is View.STATE:
            described = with_coordinators(described, partial(logged_coordinators, silver, at_ms))
        write_descriptions(described, "table", verbose, reported)
        assert fields(reported.getvalue(), set()) == fields(printed, IN_NO_LOG), path.name
        compared += sum(map(len, fields(printed, set())))
    report_line(f"describe {recording.name}: {compared:,} fields as Kafka's tools printed them")
    assert compared


def test_groups_with_members_are_as_the_broker_described_them(
    whole: Recording, warehouse_of: WarehouseOf, report_line: ReportLine
) -> None:
    """States, epochs, members and their partitions at moments in the middle of things, when the log did not grow.

    Compaction leaves the newest state alone, so compacted logs are not judged.
    """
    silver, truth = silver_of_recording(whole, warehouse_of), read_truth(whole.path)
    ends = _captured_ends(silver)
    every = max(1, len(truth.snapshots) // SNAPSHOTS_JUDGED_MAX)
    judged = replace(truth, snapshots=truth.snapshots[::every])
    count = 0
    for snapshot in judged.snapshots:
        answers = [
            answer
            for answer in group_answers(replace(judged, snapshots=(snapshot,)), frozenset())
            if answer.answer is not None
            and answer.answer["type"] in ("Classic", "Consumer", "Share", "Streams")
            and answer.answer.get("protocol_type") in CONSUMER_PROTOCOLS
            and not MOVES_ON.match(answer.answer["state"])
            and answer.log_end <= ends.get(answer.log_partition, 0)
        ]
        names = [answer.group_id for answer in answers]
        before, after = (_groups(silver, at_ms, names) for at_ms in (snapshot.ts0_ms, snapshot.ts1_ms))
        for answer in answers:
            group = before.get(answer.group_id)
            # the log's end did not move, and neither did the clock of its records: the moment is one
            if group is not None and group == after.get(answer.group_id):
                assert _reported(group) == _asked(answer, group), (snapshot.label, answer.group_id)
                count += len(group.members)
    report_line(f"describe {whole.name}: {count:,} members as the broker described them")
    assert count


def _captured_ends(tables: ClusterTables) -> dict[int, int]:
    """End offset (exclusive) of each captured partition of __consumer_offsets."""
    columns = ["partition", "to_offset"]
    rows = tables.read(COVERAGE, columns, topic="__consumer_offsets")
    ends: dict[int, int] = {}
    for row in rows.to_pylist():
        ends[row["partition"]] = max(ends.get(row["partition"], 0), row["to_offset"] + 1)
    return ends


def _groups(silver: ClusterTables, at_ms: int, names: Sequence[str]) -> Mapping[str, Group]:
    return {group.group_id: group for group in SilverAt(silver, at_ms, names).groups()}


def _reported(group: Group) -> dict[str, Any]:
    """What silver says of a group."""
    return {
        "state": group.state,
        "epochs": (group.group_epoch, group.assignment_epoch),
        "members": {
            member.member_id: (
                member.client_id,
                member.client_host,
                member.instance_id,
                member.member_epoch,
                assignment_text(member.assigned),
                assignment_text(member.target) if group.group_type == "CONSUMER" else None,
                member.process_id,
                {kind: assignment_text(tasks) for kind, tasks in member.tasks.items()},
            )
            for member in group.members
        },
    }


def _asked(answer: GroupAnswer, group: Group) -> dict[str, Any]:
    """What the broker said of it."""
    said = answer.answer
    assert said is not None
    return {
        "state": said["state"],
        "epochs": (said.get("group_epoch"), said.get("target_epoch")),
        "members": {
            member["member_id"]: (
                member["client_id"],
                member["host"],
                member.get("instance_id"),
                member.get("member_epoch"),
                assignment_text(() if "process_id" in member else map(_place, member["assignment"])),
                assignment_text(map(_place, member.get("target") or ())) if group.group_type == "CONSUMER" else None,
                member.get("process_id"),
                dict(_tasks(member)) if "process_id" in member else {},
            )
            for member in said["members"]
        },
    }


def _tasks(member: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """By kind, as `Member.tasks`, what the broker says of a member of a streams group."""
    for prefix, assigned in (("", member["assignment"]), ("TARGET-", member["target"])):
        for kind, tasks in assigned.items():
            places = [TopicPartition(name, number) for name, numbers in tasks.items() for number in numbers]
            if places:
                yield f"{prefix}{kind.upper()}", assignment_text(places)


def _place(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))


def test_a_wrong_moment_is_noticed(recording: Recording, warehouse_of: WarehouseOf) -> None:
    """The comparison sees a difference: a minute before the recorded outputs, the groups were not as they are there."""
    silver = silver_of_recording(replace(recording, folder=LOGS), warehouse_of)
    path, tool, view = next(found for found in outputs(recording) if found[2] is View.OFFSETS)
    at_ms = int(path.read_text(encoding="utf-8").split()[1])
    then: list[Description] = describe(silver.warehouse, silver.cluster_id, view=view, at_ms=at_ms, tool=tool)
    before = describe(silver.warehouse, silver.cluster_id, view=view, at_ms=at_ms - 60_000, tool=tool)
    assert [item.rows for item in then] != [item.rows for item in before]
