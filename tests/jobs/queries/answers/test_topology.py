"""describe --topology: topologies as brokers since Kafka 4.4 tell them, with bytes and texts of Kafka's own classes."""

import csv
import io
import json
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final

import pytest
from msgspec.structs import replace

from coordinator_core.bytes.codec import Struct, decode, encode, make
from jobs.cli.app import main
from jobs.errors import ArgumentError, BrokerError
from jobs.queries.answers import topology
from jobs.settings import load_settings
from jobs.sources.admin import Admin
from jobs.sources.admin_answers import GroupDescription, TopologyStatus
from jobs.sources.broker import OLD_BROKER, Broker
from schemas.admin_protocol import STREAMS_GROUP_DESCRIBE
from tests.conftest import PROJECT_ROOT
from tests.jobs.sources.test_admin import FakeBroker

STREAMS_GROUP_DESCRIBE_REQUEST, STREAMS_GROUP_DESCRIBE_RESPONSE = STREAMS_GROUP_DESCRIBE
VECTOR: Final = json.loads((PROJECT_ROOT / "tests/data/kafka-4.4/topology-description.json").read_text())
"""A topology with nodes of every kind and a global store; one that is not stored; one that the plugin fails to give."""
REQUEST, RESPONSE, TEXT = bytes.fromhex(VECTOR["request"]), bytes.fromhex(VECTOR["response"]), VECTOR["text"]
NAMES: Final = ("described", "none", "failed")
NOT_FOUND: Final = 69


def response(names: Sequence[str] = NAMES, version: int = 1) -> Struct:
    """Kafka's own answer, of some groups; an older broker's where the version is 0."""
    read = decode(STREAMS_GROUP_DESCRIBE_RESPONSE, RESPONSE, 1)
    groups = {it.group_id: it for it in read.groups}
    unknown = replace(groups["none"], error_code=NOT_FOUND)
    asked = tuple(groups.get(name, replace(unknown, group_id=name)) for name in names)
    if version:
        return replace(read, groups=asked)
    old: dict[str, Any] = {"topology_description": None, "topology_description_status": 0, "assignor_name": None}
    return replace(read, groups=tuple(replace(it, **old) for it in asked))


class FakeCluster(FakeBroker):
    """Streams groups that a broker of 4.4 describes, or one of before."""

    def __init__(self, newest_version: int = 1) -> None:
        super().__init__({"StreamsGroupDescribeRequest": self._described})
        self.newest_version = newest_version
        self.included: list[bool] = []

    def _described(self, request: Any, _: int | None) -> Struct:
        if request.min_version > self.newest_version:
            raise BrokerError("too old", code=OLD_BROKER)
        self.included.append(request._fields.include_topology_description)
        version = min(request.max_version, self.newest_version)
        request.API_VERSION = version
        assert request.encode()  # the version has all that is asked
        return response(request._fields.group_ids, version)


def shown(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeBroker, *names: str, output_format: str = "table"
) -> tuple[str, list[str]]:
    """What is printed, and said."""
    monkeypatch.setattr(Broker, "connect", lambda *_, **__: nullcontext(cluster))
    settings = load_settings({"bootstrap_servers": "h:1"}, environment={})
    out = io.StringIO()
    remarks = topology.run_topology(settings, group_ids=names, output_format=output_format, out=out)
    return out.getvalue(), remarks


def test_the_bytes_are_kafkas() -> None:
    """Request and response in version 1, to the last byte, and back."""
    asked = make(STREAMS_GROUP_DESCRIBE_REQUEST, group_ids=NAMES, include_topology_description=True)
    assert encode(STREAMS_GROUP_DESCRIBE_REQUEST, asked, 1) == REQUEST
    assert decode(STREAMS_GROUP_DESCRIBE_REQUEST, REQUEST, 1) == asked
    read = decode(STREAMS_GROUP_DESCRIBE_RESPONSE, RESPONSE, 1)
    assert encode(STREAMS_GROUP_DESCRIBE_RESPONSE, read, 1) == RESPONSE
    assert [it.topology_description_status for it in read.groups] == [3, 1, 2]


def test_a_topology_is_printed_as_kafkas_tool_prints_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one group the very text; of one that has none it is said why."""
    assert shown(monkeypatch, FakeCluster(), "described") == (TEXT + "\n", [])
    text, remarks = shown(monkeypatch, FakeCluster(), *NAMES)
    assert text == f"Streams group 'described'\n{TEXT}\n"
    assert [it.partition(":")[0] for it in remarks] == ["failed", "none"]
    assert "could not fetch" in remarks[0] and "is stored" in remarks[1]


def test_rows_have_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its place, what it reads and writes, and its neighbours; the same rows as JSON and as CSV."""
    as_json, _ = shown(monkeypatch, FakeCluster(), "described", output_format="json")
    as_csv, _ = shown(monkeypatch, FakeCluster(), "described", output_format="csv")
    rows = {row["NODE"]: row for row in map(json.loads, as_json.splitlines())}
    assert [row["NODE"] for row in csv.DictReader(as_csv.splitlines())] == list(rows)
    assert (len(rows), {row["TOPOLOGY-EPOCH"] for row in rows.values()}) == (11, {3})
    found = rows["b-sink"]
    assert (found["TYPE"], found["TOPICS"], found["PREDECESSORS"]) == ("SINK", "out", "a-source, b-source")
    of_store = rows["global-processor"]
    assert (of_store["SUBTOPOLOGY"], of_store["IS-GLOBAL"], of_store["STORES"]) == ("2", True, "countries-store")


def test_an_older_broker_is_asked_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """By version 0, which has no such field: all else of the group is there, and that its broker tells no topology."""
    cluster = FakeCluster(newest_version=0)
    (described,) = Admin(cluster).describe_groups({"described": "STREAMS"}).values()
    assert isinstance(described, GroupDescription)
    assert (described.group_epoch, described.topology_epoch) == (7, 3)
    assert (described.topology_status, cluster.included) == (TopologyStatus.NOT_REQUESTED, [False])
    assert shown(monkeypatch, cluster, "described")[1] == [
        "described: its broker sends no topology description: brokers do since Kafka 4.4"
    ]


def test_a_status_of_a_newer_release_is_none_that_is_known() -> None:
    """It does not end the job."""
    assert TopologyStatus(9) is TopologyStatus.NOT_REQUESTED


def test_a_group_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which was asked for by name."""
    monkeypatch.setattr(Admin, "list_groups", lambda _: ["somebody", "others"])
    with pytest.raises(ArgumentError, match=r"there is no group 'nobody' \(did you mean 'somebody'\?\) in the cluster"):
        shown(monkeypatch, FakeCluster(), "nobody")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--topology"], "needs --bootstrap-server"),
        (["--topology", "--state", "--bootstrap-server", "h:1"], "exclude each other"),
        (["--topology", "--tool", "share", "--bootstrap-server", "h:1"], "streams groups only"),
        (["--topology", "--at", "2026-01-01T00:00:00Z", "--bootstrap-server", "h:1"], "without --at"),
    ],
)
def test_options_that_do_not_go_together(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody is asked."""
    assert main(["describe", *options]) == 2
    assert said in capsys.readouterr().err
