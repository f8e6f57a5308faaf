"""Records without a time, or with one that cannot be: gold has what the log tells, and nothing that rests on a time it
does not tell."""

import struct
from contextlib import suppress
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

import pytest

from coordinator_core.bytes.log.batch import with_crc
from jobs.cli_enums import Listing, View
from jobs.delta.arrow_schemas import TIMESTAMP_MS_MAX
from jobs.errors import JobError
from jobs.laboratory.whatif import asked, whatif
from jobs.queries.answers.audit_report import Span, run_audit_report
from jobs.queries.answers.describe import run_describe
from jobs.queries.answers.findings import findings, lines
from jobs.queries.answers.group_history import events_and_steps, run_groups, run_history
from jobs.queries.answers.lists import BEGAN_AT, LISTS
from jobs.queries.answers.owner import run_owner
from jobs.queries.answers.restore import run_restore
from jobs.report.run import make_report
from jobs.report.sql_text import Scope
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.gold import GOLD_TABLES
from tests.answers import printed
from tests.cases.harness import CASES, CLUSTER_ID, Ledger
from tests.cases.judged import Judged
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.coordinator_core.history.histories import offsets_log
from tests.coordinator_core.inference.group_weeks import weeks_log
from tests.lengths import how_many

YEAR_1_MS: Final = -62_135_596_800_000
IMPOSSIBLE: Final = (-1, -5, -(2**62), 2**62, TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX + 1, YEAR_1_MS, 0)


def gold(ledger: Ledger) -> dict[str, list[str]]:
    """All of gold, in one order; where it is settled hangs on when it was audited."""
    found = {}
    for table in GOLD_TABLES:
        rows = ledger.rows(table.full_name)
        found[table.full_name] = sorted(repr({k: v for k, v in row.items() if k != "is_settled"}) for row in rows)
    return found


def retimed(batch: bytes, at_ms: int) -> bytes:
    """The batch with another time in its header, from which records count theirs."""
    return with_crc(batch[:27] + struct.pack(">qq", at_ms, at_ms) + batch[43:])


def written(root: Path, batches: list[bytes]) -> Path:
    """The batches as a segment of one log partition."""
    folder = root / "__consumer_offsets-0"
    folder.mkdir(parents=True)
    (folder / f"{int.from_bytes(batches[0][:8], 'big'):020}.log").write_bytes(b"".join(batches))
    return root


def log_of(seed: int) -> list[bytes]:
    """A random log, some or all of whose batches have lost their times, or have impossible ones."""
    random = Random(seed)
    batches = weeks_log(random, ["a", "b"], random.randint(10, 30)) if seed % 2 else offsets_log(random)
    share, kinds = random.choice((0.05, 0.3, 1.0)), random.choice(((-1,), IMPOSSIBLE))
    return [retimed(batch, random.choice(kinds)) if random.random() < share else batch for batch in batches]


@pytest.mark.parametrize(("case", "began_at"), [("D2a", [None]), ("D2b", [None, None]), ("D2c", [None, 1_460_000_000])])
def test_generations_without_a_time_are_rebalances_without_one(
    ledger: Ledger, case: str, began_at: list[int | None]
) -> None:
    """What a record without a time shows gets no time: who came is as certain as ever."""
    assert ledger.night(CASES / case / "logs").exit_code in {0, 3}  # log partitions below its own are not there
    rows = sorted(ledger.rows("gold.rebalances"), key=lambda row: row["to_generation"])
    assert [row["started_at"] and int(row["started_at"].timestamp()) for row in rows] == began_at
    assert [row["completed_at"] is None for row in rows] == [at is None for at in began_at]
    assert [row["duration_ms"] for row in rows] == [None if at is None else 0 for at in began_at]
    assert [(row["cause"], row["confidence"]) for row in rows] == [("FIRST", "CERTAIN"), ("MEMBER_JOINED", "CERTAIN")][
        : len(rows)
    ]
    assert not any(row["in_storm"] for row in rows)
    days = {row["day"] for row in ledger.rows("gold.group_summary")}
    assert days == {date(2016, 4, 7) for at in began_at if at is not None}


def test_a_commit_without_a_time_took_effect_when_it_was_committed(ledger: Ledger) -> None:
    """Records of Kafka 0.9 bear no time, but values of commits do: days and answers go by it."""
    assert ledger.night(CASES / "D2d" / "logs").exit_code in {0, 3}  # log partitions below its own are not there
    rows = ledger.rows("silver.offset_commits")
    assert all(row["recorded_at"] is None and row["applied_at"] == row["commit_time"] for row in rows)
    (day,) = ledger.rows("gold.group_summary")
    assert (day["day"], day["commit_count"]) == (date(2016, 4, 7), 3)


def test_no_duration_rests_on_a_time_that_is_not_there(judged: Judged) -> None:
    """A member that went at no known time is no more than guessed at, a gap without an end has no length, and what was
    committed at no known time is not too fast."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS)
    log.generation("g", 2, {"a": (0,)}, None)
    log.generation("g", 3, {"a": (0, 1)}, NOON_MS + 9_000_000)
    for number in range(6):
        log.commit("g", 0, 10 * number, NOON_MS + 9_000_000 + 1_000 * number)
    log.commit("g", 0, 10_000_000, None, commit_ms=None)
    judged.night(log.batches)
    _, went, back = sorted(judged.rows("gold.rebalances"), key=lambda row: row["to_generation"])
    assert (went["cause"], went["confidence"]) == ("UNKNOWN", "GUESS")
    assert went["duration_ms"] is None and went["started_at"] is None
    assert back["unowned_partition_ms"] == 0
    owners = judged.rows("gold.partition_owners")
    assert [row["gap_before_ms"] for row in owners if row["partition"] == 1] == [None, None]
    assert not judged.rows("gold.commit_anomalies")


@pytest.mark.parametrize("seed", range(how_many(1)))
def test_times_that_are_none_change_no_table_by_the_cut_into_nights(tmp_path: Path, seed: int) -> None:
    """Whatever the times, gold of several nights is gold of one."""
    batches, random = log_of(seed), Random(seed)
    whole, parts = Ledger(tmp_path / "whole"), Ledger(tmp_path / "parts")
    assert whole.night(written(tmp_path / "logs", batches)).exit_code in {0, 3}
    cuts = sorted({0, len(batches), *(random.randrange(len(batches)) for _ in range(2))})
    for number, (first, end) in enumerate(pairwise(cuts), 1):
        parts.night(written(tmp_path / f"logs-{number}", batches[first:end]), number=number)
    assert gold(parts) == gold(whole)


@pytest.mark.parametrize("seed", range(1, 1 + how_many(1)))
def test_every_answer_is_given_whatever_the_times(tmp_path: Path, seed: int) -> None:
    """Lists, descriptions, owners, offsets to restore, the report and what is found: none trips over a time that is
    none, at any time asked for."""
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(written(tmp_path / "logs", log_of(seed)))
    tables = ledger.tables
    for listing in Listing:
        has_times = LISTS[listing].time or LISTS[listing].more == BEGAN_AT
        for span in (Span(), Span(0, NOON_MS))[: 2 if has_times else 1]:
            printed(run_audit_report, tables, "json", listing=listing, span=span)
    for at_ms in (None, 5, NOON_MS):
        for view in View:
            with suppress(JobError):  # nobody of that name was there then
                printed(run_describe, tables, "json", view=view, at_ms=at_ms, group_ids=["a"], verbose=True)
        printed(run_owner, tables, "json", topic="t", partition=0, at_ms=at_ms)
        with suppress(JobError):
            printed(run_restore, tables, "json", group_ids=["a"], at_ms=at_ms or 1)
    if any(row["group_id"] == "a" for row in ledger.rows("gold.rebalances")):
        assert events_and_steps(tables, "a", from_ms=None, to_ms=None)[0]
    printed(run_groups, tables, "json")
    question = asked(["session.timeout.ms=10000"], [], ledger.settings())
    try:
        whatif(tables, group_id="a", question=question)
    except JobError as error:
        assert "have no timestamp" in str(error) or "no group" in str(error)
    make_report(ledger.warehouse, Scope(CLUSTER_ID), made_at=datetime(2026, 11, 25, tzinfo=UTC))
    assert list(lines(findings(tables)))


def test_history_has_what_has_no_time(tmp_path: Path) -> None:
    """Events without a time come last, in the order of the log."""
    ledger, log = Ledger(tmp_path / "warehouse"), SmallLog()
    shares = SmallLog(0, SHARE_TOPIC)
    generations: list[dict[str, tuple[int, ...]]] = [{"a": (0,)}, {"a": (0,), "b": (1,)}, {"a": (0, 1)}]
    for generation, members in enumerate(generations, 1):
        log.generation("g", generation, members, None, state_ms=None)
    for offset in (5, 3):
        log.commit("g", 0, offset, None)
    for epoch in range(2):
        shares.snapshot("share", None, ((0, 9, 0, 1 + epoch), (10, 19, 4 * epoch, 1)), snapshot_epoch=epoch)
    shares.write(tmp_path / "logs")
    ledger.night(log.write(tmp_path / "logs"))
    events = events_and_steps(ledger.tables, "g", from_ms=None, to_ms=None)[0]
    assert {event.at_ms for event in events} == {None}
    assert [event.event for event in events if not event.event.startswith(("member", "group"))] == [
        "rebalance",
        "rebalance",
        "rebalance",
        "commit REWIND",
    ]
    assert [event.text.split()[2] for event in events if event.event == "rebalance"] == ["1", "2", "3"]
    assert printed(run_history, ledger.tables, "table", group_id="g")[0].startswith("at no known time group created")
    assert events_and_steps(ledger.tables, "share", from_ms=None, to_ms=None)[0]


@pytest.mark.parametrize("generation", [-1, 0])
def test_a_generation_before_the_first_one_is_not_asked_about(tmp_path: Path, generation: int) -> None:
    """Gold has no rebalance of it, so whatif has none either, whatever its number."""
    ledger, log = Ledger(tmp_path / "warehouse"), SmallLog()
    log.generation("g", generation, {}, NOON_MS)
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS + 60_000)
    log.generation("g", 2, {"b": (0, 1)}, NOON_MS + 120_000)
    ledger.night(log.write(tmp_path / "logs"))
    question = asked(["session.timeout.ms=10000"], [], ledger.settings())
    rows = whatif(ledger.tables, group_id="g", question=question)
    assert [row.generation for row in rows if row.generation is not None] == [1, 2]


@pytest.mark.parametrize("first_ms", [None, NOON_MS])
def test_other_settings_of_share_groups_without_times_are_refused(tmp_path: Path, first_ms: int | None) -> None:
    """Which setting was in force, and for how long records were acquired, nobody knows where a change bears no time."""
    ledger, log = Ledger(tmp_path / "warehouse"), SmallLog(0, SHARE_TOPIC)
    for epoch, at_ms in enumerate((first_ms, None, None)):
        log.snapshot("share", at_ms, ((0, 9, 0, 1 + epoch), (10, 19, 2 * epoch, 1)), snapshot_epoch=epoch)
    ledger.night(log.write(tmp_path / "logs"))
    for changed in ("delivery.count.limit=2", "record.lock.duration.ms=20000", "partition.max.record.locks=300"):
        question = asked([f"share.{changed}"], [], ledger.settings())
        for from_ms in (None, NOON_MS - 1):
            with pytest.raises(JobError, match="have no timestamp"):
                whatif(ledger.tables, group_id="share", question=question, from_ms=from_ms)
