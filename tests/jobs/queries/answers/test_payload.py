"""What a source log has at an offset that was given up, and whether a dead-letter topic has its copy."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from coordinator_core.bytes.log.batch import Record, build_batch, build_marker
from jobs.errors import SourceError
from jobs.queries.answers.dead_letters import CopyState, origin_of, read_dead_letters
from jobs.queries.answers.payload import OFFSETS_MAX, Presence, RecordRange, read_payloads
from schemas.dead_letters import DeadLetterOrigin

ORDERS = "orders"
DEAD_LETTERS = "dlq.orders"
AT_MS = 1_700_000_000_000
HEADERS = (("trace", b"1"), ("empty", None))


def segment(folder: Path, topic: str, partition: int, base_offset: int, batches: Sequence[bytes]) -> None:
    """Write one segment file of a broker's log directory."""
    place = folder / f"{topic}-{partition}"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{base_offset:020}.log").write_bytes(b"".join(batches))


def record(offset: int, key: bytes | None = b"k", value: bytes | None = b"value") -> Record:
    """A record of the source topic."""
    return Record(offset, AT_MS + offset, key, value, HEADERS)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """orders-0 from offset 10: 10 and 12 with a compacted hole, a marker at 13, a damaged batch, a second segment."""
    damaged = bytearray(build_batch([record(14)]))
    damaged[-1] ^= 1
    marker = build_marker(
        offset=13, timestamp_ms=AT_MS, producer_id=1, producer_epoch=0, is_commit=True, coordinator_epoch=0
    )
    segment(tmp_path, ORDERS, 0, 10, [build_batch([record(10), record(12, None, None)]), marker, bytes(damaged)])
    segment(tmp_path, ORDERS, 0, 20, [build_batch([record(20), record(21, value=b"")])])
    return tmp_path


def test_each_offset_is_a_record_or_why_there_is_none(source: Path) -> None:
    """Records with key, size and headers; below, above and between them what the log has instead."""
    found = read_payloads([str(source)], [RecordRange(ORDERS, 0, 9, 15), RecordRange(ORDERS, 0, 19, 22)])
    assert [(one.offset, one.presence) for one in found] == [
        (9, Presence.EXPIRED),
        (10, Presence.RECORD),
        (11, Presence.GAP),
        (12, Presence.RECORD),
        (13, Presence.CONTROL),
        (14, Presence.UNREADABLE),
        (15, Presence.GAP),
        (19, Presence.GAP),
        (20, Presence.RECORD),
        (21, Presence.RECORD),
        (22, Presence.BEYOND),
    ]
    first, null, empty = found[1], found[3], found[9]
    assert (first.key, first.value_size, first.value, first.headers) == (b"k", 5, None, HEADERS)
    assert first.timestamp_ms == AT_MS + 10
    assert (null.key, null.value_size, empty.value_size) == (None, None, 0)


def test_values_are_given_only_if_asked_for(source: Path) -> None:
    """A value may be anything: it is read, and shown, only on demand."""
    (found,) = read_payloads([str(source)], [RecordRange(ORDERS, 0, 10, 10)], with_values=True)
    assert found.value == b"value"


def test_any_source_may_have_the_record(source: Path, tmp_path: Path) -> None:
    """Sources that lack the partition, or the offset, are passed over; offsets asked for twice are answered once."""
    other = tmp_path / "other"
    segment(other, ORDERS, 0, 0, [build_batch([record(9)])])
    ranges = [RecordRange(ORDERS, 0, 9, 10), RecordRange(ORDERS, 0, 10, 10), RecordRange("nowhere", 3, 0, 0)]
    found = read_payloads([str(source), str(other)], ranges)
    assert [(one.topic, one.offset, one.presence) for one in found] == [
        ("nowhere", 0, Presence.NO_LOG),
        (ORDERS, 9, Presence.RECORD),
        (ORDERS, 10, Presence.RECORD),
    ]


def test_log_start_offset_hides_what_is_deleted(source: Path) -> None:
    """What DeleteRecords took is still in the file, and expired all the same."""
    (source / "log-start-offset-checkpoint").write_text(f"0\n1\n{ORDERS} 0 12\n")
    found = read_payloads([str(source)], [RecordRange(ORDERS, 0, 10, 12)])
    assert [one.presence for one in found] == [Presence.EXPIRED, Presence.EXPIRED, Presence.RECORD]


def test_a_range_of_any_length_is_refused_before_it_costs(source: Path) -> None:
    """A range may be as long as an absurd log says."""
    with pytest.raises(SourceError, match="offsets to look up"):
        read_payloads([str(source)], [RecordRange(ORDERS, 0, 0, 2**62)])
    assert OFFSETS_MAX < 2**62


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """To have none of the partition is no error, not to be there is."""
    with pytest.raises(SourceError, match="cannot read"):
        read_payloads([str(tmp_path / "none")], [RecordRange(ORDERS, 0, 0, 0)])


def dead_letter(place: int, source_offset: int, at_ms: int, changed: Mapping[str, bytes] | None = None) -> Record:
    """A copy as a broker writes it; `changed` headers by the last word of their name, empty: left out."""
    headers = {
        "topic": ORDERS.encode(),
        "partition": b"0",
        "offset": b"%d" % source_offset,
        "group": b"workers",
        "delivery.count": b"5",
        "message": b"Delivery count limit reached.",
    } | dict(changed or {})
    reported = tuple((f"__dlq.errors.{name}", value) for name, value in headers.items() if value)
    return Record(place, at_ms, None, None, reported)


def test_copies_are_found_missing_or_not_there_yet(tmp_path: Path) -> None:
    """By the headers of KIP-1191; missing only where the topic goes on long after the record was given up."""
    letters = [dead_letter(0, 7, AT_MS), dead_letter(1, 9, AT_MS + 100_000), Record(2, AT_MS + 100_000, b"k", b"v", ())]
    segment(tmp_path, DEAD_LETTERS, 0, 0, [build_batch(letters)])
    found = read_dead_letters([str(tmp_path), str(tmp_path)], [DEAD_LETTERS])
    (letter,) = found.letters[DeadLetterOrigin("workers", ORDERS, 0, 7)]
    assert (letter.offset, letter.delivery_count, letter.message) == (0, 5, "Delivery count limit reached.")
    assert found.newest_ms == AT_MS + 100_000

    def state(offset: int, cause: str, given_up_ms: int, group_id: str = "workers") -> CopyState:
        return found.state_of(DeadLetterOrigin(group_id, ORDERS, 0, offset), cause, given_up_ms)

    assert state(7, "LIMIT_OR_REJECT", AT_MS) is CopyState.FOUND
    assert state(8, "REJECT_OR_GAP", AT_MS) is CopyState.MISSING
    assert state(7, "LIMIT_OR_REJECT", AT_MS, group_id="others") is CopyState.MISSING
    assert state(10, "REJECT_OR_GAP", AT_MS + 90_000) is CopyState.NOT_YET
    assert state(8, "UNSEEN", AT_MS) is CopyState.NOT_COPIED


def test_a_damaged_batch_may_hold_the_copy(tmp_path: Path) -> None:
    """Nothing is called missing where a batch of the dead-letter topic cannot be read."""
    damaged = bytearray(build_batch([dead_letter(0, 7, AT_MS)]))
    damaged[-1] ^= 1
    segment(tmp_path, DEAD_LETTERS, 0, 0, [bytes(damaged), build_batch([dead_letter(1, 9, AT_MS + 100_000)])])
    found = read_dead_letters([str(tmp_path)], [DEAD_LETTERS])
    assert found.state_of(DeadLetterOrigin("workers", ORDERS, 0, 7), "LIMIT_OR_REJECT", AT_MS) is CopyState.NOT_YET


@pytest.mark.parametrize(
    "changed",
    [{"topic": b""}, {"partition": b"-1"}, {"offset": b"9" * 40}, {"offset": "\u0661".encode()}, {"group": b""}],
    ids=["no topic", "sign", "too long", "digits of another script", "no group"],
)
def test_headers_that_name_no_origin_are_no_copy(changed: dict[str, bytes]) -> None:
    """Anybody may write to a topic: headers are believed only as far as they can be true."""
    assert origin_of(dead_letter(0, 7, AT_MS, changed)) is None
    assert origin_of(dead_letter(0, 7, AT_MS)) == DeadLetterOrigin("workers", ORDERS, 0, 7)


def test_no_dead_letter_topic_is_an_error(source: Path) -> None:
    """To be given a topic and find none of it is not the same as to find it empty."""
    with pytest.raises(SourceError, match="nothing to read"):
        read_dead_letters([str(source)], [DEAD_LETTERS])
