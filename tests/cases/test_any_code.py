"""No value of a byte and no count of distinct texts stops a night, in any column that has names for codes."""

from pathlib import Path

import pytest

from schemas.consumer_offsets import RecordType
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from tests.cases.harness import CASES, Ledger
from tests.cases.judged import Judged
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.coordinator_core.group_records import T1


def test_an_unknown_delivery_state_is_shown_by_its_code(ledger: Ledger) -> None:
    """A delivery state of a Kafka to come, in one of four log partitions, is UNKNOWN_5 wherever silver names it."""
    assert ledger.night(CASES / "M-min" / "logs").exit_code == 0
    states = {row["delivery_state"] for row in ledger.rows("silver.share_state_batches")}
    changed = [row["changed_batches"] for row in ledger.rows("silver.share_partition_states")]
    transitions = {row["to_state"] for row in ledger.rows("silver.share_batch_transitions")}
    for names in (states, {batch["delivery_state"] for batches in changed for batch in batches}, transitions):
        assert "UNKNOWN_5" in names
        assert names <= {"AVAILABLE", "ACKNOWLEDGED", "ARCHIVING", "ARCHIVED", "UNKNOWN_5"}


def test_every_byte_may_be_a_delivery_state(ledger: Ledger, tmp_path: Path) -> None:
    """All 256 codes, shared out over six log partitions and two nights, stay distinct, and the second night too goes on
    to gold."""
    root = tmp_path / "logs"
    codes = [code if code < 128 else code - 256 for code in range(256)]
    logs = [SmallLog(number, SHARE_TOPIC) for number in range(6)]
    for night in (1, 2):
        for number, log in enumerate(logs):
            batches = tuple((10 * at, 10 * at + 9, code, 1) for at, code in enumerate(codes[number::6]))
            log.snapshot(f"g{number}", NOON_MS + night, batches, snapshot_epoch=night)
            log.write(root)
        assert ledger.night(root, number=night).exit_code == 0
    rows = ledger.rows("silver.share_state_batches")
    assert {row["delivery_state_code"] for row in rows} == set(codes)
    assert len({row["delivery_state"] for row in rows}) == 256
    assert {row["delivery_state"] for row in rows if row["delivery_state_code"] == -1} == {"UNKNOWN_-1"}


@pytest.mark.parametrize("state", [-128, -1, 3, 5, 127])
def test_an_unknown_member_state_is_shown(judged: Judged, state: int) -> None:
    """A member of a consumer group may be in any state that a byte can say."""
    log = SmallLog()
    log.group_record(RecordType.CONSUMER_GROUP_METADATA, {"group_id": "g"}, {"epoch": 1}, NOON_MS)
    log.group_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, {"group_id": "g", "member_id": "m"}, {}, NOON_MS)
    log.group_record(
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        {"group_id": "g", "member_id": "m"},
        {"member_epoch": 1, "state": state, "assigned_partitions": ({"topic_id": T1, "partitions": (0,)},)},
        NOON_MS,
    )
    judged.night(log.batches)
    events = judged.rows("silver.group_events")
    (reconciled,) = (row for row in events if row["event_type"] == "MEMBER_RECONCILED")
    assert dict(reconciled["details"])["state"] == "UNKNOWN"


def test_thousands_of_distinct_texts_in_many_log_partitions(ledger: Ledger, tmp_path: Path) -> None:
    """Group ids, topics, member ids, protocols and hosts are all different in each of 8 log partitions, on two nights,
    and nothing of them is lost."""
    root = tmp_path / "logs"
    logs = [SmallLog(number) for number in range(8)]
    for night in (1, 2):
        for log in logs:
            for number in range(40):
                name = f"{log.partition}-{night}-{number}"
                log.commit(f"g{name}", number, number, NOON_MS + night, topic=f"t{name}")
                log.generation(f"c{name}", 1, {f"m{name}": (0,)}, NOON_MS + night)
            log.write(root)
        assert ledger.night(root, number=night).exit_code == 0
    commits, members = ledger.rows("silver.offset_commits"), ledger.rows("silver.group_members")
    assert len({row["topic"] for row in commits}) == len({row["member_id"] for row in members}) == 640
    assert len({row["member_id"] for row in ledger.rows("gold.partition_owners")}) == 640
