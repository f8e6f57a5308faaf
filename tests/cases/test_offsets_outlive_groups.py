"""Kafka 0.9 writes a tombstone of a group when its last member leaves, and keeps its offsets until they expire."""

from pathlib import Path

import pytest

from jobs.cli_enums import View
from jobs.errors import NoSuchGroupError
from schemas.consumer_offsets import RecordType
from tests.answers import describe
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog, assignment, subscription

MINUTE_MS = 60_000


def log_of_09(magic: int, *, expire: bool = False) -> SmallLog:
    """A member commits two partitions and leaves; perhaps the offsets expire. Magic 0 has no times."""
    log = SmallLog()

    def at(minute: int) -> int | None:
        return NOON_MS + minute * MINUTE_MS if magic else None

    member = {
        "member_id": "a",
        "client_id": "c",
        "client_host": "/h",
        "session_timeout": 30_000,
        "subscription": subscription("in"),
        "assignment": assignment("in", 0, 1),
    }
    value = {"protocol_type": "consumer", "generation": 1, "protocol": "range", "leader": "a", "members": [member]}
    log.group_record(RecordType.GROUP_METADATA, {"group": "g"}, value, at(0), version=0, magic=magic)
    for partition in (0, 1):
        commit_ms = NOON_MS + partition * MINUTE_MS
        log.commit("g", partition, 5 + partition, at(partition), commit_ms=commit_ms, version=1, magic=magic)
    log.group_record(RecordType.GROUP_METADATA, {"group": "g"}, None, at(2), magic=magic)
    if expire:
        for partition in (0, 1):
            log.commit("g", partition, None, at(10), magic=magic)
    return log


def offsets_at(ledger: Ledger, at_ms: int | None) -> tuple[str, list[tuple[object, object]]]:
    """State of the group and its offsets by partition, as describe shows them."""
    (found,) = describe(ledger.warehouse, CLUSTER_ID, view=View.OFFSETS, at_ms=at_ms, group_ids=["g"])
    return found.group.state, [(row["PARTITION"], row["CURRENT-OFFSET"]) for row in found.rows]


@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_of_a_group_that_a_tombstone_ended_are_shown(ledger: Ledger, tmp_path: Path, magic: int) -> None:
    """The group is Empty with its offsets, now and as of a time; before the second commit it has the first alone."""
    ledger.night(log_of_09(magic).write(tmp_path / "logs"))
    assert offsets_at(ledger, None) == ("Empty", [(0, 5), (1, 6)])
    assert offsets_at(ledger, NOON_MS + 5 * MINUTE_MS) == ("Empty", [(0, 5), (1, 6)])
    assert offsets_at(ledger, NOON_MS + MINUTE_MS // 2) == ("Stable", [(0, 5), (1, None)])


@pytest.mark.parametrize("cut", [2, 5])
def test_the_group_goes_with_its_last_offset(tmp_path: Path, cut: int) -> None:
    """Wherever the nights are cut: once its offsets expire nothing is left of it."""
    log = log_of_09(1, expire=True)
    whole = log.batches
    nights, once = Ledger(tmp_path / "nights"), Ledger(tmp_path / "once")
    once.night(log.write(tmp_path / "logs"))
    log.batches = whole[:cut]
    nights.night(log.write(tmp_path / "first"))
    nights.night(tmp_path / "logs", number=2)
    for table in ("silver.group_generations", "silver.group_events"):
        rows = [sorted(map(repr, it.rows(table))) for it in (nights, once)]
        assert rows[0] == rows[1]
    with pytest.raises(NoSuchGroupError):
        offsets_at(nights, None)
