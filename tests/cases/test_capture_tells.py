"""capture says why it ends with 3, and what Kafka pruned before the first capture is no reason."""

from pathlib import Path

import pytest

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange
from coordinator_core.bytes.log.batch import build_batch
from coordinator_core.bytes.log.compression import Codec
from jobs.bronze.coverage import LOG_START
from schemas.tables import TABLES
from tests.cases.harness import CASES, Ledger
from tests.jobs.builders import batch, damaged, write_segment
from tests.jobs.silver.test_replay import commit, with_crc

SHARES, OFFSETS = "__share_group_state", "__consumer_offsets"


def pruned_log(root: Path, topic: str, *starts: int) -> Path:
    """A log directory whose checkpoint says where the log starts; a batch of ten records from each offset on."""
    for start in starts:
        write_segment(root, topic, 0, start, batch(start, 10))
    (root / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} 0 {starts[0]}\n")
    return root


@pytest.mark.parametrize(
    ("topic", "kind", "reason", "from_offset", "expected"),
    [
        (SHARES, "MISSING", LOG_START, 0, False),
        ("__cluster_metadata", "MISSING", LOG_START, 0, False),
        (SHARES, "MISSING", LOG_START, 7, True),
        (SHARES, "MISSING", "another", 0, True),
        (SHARES, "CORRUPT", LOG_START, 0, True),
        (OFFSETS, "MISSING", LOG_START, 0, True),
        (OFFSETS, "COMPACTED", None, 0, False),
        (OFFSETS, "CAPTURED", None, 0, False),
    ],
)
def test_what_is_a_hole(topic: str, kind: str, reason: str | None, from_offset: int, *, expected: bool) -> None:
    """Kafka prunes share state and metadata from their beginning; whatever else is not there is a hole."""
    from jobs.bronze.coverage import is_hole

    assert is_hole(topic, kind, reason, from_offset) == expected


def test_share_state_pruned_before_the_first_capture_is_coverage(ledger: Ledger, tmp_path: Path) -> None:
    """It is in bronze.coverage, and no reason for exit code 3, tonight or any night."""
    logs = pruned_log(tmp_path / "logs", SHARES, 500)
    for number in (1, 2):
        night = ledger.night(logs, number=number)
        assert night.facts["captured"]["hole_count"] == 0 and "holes" not in night.facts["found"]["new"]
        assert not [line for line in night.lines if line.startswith(("hole", "not all of the log"))]
    first = min(ledger.rows("bronze.coverage"), key=lambda row: row["from_offset"])
    assert (first["from_offset"], first["to_offset"], first["kind"], first["reason"]) == (0, 499, "MISSING", LOG_START)


def test_share_state_lost_between_two_captures_is_a_hole(ledger: Ledger, tmp_path: Path) -> None:
    """What Kafka pruned while nobody captured is gone: the night says which offsets, and where to look."""
    ledger.night(pruned_log(tmp_path / "one", SHARES, 500))
    night = ledger.night(pruned_log(tmp_path / "two", SHARES, 900), number=2)
    assert night.exit_code == 3
    assert f"hole: {SHARES}-0 offsets 510 to 899 are MISSING: {LOG_START}" in night.lines
    [reported] = [line for line in night.lines if "(exit code 3)" in line]
    assert (
        "audit --list holes" in reported
        and f"--warehouse {ledger.root}" in reported
        and "--cluster-id case" in reported
    )
    assert night.facts["captured"]["faults"] == [line for line in night.lines if line.startswith("hole: ")]


def test_a_damaged_batch_is_reported_by_its_code(ledger: Ledger, tmp_path: Path) -> None:
    """Quarantine, too, is a reason that is said."""
    write_segment(tmp_path / "logs", OFFSETS, 0, 0, batch(0) + damaged(batch(1)) + batch(2))
    night = ledger.night(tmp_path / "logs")
    assert night.exit_code == 3
    assert "quarantined: 1 with CRC_MISMATCH" in night.lines
    assert any(line.startswith(f"hole: {OFFSETS}-0 offsets 1 to 1 are CORRUPT: ") for line in night.lines)


def test_the_headline_counts_records_as_the_ledger_does(ledger: Ledger, tmp_path: Path) -> None:
    """Two records of a batch that is no gzip are two, though they are one row in quarantine; a later night has none."""
    unreadable = bytearray(build_batch([commit(1), commit(2)]))
    unreadable[22] = Codec.GZIP
    write_segment(tmp_path / "logs", OFFSETS, 0, 0, build_batch([commit(0)]) + with_crc(bytes(unreadable)))
    night = ledger.night(tmp_path / "logs")
    assert night.facts["ledger"]["total"]["quarantined_count"] == 2 and len(ledger.rows("bronze.quarantine")) == 1
    assert night.facts["found"]["headline"].endswith(": NOT COMPLETE: 1 row in quarantine (3 records, 2 quarantined)")
    again = ledger.night(tmp_path / "logs", number=2)
    assert again.facts["found"]["headline"].endswith(": NOT COMPLETE: 1 row in quarantine (0 records, 0 quarantined)")


def test_gold_that_is_rebuilt_has_a_reason(ledger: Ledger) -> None:
    """Which settings changed, from what to what, below the headline; a night with the same ones has no such line."""
    logs = CASES / "C-expiry" / "logs"
    for number, (count, changed) in enumerate([(5, False), (2, True), (2, False)], 1):
        night = ledger.night(logs, number=number, storm_generation_count=count)
        said = [index for index, line in enumerate(night.lines) if line.startswith("Settings changed, ")]
        assert bool(said) == changed and night.facts["inferred"]["is_new"] == (number < 3)
        for index in said:
            assert night.lines[index - 1] == night.facts["found"]["headline"]
            assert night.lines[index].endswith("all of gold was rebuilt: inference.storm_generation_count 5 to 2")


def test_many_holes_are_counted() -> None:
    """The first ones are named."""
    from jobs.bronze.coverage import hole_lines, holes

    ranges = [CoverageRange(10 * n, 10 * n, CoverageKind.MISSING, 0, "x") for n in range(9)]
    reported = list(hole_lines(list(holes({(OFFSETS, 3): ranges}))))
    assert len(reported) == 6 and reported[-1] == "and 4 holes more"


def test_a_clean_night_says_nothing_of_it(ledger: Ledger) -> None:
    """No hole, no line; records of the metadata log that are not needed are none of an unknown type."""
    night = ledger.night(CASES / "X-compaction" / "full")
    assert "(exit code 3)" not in night.text and not night.facts["captured"]["faults"]
    assert " not used + 0 unknown type + 0 quarantined" in night.text
    assert {row["not_used_count"] for row in ledger.rows("state.runs") if row["topic"] is not None} == {0}
    assert "not_used_count" in TABLES["state.runs"].column_names
