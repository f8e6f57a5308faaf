"""What changed behind a hole in a share partition's log changed at some time since the record before it."""

from pathlib import Path

import pytest

from coordinator_core.bytes import codec
from coordinator_core.bytes.log.batch import Record, build_batch
from schemas.cluster_metadata import CONFIG_RECORD
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC
from schemas.consumer_offsets import RecordType
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog

HOUR_MS = 3_600_000
GROUP_RESOURCE = 32


def limits(*values: tuple[int, int], name: str = "share.delivery.count.limit") -> SmallLog:
    """A metadata log that sets the delivery limit of the group, or another config: time and value."""
    log = SmallLog(0, METADATA_TOPIC)
    for at_ms, limit in values:
        fields = codec.make(
            CONFIG_RECORD,
            resource_type=GROUP_RESOURCE,
            resource_name="share",
            name=name,
            value=str(limit),
        )
        value = codec.encode_metadata(CONFIG_RECORD, fields, 0)
        log.batches.append(build_batch([Record(log.next_offset, at_ms, None, value)]))
        log.next_offset += 1
    return log


@pytest.mark.parametrize(("missing", "confidence"), [(0, "CERTAIN"), (5, "LIKELY")])
def test_no_limit_is_certain_behind_a_hole(ledger: Ledger, tmp_path: Path, missing: int, confidence: str) -> None:
    """Records that are missing may have given a record up under the limit of before: it was 3 and is 5 now."""
    log = SmallLog(0, SHARE_TOPIC)
    limits((NOON_MS - HOUR_MS, 3), (NOON_MS + 2 * HOUR_MS, 5)).write(tmp_path / "logs")
    log.snapshot("share", NOON_MS, ((0, 9, 0, 2),), snapshot_epoch=0)
    ledger.night(log.write(tmp_path / "logs"), number=1)
    log.skip(missing)
    log.snapshot("share", NOON_MS + 3 * HOUR_MS, ((0, 4, 4, 3), (5, 9, 0, 3)), snapshot_epoch=1 + missing)
    ledger.night(log.write(tmp_path / "logs"), number=2)
    (row,) = ledger.rows("gold.archived_records")
    assert (row["cause"], row["delivery_count"], row["delivery_count_limit"]) == ("REJECT_OR_GAP", 3, 5)
    assert row["confidence"] == confidence


def test_the_first_snapshot_behind_updates_shows_what_was_before(ledger: Ledger, tmp_path: Path) -> None:
    """The log begins with an update. The snapshot behind it has batches of records that are gone: they became so at
    some time before, in one request or in many. What the update itself wrote has its time."""
    log = SmallLog(0, SHARE_TOPIC)
    log.skip(5)
    log.update("share", NOON_MS, ((20, 20, 0, 1), (21, 21, 2, 1)))
    log.snapshot(
        "share", NOON_MS + HOUR_MS, ((0, 4, 0, 1), (5, 9, 2, 1), (10, 10, 2, 2), (20, 20, 0, 1), (21, 21, 2, 1))
    )
    ledger.night(log.write(tmp_path / "logs"))
    rows = sorted(ledger.rows("gold.redeliveries"), key=lambda row: int(row["first_offset"]))
    assert [(row["first_offset"], row["likely_cause"], row["method"]) for row in rows] == [
        (0, None, "FIRST_SNAPSHOT"),
        (10, None, "FIRST_SNAPSHOT"),
        (20, "RELEASED", "ACKNOWLEDGED_TOGETHER"),
    ]


@pytest.mark.parametrize("has_update", [False, True])
@pytest.mark.parametrize(
    ("missing", "methods"),
    [
        (0, {0: "LEADER_RELOAD", 5: "ACKNOWLEDGED_TOGETHER", 10: "DELIVERY_COUNT"}),
        (3, dict.fromkeys((5, 10), "FIRST_SNAPSHOT")),
    ],
)
def test_the_first_snapshot_behind_a_hole_shows_what_was_in_it(
    ledger: Ledger, tmp_path: Path, missing: int, methods: dict[int, str], has_update: bool
) -> None:
    """It has batches of records that are missing: they became so at some time since the record before, in one request
    or in many, and under either leader. The next update lists its own batches only."""
    log = SmallLog(0, SHARE_TOPIC)
    log.snapshot("share", NOON_MS, ((10, 10, 0, 1),), snapshot_epoch=0)
    log.skip(missing)
    if has_update:
        log.update("share", NOON_MS + 1_000, ((20, 20, 2, 1),))
    batches = (0, 4, 2, 1), (5, 9, 0, 1), (10, 10, 2, 2), *([(20, 20, 2, 1)] if has_update else ())
    log.snapshot("share", NOON_MS + HOUR_MS, batches, snapshot_epoch=1 + missing, leader_epoch=1)
    ledger.night(log.write(tmp_path / "logs"))
    rows = ledger.rows("gold.redeliveries")
    assert {row["first_offset"]: row["method"] for row in rows if row["log_offset"]} == methods


@pytest.mark.parametrize(
    ("missing", "has_snapshot", "is_given_up"), [(0, False, True), (3, False, False), (3, True, True)]
)
def test_what_a_start_offset_passes_until_a_snapshot_lists_all(
    ledger: Ledger, tmp_path: Path, missing: int, has_snapshot: bool, is_given_up: bool
) -> None:
    """Offsets may have been acknowledged in what is missing, of which the next update says nothing."""
    log = SmallLog(0, SHARE_TOPIC)
    log.snapshot("share", NOON_MS, (), snapshot_epoch=0)
    log.skip(missing)
    log.update("share", NOON_MS + 1_000, ((50, 50, 0, 1),))
    if has_snapshot:
        log.snapshot("share", NOON_MS + 2_000, ((50, 50, 0, 1),), snapshot_epoch=0)
    ledger.night(log.write(tmp_path / "logs"), number=1)
    log.update("share", NOON_MS + 2 * HOUR_MS, ((60, 60, 2, 1),), 50)
    ledger.night(log.write(tmp_path / "logs"), number=2)
    assert bool(ledger.rows("gold.archived_records")) == is_given_up


@pytest.mark.parametrize(("is_whole", "method"), [(True, "NOBODY_LEFT"), (False, "DELIVERY_COUNT")])
def test_a_lock_may_be_older_than_a_pruned_log(ledger: Ledger, tmp_path: Path, is_whole: bool, method: str) -> None:
    """The log begins 5 s before a record is handed back: its lock of 30 s may have ended, unless the share partition
    itself began there."""
    log, groups = SmallLog(0, SHARE_TOPIC), SmallLog()
    first = {"start_offset": -1} if is_whole else {"start_offset": 10, "snapshot_epoch": 7}
    log.snapshot("share", NOON_MS, (), **first)
    log.update("share", NOON_MS + 5_000, ((20, 20, 0, 1),), 10)
    log.update("share", NOON_MS + HOUR_MS, ((30, 30, 2, 1),))
    member = {"client_id": "c", "subscribed_topic_names": ("in",)}
    kind = RecordType.SHARE_GROUP_MEMBER_METADATA
    groups.group_record(kind, {"group_id": "share", "member_id": "m"}, member, NOON_MS - HOUR_MS)
    groups.group_record(RecordType.SHARE_GROUP_METADATA, {"group_id": "share"}, {"epoch": 2}, NOON_MS - HOUR_MS)
    groups.write(tmp_path / "logs")
    limits((NOON_MS - HOUR_MS, 30_000), name="share.record.lock.duration.ms").write(tmp_path / "logs")
    ledger.night(log.write(tmp_path / "logs"))
    (row,) = ledger.rows("gold.redeliveries")
    assert row["method"] == method
