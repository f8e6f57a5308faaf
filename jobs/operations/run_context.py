"""The context of one run: what every job that writes tables needs."""

from dataclasses import dataclass
from datetime import datetime

from jobs.console.progress import Steps
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.operations.metrics import Metrics
from jobs.settings import Settings
from jobs.spark.executors import Executor


@dataclass(frozen=True, slots=True)
class RunContext:
    """The executor, the tables, the settings, the id and start in each row of the run, and its output."""

    executor: Executor
    warehouse: Warehouse
    settings: Settings
    run_id: str
    started_at: datetime
    steps: Steps
    """Prints progress and collects the run's facts."""
    metrics: Metrics | None = None
    """None: the run writes no metrics."""

    @property
    def tables(self) -> ClusterTables:
        """The tables of the run's cluster."""
        return ClusterTables(self.warehouse, self.settings.cluster_id)
