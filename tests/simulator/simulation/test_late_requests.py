"""Requests that come to a broker once more, late: coordinators and leaders refuse them by their epochs."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import pytest

from simulator.simulation.exchange import REQUESTS, Watch
from simulator.simulation.scenario import Scenario
from tests.simulator.simulation.random_scenarios import STORIES, restless_story, with_late_requests
from tests.simulator.simulation.simulations import Run, run_file

REFUSALS: Final[Mapping[str, dict[str, set[str]]]] = {
    "billing": {"ConsumerGroupHeartbeat": {"FENCED_MEMBER_EPOCH"}, "OffsetCommit": {"STALE_MEMBER_EPOCH"}},
    "ledger": {"Heartbeat": {"ILLEGAL_GENERATION"}, "OffsetCommit": {"ILLEGAL_GENERATION"}},
    "workers": {"ShareFetch": {"INVALID_SHARE_SESSION_EPOCH"}},
}
"""Group of story-late -> the errors of late requests only, by API."""


@cache
def story() -> Run:
    return run_file("story-late", watch=Watch())


def without_late(scenario: Scenario) -> Scenario:
    return replace(scenario, faults=tuple(fault for fault in scenario.faults if fault.kind != "repeat"))


@cache
def in_time() -> Run:
    return Run(without_late(story().simulation.scenario), watch=Watch())


def errors_of(run: Run, group_id: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in run.lines("requests", group=group_id):
        if line["error"] not in {"NONE", "REBALANCE_IN_PROGRESS", "MEMBER_ID_REQUIRED", None}:
            found.setdefault(line["api"], set()).add(line["error"])
    return found


@pytest.mark.parametrize("group_id", REFUSALS)
def test_late_requests_are_refused_by_their_epochs(group_id: str) -> None:
    """Each kind of group refuses them with its own error, which no request in time gets."""
    assert errors_of(story(), group_id) == REFUSALS[group_id]
    assert errors_of(in_time(), group_id) == {}


@pytest.mark.parametrize("group_id", REFUSALS)
def test_clients_get_no_answers_to_late_requests(group_id: str) -> None:
    """What clients go through is the same as without them."""
    states = [
        [{**line, "why": None} for line in run.lines("states", group=group_id, kind="client")]
        for run in (story(), in_time())
    ]
    assert states[0] == states[1] != []


def test_a_late_commit_in_time_takes_offsets_back() -> None:
    """A commit of the generation that still is moves the committed offset back: nothing in it tells that it is late."""
    run, offsets = story(), []
    for line in run.lines("commits", group="ledger"):
        offsets += [offset for topic, partition, offset, _ in line["offsets"] if (topic, partition) == ("orders", 2)]
    assert offsets != sorted(offsets)


def test_a_leader_with_an_old_state_epoch_reads_the_state_again() -> None:
    """FENCED_STATE_EPOCH: it drops the share partition, and delivers again from where the admin set the offset."""
    run = story()
    fenced = [line for line in run.lines("requests", api="WriteShareGroupState") if line["error"] != "NONE"]
    assert {line["error"] for line in fenced} == {"FENCED_STATE_EPOCH"}
    states = [line["to"] for line in run.lines("states", kind="share partition", name="orders-0 on broker-1")]
    assert states[-3:] == ["FENCED", "INITIALIZING", "ACTIVE"]
    last = run.lines("deliveries", group="sleeper", partition=0)[-1]
    assert (last["first_offset"], last["delivery_count"]) == (0, 1)


def test_an_admin_reads_the_offsets() -> None:
    """DescribeShareGroupOffsets: ReadShareGroupStateSummary gives the start offset that was written last."""
    run = story()
    (fault,) = run.lines("faults", fault="describe_share_offsets")
    assert fault["error"] is None
    read = [at for line in run.lines("requests", api="ReadShareGroupStateSummary") for at in partitions_of(line)]
    written = {
        line["partition"]: line["start_offset"]
        for line in run.lines("share_writes", group="sleeper")
        if line["ts_ms"] < fault["ts_ms"]
    }
    assert {at["partition"]: at["startOffset"] for at in read} == written
    assert len(written) == 4


def partitions_of(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [at for topic in line["response"]["results"] for at in topic["partitions"]]


@pytest.mark.parametrize("seed", range(STORIES))
def test_leaving_out_heartbeats_changes_nothing_where_requests_come_late(seed: int) -> None:
    """Late heartbeats move the ends of sessions, too: log and truth are the same whether quiet ones are sent or not."""
    scenario = with_late_requests(restless_story(seed), seed)
    skipping, sending = (Run(scenario, skips_heartbeats=skips, watch=Watch()) for skips in (True, False))
    assert skipping.log_bytes() == sending.log_bytes()
    assert {**skipping.truth, REQUESTS: []} == {**sending.truth, REQUESTS: []}
    assert skipping.summary.skipped_heartbeat_count > 0
