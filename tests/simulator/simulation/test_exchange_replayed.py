"""The exchange is whole: its requests alone, put to the coordinators again, give the same log."""

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import pytest

from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from coordinator_core.live.consumer.messages import ConsumerGroupHeartbeatRequest
from coordinator_core.live.offsets.messages import OffsetCommitRequest
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.wire import camel_case
from simulator.simulation.clients.machine import Send, Service
from simulator.simulation.exchange import Watch
from simulator.simulation.process import Process
from simulator.simulation.simulation import Simulation
from simulator.simulation.truth import MemorySink
from tests.simulator.simulation.random_scenarios import STORIES, restless_story, with_late_requests
from tests.simulator.simulation.simulations import Run, log_bytes

SERVED: Final = {
    "JoinGroup": ("classic_join", JoinGroupRequest),
    "SyncGroup": ("classic_sync", SyncGroupRequest),
    "Heartbeat": ("classic_heartbeat", HeartbeatRequest),
    "LeaveGroup": ("classic_leave", LeaveGroupRequest),
    "ConsumerGroupHeartbeat": ("consumer_group_heartbeat", ConsumerGroupHeartbeatRequest),
    "OffsetCommit": ("commit_offset", OffsetCommitRequest),
}
"""API -> the operation of the group coordinator, and the class of its request."""
NEWS: Final = frozenset({"subscribedTopicNames", "topicPartitions"})
"""Fields of heartbeats that are sent at once; those without news come after the other requests of a time
(`heartbeats`)."""
OF_CLIENTS: Final = frozenset({"repeat", "pause", "crash", "stop", "subscribe", "slow_poll", "rolling_deploy"})


@pytest.mark.parametrize("seed", range(2 * STORIES))
def test_requests_alone_give_the_same_log(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No client lives in the second run: it gets the lines of requests.jsonl, and its log has the same bytes. In every
    second story requests come late, too."""
    story = restless_story(seed)
    run = Run(with_late_requests(story, seed) if seed % 2 else story, watch=Watch())
    scenario = run.simulation.scenario
    alone = replace(scenario, faults=tuple(fault for fault in scenario.faults if fault.kind not in OF_CLIENTS))
    monkeypatch.setattr(Process, "start", lambda process: None)
    simulation = Simulation(alone, MemorySink(), seed=run.simulation.seed)
    for line in sorted(run.lines("requests"), key=lambda line: line["number"]):
        if line["api"] in SERVED:
            process = simulation.processes[line["client_id"]]
            for at_ms in _times(line):
                simulation.loop.at(at_ms - process.latency_ms, _send, simulation, process, line)
    simulation.run()
    expected, found = (
        {name: digest for name, digest in log_bytes(one).items() if name.startswith(OFFSETS_TOPIC)}
        for one in (run.simulation, simulation)
    )
    assert run.lines("generations")
    assert found == expected


def _times(line: dict[str, Any]) -> range:
    first_ms, count = line["asked_ms"], line["count"]
    if count == 1:
        return range(first_ms, first_ms + 1)
    step_ms = (line["last_ms"] - first_ms) // (count - 1)
    return range(first_ms, line["last_ms"] + 1, step_ms)


def _send(simulation: Simulation, process: Process, line: dict[str, Any]) -> None:
    operation, kind = SERVED[line["api"]]
    send = Send(Service.GROUP, line["group"], operation, _message(kind, line["request"]), "", line["version"] or -1)
    is_in_time = line["api"].endswith("Heartbeat") and line["request"].get("memberEpoch", 1) > 0
    rank = process.rank if is_in_time and NEWS.isdisjoint(line["request"]) else 0
    simulation.loop.after(process.latency_ms, simulation.cluster.deliver, process, line["broker"], send, rank=rank)


def _message(kind: Any, value: Any) -> Any:
    """The request that was written as JSON."""
    if get_origin(kind) in (Union, UnionType):
        return None if value is None else _message(next(one for one in get_args(kind) if one is not NoneType), value)
    if kind is bytes:
        return b64decode(value)
    if get_origin(kind) is tuple:
        return tuple(_message(get_args(kind)[0], item) for item in value)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**dict(_given(kind, hints, value)))  # type: ignore[operator]
    return value


def _given(kind: Any, hints: dict[str, Any], value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for item in fields(kind):
        if camel_case(item.name) in value:
            yield item.name, _message(hints[item.name], value[camel_case(item.name)])
