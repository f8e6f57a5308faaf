"""Do two versions of Groupledger make the same tables of the same logs?

python -m tools.compare_tables OLD                      a checkout of a release (git worktree add ../old RELEASE):
                                                        it and this checkout, over all recordings
python -m tools.compare_tables OLD --recording full-a   over one of them (may be repeated)
python -m tools.compare_tables OLD --logs DIR           over logs of one's own

Each version replays and audits each log in nights of its own, with the same clock and run ids, in this environment.
The rows of each table of bronze, silver and gold are sorted and compared byte for byte. Tables and columns that one
version alone has are named and not compared. Where a column went, and one with the same values came, it is named as
renamed. Exit code 1 where rows differ: each column that differs is printed with its first rows.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from schemas.tables import TABLES
from tools.recordings import SUFFIX, unpacked

ROOT: Final = Path(__file__).resolve().parent.parent
LAYERS: Final = ("bronze", "silver", "gold")
"""Layers whose tables are the public interface; state is internal."""
LOG_FOLDERS: Final = ("logs-before", "logs")
"""Folders of a recording in the order in which nights read them: before and after the cleaner ran."""
SHOWN_MAX: Final = 3
"""Number of rows shown for a column that differs."""
NIGHTS: Final = '''
import json, sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from io import StringIO
from rich.console import Console
from tests.jobs.in_process import in_process

def first(name, *modules):
    """From the module that this version has it in."""
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"no {name} in {', '.join(modules)}: tools/compare_tables.py does not know this version")

Warehouse = first("Warehouse", "jobs.delta.warehouse", "jobs.sinks")
Steps = first("Steps", "jobs.console.progress", "jobs.progress")
run_nightly = first("run_nightly", "jobs.operations.nightly", "jobs.nightly")
load_settings = first("load_settings", "jobs.settings")
try:
    RunContext = first("RunContext", "jobs.operations.run_context")
except SystemExit:
    RunContext = None
for root, nights in json.load(sys.stdin):
    session = in_process()
    for number, logs in enumerate(nights, 1):
        settings = load_settings({"warehouse": root, "cluster_id": "c", "segments": (logs,)}, environment={})
        more = {
            "run_id": f"night-{number}",
            "started_at": datetime(2027, 1, number, tzinfo=UTC),
            "steps": Steps(session, Console(file=StringIO(), width=200)),
        }
        if RunContext is None:
            code = run_nightly(session, Warehouse(root), settings, **more)
        else:
            code = run_nightly(RunContext(session, Warehouse(root), settings, **more))
        if code not in (0, 3):
            raise SystemExit(f"nightly of {logs} ended with {code}")
'''
"""The script that each version runs: without Spark, one warehouse for each log."""

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows of one column, or of a whole table, that differ between the versions."""

    table: str
    column: str
    """Empty where rows exist in one version only."""
    row_count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        place = f"{self.table}.{self.column}" if self.column else self.table
        return "\n    ".join([f"{place}: {self.row_count:,} rows differ", *self.examples])


def main() -> int:
    """Run the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.compare_tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, metavar="OLD", help="a checkout of the version to compare with")
    parser.add_argument("--new", type=Path, default=ROOT, metavar="DIR", help="another checkout than this one")
    parser.add_argument(
        "--recording", action="append", default=[], metavar="NAME", help="these alone (may be repeated)"
    )
    parser.add_argument("--logs", action="append", type=Path, default=[], metavar="DIR", help="logs of one's own")
    words = parser.parse_args()
    sources = dict(recorded_nights(words.recording)) if words.recording or not words.logs else {}
    sources |= {path.name: [path.resolve()] for path in words.logs}
    with tempfile.TemporaryDirectory(prefix="compare-tables-") as scratch:
        roots = {kind: Path(scratch) / kind for kind in ("old", "new")}
        make_warehouses(words.old, roots["old"], sources)
        make_warehouses(words.new, roots["new"], sources)
        return report({name: (roots["old"] / name, roots["new"] / name) for name in sources})


def recorded_nights(names: Sequence[str]) -> Iterator[tuple[str, list[Path]]]:
    """Folders of logs for each night, by recording: all recordings, or those named."""
    archives = (ROOT / "tests" / "recordings").glob(f"*{SUFFIX}")
    folder = unpacked(archives, ROOT / ".cache" / "recordings", links=(ROOT / "recordings").iterdir())
    for path in sorted(folder.iterdir()):
        if not names or path.name in names:
            yield path.name, [path / name for name in LOG_FOLDERS if (path / name).is_dir()]


def make_warehouses(checkout: Path, folder: Path, sources: Mapping[str, Sequence[Path]]) -> None:
    """Let a version run its nights over each source; the warehouse of a source is `folder` / its name."""
    work = [(str(folder / name), [str(logs) for logs in nights]) for name, nights in sources.items()]
    done = subprocess.run(
        [sys.executable, "-c", NIGHTS],
        input=json.dumps(work),
        text=True,
        cwd=checkout,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: its nights failed\n{done.stderr}")


def report(warehouses: Mapping[str, tuple[Path, Path]]) -> int:
    """Compare and print, one line for each source and each difference. Returns 1 if there is any difference."""
    notes: Counter[str] = Counter()
    code = 0
    for name, (old, new) in warehouses.items():
        found: list[Difference] = []
        row_count = 0
        for table in tables_of(old, new):
            ours, theirs = read(new, table), read(old, table)
            if ours is None or theirs is None:
                notes[f"{table}: only in the {'old' if ours is None else 'new'} version"] += 1
                continue
            notes.update(f"{table}.{line}" for line in changed_columns(theirs, ours))
            found += differences(table, theirs, ours)
            row_count += ours.num_rows
        print(f"{name}: {row_count:,} rows, {len(found)} differences")
        for difference in found:
            print(f"  {difference}")
        code = code or int(bool(found))
    for note, count in sorted(notes.items()):
        print(f"{note} ({count} of {len(warehouses)} logs)")
    return code


def tables_of(*warehouses: Path) -> list[str]:
    """Full names of the tables that exist in any of the warehouses."""
    found = {path.parent for root in warehouses for layer in LAYERS for path in root.glob(f"{layer}/*/_delta_log")}
    return sorted({f"{path.parent.name}.{path.name}" for path in found})


def read(warehouse: Path, table: str) -> pa.Table | None:
    """A table by its full name; None if the warehouse lacks it."""
    path = warehouse / table.replace(".", "/")
    return DeltaTable(str(path)).to_pyarrow_table() if (path / "_delta_log").is_dir() else None


def changed_columns(old: pa.Table, new: pa.Table) -> list[str]:
    """Columns that were removed, added, or renamed (same values as a removed one)."""
    gone = [name for name in old.column_names if name not in new.column_names]
    came = [name for name in new.column_names if name not in old.column_names]
    lines = []
    for name in gone:
        values = sorted(map(repr, old[name].to_pylist()))
        as_now = next((other for other in came if sorted(map(repr, new[other].to_pylist())) == values), None)
        if as_now is None or not old.num_rows:
            lines.append(f"{name}: gone")
        else:
            came.remove(as_now)
            lines.append(f"{name}: now {as_now}")
    return [*lines, *(f"{name}: added" for name in came)]


def differences(table: str, old: pa.Table, new: pa.Table) -> list[Difference]:
    """Differences in the common columns: by column where rows have the same key, else by rows."""
    names = [name for name in new.column_names if name in old.column_names]
    old_rows, new_rows = rows_of(old, names), rows_of(new, names)
    if old_rows == new_rows:
        return []
    declared = TABLES.get(table)
    key = [names.index(name) for name in declared.key if name in names] if declared is not None else []
    old_by_key, new_by_key = ({tuple(row[at] for at in key): row for row in rows} for rows in (old_rows, new_rows))
    if not key or len(old_by_key) != len(old_rows) or len(new_by_key) != len(new_rows):
        return [_of_rows(table, Counter(old_rows), Counter(new_rows))]
    found = []
    alone = (
        Counter(row for place, row in old_by_key.items() if place not in new_by_key),
        Counter(row for place, row in new_by_key.items() if place not in old_by_key),
    )
    if any(alone):
        found.append(_of_rows(table, *alone))
    for at, name in enumerate(names):
        other = [
            f"{' '.join(place)}: {old_by_key[place][at]} -> {row[at]}"
            for place, row in sorted(new_by_key.items())
            if place in old_by_key and old_by_key[place][at] != row[at]
        ]
        if other:
            found.append(Difference(table, name, len(other), tuple(other[:SHOWN_MAX])))
    return found


def rows_of(table: pa.Table, names: Sequence[str]) -> list[Row]:
    """Sorted rows, each value as an unambiguous string."""
    columns: list[list[Any]] = [table[name].to_pylist() for name in names]
    return sorted(tuple(map(repr, row)) for row in zip(*columns, strict=True))


def _of_rows(table: str, old: Counter[Row], new: Counter[Row]) -> Difference:
    gone, came = old - new, new - old
    examples = [f"- {' '.join(row)}" for row in sorted(gone)[:SHOWN_MAX]]
    examples += [f"+ {' '.join(row)}" for row in sorted(came)[:SHOWN_MAX]]
    return Difference(table, "", gone.total() + came.total(), tuple(examples))


if __name__ == "__main__":
    sys.exit(main())
