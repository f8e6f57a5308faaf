"""What is counted of gold: one number each, wherever it is shown."""

from random import Random
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from coordinator_core.inference.commits.commit_anomalies import TOPIC_RECREATED
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.gold.measures import MEASURES, Measure
from jobs.operations.group_metrics import samples
from jobs.queries.answers.findings import findings
from jobs.queries.answers.group_verdicts import MOVED, group_verdicts
from jobs.report.cluster import group_lines, timeline
from jobs.report.reader import Reader
from jobs.report.sql_text import Scope
from schemas.tables.bronze import COVERAGE
from schemas.tables.gold import GROUP_SUMMARY, SHARE_GROUP_SUMMARY
from tests.jobs.conftest import Recorded
from tests.jobs.silver.test_replay import CLUSTER

PICTURED: Final = (
    "rebalances",
    "rewinds",
    "unowned_ms",
    "redelivered",
    "extra_deliveries",
    "archived",
    "offset_changes",
)
VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "kind": ("REWIND", "SKIP", "STALLED", "DELETED", "ABORTED", "EMPTY_GROUP_RESET"),
    "likely_cause": (None, "EXPIRED", "REJECTED", "GAP", "TRANSACTION_MARKER", "ABORTED_TRANSACTION", TOPIC_RECREATED),
    "cause": ("COUNT_LOST", "RETURNED", "RETRIED", "REJECT_OR_GAP"),
    "from_offset": (None, 0, 5, 9),
    "to_offset": (None, 0, 5, 9),
    "never_delivered_count": (None, 0, 7),
    "delivered_again_count": (None, 0, 7),
    "first_offset": (0, 3),
    "last_offset": (3, 7),
    "from_delivery_count": (None, 0, 1, 4),
    "to_delivery_count": (0, 1, 2, 5),
    "in_storm": (True, False),
    "unowned_likely_ms": (None, 0, 12, 59_999, 240_000),
    "unowned_confidence": (None, "LIKELY", "GUESS"),
    "partitions_total": (None, 0, 1, 4),
}


def in_sql(measure: Measure, rows: pa.Table) -> int:
    """What DuckDB makes of the measure's SQL."""
    query = f"select coalesce(sum({measure.amount_sql}), 0)::bigint as amount from rows where {measure.condition_sql}"
    with duckdb.connect() as connection:
        amount: int = connection.register("rows", rows).execute(query).fetchall()[0][0]
    return amount


@pytest.mark.parametrize("is_coded", [False, True])
@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_is_the_same_in_arrow_and_in_sql(name: str, is_coded: bool) -> None:
    """Of rows with all values together, null too; texts may be coded."""
    measure, chance = MEASURES[name], Random(1)
    names = sorted({measure.cause, *measure.reads})
    some = [{field: chance.choice(VALUES[field]) for field in names} for _ in range(999)]
    rows = pa.Table.from_pylist(some, pa.schema([arrow_schema(measure.table).field(field) for field in names]))
    expected = in_sql(measure, rows)
    if is_coded:
        columns = [it.dictionary_encode() if pa.types.is_string(it.type) else it for it in rows.columns]
        rows = pa.table(dict(zip(names, columns, strict=True)))
    nothing = pa.nulls(rows.num_rows, pa.string())
    for other in ("group_id", "group_type", measure.time):
        rows = rows.append_column(other, nothing)
    assert pc.sum(measure.counted(rows)["amount"]).as_py() == expected > 0


def test_every_face_shows_the_same_number(recorded: Recorded) -> None:
    """Of the recording that comes with the project: what a night found, groups, metrics, the report and its SQL, and
    the days, which dbt reads."""
    warehouse = recorded("full-a")
    tables, scope = ClusterTables(warehouse, CLUSTER), Scope(CLUSTER)
    days = {
        name: sum(
            pc.sum(rows[name]).as_py()
            for rows in map(tables.read, (GROUP_SUMMARY, SHARE_GROUP_SUMMARY))
            if name in rows.column_names
        )
        for name in (
            "rebalance_count",
            "went_back_count",
            "unowned_likely_ms",
            "records_redelivered",
            "extra_deliveries",
            "records_given_up",
            "offset_change_count",
        )
    }
    expected = dict(zip(PICTURED, days.values(), strict=True))
    assert expected == {**expected, "rebalances": 257, "rewinds": 17, "redelivered": 300, "archived": 122}
    others = {"storm_rebalances": 16, "without_owner": 0, "never_delivered": 0, "delivered_again": 87}
    for name, measure in MEASURES.items():
        assert in_sql(measure, tables.read(measure.table)) == (expected | others)[name], name
    found = findings(tables)
    assert (found.rebalance_count, sum(found.went_back_by_group.values())) == (257, 17)
    of_share = found.redelivered_count, found.extra_delivery_count, found.given_up_count
    assert of_share == tuple(expected[name] for name in ("redelivered", "extra_deliveries", "archived"))
    lines = group_lines(reader := Reader(warehouse, scope), tables.read(COVERAGE))
    assert {name: sum(getattr(line, name) for line in lines) for name in PICTURED} == expected
    listing = timeline(reader, (0, 1), ()).listings[0]
    for place, column in enumerate(listing.columns[1:], 1):
        assert sum(row[place] for row in listing.rows) == expected.get(column.name, 16), column.name
    verdicts = group_verdicts(tables, with_gone=True)
    columns = zip(
        PICTURED[:-1],
        (
            "rebalance_count",
            "rewind_count",
            "unowned_ms",
            "redelivered_count",
            "extra_delivery_count",
            "given_up_count",
        ),
        strict=True,
    )
    moved = expected.pop("offset_changes")
    assert moved == sum(found.share_offset_changes.values()) == sum(it.rules.get(MOVED, 0) for it in verdicts) == 5
    assert {name: sum(getattr(it, column) for it in verdicts) for name, column in columns} == expected
    gauges = {it.gauge: it.value for it in samples(verdicts, 0, 0)}
    metrics = (
        "rebalances",
        "rewinds",
        "unowned_seconds",
        "redelivered_records",
        "extra_deliveries",
        "given_up_records",
    )
    of_metrics = [gauges[f"cluster_{name}"] * (1000 if name == "unowned_seconds" else 1) for name in metrics]
    assert of_metrics == pytest.approx(list(expected.values()))
