"""Reduce detail to what fits into a page: neighbours are merged into one element with a count.

Each kind consists of numpy columns. `joined(step)` returns a coarser one. Whatever a step merges, twice the step merges
too, so a `Condensed` can continue from its current state when a page is too large.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.inference.facts.columns import distinct, numbered_pairs
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, numbers_of

OPEN: Final = -1
"""Replaces an end that does not exist."""
SEVERAL: Final = -2
"""Replaces a member where several were merged."""
STEP_MS: Final = 1_000
"""The first step for elements over time."""
GRID: Final = 4_096
"""Initial number of columns and rows of the grid for elements over time and offset."""
STEP_MAX: Final = 1 << 32
"""With this step everything that may be merged is merged."""


class Joinable(Protocol):
    """Columns of equal length."""

    def __len__(self) -> int: ...

    def joined(self, step: int) -> Self:
        """Merge elements within one step."""
        ...


Kind = TypeVar("Kind", bound=Joinable)


class Condensed(Generic[Kind]):
    """Columns that are reduced on demand."""

    def __init__(self, columns: Kind) -> None:
        self.whole_count = len(columns)
        """Number of rows before any merge."""
        self.step = 0
        """0: nothing is merged; else 1, 2, 4, ..."""
        self._columns = columns

    def at_most(self, count: int) -> Kind:
        """Reduce to at most `count` rows, or to those that cannot be merged."""
        while len(self._columns) > count and self.step < STEP_MAX:
            self.step = self.step * 2 or 1
            self._columns = self._columns.joined(self.step)
        return self._columns


def deltas(numbers: npt.NDArray[Any]) -> list[int]:
    """Delta encoding, which the page's `sums` decodes: takes less space."""
    return np.diff(numbers, prepend=0).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Ownership:
    """Intervals of ownership, sorted by partition and time. `starts` and `ends` in epoch ms, OPEN for no end."""

    rows: I64
    members: I64
    starts: I64
    ends: I64
    counts: I64
    """Number of intervals merged into this one."""

    def __len__(self) -> int:
        return len(self.rows)

    def joined(self, step: int) -> "Ownership":
        """Merge adjacent intervals of one partition that are shorter than the step (in s) and begin within the same
        step.
        """
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
        """Parallel lists; `rows` and `starts` as `deltas`, `lengths` in ms, OPEN for no end."""
        return {
            "rows": deltas(self.rows),
            "members": self.members.tolist(),
            "starts": deltas(self.starts),
            "lengths": np.where(self.ends == OPEN, OPEN, self.ends - self.starts).tolist(),
            "counts": _counts(self.counts),
        }


@dataclass(frozen=True, slots=True)
class Marks:
    """Events in time order (epoch ms), each with a kind: a combination of strings and numbers."""

    at_ms: I64
    kinds: I64
    firsts: I64
    """First offset; 0 without offsets."""
    offsets: I64
    """Number of offsets; 0 without offsets."""
    counts: I64
    """Number of events merged into this one."""
    kind_columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.at_ms)

    def joined(self, step: int) -> "Marks":
        """Merge events of one kind within one step (in s)."""
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
    """Events from rows, in any order, with their offsets if they have any.

    `texts` and `numbers`: columns that define the kinds.
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
    """Numbers of joins and departures, in time order (epoch ms)."""

    at_ms: I64
    came: I64
    went: I64

    def __len__(self) -> int:
        return len(self.at_ms)

    def joined(self, step: int) -> "Flow":
        """Merge those within one step (in s), at its first moment."""
        slots = self.at_ms // (step * STEP_MS)
        heads = np.flatnonzero(np.diff(slots, prepend=OPEN))
        return Flow(self.at_ms[heads], np.add.reduceat(self.came, heads), np.add.reduceat(self.went, heads))

    def json(self) -> dict[str, Any]:
        """Parallel lists, `at` as `deltas`."""
        return {"at": deltas(self.at_ms), "came": self.came.tolist(), "went": self.went.tolist()}


def flow(starts: I64, ends: I64) -> Flow:
    """From membership intervals, in epoch ms."""
    ended = ends[ends != OPEN]
    at_ms, places = np.unique(np.concatenate([starts, ended]), return_inverse=True)
    came, went = (np.bincount(part, minlength=len(at_ms)) for part in (places[: len(starts)], places[len(starts) :]))
    return Flow(at_ms, came, went)


@dataclass(frozen=True, slots=True)
class DeliveryStates:
    """Intervals in which a range of offsets of one share partition had a delivery state."""

    firsts: I64
    lasts: I64
    states: I64
    deliveries: I64
    starts: I64
    """Epoch ms, like `ends`, which has OPEN for no end."""
    ends: I64
    is_sure: I64
    """0: before the first known snapshot."""
    counts: I64
    """Number of intervals merged into this one."""

    def __len__(self) -> int:
        return len(self.firsts)

    def joined(self, step: int) -> "DeliveryStates":
        """Merge intervals of one state that begin and end in the same cells of a grid with `GRID` columns and rows, or
        a half, a quarter ... of them.
        """
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
        """Parallel lists; offsets and `starts` as `deltas`, `lengths` in ms, OPEN for no end."""
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
    """From columns in the order of the fields; rows in any order."""
    return _in_time(DeliveryStates(*[*columns, np.ones(len(columns[0]), np.int64)]))


def _cells(values: I64, within: I64, step: int) -> I64:
    """The grid cell of each value; the grid spans the range of `within`."""
    first = float(within.min())
    width = (float(within.max()) - first + 1) * step / GRID
    return ((values - first) / width).astype(np.int64)


def _in_time(states: DeliveryStates) -> DeliveryStates:
    order = np.lexsort([states.states, states.firsts, states.starts])
    return DeliveryStates(*(getattr(states, name)[order] for name in DeliveryStates.__slots__))


def _counts(counts: I64) -> list[int]:
    """Empty if all counts are 1."""
    return counts.tolist() if (counts > 1).any() else []
