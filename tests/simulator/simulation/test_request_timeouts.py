"""Clients that give up a request: when, how they go on, and what the coordinator makes of a second JoinGroup."""

import pytest

from simulator.simulation.cluster import Cluster
from simulator.simulation.process import Process
from tests.simulator.simulation.simulations import Run, run_file

SECOND_MS = 1000


@pytest.fixture(scope="module")
def joins() -> list[tuple[str, str, int]]:
    """(client id, member id, time) of each JoinGroup that reached a coordinator; filled by `run`."""
    return []


@pytest.fixture(scope="module")
def run(joins: list[tuple[str, str, int]]) -> Run:
    """The shipped scenario."""
    deliver = Cluster.deliver

    def noting(cluster: Cluster, process: Process, broker_id: int, send: object) -> None:
        request = getattr(send, "request", None)
        if getattr(send, "operation", "") == "classic_join":
            joins.append((process.client_id, request.member_id, cluster._loop.now_ms))  # type: ignore[union-attr]
        deliver(cluster, process, broker_id, send)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "deliver", noting)
        return run_file("slow-member")


def test_a_join_is_given_up_after_the_rebalance_time_out_and_5_s(run: Run, joins: list[tuple[str, str, int]]) -> None:
    """Members of 30 s wait for one of 4 min: each joins again every 35 s, under the member id that it has, until the
    slow member comes."""
    given_up = run.lines("request_timeouts", group="mixed-pace")
    assert {line["operation"] for line in given_up} == {"classic_join"}
    assert {line["waited_ms"] for line in given_up} == {35 * SECOND_MS}
    for client_id in ("mixed-pace-0", "mixed-pace-2"):
        times = [line["ts_ms"] for line in given_up if line["client_id"] == client_id]
        assert len(times) == 4
        again = [(member_id, at_ms) for client, member_id, at_ms in joins if client == client_id and at_ms > times[0]]
        assert len(again) == 4
        assert len({member_id for member_id, _ in again}) == 1
        assert all(at_ms - asked_ms < SECOND_MS for (_, at_ms), asked_ms in zip(again, times, strict=True))
    assert not [line for line in given_up if line["client_id"] == "mixed-pace-1"]


def test_the_coordinator_takes_the_second_join_for_the_first(run: Run) -> None:
    """No member is counted twice, none is lost, and the generation is that of the rebalance that had begun."""
    (generation,) = run.lines("generations", group="mixed-pace", generation=2)
    clients = sorted(member["client_id"] for member in generation["members"].values())
    assert clients == ["mixed-pace-0", "mixed-pace-1", "mixed-pace-2"]
    assert [line["generation"] for line in run.lines("generations", group="mixed-pace")] == [0, 1, 2]
    (end,) = run.lines("end", group="mixed-pace")
    assert end["state"]["group"]["generationId"] == 2
    owners = [line for line in run.lines("owners", group="mixed-pace") if line["to_ms"] is None]
    assert sorted(line["partition"] for line in owners) == list(range(6))


def test_a_sync_is_given_up_after_the_request_time_out(run: Run) -> None:
    """A follower waits for a leader that is paused; it then joins again and has the same generation, whose leader is
    back later."""
    (given_up,) = run.lines("request_timeouts", group="paused-leader")
    assert (given_up["operation"], given_up["waited_ms"]) == ("classic_sync", 30 * SECOND_MS)
    assert given_up["client_id"] == "paused-leader-1"
    last = run.lines("generations", group="paused-leader")[-1]
    assert len(last["members"]) == 2


def test_an_answer_that_comes_later_is_not_taken(run: Run) -> None:
    """The answers to the requests given up are lost with their connections: nothing happens twice."""
    owners = run.lines("owners", group="mixed-pace", client_id="mixed-pace-0")
    begins = [(line["partition"], line["from_ms"]) for line in owners]
    assert len(begins) == len(set(begins))
    assert {line["generation"] for line in owners} == {1, 2}
