"""What is wrong with a source is said by every night, whether its files were read in that night or not."""

from pathlib import Path

from coordinator_core.bytes.log.batch import build_batch
from schemas.consumer_offsets import TOPIC
from tests.cases.harness import Ledger
from tests.cases.test_copies_at_random import commit


def log(first: int, after: int, *, key: int = 0) -> bytes:
    """Batches of one commit each."""
    return b"".join(build_batch([commit(offset, key, offset)]) for offset in range(first, after))


def write(root: Path, partition: int, segments: dict[int, bytes]) -> None:
    """A folder of segments."""
    folder = root / f"{TOPIC}-{partition}"
    folder.mkdir(parents=True, exist_ok=True)
    for base_offset, data in segments.items():
        (folder / f"{base_offset:020d}.log").write_bytes(data)


def three_nights(ledger: Ledger, root: Path) -> list[tuple[bool, int]]:
    """Is it clean, and how much is quarantined, each night?"""
    captured = [ledger.capture(root, number=number) for number in (1, 2, 3)]
    return [(summary.is_clean, summary.quarantined_count) for summary in captured]


def rows(ledger: Ledger) -> list[tuple[str, bool]]:
    """Of quarantine: code, and whether it is resolved."""
    return sorted((row["code"], row["resolved_at"] is not None) for row in ledger.rows("bronze.quarantine"))


def test_segments_of_two_log_partitions_swapped(ledger: Ledger, tmp_path: Path) -> None:
    """Batches out of their place that bronze does not have stay a fault, until the files are put right."""
    one, other = log(0, 6), log(0, 9, key=1)
    size = len(other) // 9
    write(tmp_path / "logs", 0, {0: one[: 4 * len(one) // 6], 4: other[6 * size :]})
    write(tmp_path / "logs", 1, {0: other[: 6 * size], 6: one[4 * len(one) // 6 :]})
    assert three_nights(ledger, tmp_path / "logs") == [(False, 1)] * 3
    assert rows(ledger) == [("INVALID_BATCH", False)]
    write(tmp_path / "logs", 1, {6: other[6 * size :]})
    assert ledger.capture(tmp_path / "logs", number=4).quarantined_count == 0
    assert rows(ledger) == [("INVALID_BATCH", True)]


def test_a_mirror_made_without_deletion(ledger: Ledger, tmp_path: Path) -> None:
    """The cleaner merged two segments, and the old second one is still there: what it has is in bronze already."""
    write(tmp_path / "logs", 0, {0: log(0, 6), 4: log(4, 6), 6: log(6, 8)})
    codes = three_nights(ledger, tmp_path / "logs")
    assert codes == [codes[0]] * 3
    assert rows(ledger) == [("INVALID_BATCH", True)]


def test_an_old_segment_next_to_a_merged_one_that_was_cleaned(ledger: Ledger, tmp_path: Path) -> None:
    """The old segment has a record that is not in bronze: that stays said."""
    records = [commit(offset, 0, offset) for offset in range(4, 6)]
    merged = build_batch(records[1:], base_offset=4, last_offset=5)
    write(tmp_path / "logs", 0, {0: log(0, 4) + merged, 4: build_batch(records), 6: log(6, 8)})
    assert three_nights(ledger, tmp_path / "logs") == [(False, 1)] * 3
    assert rows(ledger) == [("INVALID_BATCH", False)]


def test_a_damaged_batch_stays_said_until_another_file_has_it(ledger: Ledger, tmp_path: Path) -> None:
    """A rerun reads the file no more, and ends with 3 as the first one did."""
    bad = bytearray(log(0, 6))
    bad[len(bad) // 2 - 1] ^= 1
    write(tmp_path / "logs", 0, {0: bytes(bad)})
    assert three_nights(ledger, tmp_path / "logs") == [(False, 1)] * 3
    assert rows(ledger) == [("CRC_MISMATCH", False)]
    write(tmp_path / "good", 0, {0: log(0, 6)})
    night = ledger.night(tmp_path / "logs", number=4)
    assert (night.exit_code, night.facts["captured"]["quarantined_count"]) == (3, 1)
    assert ledger.night(tmp_path / "good", number=5).facts["captured"]["quarantined_count"] == 0
    assert rows(ledger) == [("CRC_MISMATCH", True)]
