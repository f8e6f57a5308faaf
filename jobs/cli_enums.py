"""Choices of command-line options, in a module without imports of the jobs, since --help needs none of them."""

from enum import StrEnum


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class View(StrEnum):
    """What describe shows of a group."""

    OFFSETS = "offsets"
    MEMBERS = "members"
    STATE = "state"


class Tool(StrEnum):
    """The Kafka tool whose output describe reproduces."""

    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Listing(StrEnum):
    """What `audit --list` lists (`jobs.queries.answers.lists`)."""

    ARCHIVED = "archived"
    WITHOUT_COPY = "without-copy"
    """Archived in groups that have a dead-letter topic, but not copied there."""
    REDELIVERIES = "redeliveries"
    SHARE_OFFSETS = "share-offsets"
    """Offsets of share groups that were moved or deleted."""
    REBALANCES = "rebalances"
    FLAPPING = "flapping"
    EXPIRED = "expired"
    UNOWNED = "unowned"
    EMPTIED = "emptied"
    GROWN = "grown"
    COMMITS = "commits"
    RESETS = "resets"
    REWINDS = "rewinds"
    SKIPPED = "skipped"
    DELETED = "deleted"
    LAG = "lag"
    FORGOTTEN = "forgotten"
    HANGING = "hanging"
    OWNERS = "owners"
    INSTANCES = "instances"
    SHARED = "shared"
    CLIENTS = "clients"
    RULES = "rules"
    ODDITIES = "oddities"
    NOT_JUDGED = "not-judged"
    HOLES = "holes"
    QUARANTINE = "quarantine"
    COPIES = "copies"
    LEADERS = "leaders"
    STARTS = "starts"


class DumpFormat(StrEnum):
    AUTO = "auto"
    """Detected from the files."""
    PARQUET = "parquet"
    DELTA = "delta"
    JSON = "json"
    """Lines: rows with key and value in base64 or hex, or output of the console consumer's formatters."""
    DUMP_LOG = "dump-log"
    """The output of kafka-dump-log."""


class SummaryFormat(StrEnum):
    """Output format of a job that writes tables."""

    TABLE = "table"
    """For people, on stderr."""
    JSON = "json"
    """As TABLE, and one object on stdout."""


class SqlFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


class Engine(StrEnum):
    """The dialect of SQL, and what executes it."""

    DUCKDB = "duckdb"
    SPARK = "spark"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
