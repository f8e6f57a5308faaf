"""nightly of many clusters in one warehouse: what happens to one happens to no other, and the worst is said."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pytest

from coordinator_core.replay.columnar.share_state_kernels import pack_pool
from jobs.delta.warehouse import Warehouse
from jobs.errors import SettingsError
from jobs.operations import clusters
from jobs.operations.clusters import ClusterNight, night_of, run_clusters, worst
from jobs.report.run import write_index
from jobs.settings import Settings, load_clusters
from jobs.spark.run_folder import delete_abandoned
from schemas.tables import TABLES
from schemas.tables.gold import GOLD_TABLES
from schemas.tables.silver import SILVER_TABLES
from tests.cases.harness import CASES
from tests.conftest import PROJECT_ROOT
from tests.lengths import takes_minutes
from tests.recorded import RECORDINGS

pytestmark = pytest.mark.nights

AT: Final = datetime(2026, 11, 26, tzinfo=UTC)


def listed(tmp_path: Path, sources: dict[str, Path], more: str = "") -> list[Settings]:
    """Settings of clusters, as a file lists them."""
    path = tmp_path / "groupledger.toml"
    tables = (f'[clusters.{name}]\nsegments = ["{folder}"]\n' for name, folder in sources.items())
    path.write_text(f'warehouse = "{tmp_path / "warehouse"}"\n{more}\n' + "".join(tables))
    return load_clusters(environment={}, config_file=path)


def damaged(tmp_path: Path) -> Path:
    """Logs in which one byte of a batch is another."""
    folder = tmp_path / "damaged"
    for source in (CASES / "D2a" / "logs").iterdir():
        (folder / source.name).mkdir(parents=True)
        for file in source.iterdir():
            data = bytearray(file.read_bytes())
            if file.suffix == ".log":
                data[len(data) // 2] ^= 1
            (folder / source.name / file.name).write_bytes(data)
    return folder


def rows(tmp_path: Path, table: str, cluster_id: str) -> list[dict[str, Any]]:
    """A cluster's rows of a table, without what names the cluster and the run."""
    found = Warehouse(str(tmp_path / "warehouse")).read(TABLES[table], where={"cluster_id": cluster_id})
    return sorted(
        ({name: it for name, it in row.items() if name != "cluster_id"} for row in found.to_pylist()), key=repr
    )


def test_clusters_share_a_warehouse_and_no_fate(tmp_path: Path) -> None:
    """Each has the tables that it has alone; one whose source is not there fails, one that is damaged lacks something:
    the others are whole, each is reported in a line, and the exit code is the worst."""
    good = CASES / "D2a" / "logs"
    names = {"one": good, "two": good, "three": good, "hurt": damaged(tmp_path), "gone": tmp_path / "none"}
    said: list[str] = []
    nights = run_clusters(listed(tmp_path, names), run_id="r", started_at=AT, say=said.append, process_count=2)
    assert [(night.cluster_id, night.exit_code) for night in nights] == [
        *(("one", 0), ("two", 0), ("three", 0)),
        *(("hurt", 3), ("gone", 1)),
    ]
    assert worst(nights) == 1 and worst(nights[:4]) == 3 and worst(nights[:3]) == 0
    headlines = [line for line in said if line.startswith("Night of ")]
    assert len(headlines) == 4 and sum(" COMPLETE to " in line for line in headlines) == 3
    assert [line for line in said if line.startswith("  NEW: ")] == ["  NEW: 1 hole in coverage, 1 row in quarantine"]
    assert any(line.startswith("gone: failed: ") and "none" in line for line in said)
    for table in ("silver.group_generations", "gold.rebalances", "bronze.record_batches"):
        assert rows(tmp_path, table, "one") == rows(tmp_path, table, "two") == rows(tmp_path, table, "three") != []


@takes_minutes
def test_a_process_that_is_killed_is_one_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system kills the largest where memory runs out: the clusters of the other processes are run again."""
    monkeypatch.setattr(clusters, "night_of", killed_or_done)
    sources = dict.fromkeys(("a", "huge", "b"), CASES / "D2a" / "logs")
    said: list[str] = []
    nights = run_clusters(listed(tmp_path, sources), run_id="r", started_at=AT, say=said.append, process_count=2)
    assert [night.exit_code for night in nights] == [0, 1, 0]
    assert "nightly --cluster-id huge" in nights[1].error


def test_a_first_page_is_over_all_reports(tmp_path: Path) -> None:
    """Clusters that are not whole come first, then those with groups that need somebody; each has its report, whatever
    its name, or none."""
    names = ["calm", "a/b?c", "gone"]
    sources = {"calm": CASES / "D2a" / "logs", '"a/b?c"': RECORDINGS / "full-a" / "logs", "gone": tmp_path / "none"}
    file = tmp_path / "pages" / "x-{cluster_id}.html"
    settings = listed(tmp_path, sources, f'[report]\nfile = "{file}"')
    nights = [night_of(it, "r", AT) for it in settings]
    codes = {night.cluster_id: night.exit_code for night in nights}
    assert codes == dict(zip(names, (0, 0, 1), strict=True))
    page = write_index(Warehouse(settings[0].warehouse), settings[0], codes, made_at=AT)
    assert sorted(path.name for path in file.parent.iterdir()) == ["x-a%2Fb%3Fc.html", "x-calm.html", "x-clusters.html"]
    text = Path(page).read_text()
    cells = [re.sub("<[^>]*>", " ", row).split() for row in re.findall("<tr><td.*?</tr>", text, re.DOTALL)]
    assert [row[0] for row in cells] == ["gone", "a/b?c", "calm"]
    assert "the last night failed" in " ".join(cells[0]) and {"122", "257"} <= set(cells[1])
    links = re.findall('href="([^"]*)"', text)
    assert links == ["x-a%252Fb%253Fc.html", "x-calm.html"]
    assert all((file.parent / unquote(link)).is_file() for link in links)


def what_is_loaded(settings: Settings, _run_id: str, _started_at: datetime) -> ClusterNight:
    """In place of a night: had its process loaded what a night needs, compiled loops too, before anybody asked?"""
    is_ahead = bool(pack_pool.signatures)  # type: ignore[attr-defined]  # numba's own
    facts = {
        "ledger": {"total": {"record_count": 1}},
        "found": {"headline": "", "new": {}, "over": {}},
        "is_ahead": is_ahead,
    }
    return ClusterNight(settings.cluster_id, 0, 0.1, (), facts)


def test_a_process_is_forked_from_one_that_has_loaded_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a night needs is loaded once, and the command itself, which only waits, loads nothing of it."""
    monkeypatch.setattr(clusters, "night_of", what_is_loaded)
    sources = dict.fromkeys(("a", "b"), CASES / "D2a" / "logs")
    nights = run_clusters(listed(tmp_path, sources), run_id="r", started_at=AT, say=lambda _: None, process_count=2)
    assert [night.facts["is_ahead"] for night in nights] == [True, True]
    code = "import sys, jobs.operations.clusters; print({'pyarrow', 'deltalake', 'numba', 'pyspark'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(("number", "folder"), [(signal.SIGINT, ""), (signal.SIGKILL, "n" * 100)])
def test_its_processes_end_with_the_command(tmp_path: Path, number: signal.Signals, folder: str) -> None:
    """Ctrl-C is one line, and nobody begins another cluster; of a command that was killed no process stays behind, and
    no file that the next one does not clear; where the path of the temporary folder is long for a socket, too."""
    short = tempfile.mkdtemp(dir="/tmp")
    temporary = Path(short, folder)
    temporary.mkdir(exist_ok=True)
    listed(tmp_path, {f"c{count}": CASES / "D2a" / "logs" for count in range(40)})
    with subprocess.Popen(
        [sys.executable, "-m", "jobs", "nightly", "--all-clusters"],
        env={**os.environ, "GROUPLEDGER_CONFIG": str(tmp_path / "groupledger.toml"), "TMPDIR": str(temporary)},
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline().startswith("Night of ")
            # the terminal sends Ctrl-C to all of them, the system kills one
            (os.killpg if number is signal.SIGINT else os.kill)(process.pid, number)
            # the pipe is open as long as one of them lives
            answered, said = process.communicate(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert answered.count("Night of ") < 30 and "Traceback" not in said
    if number is signal.SIGINT:
        assert (process.returncode, said.splitlines()[-1]) == (130, "interrupted")
        assert not [*temporary.iterdir()]
    else:
        assert [*temporary.iterdir()]
        delete_abandoned(temporary)
        assert not [*temporary.iterdir()]
    shutil.rmtree(short)


def killed_or_done(settings: Settings, _run_id: str, _started_at: datetime) -> ClusterNight:
    """In place of a night."""
    if settings.cluster_id == "huge":
        os.kill(os.getpid(), signal.SIGKILL)
    facts = {"ledger": {"total": {"record_count": 1}}, "found": {"headline": "found: nothing out of the ordinary"}}
    return ClusterNight(settings.cluster_id, 0, 0.1, (), facts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no cluster is listed in"),
        ("clusters = 3", "no cluster is listed in"),
        ("[clusters.a]\nsegment = ['x']", "cannot have 'segment'; known are: segments"),
        ("[clusters]\na = 1", "cannot have '1'"),
        ("[clusters.a]\ntopics = ['x']", "names no source"),
    ],
)
def test_a_list_that_is_wrong_is_reported(tmp_path: Path, text: str, said: str) -> None:
    """With the file and what to write."""
    path = tmp_path / "groupledger.toml"
    path.write_text(f'warehouse = "w"\n{text}\n')
    with pytest.raises(SettingsError, match=said):
        load_clusters(environment={}, config_file=path)


def test_paths_of_a_cluster_start_at_its_file(tmp_path: Path) -> None:
    """As those of [sources] do; what is common to all stays."""
    (one,) = listed(tmp_path, {"a": Path("logs")}, "[metrics]\ngroups = 7")
    assert (one.segments, one.metrics_groups, one.cluster_id) == ((str(tmp_path / "logs"),), 7, "a")


def watched(settings: Settings, run_id: str, started_at: datetime) -> ClusterNight:
    """A night, and the largest memory that its process has had so far."""
    night = night_of(settings, run_id, started_at)
    night.facts["peak_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return night


@takes_minutes
def test_fifty_clusters_in_one_nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the sample recording, one of them damaged: 49 are whole, with the tables that one has alone, something is
    missing of all, and a process takes no more memory than for a few."""
    monkeypatch.setattr(clusters, "night_of", watched)
    logs = RECORDINGS / "full-a" / "logs"
    alone = {f"alone{number}": logs for number in range(4)}
    few = run_clusters(listed(tmp_path, alone), run_id="r", started_at=AT, say=lambda _: None, process_count=1)
    sources = {f"c{number:02}": logs for number in range(49)} | {"hurt": damaged(tmp_path)}
    nights = run_clusters(listed(tmp_path, sources), run_id="r", started_at=AT, say=lambda _: None)
    assert [night.exit_code for night in nights] == [0] * 49 + [3]
    assert worst(nights) == 3
    peak = max(night.facts["peak_kib"] for night in few)
    assert max(night.facts["peak_kib"] for night in nights) < 1.25 * peak
    for table in (*SILVER_TABLES, *GOLD_TABLES):
        expected = rows(tmp_path, table.full_name, "alone0")
        for name in ("c00", "c24", "c48"):
            assert rows(tmp_path, table.full_name, name) == expected, (table.full_name, name)


def test_a_night_in_a_process_of_its_own_is_a_night(tmp_path: Path) -> None:
    """Its lines are those of nightly."""
    (settings,) = listed(tmp_path, {"a": CASES / "D2a" / "logs"})
    night = night_of(settings, "r", AT)
    assert night.exit_code == 0 and any("records in = " in line for line in night.lines)
    assert night.as_json()["found"]["headline"].startswith("Night of ")
