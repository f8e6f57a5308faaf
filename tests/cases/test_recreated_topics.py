"""A topic that was deleted and recreated keeps its name: its offsets begin again, and nobody rewound anything."""

from pathlib import Path

from jobs.cli_enums import Listing
from jobs.queries.answers.findings import findings
from jobs.queries.answers.group_verdicts import group_verdicts
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.queries.views.counted_events import IS_BACK
from jobs.report.cluster import group_lines, timeline
from jobs.report.reader import Reader
from jobs.report.sql_text import Scope
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.coordinator_core.group_records import T1, T2

RECREATED = ("TOPIC_RECREATED", "TOPIC_ID", "CERTAIN")
WENT_BACK = (None, "OFFSET_WENT_BACK", "CERTAIN")
Rewinds = list[tuple[str, int, tuple[str | None, str, str]]]


def rewinds(ledger: Ledger) -> Rewinds:
    """Group, partition, and why, of all commits that went back, in log order."""
    rows = sorted(ledger.rows("gold.commit_anomalies"), key=lambda row: int(row["log_offset"]))
    return [
        (row["group_id"], row["partition"], (row["likely_cause"], row["method"], row["confidence"]))
        for row in rows
        if row["kind"] == "REWIND"
    ]


def commits(log: SmallLog, at_ms: int, *, is_recreated: bool) -> None:
    """What three groups commit: `stays` to the old topic alone, `unknown` without ids."""
    topic_id, offset = (T2, 3) if is_recreated else (T1, 100)
    log.commit("moves", 0, offset, at_ms, topic_id=topic_id)
    log.commit("moves", 1, offset + is_recreated * 200, at_ms, topic_id=topic_id)
    log.commit("stays", 0, offset, at_ms, topic_id=T1)
    log.commit("unknown", 0, offset, at_ms)


def test_an_offset_of_a_new_topic_is_reported_from_a_rewind(tmp_path: Path) -> None:
    """By the ids in the values of both commits; where they are the same, or one has none, nothing is said."""
    log = SmallLog()
    for group_id in ("moves", "stays", "unknown"):
        log.generation(group_id, 1, {"m": (0, 1)}, NOON_MS)
    commits(log, NOON_MS + 1_000, is_recreated=False)
    first = log.write(tmp_path / "first")
    ledger = Ledger(tmp_path / "two nights")
    ledger.night(first, number=1)
    assert rewinds(ledger) == []
    commits(log, NOON_MS + 60_000, is_recreated=True)
    log.commit("moves", 0, 2, NOON_MS + 70_000, topic_id=T2)
    both = log.write(tmp_path / "both")
    ledger.night(both, number=2)
    assert rewinds(ledger) == [
        ("moves", 0, RECREATED),
        ("stays", 0, WENT_BACK),
        ("unknown", 0, WENT_BACK),
        ("moves", 0, WENT_BACK),
    ]
    whole = Ledger(tmp_path / "one night")
    whole.night(both, number=2)
    assert rewinds(whole) == rewinds(ledger)
    days = [
        sorted((row["group_id"], row["went_back_count"]) for row in it.rows("gold.group_summary"))
        for it in (ledger, whole)
    ]
    assert days == [[("moves", 1), ("stays", 1), ("unknown", 1)]] * 2


def test_every_count_of_rewinds_leaves_out_a_new_topic(ledger: Ledger, tmp_path: Path) -> None:
    """groups, what nightly finds, and the report: one number, and the recreated topic is named as what it is."""
    log = SmallLog()
    for group_id in ("moves", "stays", "unknown"):
        log.generation(group_id, 1, {"m": (0, 1)}, NOON_MS)
    commits(log, NOON_MS + 1_000, is_recreated=False)
    commits(log, NOON_MS + 60_000, is_recreated=True)
    ledger.night(log.write(tmp_path / "logs"))
    expected = {"moves": 0, "stays": 1, "unknown": 1}
    verdicts = group_verdicts(ledger.tables)
    assert {it.group_id: it.rewind_count for it in verdicts} == expected
    days = ledger.rows("gold.group_summary")
    assert {row["group_id"]: row["went_back_count"] for row in days} == expected
    assert {it.group_id: it.verdict for it in verdicts} == {"moves": "OK", "stays": "WARN", "unknown": "WARN"}
    assert findings(ledger.tables).new(Listing.REWINDS) == {"stays": 1, "unknown": 1}
    scope = Scope(ledger.cluster_id)
    lines = group_lines(Reader(ledger.warehouse, scope), ledger.table("bronze.coverage"))
    assert {it.group_id: it.rewinds for it in lines} == expected
    bins = timeline(Reader(ledger.warehouse, scope), (NOON_MS, NOON_MS + 70_000), ()).listings[0]
    place = [column.name for column in bins.columns].index("rewinds")
    assert sum(row[place] for row in bins.rows) == 2
    duckdb = DuckDb(ledger.warehouse)
    answer = duckdb.answer(f"select group_id from gold.commit_anomalies where {IS_BACK} order by group_id")
    assert [row[0] for row in answer.rows()] == ["stays", "unknown"]
