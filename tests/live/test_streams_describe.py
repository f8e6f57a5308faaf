"""describe of a streams group against kafka-streams-groups, at brokers of two releases."""

import io
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from jobs.cli_enums import View
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers.describe import run_describe
from jobs.queries.as_of.logged_coordinators import logged_coordinators
from tests.conformance.recordings import make_warehouse_of
from tests.jobs.in_process import in_process
from tests.live.broker import CLIENT_SETTINGS
from tests.live.clients import LiveClients
from tests.live.kafka_home import KafkaHome, clients_home
from tests.live.ledger import CLUSTER_ID
from tests.live.release import ReleasedBroker, release_home
from tests.maven import Unavailable

TOOL: Final = "org.apache.kafka.tools.streams.StreamsGroupCommand"
TOOL_TIMEOUT_S: Final = 60
SEED: Final = 7
ACTS: Final = ("start", "settle", "process", "start", "settle", "process", "settle")
SAMPLE_AGE_MAX_MS: Final = 10**12
"""Captures of the tests have a date of their own."""
STANDBYS: Final = {"group.streams.num.standby.replicas": 1}


@pytest.mark.parametrize("version", ["4.3.1", "4.4.0"])
def test_a_streams_group_is_described_as_kafkas_tool_describes_it(version: str, tmp_path: Path) -> None:
    """Every character of every view, but for blank lines and the order of rows, which in Kafka is that of hash tables;
    lag is that of the ends that were sampled."""
    try:
        broker_home, home = release_home(version), clients_home(version)
    except Unavailable as error:
        pytest.skip(str(error))
    views = [(view, verbose) for view in View for verbose in (False, True)]
    with (
        ReleasedBroker(broker_home, tmp_path / "broker", settings={**CLIENT_SETTINGS, **STANDBYS}) as broker,
        LiveClients(home, tmp_path / "clients", broker.address) as clients,
    ):
        (group_id,) = clients.play(SEED, ["streams"], ACTS)
        sources = {"segments": (str(broker.data),), "bootstrap_servers": broker.address}
        make_warehouse_of(in_process(), tmp_path / "warehouse", cluster_id=CLUSTER_ID, **sources)
        of_kafka = [printed(home, broker.address, group_id, view, verbose) for view, verbose in views]
        tables = ClusterTables(Warehouse(str(tmp_path / "warehouse")), CLUSTER_ID)
        ours = [described(tables, group_id, view, verbose) for view, verbose in views]
    assert ours == of_kafka
    assert any("STANDBY: " in line for line in of_kafka[views.index((View.MEMBERS, False))])


def described(tables: ClusterTables, group_id: str, view: View, verbose: bool) -> Sequence[str]:
    """The lines of describe."""
    out = io.StringIO()
    run_describe(
        tables,
        view=view,
        at_ms=None,
        group_ids=[group_id],
        tool=None,
        verbose=verbose,
        output_format="table",
        sample_age_max_ms=SAMPLE_AGE_MAX_MS,
        coordinators=partial(logged_coordinators, tables, None),
        out=out,
    )
    return lines(out.getvalue())


def printed(home: KafkaHome, address: str, group_id: str, view: View, verbose: bool) -> Sequence[str]:
    """Those of the tool."""
    words = ("--bootstrap-server", address, "--describe", "--group", group_id, f"--{view}")
    command = home.command(TOOL, *words, *(["--verbose"] if verbose else []))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TOOL_TIMEOUT_S)
    return lines(done.stdout)


def lines(text: str) -> Sequence[str]:
    """Sorted, without blank ones and without blanks at the end."""
    return sorted(line.rstrip() for line in text.splitlines() if line.strip())
