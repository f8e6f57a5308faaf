"""The nightly of one cluster in a list, in its own process (`jobs.operations.clusters`)."""

from datetime import datetime
from functools import cache
from io import StringIO
from time import perf_counter
from typing import Final

from deltalake.exceptions import DeltaError
from rich.console import Console
from rich.table import Table as RichTable

from jobs.console.output import printable
from jobs.console.progress import Steps
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.exit_codes import FAILED
from jobs.operations.clusters import ClusterNight
from jobs.operations.damage import error_text
from jobs.operations.metrics import Metrics
from jobs.operations.nightly import run_nightly
from jobs.operations.run_context import RunContext
from jobs.settings import Settings
from jobs.spark.executors import InProcess
from schemas.tables import TABLES

LINE_WIDTH: Final = 160


class _Lines(Steps):
    """Collects the lines of a nightly without its tables, which nobody sees and which take a twentieth of a small
    night to draw."""

    def table(self, table: RichTable) -> None:
        """Not drawn: its numbers are in the facts."""


@cache
def _warehouse(root: str, codec: str, codecs: tuple[tuple[str, str], ...]) -> Warehouse:
    """The warehouse, cached in this process: its next cluster does not open tables again."""
    return Warehouse(root, codec=codec, codecs=dict(codecs), takes_turns=True)


def night_of(settings: Settings, run_id: str, started_at: datetime) -> ClusterNight:
    """Run the nightly of one cluster in this process."""
    began = perf_counter()
    out = StringIO()
    steps = _Lines(console=Console(file=out, width=LINE_WIDTH, highlight=False, emoji=False))
    error = ""
    try:
        warehouse = _warehouse(settings.warehouse, settings.codec, tuple(settings.codecs.items()))
        metrics = Metrics.of_run(ClusterTables(warehouse, settings.cluster_id), settings, run_id, steps.say)
        code = run_nightly(RunContext(InProcess(), warehouse, settings, run_id, started_at, steps, metrics))
    except Exception as raised:
        code = FAILED
        _warehouse.cache_clear()
        error = printable(error_text(raised))
    lines = tuple(out.getvalue().splitlines())
    return ClusterNight(settings.cluster_id, code, perf_counter() - began, lines, steps.facts, error)


def checkpoint(root: str) -> list[str]:
    """Write checkpoints of the tables' Delta logs. Returns failures as lines."""
    warehouse = Warehouse(root, takes_turns=True)
    lines = []
    for table in TABLES.values():
        if warehouse.exists(table):
            try:
                warehouse.checkpoint(table)
            except (DeltaError, OSError, WarehouseError) as error:
                lines.append(f"no checkpoint of {table.full_name}, all else goes on: {printable(str(error))}")
    return lines
