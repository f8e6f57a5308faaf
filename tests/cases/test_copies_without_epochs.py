"""Copies in whose batches no leader epoch is written: message formats 0 and 1, and format 2 without one."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

import pytest

from coordinator_core.bytes.codec import decode_value
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.bytes.log.copies import UNKNOWN_EPOCH
from coordinator_core.bytes.log.records import iter_records
from schemas.consumer_offsets import TOPIC, RecordType
from tests.cases.harness import Ledger
from tests.cases.test_copies import coverage
from tests.cases.test_copies_at_random import commit
from tests.coordinator_core.bytes.log.test_legacy import message
from tests.lengths import is_long

PARTED_AT = 5
CHECKPOINTS: Mapping[str, Sequence[tuple[int, int]]] = {"old": ((0, 0),), "new": ((0, 0), (1, PARTED_AT))}
ORDERS = tuple(permutations(("old", "new")))
RUNS = [
    (0, ("old", "new"), True),
    (0, ("new", "old"), False),
    (1, ("new", "old", "new"), False),
    (2, ("old", "new"), False),
]


def one(magic: int, record: Record) -> bytes:
    """A batch of one record, without a leader epoch."""
    if magic == 2:
        return build_batch([record], leader_epoch=UNKNOWN_EPOCH)
    at_ms = record.timestamp_ms
    return message(record.offset, record.value, key=record.key, magic=magic, timestamp_ms=at_ms)


def write_copy(
    root: Path, magic: int, numbers: Sequence[int], checkpoint: Sequence[tuple[int, int]] | None = None
) -> Path:
    """A replica whose log has a commit of each number."""
    folder = root / f"{TOPIC}-0"
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(one(magic, commit(offset, 0, number)) for offset, number in enumerate(numbers))
    (folder / f"{0:020d}.log").write_bytes(data)
    if checkpoint is not None:
        lines = [f"{epoch} {offset}" for epoch, offset in checkpoint]
        (folder / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
    return root


def parted(root: Path, magic: int, *, with_checkpoints: bool = True) -> dict[str, Path]:
    """Two replicas that have other records from one offset on; the old leader's has two more."""
    numbers = {"old": [0, 1, 2, 3, 4, 500, 501, 502, 503, 504], "new": [0, 1, 2, 3, 4, 5, 6, 7]}
    return {
        name: write_copy(root / name, magic, numbers[name], CHECKPOINTS[name] if with_checkpoints else None)
        for name in numbers
    }


def captures(ledger: Ledger, *sources: tuple[Path, ...]) -> None:
    """One for each tuple of sources."""
    for number, each in enumerate(sources, start=1):
        ledger.capture(*each, number=number)


def committed(ledger: Ledger) -> list[int]:
    """What is committed in the batches of bronze, in the order of the log."""
    rows = sorted(ledger.rows("bronze.record_batches"), key=lambda row: row["base_offset"])
    values = (it.value or b"" for row in rows for it in iter_records(row["batch"]))
    return [decode_value(TOPIC, RecordType.OFFSET_COMMIT, value).fields.offset for value in values]


@pytest.mark.parametrize(("magic", "order", "is_one_run"), RUNS)
def test_the_checkpoint_of_each_replica_says_the_epochs_of_its_batches(
    ledger: Ledger, tmp_path: Path, magic: int, order: tuple[str, ...], is_one_run: bool
) -> None:
    """The newer leader's records count in any order, and where the copies part ways is said with epochs and sources."""
    copies = parted(tmp_path / "copies", magic)
    folders = tuple(copies[name] for name in order)
    captures(ledger, folders[:2]) if is_one_run else captures(ledger, *((folder,) for folder in folders))
    assert committed(ledger) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert coverage(ledger) == [(0, 7, "CAPTURED")]
    rows = sorted(ledger.rows("bronze.record_batches"), key=lambda row: row["base_offset"])
    assert [row["leader_epoch"] for row in rows] == [0] * PARTED_AT + [1] * 3
    (found,) = ledger.rows("bronze.quarantine")
    assert (found["code"], found["offset"]) == ("COPIES_PART", PARTED_AT)
    for text in ("leader epoch 0", "leader epoch 1", str(copies["old"]), str(copies["new"])):
        assert text in found["message"]


@pytest.mark.parametrize("magic", [0, 2])
def test_without_checkpoints_copies_that_part_ways_are_said(tmp_path: Path, magic: int) -> None:
    """No order of sources decides what counts, and rows say that nothing tells which copy the log has."""
    copies = parted(tmp_path / "copies", magic, with_checkpoints=False)
    tables = []
    for number, order in enumerate(permutations(copies)):
        ledger = Ledger(tmp_path / f"warehouse-{number}")
        captures(ledger, *((copies[name],) for name in order))
        tables.append((committed(ledger), coverage(ledger)))
        # of each copy whose batches do not count
        rows = ledger.rows("bronze.quarantine")
        assert min(row["offset"] for row in rows) == PARTED_AT
        assert len({row["source"] for row in rows}) == len(rows)
        for found in rows:
            assert found["code"] == "COPIES_PART"
            for text in ("no known leader epoch", str(copies["old"]), str(copies["new"])):
                assert text in found["message"]
            assert "not known" in found["resolved_by"]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("order", ORDERS, ids="+".join)
def test_a_follower_without_an_entry_of_the_newer_epoch_does_not_part_ways(
    ledger: Ledger, tmp_path: Path, order: tuple[str, ...]
) -> None:
    """Followers of before message format 2 have no entry for an epoch that they did not lead."""
    numbers = [0, 1, 2, 3, 4, 5, 6, 7]
    copies = {name: write_copy(tmp_path / name, 1, numbers, CHECKPOINTS[name]) for name in CHECKPOINTS}
    captures(ledger, *((copies[name],) for name in order))
    assert committed(ledger) == numbers
    assert ledger.rows("bronze.quarantine") == []
    assert coverage(ledger) == [(0, 7, "CAPTURED")]


def test_a_checkpoint_that_comes_later_says_the_epochs_of_batches_that_were_read(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The segments did not change and are read again, since their epochs were not known; then the newer copy counts."""
    copies = parted(tmp_path / "copies", 1, with_checkpoints=False)
    captures(ledger, (copies["old"],), (copies["new"],))
    for name, entries in CHECKPOINTS.items():
        lines = [f"{epoch} {offset}" for epoch, offset in entries]
        path = copies[name] / f"{TOPIC}-0" / "leader-epoch-checkpoint"
        path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
    ledger.capture(copies["old"], copies["new"], number=3)
    assert committed(ledger) == [0, 1, 2, 3, 4, 5, 6, 7]
    rows = sorted(ledger.rows("bronze.record_batches"), key=lambda row: row["base_offset"])
    assert [row["leader_epoch"] for row in rows] == [0] * PARTED_AT + [1] * 3
    assert coverage(ledger) == [(0, 7, "CAPTURED")]


OLD, NEW, SHORT = [0, 1, 2, 3, 4, 500, 501, 502], [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5]
"""A tail that was cut away, the log, and as much of it as the copy has whose checkpoint tells of the newer epoch."""


@pytest.mark.parametrize(("of_no_checkpoint", "wanted"), [(NEW, NEW), (OLD, SHORT)])
@pytest.mark.parametrize("magic", [0, 2] if is_long() else [0])
def test_the_checkpoint_that_cuts_a_tail_may_come_in_a_later_night(
    tmp_path: Path, magic: int, of_no_checkpoint: list[int], wanted: list[int]
) -> None:
    """Batches that a tail kept out count once it is cut away; the same bytes in a copy without a checkpoint are of that
    tail. Whatever the order, though no copy comes twice: `make test-nights` lets each copy be the first once."""
    copies = {
        "old": write_copy(tmp_path / "old", magic, OLD, CHECKPOINTS["old"]),
        "none": write_copy(tmp_path / "none", magic, of_no_checkpoint),
        "new": write_copy(tmp_path / "new", magic, SHORT, CHECKPOINTS["new"]),
    }
    orders = list(enumerate(permutations(copies)))
    for number, order in orders if is_long() else (orders[3], orders[4]):
        folders = tuple(copies[name] for name in order)
        ledger = Ledger(tmp_path / f"warehouse-{number}")
        captures(ledger, *((folders[:2], folders[2:]) if number % 2 else ((folder,) for folder in folders)))
        assert committed(ledger) == wanted, order
        assert coverage(ledger) == [(0, len(wanted) - 1, "CAPTURED")], order
