"""The audit of lag, where end offsets were sampled."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_core.inference.commits.commit_anomalies import GenerationsAt
from coordinator_core.inference.commits.lag import CONFIDENCES, METHODS, NONE, EndSamples, LagColumns, lag_history
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.settings import InferenceSettings
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, numbers_of
from jobs.delta.arrow_schemas import DAY, made_schema, timestamps
from jobs.delta.core_tables import constant, days
from jobs.gold.task import AuditParts
from jobs.silver.reader import SilverFiles
from schemas.tables.bronze import END_OFFSETS
from schemas.tables.gold import LAG_HISTORY
from schemas.tables.silver import TOPICS

COMMITS_AT_ONCE: Final = 1 << 20
"""Number of commits of a group whose lag is found at a time."""
WAITING_ROWS_MAX: Final = 100_000
"""Lag rows buffered before a row group is written."""
Samples = Mapping[tuple[str, int], EndSamples]


def end_samples(files: SilverFiles) -> Samples:
    """All samples in bronze.end_offsets, by topic and partition."""
    rows = files.scan(END_OFFSETS, ("topic", "partition", "sampled_at", "end_offset"))
    if not rows.num_rows:
        return {}
    topic, topics = codes_of(rows["topic"])
    partition, end = numbers_of(rows["partition"]), numbers_of(rows["end_offset"])
    at = epoch_ms_column(rows["sampled_at"])
    order = np.lexsort((partition, topic))
    begins = np.flatnonzero((np.diff(topic[order], prepend=-1) != 0) | (np.diff(partition[order], prepend=-1) != 0))
    remade = _remade_topics(files)
    return {
        (name, int(partition[mine[0]])): EndSamples.of(at[mine], end[mine], remade.get(name, ()))
        for mine in np.split(order, begins[1:])
        for name in (topics[topic[mine[0]]],)
    }


def _remade_topics(files: SilverFiles) -> dict[str, list[int]]:
    """By topic, the times (ms) at which it was removed or recreated under another id; ascending."""
    rows = files.scan(TOPICS, ("topic", "topic_id", "valid_from", "valid_to"))
    from_ms, to_ms = (epoch_ms_column(rows[name]).tolist() for name in ("valid_from", "valid_to"))
    lives: dict[str, list[tuple[int, int]]] = {}
    for topic, begins, ends in zip(rows["topic"].to_pylist(), from_ms, to_ms, strict=True):
        lives.setdefault(topic, []).append((begins, ends))
    remade = {}
    for topic, of_topic in lives.items():
        made_again = {begins for begins, _ in sorted(of_topic)[1:]}
        remade[topic] = sorted(made_again | {ends for _, ends in of_topic if ends >= 0})
    return remade


class LagWriter:
    """Writes gold.lag_history of many groups in portions."""

    def __init__(self, samples: Samples, settings: InferenceSettings, parts: AuditParts) -> None:
        self._samples = samples
        self._settings = settings
        self._parts = parts
        self._waiting: list[pa.Table] = []

    def add(self, life: GroupLife) -> None:
        """Add the lag of one group, COMMITS_AT_ONCE commits at a time."""
        if not self._samples:
            return
        for first in range(0, len(life.commits), COMMITS_AT_ONCE):
            part = life._replace(commits=life.commits.taken(slice(first, first + COMMITS_AT_ONCE)))
            lags = lag_history(part.commits, self._samples, self._settings)
            if len(lags):
                self._waiting.append(lag_table(part, lags))
            if sum(table.num_rows for table in self._waiting) > WAITING_ROWS_MAX:
                self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        if self._waiting:
            self._parts.write(LAG_HISTORY, pa.concat_tables(self._waiting))
            self._waiting = []


def lag_table(life: GroupLife, lags: LagColumns) -> pa.Table:
    """Rows of gold.lag_history, without `cluster_id`."""
    commits, rows = life.commits, lags.row
    group_type, group_types = GenerationsAt(life.generations, life.events).types_at(commits.log_offset[rows])
    at = timestamps(commits.applied_at_ms[rows])
    columns = {
        "group_id": pa.repeat(pa.scalar(life.group_id), len(rows)),
        "group_type": _coded(group_type, group_types),
        "topic": _coded(commits.topic[rows], commits.topics),
        "partition": pa.array(commits.partition[rows]),
        "log_offset": pa.array(commits.log_offset[rows]),
        "at": at,
        DAY: days(at),
        "log_partition": constant(life.log_partition, pa.int32(), len(rows)),
        "committed_offset": pa.array(commits.committed_offset[rows]),
        **{
            name: pa.array(getattr(lags, name), mask=getattr(lags, name) == NONE)
            for name in ("end_offset", "lag", "lag_min", "lag_max", "time_behind_ms")
        },
        "sampled_at": timestamps(lags.sampled_at_ms),
        "method": _coded(lags.method, METHODS),
        # samples use another clock than commits: between which samples a commit lies is certain only if clocks agree
        "confidence": _coded(
            np.where(lags.is_sure & (not life.log.clock_steps), lags.method, METHODS.index("BETWEEN_SAMPLES")),
            CONFIDENCES,
        ),
    }
    schema = made_schema(LAG_HISTORY)
    return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)


def _coded(indices: Any, texts: Any) -> pa.Array:
    """Strings by index; -1 is null."""
    codes = np.asarray(indices)
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(texts, pa.string()))
