"""Real brokers: with simulated scenarios in their logs (`make test-conformance` takes the short one, `make test-live`
all of them), and with real clients."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.spark.executors import Executor, SparkExecutor
from tests.conformance.dump import DumpBatch
from tests.conformance.recordings import make_warehouse
from tests.conformance.tables import Tables, read_tables
from tests.conformance.truth import Truth
from tests.conftest import PROJECT_ROOT
from tests.lengths import is_long
from tests.live.broker import CLIENT_SETTINGS, LiveBroker
from tests.live.clients import LiveClients, PlayedGroup
from tests.live.kafka_home import KafkaHome, kafka_home
from tests.live.secure import SASL_TLS, SecureBroker
from tests.live.simulated import Case, Simulated, dump, dumped, truth_of
from tests.maven import Unavailable

SHORT: Final = Path(__file__).resolve().parent / "scenarios" / "everything.toml"
SCENARIOS: Final = PROJECT_ROOT / "scenarios"
TOO_LONG: Final = frozenset({"busy-day"})
"""A day of a thousand groups takes minutes."""
VARIATIONS: Final[tuple[Mapping[str, str | int], ...]] = (
    {"compression": "gzip"},
    {"compression": "snappy"},
    {"compression": "lz4"},
    {"segment_bytes": 10_000},  # of __share_group_state the oldest segments are deleted
    # Where the clock stops while groups form, members revoke, brokers are away.
    {"duration": "4100ms", "seed": 34},
    {"duration": "186s", "seed": 24},
    {"duration": "300020ms", "seed": 28},
    {"duration": "362s", "seed": 6},
    {"duration": "421s", "seed": 22},
    {"duration": "541s", "seed": 17},
)
"""Of the short scenario."""


PLAY_SEED: Final = 7


@dataclass
class Played:
    """A broker, and clients which have done all they can do, and rest."""

    broker: LiveBroker
    clients: LiveClients
    groups: Mapping[str, PlayedGroup]


@dataclass
class Loaded:
    """A simulated log, what a real broker said of it, and what Kafka's dump tool printed."""

    simulated: Simulated
    snapshot: Mapping[str, Any]
    dumps: Path
    batches: list[DumpBatch]
    index_report: str
    """What the dump tool said of the index files."""
    truth: Truth = field(init=False)

    def __post_init__(self) -> None:
        self.truth = truth_of(self.snapshot, self.simulated)


LONG: Final = frozenset(
    {
        "test_acls",
        "test_admin_protocol",
        "test_broker",
        "test_broker_source",
        "test_capture_stream",
        "test_clients",
        "test_failures",
        "test_leaders_move",
        "test_logins",
        "test_long_run",
        "test_releases",
        "test_secrets",
        "test_secure",
        "test_streams_describe",
        "test_three_inputs",
        "test_upgraded_log",
        "test_verify",
    }
)
"""Modules whose clusters, clients or whole jobs take too long for each run of the suite: `make test-live` runs them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the long ones to `make test-live`."""
    if is_long():
        return
    left, here = pytest.mark.skip(reason="a long live test: make test-live runs it"), Path(__file__).resolve().parent
    for item in items:
        if item.path.stem in LONG and item.path.parent == here:
            item.add_marker(left)


def cases() -> list[Case]:
    """What is loaded in this run."""
    if not is_long():
        return [Case(SHORT)]
    shipped = [Case(path) for path in sorted(SCENARIOS.glob("*.toml")) if path.stem not in TOO_LONG]
    others = [Case(path) for path in sorted(SHORT.parent.glob("*.toml")) if path != SHORT]
    return [Case(SHORT), *others, *shipped, *(Case(SHORT, values) for values in VARIATIONS)]


@pytest.fixture(scope="session")
def home() -> KafkaHome:
    """Kafka 4.3.1; tests are skipped where it cannot be had."""
    try:
        return kafka_home()
    except Unavailable as error:
        if is_long():
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=cases(), ids=lambda case: case.name)
def simulated(request: pytest.FixtureRequest, home: KafkaHome, tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """One case after another."""
    return Simulated.of(request.param, tmp_path_factory.mktemp("case") / request.param.name)


@pytest.fixture(scope="session")
def loaded(simulated: Simulated, home: KafkaHome, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """A simulated log in the hands of a broker of its own."""
    root = tmp_path_factory.mktemp("broker")
    with LiveBroker(home, root / "broker", topics=simulated.topics(), logs=simulated.logs) as broker:
        snapshot = broker.snapshot()  # first of all: sessions of classic members run since the broker has them
        dumps = dump(broker, simulated, root / "dumps")
        report = broker.dump(simulated.indexes(), "--verify-index-only", to=root / "indexes.txt").read_text()
    return Loaded(simulated, snapshot, dumps, dumped(dumps), report)


@pytest.fixture(scope="session")
def tables(request: pytest.FixtureRequest, simulated: Simulated, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables which the jobs make of the same segments; `make test-live` has Spark carry their tasks."""
    executor: Executor = (
        SparkExecutor(request.getfixturevalue("spark")) if is_long() else request.getfixturevalue("no_spark")
    )
    root = tmp_path_factory.mktemp("warehouse")
    make_warehouse(executor, simulated.logs, root, cluster_id="simulated")
    return read_tables(root)


@pytest.fixture(scope="session")
def played(home: KafkaHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Groups of every kind, still there: for tests which only look."""
    root = tmp_path_factory.mktemp("played")
    with (
        LiveBroker(home, root / "broker", settings=CLIENT_SETTINGS) as broker,
        LiveClients(home, root / "clients", broker.address) as clients,
    ):
        yield Played(broker, clients, clients.play(PLAY_SEED))


@pytest.fixture(scope="session")
def secure(home: KafkaHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker with TLS, SASL and ACLs; in its logs are the groups of the kinds `offsets` and `share`."""
    root = tmp_path_factory.mktemp("secure")
    with SecureBroker(home, root / "secure") as broker:
        settings = broker.client_settings(SASL_TLS, user="admin", store_type="JKS")
        with LiveClients(home, root / "clients", broker.address_of(SASL_TLS), settings) as clients:
            clients.play(PLAY_SEED, ["offsets"], ["commit"])
            clients.play(PLAY_SEED, ["share"], ["join", "mix", "settle"])
        yield broker
