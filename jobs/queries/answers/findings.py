"""What a night found, and the command that lists the rows of each finding (`jobs.queries.answers.lists`).

New is a row that the run before had not left: of gold, one whose key is not among such rows of the version that the
audit before left, whatever its time; of other tables, one that was seen since that audit began. On a cluster's first
night, and where no run is given, everything is new. Nightly, notifications and metrics have these numbers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.inference.audit.log_anomalies import INPUT_NOT_READ
from coordinator_core.text import counted
from jobs.bronze.copies import read_lineages
from jobs.bronze.log_ends import log_ends
from jobs.cli_enums import Listing
from jobs.console.command_name import command
from jobs.console.names import LINE_CHARACTERS_MAX, cut, short
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.other_writers import ForeignWrite, written_by_others
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms
from jobs.errors import JobError, TableDamaged
from jobs.queries.answers.changes import Compared, Left, files_apart, runs_of
from jobs.queries.answers.lists import FINDINGS, LACKING_RULES, LISTS, NOT_JUDGED_RULES, Finding, finding_of
from jobs.queries.answers.shared_instances import shared_instances
from jobs.queries.sql.sql_duckdb import DuckDb
from schemas.tables.bronze import COVERAGE
from schemas.tables.declare import Table
from schemas.tables.gold import LOG_ANOMALIES, REBALANCES
from schemas.tables.silver import GROUP_GENERATIONS
from schemas.tables.state import CHECKPOINTS, Checkpoint

AGAIN_DAYS: Final = 30
"""How long ago a finding may have been that a new one repeats."""
KINDS_MAX: Final = 15
"""Lines of new findings."""
TEXT_CHARACTERS_MIN: Final = 37
"""Where commands leave less room in a line, they are without the options that all of them need."""
NAME_CHARACTERS_MAX: Final = 40
KIND_CHARACTERS: Final = max(map(len, FINDINGS))

Counts = Mapping[str, int]
NONE: Final[Counts] = MappingProxyType({})


class Found(NamedTuple):
    """A finding. Counts are by name, most first."""

    listing: Listing
    new: Counts = NONE
    guess_count: int = 0
    """The part of `new` that is only a guess: its names come last."""
    before: Counts = NONE
    """As `new`, and known before; of what happened, and does not last, only for the names in `new`."""
    over: Counts = NONE
    """Of what lasts: what was before, and is no longer."""
    since: datetime | None = None
    """Of what lasts: the earliest time."""

    @property
    def finding(self) -> Finding:
        return finding_of(self.listing)

    @property
    def again(self) -> list[str]:
        """Names that are in `new`, and were in it on an earlier night."""
        return [name for name in self.new if name in self.before]

    @property
    def lasting(self) -> Counts:
        """What was open before, and is."""
        return self.before if self.finding.lasts else {}

    @property
    def open(self) -> Counts:
        names = {*self.new, *self.lasting}
        return _most_first((name, self.new.get(name, 0) + self.lasting.get(name, 0)) for name in names)

    def text(self, counts: Counts) -> str:
        """Their sum in words."""
        return counted(sum(counts.values()), self.finding.one, self.finding.many)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found, worst first."""

    items: tuple[Found, ...] = ()
    missing_log_partitions: Counts
    """Coordinator topics, and how many of their log partitions are in no source."""
    foreign_writes: tuple[ForeignWrite, ...] = ()
    """The last foreign write to each table."""

    def new(self, listing: Listing) -> Counts:
        return next((it.new for it in self.items if it.listing is listing), {})

    def open(self, listing: Listing) -> Counts:
        """Of what lasts: all that is open, new or not."""
        return next((it.open for it in self.items if it.listing is listing), {})

    @property
    def lacks(self) -> str:
        """Why not everything is there, in words; empty: nothing is known to be missing."""
        parts = [
            it.text(it.open)
            for it in self.items
            if it.listing in (Listing.HOLES, Listing.QUARANTINE, Listing.NOT_JUDGED)
        ]
        missing = sum(self.missing_log_partitions.values())
        parts += [f"{counted(missing, 'log partition')} in no source"] if missing else []
        foreign = len(self.foreign_writes)
        parts += [f"{counted(foreign, 'table')} changed by another program"] if foreign else []
        return ", ".join(parts)

    @property
    def summary(self) -> str:
        """All of it in one line, without names."""
        new = ", ".join(it.text(it.new) for it in self.items if it.new)
        lasting = ", ".join(it.text(it.lasting) for it in self.items if it.lasting)
        over = ", ".join(it.text(it.over) for it in self.items if it.over)
        parts = [f"NEW: {new}" if new else NOTHING_NEW, f"STILL OPEN: {lasting}" if lasting else ""]
        return "; ".join(filter(None, [*parts, f"OVER: {over}" if over else ""]))

    def as_json(self) -> dict[str, Any]:
        """As one JSON object with stable names."""

        def by_kind(of: Callable[[Found], Counts]) -> dict[str, Any]:
            return {it.listing.value: dict(of(it)) for it in self.items if of(it)}

        return {
            "summary": self.summary,
            "new": by_kind(lambda it: it.new),
            "guesses": {it.listing.value: it.guess_count for it in self.items if it.guess_count},
            "again": {it.listing.value: it.again for it in self.items if it.again},
            "lasting": by_kind(lambda it: it.lasting),
            "over": by_kind(lambda it: it.over),
            "missing_log_partitions": dict(self.missing_log_partitions),
            "foreign_writes": {write.table: write.version for write in self.foreign_writes},
        }


NOTHING_NEW: Final = "Nothing new"
COUNTED_APART: Final = frozenset({Listing.INSTANCES, Listing.STARTS})
"""Findings that are no sum over rows."""


def findings(tables: ClusterTables, run_id: str | None = None) -> Findings:
    """What a run found; without one, all that the tables have."""
    return Findings(
        items=tuple(it for it in _Search(tables, run_id).found() if it.new or it.before or it.over),
        missing_log_partitions={
            topic: len(ends.missing) for topic, ends in log_ends(tables).items() if ends.ends and ends.missing
        },
        foreign_writes=tuple(written_by_others(tables)),
    )


class _Counts(NamedTuple):
    """What is counted: the rows of a list in a source that satisfy a condition."""

    listing: Listing
    source: str
    condition: str = "true"

    @property
    def query(self) -> str:
        """By name: how much the rows count for, what of it is a guess, and the earliest time."""
        it, finding = LISTS[self.listing], finding_of(self.listing)
        since = f'min(r."{it.time}")' if it.time else "NULL"
        return (
            f"SELECT '{self.listing}' AS listing, coalesce({finding.name}, '') AS name, "
            f"CAST(sum({finding.amount}) AS BIGINT) AS amount, "
            f"CAST(sum(CASE WHEN {finding.guess} THEN {finding.amount} ELSE 0 END) AS BIGINT) AS guesses, "
            f"CAST({since} AS TIMESTAMPTZ) AS since "
            f"FROM {self.source} AS r WHERE ({it.where}) AND {self.condition} GROUP BY ALL HAVING amount > 0"
        )


def sum_line(ledger: DuckDb, listing: Listing, condition: str, values: Sequence[Any], width: int) -> str:
    """What the rows of a list count for that satisfy a condition, and whose they are, as a night says it; empty: there
    are none."""
    rows = list(ledger.rows_of(_Counts(listing, LISTS[listing].table.full_name, condition).query, *values))
    counts = _surest_first(rows)
    return _fitted(_said(Found(listing, counts, sum(row["guesses"] for row in rows))), counts, width) if counts else ""


Rows = Mapping[Listing, Sequence[Mapping[str, Any]]]


class _Search:
    """Looks for what a run found."""

    def __init__(self, tables: ClusterTables, run_id: str | None) -> None:
        self._tables = tables
        self._ledger = DuckDb(tables.warehouse, cluster_id=tables.cluster_id, has_all=True)
        runs = [] if run_id is None else runs_of(tables, REBALANCES)
        # a night with nothing to audit has no row: what the last audit left was there before
        earlier = [run for run in runs if run.run_id != run_id]
        self._now: Left | None = runs[-1] if runs else None
        self._before: Left | None = earlier[-1] if earlier else None
        self._names: dict[Table, tuple[str, str] | None] = {}

    def found(self) -> Iterator[Found]:
        """Of each finding, in their order."""
        asked = FINDINGS.keys() - COUNTED_APART
        new = self._rows(map(self._new, asked))
        lasting = {listing for listing in asked if FINDINGS[listing].lasts}
        over, whole = self._rows(()), new
        if self._before is not None:
            over = self._rows(
                _Counts(listing, then, _without(listing, now))
                for listing in lasting
                if (sides := self._sides(LISTS[listing].table)) is not None
                for now, then in (sides,)
            )
            whole = self._rows(
                _Counts(listing, LISTS[listing].table.full_name, _before(listing, new[listing]))
                for listing in asked
                if new[listing] or listing in lasting
            )
        for listing, finding in FINDINGS.items():
            if listing is Listing.INSTANCES:
                since_ms = 0 if self._before is None else epoch_ms(self._before.started_at)
                wars = shared_instances(WholeRun.newest(self._tables), since_ms)
                yield Found(listing, {f"{it.group_id} ({it.instance_id})": it.replaced_count for it in wars})
            elif listing is Listing.STARTS:
                starts = dict.fromkeys(_start_moved(self._tables), 1)
                yield Found(listing, before=starts) if self._before else Found(listing, starts)
            else:
                counts = {row["name"]: row["amount"] for row in new[listing]}
                left = ((row["name"], row["amount"] - counts.get(row["name"], 0)) for row in whole[listing])
                before = (it for it in left if it[1] > 0 and (finding.lasts or it[0] in counts))
                times = (row["since"] for row in whole[listing] if finding.lasts and row["since"] is not None)
                yield Found(
                    listing,
                    _surest_first(new[listing]),
                    sum(row["guesses"] for row in new[listing]),
                    _most_first(before),
                    _most_first((row["name"], row["amount"]) for row in over[listing]),
                    min(times, default=None),
                )

    def _new(self, listing: Listing) -> _Counts:
        """What is new of a list."""
        table = LISTS[listing].table
        if self._before is None:
            return _Counts(listing, table.full_name)
        sides = self._sides(table)
        if sides is None:
            return _Counts(listing, table.full_name, self._is_later(listing))
        now, then = sides
        return _Counts(listing, now, _without(listing, then))

    def _rows(self, counted_rows: Iterable[_Counts]) -> Rows:
        """Counts by list, in one statement."""
        found: dict[Listing, list[Mapping[str, Any]]] = defaultdict(list)
        queries = [it.query for it in counted_rows]
        for row in self._ledger.rows_of(" UNION ALL ".join(queries)) if queries else ():
            found[Listing(row["listing"])].append(row)
        return found

    def _sides(self, table: Table) -> tuple[str, str] | None:
        """Names of the files that only this and only the former state of a table has; None where that one is gone."""
        if table.layer != "gold":
            return None
        if table not in self._names:
            assert self._now is not None
            now, then = names = f"now_{len(self._names)}", f"then_{len(self._names)}"
            try:
                after, before = files_apart(self._tables, Compared(table, self._now, self._before))
            except JobError:  # maintain deleted that version
                self._names[table] = None
                return None
            self._ledger.register(now, after, arrow_schema(table))
            self._ledger.register(then, before, arrow_schema(table))
            self._names[table] = names
        return self._names[table]

    def _is_later(self, listing: Listing) -> str:
        """A condition on rows: seen since the run before began; of leaders' epochs, behind what it had replayed."""
        assert self._before is not None
        time = LISTS[listing].time
        if time:
            return f"""r."{time}" > TIMESTAMPTZ '{self._before.started_at.isoformat()}'"""
        runs = [run for run in runs_of(self._tables, GROUP_GENERATIONS) if run.started_at <= self._before.started_at]
        version = runs[-1].versions.get(CHECKPOINTS.full_name) if runs else None
        if version is None or not self._tables.warehouse.has_version(CHECKPOINTS, version):
            return "false"
        columns = ["log_topic", "log_partition", "next_offset"]
        try:
            rows = self._tables.read(CHECKPOINTS, columns, version=version, kind=Checkpoint.WATERMARK)
        except TableDamaged:  # an earlier version, which no job makes again
            return "false"
        self._ledger.register_rows("then_ends", rows)
        ends = "SELECT max(e.next_offset) FROM then_ends AS e WHERE e.log_topic = r.topic"
        return f"r.from_offset >= coalesce(({ends} AND e.log_partition = r.partition), 0)"


def _before(listing: Listing, new: Sequence[Mapping[str, Any]]) -> str:
    """A condition on rows: what happens, and does not last, in AGAIN_DAYS before the first new row, or later. So a
    night does not read all days of gold."""
    first = min((row["since"] for row in new if row["since"] is not None), default=None)
    if first is None or FINDINGS[listing].lasts or LISTS[listing].table.layer != "gold":
        return "true"
    return f"coalesce(r.day >= DATE '{first.date()}' - {AGAIN_DAYS}, true)"


def _without(listing: Listing, source: str) -> str:
    """A condition on a row: none of the list in a source has its key."""
    it = LISTS[listing]
    same = " AND ".join(f'r."{name}" IS NOT DISTINCT FROM f."{name}"' for name in it.table.key)
    return f"NOT EXISTS (SELECT 1 FROM (SELECT * FROM {source} AS r WHERE {it.where}) AS f WHERE {same})"


def _surest_first(rows: Sequence[Mapping[str, Any]]) -> Counts:
    """The amounts of rows of `_Counts`, those with the most that is no guess first."""
    in_order = sorted(rows, key=lambda it: (it["guesses"] - it["amount"], -it["amount"], it["name"]))
    return {row["name"]: row["amount"] for row in in_order}


def _most_first(pairs: Iterable[tuple[str, int]]) -> Counts:
    return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def audit_lacks(tables: ClusterTables) -> tuple[str, ...]:
    """What the newest audit lacked: log partitions that it could not judge, and inputs that it could not read."""
    columns = ["rule", "log_topic", "log_partition", "details"]
    rows = WholeAudit.newest(tables).read(LOG_ANOMALIES, columns)
    found = rows.filter(pc.is_in(rows["rule"], value_set=pa.array(LACKING_RULES))).to_pylist()
    names = (
        str(row["details"]).partition(":")[0]
        if row["rule"] == INPUT_NOT_READ
        else f"{row['log_topic']}-{row['log_partition']}"
        for row in found
    )
    return tuple(sorted(set(names)))


def groups_not_judged(tables: ClusterTables) -> tuple[str, ...]:
    """Groups that the newest audit could not judge, including those of which silver lacks something."""
    rows = WholeAudit.newest(tables).read(LOG_ANOMALIES, ["rule", "group_id"])
    found = rows.filter(pc.is_in(rows["rule"], value_set=pa.array(NOT_JUDGED_RULES)))
    return tuple(sorted(set(found["group_id"].to_pylist())))


def _start_moved(tables: ClusterTables) -> Counts:
    """Log partitions of which the next leader will not load all that was captured, and their log start offsets."""
    starts = {
        (topic, partition): max(lineage.log_starts)
        for (topic, partition), lineage in read_lineages(tables).items()
        if lineage.log_starts
        and max(lineage.log_starts) > max((it.log_start_offset for it in lineage.loads), default=0)
    }
    if not starts:
        return {}
    captured = tables.read(COVERAGE, ["topic", "partition", "kind", "from_offset"]).to_pylist()
    return {
        f"{topic}-{partition}": start
        for (topic, partition), start in sorted(starts.items())
        if any(
            (row["topic"], row["partition"], row["kind"]) == (topic, partition, "CAPTURED")
            and row["from_offset"] < start
            for row in captured
        )
    }


def lines(
    found: Findings,
    place: str = "",
    attention: Sequence[str] = (),
    gone: Sequence[str] = (),
    width: int = LINE_CHARACTERS_MAX,
) -> Iterator[str]:
    """What is new, what got worse, what is still open and what is over, in lines of a width.

    `place`: the options that end every command, such as `--warehouse`; where lines have no room for them, the last one
    says them. `attention`: the groups that need it, since tonight or longer, worst first; `gone`: those that would, and
    were deleted.
    """
    new = [it for it in found.items if it.new]
    words = [f"audit --list {it.listing}" for it in new[:KINDS_MAX]]
    room = width - KIND_CHARACTERS - 6
    is_short = room - max(map(len, map(command, words)), default=0) - len(place) >= TEXT_CHARACTERS_MIN
    end = place if is_short else ""
    commands = [command(it + end) for it in words]
    room -= max(map(len, commands), default=0)
    needing = counted(len(attention), "group needs attention", "groups need attention")
    if gone:
        names = f"{_short(gone[0])} and {len(gone) - 1:,} more are" if len(gone) > 1 else f"{_short(gone[0])} is"
        needing += f", {names} gone"
    if attention:
        groups = f"  {command('groups --needs-attention' + end)}"
        yield _fitted(needing, dict.fromkeys(attention, 1), width - len(groups)) + groups
    yield "NEW tonight" if new else f"{NOTHING_NEW} tonight"
    for it, text in zip(new, commands, strict=False):
        yield f"  {it.listing:<{KIND_CHARACTERS}}  {_fitted(_said(it), it.new, room):<{room}}  {text}"
    if len(new) > KINDS_MAX:
        yield cut("  and " + ", ".join(it.text(it.new) for it in new[KINDS_MAX:]), width)
    again = [it for it in new if it.again]
    if again:
        kinds = (f"{it.listing} {', '.join(map(_short, it.again))}" for it in again)
        yield cut(f"WORSE, as on an earlier night: {'; '.join(kinds)}", width)
    lasting = [it for it in found.items if it.lasting]
    if lasting:
        kinds = (it.text(it.lasting) + (f" (since {it.since:%Y-%m-%d})" if it.since else "") for it in lasting)
        yield cut(f"STILL OPEN since before tonight: {', '.join(kinds)}", width)
    over = [it for it in found.items if it.over]
    if over:
        yield cut(f"OVER: {', '.join(_fitted(it.text(it.over), it.over, width) for it in over)}", width)
    if not is_short and (new or attention):
        yield f"Each command needs{place}"


def _said(it: Found) -> str:
    perhaps = it.guess_count
    sure = sum(it.new.values()) - perhaps
    return it.text(it.new) + (f" ({sure:,} surely, {perhaps:,} perhaps)" if perhaps else "")


def _fitted(text: str, counts: Counts, room: int) -> str:
    """With as many names as there is room for."""
    names = [_short(name) + (f" ({count:,})" if count > 1 else "") for name, count in counts.items()]
    for shown in range(len(names), 0, -1):
        left = len(names) - shown
        whole = f"{text}: {', '.join(names[:shown])}" + (f" and {left:,} more" if left else "")
        if len(whole) <= room:
            return whole
    return cut(text, room)


def _short(name: str) -> str:
    return short(name, NAME_CHARACTERS_MAX)
