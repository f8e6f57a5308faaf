"""Brokers of other releases: they are asked what they know, and the ledger is what they say of groups."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Final

import pytest

from coordinator_core.history.comparison_with_broker import Reason, Verdict
from jobs.bronze.cluster_watch import watch_once
from jobs.cli_enums import View
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers.owner import run_owner
from jobs.settings import BrokerAddress
from jobs.sources.api_request import ApiRequest
from jobs.sources.broker import Broker, Coordinator
from jobs.sources.client.known_settings import CONNECTION, OTHER, SECURITY
from schemas.admin_protocol import DELETE_GROUPS
from schemas.tables.bronze import CONFIGS, END_OFFSETS
from schemas.tables.bronze import TOPICS as TOPICS_TABLE
from schemas.tables.silver import GROUP_EVENTS
from tests.answers import describe
from tests.jobs.in_process import in_process
from tests.lengths import is_long
from tests.live.broker import CLIENT_SETTINGS
from tests.live.clients import LiveClients
from tests.live.kafka_home import HERE, KafkaHome
from tests.live.ledger import CLUSTER_ID, Ledger
from tests.live.release import ReleasedBroker, ReleasedClients, ReleaseHome, release_home
from tests.live.test_verify import settings_of, unequal, verified
from tests.maven import Unavailable, jdk_tool

SEED: Final = 7
PARTITIONS: Final = 3
CLASSIC: Final = ("classic-range", "classic-static", "classic-cooperative", "offsets", "transactions")
CONSUMER: Final = (*CLASSIC, "consumer-uniform", "consumer-static", "mixed")
SHARE: Final = (*CONSUMER, "share")
STREAMS: Final = (*SHARE, "streams")
MEMBERS: Final = ("join", "consume", "join", "consume", "transact", "leave", "consume", "settle")
ACTS: Final[Mapping[str, Sequence[str]]] = {
    "offsets": ("commit", "alter", "delete offsets", "commit", "create topic", "commit", "delete topic", "settle"),
    "transactions": ("commit", "abort", "plain", "open", "commit", "settle"),
    "share": ("join", "accept", "mix", "release", "mix", "settle"),
    "streams": ("start", "settle", "process", "start", "settle"),
}
"""By kind; else what members do."""


@dataclass(frozen=True)
class Release:
    """A broker as its release comes, with what it has of groups."""

    version: str
    kinds: Sequence[str] = CLASSIC
    settings: Mapping[str, str] = field(default_factory=dict)
    features: Sequence[str] = ()
    zookeeper: bool = False
    notes: Sequence[str] = ()
    """What a capture says that the cluster does not tell."""

    def __str__(self) -> str:
        return f"{self.version}-zookeeper" if self.zookeeper else self.version

    def home(self) -> ReleaseHome:
        """Fetched; the test is skipped where it cannot be had."""
        try:
            return release_home(self.version)
        except Unavailable as error:
            if is_long():
                raise
            pytest.skip(str(error))


NO_LIST_OF_CONFIGURED: Final = (
    "the cluster refused: which groups have configs: UNSUPPORTED_VERSION: the broker knows the request "
    "ListConfigResources in versions 0 to 0, and is asked in versions 1 to 1"
)
RELEASES: Final = (
    Release("4.4.0", STREAMS),
    Release("4.2.0", STREAMS),
    Release("4.1.1", SHARE, {"unstable.feature.versions.enable": "true"}, ("share.version=1",)),
    Release("4.0.0", CONSUMER, notes=(NO_LIST_OF_CONFIGURED,)),
    Release("3.9.1"),
    Release("3.9.1", zookeeper=True),
    Release("3.7.2"),
    Release("3.5.2"),
    Release("2.8.2"),
)
REFUSED_REQUESTS: Final = ("Error processing describe configs", "Unexpected resource type", "InvalidRequestException")
"""What brokers log of a request that they do not take."""


EARLY_ACCESS: Final = Release(
    "3.7.2",
    settings={
        "auto.create.topics.enable": "true",
        "num.partitions": str(PARTITIONS),
        "group.coordinator.new.enable": "true",
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "unstable.api.versions.enable": "true",
    },
)
"""Consumer groups before they were released (KIP-848)."""


@pytest.mark.parametrize("version", ["4.3.1", "4.4.0"])
def test_every_setting_of_its_clients_is_known(version: str) -> None:
    """A client's file that its own tools take is not refused, since its Java classes have no other names."""
    home = Release(version).home()
    words = (jdk_tool("java"), "-cp", f"{home.jars}/*", str(HERE / "java" / "settings" / "ClientSettings.java"))
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    assert "sasl.jaas.config" in names
    assert names - (SECURITY | CONNECTION | OTHER) == set()


def test_groups_of_early_access_are_not_taken_for_others(tmp_path: Path) -> None:
    """Kafka 3.7 answers ConsumerGroupDescribe, and writes records, in forms of its own: verify cannot tell of that
    group, and finds no difference in the rest; owner says that records of it could not be read."""
    root, settings = tmp_path / "warehouse", {**CLIENT_SETTINGS, **EARLY_ACCESS.settings}
    with (
        ReleasedBroker(EARLY_ACCESS.home(), tmp_path / "broker", settings=settings) as broker,
        ReleasedClients(broker) as clients,
    ):
        clients.ask("produce", topic="t", partitions=PARTITIONS, count=9)
        for group_id, protocol in (("early", "consumer"), ("plain", "classic")):
            clients.ask("join", client=f"{group_id}-1", group=group_id, topic="t", protocol=protocol)
            clients.ask("consume", client=f"{group_id}-1", count=9)
        worst, rows = verified(
            broker.address, root, lambda: Ledger(in_process(), root, bootstrap_servers=broker.address)
        )
    (unknown,) = unequal(rows)
    assert (worst, unknown["GROUP"], unknown["WHAT"]) == (Verdict.CANNOT_TELL, "early", "group")
    assert unknown["REASON"].startswith(
        "UNREADABLE_ANSWER: the broker answers ConsumerGroupDescribe version 0 in a form"
    )
    notes = {it.group.group_id: it.note for it in describe(Warehouse(str(root)), CLUSTER_ID, view=View.STATE)}
    (said,) = run_owner(
        ClusterTables(Warehouse(str(root)), CLUSTER_ID),
        topic="t",
        partition=0,
        at_ms=None,
        output_format="table",
        out=StringIO(),
    )
    assert said.startswith("early may have owned it: ")
    assert notes.keys() == {"early", "plain"}


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_the_ledger_of_a_release_is_what_its_broker_says(release: Release, home: KafkaHome, tmp_path: Path) -> None:
    """Groups of all kinds that it has, with rebalances, transactions, and deleted offsets behind them: all is equal.
    Configs and ends of topics are there, and the broker logs no request that it refused."""
    root = tmp_path / "warehouse"
    with (
        ReleasedBroker(
            release.home(),
            tmp_path / "broker",
            settings={**CLIENT_SETTINGS, **release.settings},
            features=release.features,
            zookeeper=release.zookeeper,
        ) as broker,
        LiveClients(home, tmp_path / "clients", broker.address) as clients,
    ):
        played = clients.play(SEED, [kind for kind in release.kinds if kind not in ACTS], MEMBERS)
        for kind in release.kinds:
            if kind in ACTS:
                played = clients.play(SEED, [kind], ACTS[kind])
        worst, rows = verified(
            broker.address, root, lambda: Ledger(in_process(), root, bootstrap_servers=broker.address)
        )
        notes = watch_once(Warehouse(str(root)), settings_of(broker.address, root), datetime.now(UTC))
        said = broker.log.read_text(errors="replace")
    assert (worst, unequal(rows)) == (Verdict.EQUAL, [])
    assert {row["GROUP"] for row in rows if row["WHAT"] == "group"} >= played.keys()
    of_shares = {"share-offset", "share-state"} if "share" in release.kinds else set()
    assert {row["WHAT"] for row in rows} == {"group", "member", "assignment", "offset"} | of_shares
    assert notes == release.notes
    assert not [line for line in said.splitlines() if any(words in line for words in REFUSED_REQUESTS)]
    warehouse = Warehouse(str(root))
    topics = {row["OF"].rpartition("-")[0] for row in rows if row["WHAT"] == "offset"}
    configs = warehouse.read(CONFIGS, where={"cluster_id": CLUSTER_ID}).to_pylist()
    assert {row["resource_name"] for row in configs if row["resource_type"] == "TOPIC"} >= topics
    assert {row["topic"] for row in warehouse.read(END_OFFSETS).to_pylist()} >= topics
    assert {row["topic"] for row in warehouse.read(TOPICS_TABLE).to_pylist()} >= topics


OLD_COORDINATOR: Final = Release("3.5.2", settings={"auto.create.topics.enable": "true"})
CLEANED_UP_S: Final = 3
"""Some rounds of the check."""


@pytest.mark.parametrize(("check_interval_ms", "has_dropped"), [("500", True), ("600000", False)])
def test_groups_that_aborted_transactions_leave_empty_are_those_that_the_broker_drops(
    tmp_path: Path, check_interval_ms: str, has_dropped: bool
) -> None:
    """Kafka before 4.0 drops a group of offsets only that has none after a transaction, and writes nothing of it: the
    ledger lists the groups that the broker lists, once it has dropped them; before, verify says why it does not."""
    root = tmp_path / "warehouse"
    acts = {
        "aborted": ("abort",),
        "committed": ("commit",),
        "aborted-then-committed": ("abort", "commit"),
        "committed-then-aborted": ("commit", "abort"),
        "aborted-twice": ("abort", "abort"),
        "plain-and-aborted": ("plain", "abort"),
        "member-and-aborted": ("member", "abort"),
    }
    with (
        ReleasedBroker(
            OLD_COORDINATOR.home(),
            tmp_path / "broker",
            settings={
                **CLIENT_SETTINGS,
                **OLD_COORDINATOR.settings,
                "offsets.retention.check.interval.ms": check_interval_ms,
            },
        ) as broker,
        ReleasedClients(broker) as clients,
    ):
        clients.ask("produce", topic="t", partitions=1, count=9)
        for group_id, ends in acts.items():
            for end in ends:
                if end == "plain":
                    clients.ask("commit", group=group_id, topic="t", partition=0, offset=4)
                elif end == "member":
                    clients.ask("join", client=group_id, group=group_id, topic="t", protocol="classic")
                    clients.ask("leave", client=group_id)
                else:
                    clients.ask("transact", id=group_id, group=group_id, topic="t", partition=0, offset=5, end=end)
        time.sleep(CLEANED_UP_S)
        said = broker.tool("kafka.admin.ConsumerGroupCommand", "--bootstrap-server", broker.address, "--list")
        worst, rows = verified(
            broker.address, root, lambda: Ledger(in_process(), root, bootstrap_servers=broker.address)
        )
    listed = set(said.split()) & acts.keys()
    shown = {it.group.group_id for it in describe(Warehouse(str(root)), CLUSTER_ID, view=View.STATE)}
    with_offsets = {"committed", "aborted-then-committed", "committed-then-aborted", "plain-and-aborted"}
    left_empty = {"aborted", "aborted-twice"}
    assert {(row["GROUP"], row["REASON"]) for row in unequal(rows)} == (
        set() if has_dropped else {(group_id, Reason.NOT_DROPPED_YET) for group_id in left_empty}
    )
    assert worst == (Verdict.EQUAL if has_dropped else Verdict.NOT_IN_LOG)
    # the broker drops the group that had a member with a tombstone
    assert listed == (with_offsets if has_dropped else acts.keys())
    assert shown == listed - left_empty


NON_EMPTY_GROUP: Final = 68
GROUP_ID_NOT_FOUND: Final = 69
DELETED_KINDS: Final = ("classic-range", "consumer-uniform", "share", "streams", "offsets")
EMPTY_TIMEOUT_S: Final = 60
"""Sessions of members that are killed take 6 s, of the classic protocol up to 45."""


def deleted(address: str, *group_ids: str) -> dict[str, tuple[int, str | None]]:
    """What version 3 of DeleteGroups, which Kafka 4.4 has, answers for each group: code and text."""
    with Broker.connect(BrokerAddress(address)) as broker:
        found = {}
        for group_id in group_ids:
            request = ApiRequest(DELETE_GROUPS, groups_names=(group_id,))
            (result,) = broker.send(request, Coordinator(group_id)).results
            assert request.API_VERSION == 3
            found[group_id] = (result.error_code, result.error_message)
        return found


def test_groups_that_a_client_deletes_are_deleted_in_the_ledger(home: KafkaHome, tmp_path: Path) -> None:
    """By DeleteGroups version 3 of Kafka 4.4, groups of every type: each ends as GROUP_DELETED, one that refuses does
    not, and verify finds no difference before and after."""
    release = RELEASES[0]
    root = tmp_path / "warehouse"
    with ReleasedBroker(
        release.home(), tmp_path / "broker", settings={**CLIENT_SETTINGS, **release.settings}
    ) as broker:
        with LiveClients(home, tmp_path / "clients", broker.address) as clients:
            played = clients.play(SEED, ["classic-range", "consumer-uniform"], ("join", "consume", "settle"))
            for kind in DELETED_KINDS[2:]:
                played = clients.play(SEED, [kind], ACTS[kind])
            kinds = {group.kind: group_id for group_id, group in played.items()}
            refused = deleted(broker.address, kinds["consumer-uniform"], "nobody")
            assert refused[kinds["consumer-uniform"]][0] == NON_EMPTY_GROUP
            assert refused["nobody"][0] == GROUP_ID_NOT_FOUND
            clients.kill()
        with LiveClients(home, tmp_path / "others", broker.address) as others:
            (stays,) = others.play(SEED + 1, ["consumer-range"], ("join", "consume", "settle"))
            deadline = time.monotonic() + EMPTY_TIMEOUT_S
            waiting = {kinds[kind] for kind in DELETED_KINDS}
            while waiting and time.monotonic() < deadline:
                answers = deleted(broker.address, *sorted(waiting))
                waiting = {group_id for group_id, (code, _) in answers.items() if code}
                assert {code for code, _ in answers.values()} <= {0, NON_EMPTY_GROUP}, answers
                time.sleep(1)
            assert not waiting
            assert deleted(broker.address, stays)[stays][0] == NON_EMPTY_GROUP
            worst, rows = verified(
                broker.address, root, lambda: Ledger(in_process(), root, bootstrap_servers=broker.address)
            )
    assert (worst, unequal(rows)) == (Verdict.EQUAL, [])
    ended = {
        row["group_id"]
        for row in Warehouse(str(root)).read(GROUP_EVENTS).to_pylist()
        if row["event_type"] == "GROUP_DELETED"
    }
    assert ended == {kinds[kind] for kind in DELETED_KINDS}
    shown = {it.group.group_id for it in describe(Warehouse(str(root)), CLUSTER_ID, view=View.STATE)}
    assert shown == {stays}
