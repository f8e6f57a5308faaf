"""Other engines read the files of a night's tables, each with its own reader: every row, and every value."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from schemas.tables import TABLES
from tests.cases.harness import Ledger
from tests.conftest import PROJECT_ROOT
from tests.groupledger.raw import recording
from tests.lengths import takes_minutes
from tests.made_once import MadeOnce
from tests.maven import CACHE, Unavailable, jars_and_classes, jdk_tool, locked, made

HERE: Final = Path(__file__).resolve().parent
UV: Final = PROJECT_ROOT / ".venv" / "bin" / "uv"
READ_TIMEOUT_S: Final = 300
JDK_25: Final = sorted(Path("/usr/lib/jvm").glob("*25*/bin/javac"))

Counts = Mapping[str, tuple[int, int]]
"""By path of a file, its rows, and the values in them that are not null, without those of lists, maps and structs."""

PROGRAMS: Final = {
    "duckdb": """
import duckdb
def read(path):
    columns = duckdb.sql(f"describe select * from read_parquet('{path}', hive_partitioning=false)").fetchall()
    flat = [name for name, kind, *_ in columns if kind[-1] not in "])"]
    counts = ", ".join(f'count("{name}")' for name in flat)
    of_file = f"from read_parquet('{path}', hive_partitioning=false)"
    [(rows, *values)] = duckdb.sql(f"select count(*), {counts} {of_file}").fetchall()
    return rows, sum(values)
""",
    "polars": """
import polars
def read(path):
    rows = polars.read_parquet(path, hive_partitioning=False)
    return len(rows), sum(it.len() - it.null_count() for it in rows if not it.dtype.is_nested())
""",
    "pandas": """
import pandas
import pyarrow
def read(path):
    rows = pandas.read_parquet(path, partitioning=None, dtype_backend="pyarrow")
    flat = [name for name, kind in rows.dtypes.items() if not pyarrow.types.is_nested(kind.pyarrow_dtype)]
    return len(rows), int(rows[flat].count().sum())
""",
}
"""For Python, by package: how it reads a file."""
MAIN: Final = """
import sys
for path in sys.stdin.read().splitlines():
    print(path, *read(path), sep="\\t")
"""


def in_python(package: str, paths: str) -> str:
    """What a package reads, which is installed for the tests alone."""

    def install(folder: Path) -> None:
        command = [str(UV), "pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder)]
        subprocess.run([*command, package, "pyarrow"], check=True)

    with locked(CACHE / f"engine-{package}.lock"):
        there = made(CACHE / f"engine-{package}", install)
    return said([sys.executable, "-c", PROGRAMS[package] + MAIN], paths, {"PYTHONPATH": str(there)})


def in_trino(_: str, paths: str) -> str:
    """What Trino's reader reads."""
    if not JDK_25:
        pytest.skip("no JDK 25")
    home = {"JAVA_HOME": str(JDK_25[-1].parents[1])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*home.popitem())
        try:
            jars, classes = jars_and_classes("trino", HERE / "trino.xml", [HERE / "TrinoReads.java"])
        except Unavailable as error:
            pytest.skip(str(error))
        command = [
            jdk_tool("java"),
            "--add-modules",
            "jdk.incubator.vector",
            "-cp",
            f"{classes}:{jars}/*",
            "TrinoReads",
        ]
        return said(command, paths, {})


def said(command: list[str], paths: str, environment: Mapping[str, str]) -> str:
    """What a program prints, with paths on its standard input."""
    done = subprocess.run(
        command,
        input=paths,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=READ_TIMEOUT_S,
        check=False,
    )
    assert not done.returncode, done.stderr[-4000:]
    return done.stdout


ENGINES: Final[Mapping[str, Callable[[str, str], str]]] = {**dict.fromkeys(PROGRAMS, in_python), "Trino": in_trino}


@pytest.fixture(scope="module")
def files(made_once: MadeOnce) -> Counts:
    """The files of all tables of a night, as pyarrow, which wrote them, reads them."""
    ledger = Ledger(made_once("ledger-full-a", lambda root: Ledger(root).night(recording("full-a"))))
    folders = [ledger.folder(name) for name in TABLES]
    paths = [path for it in folders if DeltaTable.is_deltatable(it) for path in DeltaTable(it).file_uris()]
    return {path: counts_of(pq.read_table(path, partitioning=None)) for path in paths}


def counts_of(rows: pa.Table) -> tuple[int, int]:
    flat = [column for column in rows.columns if not pa.types.is_nested(column.type)]
    return rows.num_rows, sum(len(column) - column.null_count for column in flat)


@takes_minutes
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_all_tables(files: Counts, engine: str) -> None:
    """Each file of bronze, silver, gold and state has, for this engine, the rows and values that were written."""
    lines = ENGINES[engine](engine, "\n".join(files)).splitlines()
    found = {path: (int(rows), int(values)) for path, rows, values in (line.split("\t") for line in lines)}
    assert found == files
