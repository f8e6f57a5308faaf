"""What a fetch asks for, and which batches of an answer belong to a range of offsets."""

import struct
from dataclasses import dataclass
from operator import attrgetter
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from coordinator_core.bytes.codec import decode, encode, make
from jobs.sources.fetch import LogRange, answered_partitions, fetch_request, frame_answer
from schemas.fetch_protocol import FETCH
from tests.jobs.builders import batch, damaged

FAR = 5 * 2**31


@dataclass(frozen=True)
class Case:
    """An answer, and what of it belongs to [from_offset, to_offset)."""

    name: str
    data: bytes
    from_offset: int
    to_offset: int
    base_offsets: list[int]
    next_offset: int
    is_end: bool
    codes: tuple[str, ...] = ()


THREE = batch(0, 3) + batch(3) + batch(4, 6)
CASES = [
    Case("all", THREE, 0, 10, [0, 3, 4], 10, False),
    Case("the last is cut", THREE[:-1], 0, 10, [0, 3], 4, False),
    Case("cut in its header", THREE[: len(batch(0, 3)) + 9], 0, 10, [0], 3, False),
    Case("only a cut batch", batch(0, 3)[:-1], 0, 10, [], 0, False),
    Case("ends in the middle of a batch", THREE, 0, 7, [0, 3], 4, True),
    Case("begins in the middle of a batch", THREE, 2, 10, [0, 3, 4], 10, False),
    Case("one offset, the last of its batch", THREE, 2, 3, [0], 3, True),
    Case("one offset, not the last of its batch", THREE, 1, 2, [], 0, True),
    Case("a hole at the end", batch(50), 10, 20, [], 10, True),
    Case("a hole at the beginning", batch(15), 10, 20, [15], 16, False),
    Case("a hole wider than a segment", batch(FAR) + batch(FAR + 1), 10, FAR + 9, [FAR, FAR + 1], FAR + 2, False),
    Case("damage inside", batch(0) + damaged(batch(1)) + batch(2), 0, 3, [0, 1, 2], 3, False, ("CRC_MISMATCH",)),
    Case("bytes which are none", batch(0) + b"\xff" * 90 + batch(2), 0, 3, [0, 2], 3, False, ("INVALID_BATCH",)),
    Case("damage, then a cut", b"\xff" * 90 + batch(2) + batch(3)[:-1], 0, 4, [2], 3, False, ("INVALID_BATCH",)),
    Case("damage, and the end", b"\xff" * 90 + batch(2) + batch(3), 0, 3, [2], 3, True, ("INVALID_BATCH",)),
    Case(
        "a flipped first offset",
        struct.pack(">q", FAR) + batch(0)[8:] + batch(1),
        0,
        9,
        [1],
        2,
        False,
        ("INVALID_BATCH",),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=attrgetter("name"))
def test_frame_answer(case: Case) -> None:
    """Whole batches whose last offset lies in the range; what is cut is left for the next fetch, damage is found."""
    framed = frame_answer(pa.py_buffer(case.data), case.from_offset, case.to_offset)
    assert framed.scan.batches.base_offset.tolist() == case.base_offsets
    assert max(framed.scan.next_offset, 0) == case.next_offset
    assert framed.is_end == case.is_end
    assert tuple(finding.code for finding in framed.scan.findings) == case.codes


@pytest.mark.parametrize("cut", range(0, 11))
def test_ranges_side_by_side_give_each_batch_once(cut: int) -> None:
    """Wherever a log is cut in two ranges, they hold its batches once, and in order."""
    answers = [THREE, b"".join(it for it, last in ((batch(0, 3), 2), (batch(3), 3), (batch(4, 6), 9)) if last >= cut)]
    parts = [frame_answer(pa.py_buffer(answers[0]), 0, cut), frame_answer(pa.py_buffer(answers[1]), cut, 10)]
    found = np.concatenate([part.scan.batches.base_offset for part in parts]).tolist()
    assert found == [0, 3, 4]


RANGES = [
    LogRange("a", 0, "AAAAAAAAAAAAAAAAAAAABw", 5, 9),
    LogRange("b", 1, "AAAAAAAAAAAAAAAAAAAACA", 7, 9),
    LogRange("a", 2, "AAAAAAAAAAAAAAAAAAAABw", 6, 9),
]


@pytest.mark.parametrize("version", range(4, 19))
def test_the_request_is_kafkas(version: int) -> None:
    """kafka-python, which has Kafka's definition, reads every version of it, and finds what was asked for."""
    request = fetch_request([(it, 3, it.from_offset) for it in RANGES], bytes_max=1000, partition_bytes_max=10)
    request.API_VERSION = version
    read = FetchRequest.decode(request.encode(), version=version)
    assert (read.isolation_level, read.max_bytes, read.min_bytes) == (0, 1000, 1)
    assert read.replica_id == -1
    if version >= 7:
        assert (read.session_id, read.session_epoch) == (0, -1)
    partitions = [[(it.partition, it.fetch_offset, it.partition_max_bytes) for it in t.partitions] for t in read.topics]
    assert partitions == [[(0, 5, 10), (2, 6, 10)], [(1, 7, 10)]]
    if version >= 9:
        assert {it.current_leader_epoch for topic in read.topics for it in topic.partitions} == {3}
    expected = [UUID(int=7), UUID(int=8)] if version >= 13 else ["a", "b"]
    assert [it.topic_id if version >= 13 else it.topic for it in read.topics] == expected


def test_brokers_before_topic_ids() -> None:
    """Without an id the topic goes by its name, in the versions which have it."""
    chosen = LogRange("a", 0, None, 0, 1)
    assert fetch_request([(chosen, 3, 0)], bytes_max=1000).max_version == 12
    assert fetch_request([(RANGES[0], 3, 0)], bytes_max=1000).max_version == 18


@pytest.mark.parametrize("version", range(4, 19))
def test_the_response_is_kafkas(version: int) -> None:
    """What kafka-python writes of a response is read in every version, records as a view of the answer's bytes."""
    topic_of = FetchResponse.FetchableTopicResponse
    partition = topic_of.PartitionData(
        partition_index=2,
        error_code=0,
        high_watermark=9,
        last_stable_offset=8,
        log_start_offset=1,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=b"bytes",
    )
    topic = topic_of(topic="a", topic_id=UUID(int=7), partitions=[partition])
    data = FetchResponse(throttle_time_ms=6, error_code=0, session_id=0, responses=[topic]).encode(version=version)
    answer = decode(FETCH[1], memoryview(data), version)
    assert answer.throttle_time_ms == 6
    found = answered_partitions(answer, RANGES)["a", 2]
    assert isinstance(found.records, memoryview)
    assert (bytes(found.records), found.high_watermark, found.error_code) == (b"bytes", 9, 0)
    assert found.log_start_offset == (1 if version >= 5 else -1)


def test_declared_versions_round_trip() -> None:
    """A request with nothing but defaults is the same after its bytes, in every version."""
    for version in range(4, 19):
        request, _ = FETCH
        fields = make(request)
        assert decode(request, encode(request, fields, version), version) == fields
