"""The audit of lag, where end offsets were sampled.

The lag of a commit depends on the samples next to it, and on no other commit. So an audit finds it for the commits that
are new, and again for those that are near new samples.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.inference.commits.lag import (
    CONFIDENCES,
    METHODS,
    NONE,
    SAMPLE_AGE_MAX_MS,
    EndSamples,
    Samples,
    lag_history,
)
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.clock import CLOCK_MS
from coordinator_core.inference.facts.life import GroupCommits
from coordinator_core.inference.facts.log_facts import LogFacts
from coordinator_core.inference.facts.settings import InferenceSettings
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, numbers_of
from jobs.delta.arrow_schemas import DAY, made_schema, timestamps
from jobs.delta.core_tables import constant, days
from jobs.delta.times import epoch_ms
from jobs.gold.former_rows import Outdated, day_of
from jobs.gold.group_checkpoints import SavedGroups
from jobs.gold.task import NEVER_MS, AuditParts, AuditWork
from jobs.silver.commits import new_commits
from jobs.silver.reader import SilverFiles
from jobs.silver.row_groups import LOG_OFFSET
from schemas.tables.bronze import END_OFFSETS
from schemas.tables.gold import LAG_HISTORY
from schemas.tables.silver import GROUP_GENERATIONS, OFFSET_COMMITS, TOPICS

TIMES: Final = (LOG_OFFSET, "applied_at")
ALL_MS: Final = -NEVER_MS
"""Earlier than all times."""
Known = Sequence[int]
"""How many times an audit knew, and the latest of them (ms)."""
NONE_KNOWN: Final[Known] = (0, -1)
SAMPLED: Final = "end_offsets_sampled"
REMADE: Final = "topics_remade"


def end_samples(files: SilverFiles, from_ms: int = ALL_MS) -> Samples:
    """Samples in bronze.end_offsets from a time on, by topic and partition."""
    recent = files if from_ms <= ALL_MS else files.since(END_OFFSETS, "sampled_at", from_ms)
    rows = recent.scan(END_OFFSETS, ("topic", "partition", "sampled_at", "end_offset"))
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


class SamplesSeen(NamedTuple):
    settings: Mapping[str, Known]
    """For an audit to keep."""
    changed_since_ms: int
    """From when on lags may differ from those of the audit before; NEVER_MS if nothing is new, ALL_MS if a time is
    missing or came late."""


def samples_seen(files: SilverFiles, before: Mapping[str, Any], settings: InferenceSettings) -> SamplesSeen:
    """The times of samples, and those at which topics were removed or recreated. `before`: what the audit before kept.

    Of samples, no more is read than what is new by the statistics of files.
    """
    sample_count = sum(file.row_count or 0 for file in files.files(END_OFFSETS))
    newest = [at for file in files.files(END_OFFSETS) if (at := file.maximum.get("sampled_at")) is not None]
    newest_ms = max(map(epoch_ms, newest), default=-1)
    remade_ms = np.array([at_ms for times in _remade_topics(files).values() for at_ms in times], np.int64)
    sampled_before, remade_before = (before.get(name, NONE_KNOWN) for name in (SAMPLED, REMADE))
    new = files.since(END_OFFSETS, "sampled_at", sampled_before[1] + 1).scan(END_OFFSETS, ("sampled_at",))
    return SamplesSeen(
        {SAMPLED: [sample_count, newest_ms], REMADE: [len(remade_ms), int(remade_ms.max(initial=-1))]},
        min(
            changed_since_ms(epoch_ms_column(new["sampled_at"]), sample_count, sampled_before, settings),
            changed_since_ms(remade_ms, len(remade_ms), remade_before, settings),
        ),
    )


def changed_since_ms(times_ms: I64, count: int, known: Known, settings: InferenceSettings) -> int:
    """`SamplesSeen.changed_since_ms` for one kind of times. There are `count` of them; `times_ms` has at least the new
    ones."""
    known_count, newest_ms = known
    new_ms = times_ms[times_ms > newest_ms]
    if count - len(new_ms) != known_count:
        return ALL_MS
    return int(new_ms.min()) - settings.lag_sample_age_max_ms - CLOCK_MS if len(new_ms) else NEVER_MS


class Lags:
    """Writes gold.lag_history of log partitions."""

    def __init__(self, work: AuditWork, parts: AuditParts, samples: Samples | None = None) -> None:
        """`samples`: all of them; None: read those that are needed."""
        self._work = work
        self._parts = parts
        self._samples = {} if samples is None else samples
        self._samples_from_ms = NEVER_MS if samples is None else ALL_MS

    def find(self, log_partition: int, log: LogFacts, before: SavedGroups | None, only: Set[str] | None = None) -> None:
        """The lag at commits, as far as it differs from what the last audit found, whose state is `before`. None: at
        all commits, of all groups or `only` some. `log`: with clock steps."""
        work = self._work
        place = 0 if before is None else work.next_offsets[log_partition]
        is_first_step = bool(log.clock_steps) and log.clock_steps[0] >= place  # from then on no lag is certain
        if before is not None and (is_first_step or work.lags_since_ms == ALL_MS):
            self._parts.remove_all(log_partition, LAG_HISTORY)
            place = 0
        elif before is not None:
            place = self._place(log_partition, before.begin(place))
        if not work.files.files(END_OFFSETS):
            return
        if work.bucket is not None and only is None:
            new = work.files.group_ids(OFFSET_COMMITS, log_partition, from_log_offset=place)
            only = frozenset(compress(new, work.bucket.has_groups(new).tolist()))
        self._read_samples(log_partition, place)
        self.write(log_partition, log, place, only)

    def _read_samples(self, log_partition: int, place: int) -> None:
        """Have the samples that commits from a log offset on need."""
        first_ms = ALL_MS
        if place:
            pieces = self._work.files.iterate(OFFSET_COMMITS, TIMES, log_partition, from_log_offset=place)
            times = [epoch_ms_column(rows["applied_at"]) for rows in pieces]
            first_ms = min((int(at.min(where=at >= 0, initial=NEVER_MS)) for at in times), default=NEVER_MS)
        from_ms = first_ms // DAY_MS * DAY_MS - SAMPLE_AGE_MAX_MS  # of most log partitions the same
        if from_ms < self._samples_from_ms:
            self._samples, self._samples_from_ms = end_samples(self._work.files, from_ms), from_ms

    def write(self, log_partition: int, log: LogFacts, from_log_offset: int = 0, only: Set[str] | None = None) -> None:
        """The lag at commits from a log offset on, of all groups or `only` some. Their rows of the last audit from
        there on go."""
        groups: set[str] = set()
        first_ms = NEVER_MS
        types = _GroupTypes(self._work.files, log_partition, from_log_offset)
        for commits, group, group_ids in new_commits(self._work.files, log_partition, from_log_offset, only):
            groups.update(group_ids)
            first_ms = int(commits.applied_at_ms.min(where=commits.applied_at_ms >= 0, initial=first_ms))
            self._parts.write(LAG_HISTORY, self._rows(commits, group, group_ids, types, log, log_partition))
        if groups:
            again = dict.fromkeys(groups if only is None else groups & only, from_log_offset - 1)
            self._parts.remove(
                LAG_HISTORY, Outdated(self._work.topic, log_partition, groups=again, from_day=day_of(first_ms))
            )

    def _place(self, log_partition: int, from_log_offset: int) -> int:
        """The log offset of the first commit that is new, from a log offset on, or near new samples."""
        since_ms = self._work.lags_since_ms
        near = self._work.files.since(OFFSET_COMMITS, "applied_at", since_ms)
        for rows in near.iterate(OFFSET_COMMITS, TIMES, log_partition, to_log_offset=from_log_offset):
            is_near = epoch_ms_column(rows["applied_at"]) >= since_ms
            from_log_offset = int(numbers_of(rows[LOG_OFFSET]).min(where=is_near, initial=from_log_offset))
        return from_log_offset

    def _rows(
        self,
        commits: GroupCommits,
        group: I64,
        group_ids: Sequence[str],
        types: "_GroupTypes",
        log: LogFacts,
        log_partition: int,
    ) -> pa.Table:
        """Rows of gold.lag_history, without `cluster_id`."""
        lags = lag_history(commits, self._samples, self._work.inference)
        rank = np.argsort(np.argsort(np.array(group_ids, object), kind="stable"))
        lags = lags.take(np.lexsort((commits.log_offset[lags.row], rank[group[lags.row]])))  # rows of a group together
        rows = lags.row
        at = timestamps(commits.applied_at_ms[rows])
        columns = {
            "group_id": _coded(group[rows], group_ids),
            "group_type": _coded(*types.at(group[rows], group_ids, commits.applied_log_offset[rows])),
            "topic": _coded(commits.topic[rows], commits.topics),
            "partition": pa.array(commits.partition[rows]),
            "log_offset": pa.array(commits.log_offset[rows]),
            "at": at,
            DAY: days(at),
            "log_partition": constant(log_partition, pa.int32(), len(rows)),
            "committed_offset": pa.array(commits.committed_offset[rows]),
            **{
                name: pa.array(getattr(lags, name), mask=getattr(lags, name) == NONE)
                for name in ("end_offset", "lag", "lag_min", "lag_max", "time_behind_ms")
            },
            "sampled_at": timestamps(lags.sampled_at_ms),
            "method": _coded(lags.method, METHODS),
            # samples use another clock than commits: between which samples a commit lies is certain only if clocks
            # agree
            "confidence": _coded(
                np.where(lags.is_sure & (not log.clock_steps), lags.method, METHODS.index("BETWEEN_SAMPLES")),
                CONFIDENCES,
            ),
        }
        schema = made_schema(LAG_HISTORY)
        return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)


class _GroupTypes:
    """Types of the groups of one log partition, by log offset."""

    def __init__(self, files: SilverFiles, log_partition: int, from_log_offset: int) -> None:
        columns, coded = ("group_id", "from_log_offset", "group_type"), ("group_id", "group_type")
        begins: defaultdict[str, dict[int, str]] = defaultdict(dict)
        for rows in files.iterate(GROUP_GENERATIONS, columns, log_partition, coded, ended_after=from_log_offset - 1):
            for group_id, place, group_type in zip(*(rows[name].to_pylist() for name in columns), strict=True):
                begins[group_id][place] = group_type
        self._begins = {group_id: sorted(of_group.items()) for group_id, of_group in begins.items()}

    def at(self, group: I64, group_ids: Sequence[str], log_offset: I64) -> tuple[I64, Sequence[str]]:
        """Of the generation in force at each place (a commit makes its group, if there is none): indexes into the
        types; -1 if the log shows none."""
        order = np.lexsort((log_offset, group))
        bounds = np.searchsorted(group[order], np.arange(len(group_ids) + 1))
        found = np.full(len(group), -1, np.int64)
        names: dict[str, int] = {}
        for code in np.unique(group).tolist():
            if begins := self._begins.get(group_ids[code]):
                mine = order[bounds[code] : bounds[code + 1]]
                index = np.searchsorted([place for place, _ in begins], log_offset[mine], side="right") - 1
                codes = [names.setdefault(group_type, len(names)) for _, group_type in begins]
                found[mine] = np.array(codes)[np.maximum(index, 0)]
        return found, list(names)


def _coded(indices: Any, texts: Any) -> pa.Array:
    """Strings by index; -1 is null."""
    codes = np.asarray(indices)
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(texts, pa.string()))
