"""Tables and columns that had another name in the last release (`former_name` of their declarations).

Readers find them under either name. The first job that writes such a table renames it (`Warehouse.ensure`). A table is
created with the rows of the former one, whose folder is then deleted; where columns have other names, the table is
rewritten. Each is one Delta transaction, so a job that fails leaves either the old table or the new one.
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Final

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, create_table_with_add_actions

from jobs.delta.arrow_schemas import STATISTICS_PROPERTY, delta_schema, statistics_columns, table_properties
from jobs.delta.scanner import Scanner
from schemas.tables.declare import Table

RENAME_APPLICATION: Final = "groupledger/rename"
"""The application id of the commit that creates a table from the one with its former name."""


def former_table(table: Table) -> Table | None:
    """The declaration under its former name; None if it had none."""
    return None if table.former_name is None else dataclasses.replace(table, name=table.former_name, former_name=None)


def former_columns(table: Table, columns: Collection[str], scanner: Scanner) -> dict[str, str]:
    """Former name -> name, for those of some columns that a file has under their former names."""
    former = {
        column.former_name: column.name
        for column in table.columns
        if column.former_name is not None and column.name in columns
    }
    there = set(scanner.schema.names) if former else set[str]()
    return {former_name: name for former_name, name in former.items() if former_name in there and name not in there}


def renamed_columns(delta: DeltaTable, table: Table) -> dict[str, str]:
    """Former name -> name, for the columns that a table still has under their former names."""
    stored = {field.name for field in delta.schema().fields}
    return {
        column.former_name: column.name
        for column in table.columns
        if column.former_name is not None and column.former_name in stored and column.name not in stored
    }


def set_statistics(delta: DeltaTable, table: Table) -> None:
    """Restrict the statistics property to columns that the table has: readers refuse a property with other names."""
    stored = {field.name for field in delta.schema().fields}
    kept = [name for name in statistics_columns(table) if name in stored]
    delta.alter.set_table_properties({STATISTICS_PROPERTY: ",".join(kept)})


def create_with_files(path: str, table: Table, files: Sequence[AddAction]) -> None:
    """Create a table that has files in its first version."""
    create_table_with_add_actions(
        path,
        delta_schema(table),
        list(files),
        partition_by=list(table.partition_by),
        name=table.full_name,
        description=table.comment,
        configuration=table_properties(table),
        commit_properties=CommitProperties(app_transactions=[Transaction(RENAME_APPLICATION, 0)]),
    )


def overwrite_with_files(delta: DeltaTable, table: Table, files: Sequence[AddAction], transaction: Transaction) -> None:
    delta.create_write_transaction(
        list(files),
        mode="overwrite",
        schema=delta_schema(table),
        partition_by=list(table.partition_by),
        commit_properties=CommitProperties(app_transactions=[transaction]),
    )


def next_version(delta: DeltaTable, app_id: str) -> Transaction:
    """The next transaction version of an application: a concurrent commit with the same version is refused."""
    last = delta.transaction_version(app_id)
    return Transaction(app_id, 0 if last is None else last + 1)
