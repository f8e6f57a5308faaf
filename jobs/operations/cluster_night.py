"""The nightly of one cluster in a list, in its own process (`jobs.operations.clusters`)."""

from datetime import datetime
from functools import cache
from io import StringIO
from time import perf_counter
from typing import Final

from rich.console import Console
from rich.table import Table as RichTable

from jobs.console.output import printable
from jobs.console.progress import Steps
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.exit_codes import FAILED
from jobs.operations.clusters import ClusterNight
from jobs.operations.damage import error_text
from jobs.operations.metrics import Metrics
from jobs.operations.nightly import run_nightly
from jobs.operations.run_context import RunContext
from jobs.settings import Settings
from jobs.spark.executors import InProcess

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
