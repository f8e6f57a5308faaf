"""Random stories of groups, one setting to be changed in each, and what a simulation with that setting gives.

A world has several groups and runs once; what `whatif` says of each is judged by a run of that group alone with the
other setting. A world is a function of its seed.
"""

import random
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from coordinator_core.inference.groups import audit_group
from coordinator_core.inference.rows import RebalanceRow
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.simulate.scenario import GroupSpec, Scenario
from coordinator_core.simulate.scenario_file import parse_scenario
from coordinator_core.simulate.truth import Facts
from coordinator_core.whatif.answer import WhatIfRow
from tests.coordinator_core.whatif.recorded import Simulated

MINUTES: Final = 7
FAULTS_UNTIL_S: Final = 210
"""What strikes has its whole course before the end, also under the longest session that is asked for."""


@dataclass(frozen=True)
class Asked:
    """A setting, as whatif is asked for it, and the same scenario with it."""

    text: str
    change: Callable[[Scenario, GroupSpec], Scenario]

    def scenario(self, scenario: Scenario, group: str) -> Scenario:
        """The story of this group alone with the other setting."""
        (spec,) = [it for it in scenario.groups if it.name == group]
        faults = tuple(it for it in scenario.faults if it.group in {None, group})
        return self.change(replace(scenario, groups=(spec,), faults=faults), spec)


def of_group(text: str, **values: Any) -> Asked:
    """A setting of the clients."""
    return Asked(text, lambda scenario, spec: replace(scenario, groups=(replace(spec, **values),)))


def of_broker(text: str, **values: Any) -> Asked:
    """A setting of the brokers."""

    def change(scenario: Scenario, spec: GroupSpec) -> Scenario:
        settings = replace(scenario.cluster.settings, **values)
        return replace(scenario, cluster=replace(scenario.cluster, settings=settings))

    return Asked(text, change)


def of_cluster(text: str, **values: Any) -> Asked:
    """A setting of the brokers which scenarios have outside of `[cluster.settings]`."""
    return Asked(text, lambda scenario, spec: replace(scenario, cluster=replace(scenario.cluster, **values)))


# --- stories ---


def random_scenario(seed: int, protocols: tuple[str, ...] = ("classic", "consumer")) -> Scenario:
    """A world of a group for each of these protocols, and what befalls them."""
    draws = random.Random(seed)
    lines = [
        f'name = "whatif-{seed}"',
        "start = 2026-01-05T08:00:00Z",
        f'duration = "{MINUTES}m"',
        f"seed = {seed}",
        "[cluster]",
        "brokers = 1",
        "consumer_offsets_partitions = 3",
        "share_group_state_partitions = 3",
        "[cluster.settings]",
        f'"group.initial.rebalance.delay.ms" = {draws.choice((0, 1000, 3000, 3000, 6000))}',
        f'"group.consumer.session.timeout.ms" = {draws.choice((45_000, 60_000))}',
    ]
    for index, protocol in enumerate(protocols):
        lines += group_lines(draws, index, protocol)
    return parse_scenario("\n".join(lines), f"whatif-{seed}.toml")


def group_lines(draws: random.Random, index: int, protocol: str) -> list[str]:
    """A topic and a group of its own, and its faults."""
    members = draws.randint(1, 4)
    lines = [
        "[[topic]]",
        f'name = "t{index}"',
        f"partitions = {draws.randint(1, 8)}",
        "rate = 10.0",
        "[[group]]",
        f'name = "g{index}"',
        f'topics = ["t{index}"]',
        f'protocol = "{protocol}"',
        f"members = {members}",
        f'stagger = "{draws.choice((0, 500, 1500, 4000, 9000))}ms"',
        f'max_poll_interval = "{draws.choice((40, 60, 300))}s"',
        f"static = {str(draws.random() < 0.25).lower()}",
        f'commit_interval = "{draws.choice((1000, 5000, 5000))}ms"',
    ]
    if protocol == "share":
        lines = share_lines(draws, index, members)
    if protocol == "classic":
        session_s = draws.choice((10, 30, 45))
        lines += [f'session_timeout = "{session_s}s"']
        lines.append(f'assignors = ["{draws.choice(("range", "roundrobin", "sticky", "cooperative-sticky"))}"]')
    drawn = (fault_lines(draws, f"g{index}", f"t{index}", members) for _ in range(draws.randint(0, 3)))
    faults = sorted(drawn, key=lambda fault: tomllib.loads("\n".join(fault[1:3]))["at"].rjust(5))
    partitions = 0
    for fault in faults:
        if "add_partitions" in fault[1]:
            count = tomllib.loads(fault[-1])["partitions"]
            if count <= partitions:  # a topic never shrinks
                continue
            partitions = count
        lines += fault
    return lines


def share_lines(draws: random.Random, index: int, members: int) -> list[str]:
    """A share group whose records are sometimes handed back."""
    return [
        "[[topic]]",
        f'name = "t{index}"',
        f"partitions = {draws.randint(1, 4)}",
        "rate = 10.0",
        f"poison_every = {draws.choice((0, 40, 90))}",
        "[[group]]",
        f'name = "g{index}"',
        f'topics = ["t{index}"]',
        'protocol = "share"',
        f"members = {members}",
        f'stagger = "{draws.choice((0, 1500, 9000))}ms"',
        f'poll_interval = "{draws.choice((500, 1000, 3000))}ms"',
        'acknowledge = "explicit"',
        f'on_poison = "{draws.choice(("release", "reject", "time_out"))}"',
        f"release_every = {draws.choice((0, 30))}",
    ]


def fault_lines(draws: random.Random, group: str, topic: str, members: int) -> list[str]:
    """One thing that befalls a group."""
    kind = draws.choice(("crash", "stop", "pause", "slow_poll", "rolling_deploy", "add_partitions", "crash"))
    lines = ["[[fault]]", f'kind = "{kind}"', f'at = "{draws.randint(60, FAULTS_UNTIL_S)}s"']
    if kind == "add_partitions":
        return [*lines, f'topic = "{topic}"', f"partitions = {draws.randint(9, 12)}"]
    lines.append(f'group = "{group}"')
    if kind == "rolling_deploy":
        return [*lines, f'duration = "{draws.randint(3, 15)}s"']
    lines.append(f"member = {draws.randrange(members)}")
    if kind in {"pause", "slow_poll"} or draws.random() < 0.7:
        lines.append(f'duration = "{draws.choice((5, 15, 25, 50, 70, 90))}s"')
    return lines


# --- questions ---


def asked_of(scenario: Scenario, group: GroupSpec) -> list[Asked]:
    """What can be asked of a group, each with a value that it does not have."""
    settings = scenario.cluster.settings
    if group.protocol == "share":
        return asked_of_share_group(scenario, group)
    polls = [
        of_group(f"max.poll.interval.ms={ms}", max_poll_interval_ms=ms)
        for ms in (30_000, 50_000, 100_000, 300_000)
        if ms != group.max_poll_interval_ms
    ]
    found = [
        *polls,
        of_group(f"group.instance.id={'dynamic' if group.static else 'static'}", static=not group.static),
    ]
    if group.protocol == "classic":
        found += [
            of_group(f"session.timeout.ms={ms}", session_timeout_ms=ms)
            for ms in (10_000, 20_000, 45_000, 60_000)
            if ms != group.session_timeout_ms
        ]
        found += [
            of_broker(f"group.initial.rebalance.delay.ms={ms}", group_initial_rebalance_delay_ms=ms)
            for ms in (0, 1000, 6000, 10_000)
            if ms != settings.group_initial_rebalance_delay_ms
        ]
        found += [
            of_group(f"assignor={name}", assignors=(name,))
            for name in ("range", "cooperative-sticky", "sticky")
            if (name,) != group.assignors
        ]
        found.append(of_group("group.protocol=consumer", protocol="consumer", assignors=()))
    else:
        other_ms = 105_000 - settings.group_consumer_session_timeout_ms
        found += [
            of_broker(f"group.consumer.session.timeout.ms={other_ms}", group_consumer_session_timeout_ms=other_ms),
            of_group("assignor=range", assignors=("range",)),
            of_group("group.protocol=classic", protocol="classic", assignors=("range",)),
        ]
    return found


def asked_of_share_group(scenario: Scenario, group: GroupSpec) -> list[Asked]:
    """The same of a share group."""
    cluster, settings = scenario.cluster, scenario.cluster.settings
    other_ms = 105_000 - settings.group_share_session_timeout_ms
    return [
        of_broker(f"share.session.timeout.ms={other_ms}", group_share_session_timeout_ms=other_ms),
        *(
            of_broker(f"share.heartbeat.interval.ms={ms}", group_share_heartbeat_interval_ms=ms)
            for ms in (8000, 15_000)
        ),
        *(
            of_cluster(f"share.delivery.count.limit={limit}", share_delivery_count_limit=limit)
            for limit in (2, 3, 4, 8)
            if limit != cluster.share_delivery_count_limit
        ),
        *(
            of_group(f"share.partition.max.record.locks={count}", max_record_locks=count)
            for count in (100, 300)
            if count != group.max_record_locks
        ),
        *(
            of_cluster(f"share.record.lock.duration.ms={ms}", share_record_lock_duration_ms=ms)
            for ms in (15_000, 20_000, 45_000)
            if ms != cluster.share_record_lock_duration_ms
        ),
    ]


# --- judging ---


@dataclass
class Figures:
    """How often what whatif said was so."""

    owned: dict[str, int] = field(default_factory=dict)
    """What was said (`total rebalances`, `LIKELY shift` ...) -> how often a simulation gave what the band holds."""
    all: dict[str, int] = field(default_factory=dict)
    misses: list[str] = field(default_factory=list)

    def add(self, what: str, owned: bool, story: str) -> None:
        """One band."""
        self.all[what] = self.all.get(what, 0) + 1
        self.owned[what] = self.owned.get(what, 0) + owned
        if not owned:
            self.misses.append(f"{what}: {story}")

    def share(self, what: str) -> float:
        """Of all that was said, how much was so."""
        return self.owned.get(what, 0) / max(self.all.get(what, 0), 1)

    def __str__(self) -> str:
        return ", ".join(f"{what} {self.owned[what]} of {count}" for what, count in sorted(self.all.items()))


Cause = tuple[str, int, bool]
"""A client that came or went: its name, how many faults had hit it before, whether it came."""


def causes_by_time(run: Simulated, group: str) -> list[tuple[int, frozenset[Cause]]]:
    """Of each true generation its time, and which members came and went; of static ones that is who they are."""
    (spec,) = [it for it in run.simulation.scenario.groups if it.name == group]
    found: list[tuple[int, frozenset[Cause]]] = []
    before: dict[str, str] = {}
    for line in run.generations(group):
        members = {
            facts["client_id"] if spec.static else member_id: facts["client_id"]
            for member_id, facts in line["members"].items()
        }
        causes = [(members[new], True) for new in members.keys() - before.keys()]
        causes += [(before[gone], False) for gone in before.keys() - members.keys()]
        causes += [(GREW, True) for cause in line["causes"] if cause["reason"] == "TOPIC_CHANGED"]
        found.append(
            (line["ts_ms"], frozenset((name, _faults_of(run, name, line["ts_ms"]), came) for name, came in causes))
        )
        before = members
    return found


GREW: Final = "topics"
"""In the place of a client: a topic got more partitions."""


def _faults_of(run: Simulated, client_id: str, before_ms: int) -> int:
    lines = [line for line in run.sink.lines.get("faults", []) if line["ts_ms"] <= before_ms]
    if client_id == GREW:
        return sum(line["fault"] == "add_partitions" for line in lines)
    return sum(line.get("client_id") == client_id for line in lines)


def gold_of(run: Simulated, group: str) -> list[RebalanceRow]:
    """What gold makes of the group's log."""
    return list(audit_group(run.life(group), InferenceSettings()).rebalances)


def not_served_ms(run: Simulated, group: str) -> int:
    """Partition time without a living owner, between owners, as clients saw it."""
    by_partition: dict[tuple[str, int], list[Facts]] = {}
    for line in run.sink.lines.get("owners", []):
        if line["group"] == group:
            by_partition.setdefault((line["topic"], line["partition"]), []).append(line)
    total_ms = 0
    for lines in by_partition.values():
        lines.sort(key=lambda line: line["from_ms"])
        for old, new in pairwise(lines):
            until_ms = new["from_ms"] if old["to_ms"] is None else old["to_ms"]
            total_ms += max(0, new["from_ms"] - until_ms)
    return total_ms


# --- what was said, and what is so ---


def judge(figures: Figures, world: Simulated, group: str, asked: Asked, rows: Sequence[WhatIfRow]) -> None:
    """Hold what whatif said of a group against a run of its story with the other setting."""
    scenario = world.simulation.scenario
    changed = Simulated(asked.scenario(scenario, group))
    before, after = dict(causes_by_time(world, group)), causes_by_time(changed, group)
    story = f"seed {scenario.seed}, {group}, {asked.text}"
    if rows[-1].deliveries_min is not None:
        judge_records(figures, changed, story, rows)
        if asked.text.startswith("share.partition.max.record.locks"):
            judge_locks(figures, world, changed, group, story, rows)
        return
    gold = gold_of(changed, group)
    total = rows[-1]
    truths = {
        "rebalances": len(after),
        "moved": sum(row.partitions_moved or 0 for row in gold),
        "unowned_ms": sum(row.unowned_partition_ms or 0 for row in gold),
        "not_served_ms": not_served_ms(changed, group),
    }
    for name, truth in truths.items():
        least, most = getattr(total, f"{name}_after_min"), getattr(total, f"{name}_after_max")
        if least is None:
            continue
        most = truth if most is None else most
        figures.add(f"{total.confidence} total", least <= truth <= most, f"{story}: {name} {truth} not {least}..{most}")
    for row in rows[:-1]:
        causes = before.get(row.at_ms or 0)
        if row.confidence is None or not causes:
            continue
        at_ms = [time_ms for time_ms, others in after if others & causes]
        said = f"{story}: generation {row.generation} {row.verdict}"
        if row.verdict == "AVOIDED":
            figures.add(f"{row.confidence} verdict", not at_ms, f"{said}, but it came")
        elif row.shift_ms_min is not None and row.shift_ms_max is not None and row.at_ms is not None:
            shift_ms = at_ms[0] - row.at_ms if at_ms else None
            figures.add(
                f"{row.confidence} time",
                shift_ms is not None and row.shift_ms_min <= shift_ms <= row.shift_ms_max,
                f"{said}: {shift_ms} not {row.shift_ms_min}..{row.shift_ms_max}",
            )


def judge_locks(
    figures: Figures, world: Simulated, changed: Simulated, group: str, story: str, rows: Sequence[WhatIfRow]
) -> None:
    """Under another number of record locks: of a share partition that is KEPT, each record was delivered as often; of
    all of them, deliveries are within the bounds."""
    before, after = (deliveries_by_partition(run, group) for run in (world, changed))
    for row in rows[:-1]:
        place = row.topic or "", row.partition or 0
        if row.verdict == "KEPT":
            same = before.get(place) == after.get(place)
            figures.add(f"{row.confidence} locks", same, f"{story}: {place} KEPT, and deliveries differ")
    total = rows[-1]
    more = sum(map(len, after.values())) - sum(map(len, before.values()))
    if total.deliveries_min is not None and total.deliveries_max is not None:
        within = total.deliveries_min <= more <= total.deliveries_max
        said = f"{story}: {more} deliveries more, not {total.deliveries_min}..{total.deliveries_max}"
        figures.add("locks total", within, said)


def deliveries_by_partition(run: Simulated, group: str) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Each delivery of a record, as its offset and count."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for line in run.sink.lines.get("deliveries", []):
        if line["group"] == group:
            offsets = range(line["first_offset"], line["last_offset"] + 1)
            found.setdefault((line["topic"], line["partition"]), []).extend(
                (offset, line["delivery_count"]) for offset in offsets
            )
    return {place: sorted(deliveries) for place, deliveries in found.items()}


NEAR_MS: Final = 50
"""From the truth's time of a write to that of its record."""


def judge_records(figures: Figures, changed: Simulated, story: str, rows: Sequence[WhatIfRow]) -> None:
    """Records of a share group that would have been given up for certain: each one was, for its deliveries."""
    given_up = {
        (line["topic"], line["partition"], offset): line["ts_ms"]
        for line in changed.sink.lines.get("archived", [])
        if line["why"] == "DELIVERY_LIMIT"
        for offset in range(line["first_offset"], line["last_offset"] + 1)
    }
    for row in rows[:-1]:
        if not row.would_be.startswith("ARCHIVED") or row.first_offset is None or row.last_offset is None:
            continue
        for offset in range(row.first_offset, row.last_offset + 1):
            place = (row.topic or "", row.partition or 0, offset)
            said = f"{story}: {row.topic}-{row.partition} offset {offset}"
            figures.add(f"{row.confidence} archived", place in given_up, said)
            if place in given_up and row.at_ms is not None and row.shift_ms_min is not None:
                late_ms = given_up[place] - row.at_ms - row.shift_ms_min
                figures.add(f"{row.confidence} archived then", abs(late_ms) <= NEAR_MS, f"{said}: {late_ms} ms off")
