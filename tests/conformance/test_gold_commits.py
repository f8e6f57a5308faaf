"""Commit anomalies against what the clients of the recordings committed, aborted and deleted.

Recall: of the rewinds, aborted commits and deletions that clients did and the log can show, how many have a row.
Precision: of the rows whose group recorded all that it committed, how many are so. No row may be wrong, whether CERTAIN
or LIKELY; a GUESS is counted and not judged.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import pytest

from coordinator_core.inference.commits.commit_anomalies import find_anomalies
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.rows import AnomalyRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.owners import partition_owners
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.silver.bundles import group_lives
from jobs.silver.reader import SilverFiles
from schemas.tables.silver import SILVER_TABLES
from tests.conformance.conftest import ReportLine
from tests.conformance.recordings import Recording, WarehouseOf, cluster_id_of

Event = Mapping[str, Any]
Place = tuple[str, str]
"""Group, and topic-partition as clients print it."""

ONE_ACTION_MS: Final = 3_000
"""An admin's action and what the coordinator wrote for it are no further apart."""
RETENTION_MIN_MS: Final = 55_000
"""Offsets of no recording expire sooner: two commits closer than this are neighbours in the log."""


@dataclass(slots=True)
class Truth:
    """What the clients of a recording did to committed offsets."""

    rewinds: Counter[tuple[Place, int, int]] = field(default_factory=Counter)
    """From which offset to which."""
    late_rewinds: Counter[tuple[Place, int, int]] = field(default_factory=Counter)
    """The same, where the former offset may have expired in between."""
    aborted: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Group and offset."""
    deleted: list[tuple[int, str, Place | str]] = field(default_factory=list)
    """Time, likely cause, and what: a place, a group or a topic."""
    altered: list[Place] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)
    """Groups all of whose plain commits are recorded, and no others."""
    reported_transactions: set[str] = field(default_factory=set)


def read_events(recording: Recording) -> list[Event]:
    """The clients' reports in order of time."""
    with (recording.path / "truth" / "events.jsonl").open(encoding="utf-8") as lines:
        return sorted(map(json.loads, lines), key=lambda event: event["ts_ms"])


def read_truth(events: Iterable[Event], until_ms: float = inf) -> Truth:
    """What they come to, up to a time."""
    truth = Truth()
    in_force: dict[Place, tuple[int, int]] = {}
    unreported: set[str] = set()
    for event in events:
        if event["ts_ms"] <= until_ms and event["ev"] in _READ:
            _READ[event["ev"]](event, truth, in_force, unreported)
    truth.reported -= unreported
    return truth


def _commit(event: Event, truth: Truth, in_force: dict[Place, tuple[int, int]], _: set[str]) -> None:
    if not event["ok"]:
        return
    truth.reported.add(event["group"])
    for partition, committed in event["offsets"].items():
        place, at, offset = (event["group"], partition), event["ts_ms"], committed["offset"]
        before_at, before = in_force.get(place, (at, offset))
        if offset < before:
            is_late = at - before_at >= RETENTION_MIN_MS
            (truth.late_rewinds if is_late else truth.rewinds)[place, before, offset] += 1
        in_force[place] = at, offset


def _member_start(event: Event, _: Truth, __: Any, unreported: set[str]) -> None:
    if "enable.auto.commit=false" not in event["props"]:
        unreported.add(event["group"])


def _txn(event: Event, truth: Truth, _: Any, unreported: set[str]) -> None:
    # of a transaction over several groups no offsets are recorded
    unreported.update(event.get("groups") or [event["group"]])
    if "offsets" not in event:
        return
    truth.reported_transactions.add(event["group"])
    if event["result"] == "abort":
        truth.aborted.update((event["group"], committed["offset"]) for committed in event["offsets"].values())


def _txn_hanging(event: Event, truth: Truth, _: Any, unreported: set[str]) -> None:
    unreported.add(event["group"])
    truth.aborted[event["group"], event["offset"]] += 1


def _txn_fenced(event: Event, truth: Truth, _: Any, unreported: set[str]) -> None:
    group = event["txn_id"].removeprefix("tx-")
    unreported.add(group)
    truth.aborted[group, event["offset_aborted"]] += 1


def _offsets_deleted(event: Event, truth: Truth, in_force: dict[Place, tuple[int, int]], _: set[str]) -> None:
    for partition in event["partitions"]:
        in_force.pop((event["group"], partition), None)
        truth.deleted.append((event["ts_ms"], "OFFSETS_DELETED", (event["group"], partition)))


def _group_deleted(event: Event, truth: Truth, in_force: dict[Place, tuple[int, int]], _: set[str]) -> None:
    for group in event.get("groups", (event.get("group"),)):
        for place in [place for place in in_force if place[0] == group]:
            truth.deleted.append((event["ts_ms"], "GROUP_DELETED", place))
            del in_force[place]
        truth.deleted.append((event["ts_ms"], "GROUP_DELETED", group))


def _topic_deleted(event: Event, truth: Truth, _: Any, __: set[str]) -> None:
    truth.deleted.append((event["ts_ms"], "TOPIC_DELETED", event["topic"]))


def _offsets_altered(event: Event, truth: Truth, _: Any, __: set[str]) -> None:
    truth.altered.extend((event["group"], partition) for partition in event["offsets"])


WITHOUT_REWINDS: Final = frozenset({"new-44"})
"""Recordings of what is new in a release only."""

_READ: Final[Mapping[str, Callable[[Event, Truth, dict[Place, tuple[int, int]], set[str]], None]]] = {
    "commit": _commit,
    "member_start": _member_start,
    "txn": _txn,
    "txn_hanging": _txn_hanging,
    "txn_fenced": _txn_fenced,
    "offsets_deleted": _offsets_deleted,
    "group_deleted": _group_deleted,
    "groups_deleted": _group_deleted,
    "streams_group_deleted": _group_deleted,
    "topic_deleted": _topic_deleted,
    "offsets_altered": _offsets_altered,
}


@pytest.fixture
def lives(recording: Recording, warehouse_of: WarehouseOf) -> list[GroupLife]:
    """What silver holds of the groups of a recording."""
    files = SilverFiles.of(
        ClusterTables(Warehouse(str(warehouse_of(recording))), cluster_id_of(recording)), SILVER_TABLES
    )
    return [life for log_partition in _log_partitions(recording) for life in group_lives(files, log_partition)]


@pytest.fixture
def truth(recording: Recording) -> Truth:
    """What clients did: nothing else happened."""
    return read_truth(read_events(recording))


@pytest.fixture
def shown(recording: Recording, lives: list[GroupLife]) -> Truth:
    """What they did while the log was written: all of it is there to be found."""
    newest = max(int(life.commits.recorded_at_ms.max(initial=0)) for life in lives)
    return read_truth(read_events(recording), newest)


def _log_partitions(recording: Recording) -> Iterator[int]:
    for folder in sorted(recording.logs.glob("__consumer_offsets-*")):
        yield int(folder.name.rpartition("-")[2])


@dataclass(slots=True)
class Judged:
    """Answers to one question."""

    right: int = 0
    wrong: list[object] = field(default_factory=list)
    missed: list[object] = field(default_factory=list)

    @property
    def line(self) -> str:
        """For the report."""
        claimed, there = self.right + len(self.wrong), self.right + len(self.missed)
        precision = f"{self.right / claimed:.3f}" if claimed else "-"
        recall = f"{self.right / there:.3f}" if there else "-"
        return f"precision {precision} of {claimed}, recall {recall} of {there}"


def place_of(row: AnomalyRow) -> Place:
    """As clients print it."""
    return row.group_id, f"{row.topic}-{row.partition}"


def judge_rewinds(rows: Iterable[AnomalyRow], truth: Truth, shown: Truth) -> Judged:
    """Each rewind that a client recorded, once, with the offsets before and after."""
    claimed: Counter[Any] = Counter(
        (place_of(row), row.from_offset, row.to_offset)
        for row in rows
        if row.group_id in truth.reported and row.delta is not None and row.delta < 0
    )
    happened: Counter[Any] = truth.rewinds + truth.late_rewinds
    expected: Counter[Any] = Counter(
        {key: count for key, count in shown.rewinds.items() if key[0][0] in truth.reported}
    )
    return Judged((claimed & happened).total(), [*(claimed - happened)], [*(expected - claimed)])


def judge_aborted(rows: Iterable[AnomalyRow], truth: Truth, shown: Truth) -> Judged:
    """Each offset whose transaction was aborted, once."""
    reported = truth.reported_transactions | {group for group, _ in truth.aborted}
    claimed: Counter[Any] = Counter(
        (row.group_id, row.to_offset) for row in rows if row.kind == "ABORTED" and row.group_id in reported
    )
    happened: Counter[Any] = Counter(truth.aborted)
    expected: Counter[Any] = Counter(shown.aborted)
    return Judged((claimed & happened).total(), [*(claimed - happened)], [*(expected - claimed)])


def judge_deletions(rows: Iterable[AnomalyRow], truth: Truth, shown: Truth) -> Judged:
    """No wrong cause; and each place that an admin deleted has its row at that time."""
    judged = Judged()
    deleted = [row for row in rows if row.kind == "DELETED"]
    for row in deleted:
        causes = {cause for at, cause, what in truth.deleted if _concerns(row, at, what)}
        if row.likely_cause is None or (row.likely_cause in causes if causes else row.likely_cause == "EXPIRED"):
            judged.right += 1
        else:
            judged.wrong.append((row, causes))
    at_place: defaultdict[Place, list[int]] = defaultdict(list)
    for row in deleted:
        at_place[place_of(row)].append(row.at)
    judged.missed = [
        (at, cause, what)
        for at, cause, what in shown.deleted
        if isinstance(what, tuple) and not any(abs(at - row_at) < ONE_ACTION_MS for row_at in at_place[what])
    ]
    return judged


def _concerns(row: AnomalyRow, at: int, what: Place | str) -> bool:
    return abs(row.at - at) < ONE_ACTION_MS and what in (place_of(row), row.group_id, row.topic)


def test_commit_anomalies(
    recording: Recording, lives: list[GroupLife], truth: Truth, shown: Truth, report_line: ReportLine
) -> None:
    """All that happened and the log still shows is there, and nothing that did not happen."""
    settings = InferenceSettings()
    rows = [row for life in lives for row in find_anomalies(life, partition_owners(life), settings)]
    is_whole = not recording.is_compacted  # a compacted log holds little of what clients did
    for question, judge in (("rewinds", judge_rewinds), ("aborted", judge_aborted), ("deletions", judge_deletions)):
        judged = judge(rows, truth, shown)
        report_line(f"{recording.name} commit anomalies, {question}: {judged.line if is_whole else judged.right}")
        assert not judged.wrong
        assert not judged.missed or not is_whole
    by_confidence = Counter(row.confidence for row in rows)
    report_line(f"{recording.name} commit anomalies: {dict(sorted(by_confidence.items()))}")
    resets = [row for row in rows if row.kind == "EMPTY_GROUP_RESET"]
    assert all(row.confidence == "GUESS" for row in resets), "nobody reset a group that had had members"
    assert not is_whole or {place_of(row) for row in resets} >= set(shown.altered)


def test_the_recordings_have_what_is_judged(recording: Recording, truth: Truth) -> None:
    """Rewinds, aborted commits and deletions are in the truth of each, so that the test above compares something."""
    assert truth.rewinds or recording.name in WITHOUT_REWINDS
    assert truth.aborted
    assert truth.deleted
    assert truth.reported
