"""A share record that is handed back with the count that it had: brokers 4.1 take the delivery off its count."""

from collections import Counter

import pytest

from tests.cases.harness import CASES, Ledger

pytestmark = pytest.mark.first

LOGS = CASES / "share-same-count" / "logs"


def test_each_hand_back_at_an_unchanged_count_is_a_redelivery(ledger: Ledger) -> None:
    """Each update of AVAILABLE 1 on AVAILABLE 1 is a row in silver and in gold, and is counted in the day."""
    ledger.night(LOGS, partitions=("__consumer_offsets=50", "__share_group_state=50"))
    returned = [row for row in ledger.rows("silver.share_batch_transitions") if row["kind"] == "RETURNED"]
    assert returned
    assert {row["group_id"] for row in returned} == {"s-decr"}
    assert all(
        (row["from_state"], row["from_delivery_count"]) == (row["to_state"], row["to_delivery_count"])
        for row in returned
    )
    rows = [row for row in ledger.rows("gold.redeliveries") if row["cause"] == "RETURNED"]
    places = ("log_offset", "first_offset", "last_offset")
    assert sorted(tuple(row[name] for name in places) for row in rows) == sorted(
        tuple(row[name] for name in places) for row in returned
    )
    assert Counter(row["confidence"] for row in rows) == {"LIKELY": len(rows)}
    extra = sum(row["last_offset"] - row["first_offset"] + 1 for row in rows)
    days = [row for row in ledger.rows("gold.share_group_summary") if row["group_id"] == "s-decr"]
    assert sum(row["extra_deliveries"] for row in days) >= extra


def test_a_real_broker_hands_back_at_no_count_at_all(ledger: Ledger) -> None:
    """Kafka 4.1.1: twelve consumers, one after the other, polled ten records and closed; the log has AVAILABLE 0 each
    time, and all deliveries but the first are beyond it."""
    ledger.night(
        CASES / "share-same-count" / "broker-4.1.1", partitions=("__consumer_offsets=5", "__share_group_state=5")
    )
    rows = sorted(ledger.rows("gold.redeliveries"), key=lambda row: row["log_offset"])
    assert [(row["first_offset"], row["last_offset"], row["to_delivery_count"]) for row in rows] == [(0, 9, 0)] * 12
    assert [row["cause"] for row in rows] == ["HANDED_BACK", *["RETURNED"] * 11]
    (day,) = ledger.rows("gold.share_group_summary")
    assert (day["records_redelivered"], day["extra_deliveries"]) == (10, 110)
