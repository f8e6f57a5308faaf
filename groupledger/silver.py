"""Silver for the audit, as rows from Spark instead of files."""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set

import pyarrow as pa
import pyarrow.compute as pc

from jobs.delta.arrow_columns import CODED, as_read, columns_read
from jobs.delta.part_files import LOG_PARTITION
from jobs.silver.needed import AuditWatermarks
from jobs.silver.reader import SilverFiles
from jobs.silver.row_groups import END_OF_LOG, LOG_OFFSET
from schemas.tables.declare import Table


class SilverRows(SilverFiles):
    """Rows of some silver tables, for one key; tables that are not given are empty."""

    def __init__(self, rows: Mapping[str, pa.Table]) -> None:
        super().__init__({})
        self._rows = {name: _coded(some) for name, some in rows.items()}

    def scan(self, table: Table, columns: Sequence[str], coded: Collection[str] = ()) -> pa.Table:
        schema = columns_read(table, columns, coded)
        rows = self._rows.get(table.full_name)
        return schema.empty_table() if rows is None else as_read(rows, schema)

    def row_count_max(self, table: Table, log_partition: int, *, from_log_offset: int = 0) -> int:
        """Upper bound of the rows of one log partition."""
        rows = self._rows.get(table.full_name)
        return 0 if rows is None else int(rows.num_rows)

    def iterate(
        self,
        table: Table,
        columns: Sequence[str],
        log_partition: int,
        coded: Collection[str] = (),
        *,
        from_log_offset: int = 0,
        to_log_offset: int = END_OF_LOG,
        ended_after: int = -1,
        only: Set[str] | None = None,
        watermarks: AuditWatermarks | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of one log partition, at once. No row is settled here."""
        assert ended_after < 0 and not watermarks, "an audit of rows begins at the beginning"
        rows = self._rows.get(table.full_name)
        if rows is None:
            return
        is_wanted = pc.equal(rows[LOG_PARTITION], log_partition)
        if from_log_offset:
            is_wanted = pc.and_(is_wanted, pc.greater_equal(rows[LOG_OFFSET], from_log_offset))
        if to_log_offset != END_OF_LOG:
            is_wanted = pc.and_(is_wanted, pc.less(rows[LOG_OFFSET], to_log_offset))
        if only is not None:
            is_wanted = pc.and_(is_wanted, pc.is_in(rows["group_id"], value_set=pa.array(sorted(only), pa.string())))
        wanted = rows if pc.all(is_wanted).as_py() else rows.filter(is_wanted)
        if wanted.num_rows:
            yield as_read(wanted, columns_read(table, columns, coded))


def _coded(rows: pa.Table) -> pa.Table:
    """One chunk, with dictionary-encoded strings, as they are read from files."""
    rows = rows.combine_chunks()
    for index, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            rows = rows.set_column(index, pa.field(field.name, CODED), rows.column(index).dictionary_encode())
    return rows
