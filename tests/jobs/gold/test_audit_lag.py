"""Lag night after night: whatever the nights were, gold.lag_history is what one audit of all of it makes."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from coordinator_core.bytes.codec import encode_key, make
from coordinator_core.inference.commits.lag import SAMPLE_AGE_MAX_MS, Samples
from coordinator_core.inference.facts.clock import CLOCK_MS
from coordinator_core.inference.facts.settings import InferenceSettings
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.gold import audit_lag
from jobs.gold.audit_lag import ALL_MS, NONE_KNOWN, changed_since_ms, end_samples
from jobs.gold.task import NEVER_MS
from jobs.silver.reader import SilverFiles
from schemas.consumer_offsets import TOPIC as LOG_TOPIC
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.classic import GROUP_METADATA_KEY
from schemas.tables.bronze import END_OFFSETS
from schemas.tables.gold import LAG_HISTORY
from tests.coordinator_core.inference.group_lives import GROUP, TOPIC, commit, generation
from tests.coordinator_core.inference.group_weeks import DAY_MS, PRODUCER_ID, timed_batches, weeks_log
from tests.coordinator_core.live.offsets.reference import COMMIT, LogBatch, LogRecord, encode_batches, marker
from tests.jobs.gold.test_incremental_audit import HOUR_MS, Nights, paths_by_day, random_cuts, times_of
from tests.jobs.silver.test_replay import CLUSTER
from tests.jobs.slices import slices_of

MINUTE_MS: Final = 60_000
SETTINGS: Final = InferenceSettings()
AGE_MS: Final = SETTINGS.lag_sample_age_max_ms + CLOCK_MS
Sample = tuple[int, int, int]
"""Time (ms), partition, end offset."""


def sampled(nights: Nights, samples: Sequence[Sample], version: int) -> None:
    """End offsets, as a live capture samples them."""
    rows = [
        {
            "cluster_id": CLUSTER,
            "topic": TOPIC,
            "partition": partition,
            "sampled_at": datetime.fromtimestamp(at_ms / 1000, UTC),
            "log_start_offset": 0,
            "end_offset": end_offset,
        }
        for at_ms, partition, end_offset in samples
    ]
    nights.warehouse.ensure(END_OFFSETS)
    table = pa.Table.from_pylist(rows, schema=arrow_schema(END_OFFSETS))
    nights.warehouse.write(END_OFFSETS, table, app_id="test", version=version)


def lag_of(nights: Nights) -> list[str]:
    return nights.gold()[LAG_HISTORY.full_name]


def test_changes_begin_before_the_first_new_time() -> None:
    """By the age that a sample may have; with a time that came late, or is no more, all may have changed."""
    times, known = np.array([300, 100, 200]), (3, 300)
    for now, expected in (
        (times, NEVER_MS),
        (np.append(times, [5_000, 4_000]), 4_000 - AGE_MS),
        (np.append(times, 150), ALL_MS),
        (times[:2], ALL_MS),
    ):
        assert changed_since_ms(now, len(now), known, SETTINGS) == expected
    assert changed_since_ms(times, 3, NONE_KNOWN, SETTINGS) == 100 - AGE_MS


@pytest.mark.nights
@pytest.mark.parametrize("seed", [1, 2])
def test_lag_of_weeks(tmp_path: Path, seed: int) -> None:
    """Groups whose type comes late, transactions that end nights later, a night whose samples come with those of the
    next one, and another whose samples come all but last."""
    random = Random(f"lag/{seed}")
    logs = tmp_path / "logs"
    for number in range(2):
        batches = weeks_log(random, [f"{name}-{number}" for name in "abc"], 80)
        folder = logs / f"__consumer_offsets-{number}"
        folder.mkdir(parents=True)
        (folder / f"{int.from_bytes(batches[0][:8], 'big'):020}.log").write_bytes(b"".join(batches))
    last_ms = int(max(times_of(folder).max() for folder in logs.iterdir()))
    every_ms = random.choice((MINUTE_MS, 7 * MINUTE_MS))
    samples = [
        (at_ms, partition, at_ms // HOUR_MS * 5) for at_ms in range(0, last_ms, every_ms) for partition in range(3)
    ]
    whole = Nights(tmp_path / "whole", logs)
    sampled(whole, samples, 1)
    whole.run(logs, "r")
    assert len(lag_of(whole)) > 50
    nights = Nights(tmp_path / "warehouse", logs)
    parts = slices_of(logs, tmp_path / "parts", random_cuts(f"lag/{seed}", 5))
    reached, waiting = 0, list[Sample]()
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        until_ms = last_ms + 1 if is_last else int(max(times_of(it).max(initial=0) for it in part.iterdir()))
        waiting += [sample for sample in samples if reached <= sample[0] < until_ms]
        reached = max(reached, until_ms)
        if index != 2:
            now = waiting if is_last or index != 3 else waiting[::2]
            waiting = [sample for sample in waiting if sample not in now]
            sampled(nights, now, index + 1)
        nights.run(part, f"night-{index}")
    assert lag_of(nights) == lag_of(whole)
    assert nights.audit("rebuild", rebuild=True)
    assert lag_of(nights) == lag_of(whole)


MEMBERED: Final = generation(1, {"m": [0]})
DELETED: Final = [
    LogRecord(encode_key(LOG_TOPIC, RecordType.GROUP_METADATA, make(GROUP_METADATA_KEY, group=GROUP)), None, 0)
]
Night = Sequence[tuple[int, Sequence[LogRecord] | LogBatch]]
"""What is written in a night: time (ms), and records or a batch."""
BEFORE_AND_BEHIND: Final = (MINUTE_MS, 3 * MINUTE_MS)


@pytest.mark.nights
@pytest.mark.parametrize(
    ("nights", "sampled_ms", "expected"),
    [
        pytest.param(
            ([(2 * MINUTE_MS, commit(10))], [(DAY_MS, MEMBERED)]),
            BEFORE_AND_BEHIND,
            [("CLASSIC", "CERTAIN")],
            id="the first generation comes a night later",
        ),
        pytest.param(
            (
                [(0, MEMBERED), (MINUTE_MS, DELETED), (MINUTE_MS, commit(1, group_id="other"))],
                [(DAY_MS, commit(2, group_id="other"))],
                [(2 * DAY_MS, commit(10))],
            ),
            (2 * DAY_MS - MINUTE_MS, 2 * DAY_MS + MINUTE_MS),
            [("CLASSIC", "CERTAIN")],
            id="the last generation ended nights before",
        ),
        pytest.param(
            ([(0, MEMBERED), (2 * MINUTE_MS, commit(10))], [(DAY_MS, commit(11)), (DAY_MS // 2, commit(12))]),
            BEFORE_AND_BEHIND,
            [("CLASSIC", "LIKELY")],
            id="the first clock step comes a night later",
        ),
        pytest.param(
            (
                [(0, MEMBERED), (MINUTE_MS, LogBatch(tuple(commit(10)), PRODUCER_ID, True))],
                [(2 * MINUTE_MS, marker(PRODUCER_ID, COMMIT, 2 * MINUTE_MS))],
            ),
            BEFORE_AND_BEHIND,
            [("CLASSIC", "CERTAIN")],
            id="the transaction ends a night later",
        ),
    ],
)
def test_what_a_later_night_shows(
    tmp_path: Path, nights: Sequence[Night], sampled_ms: Sequence[int], expected: Sequence[tuple[str, str]]
) -> None:
    """Samples are those of the first night, or of the last one."""
    found = Nights(tmp_path / "warehouse", tmp_path)
    folder = tmp_path / "logs" / "__consumer_offsets-0"
    folder.mkdir(parents=True)
    batches: list[LogBatch] = []
    for number, night in enumerate(nights):
        for at_ms, some in night:
            batch = some if isinstance(some, LogBatch) else LogBatch(tuple(some))
            timed = tuple(record._replace(timestamp_ms=at_ms) for record in batch.records)
            batches.append(batch._replace(records=timed))
        (folder / f"{0:020}.log").write_bytes(b"".join(encode_batches(batches, 0, 0)))
        if number == (0 if sampled_ms[0] < DAY_MS else len(nights) - 1):
            sampled(found, [(at_ms, 0, 20) for at_ms in sampled_ms], 1)
        found.run(folder.parent, f"night-{number}")
    rows = WholeAudit.newest(ClusterTables(found.warehouse, CLUSTER)).read(LAG_HISTORY).to_pylist()
    assert [(row["group_type"], row["confidence"]) for row in rows] == expected
    lags = lag_of(found)
    assert found.audit("rebuild", rebuild=True)
    assert lag_of(found) == lags


@pytest.mark.nights
def test_lag_of_days_without_new_samples_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twelve days and the night after, only the files of the last two are written again; and no samples are read
    that are too old for them."""
    reported = [
        (day * DAY_MS + hour * HOUR_MS, commit(24 * day + hour, 0) if hour else generation(day + 1, {"m": [0, 1]}))
        for day in range(13)
        for hour in range(24)
    ]
    samples = [(at_ms - MINUTE_MS, 0, at_ms // HOUR_MS + 5) for at_ms, _ in reported[1:]]
    nights = Nights(tmp_path / "warehouse", tmp_path)
    files = []
    read_from: list[int] = []

    def samples_from(files: SilverFiles, from_ms: int) -> Samples:
        read_from.append(from_ms)
        return end_samples(files, from_ms)

    monkeypatch.setattr(audit_lag, "end_samples", samples_from)
    for number, count in enumerate((12 * 24, 13 * 24)):
        folder = tmp_path / f"night-{number}" / "__consumer_offsets-0"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(b"".join(timed_batches(reported[:count])))
        sampled(nights, samples[(12 * 24 - 1) * number : count - 1], number + 1)
        nights.run(folder.parent, f"night-{number}")
        files.append(paths_by_day(nights, LAG_HISTORY))
    assert len(lag_of(nights)) == 13 * 23
    assert read_from[0] < 0
    assert read_from[1] >= 11 * DAY_MS - SAMPLE_AGE_MAX_MS
    stayed = {day for day, paths in files[0].items() if files[1].get(day) == paths}
    assert stayed >= {date(1970, 1, number) for number in range(1, 12)}
    found = lag_of(nights)
    assert nights.audit("rebuild", rebuild=True)
    assert lag_of(nights) == found
