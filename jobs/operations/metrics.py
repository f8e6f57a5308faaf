"""Metrics of runs: a row in state.run_metrics for each job of a run, and a Prometheus textfile.

The textfile is for node_exporter's textfile collector, at `[metrics] textfile`. Each job of a cluster writes its own
file in the same folder (`groupledger.prom` -> `groupledger.orders.replay.prom`), atomically, so that neither jobs nor
clusters on one machine overwrite each other. Metrics of groups are in another file (`groupledger.orders.groups.prom`).
Metrics never fail a run: errors while writing them are reported, and the run continues.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from coordinator_core.history.ledger import LedgerCounts
from jobs.delta.cluster_tables import ClusterTables
from jobs.errors import WarehouseError
from jobs.exit_codes import FAILED
from jobs.queries.answers.findings import Findings
from jobs.queries.answers.lists import FINDINGS
from jobs.settings import Settings
from schemas.tables.state import RUN_METRICS

ATTEMPTS: Final = 3
"""Two jobs of a cluster may end at the same moment; each writes its own row."""

OF_RUN: Final[Mapping[str, str]] = {
    "run_start_timestamp_seconds": "When the last run of the job began.",
    "run_end_timestamp_seconds": "When it ended.",
    "run_success_timestamp_seconds": "When the job last ended without an error.",
    "run_duration_seconds": "How long the last run took.",
    "run_exit_code": "How it ended: 0 done, 1 failed, 3 done but something is missing or was quarantined.",
}
"""Gauges of every job, by cluster and job."""
COUNTS: Final[Mapping[str, str]] = {
    "batch_count": "Record batches which the last run captured or replayed.",
    "record_count": "Records in them.",
    "size_bytes": "Bytes which the last run captured, as on Kafka's disk.",
    "row_count": "Rows which the last run wrote, all tables together.",
    "gap_count": "Ranges of the log which are missing or damaged, in all that is captured.",
    "quarantined_row_count": "Rows in bronze.quarantine.",
    "deleted_file_count": "Files which the last run deleted.",
}
"""Gauges of some jobs, by cluster and job; columns of state.run_metrics."""
LEDGER: Final = "ledger_records"
TABLE_ROWS: Final = "written_rows"
LAG_RECORDS: Final = "capture_lag_records"
LAG_SECONDS: Final = "capture_lag_seconds"
LABELLED: Final[Mapping[str, tuple[str, str]]] = {
    LEDGER: ("outcome", "Records of the last replay by what became of them: records in = the sum of all others."),
    TABLE_ROWS: ("table", "Rows which the last run wrote."),
    LAG_RECORDS: ("topic", "Records by which bronze is behind the ends of the live logs."),
    LAG_SECONDS: ("topic", "Age of the last captured batch of a log partition that has more."),
}
"""Gauges with a label in addition to cluster and job."""
PREFIX: Final = "groupledger_"
NEW_FINDINGS: Final = "new_findings"
OPEN_FINDINGS: Final = "open_findings"
OF_FINDINGS: Final[Mapping[str, str]] = {
    NEW_FINDINGS: "What the last night found that is new, by the name of the list that has it.",
    OPEN_FINDINGS: "Of findings that last, how many there are, by the name of the list that has them.",
}
"""Gauges of a night, by cluster and finding."""
FOUND: Final = "findings"
"""Replaces the job in the name of the findings' textfile."""
GROUPS: Final = "groups"
"""Replaces the job in the name of the groups' textfile."""
CLUSTER_CHARACTERS_MAX: Final = 64
"""Maximum length of a cluster's name in a file name; a longer one is replaced by a digest."""


_Sample = tuple[str, str, float, Mapping[str, str]]
"""A metric, what it is, its value and its labels."""


@dataclass(slots=True)
class JobRun:
    """Metrics of one job of a run, filled in by the job. None: it has no such number."""

    exit_code: int = 0
    batch_count: int | None = None
    record_count: int | None = None
    size_bytes: int | None = None
    row_counts: Mapping[str, int] = field(default_factory=dict)
    """Rows written, by full name of the table."""
    gap_count: int | None = None
    quarantined_row_count: int | None = None
    deleted_file_count: int | None = None
    ledger: LedgerCounts | None = None
    lag: Mapping[str, tuple[int, float | None]] = field(default_factory=dict)
    """By topic: (records, seconds) behind the live log."""

    @property
    def row_count(self) -> int | None:
        """Total number of rows written."""
        return sum(self.row_counts.values()) if self.row_counts else None


class Metrics:
    """Collects the metrics of one run's jobs."""

    def __init__(
        self,
        tables: ClusterTables,
        *,
        run_id: str,
        clock: Callable[[], datetime],
        textfile: str = "",
        groups_max: int = 0,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._tables = tables
        self._run_id = run_id
        self._clock = clock
        self._textfile = Path(textfile) if textfile else None
        self._groups_max = groups_max
        self._say = say
        self._rows: list[dict[str, Any]] | None = None
        """Rows of `together` that are not written yet; None: each is written when its job ends."""

    @classmethod
    def of_run(cls, tables: ClusterTables, settings: Settings, run_id: str, say: Callable[[str], None]) -> Self:
        """As the settings say."""
        return cls(
            tables,
            run_id=run_id,
            clock=lambda: datetime.now(UTC),
            textfile=settings.metrics_textfile,
            groups_max=settings.metrics_groups,
            say=say,
        )

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context of several jobs whose rows are written at its end, in one commit."""
        self._rows = rows = list[dict[str, Any]]()
        try:
            yield
        finally:
            self._rows = None
            if rows:
                self._guarded(lambda: self._append(rows))

    @contextmanager
    def job(self, name: str) -> Iterator[JobRun]:
        """Context of one job of the run. A job that raises an error is reported as failed."""
        run = JobRun()
        started_at = self._clock()
        try:
            yield run
        except BaseException:
            run.exit_code = FAILED
            raise
        finally:
            ended_at = self._clock()
            row = self._row(name, run, started_at, ended_at)
            if self._rows is None:
                self._guarded(lambda: self._append([row]))
            else:
                self._rows.append(row)
            self.expose(name, run, started_at, ended_at)

    def expose(self, name: str, run: JobRun, started_at: datetime, ended_at: datetime) -> None:
        """Write the textfile of a job atomically, if configured."""
        if self._textfile is not None:
            self._write_textfile(name, lambda: self._of_job(name, run, started_at, ended_at))

    def expose_groups(self) -> None:
        """Write the textfile of groups, if configured."""
        if self._textfile is not None:
            self._write_textfile(GROUPS, self._of_groups)

    def expose_findings(self, found: Findings) -> None:
        """Write the textfile of a night's findings, if configured."""
        counts = [(NEW_FINDINGS, listing, found.new(listing)) for listing in FINDINGS]
        counts += [(OPEN_FINDINGS, listing, found.open(listing)) for listing, it in FINDINGS.items() if it.lasts]
        samples = (
            (metric, OF_FINDINGS[metric], sum(of.values()), {"cluster_id": self._tables.cluster_id, "finding": listing})
            for metric, listing, of in counts
        )
        if self._textfile is not None:
            self._write_textfile(FOUND, lambda: samples)

    def _write_textfile(self, name: str, samples: Callable[[], Iterator[_Sample]]) -> None:
        from prometheus_client import CollectorRegistry, Gauge, write_to_textfile  # noqa: PLC0415  (most write none)

        assert self._textfile is not None
        path = textfile_of(self._textfile, self._tables.cluster_id, name)
        without_cluster = self._textfile.with_name(f"{self._textfile.stem}.{name}{self._textfile.suffix or '.prom'}")
        label = f'cluster_id="{self._tables.cluster_id}"'

        def write() -> None:
            registry = CollectorRegistry()
            gauges: dict[str, Gauge] = {}
            for metric, about, value, labels in samples():
                if metric not in gauges:
                    gauges[metric] = Gauge(PREFIX + metric, about, list(labels), registry=registry)
                gauges[metric].labels(**labels).set(value)
            write_to_textfile(str(path), registry)
            # the collector treats the same series in two files as an error
            if without_cluster.is_file() and label in without_cluster.read_text(encoding="utf-8"):
                without_cluster.unlink()

        self._guarded(write)

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (WarehouseError, OSError) as error:
            self._say(f"metrics of this run are not written, all else is: {error}")

    def _row(self, name: str, run: JobRun, started_at: datetime, ended_at: datetime) -> dict[str, Any]:
        return {
            "run_id": self._run_id,
            "job": name,
            "started_at": started_at,
            "ended_at": ended_at,
            "exit_code": run.exit_code,
            **{count: getattr(run, count) for count in COUNTS},
            "row_counts": list(run.row_counts.items()),
            "ledger": [] if run.ledger is None else list(ledger_counts(run.ledger).items()),
            "lag_records": [(topic, records) for topic, (records, _) in run.lag.items()],
        }

    def _append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        app_id = f"groupledger/metrics/{self._tables.cluster_id}"
        for left in reversed(range(ATTEMPTS)):
            try:
                if not self._tables.write(RUN_METRICS, rows, app_id=app_id).skipped:
                    return
            except WarehouseError:
                if not left:
                    raise

    def _of_job(self, name: str, run: JobRun, started_at: datetime, ended_at: datetime) -> Iterator[_Sample]:
        success_at = ended_at if run.exit_code != FAILED else self._last_success(name)
        of_run = {
            "run_start_timestamp_seconds": started_at.timestamp(),
            "run_end_timestamp_seconds": ended_at.timestamp(),
            "run_success_timestamp_seconds": None if success_at is None else success_at.timestamp(),
            "run_duration_seconds": (ended_at - started_at).total_seconds(),
            "run_exit_code": run.exit_code,
        }
        labelled: dict[str, Mapping[str, float | None]] = {
            LEDGER: {} if run.ledger is None else ledger_counts(run.ledger),
            TABLE_ROWS: run.row_counts,
            LAG_RECORDS: {topic: records for topic, (records, _) in run.lag.items()},
            LAG_SECONDS: {topic: seconds for topic, (_, seconds) in run.lag.items()},
        }
        labels = {"cluster_id": self._tables.cluster_id, "job": name}
        found: list[tuple[str, str, float | None, dict[str, str]]] = [
            *((metric, about, of_run[metric], labels) for metric, about in OF_RUN.items()),
            *((metric, about, getattr(run, metric), labels) for metric, about in COUNTS.items()),
        ]
        for metric, (label, about) in LABELLED.items():
            found += ((metric, about, number, {**labels, label: of}) for of, number in labelled[metric].items())
        return ((metric, about, value, labels) for metric, about, value, labels in found if value is not None)

    def _of_groups(self) -> Iterator[_Sample]:
        # reading silver and gold needs slow imports, and most runs write no textfile
        from jobs.operations import group_metrics  # noqa: PLC0415
        from jobs.queries.answers.group_verdicts import group_verdicts, newest_record_ms  # noqa: PLC0415

        found = group_verdicts(self._tables, with_gone=True), newest_record_ms(self._tables)
        for metric, value, labels in group_metrics.samples(*found, self._groups_max):
            yield metric, group_metrics.GAUGES[metric], value, {"cluster_id": self._tables.cluster_id, **labels}

    def _last_success(self, name: str) -> datetime | None:
        rows = self._tables.read(RUN_METRICS, ["ended_at", "exit_code"], job=name).to_pylist()
        return max((row["ended_at"] for row in rows if row["exit_code"] != FAILED), default=None)


def job_of(metrics: Metrics | None, name: str) -> AbstractContextManager[JobRun]:
    """`metrics.job(name)`, or a context without effect if there are no metrics."""
    return nullcontext(JobRun()) if metrics is None else metrics.job(name)


def ledger_counts(counts: LedgerCounts) -> dict[str, int]:
    """The outcome of records, by name."""
    return {
        "decoded": counts.decoded_count,
        "tombstone": counts.tombstone_count,
        "control": counts.control_count,
        "not_used": counts.not_used_count,
        "unknown_type": counts.unknown_type_count,
        "quarantined": counts.quarantined_count,
    }


def textfile_of(textfile: Path, cluster_id: str, job: str) -> Path:
    """The file of one job of a cluster: jobs end at different times, and a file is written as a whole."""
    cluster = quote(cluster_id, safe="")
    if len(cluster) > CLUSTER_CHARACTERS_MAX:
        cluster = hashlib.sha256(cluster_id.encode()).hexdigest()[:CLUSTER_CHARACTERS_MAX]
    return textfile.with_name(f"{textfile.stem}.{cluster}.{job}{textfile.suffix or '.prom'}")
