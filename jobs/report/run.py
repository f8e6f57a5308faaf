"""The job: read, draw, write one file."""

import shlex
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from jobs.console.command_name import command
from jobs.console.output import printable, time_text
from jobs.console.progress import Steps, size_text
from jobs.delta.arrow_columns import epoch_ms_column
from jobs.delta.filesystems import filesystem_of, write_whole
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import Warehouse
from jobs.errors import JobError, NoSuchGroupError
from jobs.queries.audit_report import Hole, Span, completeness
from jobs.report.cluster import GroupLine, coverage_picture, group_lines, overview
from jobs.report.groups import GroupFacts, group_pictures, read_groups
from jobs.report.page import Page, Section, Tile, render
from jobs.report.reader import LOGS, Limits, Reader
from jobs.report.shares import ShareGroupFacts, read_share_groups, share_pictures
from jobs.report.sql_text import Scope
from jobs.settings import Settings, first_night, options_of
from schemas.tables.gold import REBALANCES

BYTES_MAX: Final = 10_000_000
LEFT_OUT_MAX: Final = 200
OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})
"""Where a file is there as soon as it is closed, and not before."""


class Written(NamedTuple):
    """What a report holds."""

    size_bytes: int
    group_count: int
    """Of all groups."""
    drawn_count: int
    """Groups with pictures of their own."""


def tell_report(
    warehouse: Warehouse,
    settings: Settings,
    *,
    output: str,
    made_at: datetime,
    steps: Steps,
    group_ids: Collection[str] | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> None:
    """As `run_report`, and say what was written."""
    with steps.step("report"):
        written = run_report(
            warehouse,
            settings.cluster_id,
            output=output,
            made_at=made_at,
            group_ids=group_ids,
            from_ms=from_ms,
            to_ms=to_ms,
            options=options_of(settings),
        )
    steps.facts["report"] = {"output": output, **written._asdict()}
    drawn = f"{written.drawn_count:,} of {written.group_count:,} groups in detail"
    steps.say(f"{output}: {size_text(written.size_bytes)}, {drawn}: open it in a browser")


def run_report(
    warehouse: Warehouse,
    cluster_id: str,
    *,
    output: str,
    made_at: datetime,
    group_ids: Collection[str] | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    options: Sequence[str] = (),
) -> Written:
    """Write the report of a cluster, or of some of its groups, to a file or URI.

    `made_at` is what the page says of its making; `options` go with the commands that the page names. Raises JobError
    where there is no gold, or the file cannot be written; NoSuchGroupError where an asked group is not known.
    """
    scope = Scope(cluster_id, None if group_ids is None else tuple(sorted(set(group_ids))), from_ms, to_ms)
    text, written = make_report(warehouse, scope, made_at=made_at, options=options)
    _write(output, text.encode())
    return written


def make_report(
    warehouse: Warehouse, scope: Scope, *, made_at: datetime, options: Sequence[str] = (), limits: Limits | None = None
) -> tuple[str, Written]:
    """The page's text: with less detail where it would be too large."""
    if not warehouse.exists(REBALANCES):
        raise JobError(
            f"no gold in {warehouse.root}: run "
            f"{command(first_night(warehouse.root, scope.cluster_id))} (or replay and audit) first"
        )
    limits = limits or Limits()
    known = _read(warehouse, scope, limits)
    while True:
        text, written = _make(known, made_at, options, limits)
        if written.size_bytes <= BYTES_MAX or limits.row_count == 1:
            return text, written
        limits = limits.lowered()


class _Facts(NamedTuple):
    """All that there is to tell, with the most detail that a page could have room for."""

    scope: Scope
    coverage: pa.Table
    holes: list[Hole]
    lines: list[GroupLine]
    statements: list[tuple[bool, str, tuple[str, ...]]]
    groups: list[GroupFacts]
    share_groups: list[ShareGroupFacts]


def _read(warehouse: Warehouse, scope: Scope, limits: Limits) -> _Facts:
    reader = Reader(warehouse, scope)
    coverage = reader.coverage()
    lines = group_lines(reader, coverage)
    if scope.group_ids is not None:
        missing = sorted(set(scope.group_ids) - {line.group_id for line in lines})
        if missing:
            raise NoSuchGroupError(f"nothing is known of: {', '.join(printable(name)[:100] for name in missing)}")
    groups = [line for line in lines if not line.is_share]
    share_groups = sorted(
        (line for line in lines if line.is_share), key=lambda it: (-it.archived, -it.redelivered, it.group_id)
    )
    return _Facts(
        scope,
        coverage,
        reader.holes(),
        lines,
        _statements(warehouse, scope),
        read_groups(reader, groups[: limits.group_count], limits),
        read_share_groups(reader, share_groups[: limits.share_group_count], limits),
    )


def _make(known: _Facts, made_at: datetime, options: Sequence[str], limits: Limits) -> tuple[str, Written]:
    scope, coverage, holes, lines, statements, *_ = known
    window = _window(coverage, scope)
    groups, share_groups = known.groups[: limits.group_count], known.share_groups[: limits.share_group_count]
    pictures = group_pictures(groups, holes, limits) | share_pictures(share_groups, holes, limits)
    sections = [
        Section(f"group-{index}", line.group_id, line.group_type or "", _group_tiles(line), tuple(drawn))
        for index, line in enumerate([*(it.line for it in groups), *(it.line for it in share_groups)], 1)
        if (drawn := pictures.get(line.group_id))
    ]
    shown = {section.group_id for section in sections}
    left_out = [line.group_id for line in lines if line.group_id not in shown]
    page = Page(
        cluster_id=scope.cluster_id,
        stretch=_stretch(window),
        made_at=time_text(epoch_ms(made_at)) or "",
        statements=tuple(statements),
        tiles=_tiles(lines, len(holes)),
        pictures=(overview(lines, scope, limits), coverage_picture(coverage, holes, scope, limits)),
        sections=tuple(sections),
        left_out=tuple((name, _command(name, scope, options)) for name in left_out[:LEFT_OUT_MAX]),
        left_out_count=len(left_out),
        options=" ".join(map(shlex.quote, options)),
    )
    text = render(page, {"from": window[0], "to": window[1]})
    return text, Written(len(text.encode()), len(lines), len(sections))


def _statements(warehouse: Warehouse, scope: Scope) -> list[tuple[bool, str, tuple[str, ...]]]:
    told = [
        completeness(warehouse, scope.cluster_id, log, Span(scope.from_ms, scope.to_ms), scope.group_ids)
        for log in LOGS
    ]
    return [(it.is_complete, it.statements[0], it.statements[1:]) for it in told]


def _window(coverage: pa.Table, scope: Scope) -> tuple[int, int]:
    """The stretch of time of the report: as asked, else from the first record to the last one."""
    times = [epoch_ms_column(coverage[name]) for name in ("first_timestamp", "last_timestamp")]
    known = [column[column >= 0] for column in times]
    first = int(known[0].min()) if len(known[0]) else 0
    last = int(known[1].max()) + 1 if len(known[1]) else first + 1
    return first if scope.from_ms is None else scope.from_ms, last if scope.to_ms is None else scope.to_ms


def _stretch(window: tuple[int, int]) -> str:
    return f"{time_text(window[0])} to {time_text(window[1])}"


def _tiles(lines: Sequence[GroupLine], hole_count: int) -> tuple[Tile, ...]:
    given_up = sum(line.archived for line in lines)
    return (
        Tile("groups", f"{len(lines):,}", f"{sum(line.is_share for line in lines):,} of them share groups"),
        Tile("rebalances", f"{sum(line.rebalances for line in lines):,}"),
        Tile("partition time unowned", duration_text(sum(line.unowned_ms for line in lines)), "summed over partitions"),
        Tile("commits that went back", f"{sum(line.rewinds for line in lines):,}"),
        Tile("redeliveries", f"{sum(line.redelivered for line in lines):,}"),
        Tile("records given up", f"{given_up:,}", is_bad=given_up > 0),
        Tile("holes in coverage", f"{hole_count:,}", is_bad=hole_count > 0),
    )


def _group_tiles(line: GroupLine) -> tuple[Tile, ...]:
    tiles = [Tile("rebalances", f"{line.rebalances:,}")]
    if line.is_share:
        tiles.append(Tile("redeliveries", f"{line.redelivered:,}"))
        tiles.append(Tile("records given up", f"{line.archived:,}", is_bad=line.archived > 0))
    else:
        tiles.append(Tile("partition time unowned", duration_text(line.unowned_ms)))
        tiles.append(Tile("commits that went back", f"{line.rewinds:,}", is_bad=line.rewinds > 0))
    tiles.append(Tile("holes in its log", f"{line.holes:,}", is_bad=line.holes > 0))
    return tuple(tiles)


def duration_text(duration_ms: int) -> str:
    """For people: the two largest units."""
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.3g} s"
    seconds = round(duration_ms / 1000)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    parts: list[str] = []
    for size, unit in units:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count:,} {unit}")
    return " ".join(parts[:2])


def _command(group_id: str, scope: Scope, options: Sequence[str]) -> str:
    words = ["report", "--output", "report-of-group.html", "--group", group_id, *options]
    for name, at_ms in (("--from", scope.from_ms), ("--to", scope.to_ms)):
        if at_ms is not None:
            words += [name, time_text(at_ms) or ""]
    return command(" ".join(map(shlex.quote, words)))


def _write(output: str, data: bytes) -> None:
    """All of it or nothing: who opens the file meanwhile sees what was there before."""
    try:
        if "://" in output:
            _write_to_uri(*filesystem_of(output), data)
        else:
            write_whole(Path(output).expanduser(), data)
    except OSError as error:
        why = error.strerror or error
        raise JobError(f"the report cannot be written to {output}: {why}: name another place with --output") from error


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
    except OSError:  # HDFS does not rename onto a file that is there
        filesystem.delete_file(path)
        filesystem.move(unfinished, path)
