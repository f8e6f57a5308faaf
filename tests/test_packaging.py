"""The wheel: what is in it, and that it works where nothing of a checkout is."""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections import Counter
from email.parser import Parser
from importlib.metadata import distributions
from pathlib import Path
from zipfile import ZipFile

import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from pathspec import PathSpec

from jobs import __version__
from tests.cases.harness import Ledger
from tests.conftest import PROJECT_ROOT
from tests.groupledger.raw import raw_records, recording
from tests.lengths import takes_minutes
from tools.wheel import renamed

PACKAGES = ("schemas", "coordinator_core", "simulator", "jobs")
SHIPPED = (
    *("conf", "scenarios", "spark-submit.sh", "bootstrap.py", "set_up.py", "recordings/full-a/logs"),
    *("docs/words.md", "docs/internals/methods.md"),
)
"""What lies next to the packages in a checkout, and with them in `groupledger` in a wheel."""
PYTHONS = ("3.11", "3.12", "3.13")
NOTEBOOK = PROJECT_ROOT / "examples" / "own-spark-job.ipynb"
OF_THE_API = {"pyarrow", "tzdata", "numpy", "msgspec", "numba", "google-crc32c", "cramjam", "immutables"}
"""What comes with the wheel alone: a platform has its own Spark, and pip must not replace it."""
DECOY = "raise ImportError('a package of the user, which is not to be imported')"


def build(kind: str, folder: Path, source: Path = PROJECT_ROOT) -> Path:
    """Build a wheel or an sdist into a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=source, check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    [made] = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def files_below(folder: Path) -> set[str]:
    """Paths of the files below a folder, or of itself, relative to the project; what Python leaves is none."""
    found = [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(PROJECT_ROOT)) for path in found if "__pycache__" not in path.parts}


def imported(source: str) -> Counter[str]:
    """Names of modules that a module's text imports, each as often as it does."""
    found = Counter[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found[node.module or ""] += 1
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def interpreter(version: str) -> str:
    """A Python of a version: on the PATH, or one that pyenv keeps, whose command on the PATH runs only what it is set
    to."""
    name = f"python{version}"
    kept = sorted(
        (Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions").glob(f"{version}.*/bin/{name}")
    )
    for found in (shutil.which(name), *map(str, kept)):
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    raise AssertionError(f"no {name} on the PATH: install it, by your distribution or pyenv")


def decoys(folder: Path) -> None:
    """Packages of a user's own, under the names that this project's folders have."""
    for name in PACKAGES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(DECOY)


def write_raw_records(folder: Path) -> None:
    """Raw records of the recording as a Parquet folder `raw`."""
    ledger = Ledger(folder / "ledger")
    ledger.night(recording("full-a"))
    (folder / "raw").mkdir()
    pq.write_table(raw_records(ledger.warehouse), folder / "raw" / "records.parquet")


def test_the_wheel_has_all_that_jobs_need(wheel: Path) -> None:
    """Every file of the packages, the settings, scenarios, shell and recording: once each, all inside one package."""
    expected = files_below(PROJECT_ROOT / "groupledger")
    expected |= {f"groupledger/{name}" for it in (*PACKAGES, *SHIPPED) for name in files_below(PROJECT_ROOT / it)}
    with ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        assert sorted(names) == sorted(expected)
        for files_shipped in SHIPPED:
            for name in files_below(PROJECT_ROOT / files_shipped):
                assert archive.read(f"groupledger/{name}") == (PROJECT_ROOT / name).read_bytes()


@pytest.mark.nights
def test_the_wheel_imports_nothing_from_the_top(wheel: Path) -> None:
    """No module of it imports a package by the name that it has in a checkout, and none lost an import."""
    found = Counter[str]()
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                found.update(imported(archive.read(name).decode()))
    assert {name: count for name, count in found.items() if name.split(".")[0] in PACKAGES} == {}
    here = Counter[str]()
    for package in ("groupledger", *PACKAGES):
        for path in (PROJECT_ROOT / package).rglob("*.py"):
            here.update(imported(path.read_text(encoding="utf-8")))
    for name in ("bootstrap.py", "set_up.py"):
        here.update(imported((PROJECT_ROOT / name).read_text(encoding="utf-8")))
    expected = {
        f"groupledger.{name}" if name.split(".")[0] in PACKAGES else name: count for name, count in here.items()
    }
    assert found == expected


def test_an_import_that_the_wheel_cannot_have() -> None:
    """`import jobs.x` binds a name that is not there: the build says so."""
    with pytest.raises(ValueError, match=r"a\.py: 'import jobs\.cli' binds a name"):
        renamed("import jobs.cli\n", "a.py")
    assert renamed("import jobs.cli as cli\nimport jobsite\n", "a.py") == (
        "import groupledger.jobs.cli as cli\nimport jobsite\n"
    )


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    """Name, version, licence, dependencies and the command."""
    with ZipFile(wheel) as archive:
        [info] = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        commands = archive.read(f"{info}/entry_points.txt").decode()
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert (metadata["Name"], metadata["Version"]) == ("groupledger", __version__)
    assert metadata.get_all("Provides-Extra") == ["dev", "jobs", "spark"]
    python = "Programming Language :: Python :: "
    classified = [it.removeprefix(python) for it in metadata.get_all("Classifier", []) if it.startswith(python)]
    assert set(classified) == {*PYTHONS}, "those that make package-test runs on"
    assert metadata["License-Expression"] == "Apache-2.0"
    required = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    always = {it.name: str(it.specifier) for it in required if it.marker is None}
    assert set(always) == OF_THE_API
    assert all(text.startswith(">=") and "," not in text for text in always.values()), "a platform's own versions fit"
    assert commands.split() == ["[console_scripts]", "groupledger", "=", "groupledger.jobs.console.command_name:main"]


def test_an_unpacked_wheel_finds_its_own(wheel: Path, tmp_path: Path) -> None:
    """Settings, recording and shell are its own, hints name the command; another `jobs` on the path is a user's."""
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    decoys(tmp_path)
    code = (
        "from groupledger.jobs.settings import PROJECT_ROOT, load_settings; "
        "from groupledger.jobs.console.command_name import SHELL, command; "
        "import groupledger.jobs.operations.nightly, groupledger.jobs.gold.audit; "
        "print(PROJECT_ROOT, *load_settings().segments, command('nightly'), (PROJECT_ROOT / SHELL).is_file())"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GROUPLEDGER_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(tmp_path), "GROUPLEDGER_ENTRY": "groupledger"},
        capture_output=True,
        text=True,
        check=True,
    )
    root = tmp_path / "groupledger"
    recording = f"{root}/recordings/full-a/logs"
    assert done.stdout.split() == [str(root), recording, "groupledger", "nightly", "True"]


def test_an_sdist_has_the_recording_although_a_link_leads_there(tmp_path: Path) -> None:
    """hatchling walks a folder once, and tests leave a link to the recording in `.cache`, which comes first."""
    first = build("sdist", tmp_path / "first")
    shutil.unpack_archive(first, tmp_path / "unpacked")
    [source] = (tmp_path / "unpacked").iterdir()
    (source / ".cache").mkdir()
    (source / ".cache" / "full-a").symlink_to(source / "recordings" / "full-a")
    for made in (first, build("sdist", tmp_path / "second", source)):
        with tarfile.open(made) as archive:
            packed = {name.partition("/")[2] for name in archive.getnames()}
        assert files_below(PROJECT_ROOT / "recordings/full-a/logs") <= packed


def test_the_image_is_built_from_what_the_wheel_needs() -> None:
    """Nothing of it is kept from Docker, and no recordings, caches or warehouses are sent along."""
    ignored = PathSpec.from_lines("gitignore", (PROJECT_ROOT / ".dockerignore").read_text().splitlines())
    tracked = subprocess.run(["git", "ls-files"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout
    sent = {name for name in tracked.splitlines() if not ignored.match_file(name)}
    needed = {name for folder in (*PACKAGES, *SHIPPED) for name in files_below(PROJECT_ROOT / folder)}
    needed |= files_below(PROJECT_ROOT / "groupledger")
    needed |= {
        "pyproject.toml",
        "requirements.txt",
        "requirements-build.txt",
        "requirements-uv.txt",
        "README.md",
        "LICENSE",
    }
    assert needed <= sent
    assert sent == needed
    assert ignored.match_file("warehouse/x") and ignored.match_file(".venv/bin/python")


@takes_minutes
@pytest.mark.parametrize(("of", "python"), [("sdist", PYTHONS[0]), *(("wheel", python) for python in PYTHONS)])
def test_pip_install_in_an_empty_environment(of: str, python: str, tmp_path: Path) -> None:
    """From a wheel, or one made of the sdist, next to a user's packages: `groupledger nightly` gives the ledger, and
    the API's notebook runs from top to bottom."""
    source = PROJECT_ROOT
    if of == "sdist":
        shutil.unpack_archive(build("sdist", tmp_path / "sdist"), tmp_path / "unpacked")
        [source] = (tmp_path / "unpacked").iterdir()
    wheel = build("wheel", tmp_path / "wheel", source)
    subprocess.run([interpreter(python), "-m", "venv", tmp_path / "environment"], check=True)
    binaries = tmp_path / "environment" / "bin"
    versions = locked(tmp_path / "versions.txt", "requirements.txt")
    subprocess.run([binaries / "pip", "install", "-q", "-c", versions, f"{wheel}[jobs]"], check=True)
    decoys(tmp_path / "environment" / "lib" / f"python{python}" / "site-packages")
    environment = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binaries / "groupledger", *words],
            cwd=tmp_path,
            env={**environment, "HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=False,
        )

    (tmp_path / "home").mkdir()
    assert start("--version").stdout == f"groupledger {__version__}\n"
    nightly = start("nightly")
    assert nightly.returncode == 0, nightly.stderr
    assert "4,000 records in" in nightly.stderr
    assert "groupledger audit --list archived" in nightly.stdout
    assert "spark-submit.sh" not in nightly.stderr + nightly.stdout
    write_raw_records(tmp_path)
    subprocess.run([binaries / "pip", "install", "-q", f"{wheel}[spark]", "nbclient", "ipykernel"], check=True)
    notebook = subprocess.run(
        [binaries / "jupyter-execute", "--output", tmp_path / "done.ipynb", NOTEBOOK],
        cwd=tmp_path,
        env={
            **environment,
            "HOME": str(tmp_path / "home"),
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "RECORDS": str(tmp_path / "raw"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert notebook.returncode == 0, notebook.stderr
    shown = (tmp_path / "done.ipynb").read_text()
    assert "OffsetCommitValue" in shown and "c01-range-m2-" in shown and "GROUP_EMPTIED" in shown
    owner = start("owner", "--topic", "c01-range", "--partition", "1", "--at", "2026-11-21T02:58:17Z")
    assert (owner.returncode, "c01-range-m2" in owner.stdout) == (0, True), owner.stderr


@pytest.mark.skipif(not os.environ.get("PACKAGE_TESTS"), reason="minutes: make package-test")
def test_a_first_start_in_a_fresh_clone(tmp_path: Path) -> None:
    """One that is killed while it installs, then two at once, without a HOME; a night without a network after that."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(PROJECT_ROOT), str(clone)], check=True)
    of_this_run = ("HOME", "PYTHON", "PYSPARK", "SPARK_", "NUMBA", "GROUPLEDGER")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(of_this_run)}

    def start(*words: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [clone / "spark-submit.sh", *words],
            env=environment | variables,
            cwd=clone,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    killed = start("--set-up")
    while not (clone / ".cache" / "install-packages.log").exists():
        assert killed.poll() is None
        time.sleep(0.1)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    both = [start("--set-up") for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sorted(len(text.splitlines()) for text in said) == [0, 3], "Making, Compiling, Fetching; by one"
    nowhere = "http://127.0.0.1:9"
    night = start("nightly", http_proxy=nowhere, https_proxy=nowhere)
    _, err = night.communicate()
    assert night.returncode == 0, err
    assert "4,000 records in" in err


API_JOB = """
import sys
from pyspark.sql import SparkSession
import groupledger

spark = SparkSession.builder.getOrCreate()
groups = groupledger.replay_groups(spark.read.parquet(sys.argv[1]))
print("rebalances", groupledger.audit_groups(groups).rebalances.count())
print("from", spark.sparkContext.parallelize([0], 1).map(lambda _: groupledger.__file__).first())
"""


def locked(path: Path, name: str) -> Path:
    """The versions of a lock file, without the hashes of what another Python or a wheel of this project would need."""
    lines = (PROJECT_ROOT / name).read_text().splitlines()
    path.write_text("".join(f"{line.split()[0]}\n" for line in lines if "==" in line))
    return path


def dependencies(python: str, folder: Path) -> Path:
    """A Python of a version that has what this project needs, and nothing of the project itself."""
    if python == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    subprocess.run([interpreter(python), "-m", "venv", folder], check=True)
    for_tests = locked(folder / "for-tests.txt", "requirements-dev.txt")
    pinned = ("-r", locked(folder / "versions.txt", "requirements.txt"), "-c", for_tests, "pandas")
    subprocess.run([folder / "bin" / "pip", "install", "-q", *pinned], check=True)
    return folder / "bin" / "python"


def spark_submit(folder: Path, package: Path, python: Path) -> subprocess.CompletedProcess[str]:
    """Run the API on a cluster whose executor has the dependencies, and this project from `--py-files` alone."""
    (folder / "job.py").write_text(API_JOB)
    binaries = python.parent
    environment = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "HOME") if name in os.environ}
    settings = ("spark.ui.enabled=false", "spark.sql.shuffle.partitions=2", "spark.log.level=ERROR")
    words = ["--master", "local-cluster[1,2,1024]", "--py-files", str(package)]
    for setting in settings:
        words += ["--conf", setting]
    return subprocess.run(
        [binaries / "spark-submit", *words, str(folder / "job.py"), str(folder / "raw")],
        cwd=folder,
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )


@takes_minutes
@pytest.mark.parametrize("python", PYTHONS)
def test_executors_get_the_api_by_py_files(wheel: Path, python: str, tmp_path: Path) -> None:
    """The wheel as a .zip brings the API to executors that have nothing else of this project."""
    write_raw_records(tmp_path)
    shutil.copy(wheel, tmp_path / "groupledger.zip")
    done = spark_submit(tmp_path, tmp_path / "groupledger.zip", dependencies(python, tmp_path / "environment"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["rebalances", "257", "from", "./groupledger.zip/groupledger/__init__.py"]


def test_a_wheel_that_is_not_installed_says_what_to_do(wheel: Path) -> None:
    """Spark's workers import nothing from a .whl: who gives one as it is, gets the remedy and not numba's error."""
    code = "import groupledger; groupledger.replay_groups"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(wheel), "PATH": os.environ["PATH"]},
        cwd=wheel.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {wheel.name} was given to Spark as it is, and Spark's workers import from .zip alone: "
        f"cp {wheel.name} groupledger.zip, and give --py-files groupledger.zip"
    )


WITHOUT_SPARK = """
import sys
sys.modules.update(dict.fromkeys(("pyspark", "deltalake", "duckdb", "typer", "rich", "kafka", "plotly", "jinja2")))
import groupledger
print({"numba", "numpy", "pyarrow"} & sys.modules.keys())
try:
    groupledger.replay_groups
except ImportError as error:
    print(error)
from groupledger.jobs.console.command_name import main
main()
"""


def test_a_wheel_without_its_extras_says_what_to_install(wheel: Path, tmp_path: Path) -> None:
    """The package imports nothing until it is used; the API names what a Spark needs, and a job what jobs need."""
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    [info] = tmp_path.glob("*.dist-info")
    metadata = (info / "METADATA").read_text("utf-8")
    (info / "METADATA").write_text(metadata.replace("Requires-Dist: duckdb", "Requires-Dist: no-such-package"), "utf-8")
    environment = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", WITHOUT_SPARK, "nightly"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "set()",
        "groupledger.replay_groups needs pyspark, which a platform with Spark has: elsewhere, "
        "pip install 'groupledger[spark]'",
    ]
    assert (done.returncode, done.stderr) == (1, "error: jobs need no-such-package: pip install 'groupledger[jobs]'\n")


API_MODULES = """
import sys
sys.modules.update(dict.fromkeys(("deltalake", "delta", "duckdb", "typer", "rich", "kafka", "plotly", "jinja2", "re2")))
import groupledger
for name in groupledger.__all__:
    getattr(groupledger, name)
"""


def test_the_api_needs_nothing_of_the_jobs() -> None:
    """All of it is imported where only its own dependencies are there, and Spark."""
    subprocess.run([sys.executable, "-c", API_MODULES], cwd=PROJECT_ROOT, check=True)


def test_all_that_is_pinned_takes_the_oldest_python() -> None:
    """Debian's Python 3.11.2 is one that README takes: a pin that only newer ones can have stops the set-up there."""
    with (PROJECT_ROOT / "pyproject.toml").open("rb") as file:
        oldest = tomllib.load(file)["project"]["requires-python"].removeprefix(">=") + ".0"
    wanted = {it.name: it.metadata["Requires-Python"] for it in distributions() if it.metadata["Requires-Python"]}
    assert "pyspark" in wanted
    assert {name: versions for name, versions in wanted.items() if oldest not in SpecifierSet(versions)} == {}


def notebook_packages() -> list[str]:
    """What the install line of the notebook over the tables names."""
    notebook = json.loads((PROJECT_ROOT / "examples" / "first-look.ipynb").read_text(encoding="utf-8"))
    [line] = re.findall(r"`pip install ([^`]*)`", "".join(notebook["cells"][0]["source"]))
    return str(line).split()


def test_the_notebook_names_all_that_it_needs() -> None:
    """deltalake gives a DataFrame by pyarrow alone, which it does not bring itself."""
    assert notebook_packages() == ["jupyterlab", "deltalake", "pyarrow", "pandas"]


@takes_minutes
def test_the_notebook_runs_on_what_its_install_line_brings(tmp_path: Path) -> None:
    """In an empty environment, every cell; the server of notebooks itself is left out."""
    Ledger(tmp_path / "warehouse").night(PROJECT_ROOT / "recordings" / "full-a" / "logs")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True)
    python = tmp_path / "environment" / "bin" / "python"
    packages = [name for name in notebook_packages() if name != "jupyterlab"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    notebook = json.loads((PROJECT_ROOT / "examples" / "first-look.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (tmp_path / "notebook.py").write_text("\n\n".join(cells))
    done = subprocess.run([python, "notebook.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
