"""Random stories of groups, one setting to be changed in each, and what a simulation with that setting gives.

A world has several groups and runs once; what `whatif` says of each is judged by a run of that group alone with the
other setting. A world is a function of its seed.
"""

import random
import tomllib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from coordinator_core.inference.audit.groups import audit_group
from coordinator_core.inference.facts.settings import InferenceSettings
from simulator.simulation.scenario import GroupSpec, Scenario
from simulator.simulation.scenario_file import parse_scenario
from simulator.simulation.truth import Facts
from simulator.whatif.verdicts import WhatIfRow
from tests.simulator.whatif.recorded import Simulated

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
    lines = [
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
    is_poisoned = "poison_every = 0" not in lines
    return [line for line in lines if is_poisoned or not line.startswith("on_poison")]


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
    unknowns: dict[str, int] = field(default_factory=dict)
    misses: list[str] = field(default_factory=list)

    def add(self, what: str, owned: bool, story: str) -> None:
        """One band."""
        self.all[what] = self.all.get(what, 0) + 1
        self.owned[what] = self.owned.get(what, 0) + owned
        if not owned:
            self.misses.append(f"{what}: {story}")

    def unknown(self, what: str) -> None:
        """A band that whatif leaves out."""
        self.unknowns[what] = self.unknowns.get(what, 0) + 1

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
    """How many it had until then; what strikes a client that is down is none."""
    lines = [line for line in run.sink.lines.get("faults", []) if line["ts_ms"] <= before_ms]
    if client_id == GREW:
        return sum(line["fault"] == "add_partitions" for line in lines)
    count, down_until_ms = 0, 0
    for line in lines:
        if line.get("client_id") == client_id and line["ts_ms"] >= down_until_ms:
            count += 1
            if line["fault"] in {"crash", "stop", "rolling_deploy"}:
                down_until_ms = line.get("until_ms") or LAST_MS
    return count


LAST_MS: Final = 2**62


MEASURES: Final = ("rebalances", "moved", "unowned_ms", "not_served_ms")
"""As `WhatIfRow` names them."""
COLUMNS: Final = [f"{it}_{when}_{end}" for it in MEASURES for when in ("before", "after") for end in ("min", "max")]
SETTLED_MS: Final = 30_000
"""A partition that nobody serves when a rebalance has been over for so long, lacks an owner for another reason."""


@dataclass
class Came:
    """A rebalance that truly came, with its follow-ups: generations to which nobody came and from which nobody went."""

    at_ms: int
    causes: frozenset[Cause]
    generation: int
    measures: Counter[str] = field(default_factory=Counter)


def truth_of(run: Simulated, group: str) -> tuple[list[Came], Counter[str]]:
    """The rebalances of a group in order of time, as gold measures them, and the sums."""
    gold = {row.to_generation: row for row in audit_group(run.life(group), InferenceSettings()).rebalances}
    found: list[Came] = []
    total = Counter[str]()
    for line, (at_ms, causes) in zip(run.generations(group), causes_by_time(run, group), strict=True):
        if causes or not found:
            found.append(Came(at_ms, causes, line["generation"]))
        row = gold.get(line["generation"])
        measures = Counter(rebalances=1)
        if row is not None:
            measures.update(moved=row.partitions_moved or 0, unowned_ms=row.unowned_partition_ms or 0)
        found[-1].measures.update(measures)
        total.update(measures)
    times = [one.at_ms for one in found]
    for until_ms, from_ms in gaps(run, group):
        total["not_served_ms"] += from_ms - until_ms
        index = bisect_right(times, from_ms) - 1
        if index >= 0 and until_ms <= times[index] + SETTLED_MS:
            found[index].measures["not_served_ms"] += from_ms - until_ms
    return found, total


def gaps(run: Simulated, group: str) -> Iterator[tuple[int, int]]:
    """From when to when a partition had no living owner, between two of them, as clients saw it."""
    by_partition: dict[tuple[str, int], list[Facts]] = {}
    for line in run.sink.lines.get("owners", []):
        if line["group"] == group:
            by_partition.setdefault((line["topic"], line["partition"]), []).append(line)
    for lines in by_partition.values():
        lines.sort(key=lambda line: line["from_ms"])
        for old, new in pairwise(lines):
            if old["to_ms"] is not None and old["to_ms"] < new["from_ms"]:
                yield old["to_ms"], new["from_ms"]


# --- what was said, and what is so ---


def judge(figures: Figures, world: Simulated, group: str, asked: Asked, rows: Sequence[WhatIfRow]) -> None:
    """Hold what whatif said of a group against a run of its story with the other setting."""
    scenario = world.simulation.scenario
    changed = Simulated(asked.scenario(scenario, group))
    story = f"seed {scenario.seed}, {group}, {asked.text}"
    if rows[-1].deliveries_min is not None:
        judge_records(figures, changed, story, rows)
        judge_deliveries(figures, world, changed, group, story, rows)
        return
    *_, total = rows
    recorded, sums = truth_of(world, group)
    came, changed_sums = truth_of(changed, group)
    judge_measures(figures, "total before", total, "before", sums, story)
    judge_measures(figures, "total", total, "after", changed_sums, story)
    judge_sums(figures, rows, story)
    before = {one.at_ms: one for one in recorded}
    after = [(one.at_ms, one.causes) for one in came]
    free = list(came)
    added = dict[int, list[Came]]()
    answers = with_follow_ups(rows[:-1], before.keys())
    for number, row in enumerate(answers):
        if row.generation is None:
            added[number] = []
            continue
        was = before.get(row.at_ms or 0)
        said = f"{story}: generation {row.generation} {row.verdict}"
        assert was is not None, said
        mine = [one for one in free if one.causes & was.causes]
        free = [one for one in free if not one.causes & was.causes]
        judge_measures(figures, "row before", row, "before", was.measures, said)
        judge_measures(figures, "row", row, "after", sum((one.measures for one in mine), Counter()), said)
        judge_verdict(figures, row, [time_ms for time_ms, causes in after if causes & was.causes], said)
    for one in free:
        clients = {name for name, _, _ in one.causes}
        rows_of = [number for number in added if any(name in answers[number].recorded.split() for name in clients)]
        nearest = min(rows_of, key=lambda number: abs((answers[number].at_ms or 0) - one.at_ms), default=None)
        figures.add("added row", nearest is not None, f"{story}: at {one.at_ms - scenario.start_ms} {sorted(clients)}")
        if nearest is not None:
            added[nearest].append(one)
    for number, mine in added.items():
        said = f"{story}: {answers[number].verdict} {answers[number].recorded}"
        judge_measures(figures, "row", answers[number], "after", sum((one.measures for one in mine), Counter()), said)


def with_follow_ups(rows: Sequence[WhatIfRow], times: Set[int]) -> list[WhatIfRow]:
    """Rebalances that began at other times than these, to which nobody came, together with the rebalance before."""
    found: list[WhatIfRow] = []
    for row in rows:
        if row.generation is None or row.at_ms in times:
            found.append(row)
            continue
        values: dict[str, Any] = {}
        for column in (
            f"{it}_{when}_{end}" for it in MEASURES for when in ("before", "after") for end in ("min", "max")
        ):
            one, other = getattr(found[-1], column), getattr(row, column)
            values[column] = None if one is None or other is None else one + other
        found[-1] = found[-1]._replace(**values)
    return found


def judge_measures(figures: Figures, kind: str, row: WhatIfRow, when: str, truth: Mapping[str, int], said: str) -> None:
    """Each measure of a row is within its band, if the row has one."""
    for name in MEASURES:
        least, most = getattr(row, f"{name}_{when}_min"), getattr(row, f"{name}_{when}_max")
        if least is None and most is None:
            figures.unknown(f"{kind} {name}")
            continue
        value = truth.get(name, 0)
        is_within = (least is None or least <= value) and (most is None or value <= most)
        figures.add(f"{kind} {name}", is_within, f"{said}: {name} {when} {value} not {least}..{most}")


def judge_sums(figures: Figures, rows: Sequence[WhatIfRow], said: str) -> None:
    """The total is the sum of the rows, as far as they are known; partitions may go unserved without a rebalance."""
    *answers, total = rows
    for column in COLUMNS:
        values = [getattr(row, column) for row in answers]
        found = getattr(total, column)
        known = sum(value for value in values if value is not None)
        is_blind = "SILENCE_NOT_IN_LOG" in total.assumptions and "after" in column
        if (column.endswith("max") and (is_blind or None in values)) or set(values) == {None}:
            is_sum = found is None
        else:
            is_sum = found >= known if column.startswith("not_served_ms") else found == known
        figures.add("sums", is_sum, f"{said}: {column} {found} of {values}")


def judge_verdict(figures: Figures, row: WhatIfRow, at_ms: Sequence[int], said: str) -> None:
    """What came of a recorded rebalance, and when."""
    if row.confidence is None:
        return
    if row.verdict == "AVOIDED":
        figures.add(f"{row.confidence} verdict", not at_ms, f"{said}, but it came")
    elif row.shift_ms_min is not None and row.shift_ms_max is not None and row.at_ms is not None:
        shift_ms = at_ms[0] - row.at_ms if at_ms else None
        figures.add(
            f"{row.confidence} time",
            shift_ms is not None and row.shift_ms_min <= shift_ms <= row.shift_ms_max,
            f"{said}: {shift_ms} not {row.shift_ms_min}..{row.shift_ms_max}",
        )


def judge_deliveries(
    figures: Figures, world: Simulated, changed: Simulated, group: str, story: str, rows: Sequence[WhatIfRow]
) -> None:
    """Each record of a row was delivered as much more often as the row has it, and all of them as the total has it."""
    before, after = (deliveries_of(run, group) for run in (world, changed))
    more: dict[tuple[str, int, int], int] = {}
    for row in rows[:-1]:
        assert row.first_offset is not None and row.last_offset is not None
        assert row.deliveries_min is not None and row.deliveries_max is not None
        places = [(row.topic or "", row.partition or 0, it) for it in range(row.first_offset, row.last_offset + 1)]
        found = {place: after[place] - before[place] for place in places}
        more |= found
        said = f"{story}: {row.topic}-{row.partition} {row.first_offset}..{row.last_offset} {row.verdict}"
        wrong = {it: n for it, n in found.items() if not row.deliveries_min <= n <= row.deliveries_max}
        band = f"{row.deliveries_min}..{row.deliveries_max}"
        figures.add(f"{row.confidence} deliveries", not wrong, f"{said}: {list(wrong.items())[:3]} not {band}")
    total = rows[-1]
    assert total.deliveries_min is not None and total.deliveries_max is not None
    figures.add(
        "total deliveries",
        total.deliveries_min <= sum(more.values()) <= total.deliveries_max,
        f"{story}: {sum(more.values())} not {total.deliveries_min}..{total.deliveries_max}",
    )


def deliveries_of(run: Simulated, group: str) -> Counter[tuple[str, int, int]]:
    """How often each record was delivered."""
    return Counter(
        (line["topic"], line["partition"], offset)
        for line in run.sink.lines.get("deliveries", [])
        if line["group"] == group
        for offset in range(line["first_offset"], line["last_offset"] + 1)
    )


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
    scenario = changed.simulation.scenario
    last_ms = scenario.start_ms + scenario.duration_ms - scenario.cluster.share_record_lock_duration_ms
    under_way = {
        (line["topic"], line["partition"], offset)
        for line in changed.sink.lines.get("deliveries", [])
        if line["ts_ms"] >= last_ms
        for offset in range(line["first_offset"], line["last_offset"] + 1)
    }
    """A lock of a delivery this late outlasts the story."""
    for row in rows[:-1]:
        if not row.would_be.startswith("ARCHIVED") or row.first_offset is None or row.last_offset is None:
            continue
        for offset in range(row.first_offset, row.last_offset + 1):
            place = (row.topic or "", row.partition or 0, offset)
            if place not in given_up and place in under_way:
                continue
            said = f"{story}: {row.topic}-{row.partition} offset {offset}"
            figures.add(f"{row.confidence} archived", place in given_up, said)
            if place in given_up and row.at_ms is not None and row.shift_ms_min is not None:
                late_ms = given_up[place] - row.at_ms - row.shift_ms_min
                figures.add(f"{row.confidence} archived then", abs(late_ms) <= NEAR_MS, f"{said}: {late_ms} ms off")
