"""What is counted of gold: one number each, wherever it is shown."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pytest

from coordinator_core.inference.commits.commit_anomalies import TOPIC_RECREATED
from coordinator_core.inference.commits.deletions import EXPIRED, GROUP_DELETED
from jobs.cli_enums import Listing
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import Warehouse
from jobs.operations.group_metrics import OF_DAY, samples
from jobs.queries.answers.findings import findings
from jobs.queries.answers.group_verdicts import DELETED_WITH_GROUP, NUMBER_OF_RULE, WENT_BACK, group_verdicts
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.queries.views.counted_events import NUMBERS
from jobs.report.cluster import MEASURES, TIMELINE, group_lines, timeline
from jobs.report.reader import Reader
from jobs.report.sql_text import Scope
from schemas.tables.bronze import COVERAGE
from schemas.tables.declare import Table
from schemas.tables.gold import (
    ARCHIVED_RECORDS,
    COMMIT_ANOMALIES,
    GROUP_SUMMARY,
    REBALANCES,
    REDELIVERIES,
    SHARE_GROUP_SUMMARY,
    SHARE_OFFSET_CHANGES,
)
from tests.jobs.conftest import Recorded
from tests.jobs.silver.test_replay import CLUSTER
from tests.jobs.table_rows import rows

NOON: Final = datetime(2026, 1, 5, 12, tzinfo=UTC)
RANGE: Final[dict[str, Any]] = {"first_offset": 3, "last_offset": 7}
ROWS: Final[tuple[tuple[Table, dict[str, Any], dict[str, int]], ...]] = (
    (REBALANCES, {"cause": "MEMBER_LEFT", "in_storm": False}, {"rebalance_count": 1}),
    (REBALANCES, {"cause": "MEMBER_LEFT", "in_storm": True}, {"rebalance_count": 1, "storm_rebalance_count": 1}),
    *(
        (
            REBALANCES,
            {"unowned_likely_ms": ms, "unowned_confidence": confidence, "partitions_total": total},
            {"rebalance_count": 1, "unowned_likely_ms": ms, "without_owner_count": count},
        )
        for ms, confidence, total, count in (
            (240_000, "LIKELY", 4, 1),
            (239_999, "LIKELY", 4, 0),
            (240_000, "GUESS", 4, 0),
            (240_000, "LIKELY", 0, 0),
            (240_000, "LIKELY", None, 0),
            (240_000, None, 4, 0),
        )
    ),
    *(
        (
            COMMIT_ANOMALIES,
            {"kind": kind, "likely_cause": cause, "from_offset": start, "to_offset": end, "confidence": "CERTAIN"},
            {"odd_commit_count": 1, **dict.fromkeys(names, 1)},
        )
        for kind, cause, start, end, *names in (
            ("REWIND", None, 9, 5, "went_back_count"),
            ("EMPTY_GROUP_RESET", None, 9, 5, "went_back_count"),
            ("REWIND", TOPIC_RECREATED, 9, 5),
            ("ABORTED", None, 9, 5),
            ("SKIP", None, 5, 9),
            ("STALLED", None, 5, 5),
            ("DELETED", None, 5, None, "offset_deleted_count"),
            ("DELETED", EXPIRED, 5, None),
            ("DELETED", GROUP_DELETED, 5, None, "deleted_with_group_count"),
            ("FORGOTTEN", None, 5, None, "offset_forgotten_count"),
        )
    ),
    (COMMIT_ANOMALIES, {"kind": "SKIP", "confidence": "GUESS"}, {"guessed_odd_commit_count": 1}),
    (COMMIT_ANOMALIES, {"kind": "SKIP"}, {"odd_commit_count": 1}),
    *(
        (
            REDELIVERIES,
            RANGE | {"cause": cause, "from_delivery_count": before, "to_delivery_count": after},
            {"records_redelivered": 5 * is_first, "extra_deliveries": 5 * extra},
        )
        for cause, before, after, is_first, extra in (
            ("RETRIED", None, 2, 1, 1),
            ("RETRIED", None, 1, 1, 0),
            ("RETRIED", 2, 5, 0, 3),
            ("RETRIED", 0, 1, 0, 0),
            ("RETURNED", None, 1, 1, 1),
            ("COUNT_LOST", 4, 1, 0, 1),
        )
    ),
    *(
        (ARCHIVED_RECORDS, RANGE | {"cause": "REJECT_OR_GAP", "likely_cause": cause}, {name: 5})
        for cause, name in (
            (None, "records_given_up"),
            ("REJECTED", "records_given_up"),
            ("GAP", "no_record_count"),
            ("TRANSACTION_MARKER", "no_record_count"),
            ("ABORTED_TRANSACTION", "no_record_count"),
        )
    ),
    (SHARE_OFFSET_CHANGES, {"kind": "RESET"}, {"offset_change_count": 1}),
    (
        SHARE_OFFSET_CHANGES,
        {"kind": "RESET", "never_delivered_count": 7, "delivered_again_count": 2},
        {"offset_change_count": 1, "never_delivered_count": 7, "delivered_again_count": 2},
    ),
)
"""A table, a row of it, and what that counts for; for nothing else."""
OF_FINDINGS: Final = {
    Listing.FLAPPING: "storm_rebalance_count",
    Listing.UNOWNED: "without_owner_count",
    Listing.ARCHIVED: "records_given_up",
    Listing.SHARE_OFFSETS: "offset_change_count",
    Listing.DELETED: "offset_deleted_count",
}
OF_VERDICT: Final = {
    "rebalance_count": "rebalance_count",
    "storm_count": "storm_rebalance_count",
    "unowned_ms": "unowned_likely_ms",
    "given_up_count": "records_given_up",
    "redelivered_count": "records_redelivered",
    "extra_delivery_count": "extra_deliveries",
    "rewind_count": "went_back_count",
}
OF_METRICS: Final = {
    "rebalances": "rebalance_count",
    "storm_rebalances": "storm_rebalance_count",
    "unowned_seconds": "unowned_likely_ms",
    "given_up_records": "records_given_up",
    "redelivered_records": "records_redelivered",
    "extra_deliveries": "extra_deliveries",
    "rewinds": "went_back_count",
    "share_offset_changes": "offset_change_count",
}


def test_each_row_counts_for_what_it_is(tmp_path: Path) -> None:
    """Each number of the view, on rows for which it is 1, or more, and on rows for which it is not."""
    warehouse = Warehouse(str(tmp_path))
    for table in dict.fromkeys(table for table, _, _ in ROWS):
        of_table = [
            {"cluster_id": "c", "group_id": str(place), "group_type": "SHARE", "at": NOON, "started_at": NOON, **values}
            for place, (other, values, _) in enumerate(ROWS)
            if other is table
        ]
        fitting = [{name: row[name] for name in row if name in table.column_names} for row in of_table]
        warehouse.write(table, rows(table, *fitting), app_id="a", version=1)
    found = {int(row["group_id"]): row for row in DuckDb(warehouse).rows_of("select * from counted_events")}
    assert len(found) == len(ROWS)
    for place, (table, values, expected) in enumerate(ROWS):
        amounts = Counter({it.name: found[place][it.name] for it in NUMBERS})
        assert (+amounts, found[place]["at"]) == (+Counter(expected), NOON), (table.name, values)
    causes = {found[place]["cause"] for place, (table, _, _) in enumerate(ROWS) if table is ARCHIVED_RECORDS}
    assert causes == {"REJECT_OR_GAP", "GAP", "TRANSACTION_MARKER", "ABORTED_TRANSACTION"}
    assert {found[place]["cause"] for place, row in enumerate(ROWS) if row[1].get("kind") == "REWIND"} == {
        "REWIND",
        TOPIC_RECREATED,
    }


def test_every_face_shows_the_sums_of_the_view(recorded: Recorded) -> None:
    """Each number of what a night found, of groups, metrics, the report and its SQL, and of the days; dbt has the view
    itself. Of the recording that comes with the project."""
    warehouse = recorded("full-a")
    tables, scope = ClusterTables(warehouse, CLUSTER), Scope(CLUSTER)
    query = f"select {', '.join(f'sum({it.name})::bigint as {it.name}' for it in NUMBERS)} from counted_events"
    (total,) = DuckDb(warehouse).rows_of(query)
    assert total.items() >= {"rebalance_count": 257, "went_back_count": 17, "records_given_up": 122}.items()
    assert total.items() >= {"storm_rebalance_count": 16, "delivered_again_count": 87}.items()
    for rows_of_days in map(tables.read, (GROUP_SUMMARY, SHARE_GROUP_SUMMARY)):
        for name in total.keys() - {"rebalance_count"} & set(rows_of_days.column_names):
            assert pc.sum(rows_of_days[name]).as_py() == total[name], name

    found = findings(tables)
    for kind, name in OF_FINDINGS.items():
        assert sum(found.new(kind).values()) == total[name], kind

    lines = group_lines(reader := Reader(warehouse, scope), tables.read(COVERAGE))
    for name, column in MEASURES.items():
        assert sum(getattr(line, name) for line in lines) == total[column], name
    listing = timeline(reader, (0, 1), ()).listings[0]
    assert [sum(counts) for counts in [*zip(*listing.rows, strict=True)][1:]] == [total[it] for it in TIMELINE.values()]
    assert listing.rows == [(epoch_ms(at), *counts) for at, *counts in DuckDb(warehouse).answer(listing.sql).rows()]

    verdicts = group_verdicts(tables, with_gone=True)
    for rule, column in NUMBER_OF_RULE.items():
        if rule not in (WENT_BACK, DELETED_WITH_GROUP):  # without resets by a tool, and of groups that are gone
            assert sum(it.rules.get(rule, 0) for it in verdicts) == total[column], rule
    for field, column in OF_VERDICT.items():
        assert sum(getattr(it, field) for it in verdicts) == total[column], field
    gauges = {it.gauge: it.value for it in samples(verdicts, 0, 0)}
    assert OF_METRICS.keys() == OF_DAY.keys()
    for name, column in OF_METRICS.items():
        number = gauges[f"cluster_{name}"] * (1000 if name == "unowned_seconds" else 1)
        assert number == pytest.approx(total[column]), name
