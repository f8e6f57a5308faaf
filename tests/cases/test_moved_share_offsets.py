"""What an admin does to the offsets of share groups is shown everywhere: moved on, moved back, deleted with or without
their group."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.cli_enums import Listing
from jobs.queries.answers.audit_report import run_audit_report
from jobs.queries.answers.findings import findings, lines
from jobs.queries.answers.group_history import events_and_steps
from jobs.queries.answers.group_verdicts import MOVED, WARN, group_verdicts
from schemas.consumer_offsets import RecordType
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from tests.answers import printed
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_times import gold
from tests.coordinator_core.group_records import T1

pytestmark = pytest.mark.first

MINUTE_MS: Final = 60_000
RESET_MS: Final = NOON_MS + 10 * MINUTE_MS
BACK_MS: Final = NOON_MS + 20 * MINUTE_MS
GROUPS: Final = ("skip", "rewind", "wipe", "recreate")
EXPECTED: Final = {
    "skip": ("SKIPPED_BY_RESET", 100, 300, 200, 0, "CERTAIN"),
    "rewind": ("REWOUND_BY_RESET", 100, 20, 0, 80, "CERTAIN"),
    "wipe": ("OFFSETS_DELETED", 100, None, 300, 0, "CERTAIN"),
    "recreate": ("GROUP_DELETED", 100, None, 0, 100, "CERTAIN"),
}
"""Kind, from and to offset, records never delivered and delivered again, confidence."""


def partitions_of(log: SmallLog, group_id: str, at_ms: int, name: str) -> None:
    """A ShareGroupStatePartitionMetadata with the topic in one of its lists."""
    topic: dict[str, Any] = {"topic_id": T1, "topic_name": "in"}
    topics = [topic if name == "deleting_topics" else {**topic, "partitions": [0]}]
    kind = RecordType.SHARE_GROUP_STATE_PARTITION_METADATA
    log.group_record(kind, {"group_id": group_id}, {name: topics}, at_ms)


def nights() -> Iterator[tuple[SmallLog, SmallLog]]:
    """The logs of groups and of share partitions: before the changes, behind them, and when the groups are back."""
    groups, shares = SmallLog(), SmallLog(0, SHARE_TOPIC)
    for group_id in GROUPS:
        groups.group_record(RecordType.SHARE_GROUP_METADATA, {"group_id": group_id}, {"epoch": 2}, NOON_MS)
        partitions_of(groups, group_id, NOON_MS, "initialized_topics")
        shares.snapshot(group_id, NOON_MS, (), start_offset=-1)
        shares.update(group_id, NOON_MS + MINUTE_MS, ((0, 99, 2, 1),), start=0)
    yield groups, shares
    shares.snapshot("skip", RESET_MS, (), start_offset=300, snapshot_epoch=1)
    shares.snapshot("rewind", RESET_MS, (), start_offset=20, snapshot_epoch=1)
    for group_id in ("wipe", "recreate"):
        partitions_of(groups, group_id, RESET_MS - 2, "deleting_topics")
        shares.tombstone(group_id, RESET_MS)
    groups.group_record(RecordType.SHARE_GROUP_METADATA, {"group_id": "recreate"}, None, RESET_MS + 2)
    yield groups, shares
    for group_id, start in (("wipe", 400), ("recreate", 0)):
        groups.group_record(RecordType.SHARE_GROUP_METADATA, {"group_id": group_id}, {"epoch": 5}, BACK_MS)
        shares.snapshot(group_id, BACK_MS, (), start_offset=-1)
        shares.update(group_id, BACK_MS + 1, ((start, start + 9, 2, 1),), start=start)
    yield groups, shares


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """What is compared of a row of gold.share_offset_changes."""
    counts = row["never_delivered_count"], row["delivered_again_count"]
    return row["kind"], row["from_offset"], row["to_offset"], *counts, row["confidence"]


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """One night of all of it."""
    folder = tmp_path_factory.mktemp("moved")
    for groups, shares in nights():
        groups.write(folder / "logs")
        shares.write(folder / "logs")
    ledger = Ledger(folder / "warehouse")
    ledger.night(folder / "logs")
    return ledger


def test_changes_are_shown(moved: Ledger) -> None:
    """Gold has each with its numbers, the day adds them up, history and the list of what was given up name them."""
    assert {row["group_id"]: place(row) for row in moved.rows("gold.share_offset_changes")} == EXPECTED
    for row in moved.rows("gold.share_group_summary"):
        counts = row["offset_change_count"], row["never_delivered_count"], row["delivered_again_count"]
        assert counts == (1, *EXPECTED[row["group_id"]][3:5])
    events = events_and_steps(moved.tables, "skip", from_ms=None, to_ms=None)[0]
    (text,) = (event.text for event in events if event.event == "offsets SKIPPED_BY_RESET")
    assert text == "in-0 from 100 to 300, 200 records never delivered"
    archived, _ = printed(run_audit_report, moved.tables, listing=Listing.ARCHIVED)
    skipped = [line for line in archived.splitlines() if "never delivered" in line]
    assert len(skipped) == 2
    assert "to group skip: 200 records of in-0 from offset 100 on: SKIPPED_BY_RESET" in "\n".join(skipped)


def test_nights_show_what_one_night_shows(moved: Ledger, tmp_path: Path) -> None:
    """What a deletion skips is known only when the group is back, nights later."""
    ledger = Ledger(tmp_path / "nights")
    for number, (groups, shares) in enumerate(nights(), 1):
        groups.write(tmp_path / "some")
        shares.write(tmp_path / "some")
        ledger.night(tmp_path / "some", number=number)
        if number == 2:
            found = {row["group_id"]: place(row) for row in ledger.rows("gold.share_offset_changes")}
            assert found["wipe"] == ("OFFSETS_DELETED", 100, None, None, None, "CERTAIN")
    assert gold(ledger) == gold(moved)


def test_groups_that_were_moved_need_attention(moved: Ledger) -> None:
    """The verdict of each says what happened and how many records it cost, and a night finds all of them."""
    verdicts = {it.group_id: it for it in group_verdicts(moved.tables, from_ms=NOON_MS)}
    assert {group_id: (it.verdict, it.rules) for group_id, it in verdicts.items()} == {
        group_id: (WARN, {MOVED: 1}) for group_id in GROUPS
    }
    assert verdicts["skip"].why == (
        "offsets reset or deleted by a tool: 1 time, 200 records never delivered (who did it is in no log)"
    )
    found = findings(moved.tables)
    assert found.new(Listing.SHARE_OFFSETS) == dict.fromkeys(sorted(GROUPS), 1)
    assert "4 share offsets moved by a tool" in found.summary
    assert any("audit --list share-offsets" in line for line in lines(found))
