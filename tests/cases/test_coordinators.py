"""describe --state: who coordinated a group, as the metadata log of that time says."""

import json
from pathlib import Path

from coordinator_core.replay.lookup import group_partition
from jobs.cli_enums import View
from jobs.laboratory.simulate import simulate
from jobs.queries.answers.describe import run_describe
from tests.answers import printed
from tests.cases.harness import CASES, Ledger
from tests.simulator.simulation.simulations import HEAD


def states(ledger: Ledger, at_ms: int | None) -> dict[str, str | None]:
    """Group -> COORDINATOR (ID) at a time."""
    lines, _ = printed(run_describe, ledger.tables, "json", view=View.STATE, at_ms=at_ms)
    return {row["GROUP"]: row["COORDINATOR (ID)"] for row in map(json.loads, lines.splitlines())}


def test_the_metadata_log_of_a_real_cluster_says_who_coordinated(ledger: Ledger) -> None:
    """A log of Kafka 4.4: its one broker led all partitions until it was stopped, and none since."""
    assert ledger.night(CASES / "kafka-4.4" / "logs").exit_code == 0
    stopped_ms = 1_795_601_966_371
    before, since = states(ledger, stopped_ms - 1), states(ledger, stopped_ms)
    # kafka-streams-groups prints one space, the other tools two
    assert {" ".join((it or "").split()) for it in before.values()} == {"127.0.0.1:34730 (1)"}
    assert since == dict.fromkeys(before) and before
    assert states(ledger, None) == since


def test_a_metadata_log_says_who_coordinated_when(ledger: Ledger, tmp_path: Path) -> None:
    """Before a broker died, while another led, and since the first one leads again."""
    fault = '[[fault]]\nkind = "broker_failover"\nat = "2m"\nbroker = {}\nduration = "60s"\n'
    group = '[[group]]\nname = "g"\ntopics = ["t"]\n'
    first = group_partition("g", 3) + 1
    scenario = tmp_path / "failover.toml"
    scenario.write_text(HEAD.format(minutes=5) + group + fault.format(first))
    simulate(str(scenario), str(tmp_path / "out"))
    assert ledger.night(tmp_path / "out" / "logs").exit_code == 0
    start_ms = 1_767_600_000_000
    then = first % 3 + 1
    found = {second: states(ledger, start_ms + second * 1000)["g"] for second in (60, 121, 123, 180, 189, 191)}
    of = {broker: f"broker-{broker}:9092  ({broker})" for broker in (first, then)}
    assert found == {60: of[first], 121: of[first], 123: of[then], 180: of[then], 189: of[then], 191: of[first]}
    assert states(ledger, None)["g"] == of[first]
