"""Convert rows of silver to the core's types, and choose those of groups."""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64, BoolArray
from coordinator_core.bytes.named_tuples import maker_of
from coordinator_core.inference.facts.columns import distinct
from jobs.delta.arrow_columns import CODED, codes_of, numbers_of, ordered_codes, values_of
from jobs.delta.part_files import LOG_PARTITION

Row = TypeVar("Row", bound=NamedTuple)


def sortable(column: pa.ChunkedArray) -> I64:
    """Numbers that sort like the values, null first; integers in keys are not negative."""
    if column.type != CODED:
        return numbers_of(column)
    codes, _ = ordered_codes(column)
    return codes


def rows_of(rows: pa.Table, row_class: type[Row], order: I64 | None = None) -> Iterator[Row]:
    """Rows in the core's types: times as epoch milliseconds, lists as tuples, maps as dicts.

    `order`: indices of the rows, in the order wanted.
    """
    columns = [values_of(rows[name], order) for name in row_class._fields]
    return map(maker_of(row_class), zip(*columns, strict=True))


def only_groups(parts: Iterable[pa.Table], only: Set[str] | None) -> Iterator[pa.Table]:
    """Only rows of some groups, part by part."""
    if only is None:
        yield from parts
        return
    for rows in parts:
        is_wanted = _is_of_any(rows, only)
        wanted = rows if is_wanted.all() else rows.filter(pa.array(is_wanted))
        if wanted.num_rows:
            yield wanted


def _is_of_any(rows: pa.Table, only: Set[str]) -> BoolArray:
    """Which rows are of some groups. The dictionary is that of the whole row group, so some strings may have no row."""
    group, group_ids = codes_of(rows["group_id"])
    return np.array([group_id in only for group_id in group_ids], np.bool_)[group]


def is_of_groups(rows: pa.Table, groups: Mapping[int, Set[str]]) -> BoolArray:
    """Which rows are of some groups, given by log partition. `rows` must have `group_id` and LOG_PARTITION."""
    found, place = groups_of(rows)
    return np.array([group_id in groups.get(log_partition, ()) for log_partition, group_id in found], np.bool_)[place]


def numbers_by_group(rows: pa.Table, numbers: Mapping[int, Mapping[str, int]], default: int) -> I64:
    """The number of each row's group, given by log partition. `rows` as in `is_of_groups`."""
    found, place = groups_of(rows)
    none: Mapping[str, int] = {}
    of_groups = [numbers.get(log_partition, none).get(group_id, default) for log_partition, group_id in found]
    return np.array(of_groups, np.int64)[place]


def groups_of(rows: pa.Table) -> tuple[list[tuple[int, str]], I64]:
    """The log partitions and groups in `rows`, and the index of each row's one."""
    group, group_ids = codes_of(rows["group_id"])
    count = max(len(group_ids), 1)
    places, place = distinct(numbers_of(rows[LOG_PARTITION]) * count + group)
    return [(code // count, group_ids[code % count]) for code in places.tolist()], place
