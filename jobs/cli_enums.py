"""What options of the command line choose from, as kept apart from what the jobs load: --help needs none of that."""

from enum import StrEnum


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class View(StrEnum):
    """What describe shows of a group."""

    OFFSETS = "offsets"
    MEMBERS = "members"
    STATE = "state"


class Tool(StrEnum):
    """The tool of Kafka whose output describe gives."""

    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Listing(StrEnum):
    """What audit lists."""

    ARCHIVED = "archived"
    WITHOUT_COPY = "without-copy"
    """Archived in groups that have a dead letter topic, and not copied there."""
    REDELIVERIES = "redeliveries"
    REBALANCES = "rebalances"
    COMMITS = "commits"
    OWNERS = "owners"


class DumpFormat(StrEnum):
    """What a dump is."""

    AUTO = "auto"
    """Recognised by what the files hold."""
    PARQUET = "parquet"
    DELTA = "delta"
    JSON = "json"
    """Lines: rows with key and value in base64 or hex, or what the console consumer's formatters print."""
    DUMP_LOG = "dump-log"
    """The output of kafka-dump-log."""


class SummaryFormat(StrEnum):
    """How a job that makes tables tells what it did."""

    TABLE = "table"
    """For people, on stderr."""
    JSON = "json"
    """That, and one object on stdout."""


class Engine(StrEnum):
    """Who answers a statement of sql."""

    AUTO = "auto"
    """DuckDB what means the same to both, Spark all else."""
    DUCKDB = "duckdb"
    SPARK = "spark"


class Shell(StrEnum):
    """A shell that completes words."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
