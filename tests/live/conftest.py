"""Scenarios, simulated and loaded by a real broker. `make test` takes the short one, `make test-live` all of them."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from tests.conformance.dump import DumpBatch
from tests.conformance.recordings import make_warehouse
from tests.conformance.tables import Tables, read_tables
from tests.conformance.truth import Truth
from tests.conftest import PROJECT_ROOT
from tests.live.broker import LiveBroker
from tests.live.kafka_home import KafkaHome, KafkaUnavailable, kafka_home
from tests.live.simulated import Simulated, dump, dumped, truth_of

IS_WHOLE: Final = os.environ.get("GROUPLEDGER_LIVE") == "all"
"""Set by `make test-live`: all scenarios, and a missing Maven or JDK is a failure."""
SHORT: Final = Path(__file__).resolve().parent / "scenarios" / "everything.toml"
SCENARIOS: Final = PROJECT_ROOT / "scenarios"
TOO_LONG: Final = frozenset({"busy-day"})
"""A day of a thousand groups takes minutes."""


@dataclass
class Loaded:
    """A simulated log, what a real broker said of it, and what Kafka's dump tool printed."""

    simulated: Simulated
    snapshot: dict[str, Any]
    dumps: Path
    batches: list[DumpBatch]
    index_report: str
    """What the dump tool said of the index files."""
    truth: Truth = field(init=False)

    def __post_init__(self) -> None:
        self.truth = truth_of(self.snapshot, self.simulated)


def scenarios() -> list[Path]:
    """What is loaded in this run."""
    whole = [path for path in sorted(SCENARIOS.glob("*.toml")) if path.stem not in TOO_LONG]
    return [SHORT, *whole] if IS_WHOLE else [SHORT]


@pytest.fixture(scope="session")
def home() -> KafkaHome:
    """Kafka 4.3.1; tests are skipped where it cannot be had."""
    try:
        return kafka_home()
    except KafkaUnavailable as error:
        if IS_WHOLE:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=scenarios(), ids=lambda path: path.stem)
def loaded(request: pytest.FixtureRequest, home: KafkaHome, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """One scenario after another, each loaded by a broker of its own."""
    scenario: Path = request.param
    root = tmp_path_factory.mktemp(scenario.stem)
    simulated = Simulated.of(scenario, root / "simulated")
    with LiveBroker(home, root / "broker", topics=simulated.topics(), logs=simulated.logs) as broker:
        snapshot = dict(broker.snapshot())  # first of all: sessions of classic members run since the broker has them
        dumps = dump(broker, simulated, root / "dumps")
        report = broker.dump(simulated.indexes(), "--verify-index-only", to=root / "indexes.txt").read_text()
    return Loaded(simulated, snapshot, dumps, dumped(dumps), report)


@pytest.fixture(scope="session")
def tables(loaded: Loaded, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables which the jobs make of the same segments."""
    root = tmp_path_factory.mktemp("warehouse")
    make_warehouse(spark, loaded.simulated.logs, root, cluster_id="simulated")
    return read_tables(root)
