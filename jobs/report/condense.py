"""Detail that fits into a page: of what is too much, things that lie close together become one, which is counted.

Each kind is columns in numpy. `joined(step)` gives a coarser one: twice the step joins what the step joined, so that a
`Condensed` goes on from where it came to when a page turns out too large.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.inference.columns import distinct, numbered_pairs
from coordinator_core.log.chunk import I64
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, numbers_of

OPEN: Final = -1
"""In place of an end."""
SEVERAL: Final = -2
"""In place of a member."""
STEP_MS: Final = 1_000
"""The first step of what goes by time."""
GRID: Final = 4_096
"""Columns and rows of the first grid of what goes by time and offset."""
STEP_MAX: Final = 1 << 32
"""By then all that may be joined is."""


class Joinable(Protocol):
    """Columns of one length."""

    def __len__(self) -> int: ...

    def joined(self, step: int) -> Self:
        """What lies within one step becomes one."""
        ...


Kind = TypeVar("Kind", bound=Joinable)


class Condensed(Generic[Kind]):
    """Columns, and as few of their rows as were asked for so far."""

    def __init__(self, columns: Kind) -> None:
        self.whole_count = len(columns)
        """Of rows as they were."""
        self.step = 0
        """0: nothing was joined; else 1, 2, 4, ..."""
        self._columns = columns

    def at_most(self, count: int) -> Kind:
        """No more rows than these, or one of each kind that is never joined with another."""
        while len(self._columns) > count and self.step < STEP_MAX:
            self.step = self.step * 2 or 1
            self._columns = self._columns.joined(self.step)
        return self._columns


def deltas(numbers: npt.NDArray[Any]) -> list[int]:
    """Numbers as the page's `sums` reads them back: each less the one before, which takes less room."""
    return np.diff(numbers, prepend=0).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Ownership:
    """Intervals of ownership by partition, and then by time. `starts` and `ends` in epoch ms, OPEN for none."""

    rows: I64
    members: I64
    starts: I64
    ends: I64
    counts: I64
    """Intervals that became this one."""

    def __len__(self) -> int:
        return len(self.rows)

    def joined(self, step: int) -> "Ownership":
        """Neighbours of one partition that are shorter than the step (in s) and begin in the same one become one."""
        step_ms = step * STEP_MS
        is_short = (self.ends != OPEN) & (self.ends - self.starts < step_ms)
        slots = self.starts // step_ms
        joins = np.zeros(len(self), np.bool_)
        joins[1:] = is_short[1:] & is_short[:-1] & (self.rows[1:] == self.rows[:-1]) & (slots[1:] == slots[:-1])
        heads = np.flatnonzero(~joins)
        sizes = np.diff([*heads, len(self)])
        return Ownership(
            self.rows[heads],
            np.where(sizes > 1, SEVERAL, self.members[heads]),
            self.starts[heads],
            self.ends[heads + sizes - 1],
            np.add.reduceat(self.counts, heads),
        )

    def json(self) -> dict[str, Any]:
        """Parallel lists; `rows` and `starts` as `deltas`, `lengths` in ms, OPEN for none."""
        return {
            "rows": deltas(self.rows),
            "members": self.members.tolist(),
            "starts": deltas(self.starts),
            "lengths": np.where(self.ends == OPEN, OPEN, self.ends - self.starts).tolist(),
            "counts": _counts(self.counts),
        }


@dataclass(frozen=True, slots=True)
class Marks:
    """Moments in the order of time (epoch ms), each of a kind: what texts and numbers say of it."""

    at_ms: I64
    kinds: I64
    firsts: I64
    """First offset; 0 where a mark has no offsets."""
    offsets: I64
    """How many offsets; 0 likewise."""
    counts: I64
    """Marks that became this one."""
    kind_columns: Mapping[str, Sequence[Any]]
    """What each kind is, column by column."""

    def __len__(self) -> int:
        return len(self.at_ms)

    def joined(self, step: int) -> "Marks":
        """Those of one kind in one step (in s) become one."""
        slots = self.at_ms // (step * STEP_MS)
        order = np.lexsort([self.at_ms, self.kinds])
        kinds, slots = self.kinds[order], slots[order]
        is_head = np.ones(len(self), np.bool_)
        is_head[1:] = (kinds[1:] != kinds[:-1]) | (slots[1:] != slots[:-1])
        heads = np.flatnonzero(is_head)
        at_ms = self.at_ms[order][heads]
        by_time = np.argsort(at_ms, kind="stable")
        return Marks(
            at_ms[by_time],
            kinds[heads][by_time],
            np.minimum.reduceat(self.firsts[order], heads)[by_time],
            np.add.reduceat(self.offsets[order], heads)[by_time],
            np.add.reduceat(self.counts[order], heads)[by_time],
            self.kind_columns,
        )

    def json(self) -> dict[str, Any]:
        """Parallel lists, `at` as `deltas`; `columns` are those of the kinds."""
        has_offsets = bool(self.offsets.any())
        return {
            "at": deltas(self.at_ms),
            "kinds": self.kinds.tolist(),
            "columns": self.kind_columns,
            "firsts": self.firsts.tolist() if has_offsets else [],
            "offsets": self.offsets.tolist() if has_offsets else [],
            "counts": _counts(self.counts),
        }


def marks(rows: pa.Table, at: str, texts: Sequence[str], numbers: Sequence[str] = ()) -> Marks:
    """Marks of rows that are in the order of time already, or in none; of their offsets if they have any.

    `texts` and `numbers`: columns which make the kinds.
    """
    at_ms = epoch_ms_column(rows[at])
    order = np.argsort(at_ms, kind="stable")
    kinds = np.zeros(rows.num_rows, np.int64)
    for name in (*texts, *numbers):
        codes = codes_of(rows[name])[0] if name in texts else numbers_of(rows[name])
        kinds = distinct(numbered_pairs(kinds, codes))[1]
    kind_count = int(kinds.max()) + 1 if len(kinds) else 0
    samples = np.zeros(kind_count, np.int64)
    samples[kinds] = np.arange(len(kinds))
    sampled = rows.take(pa.array(samples))
    columns = {name: sampled[name].to_pylist() for name in (*texts, *numbers)}
    firsts = offsets = np.zeros(rows.num_rows, np.int64)
    if "first_offset" in rows.column_names:
        firsts = numbers_of(rows["first_offset"])
        offsets = numbers_of(rows["last_offset"]) - firsts + 1
    ones = np.ones(rows.num_rows, np.int64)
    return Marks(at_ms[order], kinds[order], firsts[order], offsets[order], ones, columns)


@dataclass(frozen=True, slots=True)
class Flow:
    """How many came and went, in the order of time (epoch ms)."""

    at_ms: I64
    came: I64
    went: I64

    def __len__(self) -> int:
        return len(self.at_ms)

    def joined(self, step: int) -> "Flow":
        """Those of one step (in s) become one, at its first moment."""
        slots = self.at_ms // (step * STEP_MS)
        heads = np.flatnonzero(np.diff(slots, prepend=OPEN))
        return Flow(self.at_ms[heads], np.add.reduceat(self.came, heads), np.add.reduceat(self.went, heads))

    def json(self) -> dict[str, Any]:
        """Parallel lists, `at` as `deltas`."""
        return {"at": deltas(self.at_ms), "came": self.came.tolist(), "went": self.went.tolist()}


def flow(starts: I64, ends: I64) -> Flow:
    """Of intervals of membership, in epoch ms."""
    ended = ends[ends != OPEN]
    at_ms, places = np.unique(np.concatenate([starts, ended]), return_inverse=True)
    came, went = (np.bincount(part, minlength=len(at_ms)) for part in (places[: len(starts)], places[len(starts) :]))
    return Flow(at_ms, came, went)


@dataclass(frozen=True, slots=True)
class DeliveryStates:
    """Intervals of one share partition in which a range of offsets had a delivery state."""

    firsts: I64
    lasts: I64
    states: I64
    deliveries: I64
    starts: I64
    """Epoch ms, as `ends`, which has OPEN for none."""
    ends: I64
    is_sure: I64
    """0: the log began midway."""
    counts: I64
    """Intervals that became this one."""

    def __len__(self) -> int:
        return len(self.firsts)

    def joined(self, step: int) -> "DeliveryStates":
        """Those of one state which begin and end in the same cells of a grid become one: it has `GRID` columns and
        rows, or a half, a quarter ... of them."""
        latest = self.starts.max()
        stops = np.where(self.ends == OPEN, latest, np.minimum(self.ends, latest))
        key = self.states * 2 + (self.ends == OPEN)
        for values, ends in ((self.starts, self.starts), (self.firsts, self.firsts), (stops, self.starts)):
            key = distinct(numbered_pairs(key, _cells(values, ends, step)))[1]
        order = np.argsort(key, kind="stable")
        heads = np.flatnonzero(np.diff(key[order], prepend=-1))

        def least(values: I64) -> I64:
            return np.minimum.reduceat(values[order], heads)

        def most(values: I64) -> I64:
            return np.maximum.reduceat(values[order], heads)

        return _in_time(
            DeliveryStates(
                least(self.firsts),
                most(self.lasts),
                least(self.states),
                most(self.deliveries),
                least(self.starts),
                most(self.ends),
                least(self.is_sure),
                np.add.reduceat(self.counts[order], heads),
            )
        )

    def json(self) -> dict[str, Any]:
        """Parallel lists; offsets and `starts` as `deltas`, `lengths` in ms, OPEN for none."""
        return {
            "firsts": deltas(self.firsts),
            "lasts": deltas(self.lasts),
            "states": self.states.tolist(),
            "counts": self.deliveries.tolist(),
            "starts": deltas(self.starts),
            "lengths": np.where(self.ends == OPEN, OPEN, self.ends - self.starts).tolist(),
            "sure": self.is_sure.tolist(),
            "together": _counts(self.counts),
        }


def delivery_states(columns: Sequence[I64]) -> DeliveryStates:
    """Of columns in the order of the fields, in no order of rows."""
    return _in_time(DeliveryStates(*[*columns, np.ones(len(columns[0]), np.int64)]))


def _cells(values: I64, within: I64, step: int) -> I64:
    """In which cell each value is, of as many as the grid has of what it is laid `within`."""
    first = float(within.min())
    width = (float(within.max()) - first + 1) * step / GRID
    return ((values - first) / width).astype(np.int64)


def _in_time(states: DeliveryStates) -> DeliveryStates:
    order = np.lexsort([states.states, states.firsts, states.starts])
    return DeliveryStates(*(getattr(states, name)[order] for name in DeliveryStates.__slots__))


def _counts(counts: I64) -> list[int]:
    """Nothing where each is one."""
    return counts.tolist() if (counts > 1).any() else []
