"""nightly: capture, replay, audit, and print the results. `replay` and `audit` run only these parts."""

from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from coordinator_core.history.ledger import LedgerCounts
from coordinator_core.text import counted
from jobs.bronze.capture import CaptureSummary, capture
from jobs.bronze.coverage import hole_count
from jobs.bronze.log_ends import LogEnds, log_ends, missing_lines, newest_of
from jobs.cli_enums import Listing
from jobs.console.command_name import command
from jobs.console.names import cut, short
from jobs.console.progress import Steps, size_text, summary_table
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.locks import NIGHTLY, only_one
from jobs.delta.other_writers import lines as lines_of_others
from jobs.delta.times import to_datetime
from jobs.delta.warehouse import Warehouse
from jobs.exit_codes import DONE, FAILED, INCOMPLETE
from jobs.gold.audit import audit
from jobs.operations.damage import rebuilding, require_whole
from jobs.operations.ledger import ledger_line, total, unknown_fields_line
from jobs.operations.maintain import merge_many
from jobs.operations.metrics import job_of, ledger_counts
from jobs.operations.run_context import RunContext
from jobs.queries.answers.audit_report import ALL_TIMES, completeness
from jobs.queries.answers.findings import Findings, audit_lacks, findings, groups_not_judged, lines
from jobs.queries.answers.group_verdicts import OK, group_verdicts
from jobs.queries.sql.sql_spark import has_metastore, publish
from jobs.settings import KEYS, Settings, require_source, source_line
from jobs.silver.hot_logs import CutRule
from jobs.silver.privacy import host_pseudonyms
from jobs.silver.replay import ReplaySummary, replay
from jobs.silver.replay_failures import failure_text
from schemas.tables.bronze import QUARANTINE

FAILURES_SHOWN_MAX: Final = 5


def run_nightly(run: RunContext) -> int:
    """Capture what is new, replay it and infer gold; print the ledger and findings; write the report if configured.

    Returns the exit code.
    """
    require_source(run.settings)
    with ExitStack() as stack:
        stack.enter_context(only_one(run.warehouse, NIGHTLY, run.settings.cluster_id, since=run.started_at))
        if run.metrics is not None:
            stack.enter_context(run.metrics.together())
        return rebuilding(run, partial(_night, run), ("capture", "replay", "audit"))


def _night(run: RunContext, rebuilt: Set[str]) -> int:
    _capture(run)
    require_whole(run)
    code = _replay(run, rebuild="replay" in rebuilt, is_audited_next=True)
    if code != FAILED:
        audited = _audit(run, rebuild="audit" in rebuilt, waits=True)
        code = max(code, audited)
        print_findings(run, code)
        if run.settings.report_file:
            from jobs.report.run import write_report  # noqa: PLC0415  (Plotly takes a second, and few nights ask for it)

            write_report(
                run.warehouse, run.settings, output=run.settings.report_file, made_at=run.started_at, steps=run.steps
            )
            run.steps.answer(f"Report: {run.settings.report_file}")
        if run.steps.facts["inferred"]["is_new"]:
            for line in merge_many(run.executor, run.warehouse, run.settings, started_at=run.started_at):
                run.steps.say(line)
    return code


def run_catch_up(run: RunContext) -> int:
    """Capture what is new and replay it, so that silver is up to date with the sources. Returns the exit code."""

    def catch_up(rebuilt: Set[str]) -> int:
        _capture(run)
        return _replay(run, rebuild="replay" in rebuilt)

    return rebuilding(run, catch_up, ("capture", "replay"))


def run_capture(run: RunContext) -> int:
    """Capture what is new, and print what it was and which log partitions are in no source. Returns the exit code."""
    code = rebuilding(run, lambda _: _capture(run), ("capture",))
    for line in missing_lines(coordinator_ends(run.warehouse, run.settings)):
        run.steps.say(line)
    return code


def _capture(run: RunContext) -> int:
    run.steps.say(source_line(run.settings))
    with job_of(run.metrics, "capture") as job:
        with run.steps.step("capture"):
            summary = capture(
                run.executor, run.warehouse, run.settings, capture_id=run.run_id, captured_at=run.started_at
            )
        job.batch_count, job.record_count = summary.batch_count, summary.record_count
        job.size_bytes, job.gap_count = summary.size_bytes, summary.gap_count
        missing = _missing(coordinator_ends(run.warehouse, run.settings))
        job.exit_code = DONE if summary.is_clean and not missing else INCOMPLETE
    print_capture(summary, run.settings, run.steps)
    run.steps.facts["captured"]["missing_log_partitions"] = missing
    return job.exit_code


def run_audit(run: RunContext, *, rebuild: bool = False) -> int:
    """Make gold from silver, unless it is up to date, and publish all tables in the metastore, if there is one.

    Returns the exit code: INCOMPLETE where a group could not be judged, or an input could not be read.
    """
    code = rebuilding(run, lambda rebuilt: _audit(run, rebuild=rebuild or bool(rebuilt)), ("audit",))
    for line in _rebuilt_lines(run.steps.facts):
        run.steps.say(line)
    return code


def _audit(run: RunContext, *, rebuild: bool, waits: bool = False) -> int:
    before = WholeAudit.newest(run.tables).settings
    with job_of(run.metrics, "audit") as job, run.steps.step("audit"):
        summary = audit(
            run.executor,
            run.warehouse,
            cluster_id=run.settings.cluster_id,
            inference=run.settings.inference,
            run_id=run.run_id,
            started_at=run.started_at,
            cut=CutRule(run.settings.cut_records_min, run.settings.batch_decompressed_bytes_max),
            rebuild=rebuild,
            waits=waits,
        )
        job.row_counts = summary.row_counts
        lacks = audit_lacks(run.tables)
        unjudged = groups_not_judged(run.tables)
        job.exit_code = INCOMPLETE if unjudged or lacks else DONE
    if run.metrics is not None:
        run.metrics.expose_groups()
    if summary.replaced_version is not None:
        run.steps.say(f"gold is of {summary.replaced_version}: rebuilt")
    run.steps.facts["inferred"] = {
        "is_new": not summary.skipped,
        "changed_settings": {} if summary.skipped else _changed(before, run.settings),
        "row_counts": dict(sorted(summary.row_counts.items())),
    }
    if not summary.skipped:
        run.steps.table(summary_table("inferred", ("table", "rows"), sorted(summary.row_counts.items())))
    session = run.executor.session
    if session is not None and has_metastore(session):
        with run.steps.step("tables, views and functions in the metastore"):
            publish(session, run.warehouse)
    return job.exit_code


def _changed(before: Mapping[str, Any], settings: Settings) -> dict[str, tuple[object, object]]:
    """Settings of inference that the audit before had otherwise, by key: their values then and now."""
    keys = {name: key for key, name in KEYS.items()}
    return {
        keys[name]: (before[name], now)
        for name, now in asdict(settings.inference).items()
        if before.get(name, now) != now
    }


def _rebuilt_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Why gold was rebuilt, if settings changed."""
    if changed := facts["inferred"]["changed_settings"]:
        texts = (f"{key} {before} to {now}" for key, (before, now) in changed.items())
        yield f"Settings changed, so all of gold was rebuilt: {', '.join(texts)}"


def run_replay(run: RunContext, *, rebuild: bool = False) -> int:
    """Replay what bronze has, and print the ledger and where to look. Returns the exit code."""

    def job(rebuilt: Set[str]) -> int:
        return _replay(run, rebuild=rebuild or bool(rebuilt))

    return rebuilding(run, job, ("replay",), may_forget=rebuild)


def _replay(run: RunContext, *, rebuild: bool, is_audited_next: bool = False) -> int:
    with job_of(run.metrics, "replay") as job:
        with run.steps.step("replay"):
            summary = replay(
                run.executor,
                run.warehouse,
                cluster_id=run.settings.cluster_id,
                run_id=run.run_id,
                started_at=run.started_at,
                batch_decompressed_bytes_max=run.settings.batch_decompressed_bytes_max,
                cut_records_min=run.settings.cut_records_min,
                rebuild=rebuild,
                hosts=host_pseudonyms(run.settings),
                is_audited_next=is_audited_next,
            )
        job.ledger = total(summary.counts)
        job.record_count = 0 if summary.skipped else job.ledger.record_count
        job.row_counts = summary.row_counts
        job.gap_count = hole_count(run.tables)
        job.quarantined_row_count = summary.quarantined_row_count
        ends = coordinator_ends(run.warehouse, run.settings)
        job.exit_code = print_replay(summary, run.settings, job.gap_count, run.steps, ends)
    return job.exit_code


def print_capture(summary: CaptureSummary, settings: Settings, steps: Steps) -> None:
    """Print what was captured, by topic."""
    rows = [
        (topic, count.partition_count, count.batch_count, count.record_count, size_text(count.size_bytes))
        for topic, count in summary.topics.items()
    ]
    steps.facts["captured"] = {
        "topics": {
            topic: {
                "log_partition_count": count.partition_count,
                "batch_count": count.batch_count,
                "record_count": count.record_count,
                "size_bytes": count.size_bytes,
            }
            for topic, count in summary.topics.items()
        },
        "quarantined_count": summary.quarantined_count,
        "hole_count": summary.gap_count,
        "notes": list(summary.notes),
        "faults": list(summary.faults),
    }
    steps.table(summary_table("captured", ("topic", "partitions", "new batches", "records", "size"), rows))
    for note in summary.notes:
        steps.say(note)
    if not summary.is_clean:
        for fault in summary.faults:
            steps.say(fault)
        words = "audit --list holes" if summary.gap_count else "audit --list quarantine"
        show = command(words + settings.place_words)
        steps.say(f"not all of the log is there, or could be read (exit code 3): {show}")


def coordinator_ends(warehouse: Warehouse, settings: Settings) -> dict[str, LogEnds]:
    """The log partitions of the configured coordinator topics."""
    ends = log_ends(ClusterTables(warehouse, settings.cluster_id), settings=settings.partition_counts)
    return {topic: it for topic, it in ends.items() if topic in settings.topics}


def _missing(ends: Mapping[str, LogEnds]) -> dict[str, list[int]]:
    """Log partitions that are in no source, by topic."""
    return {topic: list(it.missing) for topic, it in ends.items() if it.missing}


def _has_read(ends: Mapping[str, LogEnds], record_count: int) -> bool:
    """Was any log partition ever read? `ends` are of coordinators alone; `record_count` is of all topics."""
    return record_count > 0 or any(it.ends for it in ends.values())


def print_replay(
    summary: ReplaySummary, settings: Settings, missing: int, steps: Steps, ends: Mapping[str, LogEnds]
) -> int:
    """Print the tables, the ledger by topic and in total, what is missing, and where to look next.

    Returns the exit code.
    """
    if summary.replaced_version is not None:
        steps.say(f"silver is of {summary.replaced_version}: rebuilt")
    if summary.skipped:
        steps.say("nothing new since the last run: the tables are as they were (--rebuild replays all the same)")
    else:
        steps.table(summary_table("replayed", ("table", "rows"), sorted(summary.row_counts.items())))
    counts = {topic: summary.counts[topic] for topic in sorted(summary.counts)}
    rows = [(topic, it.record_count, *ledger_counts(it).values()) for topic, it in counts.items()]
    columns = ("topic", "records in", "decoded", "tombstones", "control", "not used", "unknown type", "quarantined")
    steps.table(summary_table("the ledger", columns, rows))
    all_counts = total(counts)
    steps.say(ledger_line(all_counts))
    if all_counts.unknown_field_count:
        steps.say(unknown_fields_line(all_counts, settings.place_words))
    steps.facts["replayed"] = {
        "is_new": not summary.skipped,
        "row_counts": dict(sorted(summary.row_counts.items())),
        "quarantined_count": summary.quarantined_row_count,
        "hole_count": missing,
        "missing_log_partitions": _missing(ends),
        "not_replayed": [failure_text(failure) for failure in summary.failures],
    }
    steps.facts["ledger"] = {
        **{topic: asdict(counts[topic]) for topic in counts},
        "total": asdict(all_counts),
    }
    if summary.quarantined_row_count:
        steps.say(
            f"{counted(summary.quarantined_row_count, 'row')} in {QUARANTINE.full_name}: what could not be read, "
            "and why"
        )
    if missing:
        show = command(f"audit --list {Listing.HOLES}{settings.place_words}")
        steps.say(f"missing or damaged: {counted(missing, 'range')} of the log: {show}")
    for failure in summary.failures[:FAILURES_SHOWN_MAX]:
        whose = "no group of it" if failure.group_id is None else f"group {short(failure.group_id)}"
        steps.say(f"could not be replayed: {whose}: {failure_text(failure)}; the next run tries again")
    if len(summary.failures) > FAILURES_SHOWN_MAX:
        show = command(f"audit --list {Listing.NOT_JUDGED}{settings.place_words}")
        steps.say(f"... and {len(summary.failures) - FAILURES_SHOWN_MAX:,} more: {show}")
    for line in missing_lines(ends):
        steps.say(line)
    show = command("sql" + settings.place_words)
    steps.say(f"the tables are in {settings.warehouse}; ask them with {show}")
    if not all_counts.is_balanced:
        return FAILED
    is_missing = missing or _missing(ends) or summary.failures or not _has_read(ends, all_counts.record_count)
    return INCOMPLETE if is_missing or summary.quarantined_row_count else DONE


def print_findings(run: RunContext, code: int) -> None:
    """Print on stdout whether all is there, what was found, and where to look; `code`: the exit code of the night."""
    found = findings(run.tables, run.run_id)
    ends = coordinator_ends(run.warehouse, run.settings)
    # Kafka may have compacted or pruned records before they were read, or have log partitions that are not known
    counts = run.settings.partition_counts
    is_proven = code == DONE and all(
        completeness(run.tables, log, ALL_TIMES, partition_counts=counts).is_complete
        for log, it in ends.items()
        if it.ends
    )
    headline = _headline(run, found, code, ends, is_proven=is_proven)
    run.steps.facts["found"] = {"headline": headline, **found.as_json()}
    if run.metrics is not None:
        run.metrics.expose_findings(found)
    for line in lines_of_others(found.foreign_writes, run.settings.place_words):
        run.steps.say(line)
    has_new = any(it.new for it in found.items)
    needing = [it for it in group_verdicts(run.tables, with_gone=True) if it.verdict != OK]
    attention = [it.group_id for it in needing if not it.is_gone]
    gone = [it.group_id for it in needing if it.is_gone]
    said = lines(found, run.settings.place_words, attention, gone, run.steps.width)
    for line in (headline, *_rebuilt_lines(run.steps.facts), *said):
        run.steps.answer(line)
    if not is_proven and code == DONE and run.steps.facts["replayed"]["is_new"]:
        show = command(f"audit --list {Listing.HOLES}{run.settings.place_words}")
        run.steps.answer(f"What it had no more, or what is not known: {show}")
    if has_new and not run.settings.report_file:
        run.steps.answer(f"Report: {command('report --output report.html' + run.settings.place_words)}")


def _headline(run: RunContext, found: Findings, code: int, ends: Mapping[str, LogEnds], *, is_proven: bool) -> str:
    newest_ms = newest_of(ends.values())
    proven = [it.proven_ms for it in ends.values() if it.ends]
    day = run.started_at if newest_ms is None else to_datetime(newest_ms)
    facts = run.steps.facts
    of = facts["ledger"]["total"] if facts["replayed"]["is_new"] else asdict(LedgerCounts())
    counts = f"({counted(of['record_count'], 'record')}, {of['quarantined_count']:,} quarantined)"
    has_read = _has_read(ends, facts["ledger"]["total"]["record_count"])
    state = f"NOT COMPLETE: {found.lacks or ('see above' if has_read else 'nothing was read')}"
    if code == DONE and not found.lacks:
        # a log partition without records proves no time: a copy does not show what came after
        reach = "its last record"
        known = [it for it in proven if it is not None]
        if known and len(known) == len(proven):
            until = to_datetime(min(known))
            reach = f"{until:{'%H:%M:%S' if until.date() == day.date() else '%Y-%m-%d %H:%M'}}"
        state = f"COMPLETE to {reach}{'' if is_proven else ', of what Kafka still had'}"
    return cut(f"Night of {day:%Y-%m-%d}, cluster {short(run.settings.cluster_id, 40)}: {state} {counts}")
