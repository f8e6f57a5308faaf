"""Records of share groups under another delivery limit or lock duration."""

from typing import Any

import pytest

from coordinator_core.whatif.answer import answer_share_group
from coordinator_core.whatif.settings import Changes, Recorded, WhatIfError, question_of
from coordinator_core.whatif.shares import RecordAnswer, RecordVerdict, Transition, answer_shares

KINDS = {"AVAILABLE": "REDELIVERABLE", "ACKNOWLEDGED": "ACKNOWLEDGED", "ARCHIVED": "ARCHIVED", None: "RESET"}


def row(at: int, first: int, last: int, state: str | None, count: int, partition: int = 0) -> Transition:
    """A transition; its time is its place in the log."""
    return Transition("T", "t", partition, at, first, last, at, state, count, False, KINDS[state])


def under(rows: list[Transition], **changed: Any) -> list[RecordAnswer]:
    """The answers for a limit of 5 and a lock of 30 s as recorded."""
    return answer_shares(rows, Changes(**changed), Recorded())


HANDED_BACK = [row(1000 * count, 10, 19, "AVAILABLE", count) for count in (1, 2, 3, 4)]


def test_a_lower_limit_archives_at_an_earlier_hand_back() -> None:
    """At the third delivery its third hand-back archives it: two deliveries fewer, for certain."""
    (answer,) = under([*HANDED_BACK, row(9000, 10, 19, "ARCHIVED", 5)], delivery_count_limit=3)
    assert answer.verdict is RecordVerdict.ARCHIVED_EARLIER
    assert (answer.first_offset, answer.last_offset) == (10, 19)
    assert (answer.shift_ms, answer.deliveries, answer.confidence) == (3000 - 9000, (-2, -2), "CERTAIN")


def test_a_lower_limit_loses_what_a_later_delivery_saved() -> None:
    """Acknowledged at the fifth delivery, it would have been given up at the second."""
    (answer,) = under([*HANDED_BACK, row(9000, 10, 19, "ACKNOWLEDGED", 5)], delivery_count_limit=2)
    assert answer.verdict is RecordVerdict.ARCHIVED_INSTEAD
    assert answer.would_be == "ARCHIVED at delivery 2"
    assert answer.deliveries == (-3, -3)


def test_where_the_log_lacks_the_hand_back_its_time_is_not_told() -> None:
    """A count above the limit proves the hand-back at the limit, but not when it was."""
    (answer,) = under([row(9000, 10, 19, "ACKNOWLEDGED", 4)], delivery_count_limit=3)
    assert answer.verdict is RecordVerdict.ARCHIVED_INSTEAD
    assert answer.shift_ms is None


def test_at_the_limit_and_below_nothing_changes() -> None:
    """Acknowledged at the third delivery is within a limit of three; a first delivery is within any."""
    rows = [*HANDED_BACK[:2], row(9000, 10, 19, "ACKNOWLEDGED", 3), row(9000, 20, 29, "ACKNOWLEDGED", 1)]
    assert under(rows, delivery_count_limit=3) == []


def test_still_available_beyond_a_lower_limit() -> None:
    """A range which waits for its fifth delivery would be archived already."""
    (answer,) = under(HANDED_BACK, delivery_count_limit=4)
    assert answer.verdict is RecordVerdict.ARCHIVED_INSTEAD
    assert (answer.recorded, answer.shift_ms) == ("AVAILABLE at delivery 4", 0)


def test_a_higher_limit_gives_more_tries_of_unknown_outcome() -> None:
    """Handed back at each delivery, then archived at the limit: LIKELY the limit; up to two tries more."""
    (answer,) = under([*HANDED_BACK, row(9000, 10, 19, "ARCHIVED", 5)], delivery_count_limit=7)
    assert answer.verdict is RecordVerdict.MORE_TRIES
    assert (answer.deliveries, answer.confidence) == ((1, 2), "LIKELY")
    assert {"OUTCOME_UNKNOWN", "LIMIT_NOT_REJECTED"} <= set(answer.assumptions)


def test_archived_at_the_limit_without_its_story_is_a_guess() -> None:
    """Rejected at the last delivery looks the same: then there would have been no try more."""
    (answer,) = under([row(9000, 10, 19, "ARCHIVED", 5)], delivery_count_limit=6)
    assert (answer.deliveries, answer.confidence) == ((0, 1), "GUESS")


def test_archived_below_the_limit_was_rejected() -> None:
    """A higher limit would not have saved it."""
    assert under([row(9000, 10, 19, "ARCHIVED", 1)], delivery_count_limit=6) == []


def test_ranges_are_cut_where_their_stories_part() -> None:
    """Of ten offsets handed back together only the last five came to a third delivery."""
    rows = [row(1000, 0, 9, "AVAILABLE", 1), row(2000, 0, 4, "ACKNOWLEDGED", 2), row(2000, 5, 9, "AVAILABLE", 2)]
    answers = under([*rows, row(3000, 5, 9, "ACKNOWLEDGED", 3)], delivery_count_limit=2)
    assert [(answer.first_offset, answer.last_offset) for answer in answers] == [(5, 9)]


def test_what_an_admin_reset_is_another_story() -> None:
    """Deliveries before a reset do not count for what came after."""
    rows = [*HANDED_BACK, row(5000, 10, 19, None, 0), row(6000, 10, 19, "ACKNOWLEDGED", 1)]
    assert under(rows, delivery_count_limit=2) == []


def test_partitions_are_told_apart() -> None:
    """The same offsets of another partition are other records."""
    rows = [row(1000, 0, 9, "AVAILABLE", 3, partition=0), row(1000, 0, 9, "ACKNOWLEDGED", 1, partition=1)]
    assert [answer.partition for answer in under(rows, delivery_count_limit=3)] == [0]


LOCKED = [row(1000, 0, 9, "AVAILABLE", 1), row(32_000, 0, 9, "AVAILABLE", 2), row(35_000, 0, 9, "AVAILABLE", 3)]
"""After the first hand-back the lock ran out 31 s later; the third came 3 s after that, so it was none of the lock."""


def test_a_longer_lock() -> None:
    """A hand-back too soon for a lock is kept for certain; how a timed-out one would have ended nobody can tell."""
    first, second, third = under(LOCKED, record_lock_duration_ms=60_000)
    assert (first.verdict, first.confidence) == (RecordVerdict.CANNOT_TELL, None)
    assert "DELIVERY_NOT_IN_LOG" in first.assumptions
    assert (second.verdict, second.deliveries) == (RecordVerdict.CANNOT_TELL, (-1, 0))
    assert {"LOCK_BY_TIMING", "OUTCOME_UNKNOWN"} <= set(second.assumptions)
    assert (third.verdict, third.confidence) == (RecordVerdict.KEPT, "CERTAIN")


def test_a_shorter_lock() -> None:
    """What timed out would have timed out sooner; what was acknowledged may have been held for too long."""
    answers = under(
        [*LOCKED, row(37_000, 0, 9, "ACKNOWLEDGED", 4), row(1, 20, 29, "ACKNOWLEDGED", 1)],
        record_lock_duration_ms=15_000,
    )
    by_verdict = [(answer.verdict, answer.shift_ms) for answer in answers]
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
