"""The judge of client libraries: what it takes for the same owner, and what not."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.live.libraries.judge import CALLBACK_TOLERANCE_MS, SHUTDOWN_MS, judge_causes, judge_owners
from tests.live.libraries.truth import EXPIRED, KILLED, LEFT, GroupTruth, LeaveReason, Life, Owned, Truth

GROUP: Final = "g"
SESSION_MS: Final = 6_000
END_MS: Final = 200_000
FIRST: Final = Life(GROUP, "m1", 0)
SECOND: Final = Life(GROUP, "m2", 0, 42_124, 42_200, KILLED)
OVER: Final = (("m1", 0, 42_000), ("m2", 42_000, 49_000), ("m1", 49_000, None))
"""Gold, where the second process was killed right after the partition was assigned to it."""
GAVE_UP: Final = ((0, 41_900), (49_100, None))
"""The callbacks of the first process then: those of the second never ran."""


def truth_of(
    owned: tuple[tuple[int, int | None], ...],
    protocol: str = "classic",
    departures: dict[str, list[LeaveReason]] | None = None,
) -> Truth:
    """A group of two processes; what the first one had by its callbacks."""
    group = GroupTruth(
        GROUP,
        {"protocol": protocol, "session_ms": SESSION_MS},
        (),
        (FIRST, SECOND),
        tuple(Owned(("t", 0), FIRST, begin, end) for begin, end in owned),
        departures or {},
        {},
    )
    return Truth(END_MS, {GROUP: group}, frozenset(), frozenset())


def at(ms: int | None) -> datetime | None:
    """A time as tables have it."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def gold(*owners: tuple[str, int, int | None]) -> list[dict[str, Any]]:
    """Rows of gold.partition_owners: client, from, to."""
    return [
        {
            "group_id": GROUP,
            "client_id": name,
            "member_id": f"{name}-id",
            "topic": "t",
            "partition": 0,
            "valid_from": at(begin),
            "valid_to": at(end),
        }
        for name, begin, end in owners
    ]


@pytest.mark.parametrize(
    ("owners", "owned", "wrong"),
    [
        pytest.param((("m1", 0, None),), ((0, 20_000), (20_500, None)), 0, id="given up and assigned again"),
        pytest.param(OVER, GAVE_UP, 0, id="another had it, and was killed before its callback"),
        pytest.param(OVER, ((0, None),), 3, id="gold says that another had it, and it never gave it up"),
        pytest.param((("m1", 0, None),), ((0, 60_000),), 2, id="gold says that it kept what it gave up"),
        pytest.param((("m1", 0, 42_000), ("m1", 49_000, None)), GAVE_UP, 0, id="nobody had it in between"),
    ],
)
def test_an_interval_ends_where_another_process_had_the_partition(
    owners: tuple[tuple[str, int, int | None], ...], owned: tuple[tuple[int, int | None], ...], wrong: int
) -> None:
    """By gold or by the callbacks: neither side's intervals are joined over another owner."""
    score = judge_owners(truth_of(owned), gold(*owners), ())[GROUP]
    assert len(score.wrong) == wrong, score.wrong
    assert score.count > 0


def test_a_process_that_hung_is_another_owner_all_the_same() -> None:
    """The coordinator gave it the partition, and dropped it: it is not judged, and divides what the others had."""
    departures = {"m2-id": [LeaveReason(30_000, EXPIRED)]}
    score = judge_owners(truth_of(GAVE_UP, departures=departures), gold(*OVER), ())[GROUP]
    assert (score.right, score.wrong, score.left_out) == (4, [], 1)


@pytest.mark.parametrize(("protocol", "is_right"), [("connect", True), ("classic", False)])
def test_a_worker_has_its_tasks_until_they_have_stopped(protocol: str, is_right: bool) -> None:
    """Connect waits for a task to end; a consumer has no such excuse."""
    late_ms = CALLBACK_TOLERANCE_MS + SHUTDOWN_MS - 1
    truth = truth_of(((0, 60_000 + late_ms),), protocol)
    score = judge_owners(truth, gold(("m1", 0, 60_000), ("m2", 60_000, 61_000)), ())[GROUP]
    assert (score.wrong == []) is is_right, score.wrong


@pytest.mark.parametrize(("went_ms", "is_right"), [(16_300, True), (14_000, False), (30_000, False)])
def test_a_member_that_came_and_went_before_its_generation_was_written(went_ms: int, is_right: bool) -> None:
    """The group is empty again, and no record has the member: the coordinator's own log does."""
    row = {"group_id": GROUP, "cause_confidences": ["LIKELY"], "members_joined": [], "members_left": []}
    rows = [
        row | {"from_generation": 33, "to_generation": 34, "completed_at": at(14_600), "causes": ["UNKNOWN"]},
        row | {"from_generation": 34, "to_generation": 36, "completed_at": at(16_400), "causes": ["GROUP_EMPTIED"]},
    ]
    for each in rows:
        each |= {"started_at": each["completed_at"], "cause_methods": ["NO_MEMBERS_LEFT"]}
    truth = truth_of((), departures={"m2-id": [LeaveReason(went_ms, LEFT)]})
    assert [verdict.is_right for verdict in judge_causes(truth, rows, ())] == [is_right]
