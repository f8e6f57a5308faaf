"""SQL that users copy from the report: ids are literals of letters, digits and escapes only."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from jobs.delta.times import to_datetime

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
            conditions.append(f"{time_column} >= {time_literal(self.from_ms)}")
        if self.to_ms is not None:
            conditions.append(f"{time_column} < {time_literal(self.to_ms)}")
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
    """A Spark SQL string literal: characters that could end it, be substituted (`${...}`) or be invisible are
    escaped.
    """
    return "'" + "".join(c if c.isascii() and (c.isalnum() or c in PLAIN) else _escaped(c) for c in text) + "'"


def time_literal(timestamp_ms: int) -> str:
    return f"timestamp '{to_datetime(timestamp_ms):%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z'"


def bin_of(time_column: str, width_ms: int) -> str:
    """The beginning of the time bin of a timestamp."""
    return f"timestamp_millis(unix_millis({time_column}) div {width_ms} * {width_ms})"


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
    return "\n".join([*lines, f"order by {', '.join(order)}"])


def _escaped(character: str) -> str:
    point = ord(character)
    return f"\\u{point:04X}" if point <= 0xFFFF else f"\\U{point:08X}"


def _is_one_of(texts: Collection[str]) -> str:
    literals = ", ".join(map(literal, sorted(texts)))
    return f"= {literals}" if len(texts) == 1 else f"in ({literals})"
