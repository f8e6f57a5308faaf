"""The ssl.* settings, against a TLS server in this process."""

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from jobs.errors import ClientPropertiesError
from jobs.sources.client.java_properties import PropertiesFile
from jobs.sources.client.settings import ClientSettings
from jobs.sources.client.tls import make_ssl_context, openssl_suite
from tests.jobs.java_says import JavaSays
from tests.live.certificates import Authority

PASSWORD = "store-pa55"
TIMEOUT_S = 10


class Server:
    """Accepts TLS connections, says one word on each, and remembers what was agreed."""

    def __init__(self, key_store: Path, trusted: Path | None = None) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(key_store)
        if trusted is not None:
            self.context.load_verify_locations(trusted)
            self.context.verify_mode = ssl.CERT_REQUIRED
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.settimeout(TIMEOUT_S)
            try:
                with self.context.wrap_socket(connection, server_side=True) as secured:
                    secured.sendall(b"hello")
            except OSError:
                connection.close()

    def close(self) -> None:
        """No more connections."""
        self._socket.close()

    def greet(self, settings: Mapping[str, str], host: str = "localhost") -> tuple[str, str]:
        """Connect with the settings of a client: the protocol and the cipher that were agreed."""
        context = make_ssl_context(_settings(settings))
        with (
            socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S) as connection,
            context.wrap_socket(connection, server_hostname=host) as secured,
        ):
            assert secured.recv(5) == b"hello"
            cipher, protocol = (secured.cipher() or ("", ""))[:2]
            return protocol, cipher


def _settings(values: Mapping[str, str]) -> ClientSettings:
    return ClientSettings(PropertiesFile("it", values, {}))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom clients trust."""
    return Authority("", tmp_path_factory.mktemp("tls") / "authority", "")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[Server]:
    """For localhost."""
    running = Server(authority.key_store("server", ["localhost"]).path)
    yield running
    running.close()


@pytest.fixture(scope="module")
def mutual(authority: Authority) -> Iterator[Server]:
    """For localhost, and for clients of the authority only."""
    running = Server(authority.key_store("mutual", ["localhost"]).path, authority.trust_store().path)
    yield running
    running.close()


@pytest.fixture
def trust(authority: Authority) -> dict[str, str]:
    """The settings that trust the authority."""
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.trust_store().path)}


def test_an_authority_is_trusted_or_not(server: Server, trust: Mapping[str, str]) -> None:
    """By its certificate in the trust store; without one only the system's authorities are."""
    assert server.greet(trust)[0] == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed certificate|unable to get"):
        server.greet({})


def test_a_servers_own_certificate_may_be_trusted(authority: Authority, server: Server) -> None:
    """As in Java an anchor need not have signed itself."""
    own = authority.key_store("pinned", ["localhost"])
    pinned = Server(own.path)
    leaf = x509.load_pem_x509_certificates(own.path.read_bytes())[0].public_bytes(Encoding.PEM).decode()
    settings = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": leaf}
    assert pinned.greet(settings)[0] == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        server.greet(settings)
    pinned.close()


def test_host_names_are_checked_unless_switched_off(server: Server, trust: Mapping[str, str]) -> None:
    """An empty ssl.endpoint.identification.algorithm is Kafka's switch."""
    key = "ssl.endpoint.identification.algorithm"
    with pytest.raises(ssl.SSLCertVerificationError, match="elsewhere"):
        server.greet(trust, host="elsewhere")
    with pytest.raises(ssl.SSLCertVerificationError, match="elsewhere"):
        server.greet({**trust, key: "HTTPS"}, host="elsewhere")
    assert server.greet({**trust, key: ""}, host="elsewhere")
    with pytest.raises(ClientPropertiesError, match=key):
        make_ssl_context(_settings({key: "none"}))


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_java_stores_serve_both_ways(
    java: JavaSays, authority: Authority, mutual: Server, tmp_path: Path, kind: str
) -> None:
    """A key store and a trust store of the JDK are enough for a server that asks for a certificate."""
    pem = authority.key_store("client").path.read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    chain = ",".join(it.public_bytes(Encoding.DER).hex() for it in x509.load_pem_x509_certificates(pem))
    der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, serialization.NoEncryption()).hex()
    trusted = authority.certificate.public_bytes(Encoding.DER).hex()
    keys = java.store(tmp_path / "keys", kind, PASSWORD, [f"key:client:EC:{der}:{chain}"])
    trust = java.store(tmp_path / "trust", kind, PASSWORD, [f"trusted:ca:{trusted}"])
    settings = {
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(keys),
        "ssl.keystore.password": PASSWORD,
    }
    assert mutual.greet(settings)[0] == "TLSv1.3"


def test_a_server_that_asks_for_a_certificate_wants_one(mutual: Server, trust: Mapping[str, str]) -> None:
    """Without a key store the connection ends."""
    with pytest.raises(ssl.SSLError, match=r"certificate required|CERTIFICATE_REQUIRED"):
        mutual.greet(trust)


def test_encrypted_keys_in_pem(authority: Authority, mutual: Server, trust: Mapping[str, str]) -> None:
    """Inline, with ssl.key.password; a wrong one and a missing one give errors of their own, and neither prompts."""
    pem = authority.key_store("client").path.read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"open")).decode()
    settings = {
        **trust,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": encrypted,
        "ssl.keystore.certificate.chain": pem.decode(),
    }
    with pytest.raises(ClientPropertiesError, match="must hold one private key in PEM form, and holds 2"):
        mutual.greet({**settings, "ssl.key.password": "open"})
    settings["ssl.keystore.certificate.chain"] = pem[pem.index(b"-----BEGIN CERT") :].decode()
    assert mutual.greet({**settings, "ssl.key.password": "open"})
    with pytest.raises(ClientPropertiesError, match=r"ssl\.key\.password is wrong"):
        mutual.greet({**settings, "ssl.key.password": "hush"})
    with pytest.raises(ClientPropertiesError, match=r"ssl\.key\.password is missing"):
        mutual.greet(settings)
    with pytest.raises(ClientPropertiesError, match="longer than OpenSSL takes"):
        mutual.greet({**settings, "ssl.key.password": "x" * 5000})


def test_a_key_of_another_certificate_is_reported(authority: Authority) -> None:
    """Key and chain must belong together."""
    key, other = (authority.key_store(name).path.read_text() for name in ("one", "another"))
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key[: key.index("-----BEGIN CERT")],
        "ssl.keystore.certificate.chain": other[other.index("-----BEGIN CERT") :],
    }
    with pytest.raises(ClientPropertiesError, match="does not belong to the first certificate"):
        make_ssl_context(_settings(settings))


def test_protocols_are_limited(server: Server, trust: Mapping[str, str]) -> None:
    """ssl.protocol is the newest allowed, ssl.enabled.protocols all; names of before TLSv1.2 are as dead as in Java."""
    assert server.greet({**trust, "ssl.protocol": "TLSv1.2"})[0] == "TLSv1.2"
    assert server.greet({**trust, "ssl.enabled.protocols": "TLSv1.2"})[0] == "TLSv1.2"
    assert server.greet({**trust, "ssl.enabled.protocols": "TLSv1.1, TLSv1.2"})[0] == "TLSv1.2"
    assert server.greet({**trust, "ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLS"})[0] == "TLSv1.3"
    for settings in (
        {"ssl.enabled.protocols": "TLSv1.1"},
        {"ssl.enabled.protocols": "TLSv2"},
        {"ssl.protocol": "SSLv3"},
        {"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"},
    ):
        with pytest.raises(ClientPropertiesError, match=r"ssl\.(enabled\.)?protocol"):
            make_ssl_context(_settings({**trust, **settings}))


def test_cipher_suites_are_chosen_by_javas_names(server: Server, trust: Mapping[str, str]) -> None:
    """Suites of one version leave out the other; those which OpenSSL lacks are named."""
    one = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    assert server.greet({**trust, "ssl.cipher.suites": one}) == ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")
    assert server.greet({**trust, "ssl.cipher.suites": f"{one},TLS_AES_256_GCM_SHA384"})[0] == "TLSv1.3"
    settings = _settings({**trust, "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"})
    make_ssl_context(settings)
    assert settings.notes == [
        "it: ssl.cipher.suites: Python cannot choose among the suites of TLSv1.3: all three are offered"
    ]
    for suites in ("TLS_NULL_WITH_NULL_NULL", "TLS_ECDHE_RSA_WITH_RC4_128_SHA", f"{one},TLS_NO_SUCH_WITH_THING"):
        with pytest.raises(ClientPropertiesError, match=r"ssl\.cipher\.suites: names .* cipher suite"):
            make_ssl_context(_settings({**trust, "ssl.cipher.suites": suites}))
    with pytest.raises(ClientPropertiesError, match="has no suite of the enabled protocols"):
        make_ssl_context(_settings({"ssl.cipher.suites": one, "ssl.enabled.protocols": "TLSv1.3"}))


@pytest.mark.parametrize(
    ("java_name", "openssl_name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
    ],
)
def test_names_of_cipher_suites(java_name: str, openssl_name: str) -> None:
    """By OpenSSL's own rule, and OpenSSL knows each of them."""
    assert openssl_suite(java_name) == openssl_name
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(openssl_name)


def test_no_key_stays_on_disk(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no files in memory, the file with the key is the owner's only, and gone afterwards."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delattr("os.memfd_create", raising=False)
    modes = []
    loads = ssl.SSLContext.load_cert_chain

    def watched(context: ssl.SSLContext, path: str, **words: object) -> None:
        modes.append(Path(path).stat().st_mode & 0o777)
        loads(context, path, **words)  # type: ignore[arg-type]

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    path = authority.key_store("client").path
    make_ssl_context(_settings({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}))
    assert modes == [0o600]
    assert list(tmp_path.iterdir()) == []
