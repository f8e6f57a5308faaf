"""Records of share groups under another delivery limit or lock duration."""

from typing import Any

import pytest

from coordinator_core.errors import WhatIfError
from coordinator_core.inference.facts.configs import DELIVERY_COUNT_LIMIT as LIMIT
from coordinator_core.inference.facts.configs import RECORD_LOCK_DURATION as LOCK
from coordinator_core.inference.facts.configs import ConfigRow, Configs
from simulator.whatif.answer import answer_share_group
from simulator.whatif.settings import Changes, Recorded, question_of
from simulator.whatif.shares import InForce, RecordVerdict, Transition, answer_shares
from simulator.whatif.verdicts import WhatIfRow

KINDS = {"AVAILABLE": "REDELIVERABLE", "ACKNOWLEDGED": "ACKNOWLEDGED", "ARCHIVED": "ARCHIVED", None: "RESET"}


def row(at: int, first: int, last: int, state: str | None, count: int, partition: int = 0) -> Transition:
    """A transition; its time is its place in the log."""
    return Transition("T", "t", partition, at, first, last, at, state, count, False, KINDS[state])


def under(rows: list[Transition], **changed: Any) -> list[WhatIfRow]:
    """The answers for a limit of 5 and a lock of 30 s as recorded."""
    return answer_shares(rows, Changes(**changed), InForce("g", Recorded()))


def deliveries(answer: WhatIfRow) -> tuple[int | None, int | None]:
    return answer.deliveries_min, answer.deliveries_max


HANDED_BACK = [row(1000 * count, 10, 19, "AVAILABLE", count) for count in (1, 2, 3, 4)]


ARCHIVED_AT_5 = row(9000, 10, 19, "ARCHIVED", 5)
ACK_AT_5 = row(9000, 10, 19, "ACKNOWLEDGED", 5)


def shown(answer: WhatIfRow) -> str:
    """An answer on one line: offsets, verdict, milliseconds by which it moves, deliveries more, confidence."""
    offsets = f"{answer.first_offset}-{answer.last_offset}"
    return f"{offsets} {answer.verdict} {answer.shift_ms_min} {deliveries(answer)} {answer.confidence}"


LIMITS = {
    "archived at the third hand-back": (
        [*HANDED_BACK, ARCHIVED_AT_5],
        3,
        "10-19 ARCHIVED_EARLIER -6000 (-2, -2) CERTAIN",
    ),
    "lost what the fifth delivery saved": (
        [*HANDED_BACK, ACK_AT_5],
        2,
        "10-19 ARCHIVED_INSTEAD -7000 (-3, -3) CERTAIN",
    ),
    "a fifth delivery may be under way": (HANDED_BACK, 2, "10-19 ARCHIVED_INSTEAD -2000 (-3, -2) CERTAIN"),
    "waits for its fifth delivery": (HANDED_BACK, 4, "10-19 ARCHIVED_INSTEAD 0 (-1, 0) CERTAIN"),
    "the log lacks the hand-back": (
        [row(9000, 10, 19, "ACKNOWLEDGED", 4)],
        3,
        "10-19 ARCHIVED_INSTEAD None (-1, -1) CERTAIN",
    ),
    "handed back to the limit": ([*HANDED_BACK, ARCHIVED_AT_5], 7, "10-19 MORE_TRIES None (1, 2) LIKELY"),
    "rejected at the last looks the same": ([ARCHIVED_AT_5], 6, "10-19 MORE_TRIES None (0, 1) GUESS"),
    "rejected below the limit": ([row(9000, 10, 19, "ARCHIVED", 1)], 6, None),
    "within the limit": (
        [*HANDED_BACK[:2], row(9000, 10, 19, "ACKNOWLEDGED", 3), row(9000, 20, 29, "ACKNOWLEDGED", 1)],
        3,
        None,
    ),
    "deliveries before a reset do not count": (
        [*HANDED_BACK, row(5000, 10, 19, None, 0), row(6000, 10, 19, "ACKNOWLEDGED", 1)],
        2,
        None,
    ),
    "cut where their stories part": (
        [
            *(row(1000, 0, 9, "AVAILABLE", 1), row(2000, 0, 4, "ACKNOWLEDGED", 2)),
            *(row(2000, 5, 9, "AVAILABLE", 2), row(3000, 5, 9, "ACKNOWLEDGED", 3)),
        ],
        2,
        "5-9 ARCHIVED_INSTEAD -1000 (-1, -1) CERTAIN",
    ),
    "other partitions are other records": (
        [row(1000, 0, 9, "AVAILABLE", 3), row(1000, 0, 9, "ACKNOWLEDGED", 1, partition=1)],
        3,
        "0-9 ARCHIVED_INSTEAD 0 (-1, 0) CERTAIN",
    ),
}


@pytest.mark.parametrize(("rows", "limit", "expected"), LIMITS.values(), ids=LIMITS.keys())
def test_another_delivery_limit(rows: list[Transition], limit: int, expected: str | None) -> None:
    """What the ranges would have come to under it, where that is another end; what a higher one rests on is named."""
    answers = under(rows, delivery_count_limit=limit)
    assert [shown(answer) for answer in answers] == ([] if expected is None else [expected])
    for answer in answers:
        assert ({"OUTCOME_UNKNOWN", "LIMIT_NOT_REJECTED"} <= set(answer.assumptions)) == (limit > 5)


def test_after_the_first_record_given_up_no_time_is_reported() -> None:
    """What is given up leaves its place in the next fetch to others: when those come back is not in the log. So it is
    where the log lacks the hand-back that may have been the first."""
    other = [row(at, 30, 39, "AVAILABLE", count, partition=1) for at, count in ((1500, 1), (2500, 2), (4500, 3))]
    answers = under([*HANDED_BACK, *other], delivery_count_limit=2)
    assert [(answer.partition, answer.shift_ms_min, answer.confidence) for answer in answers] == [
        (0, 2000 - 4000, "CERTAIN"),
        (1, None, "CERTAIN"),
    ]
    lacking = [row(at, 30, 39, "AVAILABLE", count, partition=1) for at, count in ((500, 1), (9000, 4))]
    assert [answer.shift_ms_min for answer in under([*HANDED_BACK, *lacking], delivery_count_limit=2)] == [None, None]


LOCKED = [row(1000, 0, 9, "AVAILABLE", 1), row(32_000, 0, 9, "AVAILABLE", 2), row(35_000, 0, 9, "AVAILABLE", 3)]
"""After the first hand-back the lock ran out 31 s later; the third came 3 s after that, so it was none of the lock."""


def test_a_longer_lock() -> None:
    """A hand-back too soon for a lock is most likely kept; how a timed-out one would have ended nobody can tell."""
    first, second, third = under(LOCKED, record_lock_duration_ms=60_000)
    assert (first.verdict, first.confidence) == (RecordVerdict.CANNOT_TELL, None)
    assert "DELIVERY_NOT_IN_LOG" in first.assumptions
    assert (second.verdict, deliveries(second)) == (RecordVerdict.CANNOT_TELL, (-1, 0))
    assert {"LOCK_BY_TIMING", "OUTCOME_UNKNOWN"} <= set(second.assumptions)
    assert (third.verdict, third.confidence) == (RecordVerdict.KEPT, "LIKELY")


def test_a_shorter_lock() -> None:
    """What timed out would have timed out sooner; what was acknowledged may have been acquired for too long."""
    answers = under(
        [*LOCKED, row(37_000, 0, 9, "ACKNOWLEDGED", 4), row(1, 20, 29, "ACKNOWLEDGED", 1)],
        record_lock_duration_ms=15_000,
    )
    by_verdict = [(answer.verdict, answer.shift_ms_min) for answer in answers]
    assert by_verdict == [
        (RecordVerdict.CANNOT_TELL, None),
        (RecordVerdict.MOVED, -15_000),
        (RecordVerdict.KEPT, 0),
        (RecordVerdict.CANNOT_TELL, None),
    ]
    assert answers[-1].recorded == "10 offsets acknowledged or archived"
    assert (answers[-1].first_offset, answers[-1].last_offset) == (20, 29)


def test_what_has_no_meaning_is_refused() -> None:
    """The present value, two settings at once, and settings of members."""
    with pytest.raises(WhatIfError, match="was 5 already"):
        under([], delivery_count_limit=5)
    with pytest.raises(WhatIfError, match="was 30000 ms already"):
        under([], record_lock_duration_ms=30_000)
    with pytest.raises(WhatIfError, match="one at a time"):
        under([], delivery_count_limit=3, record_lock_duration_ms=60_000)
    with pytest.raises(WhatIfError, match="is a share group"):
        answer_share_group("g", [], question_of(["assignor=range", "share.delivery.count.limit=3"]))


def test_the_total_counts_records() -> None:
    """Ten records with two deliveries fewer each are twenty."""
    rows = answer_share_group(
        "g", [*HANDED_BACK, row(9000, 10, 19, "ARCHIVED", 5)], question_of(["share.delivery.count.limit=3"])
    )
    assert (rows[-1].deliveries_min, rows[-1].deliveries_max) == (-20, -20)
    assert rows[-1].would_be == "ARCHIVED_EARLIER 1"


def config(
    value: str, *, resource_type: str = "GROUP", name: str = LIMIT, since: int = 0, until: int | None = None
) -> ConfigRow:
    """An interval of a config; of the group, else of all brokers."""
    resource_name, prefix = ("g", "") if resource_type == "GROUP" else ("", "group.")
    return ConfigRow(resource_type, resource_name, prefix + name, value, since, since, until)


def configured(rows: list[Transition], *configs: ConfigRow, **changed: Any) -> list[WhatIfRow]:
    """The answers where the metadata log was captured; given are 5 and 30 s."""
    return answer_shares(rows, Changes(**changed), InForce("g", Recorded(), Configs(configs)))


SEVEN_TRIES = [
    *(row(1000 * count, 10, 19, "AVAILABLE", count) for count in range(1, 7)),
    row(9000, 10, 19, "ARCHIVED", 7),
]


@pytest.mark.parametrize("resource_type", ["GROUP", "BROKER"])
def test_the_limit_is_what_the_metadata_log_tells(resource_type: str) -> None:
    """Archived at a limit of 7, which is not assumed then; without the log's word it would be the 5 that was given."""
    seven = config("7", resource_type=resource_type)
    (answer,) = configured(SEVEN_TRIES, seven, delivery_count_limit=9)
    assert (answer.verdict, deliveries(answer)) == (RecordVerdict.MORE_TRIES, (1, 2))
    assert "LIMIT_RECORDED" not in answer.assumptions
    at_five = [*HANDED_BACK, row(9000, 10, 19, "ARCHIVED", 5)]
    assert configured(at_five, seven, delivery_count_limit=9) == []
    (assumed,) = under(at_five, delivery_count_limit=9)
    assert "LIMIT_RECORDED" in assumed.assumptions


def test_a_group_has_its_own_limit_before_that_of_the_brokers() -> None:
    """GroupConfig overrides what holds for all."""
    rows = [row(9000, 10, 19, "ARCHIVED", 3)]
    configs = (config("3"), config("8", resource_type="BROKER"))
    (answer,) = configured(rows, *configs, delivery_count_limit=4)
    assert deliveries(answer) == (0, 1)


def test_a_limit_which_changed_is_looked_up_at_each_change() -> None:
    """Until 100 s it was 5, then 3: a limit of 4 takes one try from the first range, and gives the other one more."""
    rows = [
        *HANDED_BACK,
        row(9000, 10, 19, "ARCHIVED", 5),
        row(201_000, 20, 29, "AVAILABLE", 1),
        row(202_000, 20, 29, "AVAILABLE", 2),
        row(203_000, 20, 29, "ARCHIVED", 3),
    ]
    configs = (config("5", until=100_000), config("3", since=100_000))
    earlier, more = configured(rows, *configs, delivery_count_limit=4)
    assert (earlier.verdict, deliveries(earlier)) == (RecordVerdict.ARCHIVED_EARLIER, (-1, -1))
    assert (more.verdict, deliveries(more), more.first_offset) == (RecordVerdict.MORE_TRIES, (1, 1), 20)
    # a value in force for some of the time is a change for the rest
    assert [answer.first_offset for answer in configured(rows, *configs, delivery_count_limit=3)] == [10]


def test_who_knows_what_applied_is_not_asked_to_tell_it() -> None:
    """What the log shows cannot be given otherwise, so the error does not propose it."""
    with pytest.raises(WhatIfError, match=r"was 7 already$"):
        configured(SEVEN_TRIES, config("7"), delivery_count_limit=7)
    with pytest.raises(WhatIfError, match=r"was 7 already$"):
        configured([], config("7"), delivery_count_limit=7)
    with pytest.raises(WhatIfError, match=r"was 20000 ms already$"):
        configured([], config("20000", name=LOCK), record_lock_duration_ms=20_000)


TIMED_OUT = [row(100_000, 0, 9, "AVAILABLE", 1), row(161_000, 0, 9, "AVAILABLE", 2)]
"""61 s after the first hand-back."""


def test_the_lock_duration_is_what_the_metadata_log_tells() -> None:
    """61 s are a lock of 60 s, which the log shows; with the 30 s that were given they are not."""
    configs = (config("60000", name=LOCK, resource_type="BROKER"),)
    moved = configured(TIMED_OUT, *configs, record_lock_duration_ms=20_000)[1]
    assert (moved.verdict, moved.shift_ms_min) == (RecordVerdict.MOVED, -40_000)
    assert moved.assumptions == ("LOCK_BY_TIMING", "SAME_DELIVERIES")
    assumed = under(TIMED_OUT, record_lock_duration_ms=20_000)[1]
    assert assumed.verdict == RecordVerdict.CANNOT_TELL and "LOCK_RECORDED" in assumed.assumptions


def test_a_lock_duration_which_changed() -> None:
    """Where a lock of the old duration may still run, nobody can tell; where it was as asked already, all is kept."""
    configs = (config("20000", name=LOCK, until=140_000), config("60000", name=LOCK, since=140_000))
    rows = [*TIMED_OUT, row(400_000, 0, 9, "AVAILABLE", 3)]
    answers = configured(rows, *configs, record_lock_duration_ms=60_000)
    kept = RecordVerdict.KEPT
    assert [answer.verdict for answer in answers] == [*[RecordVerdict.CANNOT_TELL] * 2, kept]
    assert (answers[2].confidence, answers[2].assumptions) == ("LIKELY", ("SAME_DELIVERIES",))
    (first, *_) = configured(rows, *configs, record_lock_duration_ms=20_000)
    assert (first.verdict, first.confidence) == (kept, "LIKELY")


def test_a_lock_of_the_old_duration_may_still_run_after_a_change() -> None:
    """All changes came when it was 15 s, but the locks may be of 60 s: 15 s would not be the same, nor sure."""
    configs = (config("60000", name=LOCK, until=150_000), config("15000", name=LOCK, since=150_000))
    rows = [row(160_000, 0, 9, "AVAILABLE", 1), row(180_000, 0, 9, "ACKNOWLEDGED", 2)]
    answers = configured(rows, *configs, record_lock_duration_ms=15_000)
    assert [(answer.verdict, answer.recorded) for answer in answers] == [
        (RecordVerdict.CANNOT_TELL, "AVAILABLE at delivery 1"),
        (RecordVerdict.CANNOT_TELL, "10 offsets acknowledged or archived"),
    ]


def test_a_lock_shorter_before_a_change_may_have_run_out() -> None:
    """Acquired for 20 s at most: too short for the new 60 s, not for the 15 s in force before."""
    configs = (config("15000", name=LOCK, until=150_000), config("60000", name=LOCK, since=150_000))
    rows = [row(140_000, 0, 9, "AVAILABLE", 1), row(160_000, 0, 9, "AVAILABLE", 2)]
    answers = configured(rows, *configs, record_lock_duration_ms=30_000)
    assert answers[1].verdict == RecordVerdict.CANNOT_TELL


def test_a_lock_which_the_log_tells_only_later_is_assumed_before() -> None:
    """The log begins with 60 s at 150 s; that it was as much before was given: LIKELY, and LOCK_RECORDED says why."""
    rows = [
        row(10_000, 0, 9, "AVAILABLE", 1),
        row(160_000, 20, 29, "AVAILABLE", 1),
        row(400_000, 40, 49, "AVAILABLE", 1),
    ]
    later = Configs([config("60000", name=LOCK, since=150_000), config("20000", name=LOCK, since=390_000)])
    reported = InForce("g", Recorded(record_lock_duration_ms=60_000), later)
    answers = answer_shares(rows, Changes(record_lock_duration_ms=60_000), reported)
    assert [(answer.verdict, answer.confidence) for answer in answers[:2]] == [(RecordVerdict.KEPT, "LIKELY")] * 2
    assert all("LOCK_RECORDED" in answer.assumptions for answer in answers[:2])
    assert answers[2].verdict == RecordVerdict.CANNOT_TELL
