"""Topologies that streams applications described to a broker of Kafka 4.4 (KIP-1331)."""

import io
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from coordinator_core.history.comparison_with_broker import Reason, Verdict
from jobs.queries.answers.topology import run_topology
from tests.jobs.in_process import in_process
from tests.lengths import is_long, takes_minutes
from tests.live.broker import CLIENT_SETTINGS
from tests.live.clients import LiveClients
from tests.live.kafka_home import KafkaHome, clients_home
from tests.live.ledger import Ledger
from tests.live.program import ProgramError
from tests.live.release import ReleasedBroker, ReleaseHome, release_home
from tests.live.test_verify import settings_of, unequal, verified
from tests.maven import Unavailable

VERSION: Final = "4.4.0"
IN_MEMORY: Final = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"
PLUGIN: Final = {"group.streams.topology.description.plugin.class": IN_MEMORY}
TOOL: Final = "org.apache.kafka.tools.streams.StreamsGroupCommand"
SEED: Final = 7
DESCRIBED_TIMEOUT_S: Final = 60


@pytest.fixture(scope="module")
def homes() -> Iterator[tuple[ReleaseHome, KafkaHome]]:
    """Of the broker, and of clients and tools."""
    try:
        yield release_home(VERSION), clients_home(VERSION)
    except Unavailable as error:
        if is_long():
            raise
        pytest.skip(str(error))


def shown(address: str, warehouse: Path, group_id: str) -> tuple[str, list[str]]:
    """What describe --topology prints, and says."""
    out = io.StringIO()
    remarks = run_topology(settings_of(address, warehouse), group_ids=[group_id], output_format="table", out=out)
    return out.getvalue(), remarks


@takes_minutes
def test_a_topology_that_an_application_described(homes: tuple[ReleaseHome, KafkaHome], tmp_path: Path) -> None:
    """describe prints what Kafka's own tool prints, and verify finds the broker and the log at one, also in a group
    without a description; a plugin that lost it does not make the log wrong."""
    broker_home, home = homes
    with ReleasedBroker(broker_home, tmp_path / "broker", settings={**CLIENT_SETTINGS, **PLUGIN}) as broker:
        address = broker.address
        with LiveClients(home, tmp_path / "clients", address) as clients:
            (group_id,) = clients.play(SEED, ["streams"], ("start", "settle", "process", "settle"))
            deadline = time.monotonic() + DESCRIBED_TIMEOUT_S
            while not shown(address, tmp_path, group_id)[0] and time.monotonic() < deadline:
                time.sleep(0.5)
            text, remarks = shown(address, tmp_path, group_id)
            of_kafka = tool(home, address, group_id)
            first = verified(address, tmp_path / "first", lambda: ledger(tmp_path / "first", address))
            clients.kill()
        broker.upgrade(broker_home)
        lost = shown(address, tmp_path, group_id)
        second = verified(address, tmp_path / "second", lambda: ledger(tmp_path / "second", address))
    assert (text, remarks) == (of_kafka, [])
    assert "Sub-topology: 1" in text
    assert (first[0], unequal(first[1])) == (Verdict.EQUAL, [])
    assert lost[0] == "" and len(lost[1]) == 1
    assert {(row["GROUP"], row["FIELD"], row["REASON"]) for row in unequal(second[1])} <= {
        (group_id, "topology description", Reason.DESCRIPTION_NOT_KEPT),
        (group_id, "state", Reason.STREAMS_NOT_READY),
    }


def ledger(root: Path, address: str) -> None:
    """Capture and replay."""
    Ledger(in_process(), root, bootstrap_servers=address)


def tool(home: KafkaHome, address: str, group_id: str) -> str:
    """What kafka-streams-groups prints. Raises ProgramError."""
    command = home.command(TOOL, "--bootstrap-server", address, "--describe", "--topology", "--group", group_id)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DESCRIBED_TIMEOUT_S)
    if done.returncode:
        raise ProgramError(f"{TOOL} fails:\n{done.stdout}{done.stderr}")
    return done.stdout
