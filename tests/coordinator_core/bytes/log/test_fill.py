"""Records put back into a batch that was cleaned, and taken out again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.batch import Record, build_batch, encode_headers, parse_header, verify_crc
from coordinator_core.bytes.log.compression import Codec
from coordinator_core.bytes.log.fill import (
    KeyValues,
    compare,
    decode_headers,
    is_same_but_for_latest_time,
    uncompressed,
    with_records,
    without_records,
)
from coordinator_core.bytes.log.records import decode_chunk, iter_records

HEADERS = (("a", b"1"), ("b", None))
RECORDS = [
    Record(100 + at, 1_000 + 7 * at, f"k{at}".encode(), None if at == 3 else bytes(at * 40), HEADERS) for at in range(6)
]


@given(st.sets(st.integers(0, 5)), st.sampled_from(list(Codec)), st.booleans(), st.booleans())
def test_what_is_put_into_a_batch_can_be_taken_out_again(
    kept: set[int], codec: int, has_horizon: bool, is_append_time: bool
) -> None:
    """All records, their own times and headers, in the header of the batch; without them it is as it was."""
    records = [RECORDS[at] for at in sorted(kept)]
    cleaned = build_batch(
        records,
        base_offset=100,
        last_offset=105,
        codec_id=codec if records else Codec.NONE,
        leader_epoch=3,
        is_log_append_time=is_append_time,
        is_transactional=True,
        producer_id=5,
        producer_epoch=1,
        base_sequence=8,
        base_timestamp_ms=RECORDS[0].timestamp_ms,
        delete_horizon_ms=5_000 if has_horizon else None,
    )
    others = [RECORDS[at] for at in range(6) if at not in kept]
    filled = with_records(cleaned, others)
    verify_crc(filled)
    found = list(iter_records(filled))
    assert [(it.offset, it.key, it.value, it.headers) for it in found] == [
        (it.offset, it.key, it.value, it.headers) for it in RECORDS
    ]
    if not is_append_time:
        assert found == RECORDS
    header, before = parse_header(filled), parse_header(cleaned)
    for name in ("base_offset", "last_offset", "leader_epoch", "is_transactional", "producer_id", "base_timestamp_ms"):
        assert getattr(header, name) == getattr(before, name)
    rest = without_records(filled, {it.offset for it in others})
    assert is_same_but_for_latest_time(rest, uncompressed(cleaned))
    if not is_append_time:
        assert rest == uncompressed(cleaned)


def test_a_record_outside_of_a_batch_is_refused() -> None:
    """A batch has the offsets that its header says."""
    with pytest.raises(ValueError, match="offset 105 is not in 100 to 104"):
        with_records(build_batch(RECORDS[:5]), [RECORDS[5]])


def test_records_are_compared_by_key_and_value() -> None:
    """Missing and other records, null distinct from empty."""
    there = KeyValues.of(decode_chunk(build_batch([RECORDS[0], RECORDS[2], RECORDS[3]])))
    come = [
        Record(99, 0, b"k", b"v"),
        RECORDS[0],
        RECORDS[1],
        Record(102, 0, RECORDS[2].key, RECORDS[2].value and RECORDS[2].value[:-1] + b"x"),
        Record(103, 0, RECORDS[3].key, b""),
        Record(110, 0, None, None),
    ]
    is_missing, differs = compare(there, KeyValues.of_records(come))
    assert is_missing.tolist() == [True, False, True, False, False, True]
    assert differs.tolist() == [False, False, False, True, True, False]


@given(st.lists(st.tuples(st.text(max_size=200), st.none() | st.binary(max_size=200)), max_size=3))
def test_headers_come_back(headers: list[tuple[str, bytes | None]]) -> None:
    """As they were encoded."""
    assert decode_headers(encode_headers(headers)) == tuple(headers)
