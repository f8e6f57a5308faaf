"""Cut disproportionately large log partitions by key (`coordinator_core.replay.key_buckets`).

Several tasks replay one such log partition, each the records of its own groups or share partitions; or audit one, each
its own groups. Each task reads and frames all new data of the log partition, which takes a fifth of a replay. So only
log partitions that a whole stage would wait for are cut. The cut may change from run to run: the next run merges the
state of all buckets.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.replay.key_buckets import BUCKET_COUNT_MAX, SLOT_COUNT, buckets_of, shared_out, slot_weights
from jobs.bronze.reader import read_log
from jobs.silver.tasks import CHUNK_DECOMPRESSED_BYTES_MAX, LogFiles
from jobs.spark.executors import Executor
from jobs.spark.tasks import run_tasks
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC

CUT_TOPICS: Final = (OFFSETS_TOPIC, SHARE_TOPIC)
"""Topics whose records are replayed key by key."""
OUT_OF_PROPORTION: Final = 1.5
"""Multiple of each core's equal share of the data from which a log partition is cut; below it, reading twice costs
more than waiting."""
RECORDS_PER_BATCH_MAX: Final = 100
"""Compaction leaves offsets without records: a batch counts as this many records at most."""
LARGEST_SHARE_MAX: Final = 0.8
"""Largest share of a bucket: above it, reading the log several times costs more than waiting."""
NEARLY: Final = 1.05
SAMPLE_COUNT: Final = 4
"""Number of samples of a log partition for weighing its keys, a chunk of some 100,000 records each. That gives the
weight of a key with 1 % of all records to within a few percent."""


@dataclass(frozen=True, slots=True)
class WeighWork:
    """A log partition whose keys are to be weighed."""

    log: LogFiles
    batch_decompressed_bytes_max: int


@dataclass(frozen=True, slots=True)
class CutRule:
    """Which log partitions are cut."""

    records_min: int
    """Log partitions with fewer new records stay whole."""
    batch_decompressed_bytes_max: int


def cut_hot_logs(executor: Executor, logs: Sequence[LogFiles], rule: CutRule) -> list[LogFiles]:
    """The log partitions; a disproportionately large one is replaced by as many buckets as keep all cores busy."""
    counts = bucket_counts(logs, executor.core_count, rule.records_min)
    hot = [index for index, count in enumerate(counts) if count > 1]
    weights = dict(zip(hot, _weights(executor, [logs[index] for index in hot], rule), strict=True))
    cut: list[LogFiles] = []
    for index, (log, count) in enumerate(zip(logs, counts, strict=True)):
        if index not in weights:
            cut.append(log)
            continue
        owners = shared_out(weights[index], useful_count(weights[index], count))
        if not any(owners):
            cut.append(log)
            continue
        cut += [
            dataclasses.replace(log, bucket=bucket, bucket_count=max(owners) + 1)
            for bucket in buckets_of(owners, is_share=log.topic == SHARE_TOPIC)
        ]
    return cut


_KNOWN_WEIGHTS: Final[dict[tuple[object, ...], I64]] = {}
"""Key weights by file; files never change. A nightly audit cuts the same log partitions as the replay before it:
weighing their keys again would be a stage that all executors wait for."""
KNOWN_WEIGHTS_MAX: Final = 64
"""Maximum number of log partitions, 32 KiB each."""


def _weights(executor: Executor, logs: Sequence[LogFiles], rule: CutRule) -> list[I64]:
    """The key weights of each log partition."""
    places = [(log.topic, log.from_offset, *(file.path for file in log.files)) for log in logs]
    unknown = [index for index, place in enumerate(places) if place not in _KNOWN_WEIGHTS]
    work = [WeighWork(logs[index], rule.batch_decompressed_bytes_max) for index in unknown]
    found = dict(zip(unknown, run_tasks(executor, weigh_keys, work, "keys of large log partitions"), strict=True))
    weights = [found[index] if index in found else _KNOWN_WEIGHTS[place] for index, place in enumerate(places)]
    _KNOWN_WEIGHTS.update(zip(places, weights, strict=True))
    while len(_KNOWN_WEIGHTS) > KNOWN_WEIGHTS_MAX:
        del _KNOWN_WEIGHTS[next(iter(_KNOWN_WEIGHTS))]
    return weights


def useful_count(weights: I64, count_max: int) -> int:
    """The least number of buckets whose largest is about as small as with `count_max`.

    One hot key stays in one bucket, so more tasks would read the log for a few records each. 1 where one bucket has
    nearly everything.
    """
    total = max(int(weights.sum()), 1)

    def largest(count: int) -> float:
        owners = np.frombuffer(shared_out(weights, count), np.uint8)
        return float(np.bincount(owners, weights=weights).max()) / total

    least = largest(count_max)
    if least > LARGEST_SHARE_MAX:
        return 1
    return next(count for count in range(1, count_max + 1) if largest(count) <= NEARLY * least)


def bucket_counts(logs: Sequence[LogFiles], core_count: int, cut_records_min: int) -> list[int]:
    """Number of buckets of each log partition; 1: not cut."""
    sizes = [log.size_bytes for log in logs]
    share = sum(sizes) / core_count
    return [
        min(-(-size // max(int(share), 1)), core_count, BUCKET_COUNT_MAX)
        if log.topic in CUT_TOPICS and size > OUT_OF_PROPORTION * share and _record_count(log) >= cut_records_min
        else 1
        for log, size in zip(logs, sizes, strict=True)
    ]


def _record_count(log: LogFiles) -> int:
    """Estimated number of new records, from offsets and batches."""
    count = 0
    for file in log.files:
        first, last = file.minimum.get("base_offset", 0), file.maximum.get("last_offset", -1)
        span = last - max(first, log.from_offset) + 1
        if span > 0 and file.row_count:
            count += min(span, RECORDS_PER_BATCH_MAX * file.row_count)
    return count


def weigh_keys(work: WeighWork) -> I64:
    """Weigh the keys of a log partition by slot, from samples. Runs in a Spark task."""
    log, weights = work.log, np.zeros(SLOT_COUNT, np.int64)
    last = max(file.maximum.get("last_offset", 0) for file in log.files)
    step = max(1, (last + 1 - log.from_offset) // SAMPLE_COUNT)
    for from_offset in range(log.from_offset, log.from_offset + SAMPLE_COUNT * step, step):
        for bronze in islice(read_log(log.files, from_offset), 1):
            chunk = decode_chunk(
                bronze.data,
                bytes_max=work.batch_decompressed_bytes_max,
                chunk_bytes_max=CHUNK_DECOMPRESSED_BYTES_MAX,
                crc="skip",
            )
            weights += slot_weights(chunk, is_share=log.topic == SHARE_TOPIC)
    return weights
