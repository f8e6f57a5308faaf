"""Why committed offsets went away: by their own expiry, with their topic, and by nothing that a log does not prove."""

from pathlib import Path

import pytest

from coordinator_core.bytes import codec
from schemas import cluster_metadata as metadata
from tests.cases.harness import CASES, Ledger
from tests.cases.judged import Judged
from tests.coordinator_core.inference.group_lives import TOPIC, TOPIC_ID, commit, generation
from tests.coordinator_core.inference.group_weeks import timed_batches
from tests.jobs.builders import batch, write_segment

AT_MS = 1_700_000_000_000
DAY_MS = 86_400_000

Reason = tuple[str | None, str, str]


def deleted(ledger: Ledger | Judged) -> dict[tuple[str, int], Reason]:
    """Why each offset went: by group and partition."""
    return {
        (row["group_id"], row["partition"]): (row["likely_cause"], row["method"], row["confidence"])
        for row in ledger.rows("gold.commit_anomalies")
        if row["kind"] == "DELETED"
    }


def test_offsets_expire_as_their_own_value_says(ledger: Ledger) -> None:
    """Before 2.1 that is so whether members read the topic or not, and with a retention of none."""
    ledger.night(CASES / "C-expiry" / "logs")
    expired = "EXPIRED", "EXPIRE_TIME", "CERTAIN"
    assert deleted(ledger) == {("kip211", 1): expired, ("ret0", 0): expired, ("ret0simple", 0): expired}


def metadata_log(root: Path, removed_ms: int) -> Path:
    """The topic is made, and removed at a time."""
    made = codec.make(metadata.TOPIC_RECORD, topic_id=TOPIC_ID, name=TOPIC)
    gone = codec.make(metadata.REMOVE_TOPIC_RECORD, topic_id=TOPIC_ID)
    data = batch(0, timestamp_ms=AT_MS, value=codec.encode_metadata(metadata.TOPIC_RECORD, made, 0))
    data += batch(1, timestamp_ms=removed_ms, value=codec.encode_metadata(metadata.REMOVE_TOPIC_RECORD, gone, 0))
    write_segment(root, "__cluster_metadata", 0, 0, data)
    return root


@pytest.mark.parametrize("nights", [1, 3])
def test_a_topic_that_was_removed_before(ledger: Ledger, tmp_path: Path, nights: int) -> None:
    """The metadata log proves it, though nobody had read the topic for days; be it that this is known a night later,
    and that another group, of which nothing was deleted, stays as it is."""
    deleted_ms = AT_MS + 8 * DAY_MS
    reported = [
        (AT_MS, generation(1, {"m": [0]})),
        (AT_MS + 1_000, commit(10)),
        (AT_MS + 2_000, commit(10, group_id="other")),
        (AT_MS + 3_000, generation(2, {})),
        (deleted_ms, commit(None)),
    ]
    offsets, later = tmp_path / "offsets", tmp_path / "later"
    write_segment(offsets, "__consumer_offsets", 0, 0, b"".join(timed_batches(reported)))
    metadata_log(later, deleted_ms - 44)
    if nights == 1:
        ledger.night(offsets, later)
    else:
        ledger.night(offsets, number=1)
        assert deleted(ledger) == {("g", 0): (None, "TOMBSTONE", "CERTAIN")}
        for number in (2, 3):
            ledger.night(later, number=number)
            assert deleted(ledger) == {("g", 0): ("TOPIC_DELETED", "METADATA_LOG", "CERTAIN")}
    assert deleted(ledger) == {("g", 0): ("TOPIC_DELETED", "METADATA_LOG", "CERTAIN")}


def test_an_offset_that_expires_while_its_group_rebalances(judged: Judged) -> None:
    """Until Kafka 3.1 a subscribed topic is not spared then (KAFKA-13636): the topic was not deleted, as another
    partition keeps its offset and is committed on."""
    week_ms = AT_MS + 7 * DAY_MS
    reported = [
        (AT_MS, generation(1, {"m": [0, 1]})),
        (AT_MS + 1_000, commit(10)),
        (AT_MS + 1_000, commit(10, 1)),
        (week_ms, commit(20, 1)),
        (week_ms + 60_000, commit(None)),
        (week_ms + 70_000, generation(2, {"m": [0, 1]}, state_at=week_ms + 69_000)),
        (week_ms + 80_000, commit(30, 1)),
    ]
    judged.night(timed_batches(reported))
    assert deleted(judged) == {("g", 0): ("EXPIRED", "AGE_AT_RETENTION", "LIKELY")}
