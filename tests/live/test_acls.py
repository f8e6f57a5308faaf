"""What a principal may do: each question that a job asks needs exactly the rights which docs/sources.md names."""

import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from coordinator_core.replay.lookup import SharePartitionKey
from jobs.errors import BrokerError
from jobs.settings import BrokerAddress
from jobs.sources.admin import Admin
from jobs.sources.admin_answers import Config, Refusal, Topic
from jobs.sources.broker import Broker
from jobs.sources.broker_log import list_broker_logs, read_ranges
from tests.conftest import PROJECT_ROOT
from tests.lengths import takes_minutes
from tests.live.kafka_home import KafkaHome
from tests.live.secure import SASL, SecureBroker

OFFSETS: Final = "__consumer_offsets"
SHARES: Final = "__share_group_state"
TRANSACTIONS: Final = "__transaction_state"
TIMEOUT_MS: Final = 15_000
COMMAND: Final = "org.apache.kafka.tools.AclCommand"
COMMAND_TIMEOUT_S: Final = 60


class Right(NamedTuple):
    """An operation on a resource."""

    resource: str
    name: str
    operation: str


READ_OFFSETS: Final = Right("TOPIC", OFFSETS, "READ")
READ_SHARES: Final = Right("TOPIC", SHARES, "READ")
READ_TRANSACTIONS: Final = Right("TOPIC", TRANSACTIONS, "READ")
DESCRIBE_TOPICS: Final = Right("TOPIC", "*", "DESCRIBE")
TOPIC_CONFIGS: Final = Right("TOPIC", "*", "DESCRIBE_CONFIGS")
DESCRIBE_GROUPS: Final = Right("GROUP", "*", "DESCRIBE")
GROUP_CONFIGS: Final = Right("GROUP", "*", "DESCRIBE_CONFIGS")
CLUSTER_CONFIGS: Final = Right("CLUSTER", "kafka-cluster", "DESCRIBE_CONFIGS")
CLUSTER_ACTION: Final = Right("CLUSTER", "kafka-cluster", "CLUSTER_ACTION")


@dataclass(frozen=True)
class Simulation:
    """What is in the cluster, as one sees it who may see all."""

    group_types: Mapping[str, str]
    consumed: Topic
    offsets_group: str
    share_group: str
    share_key: SharePartitionKey


@dataclass(frozen=True)
class Session:
    """A principal's connection."""

    address: BrokerAddress
    broker: Broker

    @property
    def admin(self) -> Admin:
        """What answers about the cluster."""
        return Admin(self.broker)


def _reads_logs(session: Session, _: Simulation) -> bool:
    asked = [OFFSETS, SHARES, TRANSACTIONS, "__cluster_metadata"]  # as conf/groupledger.toml has them
    logs = list_broker_logs(session.broker, asked)
    topics = {found.topic for found, read in read_ranges(session.broker, [log.range() for log in logs]) if read.data}
    return topics >= {OFFSETS, SHARES}


def _names_topics(session: Session, simulation: Simulation) -> bool:
    return session.admin.topics().get(simulation.consumed.topic) == simulation.consumed


def _samples_ends(session: Session, simulation: Simulation) -> bool:
    return session.broker.offsets([(simulation.consumed.topic, 0)]) != {}


def _reads_all(answer: tuple[list[Config], Mapping[tuple[str, str], Refusal]]) -> bool:
    found, refused = answer
    return bool(found) and not refused


def _describes_groups(session: Session, simulation: Simulation) -> bool:
    described = session.admin.describe_groups(simulation.group_types)
    return not any(isinstance(it, Refusal) for it in described.values())


def _has_all(answers: Mapping[str, object]) -> bool:
    return all(not isinstance(it, Refusal) and it for it in answers.values())


def _has_share_offsets(session: Session, simulation: Simulation) -> bool:
    (found,) = session.admin.share_offsets([simulation.share_group]).values()
    return not isinstance(found, Refusal) and not any(isinstance(it, Refusal) for it in found.values()) and bool(found)


def _has_share_states(session: Session, simulation: Simulation) -> bool:
    return not isinstance(session.admin.share_states([simulation.share_key])[simulation.share_key], Refusal)


Question = Callable[[Session, Simulation], bool]

QUESTIONS: Final[Mapping[str, tuple[frozenset[Right], Question]]] = {
    "capture: the logs": (frozenset({READ_OFFSETS, READ_SHARES, READ_TRANSACTIONS}), _reads_logs),
    "capture: names of topic ids": (frozenset({DESCRIBE_TOPICS}), _names_topics),
    "capture: ends of topics": (frozenset({DESCRIBE_TOPICS}), _samples_ends),
    "capture: which groups are configured": (
        frozenset({CLUSTER_CONFIGS}),
        lambda session, _: not isinstance(session.admin.configured_groups(), Refusal),
    ),
    "capture: configs of brokers": (
        frozenset({CLUSTER_CONFIGS}),
        lambda session, _: _reads_all(session.admin.configs(broker_ids=session.admin.broker_ids())),
    ),
    "capture: configs of groups": (
        frozenset({GROUP_CONFIGS}),
        lambda session, simulation: _reads_all(session.admin.configs(group_ids=[simulation.share_group])),
    ),
    "capture: configs of topics": (
        frozenset({TOPIC_CONFIGS}),
        lambda session, simulation: _reads_all(session.admin.configs(topics=[simulation.consumed.topic])),
    ),
    "verify: the list of groups": (
        frozenset({DESCRIBE_GROUPS}),
        lambda session, simulation: set(session.admin.list_groups()) == set(simulation.group_types),
    ),
    "verify: groups": (frozenset({DESCRIBE_GROUPS, DESCRIBE_TOPICS}), _describes_groups),
    "verify: committed offsets": (
        frozenset({DESCRIBE_GROUPS, DESCRIBE_TOPICS}),
        lambda session, simulation: _has_all(session.admin.committed_offsets([simulation.offsets_group])),
    ),
    "verify: share offsets": (frozenset({DESCRIBE_GROUPS, DESCRIBE_TOPICS}), _has_share_offsets),
    "verify: share states": (frozenset({CLUSTER_ACTION, DESCRIBE_TOPICS}), _has_share_states),
}
"""What a job asks -> the rights without which it is not answered, and whether it is."""


class Principals:
    """Users made as they are needed, one for each set of rights."""

    def __init__(self, broker: SecureBroker, folder: Path) -> None:
        self._broker = broker
        self._folder = folder
        self._files: dict[frozenset[Right], Path] = {}

    def address(self, rights: Iterable[Right]) -> BrokerAddress:
        """How the user logs in who has these rights and no other."""
        rights = frozenset(rights)
        if rights not in self._files:
            user = f"principal-{len(self._files)}"
            self._broker.ask({"do": "add_scram_user", "user": user, "password": user, "mechanism": "SCRAM-SHA-256"})
            for right in rights:
                self._broker.allow(user, right.resource, right.name, right.operation)
            settings = self._broker.client_settings(SASL, user=user, password=user, mechanism="SCRAM-SHA-256")
            self._files[rights] = self._broker.command_config(self._folder / f"{user}.properties", settings)
        return BrokerAddress(self._broker.address_of(SASL), str(self._files[rights]))

    def asks(self, rights: Iterable[Right], question: Question, simulation: Simulation) -> bool:
        """Is a question answered to who has these rights? A refusal is False, whatever form it has."""
        address = self.address(rights)
        with Broker.connect(address, timeout_ms=TIMEOUT_MS) as broker:
            try:
                return question(Session(address, broker), simulation)
            except BrokerError as error:
                assert "AUTHORIZATION_FAILED" in (error.code or "") or "ACL" in str(error), str(error)
                return False


@pytest.fixture(scope="module")
def principals(secure: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> Principals:
    """Users of the secured broker."""
    return Principals(secure, tmp_path_factory.mktemp("principals"))


@pytest.fixture(scope="module")
def simulation(secure: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    """As `admin` sees it, who may do anything."""
    folder = tmp_path_factory.mktemp("admin")
    file = secure.command_config(folder / "admin.properties", secure.client_settings(SASL, user="admin"))
    with Broker.connect(BrokerAddress(secure.address_of(SASL), str(file)), timeout_ms=TIMEOUT_MS) as broker:
        admin = Admin(broker)
        groups = {name: it.group_type for name, it in admin.list_groups().items()}
        offsets = admin.committed_offsets([name for name, its_type in groups.items() if its_type != "SHARE"])
        offsets_group, committed = next(
            (name, it) for name, it in offsets.items() if not isinstance(it, Refusal) and it
        )
        share_group = next(name for name, its_type in groups.items() if its_type == "SHARE")
        shares = admin.share_offsets([share_group])[share_group]
        assert not isinstance(shares, Refusal)
        shared = min(shares)
        consumed = admin.topics()[min(committed)[0]]
    key = SharePartitionKey(share_group, shared.topic_id, shared.partition)
    return Simulation(groups, consumed, offsets_group, share_group, key)


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_question_needs_its_rights(principals: Principals, simulation: Simulation, name: str) -> None:
    """With them it is answered, without any one of them it is not."""
    rights, question = QUESTIONS[name]
    assert principals.asks(rights, question, simulation)
    for right in rights:
        assert not principals.asks(rights - {right}, question, simulation), f"answered without {right}"


def _commands() -> list[list[str]]:
    """The kafka-acls commands of the documentation, as words."""
    text = (PROJECT_ROOT / "docs" / "sources.md").read_text().replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.startswith("kafka-acls ")]


def _rights(command: list[str]) -> set[Right]:
    pairs = list(pairwise(command))
    operations = [value for option, value in pairs if option == "--operation"]
    named = [(option[2:].upper(), value) for option, value in pairs if option in ("--topic", "--group")]
    if "--cluster" in command:
        named.append(("CLUSTER", "kafka-cluster"))
    upper = {"DescribeConfigs": "DESCRIBE_CONFIGS", "ClusterAction": "CLUSTER_ACTION"}
    return {Right(*it, upper.get(operation, operation.upper())) for it in named for operation in operations}


def test_the_documentation_names_the_rights() -> None:
    """All that the questions need, and no more."""
    needed = frozenset[Right]().union(*(rights for rights, _ in QUESTIONS.values()))
    named = set[Right]().union(*map(_rights, _commands()))
    assert named == needed


@takes_minutes
def test_the_documented_commands_are_right(
    secure: SecureBroker, home: KafkaHome, simulation: Simulation, tmp_path: Path, principals: Principals
) -> None:
    """Kafka's own tool takes them, and whoever has got these rights is answered every question."""
    user = "groupledger"
    secure.ask({"do": "add_scram_user", "user": user, "password": user, "mechanism": "SCRAM-SHA-256"})
    config = secure.command_config(tmp_path / "admin.properties", secure.client_settings(SASL, user="admin"))
    values = {"HOST:PORT": secure.address_of(SASL), "admin.properties": str(config)}
    for command in _commands():
        words = [values.get(word, word) for word in command[1:]]
        done = subprocess.run(
            home.command(COMMAND, *words), capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
    settings = secure.client_settings(SASL, user=user, password=user, mechanism="SCRAM-SHA-256")
    address = BrokerAddress(
        secure.address_of(SASL), str(secure.command_config(tmp_path / "client.properties", settings))
    )
    with Broker.connect(address, timeout_ms=TIMEOUT_MS) as broker:
        for name, (_, question) in QUESTIONS.items():
            assert question(Session(address, broker), simulation), name
