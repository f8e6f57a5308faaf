"""Reading in large pieces gives the bytes that were sent, and says why it ends."""

import socket
from contextlib import suppress
from dataclasses import dataclass

import pytest
from kafka.errors import KafkaConnectionError

from jobs.sources.connections import PIECE_BYTES, receiver


@dataclass
class Transport:
    """As much of kafka-python's transport as reading takes."""

    _sock: socket.socket


@pytest.mark.parametrize("size", [1, 5_000, PIECE_BYTES, 3 * PIECE_BYTES + 7])
def test_everything_comes(size: int) -> None:
    """In pieces of at most PIECE_BYTES, without an error, until the other side closes."""
    sent = bytes(range(256)) * (size // 256 + 1)
    sent = sent[:size]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        receive = receiver(Transport(ours))
        got, at = b"", 0
        while len(got) < size:
            with suppress(BlockingIOError):  # the pipe is full
                at += theirs.send(sent[at : at + 100_000])
            piece, error = receive()
            assert error is None
            assert len(piece) <= PIECE_BYTES
            got += piece
        assert got == sent
        piece, error = receive()
        assert (bytes(piece), error) == (b"", None)
        theirs.close()
        piece, error = receive()
        assert (len(piece), type(error)) == (0, KafkaConnectionError)


def test_a_broken_connection_is_an_error() -> None:
    """What the system says becomes kafka-python's own error."""
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.close()
    piece, error = receiver(Transport(ours))()
    assert (len(piece), type(error)) == (0, KafkaConnectionError)
