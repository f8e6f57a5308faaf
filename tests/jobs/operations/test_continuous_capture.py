"""Continuous capture without a cluster: positions, rounds that fail, what was lost, how far behind.

What it does with a broker is in tests/live/test_capture_stream.py.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange, complete_coverage
from jobs.bronze.capture import refuse_other_logs
from jobs.bronze.coverage import COMPACTION, CRC_MISMATCH, HOLE, LOG_START
from jobs.bronze.plan import Sources, plan
from jobs.bronze.snapshot import Bronze
from jobs.bronze.work import SETTLED_READ_MAX, LogWork
from jobs.bronze.writer import CaptureRun
from jobs.console.durations import parse_duration
from jobs.console.progress import Steps
from jobs.delta.warehouse import Warehouse
from jobs.errors import BrokerError, ClientPropertiesError, JobError, SettingsError, SourceError
from jobs.operations import continuous_capture
from jobs.operations.continuous_capture import ContinuousCapture, Lag, lag_text, lags, lost_lines, next_offset
from jobs.settings import BrokerAddress, load_settings
from jobs.sources.broker import Broker
from jobs.sources.broker_log import BrokerLog
from jobs.sources.segments import PartitionLog, Segment
from jobs.spark.executors import InProcess

START = datetime(2026, 1, 1, tzinfo=UTC)
TOPIC, SHARE = "__consumer_offsets", "__share_group_state"
CAPTURED, COMPACTED, CORRUPT, MISSING = (
    CoverageKind.CAPTURED,
    CoverageKind.COMPACTED,
    CoverageKind.CORRUPT,
    CoverageKind.MISSING,
)


def log(start: int, end: int, *, topic: str = TOPIC, partition: int = 0, topic_id: str | None = "A") -> BrokerLog:
    """A live log."""
    return BrokerLog(BrokerAddress("127.0.0.1:1"), topic, partition, topic_id, start, end)


def captured(first: int, last: int, *times_ms: int) -> CoverageRange:
    """Offsets which bronze has."""
    first_ms, last_ms = times_ms or (None, None)
    return CoverageRange(first, last, CAPTURED, 0, first_timestamp_ms=first_ms, last_timestamp_ms=last_ms)


def bronze(*ranges: CoverageRange, known: Sequence[tuple[int, int]] | None = None, topic: str = TOPIC) -> Bronze:
    """What bronze has of partition 0 of a topic; the files agree with coverage unless `known` says otherwise."""
    of_files = [(r.from_offset, r.to_offset) for r in ranges if r.kind is CAPTURED] if known is None else known
    place = topic, 0
    return Bronze("c", {place: tuple(of_files)} if of_files else {}, {}, {place: ranges}, {})


@pytest.mark.parametrize(
    ("ranges", "known", "expected"),
    [
        ((), None, 100),
        ((captured(0, 149),), None, 150),
        ((captured(0, 120), CoverageRange(121, 140, COMPACTED, 0, COMPACTION), captured(141, 199)), None, 200),
        ((captured(0, 120), CoverageRange(121, 140, MISSING, 0, HOLE), captured(141, 149)), None, 150),
        ((captured(0, 120), CoverageRange(121, 140, CORRUPT, 0, CRC_MISMATCH), captured(141, 149)), None, 150),
        (
            (captured(0, 120), CoverageRange(121, 140, MISSING, 0, "between two captures"), captured(141, 149)),
            None,
            121,
        ),
        ((captured(0, 149),), [(0, 129)], 130),
        ((captured(0, 49),), None, 100),
    ],
    ids=["empty", "goes on", "compacted", "a hole", "damaged", "never seen", "files went back", "outrun"],
)
def test_a_capture_goes_on_at_the_first_offset_that_nobody_looked_at(
    ranges: tuple[CoverageRange, ...], known: list[tuple[int, int]] | None, expected: int
) -> None:
    """Not before the log's start, not for what compaction or damage left out; bronze's files have the last word."""
    assert next_offset(log(100, 200), bronze(*ranges, known=known)) == expected


def test_a_recreated_log_or_cut_is_refused() -> None:
    """Another topic id, or an end below what bronze has: batches of two logs would mix. An older end is none of it."""
    has = bronze(captured(0, 149))
    refuse_other_logs([log(0, 150), log(0, 0, partition=7)], has, {TOPIC: "A"})
    refuse_other_logs([log(0, 150, topic_id="B")], has, {})
    refuse_other_logs([log(0, 10, topic_id="B", topic=SHARE)], has, {SHARE: "A"})
    with pytest.raises(SourceError, match="recreated"):
        refuse_other_logs([log(0, 500, topic_id="B")], has, {TOPIC: "A"})
    with pytest.raises(SourceError, match=r"ends at offset 149, and bronze has it up to 149"):
        refuse_other_logs([log(0, 149)], has, {})


def test_settled_intervales_are_left_out_where_that_pays() -> None:
    """A large one is not asked for again, a small one is read over; nothing below the log's start is asked for."""
    far = SETTLED_READ_MAX + 200
    work = LogWork(TOPIC, 0, live=log(50, 2 * far), settled=((0, 59), (100, 149), (200, 200 + far)))
    assert work.wanted(work.settled) == [(60, 199), (201 + far, 2 * far - 1)]
    assert LogWork(TOPIC, 0, live=log(50, 80)).wanted([(0, 79)]) == []
    assert LogWork(TOPIC, 0, live=log(90, 80)).wanted([]) == []


@pytest.mark.parametrize("task_bytes_max", [1, 700, 3_000, 10**9])
def test_parts_of_a_large_live_log_lie_side_by_side(task_bytes_max: int) -> None:
    """However it is cut, all that bronze lacks is wanted, and nothing twice."""
    has = bronze(captured(10, 20))
    works = plan(Sources(live=[log(3, 60)]), has, task_bytes_max)
    wanted = [offset for work in works for a, b in work.wanted(work.settled) for offset in range(a, b + 1)]
    assert wanted == sorted(set(wanted))
    assert set(range(3, 60)) - set(range(10, 21)) <= set(wanted) <= set(range(3, 60))
    assert works[0].from_offset == 0
    assert [work.offset_end for work in works[:-1]] == [work.from_offset for work in works[1:]]
    assert works[-1].offset_end is None


@pytest.mark.parametrize(
    ("segment_counts", "core_count", "expected"),
    [
        pytest.param([6], 2, [1] * 6, id="one log partition: by segments, as its share is less than two"),
        pytest.param([24], 2, [2] * 12, id="at most task_bytes_max"),
        pytest.param([1] * 8, 2, [1] * 8, id="even"),
        pytest.param([2] * 8, 2, [2] * 8, id="even, and below task_bytes_max"),
        pytest.param([4, 1, 1], 4, [1] * 6, id="the large one alone is cut"),
    ],
)
def test_a_log_partition_with_most_of_the_segments_is_cut_finer(
    segment_counts: list[int], core_count: int, expected: list[int]
) -> None:
    """No core waits for one: a share of half a core's, but not less than 64 MiB and not more than a task may have."""

    def segment(number: int) -> Segment:
        return Segment("f", f"{number}", 1_000 * number, 100 << 20, is_last=False)

    logs = [
        PartitionLog(TOPIC, partition, tuple(map(segment, range(count))), None)
        for partition, count in enumerate(segment_counts)
    ]
    works = plan(Sources(segments=logs), bronze(), 256 << 20, core_count)
    assert [len(work.segments[0].segments) for work in works] == expected
    found = [(work.partition, segment.base_offset) for work in works for segment in work.segments[0].segments]
    assert found == [(log.partition, segment.base_offset) for log in logs for segment in log.segments]


def test_lag_is_reported_by_topic() -> None:
    """Offsets which bronze lacks up to the ends, and how old the last captured batch of such a log is."""
    has = bronze(captured(0, 89, 1_000, 5_000))
    found = lags([log(0, 100), log(20, 50, partition=1), log(0, 0, topic=SHARE)], has, 8_500)
    assert found == {TOPIC: Lag(40, None), SHARE: Lag(0, 0)}
    assert lag_text(found) == f"behind: 40 records ({TOPIC} 40)"
    only = lags([log(0, 100)], has, 8_500)
    assert lag_text(only) == f"behind: 10 records, 3.5 s ({TOPIC} 10)"
    assert lag_text(lags([log(0, 90)], has, 8_500)) == "behind: nothing"


def test_what_was_lost_is_reported_once_with_its_times() -> None:
    """Offsets deleted behind what was captured, and holes; not what was gone before the first capture."""
    first = complete_coverage(
        [CoverageRange(0, 9, MISSING, 0, LOG_START), captured(10, 19, 0, 60_000)], observed_at_ms=0
    )
    then = complete_coverage(
        [*first, CoverageRange(20, 29, MISSING, 1, LOG_START), captured(30, 39, 120_000, 180_000)], observed_at_ms=1
    )
    place = SHARE, 3
    assert lost_lines({}, {place: first}) == []
    assert lost_lines({place: first}, {place: first}) == []
    assert lost_lines({place: first}, {place: then}) == [
        f"lost: {SHARE}-3 offsets 20 to 29, written between 1970-01-01T00:01:00Z and 1970-01-01T00:02:00Z: {LOG_START}"
    ]
    assert lost_lines({place: then}, {place: then}) == []
    many = {(SHARE, n): then for n in range(15)}
    lines = lost_lines({(SHARE, n): first for n in range(15)}, many)
    assert (len(lines), lines[-1]) == (11, "lost: 5 ranges more: ./spark-submit.sh audit --list holes")


@dataclass
class Rounds:
    """A continuous capture with given outcomes of its rounds: an error, or None."""

    outcomes: list[Exception | None]
    text: StringIO = field(default_factory=StringIO)

    def run(self, monkeypatch: pytest.MonkeyPatch, warehouse: Warehouse) -> None:
        """Run all rounds without waiting, then stop."""
        settings = load_settings({"bootstrap_servers": "127.0.0.1:1", "cluster_id": "c"}, environment={})
        steps = Steps(console=Console(file=self.text, width=300))
        running = ContinuousCapture(
            InProcess(), warehouse, settings, every_ms=1, new_run=lambda: CaptureRun("c", "r", START), steps=steps
        )

        def one_round(_: ContinuousCapture) -> None:
            outcome = self.outcomes.pop(0)
            if not self.outcomes:
                running.stop()
            if outcome is not None:
                raise outcome

        monkeypatch.setattr(ContinuousCapture, "_round", one_round)
        monkeypatch.setattr(continuous_capture, "BACK_OFF_S", (0.0, 0.0))
        monkeypatch.setattr(continuous_capture._Watcher, "tick", lambda _: None)
        monkeypatch.setattr(continuous_capture._Watcher, "report", lambda _: None)
        running.run()


AWAY = BrokerError("nobody answers", code="CONNECTION_REFUSED")
LOGINS = [
    BrokerError("not with that password", code="LOGIN_REFUSED"),
    BrokerError("no token", code="LOGIN_NOT_READY"),
    BrokerError("not with that certificate", code="TLS_REFUSED"),
    ClientPropertiesError("half a file"),
]


def test_a_round_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch, warehouse: Warehouse) -> None:
    """An unavailable cluster, and a login that is being replaced, for as long as it takes, a full disk a few times; a
    good one resets the count."""
    rounds = Rounds(
        [None, *[AWAY] * 10, *LOGINS * 3, *[OSError("disk full")] * 4, None, *[OSError("disk full")] * 4, None]
    )
    rounds.run(monkeypatch, warehouse)
    assert not rounds.outcomes
    assert rounds.text.getvalue().count("interrupted: nobody answers") == 10
    assert rounds.text.getvalue().count("interrupted: disk full") == 8
    assert all(rounds.text.getvalue().count(f"interrupted: {error}") == 3 for error in LOGINS)


@pytest.mark.parametrize(
    "outcomes",
    [[AWAY], LOGINS[:1], LOGINS[-1:], [None, SourceError("another cluster")], [None, *[OSError("disk full")] * 5]],
    ids=["away at the start", "wrong password", "wrong file", "not passing", "too often"],
)
def test_what_does_not_pass_ends_a_continuous_capture(
    monkeypatch: pytest.MonkeyPatch, warehouse: Warehouse, outcomes: list[Exception | None]
) -> None:
    """Address, password or file may be mistyped, another cluster may answer at it, or the disk is full for good."""
    with pytest.raises((JobError, OSError)) as caught:
        Rounds([*outcomes, None]).run(monkeypatch, warehouse)
    assert caught.value is outcomes[-1]


def test_a_log_that_was_cut_is_compared_with_bronze(monkeypatch: pytest.MonkeyPatch, warehouse: Warehouse) -> None:
    """A round that finds a log shorter than the one before reads bronze again and looks at the whole log."""
    settings = load_settings({"bootstrap_servers": "127.0.0.1:1", "cluster_id": "c"}, environment={})
    steps = Steps(console=Console(file=StringIO()))
    running = ContinuousCapture(
        InProcess(), warehouse, settings, every_ms=1, new_run=lambda: CaptureRun("c", "r", START), steps=steps
    )
    opened: list[int] = []
    ends = iter([50, 60, 60, 40, 45])
    monkeypatch.setattr(Broker, "connect", lambda *_, **__: nullcontext())
    monkeypatch.setattr(continuous_capture, "list_broker_logs", lambda *_: [log(0, next(ends))])

    def open_bronze(_: ContinuousCapture, logs: Sequence[BrokerLog]) -> Bronze:
        opened.append(logs[0].next_offset)
        return bronze()

    def keep(it: ContinuousCapture, _: Sequence[BrokerLog], known: Bronze) -> None:
        it._bronze = known

    monkeypatch.setattr(ContinuousCapture, "_opened", open_bronze)
    monkeypatch.setattr(ContinuousCapture, "_capture", keep)
    for _ in range(5):
        running._round()
    assert opened == [50, 40]


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("250ms", 250), ("10s", 10_000), ("1m", 60_000), ("2h", 7_200_000), ("1d", 86_400_000)]
)
def test_durations(text: str, expected_ms: int) -> None:
    """A number and a unit."""
    assert parse_duration("--every", text) == expected_ms


@pytest.mark.parametrize("text", ["", "10", "0s", "1.5s", "-1s", "10 s", "1w", "s", "9" * 13 + "s"])
def test_no_durations(text: str) -> None:
    """The option is named."""
    with pytest.raises(SettingsError, match="--every"):
        parse_duration("--every", text)
