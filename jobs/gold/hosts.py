"""Update the hosts of members in rows of the last audit, where members have come back from other hosts since."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from coordinator_core.inference.audit.hosts import HostsNow
from coordinator_core.inference.facts.columns import distinct
from jobs.delta.arrow_columns import CODED, codes_of, numbers_of, values_of
from jobs.silver.rows import groups_of
from schemas.tables.declare import Table
from schemas.tables.gold import COMMIT_ANOMALIES, PARTITION_OWNERS

COLUMNS: Final[Mapping[Table, tuple[str, str, str]]] = {
    PARTITION_OWNERS: ("member_id", "from_log_offset", "client_host"),
    COMMIT_ANOMALIES: ("owner_member_id", "log_offset", "owner_client_host"),
}
"""The columns with the member, a log offset at which it owned the partition, and its host."""
OF_ANOMALIES: Final = ("topic", "partition", "log_offset", "owner_member_id", "owner_client_host")


class _KnownHost(NamedTuple):
    """Client and host of a member of a group, since its last change."""

    begin: int
    """Rows from this log offset on get `host`,"""
    end: int
    """up to this log offset, inclusive."""
    host: str
    is_changed: bool
    """The member changed again: the host of rows after `end` must be looked up."""


NOTHING: Final = _KnownHost(0, -1, "", is_changed=False)


def with_hosts(table: Table, rows: pa.Table, hosts: Mapping[int, Mapping[str, HostsNow]]) -> pa.Table:
    """Rows with the current hosts of members. `hosts`: by log partition and group, where members changed."""
    if table not in COLUMNS or not any(hosts.values()):
        return rows
    groups, group = groups_of(rows)
    of_groups = [hosts.get(log_partition, {}).get(group_id) for log_partition, group_id in groups]
    at = np.flatnonzero(np.array([found is not None for found in of_groups], np.bool_)[group])
    if not len(at):
        return rows
    member_name, place_name, host_name = COLUMNS[table]
    member, member_ids = codes_of(rows[member_name])
    named = [*member_ids, None]  # rows without a member have code -1
    pairs, pair = distinct(group[at] * len(named) + member[at] % len(named))
    groups_and_members = (divmod(code, len(named)) for code in pairs.tolist())
    known = [_known_host(of_groups[number], named[code]) for number, code in groups_and_members]
    begin, end = (np.array(column, np.int64)[pair] for column in list(zip(*known, strict=True))[:2])
    is_changed = np.array([one.is_changed for one in known], np.bool_)[pair]
    place = numbers_of(rows[place_name])[at]
    host, names = codes_of(rows[host_name])
    host, codes = host.copy(), {name: code for code, name in enumerate(names)}
    now = np.array([codes.setdefault(one.host, len(codes)) for one in known], np.int64)[pair]
    is_moved = (place >= begin) & (place <= end)
    host[at[is_moved]] = now[is_moved]
    if table is COMMIT_ANOMALIES:
        late = at[is_changed & (place > end)]
        values = zip(*(values_of(rows[name].take(late)) for name in OF_ANOMALIES), strict=True)
        for row, anomaly in zip(late.tolist(), values, strict=True):
            of_group = of_groups[group[row]]
            name = None if of_group is None else of_group.of(*anomaly)
            host[row] = -1 if name is None else codes.setdefault(name, len(codes))
    indices = pa.array(host.astype(np.int32), mask=host < 0)
    column = pa.DictionaryArray.from_arrays(indices, pa.array(list(codes), pa.string()))
    return rows.set_column(rows.schema.get_field_index(host_name), pa.field(host_name, CODED), column)


def _known_host(hosts: HostsNow | None, member_id: str | None) -> _KnownHost:
    if hosts is None or member_id is None:
        return NOTHING
    begin, host = hosts.moved.get(member_id, (hosts.settled_at + 1, ""))
    return _KnownHost(begin, hosts.settled_at, host, member_id in hosts.changed)
