"""Nights over what kafka-dump-log of older releases printed: what the lines say is in the tables, what they leave out
is null, what cannot be read is said with file, line and remedy, and the segments put it right afterwards."""

import shutil
from io import StringIO
from pathlib import Path

import pytest

from jobs.cli_enums import View
from jobs.queries.owner import run_owner
from tests.answers import describe
from tests.cases.harness import CLUSTER_ID, Ledger, Night
from tests.older_dumps import MAGIC_2, PRINTED, STATE, write_log

COMMITTED = {
    ("g", "orders", 0): 5,
    ("g", "orders", 1): 7,
    ("g", "a-b.c_d", 12): 2**40,
    ("g:x,partition=a-1", "orders", 0): 5,
    ("grüße", "orders", 0): 5,
    ("h", "orders", 0): 9,
    ("tx", "orders", 0): 50,
    ("z", "orders", 0): 54,
}
TOOLS = ("0.11.0.3", "2.2.2", "2.8.2", "3.5.2")
HAVE_KEYS_OF_TOMBSTONES = ("2.8.2", "3.5.2")


def dumped(folder: Path, version: str, name: str = MAGIC_2) -> str:
    """A folder with the output of one tool."""
    folder.mkdir(exist_ok=True)
    shutil.copy(PRINTED / f"{version}-{name}.txt", folder)
    return str(folder)


@pytest.mark.parametrize("version", TOOLS)
def test_a_dump_is_read_as_far_as_it_is_printed(ledger: Ledger, tmp_path: Path, version: str) -> None:
    """Every line becomes a row of a table or of bronze.quarantine, and the night ends with 3."""
    night = ledger.night(dumps=(dumped(tmp_path / "dumps", version),))
    assert night.exit_code == 3
    commits_are_as_printed(ledger, version)
    what_is_not_printed_is_missing(ledger, night, version)


def commits_are_as_printed(ledger: Ledger, version: str) -> None:
    """Every commit with offset, metadata and time of its record; commit time, expiry and leader epoch are unknown; the
    transaction is aborted."""
    commits = [row for row in ledger.rows("silver.offset_commits") if row["committed_offset"] is not None]
    assert {(row["group_id"], row["topic"], row["partition"]): row["committed_offset"] for row in commits} == COMMITTED
    for row in commits:
        assert (row["commit_time"], row["expire_time"], row["leader_epoch"]) == (None, None, None)
        assert row["recorded_at"] is not None
    outcomes = {row["group_id"]: row["outcome"] for row in commits}
    assert outcomes.pop("tx") == "ABORTED"
    assert set(outcomes.values()) <= {"APPLIED"}
    deleted = [row["log_offset"] for row in ledger.rows("silver.offset_commits") if row["committed_offset"] is None]
    assert deleted == ([8] if version in HAVE_KEYS_OF_TOMBSTONES else [])


def what_is_not_printed_is_missing(ledger: Ledger, night: Night, version: str) -> None:
    """Each such record is a row of bronze.quarantine with its file, line, offset and group; its offset is MISSING and
    not COMPACTED; the night says once what to do, and describe and owner that they do not know all."""
    rows = ledger.rows("bronze.quarantine")
    offsets = {row["offset"] for row in rows}
    assert offsets >= {0, 6}
    assert offsets <= {0, 6, 7, 8, 9}
    for row in rows:
        assert (row["stage"], row["code"]) == ("FILE", "RECORD_NOT_PRINTED")
        assert row["source"].endswith(f"{version}-{MAGIC_2}.txt")
        assert row["message"].startswith("line ")
        assert "run kafka-dump-log of Kafka 4.0 or later on the same segment files" in row["message"]
        assert row["byte_position"] is not None
    assert {row["offset"]: row["group_id"] for row in rows}[0] == "g"
    kinds = {
        offset: row["kind"]
        for row in ledger.rows("bronze.coverage")
        for offset in range(row["from_offset"], row["to_offset"] + 1)
    }
    assert {offset for offset, kind in kinds.items() if kind == "MISSING"} == offsets
    assert {offset for offset, kind in kinds.items() if kind == "COMPACTED"} >= {13, 14, 17}
    assert night.text.count("a group with members, of which leader, clients, time-outs and subscriptions") == 1
    (g,) = describe(ledger.warehouse, CLUSTER_ID, view=View.STATE, group_ids=["g"])
    assert g.note is not None
    assert "a kafka-dump-log of an older release, or of a later one" in g.note
    said = run_owner(
        ledger.tables,
        topic="orders",
        partition=0,
        at_ms=None,
        output_format="table",
        out=StringIO(),
    )
    assert any("may have owned it" in line for line in said)


def test_the_segments_put_it_right(tmp_path: Path) -> None:
    """Captured behind the dump, they give what they give alone, and nothing is open in bronze.quarantine."""
    alone, both = Ledger(tmp_path / "alone"), Ledger(tmp_path / "both")
    logs = write_log(tmp_path / "logs", MAGIC_2).parent.parent
    alone.night(logs)
    both.night(dumps=(dumped(tmp_path / "dumps", "2.0.1"),))
    both.night(logs, number=2)
    assert [row for row in both.rows("bronze.quarantine") if row["resolved_at"] is None] == []
    for name in ("silver.offset_commits", "silver.group_generations", "silver.group_members"):
        of = [sorted(repr(row) for row in ledger.rows(name)) for ledger in (alone, both)]
        assert of[0] == of[1], name


def test_states_of_transactions_are_read(ledger: Ledger, tmp_path: Path) -> None:
    """Of __transaction_state too, with and without its tombstone."""
    for number, version in enumerate(("0.11.0.3", "3.5.2"), start=1):
        ledger.night(dumps=(dumped(tmp_path / version, version, STATE),), number=number)
    assert [row["offset"] for row in ledger.rows("bronze.quarantine") if row["resolved_at"] is None] == []
    assert {row["kind"] for row in ledger.rows("bronze.coverage")} == {"CAPTURED"}
