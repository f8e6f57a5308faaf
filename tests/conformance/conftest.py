"""Options and report of the conformance tests.

    pytest tests/conformance                    on the traces, vectors and recordings that come with the project
    pytest tests/conformance --traces DIR       only the families that DIR holds (may be repeated)
    pytest tests/conformance --recording DIR    only that recording, a folder or an archive (may be repeated)

Traces are judged as the release that `--kafka-version` names, else as the one that the folder's name ends with, else
as 4.3.

Each comparison prints one line at the end of the run, whatever came of it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from coordinator_core.bytes.kafka_versions import kafka_version
from coordinator_core.errors import UnknownKafkaVersion
from jobs.spark.executors import Executor
from tests.conformance.recordings import (
    Recording,
    SilverMaker,
    SilverOf,
    WarehouseOf,
    log_folders,
    recordings_in,
)
from tests.conformance.test_traces import DATA, DATA_OF_VERSIONS, FamilyFile, family_files
from tests.conftest import REPORT_LINE
from tests.made_once import MadeOnce
from tests.recorded import RECORDINGS, UNPACKED
from tools.recordings import name_of, unpacked

LOG_FOLDERS: Final[Mapping[str, Callable[[Recording], bool]]] = {
    "recording": lambda recording: True,
    "whole": lambda recording: not recording.is_compacted,
    "compacted": lambda recording: recording.is_compacted,
}
"""Fixtures of log folders, and which they stand for."""
TRACE_TESTS: Final = "test_traces.py"
RECORDING_TESTS: Final = ("test_recordings.py", "test_describe.py", "test_gold_*.py")

ReportLine = Callable[[str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Folders to judge instead of those that come with the project."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--traces", action="append", type=Path, default=[], metavar="DIR", help="traces and vectors to judge"
    )
    group.addoption("--kafka-version", metavar="VERSION", help="the release as which --traces are judged, such as 4.4")
    group.addoption(
        "--recording",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="a recording to judge, or an archive",
    )


def _given(config: pytest.Config, option: str) -> list[Path]:
    """Folders given by an option; where pytest met this file too late to know the option there are none."""
    return [path.resolve() for path in config.getoption(option, default=None) or []]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With an option, only what it names is judged."""
    wanted = {
        name
        for names, option in (((TRACE_TESTS,), "--traces"), (RECORDING_TESTS, "--recording"))
        if _given(config, option)
        for name in names
    }
    if not wanted or collection_path.suffix != ".py" or collection_path.parent != Path(__file__).parent:
        return None
    return None if any(collection_path.match(name) for name in wanted) else True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a family file, and one a log folder of a recording."""
    if "family_file" in metafunc.fixturenames:
        folders = _given(metafunc.config, "--traces") or [DATA, *DATA_OF_VERSIONS]
        try:
            asked = metafunc.config.getoption("--kafka-version", default=None)
            version = kafka_version(asked) if asked else None
            files = [file for folder in folders for file in family_files(folder, version)]
        except UnknownKafkaVersion as error:
            raise pytest.UsageError(str(error)) from error
        if not files:
            raise pytest.UsageError(f"no traces or vectors in {', '.join(map(str, folders))}")
        metafunc.parametrize("family_file", files, ids=[_family_id(file) for file in files])
    for fixture, is_meant in LOG_FOLDERS.items():
        if fixture in metafunc.fixturenames and _judges_recordings(metafunc.definition.path):
            found = [recording for recording in _recordings(metafunc.config) if is_meant(recording)]
            metafunc.parametrize(fixture, found or [None], ids=[recording.name for recording in found] or ["none"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what no given recording is there for (one that was never compacted, say)."""
    without = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and any(item.callspec.params.get(name, ...) is None for name in LOG_FOLDERS if hasattr(item, "callspec"))
    ]
    if without:
        items[:] = [item for item in items if item not in without]
        config.hook.pytest_deselected(items=without)


def _judges_recordings(path: Path) -> bool:
    return any(path.match(name) for name in RECORDING_TESTS)


def _recordings(config: pytest.Config) -> list[Recording]:
    folders = [_unpacked(path) for path in _given(config, "--recording")]
    for folder in folders:
        missing = [name for name in ("logs", "decoded", "truth") if not (folder / name).is_dir()]
        if missing:
            raise pytest.UsageError(f"{folder} is no recording: it has no {', '.join(missing)}")
    return [found for folder in folders for found in log_folders(folder)] if folders else recordings_in(RECORDINGS)


def _unpacked(recording: Path) -> Path:
    return unpacked([recording], UNPACKED) / name_of(recording) if recording.is_file() else recording


def _family_id(file: FamilyFile) -> str:
    return f"{file.folder.name}/{file.name}"


@pytest.fixture(scope="session")
def silver_maker(no_spark: Executor, made_once: MadeOnce) -> SilverMaker:
    """Makes what the jobs make of a recording, each once."""
    return SilverMaker(no_spark, made_once)


@pytest.fixture(scope="session")
def silver_of(silver_maker: SilverMaker) -> SilverOf:
    """The tables which the jobs make of a recording, each made once."""
    return silver_maker


@pytest.fixture(scope="session")
def warehouse_of(silver_maker: SilverMaker) -> WarehouseOf:
    """The warehouse which holds them, for those who read it as the jobs do; the cluster is `cluster_id_of`."""
    return silver_maker.warehouse


@pytest.fixture
def report_line(request: pytest.FixtureRequest) -> ReportLine:
    """Add a line to the end of the run's output."""
    properties = request.node.user_properties
    return lambda line: properties.append((REPORT_LINE, line))
