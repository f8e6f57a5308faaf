"""Dumps that a later Kafka's tools printed: each record is there, and what cannot be read of it is said."""

import gzip
from pathlib import Path

import pytest

from jobs.cli_enums import View
from tests.answers import describe
from tests.cases.harness import CASES, CLUSTER_ID, Ledger

CASE = CASES / "kafka-4.4"


def dumped(folder: Path, name: str, found: str = "", becomes: str = "") -> str:
    """A dump of a topic, one text replaced by another."""
    text = gzip.decompress((CASE / "decoded" / f"{name}.dump.txt.gz").read_bytes()).decode()
    assert found in text
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.dump.txt").write_text(text.replace(found, becomes) if found else text, encoding="utf-8")
    return str(folder)


def test_a_field_of_a_later_kafka_loses_no_record(tmp_path: Path) -> None:
    """With a field that nobody here knows, a log has the commit anomalies of one without, and the night says so."""
    known, later = Ledger(tmp_path / "known"), Ledger(tmp_path / "later")
    known.night(dumps=(dumped(tmp_path / "a", "__consumer_offsets"),))
    field = '"storedDescriptionTopologyEpoch"'
    night = later.night(dumps=(dumped(tmp_path / "b", "__consumer_offsets", field, '"knownOnlyLater"'),))
    assert "knownOnlyLater (14)" in night.text
    assert later.rows("bronze.quarantine") == []
    for name in ("gold.commit_anomalies", "gold.rebalances", "silver.offset_commits"):
        assert len(later.rows(name)) == len(known.rows(name)), name
    kinds = [
        {(row["group_id"], row["topic"], row["partition"], row["kind"]) for row in ledger.rows("gold.commit_anomalies")}
        for ledger in (known, later)
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize(
    ("name", "found", "becomes", "said"),
    [
        (
            "__consumer_offsets",
            'payload: {"version":"4"',
            'payload: {"version":"5"',
            "OffsetCommitValue has no version 5",
        ),
        ("__consumer_offsets", 'key: {"type":"22"', 'key: {"type":"42"', "record type 42 is not one of"),
        ("__transaction_state", "PrepareCommit", "PrepareLater", "a status which no transaction has"),
    ],
)
def test_what_a_later_kafka_prints_is_not_called_badly_printed(
    ledger: Ledger, tmp_path: Path, name: str, found: str, becomes: str, said: str
) -> None:
    """A version, a type and a name that nobody here knows: the remedy is the segments, and no other decoder; describe
    says of a group that records of it could not be read, where the key names it."""
    night = ledger.night(dumps=(dumped(tmp_path / "d", name, found, becomes),))
    messages = {row["message"].partition(": ")[2] for row in ledger.rows("bronze.quarantine")}
    assert len(messages) == 1
    [message] = messages
    assert message.startswith(f"{said}") and "a later Kafka wrote it" in message and "--segments" in message
    assert message in night.text
    groups = {row["group_id"] for row in ledger.rows("bronze.quarantine")}
    if "version 5" in said:
        assert "k21-assignor" in groups
        [it] = describe(ledger.warehouse, CLUSTER_ID, view=View.STATE, group_ids=["k21-assignor"])
        assert it.note is not None and "could not be read (RECORD_NOT_PRINTED)" in it.note
