"""Random damage to a copy of a log that is put right later, against the good log alone.

A bit, some bytes, batches that are gone or in another order, a segment that is cut, empty or gone; put right in place
or from a second folder, before or after. --count says how many; some of them as whole nights.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from jobs.bronze.capture import CaptureSummary, capture
from jobs.delta.warehouse import Warehouse
from jobs.settings import load_settings
from schemas.consumer_offsets import TOPIC
from schemas.tables import TABLES
from tests.cases.harness import Ledger
from tests.cases.test_copies import contents
from tests.cases.test_copies_at_random import Written, batches_from, cleaned, commit, coverage_of
from tests.jobs.in_process import in_process
from tests.lengths import how_many

DAMAGE_SETS: Final = how_many(16)
PARTS: Final = 4
WHOLE_NIGHTS: Final = max(2, DAMAGE_SETS // 20)
UNDECIDABLE: Final = frozenset({251})
"""Damage that no copy disproves: a bit of the base offset, which no checksum covers, of the last batch of the log. It
reads like a batch behind a hole that compaction left (docs/sources.md)."""
NIGHT: Final = datetime(2026, 11, 25, tzinfo=UTC)
BRONZE: Final = ("base_offset", "last_offset", "leader_epoch", "record_count", "magic", "batch", "crc_valid")

Segments = list[tuple[int, list[bytes]]]
"""Base offset and batches of each segment."""
KINDS: Final = (
    "bit",
    "bytes",
    "zeros",
    "dropped",
    "order",
    "doubled",
    "cut",
    "empty",
    "gone",
    "swapped",
)
PUT_RIGHT: Final = ("in place", "second folder", "before", "together")


def a_log(random: Random) -> Segments:
    """Segments of a log of some leader epochs, cleaned or not."""
    batches: list[Written] = []
    for epoch in range(random.randint(1, 3)):
        batches += batches_from(random, batches[-1].last_offset + 1 if batches else 0, random.randint(2, 6), epoch)
    if random.random() < 0.4:
        batches = list(cleaned(batches, random.randint(1, len(batches) - 1)))
    cuts = sorted(random.sample(range(1, len(batches)), min(len(batches) - 1, random.randint(0, 2))))
    parts = [batches[first:after] for first, after in pairwise([0, *cuts, len(batches)])]
    return [(part[0].base_offset, [batch.data() for batch in part]) for part in parts if part]


def write(root: Path, segments: Sequence[tuple[int, bytes]]) -> None:
    """As files; those that are not among them are gone."""
    folder = root / f"{TOPIC}-0"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.log"):
        path.unlink()
    for base_offset, data in segments:
        (folder / f"{base_offset:020d}.log").write_bytes(data)


def as_files(segments: Segments) -> list[tuple[int, bytes]]:
    """The bytes of each segment."""
    return [(base_offset, b"".join(batches)) for base_offset, batches in segments]


def damaged_files(random: Random, segments: Segments, kind: str) -> list[tuple[int, bytes]]:
    """One segment damaged."""
    chosen = random.randrange(len(segments))
    base_offset, batches = segments[chosen]
    files = as_files(segments)
    data = bytearray(files[chosen][1])
    position, size = random.randrange(len(data)), random.choice((1, 4, 30, 100, 300))
    if kind == "bit":
        data[position] ^= 1 << random.randrange(8)
    elif kind == "bytes":
        data[position : position + size] = random.randbytes(len(data[position : position + size]))
    elif kind == "zeros":
        data[position : position + size] = bytes(len(data[position : position + size]))
    elif kind == "dropped":
        gone = random.randrange(len(batches))
        data = bytearray(b"".join([*batches[:gone], *batches[gone + random.randint(1, 2) :]]))
    elif kind == "order":
        data = bytearray(b"".join(random.sample(batches, len(batches))))
    elif kind == "doubled":
        data = bytearray(b"".join([*batches, random.choice(batches)]))
    elif kind == "cut":
        del data[position:]
    elif kind == "empty":
        data = bytearray()
    elif kind == "gone" and len(files) > 1:
        del files[chosen]
        return files
    elif kind == "swapped" and len(files) > 1:
        other = random.choice([index for index in range(len(files)) if index != chosen])
        files[other], data = (files[other][0], bytes(data)), bytearray(files[other][1])
    files[chosen] = (base_offset, bytes(data))
    return files


def nights_of(root: Path, good: Segments, bad: list[tuple[int, bytes]], put_right: str) -> list[tuple[Path, ...]]:
    """What each night reads; `root/bad` is put right in place between the nights by `before_night`."""
    write(root / "good", as_files(good))
    write(root / "bad", bad)
    nights: dict[str, list[tuple[Path, ...]]] = {
        "in place": [(root / "bad",), (root / "bad",)],
        "second folder": [(root / "bad",), (root / "good",)],
        "before": [(root / "good",), (root / "bad",)],
        "together": [(root / "bad", root / "good")],
    }
    return nights[put_right]


def capture_night(warehouse: Warehouse, number: int, folders: Sequence[Path]) -> CaptureSummary:
    """Capture the segments of some folders; a night begins a day after the one before."""
    options = {"cluster_id": "c", "warehouse": warehouse.root, "segments": tuple(map(str, folders))}
    settings = load_settings(options, environment={})
    at = NIGHT + timedelta(days=number)
    return capture(in_process(), warehouse, settings, capture_id=f"night-{number}", captured_at=at)


def before_night(root: Path, good: Segments, put_right: str, number: int) -> None:
    """The file is put right."""
    if put_right == "in place" and number == 1:
        write(root / "bad", as_files(good))


def bronze(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    """Batches of bronze, without what tells of the run or the file."""
    rows = warehouse.read(TABLES["bronze.record_batches"]).to_pylist()
    return sorted(tuple(row[name] for name in BRONZE) for row in rows)


def coverage(warehouse: Warehouse) -> dict[int, str]:
    """By offset."""
    return coverage_of(warehouse.read(TABLES["bronze.coverage"]).to_pylist())


def may_hide_more(row: dict[str, Any], good: dict[int, str]) -> bool:
    """May bytes hold records that the good copy does not show?"""
    is_of_a_file: bool = row["stage"] == "FILE"
    if not is_of_a_file or row["to_offset"] is None:
        return is_of_a_file
    span = range(row["from_offset"], row["to_offset"] + 1)
    return span.stop > max(good) + 1 or any(good.get(at) != "CAPTURED" for at in span)


def a_set(seed: int) -> tuple[Segments, list[tuple[int, bytes]], str, str]:
    """(good log, damaged files, kind of the damage, how it is put right)"""
    random = Random(f"damage {seed}")
    good = a_log(random)
    kind, put_right = KINDS[seed % len(KINDS)], random.choice(PUT_RIGHT)
    return good, damaged_files(random, good, kind), kind, put_right


@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_damaged_and_put_right_is_as_the_good_log_alone(tmp_path: Path, part: int) -> None:
    """bronze and coverage are those of the good log, and all that was quarantined is resolved."""
    wrong = []
    for seed in sorted({*range(part, DAMAGE_SETS, PARTS)} - UNDECIDABLE):
        good, bad, kind, put_right = a_set(seed)
        root = tmp_path / f"{seed}"
        nights = nights_of(root, good, bad, put_right)
        found = []
        for name, folders in (("good", [(root / "good",)]), ("damaged", nights)):
            warehouse = Warehouse(str(root / f"warehouse-{name}"))
            for number, night in enumerate(folders):
                if name == "damaged":
                    before_night(root, good, put_right, number)
                summary = capture_night(warehouse, number, night)
            rows = warehouse.read(TABLES["bronze.quarantine"]).to_pylist()
            still_open = [row for row in rows if row["resolved_at"] is None]
            found.append((bronze(warehouse), coverage(warehouse), still_open, summary.is_clean))
        good_bronze, good_coverage, _, was_clean = found[0]
        of_bronze, of_coverage, still_open, is_clean = found[1]
        unlike = {at for at, said in of_coverage.items() if said != good_coverage.get(at)}
        if put_right != "in place":
            # the damaged copy is still there: of bytes whose offsets nobody can tell it stays said that they are
            # damaged, of offsets, too, at which the good copy has nothing
            still_open = [row for row in still_open if not may_hide_more(row, good_coverage)]
            unlike = {at for at in unlike if (good_coverage.get(at), of_coverage[at]) != ("COMPACTED", "CORRUPT")}
            is_clean = was_clean
        if (
            of_bronze != good_bronze
            or unlike
            or still_open
            or is_clean != was_clean
            or of_coverage.keys() != good_coverage.keys()
        ):
            texts = [row["message"] for row in still_open]
            what = f"{of_bronze == good_bronze} {unlike} {texts} {is_clean}"
            wrong.append(f"seed {seed}: {kind}, {put_right}: {what}"[:1_500])
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong)


@pytest.mark.parametrize("seed", range(WHOLE_NIGHTS))
def test_silver_and_gold_are_as_of_the_good_log_alone(tmp_path: Path, seed: int) -> None:
    """Whole nights: what was damaged leaves nothing behind, and the exit code is that of the good log."""
    good, bad, _, _ = a_set(1_000 + seed)
    put_right = "in place"
    nights = nights_of(tmp_path, good, bad, put_right)
    found = []
    for name, folders in (("good", [(tmp_path / "good",)]), ("damaged", nights)):
        ledger = Ledger(tmp_path / f"warehouse-{name}")
        for number, night in enumerate(folders):
            if name == "damaged":
                before_night(tmp_path, good, put_right, number)
            code = ledger.night(*night, number=1 + number).exit_code
        found.append((code, contents(ledger)))
    assert found[0] == found[1]


LOG: Final = [
    Written(offset, offset, epoch, (commit(offset, offset % 3, offset),))
    for offset, epoch in enumerate((0, 0, 3, 3, 3, 3))
]


def with_epoch(batches: Sequence[Written], damage: dict[int, int]) -> list[bytes]:
    """Batches of which some have another leader epoch in their header, by index."""
    data = [batch.data() for batch in batches]
    return [
        it[:12] + damage[index].to_bytes(4, "big") + it[16:] if index in damage else it for index, it in enumerate(data)
    ]


@pytest.mark.parametrize("is_in_place", [True, False])
@pytest.mark.parametrize("cut", [None, 3])
@pytest.mark.parametrize("damage", [{1: 2**20}, {3: 2**30}, {4: 0}, {4: 2}, {5: 7}], ids=str)
def test_a_damaged_leader_epoch_cuts_nothing_away(
    tmp_path: Path, damage: dict[int, int], cut: int | None, is_in_place: bool
) -> None:
    """No checksum covers it: an epoch that falls, or that the same bytes have not elsewhere, is damaged."""
    data = with_epoch(LOG, damage)
    segments = [(0, b"".join(data[:cut])), *([(cut, b"".join(data[cut:]))] if cut else [])]
    write(tmp_path / "bad", segments)
    longer = [*LOG, Written(6, 6, 3, (commit(6, 0, 6),))]
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    for number in range(2):
        folder = tmp_path / ("bad" if is_in_place or number == 0 else "good")
        if number:
            write(folder, [(0, b"".join(with_epoch(longer, {})))])
        capture_night(warehouse, number, (folder,))
        if number == 0 and 5 not in damage:
            assert {at for at, kind in coverage(warehouse).items() if kind == "CORRUPT"} == damage.keys()
    assert [row[:3] for row in bronze(warehouse)] == [(it.base_offset, it.base_offset, it.epoch) for it in longer]
    rows = warehouse.read(TABLES["bronze.quarantine"]).to_pylist()
    assert {row["code"] for row in rows} == {"EPOCH_OUT_OF_ORDER"}
    assert all(row["resolved_at"] is not None for row in rows)


@pytest.mark.parametrize("put_right", PUT_RIGHT)
@pytest.mark.parametrize("bit", [3, 30])
def test_the_next_segment_disproves_a_damaged_base_offset(tmp_path: Path, bit: int, put_right: str) -> None:
    """Of the last batch of a segment, which no checksum covers and nothing behind it in the file."""
    data = with_epoch(LOG, {})
    good = [(0, data[:3]), (3, data[3:])]
    phantom = (2 ^ 1 << bit).to_bytes(8, "big") + data[2][8:]
    bad = [(0, b"".join([*data[:2], phantom])), (3, b"".join(data[3:]))]
    nights = nights_of(tmp_path, good, bad, put_right)
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    for number, night in enumerate(nights):
        before_night(tmp_path, good, put_right, number)
        capture_night(warehouse, number, night)
        if number == 0 and put_right in ("in place", "second folder"):
            assert coverage(warehouse) == {at: "CORRUPT" if at == 2 else "CAPTURED" for at in range(6)}
    assert [row[:2] for row in bronze(warehouse)] == [(it.base_offset, it.base_offset) for it in LOG]
    assert coverage(warehouse) == dict.fromkeys(range(6), "CAPTURED")
    rows = warehouse.read(TABLES["bronze.quarantine"]).to_pylist()
    assert {row["code"] for row in rows} == {"INVALID_BATCH"}
    assert all(row["resolved_at"] is not None for row in rows) == (put_right == "in place")


def test_a_merged_segment_before_one_that_it_holds_is_no_damage(tmp_path: Path) -> None:
    """A copy made without deletion: the cleaner merged two segments, of whose batches one in each is left."""
    data = with_epoch(LOG, {})
    write(tmp_path / "mirror", [(0, data[1] + data[4]), (3, b"".join(data[3:]))])
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    capture_night(warehouse, 0, (tmp_path / "mirror",))
    assert [row[0] for row in bronze(warehouse)] == [1, 4, 5]
    messages = warehouse.read(TABLES["bronze.quarantine"])["message"].to_pylist()
    assert not [it for it in messages if "header is damaged" in it]


@pytest.mark.parametrize("put_right", PUT_RIGHT)
@pytest.mark.parametrize("delta", [1, 2**20])
def test_what_a_damaged_header_claims_goes_with_its_batch(tmp_path: Path, delta: int, put_right: str) -> None:
    """How many offsets the last batch of a log has, its header alone says, and there is the damage."""
    data = with_epoch(LOG, {})
    # after base offset, length, epoch, magic, checksum and attributes
    claiming = data[5][:23] + delta.to_bytes(4, "big") + data[5][27:]
    good, bad = [(0, data)], [(0, b"".join([*data[:5], claiming]))]
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    for number, night in enumerate(nights_of(tmp_path, good, bad, put_right)):
        before_night(tmp_path, good, put_right, number)
        capture_night(warehouse, number, night)
        if number == 0 and put_right in ("in place", "second folder"):
            assert coverage(warehouse) == {at: "CAPTURED" if at < 5 else "CORRUPT" for at in range(6 + delta)}
    assert [row[:2] for row in bronze(warehouse)] == [(it.base_offset, it.base_offset) for it in LOG]
    assert coverage(warehouse) == dict.fromkeys(range(6), "CAPTURED")
    rows = warehouse.read(TABLES["bronze.quarantine"]).to_pylist()
    assert [(row["code"], row["resolved_at"] is None) for row in rows] == [("CRC_MISMATCH", False)]
