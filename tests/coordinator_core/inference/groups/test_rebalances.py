"""Why groups rebalanced, how long it took, what it moved."""

import random
import struct
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.inference.audit.groups import audit_group
from coordinator_core.inference.facts.log_facts import LogFacts
from coordinator_core.inference.facts.rows import RebalanceRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.causes import LATE_METADATA_MS, METADATA_FOLLOW_UP
from schemas.consumer_offsets import RecordType
from tests.coordinator_core.group_records import Record, record
from tests.coordinator_core.inference.group_lives import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    classic,
    epoch,
    goes,
    joins,
    life_of,
    reconciled,
    target,
)

Row = TypeVar("Row")

SETTINGS = InferenceSettings()
A_AND_B = {"a": (0, 1), "b": (2, 3)}

Operations = Sequence[tuple[int, Sequence[Record]]]


def rebalances(operations: Operations, commits: Sequence[tuple[int, int, int]] = ()) -> list[RebalanceRow]:
    return audit_group(life_of(operations, commits), SETTINGS).rebalances


def beats(partition: int, begin: int, end: int, step: int = 5_000) -> list[tuple[int, int, int]]:
    """Commits of a partition at regular times, its offset going up."""
    return [(at, partition, at) for at in range(begin, end, step)]


def two_generations(
    second: list[Record], commits: Sequence[tuple[int, int, int]] = (), at: int = 400_000
) -> RebalanceRow:
    """What is inferred of a second generation after one of two members."""
    first = classic(1, A_AND_B, state_at=1_000)
    return rebalances([(0, classic(0, {})), (1_000, first), (at, second)], commits)[-1]


LONG_AFTER = 400_000
CLASSIC_CASES = {
    "somebody came": (
        classic(2, {"a": (0,), "b": (2,), "c": (1, 3)}),
        (),
        ("MEMBER_JOINED", "IN_LOG", "CERTAIN"),
    ),
    "gone before any time-out could strike": (
        classic(2, {"a": (0, 1, 2, 3)}, state_at=1_000 + SESSION_MS - 1),
        (),
        ("MEMBER_LEFT", "WITHIN_TIMEOUTS", "CERTAIN"),
    ),
    "gone just after a sign of life": (
        classic(2, {"a": (0, 1, 2, 3)}, state_at=LONG_AFTER),
        beats(2, 2_000, LONG_AFTER),
        ("MEMBER_LEFT", "HEARD_WITHIN_SESSION", "LIKELY"),
    ),
    "gone a session time-out after its last commit": (
        classic(2, {"a": (0, 1, 2, 3)}, state_at=LONG_AFTER),
        beats(2, 2_000, LONG_AFTER - SESSION_MS),
        ("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "LIKELY"),
    ),
    "gone sooner than its session after its last commit": (
        classic(2, {"a": (0, 1, 2, 3)}, state_at=LONG_AFTER),
        beats(2, 2_000, LONG_AFTER - SESSION_MS + 5_001),
        ("MEMBER_LEFT", "HEARD_WITHIN_SESSION", "LIKELY"),
    ),
    "gone long after its last commit": (
        classic(2, {"a": (0, 1, 2, 3)}, state_at=LONG_AFTER),
        beats(2, 2_000, 50_000),
        ("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS"),
    ),
    "commits of another's partitions are no sign of life": (
        classic(2, {"a": (0, 1, 2, 3)}, state_at=LONG_AFTER),
        beats(0, 2_000, LONG_AFTER),
        ("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS"),
    ),
    "everybody went": (classic(2, {}, state_at=2_000), (), ("GROUP_EMPTIED", "NO_MEMBERS_LEFT", "CERTAIN")),
    "more partitions, or a leader that learned late of them": (
        classic(2, {"a": (0, 1, 4), "b": (2, 3, 5)}),
        (),
        ("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", "LIKELY"),
    ),
    "other topics": (
        classic(2, A_AND_B, topics={"a": ("t", "u")}),
        (),
        ("SUBSCRIPTION_CHANGED", "IN_LOG", "CERTAIN"),
    ),
    "nothing to see": (classic(2, A_AND_B), (), ("UNKNOWN", "NO_EVIDENCE", "GUESS")),
    "numbers are missing": (
        classic(4, {"a": (0,), "b": (2,), "c": (1, 3)}),
        (),
        ("MEMBER_JOINED", "IN_LOG", "LIKELY"),
    ),
}


@pytest.mark.parametrize("case", CLASSIC_CASES.values(), ids=CLASSIC_CASES.keys())
def test_cause_of_a_classic_generation(
    case: tuple[list[Record], list[tuple[int, int, int]], tuple[str, str, str]],
) -> None:
    """The cause is what the log shows, with the rule and no more confidence than that allows."""
    second, commits, expected = case
    row = two_generations(second, commits)
    assert (row.cause, row.method, row.confidence) == expected
    assert len(row.causes) == len(row.cause_methods) == len(row.cause_confidences)


def test_a_member_that_has_not_committed_since_the_last_join_phase() -> None:
    """That it was silent for a session is a guess: it may have had nothing to read, and closed then."""
    rows = rebalances(
        [
            (1_000, classic(1, A_AND_B, state_at=1_000)),
            (100_000, classic(2, A_AND_B, state_at=100_000)),
            (146_000, classic(3, {"a": (0, 1, 2, 3)}, state_at=100_000 + SESSION_MS + 900)),
        ],
        beats(2, 2_000, 100_000),
    )
    row = rows[-1]
    assert (row.cause, row.method, row.confidence) == ("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "GUESS")


def test_a_log_that_begins_in_the_middle_tells_no_cause() -> None:
    """A first generation of a high number is no beginning, and nobody is said to have come."""
    (row,) = rebalances([(0, classic(17, A_AND_B))])
    assert (row.cause, row.confidence, row.members_joined) == ("UNKNOWN", "GUESS", ())


def test_first_generation_and_its_time() -> None:
    """The empty generation 0 is no rebalance; the next is the first: from the end of the join phase to the sync."""
    (row,) = rebalances([(0, classic(0, {})), (1_000, classic(1, A_AND_B, state_at=970))])
    assert (row.cause, row.to_generation, row.started_at, row.completed_at, row.duration_ms) == (
        "FIRST", 1, 970, 1_000, 30
    )  # fmt: skip
    assert (row.partitions_total, row.partitions_moved, row.stickiness) == (4, 0, None)


def test_static_member_that_comes_back_moves_nothing() -> None:
    """A new member id with the old group instance id is the old owner."""
    row = rebalances(
        [
            (0, classic(1, A_AND_B, instances={"b": "i"})),
            (1_000, classic(2, {"a": (0, 1), "b2": (2, 3)}, instances={"b2": "i"})),
        ]
    )[-1]
    assert (row.partitions_moved, row.stickiness, row.members_left) == (0, 1.0, ())


@pytest.mark.parametrize(("protocol", "cause"), [("cooperative-sticky", "PARTITIONS_CHANGED"), ("stream", "UNKNOWN")])
def test_a_topic_that_went_from_a_cooperative_group(protocol: str, cause: str) -> None:
    """cooperative-sticky takes no partition from members that stay as they were, so it is gone. Kafka Streams does, to
    move a task to a member that has caught up."""
    life = life_of(
        [
            (0, classic(1, {"a": (0, 1), "b": (2,)}, protocol=protocol)),
            (60_000, classic(2, {"a": (0,), "b": ()}, protocol=protocol)),
        ]
    )
    row = audit_group(life, InferenceSettings()).rebalances[-1]
    assert (row.cause, row.confidence) == (cause, "LIKELY" if cause == "PARTITIONS_CHANGED" else "GUESS")


@pytest.mark.parametrize(
    ("holes", "members", "confidence"), [((), "n", "CERTAIN"), ((1,), "mn", "CERTAIN"), ((1,), "n", "LIKELY")]
)
def test_a_group_that_may_have_been_created_again(holes: tuple[int, ...], members: str, confidence: str) -> None:
    """Compaction may have removed the deletion of the group, and the first generation of the next one, between two
    captures. A member in both generations proves that it did not."""
    life = life_of([(0, classic(1, {"m": (0,)})), (60_000, classic(2, dict.fromkeys(members, (0,))))])
    row = audit_group(
        life._replace(log=LogFacts(holes=holes, whole_to=life.generations[-1].from_log_offset)), InferenceSettings()
    ).rebalances[-1]
    assert (row.cause, row.confidence) == ("MEMBER_JOINED", confidence)


@pytest.mark.parametrize(
    ("protocol", "confidence"), [("cooperative-sticky", "LIKELY"), ("stream", "LIKELY"), ("our-own", "GUESS")]
)
def test_cooperative_members_hand_over_in_two_steps(protocol: str, confidence: str) -> None:
    """What was given up moves in the follow-up, which has the cause of the first step; so it is in Kafka Streams, and
    perhaps with an assignor that nobody knows."""
    rows = rebalances(
        [
            (0, classic(1, {"a": (0, 1)}, protocol=protocol)),
            (1_000, classic(2, {"a": (0,), "b": ()}, protocol=protocol)),
            (1_300, classic(3, {"a": (0,), "b": (1,)}, protocol=protocol)),
        ]
    )
    assert rows[-1].confidence == confidence
    assert [(row.cause, row.method, row.partitions_moved, row.unowned_partition_ms) for row in rows[1:]] == [
        ("MEMBER_JOINED", "IN_LOG", 0, 300),
        ("MEMBER_JOINED", "COOPERATIVE_FOLLOW_UP", 1, 0),
    ]


@pytest.mark.parametrize(
    ("after_ms", "expected"),
    [
        (REBALANCE_MS, ("MEMBER_JOINED", "COOPERATIVE_FOLLOW_UP", "LIKELY")),
        (REBALANCE_MS + 1, ("PARTITIONS_CHANGED", "NEW_PARTITIONS", "LIKELY")),
    ],
)
def test_partitions_that_come_back_late_are_of_no_follow_up(after_ms: int, expected: tuple[str, str, str]) -> None:
    """Members had to join again within their rebalance time-out: what comes back later may be a topic made again."""
    row = rebalances(
        [
            (0, classic(1, {"a": (0, 1)}, protocol="cooperative-sticky")),
            (1_000, classic(2, {"a": (0,), "b": ()}, protocol="cooperative-sticky")),
            (1_000 + after_ms, classic(3, {"a": (0,), "b": (1,)}, protocol="cooperative-sticky")),
        ]
    )[-1]
    assert (row.cause, row.method, row.confidence) == expected


@pytest.mark.parametrize(
    ("grown_ms", "partitions", "confidence"),
    [
        pytest.param(2_000, (0, 1, 4), "CERTAIN", id="between the two"),
        pytest.param(500, (0, 1, 4), "LIKELY", id="before: its leader learned late"),
        pytest.param(500_000, (0, 1, 4), "LIKELY", id="after"),
        pytest.param(2_000, (0, 1), "LIKELY", id="no new one was assigned"),
    ],
)
def test_a_topic_that_the_metadata_log_shows_to_grow(
    grown_ms: int, partitions: tuple[int, ...], confidence: str
) -> None:
    """New partitions are certain where the topic got more of them between the two generations."""
    first, second = classic(1, A_AND_B, state_at=1_000), classic(2, {"a": partitions, "b": (2,)})
    life = life_of([(0, classic(0, {})), (1_000, first), (400_000, second)], ())
    row = audit_group(life._replace(topic_growth={"t": (grown_ms,)}), SETTINGS).rebalances[-1]
    assert (row.cause, row.confidence) == ("PARTITIONS_CHANGED", confidence)


def test_partitions_that_come_back_are_no_new_ones() -> None:
    """That the topic has more partitions is certain only where one is assigned that never was before."""
    two, one = {"a": (0, 1)}, {"a": (0,)}
    rows = rebalances([(0, classic(1, two)), (1_000, classic(2, one)), (20_000, classic(3, two))])
    found = [(row.cause, row.method, row.confidence) for row in rows[1:]]
    assert found == [("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", "LIKELY")] * 2


@pytest.mark.parametrize("kept", [{"a": (1, 2)}, {"a": (2,)}])
def test_partitions_below_one_that_stays_are_left_out(kept: dict[str, tuple[int, ...]]) -> None:
    """A topic loses no partition but with those above it: a leader left them out, and nothing shows why."""
    all_three = {"a": (0, 1, 2)}
    rows = rebalances([(0, classic(1, all_three)), (1_000, classic(2, kept)), (20_000, classic(3, all_three))])
    found = [(row.cause, row.method, row.confidence) for row in rows[1:]]
    assert found == [("UNKNOWN", "NO_EVIDENCE", "GUESS")] * 2
    rows = rebalances(
        [(0, classic(1, all_three)), (1_000, classic(2, kept)), (20_000, classic(3, {"a": (0, 1, 2, 3)}))]
    )
    assert (rows[2].cause, rows[2].method) == ("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS")


def in_topics(
    generation: int, assigned: Mapping[str, Mapping[str, Sequence[int]]], at: int
) -> tuple[int, list[Record]]:
    """A generation at a time, in which `c` alone subscribes to another topic, too."""
    subscribed = {"c": ("t", "u")}
    return at, classic(generation, dict.fromkeys(assigned, ()), state_at=at, topics=subscribed, assigned=assigned)


LATE_MS: Final = 70_000 + LATE_METADATA_MS
WITHOUT_U: Final[Mapping[str, Mapping[str, Sequence[int]]]] = {"a": {"t": (0, 1)}, "c": {}}
WITH_U: Final = {**WITHOUT_U, "c": {"u": (0, 1)}}
LATE_LIVES: Final[Mapping[str, tuple[Operations, tuple[str, str, str]]]] = {
    "what lost its owner comes back": (
        [(70_000, classic(2, {"a": (0,)}, state_at=70_000)), (71_000, classic(3, {"a": (0, 1)}, state_at=71_000))],
        ("MEMBER_EXPIRED", METADATA_FOLLOW_UP, "LIKELY"),
    ),
    "it comes back as late as that can be": (
        [(70_000, classic(2, {"a": (0,)}, state_at=70_000)), (LATE_MS, classic(3, {"a": (0, 1)}, state_at=LATE_MS))],
        ("MEMBER_EXPIRED", METADATA_FOLLOW_UP, "LIKELY"),
    ),
    "it comes back later": (
        [
            (70_000, classic(2, {"a": (0,)}, state_at=70_000)),
            (LATE_MS + 1, classic(3, {"a": (0, 1)}, state_at=LATE_MS + 1)),
        ],
        ("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", "LIKELY"),
    ),
    "it is something else that comes": (
        [(70_000, classic(2, {"a": (0,)}, state_at=70_000)), (71_000, classic(3, {"a": (0, 2)}, state_at=71_000))],
        ("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", "LIKELY"),
    ),
    "something else goes": (
        [(70_000, classic(2, {"a": (0,)}, state_at=70_000)), (71_000, classic(3, {"a": (1,)}, state_at=71_000))],
        ("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", "LIKELY"),
    ),
    "a topic that a member brought": (
        [in_topics(2, WITHOUT_U, 70_000), in_topics(3, WITH_U, 71_000)],
        ("MEMBER_JOINED", METADATA_FOLLOW_UP, "LIKELY"),
    ),
    "a topic that comes long after a member": (
        [in_topics(2, WITHOUT_U, 70_000), in_topics(3, WITH_U, LATE_MS + 1)],
        ("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", "LIKELY"),
    ),
    "a topic where nothing was assigned": (
        [in_topics(2, {"c": {}}, 70_000), in_topics(3, {"c": {"u": (0,)}}, 71_000)],
        ("MEMBER_JOINED", METADATA_FOLLOW_UP, "GUESS"),
    ),
    "a topic where nothing was assigned for long": (
        [in_topics(2, {"c": {}}, 70_000), in_topics(3, {"c": {"u": (0,)}}, LATE_MS + 1)],
        ("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", "LIKELY"),
    ),
}


@pytest.mark.parametrize("case", LATE_LIVES.values(), ids=LATE_LIVES.keys())
def test_a_leader_that_did_not_know_a_topic(case: tuple[Operations, tuple[str, str, str]]) -> None:
    """It left the topic out, and joined again when it knew it: that follows up the rebalance before; no topic has more
    partitions than it had."""
    later, expected = case
    first = classic(1, {"a": (0,), "b": (1,)}, state_at=1_000)
    row = rebalances([(0, classic(0, {})), (1_000, first), *later], beats(1, 2_000, 70_000 - SESSION_MS))[-1]
    assert (row.cause, row.method, row.confidence) == expected


@pytest.mark.parametrize(
    ("holes", "number", "expected"),
    [
        ((), 1, [("GROUP_CONVERTED", "CERTAIN"), ("FIRST", "CERTAIN"), ("MEMBER_JOINED", "CERTAIN")]),
        ((2,), 1, [("GROUP_CONVERTED", "LIKELY"), ("FIRST", "LIKELY"), ("MEMBER_JOINED", "CERTAIN")]),
        ((2,), 3, [("UNKNOWN", "GUESS")]),
    ],
)
def test_a_conversion_behind_a_hole(holes: tuple[int, ...], number: int, expected: list[tuple[str, str]]) -> None:
    """An empty classic group, and later a consumer group of its id. If nothing is missing between them, the first one
    was converted; else somebody may have deleted it before, and epochs of the second one may be missing."""
    came = [*joins("n"), *epoch(number), *target(number, {"n": (0,)}), *reconciled("n", number, (0,))]
    life = life_of([(0, classic(1, {"m": (0,)})), (1_000, classic(2, {})), (60_000, came)])
    place = life.generations[-1].from_log_offset
    row = audit_group(life._replace(log=LogFacts(holes=holes, whole_to=place)), SETTINGS).rebalances[-1]
    assert sorted(zip(row.causes, row.cause_confidences, strict=True)) == sorted(expected)


@pytest.mark.parametrize("generation", [2, 3])
def test_a_group_that_was_converted_back(generation: int) -> None:
    """The coordinator asks its members to join again; the partitions of who left are no new ones of the topic. The
    classic generation may be the former epoch: it counts as well."""
    both = {"a": (0,), "b": (1,)}
    gone = [
        *goes("a"),
        *goes("b"),
        record(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, {"group_id": GROUP}, None),
        record(RecordType.CONSUMER_GROUP_METADATA, {"group_id": GROUP}, None),
    ]
    rows = rebalances(
        [
            (0, [*joins("a"), *joins("b"), *epoch(2), *target(2, both)]),
            (1_000, [*reconciled("a", 2, (0,)), *reconciled("b", 2, (1,))]),
            (60_000, [*gone, *classic(generation, {"a": (0,)})]),
            (63_000, classic(generation + 1, {"a": (0, 1)})),
            (90_000, classic(generation + 2, {"a": (0, 1, 2)})),
        ]
    )
    assert [(row.cause, row.method, row.confidence) for row in rows[1:]] == [
        ("GROUP_CONVERTED", "CONVERTED", "CERTAIN"),
        ("GROUP_CONVERTED", "CONVERSION_FOLLOW_UP", "LIKELY"),
        ("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", "LIKELY"),
    ]


CONSUMER_LIFE: Operations = [
    (0, [*joins("a"), *epoch(2), *target(2, {"a": (0, 1)}), *reconciled("a", 2, (0, 1))]),
    (10_000, [*joins("b"), *epoch(3), *reconciled("b", 2, ())]),
    (11_000, [*target(3, {"a": (0,), "b": (1,)}), *reconciled("a", 2, (0,), revoking=(1,), state=1)]),
    (12_000, reconciled("a", 3, (0,))),
    (12_500, reconciled("b", 3, (1,))),
    (60_000, [*epoch(4, metadata_hash=8), *target(4, {"a": (0, 2), "b": (1,)}), *reconciled("a", 4, (0, 2))]),
    (61_000, reconciled("b", 4, (1,))),
    (90_000, [*goes("b"), *epoch(5)]),
]


def test_consumer_group_is_done_when_all_have_arrived() -> None:
    """A rebalance lasts until every member is STABLE at its epoch; the last one is still going on."""
    rows = rebalances(CONSUMER_LIFE)
    assert [(row.to_generation, row.cause, row.duration_ms) for row in rows] == [
        (2, "FIRST", 0),
        (3, "MEMBER_JOINED", 2_500),
        (4, "PARTITIONS_CHANGED", 1_000),
        (5, "UNKNOWN", None),
    ]
    assert [(row.partitions_total, row.partitions_moved, row.stickiness) for row in rows] == [
        (2, 0, None),
        (2, 1, 0.5),
        (3, 0, 1.0),
        (2, 0, None),
    ]
    assert rows[1].unowned_partition_ms == 500


def test_leaving_a_consumer_group_by_what_was_last_seen() -> None:
    """A sign of life just before: it left. Silent for the usual session: likely expired. Away before: expired."""
    start = [*joins("a"), *joins("b"), *epoch(2), *target(2, {"a": (0,), "b": (1,)})]
    ready = [*reconciled("a", 2, (0,)), *reconciled("b", 2, (1,))]
    end = 300_000
    gone = [(0, [*start, *ready]), (end, [*goes("b"), *epoch(3)])]
    assert rebalances(gone, beats(1, 1_000, end, 2_000))[-1].method == "JUST_HEARD"
    row = rebalances(gone, beats(1, 1_000, end - 45_000))[-1]
    assert (row.cause, row.method, row.confidence) == ("MEMBER_EXPIRED", "SILENT_FOR_USUAL_SESSION", "LIKELY")
    away = [
        (0, [*joins("b", "i"), *epoch(2), *target(2, {"b": (1,)}), *reconciled("b", 2, (1,))]),
        (5_000, reconciled("b", -2, (1,))),
        (50_000, [*goes("b"), *epoch(3)]),
    ]
    row = rebalances(away)[-1]
    assert list(zip(row.causes, row.cause_methods, row.cause_confidences, strict=True)) == [
        ("GROUP_EMPTIED", "NO_MEMBERS_LEFT", "CERTAIN"),
        ("MEMBER_EXPIRED", "STATIC_MEMBER_AWAY", "LIKELY"),
    ]


@pytest.mark.parametrize(
    ("announced_ms", "cause"),
    [
        (600_000, "PROBING_REBALANCE"),
        (595_000, "PROBING_REBALANCE"),
        (500_000, "UNKNOWN"),
        (700_000, "UNKNOWN"),
        (2**63 - 1, "UNKNOWN"),
        (0, "UNKNOWN"),
    ],
)
@pytest.mark.parametrize("version", [6, 7, 11])
def test_a_rebalance_that_kafka_streams_announced(announced_ms: int, cause: str, version: int) -> None:
    """It came when the assignment before said; older versions of it do not have the time."""
    info = struct.pack(">iiiiiiiq", version, 11, 0, 0, 0, 0, 0, announced_ms)
    first = classic(1, {"a": (0,)}, state_at=1_000, protocol="stream", user_data=info)
    second = classic(2, {"a": (0,)}, state_at=600_000, protocol="stream")
    row = rebalances([(0, classic(0, {})), (1_000, first), (600_000, second)])[-1]
    assert row.cause == (cause if version >= 7 else "UNKNOWN")


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_a_client_without_metadata_joins_again(protocol: str) -> None:
    """A first generation in which nothing is assigned, and 120 ms later one with all: no topic grew."""
    lives = [
        (1_000, classic(1, {"a": ()}, state_at=1_000, protocol=protocol)),
        (1_120, classic(2, {"a": (0, 1)}, state_at=1_120, protocol=protocol)),
    ]
    row = rebalances([(0, classic(0, {})), *lives])[-1]
    assert (row.cause, row.method, row.confidence) == ("FIRST", METADATA_FOLLOW_UP, "GUESS")


def resolved(regex: str, topics: Sequence[str]) -> list[Record]:
    """The topics of a pattern."""
    key = {"group_id": GROUP, "regular_expression": regex}
    return [record(RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, key, {"topics": topics, "version": 1, "timestamp": 0})]


PATTERN: Final = ("SUBSCRIPTION_CHANGED", "PATTERN_RESOLVED", "LIKELY")
TOPIC_CAME: Final = ("PARTITIONS_CHANGED", "PATTERN_RESOLVED_AGAIN", "CERTAIN")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (resolved("t.*", ("t", "t2")), [TOPIC_CAME]),
        (resolved("t.*", ()), [TOPIC_CAME]),
        (resolved("u.*", ("u",)), [PATTERN]),
        ([*resolved("t.*", ("t", "t2")), *resolved("u.*", ("u",))], [PATTERN, TOPIC_CAME]),
        (resolved("t.*", ("t",)), [("PARTITIONS_CHANGED", "METADATA_HASH", "CERTAIN")]),
    ],
)
def test_two_values_of_a_pattern_show_which_topics_came(
    changes: list[Record], expected: list[tuple[str, str, str]]
) -> None:
    """Whoever joined before: it was the topics that changed, if the same pattern has others; the metadata, if not."""
    operations = [
        (0, [*joins("a", regex="t.*"), *epoch(2, 0), *target(2, {"a": ()}), *reconciled("a", 2, ())]),
        (1_000, [*resolved("t.*", ("t",)), *epoch(3, 9), *target(3, {"a": (0,)}), *reconciled("a", 3, (0,))]),
        (9_000, [*joins("b", regex="u.*"), *epoch(4, 9), *target(4, {"a": (0,), "b": ()})]),
        (90_000, [*changes, *epoch(5, 10), *target(5, {"a": (0, 1)}), *reconciled("a", 5, (0, 1))]),
    ]
    row = rebalances(operations)[-1]
    assert list(zip(row.causes, row.cause_methods, row.cause_confidences, strict=True)) == expected


def test_patterns_are_never_certain() -> None:
    """A new hash in a group with a pattern may be the pattern's doing, where no record shows its topics."""
    operations = [
        (0, [*joins("a", regex="t.*"), *epoch(2, 0), *target(2, {"a": ()}), *reconciled("a", 2, ())]),
        (1_000, [*epoch(3, 9), *target(3, {"a": (0,)}), *reconciled("a", 3, (0,))]),
        (90_000, [*epoch(4, 10), *target(4, {"a": (0, 1)}), *reconciled("a", 4, (0, 1))]),
    ]
    assert [(row.cause, row.method, row.confidence) for row in rebalances(operations)[1:]] == [
        ("SUBSCRIPTION_CHANGED", "PATTERN_RESOLVED", "LIKELY"),
        ("PARTITIONS_CHANGED", "PATTERN_RESOLVED_AGAIN", "LIKELY"),
    ]


def test_storm_and_who_flaps() -> None:
    """Five generations in ten minutes are a storm; who came and went again and again is named by client id."""
    operations: list[tuple[int, list[Record]]] = [(0, classic(1, {"a": (0, 1)}))]
    for number in range(2, 7):
        owned = {"a": (0,), f"b{number}": (1,)} if number % 2 == 0 else {"a": (0, 1)}
        operations.append((3_600_000 + number * 10_000, classic(number, owned)))
    gold = audit_group(life_of(operations), SETTINGS)
    assert [row.in_storm for row in gold.rebalances] == [False, *[True] * 5]
    assert gold.rebalances[-1].flapping_members == ()
    life = life_of(operations)
    renamed = tuple(m if m.member_id == "a" else m._replace(client_id="flapper") for m in life.members)
    rows = audit_group(life._replace(members=renamed), SETTINGS).rebalances
    assert rows[-1].flapping_members == ("flapper",)
    assert gold.days[0].storm_rebalance_count == 5


def test_who_flaps_is_named_as_then() -> None:
    """A member id may come again, days later, under another name."""
    operations: list[tuple[int, list[Record]]] = []
    for number in range(1, 9):
        owned = {"a": (0,), "b": (1,)} if number % 2 == 0 else {"a": (0, 1)}
        operations.append((number * 10_000, classic(number, owned)))
    operations.append((90_000_000, classic(9, {"a": (0,), "b": (1,)}, instances={"b": "later"})))
    reported = rebalances(operations)
    assert [row.flapping_members for row in reported] == [(), *[("client-b",)] * 6, (), ()]


@given(st.randoms(use_true_random=False))
def test_gold_is_a_function_of_the_set_of_rows(shuffler: random.Random) -> None:
    """Whatever the order in which silver's rows come, gold is the same."""
    life = life_of(CONSUMER_LIFE, beats(1, 1_000, 80_000))

    def shuffled(rows: Sequence[Row]) -> tuple[Row, ...]:
        return tuple(shuffler.sample(rows, len(rows)))

    mixed = life._replace(
        generations=shuffled(life.generations),
        members=shuffled(life.members),
        assignments=shuffled(life.assignments),
        events=shuffled(life.events),
    )
    assert audit_group(mixed, SETTINGS) == audit_group(life, SETTINGS)
