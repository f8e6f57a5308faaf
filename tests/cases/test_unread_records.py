"""Groups of which records cannot be read, as those of early access releases: answers say so where they know nothing."""

from pathlib import Path

import pytest

from coordinator_core.bytes.codec import encode_key, encode_value, make
from jobs.cli_enums import View
from jobs.errors import NoSuchGroupError
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.share_group_state import SHARE_SNAPSHOT_KEY, ShareStateRecordType
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from tests.answers import describe
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_answers import owned
from tests.coordinator_core.group_records import T1, record

CUT_SHORT = b"\x00\x00\x05"
"""A value of version 0 whose first field is longer than the rest."""


def unread_member(log: SmallLog, group_id: str, member_id: str) -> None:
    """ConsumerGroupMemberMetadata in a form that nobody declares."""
    kind = RecordType.CONSUMER_GROUP_MEMBER_METADATA
    _, key, _ = record(kind, {"group_id": group_id, "member_id": member_id}, None)
    log.put(encode_key(TOPIC, kind, key), CUT_SHORT, NOON_MS)


@pytest.fixture(scope="module")
def unread(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Group `seen` has offsets and two unreadable members, `unseen` a member alone; `fine` is as it should be."""
    log = SmallLog()
    log.commit("seen", 0, 5, NOON_MS)
    unread_member(log, "seen", "a")
    unread_member(log, "seen", "b")
    unread_member(log, "unseen", "a")
    log.commit("fine", 0, 5, NOON_MS)
    shares = SmallLog(topic=SHARE_TOPIC)
    key = make(SHARE_SNAPSHOT_KEY, group_id="unseen", topic_id=T1, partition=0)
    shares.put(encode_key(SHARE_TOPIC, ShareStateRecordType.SHARE_SNAPSHOT, key), CUT_SHORT, NOON_MS)
    root = tmp_path_factory.mktemp("unread")
    shares.write(root / "logs")
    ledger = Ledger(root / "warehouse")
    ledger.night(log.write(root / "logs"))
    return ledger


def test_a_group_with_unread_records_is_described_with_a_note(unread: Ledger) -> None:
    """How many, where, and what is wrong; another group has none."""
    described = describe(unread.warehouse, CLUSTER_ID, view=View.STATE, group_ids=["seen", "fine"])
    notes = {it.group.group_id: it.note for it in described}
    assert notes["fine"] is None
    assert notes["seen"] is not None
    assert notes["seen"].startswith(
        "2 of its records in __consumer_offsets-0, between offsets 1 and 2, could not be read"
    )
    assert {row["group_id"] for row in unread.rows("bronze.quarantine")} == {"seen", "unseen"}


def test_a_version_of_a_later_kafka_is_not_called_early_access(ledger: Ledger, tmp_path: Path) -> None:
    """GroupMetadata in version 9."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS)
    _, key, _ = record(RecordType.GROUP_METADATA, {"group": "g"}, None)
    log.put(encode_key(TOPIC, RecordType.GROUP_METADATA, key), b"\x00\x09", NOON_MS)
    ledger.night(log.write(tmp_path / "logs"))
    [it] = describe(ledger.warehouse, CLUSTER_ID, view=View.STATE, group_ids=["g"])
    assert it.note is not None and "(UNKNOWN_VALUE_VERSION), as those of a later Kafka:" in it.note


def test_a_group_of_unread_records_alone_is_not_just_missing(unread: Ledger) -> None:
    """Of a group that no record tells of it is said that there are some, in both logs."""
    with pytest.raises(NoSuchGroupError) as raised:
        describe(unread.warehouse, CLUSTER_ID, view=View.STATE, group_ids=["unseen", "nobody"])
    text = str(raised.value)
    assert text.startswith(
        "no such group at that time: nobody, unseen; unseen: 1 of its records in __consumer_offsets-0, at offset 3,"
    )
    assert "unseen: 1 of its records in __share_group_state-0, at offset 0," in text


def test_who_may_have_owned_a_partition_is_named(unread: Ledger) -> None:
    """Instead of that no group was ever assigned it."""
    assert owned(unread, "in", 0)[1] == [
        "no owner is known",
        "seen, unseen may have owned it: 4 records that could not be read: ./spark-submit.sh audit --list quarantine"
        + unread.tables.place_words,
    ]


def test_what_was_read_after_all_is_not_said(ledger: Ledger, tmp_path: Path) -> None:
    """A log without such records says what it always said."""
    log = SmallLog()
    log.commit("fine", 0, 5, NOON_MS)
    ledger.night(log.write(tmp_path / "logs"))
    assert owned(ledger, "in", 0)[1] == ["no group was ever assigned partition 0 of topic in, as far as the log tells"]


EPOCH_MS = 60_000


def epoch_of(group_id: str, epoch: int) -> tuple[bytes, bytes]:
    """Key and value of ConsumerGroupMetadata."""
    kind = RecordType.CONSUMER_GROUP_METADATA
    _, key, value = record(kind, {"group_id": group_id}, {"epoch": epoch})
    assert value is not None
    return encode_key(TOPIC, kind, key), encode_value(TOPIC, kind, 0, value)


def of_early_access(log: SmallLog, group_id: str, epochs: int) -> None:
    """Epochs of a consumer group, each with a member in a form of its own, and commits of that member."""
    for epoch in range(1, epochs + 1):
        at_ms = NOON_MS + EPOCH_MS * epoch
        unread_member(log, group_id, f"m{epoch}")
        log.put(*epoch_of(group_id, epoch), at_ms)
        log.commit(group_id, 0, 5 * epoch, at_ms + 1)
        log.commit(group_id, 1, 5 * epoch, at_ms + 1)


@pytest.mark.parametrize("cuts", [(), (3,), (1, 5, 9)], ids=str)
def test_a_group_with_unread_members_is_not_called_empty(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    """Its commits are not said to be put there without members, nor its rebalances to have emptied it; one that is
    empty still is."""
    log = SmallLog()
    of_early_access(log, "early", 3)
    log.put(*epoch_of("empty", 2), NOON_MS)
    log.commit("empty", 0, 5, NOON_MS + 1)
    ledger, batches = Ledger(tmp_path / "warehouse"), log.batches
    for number, cut in enumerate((*cuts, len(batches)), 1):
        log.batches = batches[:cut]
        ledger.night(log.write(tmp_path / f"logs-{number}"), number=number)
    found = {(row["group_id"], row["kind"], row["was_group_empty"]) for row in ledger.rows("gold.commit_anomalies")}
    assert found == {("empty", "EMPTY_GROUP_RESET", True)}
    causes = {row["group_id"]: row["causes"] for row in ledger.rows("gold.rebalances") if row["group_id"] == "early"}
    assert causes == {"early": ["UNKNOWN"]}
