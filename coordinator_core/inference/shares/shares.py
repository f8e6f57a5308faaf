"""The share part of gold: redeliveries, archived records and days of the share partitions of one log partition.

Everything here is columns, since there may be millions of records. Rows of silver come in any order and are sorted by
log offset; in one partition of `__share_group_state` a log offset identifies one record of one share partition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np

from coordinator_core.bytes.log.chunk import I64, BoolArray
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.columns import distinct, distinct_pairs, taken
from coordinator_core.inference.facts.configs import Configs
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.archived import ArchivedColumns, archived_records
from coordinator_core.inference.shares.evidence import Evidence, group_pasts
from coordinator_core.inference.shares.redeliveries import RedeliveryColumns, redeliveries
from coordinator_core.inference.shares.share_days import COUNTED, INT64_MAX, ShareCounts, SharePlace, sums
from coordinator_core.inference.shares.share_log import GroupPast, ShareKeys, ShareLog, ShareMembers
from coordinator_core.replay.columnar.share_state_rows import TRANSITION_KINDS

_ACKNOWLEDGED: Final = TRANSITION_KINDS.index("ACKNOWLEDGED")


class ShareAudit(NamedTuple):
    """The results for the share partitions of one log partition."""

    redeliveries: RedeliveryColumns
    archived: ArchivedColumns
    counted: "Counted"
    """Counts of the rows above, and of acknowledged offsets."""
    evidence: Evidence
    pasts: Sequence[GroupPast]
    """For each group, what all its transitions show about its delivery limit."""


def audit_share_log(log: ShareLog, configs: Configs, members: ShareMembers, settings: InferenceSettings) -> ShareAudit:
    """Redeliveries, archived records and counts, from `log.past.from_log_offset` on."""
    pasts = group_pasts(log)
    evidence = Evidence.of(log, pasts, configs, members, settings)
    given_again = _judged(redeliveries(log, evidence), log)
    given_up = _judged(archived_records(log, evidence, configs), log)
    return ShareAudit(given_again, given_up, Counted.of(log, given_again, given_up), evidence, pasts)


Judged = TypeVar("Judged", RedeliveryColumns, ArchivedColumns)


def _judged(rows: Judged, log: ShareLog) -> Judged:
    if not log.past.from_log_offset:
        return rows
    return taken(rows, np.flatnonzero(rows.log_offset >= log.past.from_log_offset))


@dataclass(frozen=True, slots=True)
class Counted:
    """Acknowledged, redelivered and archived offsets, to be counted by share partition and day."""

    keys: ShareKeys
    ranges: "Sequence[_Ranges]"
    """The acknowledged, the redelivered and the archived ranges."""
    key: I64
    """For each distinct pair of share partition and day, the share partition."""
    day: I64
    pairs: Sequence[I64]
    """For each of `ranges`, the index of each range's pair."""

    @classmethod
    def of(cls, log: ShareLog, given_again: RedeliveryColumns, given_up: ArchivedColumns) -> Self:
        changes, states = log.transitions, log.states
        rows = np.flatnonzero((changes.kind == _ACKNOWLEDGED) & (changes.released < 0))
        state = log.state_of_transition[rows]
        offsets = changes.log_offset[rows], changes.first_offset[rows], changes.last_offset[rows]
        ranges = [  # the sums are those of `COUNTED`, in its order
            _Ranges.of(_Acknowledged(states.key[state], states.at_ms[state], *offsets)),
            _Ranges.of(given_again, given_again.is_first(), given_again.extra_deliveries()),
            _Ranges.of(given_up, given_up.is_record()),
        ]
        key, day = (np.concatenate([getattr(one, name) for one in ranges]) for name in ("key", "day"))
        key, day, pair = distinct_pairs(key, day)
        return cls(log.keys, ranges, key, day, np.split(pair, np.cumsum([len(one.key) for one in ranges])[:-1]))

    def counts(self, to_log_offset: int = INT64_MAX) -> ShareCounts:
        """Counts of records before a log offset."""
        counts = []
        for one, pair in zip(self.ranges, self.pairs, strict=True):
            rows = np.flatnonzero(one.log_offset < to_log_offset)
            counts += [sums(pair[rows], numbers[rows], len(self.key)) for numbers in one.numbers]
        counts += [np.zeros_like(counts[0])] * (len(COUNTED) - len(counts))  # changes of offsets are counted apart
        rows = np.flatnonzero(np.logical_or.reduce(counts))
        found, place = distinct(self.key[rows])
        keys = self.keys
        places = (
            SharePlace(keys.group_ids[keys.group[key]], keys.topic_ids[key], int(keys.partition[key]), keys.topics[key])
            for key in found.tolist()
        )
        # sorted, because the keys are
        return ShareCounts(tuple(places), place, self.day[rows], np.array([numbers[rows] for numbers in counts]))


class _Acknowledged(NamedTuple):
    """Ranges as in rows of gold."""

    key: I64
    at_ms: I64
    log_offset: I64
    first_offset: I64
    last_offset: I64


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Offset ranges in records. Those whose records have no time are left out: they belong to no day."""

    key: I64
    day: I64
    log_offset: I64
    numbers: Sequence[I64]
    """The number of offsets; and the same, times what each of them counts otherwise."""

    @classmethod
    def of(cls, rows: "_Acknowledged | RedeliveryColumns | ArchivedColumns", *times: I64 | BoolArray) -> Self:
        has_time = np.flatnonzero(rows.at_ms >= 0)
        length = (rows.last_offset - rows.first_offset + 1)[has_time]
        # the length of a range with all offsets overflows an int64 by one
        offset_count = np.where(length > 0, length, INT64_MAX)
        factors = [one[has_time].astype(np.int64) for one in times]
        products = (np.minimum(offset_count, INT64_MAX // np.maximum(one, 1)) * one for one in factors)
        day = rows.at_ms[has_time] // DAY_MS
        return cls(rows.key[has_time], day, rows.log_offset[has_time], [offset_count, *products])
