"""Runs whole nights over small logs without Spark: each case is a folder of logs rebuilt from a public bug report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from weakref import WeakValueDictionary

import pyarrow as pa
import pytest
from rich.console import Console
from rich.table import Table as RichTable

from jobs.bronze.capture import CaptureSummary, capture
from jobs.console.progress import Steps
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.operations import nightly
from jobs.operations.nightly import print_findings, run_nightly
from jobs.operations.run_context import RunContext
from jobs.settings import Settings, load_settings
from schemas.tables import TABLES
from schemas.tables.state import CHECKPOINTS, RUNS, Checkpoint
from tests.conftest import PROJECT_ROOT
from tests.jobs.in_process import in_process

CASES: Final = PROJECT_ROOT / "tests" / "cases"
FIRST_NIGHT: Final = datetime(2026, 11, 25, tzinfo=UTC)
CLUSTER_ID: Final = "case"
MADE_WHEN_NEEDED: Final = {
    "bronze.configs",
    "bronze.end_offsets",
    "bronze.identities",
    "bronze.topics",
    "simulation.requests",
    "simulation.states",
    "state.rewrites",
    "state.run_metrics",
}
"""Tables that a night over segments of coordinators does not create; it creates all others, whatever is in the logs."""


class Night:
    """What one nightly did: its exit code, the lines it printed, and its facts as JSON has them.

    What it found is looked for when somebody reads of it, at the latest before the next job: to look takes half of a
    night over a small log.
    """

    def __init__(self, exit_code: int, look: Callable[[], tuple[Sequence[str], dict[str, Any]]]) -> None:
        """`look` gives its lines and facts."""
        self.exit_code = exit_code
        self.look = cache(look)

    @property
    def lines(self) -> Sequence[str]:
        """All lines."""
        return self.look()[0]

    @property
    def text(self) -> str:
        """The same as one."""
        return "\n".join(self.lines)

    @property
    def facts(self) -> dict[str, Any]:
        """As one JSON object has them."""
        return self.look()[1]


_NEWEST: Final = WeakValueDictionary[str, Night]()
"""By warehouse, if a test still has it."""


@cache
def empty_tables() -> Mapping[str, bytes]:
    """What a first night writes before it has read anything: the path and content of each empty table's log.

    To create them takes a quarter of a night over a small log, so a process of the tests creates them once.
    """
    with TemporaryDirectory() as folder:
        warehouse = Warehouse(folder)
        for name, table in TABLES.items():
            if name not in MADE_WHEN_NEEDED:
                warehouse.ensure(table)
        logs = Path(folder).rglob("_delta_log/*.json")
        return {log.relative_to(folder).as_posix(): log.read_bytes() for log in logs}


class _PlainSteps(Steps):
    """Prints the rows of tables as lines: to lay them out takes a tenth of a night over a small log."""

    def table(self, table: RichTable) -> None:
        for cells in zip(*(column.cells for column in table.columns), strict=True):
            self.say("  ".join(map(str, cells)))


@dataclass(frozen=True, slots=True)
class Ledger:
    """A warehouse of one cluster, to run nights on and to read tables from."""

    root: Path | str
    """A folder or a URI."""
    cluster_id: str = CLUSTER_ID
    is_prepared: bool = True
    """Does a first night find the tables that it would create, all empty?"""

    @property
    def warehouse(self) -> Warehouse:
        """Opened afresh."""
        return Warehouse(str(self.root))

    @property
    def tables(self) -> ClusterTables:
        """The cluster's tables, opened afresh."""
        return ClusterTables(self.warehouse, self.cluster_id)

    def folder(self, name: str) -> str:
        """Where a table such as `gold.rebalances` is."""
        return f"{self.root}/{name.replace('.', '/')}"

    def settings(self, **values: Any) -> Settings:
        """Settings of a job on this warehouse."""
        return load_settings({"warehouse": str(self.root), "cluster_id": self.cluster_id, **values}, environment={})

    def night(self, *segments: Path, number: int = 1, **values: Any) -> Night:
        """Run nightly number `number` over folders of segments (or dumps, `dumps=(path,)`); a night begins a day after
        the one before."""
        if self.is_prepared and isinstance(self.root, Path) and not self.root.exists():
            for path, log in empty_tables().items():
                (self.root / path).parent.mkdir(parents=True)
                (self.root / path).write_bytes(log)
        return self.run(run_nightly, *segments, number=number, **values)

    def run(self, job: Callable[[RunContext], int], *segments: Path, number: int = 1, **values: Any) -> Night:
        """Run a job by itself, in place of such a night."""
        if segments:
            values["segments"] = tuple(str(folder) for folder in segments)
        self._look_at_newest()
        out, at = StringIO(), FIRST_NIGHT + timedelta(days=number)
        steps = _PlainSteps(console=Console(file=out, width=400, highlight=False))
        settings = self.settings(**values)
        postponed: list[tuple[RunContext, int]] = []

        def look() -> tuple[Sequence[str], dict[str, Any]]:
            for run, code in postponed:
                print_findings(run, code)
            return out.getvalue().splitlines(), dict(steps.facts)

        with pytest.MonkeyPatch.context() as patch:
            if not settings.report_file:
                patch.setattr(nightly, "print_findings", lambda *of: postponed.append(of))
            code = job(
                RunContext(in_process(), self.warehouse, settings, f"night-{number}", started_at=at, steps=steps)
            )
        night = _NEWEST[str(self.root)] = Night(code, look)
        return night

    def _look_at_newest(self) -> None:
        if newest := _NEWEST.get(str(self.root)):
            newest.look()

    def capture(self, *segments: Path, number: int = 1, **values: Any) -> CaptureSummary:
        """The first part of such a night, for what is a matter of bronze and coverage: a fifth of the time."""
        if segments:
            values["segments"] = tuple(str(folder) for folder in segments)
        self._look_at_newest()
        at = FIRST_NIGHT + timedelta(days=number)
        settings = self.settings(**values)
        return capture(in_process(), self.warehouse, settings, capture_id=f"night-{number}", captured_at=at)

    def table(self, name: str) -> pa.Table:
        """All rows of a table such as `gold.rebalances`."""
        return self.warehouse.read(TABLES[name])

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The same as dictionaries."""
        rows: list[dict[str, Any]] = self.table(name).to_pylist()
        return rows

    def forget_audits(self) -> None:
        """As if no audit had ever ended."""
        runs = self.warehouse.read(RUNS)
        self.warehouse.rebuild(RUNS, runs.filter(runs["audit_version"].is_null()))

    def checkpoints(self, kind: Checkpoint) -> list[dict[str, Any]]:
        """The rows of state.checkpoints of one kind."""
        return [row for row in self.rows(CHECKPOINTS.full_name) if row["kind"] == kind]
