"""Where somebody else wrote into the ledger, answers say so until all is rebuilt, and nothing is called complete."""

import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable

from jobs.cli import app as cli
from jobs.console.command_name import command
from jobs.errors import WarehouseError
from jobs.operations.erase import KEY_BYTES, erase
from jobs.operations.nightly import run_audit, run_replay
from jobs.queries.answers.audit_report import Span, completeness
from jobs.queries.as_of.as_of import SHARES_LOG
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

    return {write.table: write.version for write in written_by_others(ledger.tables)}


def test_nights_are_no_foreign_writes(ledger: Ledger) -> None:
    """Whatever the jobs write, a compaction and a clean-up of Delta's own included, nobody is accused."""
    for number, logs in enumerate((LOGS, MORE, LOGS), start=1):
        ledger.night(logs, number=number)
        assert reported(ledger) == {}
    table = DeltaTable(ledger.warehouse.path(TABLES["silver.offset_commits"]))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert reported(ledger) == {}


@pytest.mark.parametrize("is_erased", [False, True])
@pytest.mark.parametrize("name", ["gold.group_summary", "bronze.coverage"])
def test_a_deletion_is_reported_until_all_is_rebuilt(ledger: Ledger, name: str, is_erased: bool) -> None:
    """By each answer, and by the nights after it, which go on from what is left; also where an erasure made Delta's log
    forget who wrote."""
    ledger.night(LOGS)
    delete(ledger, name)
    version = ledger.warehouse.version(TABLES[name])
    if is_erased:
        erase(in_process(), ledger.warehouse, ids=["client-of-nobody"], new_key=b"k" * KEY_BYTES, at=FIRST_NIGHT)
    assert reported(ledger) == {name: version}
    night = ledger.night(LOGS, MORE, number=2)
    assert reported(ledger)[name] == version
    assert night.facts["found"]["foreign_writes"][name] == version
    assert "NOT COMPLETE: 1 table changed by another program" in night.text
    [line] = [line for line in night.lines if line.startswith(f"{name} was changed")]
    job = "audit --rebuild" if name.startswith("gold.") else "replay --rebuild"
    assert f"in version {version}: " in line
    assert line.endswith(f"{command(job)} --warehouse {ledger.root} --cluster-id {CLUSTER_ID}")
    for log in ("__consumer_offsets", SHARES_LOG):
        complete = completeness(ledger.tables, log, Span())
        assert not complete.is_complete
    if not name.startswith("gold."):
        ledger.run(partial(run_replay, rebuild=True), number=3)
    ledger.run(partial(run_audit, rebuild=True), number=3)
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


class Copies(NamedTuple):
    """Folders of a test's module: warehouses after one night, two and three, and the logs of the third night."""

    first: Path
    second: Path
    third: Path
    logs: Path

    def restore(self, root: Path, *names: str) -> Ledger:
        """The warehouse after two nights, in which some tables or folders are of the first."""
        shutil.copytree(self.second, root)
        for name in names:
            shutil.rmtree(root / name)
            shutil.copytree(self.first / name, root / name)
        return Ledger(root)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """To be read, and never changed."""
    root = tmp_path_factory.mktemp("copies")
    log, share = SmallLog(), SmallLog(0, SHARE_TOPIC)
    ledger, found, logs = Ledger(root / "warehouse"), [], root
    for day in (1, 2, 3):
        at_ms = NOON_MS + day * DAY_MS
        log.generation("g", 2 * day, {"a": (0,), "b": (1,)}, at_ms)
        log.commit("g", 0, 100 - day, at_ms + 1_000)
        log.generation("g", 2 * day + 1, {"a": (0, 1)}, at_ms + 20_000)
        log.commit("simple", 0, day, at_ms)
        share.snapshot("share", at_ms, ((0, 9 + day, 0, 1 + day),), snapshot_epoch=day)
        logs = share.write(log.write(root / f"logs-{day}"))
        ledger.night(logs, number=day)
        found.append(root / f"copy-{day}")
        shutil.copytree(ledger.root, found[-1])
    first, second, third = found
    return Copies(first, second, third, logs)


@pytest.mark.parametrize(
    "names",
    [
        ("silver/offset_commits", "gold/rebalances"),
        ("state",),
    ],
)
def test_tables_of_an_older_copy_are_made_again(copies: Copies, tmp_path: Path, names: tuple[str, ...]) -> None:
    """Parts of a warehouse were restored from a copy: answers say so, and the next night has everything."""
    ledger = copies.restore(tmp_path / "warehouse", *names)
    tables = {name.replace("/", ".") for name in names if not name.startswith("state")}
    assert tables <= reported(ledger).keys()
    assert ledger.night(copies.logs, number=3).exit_code == 0
    assert contents(ledger) == contents(Ledger(copies.third))
    assert reported(ledger) == {}


def test_a_table_that_was_deleted_is_made_again(copies: Copies, tmp_path: Path) -> None:
    """As one of an older copy."""
    ledger = copies.restore(tmp_path / "warehouse")
    shutil.rmtree(tmp_path / "warehouse" / "silver" / "group_generations")
    assert ledger.night(copies.logs, number=3).exit_code == 0
    assert contents(ledger) == contents(Ledger(copies.third))


@pytest.mark.parametrize("name", ["bronze/record_batches", "bronze/coverage"])
def test_bronze_of_an_older_copy_is_refused(copies: Copies, tmp_path: Path, name: str) -> None:
    """Coverage would speak of batches that are gone, which the source may not have any more."""
    ledger = copies.restore(tmp_path / "warehouse", name)
    table = name.replace("/", ".")
    with pytest.raises(WarehouseError, match=f"{table} is older than the last replay read it"):
        ledger.night(copies.logs, number=3)
    assert table in reported(ledger)


def test_words_of_a_write() -> None:
    """Of bronze nothing can be replayed: its earlier version is named."""
    from jobs.delta.other_writers import ForeignWrite, lines

    [bronze] = lines([ForeignWrite("bronze.coverage", 7, "MERGE")], " --cluster-id k")
    assert "with MERGE" in bronze and "its version 6" in bronze and bronze.endswith("replay --rebuild --cluster-id k")
    [state] = lines([ForeignWrite("state.audited_logs", 7)])
    assert state.endswith("audit --rebuild")
