"""kafka-python's connections with larger reads.

The library reads 4 KiB from a socket at a time and joins the pieces: for a log of gigabytes that costs more than
everything else. Only this step is replaced; if a version of the library lacks it, connections work but are slower.
"""

import ssl
from collections.abc import Callable
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager

PIECE_BYTES: Final = 256 * 1024
"""Read size: fits into a core's cache, from which the data is copied to its destination."""

WOULD_BLOCK: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]  # the library has no types
    """KafkaConnectionManager with transports that use larger reads."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        transport._sock_recv = receiver(transport)
        return transport


def receiver(transport: Any) -> Callable[[], tuple[memoryview, Exception | None]]:
    """A function that reads what a transport's socket has, up to PIECE_BYTES, and returns why it cannot read more.

    The returned view is valid until the next call: the library copies it into its frame.
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
        # data that TLS has already decrypted does not make the socket readable
        pending = connection.pending() if isinstance(connection, ssl.SSLSocket) else 0
        return (memoryview(bytes(piece) + connection.recv(pending)) if pending else piece), None

    return receive
