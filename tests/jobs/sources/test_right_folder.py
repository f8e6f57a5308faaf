"""A wrong folder is refused before Spark starts, with the one that is right."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.cli import app as cli
from jobs.cli import session
from jobs.cli.readable import no_tables
from jobs.errors import ArgumentError, NoSuchSource
from jobs.exit_codes import WRONG_ARGUMENTS
from jobs.sources.right_folder import require_dump, require_source_folder, require_warehouse_folder
from jobs.sources.segments import find_partitions

TOPICS = ("__consumer_offsets", "__share_group_state")
SEGMENT = "00000000000000000000.log"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Logs of two brokers in folders of their own, and a warehouse, with no folder of another test next to them."""
    home = tmp_path / "home"
    for broker, partitions in (("broker-1", (0, 1)), ("broker-2", (2,))):
        for partition in partitions:
            folder = home / "copy" / broker / f"__consumer_offsets-{partition}"
            folder.mkdir(parents=True)
            (folder / SEGMENT).touch()
    for table in ("bronze/record_batches", "gold/rebalances"):
        (home / "warehouse" / table / "_delta_log").mkdir(parents=True)
    (home / "raw").mkdir()
    (home / "raw" / "part-0.parquet").touch()
    (home / "table" / "_delta_log").mkdir(parents=True)
    (home / "empty").mkdir()
    return home


WRONG = (
    ("copy", "has no folder .*; did you mean --segments {0}/copy/broker-1 --segments {0}/copy/broker-2?"),
    (".", "did you mean --segments {0}/copy/broker-1 --segments {0}/copy/broker-2?"),
    ("copy/broker-1/__consumer_offsets-0", "folder of one partition.*; did you mean --segments {0}/copy/broker-1?"),
    (f"copy/broker-2/__consumer_offsets-2/{SEGMENT}", "is a file.*; did you mean --segments {0}/copy/broker-2?"),
    ("copy/broker-2/__consumer_offsets-9", "no such folder; did you mean --segments {0}/copy/broker-2?"),
    ("copz", "no such folder; did you mean {0}/copy?"),
    ("warehouse", "holds Delta tables. A warehouse is what jobs write: --warehouse {0}/warehouse"),
    ("raw", "Files of dumped records are named with --dump {0}/raw"),
    ("raw/part-0.parquet", "is a file.*--dump {0}/raw/part-0.parquet"),
    ("table", "A Delta table of raw records is a dump: --dump {0}/table"),
    ("empty", "is empty$"),
)


@pytest.mark.parametrize(("folder", "said"), WRONG)
@pytest.mark.parametrize("look", [require_source_folder, find_partitions])
def test_a_wrong_source_names_the_right_one(
    copied: Path, folder: str, said: str, look: Callable[[str, tuple[str, ...]], object]
) -> None:
    """Above, below, of another kind or spelled otherwise; before Spark starts as in the capture itself."""
    with pytest.raises(NoSuchSource, match=said.format(copied).replace("?", r"\?")):
        look(str(copied / folder), TOPICS)


def test_right_sources_are_not_refused(copied: Path) -> None:
    """A broker's folder, and a dump's."""
    require_source_folder(str(copied / "copy" / "broker-1"), TOPICS)
    require_source_folder(f"file://{copied}/copy/broker-1/", TOPICS)
    require_dump(str(copied / "raw"))


def test_a_wrong_dump_names_the_right_one(copied: Path) -> None:
    """Or the option that takes what it is."""
    with pytest.raises(NoSuchSource, match=f"--segments {copied}/copy/broker-1"):
        require_dump(str(copied / "copy" / "broker-1"))
    with pytest.raises(NoSuchSource, match=rf"no such dump: .*; did you mean {copied}/raw\?"):
        require_dump(str(copied / "rax"))


def test_tables_are_written_neither_into_logs_nor_into_tables(copied: Path) -> None:
    """A broker's log directory stays what it is, and a warehouse has no second one inside."""
    for folder in ("copy/broker-1", "copy/broker-1/__consumer_offsets-0"):
        with pytest.raises(ArgumentError, match="is a folder of Kafka's logs"):
            require_warehouse_folder(str(copied / folder))
    for folder in ("warehouse/gold", "warehouse/gold/rebalances", "warehouse/silver"):
        with pytest.raises(ArgumentError, match=f"lies inside of the warehouse {copied}/warehouse: name that one"):
            require_warehouse_folder(str(copied / folder))
    for folder in ("warehouse", "new", "copy", "empty"):
        require_warehouse_folder(str(copied / folder))


@pytest.mark.parametrize("folder", [".", "warehouse/gold", "warehouse/gold/rebalances", "warehuose", "empty"])
def test_a_question_of_a_folder_without_tables_names_the_warehouse(copied: Path, folder: str) -> None:
    """Above, below or next to it."""
    assert no_tables(str(copied / folder)) == (
        f"no tables in {copied / folder}; did you mean --warehouse {copied}/warehouse?"
    )
    shutil.rmtree(copied / "warehouse")
    assert "did you mean" not in no_tables(str(copied / folder))


def test_nightly_refuses_before_spark_starts(
    copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an exit code and one line, and nothing was written."""

    def open_session(*_: object, **__: object) -> None:
        raise AssertionError("Spark started")

    monkeypatch.setattr(session, "open_session", open_session)
    new = str(copied / "new")
    for words in (("--segments", str(copied)), ("--lake", str(copied / "copy" / "broker-1"))):
        for job in ("nightly", "capture"):
            assert cli.main([job, *words, "--warehouse", new]) == WRONG_ARGUMENTS
            assert capsys.readouterr().err.count("\n") == 1
    logs = str(copied / "copy" / "broker-1")
    assert cli.main(["nightly", "--segments", logs, "--warehouse", logs]) == 2
    assert not Path(new).exists() and sorted(path.name for path in Path(logs).iterdir()) == [
        "__consumer_offsets-0",
        "__consumer_offsets-1",
    ]
