"""All silver rows of one group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray
from coordinator_core.history.rows import AssignmentRow, EventRow, GenerationRow, MemberRow
from coordinator_core.inference.facts.log_facts import WHOLE_LOG, LogFacts
from coordinator_core.replay.columnar.offsets_columnar import CHANGES

_DELETE: Final = CHANGES.index("DELETE")
_ADVANCE: Final = CHANGES.index("ADVANCE")
NO_GROWTH: Final[Mapping[str, Sequence[int]]] = {}
PartitionCounts = Mapping[str, Sequence[tuple[int, int]]]
"""By topic: (since when, in ms; number of partitions), ascending."""
NO_PARTITION_COUNTS: Final[PartitionCounts] = {}
HEARTBEAT_MS: Final = 3_000
"""Members of classic groups send heartbeats this often by default: within this time they learn of a rebalance and join
again."""
NO_EXPIRY: Final = 0
"""A missing `expire_at_ms`. It is nearly always missing, and a column of zeros takes no memory."""
OPEN_MS_MAX: Final = 86_400_000
"""No transaction is open for longer: brokers allow 15 minutes unless transaction.max.timeout.ms is set."""


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """silver.offset_commits of one group as columns, in log order.

    Times and log offsets that are null in silver are -1. Committed offsets may be any number, since brokers accept any:
    `change` says which ones are null (`is_tombstone`; a first commit has no previous one).
    """

    topics: tuple[str, ...] = ()
    topic: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    partition: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    log_offset: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    recorded_at_ms: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    applied_log_offset: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    applied_at_ms: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    committed_offset: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    previous_offset: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    outcome: I8 = field(default_factory=lambda: np.zeros(0, np.int8))
    """Index into `offsets.columnar.OUTCOMES`."""
    change: I8 = field(default_factory=lambda: np.zeros(0, np.int8))
    """Index into `offsets.columnar.CHANGES`; -1 unless applied."""
    is_transactional: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))
    expire_at_ms: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """When the offset expires according to its value, as brokers before 2.1 wrote it; NO_EXPIRY if the value has
    none. May be left out if no value has one."""
    may_be_transactional: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))
    """From rows of a dump that has neither transactions nor markers: a commit that counts as applied may have been
    aborted. May be left out if there are none."""

    def __post_init__(self) -> None:
        if len(self.expire_at_ms) != len(self.log_offset):
            object.__setattr__(self, "expire_at_ms", np.full(len(self.log_offset), NO_EXPIRY, np.int64))
        if len(self.may_be_transactional) != len(self.log_offset):
            object.__setattr__(self, "may_be_transactional", np.zeros(len(self.log_offset), np.bool_))

    def __len__(self) -> int:
        return len(self.log_offset)

    @property
    def is_tombstone(self) -> BoolArray:
        """Which rows delete an offset. They take effect at once, regardless of open transactions."""
        found: BoolArray = self.change >= _DELETE
        return found

    @property
    def sign_of_life_ms(self) -> I64:
        """The latest time at which the session of the committing member restarted; -1 without a time.

        A plain commit to a classic group restarts it. A transactional one does not
        (OffsetMetadataManager.commitTransactionalOffset): the heartbeat before it did, up to HEARTBEAT_MS earlier.
        """
        times = self.recorded_at_ms
        found: I64 = np.where(self.is_transactional & (times >= 0), np.maximum(times - HEARTBEAT_MS, 0), times)
        return found

    @property
    def has_moved(self) -> BoolArray:
        """Which rows moved their offset on, or may have: those of a transaction, which may still be open."""
        found: BoolArray = (self.change == _ADVANCE) | self.is_transactional
        return found

    def taken(self, rows: I64 | BoolArray | slice) -> "GroupCommits":
        return GroupCommits(self.topics, **{name: getattr(self, name)[rows] for name in COMMIT_COLUMNS})


COMMIT_COLUMNS: Final = tuple(item.name for item in fields(GroupCommits) if item.name != "topics")


class GroupLife(NamedTuple):
    """Rows of the silver group tables of one group, each list in the order of `from_log_offset` or `log_offset`."""

    group_id: str
    log_partition: int
    generations: tuple[GenerationRow, ...] = ()
    members: tuple[MemberRow, ...] = ()
    assignments: tuple[AssignmentRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    commits: GroupCommits = GroupCommits()
    timeless: frozenset[int] = frozenset()
    """Log offsets of rows without a time of their own (`clock.with_times`)."""
    log: LogFacts = WHOLE_LOG
    """What is known of its log partition."""
    topic_growth: Mapping[str, Sequence[int]] = NO_GROWTH
    """By topic, when (ms) it got more partitions, as far as the metadata log shows it."""
    partition_counts: PartitionCounts = NO_PARTITION_COUNTS
    """The partition counts of topics, as far as they are known."""

    def may_lack_commit(self, row: int, to_log_offset: int) -> bool:
        """Whether a commit that took effect between one of `commits` and a later place may be missing.

        A transaction's commits take effect at its end: from the record on, others may follow it in its transaction, and
        where transactions are used another one may have begun before and ended later.
        """
        log_offset = int(self.commits.log_offset[row])
        if self.log.has_hole(log_offset, to_log_offset):
            return True
        if not self.log.holes or not self.commits.is_transactional[row]:
            return False
        return self.log.has_hole_since(-1, log_offset, int(self.commits.applied_at_ms[row]) - OPEN_MS_MAX)
