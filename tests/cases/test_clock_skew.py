"""Leaders' clocks differ: times of a log may go back, places in it never do."""

from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from jobs.queries.answers.group_history import run_history
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables import TABLES
from tests.answers import printed
from tests.cases.harness import CASES, Ledger
from tests.cases.judged import Judged
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_times import gold
from tests.jobs.gold.test_incremental_audit import times_of
from tests.recorded import RECORDINGS

HOUR_MS = 3_600_000


def assert_in_order(ledger: Ledger) -> None:
    """No interval of any table ends before it begins, in time or in the log; no duration is negative."""
    pairs = (("valid_from", "valid_to"), ("started_at", "completed_at"), ("from_log_offset", "to_log_offset"))
    for name, table in TABLES.items():
        if table.layer not in {"silver", "gold"}:
            continue
        rows = ledger.rows(name)
        for begin, end in pairs:
            if {begin, end} <= set(table.column_names):
                assert all(row[begin] <= row[end] for row in rows if row[begin] is not None and row[end] is not None), (
                    name
                )
        for column in ("duration_ms", "gap_before_ms", "unowned_partition_ms", "not_stable_ms"):
            if column in table.column_names:
                assert all(row[column] is None or row[column] >= 0 for row in rows), (name, column)


def test_no_interval_ends_before_it_begins(ledger: Ledger) -> None:
    """The coordinator moved to a broker an hour behind, and back; where silver says when, it says so in order, and the
    places in the log are what they were."""
    assert ledger.night(CASES / "S-skew" / "logs").exit_code in {0, 3}
    assert_in_order(ledger)
    rows = sorted(ledger.rows("silver.group_generations"), key=lambda row: row["generation"])
    assert [(row["from_log_offset"], row["to_log_offset"]) for row in rows] == [
        (0, 2),
        (2, 4),
        (4, 6),
        (6, 9),
        (9, None),
    ]
    assert rows[1]["valid_to"] == rows[1]["valid_from"]


def test_no_interval_of_a_share_group_ends_before_it_begins(ledger: Ledger, tmp_path: Path) -> None:
    """So it is with the states and batches of share partitions, over a night's end too."""
    log = SmallLog(0, SHARE_TOPIC)
    for number, at_ms in enumerate((NOON_MS, NOON_MS - HOUR_MS, NOON_MS + 1_000, NOON_MS - HOUR_MS)):
        log.snapshot("g", at_ms, ((0, 9, 4 if number % 2 else 0, 1 + number // 2),), snapshot_epoch=number)
        if number:  # of the first night are two
            ledger.night(log.write(tmp_path / "logs"), number=number)
    assert len(ledger.rows("silver.share_partition_states")) == 4
    assert_in_order(ledger)


def steps(ledger: Ledger) -> list[tuple[str, int, int]]:
    """Where gold says that the time went back: log, partition and offset."""
    rows = [row for row in ledger.rows("gold.log_anomalies") if row["rule"] == "TIME_WENT_BACK"]
    assert all((row["category"], row["confidence"], row["group_id"]) == ("LOG", "CERTAIN", None) for row in rows)
    return sorted((row["log_topic"], row["log_partition"], row["log_offset"]) for row in rows)


def test_gold_says_where_the_time_of_a_log_went_back(ledger: Ledger) -> None:
    """From when to when, by how much, what it means and what to do; and what was found names it, not as a
    broken rule of the coordinators."""
    reported = ledger.night(CASES / "S-skew" / "logs")
    assert steps(ledger) == [("__consumer_offsets", 42, 4)]
    (row,) = (row for row in ledger.rows("gold.log_anomalies") if row["rule"] == "TIME_WENT_BACK")
    assert "ms back, after log offset 3" in row["details"] and row["remedy"] and row["meaning"]
    assert "1 oddity of the log: TIME_WENT_BACK" in reported.text
    assert "broken rule" not in reported.text and "Nothing new" not in reported.text


def test_steps_are_reported_once_whatever_the_cut_into_nights(tmp_path: Path) -> None:
    """Both coordinator topics, steps at the ends of nights and within them; a second that leaders' clocks are nearly
    apart is none, and to catch up is none either."""
    logs = [SmallLog(0), SmallLog(0, SHARE_TOPIC)]
    times = [0, -HOUR_MS, -HOUR_MS + 1_000, 5_000, 4_100, 6_000, 3_000, 7_000, -HOUR_MS]
    whole, parts = Ledger(tmp_path / "whole"), Ledger(tmp_path / "parts")
    for night, at_ms in enumerate(times, 1):
        logs[0].commit("g", 0, night, NOON_MS + at_ms)
        batches = tuple((10 * at, 10 * at + 9, 2, 1) for at in range(night))
        logs[1].snapshot("s", NOON_MS + at_ms, batches, snapshot_epoch=night)
        for log in logs:
            log.write(tmp_path / "logs")
        if night in {1, 7, 9}:
            parts.night(tmp_path / "logs", number=night)
    whole.night(tmp_path / "logs")
    assert steps(parts) == [(log.topic, 0, offset) for log in logs for offset in (1, 6, 8)]
    assert gold(parts) == gold(whole)


def test_nothing_is_certain_across_a_step(judged: Judged) -> None:
    """That a member went within its time-outs is no proof that it left, where the clock was set back meanwhile."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS)
    log.commit("other", 0, 1, NOON_MS + 30_000)
    log.generation("g", 2, {"a": (0, 1)}, NOON_MS + 20_000)
    log.generation("g", 3, {"a": (0,), "c": (1,)}, NOON_MS + 21_000)
    log.generation("g", 4, {"a": (0, 1)}, NOON_MS + 31_000)
    judged.night(log.batches)
    rows = {row["to_generation"]: row for row in judged.rows("gold.rebalances")}
    reported = [(rows[number]["method"], rows[number]["confidence"]) for number in (2, 4)]
    assert reported == [("WITHIN_TIMEOUTS", "LIKELY"), ("WITHIN_TIMEOUTS", "CERTAIN")]


@pytest.mark.parametrize("name", ["full-a", "compact", "old-40"])
def test_no_recording_has_a_step(name: str) -> None:
    """Real brokers on one clock write no log whose time goes back."""
    from coordinator_core.inference.audit.log_anomalies import CLOCK_STEP_MS_MIN

    folders = {path.parent for path in (RECORDINGS / name / "logs").glob("*/*.log")}
    assert folders
    for folder in folders:
        times = times_of(folder)
        assert not (times[:-1] - times[1:] >= CLOCK_STEP_MS_MIN).any(), folder


RETENTION_MS = 7 * 24 * HOUR_MS
ASSIGNED: tuple[Mapping[str, tuple[int, ...]], ...] = ({"a": (0, 1)}, {"a": (0,), "b": (1,)}, {})
AGES_MS = (1_000, 20_000, 58_000, 70_000, 2 * HOUR_MS, RETENTION_MS)


def skewed_logs(seed: int) -> tuple[SmallLog, SmallLog]:
    """A random log of groups that rebalance, commit and lose offsets, as leaders of one clock write it, and as it is
    where the clock of those in the middle is another."""
    random = Random(seed)
    true, skewed = SmallLog(), SmallLog()
    skew_ms = (-1) ** seed * random.choice((5_000, 40_000, HOUR_MS, 2 * RETENTION_MS))
    step_count, at_ms = 400, NOON_MS
    generation = dict.fromkeys((f"g{number}" for number in range(10)), 0)
    first, end = random.randint(100, 200), random.randint(220, 350)
    for number in range(step_count):
        at_ms += random.choice(AGES_MS) if random.random() < 0.2 else random.randint(1, 2_000)
        group_id = random.choice((*generation, *(f"simple-{number}" for number in range(30))))
        is_commit = group_id not in generation or random.random() < 0.6
        places, offset = random.choice(((0,), (1,), (0, 1))), random.choice((number, None))
        if not is_commit:
            generation[group_id] += 1
            members = random.choice(ASSIGNED)
        for log, now_ms in ((true, at_ms), (skewed, at_ms + (skew_ms if first <= number < end else 0))):
            if not is_commit:
                log.generation(group_id, generation[group_id], members, now_ms)
                continue
            for place in places:
                log.commit(group_id, place, offset, now_ms)
    return true, skewed


def verdicts(ledger: Ledger | Judged) -> dict[tuple[str, str, int], tuple[str, str]]:
    """What gold says of rebalances and commits, and how sure it is: by group and place in the log. That an offset was
    deleted, and no more, is no verdict."""
    found = {}
    for row in ledger.rows("gold.rebalances"):
        found["rebalance", row["group_id"], row["to_generation"]] = row["cause"], row["confidence"]
    for row in ledger.rows("gold.commit_anomalies"):
        if row["method"] != "TOMBSTONE":
            said = row["likely_cause"] or row["method"]
            found[row["kind"], row["group_id"], row["log_offset"]] = said, row["confidence"]
    return found


def test_how_long_ago_an_offset_was_committed_is_not_known_across_a_step(judged: Judged) -> None:
    """An offset that seems younger than any retention may have expired: nothing but its deletion is certain."""
    log = SmallLog()
    for group_id, at_ms in (("across", NOON_MS), ("behind", NOON_MS - HOUR_MS)):
        log.commit(group_id, 0, 5, at_ms)
    for number, group_id in enumerate(("across", "behind"), 1):
        log.commit(group_id, 0, None, NOON_MS - HOUR_MS + number)
    judged.night(log.batches)
    rows = {row["group_id"]: row for row in judged.rows("gold.commit_anomalies") if row["kind"] == "DELETED"}
    assert {group_id: (row["likely_cause"], row["method"]) for group_id, row in rows.items()} == {
        "across": (None, "TOMBSTONE"),
        "behind": (None, "YOUNGER_THAN_RETENTION"),
    }


@pytest.mark.parametrize("seed", range(4))
def test_no_certain_verdict_hangs_on_clocks(seed: int) -> None:
    """Whatever is CERTAIN of a log whose leaders' clocks differ is what the same log says where they agree."""
    reported = []
    for log in skewed_logs(seed):
        judged = Judged()
        judged.night(log.batches)
        reported.append(verdicts(judged))
    certain = {place: said for place, (said, confidence) in reported[1].items() if confidence == "CERTAIN"}
    assert len(certain) > 25
    assert certain == {place: reported[0].get(place, ("", ""))[0] for place in certain}


def history_of(ledger: Ledger, output_format: str, from_ms: int | None = None) -> tuple[list[str], list[str]]:
    """What history prints of group g, and what it remarks about clocks."""
    text, remarks = printed(run_history, ledger.tables, output_format, group_id="g", from_ms=from_ms)
    return text.splitlines(), [line for line in remarks if "went back" in line]


def test_history_says_where_the_time_went_back(ledger: Ledger, tmp_path: Path) -> None:
    """Events of times that the log has twice come with their place in the log, later ones without, and a note says
    where the clock was set back; other log partitions' steps are not the group's."""
    log, other = SmallLog(), SmallLog(1)
    log.generation("g", 1, {"a": (0,)}, NOON_MS)
    log.commit("g", 0, 100, NOON_MS + 1_000)
    log.commit("g", 0, 5, NOON_MS + 2_000)
    log.commit("g", 0, 50, NOON_MS - HOUR_MS)
    log.generation("g", 2, {"a": (0,), "b": ()}, NOON_MS - HOUR_MS + 60_000)
    log.commit("g", 0, 3, NOON_MS + 5_000)
    other.commit("other", 0, 1, NOON_MS)
    other.commit("other", 0, 2, NOON_MS - HOUR_MS)
    other.write(tmp_path / "logs")
    ledger.night(log.write(tmp_path / "logs"))
    lines, remarks = history_of(ledger, "table")
    places = [line.partition(" at __consumer_offsets-0@")[2].partition(":")[0] for line in lines]
    assert places == ["4", "4", "0", "0", "0", "2", ""]
    assert "commit REWIND" in lines[5] and "commit REWIND" in lines[6]
    (remark,) = [it for it in remarks if "went back at" in it]
    assert remark.startswith("the time of __consumer_offsets-0 went back at offset 3, from ")
    rows, _ = history_of(ledger, "csv")
    assert rows[0].endswith(",log_position") and rows[1].endswith(",__consumer_offsets-0@4") and rows[-1].endswith(",-")
    rows, remarks = history_of(ledger, "csv", NOON_MS + 4_000)
    assert len(rows) == 2 and not rows[0].endswith(",log_position") and not any("went back at" in it for it in remarks)


def test_history_of_a_share_group_has_places_in_the_share_log(ledger: Ledger, tmp_path: Path) -> None:
    """Records given up on either side of a step are two events, in the log of share state."""
    groups, shares = SmallLog(), SmallLog(0, SHARE_TOPIC)
    groups.commit("g", 0, 1, NOON_MS)
    shares.snapshot("g", NOON_MS - 2_000, ((0, 9, 0, 1), (10, 19, 0, 1)), snapshot_epoch=0)
    shares.snapshot("g", NOON_MS, ((0, 9, 4, 1), (10, 19, 0, 1)), snapshot_epoch=1)
    shares.snapshot("g", NOON_MS - HOUR_MS, ((0, 9, 4, 1), (10, 19, 0, 2)), snapshot_epoch=2)
    shares.snapshot("g", NOON_MS, ((0, 9, 4, 1), (10, 19, 4, 2)), snapshot_epoch=3)
    groups.write(tmp_path / "logs")
    ledger.night(shares.write(tmp_path / "logs"))
    lines, remarks = history_of(ledger, "table")
    given_up = [line for line in lines if " given up " in line]
    assert [f" at {SHARE_TOPIC}-0@{offset}: " in line for offset, line in zip((1, 3), given_up, strict=True)] == [
        True
    ] * 2
    assert [remark.partition(",")[0] for remark in remarks] == [f"the time of {SHARE_TOPIC}-0 went back at offset 2"]
