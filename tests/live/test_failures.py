"""What keeps a reader out of a real cluster: each cause has a line of its own with its remedy, and soon."""

import gc
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from jobs.errors import BrokerError
from jobs.settings import BrokerAddress
from jobs.sources.broker_log import find_broker_logs
from tests.jobs.broker_reads import read_broker_log
from tests.live.broker import CLIENT_SETTINGS, LiveBroker, free_ports
from tests.live.certificates import Authority
from tests.live.clients import LiveClients
from tests.live.kafka_home import KafkaHome
from tests.live.secure import MUTUAL, PLAIN, SASL, SASL_TLS, STORE_PASSWORD, TLS, USERS, WRONG_HOST, SecureBroker

TIMEOUT_MS: Final = 5_000
GRACE_S: Final = 10
"""For machines which have other things to do."""
TOPIC: Final = "__consumer_offsets"
WRONG_PASSWORD: Final = "wrong-2d9f"


pytestmark = pytest.mark.filterwarnings(
    # kafka-python leaves the sockets of connections which failed to the garbage collector
    "ignore:unclosed:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(autouse=True)
def collect() -> Iterator[None]:
    """What a test leaves is collected here, and does not trouble the tests after it."""
    yield
    gc.collect()


@dataclass(frozen=True)
class Failure:
    """A way not to get in: by which listener, with what changed in the settings which would do."""

    name: str
    code: str
    listener: str
    words: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)


FAILURES: Final = (
    Failure("wrong SCRAM password", "LOGIN_REFUSED", SASL_TLS, {"password": WRONG_PASSWORD}),
    Failure("wrong PLAIN password", "LOGIN_REFUSED", SASL, {"password": WRONG_PASSWORD, "mechanism": PLAIN}),
    Failure("no ACL", "TOPIC_AUTHORIZATION_FAILED", SASL, {"user": "stranger"}),
    Failure("certificate of another host", "HOST_NAME", WRONG_HOST),
    Failure(
        "no certificate of ours", "TLS_REFUSED", MUTUAL, {}, {"ssl.keystore.location": "", "ssl.keystore.type": ""}
    ),
    Failure("TLS to a port without", "NO_TLS", SASL, {}, {"security.protocol": "SASL_SSL"}),
    Failure("a port with TLS", "TLS_WANTED", TLS, {}, {"security.protocol": "PLAINTEXT"}),
    Failure("a port with login", "SASL_WANTED", SASL, {}, {"security.protocol": "PLAINTEXT"}),
)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
def test_each_cause_is_reported(secure: SecureBroker, tmp_path: Path, failure: Failure) -> None:
    """Passwords, certificates, protocols and ACLs: the cause is named, nothing hangs, and no secret is shown."""
    settings = secure.client_settings(failure.listener, **failure.words) | failure.changed
    settings = {name: value for name, value in settings.items() if value}
    if "SSL" not in settings["security.protocol"]:
        settings = {name: value for name, value in settings.items() if not name.startswith("ssl.")}
    if "SASL" not in settings["security.protocol"]:
        settings = {name: value for name, value in settings.items() if not name.startswith("sasl.")}
    file = secure.command_config(tmp_path / "client.properties", settings)
    with fails(failure.code) as reported:
        find_broker_logs(BrokerAddress(secure.address_of(failure.listener), str(file)), [TOPIC], timeout_ms=TIMEOUT_MS)
    assert not [secret for secret in (*USERS.values(), WRONG_PASSWORD) if secret in reported()]


def test_an_unknown_authority_is_reported(home: KafkaHome, secure: SecureBroker, tmp_path: Path) -> None:
    """Whoever trusts another authority gets an error that says so."""
    other = Authority(home.tool("keytool"), tmp_path / "other", STORE_PASSWORD).trust_store()
    settings = secure.client_settings(TLS) | {"ssl.truststore.location": str(other.path)}
    file = secure.command_config(tmp_path / "client.properties", settings)
    with fails("UNKNOWN_CA"):
        find_broker_logs(BrokerAddress(secure.address_of(TLS), str(file)), [TOPIC], timeout_ms=TIMEOUT_MS)


def test_nobody_there_is_reported() -> None:
    """A host without an address, a port without a broker, and a port that takes connections and says nothing."""
    with fails("UNKNOWN_HOST"):
        find_broker_logs(BrokerAddress("nowhere.invalid:9092"), [TOPIC], timeout_ms=TIMEOUT_MS)
    with fails("CONNECTION_REFUSED"):
        find_broker_logs(BrokerAddress(f"127.0.0.1:{free_ports(1)[0]}"), [TOPIC], timeout_ms=TIMEOUT_MS)
    with socket.create_server(("127.0.0.1", 0)) as silent, fails("NO_ANSWER"):
        address = BrokerAddress(f"127.0.0.1:{silent.getsockname()[1]}")
        find_broker_logs(address, [TOPIC], timeout_ms=TIMEOUT_MS)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_a_broker_gone_in_the_middle_is_reported(home: KafkaHome, tmp_path: Path, ending: signal.Signals) -> None:
    """A broker which dies, or hangs, while its log is read: one line, in time."""
    with LiveBroker(home, tmp_path / "broker", settings=CLIENT_SETTINGS) as broker:
        with LiveClients(home, tmp_path / "clients", broker.address) as clients:
            clients.play(1, ["offsets"], ["commit"] * 10)
        logs = find_broker_logs(BrokerAddress(broker.address), [TOPIC], timeout_ms=TIMEOUT_MS)
        log = next(log for log in logs if log.next_offset > log.log_start_offset)
        reads = read_broker_log(log, timeout_ms=TIMEOUT_MS, fetch_bytes_max=1)  # a batch at a time
        next(reads)
        os.kill(broker.process_id, ending)
        try:
            with fails("CONNECTION_REFUSED" if ending is signal.SIGKILL else "NO_ANSWER"):
                list(reads)
        finally:
            broker.kill()


@contextmanager
def fails(code: str) -> Iterator[Callable[[], str]]:
    """It fails with a BrokerError of this code, whose text is one line, before the time-out and some grace are over."""
    began = time.monotonic()
    with pytest.raises(BrokerError) as caught:
        yield lambda: str(caught.value)
    assert time.monotonic() - began < TIMEOUT_MS / 1000 + GRACE_S
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
