"""where: the log partition of a key is the one where the coordinators wrote of it, and its leader the coordinator."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.replay.lookup import SharePartitionKey, share_partition_partition
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError, JobError
from jobs.laboratory.simulate import simulate
from jobs.queries.answers.where import Asked, find, run_where
from jobs.settings import Settings, load_settings
from tests.cases.harness import Ledger
from tests.jobs.fake_kafka import FakeKafka
from tests.simulator.simulation.simulations import HEAD

GROUPS = """
[[group]]
name = "plain"
topics = ["t"]
[[group]]
name = "a:b"
protocol = "share"
topics = ["t"]
[[group]]
name = "paying"
topics = ["t"]
commits = "transactional"
"""


def settings_of(**values: Any) -> Settings:
    return load_settings({"warehouse": "nowhere", "cluster_id": "case", **values}, environment={})


def no_ledger() -> ClusterTables:
    raise AssertionError("no table is needed")


def test_keys_are_where_the_coordinators_wrote_of_them(tmp_path: Path) -> None:
    """A group, a share partition and a transactional id, from the numbers of partitions in the metadata log."""
    scenario = tmp_path / "where.toml"
    scenario.write_text(HEAD.format(minutes=2) + GROUPS)
    simulate(str(scenario), str(tmp_path / "out"))
    ledger = Ledger(tmp_path / "warehouse")
    assert ledger.night(tmp_path / "out" / "logs").exit_code == 0
    asked = Asked(["plain", "a:b"], ["a:b:t:2"], ["paying-0"])
    places = find(asked, ledger.settings(), lambda: ledger.tables)
    found = {place.key: place for place in places}
    assert [place.key for place in places] == ["plain", "a:b", "a:b:t:2", "paying-0"]
    written = {row["group_id"]: row["log_partition"] for row in ledger.rows("silver.group_generations")}
    assert {key: found[key].partition for key in ("plain", "a:b")} == {key: written[key] for key in ("plain", "a:b")}
    (share,) = {row["log_partition"] for row in ledger.rows("silver.share_partition_states") if row["partition"] == 2}
    assert (found["a:b:t:2"].topic, found["a:b:t:2"].partition) == ("__share_group_state", share)
    lines = (tmp_path / "out" / "truth" / "log_ends.jsonl").read_text().splitlines()
    (logged,) = [
        end["partition"]
        for end in map(json.loads, lines)
        if end["topic"] == "__transaction_state" and end["end_offset"]
    ]
    assert found["paying-0"].partition == logged
    assert {place.learned_from for place in places} == {"CLUSTER_METADATA"}
    assert {place.coordinator for place in places} == {None}
    out = StringIO()
    assert run_where(asked, ledger.settings(), lambda: ledger.tables, "json", out) == []
    said = run_where(Asked(["plian"]), ledger.settings(), lambda: ledger.tables, "json", out)
    assert said == ["group plian is in no table: this is where it would be"]
    assert len(out.getvalue().splitlines()) == len(places) + 1
    with pytest.raises(ArgumentError, match=r"^topic 't' has no partition 99: it has 0 to \d$"):
        find(Asked(shares=["a:b:t:99"]), ledger.settings(), lambda: ledger.tables)


def test_a_topic_id_needs_no_tables(tmp_path: Path) -> None:
    """With the id of the topic and the number of partitions the answer is arithmetic, in an empty folder as well."""

    def nothing() -> ClusterTables:
        raise JobError("no tables")

    for ledger in (nothing, lambda: ClusterTables(Warehouse(str(tmp_path)), "case")):
        asked = Asked(shares=["w:AAAAAAAAAAAAAAAAAAAAAQ:0"])
        (place,) = find(asked, settings_of(partitions=("__share_group_state=50",)), ledger)
        assert place.partition == share_partition_partition(SharePartitionKey("w", "AAAAAAAAAAAAAAAAAAAAAQ", 0), 50)
    with pytest.raises(JobError, match="no tables"):
        find(Asked(shares=["w:jobs:0"]), settings_of(partitions=("__share_group_state=50",)), nothing)


def test_a_live_cluster_says_who_coordinates() -> None:
    """Its number of partitions counts, and the leader of the partition is the coordinator."""
    with FakeKafka(leaders=[1, 2, 3]) as kafka:
        settings = settings_of(bootstrap_servers=kafka.address, partitions=("__consumer_offsets=50",))
        out = StringIO()
        run_where(Asked(groups=["orders"]), settings, no_ledger, "json", out)
        answer = json.loads(out.getvalue())
        assert (answer["PARTITIONS"], answer["LEARNED-FROM"]) == (3, "CLUSTER")
        assert answer["COORDINATOR"].startswith(f"{answer['PARTITION'] + 1} (")
        with pytest.raises(JobError, match="the cluster has no topic __transaction_state yet"):
            find(Asked(transactional_ids=["x"]), settings, no_ledger)


@pytest.mark.parametrize(
    "text", ["workers", "workers:jobs", ":jobs:0", "workers::0", "workers:jobs:-1", "w:j:99999999999"]
)
def test_a_share_partition_is_named_by_group_topic_and_partition(text: str) -> None:
    """Anything else is a wrong argument, which says how to write it."""
    with pytest.raises(ArgumentError, match="write GROUP:TOPIC:PARTITION"):
        find(Asked(shares=[text]), settings_of(), no_ledger)


def test_what_nothing_tells_is_asked_for(tmp_path: Path) -> None:
    """Without a cluster, a metadata log and a number there is no answer, and never a guess of 50."""
    with pytest.raises(JobError, match="--partitions __consumer_offsets=50"):
        find(Asked(groups=["g"]), settings_of(), lambda: ClusterTables(Warehouse(str(tmp_path)), "case"))
    with pytest.raises(ArgumentError, match="say what to look for"):
        find(Asked(), settings_of(), no_ledger)
