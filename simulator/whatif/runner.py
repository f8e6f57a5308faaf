"""Plays a hypothesis about a group's timeline: client models and the live coordinator on a virtual clock.

Clients are those of `simulate.clients`, the broker is `simulate.cluster`. They do not commit, since no answer needs it:
heartbeats keep the members' sessions alive.
"""

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.history.offsets_log import OffsetsLogReplay
from coordinator_core.history.rows import GroupRows
from coordinator_core.inference.audit.groups import audit_group
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.rows import RebalanceRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from simulator.simulation.clients.classic import ClassicConsumer
from simulator.simulation.clients.consumer import ConsumerMember
from simulator.simulation.clients.machine import MemberConfig, SlowPoll, TopicsChanged
from simulator.simulation.clients.member import Member
from simulator.simulation.process import Process
from simulator.simulation.random_streams import stream
from simulator.simulation.scenario import ClusterSpec, GroupSpec, Scenario, TopicSpec
from simulator.simulation.simulation import Simulation
from simulator.simulation.truth import MemorySink
from simulator.whatif.hypotheses import ENDING, STARTING, WARM_UP_MS, Act, Hypothesis, What, acts_of
from simulator.whatif.lifetimes import Lifetime
from simulator.whatif.settings import Changes
from simulator.whatif.timeline import HEARTBEAT_MS, Mark, Timeline

AFTER_MS: Final = 60_000
"""How long the play continues after the longest session that may still expire."""
POLL_INTERVAL_MS_MAX: Final = 3_600_000
"""A play does not continue longer than this for a poll interval."""
LATENCY_MS: Final = 2
LEEWAY_MS: Final = 60_000
"""Rebalances this shortly before the window count as part of it: otherwise, only members from before it are started,
much earlier.
"""
SETTLED_MS: Final = 30_000
"""After this time, the members of a rebalance have their new assignment."""
RANGE: Final = "range"


@dataclass(frozen=True, slots=True)
class Played:
    """A rebalance of a play, with its follow-ups: generations without a mark of their own."""

    at_ms: int
    marks: frozenset[Mark]
    follow_up_count: int = 0
    moved_count: int = 0
    """Partitions that changed owner, as gold.rebalances counts them."""
    unowned_ms: int = 0
    """Sum over partitions of the time without an owner, as gold.rebalances counts it."""
    gap_count: int = 0
    """How many partitions were not served for some time."""
    not_served_ms: int = 0
    """Sum over partitions of the time until a living member owned them again: a dead member owns its partitions until
    the coordinator notices."""

    def plus(self, **more: int) -> "Played":
        sums: dict[str, Any] = {name: getattr(self, name) + number for name, number in more.items()}
        return replace(self, **sums)


@dataclass(frozen=True, slots=True)
class Play:
    """All rebalances in order of time, and the sums; unserved partitions count even without a rebalance."""

    rebalances: tuple[Played, ...]
    not_served_ms: int
    gap_count: int
    """How often a partition was not served."""
    refused: frozenset[Mark] = frozenset()
    """Beginnings of lifetimes whose clients the coordinator refused for good."""

    @property
    def between_ms(self) -> int:
        """The part of `not_served_ms` that belongs to none of the rebalances."""
        return self.not_served_ms - sum(one.not_served_ms for one in self.rebalances)

    @property
    def between_count(self) -> int:
        """The part of `gap_count` that belongs to none of the rebalances."""
        return self.gap_count - sum(one.gap_count for one in self.rebalances)


@dataclass(frozen=True, slots=True)
class Cast:
    """The settings of a play that may be changed."""

    protocol: str
    assignors: tuple[str, ...]
    is_static: bool | None
    session_timeout_ms: int | None
    """None: each member's own."""
    heartbeat_interval_ms: int
    config: GroupCoordinatorConfig
    max_poll_interval_ms: int | None = None
    """None: each member's own."""


def cast_of(timeline: Timeline, changes: Changes) -> Cast:
    """The timeline's own settings with the changes applied; `Changes()` is the baseline."""
    protocol = timeline.protocol_under(changes)
    name = changes.assignor or (timeline.protocol_name if protocol == timeline.protocol else None)
    default: tuple[str, ...] = () if protocol == "consumer" else (RANGE,)
    assignors = default if name is None else (name,)
    delay_ms = changes.initial_rebalance_delay_ms
    config = GroupCoordinatorConfig(
        group_initial_rebalance_delay_ms=timeline.initial_rebalance_delay_ms if delay_ms is None else delay_ms,
        group_consumer_session_timeout_ms=changes.consumer_session_timeout_ms or timeline.session_timeout_ms,
        group_min_session_timeout_ms=1,
        group_max_session_timeout_ms=2**31 - 1,
    )
    return Cast(
        protocol,
        assignors,
        changes.is_static,
        changes.session_timeout_ms,
        timeline.heartbeat_interval_ms if timeline.protocol == "classic" else HEARTBEAT_MS,
        config,
        changes.max_poll_interval_ms,
    )


def play(timeline: Timeline, hypothesis: Hypothesis, changes: Changes) -> Play:
    """Play a hypothesis under changed settings. Returns the rebalances from the beginning of the window on."""
    return _Runner(timeline, hypothesis, cast_of(timeline, changes)).run()


class _Runner:
    def __init__(self, timeline: Timeline, hypothesis: Hypothesis, cast: Cast) -> None:
        self._timeline = timeline
        self._cast = cast
        self._acts = acts_of(timeline, hypothesis)
        self._seed = hypothesis.number
        self._sink = MemorySink()
        start_ms = min([timeline.from_ms - WARM_UP_MS, *(act.at_ms for act in self._acts)]) - 1000
        longest_ms = max(life.session_timeout_ms for life in timeline.lifetimes)
        longest_ms = max(longest_ms, cast.session_timeout_ms or 0, cast.config.group_consumer_session_timeout_ms)
        longest_ms = max(longest_ms, min(cast.max_poll_interval_ms or 0, POLL_INTERVAL_MS_MAX))
        self._end_ms = timeline.to_ms + longest_ms + cast.config.group_initial_rebalance_delay_ms + AFTER_MS
        topics = tuple(TopicSpec(name, count) for name, count in sorted(timeline.topics.items()))
        cluster = ClusterSpec(
            brokers=1,
            consumer_offsets_partitions=1,
            share_group_state_partitions=1,
            transaction_state_partitions=1,
            latency_ms=(LATENCY_MS, LATENCY_MS),
            settings=cast.config,
            kafka_version=timeline.release.version,
        )
        scenario = Scenario(
            "whatif", start_ms, self._end_ms - start_ms, seed=self._seed, cluster=cluster, topics=topics
        )
        self._simulation = Simulation(scenario, self._sink)
        self._names = _names(timeline, hypothesis)
        self._processes = [self._process(slot) for slot in range(1 + max(life.slot for life in timeline.lifetimes))]
        self._coming: dict[int, Lifetime] = {}
        """Slot -> the lifetime that its next client plays."""

    def run(self) -> Play:
        simulation = self._simulation
        simulation.cluster.make_internal_topics([OFFSETS_TOPIC])
        for act in self._acts:
            simulation.loop.at(act.at_ms, self._perform, act)
        simulation.loop.run_until(self._end_ms)
        simulation.heartbeats.wake_where(lambda _group_id: True)
        simulation.cluster.settle()
        for process in self._processes:
            if process.client is not None:
                positions = process.client.positions(self._end_ms)
                simulation.truth.gave(process.group_id, process.client_id, positions, "STILL", self._end_ms)
        played = _with_owners(
            self._rebalances(), self._sink.lines.get("owners", []), self._timeline.from_ms - LEEWAY_MS
        )
        last = {act.slot: act for act in self._acts if act.slot >= 0}
        refused = (act.mark for act in last.values() if act.what in STARTING and not self._processes[act.slot].is_alive)
        return replace(played, refused=frozenset(refused))

    # --- processes ---

    def _process(self, slot: int) -> Process:
        client_id, group_id = self._names[slot], self._timeline.group_id
        uuids = stream(self._seed, "process", client_id)
        return self._simulation.new_process(
            slot + 1, group_id, client_id, f"/{slot}", LATENCY_MS, uuids, self._maker(slot)
        )

    def _maker(self, slot: int) -> Callable[[random.Random], Member]:
        def make(draws: random.Random) -> Member:
            config = self._config(slot, self._coming[slot])
            topics = self._simulation.topics
            if self._cast.protocol == "consumer":
                return ConsumerMember(config, topics, draws, topics.names())
            return ClassicConsumer(config, topics, draws)

        return make

    def _config(self, slot: int, life: Lifetime) -> MemberConfig:
        member, cast, timeline = life.member, self._cast, self._timeline
        known = tuple(topic for topic in member.subscribed_topics or () if topic in timeline.topics)
        instance_id = member.instance_id
        if cast.is_static is not None:
            instance_id = self._names[slot] if cast.is_static else None
        spec = GroupSpec(
            timeline.group_id,
            known or tuple(sorted(timeline.topics)),
            session_timeout_ms=cast.session_timeout_ms or life.session_timeout_ms,
            heartbeat_interval_ms=cast.heartbeat_interval_ms,
            commits="none",
        )
        max_poll_interval_ms = cast.max_poll_interval_ms or life.poll_timeout_ms
        return MemberConfig(
            spec,
            spec.name,
            self._names[slot],
            spec.topics,
            cast.assignors,
            max_poll_interval_ms,
            instance_id=instance_id,
        )

    def _perform(self, act: Act) -> None:
        if act.what is What.GROW:
            self._grow(act)
            return
        process = self._processes[act.slot]
        if act.what is What.START:
            self._coming[act.slot] = self._timeline.lifetimes[act.mark.number]
            process.start()
        elif act.what is What.SLOW_POLL:
            process.deliver(SlowPoll(act.duration_ms))
        else:
            PLAIN_ACTS[act.what](process)

    def _grow(self, act: Act) -> None:
        growth = self._timeline.growths[act.mark.number]
        simulation = self._simulation
        simulation.topics.add_partitions(growth.topic, growth.partition_count, simulation.loop.now_ms)
        simulation.cluster.update_metadata([growth.topic])
        for process in self._processes:
            process.deliver(TopicsChanged())

    # --- the result ---

    def _rebalances(self) -> list[Played]:
        acts = _ActsBySlot(self._acts, self._names)
        gold = {row.to_generation: row for row in self._gold()}
        played: list[Played] = []
        before: dict[str, str] = {}
        generation = 0
        for line in self._sink.lines.get("generations", []):
            members = {
                self._identity(member_id, facts["client_id"]): facts["client_id"]
                for member_id, facts in line["members"].items()
            }
            is_new = line["generation"] != generation
            if is_new:
                at_ms = line["ts_ms"]
                marks = {acts.last(before[gone], ENDING, at_ms) for gone in before.keys() - members.keys()}
                marks |= {acts.last(members[new], STARTING, at_ms) for new in members.keys() - before.keys()}
                marks |= {
                    acts.last(None, {What.GROW}, cause["at_ms"])
                    for cause in line["causes"]
                    if cause["reason"] == "TOPIC_CHANGED"
                }
                found = frozenset(mark for mark in marks if mark is not None)
                if found or not played:
                    played.append(Played(at_ms, found))
                else:
                    played[-1] = played[-1].plus(follow_up_count=1)
                if (row := gold.get(line["generation"])) is not None:
                    moved_count, unowned_ms = row.partitions_moved or 0, row.unowned_partition_ms or 0
                    played[-1] = played[-1].plus(moved_count=moved_count, unowned_ms=unowned_ms)
            before, generation = members, line["generation"]
        return played

    def _gold(self) -> Sequence[RebalanceRow]:
        """The audit of the log that the play wrote."""
        (log,) = self._simulation.cluster.groups.logs
        replay, groups = OffsetsLogReplay(), GroupRows()
        data = b"".join(batch.data for batch in log.stored_batches())
        groups.extend(replay.feed(decode_chunk(data, crc="skip")).groups)
        groups.extend(replay.finish().groups)
        replay.faults.raise_first()
        life = GroupLife(
            self._timeline.group_id,
            log.partition,
            tuple(groups.generations),
            tuple(groups.members),
            tuple(groups.assignments),
            tuple(groups.events),
        )
        return audit_group(life, InferenceSettings()).rebalances

    def _identity(self, member_id: str, client_id: str) -> str:
        """The identity of a member: static members keep theirs; a dynamic member that returns is another one."""
        life = next(life for life in self._timeline.lifetimes if self._names[life.slot] == client_id)
        is_static = life.member.instance_id is not None if self._cast.is_static is None else self._cast.is_static
        return client_id if is_static else member_id


PLAIN_ACTS: Final[Mapping[What, Callable[[Process], None]]] = {
    What.STOP: lambda process: process.stop(),
    What.CRASH: Process.crash,
    What.PAUSE: Process.pause,
    What.RESUME: Process.resume,
}


def _names(timeline: Timeline, hypothesis: Hypothesis) -> list[str]:
    """A client id for each process. Assignors go by member ids, which begin with client ids in classic groups: their
    order stays the recorded one, and that of processes with one client id is drawn."""
    client_ids = {life.slot: life.member.client_id or "" for life in timeline.lifetimes}
    draws = stream(hypothesis.number, "names")
    return [f"{client_ids[slot]}-{draws.getrandbits(32):08x}-{slot}" for slot in sorted(client_ids)]


class _ActsBySlot:
    """The acts by client, to look up the last one of a kind before a time."""

    def __init__(self, acts: Sequence[Act], names: Sequence[str]) -> None:
        self._acts: dict[str | None, list[Act]] = defaultdict(list)
        for act in acts:
            self._acts[names[act.slot] if act.slot >= 0 else None].append(act)

    def last(self, client_id: str | None, kinds: frozenset[What] | set[What], at_ms: int) -> Mark | None:
        """The mark of a client's (or the topics') last act of these kinds."""
        of_client = self._acts[client_id]
        index = bisect_right(of_client, at_ms, key=lambda act: act.at_ms)
        return next((act.mark for act in reversed(of_client[:index]) if act.what in kinds), None)


def _with_owners(rebalances: list[Played], owners: Sequence[Mapping[str, Any]], from_ms: int) -> Play:
    """Add the time for which owned partitions were not served, to the rebalance after which each was served again."""
    played = [one for one in rebalances if one.at_ms >= from_ms]
    by_partition: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for line in owners:
        by_partition[line["topic"], line["partition"]].append(line)
    all_not_served_ms = gap_count = 0
    for lines in by_partition.values():
        lines.sort(key=lambda line: line["from_ms"])
        for old, new in pairwise(lines):
            if new["from_ms"] < from_ms:
                continue
            until_ms = new["from_ms"] if old["to_ms"] is None else old["to_ms"]
            not_served_ms = max(0, new["from_ms"] - until_ms)
            all_not_served_ms += not_served_ms
            gap_count += not_served_ms > 0
            index = bisect_right(played, new["from_ms"], key=lambda one: one.at_ms) - 1
            if index >= 0 and until_ms <= played[index].at_ms + SETTLED_MS:
                played[index] = played[index].plus(not_served_ms=not_served_ms, gap_count=not_served_ms > 0)
    return Play(tuple(played), all_not_served_ms, gap_count)
