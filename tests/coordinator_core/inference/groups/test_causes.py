"""Rules of causes, each on the operation that began a generation."""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from coordinator_core.history.rows import NEXT_REBALANCE, PATTERNS_CHANGED, PATTERNS_NEW, EventRow, GenerationRow
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.groups.causes import GenerationStart, find_causes
from coordinator_core.inference.groups.leave_reasons import EXPIRED, REBALANCE_TIMEOUT
from coordinator_core.inference.groups.reassignment import Lost, Reassignment
from schemas.group_types import GroupType

BEFORE_MS: Final = 100_000
BEFORE: Final = GenerationRow(
    *("g", GroupType.CLASSIC, 1, 1, 10, 20, BEFORE_MS, None, "STABLE", "consumer", "range", "a", 2),
    *(None, None, 7, 0, True, None),
)  # fmt: skip
NOTHING: Final = Reassignment(4, 0, 4)
NEW: Final = Reassignment(4, 0, 3, came=1)
GONE: Final = Reassignment(4, 0, 4, lost=frozenset({Lost(("t", 4), frozenset({"a"}))}))
ALL_NEW: Final = Reassignment(4, 0, 0, came=4)


def event(event_type: str, details: dict[str, str] | None = None, generation: int = 2) -> EventRow:
    return EventRow(20, 0, "g", None, event_type, BEFORE_MS, generation, "a", None, None, details or {})


def causes(
    before: dict[str, str] | None = None,
    now: dict[str, str] | None = None,
    *,
    after_ms: int = 60_000,
    events: Sequence[EventRow] = (),
    row: dict[str, Any] | None = None,
    previous: dict[str, Any] | None = None,
    reassignment: Reassignment = NOTHING,
    **known: Any,
) -> list[tuple[str, str, str]]:
    """Those of generation 2, with the details of both generations' events."""
    started = [*events, event("GENERATION_STARTED", now)]
    step = GenerationStart(
        row=BEFORE._replace(generation=2, valid_from=BEFORE_MS + after_ms, previous_generation=1, **(row or {})),
        previous=BEFORE._replace(**{**(row or {}), **(previous or {})}),
        events=tuple(started),
        since_previous=(event("GENERATION_STARTED", before, 1), *started),
        **{"leave_reasons": (), "member_count": 2, "has_pattern": False, "had_members": True, **known},
        reassignment=reassignment,
    )
    found = find_causes(step, [Claim("MEMBER_JOINED", "IN_LOG", "CERTAIN")])
    return [(cause.cause, cause.method, cause.confidence) for cause in found]


CONNECT: Final = {"protocol_type": "connect", "protocol_name": "sessioned"}
CONSUMER: Final = {"group_type": GroupType.CONSUMER, "protocol_name": "uniform"}
UNKNOWN: Final = ("UNKNOWN", "NO_EVIDENCE", "GUESS")
CHANGED: Final = ({"config_offset": "5"}, {"config_offset": "6"})


@pytest.mark.parametrize(
    ("reassignment", "expected"),
    [
        (NEW, ("PARTITIONS_CHANGED", "CONNECTORS_CHANGED", "LIKELY")),
        (GONE, ("PARTITIONS_CHANGED", "CONNECTORS_CHANGED", "LIKELY")),
        (NOTHING, ("PARTITIONS_CHANGED", "CONFIGS_CHANGED", "GUESS")),
    ],
)
def test_a_newer_config_offset_of_connect(reassignment: Reassignment, expected: tuple[str, str, str]) -> None:
    """Connectors changed if tasks came or went; else it may be any key of the topic. The same offset says nothing."""
    assert causes(*CHANGED, row=CONNECT, reassignment=reassignment) == [expected]
    assert causes(CHANGED[0], CHANGED[0], row=CONNECT, reassignment=reassignment) == [UNKNOWN]


@pytest.mark.parametrize(("after_ms", "is_over"), [(49_899, False), (49_900, True), (70_000, False), (60_000, True)])
def test_a_delay_that_was_announced(after_ms: int, is_over: bool) -> None:
    """Connect waits for a worker for so long, Kafka Streams asks then; members join again within ten seconds of it."""
    expected = ("MEMBER_JOINED", "CONNECT_DELAY_OVER", "LIKELY") if is_over else UNKNOWN
    assert causes({"delay_ms": "50000"}, after_ms=after_ms, row=CONNECT) == [expected]
    expected = ("PROBING_REBALANCE", "NEXT_REBALANCE_ANNOUNCED", "LIKELY") if is_over else UNKNOWN
    announced = {NEXT_REBALANCE: str(BEFORE_MS + 50_000)}
    assert causes(announced, after_ms=after_ms, row={"protocol_name": "stream"}) == [expected]


@pytest.mark.parametrize(
    ("known", "details", "confidence"),
    [
        ({}, {}, "CERTAIN"),
        ({}, {"tie": "1"}, "LIKELY"),
        ({"has_pattern": True}, {}, "LIKELY"),
        ({"may_have_others": True}, {}, "LIKELY"),
        ({"has_hole": True}, {}, "LIKELY"),
    ],
)
def test_another_assignor_is_preferred(known: dict[str, Any], details: dict[str, str], confidence: str) -> None:
    """It raised the epoch if nothing else can have; a tie, a pattern, unknown members or compaction leave doubt."""
    patterns = dict.fromkeys((PATTERNS_NEW, PATTERNS_CHANGED), "0")
    found = causes(now=patterns, events=[event("PROTOCOL_CHANGED", details)], row=CONSUMER, **known)
    assert found == [("PROTOCOL_CHANGED", "PREFERRED_ASSIGNOR", confidence)]


@pytest.mark.parametrize(
    ("hashes", "case", "method", "confidence"),
    [
        ((7, 8), {}, "METADATA_HASH", "CERTAIN"),
        ((7, 8), {"has_hole": True}, "METADATA_HASH", "LIKELY"),
        ((7, 8), {"may_have_others": True}, "METADATA_HASH", "GUESS"),
        ((7, 8), {"events": [event("STATIC_MEMBER_REPLACED")]}, "METADATA_HASH", "GUESS"),
        ((0, 8), {}, "METADATA_HASH", "GUESS"),
        ((0, 8), {"reassignment": ALL_NEW}, "METADATA_HASH", "CERTAIN"),
        ((0, 0), {}, "NOTHING_ELSE_LEFT", "LIKELY"),
    ],
)
def test_metadata_of_topics_changed(
    hashes: tuple[int, int], case: dict[str, Any], method: str, confidence: str
) -> None:
    """The hash shows it, unless a release without hashes or a returning member may be why it is another one."""
    row, previous = {**CONSUMER, "metadata_hash": hashes[1]}, {"metadata_hash": hashes[0]}
    assert causes(row=row, previous=previous, **case) == [("PARTITIONS_CHANGED", method, confidence)]


SHARE: Final = {"group_type": GroupType.SHARE}
JOINED: Final = [event("MEMBER_JOINED")]
RECONCILED: Final = [*JOINED, event("MEMBER_RECONCILED", {"previous_member_epoch": "0"})]
WAITED: Final = (Claim(EXPIRED, REBALANCE_TIMEOUT, "LIKELY"),)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({"member_count": 0}, ["GROUP_EMPTIED CERTAIN"]),
        ({"member_count": 0, "had_members": False}, ["GROUP_EMPTIED LIKELY"]),
        ({"member_count": 0, "has_gap_before": True}, ["GROUP_EMPTIED CERTAIN"]),
        ({"member_count": 0, "has_gap_before": True, "row": CONSUMER}, ["GROUP_EMPTIED LIKELY"]),
        ({"events": JOINED, "row": CONSUMER}, ["MEMBER_JOINED CERTAIN"]),
        ({"events": JOINED, "has_gap_before": True, "row": CONSUMER}, ["MEMBER_JOINED LIKELY"]),
        ({"events": RECONCILED, "has_gap_before": True, "row": CONSUMER}, ["MEMBER_JOINED CERTAIN"]),
        ({"events": [event("SHARE_PARTITIONS_INITIALIZED")], "row": SHARE}, ["PARTITIONS_CHANGED CERTAIN"]),
        ({"leave_reasons": WAITED}, ["MEMBER_EXPIRED LIKELY"]),
        ({"leave_reasons": WAITED, "has_vanished": True}, ["MEMBER_EXPIRED LIKELY", "PARTITIONS_CHANGED LIKELY"]),
    ],
)
def test_what_records_prove(case: dict[str, Any], expected: list[str]) -> None:
    """CERTAIN is only what a record shows whatever is missing: members may be in no record, or have joined before."""
    assert [f"{cause} {confidence}" for cause, _, confidence in causes(**case)] == expected
