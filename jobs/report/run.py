"""The job: read, draw, write one file."""

import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from coordinator_core.text import counted, duration_text
from jobs.console.command_name import command
from jobs.console.output import printable, time_text
from jobs.console.progress import Steps, size_text
from jobs.console.sequence_diagram import svg
from jobs.delta.arrow_columns import epoch_ms_column
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.filesystems import filesystem_of, write_whole
from jobs.delta.pinned_versions import of_one_run
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError, JobError, NoSuchGroupError
from jobs.queries.answers.audit_report import Hole, completeness
from jobs.queries.answers.group_diagram import worst_of
from jobs.queries.answers.group_verdicts import OK, GroupVerdict, group_verdicts, newest_record_ms
from jobs.queries.as_of.as_of import SHARES_LOG
from jobs.queries.as_of.in_log import require_groups
from jobs.report.changes import Changes, Snapshot, changes, cluster_of, earlier, snapshot_of, text_of
from jobs.report.cluster import MEASURES, OVERVIEW_COLUMNS, GroupLine, coverage_picture, group_lines, overview, timeline
from jobs.report.groups import GroupFacts, group_pictures, read_groups, span_of
from jobs.report.index import CLUSTERS, cluster_line, index_page
from jobs.report.page import Attention, Page, Section, Tile, render
from jobs.report.pictures import Column, Kind, Listing, Picture
from jobs.report.reader import LOGS, Limits, Reader
from jobs.report.shares import ShareGroupFacts, read_share_groups, share_pictures
from jobs.report.sql_text import Scope
from jobs.settings import CLUSTER_PLACE, Settings, first_night, place_options, report_path
from schemas.tables.gold import REBALANCES

BYTES_MAX: Final = 8_000_000
DIAGRAM_CHARACTERS_MAX: Final = 100_000
"""Of a diagram in the page: one of twelve members has a quarter of it."""
ATTENTION_MAX: Final = 12
"""Maximum number of groups on the first screen, and for each change."""
CHANGES: Final = (
    ("worse", "a more severe verdict, or one by another rule"),
    ("new", "groups that were not in the log"),
    ("gone", "groups that are not in the log any more"),
    ("better", "a less severe verdict, or fewer rules"),
)
DIRECTORY_COLUMNS: Final = (
    Column("group_id", Kind.TEXT),
    Column("type", Kind.TEXT),
    Column("verdict", Kind.TEXT),
    Column("why", Kind.TEXT),
    Column("since", Kind.TIME),
    Column("state", Kind.TEXT),
    Column("lag", Kind.NUMBER),
    *(it for it in OVERVIEW_COLUMNS if it.name in MEASURES),
)
NOT_THERE: Final = "GONE"
"""Replaces a verdict: the group is no longer in the log."""
OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})
"""Stores in which a file appears atomically when it is closed."""


class Written(NamedTuple):
    size_bytes: int
    group_count: int
    drawn_count: int
    """Number of groups with their own pictures."""


def write_report(
    warehouse: Warehouse,
    settings: Settings,
    *,
    output: str,
    made_at: datetime,
    steps: Steps,
    scope: Scope | None = None,
    previous: str | None = None,
) -> None:
    """As `run_report`, and print what was written."""
    output = report_path(output, settings.cluster_id)
    with steps.step("report"):
        written = run_report(
            warehouse,
            scope or Scope(settings.cluster_id),
            output=output,
            made_at=made_at,
            options=place_options(settings.warehouse, settings.cluster_id),
            previous=previous,
        )
    steps.facts["report"] = {"output": output, **written._asdict()}
    drawn = f"{written.drawn_count:,} of {counted(written.group_count, 'group')} in detail"
    steps.say(f"{output}: {size_text(written.size_bytes)}, {drawn}: open it in a browser")


def run_report(
    warehouse: Warehouse,
    scope: Scope,
    *,
    output: str,
    made_at: datetime,
    options: Sequence[str] = (),
    previous: str | None = None,
) -> Written:
    """Write the report of a cluster, or of some of its groups, to a file or URI.

    `made_at`: the time shown on the page; `options`: added to commands on the page; `previous`: the report to compare
    with, by default the one that is replaced. Raises JobError where there is no gold, or where the file cannot be
    written or is the report of another cluster; NoSuchGroupError for an unknown group.
    """
    cluster_id, replaced = scope.cluster_id, cluster_of(output)
    if replaced not in (None, cluster_id):
        raise JobError(
            f"{output} is the report of cluster {printable(replaced or '')}, and is not replaced by one of "
            f"{printable(cluster_id)}: name another file with --output, or one with {CLUSTER_PLACE} in its name"
        )
    if previous is not None and cluster_of(previous) != cluster_id:
        raise ArgumentError(
            f"{previous} is no report of cluster {printable(cluster_id)} to compare with: name one that this job "
            "wrote with --previous, or leave it out"
        )
    text, written = make_report(
        warehouse, scope, made_at=made_at, options=options, previous=output if previous is None else previous
    )
    _write(output, text.encode())
    return written


def write_index(warehouse: Warehouse, settings: Settings, exit_codes: Mapping[str, int], *, made_at: datetime) -> str:
    """Write the index of the clusters' reports in one folder; returns its path. `exit_codes`: of their nights.

    Raises JobError where it cannot be written.
    """
    index = report_path(settings.report_file, CLUSTERS)
    lines = []
    for cluster_id, exit_code in exit_codes.items():
        file = report_path(settings.report_file, cluster_id)
        # links are relative to the page, and the file name may contain %
        report = quote(posixpath.relpath(file, posixpath.dirname(index)))
        lines.append(
            cluster_line(
                ClusterTables(warehouse, cluster_id), exit_code, report if cluster_of(file) == cluster_id else ""
            )
        )
    _write(index, index_page(lines, time_text(epoch_ms(made_at)) or "").encode())
    return index


def make_report(
    warehouse: Warehouse,
    scope: Scope,
    *,
    made_at: datetime,
    options: Sequence[str] = (),
    limits: Limits | None = None,
    previous: str | None = None,
) -> tuple[str, Written]:
    """The page's text, with less detail if it would be too large.

    `previous`: where the report to compare with may be.
    """
    if not warehouse.exists(REBALANCES):
        raise JobError(
            f"no gold in {warehouse.root}: run "
            f"{command(first_night(warehouse.root, scope.cluster_id))} (or replay and audit) first"
        )
    limits = limits or Limits()
    tables = ClusterTables(warehouse, scope.cluster_id)
    known = _read(tables, scope, limits, time_text(epoch_ms(made_at)) or "", previous)
    while True:
        text, written = _make(known, made_at, options, limits)
        if written.size_bytes <= BYTES_MAX or limits.row_count == 1:
            return text, written
        limits = limits.lowered()


class _Facts(NamedTuple):
    """The facts for the page, with the maximum detail that may fit."""

    scope: Scope
    coverage: pa.Table
    holes: list[Hole]
    lines: list[GroupLine]
    statements: list[tuple[str, str, tuple[str, ...]]]
    groups: list[GroupFacts]
    diagrams: dict[str, str]
    """Group -> the conversation of its worst rebalance, as SVG."""
    share_groups: list[ShareGroupFacts]
    timeline: Picture
    verdicts: dict[str, GroupVerdict]
    """Groups that are still in the log, the worst first; empty where the report is about a past time."""
    snapshot: Snapshot
    before: Snapshot | None
    changes: Changes | None


@of_one_run
def _read(tables: ClusterTables, scope: Scope, limits: Limits, made_at: str, previous: str | None) -> _Facts:
    reader = Reader(tables.warehouse, scope)
    coverage = reader.coverage()
    lines = group_lines(reader, coverage)
    if scope.group_ids is not None:
        missing = sorted(set(scope.group_ids) - {line.group_id for line in lines})
        if missing:
            require_groups(reader.tables, missing)
            raise NoSuchGroupError(f"nothing is known of: {', '.join(printable(name)[:100] for name in missing)}")
    groups = [line for line in lines if not line.is_share]
    share_groups = sorted(
        (line for line in lines if line.is_share), key=lambda it: (-it.archived, -it.redelivered, it.group_id)
    )
    newest_ms = newest_record_ms(reader.tables)
    # a report about a past time says nothing about today, and is not compared
    of_now = group_verdicts(reader.tables) if scope.to_ms is None or scope.to_ms > newest_ms else []
    snapshot = snapshot_of(scope.cluster_id, made_at, newest_ms, of_now)
    before = earlier(previous, snapshot) if previous and of_now else None
    holes = reader.holes()
    return _Facts(
        scope,
        coverage,
        holes,
        lines,
        _statements(reader, coverage, has_share_groups=bool(share_groups)),
        read_groups(reader, groups[: limits.group_count], limits),
        dict(_diagrams(reader.tables, scope, groups[: limits.group_count])),
        read_share_groups(reader, share_groups[: limits.share_group_count], limits),
        timeline(reader, _window(coverage, scope), holes),
        {it.group_id: it for it in of_now if scope.group_ids is None or it.group_id in scope.group_ids},
        snapshot,
        before,
        None if before is None else changes(before, snapshot),
    )


def _diagrams(tables: ClusterTables, scope: Scope, lines: Sequence[GroupLine]) -> Iterator[tuple[str, str]]:
    for line in lines:
        said = worst_of(tables, line.group_id, scope.from_ms, scope.to_ms)
        if said is not None and len(drawn := svg(said)) <= DIAGRAM_CHARACTERS_MAX:
            yield line.group_id, drawn


def _make(known: _Facts, made_at: datetime, options: Sequence[str], limits: Limits) -> tuple[str, Written]:
    scope, coverage, holes, lines, statements, *_ = known
    window = _window(coverage, scope)
    groups, share_groups = known.groups[: limits.group_count], known.share_groups[: limits.share_group_count]
    pictures = group_pictures(groups, holes, limits) | share_pictures(share_groups, holes, limits)
    drawn: list[GroupFacts | ShareGroupFacts] = [*groups, *share_groups]
    drawn = [it for it in drawn if pictures.get(it.line.group_id)]
    sections = [
        Section(
            f"group-{index}",
            it.line.group_id,
            it.line.group_type or "",
            _group_tiles(it.line),
            tuple(pictures[it.line.group_id]),
            known.diagrams.get(it.line.group_id, ""),
        )
        for index, it in enumerate(drawn, 1)
    ]
    of_cluster = [known.timeline] if known.timeline.has_rows else []
    if len(lines) > 1:  # with a single group there is nothing to compare
        lags = {name: it.lag for name, it in known.verdicts.items() if it.lag is not None}
        of_cluster.append(overview(lines, scope, limits, lags))
    page = Page(
        cluster_id=scope.cluster_id,
        interval=f"{time_text(window[0])} to {time_text(window[1])}",
        made_at=time_text(epoch_ms(made_at)) or "",
        statements=tuple(statements),
        attention=tuple(_attention(known)[:ATTENTION_MAX]),
        attention_count=sum(it.verdict != OK for it in known.verdicts.values()),
        attention_until=time_text(known.snapshot.newest_ms) or "" if known.snapshot.groups else "",
        changes=tuple(_changes(known)),
        compared_with="" if known.before is None else known.before.made_at,
        group_count=len(lines),
        tiles=_tiles(lines, len(holes)),
        pictures=(*of_cluster, coverage_picture(coverage, holes, scope, limits)),
        sections=tuple(sections),
        options=" ".join(map(shlex.quote, options)),
    )
    facts: dict[str, Any] = {
        "from": window[0],
        "to": window[1],
        "spans": {f"group-{index}": span_of(it.times, window) for index, it in enumerate(drawn, 1)},
        "directory": _directory(known, limits).json(),
        "command": _command(scope, options),
    }
    text = render(page, facts, text_of(known.snapshot, known.before))
    return text, Written(len(text.encode()), len(lines), len(sections))


def _attention(known: _Facts) -> list[Attention]:
    """Groups that need attention, the worst first, and since when, which the last report may know better."""
    since_ms = {} if known.changes is None else known.changes.since_ms
    return [
        Attention(it.group_id, it.verdict, it.why, time_text(since_ms.get(it.group_id, it.since_ms)) or "")
        for it in known.verdicts.values()
        if it.verdict != OK
    ]


def _changes(known: _Facts) -> Iterator[tuple[str, str, tuple[str, ...], int]]:
    if known.changes is None:
        return
    asked = known.scope.group_ids
    for name, words in CHANGES:
        found = [it for it in getattr(known.changes, name) if asked is None or it in asked]
        yield name, words, tuple(found[:ATTENTION_MAX]), len(found)


def _directory(known: _Facts, limits: Limits) -> Listing:
    """A searchable list of all groups by name, type and verdict: the worst first."""
    since_ms = {} if known.changes is None else known.changes.since_ms
    rows: list[tuple[Any, ...]] = []
    for line in known.lines:
        now = known.verdicts.get(line.group_id)
        verdict, why, since, state, lag = (NOT_THERE if known.verdicts else None, None, None, None, None)
        if now is not None:
            verdict, why, state, lag = now.verdict, now.why or None, now.state, now.lag
            since = since_ms.get(line.group_id, now.since_ms)
        counts = (getattr(line, name) for name in MEASURES)
        rows.append((line.group_id, line.group_type, verdict, why, since, state, lag, *counts))
    order = {name: place for place, name in enumerate(known.verdicts)}
    rows.sort(key=lambda row: order.get(row[0], len(order)))
    return Listing("All groups", DIRECTORY_COLUMNS, rows[: limits.directory_count], len(rows), "")


def _statements(
    reader: Reader, coverage: pa.Table, *, has_share_groups: bool
) -> list[tuple[str, str, tuple[str, ...]]]:
    found: list[tuple[str, str, tuple[str, ...]]] = []
    for log in LOGS:
        if log == SHARES_LOG and not has_share_groups and log not in coverage["topic"].unique().to_pylist():
            found.append(("none", f"{log} was not read: no share group is known here", ()))
            continue
        if log == SHARES_LOG and not has_share_groups and reader.scope.group_ids is not None:
            continue
        answer = completeness(reader.tables, log, reader.span, reader.scope.group_ids)
        found.append(("whole" if answer.is_complete else "open", answer.statements[0], answer.statements[1:]))
    return found


def _window(coverage: pa.Table, scope: Scope) -> tuple[int, int]:
    """The time span of the report: as requested, else from the first to the last record."""
    times = [epoch_ms_column(coverage[name]) for name in ("first_timestamp", "last_timestamp")]
    known = [column[column >= 0] for column in times]
    first = int(known[0].min()) if len(known[0]) else 0
    last = int(known[1].max()) + 1 if len(known[1]) else first + 1
    return first if scope.from_ms is None else scope.from_ms, last if scope.to_ms is None else scope.to_ms


def _tiles(lines: Sequence[GroupLine], hole_count: int) -> tuple[Tile, ...]:
    given_up = sum(line.archived for line in lines)
    return (
        Tile("groups", f"{len(lines):,}", f"{sum(line.is_share for line in lines):,} of them share groups"),
        Tile("rebalances", f"{sum(line.rebalances for line in lines):,}"),
        Tile("partition time unowned", duration_text(sum(line.unowned_ms for line in lines)), "summed over partitions"),
        Tile("commits that went back", f"{sum(line.rewinds for line in lines):,}"),
        _redelivered(sum(line.redelivered for line in lines), sum(line.extra_deliveries for line in lines)),
        Tile("records given up", f"{given_up:,}", is_bad=given_up > 0),
        _moved(sum(line.offset_changes for line in lines)),
        Tile("holes in coverage", f"{hole_count:,}", is_bad=hole_count > 0),
    )


def _moved(count: int) -> Tile:
    return Tile("share offsets reset or deleted", f"{count:,}", is_bad=count > 0)


def _redelivered(record_count: int, extra_count: int) -> Tile:
    return Tile(
        "records redelivered",
        f"{record_count:,}",
        counted(extra_count, "delivery beyond the first", "deliveries beyond the first"),
    )


def _group_tiles(line: GroupLine) -> tuple[Tile, ...]:
    tiles = [Tile("rebalances", f"{line.rebalances:,}")]
    if line.is_share:
        tiles.append(_redelivered(line.redelivered, line.extra_deliveries))
        tiles.append(Tile("records given up", f"{line.archived:,}", is_bad=line.archived > 0))
        tiles.append(_moved(line.offset_changes))
    else:
        tiles.append(Tile("partition time unowned", duration_text(line.unowned_ms)))
        tiles.append(Tile("commits that went back", f"{line.rewinds:,}", is_bad=line.rewinds > 0))
    tiles.append(Tile("holes in its log", f"{line.holes:,}", is_bad=line.holes > 0))
    return tuple(tiles)


def _command(scope: Scope, options: Sequence[str]) -> tuple[str, str]:
    """The command for the report of one group: the part before its id, and the part after."""
    words = list(options)
    for name, at_ms in (("--from", scope.from_ms), ("--to", scope.to_ms)):
        if at_ms is not None:
            words += [name, time_text(at_ms) or ""]
    group = "GROUP"
    whole = command(f"report --output report-of-group.html --group {group}")
    return whole.removesuffix(group), "".join(f" {shlex.quote(word)}" for word in words)


def _write(output: str, data: bytes) -> None:
    """Write the file atomically: concurrent readers see the former content."""
    try:
        if "://" in output:
            _write_to_uri(*filesystem_of(output), data)
        else:
            write_whole(Path(output).expanduser(), data)
    except OSError as error:
        why = error.strerror or error
        raise ArgumentError(
            f"the report cannot be written to {output}: {why}: name another place with --output"
        ) from error


def _write_to_uri(filesystem: fs.FileSystem, path: str, data: bytes) -> None:
    if filesystem.type_name in OBJECT_STORES:
        with filesystem.open_output_stream(path) as out:
            out.write(data)
        return
    folder, _, name = path.rpartition("/")
    unfinished = f"{folder}/.{name}.unfinished"
    with filesystem.open_output_stream(unfinished) as out:
        out.write(data)
    try:
        filesystem.move(unfinished, path)
    except OSError:  # HDFS does not rename over an existing file
        filesystem.delete_file(path)
        filesystem.move(unfinished, path)
