"""verify: compare the ledger's newest state with what the brokers report.

The end offsets of the coordinators' logs are recorded, the cluster is asked about its groups, members, assignments,
committed offsets, share offsets and share states, and the end offsets are recorded again. Then the log is captured and
replayed up to there, and each answer is compared with the ledger's states between the two ends
(`coordinator_core.history.comparison_with_broker` defines equality). Without a new capture, the answers are compared
with the end of what was captured.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange
from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.history.comparison_with_broker import Verdict
from coordinator_core.replay.columnar.share_state_columnar import DELIVERY_STATES
from coordinator_core.replay.java.hash_codes import string_order
from jobs.bronze import coverage as coverage_rows
from jobs.bronze.identity import refuse_other_cluster
from jobs.console.command_name import command
from jobs.console.output import Value, folded_text, write_answers
from jobs.delta.cluster_tables import ClusterTables
from jobs.errors import JobError, SettingsError
from jobs.queries.as_of.in_log import require_groups
from jobs.queries.verify.verify_broker import Asked, ask
from jobs.queries.verify.verify_judge import (
    BATCHES,
    CLUSTER_AUTHORIZATION_FAILED,
    Finding,
    Hole,
    Judge,
    Thing,
    What,
)
from jobs.queries.verify.verify_ledger import Ledger, Window
from jobs.settings import Settings
from jobs.sources.admin import Admin
from jobs.sources.admin_answers import Refusal
from jobs.sources.admin_questions import GROUP_ID_NOT_FOUND
from jobs.sources.broker import TOPIC_AUTHORIZATION_FAILED, Broker
from schemas import consumer_offsets, share_group_state
from schemas.tables.bronze import COVERAGE, RECORD_BATCHES
from schemas.tables.state import RUNS

GAPS: Final = frozenset({CoverageKind.MISSING, CoverageKind.CORRUPT})
TEXT_MAX: Final = 300
"""Maximum length of a displayed value."""
COLUMNS: Final = ("VERDICT", "WHAT", "GROUP", "OF", "FIELD", "BROKER", "LEDGER", "REASON")
SUMMARY_COLUMNS: Final = ("WHAT", "COMPARED", "EQUAL", "NOT-IN-LOG", "MOVED-ON", "CANNOT-TELL", "DIFFERENT")


def windows_of(
    asked: Asked, coverage: Mapping[LogPartition, Sequence[CoverageRange]]
) -> tuple[dict[LogPartition, Window], dict[LogPartition, str]]:
    """The end offsets between which each log partition's answers were given, as far as the warehouse has them; and a
    sentence for each log partition that ends before.
    """
    windows: dict[LogPartition, Window] = {}
    behind: dict[LogPartition, str] = {}
    for log, to_end in asked.after.items():
        captured_end = max((r.to_offset + 1 for r in coverage.get(log, ())), default=0)
        windows[log] = Window(min(asked.before[log], captured_end), min(to_end, captured_end))
        if captured_end < to_end:
            behind[log] = f"the log ends at {to_end}, the warehouse at {captured_end}"
    return windows, behind


def gaps_of(asked: Asked, coverage: Mapping[LogPartition, Sequence[CoverageRange]]) -> dict[LogPartition, str]:
    """Sentences about what the warehouse lacks of each log partition, where that may make it differ from its broker.

    What was deleted below the log start offset before the first capture does not count: the broker lacks it, too.
    """
    gaps: dict[LogPartition, str] = {}
    for log, start in asked.starts.items():
        was_captured = False
        for r in coverage.get(log, ()):
            if r.kind in GAPS and (was_captured or r.to_offset >= start):
                gaps[log] = f"offsets {r.from_offset} to {r.to_offset} of {log[0]}-{log[1]} are {r.kind.name}"
                break
            was_captured = was_captured or r.kind is CoverageKind.CAPTURED
        else:
            if start < asked.before[log] and not was_captured:
                gaps[log] = f"nothing of {log[0]}-{log[1]} was captured"
    return gaps


def compacted_of(coverage: Mapping[LogPartition, Sequence[CoverageRange]]) -> dict[LogPartition, Hole]:
    """The last range of each log partition that was compacted before it was captured."""
    return {
        log: Hole(
            r.from_offset,
            f"a deletion may have been in offsets {r.from_offset} to {r.to_offset}, "
            f"which {log[0]}-{log[1]} had lost to compaction when it was captured",
        )
        for log, ranges in coverage.items()
        for r in ranges
        if r.kind is CoverageKind.COMPACTED
    }


def verify(tables: ClusterTables, asked: Asked, admin: Admin) -> list[Finding]:
    """At least one finding for each thing that the cluster or the ledger has, in the order of the report."""
    coverage = coverage_rows.from_table(tables.read(COVERAGE))
    windows, behind = windows_of(asked, coverage)
    counts = {topic: asked.partition_count(topic) for topic in (consumer_offsets.TOPIC, share_group_state.TOPIC)}
    ledger = Ledger(tables, windows, asked.group_ids, counts)
    groups, offsets, shares = ledger.groups(), ledger.committed_offsets(), ledger.share_partitions()
    unlisted = {
        group_id: str(history.generations[0]["group_type"])
        for group_id, history in groups.items()
        if group_id not in asked.descriptions and history.generations
    }
    unseen = {str(path[1]) for history in offsets.values() for path in history.base} - asked.topics.keys()
    hidden = {name for name, it in admin.refused_topics(unseen).items() if it.code == TOPIC_AUTHORIZATION_FAILED}
    judge = Judge(
        asked,
        gaps=gaps_of(asked, coverage),
        compacted=compacted_of(coverage),
        behind=behind,
        unlisted=admin.describe_groups(unlisted),
        hidden=hidden,
        left_empty=ledger.left_empty(asked.descriptions.keys() - groups.keys()),
        former=ledger.former,
        initialized=ledger.initialized(),
    )
    findings = [*judge.groups(groups), *judge.offsets(offsets), *judge.shares(shares)]
    order = list(What)
    return sorted(
        findings,
        key=lambda it: (
            order.index(it.thing.what),
            string_order(it.thing.group_id),
            string_order(it.thing.name),
            it.field or "",
        ),
    )


def summary_rows(findings: Iterable[Finding]) -> list[tuple[Value, ...]]:
    """One row for each kind of thing: how many were compared, and the verdicts."""
    counts = Counter((thing.what, verdict) for thing, verdict in worst_verdicts(findings).items())
    return [
        (what.value, sum(counts[what, verdict] for verdict in Verdict), *(counts[what, verdict] for verdict in Verdict))
        for what in What
    ]


def sentence(findings: Iterable[Finding]) -> str:
    """The worst verdict, and how many things have which, the worst first."""
    counts = Counter(worst_verdicts(findings).values())
    parts = [f"{counts[verdict]:,} {verdict.name}" for verdict in sorted(counts, reverse=True)]
    return f"{max(counts, default=Verdict.EQUAL).name}: {', '.join(parts) or 'nothing'} of {counts.total():,} compared"


def worst_verdicts(findings: Iterable[Finding]) -> dict[Thing, Verdict]:
    """By thing."""
    worst: dict[Thing, Verdict] = {}
    for it in findings:
        worst[it.thing] = max(it.verdict, worst.get(it.thing, Verdict.EQUAL))
    return worst


def print_findings(
    findings: Sequence[Finding], asked: Asked, output_format: str, verbose: bool, out: TextIO
) -> Iterator[str]:
    """Print the findings, in a table after their summary. Yields the remarks as lines."""
    shown = [it for it in findings if verbose or it.verdict is not Verdict.EQUAL]
    if output_format == "table":
        out.write(f"{folded_text(sentence(findings), out)}\n\n")
        write_answers(SUMMARY_COLUMNS, summary_rows(findings), output_format, out)
        out.write("\n" if shown else "")
    if shown or output_format != "table":
        write_answers(COLUMNS, [_cells(it) for it in shown], output_format, out)
    refused = [it for it in asked.share_states.values() if isinstance(it, Refusal)]
    if any(it.code == CLUSTER_AUTHORIZATION_FAILED for it in refused):
        yield "share states were not compared: the principal needs ClusterAction on the cluster to read them"


def _cells(it: Finding) -> tuple[Value, ...]:
    described, known = it.described, it.known
    if it.field == BATCHES[0] and described is not None and known is not None:
        described, known = (
            tuple(batch for batch in one if batch not in other)
            for one, other in ((described, known), (known, described))
        )
    place = (it.thing.what.value, it.thing.group_id, it.thing.name or None, it.field)
    return (it.verdict.name, *place, _text(it.field, described), _text(it.field, known), it.reason)


def _batch_text(batch: tuple[int, int, int, int]) -> str:
    first_offset, last_offset, state, count = batch
    return f"{first_offset}-{last_offset} {DELIVERY_STATES[state] if state < len(DELIVERY_STATES) else state} {count}"


def _text(field: str | None, value: Any) -> Value:
    if field == What.OFFSET and value is not None:
        offset, leader_epoch, metadata = value
        more = [f"leader epoch {leader_epoch}"] if leader_epoch is not None else []
        more += [f"metadata {metadata!r}"] if metadata else []
        value = f"{offset} ({', '.join(more)})" if more else offset
    elif field == BATCHES[0] and value is not None:
        value = ", ".join(map(_batch_text, value))
    if isinstance(value, str) and len(value) > TEXT_MAX:
        return value[:TEXT_MAX] + "..."
    return value  # type: ignore[no-any-return]


def run_verify(
    settings: Settings,
    ledger: Callable[[], ClusterTables],
    *,
    group_ids: Collection[str] | None,
    output_format: str,
    verbose: bool,
    say: Callable[[str], None],
    out: TextIO | None = None,
) -> Verdict:
    """Ask the cluster, compare with the ledger, and print. Returns the worst verdict.

    `ledger`: returns the tables after the cluster was asked, updated or as it is. Raises BrokerError, JobError where
    there is nothing to compare with, and SourceError where the ledger is of another cluster.
    """
    address = settings.broker_address
    if address is None:
        raise SettingsError("verify asks a live cluster: give --bootstrap-server HOST:PORT, or set bootstrap_servers")
    with Broker.connect(address, timeout_ms=settings.request_timeout_ms) as broker:
        asked = ask(broker, group_ids)
        tables = ledger()
        refuse_other_cluster(tables, broker)
        _require_replayed(tables)
        gone = Refusal.of(GROUP_ID_NOT_FOUND)
        require_groups(tables, [name for name in group_ids or () if asked.descriptions.get(name, gone) == gone])
        findings = verify(tables, asked, Admin(broker))
    for remark in print_findings(findings, asked, output_format, verbose, out or sys.stdout):
        say(remark)
    return max((it.verdict for it in findings), default=Verdict.EQUAL)


def _require_replayed(tables: ClusterTables) -> None:
    """Raises JobError where silver does not include everything captured."""
    if not tables.files(RECORD_BATCHES):
        return  # nothing was captured: this is reported for each log partition
    replayed = tables.read(RUNS, ["bronze_version"])["bronze_version"].drop_null().to_pylist()
    if max(replayed, default=-1) < tables.warehouse.version(RECORD_BATCHES):
        raise JobError(
            f"more was captured than replayed: run {command('replay' + tables.place_words)} "
            "first, or leave --captured away"
        )
