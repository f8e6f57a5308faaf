"""What counts as a redelivery, by which evidence it is explained, and that order of rows plays no part."""

from dataclasses import dataclass, fields
from itertools import pairwise
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.confidence import CONFIDENCES
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.evidence import (
    OFFSET_COUNT_MAX,
    Evidence,
    group_pasts,
    offset_counts,
    trace_available,
)
from coordinator_core.inference.shares.redeliveries import CAUSES, LIKELY_CAUSES, METHODS
from coordinator_core.inference.shares.share_days import merged_days
from coordinator_core.inference.shares.share_log import ShareMembers, sorted_share_log
from coordinator_core.inference.shares.shares import ShareAudit, audit_share_log
from tests.coordinator_core.inference.share_logs import (
    ACK1,
    ACK2,
    ACK3,
    AR1,
    AR2,
    AR5,
    AV1,
    AV2,
    AV3,
    AV4,
    LOCK_4_S,
    START_MS,
    Change,
    Record,
    audit,
    group_configs,
    members,
    share_log,
)

SNAPSHOT = Record(0, kind="SNAPSHOT", start_offset=-1, delivery_complete_count=-1)
AV0 = ("AVAILABLE", 0)

Reported = tuple[int, int, int, int, int, str, str | None, str, str, bool]


def reported(gold: ShareAudit) -> list[Reported]:
    """Rows by name: log offset, first and last offset, counts, cause, likely cause, method, confidence, leader."""
    rows = gold.redeliveries
    return [
        (
            int(rows.log_offset[row]),
            int(rows.first_offset[row]),
            int(rows.last_offset[row]),
            int(rows.from_delivery_count[row]),
            int(rows.to_delivery_count[row]),
            CAUSES[rows.cause[row]],
            None if rows.likely_cause[row] < 0 else LIKELY_CAUSES[rows.likely_cause[row]],
            METHODS[rows.method[row]],
            CONFIDENCES[rows.confidence[row]],
            bool(rows.leader_changed[row]),
        )
        for row in range(len(rows))
    ]


@dataclass(frozen=True)
class Case:
    """Records of one share partition, and the rows of the last of them."""

    name: str
    records: tuple[Record, ...]
    expected: tuple[tuple[object, ...], ...]
    stays: ShareMembers | None = None


def returned(at_ms: int, before: object = None, after: object = AV1) -> Record:
    """A record which hands offsets 0 to 9 back and says nothing else."""
    return Record(at_ms, (Change(0, 9, before, after),))  # type: ignore[arg-type]


CASES = (
    Case(
        "rule A: handed back, by whom the record does not say",
        (SNAPSHOT, returned(9_000)),
        ((1, 0, 9, -1, 1, "HANDED_BACK", None, "DELIVERY_COUNT", "CERTAIN", False),),
    ),
    Case(
        "an unchanged count: one more delivery, taken back as its session closed",
        (SNAPSHOT, returned(9_000), returned(40_000, AV1, AV1)),
        ((2, 0, 9, 1, 1, "RETURNED", "SESSION_CLOSED", "SAME_COUNT", "LIKELY", False),),
    ),
    Case(
        "an unchanged count in a request which acknowledges others",
        (SNAPSHOT, returned(9_000), Record(40_000, (Change(0, 3, AV1, AV1), Change(4, 9, AV1, ACK2)))),
        (
            (2, 0, 3, 1, 1, "RETURNED", None, "SAME_COUNT_TOGETHER", "LIKELY", False),
            (2, 4, 9, 1, 2, "RETRIED", None, "DELIVERY_COUNT", "CERTAIN", False),
        ),
    ),
    Case(
        "rule T: a request which acknowledges released the rest",
        (SNAPSHOT, Record(9_000, (Change(0, 3, None, AV1), Change(4, 9, None, ACK1)))),
        ((1, 0, 3, -1, 1, "HANDED_BACK", "RELEASED", "ACKNOWLEDGED_TOGETHER", "CERTAIN", False),),
    ),
    Case(
        "rule T: so did one which rejects below the limit",
        (SNAPSHOT, Record(9_000, (Change(0, 3, None, AV1), Change(4, 9, None, AR1)))),
        ((1, 0, 3, -1, 1, "HANDED_BACK", "RELEASED", "ACKNOWLEDGED_TOGETHER", "CERTAIN", False),),
    ),
    Case(
        "what is archived at the limit tells nothing of its neighbours",
        (SNAPSHOT, returned(9_000, None, AV4), Record(18_000, (Change(0, 3, AV4, AR5), Change(10, 19, None, AV1)))),
        (
            (2, 0, 3, 4, 5, "RETRIED", None, "DELIVERY_COUNT", "CERTAIN", False),
            (2, 10, 19, -1, 1, "HANDED_BACK", None, "DELIVERY_COUNT", "CERTAIN", False),
        ),
    ),
    Case(
        "a snapshot may sum up records that nobody captured, so it proves less",
        (SNAPSHOT, Record(9_000, (Change(0, 3, None, AV1), Change(4, 9, None, ACK1)), kind="SNAPSHOT")),
        ((1, 0, 3, -1, 1, "HANDED_BACK", "RELEASED", "ACKNOWLEDGED_TOGETHER", "LIKELY", False),),
    ),
    Case(
        "rule B: one lock duration after it was handed back before",
        (SNAPSHOT, returned(9_000), returned(13_010, AV1, AV2)),
        ((2, 0, 9, 1, 2, "RETRIED", "LOCK_TIMEOUT", "LOCK_DURATION", "LIKELY", False),),
    ),
    Case(
        "rule B: the record before was written late, so the lock ends a little sooner after it",
        (SNAPSHOT, returned(9_003), returned(13_001, AV1, AV2)),
        ((2, 0, 9, 1, 2, "RETRIED", "LOCK_TIMEOUT", "LOCK_DURATION", "LIKELY", False),),
    ),
    Case(
        "rule B: given up at the limit as the last lock ended",
        (SNAPSHOT, returned(9_000, None, AV4), Record(13_010, (Change(0, 9, AV4, AR5),))),
        ((2, 0, 9, 4, 5, "RETRIED", "LOCK_TIMEOUT", "LOCK_DURATION", "LIKELY", False),),
    ),
    Case(
        "rule A: one lock duration after an acknowledgement that fetched more",
        (SNAPSHOT, Record(9_000, (Change(10, 19, None, ACK1),)), returned(13_004)),
        ((2, 0, 9, -1, 1, "HANDED_BACK", "LOCK_TIMEOUT", "LOCK_DURATION", "LIKELY", False),),
    ),
    Case(
        "sooner than a lock can end, in a group whose last member just left",
        (SNAPSHOT, returned(9_000), returned(10_000, AV1, AV2)),
        ((2, 0, 9, 1, 2, "RETRIED", "SESSION_CLOSED", "GROUP_EMPTY", "LIKELY", False),),
        members((0, 9_800)),
    ),
    Case(
        "sooner than a lock can end, while a member left: no telling",
        (SNAPSHOT, returned(9_000), returned(10_000, AV1, AV2)),
        ((2, 0, 9, 1, 2, "RETRIED", None, "DELIVERY_COUNT", "CERTAIN", False),),
        members((0, 9_800), (0, None)),
    ),
    Case(
        "rule C: accepted on a second delivery of which no hand-back is known",
        (SNAPSHOT, Record(9_000, (Change(0, 9, None, ACK2),))),
        ((1, 0, 9, -1, 2, "RETRIED", None, "DELIVERY_COUNT", "CERTAIN", False),),
    ),
    Case(
        "rule D: accepted on the delivery after a hand-back",
        (SNAPSHOT, returned(9_000), Record(9_100, (Change(0, 9, AV1, ACK2),))),
        ((2, 0, 9, 1, 2, "RETRIED", None, "DELIVERY_COUNT", "CERTAIN", False),),
    ),
    Case(
        "a first delivery is no redelivery",
        (SNAPSHOT, Record(9_000, (Change(0, 9, None, ACK1), Change(10, 19, None, AR1)))),
        (),
    ),
    Case(
        "came back uncounted, then delivered for the first time",
        (SNAPSHOT, returned(9_000, None, AV0), Record(9_100, (Change(0, 9, AV0, ACK1),))),
        (),
    ),
    Case(
        "rules L and K: a hole below a persisted batch, another leader, accepted at a count which began again",
        (
            SNAPSHOT,
            Record(9_000, (Change(5, 9, None, ACK1),)),
            Record(20_000, leader_epoch=2),
            Record(21_000, (Change(0, 4, None, ACK1),), leader_epoch=2),
        ),
        ((3, 0, 4, -1, 1, "COUNT_LOST", None, "LEADER_RELOAD", "LIKELY", True),),
    ),
    Case(
        "rule L: only what lay below a persisted batch had been fetched before",
        (
            SNAPSHOT,
            Record(9_000, (Change(5, 9, None, ACK1),)),
            Record(20_000, leader_epoch=2),
            Record(21_000, (Change(0, 4, None, AR1), Change(10, 19, None, ACK1)), leader_epoch=2),
        ),
        (),
    ),
    Case(
        "rule L: without a snapshot a hole may be no hole",
        (
            Record(9_000, (Change(5, 9, None, ACK1),), is_complete=False),
            Record(20_000, leader_epoch=2, is_complete=False),
            Record(21_000, (Change(0, 4, None, ACK1),), leader_epoch=2, is_complete=False),
        ),
        (),
    ),
    Case(
        "rule N: a reset begins again, and what was before the reset lost no count",
        (
            SNAPSHOT,
            Record(9_000, (Change(5, 9, None, ACK1),)),
            Record(20_000, leader_epoch=2),
            Record(21_000, (Change(5, 9, ACK1, None, "RESET"),), kind="RESET", leader_epoch=0),
            Record(22_000, (Change(0, 4, None, ACK1),), leader_epoch=0),
        ),
        (),
    ),
    Case(
        "rule M: handed back, another leader, accepted",
        (
            SNAPSHOT,
            returned(9_000),
            Record(20_000, leader_epoch=2),
            Record(21_000, (Change(0, 9, AV1, ACK2),), leader_epoch=2),
        ),
        ((3, 0, 9, 1, 2, "RETRIED", None, "DELIVERY_COUNT", "CERTAIN", True),),
    ),
    Case(
        "what the first snapshot shows had happened before",
        (Record(9_000, (Change(0, 4, None, AV1, "FIRST_SEEN"), Change(5, 9, None, ACK3, "FIRST_SEEN")), "SNAPSHOT"),),
        (
            (0, 0, 4, -1, 1, "HANDED_BACK", None, "FIRST_SNAPSHOT", "CERTAIN", False),
            (0, 5, 9, -1, 3, "RETRIED", None, "FIRST_SNAPSHOT", "CERTAIN", False),
        ),
    ),
    Case(
        "rule J: what the start offset passes is not given out again",
        (SNAPSHOT, returned(9_000), Record(9_100, (Change(0, 9, AV1, None),), start_offset=10)),
        (),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=attrgetter("name"))
def test_redeliveries_of_the_last_record(case: Case) -> None:
    """Each rule of inference gives its row, and no other."""
    rows = reported(audit(case.records, stays=case.stays))
    assert tuple(row for row in rows if row[0] == len(case.records) - 1) == case.expected


def test_nobody_left_so_it_was_released() -> None:
    """Too soon for the lock, and no session that closed then expired: the member released it."""
    records = (SNAPSHOT, returned(9_000), returned(10_000, AV1, AV2), Record(90_000, (Change(10, 19, None, ACK1),)))
    rows = reported(audit(records, stays=members((0, None))))
    assert [row[6] for row in rows] == [None, "RELEASED"]
    assert rows[1][7:9] == ("NOBODY_LEFT", "LIKELY")
    unseen = [row[6] for row in reported(audit(records[:-1], stays=members((0, None))))]
    assert unseen == [None, None], "the log ends before a session that closed would have expired"


def test_members_that_return_ranges_alone_may_do_so_when_a_lock_would_end() -> None:
    """Polls in a rhythm: from the first range that was returned alone before its lock could end, nothing tells a
    release from a lock's end. Before it, and in other groups, a lock's end is likely."""
    early, at_the_end = returned(10_000, AV1, AV2), returned(14_010, AV2, AV3)
    later = Record(90_000, (Change(10, 19, None, ACK1),))
    rows = reported(audit((SNAPSHOT, returned(9_000), early, at_the_end, later), stays=members((0, None))))
    assert [row[6:8] for row in rows[1:]] == [("RELEASED", "NOBODY_LEFT"), (None, "DELIVERY_COUNT")]
    before = returned(13_010, AV1, AV2), returned(14_000, AV2, AV3)
    rows = reported(audit((SNAPSHOT, returned(9_000), *before, later), stays=members((0, None))))
    assert [row[6:8] for row in rows[1:]] == [("LOCK_TIMEOUT", "LOCK_DURATION"), ("RELEASED", "NOBODY_LEFT")]


@pytest.mark.parametrize(
    ("session_ms", "expected"),
    [
        (None, (None, "DELIVERY_COUNT")),
        ("45000", (None, "DELIVERY_COUNT")),
        ("20000", ("RELEASED", "NOBODY_LEFT_FOR_CONFIGURED_SESSION")),
    ],
)
def test_how_long_a_session_lasts_is_the_group_s(session_ms: str | None, expected: tuple[str | None, str]) -> None:
    """A member went 30 seconds later: by the usual session it may be the one whose session closed, by a shorter one
    that the metadata log tells it is not."""
    records = (SNAPSHOT, returned(9_000), returned(10_000, AV1, AV2), Record(90_000, (Change(10, 19, None, ACK1),)))
    names = {"share_record_lock_duration_ms": "4000", "share_delivery_count_limit": "5"}
    configs = group_configs(**names, **({} if session_ms is None else {"share_session_timeout_ms": session_ms}))
    row = reported(audit(records, configs, members((0, None), (0, 40_000))))[-1]
    assert (row[6], row[7]) == expected


def test_an_assumed_limit_proves_nothing_of_other_ranges() -> None:
    """Where no log has the limit, a range archived at count 3 may be at it: no proof of a release in that record."""
    records = (SNAPSHOT, Record(9_000, (Change(0, 3, None, AV1), Change(4, 9, None, ("ARCHIVED", 3)))))
    assert [row[6] for row in reported(audit(records, configs=group_configs()))][:1] == [None]
    assert [row[6] for row in reported(audit(records))][:1] == ["RELEASED"]


STATES = st.sampled_from([AV1, AV2, AV4, ACK1, ACK2, AR2, AR5])


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Records of three share partitions with any transitions, disjoint within a record."""
    records = [Record(0, kind="SNAPSHOT", partition=partition) for partition in range(3)]
    for number in range(draw(st.integers(1, 25))):
        bounds = sorted(draw(st.sets(st.integers(0, 30), min_size=2, max_size=8)))
        changes = [
            Change(first, next_first - 1, draw(st.none() | STATES), draw(STATES))
            for first, next_first in pairwise(bounds)
            if draw(st.booleans())
        ]
        epoch = draw(st.integers(0, 2))
        at_ms = 2_000 * (number + 1)
        records.append(Record(at_ms, changes, leader_epoch=epoch, partition=draw(st.integers(0, 2))))
    return records


@given(logs(), st.randoms(use_true_random=False))
def test_order_of_rows_plays_no_part(records: list[Record], random: object) -> None:
    """The same set of rows in another order gives the same gold."""
    count = max(len(records), sum(len(record.changes) for record in records))
    order = list(range(count))
    random.shuffle(order)  # type: ignore[attr-defined]
    once, again = (
        audit_share_log(log, LOCK_4_S, members((0, 7_000)), InferenceSettings())
        for log in (share_log(records), share_log(records, order))
    )
    for left, right in ((once.redeliveries, again.redeliveries), (once.archived, again.archived)):
        for column in fields(left):
            np.testing.assert_array_equal(getattr(left, column.name), getattr(right, column.name))
    one, other = (merged_days([audited.counted.counts()], []) for audited in (once, again))
    assert one == other


@given(logs())
def test_previous_is_the_newest_that_made_an_offset_available(records: list[Record]) -> None:
    """The compiled trace agrees with one that goes offset by offset, and with itself as plain Python."""
    log = share_log(records)
    changes, key = log.transitions, log.states.key[log.state_of_transition]
    found = Evidence.of(log, group_pasts(log), LOCK_4_S, {}, InferenceSettings())
    is_released = (changes.to_state == 0) & found.records.is_request & found.records.is_update
    available: dict[tuple[int, int], int] = {}
    for row in range(len(changes)):
        offsets = [(int(key[row]), o) for o in range(changes.first_offset[row], changes.last_offset[row] + 1)]
        rows = [available[place] for place in offsets if place in available]
        assert found.previous[row] == max(rows, default=-1)
        assert found.was_released[row] == (len(rows) == len(offsets) and all(is_released[other] for other in rows))
        for place in offsets:
            available.pop(place, None)
            if changes.to_state[row] == 0:
                available[place] = row
    previous, was_released = np.full(len(changes), -1, np.int64), np.zeros(len(changes), np.bool_)
    plain = trace_available.py_func  # type: ignore[attr-defined]
    plain(key, changes.first_offset, changes.last_offset, changes.to_state == 0, is_released, previous, was_released)
    np.testing.assert_array_equal(previous, found.previous)
    np.testing.assert_array_equal(was_released, found.was_released)


def test_days_count_offsets_by_group_and_day() -> None:
    """Acknowledged, redelivered and archived offsets by UTC day; the worst partition is that with most given up."""
    day_ms = 24 * 60 * 60 * 1000
    records = (
        SNAPSHOT,
        Record(0, kind="SNAPSHOT", partition=1),
        Record(1, (Change(0, 4, None, AV1), Change(5, 9, None, ACK1), Change(10, 10, None, AR1))),
        Record(2, (Change(0, 2, None, AR1),), partition=1),
        Record(day_ms, (Change(0, 4, AV1, ACK2),)),
    )
    rows = merged_days([audit(records).counted.counts()], [])
    first_day = START_MS // day_ms * day_ms
    assert [row[:6] for row in rows] == [
        ("workers", "SHARE", first_day, 5, 5, 4),
        ("workers", "SHARE", first_day + day_ms, 5, 5, 0),
    ]
    assert [row.worst_partition for row in rows] == [1, None]


def test_days_count_records_once_and_deliveries_beyond_the_first() -> None:
    """A record that comes back three times is one record redelivered, and each delivery after its first is an extra
    one."""
    records = (
        SNAPSHOT,
        Record(1, (Change(0, 9, None, AV1), Change(20, 20, None, ACK3))),
        Record(2, (Change(0, 4, AV1, AV2), Change(5, 9, AV1, AV1))),
        Record(3, (Change(0, 4, AV2, AV4), Change(5, 9, AV1, ACK2))),
        Record(4, (Change(0, 4, AV4, AR5), Change(30, 30, None, AR1)), delivery_complete_count=30),
    )
    (row,) = merged_days([audit(records).counted.counts()], [])
    offsets_of_rows = 10 + 1 + 5 + 5 + 5 + 5 + 5
    extra = 5 + 2 + 5 + 5 * 2 + 5 + 5
    assert (row.records_redelivered, row.redelivered_count, row.extra_deliveries) == (11, offsets_of_rows, extra)
    assert (row.records_given_up, row.archived_count) == (6, 6)


def test_a_transition_without_its_record_is_refused() -> None:
    """Silver with a transition whose record is missing is not silver."""
    log = share_log((SNAPSHOT, returned(9_000)))
    states = log.states
    without = type(states)(**{column.name: getattr(states, column.name)[:1] for column in fields(states)})
    with pytest.raises(ValueError, match="share_partition_states"):
        sorted_share_log(log.keys, without, log.transitions)


def test_offsets_of_a_range_are_counted() -> None:
    """Both ends count; the longest ranges count as so many that sums stay exact."""
    ranges = [(0, 0), (5, 9), (0, OFFSET_COUNT_MAX - 2), (0, OFFSET_COUNT_MAX), (0, 2**63 - 1)]
    log = share_log([Record(0, [Change(first, last, None, AV1)]) for first, last in ranges])
    assert offset_counts(log.transitions).tolist() == [1, 5, OFFSET_COUNT_MAX - 1, OFFSET_COUNT_MAX, OFFSET_COUNT_MAX]
