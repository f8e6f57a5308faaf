"""Members of share groups under another session or heartbeat interval, against a simulation with it."""

import pytest

from coordinator_core.errors import WhatIfError
from simulator.whatif.answer import ALL_ASSUMPTIONS, answer_share_members_of
from simulator.whatif.settings import question_of
from simulator.whatif.shares import InForce, Transition, answer_shares
from simulator.whatif.verdicts import TOTAL, WhatIfRow
from tests.simulator.whatif.recorded import Simulated

SCENARIO = """
name = "test"
start = 2026-01-05T08:00:00Z
duration = "7m"
seed = 1
[cluster]
brokers = 1
consumer_offsets_partitions = 1
[cluster.settings]
"group.share.session.timeout.ms" = {session_ms}
"group.share.heartbeat.interval.ms" = {heartbeat_ms}
[[topic]]
name = "t"
partitions = 4
rate = 10.0
[[group]]
name = "g"
protocol = "share"
topics = ["t"]
members = 4
[[fault]]
kind = "crash"
at = "60s"
group = "g"
member = 3
[[fault]]
kind = "crash"
at = "100s"
group = "g"
member = 0
duration = "90s"
[[fault]]
kind = "stop"
at = "250s"
group = "g"
member = 1
duration = "40s"
[[fault]]
kind = "pause"
at = "300s"
group = "g"
member = 2
duration = "52s"
"""


def simulated(session_ms: int = 45_000, heartbeat_ms: int = 5000) -> Simulated:
    return Simulated(SCENARIO.format(session_ms=session_ms, heartbeat_ms=heartbeat_ms))


def asked(text: str) -> list[WhatIfRow]:
    return answer_share_members_of(simulated().life("g"), question_of([text]))


def changes_of(run: Simulated) -> list[tuple[int, tuple[str, str]]]:
    """Time, and the first cause, of each true epoch."""
    return [
        (line["ts_ms"], (line["causes"][0]["client_id"], line["causes"][0]["reason"])) for line in run.generations("g")
    ]


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("share.session.timeout.ms=60000", {"session_ms": 60_000}),
        ("group.share.heartbeat.interval.ms=15000", {"heartbeat_ms": 15_000}),
    ],
)
def test_epochs_come_within_their_bands(text: str, settings: dict[str, int]) -> None:
    """Each recorded epoch with a time comes within it, and there are as many as the total says."""
    *rows, total = asked(text)
    before, after = changes_of(simulated()), changes_of(simulated(**settings))
    assert total.kind == TOTAL
    assert total.rebalances_after_min is not None
    assert total.rebalances_after_min <= len(after) <= (total.rebalances_after_max or len(after))
    said = 0
    for row in rows:
        (cause,) = [cause for at_ms, cause in before if at_ms == row.at_ms]
        times = [at_ms for at_ms, other in after if other == cause]
        if row.shift_ms_min is None or row.shift_ms_max is None:
            continue
        said += 1
        assert row.at_ms is not None
        assert any(row.shift_ms_min <= at_ms - row.at_ms <= row.shift_ms_max for at_ms in times), row
    assert said > len(rows) // 2
    assert {name for row in (*rows, total) for name in row.assumptions} <= ALL_ASSUMPTIONS.keys()


def test_a_pause_may_be_borne_by_a_longer_session() -> None:
    """The member that was paused for 52 s: it looks like one that died, so its epochs may not have been."""
    rows = asked("share.session.timeout.ms=60000")[:-1]
    open_rows = [row for row in rows if "PAUSED_MEMBER" in row.assumptions]
    assert [row.recorded for row in open_rows] == ["LEFT_OR_EXPIRED of g-2", "MEMBER_JOINED of g-2"]
    assert all(row.verdict == "CANNOT_TELL" and row.confidence is None for row in open_rows)
    assert len(changes_of(simulated(60_000))) == len(changes_of(simulated())) - 2


def test_the_total_is_of_the_rows() -> None:
    """With a time from and to, the total counts the epochs of that time, as the rows do."""
    life, question = simulated().life("g"), question_of(["share.session.timeout.ms=60000"])
    every = answer_share_members_of(life, question)
    from_ms, to_ms = every[2].at_ms, every[-2].at_ms
    *rows, total = answer_share_members_of(life, question, from_ms=from_ms, to_ms=to_ms)
    assert rows == every[2:-2]
    assert total.recorded == f"{len(rows)} epochs"
    assert total.rebalances_after_max == sum(row.rebalances_after_max or 0 for row in rows)
    assert total.would_be is not None
    assert sum(int(part.split()[1]) for part in total.would_be.split(", ")) == len(rows)
    with pytest.raises(WhatIfError, match="no epoch in the log then"):
        answer_share_members_of(life, question, to_ms=0)


def test_a_join_is_what_it_was() -> None:
    """No session bears on when a member comes for the first time."""
    rows = asked("share.session.timeout.ms=60000")[:-1]
    assert [(row.verdict, row.shift_ms_min, row.confidence) for row in rows[:4]] == [("KEPT", 0, "LIKELY")] * 4


def test_silence_under_a_shorter_session_is_not_in_the_log() -> None:
    """Who was silent for 50 s of 60 shows nowhere: how many epochs more there would be is left open."""
    life = simulated(60_000).life("g")
    question = question_of(["share.session.timeout.ms=45000"], ["share.session.timeout.ms=60000"])
    total = answer_share_members_of(life, question)[-1]
    assert total.rebalances_after_max is None
    assert "SILENCE_NOT_IN_LOG" in total.assumptions


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["share.session.timeout.ms=45000"], "45000 ms already"),
        (["share.heartbeat.interval.ms=5000"], "5000 ms already"),
        (["share.session.timeout.ms=50000", "share.heartbeat.interval.ms=6000"], "one at a time"),
        (["share.session.timeout.ms=50000", "share.delivery.count.limit=3"], "one at a time"),
    ],
)
def test_what_changes_nothing_is_refused(texts: list[str], words: str) -> None:
    """The error says what to do."""
    with pytest.raises(WhatIfError, match=words):
        answer_share_members_of(simulated().life("g"), question_of(texts))


def change(at: int, first: int, last: int, state: str, count: int = 1) -> Transition:
    return Transition("id", "t", 0, at, first, last, at, state, count, False, "CHANGED")


LOCKS = [
    change(1000, 0, 99, "AVAILABLE"),
    change(2000, 100, 399, "ACKNOWLEDGED"),
    change(3000, 0, 99, "ACKNOWLEDGED", 2),
    change(4000, 400, 449, "ACKNOWLEDGED"),
]


@pytest.mark.parametrize(
    ("count", "verdict", "confidence"), [(399, "CANNOT_TELL", None), (400, "KEPT", "GUESS"), (1000, "KEPT", "GUESS")]
)
def test_record_locks(count: int, verdict: str, confidence: str | None) -> None:
    """What the log proves to have been in flight must have room; what else was acquired it does not tell."""
    question = question_of([f"share.partition.max.record.locks={count}"])
    (answer,) = answer_shares(LOCKS, question.changed, InForce("g", question.recorded))
    assert (answer.verdict, answer.confidence) == (verdict, confidence)
    assert answer.recorded == "at least 400 records in flight at one time"
    assert answer.at_ms == 2000
    assert "IN_FLIGHT_NOT_IN_LOG" in answer.assumptions


def test_as_many_record_locks_as_before_are_no_change() -> None:
    """2000 is Kafka's default."""
    question = question_of(["share.max.record.locks=2000"])
    with pytest.raises(WhatIfError, match="record locks was 2000 already"):
        answer_shares(LOCKS, question.changed, InForce("g", question.recorded))
