"""Options that several jobs have."""

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from jobs.cli import known_names
from jobs.cli_enums import DumpFormat, Format, SummaryFormat

PARTITION_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
"""Of an offset, and of a number in a scenario file."""
TIME_HELP: Final = "ISO 8601 (UTC), epoch ms, now, -2h, today or 'yesterday 03:12'."

WarehouseOption = Annotated[
    str | None, typer.Option("--warehouse", metavar="DIR", help="Folder or URI of the tables. [default: ./warehouse]")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-id",
        metavar="NAME",
        help="Name of the Kafka cluster. [default: kafka; jobs that only read take the only one in the warehouse]",
    ),
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
        "--bootstrap-server", metavar="HOST:PORT", help="A live cluster; several brokers of it separated by commas."
    ),
]
CommandConfigOption = Annotated[
    str | None,
    typer.Option(
        "--command-config", metavar="FILE", help="The .properties file of a Java client, with how to log in to it."
    ),
]
DumpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dump",
        "--lake",
        metavar="URI|TABLE",
        help="File, folder or Delta table of dumped records or batches, SCHEMA.TABLE of Spark's catalog, or what "
        "kafka-dump-log or a console formatter printed; may be repeated. Columns: [dump_columns] in the settings.",
    ),
]
DumpFormatOption = Annotated[
    DumpFormat | None, typer.Option("--dump-format", help="What the dumps are. [default: recognised]")
]
DumpWhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="Which rows of the dumps are read, by columns of Parquet files and Delta tables, as \"env = 'prod'\". "
        "[default: all]",
    ),
]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Internal topic; may be repeated. [default: all]")
]
PartitionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--partitions",
        metavar="TOPIC=COUNT",
        help="Partition count of an internal topic, if no metadata log and no live cluster gives it; may be repeated.",
    ),
]
CopiedAtOption = Annotated[
    str | None,
    typer.Option(
        "--copied-at",
        metavar="TIME",
        help="When copying the segments or dumps began: they have all that was written until then. "
        "[default: not known; each is complete up to its last record]",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Where the tables and the logs are. A job with a parameter of this class has each field as an option; the names
    are those of `Settings`.
    """

    warehouse: WarehouseOption = None
    cluster_id: ClusterOption = None
    segments: SegmentsOption = None
    bootstrap_servers: BootstrapOption = None
    command_config: CommandConfigOption = None
    partitions: PartitionsOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(LogOptions):
    """The options of jobs that capture."""

    dumps: DumpOption = None
    dump_format: DumpFormatOption = None
    dump_where: DumpWhereOption = None
    topics: TopicOption = None
    copied_at: CopiedAtOption = None


SummaryFormatOption = Annotated[
    SummaryFormat, typer.Option("--format", help="Format of the summary; json: one object on stdout at the end.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="How rows are printed; json: one object a line.")]
KafkaVersionOption = Annotated[
    str | None,
    typer.Option(
        "--kafka-version",
        metavar="VERSION",
        help="The Kafka whose rules the coordinators follow, 4.0 to 4.4. [default: the scenario's own, or 4.3]",
    ),
]
PlayedVersionOption = Annotated[
    str | None,
    typer.Option(
        "--kafka-version",
        metavar="VERSION",
        help="The Kafka whose rules the coordinator follows, 4.0 to 4.4. [default: the one that wrote the log, if "
        "the log shows it, else 4.3]",
    ),
]
AtOption = Annotated[str | None, typer.Option("--at", metavar="TIME", help=f"{TIME_HELP} [default: the newest]")]
TimezoneOption = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        metavar="ZONE",
        help="Zone of times without one, as Europe/Berlin. [default: the machine's, for days and times of day; else "
        "UTC]",
    ),
]
GroupsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group", metavar="GROUP", help="Group id; may be repeated. [default: all]", autocompletion=known_names.GROUPS
    ),
]
FromOption = Annotated[str | None, typer.Option("--from", metavar="TIME", help=f"Only from then on: {TIME_HELP}")]
DiagramOption = Annotated[
    str | None,
    typer.Option("--diagram", metavar="FILE", help="Draw it, too: as SVG, or for Mermaid if the name ends in .mmd."),
]
ToOption = Annotated[str | None, typer.Option("--to", metavar="TIME", help=f"Only until then: {TIME_HELP}")]
PayloadOption = Annotated[
    bool,
    typer.Option(
        "--payload",
        help="Each archived offset with its record, from --segments of the source topics or a live cluster.",
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
WideOption = Annotated[
    bool, typer.Option("--wide", help="All columns, where a terminal has room for some. Pipes and files get all.")
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
