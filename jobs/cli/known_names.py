"""Names that the Tab key completes: those of the warehouse, of tables, and words that are explained."""

from collections.abc import Callable, Iterable
from contextlib import suppress

import typer

Completes = Callable[[typer.Context, str], list[str]]


def _begun(names: Iterable[str | None], incomplete: str) -> list[str]:
    return sorted({name for name in names if name and name.startswith(incomplete)})


def _of_column(table: str, column: str) -> Completes:
    """Completes the values of a column, of the warehouse and cluster that the command line names."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        with suppress(Exception):  # where there is no answer, nothing is completed
            from jobs.cli.arguments import reading_settings
            from jobs.delta.cluster_tables import ClusterTables
            from jobs.delta.warehouse import Warehouse
            from schemas.tables import TABLES

            settings = reading_settings(ctx.params.get("warehouse"), ctx.params.get("cluster_id"))
            tables = ClusterTables(Warehouse(settings.warehouse), settings.cluster_id)
            return _begun(tables.read(TABLES[table], [column])[column].to_pylist(), incomplete)
        return []

    return complete


GROUPS = _of_column("silver.group_generations", "group_id")
TOPICS = _of_column("silver.member_assignments", "topic")


def tables(incomplete: str) -> list[str]:
    """Completes names of tables."""
    from schemas.tables import TABLES

    return _begun(TABLES, incomplete)


def words(incomplete: str) -> list[str]:
    """Completes what `explain` explains."""
    from jobs.queries.answers.explain import meanings

    return _begun((word for it in meanings() if it.is_own for word in it.words), incomplete)
