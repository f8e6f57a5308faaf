"""Twenty stories, lived by real Java clients at a real broker, and by simulated ones: each client asks the same, in the
same order, is answered with the same errors, generations and epochs, and waits as long.

The real side is the broker's request log. Requests that change nothing are left out: how often a member heartbeats in
a phase depends on how fast the machine is.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest

from schemas.error_codes import ErrorCode
from simulator.simulation.exchange import Watch
from simulator.simulation.scenario_file import parse_scenario
from tests.lengths import is_long, takes_minutes
from tests.live.broker import CLIENT_SETTINGS
from tests.live.clients import LiveClients
from tests.live.kafka_home import clients_home
from tests.live.release import ReleasedBroker, release_home
from tests.live.test_exchange import OF_GROUPS, error_of, log_name
from tests.maven import Unavailable
from tests.simulator.simulation.simulations import Run

VERSIONS: Final = ("4.3.1", "4.4.0")
DYNAMIC: Final = (
    "classic-range",
    "classic-roundrobin",
    "classic-sticky",
    "classic-cooperative",
    "consumer-uniform",
    "consumer-range",
)
STATIC: Final = ("classic-static", "consumer-static")
TWO_JOIN: Final = ("join", "settle", "join", "settle")
STORIES: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "leave": ((*TWO_JOIN, "leave", "settle"), DYNAMIC),
    "leave-shares": (("join", "accept", "join", "accept", "leave", "settle"), ("share",)),
    "crash": ((*TWO_JOIN, "crash", "settle"), (*DYNAMIC, *STATIC)),
    "resubscribe": ((*TWO_JOIN, "resubscribe", "settle"), DYNAMIC[:5]),
}
"""What happens -> the acts of real clients, and the kinds of groups that go through them."""
SEEDS: Final = {story: seed for seed, story in enumerate(STORIES, 21)}
WARM_UP_SEED: Final = 1

SCENARIO: Final = """
name = "{story}"
start = 2026-01-05T08:00:00Z
duration = "40s"

[cluster]
brokers = 1
kafka_version = "{release}"
consumer_offsets_partitions = 3
share_group_state_partitions = 3

[cluster.settings]
"group.initial.rebalance.delay.ms" = 0
"group.consumer.session.timeout.ms" = 6000
"group.consumer.heartbeat.interval.ms" = 500
"group.share.session.timeout.ms" = 6000
"group.share.heartbeat.interval.ms" = 500

[[topic]]
name = "a"
partitions = {partitions}
[[topic]]
name = "b"
partitions = 2

[[group]]
name = "g"
protocol = "{protocol}"
topics = ["a"]
members = 2
stagger = "8s"
{settings}
{fault}
"""
ASSIGNORS: Final = {
    "classic-range": "range",
    "classic-roundrobin": "roundrobin",
    "classic-sticky": "sticky",
    "classic-cooperative": "cooperative-sticky",
    "classic-static": "range",
    "consumer-uniform": "uniform",
    "consumer-range": "range",
    "consumer-static": "uniform",
}
HAPPENS_AT: Final = "20s"
LEAVES_ANYWAY: Final = frozenset({"consumer-uniform", "consumer-range", "consumer-static"})
"""Clients of the consumer protocol that are closed to remain in their group say so (epoch -2), or leave it all the same
if they are dynamic (epoch -1): with them a crash is a stop."""
LEARNED: Final = (
    ("SYNC_GROUP NONE -1", "HEARTBEAT REBALANCE_IN_PROGRESS -1"),
    ("SYNC_GROUP REBALANCE_IN_PROGRESS -1",),
)
"""A member learns of the rebalance that a cooperative leader begins at once by its first heartbeat, or by its SyncGroup
where that comes later: real processes race there, so the two count as one."""
LOGGED_STATES: Final = {
    "Preparing to rebalance group": "PreparingRebalance",
    "Stabilized group": "CompletingRebalance",
    "Assignment received from leader": "Stable",
}
"""What a broker's log says of a classic group -> the state to which it has come."""
HEARTBEATS: Final = frozenset({"HEARTBEAT", "CONSUMER_GROUP_HEARTBEAT", "SHARE_GROUP_HEARTBEAT"})
OF_SESSIONS: Final = frozenset({"SHARE_FETCH", "SHARE_ACKNOWLEDGE"})
"""Compared where they open a session or close it; how often others are sent is a matter of records and time."""
DIFFERENT: Final[Mapping[tuple[str, str], str]] = {
    ("resubscribe", "consumer-uniform"): "OFFSET_FETCH",
}
"""Story and kind -> the API that is not compared there: the assignor goes by topic ids, which are random, so that a
member may or may not get other partitions of two topics. In no story anybody commits: real applications do so when a
test says so, simulated ones by auto.commit.interval.ms."""
LONGEST_MS: Final = 6_000 + 500
"""A JoinGroup waits for a member that heartbeats at last, or whose session ends."""
SLOWER_MS: Final = 3_000
"""How much longer it may take on a machine that does other things."""


@dataclass(frozen=True, slots=True)
class Step:
    """A request and its answer: `epoch` is the generation or member epoch that the answer gives, -1: none; of a share
    session that of the request."""

    api: str
    error: str
    epoch: int
    waited_ms: float

    def __str__(self) -> str:
        return f"{self.api} {self.error} {self.epoch}"


@takes_minutes
@pytest.mark.parametrize("version", VERSIONS)
def test_real_and_simulated_clients_live_the_same_stories(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each story and client the steps are equal, and for classic groups the states; no simulated or real request
    waits longer than the story lets it."""
    monkeypatch.setenv("KAFKA_REQUEST_LOG", "DEBUG")
    try:
        broker_home, home = release_home(version), clients_home(version)
    except Unavailable as error:
        if is_long():
            raise
        pytest.skip(str(error))
    groups: dict[str, tuple[str, str]] = {}
    with (
        ReleasedBroker(broker_home, tmp_path / "broker", settings=CLIENT_SETTINGS) as broker,
        LiveClients(home, tmp_path / "clients", broker.address) as clients,
    ):
        clients.play(WARM_UP_SEED, kinds=["classic-range", "share"], acts=["join", "settle"])
        known = set(clients.reported())
        for story, (acts, kinds) in STORIES.items():
            played = clients.play(SEEDS[story], kinds=kinds, acts=acts)
            groups |= {name: (story, one.kind) for name, one in played.items() if name not in known}
            known |= set(played)
        log = broker.log
    assert len(groups) == sum(len(kinds) for _, kinds in STORIES.values()) == 20
    real = real_steps(log)
    different, waits = [], []
    for group_id, (story, kind) in groups.items():
        lived = {client: steps for (group, client), steps in real.items() if group == group_id}
        gone = min(lived, key=lambda client: lived[client].last_ms)
        run = simulated(version, story, kind, sorted(lived).index(gone))
        expected, found = (
            [
                news_of(step for step in by_client[client] if step.api != DIFFERENT.get((story, kind)))
                for client in sorted(by_client)
            ]
            for by_client in ({client: one.steps for client, one in lived.items()}, simulated_steps(run))
        )
        waits += [step.waited_ms for one in lived.values() for step in one.steps]
        assert all(step.waited_ms <= LONGEST_MS for steps in simulated_steps(run).values() for step in steps)
        if kind.startswith("classic"):
            expected.append(real_states(log, group_id))
            found.append(simulated_states(run))
        if found != expected:
            different.append((story, kind, expected, found))
    assert different == []
    assert max(waits) <= LONGEST_MS + SLOWER_MS


@dataclass(slots=True)
class Lived:
    """The steps of a real client, and when its last request was answered."""

    steps: list[Step]
    last_ms: float = 0


def real_steps(log: Path) -> dict[tuple[str, str], Lived]:
    """Group and client id -> what the broker's request log has of it."""
    found: dict[tuple[str, str], Lived] = {}
    text = log.read_text(errors="replace")
    for number, match in enumerate(re.finditer(r"Completed request:\s*(\{.*\})$", text, re.MULTILINE)):
        line = json.loads(match[1])
        header, request = line["requestHeader"], line["request"] or {}
        api = header["requestApiKeyName"]
        if api not in OF_GROUPS:
            continue
        group_id = group_of(request)
        code = error_of(line["response"])
        name = next((known.name for known in ErrorCode if known == code), str(code))
        lived = found.setdefault((group_id, header["clientId"]), Lived([]))
        lived.last_ms = number
        lived.steps.append(Step(api, name, epoch_of(request, line["response"]), line["totalTimeMs"]))
    return found


def group_of(request: Mapping[str, Any]) -> str:
    """FindCoordinator and OffsetFetch are for several; these clients ask for one."""
    named = [
        request.get("groupId"),
        *request.get("coordinatorKeys", ()),
        *(it["groupId"] for it in request.get("groups", ())),
    ]
    return str(next(name for name in named if name is not None))


def epoch_of(request: Mapping[str, Any], response: Mapping[str, Any] | None) -> int:
    """The generation or member epoch in an answer, or the epoch of a share session in a request."""
    answer = response or {}
    return int(request.get("shareSessionEpoch", answer.get("generationId", answer.get("memberEpoch", -1))))


def news_of(steps: Iterable[Step]) -> list[str]:
    """The steps without heartbeats and share fetches that bring no news; the same step again is no other one."""
    epoch, said = 0, []
    for step in steps:
        if step.api in OF_SESSIONS:
            said += [str(step)] if step.epoch <= 0 else []
            continue
        is_quiet = (
            step.api in HEARTBEATS
            and step.error == "NONE"
            and step.epoch in {epoch, -1 if step.api == "HEARTBEAT" else None}
        )
        if not is_quiet:
            said.append(str(step))
        epoch = step.epoch if step.epoch >= 0 else epoch
    once = [step for step, _ in groupby(said)]
    for place in range(len(once) - 1, 0, -1):
        if (once[place - 1], once[place]) == LEARNED[0]:
            once[place - 1 : place + 1] = LEARNED[1]
    return once


def real_states(log: Path, group_id: str) -> list[str]:
    """The states of a classic group that the broker's log names."""
    words = re.compile(rf"({'|'.join(LOGGED_STATES)}).*? {re.escape(group_id)} ")
    found = (words.search(line) for line in log.read_text(errors="replace").splitlines() if "INFO" in line)
    return [LOGGED_STATES[match[1]] for match in found if match is not None]


def simulated_states(run: Run) -> list[str]:
    return [line["to"] for line in run.lines("states", kind="group") if line["to"] in LOGGED_STATES.values()]


def simulated(version: str, story: str, kind: str, gone: int) -> Run:
    """The same story in a simulation. `gone`: the member that leaves or crashes."""
    protocol = kind.partition("-")[0]
    settings = []
    if kind in ASSIGNORS:
        settings += [f'assignors = ["{ASSIGNORS[kind]}"]', 'commits = "none"', 'poll_interval = "50ms"']
    if protocol == "classic":
        settings += ['session_timeout = "6s"', 'heartbeat_interval = "500ms"']
    if kind in STATIC:
        settings.append("static = true")
    faults = {
        "leave": f'kind = "stop"\nmember = {gone}',
        "leave-shares": f'kind = "stop"\nmember = {gone}',
        "crash": f'kind = "{"stop" if kind in LEAVES_ANYWAY else "crash"}"\nmember = {gone}',
        "resubscribe": 'kind = "subscribe"\ntopics = ["a", "b"]',
    }
    text = SCENARIO.format(
        story=story,
        release=".".join(version.split(".")[:2]),
        protocol=protocol,
        partitions=2 if protocol == "share" else 3,
        settings="\n".join(settings),
        fault=f'[[fault]]\nat = "{HAPPENS_AT}"\ngroup = "g"\n{faults[story]}\n',
    )
    return Run(parse_scenario(text, f"{story}.toml"), watch=Watch())


def simulated_steps(run: Run) -> dict[str, list[Step]]:
    """Client id -> its steps, in the order of the answers."""
    found: dict[str, list[Step]] = {}
    for line in _answered(run):
        api = log_name(line["api"])
        if api in OF_GROUPS:
            step = Step(api, line["error"], epoch_of(line["request"], line["response"]), line["waited_ms"])
            found.setdefault(line["client_id"], []).append(step)
    return found


def _answered(run: Run) -> Iterator[dict[str, Any]]:
    return (line for line in run.lines("requests") if line["client_id"] is not None and line["waited_ms"] is not None)
