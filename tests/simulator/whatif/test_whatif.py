"""What if, against the truth: the simulator runs the same timeline under the other settings, and is the judge.

The log of the timeline under the recorded settings is all that `compare` sees.
"""

from dataclasses import dataclass, replace

import pytest

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.errors import WhatIfError
from coordinator_core.inference.audit.groups import audit_group
from coordinator_core.inference.facts.configs import ConfigRow, Configs
from coordinator_core.inference.facts.settings import InferenceSettings
from simulator.simulation.scenario import Scenario
from simulator.simulation.simulation import Simulation
from simulator.simulation.truth import MemorySink
from simulator.whatif import runner
from simulator.whatif.answer import ALL_ASSUMPTIONS, answer_group
from simulator.whatif.compare import compare
from simulator.whatif.lifetimes import End
from simulator.whatif.settings import Changes, Recorded, question_of
from simulator.whatif.timeline import timeline_of
from simulator.whatif.verdicts import REBALANCE, TOTAL, Bounds, RebalanceAnswer, Totals, Verdict
from tests.coordinator_core.inference.group_lives import classic, life_of
from tests.recorded import RECORDINGS
from tests.simulator.whatif.recorded import Simulated, recorded_life

SCENARIO = """
name = "test"
start = 2026-01-05T08:00:00Z
duration = "{minutes}m"
seed = 3
[cluster]
brokers = 1
kafka_version = "{version}"
consumer_offsets_partitions = 1
[cluster.settings]
"group.initial.rebalance.delay.ms" = {delay_ms}
"group.consumer.session.timeout.ms" = {consumer_session_ms}
[[topic]]
name = "t"
partitions = 6
rate = 10.0
[[group]]
name = "g"
topics = ["t"]
members = {members}
protocol = "{protocol}"
{assignors}
static = {static}
{session}
max_poll_interval = "60s"
{faults}
"""

FAULT = """
[[fault]]
kind = "{0}"
at = "{1}s"
group = "g"
member = {2}
{3}
"""

TOLERANCE_MS = 9000
"""Two heartbeats and polls, and as much for the play."""


@dataclass(frozen=True)
class Case:
    """A timeline; faults are (kind, at in seconds, member, duration in seconds)."""

    faults: tuple[tuple[str, int, int, int | None], ...] = ()
    members: int = 3
    protocol: str = "classic"
    assignor: str = "range"
    static: str = "false"
    session_s: int = 30
    delay_ms: int = 3000
    consumer_session_ms: int = 45_000
    minutes: int = 8

    def run(self, version: KafkaVersion = DEFAULT_VERSION) -> Simulated:
        """Simulate it, as a release of Kafka."""
        faults = "".join(
            FAULT.format(kind, at, member, "" if duration is None else f'duration = "{duration}s"')
            for kind, at, member, duration in self.faults
        )
        assignors = f'assignors = ["{self.assignor}"]' if self.assignor else ""
        # brokers set the session of a consumer group
        session = f'session_timeout = "{self.session_s}s"' if self.protocol == "classic" else ""
        return Simulated(
            SCENARIO.format(
                **{**vars(self), "faults": faults, "assignors": assignors, "session": session, "version": version}
            )
        )


DEPLOY = (("stop", 100, 0, 10), ("stop", 140, 1, 10), ("stop", 180, 2, 10))
CRASH = (("crash", 100, 0, None),)
CRASH_AND_BACK = (("crash", 100, 0, 90),)
SHORT_PAUSE = (("pause", 100, 0, 14),)
SLOW = (("slow_poll", 100, 0, 90),)
MIXED = (*CRASH_AND_BACK, ("stop", 250, 1, 20), ("pause", 330, 2, 45))

CERTAIN_CASES = {
    "a crash, longer session": (Case(CRASH), "session.timeout.ms=60000", {"session_s": 60}),
    "a crash, shorter session": (Case(CRASH), "session.timeout.ms=10000", {"session_s": 10}),
    "too slow a poll, longer session": (Case(SLOW), "session.timeout.ms=45000", {"session_s": 45}),
    "a deploy, static members": (Case(DEPLOY), "group.instance.id=static", {"static": "true"}),
    "a deploy longer than the session, static": (
        Case((("stop", 100, 0, 60),)),
        "group.instance.id=static",
        {"static": "true"},
    ),
    "static members, short session": (
        Case((("crash", 100, 0, 25),), static="true"),
        "session.timeout.ms=10000",
        {"session_s": 10},
    ),
    "a deploy, cooperative": (Case(DEPLOY), "assignor=cooperative-sticky", {"assignor": "cooperative-sticky"}),
    "a cooperative deploy, eager": (
        Case(DEPLOY, assignor="cooperative-sticky"),
        "assignor=range",
        {"assignor": "range"},
    ),
    "a deploy, consumer protocol": (Case(DEPLOY), "group.protocol=consumer", {"protocol": "consumer", "assignor": ""}),
    "a consumer group, classic protocol": (
        Case(DEPLOY, protocol="consumer", assignor="", session_s=45),
        "group.protocol=classic",
        {"protocol": "classic", "assignor": "range"},
    ),
    "a consumer group, longer session": (
        Case(CRASH, protocol="consumer", assignor=""),
        "group.consumer.session.timeout.ms=60000",
        {"consumer_session_ms": 60_000},
    ),
    "a consumer group, static": (
        Case(DEPLOY, protocol="consumer", assignor=""),
        "group.instance.id=static",
        {"static": "true"},
    ),
    "a longer delay": (Case(CRASH), "group.initial.rebalance.delay.ms=10000", {"delay_ms": 10_000}),
    "no delay": (Case(CRASH, members=2), "group.initial.rebalance.delay.ms=0", {"delay_ms": 0}),
}


def holds(bounds: Bounds | None, number: int) -> bool:
    """Whether bounds of a measure hold a number."""
    return bounds is not None and bounds.least <= number and (bounds.most is None or number <= bounds.most)


def _middle_ms(bounds: Bounds | None) -> float:
    assert bounds is not None and bounds.most is not None
    return (bounds.least + bounds.most) / 2


def _compared(case: Case, asked: str) -> tuple[list[RebalanceAnswer], Totals]:
    timeline = timeline_of(case.run().life("g"), Recorded())
    return compare(timeline, question_of([asked]).changed)


@pytest.mark.parametrize(("case", "asked", "other"), CERTAIN_CASES.values(), ids=CERTAIN_CASES.keys())
def test_what_would_have_been_is_what_the_simulator_shows(case: Case, asked: str, other: dict[str, object]) -> None:
    """All is reproduced, nothing is left open, and there are as many rebalances as truly come, when they come."""
    answers, totals = _compared(case, asked)
    truth = [line["ts_ms"] for line in replace(case, **other).run().generations("g")]  # type: ignore[arg-type]

    assert totals.reproduced_count == totals.recorded_count
    assert {answer.verdict for answer in answers}.isdisjoint({Verdict.CANNOT_TELL, Verdict.NOT_REPRODUCED})
    assert holds(totals.after.rebalances, len(truth))
    expected = []
    for answer in answers:
        if answer.verdict is Verdict.AVOIDED:
            continue
        shift = answer.shift_ms or (0, 0)
        near = [
            at for at in truth if answer.at_ms + shift[0] - TOLERANCE_MS <= at <= answer.at_ms + shift[1] + TOLERANCE_MS
        ]
        assert near, f"{answer.verdict} {answer.causes}"
        expected += near
    for answer in answers:
        if answer.verdict is Verdict.AVOIDED:
            assert all(abs(at - answer.at_ms) > TOLERANCE_MS // 2 or at in expected for at in truth), answer.causes


def test_the_recorded_settings_change_nothing() -> None:
    """A timeline of all kinds of faults is reproduced, and under a session as it was all is kept."""
    answers, totals = _compared(Case(MIXED), "session.timeout.ms=30000")
    assert {answer.verdict for answer in answers} == {Verdict.KEPT}
    assert all(answer.shift_ms == (0, 0) for answer in answers)
    assert totals.after.rebalances == totals.before.rebalances
    assert totals.after.unowned_ms == totals.before.unowned_ms
    assert totals.after.not_served_ms == totals.before.not_served_ms


@pytest.mark.parametrize("version", [KafkaVersion(4, 0), KafkaVersion(4, 4)], ids=str)
def test_a_story_is_played_as_the_release_that_it_was_recorded_with(
    version: KafkaVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coordinators follow that release's rules, and what was simulated as that release is reproduced."""
    played: list[KafkaVersion] = []

    def simulation(scenario: Scenario, sink: MemorySink) -> Simulation:
        played.append(scenario.cluster.kafka_version)
        return Simulation(scenario, sink)

    monkeypatch.setattr(runner, "Simulation", simulation)
    case = Case(DEPLOY, protocol="consumer", assignor="", session_s=45)
    recorded = Recorded(kafka_version=version)
    timeline = timeline_of(case.run(version).life("g"), recorded)
    answers, totals = compare(timeline, question_of(["group.instance.id=dynamic"]).changed)
    assert set(played) == {version}
    assert totals.reproduced_count == totals.recorded_count > 0
    assert {answer.verdict for answer in answers} == {Verdict.KEPT}


def test_a_static_deploy_saves_all_its_rebalances() -> None:
    """Six rebalances of three restarts would not have been; the partitions would have stayed, without an owner."""
    answers, totals = _compared(Case(DEPLOY), "group.instance.id=static")
    avoided = [answer for answer in answers if answer.verdict is Verdict.AVOIDED]
    assert len(avoided) == 6
    assert all(answer.after.rebalances == (0, 0) and answer.confidence == "LIKELY" for answer in avoided)
    assert "SAME_CLIENT" in avoided[0].assumptions
    assert totals.after.moved == (0, 0) != totals.before.moved
    assert holds(totals.after.not_served_ms, 3 * 2 * 10_000) and not holds(totals.after.not_served_ms, 0)
    assert totals.after.unowned_ms == (0, 0)


def test_a_longer_session_costs_time_without_an_owner() -> None:
    """The crash would have been noticed 30 s later, so its two partitions would have lain idle as much longer."""
    answers, totals = _compared(Case(CRASH), "session.timeout.ms=60000")
    moved = next(answer for answer in answers if answer.verdict is Verdict.MOVED)
    assert moved.shift_ms is not None and abs(moved.shift_ms.least - 30_000) < 6000
    before_ms, after_ms = (_middle_ms(one.not_served_ms) for one in (totals.before, totals.after))
    assert after_ms - before_ms == pytest.approx(2 * 30_000, rel=0.2)
    assert totals.before.unowned_ms is not None and holds(totals.after.unowned_ms, totals.before.unowned_ms.least)


LONG_SESSION = Case(CRASH, protocol="consumer", assignor="", consumer_session_ms=60_000)


@pytest.mark.parametrize(
    ("resource", "name"),
    [(("GROUP", "g"), "consumer.session.timeout.ms"), (("BROKER", ""), "group.consumer.session.timeout.ms")],
)
def test_the_session_of_a_consumer_group_is_what_the_metadata_log_tells(resource: tuple[str, str], name: str) -> None:
    """Sixty seconds, as the cluster truly had, not the 45 that are assumed otherwise."""
    life = LONG_SESSION.run().life("g")
    # with a longer poll interval than the session, a silence of 60 s has one hypothesis
    life = life._replace(members=tuple(row._replace(rebalance_timeout_ms=300_000) for row in life.members))
    configs = Configs([ConfigRow(*resource, name, "60000", 0, None, None)])
    timeline = timeline_of(life, Recorded(), configs)
    assert (timeline.session_timeout_ms, timeline.is_session_known) == (60_000, True)
    assert [one.end for one in timeline.lifetimes if one.end is not End.STILL] == [End.EXPIRED]
    known, assumed = (
        {name for row in answer_group(life, STATIC, given) for name in row.assumptions}
        for given in (configs, Configs())
    )
    assert "CONSUMER_SESSION" in assumed
    assert "CONSUMER_SESSION" not in known
    answers, totals = compare(timeline, question_of(["consumer.session.timeout.ms=45000"]).changed)
    assert totals.reproduced_count == totals.recorded_count
    moved = next(answer for answer in answers if answer.verdict is Verdict.MOVED)
    assert moved.shift_ms is not None and abs(moved.shift_ms.least + 15_000) < 6000


def test_a_session_which_changed_cannot_be_played() -> None:
    """The error says to ask for less time, or to tell what it was before the metadata log was captured."""
    life = LONG_SESSION.run().life("g")
    crashed_ms = life.generations[-1].valid_from
    changed = ConfigRow("GROUP", "g", "consumer.session.timeout.ms", "60000", 9, crashed_ms - 5000, None)
    with pytest.raises(WhatIfError, match="45000 and 60000: ask with --from"):
        timeline_of(life, Recorded(), Configs([changed]))
    reported = question_of(["group.instance.id=static"], ["consumer.session.timeout.ms=60000"]).recorded
    timeline = timeline_of(life, reported, Configs([changed]))
    assert (timeline.session_timeout_ms, timeline.is_session_known) == (60_000, False)


STATIC = question_of(["group.instance.id=static"])


@pytest.mark.parametrize("fault", ["pause", "crash"])
def test_paused_or_crashed_the_log_does_not_say(fault: str) -> None:
    """A member which expired and came back: had it been paused, a longer session would have saved it; else not."""
    answers, totals = _compared(Case(((fault, 100, 0, 50),)), "session.timeout.ms=90000")
    gone, back = answers[1:3]
    for answer in (gone, back):
        assert answer.verdict is Verdict.CANNOT_TELL
        assert answer.confidence is None
        assert "PAUSED_OR_CRASHED" in answer.assumptions
        assert Verdict.AVOIDED.value in answer.possible and len(answer.possible) > 1
    truth = Case(((fault, 100, 0, 50),), session_s=90).run().generations("g")
    assert holds(totals.after.rebalances, len(truth))


def test_a_pause_which_the_session_bore_may_have_cost_it() -> None:
    """Under a shorter session a member which committed nothing for longer may have expired: it is said when."""
    answers, totals = _compared(Case(SHORT_PAUSE), "session.timeout.ms=10000")
    may_be, back = [answer for answer in answers if answer.verdict is Verdict.MAY_BE_ADDED]
    assert (may_be.causes, back.causes) == (("MEMBER_EXPIRED of g-0",), ("MEMBER_JOINED of g-0",))
    truth = [line["ts_ms"] for line in Case(SHORT_PAUSE, session_s=10).run().generations("g")]
    assert any(abs(at - may_be.at_ms) <= TOLERANCE_MS for at in truth)
    assert totals.before.rebalances == (len(truth) - 2, len(truth) - 2)
    assert totals.after.rebalances == (len(truth) - 2, len(truth))


def test_a_consumer_group_tells_a_pause_from_a_crash() -> None:
    """Members of the consumer protocol keep their id when they come back from a pause: each is its own timeline."""
    timeline = timeline_of(
        Case(((("pause", 100, 0, 60)),), protocol="consumer", assignor="").run().life("g"), Recorded()
    )
    gone = next(life for life in timeline.lifetimes if life.end is End.EXPIRED)
    (back,) = [life for life in timeline.lifetimes if life.slot == gone.slot and life is not gone]
    assert back.member.member_id == gone.member.member_id


def test_how_lives_end() -> None:
    """The last commits show who left, who expired and who was too slow; the same client is the same process."""
    faults = (("stop", 100, 0, 20), ("crash", 160, 1, 60), ("slow_poll", 280, 2, 90))
    timeline = timeline_of(Case(faults).run().life("g"), Recorded())
    ended = [(life.member.client_id, life.end) for life in timeline.lifetimes if life.end is not End.STILL]
    assert sorted(ended) == [("g-0", End.LEFT), ("g-1", End.EXPIRED), ("g-2", End.POLL_EXPIRED)]
    by_client: dict[str, set[int]] = {}
    for life in timeline.lifetimes:
        by_client.setdefault(life.member.client_id, set()).add(life.slot)
    assert [len(slots) for slots in by_client.values()] == [1, 1, 1]


def test_the_delay_is_read_from_the_log() -> None:
    """How long the first generation took after the group was made tells the initial rebalance delay."""
    without = timeline_of(Case(delay_ms=0).run().life("g"), Recorded())
    assert without.initial_rebalance_delay_ms == 0
    assert timeline_of(Case().run().life("g"), Recorded()).initial_rebalance_delay_ms == 3000
    reported = timeline_of(Case().run().life("g"), Recorded(initial_rebalance_delay_ms=1234))
    assert reported.initial_rebalance_delay_ms == 1234


def test_members_of_one_client_id_and_host_make_a_guess() -> None:
    """Which of two such members came back nobody knows: what hangs on it is a GUESS, and says SAME_CLIENT."""
    life = Case(DEPLOY).run().life("g")
    alike = tuple(row._replace(client_id="c", client_host="/h") for row in life.members)
    timeline = timeline_of(life._replace(members=alike), Recorded())
    assert all(one.has_twin for one in timeline.lifetimes[:3])
    answers, _ = compare(timeline, Changes(is_static=True))
    assert {answer.confidence for answer in answers} <= {"GUESS", None}
    assert all("SAME_CLIENT" in answer.assumptions for answer in answers)


def test_a_play_which_comes_at_another_time_is_refuted() -> None:
    """With a delay which cannot have been, the first generation comes too late: it is not reproduced, all else is."""
    timeline = timeline_of(Case(CRASH).run().life("g"), Recorded(initial_rebalance_delay_ms=20_000))
    answers, totals = compare(timeline, Changes(session_timeout_ms=60_000))
    assert [answer.verdict for answer in answers] == [Verdict.NOT_REPRODUCED, Verdict.MOVED]
    assert totals.reproduced_count == 1


def test_a_window_leaves_out_what_was_before() -> None:
    """With --from the members of then are there already, and only later rebalances are compared."""
    life = Case(DEPLOY).run().life("g")
    middle_ms = life.generations[4].valid_from - 1000
    timeline = timeline_of(life, Recorded(), from_ms=middle_ms)
    answers, totals = compare(timeline, Changes(is_static=True))
    assert min(answer.at_ms for answer in answers) >= middle_ms
    assert totals.reproduced_count == totals.recorded_count == len(life.generations) - 4


@pytest.mark.parametrize(
    ("case", "asked", "words"),
    [
        (Case(), "group.protocol=classic", "had group.protocol=classic already"),
        (Case(), "group.consumer.session.timeout.ms=60000", "go by session.timeout.ms"),
        (Case(), "assignor=uniform", "set group.protocol=consumer as well"),
        (Case(protocol="consumer", assignor=""), "session.timeout.ms=60000", "go by group.consumer.session"),
        (Case(protocol="consumer", assignor=""), "assignor=sticky", "uniform, range"),
        (Case(protocol="consumer", assignor=""), "group.initial.rebalance.delay.ms=0", "is for the classic protocol"),
    ],
)
def test_a_change_without_meaning_is_refused(case: Case, asked: str, words: str) -> None:
    """The error says what to ask instead."""
    with pytest.raises(WhatIfError, match=words):
        _compared(replace(case, minutes=1), asked)


def test_rows_have_the_answers_and_the_total() -> None:
    """One row a rebalance, the sum last; every assumption that is named is explained."""
    rows = answer_group(Case(DEPLOY).run().life("g"), question_of(["group.instance.id=static"]))
    assert [row.kind for row in rows] == [REBALANCE] * 7 + [TOTAL]
    assert rows[-1].would_be == "AVOIDED 6, KEPT 1"
    assert rows[1].recorded == "MEMBER_LEFT of g-0"
    assert {name for row in rows for name in row.assumptions} <= ALL_ASSUMPTIONS.keys()


def test_records_cannot_be_asked_of_a_group_of_consumers() -> None:
    """A delivery limit is for share groups."""
    with pytest.raises(WhatIfError, match="is no share group"):
        answer_group(Case(minutes=1).run().life("g"), question_of(["share.delivery.count.limit=3"]))


@pytest.mark.parametrize(
    ("group_id", "rebalance_count"), [("k01-uniform", 10), ("k02-range", 6), ("r02-consumer-live", 4), ("c16-kill9", 2)]
)
def test_groups_of_a_real_broker_are_reproduced(group_id: str, rebalance_count: int) -> None:
    """The play gives what a real broker and real clients wrote, epoch by epoch."""
    timeline = timeline_of(recorded_life(RECORDINGS / "full-a" / "logs", group_id, 5), Recorded())
    _, totals = compare(timeline, Changes(is_static=True))
    assert (totals.reproduced_count, totals.recorded_count) == (rebalance_count, rebalance_count)


def test_what_the_log_cannot_tell_is_left_out() -> None:
    """A rebalance which a client enforced has no cause in the log: it is said to be left out, and counted as such."""
    timeline = timeline_of(recorded_life(RECORDINGS / "full-a" / "logs", "c15-enforce", 5), Recorded())
    answers, totals = compare(timeline, Changes(is_static=True))
    left_out = [answer for answer in answers if answer.verdict is Verdict.NOT_REPRODUCED]
    assert left_out and totals.reproduced_count == totals.recorded_count - len(left_out)


@pytest.mark.parametrize(
    ("group_id", "words"), [("t01-streams", "streams group"), ("n01-connect", "no group of consumers")]
)
def test_other_groups_are_refused(group_id: str, words: str) -> None:
    """Members of streams and Connect groups cannot be played."""
    with pytest.raises(WhatIfError, match=words):
        timeline_of(recorded_life(RECORDINGS / "full-a" / "logs", group_id, 5), Recorded())


def test_what_is_played_is_counted_as_gold_counts() -> None:
    """What was before is what gold.rebalances has of the log: for each rebalance with its follow-ups, and in all."""
    life = Case(MIXED).run().life("g")
    gold = audit_group(life, InferenceSettings()).rebalances
    total = answer_group(life, question_of(["session.timeout.ms=30000"]))[-1]
    moved = sum(row.partitions_moved or 0 for row in gold)
    unowned_ms = sum(row.unowned_partition_ms or 0 for row in gold)
    assert moved > 0
    assert (total.rebalances_before_min, total.rebalances_before_max) == (len(gold), len(gold))
    assert (total.moved_before_min, total.moved_before_max) == (moved, moved)
    assert (total.unowned_ms_before_min, total.unowned_ms_before_max) == (unowned_ms, unowned_ms)


def test_a_total_has_the_numbers_of_gold_where_the_log_lacks_the_beginning() -> None:
    """The first rebalance in a cleaned log is where plays begin: it stays as gold has it, and is in the sums."""
    life = recorded_life(RECORDINGS / "full-a" / "logs", "k07-topics", 5)
    gold = audit_group(life, InferenceSettings()).rebalances
    *answers, total = answer_group(life, question_of(["group.consumer.session.timeout.ms=59000"]))
    assert [one.verdict for one in answers].count("NOT_PLAYED") == 1
    assert (total.rebalances_before_min, total.rebalances_before_max) == (len(gold), len(gold))
    assert total.unowned_ms_before_min == sum(row.unowned_partition_ms or 0 for row in gold) == 1607
    first_ms = life.generations[1].valid_from
    of_span = answer_group(life, question_of(["group.consumer.session.timeout.ms=59000"]), from_ms=first_ms)[-1]
    assert of_span.unowned_ms_before_min == sum(row.unowned_partition_ms or 0 for row in gold[1:]) < 1607


@pytest.mark.parametrize("silent_ms", [500, 45_000, 150_000])
def test_why_a_member_went_is_what_gold_says(silent_ms: int) -> None:
    """One member committed last so long before it went: left, expired, or nobody knows, in both alike."""
    end_ms = 300_000
    life = life_of(
        [
            (0, classic(0, {})),
            (1_000, classic(1, {"a": (0,), "b": (1,)}, state_at=1_000)),
            (end_ms, classic(2, {"a": (0, 1)}, state_at=end_ms)),
        ],
        [(at_ms, 1, at_ms) for at_ms in range(2_000, end_ms - silent_ms + 1, 5_000)],
    )
    gold = audit_group(life, InferenceSettings()).rebalances[-1]
    rows = answer_group(life, question_of(["session.timeout.ms=60000"], []))
    (row,) = (row for row in rows if row.generation == 2)
    words = {"UNKNOWN": "LEFT_OR_EXPIRED"}.get(gold.cause, gold.cause)
    assert row.recorded == f"{words} of client-b"


def test_a_cause_that_gold_knows_is_not_said_to_be_missing() -> None:
    """That a member subscribed to other topics is in the log, though it is nothing that is played."""
    life = life_of(
        [
            (0, classic(0, {})),
            (1_000, classic(1, {"a": (0,), "b": (1,)}, state_at=1_000)),
            (90_000, classic(2, {"a": (0,), "b": (1,)}, topics={"a": ("t", "u")}, state_at=90_000)),
        ]
    )
    rows = answer_group(life, question_of(["session.timeout.ms=60000"], []))
    (row,) = (row for row in rows if row.generation == 2)
    assert row.recorded == "SUBSCRIPTION_CHANGED (IN_LOG)"
    assert "not in the log" not in row.would_be
