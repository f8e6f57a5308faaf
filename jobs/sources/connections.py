"""kafka-python's connections, which read in large pieces.

The library takes 4 KiB of a socket at a time and joins the pieces: of a log of gigabytes that costs more than all else.
Only that one step is replaced; with a version of the library that has no such step, things work and are slower.
"""

import ssl
from collections.abc import Callable
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager

PIECE_BYTES: Final = 256 * 1024
"""Read at a time: what fits into a core's own cache, for it is copied from there to its place."""

WOULD_BLOCK: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]  # the library has no types
    """KafkaConnectionManager with transports that read in large pieces."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        transport._sock_recv = receiver(transport)
        return transport


def receiver(transport: Any) -> Callable[[], tuple[memoryview, Exception | None]]:
    """What reads all that a transport's socket has, up to a piece, and says why it can read no more.

    The piece is good until the next call: the library copies it to the frame it belongs to.
    """
    piece = memoryview(bytearray(PIECE_BYTES))

    def receive() -> tuple[memoryview, Exception | None]:
        connection = transport._sock
        size = 0
        try:
            while size < PIECE_BYTES:
                count = connection.recv_into(piece[size:])
                if not count:
                    return piece[:size], kafka_errors.KafkaConnectionError("socket disconnected")
                size += count
        except WOULD_BLOCK:
            return piece[:size], None
        except OSError as error:
            return piece[:size], kafka_errors.KafkaConnectionError(error)
        # what TLS has decrypted already does not make the socket readable
        pending = connection.pending() if isinstance(connection, ssl.SSLSocket) else 0
        return (memoryview(bytes(piece) + connection.recv(pending)) if pending else piece), None

    return receive
