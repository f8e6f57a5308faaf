"""The inputs of an audit, read once: silver as of the last whole run, gold as of the last audit, bronze, settings.

All of it is immutable; the plan of the audit follows from it alone.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.coverage import CoverageKind
from coordinator_core.bytes.kafka_versions import METADATA_VERSION
from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.history.simple_log import CLUSTER_METADATA
from coordinator_core.inference.facts.configs import SESSION_TIMEOUTS
from coordinator_core.inference.facts.life import PartitionCounts
from coordinator_core.inference.facts.log_facts import NONE_MS, UNKNOWN_LEADERS, WHOLE, LogFacts
from coordinator_core.inference.facts.settings import InferenceSettings
from jobs.bronze.copies import NO_REWRITES, Rewrites
from jobs.bronze.coverage import HOLES
from jobs.bronze.retention import deleted_ranges
from jobs.delta.arrow_columns import epoch_ms_column, numbers_of
from jobs.delta.audit_runs import WholeAudit, audit_application
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.other_writers import lacks_run
from jobs.delta.replay_runs import WholeRun, is_renamed_since
from jobs.delta.silver_format import SILVER_FORMAT, require_current_silver
from jobs.delta.table_files import TableFile, read_file
from jobs.delta.times import epoch_ms
from jobs.gold.audit_lag import ALL_MS, REMADE, SAMPLED, SamplesSeen, samples_seen
from jobs.gold.isolation import Lack, read_or
from jobs.gold.share_reader import CountsById, counts_by_id, topic_growth, topic_partition_counts
from jobs.silver.checkpoints import WATERMARK_COLUMNS, Watermark, read_watermarks, watermark_from
from jobs.silver.homes import CoordinatorPartitions
from jobs.silver.plan import captured_files
from jobs.silver.reader import SilverFiles
from jobs.silver.replay_failures import FailuresByLog, read_failures
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.bronze import COVERAGE, END_OFFSETS, QUARANTINE, RECORD_BATCHES
from schemas.tables.silver import CONFIGS, COORDINATOR_PARTITIONS, PARTITION_COUNTS, TOPICS
from schemas.tables.state import AUDITED_LOGS, CHECKPOINTS, OFFSET_RANGES, Checkpoint, Ranges

AUDIT_FORMAT: Final = 26
"""Raise it when the rules of inference change, or the state kept for the next audit: gold of an older format is
rebuilt."""

SESSION_CONFIGS: Final = "session_configs"
GROWN_TOPICS: Final = "grown_topics"
READ_TOGETHER: Final = "read_together"
"""Key in `settings`: topics that a subtopology of a streams group read with others, and their partition counts."""
SOURCES: Final = frozenset({SESSION_CONFIGS, GROWN_TOPICS, READ_TOGETHER})
"""Keys in `settings` of state.runs whose values come from tables: where one changed, all groups are audited from their
beginning. The others are settings and formats."""
REMOVED_TOPICS: Final = "removed_topics"
REMOVED_UNTIL: Final = "removed_until_ms"
FORMER_SHARES: Final = "former_share_logs"
FORMER_GROUPS: Final = "former_group_logs"
NOT_REPLAYED_LOGS: Final = "not_replayed_logs"
FOLLOWED: Final = frozenset(
    {REMOVED_TOPICS, REMOVED_UNTIL, FORMER_SHARES, FORMER_GROUPS, NOT_REPLAYED_LOGS, SAMPLED, REMADE}
)
"""Further keys in `settings`, whose changes concern some rows only. Topics that the metadata log shows removed: groups
that lost offsets after the first new removal are audited from their beginning. Groups and share partitions whose log
partition changed, since rows have a column for that. Log partitions of which silver lacks something: these are audited
from their beginning. Samples of end offsets, and topics removed or recreated: gold.lag_history changes near them."""


IS_WHOLE: Final = "is_whole"
"""Key in `settings`: was every input read? If not, the next audit rebuilds gold."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What gold depends on: silver as of the last whole run, and settings."""

    tables: ClusterTables
    inference: InferenceSettings
    run: WholeRun
    newest: WholeAudit
    growth: Mapping[str, Sequence[int]]
    counts: PartitionCounts
    removals: Sequence[tuple[int, str]]
    places: Mapping[str, Mapping[str, int]]
    settings: Mapping[str, Any]
    lacks: tuple[Lack, ...]
    """Inputs that could not be read."""
    lags_since_ms: int
    """From when on the lag of commits may be another one than the newest audit found."""
    failures: FailuresByLog = field(default_factory=dict)
    """Records that silver lacks, since their replay failed."""
    is_set_back: bool = False
    """Is a table older than the last audit left it?"""

    @classmethod
    def load(cls, tables: ClusterTables, inference: InferenceSettings) -> "Basis":
        """The current state. Raises WarehouseError where silver is of another version."""
        require_current_silver(tables)
        run = WholeRun.newest(tables, with_unaudited=True)
        lacks: list[Lack] = []
        files = SilverFiles({PARTITION_COUNTS.full_name: run.files(PARTITION_COUNTS)})
        none_known: CountsById = {}
        counts = read_or(none_known, "how many partitions topics have", partial(counts_by_id, files), lacks)
        nothing: Mapping[str, Sequence[int]] = {}
        growth = read_or(nothing, "when topics got more partitions", partial(topic_growth, counts), lacks)
        of_topics = topic_partition_counts(counts)
        no_removals: list[tuple[int, str]] = []
        removals = read_or(no_removals, "when topics were removed", partial(_removals, run), lacks)
        nowhere: Mapping[str, Mapping[str, int]] = {}
        places = read_or(nowhere, "which groups are in several log partitions", partial(_places, run), lacks)
        newest = WholeAudit.newest(tables, is_writer=True)
        of_samples = SilverFiles({table.full_name: run.files(table) for table in (END_OFFSETS, TOPICS)})
        samples = read_or(
            SamplesSeen({}, ALL_MS),
            "when end offsets were sampled",
            partial(samples_seen, of_samples, newest.settings, inference),
            lacks,
        )
        settings = {
            "format": AUDIT_FORMAT,
            "silver_format": SILVER_FORMAT,
            SESSION_CONFIGS: read_or("", "configs of sessions", partial(_session_configs, run), lacks),
            GROWN_TOPICS: blake2b(json.dumps(growth, sort_keys=True).encode(), digest_size=16).hexdigest(),
            READ_TOGETHER: _counts_of(of_topics, newest.settings.get(READ_TOGETHER, ())),
            REMOVED_TOPICS: sum_of(removals),
            REMOVED_UNTIL: max((at_ms for at_ms, _ in removals), default=-1),
            FORMER_SHARES: sum_of(sorted(places.get(SHARE_TOPIC, {}).items())),
            FORMER_GROUPS: sum_of(sorted(places.get(OFFSETS_TOPIC, {}).items())),
            **samples.settings,
        } | dataclasses.asdict(inference)
        failures = read_failures(run)
        if failures:
            settings[NOT_REPLAYED_LOGS] = [list(log) for log in sorted(failures)]
        settings |= {IS_WHOLE: True}
        app_id = audit_application(tables.cluster_id)
        is_back = lacks_run(tables.warehouse, newest.left_versions, app_id, newest.audit_version)
        return cls(
            tables,
            inference,
            run,
            newest,
            growth,
            of_topics,
            removals,
            places,
            settings,
            tuple(lacks),
            samples.changed_since_ms,
            failures,
            is_back,
        )

    def read_together(self, found: Set[str]) -> dict[str, list[list[int]]]:
        """Topics that a subtopology reads with others, the `found` ones included, and their partition counts."""
        return _counts_of(self.counts, found | self.settings[READ_TOGETHER].keys())

    @property
    def lacking_logs(self) -> frozenset[LogPartition]:
        """Log partitions of which silver lacks something, or lacked something at the last audit."""
        of_both = (self.settings, self.newest.settings)
        return frozenset((topic, number) for of in of_both for topic, number in of.get(NOT_REPLAYED_LOGS, ()))

    @property
    def is_audited(self) -> bool:
        """Did the newest audit complete, with the same silver and settings? True also if nothing was replayed yet."""
        if self.run.replay_version < 0:
            return True
        is_same = self.newest.replay_version == self.run.replay_version and self.newest.settings == self.settings
        return is_same and not self.newest.has_broken_off and not self.is_set_back

    @property
    def unchanged(self) -> frozenset[str]:
        """The settings that have the same value as in the newest audit."""
        before = self.newest.settings
        return frozenset(name for name, value in self.settings.items() if before.get(name) == value)

    @property
    def may_go_on(self) -> bool:
        """Did the newest audit complete with the same formats and settings, so that another one can continue
        from it?
        """
        is_same = self.unchanged >= self.settings.keys() - SOURCES - FOLLOWED
        return self.newest.is_known and not self.newest.has_broken_off and not self.is_set_back and is_same


def log_facts(tables: ClusterTables, files: Mapping[LogPartition, Sequence[TableFile]]) -> dict[LogPartition, LogFacts]:
    """What is known of log partitions after the last capture, but for clock steps. `files`: of bronze."""
    columns = ["topic", "partition", "from_offset", "kind", "first_timestamp"]
    missing: dict[LogPartition, list[tuple[int, int]]] = {}
    gaps: dict[LogPartition, list[int]] = {}
    behind: dict[LogPartition, int] = {}
    for row in tables.read(COVERAGE, columns).sort_by([("from_offset", "descending")]).to_pylist():
        place = row["topic"], row["partition"]
        if row["kind"] != CoverageKind.CAPTURED.name:
            missing.setdefault(place, []).append((row["from_offset"], behind.get(place, NONE_MS)))
        elif row["first_timestamp"] is not None:
            behind[place] = epoch_ms(row["first_timestamp"])
        if row["kind"] in HOLES:  # compaction makes none: it keeps the newest record of each key
            gaps.setdefault(place, []).append(row["from_offset"])
    for place, of_log in files.items():
        if erased := erasure_places(of_log):
            gaps.setdefault(place, []).extend(erased)
    changes: dict[LogPartition, list[int]] = {}
    for row in tables.read(OFFSET_RANGES, kind=Ranges.LEADER_EPOCH).to_pylist():
        if not row["is_checkpoint"] and row["leader_epoch"] >= 0:
            changes.setdefault((row["topic"], row["partition"]), []).append(row["from_offset"])
    dumped: dict[LogPartition, list[tuple[int, int]]] = {}
    for row in tables.read(OFFSET_RANGES, kind=Ranges.DUMPED).to_pylist():
        dumped.setdefault((row["topic"], row["partition"]), []).append((row["from_offset"], row["to_offset"]))
    unread = _unread(tables)

    def facts(log: LogPartition) -> LogFacts:
        holes, led = sorted(missing.get(log, ())), sorted(changes.get(log, ()))
        unled = (
            sorted([*dumped.get(log, ()), *leaderless_places(files.get(log, ()), led[0])]) if led else UNKNOWN_LEADERS
        )
        return LogFacts(
            whole_to=holes[0][0] if holes else WHOLE,
            leader_changes=tuple(led),
            leaderless=tuple(unled),
            gaps=tuple(sorted(gaps.get(log, ()))),
            holes=tuple(offset for offset, _ in holes),
            hole_ends=tuple(end_ms for _, end_ms in holes),
            unread=unread.get(log, {}),
        )

    return {log: facts(log) for log in {*files, *missing, *gaps, *changes, *unread}}


def leaderless_places(files: Sequence[TableFile], first_epoch_at: int) -> list[tuple[int, int]]:
    """Ranges of offsets of a log partition whose batches have no leader epoch: those before the first one that has, and
    others in message formats before 2, which brokers write again if `log.message.format.version` is lowered.
    """
    places = [(0, first_epoch_at - 1)] if first_epoch_at else []
    later = [file for file in files if file.maximum.get("last_offset", first_epoch_at) >= first_epoch_at]
    if all(file.minimum.get("magic", 0) >= FIRST_WITH_EPOCHS for file in later):
        return places
    columns = ["base_offset", "last_offset", "magic"]
    rows = pa.concat_tables(read_file(file, RECORD_BATCHES, columns) for file in later).sort_by("base_offset")
    rows = rows.filter(pc.greater_equal(rows["last_offset"], first_epoch_at))
    has_none = np.concatenate([[False], numbers_of(rows["magic"]) < FIRST_WITH_EPOCHS, [False]])
    edges = np.flatnonzero(has_none[1:] != has_none[:-1])
    firsts, lasts = numbers_of(rows["base_offset"])[edges[::2]], numbers_of(rows["last_offset"])[edges[1::2] - 1]
    return [*places, *zip(firsts.tolist(), lasts.tolist(), strict=True)]


def erasure_places(files: Sequence[TableFile]) -> list[int]:
    """Base offsets of batches of a log partition at which ids change: an erasure replaced them in the batches captured
    until then, and later ones have them as Kafka does. Nothing shows who is who on both sides.
    """
    if all(file.maximum.get("redacted_at") is None for file in files):
        return []
    columns = ["base_offset", "captured_at", "redacted_at"]
    rows = pa.concat_tables(read_file(file, RECORD_BATCHES, columns) for file in files).sort_by("base_offset")
    base_offsets, captured_at = numbers_of(rows["base_offset"]), epoch_ms_column(rows["captured_at"])
    erased_at = np.unique(epoch_ms_column(rows["redacted_at"].drop_null()))
    changes = (np.flatnonzero(np.diff(captured_at <= at)) + 1 for at in erased_at)
    return sorted({offset for places in changes for offset in base_offsets[places].tolist()})


def _unread(tables: ClusterTables) -> dict[LogPartition, dict[str, int]]:
    rows = tables.read(QUARANTINE, ["topic", "partition", "offset", "group_id", "resolved_at"])
    is_unread = pc.and_(pc.is_valid(rows["group_id"]), pc.is_valid(rows["offset"]))
    found: dict[LogPartition, dict[str, int]] = {}
    for row in rows.filter(pc.and_(is_unread, pc.is_null(rows["resolved_at"]))).to_pylist():
        of_log = found.setdefault((row["topic"], row["partition"]), {})
        of_log[row["group_id"]] = min(row["offset"], of_log.get(row["group_id"], row["offset"]))
    return found


FIRST_WITH_EPOCHS: Final = 2
"""The first message format whose batches have a leader epoch."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All inputs of the plan of an audit."""

    basis: Basis
    bronze: Mapping[LogPartition, tuple[TableFile, ...]]
    watermarks: Mapping[LogPartition, Watermark]
    """How far silver has replayed."""
    audited: Mapping[LogPartition, Watermark]
    """How far gold is audited; empty where an audit cannot continue from it."""
    logs: Mapping[LogPartition, LogFacts]
    group_files: Mapping[int, tuple[TableFile, ...]]
    """Files with the state of groups, by partition of `__consumer_offsets`."""
    rewrites: Rewrites = NO_REWRITES
    """Where captures changed records that silver had replayed."""
    shortened: frozenset[LogPartition] = frozenset()
    """Log partitions of which retention deleted batches from bronze."""
    is_renamed: bool = False
    """Did a run since the newest audit rewrite earlier rows under other names?"""

    @classmethod
    def load(cls, basis: Basis) -> "Snapshot":
        """The current state."""
        tables, run, newest = basis.tables, basis.run, basis.newest
        files = captured_files(tables)
        watermarks = read_watermarks(run, of_any_format=True)
        snapshot = cls(
            basis,
            {log: of_log for log, of_log in files.items() if log[0] in (OFFSETS_TOPIC, SHARE_TOPIC)},
            watermarks,
            {},
            log_facts(tables, files),
            _group_files(run),
            shortened=frozenset(deleted_ranges(tables)),
        )
        if not basis.may_go_on:
            return snapshot
        captured = max((mark.capture_version for mark in watermarks.values()), default=-1)
        columns = [*WATERMARK_COLUMNS, "topic", "log_partition"]
        rows = newest.read(AUDITED_LOGS, columns).to_pylist()
        return dataclasses.replace(
            snapshot,
            audited={(row["topic"], row["log_partition"]): watermark_from(row) for row in rows},
            rewrites=Rewrites.load(tables, captured),
            is_renamed=is_renamed_since(tables, newest.replay_version),
        )


def _places(run: WholeRun) -> dict[str, dict[str, int]]:
    """By coordinator topic: groups and share partitions with records in several log partitions, and the log
    partition that Kafka uses for each."""
    found = CoordinatorPartitions(run.read(COORDINATOR_PARTITIONS))
    return {
        topic: {key: move.log_partition for key, move in found.left_behind(topic, None).moves.items()}
        for topic in (OFFSETS_TOPIC, SHARE_TOPIC)
    }


def _group_files(run: WholeRun) -> dict[int, tuple[TableFile, ...]]:
    """Files with the state of groups, by partition of `__consumer_offsets`."""
    files: dict[int, tuple[TableFile, ...]] = {}
    for file in run.files(CHECKPOINTS):
        topic, _, partition = file.partition_values["log"].rpartition("-")
        if file.partition_values["kind"] == Checkpoint.GROUP and topic == OFFSETS_TOPIC:
            files[int(partition)] = (*files.get(int(partition), ()), file)
    return files


def _session_configs(run: WholeRun) -> str:
    """A digest of the configs that decide on departures and causes of rebalances: if it changes, all groups are
    audited."""
    names = {METADATA_VERSION, *SESSION_TIMEOUTS.values(), *(f"group.{name}" for name in SESSION_TIMEOUTS.values())}
    rows = [row for row in run.read(CONFIGS).to_pylist() if row["name"] in names]
    lines = sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _removals(run: WholeRun) -> list[tuple[int, str]]:
    """Times (ms) and ids of topics removed, from the metadata log; by time."""
    rows = run.read(TOPICS).to_pylist()
    removed = (row for row in rows if row["valid_to"] is not None and row["learned_from"] == CLUSTER_METADATA)
    return sorted((epoch_ms(row["valid_to"]), row["topic_id"]) for row in removed)


def _counts_of(counts: PartitionCounts, topics: Iterable[str]) -> dict[str, list[list[int]]]:
    """The partition counts of some topics, as JSON represents them."""
    return {topic: [list(count) for count in counts.get(topic, ())] for topic in sorted(topics)}


def sum_of(values: Sequence[tuple[int, str]] | Sequence[tuple[str, int]]) -> str:
    """A digest, to be compared with that of another audit."""
    return blake2b(json.dumps(values).encode(), digest_size=16).hexdigest()
