"""Time without an owner against the clients' own: the truth lies between the least and the most, and what is likely
ranks the groups as the truth does.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from coordinator_core.inference.groups.handovers import ANSWER_MS
from schemas.group_types import GroupType
from tests.cases.scenario_truth import ms
from tests.cases.view_truth import END_MS, true_spans
from tests.scenarios import Scenario, lived
from tests.simulator.simulation.random_scenarios import STORIES, restless_text

LATENCY_MS: Final = 30
"""Between a coordinator's record and what a client makes of it."""
EAGER: Final = frozenset({"range", "roundrobin", "sticky"})
HERE: Final = Path(__file__).parent / "unowned"

Span = tuple[int, int]


def unowned(spans: Sequence[Span]) -> Iterator[Span]:
    """The gaps between spans of ownership."""
    end = END_MS
    for begin, to in sorted(spans):
        if begin > end:
            yield end, begin
        end = to if end == END_MS else max(end, to)


class GroupTruth:
    """When clients owned partitions of one group, and what coordinators had given them."""

    def __init__(self, life: Scenario, group_id: str, rebalances: Sequence[dict[str, Any]]) -> None:
        lines = [line for line in life.truth("generations") if line["group"] == group_id]
        self._begins = [line["ts_ms"] for line in lines]
        self._has_members = [bool(line["members"]) for line in lines]
        self._numbers = [line["generation"] for line in lines]
        self._is_classic = lines[0]["group_type"] == GroupType.CLASSIC
        self._is_eager = [line.get("protocol_name") in EAGER for line in lines]
        self._clients = {key: member["client_id"] for line in lines for key, member in line["members"].items()}
        self._joined = {ms(row["completed_at"]): ms(row["started_at"]) for row in rebalances if row["completed_at"]}
        topics = {line["topic_id"]: line["topic"] for line in life.truth("topics")}
        self._given: dict[tuple[str, int], list[tuple[int, int, str]]] = defaultdict(list)
        for (group, topic, number, member_id), spans in true_spans(life, topics).items():
            if group == group_id:
                self._given[topic, number] += [(*span, self._clients.get(member_id, "")) for span in spans]
        self._owned: dict[tuple[str, int], list[tuple[int, int, str]]] = defaultdict(list)
        for line in life.truth("owners"):
            if line["group"] == group_id:
                span = line["from_ms"], line["to_ms"] or END_MS, line["client_id"]
                self._owned[line["topic"], line["partition"]].append(span)

    def by_rebalance(self, *, is_least: bool) -> dict[int, tuple[int, int]]:
        """By generation: ms, and in how many pieces. `is_least`: compared with the least. Then a member that its
        coordinator has dropped owns nothing, whatever its client believes, and it owns what it was given first only
        when it took it; and it matters how long that took, which no record shows."""
        sums: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for at, spans in self._owned.items():
            given = self._given[at]
            owned = [(begin, self._until(begin, end, client, given)) for begin, end, client in spans]
            if is_least and given:
                owned.append((min(begin for begin, _, _ in given),) * 2)
            for gap in unowned(owned if is_least else [span[:2] for span in spans]):
                for begin, end, index in self._pieces(gap, given, is_least=is_least):
                    since = bisect_right(self._begins, gap[0]) - 1
                    if index >= 0 and all(self._has_members[max(since, 0) : index + 1]):
                        total_ms, count = sums[self._numbers[index]]
                        sums[self._numbers[index]] = total_ms + end - begin, count + 1
        return sums

    def _until(self, begin: int, end: int, client: str, given: Sequence[tuple[int, int, str]]) -> int:
        """When a client no longer owned a partition: at the end of the join phase in which it was dropped."""
        dropped = (self._joined.get(to, to) for since, to, who in given if who == client and since <= begin < to < end)
        return min([end, *(at for at in dropped if at >= begin)])

    def _pieces(
        self, gap: Span, given: Sequence[tuple[int, int, str]], *, is_least: bool
    ) -> Iterator[tuple[int, int, int]]:
        """A gap in pieces, each with the index of its rebalance: that which ended what the coordinator had given, or
        began it and waits for its member; else the one in force."""
        covered_to = gap[0]
        for since, to, _ in sorted(given):
            inner = (at for at, is_eager in zip(self._begins, self._is_eager, strict=True) if is_eager)
            cuts = [since, *(at for at in inner if self._is_classic and since < at < to), to]
            for first, last in pairwise(cuts):
                begin, end = max(gap[0], first), min(gap[1], last)
                if begin >= end:
                    continue
                yield from self._cut(covered_to, begin)
                covered_to = end
                is_tail = gap[0] <= first and (end < last or self._is_never_taken(first, last, gap))
                if is_tail or last == END_MS:
                    end = end if is_least else min(end, begin + ANSWER_MS)
                    yield begin, end, bisect_right(self._begins, begin) - 1
                else:
                    yield begin, end, bisect_right(self._begins, last) - 1
        yield from self._cut(covered_to, gap[1])

    def _is_never_taken(self, first: int, last: int, gap: Span) -> bool:
        """Whether a member of another protocol than classic was given a partition, and was too busy to take it."""
        return not self._is_classic and gap[0] <= first and gap[1] >= last

    def _cut(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Time in which the coordinator had given it to nobody, by the generation in force."""
        while begin < end:
            following = bisect_right(self._begins, begin)
            to = min(end, self._begins[following] if following < len(self._begins) else end)
            yield begin, to, following - 1
            begin = to


def test_the_truth_is_between_the_least_and_the_most(tmp_path: Path) -> None:
    """For each rebalance of groups whose members pause, crash, stop and subscribe, but for the time that a member was
    too busy to take what it was given."""
    count = 0
    for seed in range(STORIES // 2):
        life = lived(restless_text(seed), tmp_path / str(seed))
        rows = life.rows("gold.rebalances")
        for group_id in sorted({row["group_id"] for row in rows}):
            own = [row for row in rows if row["group_id"] == group_id]
            truth = GroupTruth(life, group_id, own)
            least, most = truth.by_rebalance(is_least=True), truth.by_rebalance(is_least=False)
            for row in own:
                number = row["to_generation"]
                shown = row["unowned_partition_ms"], row["unowned_likely_ms"], row["unowned_most_ms"]
                place = (seed, group_id, number, shown, least[number], most[number])
                assert shown[0] <= shown[1] <= shown[2], place
                assert shown[0] <= least[number][0] + LATENCY_MS * least[number][1], place
                assert most[number][0] <= shown[2], place
                count += 1
    assert count > 2 * STORIES


@pytest.fixture(scope="module")
def classic(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """Twelve classic groups that lose their members in different ways."""
    text = (HERE / "scenario.toml").read_text(encoding="utf-8")
    return lived(text, tmp_path_factory.mktemp("unowned") / "classic")


def test_groups_rank_as_they_truly_do(classic: Scenario) -> None:
    """The likely time without an owner orders groups as the clients' own time does, in rebalances and in days; the sure
    one had the slowest last."""
    spans: dict[tuple[str, int], list[Span]] = defaultdict(list)
    for line in classic.truth("owners"):
        spans[line["group"], line["partition"] + 100 * (line["topic"] == "t7")].append(
            (line["from_ms"], line["to_ms"] or END_MS)
        )
    true: dict[str, int] = defaultdict(int)
    for (group, _), owned in spans.items():
        true[group] += sum(end - begin for begin, end in unowned(owned))
    assert (true["a-slow"], true["a-session"], true["a-pause"]) == (136_432, 92_016, 516)
    order = sorted(true, key=lambda group: (-true[group], group))
    for table in ("rebalances", "group_summary"):
        likely: dict[str, int] = defaultdict(int)
        for row in classic.rows(f"gold.{table}"):
            likely[row["group_id"]] += row["unowned_likely_ms"]
        assert sorted(likely, key=lambda group: (-likely[group], group)) == order
        assert all(abs(likely[group] - true[group]) <= max(0.05 * true[group], 300) for group in order)


def test_days_have_what_rebalances_have(classic: Scenario) -> None:
    """Least, likely and most are one sum each."""
    names = ("unowned_partition_ms", "unowned_likely_ms", "unowned_most_ms")
    of_rebalances = [sum(row[name] for row in classic.rows("gold.rebalances")) for name in names]
    days = classic.rows("gold.group_summary")
    assert of_rebalances == [sum(day[name] for day in days) for name in ("unowned_least_ms", *names[1:])]
