"""Brokers take negative offsets, and clients write them: they stay what they are, and none means null."""

from random import Random
from typing import Any, Final

import pytest

from coordinator_core.inference.facts.settings import InferenceSettings
from tests.cases.harness import CASES, Ledger
from tests.cases.judged import Judged
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.coordinator_core.inference.group_nights import after_nights

LOWEST: Final = -(2**63)


def anomalies(ledger: Ledger | Judged) -> list[tuple[Any, ...]]:
    """Kind and offsets of commit anomalies, by place in the log."""
    rows = sorted(ledger.rows("gold.commit_anomalies"), key=lambda row: row["log_offset"])
    return [(row["kind"], row["from_offset"], row["to_offset"], row["delta"]) for row in rows]


def test_a_commit_of_a_negative_offset_is_a_rewind_to_it(ledger: Ledger) -> None:
    """Gold says to where the offset went, as silver does."""
    assert ledger.night(CASES / "negative-offset" / "logs").exit_code in {
        0,
        3,
    }  # log partitions below its own are not there
    assert anomalies(ledger) == [("REWIND", 5, -1, -6)]
    assert [row["committed_offset"] for row in ledger.rows("silver.offset_commits")] == [5, -1]


def test_what_comes_after_a_negative_offset_comes_from_it(judged: Judged) -> None:
    """A later commit, an aborted one and a deletion all have -1 before them; a first commit of -1 has nothing before
    it, nor has the deletion of what is not there."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0, 1)}, NOON_MS)
    for number, offset in enumerate((5, -1)):
        log.commit("g", 0, offset, NOON_MS + 1_000 * number)
    log.commit("g", 1, -1, NOON_MS + 3_000)
    log.commit("g", 0, 7, NOON_MS + 4_000, producer_id=9)
    log.marker(NOON_MS + 5_000, 9, is_commit=False)
    log.commit("g", 0, -3, NOON_MS + 6_000)
    log.commit("g", 1, None, NOON_MS + 7_000)
    log.commit("g", 1, None, NOON_MS + 8_000)
    judged.night(log.batches)
    assert anomalies(judged) == [
        ("REWIND", 5, -1, -6),
        ("ABORTED", -1, 7, None),
        ("REWIND", -1, -3, -2),
        ("DELETED", -1, None, None),
        ("DELETED", None, None, None),
    ]


def test_a_difference_that_no_bigint_holds_is_none(judged: Judged) -> None:
    """From one end of all offsets to the other no table can say how far it is, and the night ends well."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,)}, NOON_MS)
    for number, offset in enumerate((2**63 - 1, LOWEST, 2**63 - 1, LOWEST)):
        log.commit("g", 0, offset, NOON_MS + 1_000 * number)
    judged.night(log.batches)
    assert anomalies(judged) == [("REWIND", 2**63 - 1, LOWEST, None)] * 2


def test_a_commit_of_a_negative_offset_is_a_sign_of_life(judged: Judged) -> None:
    """A member that commits -1 is there: it left, as a member that was silent for so long may not have."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS)
    for number in range(1, 40):
        log.commit("g", 1, -1, NOON_MS + 10_000 * number)
    log.generation("g", 2, {"a": (0, 1)}, NOON_MS + 395_000)
    judged.night(log.batches)
    row = max(judged.rows("gold.rebalances"), key=lambda row: row["to_generation"])
    assert (row["cause"], row["method"], row["confidence"]) == ("MEMBER_LEFT", "HEARD_WITHIN_SESSION", "LIKELY")


@pytest.mark.parametrize("seed", range(3))
def test_negative_offsets_change_no_row_by_the_cut_into_nights(seed: int) -> None:
    """What several nights say is what one says, whatever is committed."""
    random, log = Random(f"negative/{seed}"), SmallLog()
    offsets = (-1, -1, -2, 0, 1, 5, None, LOWEST, 2**63 - 1)
    for number in range(40):
        at_ms = NOON_MS + 7_000_000 * number
        if random.random() < 0.2:
            log.generation("g", number + 1, {"a": (0,)} if random.random() < 0.7 else {}, at_ms)
        if random.random() < 0.2:
            log.marker(at_ms, 9, is_commit=random.random() < 0.5)
        how = {"producer_id": 9} if random.random() < 0.2 else {}
        offset = random.choice(offsets)
        log.commit(random.choice("gh"), random.randrange(2), offset, at_ms, **(how if offset is not None else {}))
    cuts = sorted(random.sample(range(1, len(log.batches)), 3))
    gold = after_nights(log.batches, cuts, InferenceSettings()).gold
    assert {row.to_offset for group in gold.values() for row in group.anomalies} & {-1, -2, LOWEST}
