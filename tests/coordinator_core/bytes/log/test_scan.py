"""Whole segments, sound and damaged: every byte is accounted for, and damage in one batch costs no other."""

import mmap
import struct
from dataclasses import fields
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log import scan
from coordinator_core.bytes.log.batch import Record, batch_crc, build_batch, with_crc
from coordinator_core.bytes.log.compression import Codec, compress
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.bytes.log.scan import LOOK_BACK_BYTES, SegmentScan, scan_end, scan_segment
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from tests.fuzz import corpus
from tests.fuzz.check import check_scan

BASE = 1000
BATCHES = [
    build_batch([Record(BASE + 3 * index + delta, 5, b"key", b"value" * 9) for delta in range(3)]) for index in range(8)
]
LOG = b"".join(BATCHES)
SIZE = len(BATCHES[0])


def scanned(data: bytes, *, is_last: bool = True, next_offset_min: int = 0) -> SegmentScan:
    found = scan_segment(data, base_offset=BASE, is_last=is_last, next_offset_min=next_offset_min)
    check_scan(data, max(BASE, next_offset_min), found)
    return found


def rows(found: SegmentScan) -> list[int]:
    """Which of BATCHES were found, by base offset."""
    return [(offset - BASE) // 3 for offset in found.batches.base_offset.tolist()]


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    return data[:position] + bytes((data[position] ^ 1 << bit,)) + data[position + 1 :]


def test_sound_segment() -> None:
    """All batches, no findings."""
    found = scanned(LOG)
    assert rows(found) == list(range(8))
    assert found.crc_valid.all()
    assert (found.findings, found.next_offset, found.end_position) == ((), BASE + 24, len(LOG))


def test_empty_and_preallocated_files() -> None:
    """No bytes, or zeros to the end of the file, are not worth a finding."""
    for zeros in (0, 1, 16, 17, 100_000):
        assert scanned(bytes(zeros)).findings == ()
        found = scanned(LOG + bytes(zeros))
        assert (rows(found), found.findings, found.end_position) == (list(range(8)), (), len(LOG))


@given(st.integers(1, SIZE - 1), st.booleans())
def test_torn_tail(left: int, is_last: bool) -> None:
    """A last batch which is cut is one finding, in the last segment and in others."""
    found = scanned(LOG[: 7 * SIZE + left], is_last=is_last)
    if not any(LOG[7 * SIZE : 7 * SIZE + left]):
        assert found.findings == ()
        return
    (finding,) = found.findings
    assert rows(found) == list(range(7))
    assert (finding.stage, finding.code, finding.byte_position) == ("FILE", "TRUNCATED_BATCH", 7 * SIZE)
    assert finding.payload == LOG[7 * SIZE : 7 * SIZE + left]
    assert ("not the last" in finding.message) is not is_last


def test_wrong_checksum_stays_a_batch() -> None:
    """A batch with sound framing and a wrong checksum is kept, marked, and has a finding of stage BATCH."""
    for row in range(8):
        found = scanned(flipped(LOG, row * SIZE + 70))
        (finding,) = found.findings
        assert rows(found) == list(range(8))
        assert found.crc_valid.tolist() == [other != row for other in range(8)]
        assert (finding.stage, finding.code) == ("BATCH", "CRC_MISMATCH")
        assert (finding.base_offset, finding.byte_position) == (BASE + 3 * row, row * SIZE)


@pytest.mark.parametrize("row", range(8))
def test_damaged_header_costs_no_other_batch(row: int) -> None:
    """Whichever bit of a header flips, all other batches are found; the damaged one is found or said."""
    others = {other * SIZE for other in range(8) if other != row}
    for place, bit in product(range(61), (0, 7)):
        found = scanned(flipped(LOG, row * SIZE + place, bit))
        assert others <= set(found.batches.position[found.crc_valid].tolist()), (place, bit)
        # leader epoch; the last base offset, with nobody behind
        is_unseen = 12 <= place < 16 or (row == 7 and place < 8)
        assert is_unseen or len(found.findings) == 1, (place, bit)


@pytest.mark.parametrize("row", range(8))
def test_damaged_batch_is_one_range(row: int) -> None:
    """A batch overwritten with noise is one finding of stage FILE over just its bytes."""
    noise = bytes(range(1, 256)) * 2
    data = LOG[: row * SIZE] + noise[:SIZE] + LOG[(row + 1) * SIZE :]
    found = scanned(data)
    assert rows(found) == [other for other in range(8) if other != row]
    (finding,) = found.findings
    assert (finding.stage, finding.code, finding.byte_position) == ("FILE", "INVALID_BATCH", row * SIZE)
    assert finding.payload == noise[:SIZE]
    assert f"{SIZE} bytes" in finding.message
    assert found.skipped == ((row * SIZE, (row + 1) * SIZE),)


def test_zeros_followed_by_data() -> None:
    """Zeros are harmless only at the end of the file."""
    found = scanned(LOG[: 2 * SIZE] + bytes(500) + LOG[2 * SIZE :])
    (finding,) = found.findings
    assert rows(found) == list(range(8))
    assert finding.message.startswith("zeros followed by data")
    assert found.skipped == ((2 * SIZE, 2 * SIZE + 500),)


def test_length_which_reaches_into_the_zeros() -> None:
    """A damaged length which swallows the rest of a preallocated file does not hide the batches there."""
    position = 2 * SIZE + 8
    data = LOG[:position] + struct.pack(">i", len(LOG) + 100) + LOG[position + 4 :] + bytes(5000)
    found = scanned(data)
    assert rows(found) == [0, 1, 3, 4, 5, 6, 7]
    assert found.skipped == ((2 * SIZE, 3 * SIZE),)


def test_length_which_runs_past_the_end() -> None:
    """A damaged length in the middle is no torn tail: reading goes on with the next batch."""
    position = 2 * SIZE + 8
    found = scanned(LOG[:position] + struct.pack(">i", 100_000) + LOG[position + 4 :])
    assert rows(found) == [0, 1, 3, 4, 5, 6, 7]
    assert [finding.code for finding in found.findings] == ["INVALID_BATCH"]


@pytest.mark.parametrize("row", range(7))
@pytest.mark.parametrize("moved", [-(2**62), -1, 1, 2, 3, 5, 100, 2**30, 2**31, 2**62])
def test_moved_base_offset(row: int, moved: int) -> None:
    """The checksum does not cover the base offset; the neighbours tell which batch is the wrong one."""
    offset = BASE + 3 * row + moved
    data = LOG[: row * SIZE] + struct.pack(">q", offset) + LOG[row * SIZE + 8 :]
    found = scanned(data)
    assert rows(found) == [other for other in range(8) if other != row]
    assert found.skipped == ((row * SIZE, (row + 1) * SIZE),)


def test_last_base_offset_is_bounded_by_the_segment() -> None:
    """A segment's offsets fit into 31 bits above its base offset."""
    data = LOG[: 7 * SIZE] + struct.pack(">q", BASE + 2**31) + LOG[7 * SIZE + 8 :]
    assert rows(scanned(data)) == list(range(7))


def test_batches_below_the_segment_before() -> None:
    """What goes back behind the segment before is not read twice."""
    found = scanned(LOG, next_offset_min=BASE + 6)
    assert rows(found) == list(range(2, 8))
    assert found.skipped == ((0, 2 * SIZE),)
    assert "out of order" in found.findings[0].message


def test_compacted_segment() -> None:
    """Gaps between and inside batches are normal, and so is an emptied batch."""
    parts = [
        build_batch([Record(1010, 1, b"k", b"v")], base_offset=1004, last_offset=1020),
        build_batch([], base_offset=1500, last_offset=1_000_000),
        build_batch([Record(2_000_000, 1, b"k", b"v")]),
    ]
    found = scanned(b"".join(parts))
    assert found.findings == ()
    assert found.batches.base_offset.tolist() == [1004, 1500, 2_000_000]
    assert found.next_offset == 2_000_001


def test_large_damage_is_named_but_not_kept_whole() -> None:
    """The payload of a finding is bounded; the message says how much there was."""
    found = scanned(LOG + b"\x07" * (QUARANTINE_BYTES_MAX + 5))
    (finding,) = found.findings
    assert finding.payload == b"\x07" * QUARANTINE_BYTES_MAX
    assert f"{QUARANTINE_BYTES_MAX + 5} bytes" in finding.message


def test_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers which each claim the rest of the file cannot make the search quadratic; the rest is then one finding."""
    checked = 0

    def counted(batch: bytes) -> int:
        nonlocal checked
        checked += len(batch)
        return batch_crc(batch)

    monkeypatch.setattr(scan, "batch_crc", counted)
    header = build_batch([], base_offset=BASE, last_offset=BASE)
    count = 2000
    data = b"\xff" * 17 + b"".join(
        header[:8] + struct.pack(">i", len(header) * (count - index) - 12) + header[12:] for index in range(count)
    )
    found = scanned(data)
    assert found.skipped == ((0, len(data)),)
    assert checked <= scan.RESYNC_CRC_FACTOR * len(data)


def test_what_is_found_is_read() -> None:
    """The batches of a scan, put together, are a chunk without framing findings."""
    data = flipped(LOG, 3 * SIZE + 16)
    found = scanned(data)
    whole = b"".join(data[p : p + s] for p, s in zip(found.batches.position, found.batches.size, strict=True))
    assert len(decode_chunk(whole).records) == 21


damage = st.lists(
    st.tuples(
        st.sampled_from(["flip", "zero", "noise", "cut", "delete", "insert"]),
        st.integers(0, 2**16),
        st.integers(1, 300),
        st.integers(0, 255),
    ),
    max_size=4,
)


def reported(found: SegmentScan) -> tuple[object, ...]:
    """All that a scan says."""
    columns = [getattr(found.batches, field.name).tolist() for field in fields(found.batches)]
    return columns, found.crc_valid.tolist(), found.findings, found.skipped, found.next_offset, found.end_position


@given(
    data=st.data(),
    damages=damage,
    is_last=st.booleans(),
    zeros=st.sampled_from([0, 0, 5, 200]),
    window_bytes=st.sampled_from([1, 100, 300, 2_000]),
)
def test_every_byte_is_accounted_for(
    data: st.DataObject, damages: list[tuple[str, int, int, int]], is_last: bool, zeros: int, window_bytes: int
) -> None:
    """Whatever happens to a real segment: batches, findings of stage FILE and zeros at the end are all its bytes, in
    whatever windows it is read."""
    sample = data.draw(st.sampled_from(corpus.segments()))
    out = bytearray(sample.data)
    for kind, place, size, byte in damages:
        position = place % (len(out) + 1)
        if kind == "flip" and position < len(out):
            out[position] ^= byte
        elif kind in ("zero", "noise"):
            interval = len(out[position : position + size])
            out[position : position + interval] = bytes((byte if kind == "noise" else 0,)) * interval
        elif kind == "cut":
            del out[position:]
        elif kind == "delete":
            del out[position : position + size]
        elif kind == "insert":
            out[position:position] = bytes((byte,)) * size
    segment = bytes(out) + bytes(zeros)
    found = scan_segment(segment, base_offset=sample.base_offset, is_last=is_last, next_offset_min=0)
    check_scan(segment, sample.base_offset, found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "WINDOW_BYTES", window_bytes)
        again = scan_segment(segment, base_offset=sample.base_offset, is_last=is_last, next_offset_min=0)
    assert reported(again) == reported(found)


def test_file_may_be_mapped(tmp_path: Path) -> None:
    """A memory-mapped file is scanned in place."""
    file = tmp_path / "00000000000000001000.log"
    file.write_bytes(LOG)
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        found = scan_segment(view, base_offset=BASE, is_last=True, next_offset_min=0)
        assert rows(found) == list(range(8))
        del found
        view.release()


def test_legacy_entry_with_wrong_checksum() -> None:
    """Checksums of magic 0 and 1 are CRC-32 from the magic on."""
    entry = with_crc(struct.pack(">qiIbbii", BASE, 15, 0, 0, 0, -1, 1) + b"v")
    assert scanned(entry + LOG[SIZE:]).findings == ()
    found = scanned(entry[:-1] + b"w" + LOG[SIZE:])
    assert [finding.code for finding in found.findings] == ["CRC_MISMATCH"]
    assert found.crc_valid.tolist() == [False] + [True] * 7


def test_damage_side_by_side_is_one_range() -> None:
    """A batch whose place is found by its checksum, but whose offset is wrong, goes into the finding before it."""
    moved = struct.pack(">q", BASE + 500) + BATCHES[3][8:]
    found = scanned(LOG[: 2 * SIZE] + b"\xee" * SIZE + moved + LOG[4 * SIZE :])
    assert rows(found) == [0, 1, 4, 5, 6, 7]
    assert found.skipped == ((2 * SIZE, 4 * SIZE),)
    assert len(found.findings) == 1


def legacy(offset: int, value: bytes, attributes: int = 0) -> bytes:
    """A v0 message with null key."""
    return with_crc(struct.pack(">qiIbbii", offset, 14 + len(value), 0, 0, attributes, -1, len(value)) + value)


@pytest.mark.parametrize(
    ("value", "base_offset"),
    [
        pytest.param(compress(Codec.GZIP, legacy(BASE + 2, b"a") + legacy(BASE + 4, b"b")), BASE + 2, id="sound"),
        pytest.param(compress(Codec.GZIP, legacy(BASE, b"a") + legacy(BASE + 4, b"b")), BASE + 4, id="reaches back"),
        pytest.param(b"not gzip", BASE + 4, id="unreadable"),
    ],
)
def test_base_offset_of_legacy_wrappers(value: bytes, base_offset: int) -> None:
    """A wrapper starts at its first message, unless that cannot be read or lies behind the batch before."""
    found = scanned(legacy(BASE + 1, b"x") + legacy(BASE + 4, value, attributes=1))
    assert found.findings == ()
    assert found.batches.base_offset.tolist() == [BASE + 1, base_offset]
    assert found.next_offset == BASE + 5


def test_the_end_of_a_segment_is_what_the_whole_says_of_it() -> None:
    """From any known batch on: the same batches at the same places, and the same end."""
    whole = scanned(LOG)
    for index in range(len(BATCHES)):
        known = BASE + 3 * index, BASE + 3 * index + 2
        found = scan_end(LOG, known, base_offset=BASE, is_last=True)
        assert found is not None
        for column in fields(found.batches):
            expected = getattr(whole.batches, column.name)[index:].tolist()
            assert getattr(found.batches, column.name).tolist() == expected
        assert (found.findings, found.skipped) == (whole.findings, whole.skipped)
        assert (found.next_offset, found.end_position) == (whole.next_offset, whole.end_position)


@pytest.mark.parametrize("look_back_bytes", [*range(1, 40), SIZE, SIZE + 1])
def test_a_known_batch_is_looked_for_further_and_further_back(
    look_back_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it lies, be it across two of the windows."""
    monkeypatch.setattr(scan, "LOOK_BACK_BYTES", look_back_bytes)
    monkeypatch.setattr(scan, "LOOK_BACK_PART", 1)
    for index in range(len(BATCHES)):
        known = BASE + 3 * index, BASE + 3 * index + 2
        found = scan_end(LOG, known, base_offset=BASE, is_last=True)
        assert found is not None
        assert rows(found) == list(range(index, len(BATCHES)))


NESTED = build_batch([Record(BASE + 3, 5, b"key", b"before " + BATCHES[0] + b" behind")])
FAR = build_batch([Record(BASE + 3, 5, b"key", bytes(LOOK_BACK_BYTES))])


@pytest.mark.parametrize(
    "data",
    [
        b"".join(BATCHES[1:]),
        BATCHES[0] + flipped(BATCHES[1], SIZE - 1) + BATCHES[2],
        flipped(BATCHES[0], SIZE - 1) + BATCHES[1],
        BATCHES[0] + bytes(50) + BATCHES[1],
        BATCHES[0] + BATCHES[2],
        BATCHES[0] + BATCHES[1] + BATCHES[1],
        BATCHES[0] + NESTED,
        BATCHES[0] + FAR,
        BATCHES[0] + BATCHES[1] + BATCHES[2][:40],
        BATCHES[0] + BATCHES[1] + bytes(5000),
    ],
    ids=[
        "gone",
        "damaged behind",
        "damaged",
        "zeros between",
        "a hole",
        "twice",
        "in a value",
        "far",
        "torn",
        "preallocated",
    ],
)
def test_a_segment_that_does_not_just_go_on_is_read_whole(data: bytes) -> None:
    """Nothing is taken from the end alone where the known batch is not there, or what follows is not in order."""
    assert scan_end(data, (BASE, BASE + 2), base_offset=BASE, is_last=True) is None
