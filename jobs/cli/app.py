"""The command line: one command a job. Nothing heavy is imported before a job runs, so --help is quick.

Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 done but something was quarantined or is missing.
"""

import os
import secrets
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from jobs import PACKAGE, __version__
from jobs.cli.help_texts import ROOT_EPILOG, SUMMARIES, epilog
from jobs.cli_enums import DumpFormat, Format, Listing, Shell, SummaryFormat, Tool, View
from jobs.console.command_name import COMPLETE, ENTRY, command
from jobs.errors import JobError, SettingsError, is_no_space, no_space_text
from jobs.settings import Settings, first_night, load_settings, option_words, require_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.console.progress import Steps
    from jobs.delta.warehouse import Warehouse
    from jobs.operations.metrics import Metrics

DONE: Final = 0
FAILED: Final = 1
WRONG_ARGUMENTS: Final = 2
INCOMPLETE: Final = 3
INTERRUPTED: Final = 130

PARSE_ONLY: Final = "GROUPLEDGER_PARSE_ONLY"
"""Set by bootstrap.py, which reads the command line first without Spark: wrong arguments and --help need none."""
PARSED: Final = 64
"""Exit code then, when there is a job to run."""


class InOrder(TyperGroup):
    """Jobs in the order of the summaries: as one comes to need them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the jobs."""
        order = {name: index for index, name in enumerate(SUMMARIES)}
        return sorted(self.commands, key=lambda name: order.get(name, len(order)))


app = typer.Typer(
    cls=InOrder,
    name=ENTRY,
    help="Groupledger: the ledger of every Kafka group. Replays the logs of Kafka's coordinators into Delta tables.",
    epilog=ROOT_EPILOG,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


TIME_HELP: Final = "ISO 8601 (UTC), epoch ms, now, -2h, today or 'yesterday 03:12'."

WarehouseOption = Annotated[
    str | None, typer.Option("--warehouse", metavar="DIR", help="Folder or URI of the tables. [default: ./warehouse]")
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster-id", metavar="NAME", help="Name of the Kafka cluster. [default: kafka]")
]
SegmentsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--segments",
        metavar="URI",
        help="Folder that holds <topic>-<partition>/*.log; may be repeated. "
        "[default: the recording that comes with the project, if no --warehouse and no --cluster-id is named either]",
    ),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="A live cluster; several brokers of it separated by commas.",
    ),
]
CommandConfigOption = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="How to log in to it: the .properties file of a Java client, as it is.",
    ),
]
DumpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dump",
        metavar="URI",
        help="File, folder or Delta table of dumped records, or of what kafka-dump-log or a console formatter printed; "
        "may be repeated. Columns: [dump_columns] in the settings.",
    ),
]
DumpFormatOption = Annotated[
    DumpFormat | None, typer.Option("--dump-format", help="What the dumps are. [default: recognised]")
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Internal topic; may be repeated. [default: all]"),
]
PartitionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--partitions",
        metavar="TOPIC=COUNT",
        help="How many partitions an internal topic has, where no metadata log and no live cluster tells it; may be "
        "repeated.",
    ),
]
SummaryFormatOption = Annotated[
    SummaryFormat, typer.Option("--format", help="How it is told what was done; json: one object on stdout at the end.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="How rows are printed; json: one object a line.")]
AtOption = Annotated[str | None, typer.Option("--at", metavar="TIME", help=f"{TIME_HELP} [default: the newest]")]
TimezoneOption = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        metavar="ZONE",
        help="Of times without a zone, as Europe/Berlin. [default: the machine's for days and times of day, else UTC]",
    ),
]
GroupsOption = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="Group id; may be repeated. [default: all]")
]
FromOption = Annotated[str | None, typer.Option("--from", metavar="TIME", help=f"Only from then on: {TIME_HELP}")]
ToOption = Annotated[str | None, typer.Option("--to", metavar="TIME", help=f"Only until then: {TIME_HELP}")]
PayloadOption = Annotated[
    bool,
    typer.Option(
        "--payload", help="Each offset given up, with its record: in --segments of the source topics, or live."
    ),
]
ValuesOption = Annotated[bool, typer.Option("--values", help="With --payload: show the records' values too.")]
DeadLetterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dead-letter-topic",
        metavar="TOPIC",
        help="With --payload: look for copies there; may be repeated. [default: as the groups are configured]",
    ),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its id and its start, which every row it writes carries."""

    run_id: str
    started_at: datetime

    @classmethod
    def start(cls) -> "Run":
        """A new run, now."""
        started_at = datetime.now(UTC)
        return cls(f"{started_at:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}", started_at)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"groupledger {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="Show the version and end.")
    ] = False,
) -> None:
    """What may stand before the job's name."""


@app.command(short_help=SUMMARIES["nightly"], epilog=epilog("nightly"))
def nightly(
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    segments: SegmentsOption = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    dump: DumpOption = None,
    dump_format: DumpFormatOption = None,
    topic: TopicOption = None,
    partitions: PartitionsOption = None,
    report_file: Annotated[
        str | None,
        typer.Option("--report", metavar="FILE", help="Write the report, too: as the job report does without --group."),
    ] = None,
    output_format: SummaryFormatOption = SummaryFormat.TABLE,
    debug: DebugOption = False,
) -> None:
    """Capture from the sources, replay, audit; then say what was found and where to look.

    A run reads what is new since the last one. It ends with the ledger: every record that went in came out as
    something, or is in quarantine.
    """

    def job() -> int:
        settings = _settings(
            warehouse,
            cluster_id,
            segments,
            topic,
            bootstrap_server,
            command_config,
            dump,
            dump_format,
            report_file,
            partitions=partitions,
        )
        require_source(settings)
        _check_client(settings)
        session, tables, steps = open_session("nightly", settings, meanwhile=".operations.nightly")
        from jobs.operations.nightly import run_nightly  # noqa: PLC0415

        run = Run.start()
        code = run_nightly(
            session,
            tables,
            settings,
            run_id=run.run_id,
            started_at=run.started_at,
            steps=steps,
            metrics=_metrics(tables, settings, run, steps),
        )
        return _tell_facts("nightly", run, steps, code, output_format)

    _run(job, debug)


@app.command(short_help=SUMMARIES["capture"], epilog=epilog("capture"))
def capture(
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    segments: SegmentsOption = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    dump: DumpOption = None,
    dump_format: DumpFormatOption = None,
    topic: TopicOption = None,
    partitions: PartitionsOption = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="DURATION",
            help="Go on: take what is new of the live cluster every 10s, 1m, ..., until SIGTERM or Ctrl-C.",
        ),
    ] = None,
    continuous: Annotated[bool, typer.Option("--continuous", help="As --every 1s.")] = False,
    stop_after: Annotated[
        str | None, typer.Option("--stop-after", metavar="DURATION", help="With --every: end by itself after so long.")
    ] = None,
    output_format: SummaryFormatOption = SummaryFormat.TABLE,
    debug: DebugOption = False,
) -> None:
    """Read the sources and add to bronze what it lacks: once, or again and again."""

    def job() -> int:
        settings = _settings(
            warehouse,
            cluster_id,
            segments,
            topic,
            bootstrap_server,
            command_config,
            dump,
            dump_format,
            partitions=partitions,
        )
        every_ms, stop_after_ms = _every(every, continuous, stop_after, settings)
        require_source(settings)
        _check_client(settings)
        session, tables, steps = open_session("capture", settings, meanwhile=".operations.nightly")
        from jobs.operations.nightly import run_capture  # noqa: PLC0415

        run = Run.start()
        metrics = _metrics(tables, settings, run, steps)
        if every_ms is not None:
            from jobs.operations.continuous_capture import run_continuously  # noqa: PLC0415

            run_continuously(
                session,
                tables,
                settings,
                every_ms=every_ms,
                stop_after_ms=stop_after_ms,
                new_run=lambda: astuple(Run.start()),
                steps=steps,
                metrics=metrics,
            )
            return _tell_facts("capture", run, steps, DONE, output_format)
        code = run_capture(
            session,
            tables,
            settings,
            run_id=run.run_id,
            started_at=run.started_at,
            steps=steps,
            metrics=metrics,
        )
        return _tell_facts("capture", run, steps, code, output_format)

    _run(job, debug)


@app.command(short_help=SUMMARIES["replay"], epilog=epilog("replay"))
def replay(
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Replay all again, even if nothing is new.")] = False,
    output_format: SummaryFormatOption = SummaryFormat.TABLE,
    debug: DebugOption = False,
) -> None:
    """Replay bronze into the silver tables."""

    def job() -> int:
        settings = _settings(warehouse, cluster_id)
        session, tables, steps = open_session("replay", settings, meanwhile=".operations.nightly")
        from jobs.operations.nightly import run_replay  # noqa: PLC0415

        run = Run.start()
        code = run_replay(
            session,
            tables,
            settings,
            run_id=run.run_id,
            started_at=run.started_at,
            steps=steps,
            rebuild=rebuild,
            metrics=_metrics(tables, settings, run, steps),
        )
        return _tell_facts("replay", run, steps, code, output_format)

    _run(job, debug)


@app.command(short_help=SUMMARIES["audit"], epilog=epilog("audit"))
def audit(
    group: GroupsOption = None,
    from_time: FromOption = None,
    to_time: ToOption = None,
    timezone: TimezoneOption = None,
    listing: Annotated[Listing, typer.Option("--list", help="What is listed.")] = Listing.ARCHIVED,
    payload: PayloadOption = False,
    values: ValuesOption = False,
    segments: SegmentsOption = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    partitions: PartitionsOption = None,
    dead_letter_topic: DeadLetterOption = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make gold again, even if nothing is new.")] = False,
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """Make gold from silver, and list what was given up (or moved, reset ...): the first lines say if that is all."""

    def job() -> int:
        settings = _settings(
            warehouse,
            cluster_id,
            segments,
            bootstrap_servers=bootstrap_server,
            command_config=command_config,
            partitions=partitions,
        )
        from_ms, to_ms = _span(from_time, to_time, timezone)
        if payload:
            _check_client(settings)
        session, tables, steps = open_session("audit", settings, meanwhile=".gold.audit")
        from jobs.operations.nightly import run_audit  # noqa: PLC0415
        from jobs.queries.audit_report import Span, run_audit_report  # noqa: PLC0415

        run = Run.start()
        run_audit(
            session,
            tables,
            settings,
            run_id=run.run_id,
            started_at=run.started_at,
            steps=steps,
            rebuild=rebuild,
            metrics=_metrics(tables, settings, run, steps),
        )
        if payload:
            from jobs.queries.audit_payload import run_payload  # noqa: PLC0415

            is_complete = run_payload(
                tables,
                settings.cluster_id,
                span=Span(from_ms, to_ms),
                group_ids=group or None,
                sources=settings.segments,
                cluster=settings.broker_address,
                timeout_ms=settings.request_timeout_ms,
                dead_letter_topics=dead_letter_topic or (),
                without_copy=listing is Listing.WITHOUT_COPY,
                partition_counts=settings.partition_counts,
                with_values=values,
                output_format=output_format,
            )
            return DONE if is_complete else INCOMPLETE
        is_complete = run_audit_report(
            tables,
            settings.cluster_id,
            listing=listing,
            span=Span(from_ms, to_ms),
            group_ids=group or None,
            partition_counts=settings.partition_counts,
            output_format=output_format,
        )
        return DONE if is_complete else INCOMPLETE

    _run(job, debug)


@app.command("export-segments", short_help=SUMMARIES["export-segments"], epilog=epilog("export-segments"))
def export_segments(
    output: Annotated[str, typer.Option("--output", metavar="DIR", help="New or empty folder for the segments.")],
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    topic: TopicOption = None,
    output_format: SummaryFormatOption = SummaryFormat.TABLE,
    debug: DebugOption = False,
) -> None:
    """Write what bronze holds as .log files, which Kafka's own tools read."""

    def job() -> int:
        from jobs.bronze.export_segments import export_segments as run_export  # noqa: PLC0415
        from jobs.console.progress import size_text  # noqa: PLC0415

        settings = _settings(warehouse, cluster_id)
        run = Run.start()
        session, tables, steps = open_session("export-segments", settings)
        with steps.step("export-segments"):
            written = run_export(session, tables, cluster_id=settings.cluster_id, output=output, topics=topic or None)
        segment_count = sum(item.segment_count for item in written)
        size_bytes = sum(item.size_bytes for item in written)
        if output_format is SummaryFormat.TABLE:
            size = size_text(size_bytes)
            typer.echo(f"{segment_count:,} segments of {len(written):,} log partitions, {size}: {output}")
        steps.facts["exported"] = {
            "output": output,
            "log_partition_count": len(written),
            "segment_count": segment_count,
            "size_bytes": size_bytes,
        }
        return _tell_facts("export-segments", run, steps, DONE, output_format)

    _run(job, debug)


@app.command(short_help=SUMMARIES["simulate"], epilog=epilog("simulate"))
def simulate(
    scenario: Annotated[str, typer.Option("--scenario", metavar="FILE", help="Scenario file (TOML); see scenarios/.")],
    output: Annotated[str, typer.Option("--output", metavar="DIR", help="New or empty folder for logs/ and truth/.")],
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="NUMBER", min=0, help="In place of the scenario's own seed.")
    ] = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """Simulate a cluster on a virtual clock: coordinator logs that Kafka's tools read, and the truth beside them."""

    def job() -> int:
        from jobs.operations.simulate import simulate as run_simulate  # noqa: PLC0415
        from jobs.operations.simulate import tell  # noqa: PLC0415

        tell(run_simulate(scenario, output, seed=seed), output_format)
        return DONE

    _run(job, debug)


@app.command(short_help=SUMMARIES["describe"], epilog=epilog("describe"))
def describe(
    group: GroupsOption = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups, as without --group.")] = False,
    at: AtOption = None,
    timezone: TimezoneOption = None,
    offsets: Annotated[bool, typer.Option("--offsets", help="Offsets: what is shown by default.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Members and what they have.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, epochs and number of members.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="All columns, as in Kafka's tools.")] = False,
    kind: Annotated[
        Tool | None,
        typer.Option("--tool", help="As kafka-consumer-groups, kafka-share-groups or kafka-streams-groups alone."),
    ] = None,
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """What Kafka's tools would have printed with --describe, at any time."""

    def job() -> int:
        from jobs.queries.describe import run_describe  # noqa: PLC0415

        views = [view for view, is_asked in zip(View, (offsets, members, state), strict=True) if is_asked]
        if len(views) > 1:
            raise SettingsError("--offsets, --members and --state exclude each other")
        if group and all_groups:
            raise SettingsError("--group and --all-groups exclude each other")
        settings = _settings(warehouse, cluster_id)
        at_ms, tables = _time(at, timezone), _tables("describe", settings)
        remarks = _remarks_in_log(tables, settings, at_ms, group)
        try:
            remarks += run_describe(
                tables,
                settings.cluster_id,
                view=views[0] if views else View.OFFSETS,
                at_ms=at_ms,
                group_ids=group or None,
                tool=kind,
                verbose=verbose,
                output_format=output_format,
                sample_age_max_ms=settings.inference.lag_sample_age_max_ms,
            )
        finally:  # why a group is not there may be among them
            for remark in remarks:
                _tell(remark)
        return DONE

    _run(job, debug)


@app.command(short_help=SUMMARIES["owner"], epilog=epilog("owner"))
def owner(
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic.")],
    partition: Annotated[int, typer.Option("--partition", metavar="PARTITION", min=0, help="The partition.")],
    at: AtOption = None,
    timezone: TimezoneOption = None,
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """Who owned a partition at a time, in every group that reads it."""

    def job() -> int:
        from jobs.queries.owner import run_owner  # noqa: PLC0415

        settings = _settings(warehouse, cluster_id)
        at_ms, tables = _time(at, timezone), _tables("owner", settings)
        remarks = run_owner(
            tables, settings.cluster_id, topic=topic, partition=partition, at_ms=at_ms, output_format=output_format
        )
        for remark in (*remarks, *_remarks_in_log(tables, settings, at_ms)):
            _tell(remark)
        return DONE

    _run(job, debug)


@app.command(short_help=SUMMARIES["restore"], epilog=epilog("restore"))
def restore(
    group: Annotated[list[str], typer.Option("--group", metavar="GROUP", help="Group id; may be repeated.")],
    at: Annotated[str, typer.Option("--at", metavar="TIME", help=TIME_HELP)],
    timezone: TimezoneOption = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="New file for the offsets. [default: none, a dry run]"),
    ] = None,
    log_offset: Annotated[
        int | None,
        typer.Option(
            "--log-offset",
            metavar="OFFSET",
            min=0,
            help="Where the log has that time more than once: the last log offset that counts.",
        ),
    ] = None,
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """The offsets of groups at a time, as kafka-consumer-groups --reset-offsets --from-file takes them."""

    def job() -> int:
        from jobs.queries.restore import run_restore  # noqa: PLC0415

        settings, at_ms = _settings(warehouse, cluster_id), _time_of(at, timezone)
        tables = _tables("restore", settings)
        behind = _remarks_in_log(tables, settings, at_ms, group)
        remarks: list[str] = []
        try:
            remarks = run_restore(
                tables,
                settings.cluster_id,
                group_ids=group,
                at_ms=at_ms,
                output=output,
                output_format=output_format,
                log_offset=log_offset,
            )
        finally:  # why a group is not there may be among them
            for remark in (*remarks, *behind):
                _tell(remark)
        return DONE

    _run(job, debug)


@app.command(short_help=SUMMARIES["verify"], epilog=epilog("verify"))
def verify(
    group: GroupsOption = None,
    captured: Annotated[
        bool, typer.Option("--captured", help="Compare with what the warehouse has; capture and replay nothing.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what is equal, too.")] = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """Hold the ledger against a live cluster's own answers: groups, members, assignments, offsets, share states.

    Exit code 1 if anything is different, 3 if something cannot be told.
    """

    def job() -> int:
        from coordinator_core.verify import Verdict  # noqa: PLC0415
        from jobs.queries.verify import run_verify  # noqa: PLC0415

        settings = _settings(warehouse, cluster_id, bootstrap_servers=bootstrap_server, command_config=command_config)
        _check_client(settings)

        def caught_up() -> "Warehouse":
            session, tables, steps = open_session("verify", settings, meanwhile=".operations.nightly")
            from jobs.operations.nightly import run_catch_up  # noqa: PLC0415

            run = Run.start()
            code = run_catch_up(session, tables, settings, run_id=run.run_id, started_at=run.started_at, steps=steps)
            if code == FAILED:
                raise JobError("the ledger does not add up: nothing was compared")
            return tables

        worst = run_verify(
            settings,
            (lambda: _tables("verify", settings)) if captured else caught_up,
            group_ids=group or None,
            output_format=output_format,
            verbose=verbose,
            say=_tell,
        )
        return {Verdict.DIFFERENT: FAILED, Verdict.CANNOT_TELL: INCOMPLETE}.get(worst, DONE)

    _run(job, debug)


@app.command(short_help=SUMMARIES["report"], epilog=epilog("report"))
def report(
    output: Annotated[str, typer.Option("--output", metavar="FILE", help="The HTML file to write.")],
    group: GroupsOption = None,
    from_time: FromOption = None,
    to_time: ToOption = None,
    timezone: TimezoneOption = None,
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    output_format: SummaryFormatOption = SummaryFormat.TABLE,
    debug: DebugOption = False,
) -> None:
    """One HTML file that opens offline: what groups cost, who owned what, why it moved, what was given up.

    Without --group: the whole cluster, and the groups that stand out. Gold must be there: nightly or audit makes it.
    """

    def job() -> int:
        from jobs.console.progress import Steps  # noqa: PLC0415
        from jobs.queries.in_log import require_in_any_log  # noqa: PLC0415
        from jobs.report.run import tell_report  # noqa: PLC0415

        settings = _settings(warehouse, cluster_id)
        from_ms, to_ms = _span(from_time, to_time, timezone)
        run, steps = Run.start(), Steps()
        tables = _tables("report", settings)
        require_in_any_log(tables, settings.cluster_id, from_ms, to_ms)
        tell_report(
            tables,
            settings,
            output=output,
            made_at=run.started_at,
            steps=steps,
            group_ids=group or None,
            from_ms=from_ms,
            to_ms=to_ms,
        )
        return _tell_facts("report", run, steps, DONE, output_format)

    _run(job, debug)


@app.command(short_help=SUMMARIES["whatif"], epilog=epilog("whatif"))
def whatif(
    group: Annotated[str, typer.Option("--group", metavar="GROUP", help="The group.")],
    changed: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="What is to be different; may be repeated: session.timeout.ms, group.consumer.session.timeout.ms, "
            "group.initial.rebalance.delay.ms, group.instance.id (static or dynamic), assignor, group.protocol, "
            "share.delivery.count.limit, share.record.lock.duration.ms.",
        ),
    ],
    recorded: Annotated[
        list[str] | None,
        typer.Option(
            "--recorded",
            metavar="NAME=VALUE",
            help="What held, where the log does not tell it; may be repeated. [default: Kafka's defaults]",
        ),
    ] = None,
    from_time: FromOption = None,
    to_time: ToOption = None,
    timezone: TimezoneOption = None,
    warehouse: WarehouseOption = None,
    cluster_id: ClusterOption = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """A group's recorded history under other settings: what would have been different, and what nobody can tell."""

    def job() -> int:
        from jobs.queries.whatif import asked, tell  # noqa: PLC0415
        from jobs.queries.whatif import whatif as run_whatif  # noqa: PLC0415

        settings = _settings(warehouse, cluster_id)
        from_ms, to_ms = _span(from_time, to_time, timezone)
        question = asked(changed, recorded or (), settings)
        rows = run_whatif(
            _tables("whatif", settings),
            cluster_id=settings.cluster_id,
            group_id=group,
            question=question,
            from_ms=from_ms,
            to_ms=to_ms,
        )
        tell(rows, output_format)
        return DONE

    _run(job, debug)


@app.command(short_help=SUMMARIES["maintain"], epilog=epilog("maintain"))
def maintain(
    warehouse: WarehouseOption = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="TABLE", help="As silver.group_events; may be repeated. [default: all]"),
    ] = None,
    vacuum_after: Annotated[
        str | None,
        typer.Option(
            "--vacuum-after",
            metavar="DURATION",
            help="How long files that were taken out of a table are left to readers. [default: 7d]",
        ),
    ] = None,
    allow_short_retention: Annotated[
        bool, typer.Option("--allow-short-retention", help="Less than 7d, too: nobody may read meanwhile.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    output_format: SummaryFormatOption = SummaryFormat.TABLE,
    erase: Annotated[
        list[str] | None,
        typer.Option(
            "--erase",
            metavar="KIND=ID",
            help="Only this: take a client-id=, host= or member= out of all tables, and all older versions with it; "
            "may be repeated. Let nobody read or capture meanwhile.",
        ),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Merge small files of all tables, take out what is older than its retention, delete what nobody reads any more."""

    def job() -> int:
        from jobs.console.durations import parse_duration  # noqa: PLC0415

        settings = _settings(warehouse)
        if erase:
            from jobs.operations.erase import erased_ids  # noqa: PLC0415

            ids = erased_ids(erase)
            if table or vacuum_after or allow_short_retention or dry_run:
                raise SettingsError("--erase goes with no other option of maintain: it is of all tables, at once")
            session, tables, steps = open_session("maintain", settings, meanwhile=".operations.erase")
            from jobs.operations.erase import KEY_BYTES, tell_erased  # noqa: PLC0415
            from jobs.operations.erase import erase as run_erase  # noqa: PLC0415

            run = Run.start()
            with steps.step("erase"):
                counts = run_erase(
                    session,
                    tables,
                    ids=ids,
                    new_key=secrets.token_bytes(KEY_BYTES),
                    at=run.started_at,
                    metrics=_metrics(tables, settings, run, steps),
                )
            tell_erased(counts, steps)
            return _tell_facts("maintain", run, steps, DONE, output_format)
        vacuum_after_ms = None if vacuum_after is None else parse_duration("--vacuum-after", vacuum_after)
        session, tables, steps = open_session("maintain", settings, meanwhile=".operations.maintain")
        from jobs.operations.maintain import maintain as run_maintain  # noqa: PLC0415
        from jobs.operations.maintain import tell_maintain  # noqa: PLC0415

        run = Run.start()
        with steps.step("maintain"):
            summary = run_maintain(
                session,
                tables,
                settings,
                started_at=run.started_at,
                tables=table or (),
                vacuum_after_ms=vacuum_after_ms,
                allows_short_retention=allow_short_retention,
                dry_run=dry_run,
                metrics=_metrics(tables, settings, run, steps),
            )
        tell_maintain(summary, steps, dry_run=dry_run)
        return _tell_facts("maintain", run, steps, DONE, output_format)

    _run(job, debug)


@app.command(short_help=SUMMARIES["sql"], epilog=epilog("sql"))
def sql(
    execute: Annotated[
        str | None, typer.Option("--execute", "-e", metavar="SQL", help="Run one statement and end.")
    ] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Run statements that change tables, too: by default they are refused."),
    ] = False,
    warehouse: WarehouseOption = None,
    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--cluster-id", metavar="NAME", help="Show the rows of this Kafka cluster alone. [default: of all clusters]"
        ),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """Spark SQL over the tables, as silver.offset_commits: a shell, or one statement with -e.

    It reads: statements that change tables need --write.
    """

    def job() -> int:
        from jobs.queries.sql import Catalogue, has_metastore, run_query, shell  # noqa: PLC0415

        if write and cluster_id is not None:
            raise SettingsError("--write and --cluster-id exclude each other: with --cluster-id names stand for views")
        settings = _settings(warehouse, cluster_id)
        session, tables, _ = open_session("sql", settings)
        if cluster_id is not None and has_metastore(session):
            _tell("note: names of a metastore stand for the rows of all clusters: add where cluster_id = ...")
        catalogue = Catalogue(session, tables, cluster_id=cluster_id, may_write=write)
        if not catalogue.table_names:
            raise JobError(f"no tables in {settings.warehouse}: run {command(first_night(settings.warehouse))} first")
        if execute is None:
            shell(catalogue, output_format)
        else:
            run_query(catalogue, execute, output_format)
        return DONE

    _run(job, debug)


@app.command(short_help=SUMMARIES["completion"], epilog=epilog("completion"))
def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell.")],
) -> None:
    """Commands that make the Tab key complete jobs and options in a shell."""
    from jobs.cli.completion import script  # noqa: PLC0415

    typer.echo(script(shell), nl=False)


def open_session(
    job: str, settings: Settings, *, meanwhile: str | None = None
) -> "tuple[SparkSession, Warehouse, Steps]":
    """The Spark session of a job, its warehouse, and where it tells its steps.

    `meanwhile`: the module of a job that writes tables, to be made ready while the JVM starts, which takes seconds and
    leaves Python idle.
    """
    if meanwhile is not None:
        from jobs.spark.settings import spark_defaults  # noqa: PLC0415
        from jobs.spark.workers_ahead import start_ahead  # noqa: PLC0415

        start_ahead(spark_defaults())
    from jobs.spark.gc_freeze import loaded_for_good  # noqa: PLC0415
    from jobs.spark.session import start_session  # noqa: PLC0415

    with loaded_for_good():
        loading = threading.Thread(target=_load, args=(meanwhile,), daemon=True)
        loading.start()
        session = start_session(job, wakes_workers=meanwhile is not None)
        loading.join()
    from jobs.console.progress import Steps  # noqa: PLC0415
    from jobs.delta.warehouse import Warehouse  # noqa: PLC0415

    tables = Warehouse(settings.warehouse, codec=settings.codec, codecs=settings.codecs)
    return session, tables, Steps(session)


def _load(module: str | None) -> None:
    """What a job needs: one with a module of its own writes tables, and loads what its first write would."""
    import_module(module or ".delta.warehouse", PACKAGE)
    if module is not None:
        with suppress(Exception):  # only a head start: a write that cannot be done says why
            import_module("pyarrow.acero")
            import_module(".delta.parquet.warm_up", PACKAGE).use_loops()


def _metrics(tables: "Warehouse", settings: Settings, run: Run, steps: "Steps") -> "Metrics":
    """Where the jobs of a run tell what they did."""
    from jobs.operations.metrics import Metrics  # noqa: PLC0415

    return Metrics(
        tables,
        cluster_id=settings.cluster_id,
        run_id=run.run_id,
        clock=lambda: datetime.now(UTC),
        textfile=settings.metrics_textfile,
        say=steps.say,
    )


def _tables(job: str, settings: Settings) -> "Warehouse":
    """The warehouse, without Spark wherever that can be, for jobs which read silver: it must be of this version."""
    from jobs.delta.silver_format import require_current_silver  # noqa: PLC0415
    from jobs.delta.warehouse import Warehouse  # noqa: PLC0415
    from schemas.tables.silver import SILVER_TABLES  # noqa: PLC0415

    tables = Warehouse(settings.warehouse)
    if job != "verify" and not any(map(tables.exists, SILVER_TABLES)):
        raise JobError(
            f"no tables in {settings.warehouse}: run {command(first_night(settings.warehouse, settings.cluster_id))} "
            "first, or name another --warehouse"
        )
    require_current_silver(tables, settings.cluster_id)
    from jobs.delta.other_writers import lines, written_by_others  # noqa: PLC0415

    for line in lines(written_by_others(tables, settings.cluster_id), option_words(settings)):
        _tell(f"warning: {line}")
    return tables


def _tell_facts(job: str, run: Run, steps: "Steps", code: int, output_format: SummaryFormat) -> int:
    """What a job that makes tables did, as one JSON object on stdout if that is asked for. Gives the exit code back."""
    if output_format is SummaryFormat.JSON:
        from jobs.console.output import json_line  # noqa: PLC0415

        started_at = run.started_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = {"job": job, "run_id": run.run_id, "started_at": started_at, "exit_code": code, **steps.facts}
        typer.echo(json_line(told), nl=False)
    return code


def _every(
    every: str | None, continuous: bool, stop_after: str | None, settings: Settings
) -> tuple[int | None, int | None]:
    """(milliseconds from trigger to trigger, None for once; milliseconds until the end, None for never)."""
    from jobs.console.durations import parse_duration  # noqa: PLC0415

    if every is not None and continuous:
        raise SettingsError("--every and --continuous exclude each other")
    if every is None and not continuous:
        if stop_after is not None:
            raise SettingsError("--stop-after goes with --every or --continuous")
        return None, None
    if not settings.bootstrap_servers:
        raise SettingsError("only a live cluster can be captured again and again: name it with --bootstrap-server")
    every_ms = parse_duration("--every", every or "1s")
    return every_ms, None if stop_after is None else parse_duration("--stop-after", stop_after)


def _time(text: str | None, timezone: str | None) -> int | None:
    """A time of the command line as epoch milliseconds."""
    return None if text is None else _time_of(text, timezone)


def _time_of(text: str, timezone: str | None) -> int:
    """The same of one that is there. How words were read is said."""
    from jobs.queries.moments import Clock, read_moment  # noqa: PLC0415

    moment = read_moment(text, Clock.of(datetime.now(UTC), timezone))
    if moment.reading is not None:
        _tell(moment.reading)
    return moment.timestamp_ms


def _remarks_in_log(
    tables: "Warehouse", settings: Settings, at_ms: int | None, group_ids: list[str] | None = None
) -> list[str]:
    """What of the log is in no source or not replayed yet, and up to when an answer is known to hold, where the time is
    behind that. Raises ArgumentError for a time before the log begins."""
    from jobs.delta.silver_format import require_current_silver  # noqa: PLC0415
    from jobs.queries.behind import not_replayed_lines  # noqa: PLC0415
    from jobs.queries.in_log import GROUPS_LOG, remarks_behind, require_begun, unread_remarks  # noqa: PLC0415

    require_current_silver(tables, settings.cluster_id)
    all_ends = require_begun(tables, settings.cluster_id, at_ms)
    return [
        *unread_remarks(all_ends, group_ids or None),
        *not_replayed_lines(tables, settings.cluster_id, GROUPS_LOG),
        *remarks_behind(all_ends, at_ms, group_ids or None),
    ]


def _span(from_time: str | None, to_time: str | None, timezone: str | None) -> tuple[int | None, int | None]:
    """The times of --from and --to. Raises ArgumentError where they run backwards."""
    from jobs.queries.in_log import require_forwards  # noqa: PLC0415

    from_ms, to_ms = _time(from_time, timezone), _time(to_time, timezone)
    require_forwards(from_ms, to_ms)
    return from_ms, to_ms


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    try:
        if os.environ.get(COMPLETE):
            from jobs.cli.completion import make_ready  # noqa: PLC0415

            make_ready()
        app(
            args=None if arguments is None else list(arguments),
            prog_name=ENTRY,
            complete_var=COMPLETE,
            standalone_mode=True,
        )
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else FAILED
    return DONE


def _settings(
    warehouse: str | None = None,
    cluster_id: str | None = None,
    segments: list[str] | None = None,
    topics: list[str] | None = None,
    bootstrap_servers: str | None = None,
    command_config: str | None = None,
    dumps: list[str] | None = None,
    dump_format: DumpFormat | None = None,
    report_file: str | None = None,
    partitions: list[str] | None = None,
) -> Settings:
    return load_settings(
        {
            "warehouse": warehouse,
            "cluster_id": cluster_id,
            "segments": tuple(segments or ()),
            "topics": tuple(topics or ()),
            "bootstrap_servers": bootstrap_servers,
            "command_config": command_config,
            "dumps": tuple(dumps or ()),
            "dump_format": dump_format,
            "report_file": report_file,
            "partitions": tuple(partitions or ()),
        }
    )


def _check_client(settings: Settings) -> None:
    """What the file of a Kafka client says is checked before Spark starts and before anything is connected.

    Raises ClientPropertiesError; what the user should know goes to stderr.
    """
    if not (settings.bootstrap_servers and settings.command_config):
        return
    from jobs.sources.client_properties import load_client_properties  # noqa: PLC0415

    for note in load_client_properties(settings.command_config).notes:
        _tell(f"note: {note}")


def _tell(text: str) -> None:
    """One line on stderr, whatever names are in it."""
    from jobs.console.output import printable  # noqa: PLC0415

    typer.echo(printable(text), err=True)


def _run(job: Callable[[], int], debug: bool) -> None:
    """Run a job: its exit code becomes the command's, its error one line."""
    if os.environ.get(PARSE_ONLY):
        raise typer.Exit(PARSED)
    try:
        code = job()
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        code = INTERRUPTED
    except JobError as error:
        if debug:
            raise
        _tell(f"error: {error}")
        code = error.exit_code
    except BrokenPipeError:
        # the reader of our output has seen enough
        with suppress(OSError):
            sys.stdout.close()
        code = DONE
    except Exception as error:
        if debug:
            raise
        from jobs.queries.sql import one_line  # noqa: PLC0415

        text = one_line(error)
        more = f"{type(error).__name__}: {text} (--debug shows more)"
        _tell(f"error: {no_space_text(error, text) if is_no_space(error) else more}")
        code = FAILED
    raise typer.Exit(code)
