"""A recording of client libraries of four languages (tests/live/libraries made it), judged without a broker and without
Spark."""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.cases.harness import Ledger, Night
from tests.conftest import RECORDINGS
from tests.live.libraries.judge import CERTAIN, JUDGED, LIKELY, Judgement, report, speaks_of_coordinators
from tests.live.libraries.truth import Truth, read_truth

ARCHIVE: Final = RECORDINGS / "clients" / "recording.tar.xz"
ACTS_MIN: Final = 40
"""Members killed, and members that left in order."""
LIKELY_RIGHT_MIN: Final = 0.95


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """logs/ and truth/"""
    folder = tmp_path_factory.mktemp("clients")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def truth(recording: Path) -> Truth:
    """What was done, and what the members said."""
    return read_truth(recording / "truth")


@pytest.fixture(scope="module")
def night(recording: Path, truth: Truth) -> tuple[Night, Ledger]:
    """One night over the logs."""
    ledger = Ledger(recording / "warehouse")
    return ledger.night(recording / "logs"), ledger


@pytest.fixture(scope="module")
def judgement(truth: Truth, night: tuple[Night, Ledger]) -> Judgement:
    """The tables against callbacks, script, and the broker's own log."""
    return report(truth, {name: night[1].rows(name) for name in JUDGED})


def test_all_libraries_took_part(judgement: Judgement) -> None:
    """Ten libraries of four languages, and members of each that left and that were killed."""
    assert (judgement.library_count, judgement.language_count) == (10, 4)
    assert min(judgement.acts["kill"], judgement.acts["leave"]) >= ACTS_MIN


def test_nothing_is_said_against_the_coordinators(night: tuple[Night, Ledger]) -> None:
    """The night ends well, nothing is quarantined, and no rule of the coordinators counts as broken."""
    ended, ledger = night
    assert ended.exit_code == 0, ended.text
    assert ledger.rows("bronze.quarantine") == []
    assert [row for row in ledger.rows("gold.log_anomalies") if speaks_of_coordinators(row)] == []


def test_owners_are_those_of_the_callbacks(judgement: Judgement, report_line: Callable[[str], None]) -> None:
    """Every stretch of ownership in gold is one of the members' callbacks, and the other way round."""
    for line in judgement.lines("client libraries"):
        report_line(line)
    assert judgement.wrong_owners == []


def test_causes_are_what_happened(judgement: Judgement) -> None:
    """CERTAIN is always right, LIKELY nearly always: the script and the broker's own log say what happened."""
    assert judgement.causes[CERTAIN].wrong == []
    assert judgement.causes[LIKELY].share >= LIKELY_RIGHT_MIN, judgement.causes[LIKELY].wrong
