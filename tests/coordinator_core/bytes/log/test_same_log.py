"""Copies of one log are never taken for two; two logs are, where a record proves it."""

import struct
from typing import NamedTuple

import google_crc32c
import numpy as np
import pytest

from coordinator_core.bytes.log.records import decode_chunk, frame_chunk
from coordinator_core.bytes.log.same_log import other_log, share_a_batch
from tests.jobs.builders import varint

MINUTE_MS = 60_000
T = 1_780_000_000_000


class Rec(NamedTuple):
    """A batch of one record."""

    offset: int
    epoch: int
    at: int = T
    value: bytes = b"v"
    key: bytes = b"k"


def log(*records: Rec) -> bytes:
    """Their bytes, back to back."""
    parts = []
    for it in records:
        body = b"\x00" + varint(0) + varint(0) + varint(len(it.key)) + it.key + varint(len(it.value)) + it.value
        body += varint(0)
        body = varint(len(body)) + body
        covered = struct.pack(">hiqqqhii", 0, 0, it.at, it.at, -1, -1, 0, 1) + body
        rest = struct.pack(">ibI", it.epoch, 2, google_crc32c.value(covered)) + covered
        parts.append(struct.pack(">qi", it.offset, len(rest)) + rest)
    return b"".join(parts)


OLD = (Rec(5, 4, T, b"a"), Rec(6, 4, T + 1, b"b"))


@pytest.mark.parametrize(
    ("known", "found", "offset"),
    [
        pytest.param(OLD, OLD, None, id="the same"),
        pytest.param(OLD, (OLD[1],), None, id="cleaned"),
        pytest.param(OLD, (Rec(7, 4, T, b"x"),), None, id="no offset in common"),
        pytest.param(OLD, (OLD[0], Rec(6, 5, T + 9, b"x")), None, id="a survivor's tail"),
        pytest.param((OLD[0], Rec(6, 5, T + 9, b"x")), OLD, None, id="a dead leader's tail"),
        pytest.param(OLD, (Rec(5, 7, T + 9, b"x"), Rec(6, 7, T + 9, b"y")), None, id="a survivor's tail alone"),
        pytest.param(OLD, (Rec(5, 3, T - 9, b"x"),), None, id="a dead leader's tail alone"),
        pytest.param(OLD, (Rec(5, 3, T + MINUTE_MS, b"x"),), None, id="a dead leader's tail, clocks apart"),
        pytest.param(OLD, (Rec(5, 0, T + MINUTE_MS + 1, b"x"),), 5, id="lower epoch, written later"),
        pytest.param((Rec(5, 0, T + MINUTE_MS + 1, b"x"),), OLD, 5, id="the same, the other way round"),
        pytest.param(OLD, (Rec(5, 4, T, b"x"),), 5, id="one epoch, two records"),
        pytest.param(
            OLD, (Rec(5, 4, T + 1, b"a"), Rec(6, 4, T, b"x")), 6, id="the same value at another time says nothing"
        ),
        pytest.param(OLD, (Rec(5, 0, -1, b"x"),), None, id="no time"),
    ],
)
def test_two_logs(known: tuple[Rec, ...], found: tuple[Rec, ...], offset: int | None) -> None:
    """A record of both proves one log; else one epoch with two records, or an epoch that fell while time went on."""
    shown = other_log(decode_chunk(log(*known)), decode_chunk(log(*found)))
    assert (None if shown is None else shown.offset) == offset


@pytest.mark.parametrize(
    ("found", "is_other"),
    [
        ((Rec(0, 4, T + 10 * MINUTE_MS, b"x"),), True),
        ((Rec(0, 4, T, b"x"),), False),
        ((Rec(0, 4, T + 10 * MINUTE_MS, b"x"), Rec(1, 4, T, b"b")), False),
        ((Rec(1, 4, T + 10 * MINUTE_MS, b"x"),), False),
    ],
)
def test_without_an_epoch_the_beginning_decides(found: tuple[Rec, ...], is_other: bool) -> None:
    """Of a dump nobody knows the leader epoch: two records at offset 0, far apart in time, are of two logs."""
    known = decode_chunk(log(Rec(0, 0, T, b"a"), Rec(1, 0, T, b"b")))
    shown = other_log(known, decode_chunk(log(*found)), known_has_epoch=np.zeros(2, np.bool_))
    assert (shown is not None) == is_other


@pytest.mark.parametrize(
    ("found", "is_other"),
    [
        pytest.param((Rec(5, 4, T + MINUTE_MS, b"x"), Rec(6, 4, T + 4 * MINUTE_MS, b"y")), True, id="at the same time"),
        pytest.param((Rec(5, 4, T - 2 * MINUTE_MS, b"x"), Rec(6, 4, T, b"y")), False, id="a dead leader's tail"),
        pytest.param(
            (Rec(5, 4, T + 3 * MINUTE_MS, b"x"), Rec(6, 4, T + 9 * MINUTE_MS, b"y")), False, id="a survivor's"
        ),
        pytest.param(
            (Rec(5, 4, T + 61_000, b"x"), Rec(6, 4, T + 2 * MINUTE_MS, b"y")), False, id="a tail, its clock ahead"
        ),
        pytest.param((Rec(5, 4, -1, b"x"), Rec(6, 4, -1, b"y")), False, id="no times"),
        pytest.param(
            (Rec(5, 4, T, b"a"), Rec(6, 4, T + MINUTE_MS, b"y"), Rec(7, 4, T, b"z")), False, id="one in common"
        ),
    ],
)
def test_without_an_epoch_two_leaders_at_once_are_of_two_logs(found: tuple[Rec, ...], is_other: bool) -> None:
    """The tail that a dead leader wrote is older than what its successor wrote in its place."""
    known = decode_chunk(
        log(Rec(5, 0, T, b"a"), Rec(6, 0, T + 3 * MINUTE_MS, b"b"), Rec(7, 0, T + 3 * MINUTE_MS, b"c"))
    )
    shown = other_log(known, decode_chunk(log(*found)), found_has_epoch=np.zeros(len(found), np.bool_))
    assert (shown is not None) == is_other


def test_a_record_of_both_counts_wherever_it_is() -> None:
    """Also behind more offsets with two records than are compared."""
    known = [Rec(number, 4, T + number, b"a") for number in range(1_500)]
    found = [Rec(number, 4, T + number, b"x") for number in range(1_499)]
    assert other_log(decode_chunk(log(*known)), decode_chunk(log(*found))) is not None
    assert other_log(decode_chunk(log(*known)), decode_chunk(log(*found, known[-1]))) is None


def test_headers_that_agree() -> None:
    """One batch with the same offsets, epoch, count and time is enough; without a time it is not."""
    old = frame_chunk(log(*OLD))[0]
    assert share_a_batch(old, frame_chunk(log(Rec(6, 4, T + 1, b"another")))[0])
    assert not share_a_batch(old, frame_chunk(log(Rec(6, 5, T + 1), Rec(5, 4, T + 7)))[0])
    timeless = frame_chunk(log(Rec(5, 4, -1)))[0]
    assert not share_a_batch(timeless, timeless)
