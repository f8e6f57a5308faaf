"""The audit of share groups, where there is less to go by than in the recordings."""

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

from rich.console import Console

from jobs.console.progress import Steps
from jobs.delta.warehouse import Warehouse
from jobs.exit_codes import DONE
from jobs.operations.nightly import run_nightly
from jobs.operations.run_context import RunContext
from jobs.settings import load_settings
from jobs.spark.executors import Executor
from schemas.tables.gold import ARCHIVED_RECORDS, REDELIVERIES
from tests.recorded import RECORDINGS

LOGS = RECORDINGS / "full-a" / "logs"


def test_topics_without_names_have_their_ids(no_spark: Executor, tmp_path: Path) -> None:
    """`__share_group_state` alone names no topic: gold has the same rows as with names, by topic id."""
    counts = {}
    for name, topics in (("all", ()), ("alone", ("__share_group_state",))):
        settings = load_settings(
            {"warehouse": str(tmp_path / name), "cluster_id": "c", "segments": (str(LOGS),), "topics": topics},
            environment={},
        )
        warehouse = Warehouse(settings.warehouse)
        steps = Steps(no_spark, Console(file=StringIO(), width=200))
        started_at = datetime(2026, 1, 1, tzinfo=UTC)
        assert (
            run_nightly(RunContext(no_spark, warehouse, settings, run_id="r", started_at=started_at, steps=steps))
            == DONE
        )
        for table in (REDELIVERIES, ARCHIVED_RECORDS):
            rows = warehouse.read(table).to_pylist()
            assert {row["topic"] is None for row in rows} == {name == "alone"}
            counts[name, table.name] = sorted((row["topic_id"], row["log_offset"], row["first_offset"]) for row in rows)
    assert counts["alone", "redeliveries"] == counts["all", "redeliveries"]
    assert counts["alone", "archived_records"] == counts["all", "archived_records"]
