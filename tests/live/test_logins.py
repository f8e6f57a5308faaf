"""Logins by token, certificate and ticket at brokers of two releases, addresses that brokers advertise, and passwords
that change while a capture runs."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from kafka.protocol.admin import CreateTopicsRequest
from rich.console import Console

from jobs.bronze.capture import capture
from jobs.bronze.writer import CaptureRun
from jobs.console.progress import Steps
from jobs.delta.warehouse import Warehouse
from jobs.errors import BrokerError, ClientPropertiesError
from jobs.operations.continuous_capture import ContinuousCapture
from jobs.settings import BrokerAddress, Settings, load_settings
from jobs.sources.broker import Broker
from jobs.sources.client_properties import ALLOWED_URLS, KAFKA_OPTS
from schemas.tables.bronze import RECORD_BATCHES
from tests.jobs.in_process import in_process
from tests.jobs.sources.client.identity_provider import Provider, identity_provider
from tests.live import kerberos
from tests.live.broker import CLIENT_SETTINGS, Node
from tests.live.certificates import Authority
from tests.live.kafka_home import KafkaHome
from tests.live.kerberos import Realm
from tests.live.program import write_properties
from tests.live.release import ReleasedBroker, release_home
from tests.live.secure import READER_ACLS, SASL, SecureBroker, jaas_line, store_settings
from tests.live.test_capture_stream import commit_offset
from tests.maven import Unavailable

pytestmark = [
    pytest.mark.usefixtures("left_sockets"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

RELEASES: Final = ("4.3.1", "4.4.0")
OFFSETS: Final = "__consumer_offsets"
TIMEOUT_MS: Final = 20_000
WAIT_S: Final = 90
COMMITS: Final = 30
CLIENT_ID, SECRET = "ledger", "canary-of-the-client"
AUDIENCE: Final = "kafka-of-the-tests"
ISSUER: Final = "issuer-of-the-tests"
PASSWORD: Final = "store-90ab"

UNSECURED, TOKEN, KERBEROS, MUTUAL = "UNSECURED", "TOKEN", "KERBEROS", "MUTUAL"
NOWHERE, TO_LOGIN, OTHER_NAME = "NOWHERE", "TO_LOGIN", "OTHER_NAME"
"""Listeners that advertise another address: where nobody listens, where a login is wanted, and a name that the
certificate there does not have."""
PROTOCOLS: Final[Mapping[str, str]] = {
    "PLAINTEXT": "PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",
    UNSECURED: "SASL_PLAINTEXT",
    TOKEN: "SASL_PLAINTEXT",
    KERBEROS: "SASL_PLAINTEXT",
    MUTUAL: "SSL",
    NOWHERE: "PLAINTEXT",
    TO_LOGIN: "PLAINTEXT",
    OTHER_NAME: "SSL",
}
OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
OAUTH_MODULE: Final = f"{OAUTH}.OAuthBearerLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
DNS_NAME: Final = "localhost"


class Issuer:
    """Signs tokens; `keys` is what a broker reads of it (RFC 7517)."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    @property
    def keys(self) -> str:
        """A set of one key."""
        numbers = self._key.public_key().public_numbers()
        modulus, exponent = (_text(it.to_bytes((it.bit_length() + 7) // 8, "big")) for it in (numbers.n, numbers.e))
        return json.dumps(
            {"keys": [{"kty": "RSA", "use": "sig", "kid": "1", "alg": "RS256", "n": modulus, "e": exponent}]}
        )

    def token(self, *, subject: str = "reader", audience: str = AUDIENCE, lifetime_s: float = 600) -> str:
        """A signed token (RFC 7519)."""
        now = time.time()
        claims = {"sub": subject, "aud": audience, "iss": ISSUER, "iat": int(now) - 900, "exp": int(now + lifetime_s)}
        parts = ".".join(_text(json.dumps(it).encode()) for it in ({"alg": "RS256", "kid": "1"}, claims))
        return f"{parts}.{_text(self._key.sign(parts.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(frozen=True)
class Guarded:
    """A broker with a listener of each kind, and who issues what it asks for."""

    broker: ReleasedBroker
    authority: Authority
    issuer: Issuer
    realm: Realm | None

    def address_of(self, listener: str) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.broker.node.ports[listener]}"


@pytest.fixture(scope="module", params=RELEASES)
def guarded(
    request: pytest.FixtureRequest, home: KafkaHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """A broker of a release, with offsets in its log."""
    folder = tmp_path_factory.mktemp("guarded")
    with ExitStack() as stack:
        authority, issuer = Authority(home.tool("keytool"), folder / "certificates", PASSWORD), Issuer()
        realm = None
        with suppress(Unavailable):
            realm = stack.enter_context(Realm(folder / "realm"))
        (folder / "keys.json").write_text(issuer.keys)
        keys = (folder / "keys.json").as_uri()
        java_options = [f"-D{ALLOWED_URLS}={keys}"]
        listeners = [name for name in PROTOCOLS if name not in ("PLAINTEXT", "CONTROLLER")]
        if realm is None:
            listeners.remove(KERBEROS)
        else:
            java_options.append(f"-Djava.security.krb5.conf={realm.configuration}")
        node = Node.alone(listeners)
        released = replace(release_home(request.param), java_options=tuple(java_options))
        settings = _settings(node, authority, keys, realm)
        broker = stack.enter_context(ReleasedBroker(released, folder / "broker", settings=settings, node=node))
        connection = stack.enter_context(Broker.connect(BrokerAddress(broker.address)))
        topic = CreateTopicsRequest.CreatableTopic(
            name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False))
        for offset in range(COMMITS):
            commit_offset(connection, f"group-{offset % 3}", offset)
        yield Guarded(broker, authority, issuer, realm)


def _settings(node: Node, authority: Authority, keys: str, realm: Realm | None) -> dict[str, str | int]:
    ports = node.ports
    elsewhere = {
        NOWHERE: "127.0.0.1:1",
        TO_LOGIN: f"127.0.0.1:{ports[UNSECURED]}",
        OTHER_NAME: f"{DNS_NAME}:{ports[OTHER_NAME]}",
    }
    advertised = (
        f"{name}://{elsewhere.get(name, f'127.0.0.1:{port}')}" for name, port in ports.items() if name != "CONTROLLER"
    )
    settings: dict[str, str | int] = {
        **CLIENT_SETTINGS,
        "listener.security.protocol.map": ",".join(f"{name}:{PROTOCOLS[name]}" for name in ports),
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": ",".join(advertised),
    }
    for name, hosts in ((MUTUAL, ("127.0.0.1",)), (OTHER_NAME, ("127.0.0.1",))):
        stores = store_settings("keystore", authority.key_store(f"broker-{name.lower()}", hosts))
        stores |= store_settings("truststore", authority.trust_store()) if name == MUTUAL else {}
        settings |= {f"listener.name.{name.lower()}.{key}": value for key, value in stores.items()}
    settings["listener.name.mutual.ssl.client.auth"] = "required"
    for name in (UNSECURED, TOKEN):
        prefix = f"listener.name.{name.lower()}"
        settings[f"{prefix}.sasl.enabled.mechanisms"] = "OAUTHBEARER"
        options = {"unsecuredLoginStringClaim_sub": "broker"}
        settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = jaas_line(OAUTH_MODULE, options)
    validator = "listener.name.token.oauthbearer.sasl.server.callback.handler.class"
    settings[validator] = f"{OAUTH}.OAuthBearerValidatorCallbackHandler"
    settings["listener.name.token.sasl.oauthbearer.jwks.endpoint.url"] = keys
    settings["listener.name.token.sasl.oauthbearer.expected.audience"] = AUDIENCE
    settings["listener.name.token.sasl.oauthbearer.expected.issuer"] = ISSUER
    if realm is not None:
        options = {"useKeyTab": "true", "storeKey": "true", "principal": f"kafka/127.0.0.1@{kerberos.NAME}"}
        options["keyTab"] = str(realm.keytab("broker", "kafka/127.0.0.1"))
        settings["listener.name.kerberos.sasl.enabled.mechanisms"] = "GSSAPI"
        settings["listener.name.kerberos.gssapi.sasl.jaas.config"] = jaas_line(KERBEROS_MODULE, options)
        settings["listener.name.kerberos.sasl.kerberos.service.name"] = "kafka"
    return settings


def with_token(folder: Path, token: str | None = None, *, url: str = "") -> dict[str, str]:
    """A client's settings for a token of an endpoint, or in a file."""
    options: dict[str, str] = {}
    if token is not None:
        (folder / "token").write_text(token)
        url = (folder / "token").as_uri()
    else:
        options = {"clientId": CLIENT_ID, "clientSecret": SECRET}
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.jaas.config": jaas_line(OAUTH_MODULE, options),
    }


UNSECURED_LOGIN: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": jaas_line(OAUTH_MODULE, {"unsecuredLoginStringClaim_sub": "reader"}),
}


def with_certificate(authority: Authority, store_type: str, issued_by: Authority | None = None) -> dict[str, str]:
    """A client's settings for TLS on both sides."""
    return {
        "security.protocol": "SSL",
        **store_settings("truststore", authority.trust_store(store_type)),
        **store_settings("keystore", (issued_by or authority).key_store("reader", store_type=store_type)),
    }


def with_keytab(keytab: Path, principal: str = "reader", service: str = "kafka") -> dict[str, str]:
    """A client's settings for Kerberos."""
    options = {"useKeyTab": "true", "keyTab": str(keytab), "principal": f"{principal}@{kerberos.NAME}"}
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": service,
        "sasl.jaas.config": jaas_line(KERBEROS_MODULE, options),
    }


def settings_for(address: str, file: Path | None) -> Settings:
    """Of a capture of the log of offsets."""
    config = {} if file is None else {"command_config": str(file)}
    options = {"bootstrap_servers": address, "cluster_id": "c", "topics": (OFFSETS,), "request_timeout_ms": TIMEOUT_MS}
    return load_settings({**options, **config}, environment={})


def client_file(folder: Path, settings: Mapping[str, str]) -> Path:
    """The .properties file, readable by its owner."""
    path = folder / "client.properties"
    path.touch(mode=0o600)
    return write_properties(path, settings)


def captured(folder: Path, settings: Settings) -> list[tuple[int, int, bytes]]:
    """The batches that a capture brings into a new warehouse."""
    warehouse = Warehouse(str(folder))
    capture(in_process(), warehouse, settings, capture_id="r", captured_at=datetime.now(UTC))
    rows = warehouse.read(RECORD_BATCHES, ["partition", "base_offset", "batch"]).to_pylist()
    return sorted((row["partition"], row["base_offset"], row["batch"]) for row in rows)


@pytest.fixture
def provider() -> Iterator[Provider]:
    """An identity provider."""
    with identity_provider() as running:
        yield running


@pytest.fixture
def kerberos_client(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Realm:
    """The realm of the broker, and a process that knows it, without tickets."""
    try:
        folder = kerberos.gssapi()
    except Unavailable as error:
        pytest.skip(str(error))
    if guarded.realm is None:
        pytest.skip("no Kerberos: apt install krb5-kdc krb5-admin-server")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("KRB5_CONFIG", str(guarded.realm.configuration))
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "tickets"))
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", "")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")
    return guarded.realm


def assert_all_is_captured(guarded: Guarded, listener: str, settings: Mapping[str, str], folder: Path) -> None:
    """By a login, as without one."""
    file = client_file(folder, settings)
    found = captured(folder / "by-login", settings_for(guarded.address_of(listener), file))
    assert found == captured(folder / "plain", settings_for(guarded.broker.address, None))
    assert sum(len(batch) for *_, batch in found) > COMMITS * 61


def refused(guarded: Guarded, listener: str, settings: Mapping[str, str], folder: Path) -> BrokerError:
    """The error of a login: one line, without the secret."""
    file = client_file(folder, settings)
    with pytest.raises(BrokerError) as caught:
        Broker.connect(BrokerAddress(guarded.address_of(listener), str(file)), timeout_ms=TIMEOUT_MS)
    assert str(caught.value).isprintable() and SECRET not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("store_type", ["PEM", "PKCS12", "JKS"])
def test_a_certificate_lets_in(guarded: Guarded, tmp_path: Path, store_type: str) -> None:
    """In a store of each type: all of the log is captured."""
    assert_all_is_captured(guarded, MUTUAL, with_certificate(guarded.authority, store_type), tmp_path)


def test_a_certificate_of_another_authority_does_not(guarded: Guarded, home: KafkaHome, tmp_path: Path) -> None:
    """The error names the key store; so it is where there is none."""
    other = Authority(home.tool("keytool"), tmp_path / "other", PASSWORD)
    settings = with_certificate(guarded.authority, "PEM", other)
    for given in (settings, {key: value for key, value in settings.items() if "keystore" not in key}):
        error = refused(guarded, MUTUAL, given, tmp_path)
        assert (error.code, "ssl.keystore.location" in str(error)) == ("TLS_REFUSED", True), str(error)


def test_a_token_lets_in(
    guarded: Guarded,
    provider: Provider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unsecured, of a token endpoint, and in a file: all of the log is captured."""
    (tmp_path / "unsecured").mkdir()
    assert_all_is_captured(guarded, UNSECURED, UNSECURED_LOGIN, tmp_path / "unsecured")
    provider.answer = json.dumps({"access_token": guarded.issuer.token()}).encode()
    for name, settings in (
        ("endpoint", with_token(tmp_path, url=provider.url)),
        ("file", with_token(tmp_path, guarded.issuer.token())),
    ):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(KAFKA_OPTS, f"-D{ALLOWED_URLS}={settings['sasl.oauthbearer.token.endpoint.url']}")
        assert_all_is_captured(guarded, TOKEN, settings, tmp_path / name)
    assert provider.asked


WRONG_TOKENS: Final[Mapping[str, Callable[[Issuer], str]]] = {
    "other audience": lambda issuer: issuer.token(audience="another"),
    "expired": lambda issuer: issuer.token(lifetime_s=-600),
    "other issuer": lambda _: Issuer().token(),
    "changed": lambda issuer: _changed(issuer.token()),
    "no token": lambda _: "abc",
}


def _changed(token: str) -> str:
    head, _, signature = token.split(".")
    return ".".join((head, Issuer().token(subject="admin").split(".")[1], signature))


@pytest.mark.parametrize("name", WRONG_TOKENS)
def test_a_wrong_token_does_not(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The broker refuses it, and one line says so."""
    settings = with_token(tmp_path, WRONG_TOKENS[name](guarded.issuer))
    monkeypatch.setenv(KAFKA_OPTS, f"-D{ALLOWED_URLS}={settings['sasl.oauthbearer.token.endpoint.url']}")
    error = refused(guarded, TOKEN, settings, tmp_path)
    assert (error.code, "login with OAUTHBEARER" in str(error)) == ("LOGIN_REFUSED", True), str(error)


def test_a_token_endpoint_that_gives_none_is_named(
    guarded: Guarded,
    provider: Provider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It refuses the client, or is away."""
    provider.status = 401
    for url, said in ((provider.url, "answered 401"), ("http://127.0.0.1:1/token", "cannot be reached")):
        monkeypatch.setenv(KAFKA_OPTS, f"-D{ALLOWED_URLS}={url}")
        error = refused(guarded, TOKEN, with_token(tmp_path, url=url), tmp_path)
        assert (error.code, said in str(error)) == ("LOGIN_NOT_READY", True), str(error)


def test_a_ticket_lets_in(guarded: Guarded, kerberos_client: Realm, tmp_path: Path) -> None:
    """With a keytab: all of the log is captured."""
    assert_all_is_captured(guarded, KERBEROS, with_keytab(kerberos_client.keytab("reader", "reader")), tmp_path)


def test_who_gets_no_ticket_does_not(guarded: Guarded, kerberos_client: Realm, tmp_path: Path) -> None:
    """A keytab whose key was replaced since, a service that the realm does not have, no keytab: one line each."""
    old = kerberos_client.keytab("old", "rotated")
    kerberos_client.keytab("new", "rotated")
    for settings in (with_keytab(old, "rotated"), with_keytab(old, "rotated", service="nobody")):
        error = refused(guarded, KERBEROS, settings, tmp_path)
        assert (error.code, "GSSAPI" in str(error)) == ("LOGIN_NOT_READY", True), str(error)
    with pytest.raises(ClientPropertiesError, match="keyTab"):
        refused(guarded, KERBEROS, with_keytab(tmp_path / "gone.keytab"), tmp_path)


REDIRECTED: Final[Mapping[str, tuple[dict[str, str], str]]] = {
    NOWHERE: ({}, "connection refused"),
    TO_LOGIN: ({}, "the port wants a login"),
    OTHER_NAME: ({"security.protocol": "SSL"}, f"certificate is not for {DNS_NAME}"),
}


@pytest.mark.parametrize("listener", REDIRECTED)
def test_who_redirects_to_an_address_is_named(guarded: Guarded, tmp_path: Path, listener: str) -> None:
    """The address that was given answers, the one that it advertises does not let in: the error names that address,
    and says who gave it."""
    settings, said = REDIRECTED[listener]
    if settings:
        settings = settings | store_settings("truststore", guarded.authority.trust_store())
    address = BrokerAddress(guarded.address_of(listener), str(client_file(tmp_path, settings)))
    with (
        Broker.connect(address, timeout_ms=5_000) as broker,
        pytest.raises(BrokerError, match=rf"{said}.*\. The cluster advertises this address \(advertised\.listeners\)"),
    ):
        broker.offsets([(OFFSETS, 0)])


def test_a_password_may_change_while_a_capture_runs(secure: SecureBroker, tmp_path: Path) -> None:
    """The old one is refused: one line, and rounds go on; with the new one in the file, the next round captures what
    came meanwhile."""
    user = "rotated"

    def change(password: str) -> None:
        secure.ask({"do": "add_scram_user", "user": user, "password": password, "mechanism": "SCRAM-SHA-512"})

    def write(password: str) -> Path:
        return client_file(tmp_path, secure.client_settings(SASL, user=user, password=password))

    change("first-51ab")
    for resource, name, operations in READER_ACLS:
        secure.allow(user, resource, name, *operations)
    secure.create_topic("orders", 1)
    warehouse, text, count = Warehouse(str(tmp_path / "warehouse")), StringIO(), 0

    def new_run() -> CaptureRun:
        nonlocal count
        count += 1
        return CaptureRun("c", f"r{count}", datetime.now(UTC))

    running = ContinuousCapture(
        in_process(),
        warehouse,
        settings_for(secure.address_of(SASL), write("first-51ab")),
        every_ms=300,
        new_run=new_run,
        steps=Steps(console=Console(file=text, width=300)),
    )
    thread = threading.Thread(target=running.run)
    thread.start()

    def wait(until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not until():
            assert thread.is_alive() and time.monotonic() < deadline, text.getvalue()
            time.sleep(0.2)

    def committed(name: str) -> Callable[[], bool]:
        with Broker.connect(BrokerAddress(secure.address)) as connection:
            commit_offset(connection, name, 1)
        return lambda: any(name.encode() in row for row in _batches(warehouse))

    try:
        wait(committed("before-the-change"))
        change("second-77cd")
        wait(lambda: "interrupted: " in text.getvalue())
        during = committed("during-the-change")
        assert not during()
        (tmp_path / "client.properties").write_text("security.prot")
        wait(lambda: text.getvalue().count("interrupted: ") > 2)
        write("second-77cd")
        wait(during)
    finally:
        running.stop()
        thread.join()
    interrupted = [line for line in text.getvalue().splitlines() if line.startswith("interrupted: ")]
    assert any("refuses the login with SCRAM-SHA-512" in line for line in interrupted), interrupted
    assert "51ab" not in text.getvalue() and "77cd" not in text.getvalue()


def _batches(warehouse: Warehouse) -> list[Any]:
    if not warehouse.exists(RECORD_BATCHES):
        return []
    return [row["batch"] for row in warehouse.read(RECORD_BATCHES, ["batch"]).to_pylist()]
