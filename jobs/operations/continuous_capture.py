"""capture --every: capture a live cluster into bronze, round by round, until it is stopped.

A round lists the ends of the logs, captures what bronze lacks, and waits. Bronze alone says what that is: a round that
was interrupted, or met another capture, is followed by one that finds in bronze what was committed.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from time import monotonic
from typing import Any, Final

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange, subtract, with_times
from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.text import counted
from jobs.bronze.admin_snapshots import first_topic_ids
from jobs.bronze.capture import CaptureSummary, capture, capture_logs, refuse_other_logs
from jobs.bronze.cluster_watch import ClusterWatch, Reported, SilverTopics
from jobs.bronze.coverage import HOLE, LOG_START
from jobs.bronze.identity import check_sources, keep_identities, other_names, refuse_other_cluster
from jobs.bronze.log_ends import keep_log_partitions
from jobs.bronze.plan import Sources
from jobs.bronze.snapshot import Bronze
from jobs.bronze.writer import CaptureRun
from jobs.console.command_name import command
from jobs.console.progress import Steps, size_text
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.times import epoch_ms, to_datetime
from jobs.delta.warehouse import Warehouse
from jobs.errors import BrokerError, CaptureConflict, ClientPropertiesError, JobError, SourceError
from jobs.operations.metrics import job_of
from jobs.operations.run_context import RunContext
from jobs.queries.sql.sql import one_line
from jobs.settings import BrokerAddress, Settings
from jobs.sources.broker import Broker
from jobs.sources.broker_log import BrokerLog, list_broker_logs
from jobs.sources.diagnosis import Reached
from jobs.sources.log_offsets import log_key
from jobs.spark.executors import Executor

TICK_S: Final = 0.2
BACK_OFF_S: Final = (1.0, 60.0)
"""First and maximum wait before a round that failed is tried again."""
CONFLICTS_MAX: Final = 3
"""Number of consecutive lost races against another capture of the cluster."""
FAILURES_MAX: Final = 5
"""Number of consecutive rounds that failed although the cluster is available."""
WATCH_TIMEOUT_MS: Final = 10_000
"""Maximum wait for a sample, or for the end of a capture that must stop."""
LOST_LISTED_MAX: Final = 10

PASSING: Final = frozenset({*(step.name for step in Reached), "TIMEOUT", "NO_LEADER", "LOG_CUT"})
"""BrokerError codes of a cluster that was available before and is not now: a broker is away, a password or certificate
is being replaced on one side; or of a log that was cut during a round."""


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

    executor, warehouse, settings, steps = context.executor, context.warehouse, context.settings, context.steps
    metrics = context.metrics

    def run() -> CaptureRun:
        return CaptureRun(settings.cluster_id, *new_run())

    if settings.segments or settings.dumps:
        first = run()
        with steps.step("capture"):
            capture(executor, warehouse, settings, capture_id=first.capture_id, captured_at=first.captured_at)
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
            executor, warehouse, settings, every_ms=every_ms, new_run=run, steps=steps, on_progress=show_progress
        ).run(stop_after_ms=stop_after_ms)


class ContinuousCapture:
    """One continuous capture. `new_run`: returns the id and start of each round's capture."""

    def __init__(
        self,
        executor: Executor,
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
        self._executor = executor
        self._warehouse = warehouse
        self._tables = ClusterTables(warehouse, settings.cluster_id)
        self._settings = settings
        self._address: BrokerAddress = address
        self._every_ms = every_ms
        self._new_run = new_run
        self._steps = steps
        self._on_progress = on_progress
        self._stop = threading.Event()
        self._bronze: Bronze | None = None
        """As the last round left it; None where it must be read again."""
        self._ends: Mapping[LogPartition, int] = {}
        """End offsets of the logs in the last round."""
        self._topic_ids: dict[str, str | None] = {}
        """Ids of the topics that bronze has."""
        self._totals = _Totals()
        self._watcher = _Watcher(self)

    def stop(self) -> None:
        """Complete the current round and end."""
        self._stop.set()

    def run(self, *, stop_after_ms: int | None = None) -> None:
        """Capture until `stop`, a signal (SIGTERM, SIGINT) or the time limit. Raises JobError."""
        end = None if stop_after_ms is None else monotonic() + stop_after_ms / 1000
        try:
            with self._signals():
                wait_s, failure_count, may_pass = 0.0, 0, False
                while self._waited(wait_s, end):
                    try:
                        self._round()
                    except Exception as error:
                        self._bronze = None
                        # address or login may be mistyped, so an unavailable cluster is an error at the start
                        is_passing = may_pass and _is_passing(error)
                        failure_count += not is_passing
                        if failure_count >= FAILURES_MAX or (isinstance(error, JobError) and not is_passing):
                            raise
                        wait_s = min(max(2 * wait_s, BACK_OFF_S[0]), BACK_OFF_S[1])
                        self._steps.say(f"interrupted: {one_line(error)}; trying again in {wait_s:.0f} s")
                    else:
                        wait_s, failure_count, may_pass = self._every_ms / 1000, 0, True
            self._watcher.report()
        finally:
            self._watcher.close()

    def _waited(self, wait_s: float, end: float | None) -> bool:
        """Wait for the next round; False when it is time to stop."""
        until = monotonic() + wait_s
        while not self._stop.is_set() and (end is None or monotonic() < end):
            if monotonic() >= until:
                return True
            self._watcher.tick()
            self._stop.wait(min(TICK_S, max(until - monotonic(), 0)))
        return False

    def _round(self) -> None:
        """Capture what bronze lacks. Raises JobError."""
        with Broker.connect(self._address, timeout_ms=self._settings.request_timeout_ms) as broker:
            logs = list_broker_logs(broker, self._settings.topics)
        self._refuse_other_topics(logs)
        ends = {(log.topic, log.partition): log.next_offset for log in logs}
        if any(end < self._ends.get(place, 0) for place, end in ends.items()):
            self._bronze = None  # a log was cut, as after an unclean leader election
        self._ends = ends
        for left in reversed(range(CONFLICTS_MAX)):
            try:
                self._capture(logs, self._bronze or self._opened(logs))
                return
            except CaptureConflict:
                self._bronze = None
                if not left:
                    raise
                self._steps.say("another capture of this cluster committed first: reading bronze again")

    def _opened(self, logs: Sequence[BrokerLog]) -> Bronze:
        """Bronze, read again, if it may be of this cluster."""
        bronze = Bronze.load(self._tables)
        identities = check_sources(self._warehouse, bronze, Sources(live=logs))
        ids = first_topic_ids(self._tables)
        refuse_other_logs(logs, bronze, ids)
        for note in other_names(self._warehouse, bronze, identities):
            self._steps.say(note)
        keep_identities(self._tables, identities, self._new_run().captured_at)
        self._topic_ids = {log.topic: ids.get(log.topic) or log.topic_id for log in logs}
        return self._follow_cut(logs, bronze)

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
            self._executor, self._warehouse, self._settings, bronze, Sources(live=cut), self._new_run()
        )
        self._totals.add(summary)
        return after

    def _capture(self, logs: Sequence[BrokerLog], bronze: Bronze) -> None:
        starts = {(log.topic, log.partition): next_offset(log, bronze) for log in logs}
        grown = [log for log in logs if starts[log.topic, log.partition] < log.next_offset]
        self._bronze = bronze
        if not grown and self._totals.trigger_count:
            return
        sources = Sources(
            live=grown, pieces_from={(it.topic, it.partition): starts[it.topic, it.partition] for it in grown}
        )
        summary, after = capture_logs(self._executor, self._warehouse, self._settings, bronze, sources, self._new_run())
        self._bronze = after
        self._totals.add(summary)
        for line in lost_lines(bronze.coverage, after.coverage, self._settings.place_words):
            self._steps.say(line)

    def _refuse_other_topics(self, logs: Sequence[BrokerLog]) -> None:
        """Raise SourceError for a topic that was recreated during the capture."""
        for log in logs:
            known_id = self._topic_ids.setdefault(log.topic, log.topic_id)
            if log.topic_id not in (None, known_id):
                raise SourceError(
                    f"topic {log.topic} was deleted and recreated while it was captured: its offsets began again. "
                    "Capture it with a --cluster-id of its own"
                )

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the run after the current round; a second signal ends it at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {it: signal.getsignal(it) for it in (signal.SIGTERM, signal.SIGINT)}

        def on_signal(number: int, _: Any) -> None:
            self._steps.say("stopping after the current round")
            signal.signal(number, before[signal.Signals(number)])
            self._stop.set()

        for it in before:
            signal.signal(it, on_signal)
        try:
            yield
        finally:
            for it, handler in before.items():
                signal.signal(it, handler)


def _is_passing(error: Exception) -> bool:
    """Can the next round succeed? A client's file may be half written when it is read."""
    return isinstance(error, ClientPropertiesError) or (isinstance(error, BrokerError) and error.code in PASSING)


class _Watcher:
    """What is due between rounds: samples of end offsets, names, configs, and the progress line."""

    def __init__(self, of: ContinuousCapture) -> None:
        self._of = of
        self._broker: Broker | None = None
        self._silver = SilverTopics(of._tables)
        self._due: dict[str, float] = {}
        self._said: set[str] = set()
        self._printed_triggers = -1

    def tick(self) -> None:
        """Do what is due. An unavailable cluster is left to the next round to report."""
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
    before: Mapping[LogPartition, Sequence[CoverageRange]],
    after: Mapping[LogPartition, Sequence[CoverageRange]],
    place: str = "",
) -> list[str]:
    """Sentences about data lost meanwhile: offsets that are gone although earlier ones were captured. `place`: options
    that end a command."""
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
        lines[LOST_LISTED_MAX:] = [
            f"lost: {counted(len(lines) - LOST_LISTED_MAX, 'range')} more: {command('audit --list holes' + place)}"
        ]
    return lines
