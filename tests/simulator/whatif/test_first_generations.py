"""When a first generation would have come under another initial delay: what joins within windows allow."""

import pytest

from coordinator_core.confidence import LIKELY
from simulator.whatif.compare import compare
from simulator.whatif.first_generations import LATENCY_MS, Window, waits
from simulator.whatif.settings import Recorded, question_of
from simulator.whatif.timeline import timeline_of
from simulator.whatif.verdicts import Verdict
from tests.simulator.whatif.recorded import Simulated

CASES = {
    "nobody else came": ((), 3000, 60_000, (3000, 3000)),
    "somebody came within the delay": ((Window(0, 2000),), 3000, 60_000, (6000, 6000)),
    "somebody came within it or not": ((Window(2000, 4000),), 3000, 60_000, (3000, 9000)),
    "one each delay": ((Window(0, 1000), Window(3500, 4000), Window(7000, 8000)), 3000, 60_000, (12_000, 12_000)),
    "who came after the wait does not count": ((Window(9000, 9500),), 3000, 60_000, (3000, 3000)),
    "no longer than the rebalance time-out": ((Window(0, 1000), Window(4000, 5000)), 3000, 5000, (5000, 5000)),
    "no delay": ((Window(0, 1000),), 0, 60_000, (0, 0)),
}


@pytest.mark.parametrize(("windows", "delay_ms", "timeout_ms", "expected"), CASES.values(), ids=CASES.keys())
def test_waits(windows: tuple[Window, ...], delay_ms: int, timeout_ms: int, expected: tuple[int, int]) -> None:
    """The shortest and the longest wait of the initial delayed join."""
    assert waits(windows, delay_ms, timeout_ms) == expected


STAGGERED = """
name = "test"
start = 2026-01-05T08:00:00Z
duration = "2m"
seed = {seed}
[cluster]
brokers = 1
consumer_offsets_partitions = 1
[cluster.settings]
"group.initial.rebalance.delay.ms" = {delay_ms}
[[topic]]
name = "t"
partitions = 6
rate = 10.0
[[group]]
name = "g"
topics = ["t"]
members = 3
stagger = "{stagger_ms}ms"
"""


@pytest.mark.parametrize("asked_ms", [1000, 6000])
@pytest.mark.parametrize("stagger_ms", [1000, 2500, 4000, 7000])
def test_a_later_joiner_prolongs_the_delay(stagger_ms: int, asked_ms: int) -> None:
    """What came in a simulation with the other delay is in the band of each rebalance, or nothing is claimed."""
    for seed in range(3):
        run = Simulated(STAGGERED.format(seed=seed, delay_ms=3000, stagger_ms=stagger_ms))
        answers, totals = compare(
            timeline_of(run.life("g"), Recorded()),
            question_of([f"group.initial.rebalance.delay.ms={asked_ms}"]).changed,
        )
        truth = Simulated(STAGGERED.format(seed=seed, delay_ms=asked_ms, stagger_ms=stagger_ms)).generations("g")
        rebalances = totals.after.rebalances
        assert rebalances is not None and rebalances.most is not None
        assert rebalances.least <= len(truth) <= rebalances.most
        first = answers[0]
        assert first.shift_ms is not None
        assert first.shift_ms.least < first.shift_ms.most, "a band of no width claims what nobody knows"
        if first.confidence == LIKELY:
            assert first.shift_ms.least <= truth[0]["ts_ms"] - first.at_ms <= first.shift_ms.most
        # who must be in the first generation comes when it does
        for answer in answers[1:]:
            if answer.verdict is Verdict.MERGED:
                assert answer.shift_ms is not None
                assert answer.shift_ms.least <= truth[0]["ts_ms"] - answer.at_ms <= answer.shift_ms.most


def test_one_member_waits_once() -> None:
    """Alone in its group there is nothing to leave open but the way there and back."""
    text = STAGGERED.replace("members = 3", "members = 1")
    timeline = timeline_of(Simulated(text.format(seed=1, delay_ms=3000, stagger_ms=0)).life("g"), Recorded())
    (answer,), totals = compare(timeline, question_of(["group.initial.rebalance.delay.ms=10000"]).changed)
    assert answer.shift_ms is not None
    assert answer.shift_ms.most - answer.shift_ms.least <= 2 * LATENCY_MS + 20
    assert answer.shift_ms.least <= 7000 <= answer.shift_ms.most
    assert totals.after.rebalances == (1, 1)
