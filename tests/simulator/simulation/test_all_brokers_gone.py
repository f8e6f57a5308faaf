"""Clusters of which for a while no broker is there."""

import pytest

from tests.simulator.simulation.simulations import run_text

GROUPS = "".join(
    f'[[group]]\nname = "{protocol}"\nprotocol = "{protocol}"\ntopics = ["t"]\nmembers = 2\n'
    for protocol in ("classic", "consumer", "share")
)


def failover(broker: int, duration: str) -> str:
    return (
        f'[[fault]]\nkind = "broker_failover"\nat = "{60 + 3 * broker}s"\nbroker = {broker}\nduration = "{duration}"\n'
    )


@pytest.mark.parametrize("duration", ["20s", "40s", "1h"])
def test_the_last_in_sync_leads_when_it_is_back(duration: str) -> None:
    """Logs and truth end together, with all groups, though the clock may stop while nobody leads."""
    faults = "".join(failover(broker, duration) for broker in (1, 2, 3))
    run = run_text(GROUPS + faults, minutes=3)
    ends = {(line["topic"], line["partition"]): line["end_offset"] for line in run.lines("log_ends")}
    assert ends == {(log.topic, log.partition): log.end_offset for log, _ in run.simulation.logs()}
    groups = {line["group"]: line["state"]["group"]["members"] for line in run.lines("end")}
    assert {group: len(members) for group, members in groups.items()} == {"classic": 2, "consumer": 2, "share": 2}
    commits = [line["ts_ms"] - run.simulation.scenario.start_ms for line in run.lines("commits")]
    assert any(at_ms < 60_000 for at_ms in commits)
    assert any(at_ms > 140_000 for at_ms in commits) == (duration != "1h")
