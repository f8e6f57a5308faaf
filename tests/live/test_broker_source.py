"""A real broker as a source: its logs byte by byte over every way in, and each closed way named in one line."""

from pathlib import Path
from typing import Final

import pytest

from jobs.errors import BrokerError
from jobs.settings import BrokerAddress
from jobs.sources.broker import Broker
from jobs.sources.broker_log import find_broker_logs, read_ranges
from tests.live.secure import MUTUAL, PLAIN, SASL, SASL_TLS, SCRAM, TLS, USERS, WRONG_HOST, SecureBroker

pytestmark = [
    pytest.mark.usefixtures("left_sockets"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TOPICS: Final = ("__consumer_offsets", "__share_group_state")
TIMEOUT_MS: Final = 20_000

WAYS_IN: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("PLAINTEXT", {}),
    (TLS, {"store_type": "JKS"}),
    (MUTUAL, {"store_type": "PKCS12"}),
    (SASL, {"mechanism": PLAIN}),
    (SASL_TLS, {"mechanism": SCRAM[0]}),
    (SASL_TLS, {"mechanism": SCRAM[1]}),
)
CLOSED_WAYS: Final[tuple[tuple[str, str, dict[str, str], str, str], ...]] = (
    ("password of SCRAM", SASL_TLS, {"password": "wrong"}, "LOGIN_REFUSED", "check user and password"),
    ("password of PLAIN", SASL, {"mechanism": PLAIN, "password": "wrong"}, "LOGIN_REFUSED", "Invalid username or"),
    ("authority", TLS, {"ssl.truststore.location": ""}, "UNKNOWN_CA", "ssl.truststore.location"),
    ("name", WRONG_HOST, {}, "HOST_NAME", "ssl.endpoint.identification.algorithm"),
    ("no certificate of ours", MUTUAL, {"as": TLS}, "TLS_REFUSED", "ssl.keystore.location"),
    ("TLS to a plain port", "PLAINTEXT", {"as": TLS}, "NO_TLS", "use PLAINTEXT"),
    ("plain to a TLS port", TLS, {"as": "PLAINTEXT"}, "TLS_WANTED", "use SSL"),
    ("a login nobody wants", "PLAINTEXT", {"as": SASL}, "NO_SASL", "use PLAINTEXT"),
    ("no login where one is wanted", SASL_TLS, {"as": TLS}, "SASL_WANTED", "use SASL_SSL, with sasl.mechanism PLAIN"),
    ("a controller", "CONTROLLER", {"as": "PLAINTEXT"}, "CONTROLLER", "give the port of a broker"),
    (
        "no ACL",
        SASL,
        {"user": "stranger"},
        "TOPIC_AUTHORIZATION_FAILED",
        "Describe and Read on topic __consumer_offsets",
    ),
)


def address(secure: SecureBroker, folder: Path, listener: str, given: dict[str, str]) -> BrokerAddress:
    """A way in: the listener's address, and a .properties file for it, or for the listener given as `as`."""
    words = {name: value for name, value in given.items() if name in ("user", "password", "mechanism", "store_type")}
    settings = secure.client_settings(given.get("as", listener), **words)
    settings |= {name: value for name, value in given.items() if "." in name}
    settings = {name: value for name, value in settings.items() if value}
    file = secure.command_config(folder / "client.properties", settings)
    return BrokerAddress(secure.address_of(listener), str(file))


@pytest.mark.parametrize(("listener", "given"), WAYS_IN, ids=[f"{it[0]} {''.join(it[1].values())}" for it in WAYS_IN])
def test_every_way_in_gives_the_log(secure: SecureBroker, tmp_path: Path, listener: str, given: dict[str, str]) -> None:
    """What is fetched is what the broker's segment files hold, markers and share states included."""
    chosen = address(secure, tmp_path, listener, given)
    logs = find_broker_logs(chosen, TOPICS, timeout_ms=TIMEOUT_MS)
    found: dict[tuple[str, int], bytes] = {}
    with Broker.connect(chosen, timeout_ms=TIMEOUT_MS) as broker:
        for it, read in read_ranges(broker, [log.range() for log in logs], fetch_bytes_max=10_000):
            assert not read.scan.findings
            assert read.segment.path == f"kafka://{secure.address_of(listener)}"
            found[it.topic, it.partition] = found.get((it.topic, it.partition), b"") + read.data.to_pybytes()
    written = {
        (log.topic, log.partition): b"".join(
            file.read_bytes() for file in sorted((secure.data / f"{log.topic}-{log.partition}").glob("*.log"))
        )
        for log in logs
    }
    assert sum(map(len, found.values())) > 0
    assert found == {place: data for place, data in written.items() if data}


@pytest.mark.parametrize(
    ("listener", "given", "code", "words"), [it[1:] for it in CLOSED_WAYS], ids=[it[0] for it in CLOSED_WAYS]
)
def test_closed_ways_are_distinguished(
    secure: SecureBroker, tmp_path: Path, listener: str, given: dict[str, str], code: str, words: str
) -> None:
    """One line with the remedy, long before the time-out, and without a password."""
    with pytest.raises(BrokerError) as caught:
        find_broker_logs(address(secure, tmp_path, listener, given), TOPICS, timeout_ms=TIMEOUT_MS)
    said = str(caught.value)
    assert caught.value.code == code, said
    assert words in said
    assert "\n" not in said
    assert not any(password in said for password in (*USERS.values(), "wrong"))


def test_no_such_topic(secure: SecureBroker, tmp_path: Path) -> None:
    """Topics that are not there are no error next to others; alone they are, and none is made by asking."""
    plain = address(secure, tmp_path, "PLAINTEXT", {})
    for _ in range(2):
        with pytest.raises(BrokerError, match="none of the topics __no_such_topic") as caught:
            find_broker_logs(plain, ["__no_such_topic"], timeout_ms=TIMEOUT_MS)
        assert caught.value.code == "NO_TOPIC"
    assert {log.topic for log in find_broker_logs(plain, [*TOPICS, "__no_such_topic"])} == set(TOPICS)
