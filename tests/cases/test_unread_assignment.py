"""Assignments of clients that do not write what their version says: owners are known, and one note a client software
and protocol says how it writes."""

from pathlib import Path

import pytest

from tests.cases.client_logs import Client, Generation, log_of
from tests.cases.harness import CASES, Ledger

EVENTS = b"\x00\x00\x00\x01\x00\x06events"
SUBSCRIBED = b"\x00\x00" + EVENTS + b"\xff\xff\xff\xff"
WITHOUT_USER_DATA = b"\x00\x01" + EVENTS + b"\x00\x00\x00\x01\x00\x00\x00\x00"
"""Version 1 of an assignment of partition 0, without the user data at its end."""


def test_owners_and_moves_are_known(ledger: Ledger) -> None:
    """platformatic/kafka#284: who owned which partition, and how many a rebalance moved."""
    ledger.night(CASES / "unread-assignment" / "logs")
    owned = sorted((row["member_id"], row["partition"]) for row in ledger.rows("gold.partition_owners"))
    assert owned == [("pm-1", 0), ("pm-1", 1), ("pm-1", 2), ("pm-2", 2)]
    second = max(ledger.rows("gold.rebalances"), key=lambda row: row["to_generation"])
    assert (second["partitions_total"], second["partitions_moved"]) == (3, 1)


def test_it_is_no_broken_rule_of_the_coordinators(ledger: Ledger) -> None:
    """A healthy cluster with such a client has one note, of the client."""
    night = ledger.night(CASES / "unread-assignment" / "logs")
    (row,) = ledger.rows("gold.log_anomalies")
    assert row["category"] == "CLIENT"
    assert list(night.facts["found"]["new"]) == ["clients"]


@pytest.mark.parametrize("client_ids", [("app", "app", "app"), ("orders", "billing", "search")])
def test_a_note_a_client_software(ledger: Ledger, tmp_path: Path, client_ids: tuple[str, ...]) -> None:
    """Groups whose clients write alike are one note with their number, however their applications are called."""
    for number, client_id in enumerate(client_ids):
        generations = [
            Generation(at, {f"m-{number}": Client(SUBSCRIBED, WITHOUT_USER_DATA, client_id)}, 1_000 * at)
            for at in (1, 2)
        ]
        log_of(tmp_path / "logs", f"group-{number}", generations)
    night = ledger.night(tmp_path / "logs")
    ((note, count),) = night.facts["found"]["new"]["clients"].items()
    assert count == 3 and note.endswith("protocol 'range'")
