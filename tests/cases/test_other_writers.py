"""Where somebody else wrote into the ledger, answers say so until all is rebuilt, and nothing is called complete."""

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.cli import app as cli
from jobs.console.command_name import command
from jobs.console.progress import Steps
from jobs.errors import WarehouseError
from jobs.operations.nightly import run_audit, run_replay
from jobs.operations.run_context import RunContext
from jobs.queries.as_of import SHARES_LOG
from jobs.queries.audit_report import Span, completeness
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables import TABLES
from tests.cases.harness import CASES, CLUSTER_ID, FIRST_NIGHT, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_copies import contents
from tests.jobs.in_process import in_process

LOGS = CASES / "X-compaction" / "full"
DAY_MS = 86_400_000
MORE = CASES / "S-skew" / "logs"


def delete(ledger: Ledger, name: str, where: str | None = None) -> None:
    """What SQL's DELETE does."""
    DeltaTable(ledger.warehouse.path(TABLES[name])).delete(where)


def reported(ledger: Ledger) -> dict[str, int]:
    """Tables that somebody else wrote into, each with the version."""
    from jobs.delta.other_writers import written_by_others

    return {write.table: write.version for write in written_by_others(ledger.warehouse, CLUSTER_ID)}


def test_nights_are_no_foreign_writes(ledger: Ledger) -> None:
    """Whatever the jobs write, a compaction and a clean-up of Delta's own included, nobody is accused."""
    for number, logs in enumerate((LOGS, MORE, LOGS), start=1):
        ledger.night(logs, number=number)
        assert reported(ledger) == {}
    table = DeltaTable(ledger.warehouse.path(TABLES["silver.offset_commits"]))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert reported(ledger) == {}


@pytest.mark.parametrize("name", ["gold.group_summary", "silver.offset_commits", "bronze.coverage"])
def test_a_deletion_is_reported_until_all_is_rebuilt(ledger: Ledger, name: str) -> None:
    """By each answer, and by the nights after it, which go on from what is left."""
    ledger.night(LOGS)
    delete(ledger, name)
    version = ledger.warehouse.version(TABLES[name])
    assert reported(ledger) == {name: version}
    night = ledger.night(LOGS, MORE, number=2)
    assert reported(ledger)[name] == version
    assert night.facts["found"]["foreign_writes"][name] == version
    assert "1 table changed by another program" in night.text
    [line] = [line for line in night.lines if line.startswith(f"{name} was changed")]
    job = "audit --rebuild" if name.startswith("gold.") else "replay --rebuild"
    assert f"in version {version}: " in line
    assert line.endswith(f"{command(job)} --warehouse {ledger.root} --cluster-id {CLUSTER_ID}")
    for log in ("__consumer_offsets", SHARES_LOG):
        complete = completeness(ledger.warehouse, CLUSTER_ID, log, Span())
        assert not complete.is_complete
    session = in_process()
    run = RunContext(session, ledger.warehouse, ledger.settings(), "again", FIRST_NIGHT, Steps(session))
    if not name.startswith("gold."):
        run_replay(run, rebuild=True)
    run_audit(run, rebuild=True)
    assert reported(ledger) == {}


def test_a_deletion_while_nights_go_on_is_found_behind_them(ledger: Ledger) -> None:
    """Between two nights, with the second one's own commit on top of it."""
    ledger.night(LOGS)
    delete(ledger, "silver.offset_commits", "log_offset = 1")
    delete(ledger, "gold.group_summary")
    versions = reported(ledger)
    assert set(versions) == {"silver.offset_commits", "gold.group_summary"}
    ledger.night(LOGS, MORE, number=2)
    assert reported(ledger) == versions


def test_answers_warn(ledger: Ledger, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """describe, owner, restore and report say it on stderr, with the command that puts it right."""
    ledger.night(LOGS)
    place = ["--warehouse", str(ledger.root), "--cluster-id", CLUSTER_ID]
    report = ["report", "--output", str(tmp_path / "r.html")]
    asks = (["describe"], ["owner", "--topic", "t", "--partition", "0"], report)
    for words in asks:
        cli.main([*words, *place])
        assert "another program" not in capsys.readouterr().err
    delete(ledger, "silver.offset_commits")
    for words in asks:
        cli.main([*words, *place])
        err = capsys.readouterr().err
        assert "warning: silver.offset_commits was changed by another program with DELETE, in version " in err
        assert f"replay --rebuild --warehouse {ledger.root} --cluster-id {CLUSTER_ID}" in err


def nights_of_copies(ledger: Ledger, root: Path) -> Path:
    """Two nights; the copy has what the first one left. Gives the logs of a third."""
    log, share = SmallLog(), SmallLog(0, SHARE_TOPIC)
    for day in (1, 2, 3):
        at_ms = NOON_MS + day * DAY_MS
        log.generation("g", 2 * day, {"a": (0,), "b": (1,)}, at_ms)
        log.commit("g", 0, 100 - day, at_ms + 1_000)
        log.generation("g", 2 * day + 1, {"a": (0, 1)}, at_ms + 20_000)
        log.commit("simple", 0, day, at_ms)
        share.snapshot("share", at_ms, ((0, 9 + day, 0, 1 + day),), snapshot_epoch=day)
        logs = share.write(log.write(root / f"logs-{day}"))
        if day < 3:
            ledger.night(logs, number=day)
        if day == 1:
            shutil.copytree(ledger.root, root / "copy")
    return logs


RESTORED = (
    *("silver.offset_commits", "silver.group_generations", "silver.share_partition_states", "gold.rebalances"),
    *("gold.group_summary", "state.watermarks", "state.log_checkpoints", "state.group_checkpoints"),
    *("state.audited_logs", "state"),
)


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("name", RESTORED)
def test_a_table_of_an_older_copy_is_made_again(ledger: Ledger, tmp_path: Path, name: str, is_gone: bool) -> None:
    """Parts of a warehouse were restored from a copy, or deleted: answers say so, and the next night has everything."""
    logs = nights_of_copies(ledger, tmp_path)
    whole = Ledger(tmp_path / "whole")
    shutil.copytree(ledger.root, whole.root)
    whole.night(logs, number=3)
    folder = Path(ledger.folder(name))
    shutil.rmtree(folder)
    if not is_gone:
        shutil.copytree(tmp_path / "copy" / name.replace(".", "/"), folder)
    if name.startswith(("silver.", "gold.")):
        assert name in reported(ledger)
    assert ledger.night(logs, number=3).exit_code == 0
    assert contents(ledger) == contents(whole)
    assert reported(ledger) == {}


@pytest.mark.parametrize("name", ["bronze.record_batches", "bronze.coverage"])
def test_bronze_of_an_older_copy_is_refused(ledger: Ledger, tmp_path: Path, name: str) -> None:
    """Coverage would speak of batches that are gone, which the source may not have any more."""
    logs = nights_of_copies(ledger, tmp_path)
    folder = Path(ledger.folder(name))
    shutil.rmtree(folder)
    assert name in reported(ledger)
    shutil.copytree(tmp_path / "copy" / name.replace(".", "/"), folder)
    with pytest.raises(WarehouseError, match=f"{name} is older than the last replay read it"):
        ledger.night(logs, number=3)
    assert name in reported(ledger)


def test_words_of_a_write() -> None:
    """Of bronze nothing can be replayed: its earlier version is named."""
    from jobs.delta.other_writers import ForeignWrite, lines

    [bronze] = lines([ForeignWrite("bronze.coverage", 7, "MERGE")], " --cluster-id k")
    assert "with MERGE" in bronze and "its version 6" in bronze and bronze.endswith("replay --rebuild --cluster-id k")
    [state] = lines([ForeignWrite("state.audited_logs", 7)])
    assert state.endswith("audit --rebuild")
