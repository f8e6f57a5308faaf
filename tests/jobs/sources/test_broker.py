"""Connections to a cluster: what is asked comes back, whatever brokers do meanwhile, and errors come when agreed."""

import pickle
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse

from jobs.errors import BrokerError
from jobs.settings import BrokerAddress
from jobs.sources.api_request import ApiRequest
from jobs.sources.broker import OLD_BROKER, OTHER_CLUSTER, Broker, Coordinator, LeaderOf, OffsetSpec, TopicInfo
from schemas.admin_protocol import CONSUMER_GROUP_DESCRIBE
from tests.jobs.builders import batch
from tests.jobs.fake_kafka import CLOSE, SILENT, TOPIC, FakeKafka, then

pytestmark = [
    pytest.mark.usefixtures("left_sockets"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CANARY = "canary-81c2"
TIMEOUT_MS = 1_500
SLACK_S = 2.0
"""Beyond a time-out: for the diagnosis, on a machine which has other things to do."""


def connected(kafka: FakeKafka, timeout_ms: int = 10_000) -> Broker:
    """A connection to the first broker."""
    return Broker.connect(BrokerAddress(kafka.address), timeout_ms=timeout_ms)


def test_topics_and_offsets() -> None:
    """Topics which are not there are left out; each leader is asked for its own partitions."""
    with FakeKafka(leaders=[1, 2, 1]) as kafka, connected(kafka) as broker:
        kafka.logs[1] = [batch(5, 3)]
        kafka.log_starts[1] = 5
        found = broker.topics([TOPIC, "__share_group_state"])
        assert found == {TOPIC: TopicInfo(TOPIC, "AAAAAAAAAAAAAAAAAAAABw", 3, True)}
        places = [(TOPIC, partition) for partition in range(3)]
        assert broker.offsets(places) == {(TOPIC, 0): 0, (TOPIC, 1): 8, (TOPIC, 2): 0}
        assert broker.offsets(places, OffsetSpec.EARLIEST)[TOPIC, 1] == 5
        assert broker.leader(TOPIC, 1).host_port == kafka.address_of(2)


def test_a_moved_leader_is_found() -> None:
    """NOT_LEADER_OR_FOLLOWER, a closed connection and a missing leader pass: metadata is asked again."""
    with FakeKafka(leaders=[1], node_count=2) as kafka, connected(kafka) as broker:
        broker.leader(TOPIC, 0)
        kafka.leaders[0] = 2
        assert broker.offsets([(TOPIC, 0)]) == {(TOPIC, 0): 0}
        kafka.leaders[0] = -1
        broker.forget_leaders(TOPIC)
        kafka.on_any[MetadataRequest.API_KEY] = [
            then(lambda _: None),
            then(lambda it: it.leaders.__setitem__(0, 1)),
        ]
        assert broker.leader(TOPIC, 0).node_id == 1
        kafka.on_any[ListOffsetsRequest.API_KEY] = [then(lambda _: None, CLOSE)]
        assert broker.offsets([(TOPIC, 0)]) == {(TOPIC, 0): 0}


def test_another_cluster_at_the_address_is_no_moved_leader() -> None:
    """Its answers are not of the cluster that was asked first, and the error has both ids."""
    with FakeKafka() as kafka, connected(kafka) as broker:
        assert broker.current_cluster_id() == "fake"
        kafka.cluster_id = "standby"
        with pytest.raises(BrokerError, match="its cluster id is standby, and it was fake") as raised:
            broker.topics([TOPIC])
        assert raised.value.code == OTHER_CLUSTER


def test_requests_go_to_whom_they_are_for() -> None:
    """A leader, a coordinator, a node, anybody; a retriable code in the answer asks again."""
    asked: list[int] = []

    def note(_: FakeKafka, node_id: int, __: Any) -> None:
        asked.append(node_id)

    with FakeKafka(leaders=[2], node_count=3) as kafka, connected(kafka) as broker:
        for receiver in (LeaderOf(TOPIC, 0), Coordinator("group"), 3):
            kafka.on_any[ListOffsetsRequest.API_KEY] = [note]
            broker.send(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[]), receiver)
        assert asked == [2, 2, 3]
        codes = [16, 14, 0]
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        broker.send(request, Coordinator("group"), error_code=lambda _: codes.pop(0))
        assert codes == []


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (lambda kafka: kafka.stop(1), "CONNECTION_REFUSED"),
        (lambda kafka: kafka.on_any.update({2: [then(lambda _: None, SILENT)] * 99}), "TIMEOUT"),
        (lambda kafka: kafka.leaders.__setitem__(0, -1), "NO_LEADER"),
        (lambda kafka: kafka.topics.clear(), "UNKNOWN_TOPIC"),
        (lambda kafka: setattr(kafka, "topic_error", 29), "TOPIC_AUTHORIZATION_FAILED"),
    ],
    ids=["dead", "silent", "no leader", "no topic", "no right"],
)
def test_no_answer_is_reported_in_time(plan: Callable[[FakeKafka], object], code: str) -> None:
    """Whatever keeps a broker from answering, the error comes with the time-out, and says which it was."""
    with FakeKafka() as kafka, connected(kafka, TIMEOUT_MS) as broker:
        plan(kafka)
        started = time.monotonic()
        with pytest.raises(BrokerError) as caught:
            broker.offsets([(TOPIC, 0)])
        assert caught.value.code == code
        assert time.monotonic() - started < TIMEOUT_MS / 1000 + SLACK_S


def test_an_advertised_address_which_nobody_has_is_named() -> None:
    """The bootstrap server answers, the leader's advertised host does not exist: the error says who said so."""
    with FakeKafka() as kafka:
        kafka.advertised[1] = ("broker-1.invalid", 9092)
        with (
            connected(kafka, TIMEOUT_MS) as broker,
            pytest.raises(BrokerError, match=r"broker-1\.invalid:9092: unknown host .*advertised\.listeners"),
        ):
            broker.offsets([(TOPIC, 0)])


def test_several_bootstrap_servers() -> None:
    """One that answers is enough; none that answers names each."""
    with FakeKafka() as kafka:
        address = BrokerAddress(f"127.0.0.1:1, {kafka.address}")
        with Broker.connect(address, timeout_ms=20_000) as broker:
            assert TOPIC in broker.topics([TOPIC])
    with pytest.raises(BrokerError, match=r"one\.invalid:1: unknown host .*; two\.invalid:2: unknown host"):
        Broker.connect(BrokerAddress("one.invalid:1,two.invalid:2"), timeout_ms=20_000)


@pytest.mark.parametrize("servers", ["localhost", "localhost:", ":9092", "localhost:0", "localhost:70000", ""])
def test_addresses_are_checked(servers: str) -> None:
    """What is no HOST:PORT is refused before anything is sent."""
    with pytest.raises(BrokerError, match="HOST:PORT"):
        Broker.connect(BrokerAddress(servers), timeout_ms=TIMEOUT_MS)


def test_errors_and_addresses_travel() -> None:
    """Both go between driver and tasks; an address holds the path of the settings, and nothing of them."""
    error = pickle.loads(pickle.dumps(BrokerError("no", code="TIMEOUT")))
    assert (str(error), error.code) == ("no", "TIMEOUT")
    address = BrokerAddress("a:1, b:2", "/etc/client.properties")
    assert pickle.loads(pickle.dumps(address)) == address
    assert address.servers == ["a:1", "b:2"]


class LeakyProvider(AbstractTokenProvider):  # type: ignore[misc]
    """A login whose library puts a secret into its error."""

    def token(self) -> str:
        """Fails."""
        raise ValueError(f"https://login.example/?client_secret={CANARY}")


def test_no_secret_of_a_library_gets_out() -> None:
    """The error of a login which cannot be made has neither its text nor its chain."""
    with FakeKafka() as kafka:
        kafka.on_any[SaslHandshakeRequest.API_KEY] = [
            lambda *_: SaslHandshakeResponse(error_code=0, mechanisms=["OAUTHBEARER"])
        ] * 99
        config = {
            "bootstrap_servers": [kafka.address],
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": LeakyProvider(),
        }
        broker = Broker(BrokerAddress(kafka.address), config, TIMEOUT_MS)
        with pytest.raises(BrokerError) as caught:
            broker._bootstrap([kafka.address])
    assert caught.value.code == "LOGIN_NOT_READY"
    shown = "".join(traceback.format_exception(caught.value))
    assert "ValueError" in shown
    assert CANARY not in shown
    assert CANARY not in repr(broker)


def test_a_request_that_the_broker_does_not_know_is_named() -> None:
    """With the versions that both sides know; nothing is sent, and nothing tried again."""
    with FakeKafka(leaders=[1]) as kafka, connected(kafka) as broker:
        with pytest.raises(BrokerError) as unknown:
            broker.send(ApiRequest(CONSUMER_GROUP_DESCRIBE, group_ids=("g",)))
        with pytest.raises(BrokerError) as too_old:
            broker.send(ListOffsetsRequest(replica_id=-1, topics=[], min_version=9, max_version=10))
    assert {unknown.value.code, too_old.value.code} == {OLD_BROKER}
    assert str(unknown.value) == "the broker does not know the request ConsumerGroupDescribe"
    assert str(too_old.value) == (
        "the broker knows the request ListOffsets in versions 0 to 7, and is asked in versions 9 to 10"
    )
