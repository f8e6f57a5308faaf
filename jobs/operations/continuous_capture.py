"""capture --every: capture a live cluster into bronze, trigger by trigger, until it is stopped.

Spark's Structured Streaming decides when and how much: a micro-batch has a few rows that describe the new offsets
(`kafka_log` with rows=ranges), and the tasks of a capture fetch them, so no byte of a log passes through the JVM. A
micro-batch that is repeated after a crash finds in bronze what was committed, and adds the rest.

Bronze is authoritative; the checkpoint only saves time. If the checkpoint is missing, bronze's own offsets are used. If
it claims more than bronze has (a warehouse restored to an older state), a new one begins where bronze ends.
"""

import json
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from hashlib import sha256
from time import monotonic, sleep
from typing import Any, Final

from py4j.protocol import Py4JError
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from coordinator_core.coverage import CoverageKind, CoverageRange, subtract, with_times
from coordinator_core.log_partitions import LogPartition
from coordinator_core.plurals import counted
from jobs.bronze.admin_snapshots import first_topic_ids
from jobs.bronze.capture import CaptureSummary, capture, capture_logs, refuse_other_logs
from jobs.bronze.cluster_watch import ClusterWatch, Reported, SilverTopics
from jobs.bronze.coverage import HOLE, LOG_START
from jobs.bronze.identity import check_sources, keep_identities, other_names, refuse_other_cluster
from jobs.bronze.log_ends import keep_log_partitions
from jobs.bronze.plan import Sources
from jobs.bronze.snapshot import Bronze
from jobs.bronze.writer import CaptureRun
from jobs.console.progress import Steps, size_text
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.filesystems import delete_folder, filesystem_of, spark_uri
from jobs.delta.times import epoch_ms, to_datetime
from jobs.delta.warehouse import Warehouse
from jobs.errors import BrokerError, CaptureConflict, JobError, SourceError, StreamFailed
from jobs.operations.metrics import job_of
from jobs.operations.run_context import RunContext
from jobs.queries.sql import one_line
from jobs.settings import BrokerAddress, Settings
from jobs.sources.broker import Broker
from jobs.sources.broker_log import BrokerLog, list_broker_logs
from jobs.sources.kafka_log import NAME, RANGES, KafkaLogDataSource
from jobs.sources.log_offsets import Offsets, log_key

TICK_S: Final = 0.2
BACK_OFF_S: Final = (1.0, 60.0)
"""First and maximum wait before an unavailable cluster is tried again."""
CONFLICTS_MAX: Final = 3
"""Number of consecutive lost races against another capture of the cluster."""
FAILURES_MAX: Final = 5
"""Number of consecutive failures of the stream while the cluster is available."""
COMMIT_WAIT_S: Final = 5.0
"""How long Spark may take to record a completed micro-batch; one that begins meanwhile is still completed."""
WATCH_TIMEOUT_MS: Final = 10_000
"""Maximum wait for a sample, or for the end of a capture that must stop."""
SLOW_START: Final = "Python worker failed to connect back"
"""Spark waits ten seconds for a stream's reader to start; on an overloaded machine this is temporary."""
BATCH_OFFSETS_MAX: Final = 10_000
"""Coordinators write batches of far fewer records."""
LOST_LISTED_MAX: Final = 10

LOG_CUT: Final = "LOG_CUT"
"""BrokerError code: the log ends before the requested offset."""
PASSING: Final = frozenset(
    {"UNKNOWN_HOST", "CONNECTION_REFUSED", "UNREACHABLE", "NO_ANSWER", "CLOSED", "TIMEOUT", "NO_LEADER", "DONE"}
)
"""BrokerError codes of a cluster that is temporarily unavailable."""


class _Stopping(Exception):
    """A micro-batch that came after the stop signal: it is left for the next start."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far bronze is behind the end offsets of a topic."""

    offset_count: int
    behind_ms: int | None
    """Since the last captured batch of a log partition that has more; None where nothing was captured yet."""


@dataclass(slots=True)
class _Totals:
    trigger_count: int = 0
    record_count: int = 0
    size_bytes: int = 0

    def add(self, summary: CaptureSummary) -> None:
        self.trigger_count += 1
        self.record_count += summary.record_count
        self.size_bytes += summary.size_bytes


def run_continuously(
    context: RunContext, *, every_ms: int, stop_after_ms: int | None, new_run: Callable[[], tuple[str, datetime]]
) -> None:
    """Capture all files once, then the live cluster until it is time to stop. Raises JobError.

    `new_run`: returns a new id, and the time with its zone.
    """

    session, warehouse, settings, steps = context.session, context.warehouse, context.settings, context.steps
    metrics = context.metrics

    def run() -> CaptureRun:
        return CaptureRun(settings.cluster_id, *new_run())

    if settings.segments or settings.dumps:
        first = run()
        with steps.step("capture"):
            capture(session, warehouse, settings, capture_id=first.capture_id, captured_at=first.captured_at)
    with job_of(metrics, "capture") as so_far:
        exposed_at = run().captured_at

        def show_progress(totals: _Totals, behind: Mapping[str, Lag]) -> None:
            so_far.record_count, so_far.size_bytes = totals.record_count, totals.size_bytes
            so_far.lag = {
                topic: (lag.offset_count, None if lag.behind_ms is None else lag.behind_ms / 1000)
                for topic, lag in behind.items()
            }
            if metrics is not None:
                metrics.expose("capture", so_far, exposed_at, run().captured_at)

        ContinuousCapture(
            session, warehouse, settings, every_ms=every_ms, new_run=run, steps=steps, on_progress=show_progress
        ).run(stop_after_ms=stop_after_ms)


class ContinuousCapture:
    """One continuous capture. `new_run`: returns the id and start of each trigger's capture."""

    def __init__(
        self,
        session: SparkSession,
        warehouse: Warehouse,
        settings: Settings,
        *,
        every_ms: int,
        new_run: Callable[[], CaptureRun],
        steps: Steps,
        on_progress: Callable[[_Totals, Mapping[str, Lag]], None] = lambda *_: None,
    ) -> None:
        address = settings.broker_address
        if address is None:
            raise SourceError("a continuous capture needs a live cluster: name it with --bootstrap-server")
        self._session = session
        self._warehouse = warehouse
        self._tables = ClusterTables(warehouse, settings.cluster_id)
        self._settings = settings
        self._address: BrokerAddress = address
        self._every_ms = every_ms
        self._new_run = new_run
        self._steps = steps
        self._on_progress = on_progress
        self._checkpoint = _Checkpoint(
            settings.capture.checkpoint or f"{warehouse.root}/_checkpoints/capture", settings.cluster_id
        )
        self._stop = threading.Event()
        self._busy = threading.Lock()
        """Locked during a micro-batch."""
        self._is_closing = False
        self._bronze: Bronze | None = None
        self._topic_ids: dict[str, str | None] = {}
        """Ids of the topics that bronze has."""
        self._failure: Exception | None = None
        self._failure_count = 0
        self._totals = _Totals()
        self._watcher = _Watcher(self)

    def stop(self) -> None:
        """Complete the current micro-batch and end."""
        self._stop.set()

    def run(self, *, stop_after_ms: int | None = None) -> None:
        """Capture until `stop`, a signal (SIGTERM, SIGINT) or the time limit. Raises JobError."""
        self._session.dataSource.register(KafkaLogDataSource)
        end = None if stop_after_ms is None else monotonic() + stop_after_ms / 1000
        query = self._start()  # the address may be mistyped, so an unavailable cluster is an error at the start
        try:
            with self._signals():
                while True:
                    while query.isActive and not self._is_over(end):
                        self._watcher.tick()
                        self._stop.wait(TICK_S)
                    if self._is_over(end):
                        break
                    self._consider_failure(query)
                    started = self._start_again(end)
                    if started is None:
                        break
                    query = started
            self._end(query)
            self._watcher.report()
        finally:
            self._end(query)
            self._watcher.close()

    def _is_over(self, end: float | None) -> bool:
        if end is not None and monotonic() >= end:
            self._stop.set()
        return self._stop.is_set()

    # --- the stream

    def _start(self) -> StreamingQuery:
        """Start the query where bronze ends. Raises BrokerError where the cluster is not available."""
        settings, address = self._settings, self._address
        self._failure = None
        with Broker.connect(address, timeout_ms=settings.request_timeout_ms) as broker:
            logs = list_broker_logs(broker, settings.topics)
        bronze = self._bronze = Bronze.load(self._tables)
        identities = check_sources(self._warehouse, bronze, Sources(live=logs))
        ids = first_topic_ids(self._tables)
        refuse_other_logs(logs, bronze, ids)
        for note in other_names(self._warehouse, bronze, identities):
            self._steps.say(note)
        keep_identities(self._tables, identities, self._new_run().captured_at)
        bronze = self._bronze = self._follow_cut(logs, bronze)
        self._topic_ids = {log.topic: ids.get(log.topic) or log.topic_id for log in logs}
        positions = {log_key(log.topic, log.partition): next_offset(log, bronze) for log in logs}
        folder = self._choose_checkpoint(positions, has_bronze=bool(bronze.known))
        options = {
            "bootstrapServers": address.bootstrap_servers,
            "topics": ",".join(settings.topics),
            "requestTimeoutMs": str(settings.request_timeout_ms),
            "fetchBytesMax": str(settings.fetch_bytes_max),
            "maxBatchesPerTrigger": str(settings.capture.trigger_batch_count_max),
            "maxBytesPerTrigger": str(settings.capture.trigger_bytes_max),
            "startingOffsets": json.dumps(positions),
            "rows": RANGES,
        }
        if address.command_config:
            options["commandConfig"] = address.command_config
        return (
            self._session.readStream.format(NAME)
            .options(**options)
            .load()
            .writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", spark_uri(folder))
            .trigger(processingTime=f"{self._every_ms} milliseconds")
            .start()
        )

    def _follow_cut(self, logs: Sequence[BrokerLog], bronze: Bronze) -> Bronze:
        """Compare logs that are shorter than bronze with all of bronze at once: a new leader's epochs decide which
        batches are of the log. Returns bronze afterwards."""
        cut = [
            log
            for log in logs
            if (known := bronze.known.get((log.topic, log.partition))) and log.next_offset <= known[-1][1]
        ]
        if not cut:
            return bronze
        names = ", ".join(
            f"{log_key(log.topic, log.partition)} at offset {log.next_offset:,}" for log in cut[:LOST_LISTED_MAX]
        )
        more = f" and {len(cut) - LOST_LISTED_MAX:,} more" if len(cut) > LOST_LISTED_MAX else ""
        self._steps.say(
            f"the log ends before the end of bronze, as after an unclean leader election: {names}{more}. The log is "
            "compared with bronze, and the capture continues from there"
        )
        summary, after = capture_logs(
            self._session, self._warehouse, self._settings, bronze, Sources(live=cut), self._new_run()
        )
        self._totals.add(summary)
        return after

    def _choose_checkpoint(self, positions: Offsets, *, has_bronze: bool) -> str:
        done = self._checkpoint.offsets()
        if done is None:
            if has_bronze:
                self._steps.say("this cluster has no checkpoint: the capture continues from the end of bronze")
            return self._checkpoint.begin()
        ahead = sorted(place for place, offset in done.items() if positions.get(place, offset) < offset)
        if ahead:
            place = max(ahead, key=lambda it: done[it] - positions[it])
            # a micro-batch may end in the middle of a batch, which is no real difference
            if done[place] - positions[place] > BATCH_OFFSETS_MAX:
                self._steps.say(
                    f"the checkpoint is ahead of bronze in {counted(len(ahead), 'log partition')} ({place}: "
                    f"offset {done[place]:,}, bronze {positions[place]:,}), as if an older copy of the warehouse was "
                    "restored: the capture continues from the end of bronze"
                )
            return self._checkpoint.begin()
        return self._checkpoint.folder

    def _on_batch(self, frame: DataFrame, _: int) -> None:
        """Process one micro-batch. An exception ends the query; `_consider_failure` examines it."""
        while not self._busy.acquire(timeout=TICK_S):
            if self._is_closing:
                raise _Stopping
        try:
            self._capture([row.asDict() for row in frame.collect()])
            self._failure_count = 0
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._busy.release()

    def _capture(self, ranges: Sequence[Mapping[str, Any]]) -> None:
        settings = self._settings
        logs = [
            BrokerLog(
                address=self._address,
                topic=it["topic"],
                partition=it["partition"],
                topic_id=it["topic_id"],
                log_start_offset=it["log_start_offset"],
                next_offset=it["to_offset"],
            )
            for it in ranges
        ]
        self._refuse_other_topics(logs)
        for left in reversed(range(CONFLICTS_MAX)):
            bronze = self._bronze or Bronze.load(self._tables)
            # the last piece may have ended in the middle of a batch: continue where bronze ends
            starts = {
                (log.topic, log.partition): min(next_offset(log, bronze), it["from_offset"])
                for log, it in zip(logs, ranges, strict=True)
            }
            sources = Sources(live=logs, pieces_from=starts)
            try:
                summary, after = capture_logs(
                    self._session, self._warehouse, settings, bronze, sources, self._new_run()
                )
            except CaptureConflict:
                self._bronze = None
                if not left:
                    raise
                self._steps.say("another capture of this cluster committed first: reading bronze again")
                continue
            self._bronze = after
            self._totals.add(summary)
            for line in lost_lines(bronze.coverage, after.coverage):
                self._steps.say(line)
            return

    def _refuse_other_topics(self, logs: Sequence[BrokerLog]) -> None:
        """Raise SourceError for a topic that was recreated during the capture."""
        for log in logs:
            known_id = self._topic_ids.setdefault(log.topic, log.topic_id)
            if log.topic_id not in (None, known_id):
                raise SourceError(
                    f"topic {log.topic} was deleted and recreated while it was captured: its offsets began again. "
                    "Capture it with a --cluster-id of its own"
                )

    # --- failures

    def _consider_failure(self, query: StreamingQuery) -> None:
        """Raise the error that ended the query, unless it may be temporary."""
        error = self._failure
        self._bronze = None
        if isinstance(error, BrokerError) and error.code in PASSING:
            self._steps.say(f"interrupted: {error}")
            return
        if isinstance(error, BrokerError) and error.code == LOG_CUT:
            # the topic id is the same, so the capture continues; a restart looks at the log as it is now
            self._steps.say(f"interrupted: {error}")
            return
        if isinstance(error, JobError):
            raise error
        said = one_line(error if error is not None else query.exception() or StreamFailed("the stream ended"))
        self._failure_count += 1
        self._stop.wait(min(BACK_OFF_S[0] * 2**self._failure_count, BACK_OFF_S[1]))
        if self._failure_count >= FAILURES_MAX and SLOW_START not in said:
            raise StreamFailed(
                f"the stream failed {counted(self._failure_count, 'time')}: {said}. If its checkpoint is damaged, "
                f"delete {self._checkpoint.base}: the capture then continues from the end of bronze, and loses nothing"
            ) from None
        self._steps.say(f"interrupted: {said}")

    def _start_again(self, end: float | None) -> StreamingQuery | None:
        """Start the query when the cluster is available, however long that takes; None when it is time to stop."""
        wait_s, longest_s = BACK_OFF_S
        while True:
            try:
                return self._start()
            except BrokerError as error:
                if error.code not in PASSING:
                    raise
                self._steps.say(f"the cluster is not available: {error}; trying again in {wait_s:.0f} s")
                until = monotonic() + wait_s
                while monotonic() < until and not self._is_over(end):
                    self._stop.wait(TICK_S)
                if self._stop.is_set():
                    return None
                wait_s = min(2 * wait_s, longest_s)

    # --- the end

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the run after the current micro-batch; a second signal ends it at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {it: signal.getsignal(it) for it in (signal.SIGTERM, signal.SIGINT)}

        def on_signal(number: int, _: Any) -> None:
            self._steps.say("stopping after the current micro-batch")
            signal.signal(number, before[signal.Signals(number)])
            self._stop.set()

        for it in before:
            signal.signal(it, on_signal)
        try:
            yield
        finally:
            for it, handler in before.items():
                signal.signal(it, handler)

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query between two micro-batches, so that Spark records the current one as completed."""
        until = monotonic() + COMMIT_WAIT_S
        with suppress(PySparkException, Py4JError):
            while True:
                with self._busy:
                    if not query.isActive or not query.status["isTriggerActive"] or monotonic() > until:
                        self._is_closing = True
                        query.stop()
                        return
                sleep(TICK_S / 4)


class _Watcher:
    """Work of the driver during the stream: samples of end offsets, names, configs, and the progress line."""

    def __init__(self, of: ContinuousCapture) -> None:
        self._of = of
        self._broker: Broker | None = None
        self._silver = SilverTopics(of._tables)
        self._due: dict[str, float] = {}
        self._said: set[str] = set()
        self._printed_triggers = -1

    def tick(self) -> None:
        """Do what is due. An unavailable cluster is left to the stream to report."""
        capture = self._of._settings.capture
        try:
            if self._is_due("names", capture.names_every_ms):
                self._watch(lambda watch, at: (watch.note_topics(at), watch.note_configs(at)))
            if self._is_due("ends", capture.end_offsets_every_ms):
                self._watch(lambda watch, at: (watch.sample_end_offsets(at),))
            count = self._of._totals.trigger_count
            is_new = count != self._printed_triggers
            if self._is_due("lag", capture.lag_every_ms) or (is_new and self._of._steps.is_terminal):
                self.report()
        except JobError as error:
            self.close()
            self._say_once(str(error))

    def report(self) -> None:
        """Print the progress line: what was captured, and the lag."""
        of = self._of
        bronze = of._bronze
        totals = of._totals
        self._printed_triggers = totals.trigger_count
        of._steps.facts["captured"] = asdict(totals)
        counts = f"{counted(totals.trigger_count, 'trigger')}, {counted(totals.record_count, 'record')}"
        done = f"{counts}, {size_text(totals.size_bytes)}"
        if bronze is None:
            of._steps.say(f"captured: {done}")
            return
        asked_at = of._new_run().captured_at
        try:
            logs = list_broker_logs(self._connected(), of._settings.topics)
        except JobError as error:
            self.close()
            of._steps.say(f"captured: {done}; how far behind is not known: {error}")
            return
        behind = lags(logs, bronze, epoch_ms(asked_at))
        if not any(lag.offset_count for lag in behind.values()):
            keep_log_partitions(of._tables, found=(), live=logs, said=of._settings.partition_counts, seen_at=asked_at)
        of._steps.say(f"captured: {done}; {lag_text(behind)}")
        of._on_progress(totals, behind)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def _connected(self) -> Broker:
        if self._broker is None:
            timeout_ms = min(WATCH_TIMEOUT_MS, self._of._settings.request_timeout_ms)
            self._broker = Broker.connect(self._of._address, timeout_ms=timeout_ms)
        # the address may have moved to another cluster: its answers are not of this ledger
        refuse_other_cluster(self._of._tables, self._broker)
        return self._broker

    def _watch(self, ask: Callable[[ClusterWatch, datetime], Sequence[Reported]]) -> None:
        of = self._of
        watch = ClusterWatch(of._tables, self._connected(), self._silver)
        for so_far in ask(watch, of._new_run().captured_at):
            for refusal in so_far.refused:
                self._say_once(f"the cluster refused: {refusal}")

    def _is_due(self, name: str, every_ms: int) -> bool:
        now = monotonic()
        if now < self._due.get(name, 0):
            return False
        self._due[name] = now + every_ms / 1000
        return True

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._of._steps.say(text)


@dataclass(slots=True)
class _Checkpoint:
    """Spark's checkpoint for a cluster: folders 0, 1, 2 ..., of which the last one counts."""

    root: str
    cluster_id: str
    base: str = field(init=False)
    folder: str = field(init=False)

    def __post_init__(self) -> None:
        # a cluster id may contain any characters; the folder name has the safe ones
        readable = re.sub(r"[^A-Za-z0-9._-]", "_", self.cluster_id)[:64]
        self.base = f"{self.root.rstrip('/')}/{readable}-{sha256(self.cluster_id.encode()).hexdigest()[:8]}"
        self.folder = f"{self.base}/{max(self._numbers(), default=0)}"

    def begin(self) -> str:
        """Begin a new checkpoint, and delete all earlier ones."""
        old = self._numbers()
        self.folder = f"{self.base}/{max(old, default=-1) + 1}"
        for number in old:
            delete_folder(f"{self.base}/{number}")
        return self.folder

    def offsets(self) -> Offsets | None:
        """The offsets of the last completed micro-batch; None where there is none, or it cannot be read."""
        commits = _numbered(f"{self.folder}/commits")
        if not commits:
            return None
        filesystem, path = filesystem_of(f"{self.folder}/offsets/{max(commits)}")
        try:
            with filesystem.open_input_file(path) as source:
                found = json.loads(source.read().decode().splitlines()[-1])
        except (OSError, ValueError, IndexError):
            return None
        if isinstance(found, str):
            found = json.loads(found)
        return {str(place): int(offset) for place, offset in found.items()} if isinstance(found, dict) else None

    def _numbers(self) -> list[int]:
        return _numbered(self.base)


def _numbered(folder: str) -> list[int]:
    """Numeric names in a folder."""
    filesystem, path = filesystem_of(folder)
    try:
        entries = filesystem.get_file_info(fs.FileSelector(path, recursive=False))
    except FileNotFoundError:
        return []
    return sorted(int(entry.base_name) for entry in entries if entry.base_name.isdigit())


def next_offset(log: BrokerLog, bronze: Bronze) -> int:
    """The first offset of a live log that no capture has looked at."""
    end = max(log.next_offset, log.log_start_offset)
    unseen = subtract([(log.log_start_offset, end)], bronze.looked_at((log.topic, log.partition)))
    return unseen[0][0] if unseen else end


def lags(logs: Sequence[BrokerLog], bronze: Bronze, now_ms: int) -> dict[str, Lag]:
    """The lag of bronze behind the end offsets of live logs, by topic."""
    found: dict[str, Lag] = {}
    for log in logs:
        coverage = bronze.coverage.get((log.topic, log.partition), ())
        captured = max((r.to_offset + 1 for r in coverage if r.kind is not CoverageKind.MISSING), default=0)
        missing = max(0, log.next_offset - max(captured, log.log_start_offset))
        lag = found.setdefault(log.topic, Lag(0, 0))
        if missing:
            times = [r.last_timestamp_ms for r in coverage if r.last_timestamp_ms is not None]
            behind_ms = max(0, now_ms - times[-1]) if times else None
            known = [it for it in (lag.behind_ms, behind_ms) if it is not None]
            found[log.topic] = Lag(lag.offset_count + missing, max(known) if len(known) == 2 else None)
    return found


def lag_text(by_topic: Mapping[str, Lag]) -> str:
    """`behind: 1,200 records, 3.4 s (__consumer_offsets 1,000, __share_group_state 200)`."""
    behind = {topic: lag for topic, lag in sorted(by_topic.items()) if lag.offset_count}
    if not behind:
        return "behind: nothing"
    times = [lag.behind_ms for lag in behind.values()]
    longest = "" if None in times else f", {max(it for it in times if it is not None) / 1000:.1f} s"
    topics = ", ".join(f"{topic} {lag.offset_count:,}" for topic, lag in behind.items())
    return f"behind: {counted(sum(lag.offset_count for lag in behind.values()), 'record')}{longest} ({topics})"


def lost_lines(
    before: Mapping[LogPartition, Sequence[CoverageRange]], after: Mapping[LogPartition, Sequence[CoverageRange]]
) -> list[str]:
    """Sentences about data lost meanwhile: offsets that are gone although earlier ones were captured."""
    lines = []
    for (topic, partition), ranges in sorted(after.items()):
        old = before.get((topic, partition), ())
        if ranges is old or not any(r.kind is CoverageKind.CAPTURED for r in old):
            continue
        known = {(r.from_offset, r.to_offset) for r in old if r.kind is CoverageKind.MISSING}
        first = next((r.from_offset for r in ranges if r.kind is CoverageKind.CAPTURED), 0)
        for r, from_ms, to_ms in with_times(ranges):
            is_lost = r.kind is CoverageKind.MISSING and r.reason in (LOG_START, HOLE) and r.from_offset > first
            if is_lost and (r.from_offset, r.to_offset) not in known:
                times = " and ".join("?" if it is None else f"{to_datetime(it):%FT%TZ}" for it in (from_ms, to_ms))
                lines.append(
                    f"lost: {topic}-{partition} offsets {r.from_offset:,} to {r.to_offset:,}, written between {times}: "
                    f"{r.reason}"
                )
    if len(lines) > LOST_LISTED_MAX:
        lines[LOST_LISTED_MAX:] = [f"lost: {counted(len(lines) - LOST_LISTED_MAX, 'range')} more: see bronze.coverage"]
    return lines
