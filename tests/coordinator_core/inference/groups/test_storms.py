"""Storms: what an engineer should look at, and what takes many rebalances though nothing is wrong."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from coordinator_core.inference.audit.groups import audit_group
from coordinator_core.inference.facts.rows import RebalanceRow
from coordinator_core.inference.facts.settings import InferenceSettings
from tests.coordinator_core.group_records import Record
from tests.coordinator_core.inference.group_lives import classic, life_of

SETTINGS = InferenceSettings()
SECOND = 1_000


class Case(NamedTuple):
    """Who is there, each `apart_ms` after the one before, and which of these rebalances are of a storm."""

    name: str
    members: Sequence[Sequence[str]]
    storm: Sequence[int]
    apart_ms: int = 60 * SECOND


CASES = [
    Case("one comes and goes", [["a"], *[["a", "b"], ["a"]] * 3], range(1, 7)),
    Case("pods of changing names crash", [["a"], ["a", "x-1"], ["a"], ["a", "x-2"], ["a"], ["a", "x-3"]], range(1, 6)),
    Case(
        "only twice, and then good", [["a"], ["a", "b"], ["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"]], []
    ),
    Case("scaled out one by one", [[f"x-{n}" for n in range(count)] for count in range(1, 9)], []),
    Case("scaled in one by one", [[f"x-{n}" for n in range(count)] for count in range(8, 0, -1)], []),
    Case(
        "all restarted at once, one by one",
        [
            ["x-1", "x-2", "x-3"],
            ["x-2", "x-3"],
            ["x-3"],
            [],
            ["x-4"],
            ["x-4", "x-5"],
            ["x-4", "x-5", "x-6"],
        ],
        [],
        5 * SECOND,
    ),
    Case("nobody comes or goes", [["a", "b"]] * 7, range(1, 7)),
    Case("just fast enough", [["a", "b"]] * 6, range(1, 6), InferenceSettings().storm_window_ms // 4),
    Case("too slow to be a storm", [["a"], *[["a", "b"], ["a"]] * 3], [], 300 * SECOND),
]


def rebalances(case: Case) -> Sequence[RebalanceRow]:
    """What is inferred of a case."""
    operations: list[tuple[int, list[Record]]] = []
    for number, members in enumerate(case.members):
        owned = {member: (index,) for index, member in enumerate(members)}
        operations.append((number * case.apart_ms, classic(number + 1, owned)))
    return audit_group(life_of(operations), SETTINGS).rebalances


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_storm_is_a_group_that_rebalances_for_no_good(case: Case) -> None:
    """Flapping members and rebalances without a reason are a storm; growth, shrinking and restarts are not."""
    assert [index for index, row in enumerate(rebalances(case)) if row.in_storm] == list(case.storm)


def test_who_flaps_is_named() -> None:
    """The client id of the member that came and went again and again, in each rebalance of the storm."""
    rows = rebalances(Case("", [["a"], ["a", "b"], ["a"], ["a", "b", "c"], *[["a", "c"], ["a", "b", "c"]] * 2], ()))
    assert {row.flapping_members for row in rows if row.in_storm} == {("client-b",)}


def cooperative(*steps: dict[str, Sequence[int]]) -> Sequence[bool]:
    """Which generations of a cooperative group, a minute apart, are of a storm."""
    operations = [
        (number * 60 * SECOND, classic(number + 1, owned, protocol="cooperative-sticky"))
        for number, owned in enumerate(steps)
    ]
    return [row.in_storm for row in audit_group(life_of(operations), SETTINGS).rebalances]


def test_follow_ups_are_of_the_storm_that_they_follow() -> None:
    """Partitions of cooperative members move in a second generation: of the storm, if there is one."""
    flapping: list[dict[str, Sequence[int]]] = [{"a": (0,), "b": ()}, {"a": (0,), "b": (1,)}, {"a": (0, 1)}]
    assert cooperative({"a": (0, 1)}, *flapping * 3) == [False, *[True] * 9]
    grown: list[dict[str, Sequence[int]]] = [{"x-0": range(8)}]
    for number in range(1, 8):
        for owned in ((), (number,)):
            grown.append({**grown[-1], "x-0": (0, *range(number + 1, 8)), f"x-{number}": owned})
    assert not any(cooperative(*grown))
