"""A segment file that is missing in a compacted log is not the cleaner's work, where anything shows it."""

from pathlib import Path
from typing import Final

import pytest

from coordinator_core.bytes.log.segment import lost_segments
from jobs.cli_enums import Listing
from schemas.consumer_offsets import TOPIC
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_answers import described
from tests.cases.test_caveats import audited

LOST: Final = "a segment file is missing here: the log cleaner has not come this far"
LOST_LOG: Final = "a segment file is missing here: its index is in the folder"
COMPACTION: Final = "compaction left no record here"
ONE: Final = (f"{TOPIC}=1",)
Hole = tuple[int, int, str, str | None]


def batches(*skipped: int, to_offset: int = 12) -> dict[int, bytes]:
    """A batch for each offset, without some that the cleaner took."""
    log = SmallLog()
    for offset in range(to_offset):
        if offset in skipped:
            log.skip(1)
        else:
            log.commit("g", 0, offset, NOON_MS + 1_000 * offset)
    return dict(zip([it for it in range(to_offset) if it not in skipped], log.batches, strict=True))


def segments(
    root: Path, written: dict[int, bytes], bases: tuple[int, ...], *, lost: tuple[int, ...] = (), cleaned: str = ""
) -> Path:
    """Segments that begin at these offsets, without those that were lost; `cleaned`: lines of the checkpoint."""
    folder = root / f"{TOPIC}-0"
    folder.mkdir(parents=True, exist_ok=True)
    for base, end in zip(bases, [*bases[1:], 1_000], strict=True):
        if base not in lost:
            data = b"".join(batch for offset, batch in written.items() if base <= offset < end)
            (folder / f"{base:020d}.log").write_bytes(data)
    if cleaned:
        (root / "cleaner-offset-checkpoint").write_text(cleaned)
    return root


def checkpoint(offset: int) -> str:
    """The text of a cleaner-offset-checkpoint with one entry."""
    return f"0\n1\n{TOPIC} 0 {offset}\n"


def holes(ledger: Ledger) -> list[Hole]:
    """What is not captured, by offset."""
    rows = sorted(ledger.rows("bronze.coverage"), key=lambda row: int(row["from_offset"]))
    names = ("from_offset", "to_offset", "kind", "reason")
    return [tuple(row[name] for name in names) for row in rows if row["kind"] != "CAPTURED"]


@pytest.mark.parametrize(
    ("skipped", "cleaned", "expected"),
    [
        pytest.param((), checkpoint(0), (3, 5, "MISSING", LOST), id="never cleaned"),
        pytest.param((), "0\n0\n", (3, 5, "MISSING", LOST), id="no entry: never cleaned"),
        pytest.param((), checkpoint(6), (3, 5, "COMPACTED", COMPACTION), id="cleaned"),
        pytest.param((), "", (3, 5, "COMPACTED", COMPACTION), id="nobody knows"),
        pytest.param((), "no checkpoint", (3, 5, "COMPACTED", COMPACTION), id="unreadable"),
        pytest.param((1,), checkpoint(0), (3, 5, "COMPACTED", COMPACTION), id="another replica cleaned it"),
    ],
)
def test_where_the_cleaner_has_not_come_a_hole_between_files_is_a_lost_file(
    ledger: Ledger, tmp_path: Path, skipped: tuple[int, ...], cleaned: str, expected: Hole
) -> None:
    """A segment begins where the one before ends, until the cleaner rewrites it: cleaner-offset-checkpoint tells."""
    logs = segments(tmp_path / "logs", batches(*skipped), (0, 3, 6, 9), lost=(3,), cleaned=cleaned)
    ledger.capture(logs, partitions=ONE)
    assert holes(ledger) == [*((it, it, "COMPACTED", COMPACTION) for it in skipped), expected]


@pytest.mark.parametrize(("cleaned_to", "is_lost"), [(0, True), (6, False)])
def test_a_night_and_answers_say_that_a_file_is_lost(
    ledger: Ledger, tmp_path: Path, cleaned_to: int, is_lost: bool
) -> None:
    """Not what the cleaner took, of which no list is complete, either."""
    logs = segments(tmp_path / "logs", batches(), (0, 3, 6, 9), lost=(3,), cleaned=checkpoint(cleaned_to))
    assert ledger.night(logs, partitions=ONE).exit_code == (3 if is_lost else 0)
    assert any("3 to 5" in line for line in described(ledger, "g")[1]) == is_lost
    assert not audited(ledger, Listing.COMMITS).startswith("# COMPLETE")


def test_holes_within_a_file_are_of_the_cleaner(ledger: Ledger, tmp_path: Path) -> None:
    """Whatever the checkpoint says: a follower gets them from its leader. So is one at the beginning of a file."""
    logs = segments(tmp_path / "logs", batches(1, 3), (0, 3, 6), cleaned=checkpoint(0))
    assert ledger.capture(logs, partitions=ONE).is_clean
    assert [hole[2] for hole in holes(ledger)] == ["COMPACTED", "COMPACTED"]


@pytest.mark.parametrize("name", ["index", "timeindex"])
def test_an_index_without_its_segment_shows_a_lost_file(ledger: Ledger, tmp_path: Path, name: str) -> None:
    """From its base offset on; what is missing before that may be the cleaner's work."""
    logs = segments(tmp_path / "logs", batches(2), (0, 3, 6, 9), lost=(3,), cleaned=checkpoint(9))
    for base in (3, 5):
        (logs / f"{TOPIC}-0" / f"{base:020d}.{name}").write_bytes(b"")
    assert not ledger.capture(logs, partitions=ONE).is_clean
    assert holes(ledger) == [(2, 2, "COMPACTED", COMPACTION), (3, 5, "MISSING", LOST_LOG)]


def test_indexes_of_segments_that_are_there_or_are_being_deleted_show_nothing() -> None:
    """Nor do those outside of the segments, where Kafka deleted a beginning or a copy ends."""
    names = [f"{base:020d}.{end}" for base in (3, 6, 9) for end in ("log", "index", "timeindex")]
    assert lost_segments(names) == ()
    assert lost_segments([*names, f"{0:020d}.index", f"{12:020d}.index", f"{7:020d}.snapshot"]) == ()
    assert lost_segments([*names, f"{7:020d}.index", f"{7:020d}.log.deleted"]) == ()
    assert lost_segments([*names, f"{7:020d}.index", f"{7:020d}.timeindex", f"{5:020d}.index"]) == (5, 7)


def test_a_lost_file_stays_lost_over_nights_until_it_comes(tmp_path: Path) -> None:
    """However the log is cut into nights; a later checkpoint does not make the hole the cleaner's, the file does."""
    whole, ledger = Ledger(tmp_path / "whole"), Ledger(tmp_path / "nights")
    segments(tmp_path / "logs", batches(to_offset=2), (0,), cleaned=checkpoint(0))
    ledger.capture(tmp_path / "logs", partitions=ONE)
    assert holes(ledger) == []
    for number, bases in enumerate(((0, 3, 6), (0, 3, 6, 9)), 2):
        written = batches(to_offset=3 * len(bases))
        segments(tmp_path / "logs", written, bases, lost=(3,))
        ledger.capture(tmp_path / "logs", partitions=ONE, number=number)
        assert holes(ledger) == [(3, 5, "MISSING", LOST)]
    whole.capture(tmp_path / "logs", partitions=ONE)
    assert holes(whole) == holes(ledger)
    segments(tmp_path / "logs", batches(), (0, 3, 6, 9))
    for each in (whole, ledger):
        assert each.capture(tmp_path / "logs", partitions=ONE, number=9).is_clean
        assert holes(each) == []
