"""describe --state: who coordinates a group, as a live cluster says."""

import csv
import json
from pathlib import Path

import pytest

from coordinator_core.replay.lookup import group_partition
from jobs.cli.app import main
from jobs.delta.warehouse import Warehouse
from jobs.queries.as_of import coordinators
from jobs.settings import BrokerAddress
from jobs.sources.broker import Broker
from tests.jobs.fake_kafka import FakeKafka
from tests.jobs.history import CLUSTER, between, write

GROUPS = ("a", "b", "workers")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three groups, one of them a share group."""
    rows = [
        {"group_id": group_id, "group_type": "SHARE" if group_id == "workers" else "CLASSIC", "incarnation": 0}
        | {"generation": 1, "state": "Empty"}
        | between(1, None)
        for group_id in GROUPS
    ]
    write(Warehouse(str(tmp_path)), {"silver.group_generations": rows})
    return tmp_path


def describe(root: Path, *arguments: str) -> int:
    return main(["describe", "--warehouse", str(root), "--cluster-id", CLUSTER, *arguments])


def test_a_live_cluster_says_who_coordinates(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As kafka-consumer-groups --state prints it: the leader of the group's log partition, of as many as there are."""
    with FakeKafka(leaders=[1, 2, 3]) as kafka:
        options = ("--state", "--bootstrap-server", kafka.address)
        expected = {
            group_id: f"{kafka.address_of(number)}  ({number})"
            for group_id in GROUPS
            for number in [group_partition(group_id, 3) + 1]
        }
        assert len(set(expected.values())) > 1
        assert describe(root, *options, "--format", "json") == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {row["GROUP"]: row["COORDINATOR (ID)"] for row in rows} == expected
        assert describe(root, *options, "--format", "csv") == 0
        (first, *_) = csv.DictReader(capsys.readouterr().out.splitlines())
        assert first["COORDINATOR (ID)"] == expected[first["GROUP"]]
        assert describe(root, *options, "--tool", "share") == 0
        assert expected["workers"] in capsys.readouterr().out


def test_what_no_cluster_tells_is_not_shown(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log partition without a leader, a cluster without groups, and no cluster at all: `-`, and null in JSON."""
    monkeypatch.setattr(coordinators, "ELECTION_MS", 300)

    def shown(*options: str) -> dict[str, str | None]:
        assert describe(root, "--state", "--format", "json", *options) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return {row["GROUP"]: row["COORDINATOR (ID)"] for row in rows}

    assert shown() == dict.fromkeys(GROUPS)
    lost = group_partition("a", 3)
    with FakeKafka(leaders=[-1 if number == lost else 1 for number in range(3)]) as kafka:
        found = shown("--bootstrap-server", kafka.address)
        assert {group_id for group_id, it in found.items() if it is None} == {
            group_id for group_id in GROUPS if group_partition(group_id, 3) == lost
        }
        kafka.topics.clear()
        assert shown("--bootstrap-server", kafka.address) == dict.fromkeys(GROUPS)
    assert describe(root, "--state") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {tuple(words[:2]) for words in lines if words and words[0] in GROUPS} == {(name, "-") for name in GROUPS}


def test_a_broker_that_refuses_is_an_error(root: Path) -> None:
    """Only that a partition has no leader leaves the column empty; a topic that may not be seen is said."""
    with FakeKafka(leaders=[1]) as kafka:
        kafka.topic_error = 29
        assert describe(root, "--state", "--bootstrap-server", kafka.address) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--bootstrap-server", "h:1"), "use it with one of these"),
        (("--members", "--bootstrap-server", "h:1"), "use it with one of these"),
        (("--state", "--at", "2026-01-01T00:00:00Z", "--bootstrap-server", "h:1"), "without --at"),
        (("--state", "--command-config", "f"), "goes with --bootstrap-server: without it, it does nothing"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    root: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2, and no cluster is asked."""
    assert describe(root, *arguments) == 2
    assert said in capsys.readouterr().err


def test_no_topic_is_made_by_asking() -> None:
    """The metadata are asked, not FindCoordinator, by which brokers make a missing internal topic."""
    with FakeKafka(leaders=[1]) as kafka:
        kafka.on_any[10] = [lambda *_: pytest.fail("FindCoordinator was sent")]
        with Broker.connect(BrokerAddress(kafka.address)) as broker:
            assert coordinators.live_coordinators(broker, GROUPS) == dict.fromkeys(GROUPS, f"{kafka.address}  (1)")
