"""Rows of a dump and cleaned segments: what compaction took out of a batch is put back, in any order of sources."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from coordinator_core.bytes.log.batch import Record, build_batch, build_marker
from coordinator_core.bytes.log.compression import Codec
from coordinator_core.bytes.log.records import iter_records
from schemas.consumer_offsets import TOPIC
from tests.cases.harness import Ledger
from tests.cases.test_copies import commits, contents, coverage
from tests.cases.test_copies_at_random import commit
from tests.jobs.dump_builders import kafka_rows, write_json_lines
from tests.lengths import is_counted

Sources = dict[str, dict[str, tuple[str, ...]]]
LOG = tuple(commit(offset, offset % 3, 10 * offset) for offset in range(8))


def segments(root: Path, *batches: bytes) -> dict[str, tuple[str, ...]]:
    """A folder of one segment."""
    folder = root / f"{TOPIC}-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    return {"segments": (str(root),)}


def rows(root: Path, *batches: bytes) -> dict[str, tuple[str, ...]]:
    """A dump of keys and values of the records of some batches."""
    segments(root, *batches)
    return {"dumps": (str(write_json_lines(kafka_rows(root), root.parent / f"{root.name}.jsonl")),)}


def batch(records: Sequence[Record], first: int, last: int, **values: Any) -> bytes:
    """A batch with offsets of its own."""
    return build_batch(records, base_offset=first, last_offset=last, **({"leader_epoch": 4} | values))


def kept(*offsets: int) -> list[Record]:
    """Records of the log."""
    return [LOG[offset] for offset in offsets]


def run(ledger: Ledger, nights: Sequence[Sequence[dict[str, tuple[str, ...]]]], *, is_whole: bool = False) -> None:
    """One night after the other, or what they capture."""
    for number, night in enumerate(nights, start=1):
        together: dict[str, tuple[str, ...]] = {}
        for source in night:
            for name, paths in source.items():
                together[name] = (*together.get(name, ()), *paths)
        _ = ledger.night(number=number, **together) if is_whole else ledger.capture(number=number, **together)


def records(ledger: Ledger) -> dict[int, Record]:
    """Of bronze, by offset."""
    found = [it for row in ledger.rows("bronze.record_batches") for it in iter_records(row["batch"])]
    assert len({it.offset for it in found}) == len(found)
    return {it.offset: it for it in found}


def orders(names: Sequence[str]) -> list[tuple[tuple[str, ...], ...]]:
    """All together in one night, and one a night in the opposite order, or in any where --count asks for more."""
    in_turn = [tuple((name,) for name in order) for order in permutations(names)]
    return [(tuple(names),), *(in_turn if is_counted() else in_turn[-1:])]


def in_any_order(tmp_path: Path, sources: Sources, *, is_whole: bool = False) -> list[Ledger]:
    """A warehouse for each order and cut into nights."""
    ledgers = []
    for number, order in enumerate(orders(tuple(sources))):
        ledger = Ledger(tmp_path / f"warehouse-{number}")
        run(ledger, [[sources[name] for name in night] for night in order], is_whole=is_whole)
        ledgers.append(ledger)
    if is_whole:
        first, *others = map(contents, ledgers)
        assert all(it == first for it in others)
    return ledgers


def test_a_dump_fills_what_compaction_took_out_of_a_batch(tmp_path: Path) -> None:
    """Every record that any source has is in bronze and silver, headers are those of the log's batch, which is
    compressed."""
    cleaned = segments(
        tmp_path / "cleaned", batch(kept(2), 0, 3, codec_id=Codec.LZ4, producer_id=7), batch(kept(5, 6, 7), 5, 7)
    )
    full = rows(tmp_path / "full", batch(LOG, 0, 7))
    for ledger in in_any_order(tmp_path, {"cleaned": cleaned, "full": full}, is_whole=True):
        assert records(ledger) == {it.offset: it for it in LOG}
        assert coverage(ledger) == [(0, 7, "CAPTURED")]
        assert [row[0] for row in commits(ledger)] == list(range(8))
        batches = sorted(ledger.rows("bronze.record_batches"), key=lambda row: row["base_offset"])
        reported = [
            [row[name] for name in ("base_offset", "leader_epoch", "producer_id", "filled_offsets")] for row in batches
        ]
        assert reported == [[0, 4, 7, [0, 1, 3]], [4, None, None, None], [5, 4, -1, None]]
        assert not ledger.rows("bronze.quarantine")


def test_a_row_of_a_dump_is_of_the_transaction_of_its_batch(tmp_path: Path) -> None:
    """A commit that only a dump has was aborted where the batch of its offset was."""
    producer = {"producer_id": 9, "producer_epoch": 0}
    marker = build_marker(
        offset=2, timestamp_ms=LOG[2].timestamp_ms, is_commit=False, coordinator_epoch=0, leader_epoch=4, **producer
    )
    cleaned = segments(tmp_path / "cleaned", batch(kept(1), 0, 1, is_transactional=True, **producer), marker)
    full = rows(tmp_path / "full", batch(kept(0, 1), 0, 1))
    for ledger in in_any_order(tmp_path, {"cleaned": cleaned, "full": full}, is_whole=True):
        found = {row["log_offset"]: row["outcome"] for row in ledger.rows("silver.offset_commits")}
        assert found == {0: "ABORTED", 1: "ABORTED"}


def test_a_fuller_copy_of_the_log_keeps_what_a_dump_had(tmp_path: Path) -> None:
    """Copies of the log are compared by what compaction left in them, whatever a dump put into them before."""
    sources = {
        "fuller": segments(tmp_path / "fuller", batch(kept(0, 2, 3, 5), 0, 5)),
        "cleaned": segments(tmp_path / "cleaned", batch(kept(0, 1, 3), 0, 5)),
        "dump": rows(tmp_path / "dump", batch(kept(0, 1, 2, 3), 0, 3)),
    }
    for ledger in in_any_order(tmp_path, sources):
        assert sorted(records(ledger)) == [0, 1, 2, 3, 5]
        (row,) = ledger.rows("bronze.record_batches")
        assert row["filled_offsets"] == [1]


def test_the_same_sources_again_change_nothing(tmp_path: Path) -> None:
    """A batch that was filled is no other copy than the one it was made of."""
    cleaned = segments(tmp_path / "cleaned", batch(kept(2), 0, 3))
    full = rows(tmp_path / "full", batch(kept(0, 1, 2, 3), 0, 3))
    again = segments(tmp_path / "again", batch(kept(2), 0, 3))
    ledger = Ledger(tmp_path / "warehouse")
    run(ledger, [[cleaned, full]])
    before = ledger.rows("bronze.record_batches")
    run(ledger, [[cleaned, full], [again], [full]])
    assert ledger.rows("bronze.record_batches") == before
    assert not ledger.rows("state.rewrites")


def test_where_a_dump_has_another_record_the_log_counts_and_it_is_said(tmp_path: Path) -> None:
    """Two records at one offset: that whose leader epoch is known; the row is resolved and names both sources."""
    log = segments(tmp_path / "log", batch(kept(0, 1, 3), 0, 3))
    other = Record(1, LOG[1].timestamp_ms + 5, LOG[1].key, LOG[5].value)
    dump = rows(tmp_path / "dump", batch([LOG[0], other, LOG[2]], 0, 2))
    for ledger in in_any_order(tmp_path, {"log": log, "dump": dump}):
        assert records(ledger) == {it.offset: it for it in kept(0, 1, 2, 3)}
        (row,) = ledger.rows("bronze.quarantine")
        assert (row["code"], row["offset"], row["resolved_at"] is not None) == ("COPIES_DIFFER", 1, True)
        assert "dump.jsonl" in row["message"]
        assert f"{0:020d}.log" in row["message"]
        assert list(iter_records(row["bytes"])) == [other]


def test_of_two_dumps_that_differ_the_later_record_counts(tmp_path: Path) -> None:
    """In any order, and whether a copy of the log spans the offset or not."""
    later = Record(1, LOG[1].timestamp_ms + 5, LOG[1].key, LOG[5].value)
    sources = {
        "one": rows(tmp_path / "one", batch(kept(0, 1, 2), 0, 2)),
        "two": rows(tmp_path / "two", batch([LOG[0], later], 0, 1)),
    }
    for ledger in in_any_order(tmp_path / "dumps", sources):
        assert records(ledger)[1] == later
        assert [row["code"] for row in ledger.rows("bronze.quarantine")] == ["COPIES_DIFFER"]
    sources["cleaned"] = segments(tmp_path / "cleaned", batch(kept(0, 2), 0, 2))
    for ledger in in_any_order(tmp_path / "cleaned-too", sources):
        assert records(ledger)[1] == later


def test_records_of_a_dump_stay_where_a_newer_epoch_cuts_the_batch_that_had_them(tmp_path: Path) -> None:
    """A dump tells no epochs: its rows stay where the log has nothing, whichever copy was read first."""
    sources = {
        "dead": segments(
            tmp_path / "dead", batch(kept(0, 1), 0, 1, leader_epoch=1), batch(kept(2, 3, 4), 2, 4, leader_epoch=1)
        ),
        "log": segments(
            tmp_path / "log", batch(kept(0, 1), 0, 1, leader_epoch=1), batch([LOG[2]], 2, 2, leader_epoch=2)
        ),
        "dump": rows(tmp_path / "dump", batch(kept(0, 1, 2, 3), 0, 3)),
    }
    for ledger in in_any_order(tmp_path, sources):
        assert sorted(records(ledger)) == [0, 1, 2, 3]
        assert coverage(ledger) == [(0, 3, "CAPTURED")]
