"""Groups whose membership is unchanged, with odd commits: nights say what one audit of all says."""

from collections import Counter
from random import Random
from typing import Final

import pytest

from coordinator_core.inference.commits.commit_anomalies import RESETS_MAX
from coordinator_core.inference.facts.settings import InferenceSettings
from tests.coordinator_core.inference.group_lives import (
    GROUP,
    commit,
    epoch,
    generation,
    joins,
    reconciled,
    target,
)
from tests.coordinator_core.inference.group_nights import after_nights
from tests.coordinator_core.inference.group_weeks import (
    DAY_MS,
    PRODUCER_ID,
    logged,
    standing_log,
    timed_batches,
)
from tests.coordinator_core.live.offsets.reference import ABORT, LogBatch, encode_batches, marker
from tests.lengths import how_many

HISTORIES: Final = how_many(24)
PARTS: Final = 2
MINUTE_MS: Final = 60_000
MORE_THAN_A_TOOL: Final = "more commits without members than a tool makes, or it lost its members otherwise"
SETTINGS: Final = InferenceSettings(skip_offset_count=500, stalled_ms=5_000_000)


@pytest.mark.parametrize("part", range(PARTS))
def test_nights_of_groups_that_stand(part: int) -> None:
    """Offsets go back, are deleted, stay for long, or come in transactions, days after anything else."""
    ways: Counter[str] = Counter()
    for seed in range(part, HISTORIES, PARTS):
        ways += after_nights(*standing_log(Random(f"standing/{seed}"), 5), SETTINGS).ways
    assert ways["gone on with"] > HISTORIES // PARTS // 2, ways


@pytest.mark.parametrize(
    ("reported", "kind", "method"),
    [
        pytest.param([(DAY_MS, 5)], "REWIND", "OFFSET_WENT_BACK", id="back"),
        pytest.param([(DAY_MS, None)], "DELETED", "SUBSCRIBED_TOPIC", id="deleted"),
        pytest.param([(DAY_MS, 10)], "STALLED", "REPEATED_COMMITS", id="it stays"),
    ],
)
def test_an_odd_commit_of_a_group_that_is_unchanged(
    reported: list[tuple[int, int | None]], kind: str, method: str
) -> None:
    """Its row tells the owner; the day counts it; no commit before it is judged again, on that night or the next."""
    base = [(0, generation(1, {"m": [0], "other": [1]})), (1_000, commit(9)), (2_000, commit(10))]
    batches = timed_batches([*base, *((at_ms, commit(offset)) for at_ms, offset in reported), (3 * DAY_MS, commit(11))])
    nights = after_nights(batches, [len(base), len(base) + len(reported)], SETTINGS)
    assert (nights.ways["never seen"], nights.ways["gone on with"]) == (1, 1), nights.ways
    assert nights.ways["left as it was"] == 1, nights.ways
    (row,) = nights.gold[GROUP].anomalies
    assert (row.kind, row.method, row.owner_member_id, row.was_group_empty) == (kind, method, "m", False)
    assert [(day.day, day.commit_count, day.commit_anomaly_count) for day in nights.gold[GROUP].days] == [
        (0, 2, 0),
        (DAY_MS, 1, 1),
        (3 * DAY_MS, 1, 0),
    ]


@pytest.mark.parametrize("count", [2, RESETS_MAX, RESETS_MAX + 1, 3 * RESETS_MAX])
def test_offsets_that_are_set_while_nobody_is_there(count: int) -> None:
    """One a night is seen as a reset by the group's current state. The night in which there are too many judges the
    group from its beginning, and the nights after that go on again."""
    base = [(0, generation(1, {"m": [0]})), (1_000, commit(10)), (2_000, commit(20)), (DAY_MS, generation(2, {}))]
    reported = [(DAY_MS + 1_000 * number, commit(5 + number)) for number in range(1, count + 1)]
    places = [len(base) + number for number in range(count)]
    nights = after_nights(timed_batches([*base, *reported]), places, SETTINGS)
    is_consumer = count > RESETS_MAX
    assert nights.ways["gone on with"] == count - is_consumer, nights.ways
    assert nights.ways[MORE_THAN_A_TOOL] == is_consumer, nights.ways
    rows = nights.gold[GROUP].anomalies
    assert [row.kind for row in rows] == ["EMPTY_GROUP_RESET"] * (1 if is_consumer else count)
    assert {row.method for row in rows} == {"COMMITS_WITHOUT_MEMBERSHIP" if is_consumer else "COMMIT_TO_EMPTY_GROUP"}


def test_a_transaction_that_is_aborted_when_its_owner_is_gone() -> None:
    """Who owned the partition then is in rows that have ended."""
    begun = tuple(one._replace(timestamp_ms=2_000) for one in commit(20))
    batches = encode_batches(
        [
            *(
                LogBatch(tuple(one._replace(timestamp_ms=at_ms) for one in records))
                for at_ms, records in ((0, generation(1, {"m": [0]})), (1_000, commit(10)))
            ),
            LogBatch(begun, PRODUCER_ID, True),
            LogBatch(tuple(one._replace(timestamp_ms=3_000) for one in generation(2, {"other": [0]}))),
            marker(PRODUCER_ID, ABORT, 4_000),
        ]
    )
    nights = after_nights(batches, [len(batches) - 1], SETTINGS)
    assert [(row.kind, row.owner_member_id) for row in nights.gold[GROUP].anomalies] == [("ABORTED", "m")]


def test_a_group_whose_rebalance_goes_on() -> None:
    """Each event tells that it was not over then: a day is longer not stable, the later an offset was deleted."""
    reported = [
        (0, [*joins("m"), *joins("other"), *epoch(1)]),
        (1_000, target(1, {"m": [0], "other": [1]})),
        (2_000, reconciled("m", 1, [0])),
    ]
    batches = encode_batches(
        [
            *(logged(records, at_ms, GROUP) for at_ms, records in reported),
            *(
                LogBatch(tuple(one._replace(timestamp_ms=at_ms) for one in commit(offset)))
                for at_ms, offset in ((3_000, 10), (4_000, 11), (10 * MINUTE_MS, None))
            ),
        ]
    )
    nights = after_nights(batches, [len(batches) - 1], SETTINGS)
    assert nights.gold[GROUP].days[0].not_stable_ms == 10 * MINUTE_MS


def test_a_group_that_was_deleted() -> None:
    """Its offsets were left behind; when one of them is deleted days later, nobody is known to be there or not."""
    gone = generation(1, {"m": [0]})[0]
    reported = [(0, [gone]), (1_000, commit(10)), (2_000, commit(11)), (3_000, [gone._replace(value=None)])]
    nights = after_nights(timed_batches([*reported, (DAY_MS, commit(None))]), [len(reported)], SETTINGS)
    assert [row.was_group_empty for row in nights.gold[GROUP].anomalies] == [None]
