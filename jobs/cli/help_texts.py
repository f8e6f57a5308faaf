"""Texts of --help: a line for each job, and examples of common questions.

The tests parse every example, and compare the documentation with these lines.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from jobs.console.command_name import command

SUMMARIES: Final[Mapping[str, str]] = {
    "nightly": "Capture, replay and audit in one run; prints findings.",
    "demo": "A bad morning of a shop, and three questions about it.",
    "capture": "Segment files, a live cluster, dumps -> bronze.",
    "replay": "Bronze -> silver: what is new.",
    "audit": "Silver -> gold; lists archived records, owners, ...",
    "describe": "What Kafka's tools would have printed, at any time.",
    "owner": "Who owned a partition, at any time.",
    "where": "Which log partition and broker coordinates a key.",
    "groups": "All groups, and which of them need attention.",
    "history": "What happened to a group, one line for each event.",
    "changes": "What a run changed in the tables, row by row.",
    "restore": "The committed offsets of a group as they were.",
    "whatif": "A group's history under other settings.",
    "report": "One HTML file that opens offline, with charts.",
    "sql": "SQL over all tables: a shell, or one query.",
    "explain": "What a word means that a job prints.",
    "verify": "Compares the tables with a live cluster.",
    "simulate": "A scenario -> coordinator logs and their true history.",
    "export-segments": "Bronze -> .log files that Kafka's tools read.",
    "maintain": "Merges small files, deletes what is too old.",
    "completion": "Makes the Tab key complete jobs and options.",
}
"""By job, for the list of jobs: at most 80 columns with the name. In the order of the list."""

EXAMPLES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "nightly": (
        ("The recording that comes with the project, into ./warehouse:", "nightly"),
        (
            "A broker's log directory; again each night, only what is new is read:",
            "nightly --segments /var/lib/kafka/data",
        ),
        (
            "A live cluster:",
            "nightly --bootstrap-server kafka:9092 --command-config client.properties --cluster-id orders",
        ),
        ("A table in which records land:", "nightly --lake raw.log --where \"env = 'prod'\""),
        ("With the report as its last step, for a scheduler:", "nightly --report /var/www/html/groupledger.html"),
        ("The result, for another program:", "nightly --format json"),
        (
            "All clusters that the settings list, with a report each:",
            "nightly --all-clusters --report '{cluster_id}.html'",
        ),
    ),
    "demo": (("In a minute, into a new folder:", "demo"),),
    "capture": (
        (
            "Read a live cluster again and again, before its share state is pruned:",
            "capture --bootstrap-server kafka:9092 --every 1m",
        ),
        ("One topic of a copied log directory:", "capture --segments /mnt/broker-1 --topic __consumer_offsets"),
        ("Dumped rows of key and value:", "capture --dump s3://bucket/offsets/ --dump-format parquet"),
    ),
    "replay": (
        ("What was captured since the last time:", "replay"),
        ("Everything again, from the beginning:", "replay --rebuild"),
    ),
    "audit": (
        (
            "Records that a share group gave up in November, and whether the list is complete:",
            "audit --group orders --from 2026-11-01 --to 2026-12-01",
        ),
        (
            "The same with the records themselves, as CSV:",
            "audit --group orders --payload --segments /mnt/broker-1 --format csv",
        ),
        (
            "Why a group rebalanced eleven times before breakfast:",
            "audit --list rebalances --group orders --from 2026-11-20T00:00:00Z --to 2026-11-20T08:00:00Z",
        ),
        ("Commits that went backwards, were reset, skipped ahead or stalled:", "audit --list commits"),
    ),
    "export-segments": (
        ("Bronze as .log files, which kafka-dump-log reads:", "export-segments --output /data/segments"),
    ),
    "simulate": (
        ("A bad day, and the truth about it:", "simulate --scenario scenarios/bad-day.toml --output bad-day"),
        ("Another one of the same kind:", "simulate --scenario scenarios/bad-day.toml --seed 7 --output another-day"),
    ),
    "describe": (
        (
            "As kafka-consumer-groups --describe would have shown it:",
            "describe --group orders --at 2026-11-20T03:12:00Z",
        ),
        ("Its members then:", "describe --group orders --at 2026-11-20T03:12:00Z --members --verbose"),
        ("The state of all share groups, now:", "describe --all-groups --tool share --state"),
        ("The same, with their coordinators:", "describe --tool share --state --bootstrap-server broker:9092"),
        ("What a streams application runs:", "describe --group words --topology --bootstrap-server broker:9092"),
    ),
    "owner": (
        ("Which pod owned orders-17 at 03:12?", "owner --topic orders --partition 17 --at 2026-11-20T03:12:00Z"),
        ("Last night, by this machine's clock?", "owner --topic orders --partition 17 --at 'yesterday 03:12'"),
        ("And who has it now?", "owner --topic orders --partition 17"),
    ),
    "where": (
        ("Which partition of __consumer_offsets holds a group?", "where --group orders"),
        ("Which broker coordinates it now?", "where --group orders --bootstrap-server broker:9092"),
        ("And a share partition, and a producer?", "where --share workers:jobs:0 --transactional-id billing-0"),
    ),
    "groups": (
        ("Which groups need attention?", "groups --needs-attention"),
        ("Since yesterday, those of one team:", "groups --match orders --from yesterday"),
    ),
    "history": (
        ("What happened to a group last night?", "history --group orders --from 'yesterday 22:00' --to 'today 06:00'"),
        ("For another program:", "history --group orders --format json"),
    ),
    "changes": (
        ("How many rows did last night change, by table?", "changes"),
        ("Which ones, for another program:", "changes --table gold.rebalances --format json"),
    ),
    "restore": (
        ("A dry run: what would change?", "restore --group orders --at 2026-11-20T02:00:00Z"),
        ("The file for Kafka's own tool:", "restore --group orders --at 2026-11-20T02:00:00Z --output offsets.csv"),
    ),
    "verify": (
        ("Capture and replay what is new, then compare:", "verify --bootstrap-server kafka:9092"),
        ("One group; what is equal is listed, too:", "verify --bootstrap-server kafka:9092 --group orders --verbose"),
    ),
    "whatif": (
        ("Would a longer session time-out have helped?", "whatif --group orders --set session.timeout.ms=60000"),
        (
            "Another assignor, on one morning:",
            "whatif --group orders --set assignor=cooperative-sticky --from 2026-11-20 --to 2026-11-21",
        ),
        ("More tries for a share group:", "whatif --group orders --set share.delivery.count.limit=10"),
    ),
    "report": (
        ("The whole cluster:", "report --output report.html"),
        ("One group, on one morning:", "report --output orders.html --group orders --from 2026-11-20 --to 2026-11-21"),
    ),
    "sql": (
        ("One query:", "sql -e \"select * from current_offsets where group_id = 'orders'\""),
        (
            "Which ten groups waste most in rebalances?",
            'sql -e "select group_id, sum(rebalance_count) as rebalances from gold.group_summary '
            'group by group_id order by rebalances desc, group_id limit 10"',
        ),
        ("What a column means:", 'sql -e "describe gold.rebalances"'),
        ("A shell; statements end with a semicolon:", "sql"),
        ("For another program:", 'sql --format json -e "select * from gold.group_summary"'),
        (
            "One cluster of a warehouse that has several:",
            'sql --cluster-id orders -e "select count(*) from gold.rebalances"',
        ),
    ),
    "explain": (
        ("Why is it only likely?", "explain LIKELY"),
        ("What does a table have?", "explain gold.rebalances"),
        ("Which words are there?", "explain"),
    ),
    "maintain": (
        ("What would be done:", "maintain --dry-run"),
        ("Replace a client's host by a pseudonym everywhere:", "maintain --erase host=/10.1.2.3"),
        ("Once a week; files that tables no longer have stay for readers for 7 days:", "maintain"),
        (
            "One table, while no reader is running:",
            "maintain --table silver.group_events --vacuum-after 1h --allow-short-retention",
        ),
    ),
    "completion": (
        (f'For ~/.bashrc, as: eval "$({command("completion bash")})"', "completion bash"),
        (f"For ~/.zshrc, after compinit, as: source <({command('completion zsh')})", "completion zsh"),
        (f"For config.fish, as: {command('completion fish')} | source", "completion fish"),
    ),
}
"""By job: purpose, and the arguments after the entry command."""


def _exact(*lines: str) -> str:
    """Marks a paragraph that is not to be wrapped: a line with only a backspace."""
    return "\n".join(["\b", *lines])


def epilog(job: str) -> str:
    """The examples, for the end of a job's help."""
    return _exact(
        "Examples:", *(line for what, words in EXAMPLES[job] for line in (f"  {what}", f"    {command(words)}"))
    )


ROOT_EPILOG: Final = _exact(
    "First answer:",
    f"  {command('nightly')}",
    f"  {command('groups --needs-attention')}",
    f"Each job's --help has examples: {command('owner --help')}",
    f"Options before the job's name are Spark's: {command('--master local[2] nightly')}",
    "Settings: conf/groupledger.toml; GROUPLEDGER_* in the environment; options.",
    "Exit codes: 0 done, 1 failed, 2 wrong arguments,",
    "            3 done but something was quarantined or is missing",
)
