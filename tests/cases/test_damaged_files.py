"""Damaged files of a warehouse: what can be made again is, and for all else one line says what to do."""

import errno
import shlex
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from jobs.bronze.retention import record_deletions
from jobs.cli import app as cli
from jobs.console.command_name import command
from jobs.errors import TableDamaged
from jobs.exit_codes import DONE, FAILED
from jobs.operations.damage import MADE_BY, error_text, explained
from jobs.operations.nightly import run_audit, run_replay
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables import TABLES
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.state import Checkpoint
from tests.cases.harness import CLUSTER_ID, FIRST_NIGHT, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog

DAY_MS: Final = 86_400_000


class Copies(NamedTuple):
    """A warehouse after two nights, to be copied and never changed, and the logs of the second one."""

    root: Path
    logs: Path

    def copy(self, root: Path) -> Ledger:
        """A ledger to be damaged."""
        shutil.copytree(self.root, root)
        return Ledger(root)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """Groups, commits that went back, and a share partition, over two nights."""
    root = tmp_path_factory.mktemp("whole")
    log, share = SmallLog(), SmallLog(0, SHARE_TOPIC)
    ledger, logs = Ledger(root / "warehouse"), root
    for day in (1, 2):
        at_ms = NOON_MS + day * DAY_MS
        log.generation("g", 2 * day, {"a": (0,), "b": (1,)}, at_ms)
        log.commit("g", 0, 100 - day, at_ms + 1_000)
        log.generation("g", 2 * day + 1, {"a": (0, 1)}, at_ms + 20_000)
        share.snapshot("share", at_ms, ((0, 9 + day, 0, 1 + day),), snapshot_epoch=day)
        logs = share.write(log.write(root / f"logs-{day}"))
        ledger.night(logs, number=day)
    return Copies(root / "warehouse", logs)


@pytest.fixture(scope="module")
def rows(whole: Copies) -> Mapping[str, list[str]]:
    """What silver and gold of the whole warehouse have."""
    return rows_of(Ledger(whole.root))


def rows_of(ledger: Ledger) -> dict[str, list[str]]:
    """The rows of all tables of silver and gold, as texts."""
    names = [name for name, table in TABLES.items() if table.layer in ("silver", "gold")]
    return {name: sorted(map(repr, ledger.rows(name))) for name in names}


def cut(file: Path) -> None:
    """Leave the first half."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    """Leave nothing."""
    file.write_bytes(b"")


def made_folder(file: Path) -> None:
    """Put a folder in its place."""
    file.unlink()
    file.mkdir()


def changed(file: Path) -> None:
    """Change one byte in the first page, behind its header."""
    data = bytearray(file.read_bytes())
    data[60] ^= 0x5A
    file.write_bytes(data)


DATA: Final[Mapping[str, tuple[Callable[[Path], Any], str]]] = {
    "gone": (Path.unlink, "the file is gone"),
    "cut": (cut, "bytes"),
    "empty": (empty, "it is empty"),
    "folder": (made_folder, "it is a folder"),
    "changed": (changed, "it is not what was written"),
}
"""What happens to a data file, and what is said of it."""


def damage(ledger: Ledger, name: str, how: str) -> Path:
    """Damage a data file of a table, the one that a reader reads first, or a file of its log. Returns the file."""
    what, _, kind = how.partition(" ")
    if what == "data":
        files = ledger.tables.files(TABLES[name])
        file = Path(min(files, key=lambda it: it.partition_values.get("kind") != Checkpoint.WATERMARK).path)
    else:
        if what == "checkpoint":
            ledger.warehouse.checkpoint(TABLES[name])
        log = Path(ledger.folder(name), "_delta_log")
        file = sorted(log.glob({"checkpoint": "*.checkpoint.parquet", "first": "*0.json", "last": "*.json"}[what]))[-1]
    DATA[kind][0](file)
    return file


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("silver.offset_commits", "data gone"),
        ("silver.group_events", "last cut"),
        ("silver.share_partition_states", "checkpoint cut"),
        ("state.checkpoints", "data changed"),
        ("state.run_starts", "last empty"),
        ("state.read_files", "data cut"),
        ("gold.partition_owners", "first gone"),
        ("state.audited_logs", "data folder"),
    ],
)
def test_a_night_makes_a_damaged_table_again(
    whole: Copies, rows: Mapping[str, list[str]], tmp_path: Path, name: str, how: str
) -> None:
    """Silver, gold and the state of replay and audit: the night says so in one line and ends as usual, with the rows of
    a warehouse that was never damaged; the next night says nothing."""
    ledger = whole.copy(tmp_path / "warehouse")
    file = damage(ledger, name, how)
    night = ledger.night(whole.logs, number=3)
    [line] = [line for line in night.lines if "is damaged" in line]
    assert line.startswith(f"{name} is damaged: {file}: ")
    assert (DATA["changed" if file.parent.name == "_delta_log" and "cut" in how else how.split()[1]][1]) in line
    assert line.endswith("the table begins again, empty" if MADE_BY[name] == "capture" else "made again from bronze")
    assert night.exit_code == DONE
    assert rows_of(ledger) == rows
    assert "is damaged" not in ledger.night(whole.logs, number=4).text


def test_a_rebuild_makes_again_what_only_a_reader_finds(
    whole: Copies, rows: Mapping[str, list[str]], tmp_path: Path
) -> None:
    """A changed byte leaves the size of a file as it was, and a night with nothing new does not read the file: the line
    names the command that rebuilds, not the night."""
    ledger = whole.copy(tmp_path / "warehouse")
    place = f"--warehouse {ledger.root} --cluster-id {CLUSTER_ID}"
    for name, job in (("silver.group_generations", run_replay), ("gold.rebalances", run_audit)):
        file = damage(ledger, name, "data changed")
        with pytest.raises(TableDamaged) as raised:
            ledger.rows(name)
        rebuild = command(f"{MADE_BY[name]} --rebuild {place}")
        text = f"{name} is damaged: {file}: it is not what was written. Rebuild the table: {rebuild}"
        assert explained(raised.value) == text
        assert ledger.run(partial(job, rebuild=True), number=3).exit_code == DONE
        assert rows_of(ledger)[name] == rows[name]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("bronze.record_batches", "data cut"),
        ("bronze.record_batches", "checkpoint empty"),
        ("state.offset_ranges", "data folder"),
    ],
)
def test_what_nothing_makes_again_is_said(
    whole: Copies, rows: Mapping[str, list[str]], tmp_path: Path, name: str, how: str
) -> None:
    """The night fails, with the file to be restored and the command that captures again, which works."""
    ledger = whole.copy(tmp_path / "warehouse")
    file = damage(ledger, name, how)
    with pytest.raises(TableDamaged) as raised:
        ledger.night(whole.logs, number=3)
    text = error_text(raised.value)
    assert text.startswith(f"{name} is damaged: {file}: ")
    again = command(f"nightly --segments DIR --warehouse {ledger.root}-new --cluster-id {CLUSTER_ID}")
    assert text.endswith(f". Restore that file from a backup, or capture again into a new warehouse: {again}")
    if how == "data cut":
        again_ledger = Ledger(Path(f"{ledger.root}-new"))
        assert again_ledger.night(whole.logs).exit_code == DONE
        assert rows_of(again_ledger).keys() == rows.keys()
        assert again_ledger.table("silver.offset_commits").num_rows == len(rows["silver.offset_commits"])


def test_samples_may_be_given_up(whole: Copies, tmp_path: Path) -> None:
    """What a live cluster said once is in no log: the line says how to go on without it, and that works."""
    ledger = whole.copy(tmp_path / "warehouse")
    sample = {"topic": "t", "partition": 0, "sampled_at": FIRST_NIGHT, "log_start_offset": 0, "end_offset": 9}
    ledger.tables.write(TABLES["bronze.end_offsets"], [sample], app_id="watch/test")
    damage(ledger, "bronze.end_offsets", "data gone")
    with pytest.raises(TableDamaged) as raised:
        ledger.night(whole.logs, number=3)
    text, _, words = error_text(raised.value).partition(", and delete it: ")
    assert text.endswith("Restore that file from a backup; or do without the rows of the table")
    program, option, folder = shlex.split(words)
    assert (program, option) == ("rm", "-r")
    shutil.rmtree(folder)
    assert ledger.night(whole.logs, number=3).exit_code == DONE


COMMANDS: Final = (
    ["describe"],
    ["groups"],
    ["history", "--group", "g"],
    ["owner", "--topic", "t", "--partition", "0"],
    ["restore", "--group", "g", "--at", "2026-05-30T20:00:00Z"],
    ["whatif", "--group", "g", "--set", "session.timeout.ms=60000"],
    ["report", "--output", "REPORT"],
    ["changes"],
    ["verify", "--against-ledger"],
    ["where", "--share", "share:t:0", "--partitions", "__share_group_state=5"],
    ["sql", "-e", "select * from TABLE"],
)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("bronze.coverage", "data gone"),
        ("silver.offset_commits", "last cut"),
        ("state.runs", "data gone"),
        ("gold.rebalances", "data changed"),
    ],
)
def test_commands_that_read_say_it_in_one_line(
    whole: Copies, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, how: str
) -> None:
    """Each that meets the file: exit code 1, and a line with the table, the file, and the way out; no other error."""
    ledger = whole.copy(tmp_path / "warehouse")
    file = damage(ledger, name, how)
    telling = []
    for words in COMMANDS:
        own = [word.replace("TABLE", name).replace("REPORT", str(tmp_path / "r.html")) for word in words]
        code = cli.main([*own, "--warehouse", str(ledger.root), "--cluster-id", CLUSTER_ID])
        errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        damaged = [line for line in errors if line.startswith(f"error: {name} is damaged: {file}: ")]
        assert len(errors) == len(damaged) or code != FAILED, errors
        if damaged:
            assert code == FAILED
            job = MADE_BY.get(name)
            assert command(f"{job} --rebuild --warehouse " if job else "nightly --segments DIR") in damaged[0]
            assert ("Run nightly: it rebuilds the table" in damaged[0]) == bool(job and how != "data changed")
            telling.append(own[0])
    assert "sql" in telling


def test_other_damaged_files_are_counted(whole: Copies, tmp_path: Path) -> None:
    """Of all tables; the first one is named."""
    ledger = whole.copy(tmp_path / "warehouse")
    for name in ("silver.group_events", "gold.rebalances"):
        damage(ledger, name, "data gone")
    damage(ledger, "silver.group_members", "last cut")
    with pytest.raises(TableDamaged) as raised:
        ledger.rows("gold.rebalances")
    assert ", and 2 other files (silver.group_members, silver.group_events). Run" in explained(raised.value)
    night = ledger.night(whole.logs, number=3)
    assert len([line for line in night.lines if "is damaged" in line]) == 3


def test_a_rebuild_does_not_forget_by_itself(whole: Copies, tmp_path: Path) -> None:
    """Where retention deleted rows of bronze, silver has what nothing brings back: the line offers both ways."""
    ledger = whole.copy(tmp_path / "warehouse")
    file = ledger.tables.files(RECORD_BATCHES)[0]
    record_deletions(ledger.warehouse, [file], at=FIRST_NIGHT)
    damage(ledger, "silver.offset_commits", "data gone")
    with pytest.raises(TableDamaged) as raised:
        ledger.night(whole.logs, number=3)
    text = "Restore that file from a backup; or make the table again without what retention took out of bronze: "
    assert text + command("replay --rebuild") in error_text(raised.value)
    assert ledger.warehouse.has_version(TABLES["silver.group_members"], 0)


def test_a_deleted_table_is_missed_by_each_cluster(whole: Copies, tmp_path: Path) -> None:
    """A table without a readable log loses the rows of all clusters: the night of each makes its own again, also where
    other nights have brought the table to its former version."""
    ledger = whole.copy(tmp_path / "warehouse")
    other = Ledger(ledger.root, "other")
    before = rows_of(ledger)
    other.night(whole.logs, number=1)
    damage(ledger, "silver.offset_commits", "last cut")
    damage(ledger, "gold.rebalances", "last cut")
    other.night(whole.logs, number=2)
    for job in (run_replay, run_audit) * 2:
        other.run(partial(job, rebuild=True), number=3)
    ledger.night(whole.logs, number=3)
    for name in ("silver.offset_commits", "gold.rebalances"):
        own = [repr(row) for row in ledger.rows(name) if row["cluster_id"] == CLUSTER_ID]
        assert sorted(own) == before[name]


def test_no_night_begins_where_it_must_not_write(
    whole: Copies, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job that writes says so in one line, before Spark starts; commands that read do not mind."""
    ledger = whole.copy(tmp_path / "warehouse")
    place = ["--warehouse", str(ledger.root), "--cluster-id", CLUSTER_ID]

    def refuse(**_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("jobs.delta.filesystems.tempfile.TemporaryFile", refuse)
    logs = ["--segments", str(whole.logs)]
    jobs = (["nightly", *logs], ["capture", *logs], ["replay"], ["audit", "--rebuild"])
    for words in jobs:
        assert cli.main([*words, *place]) == FAILED
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: not writable: cannot write the warehouse in {ledger.root}, which is read-only")
    assert cli.main(["maintain", "--warehouse", str(ledger.root)]) == FAILED
    assert cli.main(["describe", *place]) == DONE
    monkeypatch.undo()
    assert cli.main(["nightly", *logs, "--warehouse", "/proc/warehouse"]) == FAILED
