"""Dumps that a later Kafka's tools printed: each record is there, and what cannot be read of it is said."""

import gzip
from pathlib import Path

from tests.cases.harness import CASES, Ledger

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
