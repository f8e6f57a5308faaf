"""SQL in DuckDB's dialect that users copy from the report: ids are literals of letters, digits and escapes only."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from jobs.delta.times import to_datetime
from jobs.queries.sql.sql_duckdb import RESERVED

PLAIN: Final = frozenset(" _-./:")


class Scope(NamedTuple):
    """The scope of a report. `group_ids` None: all groups. From inclusive, to exclusive, epoch ms; None: unbounded."""

    cluster_id: str
    group_ids: tuple[str, ...] | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def of_group(self, group_id: str) -> "Scope":
        """The same span for one group."""
        return self._replace(group_ids=(group_id,))

    def rows(self, *, alias: str = "") -> list[str]:
        """Conditions: cluster and groups."""
        conditions = [f"{alias}cluster_id = {literal(self.cluster_id)}"]
        if self.group_ids is not None:
            conditions.append(f"{alias}group_id {_is_one_of(self.group_ids)}")
        return conditions

    def within(self, time_column: str) -> list[str]:
        """Conditions: the time is in the span."""
        conditions = self.rows()
        if self.from_ms is not None:
            conditions.append(f"{column(time_column)} >= {time_literal(self.from_ms)}")
        if self.to_ms is not None:
            conditions.append(f"{column(time_column)} < {time_literal(self.to_ms)}")
        return conditions

    def overlapping(self) -> list[str]:
        """Conditions: the interval overlaps with the span."""
        conditions = self.rows()
        if self.from_ms is not None:
            conditions.append(f"(valid_to is null or valid_to > {time_literal(self.from_ms)})")
        if self.to_ms is not None:
            conditions.append(f"valid_from < {time_literal(self.to_ms)}")
        return conditions


def literal(text: str) -> str:
    """A string in DuckDB's SQL: characters that could end it or be invisible are bytes of its UTF-8."""
    if all(map(_is_plain, text)):
        return f"'{text}'"
    escaped = "".join(c if _is_plain(c) else "".join(f"\\x{byte:02X}" for byte in c.encode()) for c in text)
    return f"decode('{escaped}'::blob)"


def _is_plain(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in PLAIN)


def column(name: str) -> str:
    """A column's name in DuckDB's SQL."""
    return f'"{name}"' if name in RESERVED else name


def time_literal(timestamp_ms: int) -> str:
    return f"timestamp '{to_datetime(timestamp_ms):%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z'"


def bin_of(time_column: str, width_ms: int) -> str:
    """The beginning of the time bin of a timestamp."""
    return f"make_timestamptz(epoch_ms({column(time_column)}) // {width_ms} * {width_ms} * 1000)"


def width_text(width_ms: int) -> str:
    """The bin width, in its largest whole unit."""
    units: Iterator[tuple[int, str]] = iter(((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")))
    size, unit = next(it for it in units if width_ms % it[0] == 0)
    return f"{width_ms // size:,} {unit}"


def select(
    columns: Iterable[str], source: str, conditions: Collection[str], order: Iterable[str], *, group_by: str = ""
) -> str:
    """One statement, in lines."""
    lines = [f"select {', '.join(columns)}", f"from {source}"]
    if conditions:
        lines.append("where " + "\n  and ".join(conditions))
    if group_by:
        lines.append(f"group by {group_by}")
    return "\n".join([*lines, f"order by {', '.join(f'{column(name)} nulls first' for name in order)}"])


def _is_one_of(texts: Collection[str]) -> str:
    literals = ", ".join(map(literal, sorted(texts)))
    return f"= {literals}" if len(texts) == 1 else f"in ({literals})"
