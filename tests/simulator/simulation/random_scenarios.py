"""Random scenarios, and what their brokers did: how long each operation waited, and which partitions each fetch served.

A story is a function of its seed. How many are made says --count.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, NamedTuple

import pytest

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.runtime.messages import Answer
from simulator.simulation.cluster import DETECTION_MS, REBALANCE_LEADERS_MS, Cluster
from simulator.simulation.delayed_share_fetch import ShareFetches
from simulator.simulation.internal_topic import LOADING_MS, REPLICATION_MS
from simulator.simulation.scenario import FaultSpec, Scenario
from simulator.simulation.scenario_file import parse_scenario
from tests.lengths import how_many

STORIES: Final = how_many(10)

WAITS_FOR_OTHERS: Final = frozenset({"classic_join", "classic_sync"})
"""Operations which are answered when other members have done something, not when the log has taken them."""


class Wait(NamedTuple):
    """One operation of a coordinator, from its arrival to its answer."""

    operation: str
    from_ms: int
    to_ms: int

    @property
    def duration_ms(self) -> int:
        return self.to_ms - self.from_ms


class Fetch(NamedTuple):
    """One ShareFetch: the partitions that had something for the member, and those that gave it something."""

    broker_id: int
    member_id: str
    session_epoch: int
    partitions: tuple[TopicPartition, ...]
    ready: frozenset[TopicPartition]
    served: frozenset[TopicPartition]


@contextmanager
def recorded_waits() -> Iterator[list[Wait]]:
    """Every operation which simulations put to coordinators while this is open."""
    waits: list[Wait] = []
    ask: Any = Cluster.ask

    def timed(cluster: Any, operation: str, on_answer: Callable[[Answer], None]) -> Callable[[Answer], None]:
        from_ms = cluster._loop.now_ms

        def answered(answer: Answer) -> None:
            waits.append(Wait(operation, from_ms, cluster._loop.now_ms))
            on_answer(answer)

        return answered

    def ask_and_note(cluster: Any, *place: Any, **fields: Any) -> None:
        *asked, operation, message, on_answer, on_lost = place
        ask(cluster, *asked, operation, message, timed(cluster, operation, on_answer), on_lost, **fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "ask", ask_and_note)
        yield waits


@contextmanager
def recorded_fetches() -> Iterator[list[Fetch]]:
    """Every ShareFetch which simulations serve while this is open."""
    fetches: list[Fetch] = []
    read = ShareFetches._read

    def read_and_note(of_all: Any, broker: Any, fetch: Any, readable: Any) -> None:
        ready = {
            served.at
            for served, offset in readable
            if offset < of_all._topics.end_offset(served.at, of_all._loop.now_ms)
        }
        on_done = fetch.on_done

        def done(acquired: Any) -> None:
            partitions = tuple(sorted(served.at for served in fetch.share_partitions))
            request = fetch.request
            fetches.append(
                Fetch(
                    broker.broker_id,
                    request.member_id,
                    request.session_epoch,
                    partitions,
                    frozenset(ready),
                    frozenset(acquired),
                )
            )
            on_done(acquired)

        fetch.on_done = done
        read(of_all, broker, fetch, readable)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShareFetches, "_read", read_and_note)
        yield fetches


def slow_waits(scenario: Scenario, waits: list[Wait]) -> list[Wait]:
    """Operations that waited longer than their replication takes, and no broker of the scenario was away then."""
    away = [
        (strike_ms, strike_ms + (fault.duration_ms or 0) + DETECTION_MS + REBALANCE_LEADERS_MS + 2 * LOADING_MS)
        for fault in scenario.faults
        if fault.kind == "broker_failover"
        for strike_ms in range(
            scenario.start_ms + fault.at_ms, scenario.end_ms, fault.every_ms or scenario.duration_ms + fault.at_ms
        )
    ]
    allowed_ms = REPLICATION_MS + (scenario.cluster.append_linger_ms or 0)
    return [
        wait
        for wait in waits
        if wait.operation not in WAITS_FOR_OTHERS
        and wait.duration_ms > allowed_ms
        and not any(from_ms <= wait.to_ms and wait.from_ms <= to_ms for from_ms, to_ms in away)
    ]


def starved(fetches: list[Fetch]) -> list[tuple[Fetch, TopicPartition]]:
    """Partitions which had records at each of as many fetches of a session as it has partitions, and gave none. Fetches
    between which another one was of no partition are not counted together: its epoch turns the partitions, too."""
    found = []
    passed_over: dict[TopicPartition, int] = {}
    for _, of_session in groupby(sorted(fetches, key=_session), key=_session):
        before: Fetch | None = None
        for fetch in of_session:
            follows = before is not None and fetch.session_epoch == before.session_epoch + 1
            if before is None or not follows or before.partitions != fetch.partitions:
                passed_over = {}
            for at in fetch.partitions:
                passed_over[at] = passed_over.get(at, 0) + 1 if at in fetch.ready and at not in fetch.served else 0
                if passed_over[at] >= max(2, len(fetch.partitions)):
                    found.append((fetch, at))
            before = fetch
    return found


def _session(fetch: Fetch) -> tuple[int, str]:
    return fetch.broker_id, fetch.member_id


def random_story(seed: int) -> Scenario:
    """A scenario with groups of every protocol, and now and then a fault."""
    draws = random.Random(seed)
    brokers = draws.randint(1, 4)
    lines = [
        f'name = "story-{seed}"',
        "start = 2026-01-05T08:00:00Z",
        f'duration = "{draws.randint(1, 3)}m"',
        f"seed = {seed}",
        "[cluster]",
        f"brokers = {brokers}",
        f"consumer_offsets_partitions = {draws.randint(1, 4)}",
        f"share_group_state_partitions = {draws.randint(1, 4)}",
        f"share_snapshot_update_records_per_snapshot = {draws.choice((0, 5, 500))}",
    ]
    if draws.random() < 0.25:
        lines.append(f'append_linger = "{draws.randint(1, 20)}ms"')
    topics = [f"t{index}" for index in range(draws.randint(1, 3))]
    for topic in topics:
        lines += [
            "[[topic]]",
            f'name = "{topic}"',
            f"partitions = {draws.randint(1, 6)}",
            f"rate = {draws.choice((1, 20, 300))}.0",
            f"batch_records = {draws.choice((1, 5, 40))}",
        ]
    groups = []
    for index in range(draws.randint(1, 4)):
        protocol = draws.choice(("classic", "consumer", "share", "share"))
        members = draws.randint(1, 4)
        groups.append((f"g{index}", members))
        lines += [
            "[[group]]",
            f'name = "g{index}"',
            f'protocol = "{protocol}"',
            f"topics = {draws.sample(topics, draws.randint(1, len(topics)))}",
            f"members = {members}",
            f'poll_interval = "{draws.choice((200, 1000, 3000))}ms"',
        ]
        if protocol == "share":
            lines.append(f"max_poll_records = {draws.choice((10, 100, 500))}")
            if draws.random() < 0.5:
                lines += ['acknowledge = "explicit"', f"release_every = {draws.choice((7, 50))}"]
        else:
            lines.append(f'commit_interval = "{draws.choice((300, 1000, 5000))}ms"')
    for _ in range(draws.randint(0, 2)):
        group, members = draws.choice(groups)
        kind = draws.choice(("crash", "stop", "pause", "slow_poll", "broker_failover"))
        lines += ["[[fault]]", f'kind = "{kind}"', f'at = "{draws.randint(20, 50)}s"']
        if kind == "broker_failover":
            if brokers < 2:
                lines[-2] = 'kind = "crash"'
            else:
                lines += [f"broker = {draws.randint(1, brokers)}", f'duration = "{draws.randint(1, 20)}s"']
                continue
        lines += [f'group = "{group}"', f"member = {draws.randrange(members)}", f'duration = "{draws.randint(5, 40)}s"']
    return parse_scenario("\n".join(lines), f"story-{seed}.toml")


def restless_story(seed: int) -> Scenario:
    """The scenario of `restless_text`."""
    return parse_scenario(restless_text(seed), f"restless-{seed}.toml")


def with_late_requests(scenario: Scenario, seed: int) -> Scenario:
    """A restless story in which requests of both groups come once more, 7 s and 40 s later."""
    at_ms = (15 + 10 * (seed % 20)) * 1000
    late = (
        FaultSpec("repeat", at_ms=at_ms, every_ms=100_000, group=group, duration_ms=duration_ms)
        for group, duration_ms in (("g0", 7000), ("g1", 40_000))
    )
    return replace(scenario, faults=(*scenario.faults, *late))


def restless_text(seed: int) -> str:
    """A scenario file with small groups of classic and consumer members, some of them static, that pause, stall, crash,
    stop and change their subscriptions under short timeouts, so that members leave phases of rebalances unfinished."""
    draws = random.Random(f"restless-{seed}")
    lines = [
        f'name = "restless-{seed}"',
        "start = 2026-01-05T08:00:00Z",
        'duration = "6m"',
        f"seed = {seed}",
        "[cluster]",
        "brokers = 2",
        "consumer_offsets_partitions = 2",
        "[cluster.settings]",
        f'"group.consumer.session.timeout.ms" = {draws.choice((6000, 45000))}',
    ]
    for topic in ("t", "u"):
        lines += ["[[topic]]", f'name = "{topic}"', f"partitions = {draws.randint(1, 6)}", "rate = 10.0"]
    for group in ("g0", "g1"):
        members = draws.randint(2, 4)
        lines += [
            "[[group]]",
            f'name = "{group}"',
            f'protocol = "{draws.choice(("classic", "classic", "consumer"))}"',
            f"topics = {draws.sample(('t', 'u'), draws.randint(1, 2))}",
            f"members = {members}",
            f"static = {draws.choice(('true', 'false'))}",
            f'max_poll_interval = "{draws.choice((15, 30, 60))}s"',
        ]
        if "classic" in lines[-5]:
            lines += [
                f'session_timeout = "{draws.choice((6, 20, 120))}s"',
                f'assignors = ["{draws.choice(("range", "cooperative-sticky"))}"]',
            ]
        for _ in range(draws.randint(2, 5)):
            kind = draws.choice(("pause", "pause", "crash", "stop", "slow_poll", "subscribe"))
            lines += ["[[fault]]", f'kind = "{kind}"', f'group = "{group}"', f"member = {draws.randrange(members)}"]
            # close to each other, so that one meets the rebalance that another one began
            lines.append(f'at = "{draws.choice((60, 120, 180)) + draws.randint(0, 40)}s"')
            if kind == "subscribe":
                lines.append(f"topics = {draws.sample(('t', 'u'), draws.randint(1, 2))}")
            else:
                lines.append(f'duration = "{draws.choice((1, 5, 20, 50, 100))}s"')
    return "\n".join(lines)
