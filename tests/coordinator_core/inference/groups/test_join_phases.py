"""Join phases of classic groups that ended at the rebalance time-out: members were there, and did not join again."""

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from coordinator_core.inference.audit.groups import audit_group
from coordinator_core.inference.facts.rows import RebalanceRow
from coordinator_core.inference.facts.settings import InferenceSettings
from tests.coordinator_core.group_records import Record
from tests.coordinator_core.inference.group_lives import (
    GROUP,
    REBALANCE_MS,
    TOPIC,
    Replayed,
    batches_of,
    classic,
    commit,
    generation,
    life_of,
)
from tests.coordinator_core.inference.group_nights import Nights, assert_same, end_of

SETTINGS: Final = InferenceSettings()
BEGAN: Final = 100_000
"""Members are asked to join again then."""
ENDED: Final = BEGAN + REBALANCE_MS
THREE: Final = {"a": (0,), "b": (1,), "c": (2,)}
WITHOUT_B: Final = {"a": (0, 1), "c": (2,)}
OUT: Final = ("MEMBER_EXPIRED", "REBALANCE_TIMEOUT", "LIKELY")
LEFT: Final = ("MEMBER_LEFT", "HEARD_WITHIN_SESSION", "LIKELY")


def beats(partition: int, begin: int, end: int, step: int = 5_000) -> list[tuple[int, int, int]]:
    """Commits of a partition at regular times, its offset going up; the last one at the end."""
    return [(at, partition, at) for at in range(end, begin, -step)]


def second(
    commits: Sequence[tuple[int, int, int]], first: list[Record], now: list[Record], ended_ms: int = ENDED
) -> RebalanceRow:
    """What is said of a generation whose join phase ended then."""
    operations = [(0, classic(0, {})), (1_000, first), (ended_ms + 2, now)]
    return audit_group(life_of(operations, commits), SETTINGS).rebalances[-1]


def causes_of(row: RebalanceRow) -> list[tuple[str, str, str]]:
    return list(zip(row.causes, row.cause_methods, row.cause_confidences, strict=True))


CASES: Final[Mapping[str, tuple[int, int, int, int, tuple[str, str, str]]]] = {
    # last commits of a, b and c, and when the join phase ended
    "it committed to the end, the others as they were asked": (BEGAN, ENDED - 100, BEGAN + 1_000, ENDED, OUT),
    "the others learned of it by a heartbeat": (BEGAN + 2_900, ENDED - 100, BEGAN + 3_000, ENDED, OUT),
    "the others had just committed": (BEGAN - 4_000, ENDED - 100, BEGAN - 2_000, ENDED, OUT),
    "one of the others joined late": (BEGAN, ENDED - 100, ENDED - 60_000, ENDED, OUT),
    "sooner than the time-out": (BEGAN, ENDED - 50_100, BEGAN + 1_000, ENDED - 50_000, LEFT),
    "another one committed to the end": (BEGAN, ENDED - 100, ENDED - 1_000, ENDED, LEFT),
    "the others were silent for longer": (BEGAN - 20_000, ENDED - 100, BEGAN - 20_000, ENDED, LEFT),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_member_that_did_not_join_again(case: tuple[int, int, int, int, tuple[str, str, str]]) -> None:
    """It expired, if those that stay were silent for a rebalance time-out before the end, and it was not."""
    *last, ended_ms, expected = case
    commits = [one for partition, end in enumerate(last) for one in beats(partition, 2_000, end)]
    row = second(commits, classic(1, THREE, state_at=1_000), classic(2, WITHOUT_B, state_at=ended_ms), ended_ms)
    assert row.members_left == ("b",)
    assert causes_of(row) == [expected]


def test_others_that_seldom_commit_show_nothing() -> None:
    """Of one commit nobody knows whether more were to come."""
    commits = [(BEGAN, 0, 1), (BEGAN, 2, 1), *beats(1, 2_000, ENDED - 100)]
    row = second(commits, classic(1, THREE, state_at=1_000), classic(2, WITHOUT_B, state_at=ENDED))
    assert causes_of(row) == [LEFT]


def test_a_timeout_of_few_commits_shows_little() -> None:
    """In a timeout of little more than two commits, a silence of the others that is as long may be chance."""
    ended_ms = 2 * REBALANCE_MS
    step = REBALANCE_MS * 2 // 5
    last = ended_ms - REBALANCE_MS
    commits = [
        one
        for partition, end in enumerate((last, ended_ms - 100, last))
        for one in beats(partition, 2_000, end, step if partition != 1 else 5_000)
    ]
    row = second(commits, classic(1, THREE, state_at=1_000), classic(2, WITHOUT_B, state_at=ended_ms), ended_ms)
    assert causes_of(row) == [("MEMBER_EXPIRED", "REBALANCE_TIMEOUT", "GUESS")]


def test_a_member_that_was_silent_too() -> None:
    """It may have stopped polling just before: then its client leaves in its name, after as long. Or it was killed."""
    commits = [one for partition in range(3) for one in beats(partition, 2_000, BEGAN)]
    row = second(commits, classic(1, THREE, state_at=1_000), classic(2, WITHOUT_B, state_at=ENDED))
    assert causes_of(row) == [("UNKNOWN", "SILENT_FOR_POLL_INTERVAL", "GUESS")]


@pytest.mark.parametrize(
    ("silent_ms", "expected"),
    [
        (9_000, ("MEMBER_LEFT", "HEARD_WITHIN_SESSION", "LIKELY")),
        (11_000, ("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS")),
        (22_000, ("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS")),
    ],
)
def test_a_rebalance_timeout_that_is_shorter_than_the_session(silent_ms: int, expected: tuple[str, str, str]) -> None:
    """Whoever was silent for that long may have crashed, and was dropped because it did not join again."""
    commits = [*beats(0, 2_000, ENDED - 100), *beats(1, 2_000, ENDED - silent_ms), *beats(2, 2_000, ENDED - 100)]
    first = classic(1, THREE, state_at=1_000, rebalance_ms=10_000)
    now = classic(2, WITHOUT_B, state_at=ENDED, rebalance_ms=10_000)
    assert causes_of(second(commits, first, now)) == [expected]


TOPICS: Final = dict.fromkeys(THREE, (TOPIC, "u"))
ASSIGNED: Final = {"a": {TOPIC: (0,), "u": (0,)}, "b": {TOPIC: (1,), "u": (1,)}, "c": {TOPIC: (2,)}}
FEWER: Final = {"a": {TOPIC: (0, 1)}, "c": {TOPIC: (2,)}}
CHANGED: Final = ("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", "LIKELY")


@pytest.mark.parametrize(
    ("protocol", "topics", "assigned", "expected"),
    [
        pytest.param("range", TOPICS, FEWER, [OUT, CHANGED], id="a topic is no more"),
        pytest.param("cooperative-sticky", TOPICS, FEWER, [OUT, CHANGED], id="nobody has to give it up first"),
        pytest.param("range", {"b": (TOPIC, "u")}, FEWER, [OUT], id="nobody else asks for it"),
        pytest.param(
            "cooperative-sticky",
            TOPICS,
            {"a": {TOPIC: (0, 1)}, "c": {TOPIC: (2,), "u": (1,)}},
            [OUT],
            id="another member has to give it up first",
        ),
        pytest.param(
            "range",
            TOPICS,
            {"a": {TOPIC: (0, 1), "u": (0, 1, 2)}, "c": {TOPIC: (2,)}},
            [OUT, CHANGED],
            id="a topic that grew",
        ),
    ],
)
def test_what_had_asked_for_the_rebalance(
    protocol: str,
    topics: Mapping[str, Sequence[str]],
    assigned: Mapping[str, Mapping[str, Sequence[int]]],
    expected: list[tuple[str, str, str]],
) -> None:
    """A time-out begins no rebalance: what else shows in the assignment is a cause, too."""
    commits = [*beats(0, 2_000, BEGAN), *beats(1, 2_000, ENDED - 100), *beats(2, 2_000, BEGAN)]
    first = classic(1, THREE, state_at=1_000, protocol=protocol, topics=topics, assigned=ASSIGNED)
    now = classic(2, WITHOUT_B, state_at=ENDED, protocol=protocol, topics=topics, assigned=assigned)
    assert causes_of(second(commits, first, now)) == expected


@pytest.mark.parametrize(
    ("protocol", "topics", "after_ms", "expected"),
    [
        pytest.param("cooperative-sticky", ("u",), 500, ("MEMBER_LEFT", "COOPERATIVE_FOLLOW_UP", "LIKELY"), id="asked"),
        pytest.param("range", ("u",), 500, ("UNKNOWN", "NO_EVIDENCE", "GUESS"), id="eager members give up all"),
        pytest.param("cooperative-sticky", ("u",), REBALANCE_MS + 500, ("UNKNOWN", "NO_EVIDENCE", "GUESS"), id="late"),
        pytest.param("cooperative-sticky", (), 500, ("UNKNOWN", "NO_EVIDENCE", "GUESS"), id="no longer subscribed"),
    ],
)
def test_who_has_to_give_up_a_partition_joins_again(
    protocol: str, topics: tuple[str, ...], after_ms: int, expected: tuple[str, str, str]
) -> None:
    """Cooperative members do, even if nobody gets it: the topic is no more. Not if they did not want it, either."""
    both = {"a": (TOPIC, "u"), "b": (TOPIC, "u")}
    had = {"a": {TOPIC: (0,), "u": (0,)}, "b": {TOPIC: (1,)}}
    has = {"a": {TOPIC: (0, 1)}}
    first = classic(1, {"a": (0,), "b": (1,)}, state_at=1_000, protocol=protocol, topics=both, assigned=had)
    wanted = {"a": (TOPIC, *topics)}
    steps = [
        classic(number, {"a": (0, 1)}, state_at=at, protocol=protocol, topics=wanted, assigned=has)
        for number, at in ((2, 10_000), (3, 10_000 + after_ms))
    ]
    operations = [(0, classic(0, {})), (1_000, first), (10_000, steps[0]), (10_000 + after_ms, steps[1])]
    assert causes_of(audit_group(life_of(operations), SETTINGS).rebalances[-1]) == [expected]


@pytest.mark.parametrize("cuts", [(15,), (25,), (319,), (8, 100), (10, 318)])
def test_nights_that_end_within_a_join_phase(cuts: tuple[int, ...]) -> None:
    """They say what one audit of all says, of those that stay too."""
    begin = [commit(number, number % 2) for number in range(1, 20)]
    waits = [commit(number, 0) for number in range(20, 320)]
    reported = [generation(1, {"a": [0], "b": [1]}), *begin, *waits, generation(2, {"b": [0, 1]}), commit(400, 1)]
    batches = batches_of(reported)
    nights = Nights(SETTINGS)
    now: Replayed | None = None
    for first, end in zip((0, *cuts), (*cuts, len(batches)), strict=True):
        now = Replayed(now, batches[first:end])
        nights.audit(now, end_of(batches[first:end], nights.place))
        assert_same(nights, now, end)
    assert causes_of(nights.gold[GROUP].rebalances[-1]) == [OUT]


EXPIRED: Final = ("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "LIKELY")
FOREIGN: Final[Mapping[str, tuple[tuple[tuple[int, ...], ...], bool, tuple[str, str, str]]]] = {
    # partitions that are committed together after a stopped, whether a's move on, and what is said of a
    "only its own": (((1,),), False, EXPIRED),
    "one of a's with it": (((0, 1),), False, EXPIRED),
    "one of a's before it": (((1, 0),), False, EXPIRED),
    "one that nobody owns with a's": (((0, 7),), False, EXPIRED),
    "one of a's alone": (((0,), (1,)), False, LEFT),
    "each what it reads": (((0, 1),), True, LEFT),
}


@pytest.mark.parametrize("case", FOREIGN.values(), ids=FOREIGN.keys())
@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_a_commit_with_partitions_of_others_is_no_sign_of_life(
    case: tuple[tuple[tuple[int, ...], ...], bool, tuple[str, str, str]], protocol: str
) -> None:
    """Kafka checks that who commits is a member, not that it owns the partition: it goes on committing where it had
    stopped. Two that commit at one time, each what it reads, are there."""
    operations, moves, expected = case
    stopped, ended = 100_000, 147_000
    commits = beats(0, 2_000, stopped)
    for at in range(2_300, ended, 5_000):
        for number, partitions in enumerate(operations if at > stopped else ((1,),)):
            commits += [(at + 50 * number, it, at if moves or it == 1 else 3) for it in partitions]
    first, now = ({"a": (0,), "b": (1,)}, {"b": (0, 1)})
    generations = (
        classic(1, first, state_at=1_000, protocol=protocol),
        classic(2, now, state_at=ended, protocol=protocol),
    )
    assert causes_of(second(commits, *generations, ended)) == [expected]


@pytest.mark.parametrize("cut", [5, 20, 60])
def test_nights_with_commits_of_several_members(cut: int) -> None:
    """What one operation commits of both members is a sign of those whose offsets move on, whenever it was read."""
    first = [*generation(1, {"a": [0], "b": [1]}, state_at=0, session_ms=10_000)]
    alone = [commit(number, 0) for number in range(1, 40)]
    mixed = [[*commit(1, 0), *commit(number, 1)] for number in range(40, 56)]
    batches = batches_of([first, *alone, *mixed, generation(2, {"b": [0, 1]}, state_at=56_000, session_ms=10_000)])
    nights, now = Nights(SETTINGS), None
    for some in (batches[:cut], batches[cut:]):
        now = Replayed(now, some)
        nights.audit(now, end_of(some, nights.place))
        assert_same(nights, now, len(some))
    assert causes_of(nights.gold[GROUP].rebalances[-1]) == [("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS")]
