"""Why a broker cannot be reached: each end of the way to it has its own step, and its remedy in one line."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse

from jobs.errors import BrokerError, SourceError
from jobs.sources.diagnosis import Reached, diagnose, split_server
from tests.jobs.fake_kafka import FakeKafka, then

TIMEOUT_MS = 700
SLACK_S = 2.0
NOW = datetime(2024, 1, 1)
ALWAYS = NOW, datetime(2124, 1, 1)
PASSWORD = "canary-3f9a"

Talk = Callable[[socket.socket], None]


@contextmanager
def listening(talk: Talk) -> Iterator[str]:
    """A port whose connections are treated so, one after another; its HOST:PORT."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        talk(connection)
                    except OSError:
                        continue

        Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def say(data: bytes) -> Talk:
    """Receive something, send this, close."""

    def talk(connection: socket.socket) -> None:
        if connection.recv(1000):
            connection.sendall(data)

    return talk


def close(_: socket.socket) -> None:
    """Close at once."""


def silent(connection: socket.socket) -> None:
    """Say nothing until the other side closes."""
    while connection.recv(1000):
        pass


@dataclass
class Certificate:
    """Of a server, signed by itself."""

    name: str = "127.0.0.1"
    valid: tuple[datetime, datetime] = ALWAYS
    file: Path = field(default_factory=Path)

    def write(self, folder: Path) -> Path:
        """Certificate and key as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(self.valid[0])
            .not_valid_after(self.valid[1])
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(self.name))]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        encoding, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
        path = folder / "server.pem"
        path.write_bytes(
            certificate.public_bytes(encoding)
            + key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, no_password)
        )
        return path


def tls(path: Path) -> Talk:
    """A TLS handshake, then silence."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)

    def talk(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            silent(secure)

    return talk


def client(path: Path | None = None) -> dict[str, Any]:
    """Arguments of a client with TLS which trusts a certificate."""
    return {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(cafile=path)}


def check(server: str, config: dict[str, Any], step: Reached, words: str) -> None:
    """What is found, in one line and in time."""
    started = time.monotonic()
    found = diagnose(server, config, timeout_ms=TIMEOUT_MS)
    assert (found.step, words in str(found)) == (step, True), str(found)
    assert time.monotonic() - started < 3 * TIMEOUT_MS / 1000 + SLACK_S
    assert "\n" not in str(found)
    assert str(found).startswith(f"{server}: ")
    assert PASSWORD not in str(found)


PLAIN: dict[str, Any] = {"security_protocol": "PLAINTEXT"}
SASL: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "reader",
    "sasl_plain_password": PASSWORD,
}


@pytest.mark.parametrize(
    ("talk", "step", "words"),
    [
        (silent, Reached.NO_ANSWER, "does not answer within 700 ms"),
        (close, Reached.CLOSED, "closes them"),
        (say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Reached.NOT_KAFKA, "no Kafka broker"),
        (say(b"\0\0\0\x08" + b"12345678"), Reached.NOT_KAFKA, "no Kafka broker"),
        (say(b"\0\0\0\x08" + b"1"), Reached.CLOSED, "closes them"),
    ],
    ids=["silent", "closes", "http", "nonsense", "half an answer"],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_no_broker(talk: Talk, step: Reached, words: str) -> None:
    """Something else listens there."""
    with listening(talk) as server:
        check(server, PLAIN, step, words)


def test_nothing_listens() -> None:
    """A name that does not exist, a port without a listener."""
    check("no-such-host.invalid:9092", PLAIN, Reached.UNKNOWN_HOST, "unknown host no-such-host.invalid")
    check("127.0.0.1:1", PLAIN, Reached.CONNECTION_REFUSED, "connection refused")


def test_a_broker_that_is_fine() -> None:
    """The way ends nowhere."""
    with FakeKafka() as kafka:
        assert diagnose(kafka.address, PLAIN, timeout_ms=5_000).step is Reached.DONE


def test_advertised_addresses() -> None:
    """An address which the cluster advertised, and nobody reaches, is a matter of advertised.listeners."""
    found = diagnose("127.0.0.1:1", PLAIN, timeout_ms=TIMEOUT_MS, is_advertised=True)
    assert "advertised.listeners" in str(found)
    assert not found.is_final


@pytest.mark.parametrize(
    ("certificate", "is_trusted", "step", "words"),
    [
        (Certificate(), False, Reached.UNKNOWN_CA, "ssl.truststore.location"),
        (Certificate(name="127.0.0.2"), True, Reached.HOST_NAME, "ssl.endpoint.identification.algorithm"),
        (Certificate(valid=(NOW, NOW + timedelta(days=1))), True, Reached.CERTIFICATE, "has expired"),
        (
            Certificate(valid=(ALWAYS[1], ALWAYS[1] + timedelta(days=1))),
            True,
            Reached.CERTIFICATE,
            "is not valid yet",
        ),
        (Certificate(), True, Reached.NO_ANSWER, "does not answer"),
    ],
    ids=["unknown authority", "other name", "expired", "not yet valid", "fine"],
)
def test_certificates(tmp_path: Path, certificate: Certificate, is_trusted: bool, step: Reached, words: str) -> None:
    """What is wrong with the broker's certificate."""
    path = certificate.write(tmp_path)
    with listening(tls(path)) as server:
        check(server, client(path if is_trusted else None), step, words)


def test_tls_on_one_side_only(tmp_path: Path) -> None:
    """A port which speaks TLS and a client which does not, and the other way round; neither is a time-out."""
    with listening(tls(Certificate().write(tmp_path))) as server:
        check(server, PLAIN, Reached.TLS_WANTED, "use SSL")
        check(server, SASL, Reached.TLS_WANTED, "use SASL_SSL")
    with FakeKafka() as kafka:
        check(kafka.address, client(), Reached.NO_TLS, "use PLAINTEXT")
        check(kafka.address, {**client(), "security_protocol": "SASL_SSL"}, Reached.NO_TLS, "use SASL_PLAINTEXT")
    with listening(close) as server:
        check(server, client(), Reached.TLS_REFUSED, "ssl.keystore.location")


def test_login_on_one_side_only() -> None:
    """A port which wants a login and a client without one, and the other way round."""
    with FakeKafka() as kafka:
        check(kafka.address, SASL, Reached.NO_SASL, "use PLAINTEXT")
        kafka.on_any[SaslHandshakeRequest.API_KEY] = [lambda *_: handshake(33)]
        check(
            kafka.address,
            PLAIN,
            Reached.SASL_WANTED,
            "use SASL_PLAINTEXT, with sasl.mechanism PLAIN or SCRAM-SHA-512",
        )


def handshake(error_code: int) -> Any:
    """A broker with two mechanisms."""
    return SaslHandshakeResponse(error_code=error_code, mechanisms=["SCRAM-SHA-512", "PLAIN"])


def test_logins_which_fail() -> None:
    """A mechanism that the broker does not have, a password that it refuses, a login which cannot be made here."""
    with FakeKafka() as kafka:
        planned = kafka.on_any[SaslHandshakeRequest.API_KEY] = [lambda *_: handshake(33)]
        check(
            kafka.address,
            SASL,
            Reached.SASL_MECHANISM,
            "no login with PLAIN: set sasl.mechanism to PLAIN or SCRAM",
        )
        refused = SaslAuthenticateResponse(error_code=58, error_message="Invalid\nuser", auth_bytes=b"")
        planned.append(lambda *_: handshake(0))
        kafka.on_any[SaslAuthenticateResponse.API_KEY] = [lambda *_: refused]
        check(
            kafka.address,
            SASL,
            Reached.LOGIN_REFUSED,
            "check user and password, or what replaces them. It says: Inv",
        )
        planned.append(lambda *_: handshake(0))
        check(
            kafka.address,
            {**SASL, "sasl_mechanism": "OAUTHBEARER"},
            Reached.LOGIN_NOT_READY,
            "no login with OAUTH",
        )


def test_errors_of_ours_are_reported() -> None:
    """What a token provider says in our own words is kept; a library's words are not."""

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            raise SourceError("the token server answers 401")

        def extensions(self) -> dict[str, str]:
            return {}

    with FakeKafka() as kafka:
        kafka.on_any[SaslHandshakeRequest.API_KEY] = [lambda *_: handshake(0)]
        config = {**SASL, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
        check(kafka.address, config, Reached.LOGIN_NOT_READY, "OAUTHBEARER: the token server answers 401")


def test_controllers() -> None:
    """A controller's port answers, and knows nothing of topics."""
    keys = [ApiVersionsResponse.ApiVersion(api_key=1, min_version=0, max_version=1)]
    with FakeKafka() as kafka:
        kafka.on_any[ApiVersionsRequest.API_KEY] = [then(lambda _: None, lambda *_: ApiVersionsResponse(0, keys))]
        check(kafka.address, PLAIN, Reached.CONTROLLER, "a controller listens there")


@pytest.mark.parametrize(
    ("server", "expected"),
    [("host:9092", ("host", 9092)), ("[::1]:9092", ("::1", 9092)), ("1.2.3.4:1", ("1.2.3.4", 1))],
)
def test_servers(server: str, expected: tuple[str, int]) -> None:
    """Names, addresses, and IPv6 in brackets."""
    assert split_server(server) == expected


@pytest.mark.parametrize("server", ["host", "host:", ":1", "host:0", "host:65536", "host:\u0661", "host:-1"])
def test_no_servers(server: str) -> None:
    """Everything else is refused."""
    with pytest.raises(BrokerError, match="HOST:PORT"):
        split_server(server)
