"""Why a broker cannot be reached: the way to it, step by step, and the step at which it ends."""

import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jobs.errors import BrokerError


class Step(Enum):
    """Where the way to a broker ended; the value says whether waiting is no use."""

    DONE = "done"
    UNKNOWN_HOST = "unknown host"
    CONNECTION_REFUSED = "refused"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, in one line with the remedy."""

    server: str
    step: Step
    text: str = ""
    is_final: bool = False
    """Waiting cannot heal it."""

    def __str__(self) -> str:
        return f"{self.server}: {self.text}"


def diagnose(server: str, config: Mapping[str, Any], *, timeout_ms: int, is_advertised: bool = False) -> Diagnosis:
    """Go the way to a broker."""
    host, port = split_server(server)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return Diagnosis(server, Step.UNKNOWN_HOST, "unknown host: check its name")
    last: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        with closing(socket.socket(family, kind, protocol)) as connection:
            connection.settimeout(timeout_ms / 1000)
            try:
                connection.connect(address)
            except OSError as error:
                last = error
            else:
                return Diagnosis(server, Step.DONE)
    if isinstance(last, ConnectionRefusedError):
        return Diagnosis(server, Step.CONNECTION_REFUSED, "connection refused: no broker listens there")
    return Diagnosis(server, Step.UNREACHABLE, "cannot be reached")


def split_server(server: str) -> tuple[str, int]:
    """HOST:PORT, HOST or [IPv6]:PORT. Raises BrokerError."""
    host, _, port = server.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise BrokerError(f"{server!r} is no HOST:PORT", code="ADDRESS")
    return host.strip("[]"), int(port)
