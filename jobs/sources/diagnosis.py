"""Why a broker cannot be reached: connect step by step and report the step that fails.

The steps: name, connection, TLS, ApiVersions, SaslHandshake, SaslAuthenticate. kafka-python takes the same steps but
reports each failure as a time-out; so after a failure, and only then, they are repeated over sockets of our own. A
diagnosis contains no text of a library, since that may contain a secret; messages of the broker are included, made
printable.
"""

import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import Enum
from threading import Thread
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from jobs.errors import BrokerError, JobError
from jobs.sources.client.java_properties import printable

PORT_MAX: Final = 65535
TLS: Final = frozenset({"SSL", "SASL_SSL"})
SASL: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
ILLEGAL_SASL_STATE: Final = kafka_errors.IllegalSaslStateError.errno
UNSUPPORTED_SASL_MECHANISM: Final = kafka_errors.UnsupportedSaslMechanismError.errno
NO_MECHANISM: Final = "NONE"
"""Requested when no login is configured: a port that requires one answers with its mechanisms."""
FRAME_BYTES_MAX: Final = 1024 * 1024
"""Responses of these steps are small; a longer one is not from a Kafka broker."""
LOGIN_ROUNDS_MAX: Final = 10
TEXT_MAX: Final = 200

# X509_V_ERR_ codes of OpenSSL
CERTIFICATE_NOT_YET_VALID: Final = 9
CERTIFICATE_EXPIRED: Final = 10
UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})
NAME_MISMATCH: Final = frozenset({62, 64})


class Reached(Enum):
    """The step that failed."""

    DONE = "nowhere: it works"
    UNKNOWN_HOST = "name"
    CONNECTION_REFUSED = "connection"
    UNREACHABLE = "connection, without an answer"
    NO_ANSWER = "a request, without an answer"
    CLOSED = "a request, at which the connection was closed"
    NOT_KAFKA = "a request, with an answer which is not Kafka's"
    CONTROLLER = "a request, which controllers do not know"
    NO_TLS = "TLS, which the port does not speak"
    TLS_WANTED = "TLS, which only the port speaks"
    UNKNOWN_CA = "certificate: its authority"
    HOST_NAME = "certificate: its name"
    CERTIFICATE = "certificate: something else"
    TLS_REFUSED = "TLS, which the broker refused"
    NO_SASL = "login, which the port does not want"
    SASL_WANTED = "login, which only the port wants"
    SASL_MECHANISM = "login: its mechanism"
    LOGIN_NOT_READY = "login: it could not be made here"
    LOGIN_REFUSED = "login"


PASSING: Final = frozenset(
    {
        Reached.DONE,
        Reached.UNKNOWN_HOST,
        Reached.CONNECTION_REFUSED,
        Reached.UNREACHABLE,
        Reached.NO_ANSWER,
        Reached.CLOSED,
    }
)
"""Failures that may be temporary, for example while the broker is starting."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The finding, in one line with the remedy."""

    server: str
    step: Reached
    text: str = ""

    @property
    def is_final(self) -> bool:
        """Waiting cannot help."""
        return self.step not in PASSING

    def __str__(self) -> str:
        return f"{self.server}: {self.text}"


class _Ends(Exception):
    """Raised by the step that fails."""

    def __init__(self, step: Reached, text: str) -> None:
        super().__init__(text)
        self.step = step


def diagnose(server: str, config: Mapping[str, Any], *, timeout_ms: int, is_advertised: bool = False) -> Diagnosis:
    """Connect to a broker with `config` (kafka-python's arguments), within about `timeout_ms`.

    `is_advertised`: the address was not given by the user, but advertised by the cluster.
    """
    way = _Way(server, config, timeout_ms)
    try:
        way.go()
    except _Ends as end:
        text = str(end)
        if is_advertised:
            text += ". The cluster advertises this address (advertised.listeners)"
        return Diagnosis(server, end.step, text)
    return Diagnosis(server, Reached.DONE)


def split_server(server: str) -> tuple[str, int]:
    """HOST:PORT or [IPv6]:PORT. Raises BrokerError."""
    host, _, port = server.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= PORT_MAX:
        raise BrokerError(
            f"{printable(server)!r} is no HOST:PORT, as broker-1:9092, with a port up to {PORT_MAX}", code="ADDRESS"
        )
    return host, int(port)


class _Way:
    """The connection attempt to one broker."""

    def __init__(self, server: str, config: Mapping[str, Any], timeout_ms: int) -> None:
        self._host, self._port = split_server(server)
        self._config = config
        self._protocol = str(config.get("security_protocol", "PLAINTEXT"))
        self._timeout_ms = timeout_ms
        self._end = time.monotonic() + timeout_ms / 1000

    def go(self) -> None:
        """Run all steps. Raises _Ends at the step that fails."""
        with closing(self._connected()) as plain:
            connection = self._with_tls(plain) if self._protocol in TLS else plain
            with closing(connection):
                self._ask_versions(connection)
                if self._protocol in SASL:
                    self._log_in(connection)
                else:
                    self._look_for_login(connection)

    def _left_s(self) -> float:
        return max(0.01, self._end - time.monotonic())

    def _connected(self) -> socket.socket:
        last: OSError | None = None
        for family, kind, protocol, _, address in self._addresses():
            connection = socket.socket(family, kind, protocol)
            connection.settimeout(self._left_s())
            try:
                connection.connect(address)
            except OSError as error:
                connection.close()
                last = error
            else:
                return connection
        if isinstance(last, ConnectionRefusedError):
            raise _Ends(
                Reached.CONNECTION_REFUSED, "connection refused: the broker is down, or the port is not its own"
            )
        why = f"no connection within {self._timeout_ms} ms" if isinstance(last, TimeoutError) else "no way to it"
        raise _Ends(Reached.UNREACHABLE, f"{why}: check the address, and firewalls on the way")

    def _addresses(self) -> list[Any]:
        """Look up the name in a thread, since a look-up has no time-out."""
        found: list[Any] = []

        def look_up() -> None:
            with suppress(OSError, UnicodeError):
                found.extend(socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM))

        thread = Thread(target=look_up, daemon=True)
        thread.start()
        thread.join(self._left_s())
        if not found:
            raise _Ends(Reached.UNKNOWN_HOST, f"unknown host {printable(self._host)}: check the name, and name servers")
        return list(found)

    # TLS

    def _with_tls(self, plain: socket.socket) -> ssl.SSLSocket:
        context: ssl.SSLContext = self._config["ssl_context"]
        try:
            return context.wrap_socket(plain, server_hostname=self._host.rstrip("."))
        except ssl.SSLCertVerificationError as error:
            raise self._bad_certificate(error) from None
        except (OSError, ValueError) as error:
            if self._speaks_plain_kafka():
                instead = "SASL_PLAINTEXT" if self._protocol in SASL else "PLAINTEXT"
                raise _Ends(
                    Reached.NO_TLS,
                    f"the port speaks no TLS, and security.protocol is {self._protocol}: use {instead},"
                    " or the port of a TLS listener",
                ) from None
            raise self._tls_refused(error) from None

    def _bad_certificate(self, error: ssl.SSLCertVerificationError) -> _Ends:
        if error.verify_code in UNKNOWN_ISSUER:
            return _Ends(
                Reached.UNKNOWN_CA,
                "the broker's certificate is of an authority which is not trusted here: give its CA certificate with"
                " ssl.truststore.location",
            )
        if error.verify_code in NAME_MISMATCH:
            return _Ends(
                Reached.HOST_NAME,
                f"the broker's certificate is not for {printable(self._host)}: connect by a name that it has, or, where"
                " that is wanted, set ssl.endpoint.identification.algorithm to nothing",
            )
        when = {CERTIFICATE_EXPIRED: "has expired", CERTIFICATE_NOT_YET_VALID: "is not valid yet"}
        why = when.get(error.verify_code, f"is not accepted: {printable(error.verify_message, TEXT_MAX)}")
        return _Ends(Reached.CERTIFICATE, f"the broker's certificate {why}")

    def _tls_refused(self, error: Exception) -> _Ends:
        if isinstance(error, TimeoutError):
            return self._no_answer()
        reason = getattr(error, "reason", None) or type(error).__name__
        return _Ends(
            Reached.TLS_REFUSED,
            f"TLS fails ({printable(str(reason))}): the broker wants a certificate of ours that it trusts"
            " (ssl.keystore.location), or shares no TLS version or cipher with us",
        )

    def _speaks_plain_kafka(self) -> bool:
        with suppress(_Ends), closing(self._connected()) as connection:
            self._exchange(connection, ApiVersionsRequest(), ApiVersionsResponse, version=0)
            return True
        return False

    def _speaks_tls(self) -> bool:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            with closing(self._connected()) as plain, closing(context.wrap_socket(plain)):
                return True
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")
        except (OSError, _Ends):
            return False

    # Kafka

    def _ask_versions(self, connection: socket.socket) -> None:
        try:
            answer = self._exchange(connection, ApiVersionsRequest(), ApiVersionsResponse, version=0)
        except _Ends as end:
            if self._protocol not in TLS and self._speaks_tls():
                instead = "SASL_SSL" if self._protocol in SASL else "SSL"
                raise _Ends(
                    Reached.TLS_WANTED, f"the port speaks TLS, and security.protocol is {self._protocol}: use {instead}"
                ) from None
            if isinstance(connection, ssl.SSLSocket) and end.step is Reached.CLOSED:
                # with TLS 1.3 the broker checks our certificate only now
                raise self._tls_refused(end.__cause__ if isinstance(end.__cause__, Exception) else end) from None
            raise
        if not any(it.api_key == MetadataRequest.API_KEY for it in answer.api_keys):
            raise _Ends(Reached.CONTROLLER, "a controller listens there: give the port of a broker")

    def _look_for_login(self, connection: socket.socket) -> None:
        request = SaslHandshakeRequest(mechanism=NO_MECHANISM)
        answer = self._exchange(connection, request, SaslHandshakeResponse, version=1)
        if answer.error_code == UNSUPPORTED_SASL_MECHANISM:
            instead = "SASL_SSL" if self._protocol in TLS else "SASL_PLAINTEXT"
            raise _Ends(
                Reached.SASL_WANTED,
                f"the port wants a login, and security.protocol is {self._protocol}: use {instead}, with sasl.mechanism"
                f" {_or(answer.mechanisms)}",
            )

    def _log_in(self, connection: socket.socket) -> None:
        name = str(self._config.get("sasl_mechanism"))
        answer = self._exchange(connection, SaslHandshakeRequest(mechanism=name), SaslHandshakeResponse, version=1)
        if answer.error_code == ILLEGAL_SASL_STATE:
            instead = "SSL" if self._protocol in TLS else "PLAINTEXT"
            raise _Ends(
                Reached.NO_SASL,
                f"the port wants no login, and security.protocol is {self._protocol}: use {instead}, or the port of a"
                " SASL listener",
            )
        if answer.error_code:
            raise _Ends(
                Reached.SASL_MECHANISM,
                f"the broker knows no login with {name}: set sasl.mechanism to {_or(answer.mechanisms)}",
            )
        try:
            mechanism = get_sasl_mechanism(name)(host=self._host, **self._config)
            for _ in range(LOGIN_ROUNDS_MAX):
                if mechanism.is_done():
                    break
                request = SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes())
                answer = self._exchange(connection, request, SaslAuthenticateResponse, version=1)
                if answer.error_code:
                    raise _Ends(
                        Reached.LOGIN_REFUSED,
                        f"the broker refuses the login with {name}: check user and password, or what replaces them."
                        f" It says: {printable(str(answer.error_message), TEXT_MAX)}",
                    )
                mechanism.receive(answer.auth_bytes)
        except _Ends as end:
            if end.step is not Reached.CLOSED:
                raise
            raise _Ends(
                Reached.LOGIN_REFUSED,
                f"the broker ends the login with {name}: check user and password, or what replaces them",
            ) from None
        except JobError as error:
            raise _Ends(Reached.LOGIN_NOT_READY, f"no login with {name}: {error}") from None
        except Exception as error:
            raise _Ends(Reached.LOGIN_NOT_READY, f"no login with {name}: {type(error).__name__} here") from None

    def _exchange(self, connection: socket.socket, request: Any, response: Any, *, version: int) -> Any:
        """One request and its response. Raises _Ends."""
        request.API_VERSION = version
        request.with_header(correlation_id=1, client_id=str(self._config.get("client_id", "groupledger")))
        try:
            connection.settimeout(self._left_s())
            connection.sendall(request.encode(framed=True, header=True))
            size = int.from_bytes(self._received(connection, 4), "big")
            if size > FRAME_BYTES_MAX:
                raise _Ends(Reached.NOT_KAFKA, "what answers there is no Kafka broker")
            data = self._received(connection, size)
        except TimeoutError:
            raise self._no_answer() from None
        except OSError as error:
            raise self._closed() from error
        try:
            return response.decode(data, version=version, header=True)
        except Exception:
            raise _Ends(Reached.NOT_KAFKA, "what answers there is no Kafka broker") from None

    def _received(self, connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            connection.settimeout(self._left_s())
            part = connection.recv(size - len(data))
            if not part:
                raise self._closed()
            data += part
        return data

    def _no_answer(self) -> _Ends:
        return _Ends(Reached.NO_ANSWER, f"it takes connections, and does not answer within {self._timeout_ms} ms")

    def _closed(self) -> _Ends:
        return _Ends(
            Reached.CLOSED, "it takes connections and closes them: it is starting or stopping, or no Kafka broker"
        )


def _or(mechanisms: list[str]) -> str:
    return " or ".join(printable(str(name)) for name in sorted(mechanisms)) or "one that it has"
