"""A batch of millions of unreadable records: few rows of quarantine, however the log is divided by its keys."""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.bytes.log.chunk import Finding, RecordChunk
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.history.offsets_log import OffsetsLogReplay
from coordinator_core.history.simple_log import ClusterMetadataReplay, TransactionStateReplay
from coordinator_core.replay import record_findings
from coordinator_core.replay.columnar.share_state_columnar import ColumnarShareReplay
from coordinator_core.replay.key_buckets import SLOT_COUNT, buckets_of

KEPT: Final = 10
COUNT: Final = 200
GROUPS: Final = 7


def commit_key(number: int) -> bytes:
    """Of a commit of one of some groups."""
    return struct.pack(">hh2sh1si", 1, 2, b"g%d" % (number % GROUPS), 1, b"t", number)


def share_key(number: int) -> bytes:
    """Of a snapshot of one of some share groups."""
    return struct.pack(">hh2s16si", 0, 2, b"g%d" % (number % GROUPS), bytes(16), 0)


BAD_VALUE: Final = struct.pack(">h", 99)
OFFSETS: Final = {
    "no key": lambda _: (None, b"v"),
    "a short key": lambda _: (b"\0", b"v"),
    "an unknown type": lambda _: (struct.pack(">h", 77), b"v"),
    "commits with another value": lambda number: (commit_key(number), BAD_VALUE),
    "groups with another value": lambda number: (struct.pack(">hh2s", 2, 2, b"g%d" % (number % GROUPS)), BAD_VALUE),
}
SHARES: Final = {
    "no key": lambda _: (None, b"v"),
    "an unknown type": lambda _: (struct.pack(">h", 77), b"v"),
    "states with another value": lambda number: (share_key(number), BAD_VALUE),
}
Of = Callable[[int], tuple[bytes | None, bytes]]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_findings, "QUARANTINED_OFFSETS_MAX", KEPT)


def chunk_of(of: Of) -> RecordChunk:
    """Two batches of such records."""
    records = [Record(number, 1_780_000_000_000, *of(number)) for number in range(2 * COUNT)]
    batches = [build_batch(records[:COUNT]), build_batch(records[COUNT:])]
    return decode_chunk(b"".join(batches), bytes_max=1 << 20, chunk_bytes_max=1 << 20, crc="skip")


def ordered(findings: Sequence[Finding]) -> list[tuple[Any, ...]]:
    """All of the findings, in an order of their own."""
    return sorted((it.base_offset, it.offset, it.code, it.message, it.group_id or "") for it in findings)


def assert_bounded(findings: Sequence[Finding], kind_count: int) -> None:
    """A row for each of the first records of a batch, and one for each kind of the others, which says how many."""
    for base in (0, COUNT):
        of_batch = [it for it in findings if it.base_offset == base]
        places = sorted(it.offset - base for it in of_batch if it.offset is not None)
        assert places[:KEPT] == list(range(KEPT))
        assert KEPT < len(places) <= KEPT + kind_count
        later = [it.message for it in of_batch if it.offset is not None and it.offset - base >= KEPT]
        assert sum(int(text.rsplit(": ", 1)[1].split(" record")[0]) for text in later) == COUNT - KEPT


@pytest.mark.parametrize("kind", OFFSETS)
@pytest.mark.parametrize("bucket_count", [2, 5])
def test_groups(kind: str, bucket_count: int) -> None:
    """Commits by the compiled loop, groups by the codec."""
    chunk = chunk_of(OFFSETS[kind])
    output = OffsetsLogReplay().feed(chunk)
    assert_bounded(output.findings, GROUPS)
    unreadable = output.counts.quarantined_count + output.counts.unknown_type_count
    assert unreadable == 2 * COUNT
    owners = bytes(slot % bucket_count for slot in range(SLOT_COUNT))
    divided = [
        OffsetsLogReplay(bucket=bucket).feed(bucket.own_records(chunk)) for bucket in buckets_of(owners, is_share=False)
    ]
    assert ordered([it for each in divided for it in each.findings]) == ordered(output.findings)


@pytest.mark.parametrize("kind", SHARES)
@pytest.mark.parametrize("bucket_count", [2, 5])
def test_share_partitions(kind: str, bucket_count: int) -> None:
    """Of any group."""
    chunk = chunk_of(SHARES[kind])
    output = ColumnarShareReplay().feed(chunk)
    assert_bounded(output.findings, GROUPS)
    owners = bytes(slot % bucket_count for slot in range(SLOT_COUNT))
    divided = [ColumnarShareReplay().feed(bucket.own_records(chunk)) for bucket in buckets_of(owners, is_share=True)]
    assert ordered([it for each in divided for it in each.findings]) == ordered(output.findings)


@pytest.mark.parametrize("replay", [ClusterMetadataReplay, TransactionStateReplay])
def test_other_logs(replay: Callable[[], ClusterMetadataReplay | TransactionStateReplay]) -> None:
    """Which are not divided."""
    output = replay().feed(chunk_of(lambda _: (b"", b"")))
    assert_bounded(output.findings, 1)
    assert output.counts.quarantined_count == 2 * COUNT
